// SPDX-License-Identifier: MIT
/*
 * critical.c - whether programs with real-time threads have tasks, and which ceiling they give
 * (rtxg_cpu_ceiling.h). From when a task of such a process is seen until it is gone, whether it
 * waits just then or not, as launches and waits pass the daemon by. A user who may have such a
 * thread may take a CPU with it himself.
 *
 * May not: act on it; decide which priority gives what.
 */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "critical.h"
#include "raised.h"
#include "rtxg_cpu_ceiling.h"

/* Threads of a process that are looked at. */
#define PROCESS_THREADS 512

/* Priorities as Linux counts. */
#define DEADLINE_PRIO (-1)
#define ORDINARY_PRIO 120

/* A thread's priority as the core has it, which is as Linux counts. */
static int32_t prio_of(pid_t thread)
{
	struct sched_param param;
	int policy = sched_getscheduler(thread);

	if (policy < 0 || sched_getparam(thread, &param))
		return ORDINARY_PRIO;
	if (raised_deadline(policy))
		return DEADLINE_PRIO;
	return raised_real_time(policy) ? 99 - param.sched_priority : ORDINARY_PRIO;
}

/* The ceiling of that process's threads. */
static uint32_t ceiling_of(pid_t pid)
{
	struct dirent *entry;
	uint32_t found = 0;
	char path[64];
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	threads = opendir(path);
	for (int i = 0; threads && i < PROCESS_THREADS && (entry = readdir(threads)); i++) {
		pid_t id = atoi(entry->d_name);

		/* The number 0 would be this thread. */
		if (id > 0)
			found = rtxg_ceiling_with(found, prio_of(id));
	}
	if (threads)
		closedir(threads);
	return found;
}

static void look_at_next_task(struct daemon *d)
{
	static uint32_t next;

	for (uint32_t i = 0; i < d->tasks_top; i++) {
		struct task *task = &d->tasks[next++ % d->tasks_top];

		if (!task->used)
			continue;
		task->ceiling = ceiling_of(task->pid);
		return;
	}
}

void critical_next(struct daemon *d)
{
	look_at_next_task(d);
	d->ceiling = 0;
	for (uint32_t i = 0; i < d->tasks_top; i++)
		if (d->tasks[i].used)
			d->ceiling = rtxg_ceiling_join(d->ceiling, d->tasks[i].ceiling);
}
