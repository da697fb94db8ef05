/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * cpu.h - CPU scheduling of tasks that drive GPUs, through /dev/rtxg; the calls of RESCH (Kato,
 * Rajkumar, Ishikawa 2009).
 *
 * A task is one thread, or with F_PROCESS all threads of a process. It is attached with a policy
 * and its timing; then it releases jobs: RUN begins the first, WAIT_PERIOD ends a job and waits for
 * the next release. A program that knows nothing of this is attached with F_SERVER: the clock
 * releases its jobs.
 *
 * A thread's policy, priority and affinity are restored when the thread is detached. Everything
 * that a file attached is detached when the file closes, also by the death of its process; with
 * F_STAY it lasts over execve, until the task has ended. New threads and children of an attached
 * thread begin as ordinary ones (SCHED_OTHER) and are not attached, but for F_PROCESS and
 * F_CHILDREN.
 *
 * Attaching and changing is refused with -ENOSPC where deadlines would not be safe (ADMISSION tells
 * why). Attaching, changing and detaching need CAP_SYS_NICE, also of the calling task itself: a
 * budget binds the task that has it. Looking (GET, STATS) at tasks of other users needs it too.
 * Jobs and waking are free to the task itself. Times are nanoseconds; absolute ones on
 * CLOCK_MONOTONIC.
 */
#ifndef RTXG_UAPI_CPU_H
#define RTXG_UAPI_CPU_H

#include <linux/ioctl.h>
#include <linux/types.h>

enum rtxg_cpu_policy {
	RTXG_CPU_FP, /* fixed priority as given: SCHED_FIFO */
	/*
	 * rate monotonic: the shorter the period, the higher the priority, kept so as tasks come
	 * and go
	 */
	RTXG_CPU_RM,
	/*
	 * earliest deadline first among the ready jobs of this policy that share a CPU: of one CPU,
	 * of a cluster of CPUs, or of all
	 */
	RTXG_CPU_EDF,
	/* the kernel's SCHED_DEADLINE, with the wake-up rule corrected for time spent on the GPU */
	RTXG_CPU_DEADLINE,
	RTXG_CPU_POLICIES,
};

/* the task stays on one CPU: the least loaded, or the one named with F_CPU */
#define RTXG_CPU_F_PARTITIONED (1u << 0)
/* cpu is given. The task must be allowed on it: -EINVAL, as for a set that is not */
#define RTXG_CPU_F_CPU	  (1u << 1)
#define RTXG_CPU_F_SIGNAL (1u << 2) /* SIGXCPU when the budget is used up */
/* DEADLINE: leave the kernel's wake-up rule as it is */
#define RTXG_CPU_F_NO_GPU_CHARGE (1u << 3)
/* belongs to the task instead of the file: until it ends or is detached. Kept by SET */
#define RTXG_CPU_F_STAY (1u << 4)
/*
 * all threads of the process, made later or not, are one task: one priority, one budget. A thread
 * made later is one of them before its first instruction. Not for DEADLINE, which is of one thread.
 * Kept by SET
 */
#define RTXG_CPU_F_PROCESS (1u << 5)
/* until RUN is called, each period is a job: released and, under EDF, ranked by the clock */
#define RTXG_CPU_F_SERVER (1u << 6)
/*
 * the budget used up, it does not run at all until it is replenished, as under DEADLINE: threads
 * stop on their way back to user mode. Else it runs in the background. -EOPNOTSUPP
 */
#define RTXG_CPU_F_HARD (1u << 7)
/* the task stays on the CPUs of a set, a cluster; not with PARTITIONED */
#define RTXG_CPU_F_CLUSTER (1u << 8)
/*
 * with PROCESS: the processes that it makes are threads of the task, too, and those that they make
 */
#define RTXG_CPU_F_CHILDREN (1u << 9)
#define RTXG_CPU_F_ALL	    0x3ffu

/*
 * Priorities in use: FP as the caller says, 1..RTXG_CPU_PRIORITY_MAX. RM and EDF live in the band
 * below.
 */
