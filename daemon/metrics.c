// SPDX-License-Identifier: MIT
/*
 * metrics.c - values that all backends put into the reply of "metrics" alike. Reads, and changes
 * nothing. May not know a backend.
 */
#include "metrics.h"
#include "report.h"

uint64_t metrics_entitled(const struct vgpu *vgpu, uint64_t wanted_ns)
{
	return vgpu ? (uint64_t)((unsigned __int128)wanted_ns * vgpu->params.min_ppm / RTXG_PPM)
		    : 0;
}

int64_t metrics_error(uint64_t received_ns, uint64_t entitled_ns, uint64_t span_ns)
{
	if (!span_ns)
		return 0;
	return (int64_t)(((double)received_ns - (double)entitled_ns) * RTXG_PPM / (double)span_ns);
}

const char *const metrics_vgpu_columns[] = { "gpu",	    "vgpu",	 "engine",    "min_ppm",
					     "max_ppm",	    "tasks",	 "waiting",   "received_ns",
					     "entitled_ns", "wanted_ns", "error_ppm", "waited_ns",
					     "stopped_ns",  "more",	 NULL };
const char *const metrics_process_columns[] = { "pid",	      "task",	 "comm",	"vgpu",
						"gpu",	      "managed", "received_ns", "waited_ns",
						"stopped_ns", "memory",	 NULL };

json_t *metrics_columns(const char *const *names)
{
	json_t *list = json_array();

	for (; *names; names++)
		json_array_append_new(list, json_string(*names));
	return list;
}

static void put_text(json_t *row, const char *text)
{
	json_array_append_new(row, text ? message_string(text) : json_null());
}

static void put(json_t *row, uint64_t value)
{
	json_array_append_new(row, value == UINT64_MAX ? json_null() : report_number(value));
}

void metrics_put(struct metrics *m, const struct metrics_engine *e, json_t *more)
{
	json_t *row = json_array();

	put_text(row, e->gpu);
	/* Names of vGPUs are plain: they need no look at their characters. */
	json_array_append_new(row, json_string_nocheck(e->vgpu ? e->vgpu->name : "default"));
	json_array_append_new(row, json_string_nocheck(e->engine));
	put(row, e->vgpu ? e->vgpu->params.min_ppm : 0);
	put(row, e->vgpu ? e->vgpu->params.max_ppm : RTXG_PPM);
	put(row, e->tasks);
	put(row, e->waiting);
	put(row, e->received_ns);
	put(row, e->entitled_ns);
	put(row, e->wanted_ns);
	json_array_append_new(row, json_integer(e->error_ppm));
	put(row, e->waited_ns);
	put(row, e->stopped_ns);
	json_array_append_new(row, more ? more : json_null());
	json_array_append_new(m->vgpus, row);
}

void metrics_put_process(struct metrics *m, const struct metrics_process *p)
{
	json_t *row = json_array();

	put(row, (uint64_t)p->pid);
	json_array_append_new(row, p->task < 0 ? json_null() : json_integer(p->task));
	put_text(row, p->comm);
	put_text(row, p->vgpu);
	put_text(row, p->gpu);
	json_array_append_new(row, json_boolean(p->managed));
	put(row, p->received_ns);
	put(row, p->waited_ns);
	put(row, p->stopped_ns);
	put(row, p->memory);
	json_array_append_new(m->processes, row);
}
