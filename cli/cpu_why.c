// SPDX-License-Identifier: MIT
/*
 * cpu_why.c - why the kernel or the module refuses a CPU policy, in words: the rule, its value on
 * this machine, and the remedy.
 *
 * May not: set a policy. The texts depend on their arguments alone, so a test can ask for each.
 */
#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rtxg/control.h>
#include <rtxg/cpu.h>

#include "cpu_policy.h"
#include "cpu_why.h"
#include "value.h"

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

/*
 * The cgroup of this process in the v1 cpu hierarchy, where CONFIG_RT_GROUP_SCHED keeps its
 * budgets; "" if there is none.
 */
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

void cpu_why_look(struct cpu_machine *machine)
{
	struct rlimit limit = { 0 };
	char file[PATH_MAX + 32];
	long long number;
	ssize_t length;

	memset(machine, 0, sizeof(*machine));
	if (read_number("/proc/sys/kernel/sched_rt_runtime_us", &number) == 0)
		machine->rt_runtime_us = number;
	if (read_number("/proc/sys/kernel/sched_rt_period_us", &number) == 0)
		machine->rt_period_us = number;
	if (read_number("/sys/module/rtxg/parameters/max_cpu_tasks", &number) == 0)
		machine->max_cpu_tasks = number;
	machine->may_nice = may_nice();
	getrlimit(RLIMIT_RTPRIO, &limit);
	machine->rtprio = limit.rlim_cur;
	length = readlink("/proc/self/exe", machine->program, sizeof(machine->program) - 1);
	if (length <= 0)
		snprintf(machine->program, sizeof(machine->program), "/usr/bin/rtxg");
	cpu_cgroup(machine->group, sizeof(machine->group));
	snprintf(file, sizeof(file), "%s/cpu.rt_runtime_us", machine->group);
	machine->group_without_budget =
		machine->group[0] && read_number(file, &number) == 0 && number == 0;
}

static void why_not_permitted(const struct cpu_settings *settings,
			      const struct cpu_machine *machine, char *why, size_t size)
{
	if (!machine->may_nice && cpu_policy_realtime(settings->policy))
		snprintf(why, size,
			 "not permitted: RLIMIT_RTPRIO is %llu here and priority %d was asked; run "
			 "as root, or put '@rtxg - rtprio 99' into "
			 "/etc/security/limits.d/rtxg.conf, join the group rtxg and log in again",
			 machine->rtprio, settings->priority);
	else if (!machine->may_nice)
		snprintf(why, size,
			 "not permitted: policy %s needs CAP_SYS_NICE; run as root, or 'setcap "
			 "cap_sys_nice+ep %s'",
			 cpu_policy_name(settings->policy), machine->program);
	else if (cpu_policy_realtime(settings->policy) && machine->group_without_budget)
		snprintf(why, size,
			 "this kernel gives real-time budgets to cgroups (RT_GROUP_SCHED) and %s "
			 "has none; write a runtime to %s/cpu.rt_runtime_us, or move the program "
			 "to a cgroup that has one ('echo PID > "
			 "/sys/fs/cgroup/cpu/cgroup.procs')",
			 machine->group, machine->group);
	else if (settings->policy == SCHED_DEADLINE)
		snprintf(why, size,
			 "the kernel accepts deadline tasks only if their affinity covers all CPUs "
			 "of their cpuset; this process is held to fewer ('taskset -p PID'), or "
			 "its cpuset is not a partition root");
	else
		snprintf(why, size,
			 "refused although CAP_SYS_NICE is there: a container's seccomp filter, or "
			 "a cgroup without real-time budget (RT_GROUP_SCHED); try outside of the "
			 "container");
}

void cpu_why_kernel(const struct cpu_settings *settings, int error,
		    const struct cpu_machine *machine, char *why, size_t size)
{
	double limit = machine->rt_period_us > 0 ? (double)machine->rt_runtime_us * 100.0 /
							   (double)machine->rt_period_us
						 : 100.0;

	switch (error) {
	case -EBUSY:
		snprintf(why, size,
			 "the kernel has no room for %.1f %% of a CPU: all deadline tasks together "
			 "may have %.0f %% of each CPU (kernel.sched_rt_runtime_us); ask for less, "
			 "or end others ('ps -eo pid,cls,comm | grep DLN')",
			 (double)settings->runtime_ns * 100.0 / (double)settings->period_ns, limit);
		return;
	case -ESRCH:
		snprintf(why, size, "the process has ended");
		return;
	case -EINVAL:
		snprintf(why, size,
			 "the kernel does not know this policy or does not accept these values; "
			 "'rtxg limits --max' and sched(7) name the ranges");
		return;
	case -EPERM:
		why_not_permitted(settings, machine, why, size);
		return;
	default:
		snprintf(why, size, "%s", strerror(-error));
	}
}