#define RTXG_CPU_PRIORITY_MAX 97u
#define RTXG_CPU_BAND_LOW     10u
#define RTXG_CPU_BAND_HIGH    89u
/*
 * Threads of one task that its policy gives a priority. Those beyond stay ordinary threads, and
 * under F_HARD share its budget all the same
 */
#define RTXG_CPU_THREADS_MAX   512u
#define RTXG_CPU_PERIOD_MIN_NS 100000ull	/* 100 us */
#define RTXG_CPU_PERIOD_MAX_NS 3600000000000ull /* 1 h */

struct rtxg_cpu_task {
	__u32 size;
	__u32 flags;	   /* RTXG_CPU_F_* */
	__s32 pid;	   /* thread, or any of the process; 0 = the caller */
	__u32 policy;	   /* enum rtxg_cpu_policy */
	__u32 priority;	   /* FP: in, 1..97. RM, EDF: out, the one given now */
	__u32 cpu;	   /* F_CPU: in; PARTITIONED: out */
	__u64 period_ns;   /* RM, EDF, DEADLINE and budgets need it; 100 us .. 1 h */
	__u64 deadline_ns; /* relative; 0 = period */
	/* longest execution expected of a job; 0 = unknown. More is counted as an overrun */
	__u64 wcet_ns;
	/*
	 * DEADLINE: its runtime. Else a budget for each period: used up, the task runs in the
	 * background (SCHED_IDLE) until it is replenished; what was used beyond is charged to the
	 * next. 0 = none
	 */
	__u64 runtime_ns;
	/* longest time that a job sleeps for its GPU: admission counts it as use. 0 = never */
	__u64 suspend_ns;
	__u32 threads; /* out: attached now */
	/*
	 * CLUSTER: in, address and size in bytes, a multiple of 8, of the set: bit n of 64-bit word
	 * n / 64 is CPU n. SET: of size 0, the task's cluster stays. GET: in, room, out, the CPUs
	 * that the task competes for. Else 0
	 */
	__u32 set_size;
	__u64 set;
	__u64 reserved;
};

struct rtxg_cpu_pid {
	__u32 size;
	__s32 pid; /* 0 = the caller */
	__u32 on;  /* BACKGROUND, RESERVE, GPU_WAIT: 1 begin, 0 end; else 0 */
	__u32 reserved;
};

/*
 * RUN, WAIT_PERIOD, WAIT_INTERVAL, SUSPEND: for the calling thread, which must be attached. Of
 * several threads the one that called RUN calls WAIT_PERIOD.
 */
struct rtxg_cpu_job {
	__u32 size;
	__u32 flags; /* 0 */
	/*
	 * RUN: in, first release: relative to now. WAIT_INTERVAL: in, how long (-EINTR by a signal)
	 */
	__u64 time_ns;
	/*
	 * RUN: in, first release, absolute, if not 0 (time_ns must be 0 then); WAIT_INTERVAL: in,
	 * until when
	 */
	__u64 start_ns;
	__u64 job;	   /* out: number of the job that begins, from 1 */
	__u64 release_ns;  /* out: its release */
	__u64 deadline_ns; /* out: its absolute deadline */
	__u64 response_ns; /* WAIT_PERIOD: out, of the job that ended: release to end */
	__u64 exec_ns;	   /* WAIT_PERIOD: out, of the job that ended: CPU time */
	__u32 missed;	   /* WAIT_PERIOD: out, 1 if it ended after its deadline */
	__u32 overrun;	   /* WAIT_PERIOD: out, 1 if it took more than wcet_ns */
	/* WAIT_PERIOD: out, how long the release had passed already when the last job ended */
	__u64 late_ns;
	__u64 reserved[2];
};

