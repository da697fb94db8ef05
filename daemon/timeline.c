// SPDX-License-Identifier: MIT
/*
 * timeline.c - which process held which NVIDIA GPU when, and what the lever did: a ring of events,
 * the oldest of which are overwritten. For people; nothing depends on it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "nvidia.h"
#include "report.h"
#include "timeline.h"

#define EVENTS 65536u /* at 2 ms a turn a minute and more of one GPU */
#define KNOWN  1024u

struct event {
	/*
	 * of an action: 0 = stop, UINT64_MAX = resume, else a slice; of a context: 1 = came, 0 =
	 * went
	 */
	uint64_t start_ns, end_ns, what;
	uint32_t gpu, pid, vgpu;
	bool stay, context;
	char comm[16];
};

static struct event *events;
static uint64_t events_count; /* since the start */

void timeline_open(void)
{
	events = calloc(EVENTS, sizeof(*events));
}

void timeline_close(void)
{
	free(events);
	events = NULL;
}

static struct event *event_new(uint32_t gpu, uint32_t pid, uint32_t vgpu, uint64_t start,
			       uint64_t end, uint64_t what)
{
	static struct event nowhere;
	struct event *e = events ? &events[events_count++ % EVENTS] : &nowhere;

	*e = (struct event){
		.gpu = gpu, .pid = pid, .vgpu = vgpu, .start_ns = start, .end_ns = end, .what = what
	};
	return e;
}

void timeline_stay(uint32_t gpu, uint32_t pid, uint32_t vgpu, uint64_t start_ns, uint64_t end_ns)
{
	event_new(gpu, pid, vgpu, start_ns, end_ns, 0)->stay = true;
}

void timeline_acted(uint32_t gpu, uint32_t pid, uint64_t at_ns, uint64_t took_ns, uint64_t what)
{
	event_new(gpu, pid, 0, at_ns, at_ns + took_ns, what);
}

void timeline_context(uint32_t gpu, uint32_t pid, const char *comm, uint32_t vgpu, bool alive)
{
	uint64_t now = rtxg_now_ns();
	struct event *e = event_new(gpu, pid, vgpu, now, now, alive);

	e->context = true;
	snprintf(e->comm, sizeof(e->comm), "%s", comm);
}

struct seen {
	uint32_t pid;
	bool seen;
};

/* Thousands of events are of few processes. */
static bool sees(const struct connection *viewer, uint32_t pid, struct seen known[KNOWN])
{
	struct seen *at = &known[pid % KNOWN];

	if (at->pid != pid)
		*at = (struct seen){ .pid = pid, .seen = access_sees_process(viewer, (pid_t)pid) };
	return at->seen;
}

json_t *timeline_report(uint64_t since, const struct connection *viewer)
{
	struct seen known[KNOWN] = { { 0 } };
	uint64_t first = events_count > EVENTS ? events_count - EVENTS : 0;
	/* As one of no user that there is: is anything hidden? */
	bool all = access_sees(viewer, (uid_t)-1);
	json_t *list = json_array();

	if (since > first)
		first = since < events_count ? since : events_count;
	for (uint64_t i = first; events && i < events_count; i++) {
		const struct event *e = &events[i % EVENTS];
		const char *kind = e->stay		   ? "stay"
				   : e->context		   ? e->what ? "came" : "went"
				   : !e->what		   ? "stop"
				   : e->what == UINT64_MAX ? "resume"
							   : "slice";
		bool seen = all || sees(viewer, e->pid, known);
		json_t *o = json_object();

		report_put_text(o, "kind", kind);
		json_object_set_new(o, "gpu", json_sprintf("nvidia%u", e->gpu));
		report_put(o, "pid", seen ? e->pid : 0);
		report_put(o, "start_ns", e->start_ns);
		report_put(o, "end_ns", e->end_ns);
		if (e->stay || e->context)
			report_put_text(o, "vgpu", nvidia_vgpu_name(e->vgpu));
		if (e->context)
			report_put_text(o, "comm", seen ? e->comm : "");
		if (!strcmp(kind, "slice"))
			report_put(o, "slice_ns", e->what);
		json_array_append_new(list, o);
	}
	return json_pack("{s:I, s:I, s:o}", "first", (json_int_t)first, "next",
			 (json_int_t)events_count, "events", list);
}
