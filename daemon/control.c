// SPDX-License-Identifier: MIT
/*
 * control.c - what the requests do, and who may ask for it. A handler answers exactly once, by
 * client_reply or client_error. Every value in a request has been read by message.c; whether it
 * makes sense together is checked here or by the core.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access.h"
#include "backend_gate.h"
#include "config.h"
#include "control.h"
#include "doctor.h"
#include "history.h"
#include "host.h"
#include "objects.h"
#include "reply.h"
#include "process.h"
#include "report.h"
#include "task.h"

static bool refused(struct connection *c, const struct request *r)
{
	char why[160];

	if (access_administer(c))
		return false;
	snprintf(why, sizeof(why),
		 "\"%s\" changes the system's daemon; that needs root or membership in group rtxg",
		 r->op_name);
	reply_error(c, r->op_name, -EPERM, why, NULL);
	return true;
}

/* --- replies ---------------------------------------------------------------------------------- */

/* Wraps what is to be said; takes over content, which may be NULL. */
static void answer(struct connection *c, const struct request *r, json_t *content)
{
	json_t *reply = content ? content : json_object();

	json_object_set_new(reply, "ok", json_true());
	json_object_set_new(reply, "op", json_string(r->op_name));
	reply_send(c, reply, NULL, 0);
}

static void no_such(struct connection *c, const struct request *r, const char *kind,
		    const char *name, const char *remedy)
{
	char why[256];

	snprintf(why, sizeof(why), "there is no %s %s; %s", kind, name, remedy);
	reply_error(c, r->op_name, -ENOENT, why, NULL);
}

static struct vgpu *find_vgpu(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = objects_vgpu_find(c->daemon, r->vgpu);

	if (!vgpu)
		no_such(c, r, "vGPU", r->vgpu, "\"rtxg vgpu ls\" lists them");
	return vgpu;
}

/* False, and the client knows, if the request names a GPU that is not there. */
static bool has_gpu(struct connection *c, const struct request *r)
{
	if (!given(r, M_GPU) || backend_has(c->daemon, r->gpu))
		return true;
	no_such(c, r, "GPU", r->gpu, "\"rtxg limits\" lists them");
	return false;
}

/* --- looking ---------------------------------------------------------------------------------- */

static void hello(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;

	answer(c, r,
	       json_pack("{s:s, s:i, s:s, s:s, s:i, s:i, s:s, s:I, s:I, s:I, s:s, s:I, s:{s:i, "
			 "s:i, s:i, s:b, s:b}}",
			 "version", RTXG_VERSION, "protocol", RTXG_PROTOCOL, "host", d->host->name,
			 "scope", d->system ? "system" : "user", "pid", (int)getpid(), "uid",
			 (int)geteuid(), "socket", d->socket_path, "started_ns",
			 (json_int_t)d->started_ns, "now_ns", (json_int_t)rtxg_now_ns(),
			 "generation", (json_int_t)d->generation, "fail_policy",
			 !d->host->here	  ? "managed"
			 : d->fail_closed ? "closed"
					  : "open",
			 "idle_exit_ns", (json_int_t)d->idle_exit_ns, "you", "pid", (int)c->pid,
			 "uid", (int)c->uid, "gid", (int)c->gid, "administrator",
			 access_administer(c), "may_raise", access_raise(c)));
}

static void gpu_list(struct connection *c, const struct request *r)
{
	json_t *list = json_array();

	backend_gpus(c->daemon, list);
	answer(c, r,
	       json_pack("{s:o, s:o}", "gpus", list, "default",
			 report_gpu_params(&c->daemon->gpu_default)));
}

static void vgpu_list(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	const struct vgpu *vgpu;
	json_t *list;

	if (given(r, M_VGPU) && !find_vgpu(c, r))
		return;
	list = json_array();
	for (uint64_t order = 0; (vgpu = report_next_vgpu(d, order)); order = vgpu->created)
		if (!given(r, M_VGPU) || !strcmp(vgpu->name, r->vgpu))
			json_array_append_new(list, report_vgpu(d, vgpu));
	answer(c, r, json_pack("{s:o}", "vgpus", list));
}

