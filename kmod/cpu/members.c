// SPDX-License-Identifier: GPL-2.0-only
/*
 * members.c - tasks and their threads: attached, taken in as they are made, let go as they end. May
 * not: decide who is admitted, or which priority a thread has.
 */
#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/uidgid.h>

#include "../compat.h"
#include "../file.h"
#include "../trace.h"
#include "internal.h"

unsigned int rtxg_cpu_tasks_max = 256;
module_param_named(max_cpu_tasks, rtxg_cpu_tasks_max, uint, 0444);
MODULE_PARM_DESC(max_cpu_tasks, "tasks attached to a CPU policy at a time, 1..1024 (256)");

static unsigned int task_count;

void rtxg_cpu_probe_exit(void *data, struct task_struct *task RTXG_EXIT_PROBE_MORE)
{
	struct cpu_thread *th;

	rcu_read_lock();
	th = rtxg_cpu_find(task);
	if (th) {
		WRITE_ONCE(th->ended, true);
		rtxg_cpu_kick(RTXG_CPU_KEEPER);
	}
	rcu_read_unlock();
}

struct task_struct *rtxg_cpu_task_of(s32 pid)
{
	struct task_struct *task;
	struct pid *reference;

	if (!pid) {
		get_task_struct(current);
		return current;
	}
	if (pid < 0)
		return NULL;
	reference = find_get_pid(pid);
	task = get_pid_task(reference, PIDTYPE_PID);
	put_pid(reference);
	return task;
}

static struct cpu_thread *new_thread(struct task_struct *task)
{
	struct cpu_thread *th = rtxg_cpu_new_thread(task);

	if (!th)
		return NULL;
	rt_mutex_lock(&rtxg_cpu_lock);
	rtxg_cpu_save_attributes(th);
	rt_mutex_unlock(&rtxg_cpu_lock);
	return th;
}

/* Called with rtxg_cpu_lock and the CPUs held. */
static int link_thread(struct cpu_task *t, struct cpu_thread *th)
{
	bool known;

	rcu_read_lock();
	known = rtxg_cpu_find(th->task);
	rcu_read_unlock();
	if (known)
		return -EEXIST;
	/* another attachment may have come and gone since th was made: only now no other is left */
	rtxg_cpu_save_attributes(th);
	th->group = t;
	th->plain = t->threads >= RTXG_CPU_THREADS_MAX;
	kref_get(&t->kref);
	/* the first one stays the first, and plain ones stand at the end */
	if (th->plain || list_empty(&t->members))
		list_add_tail_rcu(&th->member_node, &t->members);
	else
		list_add_rcu(&th->member_node, t->members.next);
	t->threads++;
	WRITE_ONCE(rtxg_cpu_thread_count, rtxg_cpu_thread_count + 1);
	hash_add_rcu(rtxg_cpu_threads, &th->node, (unsigned long)th->task);
	/*
	 * from here on the probe sees it; if it has run through the change, it is found on its CPU
	 */
	smp_mb();
	smp_call_function_single(task_cpu(th->task), rtxg_cpu_found_running, th, true);
	/* it may have been exiting before the probe could know it */
	if (READ_ONCE(th->task->flags) & PF_EXITING) {
		WRITE_ONCE(th->ended, true);
		rtxg_cpu_kick(RTXG_CPU_KEEPER);
	}
	return 0;
}

/*
 * Puts a thread's policy back. One that cannot have it any more, as its SCHED_DEADLINE reservation
 * was given to others meanwhile, becomes an ordinary thread: it must not stay with a priority of
 * ours.
 */
static void put_policy_back(struct cpu_thread *th)
{
	const struct sched_attr ordinary = { .size = sizeof(ordinary),
					     .sched_policy = SCHED_NORMAL,
					     .sched_nice = th->saved.sched_nice };
	int err = sched_setattr_nocheck(th->task, &th->saved);

	/* one that exits has none to put back */
	if (!err || READ_ONCE(th->task->flags) & PF_EXITING)
		return;
	pr_warn("rtxg: task %d cannot have its policy %u back (error %d): it is an ordinary one "
		"now, "
		"set it with chrt\n",
		task_pid_nr(th->task), th->saved.sched_policy, err);
	sched_setattr_nocheck(th->task, &ordinary);
}

