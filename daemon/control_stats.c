// SPDX-License-Identifier: MIT
/*
 * control_stats.c - requests that show what was used when.
 */
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
	uint64_t end = rtxg_now_ns() + CONTROL_PIECE_NS;

	/* The GPU may go while the answer is made. */
	if (!answer && !has_gpu(c, r))
		return;
	d->host->count(d);
	if (!answer) {
		answer = control_tasks_begin(c, r);
		if (!answer)
			return;
		put_gpus(d, r, &answer->rows);
		if (r->tasks)
			reply_rows_list(&answer->rows, "tasks");
	}
	if (!r->tasks || control_tasks_go_on(c, answer, &filter, end))
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

void control_history(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	uint64_t first = history_oldest(d), since = (uint64_t)r->since;
	json_t *times, *series;

	if (!has_gpu(c, r))
		return;
	times = json_array();
	series = json_array();
	if (given(r, M_SINCE) && since > first)
		first = since < d->samples ? since : d->samples;
	for (uint64_t n = first; n <= d->samples; n++)
		json_array_append_new(times, report_number(d->times[n % (SLOTS + 1)]));
	backend_history(d, first, series);
	keep_gpu(series, r);
	reply_ok(c, r,
		 json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "slot_ns", (json_int_t)SLOT_NS,
			   "now_ns", (json_int_t)rtxg_now_ns(), "first", (json_int_t)first, "next",
			   (json_int_t)d->samples, "times_ns", times, "series", series));
}

void control_timeline(struct connection *c, const struct request *r)
{
	reply_ok(c, r, backend_timeline(c->daemon, (uint64_t)r->since, c));
}
