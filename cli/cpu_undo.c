// SPDX-License-Identifier: MIT
/*
 * cpu_undo.c - the CPU's side of a thread or of a whole process, applied so that it can be taken
 * back: what a refused half of a request has changed becomes what it was.
 *
 * May not: decide by which way a policy is set; cpu_policy_by_module() says so.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <rtxg/cpu.h>

#include "cpu_kernel.h"
#include "cpu_module.h"
#include "cpu_policy.h"
#include "cpu_undo.h"
#include "cpu_why.h"
#include "message.h"

int cpu_apply(pid_t pid, const struct cpu_settings *settings)
{
	struct cpu_machine machine;
	char why[512];
	int ret;

	if (settings->has_affinity) {
		ret = cpu_kernel_affinity(pid, &settings->affinity);
		if (ret)
			return ret;
	}
	if (!settings->has_policy)
		return 0;
	if (cpu_policy_by_module(settings))
		return cpu_module_apply(pid, settings, NULL);
	ret = cpu_kernel_set(pid, settings);
	if (ret) {
		cpu_why_look(&machine);
		cpu_why_kernel(settings, ret, &machine, why, sizeof(why));
		message_error("--cpu-policy %s: %s", cpu_policy_name(settings->policy), why);
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
		cpu_kernel_set(thread->tid, &thread->before);
}

void cpu_undo(struct cpu_undo *undo, bool back)
{
	if (!undo)
		return;
	if (back && undo->module && !undo->before.size)
		cpu_module_detach(undo->pid);
	/* affinities, and policies that the module does not know */
	for (size_t i = 0; back && i < undo->count; i++)
		restore_thread(&undo->threads[i]);
	if (back && undo->before.size)
		cpu_module_put_back(&undo->before, undo->module);
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
	undo->count += cpu_kernel_read(tid, &undo->threads[undo->count].before) == 0;
	if (undo->count && by_module)
		undo->threads[undo->count - 1].before.has_policy = false;
	return 0;
}

/*
 * Every thread that the process has when we look. A thread that comes later inherits from one that
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
	if (cpu_policy_by_module(settings)) {
		if (settings->has_affinity)
			ret = apply_to_threads(pid, &affinity, undo, true);
		if (!ret) {
			ret = cpu_module_apply(pid, settings, &undo->before);
			undo->module = !ret;
		}
	} else {
		if (settings->has_policy && !cpu_module_read(pid, &now, NULL)) {
			undo->before = now;
			cpu_module_detach(pid);
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