static void task_list(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct backend_filter filter = { .vgpu = given(r, M_VGPU) ? r->vgpu : NULL,
					 .gpu = given(r, M_GPU) ? r->gpu : NULL,
					 .pid = given(r, M_PID) ? r->pid : 0,
					 .numbered = given(r, M_TASK),
					 .task = r->task,
					 .viewer = c };
	json_t *list;

	d->host->count(d);
	if (given(r, M_VGPU) && !find_vgpu(c, r))
		return;
	list = json_array();
	backend_tasks(d, &filter, list);
	answer(c, r, json_pack("{s:o}", "tasks", list));
}

static void pool_list(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	json_t *list = json_array();

	for (uint32_t i = 0; i < POOLS_MAX; i++) {
		struct pool *pool = &d->pools[i];
		struct gpu *advice;
		json_t *gpus;

		if (!pool->used)
			continue;
		gpus = json_array();
		for (uint32_t g = 0; g < GPUS_MAX; g++)
			if (pool->mask >> g & 1)
				json_array_append_new(gpus, json_string(d->gpus[g].name));
		advice = d->host->advice(d, pool);
		json_array_append_new(list, json_pack("{s:s, s:o, s:i, s:s}", "pool", pool->name,
						      "gpus", gpus, "members", (int)pool->members,
						      "advice", advice ? advice->name : ""));
	}
	answer(c, r, json_pack("{s:o}", "pools", list));
}

static void advice(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct pool *pool = NULL;
	struct gpu *best;

	if (given(r, M_POOL)) {
		pool = objects_pool_find(d, r->pool);
		if (!pool) {
			no_such(c, r, "pool", r->pool,
				"[Pool NAME] in the configuration or \"pool-create\" makes one");
			return;
		}
	}
	best = d->host->advice(d, pool);
	if (!best)
		reply_error(c, r->op_name, -ENODEV, "there is no GPU", NULL);
	else
		answer(c, r, json_pack("{s:s}", "gpu", best->name));
}

/* Leaves in a list about all GPUs the lines about one of them. */
static void keep_gpu(json_t *list, const struct request *r)
{
	for (size_t i = json_array_size(list); given(r, M_GPU) && i-- > 0;) {
		const char *name =
			json_string_value(json_object_get(json_array_get(list, i), "gpu"));

		if (!name || strcmp(name, r->gpu))
			json_array_remove(list, i);
	}
}

static void stats(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct backend_filter filter = { .gpu = given(r, M_GPU) ? r->gpu : NULL, .viewer = c };
	json_t *reply, *gpus, *tasks;
	uint64_t now;

	if (!has_gpu(c, r))
		return;
	d->host->count(d);
	now = rtxg_now_ns();
	gpus = json_array();
	backend_stats(d, now, gpus);
	keep_gpu(gpus, r);
	reply = json_pack("{s:I, s:o}", "now_ns", (json_int_t)now, "gpus", gpus);
	if (r->tasks) {
		tasks = json_array();
		backend_tasks(d, &filter, tasks);
		keep_gpu(tasks, r);
		json_object_set_new(reply, "tasks", tasks);
	}
	answer(c, r, reply);
}

static void history(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	uint64_t first = history_oldest(d), since = (uint64_t)r->since;
	json_t *times, *series;

	if (!has_gpu(c, r))
		return;
	times = json_array();
	series = json_array();
	if (given(r, M_SINCE) && since > first)
		first = since < d->samples ? since : d->samples;
	for (uint64_t n = first; n <= d->samples; n++)
		json_array_append_new(times, report_number(d->times[n % (SLOTS + 1)]));
	backend_history(d, first, series);
	keep_gpu(series, r);
	answer(c, r,
	       json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "slot_ns", (json_int_t)SLOT_NS, "now_ns",
			 (json_int_t)rtxg_now_ns(), "first", (json_int_t)first, "next",
			 (json_int_t)d->samples, "times_ns", times, "series", series));
}

