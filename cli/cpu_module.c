// SPDX-License-Identifier: MIT
/*
 * cpu_module.c - CPU policies by the kernel module: attach, change, detach and look, through
 * RTXG_MODULE_DEVICE.
 *
 * May not: set a policy by the kernel's own system calls where the module refuses.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rtxg/control.h>
#include <rtxg/cpu.h>

#include "command.h"
#include "cpu_module.h"
#include "cpu_policy.h"
#include "cpu_why.h"
#include "message.h"

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
						 : CPU_POLICY_MODULE + (int)task->policy;
}

static struct rtxg_cpu_task module_task(pid_t pid, const struct cpu_settings *settings)
{
	bool deadline = settings->policy == SCHED_DEADLINE;
	struct rtxg_cpu_task task = {
		.size = sizeof(task),
		/* it lasts over execve, and ends with the process */
		.flags = RTXG_CPU_F_STAY,
		.pid = pid,
		.policy = deadline ? RTXG_CPU_DEADLINE
				   : (uint32_t)settings->policy - CPU_POLICY_MODULE,
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
	/* a limit that a program leaves by making another is none */
	if (settings->hard && task.flags & RTXG_CPU_F_PROCESS)
		task.flags |= RTXG_CPU_F_CHILDREN;
	if (settings->partitioned)
		task.flags |= RTXG_CPU_F_PARTITIONED;
	if (settings->partitioned && settings->partition >= 0) {
		task.flags |= RTXG_CPU_F_CPU;
		task.cpu = (uint32_t)settings->partition;
	}
	return task;
}

int cpu_module_apply(pid_t pid, const struct cpu_settings *settings, struct rtxg_cpu_task *before)
{
	struct rtxg_cpu_task task = module_task(pid, settings),
			     now = { .size = sizeof(now), .pid = pid };
	int fd = module_open(), ret = fd;
	struct rtxg_cpu_admission answer = { .size = sizeof(answer) };
	struct cpu_machine machine;
	char why[512];

	if (fd >= 0) {
		ret = module_call(fd, RTXG_IOC_CPU_GET, &now);
		if (ret)
			now.size = 0;
		if (!ret && settings->has_threads &&
		    (now.flags ^ task.flags) & RTXG_CPU_F_PROCESS) {
			message_error(
				"--cpu-threads cannot be changed while the module schedules the "
				"process; say "
				"--cpu-policy other first");
			close(fd);
			return -EINVAL;
		}
		if (!ret && now.flags & RTXG_CPU_F_PROCESS && task.policy == RTXG_CPU_DEADLINE) {
			message_error("--cpu-policy deadline is for one thread, and the module "
				      "schedules the whole process; "
				      "say "
				      "--cpu-policy other first");
			close(fd);
			return -EINVAL;
		}
		ret = module_call(fd, now.size ? RTXG_IOC_CPU_SET : RTXG_IOC_CPU_ATTACH, &task);
		if (ret == -ENOSPC) {
			answer.task = (uintptr_t)&task;
			if (module_call(fd, RTXG_IOC_CPU_ADMISSION, &answer))
				answer.test = RTXG_CPU_ADMITTED;
			cpu_why_not_admitted(&answer, why, sizeof(why));
		}
		close(fd);
	}
	if (before)
		*before = now;
	if (ret < 0) {
		if (ret != -ENOSPC) {
			cpu_why_look(&machine);
			cpu_why_module(settings, ret, &machine, why, sizeof(why));
		}
		message_error("--cpu-policy %s: %s", cpu_policy_name(settings->policy), why);
	}
	return ret < 0 ? ret : 0;
}

int cpu_module_put_back(const struct rtxg_cpu_task *before, bool attached)
{
	struct rtxg_cpu_task task = *before;
	int fd = module_open(), ret;

	if (fd < 0)
		return fd;
	if (!attached)
		task.flags |= RTXG_CPU_F_STAY;
	ret = module_call(fd, attached ? RTXG_IOC_CPU_SET : RTXG_IOC_CPU_ATTACH, &task);
	close(fd);
	return ret;
}

void cpu_module_detach(pid_t pid)
{
	struct rtxg_cpu_pid target = { .size = sizeof(target), .pid = pid };
	int fd = module_open();

	if (fd < 0)
		return;
	module_call(fd, RTXG_IOC_CPU_DETACH, &target);
	close(fd);
}

void cpu_module_inherit(pid_t pid, struct cpu_settings *settings)
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
