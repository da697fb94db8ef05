/* SPDX-License-Identifier: MIT */
/*
 * rtxg_cpu.h - CPU scheduling of the calling thread through the kernel module: periodic jobs after
 * RESCH (Kato, Rajkumar and Ishikawa 2009), whose calls keep their names. A thread of a periodic
 * task looks like this:
 *
 *     rtx_cpu_init();
 *     rtx_cpu_set_scheduler(RTX_CPU_EDF, 0);
 *     rtx_cpu_set_period(10000000);
 *     rtx_cpu_run(0);                       releases the first job
 *     for (;;) {
 *             work();
 *             rtx_cpu_wait_period(NULL);    ends a job, waits for the next release
 *     }
 *     rtx_cpu_exit();
 *
 * A task that uses GPU and CPU is made by rtx_task_open: both sides in one step, or neither.
 *
 * Everything is for the calling thread. A thread that `rtxg run` or `rtxg set` has attached already
 * keeps what was asked for there: rtx_cpu_run then only begins its jobs. Functions return 0 or a
 * negative errno; rtx_strerror() (rtxg.h) has the words. Times are nanoseconds. -EPERM: out of
 * order, or CAP_SYS_NICE is missing; -ENOENT: rtxg.ko is not loaded; -EINVAL: out of range;
 * -ENOSPC, -EBUSY: admission refused it (the module's, the kernel's for SCHED_DEADLINE); nothing
 * has changed.
 */
#ifndef RTXG_CPU_H
#define RTXG_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rtxg.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rtx_cpu_scheduler {
	RTX_CPU_FP = 0,	 /* fixed priority */
	RTX_CPU_RM = 1,	 /* rate monotonic: the priority follows from the period */
	RTX_CPU_EDF = 2, /* earliest deadline first */
	/*
	 * SCHED_DEADLINE, its wake-up rule corrected for time on the GPU; runtime counts that time
	 * too
	 */
	RTX_CPU_DEADLINE = 3,
};

/* stays on one CPU: the least loaded, or the one of rtx_cpu_set_cpu */
#define RTX_CPU_PARTITIONED (1u << 0)
#define RTX_CPU_SIGNAL	    (1u << 2) /* SIGXCPU when the budget is used up */
/*
 * the budget used up, the thread does not run until the next period, also on an idle CPU. Without
 * it, it runs in the background meanwhile. -EOPNOTSUPP on some kernels
 */
#define RTX_CPU_HARD (1u << 7)

/* How the job that ended went. */
struct rtx_cpu_job {
	size_t size;	      /* of this structure */
	uint64_t job;	      /* number of the one that begins, from 1 */
	uint64_t release_ns;  /* its release, CLOCK_MONOTONIC */
	uint64_t deadline_ns; /* its absolute deadline */
	uint64_t response_ns; /* of the one that ended: release to end */
	uint64_t exec_ns;     /* its CPU time */
	uint64_t late_ns;     /* how long the next release had passed when it ended */
	bool missed;	      /* its deadline */
	bool overrun;	      /* its WCET */
};

struct rtx_cpu_stats {
	size_t size;
	uint64_t jobs, misses, overruns;
	uint64_t exec_ns, max_exec_ns, max_response_ns;
	uint64_t throttles, replenishments;
	int64_t budget_ns;
	uint64_t gpu_charges, gpu_charged_ns;
	unsigned int priority, cpu;
};

/* Begins: opens the module for this thread. -EALREADY a second time. */
int rtx_cpu_init(void);
/* Ends: policy, priority and affinity become what they were. */
int rtx_cpu_exit(void);

/*
 * Parameters. Before rtx_cpu_run they are collected, afterwards they take effect at once (a budget
 * begins anew).
 */
