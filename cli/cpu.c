// SPDX-License-Identifier: MIT
/*
 * cpu.c - the CPU side of a task: policy, priority, affinity, budget. It asks the kernel, or the
 * kernel module, and where it is refused finds out which rule it was; it never works around one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rtxg/control.h>
#include <rtxg/cpu.h>

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
	{ "other", SCHED_OTHER },
	{ "fifo", SCHED_FIFO },
	{ "rr", SCHED_RR },
	{ "batch", SCHED_BATCH },
	{ "idle", SCHED_IDLE },
	{ "deadline", SCHED_DEADLINE },
	{ "fp", POLICY_MODULE + RTXG_CPU_FP },
	{ "rm", POLICY_MODULE + RTXG_CPU_RM },
	{ "edf", POLICY_MODULE + RTXG_CPU_EDF },
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
	complain("%s: '%s' is not a policy; accepted: fifo, rr, deadline, other, batch, idle, fp, "
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

static bool realtime(int policy)
{
	return policy == SCHED_FIFO || policy == SCHED_RR;
}

static bool module_there(void)
{
	return access(RTXG_MODULE_DEVICE, F_OK) == 0;
}

bool cpu_by_module(const struct cpu_settings *settings)
{
	/*
	 * deadline: any kernel has it; the module's is the same, but that it counts time on the GPU
	 * right
	 */
	return settings->has_policy && (settings->policy >= POLICY_MODULE ||
					(settings->policy == SCHED_DEADLINE && module_there()));
}

/* Of those policies that only the module has. */
static int check_module(struct cpu_settings *settings)
{
	const char *name = cpu_policy_name(settings->policy);
	bool fixed = settings->policy == POLICY_MODULE + RTXG_CPU_FP;
	char a[32], b[32];

	if (fixed && (settings->priority < 1 || settings->priority > (int)RTXG_CPU_PRIORITY_MAX)) {
		complain("--cpu-policy fp needs --cpu-priority 1..%u", RTXG_CPU_PRIORITY_MAX);
		return -EINVAL;
	}
	if (!fixed && settings->priority) {
		complain("--cpu-priority %d does not go with --cpu-policy %s, whose priorities "
			 "follow from the timing",
			 settings->priority, name);
		return -EINVAL;
	}
	if (!settings->period_ns && (!fixed || settings->runtime_ns)) {
		complain(fixed ? "--cpu-runtime needs --period: a budget is for each period"
			       : "--cpu-policy %s needs --period",
			 name);
		return -EINVAL;
	}
	if (settings->period_ns && (settings->period_ns < RTXG_CPU_PERIOD_MIN_NS ||
				    settings->period_ns > RTXG_CPU_PERIOD_MAX_NS)) {
		complain("--period %s is out of range: %s to %s",
			 format_duration(settings->period_ns, a, sizeof(a)), "100us", "60min");
		return -EINVAL;
	}
	if (settings->runtime_ns > settings->period_ns) {
		complain("--cpu-runtime %s passes --period %s",
			 format_duration(settings->runtime_ns, a, sizeof(a)),
			 format_duration(settings->period_ns, b, sizeof(b)));
		return -EINVAL;
	}
	if (settings->deadline_ns > settings->period_ns) {
		complain("--deadline %s passes --period %s",
			 format_duration(settings->deadline_ns, a, sizeof(a)),
			 format_duration(settings->period_ns, b, sizeof(b)));
		return -EINVAL;
	}
	if (settings->hard && !settings->runtime_ns) {
		complain("--cpu-hard goes with a budget: --cpu-runtime");
		return -EINVAL;
	}
	return 0;
}

