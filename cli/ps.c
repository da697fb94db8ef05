// SPDX-License-Identifier: MIT
/*
 * ps.c - `rtxg ps`: the tasks that the host manages, and the processes that use a GPU without being
 * managed. The second is read from /proc, so that a program that slipped past is seen and not
 * silently left out.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rtxg/cpu.h>

#include "command.h"
#include "commands.h"
#include "control.h"
#include "gpu_name.h"
#include "cpu_kernel.h"
#include "cpu_module.h"
#include "cpu_policy.h"
#include "list.h"
#include "message.h"
#include "proc.h"
#include "reply.h"
#include "words.h"

static const struct option options[] = {
	{ "vgpu", required_argument, NULL, 'v' },
	{ "gpu", required_argument, NULL, 'g' },
	{ "managed", no_argument, NULL, 'm' },
	{ "unmanaged", no_argument, NULL, 'u' },
	LIST_OPTIONS,
	{ 0 },
};

static const struct column columns[] = {
	{ "PID", "pid", COLUMN_DEFAULT | COLUMN_RIGHT, "process" },
	{ "USER", "user", COLUMN_DEFAULT, "its owner" },
	{ "VGPU", "vgpu", COLUMN_DEFAULT, "its vGPU, or UNMANAGED" },
	{ "GPU", "gpu", COLUMN_DEFAULT, "its GPU" },
	{ "PRIO", "priority", COLUMN_DEFAULT | COLUMN_RIGHT, "priority inside the vGPU" },
	{ "STATE", "state", COLUMN_DEFAULT,
	  "idle, waiting, running, holding (a permit, nothing in flight), revoked, stopped (by the "
	  "nvidia lever)" },
	{ "MEM", "memory_bytes", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "GPU memory in use; - where the host cannot see it (JSON: bytes)" },
	{ "LAUNCHES", "launches", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "on all engines; - under the nvidia lever, which sees no launches" },
	{ "BUSY", "busy_seconds", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "engine time charged, all engines (JSON: seconds)" },
	{ "WAIT", "wait_seconds", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "time waited for permits, or stopped by the nvidia lever (JSON: seconds)" },
	{ "USES", "uses", COLUMN_DEFAULT,
	  "UNMANAGED, or governed in part: what shows that it uses a GPU, why the host refused it, "
	  "or "
	  "what to do; mps: its clients share one "
	  "vGPU; mps of PID: a client; - else" },
	{ "COMMAND", "command", COLUMN_DEFAULT | COLUMN_CUT, "its command line, as in ps" },
	{ "COMM", "comm", 0, "the name of its first thread" },
	{ "TASK", "task", COLUMN_RIGHT, "number of the task" },
	{ "RUNTIME", "runtime_seconds", COLUMN_RIGHT, "GPU time of a job (JSON: seconds)" },
	{ "DEADLINE", "deadline_seconds", COLUMN_RIGHT, "relative (JSON: seconds)" },
	{ "PERIOD", "period_seconds", COLUMN_RIGHT, "of its jobs (JSON: seconds)" },
	{ "LATENCY", "latency_seconds", COLUMN_RIGHT,
	  "bound on its waiting, of its vGPU (JSON: seconds)" },
	{ "DEVICE", "device_seconds", COLUMN_RIGHT,
	  "execution time by its GPU API's own events (JSON: seconds)" },
	{ "GRANTS", "grants", COLUMN_RIGHT,
	  "permits given; nvidia lever: times it came onto the engine" },
	{ "OVERRUNS", "overruns", COLUMN_RIGHT, "completions after the budget was gone" },
	{ "EXPELLED", "expelled", COLUMN_RIGHT, "permits taken by force" },
	{ "EXE", "exe", 0, "its program" },
	{ "CPUPOLICY", "cpu_policy", 0, "of its first thread; fp, rm, edf: by the kernel module" },
	{ "CPUPRIO", "cpu_priority", COLUMN_RIGHT, "of fifo, rr, fp, rm and edf, now" },
	{ "CPUUSED", "cpu_used_seconds", COLUMN_RIGHT,
	  "CPU time under the kernel module (JSON: seconds)" },
	{ "THROTTLED", "cpu_throttled", COLUMN_RIGHT, "times that its budget was used up" },
	{ "MISSES", "cpu_misses", COLUMN_RIGHT, "deadlines missed of the jobs that it released" },
	{ "MANAGED", "managed", COLUMN_BOOL, "whether a host manages it" },
	{ 0 },
};

static uint64_t sum(const json_t *engines, const char *key)
{
	const json_t *engine;
	uint64_t total = 0;
	size_t index;

	json_array_foreach (engines, index, engine)
		total += reply_u64(engine, key);
	return total;
}

/* What the task does now: on the engine where it does most. */
static const char *state_of(const json_t *engines)
{
	static const char *const order[] = { "running", "revoked", "stopped", "waiting",
					     "holding" };
	const json_t *engine;
	size_t index;

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		json_array_foreach (engines, index, engine)
			if (strcmp(reply_string(engine, "state"), order[i]) == 0)
				return order[i];
	}
	return "idle";
}

