// SPDX-License-Identifier: GPL-2.0-only
/*
 * waiters.c - lists of tasks that wait for something, highest priority first. May not: know what
 * they wait for, or sleep.
 */
#include "waiters.h"

void rtxg_waiters_init(struct rtxg_waiters *waiters, rtxg_before_wake *before_wake)
{
	raw_spin_lock_init(&waiters->lock);
	INIT_LIST_HEAD(&waiters->list);
	waiters->count = 0;
	waiters->sequence = 0;
	waiters->before_wake = before_wake;
}

bool rtxg_waiters_try_add(struct rtxg_waiters *waiters, struct rtxg_waiter *waiter,
			  unsigned int limit)
{
	struct rtxg_waiter *other;
	unsigned long flags;
	bool room;

	waiter->task = current;
	waiter->priority = current->prio;
	waiter->woken = false;
	raw_spin_lock_irqsave(&waiters->lock, flags);
	room = waiters->count < limit;
	if (room) {
		waiters->count++;
		waiter->sequence = ++waiters->sequence;
		list_for_each_entry (other, &waiters->list, node)
			if (other->priority > waiter->priority)
				break;
		list_add_tail(&waiter->node, &other->node);
	}
	raw_spin_unlock_irqrestore(&waiters->lock, flags);
	return room;
}

void rtxg_waiters_add(struct rtxg_waiters *waiters, struct rtxg_waiter *waiter)
{
	rtxg_waiters_try_add(waiters, waiter, UINT_MAX);
}

void rtxg_waiters_remove(struct rtxg_waiters *waiters, struct rtxg_waiter *waiter)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&waiters->lock, flags);
	if (!waiter->woken) {
		list_del(&waiter->node);
		waiters->count--;
	}
	raw_spin_unlock_irqrestore(&waiters->lock, flags);
}

/* Wakes the first of those that had come by then; the lock is held. How many. */
static unsigned int wake_first(struct rtxg_waiters *waiters, u64 sequence, unsigned int limit)
{
	struct rtxg_waiter *waiter, *next;
	unsigned int count = 0;

	lockdep_assert_held(&waiters->lock);
	list_for_each_entry_safe (waiter, next, &waiters->list, node) {
		if (count == limit)
			break;
		if (waiter->sequence > sequence)
			continue;
		list_del(&waiter->node);
		waiters->count--;
		waiter->woken = true;
		if (waiter->since_ns && waiters->before_wake)
			waiters->before_wake(waiter->task, waiter->since_ns);
		/*
		 * the waiter lives on its task's stack and cannot go before it takes the lock that
		 * we hold
		 */
		wake_up_process(waiter->task);
		count++;
	}
	return count;
}

unsigned int rtxg_waiters_wake_locked(struct rtxg_waiters *waiters)
{
	/* Most interrupts have no waiter: that is to cost little. */
	return waiters->count ? wake_first(waiters, U64_MAX, UINT_MAX) : 0;
}

/* Of so many that wait at a time, interrupts are off while this many are woken. */
#define STEP 8u

unsigned int rtxg_waiters_wake(struct rtxg_waiters *waiters)
{
	unsigned int count = 0, step;
	unsigned long flags;
	u64 sequence;

	raw_spin_lock_irqsave(&waiters->lock, flags);
	/*
	 * those that come from here on, woken ones among them, wait for the next time. Those left
	 * stay in the list: a waker that preempts this one finds them
	 */
	sequence = waiters->sequence;
	while ((step = wake_first(waiters, sequence, STEP)) == STEP) {
		count += step;
		raw_spin_unlock_irqrestore(&waiters->lock, flags);
		/* one of those left may take itself off the list here */
		raw_spin_lock_irqsave(&waiters->lock, flags);
	}
	raw_spin_unlock_irqrestore(&waiters->lock, flags);
	return count + step;
}

unsigned int rtxg_waiters_count(struct rtxg_waiters *waiters)
{
	return READ_ONCE(waiters->count);
}

int rtxg_waiters_prio(struct rtxg_waiters *waiters)
{
	struct rtxg_waiter *waiter;
	unsigned long flags;
	int prio = INT_MAX;

	raw_spin_lock_irqsave(&waiters->lock, flags);
	list_for_each_entry (waiter, &waiters->list, node)
		prio = min(prio, READ_ONCE(waiter->task->prio));
	raw_spin_unlock_irqrestore(&waiters->lock, flags);
	return prio;
}
