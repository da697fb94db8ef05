/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * internal.h - what the files of kmod/cpu/ know of each other. From the bottom: threads, inherit
 * and worker, budget, policy, admission, members, newcomers, server, jobs, deadline, ioctl. A file
 * calls those before it.
 */
#ifndef RTXG_KMOD_CPU_INTERNAL_H
#define RTXG_KMOD_CPU_INTERNAL_H

#include <linux/cpumask.h>
#include <linux/hashtable.h>
#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rtmutex.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/task_work.h>
#include <uapi/linux/sched/types.h>

#include <rtxg/cpu.h>

#include "../compat.h"
#include "../waiters.h"
#include "cpu.h"
#include "rtxg_cpu_admit.h"
#include "rtxg_cpu_budget.h"
#include "rtxg_cpu_rank.h"

/* A task waiting for its release under EDF: above every rank. */
#define RELEASE_PRIORITY (RTXG_CPU_BAND_HIGH + 1)

/* What was asked for together: a thread, or the threads of a process. */
struct cpu_task {
	struct list_head file_node; /* empty: F_STAY */
	struct list_head all_node;
	struct list_head adopt_node; /* the keeper's, while it takes threads in */
	struct list_head members;    /* changed under cpu_lock; timers walk it by RCU */
	unsigned int threads;
	struct kref kref;
	struct rcu_head rcu;
	struct rtxg_cpu_task params;

	/* under cpu_lock */
	bool detached;
	int cpu; /* where it stays; -1: on several */
	/*
	 * CPUs that it competes for. confined: its threads were put on these; else each runs where
	 * it did before us
	 */
	cpumask_var_t domain;
	bool confined;
	/* where admission found room for it; -1: nowhere in particular */
	int chosen;
	unsigned int priority; /* what the policy says now */
	struct rtxg_edf_job edf;
	bool background, reserving;
	/*
	 * run: RUN was called, the clock releases no jobs any more. waiting: release_ns is that of
	 * the job to come. started: jobs go on
	 */
	bool run, waiting, started;
	/*
	 * only compared: the thread that called RUN, and that thread while it waits for a release
	 */
	struct task_struct *runner, *sleeper;
	u64 release_ns;

	/* F_HARD: threads whose budget is used up, on their way to user mode */
	struct rtxg_waiters parked;
	bool adopt;	  /* the process has threads that are not attached yet */
	atomic_t joining; /* of these, those that will join by themselves */

	/*
	 * under lock: also used at task switches, with a run queue's lock held. Nothing is woken
	 * and no such lock taken under it
	 */
	raw_spinlock_t lock;
	struct list_head on_cpu; /* threads that run, so many: */
	unsigned int running;
	u64 since_ns; /* booked until then */
	u64 exec_ns, job_exec_ns;
	struct rtxg_budget budget;
	bool lent; /* kernel threads that work for another: their time is not charged */
	/*
	 * its threads may hold the kernel's locks, also in the background: they are ordinary there
	 */
	bool kernel;
	bool changed, signal;
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

	u32 applied_policy; /* U32_MAX: none was yet; under cpu_lock */
	bool ended;	    /* it is exiting */

	struct rtxg_waiters sleepers; /* SUSPEND: the thread itself */
	bool wake_pending;

	bool plain; /* shares the budget, and has no priority of ours */

	bool waits_for_gpu; /* in a function of its own; written by the thread itself */
	u64 asleep_ns;	    /* meanwhile: since then; 0: it runs, or was charged */

	/* under group->lock */
	struct list_head on_cpu_node; /* running */
	bool running, parking;
	bool gone; /* no time of it is booked any more */
};

/* threads.c */
extern DECLARE_HASHTABLE(rtxg_cpu_threads, 8);
/* How many are in it; changed under rtxg_cpu_lock. */
extern unsigned int rtxg_cpu_thread_count;
extern struct list_head rtxg_cpu_tasks;
/* with priority inheritance: a low task's call must not hold up a high one's release */
extern struct rt_mutex rtxg_cpu_lock;
struct cpu_thread *rtxg_cpu_find(const struct task_struct *task); /* under RCU */
void rtxg_cpu_put_task(struct cpu_task *t);
struct cpu_thread *rtxg_cpu_new_thread(struct task_struct *task);
/* Notes what the thread is now, as what it was before us. */
void rtxg_cpu_save_attributes(struct cpu_thread *th);
/* One that was never linked; its task is put by the caller. */
void rtxg_cpu_drop_thread(struct cpu_thread *th);
void rtxg_cpu_put_thread(struct cpu_thread *th);

static inline struct cpu_thread *rtxg_cpu_first(const struct cpu_task *t)
{
	return list_first_entry(&t->members, struct cpu_thread, member_node);
}

/* A task whose jobs the clock releases. */
static inline bool rtxg_cpu_is_server(const struct cpu_task *t)
{
	return t->params.flags & RTXG_CPU_F_SERVER && !READ_ONCE(t->run);
}

/* F_HARD: its threads do not run at all now. */
static inline struct rtxg_budget_use rtxg_cpu_use(const struct cpu_task *t)
{
	return (struct rtxg_budget_use){ .exhausted = READ_ONCE(t->budget.exhausted),
					 .hard = t->params.flags & RTXG_CPU_F_HARD,
					 .lent = READ_ONCE(t->lent) };
}

static inline bool rtxg_cpu_stops(const struct cpu_task *t)
{
	const struct rtxg_budget_use use = rtxg_cpu_use(t);

	return rtxg_budget_state(&use) == RTXG_BUDGET_STOPS;
}

/* inherit.c: what is saved of a thread that is raised; under rtxg_cpu_lock */
void rtxg_cpu_own_attributes(const struct task_struct *thread, struct sched_attr *attr);