/* Puts back what was before. Called with rtxg_cpu_lock; drop() comes after it, without the lock. */
static void unlink_thread(struct cpu_thread *th, struct list_head *gone)
{
	struct cpu_task *t = th->group;

	hash_del_rcu(&th->node);
	WRITE_ONCE(rtxg_cpu_thread_count, rtxg_cpu_thread_count - 1);
	list_del_rcu(&th->member_node);
	list_add_tail(&th->gone_node, gone);
	t->threads--;
	if (t->runner == th->task || t->sleeper == th->task) {
		/* another may go on with jobs */
		t->runner = t->sleeper = NULL;
		t->started = t->waiting = false;
		WRITE_ONCE(t->run, false);
	}
	raw_spin_lock_irq(&t->lock);
	rtxg_cpu_account(t, ktime_get_mono_fast_ns());
	rtxg_cpu_leaves_cpu(th);
	/* a task switch that has found it already comes too late */
	th->gone = true;
	raw_spin_unlock_irq(&t->lock);
	if (!READ_ONCE(th->task->exit_state) && !READ_ONCE(th->ended)) {
		/* a mask that is not ours any more was set by another since */
		if (t->confined && cpumask_equal(&th->task->cpus_mask, t->domain))
			set_cpus_allowed_ptr(th->task, th->saved_mask);
		if (th->applied_policy != U32_MAX)
			put_policy_back(th);
	}
	WRITE_ONCE(th->ended, true);
}

/* What was taken out of the lists and has to be let go without the lock. */
struct gone {
	struct list_head threads, tasks;
};

#define GONE(name) struct gone name = { LIST_HEAD_INIT(name.threads), LIST_HEAD_INIT(name.tasks) }

/* A task may have hundreds of threads: a release waits for the change of so many at most. */
#define STEP 4

/* Called with rtxg_cpu_lock. Returns whether there are more. */
static bool unlink_some(struct cpu_task *t, struct list_head *gone)
{
	for (int i = 0; i < STEP && !list_empty(&t->members); i++)
		unlink_thread(rtxg_cpu_first(t), gone);
	return !list_empty(&t->members);
}

/*
 * Takes the task out of every list. Called with rtxg_cpu_lock; once a task. Its budget ends here,
 * so the first threads go with it, which is all that most tasks have. The others follow in drop().
 */
static void unlink_task(struct cpu_task *t, struct gone *gone)
{
	WRITE_ONCE(t->detached, true);
	rtxg_cpu_stop_clock(t);
	list_del_init(&t->file_node);
	list_move(&t->all_node, &gone->tasks);
	task_count--;
	rtxg_cpu_edf_remove(t);
	unlink_some(t, &gone->threads);
	rtxg_cpu_rank_all();
}

static void unlink_members(struct cpu_task *t, struct list_head *gone)
{
	bool more;

	do {
		rt_mutex_lock(&rtxg_cpu_lock);
		more = unlink_some(t, gone);
		rt_mutex_unlock(&rtxg_cpu_lock);
	} while (more);
}

/* The rest of detaching, without the lock. */
static void drop(struct gone *gone)
{
	struct cpu_thread *th, *next_thread;
	struct cpu_task *t, *next_task;

	if (list_empty(&gone->threads) && list_empty(&gone->tasks))
		return;
	list_for_each_entry (t, &gone->tasks, all_node)
		unlink_members(t, &gone->threads);
	list_for_each_entry (th, &gone->threads, gone_node)
		rtxg_waiters_wake(&th->sleepers);
	/* a probe may still hold them: a task's timers are quiet once none can arm them */
	if (!list_empty(&gone->tasks))
		synchronize_rcu();
	list_for_each_entry_safe (t, next_task, &gone->tasks, all_node) {
		bool pinned = t->params.flags & RTXG_CPU_F_STAY;

		hrtimer_cancel(&t->budget_timer);
		hrtimer_cancel(&t->replenish_timer);
		rtxg_waiters_wake(&t->parked);
		rtxg_cpu_put_task(t);
		if (pinned)
			module_put(THIS_MODULE);
	}
	list_for_each_entry_safe (th, next_thread, &gone->threads, gone_node)
		rtxg_cpu_put_thread(th);
}