/* --- GPUs, vGPUs, pools ----------------------------------------------------------------------- */

static uint64_t or_never(int64_t value)
{
	return value < 0 ? RTXG_TIME_NEVER : (uint64_t)value;
}

static void merge_gpu_params(struct rtxg_gpu_params *p, const struct request *r)
{
	if (given(r, M_POLICY))
		p->policy = r->policy;
	if (given(r, M_OVERRUN))
		p->overrun = r->overrun;
	if (given(r, M_PERIOD))
		p->period_ns = (uint64_t)r->period_ns;
	if (given(r, M_WINDOW))
		p->window_ns = (uint64_t)r->window_ns;
	if (given(r, M_BAND_WAIT))
		p->band_wait_ns = (uint64_t)r->band_wait_ns;
	if (given(r, M_THINK))
		p->think_ns = or_never(r->think_ns);
	if (given(r, M_REVOKE_TIMEOUT))
		p->revoke_timeout_ns = or_never(r->revoke_timeout_ns);
	if (given(r, M_SWITCH))
		p->switch_ppm = (uint32_t)r->switch_ppm;
}

static void gpu_set(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct rtxg_gpu_params params;
	struct rtxg_refusal refusal = { 0 };
	json_t *list = json_array();
	char why[512];
	int error = 0;

	if (given(r, M_GPU)) {
		struct gpu *gpu =
			objects_gpu_get(d, r->gpu, ORIGIN_RUNTIME, why, sizeof(why), &error);

		if (gpu) {
			params = gpu->params;
			merge_gpu_params(&params, r);
			error = objects_gpu_change(d, gpu, &params, why, sizeof(why), &refusal);
		}
		if (!error)
			json_array_append_new(list, backend_gate_gpu(d, gpu));
	} else {
		struct rtxg_gpu_params before[GPUS_MAX];
		uint32_t i;

		for (i = 0; i < GPUS_MAX && !error; i++) {
			if (!d->gpus[i].used)
				continue;
			before[i] = params = d->gpus[i].params;
			merge_gpu_params(&params, r);
			error = objects_gpu_change(d, &d->gpus[i], &params, why, sizeof(why),
						   &refusal);
			if (!error)
				json_array_append_new(list, backend_gate_gpu(d, &d->gpus[i]));
		}
		if (!error) {
			merge_gpu_params(&d->gpu_default, r);
		} else {
			/* All or none. */
			for (uint32_t k = 0; k + 1 < i; k++) {
				char ignored[256];

				if (d->gpus[k].used)
					objects_gpu_change(d, &d->gpus[k], &before[k], ignored,
							   sizeof(ignored), NULL);
			}
		}
	}
	if (error) {
		json_decref(list);
		reply_error(c, r->op_name, error, why, &refusal);
		return;
	}
	answer(c, r, json_pack("{s:o}", "gpus", list));
}

static void merge_vgpu_params(struct vgpu *v, const struct request *r)
{
	if (given(r, M_MIN))
		v->params.min_ppm = (uint32_t)r->min_ppm;
	if (given(r, M_MAX))
		v->params.max_ppm = (uint32_t)r->max_ppm;
	if (given(r, M_WEIGHT))
		v->params.weight = (uint32_t)r->weight;
	if (given(r, M_PRIORITY))
		v->params.priority = (uint32_t)r->priority;
	if (given(r, M_PERIOD))
		v->params.period_ns = (uint64_t)r->period_ns;
	if (given(r, M_POLICY))
		v->params.policy = r->policy;
	if (given(r, M_TASK_PRIORITY))
		v->task_priority = (uint32_t)r->task_priority;
	if (!v->params.max_ppm)
		v->params.max_ppm = RTXG_PPM;
	if (!v->params.period_ns)
		v->params.period_ns = RTXG_PERIOD_DEFAULT_NS;
}