/* worker.c */
enum rtxg_cpu_worker { RTXG_CPU_ENFORCER, RTXG_CPU_KEEPER, RTXG_CPU_WORKERS };
/* Does its work once more. From any context. */
void rtxg_cpu_kick(enum rtxg_cpu_worker which);
int rtxg_cpu_workers_start(void (*enforce)(void), void (*keep)(void));
void rtxg_cpu_workers_stop(void);

/* budget.c */
extern typeof(task_work_add) *rtxg_cpu_add_work; /* NULL: the kernel does not export it */
/* The thread does not run any more. Its task's lock is held. */
void rtxg_cpu_leaves_cpu(struct cpu_thread *th);
/* Books the time of the threads that run; t->lock is held. */
void rtxg_cpu_account(struct cpu_task *t, u64 now);
/* Its timer fires when the budget is used up; t->lock is held. */
void rtxg_cpu_arm_budget(struct cpu_task *t);
void rtxg_cpu_found_running(void *thread);
void rtxg_cpu_init_clock(struct cpu_task *t);
void rtxg_cpu_start_clock(struct cpu_task *t, bool enforced);
void rtxg_cpu_stop_clock(struct cpu_task *t);
void rtxg_cpu_probe_switch(void *data, bool preempt, struct task_struct *prev,
			   struct task_struct *next, unsigned int prev_state);

/* policy.c; under rtxg_cpu_lock, and the CPUs where a task is placed */
int rtxg_cpu_apply_thread(const struct cpu_task *t, struct cpu_thread *th);
int rtxg_cpu_apply(struct cpu_task *t);
void rtxg_cpu_rank_all(void);
void rtxg_cpu_edf_insert(struct cpu_task *t);
void rtxg_cpu_edf_remove(struct cpu_task *t);
/* set: of F_CLUSTER, else NULL */
int rtxg_cpu_configure(struct cpu_task *t, const struct rtxg_cpu_task *params,
		       const struct cpumask *set);
/* Words of a set of CPUs as the core has it. */
unsigned int rtxg_cpu_set_words(void);
/*
 * What the core is told of a task that asks for a CPU, or with -1 for those of a mask. bits: memory
 * for a set, which the answer may point to.
 */
struct rtxg_admit_task rtxg_cpu_demand(const struct rtxg_cpu_task *params, int cpu,
				       const struct cpumask *mask, u64 *bits);
/* The CPUs of a mask that are online. */
struct rtxg_cpu_domain rtxg_cpu_online_of(const struct cpumask *mask, u64 *bits);
int rtxg_cpu_policy_init(void);
void rtxg_cpu_policy_exit(void);
int rtxg_cpu_goes(unsigned int cpu); /* takes the lock */
void rtxg_cpu_enforce(void);	     /* takes the lock */

/* admission.c */
struct cpu_candidates {
	u32 count;
	struct rtxg_admit_verdict verdict;
	struct rtxg_admit_task *tasks; /* the first is the one that asks */
	s32 *pids;
	u64 *bits; /* a set for each task, and one for the CPUs allowed */
};
/*
 * From the test to what it allows: so that the test itself holds up no release. Outside of
 * rtxg_cpu_lock.
 */
extern struct mutex rtxg_cpu_admission_lock;
int rtxg_cpu_check(struct rtxg_cpu_task *params);
/* The set that is given, to be freed by the caller; NULL without one. 0 or negative errno. */
int rtxg_cpu_copy_set(const struct rtxg_cpu_task *params, struct cpumask **set);
int rtxg_cpu_try(struct cpu_candidates *c, const struct cpu_task *self,
		 const struct rtxg_cpu_task *params, const struct cpumask *set,
		 const struct cpumask *mask, int *chosen);
void rtxg_cpu_end_try(struct cpu_candidates *c);

/* members.c */
extern unsigned int rtxg_cpu_tasks_max;
struct task_struct *rtxg_cpu_task_of(s32 pid);
/* What a caller may do to a thread without CAP_SYS_NICE. */
enum rtxg_cpu_right {
	RTXG_CPU_ITSELF, /* if it is the thread */
	RTXG_CPU_LOOK,	 /* if it is of the same user */
	RTXG_CPU_CHANGE, /* never: a budget is no protection from a task that may end it */
};
/* The attached thread of a number, with a reference; or an error. */
struct cpu_thread *rtxg_cpu_get_thread(s32 pid, enum rtxg_cpu_right right);
bool rtxg_cpu_detach(struct cpu_task *t);
/*
 * One task of several kernel threads, that belongs to no file and pins nothing. With a reference.
 */
struct cpu_task *rtxg_cpu_attach_kernel(struct task_struct *const *threads, unsigned int count,
					struct rtxg_cpu_task *params);
void rtxg_cpu_tell(const struct cpu_task *t, struct rtxg_cpu_task *params);
void rtxg_cpu_keep(void);
/* The calling thread is one of the task's from now on, if it is not one already. */
void rtxg_cpu_join(struct cpu_task *t);
void rtxg_cpu_probe_exit(void *data, struct task_struct *task RTXG_EXIT_PROBE_MORE);

/* newcomers.c */
void rtxg_cpu_probe_fork(void *data, struct task_struct *parent, struct task_struct *child);

/* deadline.c */
void rtxg_cpu_deadline_init(void);
/*
 * The calling thread, whose record this is, begins or ends to wait for its GPU. In process context.
 */
int rtxg_cpu_waits_for_gpu(struct cpu_thread *th, bool on);

/* jobs.c */
long rtxg_cpu_job(unsigned int command, struct rtxg_cpu_job __user *user);

#endif
