// SPDX-License-Identifier: MIT
/*
 * order_scheduler.c - IRS_Opt: who may not go sleeps on a condition variable of its own, and one
 * more thread, the scheduler, looks which sleepers may go whenever a clock moves and somebody
 * sleeps. It is here to be compared with.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "errors.h"
#include "order.h"
#include "sys.h"

struct scheduler {
	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_cond_t turn[RTXG_ORDER_THREADS_MAX];
	bool waiting[RTXG_ORDER_THREADS_MAX];
	uint32_t waiters;
	bool moved, end;
	pthread_t thread;
};

static void *schedule(void *argument)
{
	struct rtx_order *order = argument;
	struct scheduler *s = order->private;

	pthread_mutex_lock(&s->lock);
	while (!s->end) {
		if (!s->moved) {
			pthread_cond_wait(&s->work, &s->lock);
			continue;
		}
		s->moved = false;
		for (uint32_t t = 0; t < order->core.shape.threads; t++)
			if (s->waiting[t] && (rtx_lib_order_is_broken(order) ||
					      !rtx_lib_order_held(order, &order->thread[t])))
				pthread_cond_signal(&s->turn[t]);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void notify(struct scheduler *s)
{
	pthread_mutex_lock(&s->lock);
	s->moved = true;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
}

static int scheduler_open(struct rtx_order *order)
{
	struct scheduler *s = calloc(1, sizeof(*s));
	pthread_condattr_t monotonic;
	int err;

	if (!s)
		return rtx_lib_failed(-ENOMEM, "no memory for a scheduler");
	order->private = s;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, &monotonic);
	for (uint32_t t = 0; t < order->core.shape.threads; t++)
		pthread_cond_init(&s->turn[t], &monotonic);
	pthread_condattr_destroy(&monotonic);
	err = pthread_create(&s->thread, NULL, schedule, order);
	if (!err)
		return 0;
	free(s);
	return rtx_lib_failed(-err, "no thread for the scheduler: %s", strerror(err));
}

static void scheduler_close(struct rtx_order *order)
{
	struct scheduler *s = order->private;

	pthread_mutex_lock(&s->lock);
	s->end = true;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	free(s);
}

/* Under the lock: a need that no thread will meet. */
static bool lost(const struct rtx_order *order, const struct rtx_order_thread *thread)
{
	const struct rtxg_order_entry *entry = &order->core.entry[thread->entry];

	for (uint32_t i = 0; i < entry->count; i++) {
		const struct rtxg_order_need *need = &order->core.need[entry->first + i];

		if (load(&order->thread[need->thread].state) == RTX_ORDER_ENDED &&
		    load(&order->thread[need->thread].clock) < need->clock)
			return true;
	}
	return false;
}

static void wait_for_turn(struct rtx_order *order, struct rtx_order_thread *thread)
{
	struct scheduler *s = order->private;
	uint64_t moved, until;
	struct timespec at;
	enum rtxg_order_break_kind give_up = RTXG_ORDER_UNBROKEN;

	pthread_mutex_lock(&s->lock);
	s->waiting[thread->index] = true;
	__atomic_fetch_add(&s->waiters, 1, __ATOMIC_SEQ_CST);
	moved = rtx_lib_order_moved(order);
	rtx_lib_order_count(&thread->waits, rtx_lib_order_held(order, thread) != NULL);
	while (!give_up && rtx_lib_order_held(order, thread) && !rtx_lib_order_is_broken(order)) {
		if (lost(order, thread)) {
			give_up = RTXG_ORDER_BREAK_ENDED;
			break;
		}
		until = rtxg_now_ns() + order->patience_ns;
		at = (struct timespec){ (time_t)(until / NS_PER_S), (long)(until % NS_PER_S) };
		rtx_lib_order_count(&thread->sleeps, 1);
		if (pthread_cond_timedwait(&s->turn[thread->index], &s->lock, &at) != ETIMEDOUT)
			rtx_lib_order_count(&thread->wakeups, 1);
		else if (moved == rtx_lib_order_moved(order))
			give_up = RTXG_ORDER_BREAK_STALLED;
		moved = rtx_lib_order_moved(order);
	}
	__atomic_fetch_sub(&s->waiters, 1, __ATOMIC_SEQ_CST);
	s->waiting[thread->index] = false;
	pthread_mutex_unlock(&s->lock);
	if (give_up)
		rtx_lib_order_break_at(order, thread, give_up);
}

static int scheduler_before(struct rtx_order *order, struct rtx_order_thread *thread)
{
	if (thread->made != thread->restricted)
		return 0;
	rtx_lib_order_count(&thread->counted, 1);
	if (rtx_lib_order_held(order, thread) && !rtx_lib_order_is_broken(order))
		wait_for_turn(order, thread);
	return rtx_lib_order_is_broken(order) ? -EPIPE : 0;
}

static int scheduler_after(struct rtx_order *order, struct rtx_order_thread *thread)
{
	struct scheduler *s = order->private;

	if (thread->made++ == thread->restricted)
		rtx_lib_order_next_entry(order, thread);
	store(&thread->clock, thread->made);
	if (load(&s->waiters))
		notify(s);
	return 0;
}

/* Each sleeper looks for itself whether it is lost. */
static void scheduler_leave(struct rtx_order *order, struct rtx_order_thread *thread)
{
	struct scheduler *s = order->private;

	pthread_mutex_lock(&s->lock);
	for (uint32_t t = 0; t < order->core.shape.threads; t++)
		if (s->waiting[t])
			pthread_cond_signal(&s->turn[t]);
	pthread_mutex_unlock(&s->lock);
}

static void scheduler_let_go(struct rtx_order *order)
{
	notify(order->private);
}

const struct rtx_order_ops rtx_lib_order_scheduler_ops = {
	.open = scheduler_open,
	.close = scheduler_close,
	.before = scheduler_before,
	.after = scheduler_after,
	.leave = scheduler_leave,
	.let_go = scheduler_let_go,
};
