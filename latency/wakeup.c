// SPDX-License-Identifier: MIT
/*
 * wakeup.c - completes the events of a wake-up by what its own times tell. May not: make a system
 * call, allocate.
 */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "order.h"
#include "wakeup.h"

/* Of the interrupt itself; all else begins when it has ended. */
static bool within(const struct event *e)
{
	return e->type == EVENT_TIMER || e->type == EVENT_WAKING || e->type == EVENT_NMI;
}

int wakeup_interrupt(struct event *events, int count, const struct latency_wake *wake,
		     unsigned long long least_ns)
{
	unsigned long long end = ~0ull, least_end = wake->waking_ns + least_ns;
	const struct event *waking = NULL;
	bool gives_way;
	struct event e;
	int at;

	for (int i = 0; i < count; i++) {
		if (events[i].type == EVENT_WAKING && events[i].pid == wake->pid &&
		    events[i].ns == wake->waking_ns)
			waking = &events[i];
		else if (events[i].ns > wake->waking_ns && events[i].ns < end &&
			 !within(&events[i]))
			end = events[i].ns;
	}
	if (!waking || !wake->irq_ns || wake->irq_ns > wake->waking_ns ||
	    wake->irq_end_ns > wake->waking_ns)
		return count;
	/*
	 * User code of a lower priority does not go on with preemption off: all is the interrupt's
	 * up to the switch. That of another task may go on for as long as it likes.
	 */
	gives_way = waking->syscall == EVENT_IN_USER && waking->context_prio > wake->prio;
	if (end == ~0ull || (end > least_end && !gives_way))
		end = least_end;
	e = (struct event){ .ns = wake->irq_ns,
			    .type = EVENT_VECTOR,
			    .arg = LATENCY_LOCAL_TIMER,
			    .context = waking->context,
			    .context_prio = waking->context_prio,
			    .pid = -1,
			    .prio = EVENT_NO_PRIO,
			    .other = -1,
			    .other_prio = EVENT_NO_PRIO,
			    .syscall = EVENT_NOT_KNOWN,
			    .stack = -1,
			    .name = "local timer" };
	events[count++] = e;
	order_events(events, count);
	e.ns = end;
	e.type = EVENT_VECTOR_DONE;
	/* before what it ended for, which has the same time */
	at = count;
	while (at &&
	       (events[at - 1].ns > end || (events[at - 1].ns == end && !within(&events[at - 1]) &&
					    events[at - 1].type != EVENT_VECTOR)))
		at--;
	memmove(&events[at + 1], &events[at], (size_t)(count - at) * sizeof(e));
	events[at] = e;
	return count + 1;
}

struct event wakeup_awake(const struct latency_wake *wake, unsigned long long expected_ns)
{
	return (struct event){ .ns = expected_ns,
			       .type = EVENT_NONE,
			       .context = wake->pid,
			       .context_prio = wake->prio,
			       .pid = -1,
			       .prio = EVENT_NO_PRIO,
			       .other = -1,
			       .other_prio = EVENT_NO_PRIO,
			       .syscall = EVENT_NOT_KNOWN,
			       .stack = -1 };
}
