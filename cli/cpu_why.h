/* SPDX-License-Identifier: MIT */
/*
 * cpu_why.h - why a CPU policy is refused, in words.
 */
#ifndef RTXG_CLI_CPU_WHY_H
#define RTXG_CLI_CPU_WHY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "cpu_policy.h"

struct rtxg_cpu_admission;

/* What of this machine and this process decides about CPU policies. */
struct cpu_machine {
	long long rt_runtime_us;   /* kernel.sched_rt_runtime_us; 0: could not be read */
	long long rt_period_us;	   /* kernel.sched_rt_period_us; 0: could not be read */
	long long max_cpu_tasks;   /* the module's parameter; 0: it is not loaded */
	unsigned long long rtprio; /* RLIMIT_RTPRIO */
	bool may_nice;		   /* CAP_SYS_NICE is effective */
	bool group_without_budget; /* RT_GROUP_SCHED, and the cgroup's budget is 0 */
	char group[PATH_MAX];	   /* folder of the cgroup (v1, cpu); "" if there is none */
	char program[PATH_MAX];	   /* this program, for setcap */
};

void cpu_why_look(struct cpu_machine *machine);
/* The reason for the kernel's refusal, a negative errno. */
void cpu_why_kernel(const struct cpu_settings *settings, int error,
		    const struct cpu_machine *machine, char *why, size_t size);
/* The reason for the module's refusal. */
void cpu_why_module(const struct cpu_settings *settings, int error,
		    const struct cpu_machine *machine, char *why, size_t size);
/* The numbers of the module's admission test. */
void cpu_why_not_admitted(const struct rtxg_cpu_admission *answer, char *why, size_t size);

#endif
