// SPDX-License-Identifier: GPL-2.0-only
/*
 * cpu.c - CPU scheduling after RESCH: periodic jobs, fixed priority, rate monotonic, EDF, budgets, SCHED_DEADLINE with the GPU in mind.
 *
 * The kernel's scheduler stays as it is; we only set the policies, priorities and affinities of tasks that asked for it.
 *
 *   EDF: a job's rank among the ready ones is its priority. A task waits for its release at a priority above all ranks, so that the
 *   release itself preempts, sorts the job in by its deadline and drops to the rank found. Nobody else has to be woken for that.
 *
 *   Budgets: the kernel's tracepoint at every task switch tells when a task runs. A timer armed at switch-in fires when the budget is
 *   used up; a kernel thread above all others then moves the task to the background, and back when its budget is replenished.
 *
 *   SCHED_DEADLINE and the GPU (Linux-RTXG, section III.D): a task that slept for its GPU wakes with the runtime that it had when
 *   it went to sleep, which is now too much for the time left to its deadline, so that the kernel gives it a new, later deadline:
 *   the job misses its own. We charge the time asleep to its runtime before the wake-up, while the task is certainly off the run
 *   queue (its pi_lock keeps it there); a floor is left to it.
 *
 * May not: use anything of the scheduler that is not exported, or change a task's runtime while the scheduler may be using it.
 */
#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/hashtable.h>
#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/kthread.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/rculist.h>
#include <linux/rtmutex.h>
#include <linux/sched/deadline.h>
#include <linux/sched/prio.h>
#include <linux/sched/rt.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <uapi/linux/sched/types.h>

#include <rtxg/cpu.h>

#include "compat.h"
#include "rtxg_kmod.h"

/* A task waiting for its release under EDF: above every rank. The enforcer: above all. */
#define RELEASE_PRIORITY (RTXG_CPU_BAND_HIGH + 1)
#define ENFORCER_PRIORITY 98

static unsigned int deadline_floor_us = 1000;
module_param(deadline_floor_us, uint, 0644);
MODULE_PARM_DESC(deadline_floor_us, "SCHED_DEADLINE: runtime left to a task after its time on the GPU is charged, at least (1000 us)");

struct cpu_task {
	struct hlist_node node;
	struct list_head file_node;
	struct list_head all_node;
	struct list_head ready_node; /* EDF: in its domain's list, earliest deadline first; empty: no job is ready */
	struct task_struct *task;
	struct kref kref;
	struct rcu_head rcu;
	struct rtxg_cpu_task params;

	/* before us */
	struct sched_attr saved;
	cpumask_var_t saved_mask;

	/* under cpu_lock */
	bool detached;
	int cpu; /* -1: global */
	unsigned int priority; /* what the policy says now */
	u32 applied_policy, applied_priority;
	bool background, reserving, started, waiting;
	u64 release_ns;

	struct rtxg_waiters sleepers; /* SUSPEND: the task itself */
	bool wake_pending;

	/* under lock: also used at task switches, with a run queue's lock held. Nothing is woken and no such lock taken under it */
	raw_spinlock_t lock;
	u64 in_ns; /* since when it runs; 0: it does not */
	u64 exec_ns, job_exec_ns;
	bool enforced;
	s64 budget_ns;
	bool exhausted, changed, signal;
	struct hrtimer budget_timer, replenish_timer;
	u64 throttles, replenishments, gpu_charges, gpu_charged_ns;

	struct rtxg_cpu_job ended; /* what the last job was */
	u64 jobs, misses, overruns, max_exec_ns, max_response_ns;
};

static DEFINE_HASHTABLE(tasks, 8);
static LIST_HEAD(all_tasks);
static LIST_HEAD(edf_ready); /* jobs of all EDF tasks; a domain is the tasks of one CPU, or the global ones */
static struct rt_mutex cpu_lock; /* with priority inheritance: a low task's call must not hold up a high one's release */
static struct task_struct *enforcer;
static atomic_t enforce = ATOMIC_INIT(0);
static int hotplug_state;

static struct cpu_task *find_task_rcu(const struct task_struct *task)
{
	struct cpu_task *t;

	hash_for_each_possible_rcu(tasks, t, node, (unsigned long)task)
		if (t->task == task)
			return t;
	return NULL;
}

static void free_task_rcu(struct rcu_head *rcu)
{
	struct cpu_task *t = container_of(rcu, struct cpu_task, rcu);

	put_task_struct(t->task);
	free_cpumask_var(t->saved_mask);
	kfree(t);
}

static void free_cpu_task(struct kref *kref)
{
	call_rcu(&container_of(kref, struct cpu_task, kref)->rcu, free_task_rcu);
}

static void put_cpu_task(struct cpu_task *t)
{
	kref_put(&t->kref, free_cpu_task);
}

/* ---- execution time and budgets ---- */

static void kick_enforcer(void)
{
	atomic_set(&enforce, 1);
	wake_up_process(enforcer);
}

