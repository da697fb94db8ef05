// SPDX-License-Identifier: MIT
/*
 * get.c - `rtxg get`: what processes have, on the GPU's side (from the host) and on the CPU's (from
 * the kernel, or the kernel module).
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rtxg/cpu.h>

#include "commands.h"
#include "control.h"
#include "cpu_kernel.h"
#include "cpu_module.h"
#include "cpu_policy.h"
#include "list.h"
#include "message.h"
#include "proc.h"
#include "reply.h"
#include "value.h"

static const struct option options[] = { { "pid", required_argument, NULL, 'p' },
					 LIST_OPTIONS,
					 { 0 } };

static const struct column columns[] = {
	{ "PID", "pid", COLUMN_DEFAULT | COLUMN_RIGHT, "process" },
	{ "COMMAND", "command", COLUMN_DEFAULT, "its name" },
	{ "VGPU", "vgpu", COLUMN_DEFAULT, "vGPU of the task; - for a process without one" },
	{ "GPU", "gpu", COLUMN_DEFAULT, "GPU of the task" },
	{ "PRIO", "priority", COLUMN_DEFAULT | COLUMN_RIGHT, "priority inside the vGPU" },
	{ "RUNTIME", "runtime_seconds", COLUMN_RIGHT, "GPU time of a job (JSON: seconds)" },
	{ "DEADLINE", "deadline_seconds", COLUMN_RIGHT, "relative (JSON: seconds)" },
	{ "PERIOD", "period_seconds", COLUMN_RIGHT, "of its jobs (JSON: seconds)" },
	{ "LATENCY", "latency_seconds", COLUMN_RIGHT,
	  "bound on its waiting, of its vGPU (JSON: seconds)" },
	{ "MEM", "memory_bytes", COLUMN_RIGHT,
	  "GPU memory in use; - where the host cannot see it (JSON: bytes)" },
	{ "CPUPOLICY", "cpu_policy", COLUMN_DEFAULT, "of its first thread" },
	{ "CPUPRIO", "cpu_priority", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "of fifo, rr, fp, rm and edf, now" },
	{ "CPURUNTIME", "cpu_runtime_seconds", COLUMN_RIGHT,
	  "of deadline; budget of fp, rm, edf (JSON: seconds)" },
	{ "CPUDEADLINE", "cpu_deadline_seconds", COLUMN_RIGHT,
	  "of deadline, fp, rm, edf (JSON: seconds)" },
	{ "CPUPERIOD", "cpu_period_seconds", COLUMN_RIGHT,
	  "of deadline, fp, rm, edf (JSON: seconds)" },
	{ "CPUHARD", "cpu_hard", COLUMN_BOOL,
	  "by the module: whether it stops when its budget is used up" },
	{ "CPUTHREADS", "cpu_threads", COLUMN_RIGHT,
	  "by the module: threads that share priority and budget" },
	{ "CPULEFT", "cpu_budget_left_seconds", COLUMN_RIGHT,
	  "by the module: left of the budget (JSON: seconds)" },
	{ "CPUUSED", "cpu_used_seconds", COLUMN_RIGHT,
	  "by the module: CPU time since then (JSON: seconds)" },
	{ "THROTTLED", "cpu_throttled", COLUMN_RIGHT,
	  "by the module: times that the budget was used up" },
	{ "JOBS", "cpu_jobs", COLUMN_RIGHT, "by the module: jobs that the program released" },
	{ "MISSES", "cpu_misses", COLUMN_RIGHT, "by the module: of them, deadlines missed" },
	{ "AFFINITY", "affinity", COLUMN_DEFAULT, "CPUs that it may run on" },
	{ 0 },
};

/* What the kernel module knows of it; false if it does not schedule it. */
static bool add_module(struct list *list, pid_t pid)
{
	struct rtxg_cpu_stats stats;
	struct rtxg_cpu_task task;

	if (cpu_module_read(pid, &task, &stats))
		return false;
	list_text(list, "CPUPOLICY", cpu_policy_name(cpu_module_policy(&task)));
	list_format(list, "CPUPRIO", "%u", stats.priority);
	if (task.runtime_ns)
		list_duration(list, "CPURUNTIME", task.runtime_ns);
	if (task.period_ns) {
		list_duration(list, "CPUDEADLINE", task.deadline_ns);
		list_duration(list, "CPUPERIOD", task.period_ns);
	}
	list_bool(list, "CPUHARD",
		  task.flags & RTXG_CPU_F_HARD || task.policy == RTXG_CPU_DEADLINE);
	list_format(list, "CPUTHREADS", "%u", task.threads);
	if (task.runtime_ns && task.policy != RTXG_CPU_DEADLINE)
		list_duration(list, "CPULEFT", stats.budget_ns > 0 ? (uint64_t)stats.budget_ns : 0);
	list_duration(list, "CPUUSED", stats.exec_ns);
	list_format(list, "THROTTLED", "%llu", (unsigned long long)stats.throttles);
	list_format(list, "JOBS", "%llu", (unsigned long long)stats.jobs);
	list_format(list, "MISSES", "%llu", (unsigned long long)stats.misses);
	return true;
}

