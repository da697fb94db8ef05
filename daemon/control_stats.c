// SPDX-License-Identifier: MIT
/*
 * control_stats.c - requests that show what was used when.
 */
#include <string.h>

#include "backend.h"
#include "control_stats.h"
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

void control_stats(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct backend_filter filter = { .gpu = given(r, M_GPU) ? r->gpu : NULL, .viewer = c };
	json_t *reply, *gpus, *tasks;
	uint64_t now;

	if (!has_gpu(c, r))
		return;
	d->host->count(d);
	now = rtxg_now_ns();
	gpus = json_array();
	backend_stats(d, now, gpus);
	keep_gpu(gpus, r);
	reply = json_pack("{s:I, s:o}", "now_ns", (json_int_t)now, "gpus", gpus);
	if (r->tasks) {
		tasks = json_array();
		backend_tasks(d, &filter, tasks);
		keep_gpu(tasks, r);
		json_object_set_new(reply, "tasks", tasks);
	}
	reply_ok(c, r, reply);
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