void cpu_why_module(const struct cpu_settings *settings, int error,
		    const struct cpu_machine *machine, char *why, size_t size)
{
	switch (error) {
	case -ENOENT:
	case -ENXIO:
	case -ENODEV:
		snprintf(why, size,
			 "the policy is the kernel module's, and %s is not there; load the module "
			 "('modprobe rtxg', or 'make kmod' and 'insmod build/kmod/kmod/rtxg.ko'), "
			 "or use fifo, rr or deadline, which every kernel has",
			 RTXG_MODULE_DEVICE);
		return;
	case -EACCES:
		snprintf(why, size,
			 "this user may not open %s; the module's parameter device_mode sets its "
			 "permissions",
			 RTXG_MODULE_DEVICE);
		return;
	case -EPERM:
		snprintf(why, size,
			 "not permitted: policy %s needs CAP_SYS_NICE; run as root, or 'setcap "
			 "cap_sys_nice+ep %s'",
			 cpu_policy_name(settings->policy), machine->program);
		return;
	case -EUSERS:
		snprintf(why, size,
			 "max_cpu_tasks (%lld) tasks are attached already; end one ('rtxg set -p "
			 "PID --cpu-policy other'), or load the module with a larger max_cpu_tasks "
			 "(at most 1024)",
			 machine->max_cpu_tasks);
		return;
	case -EOPNOTSUPP:
		snprintf(why, size,
			 "this kernel lets no module stop a thread (task_work_add is not "
			 "exported); leave --cpu-hard out, or use --cpu-policy deadline");
		return;
	case -ENOTTY:
		snprintf(why, size,
			 "the module that is loaded is older than this program; load the module of "
			 "version %s",
			 RTXG_VERSION);
		return;
	case -EINVAL:
		if (settings->partitioned && settings->partition >= 0) {
			snprintf(why, size,
				 "the module does not accept the values; is CPU %d there and "
				 "online? (/sys/devices/system/cpu/online)",
				 settings->partition);
			return;
		}
		break;
	}
	cpu_why_kernel(settings, error, machine, why, size);
}

void cpu_why_not_admitted(const struct rtxg_cpu_admission *answer, char *why, size_t size)
{
	double needed = (double)answer->needed / 1e6, there = (double)answer->there / 1e6;
	char a[32], b[32], who[64] = "this task", where[32] = "on all CPUs";
	int used = 0;

	if (answer->pid)
		snprintf(who, sizeof(who), "process %d", (int)answer->pid);
	if (answer->cpu >= 0)
		snprintf(where, sizeof(where), "on CPU %d", (int)answer->cpu);
	value_format_duration(answer->needed, a, sizeof(a));
	value_format_duration(answer->there, b, sizeof(b));
	switch (answer->test) {
	case RTXG_CPU_CAPACITY:
		used = snprintf(why, size,
				"no room: %s the tasks with deadlines would use %.3f CPUs, and "
				"%.3f are for them (module parameter cpu_capacity_ppm)",
				where, needed, there);
		break;
	case RTXG_CPU_DENSITY:
		used = snprintf(why, size,
				"deadlines would not be safe: %s the EDF tasks' density would be "
				"%.3f of %.3f",
				where, needed, there);
		break;
	case RTXG_CPU_RESPONSE:
		used = snprintf(why, size,
				"deadlines would not be safe: %s a job of %s might take %s, and "
				"its deadline is %s",
				where, who, a, b);
		break;
	case RTXG_CPU_WINDOW:
		used = snprintf(why, size,
				"deadlines would not be safe: others might take %s of the time of "
				"%s's job on its CPUs, and it can spare %s",
				a, who, b);
		break;
	case RTXG_CPU_UNKNOWN:
		snprintf(why, size,
			 "the module admits only tasks that say what they need; add --cpu-runtime "
			 "or --cpu-wcet (module parameter admission=2)");
		return;
	default:
		snprintf(why, size,
			 "the module's admission test refused the task, and would admit it by now; "
			 "try again");
		return;
	}
	if (used > 0 && (size_t)used < size)
		snprintf(why + used, size - (size_t)used,
			 "; ask for less, choose another CPU, or switch the test off: module "
			 "parameter admission=0");
}