static void add_cpu(struct list *list, pid_t pid)
{
	struct rtxg_cpu_stats stats;
	struct cpu_settings cpu;
	struct rtxg_cpu_task task;

	if (cpu_module_read(pid, &task, &stats)) {
		if (cpu_kernel_read(pid, &cpu))
			return;
		list_text(list, "CPUPOLICY", cpu_policy_name(cpu.policy));
		list_format(list, "CPUPRIO", "%d", cpu.priority);
		return;
	}
	list_text(list, "CPUPOLICY", cpu_policy_name(cpu_module_policy(&task)));
	list_format(list, "CPUPRIO", "%u", stats.priority);
	list_duration(list, "CPUUSED", stats.exec_ns);
	list_format(list, "THROTTLED", "%llu", (unsigned long long)stats.throttles);
	list_format(list, "MISSES", "%llu", (unsigned long long)stats.misses);
}

/* A process that a lever sees and cannot govern is UNMANAGED too. */
static bool is_governed(const json_t *task)
{
	return !reply_string(task, "lever")[0] || reply_bool(task, "managed");
}

static void add_task(struct list *list, const json_t *task)
{
	const json_t *engines = json_object_get(task, "engines");
	static const char *const times[][2] = { { "RUNTIME", "runtime_ns" },
						{ "DEADLINE", "deadline_ns" },
						{ "PERIOD", "period_ns" },
						{ "LATENCY", "latency_ns" } };

	bool lever = reply_string(task, "lever")[0];

	list_row(list);
	list_format(list, "PID", "%.0f", reply_number(task, "pid"));
	if (json_is_integer(json_object_get(task, "uid")))
		list_text(list, "USER", proc_user((uid_t)reply_u64(task, "uid")));
	list_text(list, "COMMAND",
		  reply_string(task, "command")[0] ? reply_string(task, "command")
						   : reply_string(task, "comm"));
	list_text(list, "COMM", reply_string(task, "comm"));
	if (json_is_integer(json_object_get(task, "memory")))
		list_bytes(list, "MEM", reply_u64(task, "memory"));
	else
		list_none(list, "MEM");
	list_text(list, "EXE", reply_string(task, "exe"));
	if (!is_governed(task)) {
		list_text(list, "VGPU", "UNMANAGED");
		list_text(list, "USES", reply_string(task, "remedy"));
		list_bool(list, "MANAGED", false);
		return;
	}
	if (reply_string(task, "moving_to")[0])
		list_format(list, "VGPU", "%s > %s", reply_string(task, "vgpu"),
			    reply_string(task, "moving_to"));
	else
		list_text(list, "VGPU", reply_string(task, "vgpu"));
	list_text(list, "GPU", reply_string(task, "gpu"));
	list_format(list, "PRIO", "%.0f", reply_number(task, "priority"));
	list_text(list, "STATE", state_of(engines));
	if (lever)
		list_none(list, "LAUNCHES");
	else
		list_format(list, "LAUNCHES", "%llu", (unsigned long long)sum(engines, "launches"));
	if (reply_string(task, "remedy")[0])
		list_text(list, "USES", reply_string(task, "remedy"));
	else if (reply_bool(task, "mps"))
		list_text(list, "USES", "mps");
	else if (reply_u64(task, "mps_server"))
		list_format(list, "USES", "mps of %llu",
			    (unsigned long long)reply_u64(task, "mps_server"));
	else
		list_none(list, "USES");
	list_duration(list, "BUSY", sum(engines, "busy_ns"));
	list_duration(list, "WAIT", sum(engines, "wait_ns"));
	if (!lever)
		list_format(list, "TASK", "%.0f", reply_number(task, "task"));
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		if (reply_u64(task, times[i][1]))
			list_duration(list, times[i][0], reply_u64(task, times[i][1]));
	if (!reply_bool(task, "device_unknown"))
		list_duration(list, "DEVICE", sum(engines, "device_ns"));
	list_format(list, "GRANTS", "%llu", (unsigned long long)sum(engines, "grants"));
	list_format(list, "OVERRUNS", "%llu", (unsigned long long)sum(engines, "overruns"));
	list_format(list, "EXPELLED", "%llu", (unsigned long long)sum(engines, "expelled"));
	list_bool(list, "MANAGED", true);
	add_cpu(list, (pid_t)reply_u64(task, "pid"));
}

static bool is_managed(const json_t *tasks, pid_t pid)
{
	const json_t *task;
	size_t index;

	json_array_foreach (tasks, index, task)
		if (reply_u64(task, "pid") == (uint64_t)pid)
			return true;
	return false;
}

/* Why the host refused that process a task; NULL: it did not. */
static const char *refusal_of(const json_t *refused, pid_t pid)
{
	const json_t *one;
	size_t index;

	json_array_foreach (refused, index, one)
		if (reply_u64(one, "pid") == (uint64_t)pid)
			return reply_string(one, "message");
	return NULL;
}