/* Books the time since switch-in; t->lock is held. */
static void account(struct cpu_task *t, u64 now)
{
	u64 ran;

	if (!t->in_ns)
		return;
	ran = now - t->in_ns;
	t->in_ns = now;
	t->exec_ns += ran;
	t->job_exec_ns += ran;
	if (t->enforced)
		t->budget_ns -= ran;
}

static void arm_budget(struct cpu_task *t)
{
	if (t->enforced && !t->exhausted && t->in_ns)
		hrtimer_start(&t->budget_timer, ns_to_ktime(max(t->budget_ns, (s64)0)), HRTIMER_MODE_REL_HARD);
}

void rtxg_cpu_traced_switch(struct task_struct *prev, struct task_struct *next)
{
	u64 now = ktime_get_mono_fast_ns();
	struct cpu_task *t;

	rcu_read_lock();
	t = find_task_rcu(prev);
	if (t) {
		raw_spin_lock(&t->lock);
		account(t, now);
		t->in_ns = 0;
		/* the timer may be running on another CPU: it will see that the task does not */
		hrtimer_try_to_cancel(&t->budget_timer);
		raw_spin_unlock(&t->lock);
	}
	t = find_task_rcu(next);
	if (t) {
		raw_spin_lock(&t->lock);
		t->in_ns = now;
		arm_budget(t);
		raw_spin_unlock(&t->lock);
	}
	rcu_read_unlock();
}

static enum hrtimer_restart budget_used(struct hrtimer *timer)
{
	struct cpu_task *t = container_of(timer, struct cpu_task, budget_timer);
	enum hrtimer_restart restart = HRTIMER_NORESTART;
	bool kick = false;
	unsigned long flags;

	raw_spin_lock_irqsave(&t->lock, flags);
	account(t, ktime_get_mono_fast_ns());
	if (t->enforced && !t->exhausted && t->in_ns) {
		if (t->budget_ns <= 0) {
			t->exhausted = t->changed = t->signal = true;
			t->throttles++;
			kick = true;
		} else {
			/* switched out and in again since it was armed: the rest */
			hrtimer_forward_now(timer, ns_to_ktime(t->budget_ns));
			restart = HRTIMER_RESTART;
		}
	}
	raw_spin_unlock_irqrestore(&t->lock, flags);
	if (kick)
		kick_enforcer();
	return restart;
}

static enum hrtimer_restart replenish(struct hrtimer *timer)
{
	struct cpu_task *t = container_of(timer, struct cpu_task, replenish_timer);
	bool kick = false, again;
	unsigned long flags;
	u64 periods;

	raw_spin_lock_irqsave(&t->lock, flags);
	again = t->enforced;
	if (again) {
		periods = hrtimer_forward_now(timer, ns_to_ktime(t->params.period_ns));
		account(t, ktime_get_mono_fast_ns());
		/* saved budget is not carried over, an overrun is */
		t->budget_ns = min_t(s64, t->params.runtime_ns, t->budget_ns + (s64)(periods * t->params.runtime_ns));
		t->replenishments += periods;
		if (t->budget_ns > 0 && t->exhausted) {
			t->exhausted = false;
			t->changed = kick = true;
		}
		arm_budget(t);
	}
	raw_spin_unlock_irqrestore(&t->lock, flags);
	if (kick)
		kick_enforcer();
	return again ? HRTIMER_RESTART : HRTIMER_NORESTART;
}

static void start_budget(struct cpu_task *t)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&t->lock, flags);
	account(t, ktime_get_mono_fast_ns());
	t->enforced = true;
	t->budget_ns = t->params.runtime_ns;
	t->exhausted = false;
	arm_budget(t);
	hrtimer_start(&t->replenish_timer, ns_to_ktime(t->params.period_ns), HRTIMER_MODE_REL_HARD);
	raw_spin_unlock_irqrestore(&t->lock, flags);
}

static void stop_budget(struct cpu_task *t)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&t->lock, flags);
	account(t, ktime_get_mono_fast_ns());
	t->enforced = false;
	t->exhausted = false;
	raw_spin_unlock_irqrestore(&t->lock, flags);
	hrtimer_cancel(&t->replenish_timer);
	hrtimer_cancel(&t->budget_timer);
}

/* ---- policies, priorities, affinity; all under cpu_lock ---- */

/* Makes the task's policy and priority what they should be now. */
static int apply(struct cpu_task *t)
{
	struct sched_attr attr = { .size = sizeof(attr) };
	int err;

	if (t->params.policy == RTXG_CPU_DEADLINE && !t->background) {
		attr.sched_policy = SCHED_DEADLINE;
		attr.sched_runtime = t->params.runtime_ns;
		attr.sched_deadline = t->params.deadline_ns;
		attr.sched_period = t->params.period_ns;
	} else if (t->background || READ_ONCE(t->exhausted)) {
		attr.sched_policy = SCHED_IDLE;
	} else {
		attr.sched_policy = SCHED_FIFO;
		attr.sched_priority = t->priority;
	}
	if (attr.sched_policy == t->applied_policy && attr.sched_priority == t->applied_priority &&
	    attr.sched_policy != SCHED_DEADLINE)
		return 0;
	err = sched_setattr_nocheck(t->task, &attr);
	if (!err) {
		t->applied_policy = attr.sched_policy;
		t->applied_priority = attr.sched_priority;
	}
	return err;
}