static void vgpu_create_request(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct rtxg_refusal refusal = { 0 };
	struct vgpu wanted = {
		.params = { .max_ppm = RTXG_PPM,
			    .priority = RTXG_PRIORITY_MIN,
			    .period_ns = RTXG_PERIOD_DEFAULT_NS },
		.daemon = d,
		.task_priority = RTXG_PRIORITY_MIN,
		.origin = r->transient ? ORIGIN_TRANSIENT : ORIGIN_RUNTIME,
		.creator = -1,
	};
	struct vgpu *vgpu = NULL;
	char why[512];
	int error;

	strcpy(wanted.name, r->vgpu);
	if (given(r, M_GPU))
		strcpy(wanted.gpu, r->gpu);
	merge_vgpu_params(&wanted, r);
	error = objects_vgpu_create(d, &wanted, &vgpu, why, sizeof(why), &refusal);
	if (error) {
		reply_error(c, r->op_name, error, why, &refusal);
		return;
	}
	if (r->transient) {
		vgpu->creator = fcntl(c->pidfd, F_DUPFD_CLOEXEC, 3);
		if (vgpu->creator < 0 ||
		    sd_event_add_io(d->event, &vgpu->creator_source, vgpu->creator, EPOLLIN,
				    objects_vgpu_creator_ended, vgpu) < 0) {
			objects_vgpu_remove(d, vgpu);
			reply_error(c, r->op_name, -EMFILE,
				    "the end of the calling process cannot be watched", NULL);
			return;
		}
		d->host->changed(d, NULL, vgpu);
	}
	answer(c, r, json_pack("{s:o}", "vgpu", report_vgpu(d, vgpu)));
}

static void vgpu_set(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = find_vgpu(c, r), changed;
	struct rtxg_refusal refusal = { 0 };
	char why[512];
	int error;

	if (!vgpu)
		return;
	changed = *vgpu;
	merge_vgpu_params(&changed, r);
	error = objects_vgpu_change(c->daemon, vgpu, &changed.params, why, sizeof(why), &refusal);
	if (error) {
		reply_error(c, r->op_name, error, why, &refusal);
		return;
	}
	vgpu->task_priority = changed.task_priority;
	c->daemon->host->changed(c->daemon, NULL, vgpu);
	answer(c, r, json_pack("{s:o}", "vgpu", report_vgpu(c->daemon, vgpu)));
}

static void vgpu_remove_request(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = find_vgpu(c, r);
	char why[256];

	if (!vgpu)
		return;
	if (vgpu->origin == ORIGIN_BUILTIN) {
		reply_error(c, r->op_name, -EPERM,
			    "vGPU default is where tasks go that name none; it stays", NULL);
		return;
	}
	snprintf(why, sizeof(why),
		 "vGPU %s has %u tasks in it, or on their way to it; end or move them first (rtxg "
		 "ps)",
		 vgpu->name, vgpu->tasks);
	if (objects_vgpu_remove(c->daemon, vgpu))
		reply_error(c, r->op_name, -EBUSY, why, NULL);
	else
		answer(c, r, NULL);
}

static void pool_create_request(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	uint64_t mask = 0;
	char why[512];
	int error = 0;

	for (uint32_t i = 0; i < r->gpus_count && !error; i++) {
		struct gpu *gpu =
			objects_gpu_get(d, r->gpus[i], ORIGIN_RUNTIME, why, sizeof(why), &error);

		if (gpu)
			mask |= 1ull << gpu->id;
	}
	if (!error)
		error = objects_pool_create(d, r->pool, mask, why, sizeof(why));
	if (error)
		reply_error(c, r->op_name, error, why, NULL);
	else
		answer(c, r, NULL);
}