int cpu_check(struct cpu_settings *settings)
{
	char a[32], b[32];

	if (settings->has_policy && settings->policy >= POLICY_MODULE)
		return check_module(settings);
	if (settings->hard || settings->wcet_ns || settings->has_threads) {
		complain("%s goes with --cpu-policy fp, rm or edf only",
			 settings->hard	     ? "--cpu-hard"
			 : settings->wcet_ns ? "--cpu-wcet"
					     : "--cpu-threads");
		return -EINVAL;
	}
	if (settings->partitioned && !cpu_by_module(settings)) {
		complain("--cpu-partition goes with --cpu-policy fp, rm, edf or deadline, and "
			 "needs the kernel module; "
			 "--affinity does it for others");
		return -EINVAL;
	}
	if (settings->has_policy && realtime(settings->policy)) {
		if (settings->priority == 0) {
			complain("--cpu-policy %s needs --cpu-priority 1..99",
				 cpu_policy_name(settings->policy));
			return -EINVAL;
		}
	} else if (settings->priority != 0) {
		complain("--cpu-priority %d goes with --cpu-policy fifo or rr only",
			 settings->priority);
		return -EINVAL;
	}
	if (!settings->has_policy || settings->policy != SCHED_DEADLINE) {
		if (settings->runtime_ns) {
			complain("--cpu-runtime goes with --cpu-policy deadline, fp, rm or edf "
				 "only");
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
		complain("--deadline %s passes --period %s, which the kernel's SCHED_DEADLINE does "
			 "not accept",
			 format_duration(settings->deadline_ns, a, sizeof(a)),
			 format_duration(settings->period_ns, b, sizeof(b)));
		return -EINVAL;
	}
	if (settings->has_affinity && !cpu_by_module(settings)) {
		/* EPERM from the kernel, with no hint at why. */
		complain("--affinity does not go with --cpu-policy deadline: the kernel moves such "
			 "tasks over all CPUs "
			 "of their "
			 "cpuset; use an exclusive cpuset (cgroup cpuset.cpus.partition) instead, "
			 "or load the kernel "
			 "module and say --cpu-partition");
		return -EINVAL;
	}
	return 0;
}

static int set_attributes(pid_t pid, const struct cpu_settings *settings)
{
	struct sched_attributes attributes = {
		.size = sizeof(attributes),
		.policy = (uint32_t)settings->policy,
		.nice = settings->nice,
	};

	if (realtime(settings->policy))
		attributes.priority = (uint32_t)settings->priority;
	if (settings->policy == SCHED_DEADLINE) {
		attributes.runtime = settings->runtime_ns;
		attributes.deadline = settings->deadline_ns;
		attributes.period = settings->period_ns;
		/*
		 * Without it the program could not create a thread: the kernel does not clone a
		 * deadline task.
		 */
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
			 "the kernel has no room for %.1f %% of a CPU: all deadline tasks together "
			 "may have %.0f %% of "
			 "each CPU "
			 "(kernel.sched_rt_runtime_us); ask for less, or end others ('ps -eo "
			 "pid,cls,comm | grep DLN')",
			 (double)settings->runtime_ns * 100.0 / (double)settings->period_ns,
			 period > 0 ? (double)runtime * 100.0 / (double)period : 100.0);
		return;
	case -ESRCH:
		snprintf(why, size, "the process is gone");
		return;
	case -EINVAL:
		snprintf(why, size,
			 "the kernel does not know this policy or does not accept these values");
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
				 "not permitted: RLIMIT_RTPRIO is %llu here and priority %d was "
				 "asked. Run as root, or "
				 "put "
				 "'@rtxg - rtprio 99' into /etc/security/limits.d/rtxg.conf, join "
				 "the group rtxg and "
				 "log in again",
				 (unsigned long long)limit.rlim_cur, settings->priority);
		else
			snprintf(why, size,
				 "not permitted: policy %s needs CAP_SYS_NICE; run as root, or "
				 "'setcap cap_sys_nice+ep'",
				 name);
		return;
	}
	cpu_cgroup(group, sizeof(group));
	snprintf(file, sizeof(file), "%s/cpu.rt_runtime_us", group);
	if (realtime(settings->policy) && group[0] && read_number(file, &runtime) == 0 &&
	    runtime == 0) {
		snprintf(why, size,
			 "this kernel gives real-time budgets to cgroups (RT_GROUP_SCHED) and %s "
			 "has none; write a "
			 "runtime "
			 "to %s, or move the program to a cgroup that has one ('echo PID > "
			 "/sys/fs/cgroup/cpu/cgroup.procs')",
			 group, file);
		return;
	}
	if (settings->policy == SCHED_DEADLINE)
		snprintf(why, size,
			 "the kernel accepts deadline tasks only if their affinity covers all CPUs "
			 "of their cpuset; "
			 "this process is "
			 "held to fewer ('taskset -p PID'), or its cpuset is not a partition root");
	else
		snprintf(why, size,
			 "refused although CAP_SYS_NICE is there: a container's seccomp filter, or "
			 "a cgroup without "
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
		complain("--affinity %s: none of these CPUs is there for this process (it has %ld "
			 "online; a cpuset may "
			 "allow fewer)",
			 asked, sysconf(_SC_NPROCESSORS_ONLN));
	else if (ret == -EPERM)
		complain("--affinity %s: process %d is another user's; only root may move it",
			 asked, (int)pid);
	else
		complain("--affinity %s: %s", asked, strerror(-ret));
	return ret;
}

