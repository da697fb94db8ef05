// SPDX-License-Identifier: GPL-2.0-only
/*
 * server.c - kernel threads in a bandwidth server: work without an owner has a budget of its own
 * (klmirqd: Elliott and Anderson 2012, section III, independent mode). While the threads work for
 * an owner they are lent to it, and the server is not charged. May not: know whose work it is.
 */
#include "internal.h"

struct cpu_task *rtxg_cpu_server_begin(struct task_struct *const *threads, unsigned int count,
				       u32 priority, u64 runtime_ns, u64 period_ns)
{
	struct rtxg_cpu_task params = { .size = sizeof(params),
					.policy = RTXG_CPU_FP,
					.priority = priority,
					.runtime_ns = runtime_ns,
					.period_ns = period_ns };

	return rtxg_cpu_attach_kernel(threads, count, &params);
}

void rtxg_cpu_server_set(struct cpu_task *t, u32 priority, bool lent)
{
	rt_mutex_lock(&rtxg_cpu_lock);
	raw_spin_lock_irq(&t->lock);
	/* what was before is charged as it was then */
	rtxg_cpu_account(t, ktime_get_mono_fast_ns());
	WRITE_ONCE(t->lent, lent);
	rtxg_cpu_arm_budget(t);
	raw_spin_unlock_irq(&t->lock);
	t->priority = priority;
	if (!t->detached)
		rtxg_cpu_apply(t);
	rt_mutex_unlock(&rtxg_cpu_lock);
}

u64 rtxg_cpu_server_exhausted(struct cpu_task *t)
{
	u64 times;

	raw_spin_lock_irq(&t->lock);
	times = t->throttles;
	raw_spin_unlock_irq(&t->lock);
	return times;
}

void rtxg_cpu_server_end(struct cpu_task *t)
{
	rtxg_cpu_detach(t);
	rtxg_cpu_put_task(t);
}
