// SPDX-License-Identifier: GPL-2.0-only
/*
 * budget.c - execution time, budgets and the clock of servers.
 *
 * The kernel's tracepoint at every task switch tells when a task runs. A timer armed at switch-in
 * fires when the budget is used up. The enforcer then moves the task to the background, and back
 * when its budget is replenished. May not: take a lock that is held at a task switch, or wake a
 * task under a task's own lock.
 */
#include <linux/hrtimer.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/task_work.h>

#include "../compat.h"
#include "internal.h"

/* Not every kernel exports it; F_HARD needs it. */
typeof(task_work_add) *rtxg_cpu_add_work;

/* Books the time of the threads that run; t->lock is held. */
void rtxg_cpu_account(struct cpu_task *t, u64 now)
{
	const struct rtxg_budget_use use = rtxg_cpu_use(t);
	u64 ran;

	/* read before the lock was taken: another CPU may have been here with a later one */
	if ((s64)(now - t->since_ns) <= 0)
		return;
	ran = t->running * (now - t->since_ns);
	t->since_ns = now;
	t->exec_ns += ran;
	t->job_exec_ns += ran;
	if (rtxg_budget_counts(&use))
		rtxg_budget_charge(&t->budget, ran);
}

void rtxg_cpu_arm_budget(struct cpu_task *t)
{
	u64 lasts = rtxg_budget_lasts(&t->budget, t->running);

	if (lasts != U64_MAX && !t->lent)
		hrtimer_start(&t->budget_timer, ns_to_ktime(lasts), HRTIMER_MODE_REL_HARD);
}

/*
 * F_HARD. A thread must not stop inside the kernel, where it may hold what others need: it stops
 * where it would return to user mode and holds nothing, as the kernel itself throttles for memory
 * and for groups' bandwidth.
 */
static void park(struct callback_head *work)
{
	struct cpu_thread *th = container_of(work, struct cpu_thread, park_work);
	struct cpu_task *t = th->group;
	struct rtxg_waiter waiter = {};

	raw_spin_lock_irq(&t->lock);
	th->parking = false;
	raw_spin_unlock_irq(&t->lock);
	for (;;) {
		rtxg_waiters_add(&t->parked, &waiter);
		set_current_state(TASK_KILLABLE | TASK_FREEZABLE);
		if (!rtxg_cpu_stops(t) || READ_ONCE(t->detached) || READ_ONCE(th->ended) ||
		    fatal_signal_pending(current) || current->flags & PF_EXITING)
			break;
		schedule();
		__set_current_state(TASK_RUNNING);
		rtxg_waiters_remove(&t->parked, &waiter);
	}
	__set_current_state(TASK_RUNNING);
	rtxg_waiters_remove(&t->parked, &waiter);
	rtxg_cpu_put_thread(th);
	/* rtxg_cpu_exit() waits until the rest of this function is behind us */
	module_put(THIS_MODULE);
}

/* t->lock is held, and a run queue's lock may be. */
static void ask_to_park(struct cpu_thread *th)
{
	if (th->parking || READ_ONCE(th->ended) || !kref_get_unless_zero(&th->kref))
		return;
	th->parking = true;
	/* the task comes back to our code some time */
	__module_get(THIS_MODULE);
	init_task_work(&th->park_work, park);
	if (rtxg_cpu_add_work(th->task, &th->park_work, TWA_RESUME)) {
		/* it is exiting */
		th->parking = false;
		rtxg_cpu_put_thread(th);
		module_put(THIS_MODULE);
	}
}

/* The thread runs from now on. Its task's lock is held, and a run queue's lock may be. */
static void begins(struct cpu_thread *th, u64 now)
{
	struct cpu_task *t = th->group;

	if (th->gone || th->running)
		return;
	rtxg_cpu_account(t, now);
	t->running++;
	th->running = true;
	list_add(&th->on_cpu_node, &t->on_cpu);
	if (rtxg_cpu_stops(t))
		ask_to_park(th);
	rtxg_cpu_arm_budget(t);
}

void rtxg_cpu_leaves_cpu(struct cpu_thread *th)
{
	if (!th->running)
		return;
	th->group->running--;
	th->running = false;
	list_del(&th->on_cpu_node);
}

void rtxg_cpu_probe_switch(void *data, bool preempt, struct task_struct *prev,
			   struct task_struct *next, unsigned int prev_state)
{
	struct cpu_thread *th;
	struct cpu_task *t;
	u64 now;

	/* the probe stays when the last is detached: then every switch of the machine ends here */
	if (!READ_ONCE(rtxg_cpu_thread_count))
		return;
	rcu_read_lock();
	th = rtxg_cpu_find(prev);
	if (th) {
		t = th->group;
		now = ktime_get_mono_fast_ns();
		raw_spin_lock(&t->lock);
		rtxg_cpu_account(t, now);
		rtxg_cpu_leaves_cpu(th);
		/* the timer may be running on another CPU: it will see that the task does not */
		if (!t->running)
			hrtimer_try_to_cancel(&t->budget_timer);
		raw_spin_unlock(&t->lock);
		if (READ_ONCE(th->waits_for_gpu))
			WRITE_ONCE(th->asleep_ns, preempt || !prev_state ? 0 : now);
	}
	th = rtxg_cpu_find(next);
	if (th) {
		raw_spin_lock(&th->group->lock);
		begins(th, ktime_get_mono_fast_ns());
		raw_spin_unlock(&th->group->lock);
	}
	rcu_read_unlock();
}

