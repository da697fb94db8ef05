// SPDX-License-Identifier: GPL-2.0-only
/*
 * cpu.c - CPU scheduling after RESCH: periodic jobs, fixed priority, rate monotonic, EDF, budgets,
 * SCHED_DEADLINE with the GPU in mind.
 *
 * The kernel's scheduler stays as it is; we only set the policies, priorities and affinities of
 * tasks that asked for it.
 *
 *   EDF: a job's rank among the ready ones is its priority. A task waits for its release at a
 *       priority above all ranks, so that the
 *   release itself preempts, sorts the job in by its deadline and drops to the rank found. Nobody
 *       else has to be woken for that.
 *
 *   Budgets: the kernel's tracepoint at every task switch tells when a task runs. A timer armed at
 *       switch-in fires when the budget is
 *   used up; a kernel thread above all others then moves the task to the background, and back when
 *       its budget is replenished.
 *
 *   SCHED_DEADLINE and the GPU (Linux-RTXG, section III.D): a task that slept for its GPU wakes
 *       with the runtime that it had when
 *   it went to sleep, which is now too much for the time left to its deadline, so that the kernel
 *       gives it a new, later deadline:
 *   the job misses its own. We charge the time asleep to its runtime before the wake-up, while the
 *       task is certainly off the run
 *   queue (its pi_lock keeps it there); a floor is left to it.
 *
 * May not: use anything of the scheduler that is not exported, or change a task's runtime while the
 * scheduler may be using it.
 */
#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/gfp.h>
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
#include <linux/smp.h>
#include <linux/task_work.h>
#include <linux/uaccess.h>
#include <linux/uidgid.h>
#include <uapi/linux/sched/types.h>

#include <rtxg/cpu.h>

#include "compat.h"
#include "cpu.h"
#include "file.h"
#include "rtxg_cpu_admit.h"
#include "trace.h"
#include "user.h"
#include "waiters.h"

/* A task waiting for its release under EDF: above every rank. The enforcer: above all. */
#define RELEASE_PRIORITY  (RTXG_CPU_BAND_HIGH + 1)
#define ENFORCER_PRIORITY 98

static unsigned int deadline_floor_us = 1000;
module_param(deadline_floor_us, uint, 0644);
MODULE_PARM_DESC(deadline_floor_us, "SCHED_DEADLINE: runtime left to a task after its time on the "
				    "GPU is charged, at least (1000 us)");

static unsigned int max_cpu_tasks = 256;
module_param(max_cpu_tasks, uint, 0444);
MODULE_PARM_DESC(max_cpu_tasks, "tasks attached to a CPU policy at a time, 1..1024 (256)");

static unsigned int admission = 1;
module_param(admission, uint, 0644);
MODULE_PARM_DESC(admission, "CPU policies: 0 no admission test; 1 of tasks that say what they "
			    "need; 2 others are refused (1)");

static unsigned int cpu_capacity_ppm = 950000;
module_param(cpu_capacity_ppm, uint, 0644);
MODULE_PARM_DESC(
	cpu_capacity_ppm,
	"admission: how much of each CPU these tasks may use together, 1..1000000 (950000)");

/* The core's names for policies are ours. */
static_assert((int)RTXG_ADMIT_FP == RTXG_CPU_FP && (int)RTXG_ADMIT_RM == RTXG_CPU_RM &&
	      (int)RTXG_ADMIT_EDF == RTXG_CPU_EDF &&
	      (int)RTXG_ADMIT_DEADLINE == RTXG_CPU_DEADLINE && RTXG_RANK_LOW == RTXG_CPU_BAND_LOW &&
	      RTXG_RANK_HIGH == RTXG_CPU_BAND_HIGH && (int)RTXG_ADMIT_WINDOW == RTXG_CPU_WINDOW);

/* What was asked for together: a thread, or the threads of a process. */
struct cpu_task {
	struct list_head file_node; /* empty: F_STAY */
	struct list_head all_node;
	/* EDF: in its domain's list, earliest deadline first; empty: no job is ready */
	struct list_head ready_node;
	struct list_head members; /* changed under cpu_lock; timers walk it by RCU */
	unsigned int threads;
	struct kref kref;
	struct rcu_head rcu;
	struct rtxg_cpu_task params;

	/* under cpu_lock */
	bool detached;
	int cpu; /* -1: global */
	/* where admission found room for it; -1: nowhere in particular */
	int chosen;
	unsigned int priority; /* what the policy says now */
	bool background, reserving, started, waiting;
	struct task_struct *runner; /* who called RUN; only compared */
	u64 release_ns;

	/* F_HARD: threads whose budget is used up, on their way to user mode */
	struct rtxg_waiters parked;
	bool adopt; /* the process has threads that are not attached yet */

	/*
	 * under lock: also used at task switches, with a run queue's lock held. Nothing is woken
	 * and no such lock taken under it
	 */
	raw_spinlock_t lock;
	unsigned int running; /* threads on a CPU */
	u64 since_ns;	      /* booked until then */
	u64 exec_ns, job_exec_ns;
	bool enforced;
	s64 budget_ns;
	bool exhausted, changed, signal;
	u64 releases; /* of a server, not booked yet */
	struct hrtimer budget_timer, replenish_timer;
	u64 throttles, replenishments, gpu_charges, gpu_charged_ns;

	struct rtxg_cpu_job ended; /* what the last job was */
	u64 jobs, misses, overruns, max_exec_ns, max_response_ns;
};

/* One thread of a task. */
struct cpu_thread {
	struct hlist_node node;
	struct list_head member_node;
	struct list_head gone_node;
	struct task_struct *task;
	struct cpu_task *group;
	struct kref kref;
	struct rcu_head rcu;
	struct callback_head park_work;

	/* before us */
	struct sched_attr saved;
	cpumask_var_t saved_mask;

	u32 applied_policy, applied_priority; /* under cpu_lock */
	bool ended;			      /* it is exiting */

	struct rtxg_waiters sleepers; /* SUSPEND: the thread itself */
	bool wake_pending;

	/* under group->lock */
	bool running, parking;
};

static DEFINE_HASHTABLE(threads, 8);
static LIST_HEAD(all_tasks);
static unsigned int task_count;
/* jobs of all EDF tasks; a domain is the tasks of one CPU, or the global ones */
static LIST_HEAD(edf_ready);
/* with priority inheritance: a low task's call must not hold up a high one's release */
static struct rt_mutex cpu_lock;
static struct task_struct *enforcer, *keeper;
static atomic_t enforce = ATOMIC_INIT(0), keep = ATOMIC_INIT(0);
static int hotplug_state;
/*
 * From the test to what it allows: so that the test itself holds up no release. Outside of
 * cpu_lock.
 */
static DEFINE_MUTEX(admission_lock);
/* Not every kernel exports it; F_HARD needs it. */
static typeof(task_work_add) *add_task_work;

static struct cpu_thread *find_thread_rcu(const struct task_struct *task)
{
	struct cpu_thread *th;

	hash_for_each_possible_rcu(threads, th, node,
				   (unsigned long)task) if (th->task == task) return th;
	return NULL;
}

