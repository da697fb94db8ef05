// SPDX-License-Identifier: GPL-2.0-only
/*
 * newcomers.c - threads that attached ones make: each joins its task before its first instruction.
 *
 * The kernel tells of a new thread before it wakes it, where nothing may sleep. So the new thread
 * is asked to join by itself, where it first would go to user mode (task_work_add). Where that
 * cannot be, the keeper takes it in, a moment later.
 *
 * May not: sleep or allocate in a probe.
 */
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/task_work.h>

#include "internal.h"

/* One that was asked and has not joined yet. */
struct newcomer {
	struct callback_head work;
	struct cpu_task *group;
	struct newcomer *next; /* while free */
};

/*
 * So many threads may have been made and not have run yet. In the module's own memory: where a
 * slab's is asked with, KASAN allocates (threads.c).
 */
static struct newcomer newcomers[512];
static struct newcomer *unused;
static bool linked;
static DEFINE_RAW_SPINLOCK(lock);

static struct newcomer *take(void)
{
	struct newcomer *newcomer;
	unsigned long flags;

	raw_spin_lock_irqsave(&lock, flags);
	if (!linked) {
		for (size_t i = 0; i < ARRAY_SIZE(newcomers); i++) {
			newcomers[i].next = unused;
			unused = &newcomers[i];
		}
		linked = true;
	}
	newcomer = unused;
	if (newcomer)
		unused = newcomer->next;
	raw_spin_unlock_irqrestore(&lock, flags);
	return newcomer;
}

static void give(struct newcomer *newcomer)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&lock, flags);
	newcomer->next = unused;
	unused = newcomer;
	raw_spin_unlock_irqrestore(&lock, flags);
}

/* In the new thread, before it has been in user mode, or as it ends without having been there. */
static void joins(struct callback_head *work)
{
	struct newcomer *newcomer = container_of(work, struct newcomer, work);
	struct cpu_task *t = newcomer->group;

	give(newcomer);
	rtxg_cpu_join(t);
	/* the one that made it may have waited, for the task to have a thread */
	if (atomic_dec_and_test(&t->joining))
		rtxg_cpu_kick(RTXG_CPU_KEEPER);
	rtxg_cpu_put_task(t);
	/* rtxg_cpu_exit() waits until the rest of this function is behind us */
	module_put(THIS_MODULE);
}

/* False: it cannot be asked. Under RCU. */
static bool ask_to_join(struct cpu_task *t, struct task_struct *child)
{
	struct newcomer *newcomer;

	if (!rtxg_cpu_add_work)
		return false;
	newcomer = take();
	if (!newcomer)
		return false;
	kref_get(&t->kref);
	atomic_inc(&t->joining);
	__module_get(THIS_MODULE);
	newcomer->group = t;
	init_task_work(&newcomer->work, joins);
	if (!rtxg_cpu_add_work(child, &newcomer->work, TWA_RESUME))
		return true;
	module_put(THIS_MODULE);
	atomic_dec(&t->joining);
	rtxg_cpu_put_task(t);
	give(newcomer);
	return false;
}

void rtxg_cpu_probe_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	u32 wanted = same_thread_group(parent, child) ? RTXG_CPU_F_PROCESS : RTXG_CPU_F_CHILDREN;
	struct cpu_thread *th;

	rcu_read_lock();
	/* a thread that is found holds its task */
	th = rtxg_cpu_find(parent);
	if (th && th->group->params.flags & wanted && !ask_to_join(th->group, child)) {
		WRITE_ONCE(th->group->adopt, true);
		rtxg_cpu_kick(RTXG_CPU_KEEPER);
	}
	rcu_read_unlock();
}
