// SPDX-License-Identifier: MIT
/*
 * batch.c - the lists of batches: those of a lane, and the unresolved ones with what waits for
 * them. Keeps the counts of the lane's state true to its lists. May call nothing of OpenCL but for
 * references.
 */
#include <stdlib.h>
#include <string.h>

#include "batch.h"

atomic_uint layer_unresolved_n;
atomic_uint layer_admitted_n;
atomic_uint layer_foreign_n;

static struct layer_batch *unresolved;
static struct layer_batch *spare;

struct layer_batch *layer_batch_unresolved(void)
{
	return unresolved;
}

struct layer_batch *layer_batch_new(struct layer_lane *lane, struct layer_queue *queue)
{
	struct layer_batch *b = spare;

	if (!layer_rarely(!b)) {
		struct layer_command *commands = b->commands;
		struct layer_batch **dependents = b->dependents;
		unsigned int cap = b->cap, dependents_cap = b->dependents_cap;

		spare = b->next;
		memset(b, 0, sizeof(*b));
		b->commands = commands;
		b->cap = cap;
		b->dependents = dependents;
		b->dependents_cap = dependents_cap;
	} else {
		b = calloc(1, sizeof(*b));
		if (!b)
			return NULL;
	}
	b->lane = lane;
	b->queue = queue;
	b->in_order = queue && queue->in_order;
	return b;
}

void layer_batch_drop(struct layer_batch *b)
{
	b->next = spare;
	spare = b;
}

/* Written under the lock only. */
static void count(atomic_uint *number, int change)
{
	atomic_store_explicit(
		number, atomic_load_explicit(number, memory_order_relaxed) + (unsigned int)change,
		memory_order_relaxed);
}

void layer_batch_block(struct layer_batch *b)
{
	b->uprev = NULL;
	b->unext = unresolved;
	if (unresolved)
		unresolved->uprev = b;
	unresolved = b;
	count(&layer_unresolved_n, 1);
}

static void unresolved_remove(struct layer_batch *b)
{
	if (b->uprev)
		b->uprev->unext = b->unext;
	else
		unresolved = b->unext;
	if (b->unext)
		b->unext->uprev = b->uprev;
	count(&layer_unresolved_n, -1);
}

static void list_add(struct layer_batch **head, struct layer_batch **tail, struct layer_batch *b)
{
	b->next = NULL;
	b->prev = *tail;
	if (*tail)
		(*tail)->next = b;
	else
		*head = b;
	*tail = b;
}

static void list_remove(struct layer_batch **head, struct layer_batch **tail, struct layer_batch *b)
{
	if (b->prev)
		b->prev->next = b->next;
	else
		*head = b->next;
	if (b->next)
		b->next->prev = b->prev;
	else
		*tail = b->prev;
}

void layer_batch_depend(struct layer_batch *b, struct layer_batch *on)
{
	if (on->dependents_n == on->dependents_cap) {
		unsigned int cap = on->dependents_cap ? 2 * on->dependents_cap : 8;
		struct layer_batch **more = realloc(on->dependents, cap * sizeof(*more));

		if (!more)
			layer_no_memory();
		on->dependents = more;
		on->dependents_cap = cap;
	}
	on->dependents[on->dependents_n++] = b;
	b->deps++;
}

void layer_batch_ready(struct layer_batch *b)
{
	b->state = LAYER_READY;
	list_add(&b->lane->ready_head, &b->lane->ready_tail, b);
	b->lane->state.ready++;
}

void layer_batch_unready(struct layer_batch *b)
{
	list_remove(&b->lane->ready_head, &b->lane->ready_tail, b);
	b->lane->state.ready--;
}

/* Its events are looked for no more. */
static void let_go(struct layer_batch *b, struct layer_todo *todo)
{
	for (unsigned int i = 0; i < b->n; i++) {
		if (b->commands[i].mapped) {
			layer_map_remove(b->commands[i].event);
			b->commands[i].mapped = false;
		}
		/* What is behind the first of a batch in its queue waits for nothing else. */
		if (!b->lane && b->frail && !i)
			layer_events_keep(todo, b->commands[i].event);
		else if (!b->lane)
			layer_events_add(&todo->release, b->commands[i].event);
	}
}

