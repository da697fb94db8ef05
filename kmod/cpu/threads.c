// SPDX-License-Identifier: GPL-2.0-only
/*
 * threads.c - the threads and tasks that are known: their table, memory and references. May not:
 * change a thread.
 */
#include <linux/cpumask.h>
#include <linux/gfp.h>
#include <linux/hashtable.h>
#include <linux/sched/deadline.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "internal.h"

DEFINE_HASHTABLE(rtxg_cpu_threads, 8);
unsigned int rtxg_cpu_thread_count;
LIST_HEAD(rtxg_cpu_tasks);
struct rt_mutex rtxg_cpu_lock;

struct cpu_thread *rtxg_cpu_find(const struct task_struct *task)
{
	struct cpu_thread *th;

	hash_for_each_possible_rcu(rtxg_cpu_threads, th, node,
				   (unsigned long)task) if (th->task == task) return th;
	return NULL;
}

static void free_task_rcu(struct rcu_head *rcu)
{
	struct cpu_task *t = container_of(rcu, struct cpu_task, rcu);

	free_cpumask_var(t->domain);
	kfree(t);
}

static void free_cpu_task(struct kref *kref)
{
	call_rcu(&container_of(kref, struct cpu_task, kref)->rcu, free_task_rcu);
}

void rtxg_cpu_put_task(struct cpu_task *t)
{
	kref_put(&t->kref, free_cpu_task);
}

/*
 * F_HARD asks for park_work with a run queue's lock held. KASAN then notes the asker if the memory
 * is a slab's, and allocates for it, which that lock does not allow. A page is left alone.
 */
static struct cpu_thread *alloc_cpu_thread(void)
{
	BUILD_BUG_ON(sizeof(struct cpu_thread) > PAGE_SIZE);
	if (IS_ENABLED(CONFIG_KASAN))
		return (struct cpu_thread *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	return kzalloc(sizeof(struct cpu_thread), GFP_KERNEL_ACCOUNT);
}

static void release_cpu_thread(struct cpu_thread *th)
{
	free_cpumask_var(th->saved_mask);
	if (IS_ENABLED(CONFIG_KASAN))
		free_page((unsigned long)th);
	else
		kfree(th);
}

static void free_thread_rcu(struct rcu_head *rcu)
{
	struct cpu_thread *th = container_of(rcu, struct cpu_thread, rcu);

	put_task_struct(th->task);
	rtxg_cpu_put_task(th->group);
	release_cpu_thread(th);
}

static void free_cpu_thread(struct kref *kref)
{
	call_rcu(&container_of(kref, struct cpu_thread, kref)->rcu, free_thread_rcu);
}

void rtxg_cpu_put_thread(struct cpu_thread *th)
{
	kref_put(&th->kref, free_cpu_thread);
}

struct cpu_thread *rtxg_cpu_new_thread(struct task_struct *task)
{
	struct cpu_thread *th = alloc_cpu_thread();

	if (!th)
		return NULL;
	if (!alloc_cpumask_var(&th->saved_mask, GFP_KERNEL_ACCOUNT)) {
		release_cpu_thread(th);
		return NULL;
	}
	kref_init(&th->kref);
	rtxg_waiters_init(&th->sleepers, NULL);
	th->task = task;
	th->applied_policy = U32_MAX;
	return th;
}

/* One that was never linked; its task is put by the caller. */
void rtxg_cpu_drop_thread(struct cpu_thread *th)
{
	if (th)
		release_cpu_thread(th);
}