/* One row: a task, or the process alone where task is NULL. */
static void add_row(struct list *list, pid_t pid, const char *name, const json_t *task)
{
	struct cpu_settings cpu;
	char text[512];

	list_row(list);
	list_format(list, "PID", "%d", (int)pid);
	list_text(list, "COMMAND", name);
	if (task) {
		list_text(list, "VGPU", reply_string(task, "vgpu"));
		list_text(list, "GPU", reply_string(task, "gpu"));
		list_format(list, "PRIO", "%.0f", reply_number(task, "priority"));
		if (reply_u64(task, "runtime_ns"))
			list_duration(list, "RUNTIME", reply_u64(task, "runtime_ns"));
		if (reply_u64(task, "deadline_ns"))
			list_duration(list, "DEADLINE", reply_u64(task, "deadline_ns"));
		if (reply_u64(task, "period_ns"))
			list_duration(list, "PERIOD", reply_u64(task, "period_ns"));
		if (reply_u64(task, "latency_ns"))
			list_duration(list, "LATENCY", reply_u64(task, "latency_ns"));
		if (json_is_integer(json_object_get(task, "memory")))
			list_bytes(list, "MEM", reply_u64(task, "memory"));
		else
			list_none(list, "MEM");
	} else {
		list_text(list, "VGPU", "-");
		list_none(list, "MEM");
	}
	if (cpu_kernel_read(pid, &cpu))
		return; /* the process has ended */
	if (!add_module(list, pid)) {
		list_text(list, "CPUPOLICY", cpu_policy_name(cpu.policy));
		list_format(list, "CPUPRIO", "%d", cpu.priority);
		if (cpu.runtime_ns) {
			list_duration(list, "CPURUNTIME", cpu.runtime_ns);
			list_duration(list, "CPUDEADLINE", cpu.deadline_ns);
			list_duration(list, "CPUPERIOD", cpu.period_ns);
		}
	}
	if (cpu.has_affinity)
		list_text(list, "AFFINITY", value_format_cpus(&cpu.affinity, text, sizeof(text)));
}

static int add_process(struct list *list, const char *text)
{
	json_t *reply, *task;
	const char *words;
	char name[32];
	size_t index, count = 0;
	long pid;
	int error;

	if (value_number("PID", text, 1, 4194304, &pid))
		return EXIT_USAGE;
	if (proc_name((pid_t)pid, name, sizeof(name))) {
		message_error("there is no process %ld", pid);
		return EXIT_FAILED;
	}
	reply = control_try(json_pack("{s:s, s:I}", "op", "task-list", "pid", (json_int_t)pid),
			    &error, &words);
	json_array_foreach (json_object_get(reply, "tasks"), index, task) {
		add_row(list, (pid_t)pid, name, task);
		count++;
	}
	json_decref(reply);
	if (!count)
		add_row(list, (pid_t)pid, name, NULL);
	/* Without a host there is no task: the GPU's side is empty, which is no error. */
	if (!reply && error != -ECONNREFUSED && error != -ESRCH) {
		message_error("%s", words);
		return EXIT_FAILED;
	}
	return EXIT_OK;
}

int cmd_get(int argc, char **argv)
{
	struct list_options list_options = { 0 };
	const char *named = NULL;
	struct list *list;
	int letter, status = EXIT_OK, one;

	while ((letter = getopt_long(argc, argv, "p:" LIST_LETTERS, options, NULL)) != -1) {
		if (letter == 'h') {
			fputs("Usage: rtxg get [OPTION...] PID...\n\nShows what processes have, on "
			      "the GPU and on the "
			      "CPU.\n\n"
			      " -p, --pid PID         the process, as in 'rtxg set'\n" LIST_HELP,
			      stdout);
			list_help(columns);
			return EXIT_OK;
		}
		if (letter == 'p')
			named = optarg;
		else if (!list_option(&list_options, letter))
			return message_try_help();
	}
	if (!named && optind == argc)
		return message_usage("missing PID; say which process, as in 'rtxg get 4711'");
	list = list_new("processes", columns, &list_options);
	if (!list)
		return EXIT_USAGE;
	if (named)
		status = add_process(list, named);
	for (; optind < argc; optind++) {
		one = add_process(list, argv[optind]);
		status = one > status ? one : status;
	}
	one = list_print(list);
	return status ? status : one;
}
