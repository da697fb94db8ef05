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
#include "reply.h"
#include "task.h"
#include "value.h"

enum { OPT_PRIORITY = 256, OPT_LATENCY, OPT_QUANTUM };

static const struct option options[] = {
	{ "pid", required_argument, NULL, 'p' },
	{ "vgpu", required_argument, NULL, 'v' },
	{ "priority", required_argument, NULL, OPT_PRIORITY },
	{ "latency", required_argument, NULL, OPT_LATENCY },
	{ "quantum", required_argument, NULL, OPT_QUANTUM },
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
	      " -P, --period TIME      period of the jobs\n"
	      "     --latency TIME     bound on its waiting, 100us..10s, or 'default'; of its "
	      "vGPU, "
	      "which no other process is in\n"
	      "     --quantum TIME     length of its vGPU's turns, 1ms..1s, or 'default'; the "
	      "same\n\n" TASK_HELP_CPU
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

/*
 * What is a vGPU's and was asked for a process: possible where the process has a vGPU to itself.
 * before: the parameters up to now, to take the change back.
 */
struct vgpu_change {
	bool latency, quantum;
	uint64_t latency_ns, quantum_ns; /* 0: default */
	json_t *before;
};

/* Into name (64 bytes) the vGPU of the process; 0, or an exit status after complaining. */
static int own_vgpu(long pid, char *name)
{
	json_t *reply, *task;
	bool shared = false;
	size_t index;

	*name = '\0';
	reply = control_ask(json_pack("{s:s, s:I}", "op", "task-list", "pid", (json_int_t)pid),
			    NULL);
	if (!reply)
		return EXIT_FAILED;
	json_array_foreach (json_object_get(reply, "tasks"), index, task) {
		shared = shared || (*name && strcmp(name, reply_string(task, "vgpu")) != 0);
		snprintf(name, 64, "%s", reply_string(task, "vgpu"));
	}
	json_decref(reply);
	if (!*name || shared) {
		message_error(
			*name ? "-p: process %ld has tasks in several vGPUs; change each with "
				"'rtxg vgpu set'"
			      : "-p: process %ld uses no GPU that a host manages; see 'rtxg ps'",
			pid);
		return EXIT_FAILED;
	}
	reply = control_ask(json_pack("{s:s, s:s}", "op", "task-list", "vgpu", name), NULL);
	json_array_foreach (json_object_get(reply, "tasks"), index, task)
		shared = shared || reply_u64(task, "pid") != (uint64_t)pid;
	json_decref(reply);
	if (shared || strcmp(name, "default") == 0) {
		message_error(
			"--latency and --quantum are a vGPU's, and process %ld is not alone in "
			"vGPU '%s'; move it to one of its own (-v), or change all of them: rtxg "
			"vgpu set %s",
			pid, name, name);
		return EXIT_FAILED;
	}
	return reply ? EXIT_OK : EXIT_FAILED;
}

static json_t *default_or(uint64_t ns)
{
	return ns ? json_integer((json_int_t)ns) : json_null();
}

static int change_vgpu(long pid, struct vgpu_change *change)
{
	json_t *request, *reply;
	const json_t *vgpu;
	char name[64];
	int status;

	if (!change->latency && !change->quantum)
		return EXIT_OK;
	status = own_vgpu(pid, name);
	if (status)
		return status;
	reply = control_ask(json_pack("{s:s, s:s}", "op", "vgpu-list", "vgpu", name), NULL);
	vgpu = json_array_get(json_object_get(reply, "vgpus"), 0);
	request = json_pack("{s:s, s:s}", "op", "vgpu-set", "vgpu", name);
	change->before = json_copy(request);
	if (change->latency) {
		json_object_set_new(change->before, "latency_ns",
				    default_or(reply_u64(vgpu, "latency_ns")));
		json_object_set_new(request, "latency_ns", default_or(change->latency_ns));
	}
	if (change->quantum) {
		json_object_set_new(change->before, "quantum_ns",
				    default_or(reply_u64(vgpu, "quantum_ns")));
		json_object_set_new(request, "quantum_ns", default_or(change->quantum_ns));
	}
	json_decref(reply);
	reply = control_ask(request, NULL);
	json_decref(reply);
	if (reply)
		return EXIT_OK;
	json_decref(change->before);
	change->before = NULL;
	return EXIT_FAILED;
}

/* take: the change that was made is taken back. */
static void end_change(struct vgpu_change *change, bool take)
{
	const char *text;
	int error;

	if (change->before && take)
		json_decref(control_try(change->before, &error, &text));
	else
		json_decref(change->before);
}

int cmd_set(int argc, char **argv)
{
	struct vgpu_change change = { 0 };
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
		case OPT_LATENCY:
			change.latency = true;
			if (strcmp(optarg, "default") != 0 &&
			    value_latency("--latency", optarg, &change.latency_ns))
				return EXIT_USAGE;
			break;
		case OPT_QUANTUM:
			change.quantum = true;
			if (strcmp(optarg, "default") != 0 &&
			    value_quantum("--quantum", optarg, &change.quantum_ns))
				return EXIT_USAGE;
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
	if (vgpu && (change.latency || change.quantum))
		return message_usage("--latency and --quantum are a vGPU's: say rtxg vgpu set '%s'",
				     vgpu);
	gpu_side = vgpu || task.priority || task.runtime_ns || task.deadline_ns || task.period_ns;
	if (!gpu_side && !task.cpu.has_policy && !task.cpu.has_affinity && !change.latency &&
	    !change.quantum) {
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
	if (change_vgpu(pid, &change)) {
		cpu_undo(undo, true);
		return EXIT_FAILED;
	}
	/*
	 * A period can be meant for the CPU alone: then a process without a GPU task is no error.
	 */
	if (gpu_side && gpu_request(pid, vgpu, &task, &ret, &refused) &&
	    !(task.cpu.has_policy && !vgpu && !task.priority &&
	      (ret == -ESRCH || ret == -ECONNREFUSED))) {
		message_error("%s", refused);
		end_change(&change, true);
		cpu_undo(undo, true);
		return EXIT_FAILED;
	}
	end_change(&change, false);
	cpu_undo(undo, false);
	return EXIT_OK;
}
