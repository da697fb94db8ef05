// SPDX-License-Identifier: MIT
/*
 * control_task.c - requests about tasks: those of a client for its own task, and those that name
 * one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "backend.h"
#include "backend_gate.h"
#include "breathe.h"
#include "control_task.h"
#include "fence.h"
#include "control_vgpu.h"
#include "host.h"
#include "keep.h"
#include "objects.h"
#include "process.h"
#include "refused.h"
#include "reply.h"
#include "task.h"

static const char no_memory[] = "there is no memory for the request";

static void answer_drop(void *pieces)
{
	struct tasks_answer *answer = pieces;

	backend_rows_drop(&answer->tasks);
	reply_rows_drop(&answer->rows);
	free(answer);
}

struct tasks_answer *control_tasks_begin(struct connection *c, const struct request *r)
{
	struct tasks_answer *answer = calloc(1, sizeof(*answer));

	if (!answer || reply_rows_begin(&answer->rows, r)) {
		free(answer);
		reply_error(c, r->op_name, -ENOMEM, no_memory, NULL);
		return NULL;
	}
	answer->tasks.out = &answer->rows;
	c->pieces = answer;
	c->drop_pieces = answer_drop;
	return answer;
}

bool control_tasks_go_on(struct connection *c, struct tasks_answer *answer,
			 const struct backend_filter *filter)
{
	uint64_t end = rtxg_now_ns() + CONTROL_PIECE_NS;

	if (!answer->made) {
		answer->tasks.end_ns = end;
		answer->made = backend_tasks(c->daemon, filter, &answer->tasks);
		/* To send the answer may be a piece, too. */
		c->later = !answer->made || rtxg_now_ns() >= end;
	}
	return !c->later;
}

void control_task_list(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct backend_filter filter = { .vgpu = given(r, M_VGPU) ? r->vgpu : NULL,
					 .gpu = given(r, M_GPU) ? r->gpu : NULL,
					 .pid = given(r, M_PID) ? r->pid : 0,
					 .numbered = given(r, M_TASK),
					 .task = r->task,
					 .viewer = c };
	struct tasks_answer *answer = c->pieces;

	/* Each piece shows what is there by then. */
	if (!answer || !answer->made)
		d->host->count(d);
	if (!answer) {
		if (given(r, M_VGPU) && !control_find_vgpu(c, r))
			return;
		answer = control_tasks_begin(c, r);
		if (!answer)
			return;
		reply_rows_list(&answer->rows, "tasks");
	}
	if (!control_tasks_go_on(c, answer, &filter))
		return;
	reply_rows_put(&answer->rows, "refused", refused_list(c));
	reply_rows_send(c, &answer->rows);
}

static int may_change(struct connection *c, struct task *task, const struct request *r, char *why,
		      size_t size)
{
	struct vgpu *vgpu = given(r, M_VGPU) ? objects_vgpu_find(c->daemon, r->vgpu) : NULL;

	if (task->uid != c->uid && !access_administer(c)) {
		snprintf(why, size,
			 "task %u belongs to user %u; changing it needs root or group rtxg",
			 task->id, task->uid);
		return -EACCES;
	}
	if (given(r, M_PRIORITY) && task_check_priority(c, task_priority_limit(task, vgpu),
							(uint32_t)r->priority, why, size))
		return -EPERM;
	if (vgpu && !access_vgpu(vgpu, c)) {
		snprintf(why, size, "user %u may not use vGPU %s", c->uid, vgpu->name);
		return -EACCES;
	}
	return 0;
}

/*
 * A process that has no task of ours: the NVIDIA lever can govern it all the same. Its owner and
 * administrators may say where it belongs, if the vGPU is open to them.
 */
