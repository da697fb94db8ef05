// SPDX-License-Identifier: MIT
/*
 * control_stats.c - requests that show what was used when.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "breathe.h"
#include "control_stats.h"
#include "control_task.h"
#include "history.h"
#include "host.h"
#include "metrics.h"
#include "refused.h"
#include "reply.h"
#include "report.h"
#include "series.h"

/* False, and the client knows, if the request names a GPU that is not there. */
static bool has_gpu(struct connection *c, const struct request *r)
{
	if (!given(r, M_GPU) || backend_has(c->daemon, r->gpu))
		return true;
	reply_no_such(c, r, "GPU", r->gpu, "\"rtxg limits\" lists them");
	return false;
}

/* Leaves in a list about all GPUs the lines about one of them. */
static void keep_gpu(json_t *list, const struct request *r)
{
	for (size_t i = json_array_size(list); given(r, M_GPU) && i-- > 0;) {
		const char *name =
			json_string_value(json_object_get(json_array_get(list, i), "gpu"));

		if (!name || strcmp(name, r->gpu))
			json_array_remove(list, i);
	}
}

/* All of them are of one moment. */
static void put_gpus(struct daemon *d, const struct request *r, struct reply_rows *rows)
{
	uint64_t now = rtxg_now_ns();
	json_t *gpus = json_array(), *gpu;
	size_t i;

	backend_stats(d, now, gpus);
	keep_gpu(gpus, r);
	reply_rows_put(rows, "now_ns", json_integer((json_int_t)now));
	reply_rows_list(rows, "gpus");
	json_array_foreach (gpus, i, gpu) {
		reply_rows_add(rows, json_incref(gpu));
		breathe(d);
	}
	json_decref(gpus);
}

void control_stats(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct backend_filter filter = { .gpu = given(r, M_GPU) ? r->gpu : NULL,
					 .on_gpu = true,
					 .viewer = c };
	struct tasks_answer *answer = c->pieces;

	/* The GPU may go while the answer is made. */
	if (!answer && !has_gpu(c, r))
		return;
	if (!answer || !answer->made)
		d->host->count(d);
	if (!answer) {
		answer = control_tasks_begin(c, r);
		if (!answer)
			return;
		put_gpus(d, r, &answer->rows);
		if (r->tasks)
			reply_rows_list(&answer->rows, "tasks");
	}
	if (!r->tasks || control_tasks_go_on(c, answer, &filter))
		reply_rows_send(c, &answer->rows);
}

void control_metrics(struct connection *c, const struct request *r)
{
	struct metrics m = { .viewer = c,
			     .gpus = json_array(),
			     .vgpus = json_array(),
			     .more = json_array(),
			     .processes = json_array(),
			     .levers = json_array() };
	json_t *refused = refused_list(NULL);
	struct daemon *d = c->daemon;
	uint64_t now;

	d->host->count(d);
	now = rtxg_now_ns();
	backend_metrics(d, now, &m);
	reply_ok(c, r,
		 json_pack("{s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:o, s:o, s:o, s:o, s:o, "
			   "s:o, s:o}",
			   "version", RTXG_VERSION, "host", d->host->name, "scope",
			   d->system ? "system" : "user", "now_ns", (json_int_t)now, "started_ns",
			   (json_int_t)d->started_ns, "refused", (int)json_array_size(refused),
			   "connections", (int)d->connections_count, "gpus", m.gpus, "vgpu_columns",
			   metrics_columns(metrics_vgpu_columns), "vgpus", m.vgpus, "more", m.more,
			   "process_columns", metrics_columns(metrics_process_columns), "processes",
			   m.processes, "levers", m.levers));
	json_decref(refused);
}

/* An answer to "history", in pieces: first all is copied, then each copy becomes text. */
struct history_answer {
	struct reply_rows rows;
	struct series_list list;
	bool copied;
	struct series *said;	   /* the last one that is text; NULL: none */
	uint64_t times[SLOTS + 1]; /* the borders of its slots */
};

static void history_drop(void *pieces)
{
	struct history_answer *answer = pieces;

	series_drop(&answer->list);
	reply_rows_drop(&answer->rows);
	free(answer);
}

static struct history_answer *begin_history(struct connection *c, const struct request *r)
{
	struct history_answer *answer = calloc(1, sizeof(*answer));
	struct daemon *d = c->daemon;
	uint64_t first = history_oldest(d), since = (uint64_t)r->since;

	if (!answer || reply_rows_begin(&answer->rows, r)) {
		free(answer);
		reply_error(c, r->op_name, -ENOMEM, "there is no memory for the request", NULL);
		return NULL;
	}
	if (given(r, M_SINCE) && since > first)
		first = since < d->samples ? since : d->samples;
	series_begin(&answer->list, d, first, given(r, M_GPU) ? r->gpu : "");
	for (uint64_t n = first; n <= d->samples; n++)
		answer->times[n - first] = d->times[n % (SLOTS + 1)];
	c->pieces = answer;
	c->drop_pieces = history_drop;
	return answer;
}

/* All but the series. Nothing more is lost from now on. */
static void put_head(struct history_answer *answer)
{
	const struct series_list *list = &answer->list;
	json_t *times = json_array();

	for (uint64_t n = list->first; n <= list->next; n++)
		json_array_append_new(times, report_number(answer->times[n - list->base]));
	reply_rows_put(&answer->rows, "slot_ns", json_integer((json_int_t)SLOT_NS));
	reply_rows_put(&answer->rows, "now_ns", json_integer((json_int_t)rtxg_now_ns()));
	reply_rows_put(&answer->rows, "first", json_integer((json_int_t)list->first));
	reply_rows_put(&answer->rows, "next", json_integer((json_int_t)list->next));
	reply_rows_put(&answer->rows, "times_ns", times);
	reply_rows_list(&answer->rows, "series");
}

/* The next piece of them, one series at least; true: the last one. */
static bool put_series(struct daemon *d, struct history_answer *answer)
{
	const struct series_list *list = &answer->list;
	struct series *one;

	while ((one = answer->said ? answer->said->following : list->head)) {
		reply_rows_add(&answer->rows, series_report(list, one));
		answer->said = one;
		breathe(d);
		if (rtxg_now_ns() >= list->end_ns)
			return !one->following;
	}
	return true;
}

void control_history(struct connection *c, const struct request *r)
{
	uint64_t end = rtxg_now_ns() + CONTROL_PIECE_NS;
	struct history_answer *answer = c->pieces;

	if (!answer && !has_gpu(c, r))
		return;
	if (!answer)
		answer = begin_history(c, r);
	if (!answer)
		return;
	answer->list.end_ns = end;
	if (!answer->copied) {
		answer->copied = backend_history(c->daemon, &answer->list);
		if (answer->copied)
			put_head(answer);
	}
	c->later = !answer->copied || !put_series(c->daemon, answer);
	if (c->later)
		return;
	answer->rows.bad |= answer->list.bad;
	reply_rows_send(c, &answer->rows);
}

void control_timeline(struct connection *c, const struct request *r)
{
	reply_ok(c, r, backend_timeline(c->daemon, (uint64_t)r->since, c));
}
