/* SPDX-License-Identifier: MIT */
/*
 * cpu_policy.h - what is asked of the CPU for a program: a policy and its values.
 */
#ifndef RTXG_CLI_CPU_POLICY_H
#define RTXG_CLI_CPU_POLICY_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef SCHED_DEADLINE
#define SCHED_DEADLINE 6
#endif

/* Policies that only the kernel module has: CPU_POLICY_MODULE + enum rtxg_cpu_policy. */
#define CPU_POLICY_MODULE 1000

struct cpu_settings {
	bool has_policy;
	int policy;	      /* SCHED_* or CPU_POLICY_MODULE + enum rtxg_cpu_policy */
	int priority;	      /* fifo, rr: 1..99; fp: 1..97 */
	int nice;	      /* as read */
	uint64_t runtime_ns;  /* deadline: per period; fp, rm, edf: budget per period */
	uint64_t deadline_ns; /* relative to the release */
	uint64_t period_ns;   /* between releases */
	uint64_t wcet_ns;     /* CPU time of a job at most, for admission */
	uint64_t suspend_ns;  /* time of a job on the GPU, for admission */
	bool hard;	      /* stops when the budget is used up */
	bool partitioned;     /* stays on one CPU */
	int partition;	      /* which CPU; -1: the least loaded */
	bool has_threads;     /* first_thread was given */
	bool first_thread;    /* the first thread alone is the task */
	bool has_affinity;
	cpu_set_t affinity;
};

/* The policy of that name. -EINVAL after complaining. */
int cpu_policy_parse(const char *option, const char *text, int *policy);
const char *cpu_policy_name(int policy);
/* SCHED_FIFO and SCHED_RR: policies with a priority of the kernel. */
bool cpu_policy_realtime(int policy);
/* Whether the policy is set through the module, and so for the whole task at once. */
bool cpu_policy_by_module(const struct cpu_settings *settings);
/* Whether the values fit together. Completes them. -EINVAL after complaining. */
int cpu_policy_check(struct cpu_settings *settings);

#endif