static int set_stranger(struct connection *c, const struct request *r, char *why, size_t size)
{
	const struct vgpu *vgpu = given(r, M_VGPU) ? objects_vgpu_find(c->daemon, r->vgpu) : NULL;
	uid_t owner;
	bool sets;
	int error;

	if (!given(r, M_VGPU))
		return -ESRCH;
	if (!vgpu) {
		snprintf(why, size, "there is no vGPU %s", r->vgpu);
		return -ENOENT;
	}
	if (!process_owner((pid_t)r->pid, &owner) || !access_sees(c, owner))
		return -ESRCH;
	if (!access_administer(c) && (owner != c->uid || !access_vgpu(vgpu, c))) {
		snprintf(why, size, "process %lld is not yours, or vGPU %s is not open to you",
			 (long long)r->pid, vgpu->name);
		return -EPERM;
	}
	sets = access_vgpu_all(vgpu, c);
	error = backend_assign(c->daemon, (pid_t)r->pid, vgpu,
			       given(r, M_PERIOD) ? (uint64_t)r->period_ns : 0, sets);
	if (error == -EPERM && !sets) {
		/* None of the refusals of a process that may be another's. */
		error = -EUSERS;
		snprintf(why, size,
			 "a period of %.6g ms would change that of vGPU %s for all who may use it, "
			 "which user %u may not: leave the period out, or ask an administrator to "
			 "set it (rtxg set -p PID -v %s --period), or to make it a vGPU of yours "
			 "alone (Users=)",
			 (double)r->period_ns / 1e6, vgpu->name, c->uid, vgpu->name);
	} else if (error && error != -EOPNOTSUPP) {
		snprintf(why, size, "process %lld: the NVIDIA lever says: %s", (long long)r->pid,
			 strerror(-error));
	}
	return error == -EOPNOTSUPP ? -ESRCH : error;
}

/* A change of many tasks, a piece at a time. */
struct tasks_change {
	enum { CHANGE_TASKS, CHANGE_KEEP, CHANGE_REPLY } step;
	uint32_t next; /* task to be looked at */
	struct reply_rows rows;
	struct report_process said;
};

static void change_drop(void *pieces)
{
	struct tasks_change *change = pieces;

	reply_rows_drop(&change->rows);
	free(change);
}

static struct tasks_change *change_of(struct connection *c, const struct request *r)
{
	struct tasks_change *change = c->pieces;

	if (change)
		return change;
	change = calloc(1, sizeof(*change));
	if (!change || reply_rows_begin(&change->rows, r)) {
		free(change);
		return NULL;
	}
	reply_rows_list(&change->rows, "tasks");
	c->pieces = change;
	c->drop_pieces = change_drop;
	return change;
}

/* The rows of a process that a backend governs without a task. */
static void list_other(struct connection *c, const struct request *r, struct reply_rows *rows)
{
	struct backend_filter filter = { .pid = r->pid, .viewer = c };
	struct backend_rows list = { .out = rows, .end_ns = RTXG_TIME_NEVER };

	while (!backend_tasks(c->daemon, &filter, &list))
		;
}

/* No task is meant: a process that a backend governs without one, or an error. */
static int set_other(struct connection *c, const struct request *r, struct reply_rows *rows,
		     char *why, size_t size)
{
	int error = given(r, M_PID) ? set_stranger(c, r, why, size) : -ESRCH;

	if (!error)
		list_other(c, r, rows);
	else if (error == -ESRCH && given(r, M_TASK))
		snprintf(why, size, "there is no task %lld; \"rtxg ps\" lists them",
			 (long long)r->task);
	else if (error == -ESRCH)
		snprintf(why, size,
			 "process %lld has no task here; \"rtxg ps\" lists those that have",
			 (long long)r->pid);
	return error;
}

/* 0 or a negative errno. Stops when it is time, after one task at least. */
static int change_tasks(struct connection *c, const struct request *r, struct tasks_change *change,
			uint64_t end, char *why, size_t size, struct rtxg_refusal *refusal)
{
	struct daemon *d = c->daemon;
	int error;

	while (change->next < d->tasks_top) {
		struct task *task = &d->tasks[change->next++];

		if (!task->used || (given(r, M_TASK) ? task->id != r->task : task->pid != r->pid))
			continue;
		if (!access_sees(c, task->uid))
			continue;
		error = may_change(c, task, r, why, size);
		if (!error)
			error = task_set(c, task, r, why, size, refusal);
		if (error)
			return error;
		task->placed |= task != c->task;
		reply_rows_add(&change->rows, backend_gate_task(d, task, c, &change->said));
		breathe(d);
		if (rtxg_now_ns() >= end)
			return 0;
	}
	change->step = CHANGE_KEEP;
	return change->rows.count ? 0 : set_other(c, r, &change->rows, why, size);
}

