// SPDX-License-Identifier: GPL-2.0-only
/*
 * tasklets.c - tasklets of a driver's interrupt, redirected to a thread of ours (klmirqd: Elliott
 * and Anderson 2012, section IV).
 *
 * The kernel runs a tasklet directly after the top half, on whichever task was interrupted. The
 * function that queues one is seen by the kernel's function tracer, as livepatch does it. If it is
 * called by a handler that is hooked, or by a tasklet that runs here, our thread gets the tasklet
 * and the kernel does not.
 *
 * A tasklet stays what the kernel's functions believe it is: it keeps the bits that say that it is
 * queued and that it runs, softirqs are off while it runs, and whatever waits for it (tasklet_kill,
 * tasklet_disable) waits for ours. One that is disabled, or runs on another CPU, goes back to the
 * kernel.
 *
 * May not: know whose work a tasklet does, or at which priority its thread runs.
 */
#include <linux/err.h>
#include <linux/ftrace.h>
#include <linux/interrupt.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/wait_bit.h>

#include "events.h"
#include "hook.h"
#include "tasklets.h"

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_REGS

struct rtxg_tasklets {
	struct list_head node;
	const struct rtxg_hook *hook;
	const struct rtxg_tasklets_user *calls;
	void *user;
	struct task_struct *thread;
	u64 count;

	/* under lock: linked as the kernel links them */
	raw_spinlock_t lock;
	struct tasklet_struct *first, **last;
};

static LIST_HEAD(all);
static DEFINE_MUTEX(all_lock);
static bool active;

static void queue(struct rtxg_tasklets *tasklets, struct tasklet_struct *tasklet)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&tasklets->lock, flags);
	tasklet->next = NULL;
	*tasklets->last = tasklet;
	tasklets->last = &tasklet->next;
	raw_spin_unlock_irqrestore(&tasklets->lock, flags);
	wake_up_process(tasklets->thread);
}

static struct tasklet_struct *take(struct rtxg_tasklets *tasklets)
{
	struct tasklet_struct *tasklet;
	unsigned long flags;

	raw_spin_lock_irqsave(&tasklets->lock, flags);
	tasklet = tasklets->first;
	if (tasklet) {
		tasklets->first = tasklet->next;
		if (!tasklets->first)
			tasklets->last = &tasklets->first;
	}
	raw_spin_unlock_irqrestore(&tasklets->lock, flags);
	return tasklet;
}

/* In place of the kernel's function, when the tasklet is queued here. */
static noinline void taken(struct tasklet_struct *tasklet)
{
	barrier();
}

/* The kernel is about to queue a tasklet. In any context. */
static void about_to_queue(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
			   struct ftrace_regs *fregs)
{
	struct pt_regs *regs = ftrace_get_regs(fregs);
	struct rtxg_tasklets *tasklets;

	/* what we give back is the kernel's */
	if (!regs || within_module(parent, THIS_MODULE))
		return;
	rcu_read_lock();
	list_for_each_entry_rcu(tasklets, &all, node)
	{
		/* an interrupt of another device may have come to it */
		if (!(in_task() && tasklets->thread == current) && !rtxg_hook_runs(tasklets->hook))
			continue;
		if (tasklets->calls->takes(tasklets->user)) {
			queue(tasklets, (struct tasklet_struct *)regs_get_kernel_argument(regs, 0));
			instruction_pointer_set(regs, (unsigned long)taken);
		}
		break;
	}
	rcu_read_unlock();
}

static struct ftrace_ops ops = {
	.func = about_to_queue,
	.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY,
};

/* As the kernel does it in softirq context (kernel/softirq.c, tasklet_action_common). */
static bool run(struct tasklet_struct *tasklet)
{
	bool may;

	if (!tasklet_trylock(tasklet))
		return false;
	may = !atomic_read(&tasklet->count);
	if (may && test_and_clear_bit(TASKLET_STATE_SCHED, &tasklet->state)) {
		wake_up_var(&tasklet->state);
		if (tasklet->use_callback)
			tasklet->callback(tasklet);
		else
			tasklet->func(tasklet->data);
	}
	tasklet_unlock(tasklet);
	return may;
}

