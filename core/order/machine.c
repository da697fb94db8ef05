// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * machine.c - threads that follow an order: who may go, and when nobody can any more. See
 * rtxg_order_core.h. May not: wait, wake, or know how a host does either.
 */
#include "rtxg_order_core.h"

void rtxg_order_begin(struct rtxg_order_run *run, const struct rtxg_order *order,
		      struct rtxg_order_thread *threads, uint32_t *clocks, uint32_t stride)
{
	*run = (struct rtxg_order_run){
		.order = order, .clocks = clocks, .stride = stride, .thread = threads
	};
	for (uint32_t t = 0; t < order->shape.threads; t++) {
		threads[t] = (struct rtxg_order_thread){ .state = RTXG_ORDER_ABSENT,
							 .next = order->start[t],
							 .signal = order->signals[t] };
		clocks[t * stride] = 0;
	}
}

/* A host may look at a state, as at a clock, without the lock under which it steps. */
static void set_state(uint32_t *state, uint32_t value)
{
	__atomic_store_n(state, value, __ATOMIC_RELEASE);
}

static uint32_t *clock_of(const struct rtxg_order_run *run, uint32_t thread)
{
	return &run->clocks[thread * run->stride];
}

/* The need that holds a thread's next access back, or NULL. */
static const struct rtxg_order_need *held_by(const struct rtxg_order_run *run, uint32_t thread)
{
	uint32_t next = run->thread[thread].next;

	if (next == run->order->start[thread + 1] ||
	    run->order->entry[next].number != *clock_of(run, thread))
		return NULL;
	return rtxg_order_unmet(run->order, next, run->clocks, run->stride);
}

/* The need of a thread's next access that nobody will ever meet, or NULL. */
static const struct rtxg_order_need *lost_for(const struct rtxg_order_run *run, uint32_t thread)
{
	const struct rtxg_order_entry *entry;

	if (!held_by(run, thread))
		return NULL;
	entry = &run->order->entry[run->thread[thread].next];
	for (uint32_t i = 0; i < entry->count; i++) {
		const struct rtxg_order_need *need = &run->order->need[entry->first + i];

		if (run->thread[need->thread].state == RTXG_ORDER_ENDED &&
		    *clock_of(run, need->thread) < need->clock)
			return need;
	}
	return NULL;
}

bool rtxg_order_may_go(const struct rtxg_order_run *run, uint32_t thread)
{
	return run->broken.kind || !held_by(run, thread);
}

/* All that wait are let go, and nothing is restricted from now on. */
static int break_order(struct rtxg_order_run *run, uint32_t kind, uint32_t thread,
		       const struct rtxg_order_need *need, struct rtxg_order_action *actions)
{
	const struct rtxg_order_entry *entry = &run->order->entry[run->thread[thread].next];

	run->broken = (struct rtxg_order_break){
		.kind = kind,
		.step = { .thread = thread,
			  .number = entry->number,
			  .mark = entry->mark,
			  .need = *need },
		.clock = *clock_of(run, need->thread),
		.ended = run->thread[need->thread].state == RTXG_ORDER_ENDED,
	};
	for (uint32_t t = 0; t < run->order->shape.threads; t++)
		if (run->thread[t].state == RTXG_ORDER_WAITING)
			set_state(&run->thread[t].state, RTXG_ORDER_INSIDE);
	actions[0] = (struct rtxg_order_action){ .type = RTXG_ORDER_BREAK, .thread = thread };
	return 1;
}

void rtxg_order_close(struct rtxg_order_run *run)
{
	if (run->broken.kind)
		return;
	run->broken.kind = RTXG_ORDER_BREAK_CLOSED;
	for (uint32_t t = 0; t < run->order->shape.threads; t++)
		if (run->thread[t].state == RTXG_ORDER_WAITING)
			set_state(&run->thread[t].state, RTXG_ORDER_INSIDE);
}

static int step_before(struct rtxg_order_run *run, uint32_t thread,
		       struct rtxg_order_action *actions)
{
	struct rtxg_order_thread *t = &run->thread[thread];
	const struct rtxg_order_need *need;