void layer_batch_open(struct layer_batch *b, struct layer_todo *todo, bool refused)
{
	if (!b->gate)
		return;
	layer_events_add(refused ? &todo->refuse : &todo->open, b->gate);
	b->gate = NULL;
	/* PoCL looks at what waits for the gate when it is opened, though it may have failed. */
	if (b->fence && b->frail)
		layer_events_keep(todo, b->fence);
	else if (b->fence)
		layer_events_add(&todo->release, b->fence);
	b->fence = NULL;
	for (unsigned int i = 0; b->frail && i < b->n; i++) {
		layer_next.clRetainEvent(b->commands[i].event);
		layer_events_add(&todo->release, b->commands[i].event);
	}
}

void layer_batch_resolve(struct layer_batch *b, struct layer_todo *todo)
{
	/* those that occupy no engine resolve at once: a list instead of recursion */
	struct layer_batch *work = b;

	b->next = NULL;
	while (work) {
		struct layer_batch *done = work;

		work = done->next;
		done->state = LAYER_ADMITTED;
		unresolved_remove(done);
		if (done->queue && done->queue->tail == done)
			done->queue->tail = NULL;
		let_go(done, todo);
		for (unsigned int i = 0; i < done->dependents_n; i++) {
			struct layer_batch *d = done->dependents[i];

			if (d->behind == done)
				d->behind = NULL;
			if (--d->deps)
				continue;
			if (d->lane) {
				layer_batch_ready(d);
				/* another lane, perhaps: the monitor looks */
				todo->again = true;
			} else {
				d->next = work;
				work = d;
			}
		}
		done->dependents_n = 0;
		if (!done->lane) {
			if (!done->queue)
				atomic_fetch_sub(&layer_foreign_n, 1);
			done->n = 0;
			if (!done->entering)
				layer_batch_drop(done);
		}
	}
}

/* Returns whether a batch waits for it still. */
static bool leave(struct layer_batch *on, struct layer_batch *b)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < on->dependents_n; i++) {
		if (on->dependents[i] == b)
			b->deps--;
		else
			on->dependents[kept++] = on->dependents[i];
	}
	on->dependents_n = kept;
	return kept;
}

void layer_batch_moot(struct layer_batch *b, struct layer_todo *todo)
{
	for (struct layer_batch *on = unresolved, *after; on; on = after) {
		after = on->unext;
		if (on == b->behind || leave(on, b) || on->queue || on->refs)
			continue;
		on->deps = 0; /* a user event that the program has dropped */
		layer_batch_resolve(on, todo);
	}
	b->deps -= b->outside;
	b->outside = false;
	layer_batch_open(b, todo, false); /* it may stand in the queue */
	if (b->state == LAYER_READY) {
		layer_batch_unready(b);
		todo->again = true;
	}
	b->lane = NULL;
	let_go(b, todo);
	b->n = 0;
	if (!b->deps)
		layer_batch_resolve(b, todo);
}

void layer_batch_begin(struct layer_lane *lane, struct layer_batch *b)
{
	b->state = LAYER_ADMITTED;
	list_add(&lane->admitted_head, &lane->admitted_tail, b);
	lane->current = b;
	count(&layer_admitted_n, 1);
}

void layer_batch_end(struct layer_lane *lane, struct layer_batch *b)
{
	list_remove(&lane->admitted_head, &lane->admitted_tail, b);
	if (lane->current == b)
		lane->current = NULL;
	count(&layer_admitted_n, -1);
}

struct layer_command *layer_batch_command(struct layer_batch *b)
{
	if (layer_rarely(b->n == b->cap)) {
		unsigned int cap = b->cap ? 2 * b->cap : 4;
		struct layer_command *more = realloc(b->commands, cap * sizeof(*more));

		if (!more)
			return NULL;
		b->commands = more;
		b->cap = cap;
	}
	return &b->commands[b->n++];
}

void layer_batch_drop_if_empty(struct layer_batch *b, struct layer_todo *todo)
{
	if (layer_rarely(!b->n && !b->entering && b->state != LAYER_ADMITTED))
		layer_batch_moot(b, todo);
}

unsigned int layer_batch_holds(const struct layer_batch *b, cl_event event)
{
	unsigned int holds = 0;

	for (unsigned int i = 0; i < b->n; i++)
		holds += b->commands[i].event == event;
	return holds;
}

void layer_batch_forget(void)
{
	atomic_store(&layer_foreign_n, 0);
	atomic_store(&layer_unresolved_n, 0);
	atomic_store(&layer_admitted_n, 0);
	unresolved = spare = NULL;
}
