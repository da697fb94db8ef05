// SPDX-License-Identifier: MIT
/*
 * order.c - puts decoded events of a CPU in the order in which they happened. May not: make a
 * system call, allocate. A library's qsort may leave events of the same time in any order, so there
 * is none here.
 */
#include <stdbool.h>
#include <string.h>

#include "order.h"

static bool begins(const struct event *e)
{
	return e->type == EVENT_VECTOR || e->type == EVENT_IRQ;
}

static bool ends(const struct event *e)
{
	return e->type == EVENT_VECTOR_DONE || e->type == EVENT_IRQ_DONE;
}

/* Did `e` happen before `other`, which was recorded earlier? */
static bool before(const struct event *e, const struct event *other)
{
	if (e->ns != other->ns)
		return e->ns < other->ns;
	/* no interrupt begins within another one: what ends at that time is the one before */
	return begins(e) && !begins(other) && !ends(other);
}

void order_events(struct event *events, int count)
{
	for (int i = 1; i < count; i++) {
		struct event e = events[i];
		int at = i;

		while (at && before(&e, &events[at - 1]))
			at--;
		if (at == i)
			continue;
		memmove(&events[at + 1], &events[at], (size_t)(i - at) * sizeof(e));
		events[at] = e;
	}
}
