// SPDX-License-Identifier: MIT
/*
 * cpu_policy.c - CPU policies by name, and whether the values given with one fit together.
 *
 * May not: ask the kernel for a policy; it judges the command line alone.
 */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <rtxg/control.h>
#include <rtxg/cpu.h>

#include "cpu_policy.h"
#include "message.h"
#include "value.h"

static const struct {
	const char *name;
	int policy;
} policies[] = {
	{ "other", SCHED_OTHER },
	{ "fifo", SCHED_FIFO },
	{ "rr", SCHED_RR },
	{ "batch", SCHED_BATCH },
	{ "idle", SCHED_IDLE },
	{ "deadline", SCHED_DEADLINE },
	{ "fp", CPU_POLICY_MODULE + RTXG_CPU_FP },
	{ "rm", CPU_POLICY_MODULE + RTXG_CPU_RM },
	{ "edf", CPU_POLICY_MODULE + RTXG_CPU_EDF },
};

int cpu_policy_parse(const char *option, const char *text, int *policy)
{
	const char *prefix = "SCHED_";

	if (strncasecmp(text, prefix, strlen(prefix)) == 0)
		text += strlen(prefix);
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		if (strcasecmp(policies[i].name, text) == 0) {
			*policy = policies[i].policy;
			return 0;
		}
	}
	message_error(
		"%s: '%s' is not a policy; accepted: fifo, rr, deadline, other, batch, idle, fp, "
		"rm, edf",
		option, text);
	return -EINVAL;
}

const char *cpu_policy_name(int policy)
{
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
		if (policies[i].policy == policy)
			return policies[i].name;
	return "unknown";
}

bool cpu_policy_realtime(int policy)
{
	return policy == SCHED_FIFO || policy == SCHED_RR;
}

bool cpu_policy_by_module(const struct cpu_settings *settings)
{
	/*
	 * Every kernel has SCHED_DEADLINE. The module's version is the same, except that it counts
	 * the time that a task waits for the GPU.
	 */
	return settings->has_policy &&
	       (settings->policy >= CPU_POLICY_MODULE ||
		(settings->policy == SCHED_DEADLINE && access(RTXG_MODULE_DEVICE, F_OK) == 0));
}

/* Of those policies that only the module has. */
static int check_module(struct cpu_settings *settings)
{
	const char *name = cpu_policy_name(settings->policy);
	bool fixed = settings->policy == CPU_POLICY_MODULE + RTXG_CPU_FP;
	char a[32], b[32];

	if (fixed && (settings->priority < 1 || settings->priority > (int)RTXG_CPU_PRIORITY_MAX)) {
		message_error("--cpu-policy fp needs --cpu-priority 1..%u", RTXG_CPU_PRIORITY_MAX);
		return -EINVAL;
	}
	if (!fixed && settings->priority) {
		message_error(
			"--cpu-priority %d does not go with --cpu-policy %s, whose priorities "
			"follow from the timing",
			settings->priority, name);
		return -EINVAL;
	}
	if (!settings->period_ns && (!fixed || settings->runtime_ns)) {
		message_error(fixed ? "--cpu-runtime needs --period: a budget is for each period"
				    : "--cpu-policy %s needs --period",
			      name);
		return -EINVAL;
	}
	if (settings->period_ns && (settings->period_ns < RTXG_CPU_PERIOD_MIN_NS ||
				    settings->period_ns > RTXG_CPU_PERIOD_MAX_NS)) {
		message_error("--period %s is out of range: %s to %s",
			      value_format_duration(settings->period_ns, a, sizeof(a)), "100us",
			      "60min");
		return -EINVAL;
	}
	if (settings->runtime_ns > settings->period_ns) {
		message_error("--cpu-runtime %s passes --period %s",
			      value_format_duration(settings->runtime_ns, a, sizeof(a)),
			      value_format_duration(settings->period_ns, b, sizeof(b)));
		return -EINVAL;
	}
	if (settings->deadline_ns > settings->period_ns) {
		message_error("--deadline %s passes --period %s",
			      value_format_duration(settings->deadline_ns, a, sizeof(a)),
			      value_format_duration(settings->period_ns, b, sizeof(b)));
		return -EINVAL;
	}
	if (settings->hard && !settings->runtime_ns) {
		message_error("--cpu-hard goes with a budget: --cpu-runtime");
		return -EINVAL;
	}
	return 0;
}

int cpu_policy_check(struct cpu_settings *settings)
{
	char a[32], b[32];

	if (settings->has_policy && settings->policy >= CPU_POLICY_MODULE)
		return check_module(settings);
	if (settings->hard || settings->wcet_ns || settings->has_threads) {
		message_error("%s goes with --cpu-policy fp, rm or edf only",
			      settings->hard	  ? "--cpu-hard"
			      : settings->wcet_ns ? "--cpu-wcet"
						  : "--cpu-threads");
		return -EINVAL;
	}
	if (settings->partitioned && !cpu_policy_by_module(settings)) {
		message_error("--cpu-partition goes with --cpu-policy fp, rm, edf or deadline, and "
			      "needs the kernel module; "
			      "--affinity does it for others");
		return -EINVAL;
	}
	if (settings->has_policy && cpu_policy_realtime(settings->policy)) {
		if (settings->priority == 0) {
			message_error("--cpu-policy %s needs --cpu-priority 1..99",
				      cpu_policy_name(settings->policy));
			return -EINVAL;
		}
	} else if (settings->priority != 0) {
		message_error("--cpu-priority %d goes with --cpu-policy fifo or rr only",
			      settings->priority);
		return -EINVAL;
	}
	if (!settings->has_policy || settings->policy != SCHED_DEADLINE) {
		if (settings->runtime_ns) {
			message_error(
				"--cpu-runtime goes with --cpu-policy deadline, fp, rm or edf "
				"only");
			return -EINVAL;
		}
		return 0;
	}
	if (settings->runtime_ns == 0 || settings->period_ns == 0) {
		message_error("--cpu-policy deadline needs --cpu-runtime and --period");
		return -EINVAL;
	}
	if (settings->deadline_ns == 0)
		settings->deadline_ns = settings->period_ns;
	if (settings->runtime_ns < 1024) {
		message_error("--cpu-runtime: %s is too short: the kernel accepts 1024 ns and more",
			      value_format_duration(settings->runtime_ns, a, sizeof(a)));
		return -EINVAL;
	}
	if (settings->runtime_ns > settings->deadline_ns) {
		message_error("--cpu-runtime %s passes the deadline, %s: it cannot end in time",
			      value_format_duration(settings->runtime_ns, a, sizeof(a)),
			      value_format_duration(settings->deadline_ns, b, sizeof(b)));
		return -EINVAL;
	}
	if (settings->deadline_ns > settings->period_ns) {
		message_error(
			"--deadline %s passes --period %s, which the kernel's SCHED_DEADLINE does "
			"not accept",
			value_format_duration(settings->deadline_ns, a, sizeof(a)),
			value_format_duration(settings->period_ns, b, sizeof(b)));
		return -EINVAL;
	}
	if (settings->has_affinity && !cpu_policy_by_module(settings)) {
		/* EPERM from the kernel, with no hint at why. */
		message_error(
			"--affinity does not go with --cpu-policy deadline: the kernel moves such "
			"tasks over all CPUs "
			"of their "
			"cpuset; use an exclusive cpuset (cgroup cpuset.cpus.partition) instead, "
			"or load the kernel "
			"module and say --cpu-partition");
		return -EINVAL;
	}
	return 0;
}
