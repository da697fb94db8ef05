// SPDX-License-Identifier: GPL-2.0-only
/*
 * deadline.c - SCHED_DEADLINE and the GPU (Linux-RTXG, section III.D).
 *
 * A task that slept for its GPU wakes with the runtime that it had when it went to sleep. That is
 * now too much for the time left to its deadline, and the kernel gives it a new, later deadline:
 * the job misses its own. The time asleep is charged to its runtime before the wake-up, while the
 * task is certainly off the run queue (its pi_lock keeps it there). A floor is left to it. It is
 * the GPU's time for this task: a task that waits for a permit or for a GPU of a pool is charged
 * nothing, since the GPU works for another. May not: change a task's runtime while the scheduler
 * may be using it.
 */
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/deadline.h>
#include <linux/stringify.h>

#include "../trace.h"
#include "internal.h"

static unsigned int deadline_floor_us = RTXG_BUDGET_FLOOR_US;
module_param(deadline_floor_us, uint, 0644);
MODULE_PARM_DESC(deadline_floor_us,
		 "SCHED_DEADLINE: runtime left to a task after its time on the "
		 "GPU is charged, at least (" __stringify(RTXG_BUDGET_FLOOR_US) " us)");

/*
 * With the thread's pi_lock held: unless it runs, or is about to, it is off the run queue for as
 * long.
 */
static void charge(struct cpu_thread *th, u64 slept)
{
	struct task_struct *task = th->task;
	struct cpu_task *t = th->group;
	s64 left;

	if (t->params.policy != RTXG_CPU_DEADLINE || t->params.flags & RTXG_CPU_F_NO_GPU_CHARGE ||
	    task->policy != SCHED_DEADLINE || !(READ_ONCE(task->__state) & TASK_NORMAL) ||
	    READ_ONCE(task->on_rq) || smp_load_acquire(&task->on_cpu))
		return;
	left = rtxg_budget_after_sleep(task->dl.runtime, slept,
				       (u64)READ_ONCE(deadline_floor_us) * NSEC_PER_USEC);
	raw_spin_lock(&t->lock);
	t->gpu_charges++;
	t->gpu_charged_ns += task->dl.runtime - left;
	raw_spin_unlock(&t->lock);
	task->dl.runtime = left;
	/* the wake-up that follows charges nothing more */
	WRITE_ONCE(th->asleep_ns, 0);
}

/*
 * A task is about to be woken because its GPU is done (or free); it sleeps since since_ns. Called
 * by the waker, in any context. Any other waker needs its pi_lock, and a task that is
 * neither queued nor running is not looked at by the scheduler.
 */
void rtxg_cpu_charge_gpu(struct task_struct *task, u64 since_ns)
{
	u64 slept = ktime_get_mono_fast_ns() - since_ns;
	struct cpu_thread *th;
	unsigned long flags;

	rcu_read_lock();
	th = rtxg_cpu_find(task);
	if (th) {
		raw_spin_lock_irqsave(&task->pi_lock, flags);
		charge(th, slept);
		raw_spin_unlock_irqrestore(&task->pi_lock, flags);
	}
	rcu_read_unlock();
}

/* A task is woken: with its pi_lock held, but where it is the one that runs here. */
static void probe_waking(void *data, struct task_struct *task)
{
	struct cpu_thread *th;
	u64 asleep_ns;

	if (task->policy != SCHED_DEADLINE || task == current)
		return;
	rcu_read_lock();
	th = rtxg_cpu_find(task);
	asleep_ns = th && READ_ONCE(th->waits_for_gpu) ? READ_ONCE(th->asleep_ns) : 0;
	if (asleep_ns)
		charge(th, ktime_get_mono_fast_ns() - asleep_ns);
	rcu_read_unlock();
}

static struct rtxg_probe probes[] = {
	{ "sched_waking", probe_waking },
	{},
};

int rtxg_cpu_waits_for_gpu(struct cpu_thread *th, bool on)
{
	int err = on ? rtxg_trace_need(RTXG_TRACE_WAKING) : 0;

	if (err)
		return err;
	WRITE_ONCE(th->asleep_ns, 0);
	WRITE_ONCE(th->waits_for_gpu, on);
	return 0;
}

void rtxg_cpu_deadline_init(void)
{
	rtxg_trace_register(RTXG_TRACE_WAKING, probes);
}
