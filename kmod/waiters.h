/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * waiters.h - tasks that wait for something, highest priority first. They are woken with interrupts
 * off and from the top half, also on PREEMPT_RT: hence a raw lock, and no kernel wait queue.
 */
#ifndef RTXG_KMOD_WAITERS_H
#define RTXG_KMOD_WAITERS_H

#include <linux/list.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/* Called for a task that is woken, before it is, by the waker and with the list's lock held. */
typedef void rtxg_before_wake(struct task_struct *task, u64 since_ns);

struct rtxg_waiters {
	raw_spinlock_t lock;
	struct list_head list;
	unsigned int count;
	u64 sequence; /* of the last that came */
	rtxg_before_wake *before_wake;
};

struct rtxg_waiter {
	struct list_head node;
	struct task_struct *task;
	int priority; /* the kernel's: smaller is more important */
	/* waiting for the GPU since then (ktime_get_mono_fast_ns); 0: for something else */
	u64 since_ns;
	u64 sequence;
	bool woken;
};

/* before_wake: for waiters that say since when they wait for the GPU; NULL: there are none */
void rtxg_waiters_init(struct rtxg_waiters *waiters, rtxg_before_wake *before_wake);
void rtxg_waiters_add(struct rtxg_waiters *waiters, struct rtxg_waiter *waiter);
/* False if as many wait already, and nothing is done: for a list that is woken under a lock. */
bool rtxg_waiters_try_add(struct rtxg_waiters *waiters, struct rtxg_waiter *waiter,
			  unsigned int limit);
void rtxg_waiters_remove(struct rtxg_waiters *waiters, struct rtxg_waiter *waiter);
/*
 * Wakes all that wait, in order of priority; how many. A few at a time, so that interrupts are not
 * off for as long as it takes to wake many; all at once for a caller that holds the lock. Those
 * that come meanwhile wait for the next time.
 */
unsigned int rtxg_waiters_wake(struct rtxg_waiters *waiters);
unsigned int rtxg_waiters_wake_locked(struct rtxg_waiters *waiters);
unsigned int rtxg_waiters_count(struct rtxg_waiters *waiters);
/* The highest effective priority of those that wait, as Linux counts; INT_MAX: none does. */
int rtxg_waiters_prio(struct rtxg_waiters *waiters);

#endif
