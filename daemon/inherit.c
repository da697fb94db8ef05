// SPDX-License-Identifier: MIT
/*
 * inherit.c - the thread that holds a GPU of a pool runs at the priority that it inherits from those
 * it keeps waiting.
 *
 * Only a thread under SCHED_FIFO or SCHED_RR is raised: a thread that is not real-time was not
 * trusted with a CPU, and does not become so by holding a GPU. Its own priority comes back when it
 * inherits nothing any more, which the end of the task or of the daemon is too, unless its priority
 * was set anew meanwhile. A daemon that is killed leaves the thread raised until the thread sets its
 * priority again.
 *
 * May not: decide what is inherited.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "inherit.h"

void inherit_holder(struct task *task, pid_t thread)
{
	task->holder = thread;
	task->holder_raised = 0;
}

/* A thread of another process, or of another namespace's number, is none of this task's. */
static bool is_of(pid_t process, pid_t thread)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d", process, thread);
	return !access(path, F_OK);
}

void inherit_set(struct daemon *d, struct task *task, uint32_t priority)
{
	struct sched_param param = { 0 };
	int policy, wanted;

	if (!task->holder || !is_of(task->pid, task->holder))
		return;
	policy = sched_getscheduler(task->holder);
	if (policy < 0 || sched_getparam(task->holder, &param))
		return;
	if ((policy & ~SCHED_RESET_ON_FORK) != SCHED_FIFO &&
	    (policy & ~SCHED_RESET_ON_FORK) != SCHED_RR)
		return;
	if (!task->holder_raised || param.sched_priority != task->holder_raised)
		task->holder_own = param.sched_priority;
	wanted = (int)priority > task->holder_own ? (int)priority : task->holder_own;
	task->holder_raised = wanted > task->holder_own ? wanted : 0;
	if (wanted == param.sched_priority)
		return;
	param.sched_priority = wanted;
	if (!sched_setscheduler(task->holder, policy, &param))
		return;
	task->holder_raised = 0;
	if (errno != ESRCH)
		d->inherit_error = errno;
}

void inherit_restore(struct daemon *d)
{
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (d->tasks[id].used && d->tasks[id].holder_raised)
			inherit_set(d, &d->tasks[id], 0);
}
