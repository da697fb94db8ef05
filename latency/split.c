// SPDX-License-Identifier: MIT
/*
 * split.c - cuts a launch into parts. May not: make a system call, know which GPU it is.
 */
#include <string.h>

#include "split.h"

#define DRIFT_PPM 50

const char *split_words(enum split_kind kind)
{
	static const char *const words[SPLIT_KINDS] = {
		[SPLIT_SUBMIT] = "launch call",
		[SPLIT_WAIT] = "waiting for the engine",
		[SPLIT_HELD] = "engine held by",
		[SPLIT_CHANGE] = "context save and restore",
		[SPLIT_BEFORE] = "on the engine, before the kernel began",
		[SPLIT_EXECUTION] = "execution",
		[SPLIT_COMPLETION] = "completion: interrupt and driver",
		[SPLIT_WAKEUP] = "CPU wake-up",
		[SPLIT_RETURN] = "return to the program",
	};

	return words[kind];
}

struct parts {
	struct split_part *list;
	int count;
};

static void add(struct parts *parts, enum split_kind kind, uint32_t pid, uint64_t ns)
{
	struct split_part *last = parts->count ? &parts->list[parts->count - 1] : NULL;

	if (!ns)
		return;
	for (int i = 0; i < parts->count; i++)
		if (parts->list[i].kind == kind && parts->list[i].pid == pid) {
			parts->list[i].ns += ns;
			return;
		}
	if (parts->count == SPLIT_PARTS) { /* more holders than fit: the last takes the rest */
		last->ns += ns;
		return;
	}
	parts->list[parts->count++] = (struct split_part){ kind, ns, pid };
}

/* Who had the engine between two times; `own` is what our being on it counts as. */
static void engine(struct parts *parts, const struct split_switch *events, size_t count,
		   uint32_t pid, uint64_t from, uint64_t to, enum split_kind own)
{
	bool known = false, held = false;
	uint32_t holder = 0;
	uint64_t at = from;

	if (to <= from)
		return;
	for (size_t i = 0; i <= count; i++) {
		uint64_t until = i < count && events[i].ns < to ? events[i].ns : to;

		if (until > at) {
			if (!known)
				add(parts, own == SPLIT_EXECUTION ? own : SPLIT_WAIT, 0,
				    until - at);
			else if (!held)
				add(parts, SPLIT_CHANGE, 0, until - at);
			else if (holder == pid)
				add(parts, own, 0, until - at);
			else
				add(parts, SPLIT_HELD, holder, until - at);
			at = until;
		}
		if (at >= to)
			return;
		known = true;
		held = events[i].start;
		holder = events[i].pid;
	}
}

/*
 * When our context was last put back on the engine between two times; the first of them if it was
 * not. A context that was stopped between a kernel's last word and its completion tells of it then.
 */
static uint64_t back(const struct split_switch *events, size_t count, uint32_t pid, uint64_t from,
		     uint64_t to)
{
	uint64_t last = from;

	for (size_t i = 0; i < count; i++)
		if (events[i].start && events[i].pid == pid && events[i].ns > from &&
		    events[i].ns < to)
			last = events[i].ns;
	return last;
}

/* Not before the one before it, and not after the end. */
static uint64_t within(uint64_t ns, uint64_t least, uint64_t most)
{
	return ns < least ? least : ns > most ? most : ns;
}

int split_cycle(const struct split_cycle *c, const struct split_switch *events, size_t count,
		struct split_part *list)
{
	struct parts parts = { .list = list };
	uint64_t end = within(c->end_ns ? c->end_ns : c->done_ns, c->launch_ns, c->done_ns);
	uint64_t start = within(c->start_ns ? c->start_ns : end, c->launch_ns, end);
	uint64_t submitted = within(c->submitted_ns, c->launch_ns, start);
	uint64_t waking = within(c->waking_ns, end, c->done_ns);
	uint64_t switched = within(c->switched_ns, waking, c->done_ns);
	bool slept = c->waking_ns && c->waking_ns >= end && c->switched_ns;
	uint64_t told = slept ? waking : c->done_ns, on = back(events, count, c->pid, end, told);

	add(&parts, SPLIT_SUBMIT, 0, submitted - c->launch_ns);
	engine(&parts, events, count, c->pid, submitted, start, SPLIT_BEFORE);
	engine(&parts, events, count, c->pid, start, end, SPLIT_EXECUTION);
	engine(&parts, events, count, c->pid, end, on, SPLIT_COMPLETION);
	add(&parts, SPLIT_COMPLETION, 0, told - on);
	if (!slept) /* so it has no wake-up */
		return parts.count;
	add(&parts, SPLIT_WAKEUP, 0, switched - waking);
	add(&parts, SPLIT_RETURN, 0, c->done_ns - switched);
	return parts.count;
}

void split_clock_add(struct split_clock *k, uint64_t launch_ns, uint64_t start_gpu_ns,
		     uint64_t end_gpu_ns, uint64_t done_ns)
{
	int64_t least = (int64_t)(launch_ns - start_gpu_ns), most = (int64_t)(done_ns - end_gpu_ns);
	int64_t drift;

	if (!k->at_ns) {
		*k = (struct split_clock){ least, most, done_ns };
		return;
	}
	drift = (int64_t)((done_ns - k->at_ns) * DRIFT_PPM / 1000000) + 1;
	k->least -= drift;
	k->most += drift;
	if (least > k->least)
		k->least = least;
	if (most < k->most)
		k->most = most;
	/* a clock that was set: what was known before is void */
	if (k->least > k->most) {
		k->least = least;
		k->most = most;
	}
	k->at_ns = done_ns;
}

int64_t split_clock_offset(const struct split_clock *k)
{
	return k->least + (k->most - k->least) / 2;
}
