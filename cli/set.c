// SPDX-License-Identifier: MIT
/*
 * set.c - `rtxg set`: changes a running process: its GPU tasks by a request to the host, its CPU side by the kernel.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { OPT_PRIORITY = 256 };

static const struct option options[] = {
	{ "pid", required_argument, NULL, 'p' },
	{ "vgpu", required_argument, NULL, 'v' },
	{ "priority", required_argument, NULL, OPT_PRIORITY },
	/* -p is the process here, as chrt has it; the table's own entry for "priority" is never reached. */
	TASK_OPTIONS,
	COMMON_OPTIONS,
	{ 0 },
};

static void print_help(void)
{
	fputs("Usage: rtxg set [OPTION...] -p PID\n\n"
	      "Changes a running process. What is not named stays. Without a value it shows what there is, as 'rtxg "
	      "get'.\n\n"
	      " -p, --pid PID          the process\n\n"
	      "GPU (all tasks of the process):\n"
	      " -v, --vgpu NAME        move it to this vGPU\n"
	      "     --priority N       priority among the tasks of the vGPU, 1..99; lowering one's own is free\n"
	      " -T, --runtime TIME     GPU time that a job needs, as 3ms\n"
	      " -D, --deadline TIME    relative deadline of a job\n"
	      " -P, --period TIME      period of the jobs\n\n" TASK_HELP_CPU
	      "fifo, rr and the others go to all threads of the process, deadline to its first.\n\n"
	      " -h, --help             this text\n",
	      stdout);
}

/* Every thread that the process has when we look. One that comes meanwhile inherits from one that we have changed. */
static int apply_to_threads(pid_t pid, const struct cpu_settings *settings)
{
	char path[64];
	struct dirent *entry;
	DIR *directory;
	int ret = 0;

	if (settings->has_policy && settings->policy == 6 /* SCHED_DEADLINE: a reservation of one thread */)
		return cpu_apply(pid, settings);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	directory = opendir(path);
	if (!directory)
		return -ESRCH;
	while (!ret && (entry = readdir(directory))) {
		pid_t thread = atoi(entry->d_name);

		if (thread > 0)
			ret = cpu_apply(thread, settings);
	}
	closedir(directory);
	return ret;
}

int cmd_set(int argc, char **argv)
{
	struct task_settings task = { 0 };
	const char *vgpu = NULL;
	json_t *request, *reply;
	bool gpu_side;
	long pid = 0;
	char name[32];
	int letter, ret;

	while ((letter = getopt_long(argc, argv, "p:v:h" TASK_LETTERS, options, NULL)) != -1) {
		switch (letter) {
		case 'h':
			print_help();
			return EXIT_OK;
		case 'p':
			if (parse_number("--pid", optarg, 1, 4194304, &pid))
				return EXIT_USAGE;
			break;
		case 'v':
			vgpu = optarg;
			break;
		case '?':
			return option_error();
		default:
			if (task_option(&task, letter == OPT_PRIORITY ? 'p' : letter))
				return EXIT_USAGE;
		}
	}
	if (optind < argc)
		return usage_error("'%s' is not accepted; a process is named by -p PID", argv[optind]);
	if (!pid)
		return usage_error("which process? Say -p PID");
	if (process_name((pid_t)pid, name, sizeof(name))) {
		complain("-p: there is no process %ld", pid);
		return EXIT_FAILED;
	}
	if (task_check(&task))
		return EXIT_USAGE;
	gpu_side = vgpu || task.priority || task.runtime_ns || task.deadline_ns || task.period_ns;
	if (!gpu_side && !task.cpu.has_policy && !task.cpu.has_affinity) {
		char text[24], *get[] = { argv[0], text, NULL };

		snprintf(text, sizeof(text), "%ld", pid);
		optind = 0; /* another round of getopt */
		return cmd_get(2, get);
	}
	/* A period can be meant for SCHED_DEADLINE alone: then a process without a GPU task is no error. */
	if (gpu_side) {
		request = json_pack("{s:s, s:I}", "op", "task-set", "pid", (json_int_t)pid);
		if (vgpu)
			json_object_set_new(request, "vgpu", json_string(vgpu));
		if (task.priority)
			json_object_set_new(request, "priority", json_integer(task.priority));
		if (task.runtime_ns)
			json_object_set_new(request, "runtime_ns", json_integer((json_int_t)task.runtime_ns));
		if (task.deadline_ns)
			json_object_set_new(request, "deadline_ns", json_integer((json_int_t)task.deadline_ns));
		if (task.period_ns)
			json_object_set_new(request, "period_ns", json_integer((json_int_t)task.period_ns));
		const char *text;

		reply = control_quiet(request, &ret, &text);
		json_decref(reply);
		if (!reply &&
		    !(task.cpu.has_policy && !vgpu && !task.priority && (ret == -ESRCH || ret == -ECONNREFUSED))) {
			complain("%s", text);
			return EXIT_FAILED;
		}
	}
	ret = apply_to_threads((pid_t)pid, &task.cpu);
	if (ret == -ESRCH)
		complain("-p: process %ld has ended meanwhile", pid);
	return ret ? EXIT_FAILED : EXIT_OK;
}