struct rtxg_cpu_stats {
	__u32 size;
	__s32 pid; /* 0 = the caller */
	__u64 jobs;
	__u64 misses;
	__u64 overruns;
	__u64 exec_ns;
	__u64 max_exec_ns;
	__u64 max_response_ns;
	__u64 throttles; /* times the budget was used up */
	__u64 replenishments;
	__s64 budget_ns;   /* left; negative: to be charged */
	__u64 gpu_charges; /* DEADLINE: wake-ups at which time on the GPU was charged */
	__u64 gpu_charged_ns;
	/* SCHED_FIFO priority now; 0 in the background or under DEADLINE */
	__u32 priority;
	/* PARTITIONED: its CPU; else the one that its first thread ran on last */
	__u32 cpu;
	__u64 reserved[2];
};

/* Why admission refuses. */
enum rtxg_cpu_test {
	RTXG_CPU_ADMITTED,
	/* a CPU, or all (cpu < 0), would be used too much: parts per million of one CPU */
	RTXG_CPU_CAPACITY,
	/* EDF on one CPU: sum of cost / min(deadline, period), parts per million */
	RTXG_CPU_DENSITY,
	/* on one CPU a job would take longer than its deadline: nanoseconds */
	RTXG_CPU_RESPONSE,
	/* on several CPUs others may take more of a job's time than it can spare: nanoseconds */
	RTXG_CPU_WINDOW,
	/* it says neither runtime nor wcet, and the module's parameter admission is 2 */
	RTXG_CPU_UNKNOWN,
};

/*
 * Admission's verdict on parameters (those of ATTACH and SET, where a refusal is -ENOSPC).
 * Changes nothing. A task counts if it has a period and a runtime or a wcet; the time asleep for
 * its GPU is added. Tests and bounds: core/cpu/rtxg_cpu_admit.h.
 */
struct rtxg_cpu_admission {
	__u32 size;
	__u32 test; /* out: enum rtxg_cpu_test */
	__u64 task; /* address of a struct rtxg_cpu_task */
	/* out: the task whose deadline is unsafe; 0: the caller, or no single task */
	__s32 pid;
	__s32 cpu;    /* out: on which CPU; -1: on several */
	__u64 needed; /* out, in the test's unit */
	__u64 there;  /* out */
	__u64 reserved[2];
};

#define RTXG_IOC_CPU_ATTACH	   _IOWR('x', 0x80, struct rtxg_cpu_task)
#define RTXG_IOC_CPU_SET	   _IOWR('x', 0x81, struct rtxg_cpu_task)
#define RTXG_IOC_CPU_DETACH	   _IOW('x', 0x82, struct rtxg_cpu_pid)
#define RTXG_IOC_CPU_RUN	   _IOWR('x', 0x83, struct rtxg_cpu_job)
#define RTXG_IOC_CPU_WAIT_PERIOD   _IOWR('x', 0x84, struct rtxg_cpu_job)
#define RTXG_IOC_CPU_WAIT_INTERVAL _IOWR('x', 0x85, struct rtxg_cpu_job)
#define RTXG_IOC_CPU_SUSPEND	   _IOWR('x', 0x86, struct rtxg_cpu_job) /* until WAKE_UP */
#define RTXG_IOC_CPU_WAKE_UP	   _IOW('x', 0x87, struct rtxg_cpu_pid)
#define RTXG_IOC_CPU_BACKGROUND	   _IOW('x', 0x88, struct rtxg_cpu_pid)
#define RTXG_IOC_CPU_RESERVE	   _IOW('x', 0x89, struct rtxg_cpu_pid)
#define RTXG_IOC_CPU_STATS	   _IOWR('x', 0x8a, struct rtxg_cpu_stats)
#define RTXG_IOC_CPU_GET	   _IOWR('x', 0x8b, struct rtxg_cpu_task)
#define RTXG_IOC_CPU_ADMISSION	   _IOWR('x', 0x8c, struct rtxg_cpu_admission)
/*
 * From now on the calling thread (pid 0, attached) waits for its own work on the GPU in a function
 * that is none of the module's, until it says that it does not. Under DEADLINE its time asleep is
 * charged meanwhile, as in the module's own calls, whatever wakes it.
 */
#define RTXG_IOC_CPU_GPU_WAIT _IOW('x', 0x8d, struct rtxg_cpu_pid)

#endif