static int enforcer_main(void *unused)
{
	struct cpu_task *t;

	while (!kthread_should_stop()) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (!atomic_xchg(&enforce, 0)) {
			if (!kthread_should_stop())
				schedule();
			__set_current_state(TASK_RUNNING);
			continue;
		}
		__set_current_state(TASK_RUNNING);
		rt_mutex_lock(&cpu_lock);
		list_for_each_entry(t, &all_tasks, all_node) {
			bool changed, tell;

			raw_spin_lock_irq(&t->lock);
			changed = t->changed;
			tell = t->signal && t->exhausted && t->params.flags & RTXG_CPU_F_SIGNAL;
			t->changed = t->signal = false;
			raw_spin_unlock_irq(&t->lock);
			if (changed)
				apply(t);
			if (tell)
				send_sig(SIGXCPU, t->task, 1);
		}
		rt_mutex_unlock(&cpu_lock);
	}
	return 0;
}

/* Priorities by period: equal periods share one. More ranks than the band holds share its lowest. */
static void assign_rate_monotonic(void)
{
	struct cpu_task *t, *other;

	list_for_each_entry(t, &all_tasks, all_node) {
		unsigned int faster = 0;

		if (t->params.policy != RTXG_CPU_RM)
			continue;
		list_for_each_entry(other, &all_tasks, all_node) {
			struct cpu_task *earlier;
			bool counted = false;

			if (other->params.policy != RTXG_CPU_RM || other->params.period_ns >= t->params.period_ns)
				continue;
			/* each period counts once */
			list_for_each_entry(earlier, &all_tasks, all_node) {
				if (earlier == other)
					break;
				if (earlier->params.policy == RTXG_CPU_RM && earlier->params.period_ns == other->params.period_ns)
					counted = true;
			}
			faster += !counted;
		}
		t->priority = RTXG_CPU_BAND_HIGH - min(faster, RTXG_CPU_BAND_HIGH - RTXG_CPU_BAND_LOW);
		apply(t);
	}
}

static u64 edf_deadline(const struct cpu_task *t)
{
	return t->release_ns + t->params.deadline_ns;
}

static bool edf_same_domain(const struct cpu_task *a, const struct cpu_task *b)
{
	return a->cpu == b->cpu;
}

static void edf_remove(struct cpu_task *t)
{
	list_del_init(&t->ready_node);
}

/* Spreads a domain's ready jobs evenly over the band, in order of deadline. */
static void edf_relabel(const struct cpu_task *member)
{
	const unsigned int levels = RTXG_CPU_BAND_HIGH - RTXG_CPU_BAND_LOW + 1;
	unsigned int count = 0, rank = 0;
	struct cpu_task *t;

	list_for_each_entry(t, &edf_ready, ready_node)
		count += edf_same_domain(t, member);
	list_for_each_entry(t, &edf_ready, ready_node) {
		if (!edf_same_domain(t, member))
			continue;
		/* more jobs than levels: the latest deadlines share the lowest */
		t->priority = count < levels ? RTXG_CPU_BAND_HIGH - (rank + 1) * levels / (count + 1) :
					       RTXG_CPU_BAND_HIGH - min(rank, levels - 1);
		rank++;
		apply(t);
	}
}

/* Sorts a released job in and gives it a priority between its neighbours', moving others only where there is no room. */
static void edf_insert(struct cpu_task *t)
{
	unsigned int above = RTXG_CPU_BAND_HIGH + 1, below = RTXG_CPU_BAND_LOW - 1;
	struct list_head *place = &edf_ready;
	struct cpu_task *other;

	list_for_each_entry(other, &edf_ready, ready_node) {
		if (!edf_same_domain(other, t))
			continue;
		if (edf_deadline(other) > edf_deadline(t)) {
			below = other->priority;
			place = &other->ready_node;
			break;
		}
		above = other->priority;
	}
	list_add_tail(&t->ready_node, place);
	if (above > below + 1) {
		t->priority = (above + below) / 2;
		apply(t);
	} else {
		edf_relabel(t);
	}
}

static u64 utilisation_ppm(const struct cpu_task *t)
{
	u64 work = t->params.runtime_ns ?: t->params.wcet_ns;

	return t->params.period_ns ? div64_u64(work * 1000, max(t->params.period_ns / 1000, 1ull)) : 0;
}