static void free_task_rcu(struct rcu_head *rcu)
{
	kfree(container_of(rcu, struct cpu_task, rcu));
}

static void free_cpu_task(struct kref *kref)
{
	call_rcu(&container_of(kref, struct cpu_task, kref)->rcu, free_task_rcu);
}

static void put_cpu_task(struct cpu_task *t)
{
	kref_put(&t->kref, free_cpu_task);
}

/*
 * F_HARD asks for park_work with a run queue's lock held. KASAN then notes who asked if the memory
 * is a slab's, for which it may allocate; under that lock nobody may. What is a page of its own it
 * leaves alone.
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
	put_cpu_task(th->group);
	release_cpu_thread(th);
}

static void free_cpu_thread(struct kref *kref)
{
	call_rcu(&container_of(kref, struct cpu_thread, kref)->rcu, free_thread_rcu);
}

static void put_cpu_thread(struct cpu_thread *th)
{
	kref_put(&th->kref, free_cpu_thread);
}

/* A task whose jobs the clock releases. */
static bool is_server(const struct cpu_task *t)
{
	return t->params.flags & RTXG_CPU_F_SERVER && !READ_ONCE(t->started);
}

/* ---- execution time and budgets ---- */

static void kick(struct task_struct *kthread, atomic_t *flag)
{
	atomic_set(flag, 1);
	wake_up_process(kthread);
}

/* Books the time of the threads that run; t->lock is held. */
static void account(struct cpu_task *t, u64 now)
{
	u64 ran;

	/* read before the lock was taken: somebody else may have been here with a later one */
	if ((s64)(now - t->since_ns) <= 0)
		return;
	ran = t->running * (now - t->since_ns);
	t->since_ns = now;
	t->exec_ns += ran;
	t->job_exec_ns += ran;
	if (t->enforced)
		t->budget_ns -= ran;
}

static void arm_budget(struct cpu_task *t)
{
	if (t->enforced && !t->exhausted && t->running)
		hrtimer_start(&t->budget_timer,
			      ns_to_ktime(div_u64(max(t->budget_ns, (s64)0), t->running)),
			      HRTIMER_MODE_REL_HARD);
}

static bool stops(const struct cpu_task *t)
{
	return READ_ONCE(t->exhausted) && t->params.flags & RTXG_CPU_F_HARD;
}

/*
 * F_HARD. A thread must not stop inside the kernel, where it may hold what others need: it stops
 * where it would return to user mode and holds nothing, as the kernel itself throttles for memory
 * and for groups' bandwidth.
 */
static void park(struct callback_head *work)
{
	struct cpu_thread *th = container_of(work, struct cpu_thread, park_work);
	struct cpu_task *t = th->group;
	struct rtxg_waiter waiter = {};

	raw_spin_lock_irq(&t->lock);
	th->parking = false;
	raw_spin_unlock_irq(&t->lock);
	for (;;) {
		rtxg_waiters_add(&t->parked, &waiter);
		set_current_state(TASK_KILLABLE | TASK_FREEZABLE);
		if (!stops(t) || READ_ONCE(t->detached) || READ_ONCE(th->ended) ||
		    fatal_signal_pending(current) || current->flags & PF_EXITING)
			break;
		schedule();
		__set_current_state(TASK_RUNNING);
		rtxg_waiters_remove(&t->parked, &waiter);
	}
	__set_current_state(TASK_RUNNING);
	rtxg_waiters_remove(&t->parked, &waiter);
	put_cpu_thread(th);
	/* rtxg_cpu_exit() waits until the rest of this function is behind us */
	module_put(THIS_MODULE);
}

/* t->lock is held, and a run queue's lock may be. */
static void ask_to_park(struct cpu_thread *th)
{
	if (th->parking || READ_ONCE(th->ended) || !kref_get_unless_zero(&th->kref))
		return;
	th->parking = true;
	/* the task comes back to our code some time */
	__module_get(THIS_MODULE);
	init_task_work(&th->park_work, park);
	if (add_task_work(th->task, &th->park_work, TWA_RESUME)) {
		/* it is exiting */
		th->parking = false;
		put_cpu_thread(th);
		module_put(THIS_MODULE);
	}
}

static void probe_switch(void *data, bool preempt, struct task_struct *prev,
			 struct task_struct *next, unsigned int prev_state)
{
	u64 now = ktime_get_mono_fast_ns();
	struct cpu_thread *th;
	struct cpu_task *t;

	rcu_read_lock();
	th = find_thread_rcu(prev);
	if (th) {
		t = th->group;
		raw_spin_lock(&t->lock);
		account(t, now);
		t->running -= th->running;
		th->running = false;
		/* the timer may be running on another CPU: it will see that the task does not */
		if (!t->running)
			hrtimer_try_to_cancel(&t->budget_timer);
		raw_spin_unlock(&t->lock);
	}
	th = find_thread_rcu(next);
	if (th) {
		t = th->group;
		raw_spin_lock(&t->lock);
		account(t, now);
		t->running += !th->running;
		th->running = true;
		if (stops(t))
			ask_to_park(th);
		arm_budget(t);
		raw_spin_unlock(&t->lock);
	}
	rcu_read_unlock();
}

/*
 * A thread that was attached while it ran has not been seen to be switched to. On its CPU,
 * interrupts off.
 */
static void found_running(void *thread)
{
	struct cpu_thread *th = thread;
	struct cpu_task *t = th->group;

	if (current != th->task)
		return;
	raw_spin_lock(&t->lock);
	if (!th->running) {
		account(t, ktime_get_mono_fast_ns());
		t->running++;
		th->running = true;
		if (stops(t))
			ask_to_park(th);
		arm_budget(t);
	}
	raw_spin_unlock(&t->lock);
}

static void probe_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	struct cpu_thread *th;

	if (!same_thread_group(parent, child))
		return;
	rcu_read_lock();
	th = find_thread_rcu(parent);
	if (th && th->group->params.flags & RTXG_CPU_F_PROCESS) {
		WRITE_ONCE(th->group->adopt, true);
		kick(keeper, &keep);
	}
	rcu_read_unlock();
}

static void probe_exit(void *data, struct task_struct *task RTXG_EXIT_PROBE_MORE)
{
	struct cpu_thread *th;

	rcu_read_lock();
	th = find_thread_rcu(task);
	if (th) {
		WRITE_ONCE(th->ended, true);
		kick(keeper, &keep);
	}
	rcu_read_unlock();
}

static struct rtxg_probe probes[] = {
	{ "sched_switch", probe_switch },
	{ "sched_process_fork", probe_fork },
	{ "sched_process_exit", probe_exit },
	{},
};

/* All of a task that run now. t->lock is held, and RCU. */
static void park_running(struct cpu_task *t)
{
	struct cpu_thread *th;

	list_for_each_entry_rcu(th, &t->members, member_node) if (th->running) ask_to_park(th);
}

static enum hrtimer_restart budget_used(struct hrtimer *timer)
{
	struct cpu_task *t = container_of(timer, struct cpu_task, budget_timer);
	bool used_up = false;
	unsigned long flags;