static void pool_remove_request(struct connection *c, const struct request *r)
{
	struct pool *pool = objects_pool_find(c->daemon, r->pool);
	char why[256];

	if (!pool) {
		no_such(c, r, "pool", r->pool, "\"pool-list\" lists them");
		return;
	}
	snprintf(why, sizeof(why), "pool %s has %u tasks that hold or want a GPU of it", pool->name,
		 pool->members);
	if (objects_pool_remove(c->daemon, pool))
		reply_error(c, r->op_name, -EBUSY, why, NULL);
	else
		answer(c, r, NULL);
}

/* --- tasks ------------------------------------------------------------------------------------ */

static int may_change(struct connection *c, struct task *task, const struct request *r, char *why,
		      size_t size)
{
	struct vgpu *vgpu = given(r, M_VGPU) ? objects_vgpu_find(c->daemon, r->vgpu) : NULL;
	uint32_t limit = vgpu && vgpu != task->vgpu ? vgpu->task_priority : task->priority_limit;

	if (task->uid != c->uid && !access_administer(c)) {
		snprintf(why, size,
			 "task %u belongs to user %u; changing it needs root or group rtxg",
			 task->id, task->uid);
		return -EACCES;
	}
	if (given(r, M_PRIORITY) && (uint64_t)r->priority > limit && !access_raise(c)) {
		snprintf(why, size,
			 "priority %lld is above the %u that is configured; raising it needs "
			 "CAP_SYS_NICE, root or "
			 "group rtxg",
			 (long long)r->priority, limit);
		return -EPERM;
	}
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
	char path[64];
	struct stat st;
	int error;

	if (!given(r, M_VGPU))
		return -ESRCH;
	if (!vgpu) {
		snprintf(why, size, "there is no vGPU %s", r->vgpu);
		return -ENOENT;
	}
	snprintf(path, sizeof(path), "/proc/%lld", (long long)r->pid);
	if (stat(path, &st))
		return -ESRCH;
	if (!access_administer(c) && (st.st_uid != c->uid || !access_vgpu(vgpu, c))) {
		snprintf(why, size, "process %lld is not yours, or vGPU %s is not open to you",
			 (long long)r->pid, vgpu->name);
		return -EPERM;
	}
	error = backend_assign(c->daemon, (pid_t)r->pid, vgpu,
			       given(r, M_PERIOD) ? (uint64_t)r->period_ns : 0);
	if (error && error != -EOPNOTSUPP)
		snprintf(why, size, "process %lld: the NVIDIA lever says: %s", (long long)r->pid,
			 strerror(-error));
	return error == -EOPNOTSUPP ? -ESRCH : error;
}

static void task_set_request(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct rtxg_refusal refusal = { 0 };
	json_t *list;
	char why[512];
	bool any = false;

	if (given(r, M_TASK) == given(r, M_PID)) {
		reply_error(c, r->op_name, -EINVAL, "\"task-set\" needs either \"task\" or \"pid\"",
			    NULL);
		return;
	}
	list = json_array();
	for (uint32_t i = 0; i < d->tasks_top; i++) {
		struct task *task = &d->tasks[i];
		int error;

		if (!task->used || (given(r, M_TASK) ? task->id != r->task : task->pid != r->pid))
			continue;
		any = true;
		error = may_change(c, task, r, why, sizeof(why));
		if (!error)
			error = task_set(c, task, r, why, sizeof(why), &refusal);
		if (error) {
			json_decref(list);
			reply_error(c, r->op_name, error, why, &refusal);
			return;
		}
		if (access_raise(c) && given(r, M_PRIORITY) && task->priority_limit < r->priority)
			task->priority_limit = (uint32_t)r->priority;
		json_array_append_new(list, backend_gate_task(d, task, c));
	}
	if (!any && given(r, M_PID)) {
		int error = set_stranger(c, r, why, sizeof(why));

		if (!error) {
			struct backend_filter filter = { .pid = r->pid, .viewer = c };

			backend_tasks(d, &filter, list);
			answer(c, r, json_pack("{s:o}", "tasks", list));
			return;
		}
		if (error != -ESRCH) {
			json_decref(list);
			reply_error(c, r->op_name, error, why, NULL);
			return;
		}
	}
	if (!any) {
		json_decref(list);
		if (given(r, M_TASK))
			snprintf(why, sizeof(why), "there is no task %lld; \"rtxg ps\" lists them",
				 (long long)r->task);
		else
			snprintf(why, sizeof(why),
				 "process %lld has no task here; \"rtxg ps\" lists those that have",
				 (long long)r->pid);
		reply_error(c, r->op_name, -ESRCH, why, NULL);
		return;
	}
	answer(c, r, json_pack("{s:o}", "tasks", list));
}