/*
 * A thread that was attached while it ran has not been seen to be switched to. On its CPU,
 * interrupts off.
 */
void rtxg_cpu_found_running(void *thread)
{
	struct cpu_thread *th = thread;
	struct cpu_task *t = th->group;

	if (current != th->task)
		return;
	raw_spin_lock(&t->lock);
	begins(th, ktime_get_mono_fast_ns());
	raw_spin_unlock(&t->lock);
}

/* All of a task that run now: no more than there are CPUs. t->lock is held. */
static void park_running(struct cpu_task *t)
{
	struct cpu_thread *th;

	list_for_each_entry (th, &t->on_cpu, on_cpu_node)
		ask_to_park(th);
}

static enum hrtimer_restart budget_used(struct hrtimer *timer)
{
	struct cpu_task *t = container_of(timer, struct cpu_task, budget_timer);
	bool used_up = false;
	unsigned long flags;

	raw_spin_lock_irqsave(&t->lock, flags);
	rtxg_cpu_account(t, ktime_get_mono_fast_ns());
	if (t->running && !t->lent && rtxg_budget_spent(&t->budget)) {
		t->changed = t->signal = used_up = true;
		t->throttles++;
		if (rtxg_cpu_stops(t))
			park_running(t);
	} else {
		/* switched out and in again since it was armed: the rest */
		rtxg_cpu_arm_budget(t);
	}
	raw_spin_unlock_irqrestore(&t->lock, flags);
	if (used_up)
		rtxg_cpu_kick(RTXG_CPU_ENFORCER);
	return HRTIMER_NORESTART;
}

/* The end of each period: the budget is replenished, a server's next job is released. */
static enum hrtimer_restart replenish(struct hrtimer *timer)
{
	struct cpu_task *t = container_of(timer, struct cpu_task, replenish_timer);
	bool tell = false, again, resume = false;
	unsigned long flags;
	u64 periods;

	raw_spin_lock_irqsave(&t->lock, flags);
	again = t->budget.enforced || rtxg_cpu_is_server(t);
	if (again) {
		periods = hrtimer_forward_now(timer, ns_to_ktime(t->params.period_ns));
		rtxg_cpu_account(t, ktime_get_mono_fast_ns());
		if (rtxg_cpu_is_server(t) && t->params.policy == RTXG_CPU_EDF) {
			t->releases += periods;
			tell = true;
		}
	}
	if (t->budget.enforced) {
		t->replenishments += periods;
		if (rtxg_budget_replenish(&t->budget, periods))
			t->changed = tell = resume = true;
		rtxg_cpu_arm_budget(t);
	}
	raw_spin_unlock_irqrestore(&t->lock, flags);
	if (resume)
		rtxg_waiters_wake(&t->parked);
	if (tell)
		rtxg_cpu_kick(RTXG_CPU_ENFORCER);
	return again ? HRTIMER_RESTART : HRTIMER_NORESTART;
}

/* Begins the clock of budgets and of servers' jobs with a whole period. */
void rtxg_cpu_start_clock(struct cpu_task *t, bool enforced)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&t->lock, flags);
	rtxg_cpu_account(t, ktime_get_mono_fast_ns());
	rtxg_budget_start(&t->budget, t->params.runtime_ns, enforced);
	t->releases = 0;
	if (enforced || rtxg_cpu_is_server(t)) {
		rtxg_cpu_arm_budget(t);
		hrtimer_start(&t->replenish_timer, ns_to_ktime(t->params.period_ns),
			      HRTIMER_MODE_REL_HARD);
	}
	raw_spin_unlock_irqrestore(&t->lock, flags);
}

void rtxg_cpu_stop_clock(struct cpu_task *t)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&t->lock, flags);
	rtxg_cpu_account(t, ktime_get_mono_fast_ns());
	rtxg_budget_start(&t->budget, 0, false);
	raw_spin_unlock_irqrestore(&t->lock, flags);
	hrtimer_cancel(&t->replenish_timer);
	hrtimer_cancel(&t->budget_timer);
	rtxg_waiters_wake(&t->parked);
}

void rtxg_cpu_init_clock(struct cpu_task *t)
{
	raw_spin_lock_init(&t->lock);
	INIT_LIST_HEAD(&t->on_cpu);
	rtxg_hrtimer_setup(&t->budget_timer, budget_used, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	rtxg_hrtimer_setup(&t->replenish_timer, replenish, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	t->since_ns = ktime_get_mono_fast_ns();
}