void control_task_set(struct connection *c, const struct request *r)
{
	uint64_t end = rtxg_now_ns() + CONTROL_PIECE_NS;
	struct rtxg_refusal refusal = { 0 };
	struct tasks_change *change;
	char why[512];
	int error = 0;

	if (given(r, M_TASK) == given(r, M_PID)) {
		reply_error(c, r->op_name, -EINVAL, "\"task-set\" needs either \"task\" or \"pid\"",
			    NULL);
		return;
	}
	change = change_of(c, r);
	if (!change) {
		reply_error(c, r->op_name, -ENOMEM, no_memory, NULL);
		return;
	}
	if (change->step == CHANGE_TASKS)
		error = change_tasks(c, r, change, end, why, sizeof(why), &refusal);
	if (error) {
		reply_error(c, r->op_name, error, why, &refusal);
		return;
	}
	if (change->step == CHANGE_KEEP && rtxg_now_ns() < end) {
		keep_save(c->daemon);
		change->step = CHANGE_REPLY;
	}
	/* The rest comes when others have been served. */
	c->later = change->step != CHANGE_REPLY || rtxg_now_ns() >= end;
	if (!c->later)
		reply_rows_send(c, &change->rows);
}

/* Where a task of the calling process would be, or why it would be refused. */
void control_place(struct connection *c, const struct request *r)
{
	struct request wanted = *r;
	struct rtxg_refusal refusal = { 0 };
	char why[512];
	int error = 0;
	struct vgpu *vgpu = task_vgpu(c, r, why, sizeof(why), &error);
	bool here = c->daemon->host->here;

	if (!error && here && given(r, M_PRIORITY))
		error = task_check_priority(c, vgpu->task_priority, (uint32_t)r->priority, why,
					    sizeof(why));
	if (!error && !given(r, M_GPU)) {
		strcpy(wanted.gpu, vgpu->gpu[0] ? vgpu->gpu : "0");
		wanted.given |= MESSAGE_BIT(M_GPU);
	}
	if (!error && here) {
		error = task_device(c, wanted.gpu, why, sizeof(why));
		c->later = error == -EINPROGRESS;
		if (c->later)
			return;
	}
	/* A question makes no GPU; the module's tasks find one there when they open. */
	if (!error && (!here || objects_gpu_find(c->daemon, wanted.gpu))) {
		error = task_place(c, &wanted, why, sizeof(why), &refusal);
	} else if (!error && vgpu->gpu[0] && strcmp(vgpu->gpu, wanted.gpu)) {
		snprintf(why, sizeof(why), "vGPU %s is for GPU %s only, not for %s", vgpu->name,
			 vgpu->gpu, wanted.gpu);
		error = -EACCES;
	}
	if (error)
		reply_error(c, r->op_name, error, why, &refusal);
	else
		reply_ok(c, r,
			 json_pack("{s:s, s:s, s:s}", "host", c->daemon->host->name, "gpu",
				   wanted.gpu, "vgpu", vgpu->name));
}

void control_open(struct connection *c, const struct request *r)
{
	task_open(c, r, r->fd);
}

void control_set(struct connection *c, const struct request *r)
{
	struct rtxg_refusal refusal = { 0 };
	char why[512];
	int error;

	error = may_change(c, c->task, r, why, sizeof(why));
	if (!error)
		error = task_set(c, c->task, r, why, sizeof(why), &refusal);
	if (error) {
		reply_error(c, r->op_name, error, why, &refusal);
		return;
	}
	/* The next daemon is to believe what the task said last. */
	if (c->task->placed)
		keep_save(c->daemon);
	reply_ok(c, r, NULL);
}

void control_fence(struct connection *c, const struct request *r)
{
	char why[512];
	int error = fence_set(c->task, r, r->fd, why, sizeof(why));

	if (error)
		reply_error(c, r->op_name, error, why, NULL);
	else
		reply_ok(c, r, NULL);
}

void control_fence_event(struct connection *c, const struct request *r)
{
	char why[512];
	int error = fence_event(c->daemon, c->task, r, r->fd, why, sizeof(why));

	if (error)
		reply_error(c, r->op_name, error, why, NULL);
	else
		reply_ok(c, r, NULL);
}