	rcu_read_lock();
	raw_spin_lock_irqsave(&t->lock, flags);
	account(t, ktime_get_mono_fast_ns());
	if (t->enforced && !t->exhausted && t->running) {
		if (t->budget_ns <= 0) {
			t->exhausted = t->changed = t->signal = used_up = true;
			t->throttles++;
			if (stops(t))
				park_running(t);
		} else {
			/* switched out and in again since it was armed: the rest */
			arm_budget(t);
		}
	}
	raw_spin_unlock_irqrestore(&t->lock, flags);
	rcu_read_unlock();
	if (used_up)
		kick(enforcer, &enforce);
	return HRTIMER_NORESTART;
}

/* The end of each period: the budget is as new, a server's next job is released. */
static enum hrtimer_restart replenish(struct hrtimer *timer)
{
	struct cpu_task *t = container_of(timer, struct cpu_task, replenish_timer);
	bool tell = false, again, resume = false;
	unsigned long flags;
	u64 periods;

	raw_spin_lock_irqsave(&t->lock, flags);
	again = t->enforced || is_server(t);
	if (again) {
		periods = hrtimer_forward_now(timer, ns_to_ktime(t->params.period_ns));
		account(t, ktime_get_mono_fast_ns());
		if (is_server(t) && t->params.policy == RTXG_CPU_EDF) {
			t->releases += periods;
			tell = true;
		}
	}
	if (t->enforced) {
		/* saved budget is not carried over, an overrun is */
		t->budget_ns = min_t(s64, t->params.runtime_ns,
				     t->budget_ns + (s64)(periods * t->params.runtime_ns));
		t->replenishments += periods;
		if (t->budget_ns > 0 && t->exhausted) {
			WRITE_ONCE(t->exhausted, false);
			t->changed = tell = resume = true;
		}
		arm_budget(t);
	}
	raw_spin_unlock_irqrestore(&t->lock, flags);
	if (resume)
		rtxg_waiters_wake(&t->parked, UINT_MAX);
	if (tell)
		kick(enforcer, &enforce);
	return again ? HRTIMER_RESTART : HRTIMER_NORESTART;
}

/* The clock of budgets and of servers' jobs begins anew. */
static void start_clock(struct cpu_task *t, bool enforced)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&t->lock, flags);
	account(t, ktime_get_mono_fast_ns());
	t->enforced = enforced;
	t->budget_ns = enforced ? t->params.runtime_ns : 0;
	t->exhausted = false;
	t->releases = 0;
	if (enforced || is_server(t)) {
		arm_budget(t);
		hrtimer_start(&t->replenish_timer, ns_to_ktime(t->params.period_ns),
			      HRTIMER_MODE_REL_HARD);
	}
	raw_spin_unlock_irqrestore(&t->lock, flags);
}

static void stop_clock(struct cpu_task *t)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&t->lock, flags);
	account(t, ktime_get_mono_fast_ns());
	t->enforced = false;
	WRITE_ONCE(t->exhausted, false);
	raw_spin_unlock_irqrestore(&t->lock, flags);
	hrtimer_cancel(&t->replenish_timer);
	hrtimer_cancel(&t->budget_timer);
	rtxg_waiters_wake(&t->parked, UINT_MAX);
}

/* ---- policies, priorities, affinity; all under cpu_lock ---- */

/* Makes a thread's policy and priority what they should be now. */
static int apply_thread(const struct cpu_task *t, struct cpu_thread *th)
{
	/*
	 * threads and children begin as ordinary ones: outside of every budget a real-time priority
	 * could stop the machine
	 */
	struct sched_attr attr = { .size = sizeof(attr), .sched_flags = SCHED_FLAG_RESET_ON_FORK };
	int err;

	if (READ_ONCE(th->ended))
		return 0;
	if (t->params.policy == RTXG_CPU_DEADLINE && !t->background) {
		attr.sched_policy = SCHED_DEADLINE;
		attr.sched_runtime = t->params.runtime_ns;
		attr.sched_deadline = t->params.deadline_ns;
		attr.sched_period = t->params.period_ns;
	} else if (t->background || (READ_ONCE(t->exhausted) && !stops(t))) {
		attr.sched_policy = SCHED_IDLE;
	} else {
		attr.sched_policy = SCHED_FIFO;
		attr.sched_priority = t->priority;
	}
	if (attr.sched_policy == th->applied_policy &&
	    attr.sched_priority == th->applied_priority && attr.sched_policy != SCHED_DEADLINE)
		return 0;
	err = sched_setattr_nocheck(th->task, &attr);
	if (!err) {
		th->applied_policy = attr.sched_policy;
		th->applied_priority = attr.sched_priority;
	}
	return err;
}

static int apply(struct cpu_task *t)
{
	struct cpu_thread *th;
	int err = 0;

	list_for_each_entry (th, &t->members, member_node) {
		int one = apply_thread(t, th);

		err = err ?: one;
	}
	return err;
}

static struct cpu_thread *first_member(const struct cpu_task *t)
{
	return list_first_entry(&t->members, struct cpu_thread, member_node);
}

static void edf_remove(struct cpu_task *t);
static void edf_insert(struct cpu_task *t);

static void enforce_all(void)
{
	struct cpu_task *t;

	rt_mutex_lock(&cpu_lock);
	list_for_each_entry (t, &all_tasks, all_node) {
		bool changed, tell;
		u64 releases;

		raw_spin_lock_irq(&t->lock);
		changed = t->changed;
		tell = t->signal && t->exhausted && t->params.flags & RTXG_CPU_F_SIGNAL;
		releases = t->releases;
		t->changed = t->signal = false;
		t->releases = 0;
		raw_spin_unlock_irq(&t->lock);
		if (releases && is_server(t) && t->params.policy == RTXG_CPU_EDF) {
			t->release_ns += releases * t->params.period_ns;
			edf_remove(t);
			edf_insert(t);
		}
		if (changed)
			apply(t);
		if (tell)
			send_sig(SIGXCPU, first_member(t)->task, 1);
	}
	rt_mutex_unlock(&cpu_lock);
}

static void keep_all(void);

static int thread_main(void *is_keeper)
{
	atomic_t *flag = is_keeper ? &keep : &enforce;

	while (!kthread_should_stop()) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (!atomic_xchg(flag, 0)) {
			if (!kthread_should_stop())
				schedule();
			__set_current_state(TASK_RUNNING);
			continue;
		}
		__set_current_state(TASK_RUNNING);
		if (is_keeper)
			keep_all();
		else
			enforce_all();
	}
	return 0;
}

/*
 * Priorities by period: equal periods share one. More ranks than the band holds share its lowest.
 */
