// SPDX-License-Identifier: GPL-2.0-only
/*
 * inherit.c - threads that run at a priority that they inherit: one record for a thread, whatever
 * number of GPUs it holds.
 *
 * May not: decide what is inherited, or who is raised: rtxg_cpu_inherit.h does.
 */
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "internal.h"

/* Under rtxg_cpu_lock. */
static LIST_HEAD(heirs);

/* Its priority is that of a CPU policy. */
static bool governed(const struct task_struct *thread)
{
	struct cpu_thread *th;
	bool is;

	rcu_read_lock();
	th = rtxg_cpu_find(thread);
	is = th && th->applied_policy != U32_MAX;
	rcu_read_unlock();
	return is;
}

static struct rtxg_cpu_heir *find(const struct task_struct *thread)
{
	struct rtxg_cpu_heir *heir;

	list_for_each_entry (heir, &heirs, node)
		if (heir->thread == thread)
			return heir;
	return NULL;
}

static struct rtxg_inherit_setting setting_of(const struct task_struct *thread)
{
	struct rtxg_inherit_setting now = { .reset = thread->sched_reset_on_fork,
					    .governed = governed(thread) };

	switch (thread->policy) {
	case SCHED_FIFO:
	case SCHED_RR:
		now.policy = RTXG_INHERIT_FIXED;
		now.priority = thread->rt_priority;
		break;
	case SCHED_DEADLINE:
		now.policy = RTXG_INHERIT_DEADLINE;
		break;
	default:
		now.policy = RTXG_INHERIT_ORDINARY;
	}
	return now;
}

struct rtxg_cpu_heir *rtxg_cpu_heir_get(void)
{
	struct rtxg_cpu_heir *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT), *heir;

	if (!fresh)
		return NULL;
	rt_mutex_lock(&rtxg_cpu_lock);
	heir = find(current);
	if (!heir) {
		heir = fresh;
		fresh = NULL;
		heir->thread = get_task_struct(current);
		list_add(&heir->node, &heirs);
	}
	heir->users++;
	rt_mutex_unlock(&rtxg_cpu_lock);
	kfree(fresh);
	return heir;
}

void rtxg_cpu_heir_put(struct rtxg_cpu_heir *heir)
{
	bool last;

	if (heir->users == 1) {
		heir->wanted = 0;
		rtxg_cpu_heir_set(heir);
	}
	rt_mutex_lock(&rtxg_cpu_lock);
	last = !--heir->users;
	if (last)
		list_del(&heir->node);
	rt_mutex_unlock(&rtxg_cpu_lock);
	if (!last)
		return;
	put_task_struct(heir->thread);
	kfree(heir);
}

u32 rtxg_cpu_heir_passes(const struct rtxg_cpu_heir *heir)
{
	struct rtxg_inherit_setting now;
	u32 passes;

	rt_mutex_lock(&rtxg_cpu_lock);
	now = setting_of(heir->thread);
	passes = rtxg_inherit_passes(&heir->state, &now);
	rt_mutex_unlock(&rtxg_cpu_lock);
	return passes;
}

static void set(struct task_struct *thread, const struct rtxg_inherit_setting *setting)
{
	const struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = thread->policy,
		.sched_flags = setting->reset ? SCHED_FLAG_RESET_ON_FORK : 0,
		.sched_nice = task_nice(thread),
		.sched_priority = setting->priority,
		.sched_runtime = rtxg_own_slice(thread),
	};

	sched_setattr_nocheck(thread, &attr);
}

void rtxg_cpu_heir_set(struct rtxg_cpu_heir *heir)
{
	struct rtxg_inherit_setting now, wanted;

	if (!heir->wanted && !heir->state.raised)
		return;
	rt_mutex_lock(&rtxg_cpu_lock);
	now = setting_of(heir->thread);
	if (rtxg_inherit_look(&heir->state, heir->wanted, &now, &wanted)) {
		set(heir->thread, &wanted);
		rtxg_inherit_set(&heir->state, &wanted);
	}
	rt_mutex_unlock(&rtxg_cpu_lock);
}

void rtxg_cpu_own_attributes(const struct task_struct *thread, struct sched_attr *attr)
{
	const struct rtxg_cpu_heir *heir = find(thread);
	struct rtxg_inherit_setting own;

	if (!heir)
		return;
	own = setting_of(thread);
	own = rtxg_inherit_own(&heir->state, &own);
	attr->sched_priority = own.priority;
	attr->sched_flags &= ~SCHED_FLAG_RESET_ON_FORK;
	attr->sched_flags |= own.reset ? SCHED_FLAG_RESET_ON_FORK : 0;
}

void rtxg_cpu_save_attributes(struct cpu_thread *th)
{
	struct task_struct *task = th->task;

	th->saved = (struct sched_attr){
		.size = sizeof(th->saved),
		.sched_policy = task->policy,
		.sched_nice = task_nice(task),
		.sched_priority = task->rt_priority,
		.sched_flags = task->sched_reset_on_fork ? SCHED_FLAG_RESET_ON_FORK : 0,
		.sched_runtime = rtxg_own_slice(task),
	};
	if (task->policy == SCHED_DEADLINE) {
		th->saved.sched_runtime = task->dl.dl_runtime;
		th->saved.sched_deadline = task->dl.dl_deadline;
		th->saved.sched_period = task->dl.dl_period;
		th->saved.sched_flags |=
			task->dl.flags & (SCHED_FLAG_RECLAIM | SCHED_FLAG_DL_OVERRUN);
	}
	rtxg_cpu_own_attributes(task, &th->saved);
	cpumask_copy(th->saved_mask, &task->cpus_mask);
}