static int main_of_thread(void *argument)
{
	struct rtxg_tasklets *tasklets = argument;
	struct tasklet_struct *tasklet;

	for (;;) {
		bool ran;

		set_current_state(TASK_INTERRUPTIBLE);
		tasklet = kthread_should_stop() ? NULL : take(tasklets);
		if (!tasklet) {
			if (kthread_should_stop())
				break;
			schedule();
			continue;
		}
		__set_current_state(TASK_RUNNING);
		trace_rtxg_irq_begins(tasklets->hook->irq, RTXG_STAGE_TASKLET);
		tasklets->calls->runs(tasklets->user);
		WRITE_ONCE(tasklets->count, tasklets->count + 1);
		/* a tasklet relies on not being interrupted by a softirq */
		local_bh_disable();
		ran = run(tasklet);
		local_bh_enable();
		if (!ran)
			__tasklet_schedule(tasklet);
		trace_rtxg_irq_ends(tasklets->hook->irq, RTXG_STAGE_TASKLET);
		/*
		 * without preemption in the kernel, nothing else would ever run beside a storm of
		 * them
		 */
		cond_resched();
	}
	__set_current_state(TASK_RUNNING);
	while ((tasklet = take(tasklets)))
		__tasklet_schedule(tasklet);
	return 0;
}

/*
 * Patches the kernel's functions when that is first needed, until the module goes. Under all_lock.
 */
static int need(void)
{
	static char *const names[] = { "__tasklet_schedule", "__tasklet_hi_schedule" };
	int err = 0;

	for (size_t i = 0; !active && !err && i < ARRAY_SIZE(names); i++)
		err = ftrace_set_filter(&ops, (unsigned char *)names[i], strlen(names[i]), !i);
	if (!active && !err)
		err = register_ftrace_function(&ops);
	active |= !err;
	return err;
}

struct rtxg_tasklets *rtxg_tasklets_begin(const struct rtxg_hook *hook,
					  const struct rtxg_tasklets_user *calls, void *user)
{
	struct rtxg_tasklets *tasklets = kzalloc(sizeof(*tasklets), GFP_KERNEL_ACCOUNT);
	int err;

	if (!tasklets)
		return ERR_PTR(-ENOMEM);
	tasklets->hook = hook;
	tasklets->calls = calls;
	tasklets->user = user;
	tasklets->last = &tasklets->first;
	raw_spin_lock_init(&tasklets->lock);
	tasklets->thread = kthread_create(main_of_thread, tasklets, "rtxg_irq/%u", hook->irq);
	if (IS_ERR(tasklets->thread)) {
		err = PTR_ERR(tasklets->thread);
		kfree(tasklets);
		return ERR_PTR(err);
	}
	get_task_struct(tasklets->thread);
	wake_up_process(tasklets->thread);
	mutex_lock(&all_lock);
	err = need();
	if (!err)
		list_add_rcu(&tasklets->node, &all);
	mutex_unlock(&all_lock);
	if (!err)
		return tasklets;
	kthread_stop(tasklets->thread);
	put_task_struct(tasklets->thread);
	kfree(tasklets);
	return ERR_PTR(err);
}

struct task_struct *rtxg_tasklets_thread(const struct rtxg_tasklets *tasklets)
{
	return tasklets->thread;
}

u64 rtxg_tasklets_count(const struct rtxg_tasklets *tasklets)
{
	return READ_ONCE(tasklets->count);
}

void rtxg_tasklets_end(struct rtxg_tasklets *tasklets)
{
	mutex_lock(&all_lock);
	list_del_rcu(&tasklets->node);
	mutex_unlock(&all_lock);
	/* none is queued here any more */
	synchronize_rcu();
	kthread_stop(tasklets->thread);
	put_task_struct(tasklets->thread);
	kfree(tasklets);
}

void rtxg_tasklets_exit(void)
{
	if (active) {
		unregister_ftrace_function(&ops);
		/* none is on its way through taken() */
		synchronize_rcu_tasks();
	}
	ftrace_free_filter(&ops);
}

#else

struct rtxg_tasklets *rtxg_tasklets_begin(const struct rtxg_hook *hook,
					  const struct rtxg_tasklets_user *calls, void *user)
{
	return ERR_PTR(-EOPNOTSUPP);
}

struct task_struct *rtxg_tasklets_thread(const struct rtxg_tasklets *tasklets)
{
	return NULL;
}

u64 rtxg_tasklets_count(const struct rtxg_tasklets *tasklets)
{
	return 0;
}

void rtxg_tasklets_end(struct rtxg_tasklets *tasklets)
{
}

void rtxg_tasklets_exit(void)
{
}

#endif
