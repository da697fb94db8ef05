// SPDX-License-Identifier: MIT
/*
 * cpu.c - the CPU side of a task: policy, priority, affinity. It asks the kernel and, where the kernel refuses, finds out
 * which of its rules it was; it never works around one.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

#ifndef SCHED_DEADLINE
#define SCHED_DEADLINE 6
#endif
#define FLAG_RESET_ON_FORK 1ull /* SCHED_FLAG_RESET_ON_FORK */

/* As the kernel has it (version 0); the C library's own differs from release to release. */
struct sched_attributes {
	uint32_t size;
	uint32_t policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

_Static_assert(sizeof(struct sched_attributes) == 48, "SCHED_ATTR_SIZE_VER0 of the kernel");

static const struct {
	const char *name;
	int policy;
} policies[] = {
	{ "other", SCHED_OTHER }, { "fifo", SCHED_FIFO }, { "rr", SCHED_RR },
	{ "batch", SCHED_BATCH }, { "idle", SCHED_IDLE }, { "deadline", SCHED_DEADLINE },
};

int parse_cpu_policy(const char *option, const char *text, int *policy)
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
	complain("%s: '%s' is not a policy; accepted: fifo, rr, deadline, other, batch, idle", option, text);
	return -EINVAL;
}

const char *cpu_policy_name(int policy)
{
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
		if (policies[i].policy == policy)
			return policies[i].name;
	return "unknown";
}

static bool realtime(int policy)
{
	return policy == SCHED_FIFO || policy == SCHED_RR;
}

int cpu_check(struct cpu_settings *settings)
{
	char a[32], b[32];

	if (settings->has_policy && realtime(settings->policy)) {
		if (settings->priority == 0) {
			complain("--cpu-policy %s needs --cpu-priority 1..99", cpu_policy_name(settings->policy));
			return -EINVAL;
		}
	} else if (settings->priority != 0) {
		complain("--cpu-priority %d goes with --cpu-policy fifo or rr only", settings->priority);
		return -EINVAL;
	}
	if (!settings->has_policy || settings->policy != SCHED_DEADLINE) {
		if (settings->runtime_ns) {
			complain("--cpu-runtime goes with --cpu-policy deadline only");
			return -EINVAL;
		}
		return 0;
	}
	if (settings->runtime_ns == 0 || settings->period_ns == 0) {
		complain("--cpu-policy deadline needs --cpu-runtime and --period");
		return -EINVAL;
	}
	if (settings->deadline_ns == 0)
		settings->deadline_ns = settings->period_ns;
	if (settings->runtime_ns < 1024) {
		complain("--cpu-runtime: %s is too short: the kernel accepts 1024 ns and more",
			 format_duration(settings->runtime_ns, a, sizeof(a)));
		return -EINVAL;
	}
	if (settings->runtime_ns > settings->deadline_ns) {
		complain("--cpu-runtime %s passes the deadline, %s: it cannot end in time",
			 format_duration(settings->runtime_ns, a, sizeof(a)),
			 format_duration(settings->deadline_ns, b, sizeof(b)));
		return -EINVAL;
	}
	if (settings->deadline_ns > settings->period_ns) {
		complain("--deadline %s passes --period %s, which the kernel's SCHED_DEADLINE does not accept",
			 format_duration(settings->deadline_ns, a, sizeof(a)),
			 format_duration(settings->period_ns, b, sizeof(b)));
		return -EINVAL;
	}
	if (settings->has_affinity) {
		/* EPERM from the kernel, with no hint at why. */
		complain("--affinity does not go with --cpu-policy deadline: the kernel moves such tasks over all CPUs "
			 "of their "
			 "cpuset; use an exclusive cpuset (cgroup cpuset.cpus.partition) instead");
		return -EINVAL;
	}
	return 0;
}

static int set_attributes(pid_t pid, const struct cpu_settings *settings)
{
	struct sched_attributes attributes = {
		.size = sizeof(attributes),
		.policy = (uint32_t)settings->policy,
	};

	if (realtime(settings->policy))
		attributes.priority = (uint32_t)settings->priority;
	if (settings->policy == SCHED_DEADLINE) {
		attributes.runtime = settings->runtime_ns;
		attributes.deadline = settings->deadline_ns;
		attributes.period = settings->period_ns;
		/* Without it the program could not create a thread: the kernel does not clone a deadline task. */
		attributes.flags = FLAG_RESET_ON_FORK;
	}
	return syscall(SYS_sched_setattr, pid, &attributes, 0) == 0 ? 0 : -errno;
}

/* A single number from a file of /proc or /sys. */
static int read_number(const char *path, long long *value)
{
	FILE *file = fopen(path, "re");
	int got;

	if (!file)
		return -errno;
	got = fscanf(file, "%lld", value);
	fclose(file);
	return got == 1 ? 0 : -EINVAL;
}

static bool may_nice(void)
{
	char line[256];
	unsigned long long effective = 0;
	FILE *file = fopen("/proc/self/status", "re");

	if (!file)
		return false;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	fclose(file);
	return effective >> CAP_SYS_NICE & 1;
}

/* The cgroup of this process in the v1 cpu hierarchy, where CONFIG_RT_GROUP_SCHED keeps its budgets; "" if there is none. */
static void cpu_cgroup(char *path, size_t size)
{
	char line[PATH_MAX];
	FILE *file = fopen("/proc/self/cgroup", "re");

	path[0] = '\0';
	while (file && fgets(line, sizeof(line), file)) {
		char *controllers = strchr(line, ':'), *name;

		if (!controllers || !(name = strchr(++controllers, ':')))
			continue;
		*name++ = '\0';
		name[strcspn(name, "\n")] = '\0';
		for (char *rest = controllers, *word; (word = strsep(&rest, ","));) {
			if (strcmp(word, "cpu") == 0)
				snprintf(path, size, "/sys/fs/cgroup/cpu%s", name);
		}
	}
	if (file)
		fclose(file);
}