static void assign_rate_monotonic(void)
{
	struct cpu_task *t, *other;

	list_for_each_entry (t, &all_tasks, all_node) {
		unsigned int faster = 0;

		if (t->params.policy != RTXG_CPU_RM)
			continue;
		list_for_each_entry (other, &all_tasks, all_node) {
			struct cpu_task *earlier;
			bool counted = false;

			if (other->params.policy != RTXG_CPU_RM ||
			    other->params.period_ns >= t->params.period_ns)
				continue;
			/* each period counts once */
			list_for_each_entry (earlier, &all_tasks, all_node) {
				if (earlier == other)
					break;
				if (earlier->params.policy == RTXG_CPU_RM &&
				    earlier->params.period_ns == other->params.period_ns)
					counted = true;
			}
			faster += !counted;
		}
		t->priority =
			RTXG_CPU_BAND_HIGH - min(faster, RTXG_CPU_BAND_HIGH - RTXG_CPU_BAND_LOW);
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

	list_for_each_entry (t, &edf_ready, ready_node)
		count += edf_same_domain(t, member);
	list_for_each_entry (t, &edf_ready, ready_node) {
		if (!edf_same_domain(t, member))
			continue;
		/* more jobs than levels: the latest deadlines share the lowest */
		t->priority = count < levels
				      ? RTXG_CPU_BAND_HIGH - (rank + 1) * levels / (count + 1)
				      : RTXG_CPU_BAND_HIGH - min(rank, levels - 1);
		rank++;
		apply(t);
	}
}

/*
 * Sorts a released job in and gives it a priority between its neighbours', moving others only where
 * there is no room.
 */
static void edf_insert(struct cpu_task *t)
{
	unsigned int above = RTXG_CPU_BAND_HIGH + 1, below = RTXG_CPU_BAND_LOW - 1;
	struct list_head *place = &edf_ready;
	struct cpu_task *other;

	list_for_each_entry (other, &edf_ready, ready_node) {
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
	u64 work = (t->params.runtime_ns ?: t->params.wcet_ns) + t->params.suspend_ns;

	return t->params.period_ns ? div64_u64(work * 1000, max(t->params.period_ns / 1000, 1ull))
				   : 0;
}

/* Worst fit: the CPU with the least promised. */
static int least_loaded(const struct cpu_task *self, const struct cpumask *mask, int except)
{
	u64 best_load = U64_MAX;
	int cpu, best = -1;

	for_each_online_cpu(cpu)
	{
		struct cpu_task *t;
		u64 load = 0;

		if (cpu == except || !cpumask_test_cpu(cpu, mask))
			continue;
		list_for_each_entry (t, &all_tasks, all_node)
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

/* Puts all its threads on a CPU; -1: each where it may be. */
static int move(struct cpu_task *t, int cpu)
{
	struct cpu_thread *th;
	int err = 0;

	list_for_each_entry (th, &t->members, member_node) {
		int one = READ_ONCE(th->ended)
				  ? 0
				  : set_cpus_allowed_ptr(th->task, cpu < 0 ? th->saved_mask
									   : cpumask_of(cpu));

		err = err ?: one;
	}
	if (!err)
		t->cpu = cpu;
	return err;
}

static int place(struct cpu_task *t)
{
	int cpu, err;

	if (!(t->params.flags & RTXG_CPU_F_PARTITIONED)) {
		if (t->cpu >= 0)
			move(t, -1);
		t->cpu = -1;
		return 0;
	}
	if (t->params.flags & RTXG_CPU_F_CPU)
		cpu = t->params.cpu;
	else
		cpu = t->chosen >= 0 ? t->chosen : least_loaded(t, first_member(t)->saved_mask, -1);
	if (cpu < 0 || cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -EINVAL;
	err = move(t, cpu);
	if (!err)
		t->params.cpu = cpu;
	return err;
}

/*
 * A CPU goes: its tasks move to the least loaded of the others. The kernel has widened their masks
 * by now.
 */
static int cpu_goes(unsigned int cpu)
{
	struct cpu_task *t;

	rt_mutex_lock(&cpu_lock);
	list_for_each_entry (t, &all_tasks, all_node) {
		bool ready = !list_empty(&t->ready_node);
		int to;

		if (t->cpu != (int)cpu)
			continue;
		to = least_loaded(t, first_member(t)->saved_mask, cpu);
		if (to < 0)
			continue;
		if (ready)
			edf_remove(t);
		if (!move(t, to)) {
			pr_info("rtxg: CPU %u goes, task %d moves to CPU %d\n", cpu,
				first_member(t)->task->pid, to);
			t->params.cpu = to;
		}
		if (ready)
			edf_insert(t);
	}
	rt_mutex_unlock(&cpu_lock);
	return 0;
}

/* ---- attaching ---- */

static int check_params(struct rtxg_cpu_task *p)
{
	bool timed = p->policy != RTXG_CPU_FP || p->runtime_ns || p->period_ns ||
		     p->flags & RTXG_CPU_F_SERVER;

	if (p->flags & ~RTXG_CPU_F_ALL || p->reserved0 ||
	    !rtxg_all_zero(p->reserved, sizeof(p->reserved)) || p->policy >= RTXG_CPU_POLICIES)
		return -EINVAL;
	if (p->flags & RTXG_CPU_F_CPU && !(p->flags & RTXG_CPU_F_PARTITIONED))
		return -EINVAL;
	if (p->policy == RTXG_CPU_FP && (p->priority < 1 || p->priority > RTXG_CPU_PRIORITY_MAX))
		return -EINVAL;
	if (timed &&
	    (p->period_ns < RTXG_CPU_PERIOD_MIN_NS || p->period_ns > RTXG_CPU_PERIOD_MAX_NS))
		return -EINVAL;
	if (!p->deadline_ns)
		p->deadline_ns = p->period_ns;
	if (p->deadline_ns > p->period_ns || p->wcet_ns > RTXG_CPU_PERIOD_MAX_NS ||
	    p->runtime_ns > p->period_ns || p->suspend_ns > RTXG_CPU_PERIOD_MAX_NS)
		return -EINVAL;
	if (p->policy == RTXG_CPU_DEADLINE &&
	    (!p->runtime_ns || p->runtime_ns > p->deadline_ns || p->flags & RTXG_CPU_F_PROCESS))
		return -EINVAL;
	if (p->flags & RTXG_CPU_F_HARD && p->policy != RTXG_CPU_DEADLINE) {
		if (!p->runtime_ns)
			return -EINVAL;
		if (!add_task_work)
			return -EOPNOTSUPP;
	}
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

static void save_attributes(struct cpu_thread *th)
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
	cpumask_copy(th->saved_mask, &task->cpus_mask);
}

/* ---- admission; admission_lock and the CPUs are held ---- */

struct candidates {
	u32 count;
	struct rtxg_admit_verdict verdict;
	struct rtxg_admit_task *tasks; /* the first is who asks */
	s32 *pids;
};

static struct rtxg_admit_task demand(const struct rtxg_cpu_task *p, int cpu,
				     const struct cpumask *mask)
{
	u64 cost = p->period_ns ? p->runtime_ns ?: p->wcet_ns : 0;
	u32 cpus = 0;
	int each;

	/* under DEADLINE the runtime counts the GPU already */
	if (cost && p->policy != RTXG_CPU_DEADLINE)
		cost += p->suspend_ns;
	for_each_online_cpu(each) cpus += cpumask_test_cpu(each, mask);
	return (struct rtxg_admit_task){
		.policy = p->policy,
		.priority = p->priority,
		.cpu = cpu < 0 ? RTXG_ADMIT_GLOBAL : cpu,
		.cpus = max(cpus, 1u),
		.cost_ns = cost,
		.deadline_ns = p->deadline_ns,
		.period_ns = p->period_ns,
	};
}

static int gather(struct candidates *c, const struct cpu_task *self)
{
	struct cpu_task *t;

	c->tasks = kvcalloc(max_cpu_tasks + 1, sizeof(*c->tasks), GFP_KERNEL_ACCOUNT);
	c->pids = kvcalloc(max_cpu_tasks + 1, sizeof(*c->pids), GFP_KERNEL_ACCOUNT);
	if (!c->tasks || !c->pids)
		return -ENOMEM;
	c->count = 1;
	rt_mutex_lock(&cpu_lock);
	list_for_each_entry (t, &all_tasks, all_node) {
		if (t == self)
			continue;
		c->pids[c->count] = task_pid_vnr(first_member(t)->task);
		c->tasks[c->count++] = demand(&t->params, t->cpu, first_member(t)->saved_mask);
	}
	rt_mutex_unlock(&cpu_lock);
	return 0;
}

static int try_on(struct candidates *c, const struct rtxg_cpu_task *params, int cpu,
		  const struct cpumask *mask)
{
	c->tasks[0] = demand(params, cpu, mask);
	return rtxg_cpu_admit(c->tasks, c->count, num_online_cpus(),
			      clamp(READ_ONCE(cpu_capacity_ppm), 1u, 1000000u), &c->verdict);
}

/*
 * Whether all deadlines are safe with these parameters, and if the CPU is left to us: where. self:
 * whose parameters are replaced.
 */
static int admit(struct candidates *c, const struct cpu_task *self,
		 const struct rtxg_cpu_task *params, const struct cpumask *mask, int *chosen)
{
	unsigned int how = READ_ONCE(admission);
	int first, cpu, err;

	*chosen = -1;
	if (!how)
		return 0;
	if (!demand(params, -1, mask).cost_ns) {
		c->verdict.test = RTXG_CPU_UNKNOWN;
		return how >= 2 ? -ENOSPC : 0;
	}
	err = gather(c, self);
	if (err)
		return err;
	if (!(params->flags & RTXG_CPU_F_PARTITIONED))
		return try_on(c, params, -1, mask);
	if (params->flags & RTXG_CPU_F_CPU)
		return try_on(c, params, params->cpu, mask);
	rt_mutex_lock(&cpu_lock);
	first = least_loaded(self, mask, -1);
	rt_mutex_unlock(&cpu_lock);
	if (first < 0)
		return -EINVAL;
	for_each_online_cpu(cpu)
	{
		if (cpu == first || !cpumask_test_cpu(cpu, mask))
			continue;
		if (*chosen < 0 && !try_on(c, params, cpu, mask))
			*chosen = cpu;
	}
	/* the least loaded one if it can be, and its numbers if none can */
	err = try_on(c, params, first, mask);
	if (!err)
		*chosen = first;
	return *chosen >= 0 ? 0 : err;
}

static void end_admission(struct candidates *c)
{
	kvfree(c->tasks);
	kvfree(c->pids);
}

/*
 * Takes new parameters over: placement, priority, budget. On failure the task is left as apply()
 * last left it.
 */
static int configure(struct cpu_task *t, const struct rtxg_cpu_task *params)
{
	int err;

	stop_clock(t);
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
		if (is_server(t))
			t->release_ns = ktime_get_ns();
		if (is_server(t) || (t->started && !t->waiting))
			edf_insert(t);
		break;
	}
	err = apply(t);
	if (err)
		return err;
	t->reserving = params->runtime_ns && params->policy != RTXG_CPU_DEADLINE;
	start_clock(t, t->reserving);
	return 0;
}

static struct cpu_thread *new_thread(struct task_struct *task)
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
	save_attributes(th);
	return th;
}

/* One that never was anybody's; its task is put by the caller. */
static void drop_new_thread(struct cpu_thread *th)
{
	if (th)
		release_cpu_thread(th);
}

/* Called with cpu_lock and the CPUs held. */
static int link_thread(struct cpu_task *t, struct cpu_thread *th)
{
	bool known;

	rcu_read_lock();
	known = find_thread_rcu(th->task);
	rcu_read_unlock();
	if (known)
		return -EEXIST;
	th->group = t;
	kref_get(&t->kref);
	list_add_tail_rcu(&th->member_node, &t->members);
	t->threads++;
	hash_add_rcu(threads, &th->node, (unsigned long)th->task);
	/*
	 * from here on the probe sees it; if it has run through the change, it is found on its CPU
	 */
	smp_mb();
	smp_call_function_single(task_cpu(th->task), found_running, th, true);
	/* it may have been exiting before the probe could know it */
	if (READ_ONCE(th->task->flags) & PF_EXITING) {
		WRITE_ONCE(th->ended, true);
		kick(keeper, &keep);
	}
	return 0;
}

/* Puts back what was before. Called with cpu_lock; drop() comes after it, without the lock. */
static void unlink_thread(struct cpu_thread *th, struct list_head *gone)
{
	struct cpu_task *t = th->group;

	hash_del_rcu(&th->node);
	list_del_rcu(&th->member_node);
	list_add_tail(&th->gone_node, gone);
	t->threads--;
	if (t->runner == th->task) {
		/* another may go on with jobs */
		t->runner = NULL;
		WRITE_ONCE(t->started, false);
		t->waiting = false;
	}
	raw_spin_lock_irq(&t->lock);
	account(t, ktime_get_mono_fast_ns());
	t->running -= th->running;
	th->running = false;
	raw_spin_unlock_irq(&t->lock);
	if (!READ_ONCE(th->task->exit_state) && !READ_ONCE(th->ended)) {
		if (t->cpu >= 0)
			set_cpus_allowed_ptr(th->task, th->saved_mask);
		if (th->applied_policy != U32_MAX)
			sched_setattr_nocheck(th->task, &th->saved);
	}
	WRITE_ONCE(th->ended, true);
}

/* What was taken out of the lists and has to be let go without the lock. */
struct gone {
	struct list_head threads, tasks;
};

#define GONE(name) struct gone name = { LIST_HEAD_INIT(name.threads), LIST_HEAD_INIT(name.tasks) }

/* Takes the task and its threads out of every list. Called with cpu_lock; once a task. */
static void unlink_task(struct cpu_task *t, struct gone *gone)
{
	struct cpu_thread *th, *next;

	WRITE_ONCE(t->detached, true);
	stop_clock(t);
	list_for_each_entry_safe (th, next, &t->members, member_node)
		unlink_thread(th, &gone->threads);
	list_del_init(&t->file_node);
	list_move(&t->all_node, &gone->tasks);
	task_count--;
	if (!list_empty(&t->ready_node))
		edf_remove(t);
	assign_rate_monotonic();
}

/* The rest of detaching, without the lock. */
static void drop(struct gone *gone)
{
	struct cpu_thread *th, *next_thread;
	struct cpu_task *t, *next_task;

	if (list_empty(&gone->threads) && list_empty(&gone->tasks))
		return;
	list_for_each_entry (th, &gone->threads, gone_node)
		rtxg_waiters_wake(&th->sleepers, UINT_MAX);
	/* a probe may still hold them: a task's timers are quiet once none can arm them */
	if (!list_empty(&gone->tasks))
		synchronize_rcu();
	list_for_each_entry_safe (t, next_task, &gone->tasks, all_node) {
		bool pinned = t->params.flags & RTXG_CPU_F_STAY;

		hrtimer_cancel(&t->budget_timer);
		hrtimer_cancel(&t->replenish_timer);
		rtxg_waiters_wake(&t->parked, UINT_MAX);
		put_cpu_task(t);
		if (pinned)
			module_put(THIS_MODULE);
	}
	list_for_each_entry_safe (th, next_thread, &gone->threads, gone_node)
		put_cpu_thread(th);
}

/* Threads that live in the kernel do work for others and never come to user mode. */
static bool is_user_thread(const struct task_struct *task)
{
	return !(READ_ONCE(task->flags) &
		 (PF_KTHREAD | PF_IO_WORKER | RTXG_PF_USER_WORKER | PF_EXITING));
}

/* F_PROCESS: attaches the threads that are not yet. Called with cpu_lock and the CPUs held. */
static void adopt(struct cpu_task *t)
{
	while (t->threads < RTXG_CPU_THREADS_MAX) {
		struct task_struct *task, *found = NULL;
		struct cpu_thread *th;

		rcu_read_lock();
		for_each_thread(first_member(t)->task, task)
		{
			if (is_user_thread(task) && !find_thread_rcu(task)) {
				found = task;
				get_task_struct(found);
				break;
			}
		}
		rcu_read_unlock();
		if (!found)
			return;
		th = new_thread(found);
		if (!th || link_thread(t, th)) {
			drop_new_thread(th);
			put_task_struct(found);
			return;
		}
		if (t->cpu >= 0)
			set_cpus_allowed_ptr(found, cpumask_of(t->cpu));
		apply_thread(t, th);
	}
}

/* Threads have come or gone. */
static void keep_all(void)
{
	struct cpu_thread *th, *next_thread;
	struct cpu_task *t, *next_task;
	GONE(gone);

	cpus_read_lock();
	rt_mutex_lock(&cpu_lock);
	list_for_each_entry_safe (t, next_task, &all_tasks, all_node) {
		/*
		 * first come, then go: the one that is left may be new, as after execve by a new
		 * thread
		 */
		if (t->params.flags & RTXG_CPU_F_PROCESS && xchg(&t->adopt, false))
			adopt(t);
		list_for_each_entry_safe (th, next_thread, &t->members, member_node)
			if (READ_ONCE(th->ended))
				unlink_thread(th, &gone.threads);
		if (list_empty(&t->members))
			unlink_task(t, &gone);
	}
	rt_mutex_unlock(&cpu_lock);
	cpus_read_unlock();
	drop(&gone);
}

static struct cpu_task *new_task(void)
{
	struct cpu_task *t = kzalloc(sizeof(*t), GFP_KERNEL_ACCOUNT);

	if (!t)
		return NULL;
	kref_init(&t->kref);
	INIT_LIST_HEAD(&t->file_node);
	INIT_LIST_HEAD(&t->ready_node);
	INIT_LIST_HEAD(&t->members);
	raw_spin_lock_init(&t->lock);
	rtxg_waiters_init(&t->parked, NULL);
	rtxg_hrtimer_setup(&t->budget_timer, budget_used, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	rtxg_hrtimer_setup(&t->replenish_timer, replenish, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	t->since_ns = ktime_get_mono_fast_ns();
	t->cpu = t->chosen = -1;
	return t;
}

/* What a caller is told. Called with cpu_lock. */
static void tell_params(const struct cpu_task *t, struct rtxg_cpu_task *params)
{
	u32 size = params->size;
	s32 pid = params->pid;

	*params = t->params;
	params->size = size;
	params->pid = pid;
	params->cpu = t->cpu < 0 ? t->params.cpu : t->cpu;
	params->priority = t->priority;
	params->threads = t->threads;
}

static int link_task(struct rtxg_file *file, struct cpu_task *t, struct cpu_thread *th,
		     const struct rtxg_cpu_task *params, struct gone *gone)
{
	int err;

	if (task_count >= max_cpu_tasks)
		return -EUSERS;
	t->params.flags = params->flags; /* what a new thread is asks for them */
	err = link_thread(t, th);
	if (err)
		return err;
	list_add_tail(&t->all_node, &all_tasks);
	task_count++;
	if (params->flags & RTXG_CPU_F_STAY)
		__module_get(THIS_MODULE);
	else
		list_add_tail(&t->file_node, &file->tasks);
	err = configure(t, params);
	if (err)
		unlink_task(t, gone);
	else if (params->flags & RTXG_CPU_F_PROCESS)
		adopt(t);
	return err;
}

int rtxg_cpu_attach(struct rtxg_file *file, struct rtxg_cpu_task *params,
		    struct cpu_task **attached)
{
	struct candidates candidates = {};
	struct task_struct *task;
	struct cpu_thread *th;
	struct cpu_task *t;
	GONE(gone);
	int err;

	err = check_params(params);
	if (err)
		return err;
	if (!capable(CAP_SYS_NICE))
		return -EPERM;
	task = task_of(params->pid);
	if (!task)
		return -ESRCH;
	err = is_user_thread(task) ? rtxg_trace_need(RTXG_TRACE_TASK) : -EPERM;
	if (err) {
		put_task_struct(task);
		return err;
	}
	t = new_task();
	th = t ? new_thread(task) : NULL;
	if (!th) {
		kfree(t);
		put_task_struct(task);
		return -ENOMEM;
	}
	/* no CPU goes between choosing one and being on it */
	mutex_lock(&admission_lock);
	cpus_read_lock();
	err = admit(&candidates, NULL, params, th->saved_mask, &t->chosen);
	if (!err) {
		rt_mutex_lock(&cpu_lock);
		err = link_task(file, t, th, params, &gone);
		if (!err) {
			tell_params(t, params);
			kref_get(&t->kref);
			*attached = t;
		}
		rt_mutex_unlock(&cpu_lock);
	}
	cpus_read_unlock();
	mutex_unlock(&admission_lock);
	end_admission(&candidates);
	if (err && list_empty(&gone.tasks)) {
		/* it was never anybody's */
		drop_new_thread(th);
		put_task_struct(task);
		kfree(t);
	}
	drop(&gone);
	return err;
}

/* False if somebody else was faster. */
static bool detach(struct cpu_task *t)
{
	GONE(gone);
	bool mine;

	rt_mutex_lock(&cpu_lock);
	mine = !t->detached;
	if (mine)
		unlink_task(t, &gone);
	rt_mutex_unlock(&cpu_lock);
	drop(&gone);
	return mine;
}

void rtxg_cpu_attached(struct cpu_task *t, bool keep_it)
{
	if (!keep_it)
		detach(t);
	put_cpu_task(t);
}

static long cpu_attach(struct rtxg_file *file, struct rtxg_cpu_task __user *user)
{
	struct rtxg_cpu_task params;
	struct cpu_task *t;
	int err;

	err = rtxg_copy_in(&params, sizeof(params), sizeof(params), user);
	if (!err)
		err = rtxg_cpu_attach(file, &params, &t);
	if (err)
		return err;
	rtxg_cpu_attached(t, true);
	return rtxg_copy_out(user, &params, sizeof(params), params.size);
}

/*
 * The attached thread of a number, with a reference. Others' need the capability; to look, also
 * one's own processes' are free.
 */
static struct cpu_thread *get_cpu_thread(s32 pid, bool look)
{
	struct task_struct *task;
	struct cpu_thread *th;
	bool may;

	task = task_of(pid);
	if (!task)
		return ERR_PTR(-ESRCH);
	rcu_read_lock();
	th = find_thread_rcu(task);
	if (th && !kref_get_unless_zero(&th->kref))
		th = NULL;
	rcu_read_unlock();
	may = task == current || (look && uid_eq(current_uid(), task_uid(task)));
	put_task_struct(task);
	if (!th)
		return ERR_PTR(-ENOENT);
	if (!may && !capable(CAP_SYS_NICE)) {
		put_cpu_thread(th);
		return ERR_PTR(-EPERM);
	}
	return th;
}

int rtxg_cpu_set(struct rtxg_cpu_task *params)
{
	const u32 kept = RTXG_CPU_F_STAY | RTXG_CPU_F_PROCESS;
	struct candidates candidates = {};
	struct rtxg_cpu_task before;
	struct cpu_thread *th;
	struct cpu_task *t;
	int err, chosen;

	err = check_params(params);
	if (err)
		return err;
	if (!capable(CAP_SYS_NICE))
		return -EPERM;
	th = get_cpu_thread(params->pid, false);
	if (IS_ERR(th))
		return PTR_ERR(th);
	t = th->group;
	mutex_lock(&admission_lock);
	cpus_read_lock();
	rt_mutex_lock(&cpu_lock);
	before = t->params;
	rt_mutex_unlock(&cpu_lock);
	params->flags = (params->flags & ~kept) | (before.flags & kept);
	err = check_params(params);
	if (!err)
		err = admit(&candidates, t, params, th->saved_mask, &chosen);
	rt_mutex_lock(&cpu_lock);
	if (t->detached)
		err = -ENOENT;
	if (!err) {
		int was = t->cpu;

		t->chosen = chosen;
		err = configure(t, params);
		/* refused by the kernel: back to what it was, and where */
		if (err) {
			t->chosen = was;
			configure(t, &before);
		} else if (before.policy == RTXG_CPU_RM) {
			assign_rate_monotonic();
		}
		tell_params(t, params);
	}
	rt_mutex_unlock(&cpu_lock);
	cpus_read_unlock();
	mutex_unlock(&admission_lock);
	end_admission(&candidates);
	put_cpu_thread(th);
	return err;
}

static long cpu_set(struct rtxg_cpu_task __user *user)
{
	struct rtxg_cpu_task params;
	int err;

	err = rtxg_copy_in(&params, sizeof(params), sizeof(params), user);
	if (!err)
		err = rtxg_cpu_set(&params);
	return err ?: rtxg_copy_out(user, &params, sizeof(params), params.size);
}

/* What admission would say, and why: changes nothing. */
static long cpu_admission(struct rtxg_cpu_admission __user *user)
{
	struct rtxg_cpu_admission answer;
	struct candidates c = {};
	struct rtxg_cpu_task params;
	struct task_struct *task;
	struct cpu_thread *th;
	cpumask_var_t mask;
	int err, chosen;

	err = rtxg_copy_in(&answer, sizeof(answer), sizeof(answer), user);
	if (!err && !rtxg_all_zero(answer.reserved, sizeof(answer.reserved)))
		err = -EINVAL;
	if (!err)
		err = rtxg_copy_in(&params, sizeof(params), sizeof(params),
				   u64_to_user_ptr(answer.task));
	if (!err)
		err = check_params(&params);
	if (!err && !capable(CAP_SYS_NICE))
		err = -EPERM;
	task = err ? NULL : task_of(params.pid);
	if (!task)
		return err ?: -ESRCH;
	err = alloc_cpumask_var(&mask, GFP_KERNEL_ACCOUNT) ? 0 : -ENOMEM;
	if (err) {
		put_task_struct(task);
		return err;
	}
	cpumask_copy(mask, &task->cpus_mask);
	put_task_struct(task);
	th = get_cpu_thread(params.pid, false);
	if (!IS_ERR(th))
		cpumask_copy(mask, th->saved_mask);
	mutex_lock(&admission_lock);
	cpus_read_lock();
	err = admit(&c, IS_ERR(th) ? NULL : th->group, &params, mask, &chosen);
	cpus_read_unlock();
	mutex_unlock(&admission_lock);
	answer.test = err == -ENOSPC ? c.verdict.test : 0;
	answer.pid = c.pids && c.verdict.task < c.count ? c.pids[c.verdict.task] : 0;
	answer.cpu = c.verdict.cpu;
	answer.needed = c.verdict.needed;
	answer.there = c.verdict.there;
	if (!IS_ERR(th))
		put_cpu_thread(th);
	end_admission(&c);
	free_cpumask_var(mask);
	return err && err != -ENOSPC ? err
				     : rtxg_copy_out(user, &answer, sizeof(answer), answer.size);
}

static long cpu_get(struct rtxg_cpu_task __user *user)
{
	struct rtxg_cpu_task params;
	struct cpu_thread *th;
	int err;

	err = rtxg_copy_in(&params, sizeof(params), sizeof(params), user);
	if (err)
		return err;
	th = get_cpu_thread(params.pid, true);
	if (IS_ERR(th))
		return PTR_ERR(th);
	rt_mutex_lock(&cpu_lock);
	tell_params(th->group, &params);
	rt_mutex_unlock(&cpu_lock);
	put_cpu_thread(th);
	return rtxg_copy_out(user, &params, sizeof(params), params.size);
}

/* ---- jobs ---- */

/*
 * Waits, interruptibly, for an absolute time; 0 or -ERESTARTSYS: a signal without a handler, or one
 * with SA_RESTART, does not end the wait, since the call is made again.
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
	WRITE_ONCE(t->started, true);
	t->runner = current;
	t->jobs++;
	raw_spin_lock_irq(&t->lock);
	account(t, ktime_get_mono_fast_ns());
	t->job_exec_ns = 0;
	raw_spin_unlock_irq(&t->lock);
	if (t->params.policy == RTXG_CPU_EDF && !t->detached) {
		/* as a server it stood there already */
		edf_remove(t);
		edf_insert(t);
	}
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

	if (!t->params.period_ns || t->started || (job->start_ns && job->time_ns) ||
	    job->time_ns > RTXG_CPU_PERIOD_MAX_NS ||
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

	if (!t->started || t->runner != current)
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

static int cpu_suspend(struct cpu_thread *th)
{
	struct rtxg_waiter waiter = {};
	int err = 0;

	for (;;) {
		bool woken;

		rtxg_waiters_add(&th->sleepers, &waiter);
		set_current_state(TASK_INTERRUPTIBLE);
		raw_spin_lock_irq(&th->sleepers.lock);
		woken = th->wake_pending;
		th->wake_pending = false;
		raw_spin_unlock_irq(&th->sleepers.lock);
		if (woken || READ_ONCE(th->ended))
			break;
		if (signal_pending(current)) {
			err = -ERESTARTSYS;
			break;
		}
		schedule();
		__set_current_state(TASK_RUNNING);
		rtxg_waiters_remove(&th->sleepers, &waiter);
	}
	__set_current_state(TASK_RUNNING);
	rtxg_waiters_remove(&th->sleepers, &waiter);
	return err;
}

static long cpu_job(unsigned int command, struct rtxg_cpu_job __user *user)
{
	struct rtxg_cpu_job job;
	struct cpu_thread *th;
	struct cpu_task *t;
	int err;

	err = rtxg_copy_in(&job, sizeof(job), sizeof(job), user);
	if (err)
		return err;
	if (job.flags || !rtxg_all_zero(job.reserved, sizeof(job.reserved)))
		return -EINVAL;
	th = get_cpu_thread(0, false);
	if (IS_ERR(th))
		return PTR_ERR(th);
	t = th->group;
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
		err = cpu_suspend(th);
		break;
	}
	put_cpu_thread(th);
	return err ?: rtxg_copy_out(user, &job, sizeof(job), job.size);
}

static int cpu_reserve(struct cpu_task *t, bool on)
{
	if (t->params.policy == RTXG_CPU_DEADLINE || !t->params.runtime_ns)
		return -EINVAL;
	if (on == t->reserving)
		return -EALREADY;
	stop_clock(t);
	start_clock(t, on);
	t->reserving = on;
	return apply(t);
}

static long cpu_pid(unsigned int command, struct rtxg_cpu_pid __user *user)
{
	struct rtxg_cpu_pid target;
	struct cpu_thread *th;
	struct cpu_task *t;
	long err;

	err = rtxg_copy_in(&target, sizeof(target), sizeof(target), user);
	if (err)
		return err;
	if (target.reserved || target.on > 1)
		return -EINVAL;
	th = get_cpu_thread(target.pid, false);
	if (IS_ERR(th))
		return PTR_ERR(th);
	t = th->group;
	if (command == RTXG_IOC_CPU_WAKE_UP) {
		raw_spin_lock_irq(&th->sleepers.lock);
		th->wake_pending = true;
		rtxg_waiters_wake_locked(&th->sleepers, UINT_MAX);
		raw_spin_unlock_irq(&th->sleepers.lock);
	} else if (command == RTXG_IOC_CPU_DETACH) {
		/* of two that detach the same task one does it */
		err = detach(t) ? 0 : -ENOENT;
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
	put_cpu_thread(th);
	return err;
}

static long cpu_stats(struct rtxg_cpu_stats __user *user)
{
	struct rtxg_cpu_stats stats;
	struct cpu_thread *th;
	struct cpu_task *t;
	long err;

	err = rtxg_copy_in(&stats, sizeof(stats), sizeof(stats), user);
	if (err)
		return err;
	if (!rtxg_all_zero(stats.reserved, sizeof(stats.reserved)))
		return -EINVAL;
	th = get_cpu_thread(stats.pid, true);
	if (IS_ERR(th))
		return PTR_ERR(th);
	t = th->group;
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
	stats.priority = th->applied_policy == SCHED_FIFO ? th->applied_priority : 0;
	stats.cpu = t->cpu >= 0 ? t->cpu : task_cpu(th->task);
	rt_mutex_unlock(&cpu_lock);
	put_cpu_thread(th);
	return rtxg_copy_out(user, &stats, sizeof(stats), stats.size);
}

/* ---- SCHED_DEADLINE and the GPU ---- */

/*
 * A task is about to be woken because its GPU is done (or free); it sleeps since since_ns. Called
 * by the waker, in any context. Whoever else might wake it needs its pi_lock, and a task that is
 * neither queued nor running is not looked at by the scheduler.
 */
void rtxg_cpu_charge_gpu(struct task_struct *task, u64 since_ns)
{
	u64 slept = ktime_get_mono_fast_ns() - since_ns;
	struct cpu_thread *th;
	struct cpu_task *t;
	unsigned long flags;

	rcu_read_lock();
	th = find_thread_rcu(task);
	t = th ? th->group : NULL;
	if (!t || t->params.policy != RTXG_CPU_DEADLINE ||
	    t->params.flags & RTXG_CPU_F_NO_GPU_CHARGE) {
		rcu_read_unlock();
		return;
	}
	raw_spin_lock_irqsave(&task->pi_lock, flags);
	if (task->policy == SCHED_DEADLINE && READ_ONCE(task->__state) == TASK_INTERRUPTIBLE &&
	    !READ_ONCE(task->on_rq) && !smp_load_acquire(&task->on_cpu)) {
		s64 floor = min_t(s64, task->dl.runtime,
				  (s64)READ_ONCE(deadline_floor_us) * NSEC_PER_USEC);
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
	case RTXG_IOC_CPU_GET:
		return cpu_get(argument);
	case RTXG_IOC_CPU_ADMISSION:
		return cpu_admission(argument);
	}
	return -ENOTTY;
}

void rtxg_cpu_release(struct rtxg_file *file)
{
	struct cpu_task *t;
	GONE(gone);

	rt_mutex_lock(&cpu_lock);
	while ((t = list_first_entry_or_null(&file->tasks, struct cpu_task, file_node)))
		unlink_task(t, &gone);
	rt_mutex_unlock(&cpu_lock);
	drop(&gone);
}

static struct task_struct *new_kthread(bool is_keeper)
{
	struct sched_attr attr = { .size = sizeof(attr),
				   .sched_policy = SCHED_FIFO,
				   .sched_priority = ENFORCER_PRIORITY };
	struct task_struct *task = kthread_create(thread_main, is_keeper ? &keep : NULL,
						  is_keeper ? "rtxg_keeper" : "rtxg_enforce");

	if (!IS_ERR(task)) {
		sched_setattr_nocheck(task, &attr);
		wake_up_process(task);
	}
	return task;
}

int rtxg_cpu_init(void)
{
	int err;

	if (max_cpu_tasks < 1 || max_cpu_tasks > 1024) {
		pr_err("rtxg: max_cpu_tasks=%u must be 1..1024\n", max_cpu_tasks);
		return -EINVAL;
	}
	hash_init(threads);
	rtxg_trace_register(RTXG_TRACE_TASK, probes);
	rt_mutex_init(&cpu_lock);
	enforcer = new_kthread(false);
	if (IS_ERR(enforcer))
		return PTR_ERR(enforcer);
	keeper = new_kthread(true);
	if (IS_ERR(keeper)) {
		kthread_stop(enforcer);
		return PTR_ERR(keeper);
	}
	err = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "rtxg:cpu", NULL, cpu_goes);
	if (err < 0) {
		kthread_stop(keeper);
		kthread_stop(enforcer);
		return err;
	}
	hotplug_state = err;
	add_task_work = symbol_get(task_work_add);
	return 0;
}

void rtxg_cpu_exit(void)
{
	cpuhp_remove_state_nocalls(hotplug_state);
	kthread_stop(keeper);
	kthread_stop(enforcer);
	if (add_task_work)
		symbol_put(task_work_add);
	/*
	 * whoever let go of the module in park() has left it; tasks are freed after a grace period,
	 * by code of this module
	 */
	synchronize_rcu_tasks();
	rcu_barrier();
}
