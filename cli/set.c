// SPDX-License-Identifier: MIT
/*
 * set.c - `rtxg set`: changes a running process on both sides in one step: its GPU tasks by a
 * request to the host, its CPU side by the kernel or the kernel module. If either is refused,
 * neither has changed.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "commands.h"
#include "control.h"
#include "cpu_module.h"
#include "cpu_undo.h"
#include "message.h"
#include "proc.h"
#include "task.h"
#include "value.h"

enum { OPT_PRIORITY = 256 };

static const struct option options[] = {
	{ "pid", required_argument, NULL, 'p' },
	{ "vgpu", required_argument, NULL, 'v' },
	{ "priority", required_argument, NULL, OPT_PRIORITY },
	/*
	 * -p is the process here, as chrt has it; the table's own entry for "priority" is never
	 * reached.
	 */
	TASK_OPTIONS,
	COMMON_OPTIONS,
	{ 0 },
};

static void print_help(void)
{
	fputs("Usage: rtxg set [OPTION...] -p PID\n\n"
	      "Changes a running process. A value that is not given stays. Without any value it "
	      "shows the process, as 'rtxg get'.\n\n"
	      " -p, --pid PID          the process\n\n"
	      "GPU (all tasks of the process):\n"
	      " -v, --vgpu NAME        move it to this vGPU\n"
	      "     --priority N       priority among the tasks of the vGPU, 1..99; to lower "
	      "it needs no privilege\n"
	      " -T, --runtime TIME     GPU time that a job needs, as 3ms\n"
	      " -D, --deadline TIME    relative deadline of a job\n"
	      " -P, --period TIME      period of the jobs\n\n" TASK_HELP_CPU
	      "fifo, rr and the others go to all threads of the process, deadline to its first. If "
	      "one side is "
	      "refused, neither is changed.\n\n"
	      " -h, --help             this text\n",
	      stdout);
}

static int gpu_request(long pid, const char *vgpu, const struct task_settings *task, int *error,
		       const char **text)
{
	json_t *request = json_pack("{s:s, s:I}", "op", "task-set", "pid", (json_int_t)pid), *reply;

	if (vgpu)
		json_object_set_new(request, "vgpu", json_string(vgpu));
	if (task->priority)
		json_object_set_new(request, "priority", json_integer(task->priority));
	if (task->runtime_ns)
		json_object_set_new(request, "runtime_ns",
				    json_integer((json_int_t)task->runtime_ns));
	if (task->deadline_ns)
		json_object_set_new(request, "deadline_ns",
				    json_integer((json_int_t)task->deadline_ns));
	if (task->period_ns)
		json_object_set_new(request, "period_ns",
				    json_integer((json_int_t)task->period_ns));
	reply = control_try(request, error, text);
	json_decref(reply);
	return reply ? 0 : *error;
}

int cmd_set(int argc, char **argv)
{
	struct task_settings task = { 0 };
	const char *vgpu = NULL;
	struct cpu_undo *undo = NULL;
	const char *refused;
	bool gpu_side, cpu_side;
	long pid = 0;
	char name[32];
	int letter, ret;

	while ((letter = getopt_long(argc, argv, "p:v:h" TASK_LETTERS, options, NULL)) != -1) {
		switch (letter) {
		case 'h':
			print_help();
			return EXIT_OK;
		case 'p':
			if (value_number("--pid", optarg, 1, 4194304, &pid))
				return EXIT_USAGE;
			break;
		case 'v':
			vgpu = optarg;
			break;
		case '?':
			return message_try_help();
		default:
			if (task_option(&task, letter == OPT_PRIORITY ? 'p' : letter))
				return EXIT_USAGE;
		}
	}
	if (optind < argc)
		return message_usage("'%s' is not accepted; a process is named by -p PID",
				     argv[optind]);
	if (!pid)
		return message_usage("missing PID; say which process with -p PID");
	if (proc_name((pid_t)pid, name, sizeof(name))) {
		message_error("-p: there is no process %ld", pid);
		return EXIT_FAILED;
	}
	/* what is not named stays, also of a task that the module schedules */
	cpu_side = task.cpu.has_policy || task.cpu.has_affinity || task.cpu.priority ||
		   task.cpu.runtime_ns || task.cpu.wcet_ns || task.cpu.hard || task.cpu.partitioned;
	if (cpu_side || task.period_ns || task.deadline_ns || task.runtime_ns)
		cpu_module_inherit((pid_t)pid, &task.cpu);
	if (task_check(&task))
		return EXIT_USAGE;
	gpu_side = vgpu || task.priority || task.runtime_ns || task.deadline_ns || task.period_ns;
	if (!gpu_side && !task.cpu.has_policy && !task.cpu.has_affinity) {
		char text[24], *get[] = { argv[0], text, NULL };

		snprintf(text, sizeof(text), "%ld", pid);
		optind = 0; /* another round of getopt */
		return cmd_get(2, get);
	}
	/* The CPU's side first: it can be taken back. */
	ret = cpu_apply_process((pid_t)pid, &task.cpu, &undo);
	if (ret == -ESRCH)
		message_error("-p: process %ld has ended", pid);
	if (ret)
		return EXIT_FAILED;
	/*
	 * A period can be meant for the CPU alone: then a process without a GPU task is no error.
	 */
	if (gpu_side && gpu_request(pid, vgpu, &task, &ret, &refused) &&
	    !(task.cpu.has_policy && !vgpu && !task.priority &&
	      (ret == -ESRCH || ret == -ECONNREFUSED))) {
		message_error("%s", refused);
		cpu_undo(undo, true);
		return EXIT_FAILED;
	}
	cpu_undo(undo, false);
	return EXIT_OK;
}