/* Threads that live in the kernel do work for others and never come to user mode. */
static bool is_user_thread(const struct task_struct *task)
{
	return !(READ_ONCE(task->flags) &
		 (PF_KTHREAD | PF_IO_WORKER | RTXG_PF_USER_WORKER | PF_EXITING));
}

/* Whether its policy leaves it room for one more. */
static bool takes_more(const struct cpu_task *t)
{
	return t->threads < RTXG_CPU_THREADS_MAX || t->params.flags & RTXG_CPU_F_HARD;
}

static bool is_member(const struct cpu_task *t, const struct task_struct *task)
{
	const struct cpu_thread *th = rtxg_cpu_find(task);

	return th && th->group == t;
}

static bool is_stranger(const struct task_struct *task)
{
	return is_user_thread(task) && !rtxg_cpu_find(task);
}

/* Under RCU. */
static struct task_struct *stranger_of(struct cpu_task *t)
{
	struct task_struct *process, *task;

	for_each_thread(rtxg_cpu_first(t)->task, task) if (is_stranger(task)) return task;
	if (!(t->params.flags & RTXG_CPU_F_CHILDREN))
		return NULL;
	for_each_process_thread(
		process, task) if (is_stranger(task) &&
				   (is_member(t, process) ||
				    is_member(t, rcu_dereference(task->real_parent)))) return task;
	return NULL;
}

/* A thread of the task's that is not attached yet, with a reference; NULL: there is none. */
static struct task_struct *find_stranger(struct cpu_task *t)
{
	struct task_struct *found = NULL;

	rt_mutex_lock(&rtxg_cpu_lock);
	if (!t->detached && takes_more(t) && !list_empty(&t->members)) {
		rcu_read_lock();
		found = stranger_of(t);
		if (found)
			get_task_struct(found);
		rcu_read_unlock();
	}
	rt_mutex_unlock(&rtxg_cpu_lock);
	return found;
}

/*
 * A thread takes its CPUs and its policy from the thread that makes it, and has by then what we
 * gave that one. What was before us is not that. Called with rtxg_cpu_lock, before th is changed.
 */
static void forget_inherited(const struct cpu_task *t, const struct cpu_thread *first,
			     struct cpu_thread *th)
{
	if (t->confined && cpumask_equal(th->saved_mask, t->domain))
		cpumask_copy(th->saved_mask, first->saved_mask);
	if (th->saved.sched_policy == SCHED_IDLE &&
	    (t->background || READ_ONCE(t->budget.exhausted)))
		th->saved.sched_policy = SCHED_NORMAL;
}

static int adopt_one(struct cpu_task *t, struct cpu_thread *th)
{
	int err = -ENOENT;

	rt_mutex_lock(&rtxg_cpu_lock);
	if (!t->detached && takes_more(t) && !list_empty(&t->members)) {
		const struct cpu_thread *first = rtxg_cpu_first(t);

		err = link_thread(t, th);
		if (!err)
			forget_inherited(t, first, th);
	}
	if (!err) {
		if (t->confined)
			set_cpus_allowed_ptr(th->task, t->domain);
		if (!th->plain)
			rtxg_cpu_apply_thread(t, th);
	}
	rt_mutex_unlock(&rtxg_cpu_lock);
	return err;
}

/*
 * F_PROCESS: attaches the threads that are not yet, each by itself, as a release may wait for the
 * lock. Called with the CPUs held.
 */
static void adopt(struct cpu_task *t)
{
	struct task_struct *found;
	struct cpu_thread *th;
	int err = 0;

	while (err != -ENOENT && (found = find_stranger(t))) {
		th = new_thread(found);
		if (!th) {
			put_task_struct(found);
			WRITE_ONCE(t->adopt, true);
			return;
		}
		err = adopt_one(t, th);
		/* -EEXIST: another call was faster with this one */
		if (err) {
			rtxg_cpu_drop_thread(th);
			put_task_struct(found);
		}
	}
}

