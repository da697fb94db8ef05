/* SPDX-License-Identifier: MIT */
/*
 * latency_events.h - builds events of a CPU, for tests of latency/blame.c.
 */
#ifndef RTXG_TESTS_LATENCY_EVENTS_H
#define RTXG_TESTS_LATENCY_EVENTS_H

#include <stdint.h>
#include <string.h>

#include "../../bpf/event.h"

#define US 1000ull

static struct event at(uint64_t us, int type, int context)
{
	return (struct event){ .ns = us * US,
			       .type = type,
			       .context = context,
			       .context_prio = EVENT_NO_PRIO,
			       .pid = -1,
			       .other = -1,
			       .prio = EVENT_NO_PRIO,
			       .other_prio = EVENT_NO_PRIO,
			       .syscall = EVENT_NOT_KNOWN,
			       .stack = -1 };
}

static struct event change(uint64_t us, int other, int other_prio, int pid, int prio,
			   const char *name)
{
	struct event e = at(us, EVENT_SWITCH, other);

	e.other = other;
	e.other_prio = other_prio;
	e.pid = pid;
	e.prio = prio;
	strcpy(e.name, name);
	strcpy(e.other_name, "other");
	return e;
}

static struct event named(struct event e, const char *name, long long arg)
{
	strcpy(e.name, name);
	e.arg = arg;
	return e;
}

static struct event of(struct event e, int pid)
{
	e.pid = pid;
	return e;
}

static struct event with(struct event e, int prio)
{
	e.context_prio = prio;
	return e;
}

static struct event in(struct event e, int syscall)
{
	e.syscall = syscall;
	return e;
}

#endif
