// SPDX-License-Identifier: MIT
/*
 * inherit.c - the thread that holds a GPU of a pool runs at no less than the CPU priority of the
 * threads that it keeps waiting. A GPU priority is not passed on: any user may name the highest
 * one, and it says nothing about a right to a CPU.
 *
 * Only a thread under SCHED_FIFO or SCHED_RR is raised: a thread that is not real-time was not
 * trusted with a CPU, and does not become so by holding a GPU. Its own priority comes back when it
 * inherits nothing any more, which the end of the task or of the daemon is too.
 *
 * The kernel lets any thread set a priority up to the one that it has now. While a thread is
 * raised, a priority above its own is therefore no wish to keep, and what it forks begins as an
 * ordinary thread.
 *
 * What is raised stands in a journal, from before the thread is raised to after it is set back, so
 * that it is set back when the daemon is killed: see raised.c.
 *
 * May not: decide which task gets a GPU.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "inherit.h"
#include "process.h"
#include "raised.h"
#include "rtxg_cpu_ceiling.h"

static int record(const struct task *task, int raised)
{
	return raised_record(task->id, &(struct raised_thread){ .process = task->pid,
								.thread = task->thread.id,
								.began = task->thread.began,
								.own = task->thread.own,
								.reset = task->thread.reset,
								.raised = raised });
}

/* It is not raised, or not by us. */
static void forget(struct task *task)
{
	task->thread.raised = 0;
	raised_forget(task->id);
}

static bool same_thread(const struct task *a, const struct task *b)
{
	return a->used && b->used && a->pid == b->pid && a->thread.id == b->thread.id &&
	       a->thread.began == b->thread.began;
}

/* A task for which that thread is raised; NULL: it is not raised. */
static const struct task *find_raised(const struct daemon *d, const struct task *task)
{
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (same_thread(&d->tasks[id], task) && d->tasks[id].thread.raised)
			return &d->tasks[id];
	return NULL;
}

/* What the thread has without us, where it has that priority now. */
static int own_of(const struct task *raised, int now)
{
	return raised && raised->thread.own < now ? raised->thread.own : now;
}

/* It stays as it is for now, and so does its way back, if there is one. */
static void later(struct daemon *d, const struct task *task, int error)
{
	d->inherit_error = error;
	d->inherit_again = true;
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (same_thread(&d->tasks[id], task) && !d->tasks[id].thread.raised)
			raised_forget(id);
}

/*
 * One thread may hold for several tasks: it inherits the highest of all, and has one priority of
 * its own.
 */
static void set_thread(struct daemon *d, const struct task *task)
{
	const struct task *raised = find_raised(d, task);
	struct sched_param param = { 0 };
	pid_t thread = task->thread.id;
	int policy, own, now, wanted = 0, error = 0;
	bool reset;

	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (same_thread(&d->tasks[id], task) && d->tasks[id].thread.inherits > wanted)
			wanted = d->tasks[id].thread.inherits;
	policy = process_began(task->pid, thread) == task->thread.began ? sched_getscheduler(thread)
									: -1;
	if (policy < 0 || sched_getparam(thread, &param))
		goto lost;
	now = param.sched_priority;
	own = own_of(raised, now);
	reset = raised ? raised->thread.reset : policy & SCHED_RESET_ON_FORK;
	if (!raised_real_time(policy) || wanted <= own)
		wanted = 0;
	for (uint32_t id = 0; id < d->tasks_top; id++) {
		struct task *other = &d->tasks[id];

		if (!wanted || !same_thread(other, task) || !other->thread.inherits)
			continue;
		other->thread.own = own;
		other->thread.reset = reset;
		/* Otherwise nothing could set it back after us. */
		error = record(other, wanted);
		if (error) {
			later(d, task, error);
			return;
		}
	}
	if (wanted && (wanted != now || !(policy & SCHED_RESET_ON_FORK)))
		error = raised_set(thread, policy, true, wanted);
	else if (!wanted && raised)
		error = raised_set(thread, policy, reset, own);
	if (error == ESRCH)
		goto lost;
	if (error) {
		later(d, task, error);
		return;
	}
	if (wanted)
		d->inherit_error = 0;
	for (uint32_t id = 0; id < d->tasks_top; id++) {
		struct task *other = &d->tasks[id];

		if (!same_thread(other, task))
			continue;
		if (wanted && other->thread.inherits)
			other->thread.raised = wanted;
		else if (other->thread.raised)
			forget(other);
	}
	return;
lost:
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (same_thread(&d->tasks[id], task))
			forget(&d->tasks[id]);
}

void inherit_thread(struct daemon *d, struct task *task, pid_t thread)
{
	struct sched_param param;
	int policy, own;

	if (task->thread.raised) {
		task->thread.inherits = 0;
		set_thread(d, task);
	}
	memset(&task->thread, 0, sizeof(task->thread));
	/* A thread of another process, or of another namespace's number, is none of this task's. */
	task->thread.began = thread > 0 ? process_began(task->pid, thread) : 0;
	if (!task->thread.began)
		return;
	task->thread.id = thread;
	policy = sched_getscheduler(thread);
	if (policy >= 0 && raised_deadline(policy))
		task->thread.passes = (int)RTXG_SERVE_MAX;
	if (policy < 0 || !raised_real_time(policy) || sched_getparam(thread, &param))
		return;
	own = own_of(find_raised(d, task), param.sched_priority);
	task->thread.passes = (int)rtxg_ceiling_join((uint32_t)own, 0);
}

static void set_threads(struct daemon *d)
{
	for (uint32_t id = 0; id < d->tasks_top; id++) {
		struct task *task = &d->tasks[id];

		if (task->used && task->thread.id && (task->thread.inherits || task->thread.raised))
			set_thread(d, task);
	}
}

static void inherit_nothing(struct daemon *d)
{
	for (uint32_t id = 0; id < d->tasks_top; id++)
		d->tasks[id].thread.inherits = 0;
}

void inherit_update(struct daemon *d)
{
	d->inherit_again = false;
	inherit_nothing(d);
	for (uint32_t id = 0; id < d->tasks_top; id++) {
		const struct task *task = &d->tasks[id];
		uint32_t number;

		if (!task->used || !task->thread.passes)
			continue;
		number = rtxg_core_pool_holder(d->permits.core, id);
		if (number != RTXG_NONE && d->tasks[number].thread.inherits < task->thread.passes)
			d->tasks[number].thread.inherits = task->thread.passes;
	}
	set_threads(d);
}

void inherit_next(struct daemon *d)
{
	if (d->inherit_again)
		inherit_update(d);
}

void inherit_stop(struct daemon *d)
{
	inherit_nothing(d);
	set_threads(d);
	raised_stop();
}