void rtxg_cpu_join(struct cpu_task *t)
{
	struct cpu_thread *th;

	if (!is_user_thread(current))
		return;
	th = new_thread(get_task_struct(current));
	if (!th) {
		put_task_struct(current);
		WRITE_ONCE(t->adopt, true);
		rtxg_cpu_kick(RTXG_CPU_KEEPER);
		return;
	}
	cpus_read_lock();
	if (adopt_one(t, th)) {
		rtxg_cpu_drop_thread(th);
		put_task_struct(current);
	}
	cpus_read_unlock();
}

/* Takes a reference to each task that has new threads. */
static void find_adopters(struct list_head *adopters)
{
	struct cpu_task *t;

	rt_mutex_lock(&rtxg_cpu_lock);
	list_for_each_entry (t, &rtxg_cpu_tasks, all_node) {
		if (t->params.flags & RTXG_CPU_F_PROCESS && xchg(&t->adopt, false)) {
			kref_get(&t->kref);
			list_add_tail(&t->adopt_node, adopters);
		}
	}
	rt_mutex_unlock(&rtxg_cpu_lock);
}

/* Called with rtxg_cpu_lock. */
static void unlink_ended(struct cpu_task *t, struct list_head *gone)
{
	struct cpu_thread *th, *next;

	list_for_each_entry_safe (th, next, &t->members, member_node) {
		if (!READ_ONCE(th->ended))
			continue;
		/* a thread makes others before it ends: its process is found by one that is left */
		smp_rmb();
		if (list_is_singular(&t->members) &&
		    (READ_ONCE(t->adopt) || atomic_read(&t->joining)))
			return;
		unlink_thread(th, gone);
	}
}

/*
 * Threads have come or gone. Each task's turn comes once: a process that makes threads without end
 * keeps no other waiting. Its next threads have kicked the keeper once more.
 */
void rtxg_cpu_keep(void)
{
	struct cpu_task *t, *next_task;
	LIST_HEAD(adopters);
	GONE(gone);

	cpus_read_lock();
	/* first come, then go: the one that is left may be new, as after execve by a new thread */
	find_adopters(&adopters);
	list_for_each_entry_safe (t, next_task, &adopters, adopt_node) {
		adopt(t);
		rtxg_cpu_put_task(t);
	}
	rt_mutex_lock(&rtxg_cpu_lock);
	list_for_each_entry_safe (t, next_task, &rtxg_cpu_tasks, all_node) {
		unlink_ended(t, &gone.threads);
		if (list_empty(&t->members))
			unlink_task(t, &gone);
	}
	rt_mutex_unlock(&rtxg_cpu_lock);
	cpus_read_unlock();
	drop(&gone);
}

static struct cpu_task *new_task(void)
{
	struct cpu_task *t = kzalloc(sizeof(*t), GFP_KERNEL_ACCOUNT);

	if (!t)
		return NULL;
	if (!zalloc_cpumask_var(&t->domain, GFP_KERNEL_ACCOUNT)) {
		kfree(t);
		return NULL;
	}
	kref_init(&t->kref);
	INIT_LIST_HEAD(&t->file_node);
	INIT_LIST_HEAD(&t->members);
	rtxg_waiters_init(&t->parked, NULL);
	rtxg_cpu_init_clock(t);
	t->cpu = t->chosen = -1;
	return t;
}

/* One that was never linked. */
static void drop_new_task(struct cpu_task *t)
{
	if (!t)
		return;
	free_cpumask_var(t->domain);
	kfree(t);
}

/* What a caller is told. Called with rtxg_cpu_lock. */
void rtxg_cpu_tell(const struct cpu_task *t, struct rtxg_cpu_task *params)
{
	u32 size = params->size;
	u32 set_size = params->set_size;
	u64 set = params->set;
	s32 pid = params->pid;

	*params = t->params;
	params->size = size;
	params->pid = pid;
	params->set_size = set_size;
	params->set = set;
	params->cpu = t->cpu < 0 ? t->params.cpu : t->cpu;
	params->priority = t->priority;
	params->threads = t->threads;
}