/* ---- the kernel module ---- */

/* -ENOENT: it is not loaded. */
static int module_open(void)
{
	int fd = open(RTXG_MODULE_DEVICE, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int module_call(int fd, unsigned long command, void *argument)
{
	return ioctl(fd, command, argument) < 0 ? -errno : 0;
}

int cpu_module_read(pid_t pid, struct rtxg_cpu_task *task, struct rtxg_cpu_stats *stats)
{
	int fd = module_open(), ret;

	if (fd < 0)
		return fd;
	*task = (struct rtxg_cpu_task){ .size = sizeof(*task), .pid = pid };
	ret = module_call(fd, RTXG_IOC_CPU_GET, task);
	if (!ret && stats) {
		*stats = (struct rtxg_cpu_stats){ .size = sizeof(*stats), .pid = pid };
		ret = module_call(fd, RTXG_IOC_CPU_STATS, stats);
	}
	close(fd);
	return ret;
}

int cpu_module_policy(const struct rtxg_cpu_task *task)
{
	return task->policy == RTXG_CPU_DEADLINE ? SCHED_DEADLINE
						 : POLICY_MODULE + (int)task->policy;
}

static struct rtxg_cpu_task module_task(pid_t pid, const struct cpu_settings *settings)
{
	bool deadline = settings->policy == SCHED_DEADLINE;
	struct rtxg_cpu_task task = {
		.size = sizeof(task),
		/* it lasts over execve, and ends with the process */
		.flags = RTXG_CPU_F_STAY,
		.pid = pid,
		.policy = deadline ? RTXG_CPU_DEADLINE : (uint32_t)settings->policy - POLICY_MODULE,
		.priority = (uint32_t)settings->priority,
		.period_ns = settings->period_ns,
		.deadline_ns = settings->deadline_ns,
		.wcet_ns = settings->wcet_ns,
		.runtime_ns = settings->runtime_ns,
		.suspend_ns = settings->suspend_ns,
	};

	if (!deadline && settings->period_ns)
		task.flags |= RTXG_CPU_F_SERVER;
	if (!deadline && !settings->first_thread)
		task.flags |= RTXG_CPU_F_PROCESS;
	if (settings->hard)
		task.flags |= RTXG_CPU_F_HARD;
	if (settings->partitioned)
		task.flags |= RTXG_CPU_F_PARTITIONED;
	if (settings->partitioned && settings->partition >= 0) {
		task.flags |= RTXG_CPU_F_CPU;
		task.cpu = (uint32_t)settings->partition;
	}
	return task;
}

static void why_module_refused(const struct cpu_settings *settings, int error, char *why,
			       size_t size)
{
	switch (error) {
	case -ENOENT:
	case -ENXIO:
	case -ENODEV:
		snprintf(why, size,
			 "it is the kernel module's, and %s is not there; load it ('modprobe "
			 "rtxg', or 'make kmod' and "
			 "'insmod build/kmod/kmod/rtxg.ko'), or use fifo, rr or deadline, which "
			 "every kernel has",
			 RTXG_MODULE_DEVICE);
		return;
	case -EACCES:
		snprintf(why, size,
			 "%s may not be opened by this user; its permissions are the module's "
			 "parameter "
			 "device_mode",
			 RTXG_MODULE_DEVICE);
		return;
	case -EPERM:
		snprintf(why, size,
			 "not permitted: it needs CAP_SYS_NICE; run as root, or 'setcap "
			 "cap_sys_nice+ep'");
		return;
	case -EUSERS:
		snprintf(
			why, size,
			"the module schedules as many tasks as its parameter max_cpu_tasks allows");
		return;
	case -EOPNOTSUPP:
		snprintf(why, size,
			 "this kernel lets no module stop a thread (task_work_add is not "
			 "exported): leave --cpu-hard "
			 "out, or use --cpu-policy deadline");
		return;
	case -ENOTTY:
		snprintf(why, size,
			 "the module that is loaded is older than this program; load the one of "
			 "the same version");
		return;
	case -EINVAL:
		if (settings->partitioned && settings->partition >= 0) {
			snprintf(why, size,
				 "the values are not accepted; is CPU %d there and online?",
				 settings->partition);
			return;
		}
		break;
	}
	why_refused(settings, error, why, size);
}

/* The numbers of the module's admission test. */
static void why_not_admitted(int fd, struct rtxg_cpu_task *task, char *why, size_t size)
{
	struct rtxg_cpu_admission answer = { .size = sizeof(answer), .task = (uintptr_t)task };
	char a[32], b[32], who[64] = "this task", where[32] = "on all CPUs";
	double needed, there;
	int used = 0;

	if (module_call(fd, RTXG_IOC_CPU_ADMISSION, &answer))
		answer.test = RTXG_CPU_ADMITTED;
	needed = (double)answer.needed / 1e6;
	there = (double)answer.there / 1e6;
	if (answer.pid)
		snprintf(who, sizeof(who), "process %d", (int)answer.pid);
	if (answer.cpu >= 0)
		snprintf(where, sizeof(where), "on CPU %d", (int)answer.cpu);
	format_duration(answer.needed, a, sizeof(a));
	format_duration(answer.there, b, sizeof(b));
	switch (answer.test) {
	case RTXG_CPU_CAPACITY:
		used = snprintf(why, size,
				"no room: %s the tasks with deadlines would use %.3f CPUs, and "
				"%.3f are for them "
				"(module parameter cpu_capacity_ppm)",
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
				"%s's job on its CPUs, "
				"and it can spare %s",
				a, who, b);
		break;
	case RTXG_CPU_UNKNOWN:
		snprintf(why, size,
			 "the module admits only tasks that say what they need: add --cpu-runtime "
			 "or --cpu-wcet (module "
			 "parameter admission=2)");
		return;
	default:
		snprintf(why, size, "the module's admission test refused it; by now it would not");
		return;
	}
	if (used > 0 && (size_t)used < size)
		snprintf(why + used, size - (size_t)used,
			 "; ask for less, choose another CPU, or switch the test off: module "
			 "parameter admission=0");
}

/*
 * Attaches, or changes what is attached. before, if not NULL, receives what it was; before->size is
 * 0 if it was not.
 */
static int module_apply(pid_t pid, const struct cpu_settings *settings,
			struct rtxg_cpu_task *before)
{
	struct rtxg_cpu_task task = module_task(pid, settings),
			     now = { .size = sizeof(now), .pid = pid };
	int fd = module_open(), ret = fd;
	char why[512];

	if (fd >= 0) {
		ret = module_call(fd, RTXG_IOC_CPU_GET, &now);
		if (ret)
			now.size = 0;
		if (!ret && settings->has_threads &&
		    (now.flags ^ task.flags) & RTXG_CPU_F_PROCESS) {
			complain("--cpu-threads cannot be changed while the module schedules the "
				 "process; say "
				 "--cpu-policy other first");
			close(fd);
			return -EINVAL;
		}
		if (!ret && now.flags & RTXG_CPU_F_PROCESS && task.policy == RTXG_CPU_DEADLINE) {
			complain("--cpu-policy deadline is for one thread, and the module "
				 "schedules the whole process; "
				 "say "
				 "--cpu-policy other first");
			close(fd);
			return -EINVAL;
		}
		ret = module_call(fd, now.size ? RTXG_IOC_CPU_SET : RTXG_IOC_CPU_ATTACH, &task);
		if (ret == -ENOSPC)
			why_not_admitted(fd, &task, why, sizeof(why));
		close(fd);
	}
	if (before)
		*before = now;
	if (ret < 0) {
		if (ret != -ENOSPC)
			why_module_refused(settings, ret, why, sizeof(why));
		complain("--cpu-policy %s: %s", cpu_policy_name(settings->policy), why);
	}
	return ret < 0 ? ret : 0;
}

/* Ends what the module does with it, if it does. */
static void module_detach(pid_t pid)
{
	struct rtxg_cpu_pid target = { .size = sizeof(target), .pid = pid };
	int fd = module_open();

	if (fd < 0)
		return;
	module_call(fd, RTXG_IOC_CPU_DETACH, &target);
	close(fd);
}

void cpu_inherit(pid_t pid, struct cpu_settings *settings)
{
	struct rtxg_cpu_task now;

	if (settings->has_policy || cpu_module_read(pid, &now, NULL))
		return;
	settings->has_policy = true;
	settings->policy = cpu_module_policy(&now);
	if (!settings->priority && now.policy == RTXG_CPU_FP)
		settings->priority = (int)now.priority;
	if (!settings->runtime_ns)
		settings->runtime_ns = now.runtime_ns;
	if (!settings->wcet_ns)
		settings->wcet_ns = now.wcet_ns;
	if (!settings->suspend_ns)
		settings->suspend_ns = now.suspend_ns;
	settings->period_ns = now.period_ns;
	settings->deadline_ns = now.deadline_ns == now.period_ns ? 0 : now.deadline_ns;
	settings->hard |= !!(now.flags & RTXG_CPU_F_HARD);
	if (!settings->partitioned && now.flags & RTXG_CPU_F_PARTITIONED) {
		settings->partitioned = true;
		settings->partition = (int)now.cpu;
	}
	if (!settings->has_threads)
		settings->first_thread = !(now.flags & RTXG_CPU_F_PROCESS);
}

/* ---- applying ---- */

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
	if (cpu_by_module(settings))
		return module_apply(pid, settings, NULL);
	ret = set_attributes(pid, settings);
	if (ret) {
		why_refused(settings, ret, why, sizeof(why));
		complain("--cpu-policy %s: %s", cpu_policy_name(settings->policy), why);
	}
	return ret;
}

/* What threads had, to be put back. */
struct cpu_undo {
	pid_t pid;
	bool module;		     /* the module's side has changed ... */
	struct rtxg_cpu_task before; /* ... from this; size 0: it was not attached */
	size_t count, room;
	struct cpu_undo_thread {
		pid_t tid;
		struct cpu_settings before;
	} * threads;
};

static void restore_thread(const struct cpu_undo_thread *thread)
{
	if (thread->before.has_affinity)
		sched_setaffinity(thread->tid, sizeof(thread->before.affinity),
				  &thread->before.affinity);
	if (thread->before.has_policy)
		set_attributes(thread->tid, &thread->before);
}

void cpu_undo(struct cpu_undo *undo, bool back)
{
	if (!undo)
		return;
	if (back && undo->module && !undo->before.size)
		module_detach(undo->pid);
	/* affinities, and policies that the module does not know */
	for (size_t i = 0; back && i < undo->count; i++)
		restore_thread(&undo->threads[i]);
	if (back && undo->before.size) {
		int fd = module_open();

		if (!undo->module)
			undo->before.flags |= RTXG_CPU_F_STAY;
		if (fd >= 0) {
			module_call(fd, undo->module ? RTXG_IOC_CPU_SET : RTXG_IOC_CPU_ATTACH,
				    &undo->before);
			close(fd);
		}
	}
	free(undo->threads);
	free(undo);
}

/* by_module: what the kernel says of its policy is the module's doing, and put back by it. */
static int remember(struct cpu_undo *undo, pid_t tid, bool by_module)
{
	if (undo->count == undo->room) {
		size_t room = undo->room ? 2 * undo->room : 16;
		struct cpu_undo_thread *more = realloc(undo->threads, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		undo->threads = more;
		undo->room = room;
	}
	undo->threads[undo->count].tid = tid;
	/* one that has ended needs nothing */
	undo->count += cpu_read(tid, &undo->threads[undo->count].before) == 0;
	if (undo->count && by_module)
		undo->threads[undo->count - 1].before.has_policy = false;
	return 0;
}

/*
 * Every thread that the process has when we look. One that comes meanwhile inherits from one that
 * we have changed.
 */
static int apply_to_threads(pid_t pid, const struct cpu_settings *settings, struct cpu_undo *undo,
			    bool by_module)
{
	char path[64];
	struct dirent *entry;
	DIR *directory;
	int ret = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	directory = opendir(path);
	if (!directory)
		return -ESRCH;
	while (!ret && (entry = readdir(directory))) {
		pid_t thread = atoi(entry->d_name);

		if (thread <= 0)
			continue;
		ret = remember(undo, thread, by_module);
		if (!ret)
			ret = cpu_apply(thread, settings);
	}
	closedir(directory);
	return ret;
}

int cpu_apply_process(pid_t pid, const struct cpu_settings *settings, struct cpu_undo **result)
{
	struct cpu_settings affinity = { .has_affinity = settings->has_affinity,
					 .affinity = settings->affinity };
	struct cpu_undo *undo = calloc(1, sizeof(*undo));
	struct rtxg_cpu_task now;
	int ret = 0;

	*result = NULL;
	if (!undo)
		return -ENOMEM;
	undo->pid = pid;
	if (cpu_by_module(settings)) {
		if (settings->has_affinity)
			ret = apply_to_threads(pid, &affinity, undo, true);
		if (!ret) {
			ret = module_apply(pid, settings, &undo->before);
			undo->module = !ret;
		}
	} else {
		if (settings->has_policy && !cpu_module_read(pid, &now, NULL)) {
			undo->before = now;
			module_detach(pid);
		}
		/* a reservation of one thread */
		if (settings->has_policy && settings->policy == SCHED_DEADLINE)
			ret = remember(undo, pid, false) ?: cpu_apply(pid, settings);
		else if (settings->has_policy || settings->has_affinity)
			ret = apply_to_threads(pid, settings, undo, false);
	}
	if (ret) {
		cpu_undo(undo, true);
		return ret;
	}
	*result = undo;
	return 0;
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
	settings->nice = attributes.nice;
	settings->runtime_ns = attributes.runtime;
	settings->deadline_ns = attributes.deadline;
	settings->period_ns = attributes.period;
	settings->has_affinity =
		sched_getaffinity(pid, sizeof(settings->affinity), &settings->affinity) == 0;
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