int rtx_cpu_set_scheduler(enum rtx_cpu_scheduler scheduler, unsigned int flags);
int rtx_cpu_set_period(uint64_t ns);   /* 100 us .. 1 h */
int rtx_cpu_set_deadline(uint64_t ns); /* relative, at most the period; 0 = period */
int rtx_cpu_set_wcet(uint64_t ns);     /* more is counted as an overrun */
/* DEADLINE: runtime. Else a budget for each period, enforced; 0 = none */
int rtx_cpu_set_runtime(uint64_t ns);
/* longest sleep of a job, for its GPU: admission counts it as use; 0 = none */
int rtx_cpu_set_suspension(uint64_t ns);
int rtx_cpu_set_priority(unsigned int priority); /* FP: 1..97 */
int rtx_cpu_set_cpu(int cpu);			 /* with PARTITIONED; -1 = the least loaded */
/*
 * The CPUs that the thread stays on, a cluster: bit n of word n / 64 is CPU n, of at most 16 words;
 * 0 words = all that it may run on. Ends PARTITIONED. The thread must be allowed on all of them.
 */
int rtx_cpu_set_cluster(const uint64_t *set, size_t words);

/* Attaches the thread and releases its first job after so long. */
int rtx_cpu_run(uint64_t timeout_ns);
/* The same at an absolute time (CLOCK_MONOTONIC), so that several tasks can begin together. */
int rtx_cpu_run_at(uint64_t time_ns);
/*
 * Ends the job and waits for the next release. job may be NULL. -EINTR by a signal with a handler:
 * call again.
 */
int rtx_cpu_wait_period(struct rtx_cpu_job *job);
/* Sleeps inside a job. */
int rtx_cpu_wait_interval(uint64_t ns);
int rtx_cpu_sleep(uint64_t ns);
/* Waits until another thread calls rtx_cpu_wake_up with this one's number (gettid). */
int rtx_cpu_suspend(void);
int rtx_cpu_wake_up(pid_t tid);
/*
 * The thread waits for its own work on the GPU, in a function that librtxg does not know, until it
 * says that it does not (on: false). Under SCHED_DEADLINE the time that it sleeps meanwhile is
 * charged to its runtime, so that it keeps its deadline; under all else nothing happens.
 * rtx_gpu_sync, rtx_timeline_wait and the OpenCL layer do it by themselves. Calls nest. 0; -ENOENT:
 * the module does not know the thread, or is not there. A module that was loaded, and a policy that
 * was set without one, while the thread ran are noticed after 1024 waits at the latest.
 */
int rtx_cpu_wait_for_gpu(bool on);
/* Runs behind everybody else (SCHED_IDLE), or as before. */
int rtx_cpu_background(bool on);
/* Switches enforcement of the budget on and off. */
int rtx_cpu_reserve_start(void);
int rtx_cpu_reserve_stop(void);
int rtx_cpu_stats(struct rtx_cpu_stats *stats);

struct rtx_cpu_options {
	size_t size;
	enum rtx_cpu_scheduler scheduler;
	unsigned int flags;    /* RTX_CPU_* */
	unsigned int priority; /* FP: 1..97 */
	int cpu;	       /* with RTX_CPU_PARTITIONED: which; -1 = the least loaded */
	uint64_t period_ns;    /* 0 = that of the GPU's options */
	uint64_t deadline_ns;  /* 0 = as for the GPU, else the period */
	uint64_t wcet_ns;
	uint64_t runtime_ns;
	uint64_t suspend_ns; /* 0 = the GPU's runtime, but under DEADLINE */
};

/*
 * Opens a GPU task (as rtx_gpu_open) and attaches the calling thread to a CPU policy, in one step:
 * if either is refused, nothing has changed. Jobs then begin with rtx_cpu_run. rtx_gpu_close and
 * rtx_cpu_exit end the two sides, in any order.
 */
int rtx_task_open(rtx_gpu_t *handle, const struct rtx_gpu_options *gpu,
		  const struct rtx_cpu_options *cpu);
/* Changes both, or neither. gpu as in rtx_gpu_set (0 stays as it is), cpu as a whole. */
int rtx_task_set(rtx_gpu_t handle, const struct rtx_gpu_options *gpu,
		 const struct rtx_cpu_options *cpu);

#ifdef __cplusplus
}
#endif

#endif
