/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_cpu_admit.h - whether tasks of CPU policies can all meet their deadlines: admission, as the
 * kernel module and the tools ask it.
 *
 * Freestanding like the rest of core/: no system call, no allocation, no clock. The answer depends
 * on its arguments alone. It is sufficient, not always necessary: what is admitted meets its
 * deadlines if every job keeps its cost and releases are a period apart; what is refused might.
 *
 * Tests used, by the tasks that a task competes with:
 *   one CPU, EDF alone            density: sum of cost / min(deadline, period) at most 1 (exact for
 *                                 deadline = period; Liu and Layland 1973)
 *   one CPU, anything else        response time (Joseph and Pandya 1986; Audsley and others 1993);
 *                                 exact for fixed priorities whose tasks are released together, and
 *                                 pessimistic where EDF shares their priorities
 *   several CPUs, EDF alone       sum of densities at most m - (m - 1) max (Goossens, Funk and
 *                                 Baker 2003), else the next
 *   several CPUs, anything else   interference in the window of a job (Bertogna, Cirinei and Lipari
 *                                 2005)
 * and everywhere: no more use of a CPU, or of those of a cluster together, than their capacity,
 * what the kernel leaves to real-time tasks.
 *
 * Only tasks whose domains meet compete. Clusters that share no CPU are as separate machines.
 *
 * A job that sleeps for its GPU counts that time as cost (suspension-oblivious; Chen and others
 * 2019, "Many suspensions, many problems", section 4): rtxg_admit_cost() adds it.
 */
#ifndef RTXG_CPU_ADMIT_H
#define RTXG_CPU_ADMIT_H

#include "rtxg_cpu_domain.h"
#include "rtxg_cpu_rank.h"

/* In the order of enum rtxg_cpu_policy of rtxg/cpu.h. */
enum rtxg_admit_policy {
	RTXG_ADMIT_FP,
	RTXG_ADMIT_RM,
	RTXG_ADMIT_EDF,
	RTXG_ADMIT_DEADLINE,
	RTXG_ADMIT_POLICIES,
};

#define RTXG_ADMIT_GLOBAL (-1)

/* What a task asks of the CPUs. Times of at most 2 hours. */
struct rtxg_admit_task {
	uint32_t policy;   /* enum rtxg_admit_policy */
	uint32_t priority; /* FP: 1..99, more is more important */
	int32_t cpu;	   /* where it stays, or RTXG_ADMIT_GLOBAL */
	uint32_t cpus;	   /* GLOBAL: on how many it may run, 1.. */
	/* GLOBAL: on which; of no words: on any, of which cpus are there */
	struct rtxg_cpu_domain domain;
	uint64_t cost_ns;     /* of a job; 0: unknown, the task is left out */
	uint64_t deadline_ns; /* relative, cost..period */
	uint64_t period_ns;
};

/* What is known of a job; 0: not known. */
struct rtxg_admit_job {
	uint32_t policy; /* enum rtxg_admit_policy */
	uint64_t period_ns;
	uint64_t runtime_ns; /* its budget in each period */
	uint64_t wcet_ns;    /* on the CPU, if it has no budget */
	uint64_t suspend_ns; /* asleep for its GPU */
};

/* The cost_ns of a task with such jobs; 0: unknown. */
uint64_t rtxg_admit_cost(const struct rtxg_admit_job *job);
/* Whether the time asleep is added to it. Under DEADLINE the runtime counts that time already. */
bool rtxg_admit_suspends(uint32_t policy);

enum rtxg_admit_test {
	RTXG_ADMIT_OK,
	RTXG_ADMIT_CAPACITY, /* of a CPU, or of all: ppm of one CPU */
	RTXG_ADMIT_DENSITY,  /* EDF on one CPU: ppm */
	/* one CPU: nanoseconds; what is needed passes the deadline by then */
	RTXG_ADMIT_RESPONSE,
	/*
	 * several CPUs: nanoseconds of a job's window that others may take, and that it can spare
	 */
	RTXG_ADMIT_WINDOW,
};

struct rtxg_admit_verdict {
	uint32_t test; /* enum rtxg_admit_test: the one that failed */
	uint32_t task; /* whose deadline is not safe; of CAPACITY: the number of tasks */
	int32_t cpu;   /* which, or RTXG_ADMIT_GLOBAL */
	uint32_t reserved;
	uint64_t needed; /* in the unit of the test ... */
	uint64_t there;	 /* ... and what there is of it */
};

/* An admission under way, so that its host may do other things between two steps. */
struct rtxg_admission {
	const struct rtxg_admit_task *tasks;
	uint32_t count, cpus, capacity_ppm;
	/*
	 * how far it has come: with which test, at which task, and with that task's response time
	 */
	uint32_t stage, at, step;
	uint64_t response;
	uint64_t use; /* of all tasks so far, ppm of one CPU */
	/* periods of RM that differ; and whether EDF tasks stand between their ranks */
	uint32_t rm_periods;
	bool rm, edf;
};

/*
 * The tasks are read at every step, and do not change. cpus and capacity_ppm as rtxg_cpu_admit().
 */
void rtxg_admission_begin(struct rtxg_admission *admission, const struct rtxg_admit_task *tasks,
			  uint32_t count, uint32_t cpus, uint32_t capacity_ppm);
/*
 * One step, which looks at each task a few times at most. 1: there is more to do; else the answer
 * of rtxg_cpu_admit(), and its verdict.
 */
int rtxg_admission_step(struct rtxg_admission *admission, struct rtxg_admit_verdict *verdict);

/*
 * All steps at once. 0 if all can be guaranteed, -ENOSPC if not, -EINVAL for a task that makes no
 * sense. cpus: those online, at most tasks' numbers; capacity_ppm: of each CPU for all these tasks,
 * 1..1000000. Time grows with the square of count; each response time takes a bounded number of
 * steps, and one that is not found within them counts as too late.
 */
int rtxg_cpu_admit(const struct rtxg_admit_task *tasks, uint32_t count, uint32_t cpus,
		   uint32_t capacity_ppm, struct rtxg_admit_verdict *verdict);

#endif