static void why_refused(const struct cpu_settings *settings, int error, char *why, size_t size)
{
	const char *name = cpu_policy_name(settings->policy);
	struct rlimit limit = { 0 };
	char group[PATH_MAX], file[PATH_MAX + 32];
	long long runtime = 0, period = 0;

	switch (error) {
	case -EBUSY:
		read_number("/proc/sys/kernel/sched_rt_runtime_us", &runtime);
		read_number("/proc/sys/kernel/sched_rt_period_us", &period);
		snprintf(why, size,
			 "the kernel has no room for %.1f %% of a CPU: all deadline tasks together may have %.0f %% of "
			 "each CPU "
			 "(kernel.sched_rt_runtime_us); ask for less, or end others ('ps -eo pid,cls,comm | grep DLN')",
			 (double)settings->runtime_ns * 100.0 / (double)settings->period_ns,
			 period > 0 ? (double)runtime * 100.0 / (double)period : 100.0);
		return;
	case -ESRCH:
		snprintf(why, size, "the process is gone");
		return;
	case -EINVAL:
		snprintf(why, size, "the kernel does not know this policy or does not accept these values");
		return;
	case -EPERM:
		break;
	default:
		snprintf(why, size, "%s", strerror(-error));
		return;
	}
	if (!may_nice()) {
		getrlimit(RLIMIT_RTPRIO, &limit);
		if (realtime(settings->policy))
			snprintf(why, size,
				 "not permitted: RLIMIT_RTPRIO is %llu here and priority %d was asked. Run as root, or "
				 "put "
				 "'@rtxg - rtprio 99' into /etc/security/limits.d/rtxg.conf, join the group rtxg and "
				 "log in again",
				 (unsigned long long)limit.rlim_cur, settings->priority);
		else
			snprintf(
				why, size,
				"not permitted: policy %s needs CAP_SYS_NICE; run as root, or 'setcap cap_sys_nice+ep'",
				name);
		return;
	}
	cpu_cgroup(group, sizeof(group));
	snprintf(file, sizeof(file), "%s/cpu.rt_runtime_us", group);
	if (realtime(settings->policy) && group[0] && read_number(file, &runtime) == 0 && runtime == 0) {
		snprintf(why, size,
			 "this kernel gives real-time budgets to cgroups (RT_GROUP_SCHED) and %s has none; write a "
			 "runtime "
			 "to %s, or move the program to a cgroup that has one ('echo PID > "
			 "/sys/fs/cgroup/cpu/cgroup.procs')",
			 group, file);
		return;
	}
	if (settings->policy == SCHED_DEADLINE)
		snprintf(why, size,
			 "the kernel accepts deadline tasks only if their affinity covers all CPUs of their cpuset; "
			 "this process is "
			 "held to fewer ('taskset -p PID'), or its cpuset is not a partition root");
	else
		snprintf(why, size,
			 "refused although CAP_SYS_NICE is there: a container's seccomp filter, or a cgroup without "
			 "real-time budget (RT_GROUP_SCHED); try outside of the container");
}

static int apply_affinity(pid_t pid, const cpu_set_t *affinity)
{
	char asked[256];
	int ret;

	if (sched_setaffinity(pid, sizeof(*affinity), affinity) == 0)
		return 0;
	ret = -errno;
	format_cpus(affinity, asked, sizeof(asked));
	if (ret == -EINVAL)
		complain("--affinity %s: none of these CPUs is there for this process (it has %ld online; a cpuset may "
			 "allow fewer)",
			 asked, sysconf(_SC_NPROCESSORS_ONLN));
	else if (ret == -EPERM)
		complain("--affinity %s: process %d is another user's; only root may move it", asked, (int)pid);
	else
		complain("--affinity %s: %s", asked, strerror(-ret));
	return ret;
}

int cpu_apply(pid_t pid, const struct cpu_settings *settings)
{
	char why[512];
	int ret;

	if (settings->has_affinity) {
		ret = apply_affinity(pid, &settings->affinity);
		if (ret)
			return ret;
	}
	if (!settings->has_policy)
		return 0;
	ret = set_attributes(pid, settings);
	if (ret) {
		why_refused(settings, ret, why, sizeof(why));
		complain("--cpu-policy %s: %s", cpu_policy_name(settings->policy), why);
	}
	return ret;
}

int cpu_read(pid_t pid, struct cpu_settings *settings)
{
	struct sched_attributes attributes = { 0 };

	memset(settings, 0, sizeof(*settings));
	if (syscall(SYS_sched_getattr, pid, &attributes, (unsigned int)sizeof(attributes), 0))
		return -errno;
	settings->has_policy = true;
	settings->policy = (int)attributes.policy;
	settings->priority = (int)attributes.priority;
	settings->runtime_ns = attributes.runtime;
	settings->deadline_ns = attributes.deadline;
	settings->period_ns = attributes.period;
	settings->has_affinity = sched_getaffinity(pid, sizeof(settings->affinity), &settings->affinity) == 0;
	return 0;
}

int cpu_probe(int policy, char *why, size_t size)
{
	struct cpu_settings settings = {
		.has_policy = true,
		.policy = policy,
		.priority = realtime(policy) ? 1 : 0,
		.runtime_ns = 100000,
		.deadline_ns = 100000000,
		.period_ns = 100000000,
	};
	int status, ret;
	pid_t child = fork();

	if (child < 0)
		return -errno;
	if (child == 0)
		_exit(-set_attributes(0, &settings));
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	ret = WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
	if (ret)
		why_refused(&settings, ret, why, size);
	return ret;
}