static int link_task(struct rtxg_file *file, struct cpu_task *t, struct cpu_thread *th,
		     const struct rtxg_cpu_task *params, const struct cpumask *set,
		     struct gone *gone)
{
	int err;

	if (task_count >= rtxg_cpu_tasks_max)
		return -EUSERS;
	t->params.flags = params->flags; /* what a new thread is asks for them */
	err = link_thread(t, th);
	if (err)
		return err;
	list_add_tail(&t->all_node, &rtxg_cpu_tasks);
	task_count++;
	if (params->flags & RTXG_CPU_F_STAY)
		__module_get(THIS_MODULE);
	else
		list_add_tail(&t->file_node, &file->tasks);
	err = rtxg_cpu_configure(t, params, set);
	if (err)
		unlink_task(t, gone);
	return err;
}

int rtxg_cpu_attach(struct rtxg_file *file, struct rtxg_cpu_task *params,
		    struct cpu_task **attached)
{
	struct cpu_candidates candidates = {};
	struct task_struct *task;
	struct cpumask *set;
	struct cpu_thread *th;
	struct cpu_task *t;
	GONE(gone);
	int err;

	err = rtxg_cpu_check(params);
	if (err)
		return err;
	if (!capable(CAP_SYS_NICE))
		return -EPERM;
	err = rtxg_cpu_copy_set(params, &set);
	if (err)
		return err;
	task = rtxg_cpu_task_of(params->pid);
	if (!task) {
		kfree(set);
		return -ESRCH;
	}
	err = is_user_thread(task) ? rtxg_trace_need(RTXG_TRACE_TASK) : -EPERM;
	if (err) {
		kfree(set);
		put_task_struct(task);
		return err;
	}
	t = new_task();
	th = t ? new_thread(task) : NULL;
	if (!th) {
		drop_new_task(t);
		kfree(set);
		put_task_struct(task);
		return -ENOMEM;
	}
	/* no CPU goes between choosing one and being on it */
	mutex_lock(&rtxg_cpu_admission_lock);
	cpus_read_lock();
	err = rtxg_cpu_try(&candidates, NULL, params, set, th->saved_mask, &t->chosen);
	if (!err) {
		rt_mutex_lock(&rtxg_cpu_lock);
		err = link_task(file, t, th, params, set, &gone);
		if (!err) {
			kref_get(&t->kref);
			*attached = t;
		}
		rt_mutex_unlock(&rtxg_cpu_lock);
	}
	if (!err) {
		if (params->flags & RTXG_CPU_F_PROCESS)
			adopt(t);
		rt_mutex_lock(&rtxg_cpu_lock);
		rtxg_cpu_tell(t, params);
		rt_mutex_unlock(&rtxg_cpu_lock);
	}
	cpus_read_unlock();
	mutex_unlock(&rtxg_cpu_admission_lock);
	rtxg_cpu_end_try(&candidates);
	if (err && list_empty(&gone.tasks)) {
		/* it was never linked */
		rtxg_cpu_drop_thread(th);
		put_task_struct(task);
		drop_new_task(t);
	}
	kfree(set);
	drop(&gone);
	return err;
}

static void drop_new_threads(struct list_head *threads)
{
	struct cpu_thread *th, *next;

	list_for_each_entry_safe (th, next, threads, gone_node) {
		list_del(&th->gone_node);
		put_task_struct(th->task);
		rtxg_cpu_drop_thread(th);
	}
}

/* Links them all, or none. Called with rtxg_cpu_lock and the CPUs held. */
static int link_kernel(struct cpu_task *t, struct list_head *threads, struct rtxg_cpu_task *params,
		       struct gone *gone)
{
	struct cpu_thread *th;
	int err = 0;

