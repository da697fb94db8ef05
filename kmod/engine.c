// SPDX-License-Identifier: GPL-2.0-only
/*
 * engine.c - the host's engines as their interrupts see them: the completion that gives the next
 * permit, and whose work an engine does.
 *
 * An interrupt takes rtxg_host.lock, which is raw, with interrupts off; no longer than a step of
 * the core. May not: decide who runs; touch a page.
 */
#include <linux/minmax.h>
#include <linux/sched.h>
#include <linux/sched/task.h>

#include "engine.h"
#include "host.h"
#include "objects.h"

int rtxg_engine_bind(char gpu[RTXG_HOST_NAME], u32 engine)
{
	int number;

	if (!rtxg_host_good_name(gpu, "0"))
		return -EINVAL;
	mutex_lock(&rtxg_host.objects);
	number = rtxg_host_get_gpu(gpu, false);
	if (number >= 0)
		WRITE_ONCE(rtxg_host.gpus[number].bound[engine],
			   rtxg_host.gpus[number].bound[engine] + 1);
	mutex_unlock(&rtxg_host.objects);
	return number;
}

/*
 * Wakes those that sleep until their fence has passed: no interrupt will do it. One task at a time:
 * interrupts are off for no longer. objects is held.
 */
static void tell_sleepers(u32 gpu, u32 engine)
{
	for (u32 i = 0; i < rtxg_host.max_tasks; i++) {
		struct khost_task *task = khost_task_at(i);

		if (!task)
			continue;
		raw_spin_lock_irq(&rtxg_host.lock);
		if (khost_account(task)->gpu == gpu)
			rtxg_waiters_wake(&task->lanes[engine].syncs);
		raw_spin_unlock_irq(&rtxg_host.lock);
	}
}

void rtxg_engine_unbind(u32 gpu, u32 engine)
{
	mutex_lock(&rtxg_host.objects);
	WRITE_ONCE(rtxg_host.gpus[gpu].bound[engine], rtxg_host.gpus[gpu].bound[engine] - 1);
	if (!rtxg_host.gpus[gpu].bound[engine])
		tell_sleepers(gpu, engine);
	mutex_unlock(&rtxg_host.objects);
}

bool rtxg_engine_bound(u32 gpu, u32 engine)
{
	return READ_ONCE(rtxg_host.gpus[gpu].bound[engine]);
}

void rtxg_engine_tell_owners(void (*changed)(u32 gpu, u32 engine))
{
	rtxg_host.owner_changed = changed;
}

/* One that has ended owns nothing: what waits for it ends, too, or has another owner. */
bool rtxg_engine_may_own(const struct task_struct *thread)
{
	return !READ_ONCE(thread->exit_state);
}

/* The thread of the task that holds the engine; under lock. */
static struct task_struct *owner_of(u32 gpu, u32 engine)
{
	struct khost_task *task =
		khost_task_at(rtxg_core_holder(rtxg_host.permits.core, gpu, engine));
	struct task_struct *thread;

	/* between two launches the GPU is its own as well */
	task = task ?: rtxg_host.gpus[gpu].pool_holder;
	if (!task)
		return NULL;
	thread = task->lanes[engine].thread;
	if (!thread || !rtxg_engine_may_own(thread))
		thread = task->opener;
	return rtxg_engine_may_own(thread) ? thread : NULL;
}

static void owner_changed(u32 gpu)
{
	for (u32 engine = 0; engine < RTXG_ENGINES; engine++)
		rtxg_host.owner_changed(gpu, engine);
}

void rtxg_engine_pool_holder(u32 gpu, struct khost_task *task)
{
	if (gpu >= RTXG_HOST_GPUS)
		return;
	rtxg_host.gpus[gpu].pool_holder = task;
	owner_changed(gpu);
}

void rtxg_engine_pool_leaves(struct khost_task *task)
{
	for (u32 gpu = 0; gpu < RTXG_HOST_GPUS; gpu++) {
		if (rtxg_host.gpus[gpu].pool_holder != task)
			continue;
		rtxg_host.gpus[gpu].pool_holder = NULL;
		owner_changed(gpu);
	}
}

struct task_struct *rtxg_engine_owner(u32 gpu, u32 engine)
{
	struct task_struct *thread;
	unsigned long flags;

	raw_spin_lock_irqsave(&rtxg_host.lock, flags);
	thread = owner_of(gpu, engine);
	if (thread)
		get_task_struct(thread);
	raw_spin_unlock_irqrestore(&rtxg_host.lock, flags);
	return thread;
}

int rtxg_engine_owner_prio(u32 gpu, u32 engine)
{
	const struct task_struct *thread;
	unsigned long flags;
	int prio;

	raw_spin_lock_irqsave(&rtxg_host.lock, flags);
	thread = owner_of(gpu, engine);
	prio = thread ? READ_ONCE(thread->prio) : INT_MAX;
	raw_spin_unlock_irqrestore(&rtxg_host.lock, flags);
	return prio;
}

/* One task at a time: interrupts are off for no longer. */
int rtxg_engine_waiting_prio(u32 gpu, u32 engine)
{
	int prio = INT_MAX;

	for (u32 i = 0; i < rtxg_host.max_tasks; i++) {
		struct khost_task *task;

		if (!READ_ONCE(rtxg_host.permits.tasks[i]))
			continue;
		raw_spin_lock_irq(&rtxg_host.lock);
		task = khost_task_at(i);
		if (task && khost_account(task)->gpu == gpu &&
		    task->permit.lanes[engine].state == PERMIT_WAITING)
			prio = min(prio, rtxg_waiters_prio(&task->lanes[engine].waiters));
		raw_spin_unlock_irq(&rtxg_host.lock);
	}
	return prio;
}

void rtxg_engine_own(struct khost_task *task, u32 lane)
{
	struct task_struct *thread = current;

	if (READ_ONCE(task->lanes[lane].thread) == thread)
		return;
	get_task_struct(thread);
	raw_spin_lock_irq(&rtxg_host.lock);
	swap(task->lanes[lane].thread, thread);
	raw_spin_unlock_irq(&rtxg_host.lock);
	if (thread)
		put_task_struct(thread);
}

void rtxg_engine_ask(struct khost_task *task, u32 lane)
{
	raw_spin_lock_irq(&rtxg_host.lock);
	rtxg_host.owner_changed(khost_account(task)->gpu, lane);
	raw_spin_unlock_irq(&rtxg_host.lock);
}

/* The scheduling point of the paper: the next permit is given before the driver's handler runs. */
void rtxg_engine_interrupt(u32 gpu, u32 engine)
{
	struct khost_task *holder;
	unsigned long flags;

	raw_spin_lock_irqsave(&rtxg_host.lock, flags);
	holder = khost_task_at(rtxg_core_holder(rtxg_host.permits.core, gpu, engine));
	/* those who wait for an earlier launch than the last look at the fence, too */
	if (holder)
		rtxg_waiters_wake(&holder->lanes[engine].syncs);
	permit_interrupt(&rtxg_host.permits, ktime_get_ns(), gpu, engine);
	raw_spin_unlock_irqrestore(&rtxg_host.lock, flags);
}
