// SPDX-License-Identifier: MIT
/*
 * task.c - the options by which a task is described, the same in `run` and `set`: one job, seen
 * from the GPU and from the CPU.
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>

#include "cpu_policy.h"
#include "message.h"
#include "task.h"
#include "value.h"

int task_option(struct task_settings *task, int letter)
{
	long number;
	int ret;

	switch (letter) {
	case 'p':
		return value_number("--priority", optarg, 1, 99, &task->priority);
	case 'T':
		return value_duration("--runtime", optarg, &task->runtime_ns);
	case 'D':
		return value_duration("--deadline", optarg, &task->deadline_ns);
	case 'P':
		ret = value_duration("--period", optarg, &task->period_ns);
		if (ret == 0 && task->period_ns == 0) {
			message_error(
				"--period: '%s' is no period; leave the option out for a task "
				"without one",
				optarg);
			return -EINVAL;
		}
		return ret;
	case 'c':
		task->cpu.has_affinity = true;
		return value_cpus("--affinity", optarg, &task->cpu.affinity);
	case OPT_CPU_POLICY:
		task->cpu.has_policy = true;
		return cpu_policy_parse("--cpu-policy", optarg, &task->cpu.policy);
	case OPT_CPU_PRIORITY:
		ret = value_number("--cpu-priority", optarg, 1, 99, &number);
		task->cpu.priority = (int)number;
		return ret;
	case OPT_CPU_RUNTIME:
		return value_duration("--cpu-runtime", optarg, &task->cpu.runtime_ns);
	case OPT_CPU_WCET:
		return value_duration("--cpu-wcet", optarg, &task->cpu.wcet_ns);
	case OPT_CPU_HARD:
		task->cpu.hard = true;
		return 0;
	case OPT_CPU_PARTITION:
		task->cpu.partitioned = true;
		task->cpu.partition = -1;
		if (strcmp(optarg, "auto") == 0)
			return 0;
		ret = value_number("--cpu-partition", optarg, 0, CPU_SETSIZE - 1, &number);
		task->cpu.partition = (int)number;
		return ret;
	case OPT_CPU_THREADS:
		task->cpu.has_threads = true;
		task->cpu.first_thread = strcmp(optarg, "first") == 0;
		if (task->cpu.first_thread || strcmp(optarg, "all") == 0)
			return 0;
		message_error("--cpu-threads: '%s' is not accepted; accepted: all, first", optarg);
		return -EINVAL;
	}
	return 1;
}

int task_check(struct task_settings *task)
{
	uint64_t deadline = task->deadline_ns ? task->deadline_ns : task->period_ns;
	char a[32], b[32];

	if (task->runtime_ns && deadline && task->runtime_ns > deadline) {
		message_error("--runtime %s passes the %s, %s: it cannot end in time",
			      value_format_duration(task->runtime_ns, a, sizeof(a)),
			      task->deadline_ns ? "deadline" : "period",
			      value_format_duration(deadline, b, sizeof(b)));
		return -EINVAL;
	}
	/* One job: it is released, and has to be done, at the same times on both sides. */
	if (task->period_ns)
		task->cpu.period_ns = task->period_ns;
	if (task->deadline_ns)
		task->cpu.deadline_ns = task->deadline_ns;
	/* while it waits for the GPU it lets go of the CPU, and its job takes that much longer */
	if (task->runtime_ns && task->cpu.policy >= CPU_POLICY_MODULE)
		task->cpu.suspend_ns = task->runtime_ns;
	return cpu_policy_check(&task->cpu);
}