static void add_refused(struct list *list, const json_t *refused, const json_t *tasks,
			const struct gpu_users *users)
{
	const json_t *one;
	size_t index;

	json_array_foreach (refused, index, one) {
		pid_t pid = (pid_t)reply_u64(one, "pid");
		bool known = is_managed(tasks, pid);

		for (size_t i = 0; i < users->count; i++)
			known = known || users->list[i].pid == pid;
		if (known)
			continue;
		list_row(list);
		list_format(list, "PID", "%d", (int)pid);
		list_text(list, "USER", proc_user((uid_t)reply_u64(one, "uid")));
		list_text(list, "VGPU", "UNMANAGED");
		list_text(list, "COMMAND", reply_string(one, "comm"));
		list_text(list, "COMM", reply_string(one, "comm"));
		list_none(list, "MEM");
		list_format(list, "USES", "refused: %s", reply_string(one, "message"));
		list_bool(list, "MANAGED", false);
	}
}

static int add_unmanaged(struct list *list, const json_t *tasks, const json_t *refused)
{
	struct gpu_users users;
	int ret = proc_gpu_users(&users);

	if (ret) {
		message_error("/proc: %s", strerror(-ret));
		return ret;
	}
	for (size_t i = 0; i < users.count; i++) {
		const struct gpu_user *user = &users.list[i];
		const char *why;

		if (is_managed(tasks, user->pid))
			continue;
		list_row(list);
		list_format(list, "PID", "%d", (int)user->pid);
		list_text(list, "USER", proc_user(user->uid));
		list_text(list, "VGPU", "UNMANAGED");
		list_text(list, "COMMAND", user->line);
		list_text(list, "COMM", user->command);
		list_none(list, "MEM");
		why = refusal_of(refused, user->pid);
		if (why)
			list_format(list, "USES", "refused: %s", why);
		else
			list_text(list, "USES", user->uses);
		list_bool(list, "MANAGED", false);
	}
	add_refused(list, refused, tasks, &users);
	/* root sees all but what the kernel protects, as its init */
	if (users.unseen && geteuid() != 0)
		message_error(
			"%zu processes of other users could not be looked into; as root you see "
			"those that use a GPU "
			"UNMANAGED",
			users.unseen);
	proc_gpu_users_free(&users);
	return 0;
}

int cmd_ps(int argc, char **argv)
{
	struct list_options list_options = { 0 };
	bool managed = true, unmanaged = true, only_managed = false;
	json_t *request = json_pack("{s:s}", "op", "task-list"), *reply, *task, *tasks;
	const char *text, *gpu = NULL;
	struct list *list;
	size_t index;
	int letter, error, status = EXIT_OK;

	while ((letter = getopt_long(argc, argv, "v:g:mu" LIST_LETTERS, options, NULL)) != -1) {
		switch (letter) {
		case 'h':
			fputs("Usage: rtxg ps [OPTION...]\n\n"
			      "Lists the tasks that are managed, and processes that use a GPU "
			      "without being "
			      "managed.\n\n"
			      " -v, --vgpu NAME       tasks in this vGPU only\n"
			      " -g, --gpu NAME        tasks on this GPU only\n"
			      " -m, --managed         managed tasks only\n"
			      " -u, --unmanaged       processes that are not managed "
			      "only\n" LIST_HELP,
			      stdout);
			list_help(columns);
			json_decref(request);
			return EXIT_OK;
		case 'v':
			json_object_set_new(request, "vgpu", json_string(optarg));
			unmanaged = false;
			break;
		case 'g':
			gpu = optarg;
			json_object_set_new(request, "gpu", json_string(optarg));
			unmanaged = false;
			break;
		case 'm':
			only_managed = true;
			unmanaged = false;
			break;
		case 'u':
			managed = false;
			break;
		default:
			if (!list_option(&list_options, letter)) {
				json_decref(request);
				return message_try_help();
			}
		}
	}
	list = optind < argc ? NULL : list_new("tasks", columns, &list_options);
	if (!list) {
		json_decref(request);
		return optind < argc ? message_usage("'%s': no argument is accepted", argv[optind])
				     : EXIT_USAGE;
	}
	reply = control_try(request, &error, &text);
	if (!reply) {
		if (error == -ECONNREFUSED) {
			fprintf(stderr, "rtxg ps: no host is running: nothing is managed\n");
		} else {
			message_error("%s", text);
			status = EXIT_FAILED;
		}
	}
	tasks = json_object_get(reply, "tasks");
	if (reply && gpu && json_array_size(tasks) == 0 && !gpu_name_known("--gpu", gpu, false)) {
		json_decref(reply);
		list_drop(list);
		return EXIT_FAILED;
	}
	json_array_foreach (tasks, index, task)
		if (is_governed(task) ? managed : !only_managed)
			add_task(list, task);
	if (unmanaged && status == EXIT_OK &&
	    add_unmanaged(list, tasks, json_object_get(reply, "refused")))
		status = EXIT_FAILED;
	json_decref(reply);
	return list_print(list) || status ? EXIT_FAILED : EXIT_OK;
}
