// SPDX-License-Identifier: GPL-2.0-only
/*
 * inherit.c - threads that run at a priority that they inherit: one record for a thread, whatever
 * number of GPUs it holds.
 *
 * Only a thread under SCHED_FIFO or SCHED_RR is raised: a thread that is not real-time was not
 * trusted with a CPU, and does not become so by holding a GPU. A thread with a CPU policy of ours
 * is left alone as well: its policy says which priority it has.
 *
 * The kernel lets any thread set a priority up to the one that it has now. While a thread is
 * raised, a priority above its own is therefore no wish to keep, and what it forks begins as an
 * ordinary thread.
 *
 * May not: decide what is inherited.
 */
#include <linux/minmax.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "internal.h"

/* Under rtxg_cpu_lock. */
static LIST_HEAD(heirs);

static bool real_time(const struct task_struct *thread)
{
	return thread->policy == SCHED_FIFO || thread->policy == SCHED_RR;
}

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

static u32 own_of(const struct rtxg_cpu_heir *heir)
{
	return heir->raised ? min(heir->own, heir->thread->rt_priority) : heir->thread->rt_priority;
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

u32 rtxg_cpu_heir_own(const struct rtxg_cpu_heir *heir)
{
	u32 own;

	rt_mutex_lock(&rtxg_cpu_lock);
	/* SCHED_DEADLINE comes before all fixed priorities and has none itself */
	if (heir->thread->policy == SCHED_DEADLINE)
		own = MAX_RT_PRIO;
	else
		own = governed(heir->thread) ? heir->thread->rt_priority : own_of(heir);
	rt_mutex_unlock(&rtxg_cpu_lock);
	return own;
}

static void set(struct task_struct *thread, u32 priority, bool reset_on_fork)
{
	const struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = thread->policy,
		.sched_flags = reset_on_fork ? SCHED_FLAG_RESET_ON_FORK : 0,
		.sched_nice = task_nice(thread),
		.sched_priority = real_time(thread) ? priority : 0,
	};

	/* SCHED_DEADLINE: set by a trusted one, who has given the flag as well */
	if (thread->policy != SCHED_DEADLINE)
		sched_setattr_nocheck(thread, &attr);
}

void rtxg_cpu_heir_set(struct rtxg_cpu_heir *heir)
{
	struct task_struct *thread = heir->thread;

	if (!heir->wanted && !heir->raised)
		return;
	rt_mutex_lock(&rtxg_cpu_lock);
	if (governed(thread)) {
		/* what it had before is put back when it is detached */
		heir->raised = 0;
		goto out;
	}
	heir->own = own_of(heir);
	if (!heir->raised)
		heir->own_reset = thread->sched_reset_on_fork;
	if (real_time(thread) && heir->wanted > heir->own) {
		if (thread->rt_priority != heir->wanted || !thread->sched_reset_on_fork)
			set(thread, heir->wanted, true);
		heir->raised = heir->wanted;
	} else if (heir->raised) {
		set(thread, heir->own, heir->own_reset);
		heir->raised = 0;
	}
out:
	rt_mutex_unlock(&rtxg_cpu_lock);
}

void rtxg_cpu_own_attributes(const struct task_struct *thread, struct sched_attr *attr)
{
	const struct rtxg_cpu_heir *heir = find(thread);

	if (!heir || !heir->raised)
		return;
	attr->sched_priority = own_of(heir);
	attr->sched_flags = heir->own_reset ? SCHED_FLAG_RESET_ON_FORK : 0;
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
	};
	if (task->policy == SCHED_DEADLINE) {
		th->saved.sched_runtime = task->dl.dl_runtime;
		th->saved.sched_deadline = task->dl.dl_deadline;
		th->saved.sched_period = task->dl.dl_period;
	}
	rtxg_cpu_own_attributes(task, &th->saved);
	cpumask_copy(th->saved_mask, &task->cpus_mask);
}