	if (t->state != RTXG_ORDER_FREE)
		return -EBADFD;
	if (*clock_of(run, thread) >= RTXG_ORDER_MANY - 1)
		return -ERANGE;
	need = lost_for(run, thread);
	if (need) {
		set_state(&t->state, RTXG_ORDER_INSIDE);
		return break_order(run, RTXG_ORDER_BREAK_ENDED, thread, need, actions);
	}
	if (held_by(run, thread)) {
		set_state(&t->state, RTXG_ORDER_WAITING);
		return 0;
	}
	set_state(&t->state, RTXG_ORDER_INSIDE);
	actions[0] = (struct rtxg_order_action){ .type = RTXG_ORDER_GO, .thread = thread };
	return 1;
}

static int step_after(struct rtxg_order_run *run, uint32_t thread,
		      struct rtxg_order_action *actions)
{
	const struct rtxg_order *order = run->order;
	struct rtxg_order_thread *t = &run->thread[thread];
	uint32_t clock;
	int count = 0;

	if (t->state != RTXG_ORDER_INSIDE)
		return -EBADFD;
	set_state(&t->state, RTXG_ORDER_FREE);
	if (t->next < order->start[thread + 1] &&
	    order->entry[t->next].number == *clock_of(run, thread))
		t->next++;
	clock = *clock_of(run, thread) + 1;
	__atomic_store_n(clock_of(run, thread), clock, __ATOMIC_RELEASE);
	for (; t->signal < order->signals[thread + 1] && order->signal[t->signal].clock <= clock;
	     t->signal++) {
		uint32_t other = order->signal[t->signal].thread;

		if (run->thread[other].state != RTXG_ORDER_WAITING || held_by(run, other))
			continue;
		set_state(&run->thread[other].state, RTXG_ORDER_INSIDE);
		actions[count++] =
			(struct rtxg_order_action){ .type = RTXG_ORDER_GO, .thread = other };
	}
	return count;
}

static int step_leave(struct rtxg_order_run *run, uint32_t thread,
		      struct rtxg_order_action *actions)
{
	if (run->thread[thread].state == RTXG_ORDER_ENDED)
		return -EBADFD;
	set_state(&run->thread[thread].state, RTXG_ORDER_ENDED);
	if (run->broken.kind)
		return 0;
	for (uint32_t t = 0; t < run->order->shape.threads; t++) {
		const struct rtxg_order_need *need;

		if (run->thread[t].state != RTXG_ORDER_WAITING)
			continue;
		need = lost_for(run, t);
		if (need)
			return break_order(run, RTXG_ORDER_BREAK_ENDED, t, need, actions);
	}
	return 0;
}

int rtxg_order_step(struct rtxg_order_run *run, uint32_t event, uint32_t thread,
		    struct rtxg_order_action *actions, uint32_t cap)
{
	if (thread >= run->order->shape.threads)
		return -ENXIO;
	if (cap < run->order->shape.threads)
		return -ENOSPC;
	if (run->broken.kind && (event == RTXG_ORDER_JOIN || event == RTXG_ORDER_BEFORE))
		return -EPIPE;
	switch (event) {
	case RTXG_ORDER_JOIN:
		if (run->thread[thread].state != RTXG_ORDER_ABSENT)
			return -EBUSY;
		set_state(&run->thread[thread].state, RTXG_ORDER_FREE);
		return 0;
	case RTXG_ORDER_BEFORE:
		return step_before(run, thread, actions);
	case RTXG_ORDER_AFTER:
		return step_after(run, thread, actions);
	case RTXG_ORDER_LEAVE:
		return step_leave(run, thread, actions);
	case RTXG_ORDER_GIVE_UP:
		if (run->thread[thread].state != RTXG_ORDER_WAITING)
			return -EBADFD;
		return break_order(run, RTXG_ORDER_BREAK_STALLED, thread, held_by(run, thread),
				   actions);
	}
	return -EINVAL;
}