static bool no_task(struct connection *c, const struct request *r)
{
	if (c->task)
		return false;
	reply_error(c, r->op_name, -ENOTCONN, "this connection has no task; \"open\" comes first",
		    NULL);
	return true;
}

/* For programs whose host is elsewhere: it asks no more than where they belong. */
static void place(struct connection *c, const struct request *r)
{
	struct rtxg_refusal refusal = { 0 };
	struct account *account = NULL;
	char why[512];
	int error = task_place(c, r, &account, why, sizeof(why), &refusal);

	if (error)
		reply_error(c, r->op_name, error, why, &refusal);
	else
		answer(c, r,
		       json_pack("{s:s, s:s, s:s}", "host", c->daemon->host->name, "gpu",
				 account->gpu->name, "vgpu", account->vgpu->name));
}

static void own_set(struct connection *c, const struct request *r)
{
	struct rtxg_refusal refusal = { 0 };
	char why[512];
	int error;

	if (no_task(c, r))
		return;
	error = may_change(c, c->task, r, why, sizeof(why));
	if (!error)
		error = task_set(c, c->task, r, why, sizeof(why), &refusal);
	if (error)
		reply_error(c, r->op_name, error, why, &refusal);
	else
		answer(c, r, NULL);
}

static void pool_acquire(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct rtxg_refusal refusal;
	struct pool *pool;
	char why[512];
	int error;

	if (no_task(c, r))
		return;
	pool = objects_pool_find(d, r->pool);
	if (!pool) {
		no_such(c, r, "pool", r->pool,
			"[Pool NAME] in the configuration or \"pool-create\" makes one");
		return;
	}
	if (c->task->pool) {
		snprintf(why, sizeof(why), "the task has or wants a GPU of pool %s already",
			 c->task->pool->name);
		reply_error(c, r->op_name, -EALREADY, why, NULL);
		return;
	}
	c->task->pool = pool;
	pool->members++;
	/* The answer goes out with the grant, now or later. */
	error = host_pool_acquire(d, c->task, pool);
	if (error) {
		refusal = d->permits.refusal;
		c->task->pool = NULL;
		pool->members--;
		objects_explain(why, sizeof(why), "the pool cannot be asked", &refusal, error);
		reply_error(c, r->op_name, error, why, &refusal);
	}
}

static void pool_release(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct pool *pool;
	bool held;

	if (no_task(c, r))
		return;
	pool = c->task->pool;
	if (!pool || strcmp(pool->name, r->pool)) {
		reply_error(c, r->op_name, -EPERM,
			    "the task neither has nor wants a GPU of that pool", NULL);
		return;
	}
	held = c->task->permit.pool_held;
	c->task->pool = NULL;
	pool->members--;
	host_pool_release(d, c->task);
	/* Replies go out in the order of the requests. */
	if (!held)
		reply_error(c, "pool-acquire", -ECANCELED, "the request was withdrawn", NULL);
	answer(c, r, NULL);
}

/* --- the daemon itself ------------------------------------------------------------------------ */

static void reload(struct connection *c, const struct request *r)
{
	json_t *messages = json_array();

	config_load(c->daemon, messages);
	answer(c, r, json_pack("{s:o}", "messages", messages));
}