	if (task_count >= rtxg_cpu_tasks_max)
		return -EUSERS;
	t->kernel = true;
	list_add_tail(&t->all_node, &rtxg_cpu_tasks);
	task_count++;
	while (!err && !list_empty(threads)) {
		th = list_first_entry(threads, struct cpu_thread, gone_node);
		list_del(&th->gone_node);
		err = link_thread(t, th);
		if (err)
			list_add(&th->gone_node, threads);
	}
	if (!err)
		err = rtxg_cpu_configure(t, params, NULL);
	if (err)
		unlink_task(t, gone);
	return err;
}

struct cpu_task *rtxg_cpu_attach_kernel(struct task_struct *const *threads, unsigned int count,
					struct rtxg_cpu_task *params)
{
	int err = rtxg_cpu_check(params) ?: rtxg_trace_need(RTXG_TRACE_TASK);
	struct cpu_candidates candidates = {};
	struct cpu_task *t = err ? NULL : new_task();
	LIST_HEAD(made);
	GONE(gone);

	if (!t)
		return ERR_PTR(err ?: -ENOMEM);
	for (unsigned int i = 0; i < count; i++) {
		struct cpu_thread *th = new_thread(threads[i]);

		if (!th) {
			drop_new_threads(&made);
			drop_new_task(t);
			return ERR_PTR(-ENOMEM);
		}
		get_task_struct(threads[i]);
		list_add_tail(&th->gone_node, &made);
	}
	mutex_lock(&rtxg_cpu_admission_lock);
	cpus_read_lock();
	err = rtxg_cpu_try(&candidates, NULL, params, NULL, cpu_possible_mask, &t->chosen);
	if (!err) {
		rt_mutex_lock(&rtxg_cpu_lock);
		err = link_kernel(t, &made, params, &gone);
		if (!err)
			kref_get(&t->kref);
		rt_mutex_unlock(&rtxg_cpu_lock);
	}
	cpus_read_unlock();
	mutex_unlock(&rtxg_cpu_admission_lock);
	rtxg_cpu_end_try(&candidates);
	drop_new_threads(&made);
	if (err && list_empty(&gone.tasks))
		drop_new_task(t);
	drop(&gone);
	return err ? ERR_PTR(err) : t;
}

/* False if another call was faster. */
bool rtxg_cpu_detach(struct cpu_task *t)
{
	GONE(gone);
	bool mine;

	rt_mutex_lock(&rtxg_cpu_lock);
	mine = !t->detached;
	if (mine)
		unlink_task(t, &gone);
	rt_mutex_unlock(&rtxg_cpu_lock);
	drop(&gone);
	return mine;
}

void rtxg_cpu_attached(struct cpu_task *t, bool keep_it)
{
	if (!keep_it)
		rtxg_cpu_detach(t);
	rtxg_cpu_put_task(t);
}

struct cpu_thread *rtxg_cpu_get_thread(s32 pid, enum rtxg_cpu_right right)
{
	struct task_struct *task;
	struct cpu_thread *th;
	bool may;

	task = rtxg_cpu_task_of(pid);
	if (!task)
		return ERR_PTR(-ESRCH);
	rcu_read_lock();
	/* a kernel thread is the affair of the part of the module that attached it */
	th = task->flags & PF_KTHREAD ? NULL : rtxg_cpu_find(task);
	if (th && !kref_get_unless_zero(&th->kref))
		th = NULL;
	rcu_read_unlock();
	may = right != RTXG_CPU_CHANGE &&
	      (task == current ||
	       (right == RTXG_CPU_LOOK && uid_eq(current_uid(), task_uid(task))));
	put_task_struct(task);
	if (!th)
		return ERR_PTR(-ENOENT);
	if (!may && !capable(CAP_SYS_NICE)) {
		rtxg_cpu_put_thread(th);
		return ERR_PTR(-EPERM);
	}
	return th;
}

void rtxg_cpu_release(struct rtxg_file *file)
{
	struct cpu_task *t;
	GONE(gone);

	do {
		/* a file may have hundreds of tasks, too */
		rt_mutex_lock(&rtxg_cpu_lock);
		t = list_first_entry_or_null(&file->tasks, struct cpu_task, file_node);
		if (t)
			unlink_task(t, &gone);
		rt_mutex_unlock(&rtxg_cpu_lock);
	} while (t);
	drop(&gone);
}
