// SPDX-License-Identifier: GPL-2.0-only
/*
 * jobs.c - periodic jobs: releases, ends, and what a thread waits for in between.
 *
 * Under EDF a job's rank among the ready ones is its priority. A task waits for its release at a
 * priority above all ranks, so that the release itself preempts, sorts the job in by its deadline
 * and drops to the rank found. No other task has to be woken for that. May not: choose a rank.
 */
#include <linux/hrtimer.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "../user.h"
#include "internal.h"

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

/*
 * The calling thread waits for t->release_ns from here on: under EDF above all ranks, so that it is
 * not late. That priority is for this wait alone. Under the lock.
 */
static void begin_wait(struct cpu_task *t)
{
	t->waiting = true;
	t->sleeper = current;
	if (t->params.policy != RTXG_CPU_EDF || t->detached)
		return;
	rtxg_cpu_edf_remove(t);
	t->priority = RTXG_CPU_BAND_LOW;
	rtxg_cpu_apply(t);
}

/* A wait that a signal ends returns to the program: at the rank of the job to come. */
static int wait_for_release(struct cpu_task *t)
{
	int err = sleep_until(t->release_ns);

	if (!err)
		return 0;
	rt_mutex_lock(&rtxg_cpu_lock);
	t->sleeper = NULL;
	if (t->params.policy == RTXG_CPU_EDF && !t->detached)
		rtxg_cpu_edf_insert(t);
	rt_mutex_unlock(&rtxg_cpu_lock);
	return err;
}

/* The job released at t->release_ns begins. */
static void begin_job(struct cpu_task *t, struct rtxg_cpu_job *job)
{
	rt_mutex_lock(&rtxg_cpu_lock);
	t->waiting = false;
	t->started = true;
	t->runner = current;
	t->sleeper = NULL;
	t->jobs++;
	raw_spin_lock_irq(&t->lock);
	rtxg_cpu_account(t, ktime_get_mono_fast_ns());
	t->job_exec_ns = 0;
	raw_spin_unlock_irq(&t->lock);
	if (t->params.policy == RTXG_CPU_EDF && !t->detached) {
		rtxg_cpu_edf_insert(t);
	}
	job->job = t->jobs;
	job->release_ns = t->release_ns;
	job->deadline_ns = t->release_ns + t->params.deadline_ns;
	rt_mutex_unlock(&rtxg_cpu_lock);
}

/* The current job ends: books it, and begins to wait for the next. */
static void end_job(struct cpu_task *t, struct rtxg_cpu_job *job)
{
	u64 now = ktime_get_ns();

	rt_mutex_lock(&rtxg_cpu_lock);
	if (!t->waiting) {
		raw_spin_lock_irq(&t->lock);
		rtxg_cpu_account(t, ktime_get_mono_fast_ns());
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
	}
	begin_wait(t);
	/* kept: the call may be made again after a signal */
	job->exec_ns = t->ended.exec_ns;
	job->response_ns = t->ended.response_ns;
	job->missed = t->ended.missed;
	job->overrun = t->ended.overrun;
	job->late_ns = t->ended.late_ns;
	rt_mutex_unlock(&rtxg_cpu_lock);
}

static int begin_run(struct cpu_task *t, const struct rtxg_cpu_job *job)
{
	if (t->started || (t->sleeper && t->sleeper != current))
		return -EALREADY;
	if (!t->params.period_ns)
		return -EINVAL;
	/* made again after a signal: the release stands */
	if (!t->waiting)
		t->release_ns = job->start_ns ?: ktime_get_ns() + job->time_ns;
	/* the clock releases no more jobs: this release is the program's own */
	WRITE_ONCE(t->run, true);
	begin_wait(t);
	return 0;
}

static int cpu_run(struct cpu_task *t, struct rtxg_cpu_job *job)
{
	int err;

	if ((job->start_ns && job->time_ns) || job->time_ns > RTXG_CPU_PERIOD_MAX_NS ||
	    job->start_ns > ktime_get_ns() + RTXG_CPU_PERIOD_MAX_NS)
		return -EINVAL;
	rt_mutex_lock(&rtxg_cpu_lock);
	err = begin_run(t, job);
	rt_mutex_unlock(&rtxg_cpu_lock);
	if (!err)
		err = wait_for_release(t);
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
	err = wait_for_release(t);
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
	/* made again, the call would wait for the whole time once more */
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

long rtxg_cpu_job(unsigned int command, struct rtxg_cpu_job __user *user)
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
	th = rtxg_cpu_get_thread(0, RTXG_CPU_ITSELF);
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
	rtxg_cpu_put_thread(th);
	return err ?: rtxg_copy_out(user, &job, sizeof(job), job.size);
}