/* Worst fit: the CPU with the least promised. */
static int least_loaded(const struct cpu_task *self, int except)
{
	u64 best_load = U64_MAX;
	int cpu, best = -1;

	for_each_online_cpu(cpu) {
		struct cpu_task *t;
		u64 load = 0;

		if (cpu == except || !cpumask_test_cpu(cpu, self->saved_mask))
			continue;
		list_for_each_entry(t, &all_tasks, all_node)
			if (t->cpu == cpu && t != self)
				/* a task of unknown demand still counts for something */
				load += max(utilisation_ppm(t), 1ull);
		if (load < best_load) {
			best_load = load;
			best = cpu;
		}
	}
	return best;
}

static int place(struct cpu_task *t)
{
	int cpu, err;

	if (!(t->params.flags & RTXG_CPU_F_PARTITIONED)) {
		if (t->cpu >= 0)
			set_cpus_allowed_ptr(t->task, t->saved_mask);
		t->cpu = -1;
		return 0;
	}
	cpu = t->params.flags & RTXG_CPU_F_CPU ? (int)t->params.cpu : least_loaded(t, -1);
	if (cpu < 0 || cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -EINVAL;
	err = set_cpus_allowed_ptr(t->task, cpumask_of(cpu));
	if (!err)
		t->cpu = t->params.cpu = cpu;
	return err;
}

/* A CPU goes: its tasks move to the least loaded of the others. The kernel has widened their masks by now. */
static int cpu_goes(unsigned int cpu)
{
	struct cpu_task *t;

	rt_mutex_lock(&cpu_lock);
	list_for_each_entry(t, &all_tasks, all_node) {
		int to;

		if (t->cpu != (int)cpu)
			continue;
		to = least_loaded(t, cpu);
		if (to >= 0 && !set_cpus_allowed_ptr(t->task, cpumask_of(to))) {
			bool ready = !list_empty(&t->ready_node);

			pr_info("rtxg: CPU %u goes, task %d moves to CPU %d\n", cpu, t->task->pid, to);
			if (ready)
				edf_remove(t);
			t->cpu = t->params.cpu = to;
			if (ready)
				edf_insert(t);
		}
	}
	rt_mutex_unlock(&cpu_lock);
	return 0;
}

/* ---- attaching ---- */

static int check_params(struct rtxg_cpu_task *p)
{
	bool timed = p->policy != RTXG_CPU_FP || p->runtime_ns || p->period_ns;

	if (p->flags & ~RTXG_CPU_F_ALL || !rtxg_all_zero(p->reserved, sizeof(p->reserved)) || p->policy >= RTXG_CPU_POLICIES)
		return -EINVAL;
	if (p->flags & RTXG_CPU_F_CPU && !(p->flags & RTXG_CPU_F_PARTITIONED))
		return -EINVAL;
	if (p->policy == RTXG_CPU_FP && (p->priority < 1 || p->priority > RTXG_CPU_PRIORITY_MAX))
		return -EINVAL;
	if (timed && (p->period_ns < RTXG_CPU_PERIOD_MIN_NS || p->period_ns > RTXG_CPU_PERIOD_MAX_NS))
		return -EINVAL;
	if (!p->deadline_ns)
		p->deadline_ns = p->period_ns;
	if (p->deadline_ns > p->period_ns || p->wcet_ns > RTXG_CPU_PERIOD_MAX_NS || p->runtime_ns > p->period_ns)
		return -EINVAL;
	if (p->policy == RTXG_CPU_DEADLINE && (!p->runtime_ns || p->runtime_ns > p->deadline_ns))
		return -EINVAL;
	return 0;
}

static struct task_struct *task_of(s32 pid)
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

static void save_attributes(struct cpu_task *t)
{
	struct task_struct *task = t->task;

	t->saved = (struct sched_attr){
		.size = sizeof(t->saved),
		.sched_policy = task->policy,
		.sched_nice = task_nice(task),
		.sched_priority = task->rt_priority,
		.sched_flags = task->sched_reset_on_fork ? SCHED_FLAG_RESET_ON_FORK : 0,
	};
	if (task->policy == SCHED_DEADLINE) {
		t->saved.sched_runtime = task->dl.dl_runtime;
		t->saved.sched_deadline = task->dl.dl_deadline;
		t->saved.sched_period = task->dl.dl_period;
	}
	cpumask_copy(t->saved_mask, &task->cpus_mask);
}

/* Takes new parameters over: placement, priority, budget. On failure the task is left as apply() last left it. */
static int configure(struct cpu_task *t, const struct rtxg_cpu_task *params)
{
	int err;

	stop_budget(t);
	if (!list_empty(&t->ready_node))
		edf_remove(t);
	t->params = *params;
	err = place(t);
	if (err)
		return err;
	switch (params->policy) {
	case RTXG_CPU_FP:
		t->priority = params->priority;
		break;
	case RTXG_CPU_RM:
		assign_rate_monotonic();
		break;
	case RTXG_CPU_EDF:
		/* the first release sorts it in */
		t->priority = RELEASE_PRIORITY;
		if (t->started && !t->waiting)
			edf_insert(t);
		break;
	}
	err = apply(t);
	if (err)
		return err;
	t->reserving = params->runtime_ns && params->policy != RTXG_CPU_DEADLINE;
	if (t->reserving)
		start_budget(t);
	return 0;
}

/* Puts back what was before and takes the task out of every list. Called with cpu_lock; once a task. */
static void unlink_task(struct cpu_task *t)
{
	t->detached = true;
	stop_budget(t);
	hash_del_rcu(&t->node);
	list_del(&t->file_node);
	list_del(&t->all_node);
	if (!list_empty(&t->ready_node))
		edf_remove(t);
	if (!READ_ONCE(t->task->exit_state)) {
		if (t->cpu >= 0)
			set_cpus_allowed_ptr(t->task, t->saved_mask);
		if (t->applied_policy != U32_MAX)
			sched_setattr_nocheck(t->task, &t->saved);
	}
	assign_rate_monotonic();
}

/* The rest of detaching, without the lock. */
static void drop_task(struct cpu_task *t)
{
	rtxg_waiters_wake(&t->sleepers, UINT_MAX);
	/* a probe may still hold it: the timers are quiet once none can arm them */
	synchronize_rcu();
	hrtimer_cancel(&t->budget_timer);
	hrtimer_cancel(&t->replenish_timer);
	put_cpu_task(t);
}

static struct cpu_task *new_task(struct task_struct *task)
{
	struct cpu_task *t = kzalloc(sizeof(*t), GFP_KERNEL_ACCOUNT);

	if (!t)
		return NULL;
	if (!alloc_cpumask_var(&t->saved_mask, GFP_KERNEL_ACCOUNT)) {
		kfree(t);
		return NULL;
	}
	kref_init(&t->kref);
	INIT_LIST_HEAD(&t->ready_node);
	raw_spin_lock_init(&t->lock);
	rtxg_waiters_init(&t->sleepers);
	rtxg_hrtimer_setup(&t->budget_timer, budget_used, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	rtxg_hrtimer_setup(&t->replenish_timer, replenish, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	t->task = task;
	t->cpu = -1;
	t->applied_policy = U32_MAX;
	save_attributes(t);
	return t;
}

static long cpu_attach(struct rtxg_file *file, struct rtxg_cpu_task __user *user)
{
	struct rtxg_cpu_task params;
	struct task_struct *task;
	struct cpu_task *t;
	int err;

	err = rtxg_copy_in(&params, sizeof(params), sizeof(params), user);
	if (!err)
		err = check_params(&params);
	if (err)
		return err;
	if (!capable(CAP_SYS_NICE))
		return -EPERM;
	task = task_of(params.pid);
	if (!task)
		return -ESRCH;
	err = -EPERM;
	if (task->flags & PF_KTHREAD)
		goto put;
	err = rtxg_trace_need(RTXG_TRACE_SWITCH);
	if (err)
		goto put;
	err = -ENOMEM;
	t = new_task(task);
	if (!t)
		goto put;
	/* no CPU goes between choosing one and being on it */
	cpus_read_lock();
	rt_mutex_lock(&cpu_lock);
	rcu_read_lock();
	err = find_task_rcu(task) ? -EEXIST : 0;
	rcu_read_unlock();
	if (!err) {
		hash_add_rcu(tasks, &t->node, (unsigned long)task);
		list_add_tail(&t->all_node, &all_tasks);
		list_add_tail(&t->file_node, &file->tasks);
		if (task == current) {
			raw_spin_lock_irq(&t->lock);
			t->in_ns = ktime_get_mono_fast_ns();
			raw_spin_unlock_irq(&t->lock);
		}
		err = configure(t, &params);
		params.cpu = t->cpu < 0 ? params.cpu : t->cpu;
		params.priority = t->priority;
		if (err)
			unlink_task(t);
		rt_mutex_unlock(&cpu_lock);
		cpus_read_unlock();
		if (!err)
			return rtxg_copy_out(user, &params, sizeof(params), params.size);
		drop_task(t);
		return err;
	}
	rt_mutex_unlock(&cpu_lock);
	cpus_read_unlock();
	put_cpu_task(t); /* puts the task */
	return err;
put:
	put_task_struct(task);
	return err;
}

/* The attached task of a pid, with a reference. Others' tasks need the capability. */
static struct cpu_task *get_cpu_task(s32 pid)
{
	struct task_struct *task;
	struct cpu_task *t;

	task = task_of(pid);
	if (!task)
		return ERR_PTR(-ESRCH);
	rcu_read_lock();
	t = find_task_rcu(task);
	if (t && !kref_get_unless_zero(&t->kref))
		t = NULL;
	rcu_read_unlock();
	put_task_struct(task);
	if (!t)
		return ERR_PTR(-ENOENT);
	if (t->task != current && !capable(CAP_SYS_NICE)) {
		put_cpu_task(t);
		return ERR_PTR(-EPERM);
	}
	return t;
}

static long cpu_set(struct rtxg_cpu_task __user *user)
{
	struct rtxg_cpu_task params, before;
	struct cpu_task *t;
	int err;

	err = rtxg_copy_in(&params, sizeof(params), sizeof(params), user);
	if (!err)
		err = check_params(&params);
	if (err)
		return err;
	if (!capable(CAP_SYS_NICE))
		return -EPERM;
	t = get_cpu_task(params.pid);
	if (IS_ERR(t))
		return PTR_ERR(t);
	cpus_read_lock();
	rt_mutex_lock(&cpu_lock);
	if (t->detached) {
		err = -ENOENT;
	} else {
		before = t->params;
		err = configure(t, &params);
		/* refused by the kernel (admission, say): back to what it was */
		if (err)
			configure(t, &before);
		else if (before.policy == RTXG_CPU_RM)
			assign_rate_monotonic();
		params.cpu = t->cpu < 0 ? params.cpu : t->cpu;
		params.priority = t->priority;
	}
	rt_mutex_unlock(&cpu_lock);
	cpus_read_unlock();
	put_cpu_task(t);
	return err ?: rtxg_copy_out(user, &params, sizeof(params), params.size);
}

/* ---- jobs ---- */

/*
 * Waits, interruptibly, for an absolute time; 0 or -ERESTARTSYS: a signal without a handler, or one with SA_RESTART, does not end the
 * wait, since the call is made again.
 */
static int sleep_until(u64 time_ns)
{
	ktime_t end = ns_to_ktime(time_ns);

	while (ktime_compare(ktime_get(), end) < 0) {
		if (signal_pending(current))
			return -ERESTARTSYS;
		set_current_state(TASK_INTERRUPTIBLE);
		schedule_hrtimeout(&end, HRTIMER_MODE_ABS);
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

/* The job released at t->release_ns begins. */
static void begin_job(struct cpu_task *t, struct rtxg_cpu_job *job)
{
	rt_mutex_lock(&cpu_lock);
	t->waiting = false;
	t->started = true;
	t->jobs++;
	raw_spin_lock_irq(&t->lock);
	account(t, ktime_get_mono_fast_ns());
	t->job_exec_ns = 0;
	raw_spin_unlock_irq(&t->lock);
	if (t->params.policy == RTXG_CPU_EDF && !t->detached)
		edf_insert(t);
	job->job = t->jobs;
	job->release_ns = t->release_ns;
	job->deadline_ns = t->release_ns + t->params.deadline_ns;
	rt_mutex_unlock(&cpu_lock);
}

/* The current job ends: books it, and waits at the priority of releases from here on. */
static void end_job(struct cpu_task *t, struct rtxg_cpu_job *job)
{
	u64 now = ktime_get_ns();

	rt_mutex_lock(&cpu_lock);
	if (!t->waiting) {
		raw_spin_lock_irq(&t->lock);
		account(t, ktime_get_mono_fast_ns());
		t->ended.exec_ns = t->job_exec_ns;
		raw_spin_unlock_irq(&t->lock);
		t->ended.response_ns = now - t->release_ns;
		t->ended.missed = t->ended.response_ns > t->params.deadline_ns;
		t->ended.overrun = t->params.wcet_ns && t->ended.exec_ns > t->params.wcet_ns;
		t->misses += t->ended.missed;
		t->overruns += t->ended.overrun;
		t->max_exec_ns = max(t->max_exec_ns, t->ended.exec_ns);
		t->max_response_ns = max(t->max_response_ns, t->ended.response_ns);
		t->release_ns += t->params.period_ns;
		t->ended.late_ns = now > t->release_ns ? now - t->release_ns : 0;
		t->waiting = true;
		if (t->params.policy == RTXG_CPU_EDF && !t->detached) {
			if (!list_empty(&t->ready_node))
				edf_remove(t);
			t->priority = RELEASE_PRIORITY;
			apply(t);
		}
	}
	/* kept: the call may be made again after a signal */
	job->exec_ns = t->ended.exec_ns;
	job->response_ns = t->ended.response_ns;
	job->missed = t->ended.missed;
	job->overrun = t->ended.overrun;
	job->late_ns = t->ended.late_ns;
	rt_mutex_unlock(&cpu_lock);
}

static int cpu_run(struct cpu_task *t, struct rtxg_cpu_job *job)
{
	int err;

	if (!t->params.period_ns || t->started || (job->start_ns && job->time_ns) || job->time_ns > RTXG_CPU_PERIOD_MAX_NS ||
	    job->start_ns > ktime_get_ns() + RTXG_CPU_PERIOD_MAX_NS)
		return t->started ? -EALREADY : -EINVAL;
	/* made again after a signal: the release stands */
	if (!t->waiting)
		t->release_ns = job->start_ns ?: ktime_get_ns() + job->time_ns;
	t->waiting = true;
	err = sleep_until(t->release_ns);
	if (err)
		return err;
	begin_job(t, job);
	return 0;
}

static int cpu_wait_period(struct cpu_task *t, struct rtxg_cpu_job *job)
{
	int err;

	if (!t->started)
		return -EPERM;
	end_job(t, job);
	err = sleep_until(t->release_ns);
	if (err)
		return err;
	begin_job(t, job);
	return 0;
}

static int cpu_wait_interval(struct rtxg_cpu_job *job)
{
	int err;

	if (job->time_ns > RTXG_CPU_PERIOD_MAX_NS || (job->start_ns && job->time_ns))
		return -EINVAL;
	if (job->start_ns)
		return sleep_until(job->start_ns);
	err = sleep_until(ktime_get_ns() + job->time_ns);
	/* made again it would begin anew */
	return err == -ERESTARTSYS ? -EINTR : err;
}

static int cpu_suspend(struct cpu_task *t)
{
	struct rtxg_waiter waiter = {};
	int err = 0;

	for (;;) {
		bool woken;

		rtxg_waiters_add(&t->sleepers, &waiter);
		set_current_state(TASK_INTERRUPTIBLE);
		raw_spin_lock_irq(&t->sleepers.lock);
		woken = t->wake_pending;
		t->wake_pending = false;
		raw_spin_unlock_irq(&t->sleepers.lock);
		if (woken || READ_ONCE(t->detached))
			break;
		if (signal_pending(current)) {
			err = -ERESTARTSYS;
			break;
		}
		schedule();
		__set_current_state(TASK_RUNNING);
		rtxg_waiters_remove(&t->sleepers, &waiter);
	}
	__set_current_state(TASK_RUNNING);
	rtxg_waiters_remove(&t->sleepers, &waiter);
	return err;
}

static long cpu_job(unsigned int command, struct rtxg_cpu_job __user *user)
{
	struct rtxg_cpu_job job;
	struct cpu_task *t;
	int err;

	err = rtxg_copy_in(&job, sizeof(job), sizeof(job), user);
	if (err)
		return err;
	if (job.flags || !rtxg_all_zero(job.reserved, sizeof(job.reserved)))
		return -EINVAL;
	t = get_cpu_task(0);
	if (IS_ERR(t))
		return PTR_ERR(t);
	switch (command) {
	case RTXG_IOC_CPU_RUN:
		err = cpu_run(t, &job);
		break;
	case RTXG_IOC_CPU_WAIT_PERIOD:
		err = cpu_wait_period(t, &job);
		break;
	case RTXG_IOC_CPU_WAIT_INTERVAL:
		err = cpu_wait_interval(&job);
		break;
	default:
		err = cpu_suspend(t);
		break;
	}
	put_cpu_task(t);
	return err ?: rtxg_copy_out(user, &job, sizeof(job), job.size);
}

static int cpu_reserve(struct cpu_task *t, bool on)
{
	if (t->params.policy == RTXG_CPU_DEADLINE || !t->params.runtime_ns)
		return -EINVAL;
	if (on == t->reserving)
		return -EALREADY;
	if (on)
		start_budget(t);
	else
		stop_budget(t);
	t->reserving = on;
	return apply(t);
}

static long cpu_pid(unsigned int command, struct rtxg_cpu_pid __user *user)
{
	struct rtxg_cpu_pid target;
	struct cpu_task *t;
	long err;

	err = rtxg_copy_in(&target, sizeof(target), sizeof(target), user);
	if (err)
		return err;
	if (target.reserved || target.on > 1)
		return -EINVAL;
	t = get_cpu_task(target.pid);
	if (IS_ERR(t))
		return PTR_ERR(t);
	if (command == RTXG_IOC_CPU_WAKE_UP) {
		raw_spin_lock_irq(&t->sleepers.lock);
		t->wake_pending = true;
		rtxg_waiters_wake_locked(&t->sleepers, UINT_MAX);
		raw_spin_unlock_irq(&t->sleepers.lock);
	} else if (command == RTXG_IOC_CPU_DETACH) {
		bool mine;

		/* of two that detach the same task one does it */
		rt_mutex_lock(&cpu_lock);
		mine = !t->detached;
		if (mine)
			unlink_task(t);
		rt_mutex_unlock(&cpu_lock);
		if (mine)
			drop_task(t);
		else
			err = -ENOENT;
	} else {
		rt_mutex_lock(&cpu_lock);
		if (t->detached) {
			err = -ENOENT;
		} else if (command == RTXG_IOC_CPU_BACKGROUND) {
			t->background = target.on;
			err = apply(t);
		} else {
			err = cpu_reserve(t, target.on);
		}
		rt_mutex_unlock(&cpu_lock);
	}
	put_cpu_task(t);
	return err;
}

static long cpu_stats(struct rtxg_cpu_stats __user *user)
{
	struct rtxg_cpu_stats stats;
	struct cpu_task *t;
	long err;

	err = rtxg_copy_in(&stats, sizeof(stats), sizeof(stats), user);
	if (err)
		return err;
	if (!rtxg_all_zero(stats.reserved, sizeof(stats.reserved)))
		return -EINVAL;
	t = get_cpu_task(stats.pid);
	if (IS_ERR(t))
		return PTR_ERR(t);
	rt_mutex_lock(&cpu_lock);
	raw_spin_lock_irq(&t->lock);
	account(t, ktime_get_mono_fast_ns());
	stats.exec_ns = t->exec_ns;
	stats.throttles = t->throttles;
	stats.replenishments = t->replenishments;
	stats.budget_ns = t->enforced ? t->budget_ns : 0;
	stats.gpu_charges = t->gpu_charges;
	stats.gpu_charged_ns = t->gpu_charged_ns;
	raw_spin_unlock_irq(&t->lock);
	stats.jobs = t->jobs;
	stats.misses = t->misses;
	stats.overruns = t->overruns;
	stats.max_exec_ns = t->max_exec_ns;
	stats.max_response_ns = t->max_response_ns;
	stats.priority = t->applied_policy == SCHED_FIFO ? t->applied_priority : 0;
	stats.cpu = t->cpu >= 0 ? t->cpu : task_cpu(t->task);
	rt_mutex_unlock(&cpu_lock);
	put_cpu_task(t);
	return rtxg_copy_out(user, &stats, sizeof(stats), stats.size);
}

/* ---- SCHED_DEADLINE and the GPU ---- */

/*
 * A task is about to be woken because its GPU is done (or free); it sleeps since since_ns. Called by the waker, in any context. Whoever
 * else might wake it needs its pi_lock, and a task that is neither queued nor running is not looked at by the scheduler.
 */
void rtxg_cpu_charge_gpu(struct task_struct *task, u64 since_ns)
{
	u64 slept = ktime_get_mono_fast_ns() - since_ns;
	struct cpu_task *t;
	unsigned long flags;

	rcu_read_lock();
	t = find_task_rcu(task);
	if (!t || t->params.policy != RTXG_CPU_DEADLINE || t->params.flags & RTXG_CPU_F_NO_GPU_CHARGE) {
		rcu_read_unlock();
		return;
	}
	raw_spin_lock_irqsave(&task->pi_lock, flags);
	if (task->policy == SCHED_DEADLINE && READ_ONCE(task->__state) == TASK_INTERRUPTIBLE && !READ_ONCE(task->on_rq) &&
	    !smp_load_acquire(&task->on_cpu)) {
		s64 floor = min_t(s64, task->dl.runtime, (s64)READ_ONCE(deadline_floor_us) * NSEC_PER_USEC);
		s64 left = max_t(s64, task->dl.runtime - (s64)slept, floor);

		raw_spin_lock(&t->lock);
		t->gpu_charges++;
		t->gpu_charged_ns += task->dl.runtime - left;
		raw_spin_unlock(&t->lock);
		task->dl.runtime = left;
	}
	raw_spin_unlock_irqrestore(&task->pi_lock, flags);
	rcu_read_unlock();
}

long rtxg_cpu_ioctl(struct rtxg_file *file, unsigned int command, void __user *argument)
{
	switch (command) {
	case RTXG_IOC_CPU_ATTACH:
		return cpu_attach(file, argument);
	case RTXG_IOC_CPU_SET:
		return cpu_set(argument);
	case RTXG_IOC_CPU_RUN:
	case RTXG_IOC_CPU_WAIT_PERIOD:
	case RTXG_IOC_CPU_WAIT_INTERVAL:
	case RTXG_IOC_CPU_SUSPEND:
		return cpu_job(command, argument);
	case RTXG_IOC_CPU_DETACH:
	case RTXG_IOC_CPU_WAKE_UP:
	case RTXG_IOC_CPU_BACKGROUND:
	case RTXG_IOC_CPU_RESERVE:
		return cpu_pid(command, argument);
	case RTXG_IOC_CPU_STATS:
		return cpu_stats(argument);
	}
	return -ENOTTY;
}

void rtxg_cpu_release(struct rtxg_file *file)
{
	for (;;) {
		struct cpu_task *t;

		rt_mutex_lock(&cpu_lock);
		t = list_first_entry_or_null(&file->tasks, struct cpu_task, file_node);
		if (t)
			unlink_task(t);
		rt_mutex_unlock(&cpu_lock);
		if (!t)
			break;
		drop_task(t);
	}
}

int rtxg_cpu_init(void)
{
	struct sched_attr attr = { .size = sizeof(attr), .sched_policy = SCHED_FIFO, .sched_priority = ENFORCER_PRIORITY };
	int err;

	hash_init(tasks);
	rt_mutex_init(&cpu_lock);
	enforcer = kthread_create(enforcer_main, NULL, "rtxg_enforce");
	if (IS_ERR(enforcer))
		return PTR_ERR(enforcer);
	sched_setattr_nocheck(enforcer, &attr);
	wake_up_process(enforcer);
	err = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "rtxg:cpu", NULL, cpu_goes);
	if (err < 0) {
		kthread_stop(enforcer);
		return err;
	}
	hotplug_state = err;
	return 0;
}

void rtxg_cpu_exit(void)
{
	cpuhp_remove_state_nocalls(hotplug_state);
	kthread_stop(enforcer);
	/* tasks are freed after a grace period, by code of this module */
	rcu_barrier();
}
