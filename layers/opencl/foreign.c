// SPDX-License-Identifier: MIT
/*
 * foreign.c - events that no command brings about: a user event, which the program sets, and one of
 * another API. Unresolved until then; known only as long as the program can set it.
 */
#include "batch.h"
#include "completion.h"
#include "foreign.h"
#include "monitor.h"

/* outside: one of another API. */
static bool remember(cl_event event, bool outside)
{
	struct layer_command *c;
	struct layer_batch *b;
	bool known = false;

	layer_monitor_lock();
	b = layer_batch_new(NULL, NULL);
	c = b ? layer_batch_command(b) : NULL;
	if (c && layer_map_add(event, b)) {
		/* its address must not become another event's while we know it */
		layer_next.clRetainEvent(event);
		*c = (struct layer_command){ .event = event, .mapped = true };
		b->deps = 1;
		b->refs = 1;
		b->outside = outside;
		layer_batch_block(b);
		atomic_fetch_add(&layer_foreign_n, 1);
		known = true;
	} else if (b) {
		layer_batch_drop(b);
	}
	layer_monitor_unlock();
	return known;
}

void layer_foreign_user(cl_event event)
{
	remember(event, false);
}

void layer_foreign_outside(cl_event event)
{
	layer_next.clRetainEvent(event);
	if (remember(event, true))
		layer_monitor_watch(event);
	layer_next.clReleaseEvent(event);
}

void layer_foreign_refs(cl_event event, int change)
{
	struct layer_todo todo;
	struct layer_batch *b;

	if (!atomic_load(&layer_foreign_n))
		return;
	layer_monitor_enter(&todo);
	b = layer_map_find(event);
	if (b && !b->queue) {
		b->refs += (unsigned int)change;
		if (!b->refs && !b->dependents_n) {
			b->deps = 0;
			layer_batch_resolve(b, &todo);
		}
	}
	layer_monitor_leave(&todo);
}

void layer_foreign_fails(void)
{
	layer_monitor_lock();
	layer_completion_doubt();
	layer_monitor_unlock();
}

void layer_foreign_set(cl_event event, cl_int status)
{
	struct layer_todo todo;
	struct layer_batch *b;

	if (!atomic_load(&layer_unresolved_n))
		return;
	layer_monitor_enter(&todo);
	b = layer_map_find(event);
	if (b && !b->queue && b->deps) {
		/* What came in between may fail as well. */
		if (status < CL_COMPLETE) {
			layer_completion_doubt();
			layer_monitor_failed();
		}
		b->deps = 0;
		layer_batch_resolve(b, &todo);
		layer_monitor_run_all(&todo);
	}
	layer_monitor_leave(&todo);
}
