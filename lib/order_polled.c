// SPDX-License-Identifier: MIT
/*
 * order_polled.c - IRS_Shared: all threads run one scheduler, the core's machine, under one lock,
 * and who may not go looks until it may. It is here to be compared with.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "order.h"
#include "sys.h"

/* How many looks lie between two readings of the clock. */
#define LOOKS 4096u

struct polled {
	pthread_spinlock_t lock;
	struct rtxg_order_run run;
	struct rtxg_order_thread threads[RTXG_ORDER_THREADS_MAX];
	struct rtxg_order_action actions[RTXG_ORDER_THREADS_MAX];
};

static int polled_open(struct rtx_order *order)
{
	struct polled *p = calloc(1, sizeof(*p));

	if (!p)
		return rtx_lib_failed(-ENOMEM, "no memory for a scheduler");
	pthread_spin_init(&p->lock, PTHREAD_PROCESS_PRIVATE);
	rtxg_order_begin(&p->run, &order->core, p->threads, &order->thread[0].clock,
			 RTX_ORDER_STRIDE);
	order->private = p;
	return 0;
}

static void polled_close(struct rtx_order *order)
{
	struct polled *p = order->private;

	pthread_spin_destroy(&p->lock);
	free(p);
}

static int step(struct rtx_order *order, enum rtxg_order_event event, uint32_t thread)
{
	struct polled *p = order->private;
	int ret;
	bool broken;

	pthread_spin_lock(&p->lock);
	ret = rtxg_order_step(&p->run, event, thread, p->actions, RTXG_ORDER_THREADS_MAX);
	broken = ret == 1 && p->actions[0].type == RTXG_ORDER_BREAK;
	pthread_spin_unlock(&p->lock);
	if (broken)
		rtx_lib_order_break(order, &p->run.broken);
	return ret;
}

static int polled_join(struct rtx_order *order, struct rtx_order_thread *thread)
{
	int err = step(order, RTXG_ORDER_JOIN, thread->index);

	return err < 0 ? rtx_lib_failed(err, "the thread cannot join the order") : 0;
}

static void look(struct rtx_order *order, struct rtx_order_thread *thread)
{
	struct polled *p = order->private;
	uint64_t moved = rtx_lib_order_moved(order), since = rtxg_now_ns();

	rtx_lib_order_count(&thread->waits, 1);
	for (uint32_t i = 1; load(&p->threads[thread->index].state) == RTXG_ORDER_WAITING &&
			     !rtx_lib_order_is_broken(order);
	     i++) {
		if (i % LOOKS)
			continue;
		if (moved != rtx_lib_order_moved(order)) {
			moved = rtx_lib_order_moved(order);
			since = rtxg_now_ns();
		} else if (rtxg_now_ns() - since >= order->patience_ns) {
			step(order, RTXG_ORDER_GIVE_UP, thread->index);
		}
	}
}

static int polled_before(struct rtx_order *order, struct rtx_order_thread *thread)
{
	int ret = step(order, RTXG_ORDER_BEFORE, thread->index);

	rtx_lib_order_count(&thread->counted, thread->made == thread->restricted);
	if (ret == 0)
		look(order, thread);
	return ret < 0 && ret != -EPIPE ? ret : rtx_lib_order_is_broken(order) ? -EPIPE : 0;
}

static int polled_after(struct rtx_order *order, struct rtx_order_thread *thread)
{
	int ret;

	if (thread->made++ == thread->restricted)
		rtx_lib_order_next_entry(order, thread);
	ret = step(order, RTXG_ORDER_AFTER, thread->index);
	return ret < 0 && !rtx_lib_order_is_broken(order) ? ret : 0;
}

static void polled_leave(struct rtx_order *order, struct rtx_order_thread *thread)
{
	step(order, RTXG_ORDER_LEAVE, thread->index);
}

static void polled_let_go(struct rtx_order *order)
{
}

const struct rtx_order_ops rtx_lib_order_polled_ops = {
	.open = polled_open,
	.close = polled_close,
	.join = polled_join,
	.before = polled_before,
	.after = polled_after,
	.leave = polled_leave,
	.let_go = polled_let_go,
};
