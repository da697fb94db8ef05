// SPDX-License-Identifier: MIT
/*
 * inherit.c - the thread that holds a GPU of a pool runs at no less than the CPU priority of the
 * threads that it keeps waiting, as rtxg_cpu_inherit.h says. Its own priority comes back when it
 * inherits nothing any more, which the end of the task or of the daemon is too.
 *
 * What is raised stands in a journal, from before the thread is raised to after it is set back, so
 * that it is set back when the daemon is killed: see raised.c.
 *
 * May not: decide which task gets a GPU, or what is inherited.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "inherit.h"
#include "process.h"
#include "raised.h"

static struct raised_thread thread_of(const struct task *task,
				      const struct rtxg_inherit_thread *state, uint32_t raised)
{
	return (struct raised_thread){ .process = task->pid,
				       .thread = task->thread.id,
				       .began = task->thread.began,
				       .own = (int)state->own,
				       .reset = state->reset,
				       .raised = (int)raised,
				       .first.began = task->thread.first_began,
				       .first.priority = (int)task->thread.first_priority };
}

static int record(const struct task *task, const struct rtxg_inherit_thread *state, uint32_t raised)
{
	const struct raised_thread thread = thread_of(task, state, raised);

	return raised_record(task->id, &thread);
}

/* It is not raised, or not by us. */
static void forget(struct task *task)
{
	task->thread.state = (struct rtxg_inherit_thread){ 0 };
	raised_forget(task->id);
}

static bool same_thread(const struct task *a, const struct task *b)
{
	return a->used && b->used && a->pid == b->pid && a->thread.id == b->thread.id &&
	       a->thread.began == b->thread.began;
}

/* What is known of that thread, for whichever of its tasks it is raised. */
static struct rtxg_inherit_thread state_of(const struct daemon *d, const struct task *task)
{
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (same_thread(&d->tasks[id], task) && d->tasks[id].thread.state.raised)
			return d->tasks[id].thread.state;
	return (struct rtxg_inherit_thread){ 0 };
}

/* It stays as it is for now, and so does its way back, if there is one. */
static void later(struct daemon *d, const struct task *task, int error)
{
	d->inherit_error = error;
	d->inherit_again = true;
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (same_thread(&d->tasks[id], task) && !d->tasks[id].thread.state.raised)
			raised_forget(id);
}

/* The priority of the first thread of the process; 0: it is not real-time, or not there. */
static uint32_t first_priority(const struct task *task)
{
	struct rtxg_inherit_setting now;
	int policy;

	return raised_look(task->pid, &policy, &now) ? now.priority : 0;
}

/* The thread is not there any more, as far as can be told. It may be its process's first now. */
static void lost(struct daemon *d, const struct task *task, const struct rtxg_inherit_thread *state)
{
	const struct raised_thread thread = thread_of(task, state, state->raised);
	int error = raised_gone(&thread);

	if (error) {
		later(d, task, error);
		return;
	}
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (same_thread(&d->tasks[id], task))
			forget(&d->tasks[id]);
}

/* One thread may hold for several tasks. */
static void set_thread(struct daemon *d, const struct task *task)
{
	struct rtxg_inherit_thread state = state_of(d, task);
	struct rtxg_inherit_setting now, wanted;
	pid_t thread = task->thread.id;
	int policy, error = 0;
	/* Asked for first: while the thread is there after that, this was another one's. */
	uint32_t inherits = 0, first = first_priority(task);
	bool acts;

	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (same_thread(&d->tasks[id], task))
			inherits = rtxg_ceiling_join(inherits, d->tasks[id].thread.inherits);
	if (!process_is(task->pid, thread, task->thread.began) ||
	    !raised_look(thread, &policy, &now)) {
		lost(d, task, &state);
		return;
	}
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (same_thread(&d->tasks[id], task))
			d->tasks[id].thread.first_priority = first;
	acts = rtxg_inherit_look(&state, inherits, &now, &wanted);
	for (uint32_t id = 0; id < d->tasks_top && wanted.priority > state.own; id++) {
		const struct task *other = &d->tasks[id];

		if (!same_thread(other, task) || !other->thread.inherits)
			continue;
		/* Otherwise nothing could set it back after us. */
		error = record(other, &state, wanted.priority);
		if (error) {
			later(d, task, error);
			return;
		}
	}
	if (acts)
		error = raised_set(thread, policy, wanted.reset, (int)wanted.priority);
	if (error == ESRCH) {
		lost(d, task, &state);
		return;
	}
	if (error) {
		later(d, task, error);
		return;
	}
	rtxg_inherit_set(&state, &wanted);
	if (state.raised)
		d->inherit_error = 0;
	for (uint32_t id = 0; id < d->tasks_top; id++) {
		struct task *other = &d->tasks[id];

		if (!same_thread(other, task))
			continue;
		if (state.raised && other->thread.inherits)
			other->thread.state = state;
		else if (other->thread.state.raised)
			forget(other);
	}
}

void inherit_thread(struct daemon *d, struct task *task, pid_t thread)
{
	struct rtxg_inherit_setting now;
	struct rtxg_inherit_thread state;
	int policy;

	if (task->thread.state.raised) {
		task->thread.inherits = 0;
		set_thread(d, task);
	}
	memset(&task->thread, 0, sizeof(task->thread));
	/* A thread of another process, or of another namespace's number, is none of this task's. */
	task->thread.began = thread > 0 ? process_began(task->pid, thread) : 0;
	if (!task->thread.began)
		return;
	/* Without it, nothing would find the thread again once it has executed a program. */
	if (thread != task->pid)
		task->thread.first_began = process_began(task->pid, task->pid);
	if (thread != task->pid && !task->thread.first_began)
		return;
	task->thread.id = thread;
	if (!raised_look(thread, &policy, &now))
		return;
	state = state_of(d, task);
	task->thread.passes = rtxg_inherit_passes(&state, &now);
}

static void set_threads(struct daemon *d)
{
	for (uint32_t id = 0; id < d->tasks_top; id++) {
		struct task *task = &d->tasks[id];

		if (task->used && task->thread.id &&
		    (task->thread.inherits || task->thread.state.raised))
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
		uint32_t number, *inherits;

		if (!task->used || !task->thread.passes)
			continue;
		number = rtxg_core_pool_holder(d->permits.core, id);
		if (number == RTXG_NONE)
			continue;
		inherits = &d->tasks[number].thread.inherits;
		*inherits = rtxg_ceiling_join(*inherits, task->thread.passes);
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