static void shutdown_request(struct connection *c, const struct request *r)
{
	char why[128];

	if (c->daemon->host->here && c->daemon->tasks_count && !r->force) {
		snprintf(why, sizeof(why),
			 "%u tasks are open; \"force\" ends the daemon all the same",
			 c->daemon->tasks_count);
		reply_error(c, r->op_name, -EBUSY, why, NULL);
		return;
	}
	answer(c, r, NULL);
	c->daemon->stop = true;
}

void control_handle(struct connection *c, const struct request *r, int fd)
{
	switch (r->op) {
	case OP_GPU_SET:
	case OP_VGPU_CREATE:
	case OP_VGPU_SET:
	case OP_VGPU_REMOVE:
	case OP_POOL_CREATE:
	case OP_POOL_REMOVE:
	case OP_RELOAD:
	case OP_SHUTDOWN:
		if (refused(c, r))
			return;
		break;
	default:
		break;
	}
	if (!c->daemon->host->here && (r->op == OP_OPEN || r->op == OP_SET ||
				       r->op == OP_POOL_ACQUIRE || r->op == OP_POOL_RELEASE)) {
		reply_error(c, r->op_name, -EOPNOTSUPP,
			    "the kernel module hosts GPU tasks here: a program "
			    "opens " RTXG_MODULE_DEVICE ", not this socket",
			    NULL);
		return;
	}
	/*
	 * Where a task belongs is asked at every start of a program; while tasks are open the
	 * picture is never older than a sample anyway.
	 */
	if (r->op != OP_HELLO && r->op != OP_TASK_LIST &&
	    (r->op != OP_PLACE || !c->daemon->tasks_count))
		c->daemon->host->look(c->daemon);
	/* While a request for a pool waits its reply must be the next one. */
	if (c->task && c->task->pool && !c->task->permit.pool_held && r->op != OP_POOL_RELEASE) {
		reply_error(c, r->op_name, -EBUSY,
			    "the task waits for a GPU of a pool; only pool-release is possible",
			    NULL);
		return;
	}
	switch (r->op) {
	case OP_HELLO:
		hello(c, r);
		break;
	case OP_GPU_LIST:
		gpu_list(c, r);
		break;
	case OP_GPU_SET:
		gpu_set(c, r);
		break;
	case OP_VGPU_LIST:
		vgpu_list(c, r);
		break;
	case OP_VGPU_CREATE:
		vgpu_create_request(c, r);
		break;
	case OP_VGPU_SET:
		vgpu_set(c, r);
		break;
	case OP_VGPU_REMOVE:
		vgpu_remove_request(c, r);
		break;
	case OP_TASK_LIST:
		task_list(c, r);
		break;
	case OP_TASK_SET:
		task_set_request(c, r);
		break;
	case OP_POOL_LIST:
		pool_list(c, r);
		break;
	case OP_POOL_CREATE:
		pool_create_request(c, r);
		break;
	case OP_POOL_REMOVE:
		pool_remove_request(c, r);
		break;
	case OP_ADVICE:
		advice(c, r);
		break;
	case OP_STATS:
		stats(c, r);
		break;
	case OP_HISTORY:
		history(c, r);
		break;
	case OP_TIMELINE:
		answer(c, r, backend_timeline(c->daemon, (uint64_t)r->since));
		break;
	case OP_LIMITS:
		answer(c, r, doctor_limits(c->daemon));
		break;
	case OP_DOCTOR:
		answer(c, r, doctor_report(c->daemon));
		break;
	case OP_RELOAD:
		reload(c, r);
		break;
	case OP_SHUTDOWN:
		shutdown_request(c, r);
		break;
	case OP_PLACE:
		place(c, r);
		break;
	case OP_OPEN:
		task_open(c, r, fd);
		break;
	case OP_SET:
		own_set(c, r);
		break;
	case OP_POOL_ACQUIRE:
		pool_acquire(c, r);
		break;
	case OP_POOL_RELEASE:
		pool_release(c, r);
		break;
	case OPS:
		break;
	}
}
