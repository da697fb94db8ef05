// SPDX-License-Identifier: MIT
/*
 * module.c - the front of rtxg.ko: the core is in the kernel, programs open their tasks there, and
 * this is where people and their configuration speak to it. Objects are the module's; our tables
 * are a picture of them, drawn again at each request and each sample. So nothing is lost when we
 * end: the next front finds what is there. May not decide anything, and keeps nothing that the
 * module does not know, but for the names of files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rtxg/host.h"
#include "backend.h"
#include "history.h"
#include "module.h"
#include "names.h"
#include "objects.h"

#define ROWS 32u

_Static_assert(RTXG_HOST_USERS == USERS_MAX, "as many users as the module takes");
_Static_assert(RTXG_HOST_NAME == RTXG_NAME_MAX + 1, "names as long as the module's");

#define NAMES_FIRST_US 100000ull
#define NAMES_LAST_US  60000000ull

static struct {
	int fd;
	bool looking; /* draws the picture: no second time in between */
	bool missed;  /* what came in the middle of it */
	sd_event_source *source;
	uint32_t number[GPUS_MAX];			 /* the module's, by ours */
	struct rtxg_account_view (*views)[RTXG_ENGINES]; /* ACCOUNTS_MAX */
	struct lane_view (*lanes)[RTXG_ENGINES];	 /* TASKS_MAX */
	uint64_t *serials;				 /* TASKS_MAX */
	char advice[POOLS_MAX][RTXG_NAME_MAX + 1];
	char refusal[128];
	bool users_unknown; /* a name of a user was not known when the module was told */
	sd_event_source *names;
	uint64_t names_us; /* until they are looked at again */
} module = { .fd = -1, .names_us = NAMES_FIRST_US };

/* --- what the module keeps for us ------------------------------------------------------------- */

/*
 * A vGPU's cookie: who made it, whether it is on that GPU only, and the process with which it goes.
 * 0: not made by us.
 */
#define COOKIE_OURS	    1u
#define COOKIE_BOUND	    2u
#define COOKIE_ORIGIN_SHIFT 4
#define COOKIE_PID_SHIFT    32

static uint64_t cookie_of(enum origin origin, bool bound, pid_t pid)
{
	return COOKIE_OURS | (bound ? COOKIE_BOUND : 0) | (uint64_t)origin << COOKIE_ORIGIN_SHIFT |
	       (uint64_t)pid << COOKIE_PID_SHIFT;
}

static enum origin cookie_origin(uint64_t cookie, enum origin otherwise)
{
	uint64_t origin = cookie >> COOKIE_ORIGIN_SHIFT & 7;

	return cookie & COOKIE_OURS && origin <= ORIGIN_TASK ? (enum origin)origin : otherwise;
}

/* --- calls ------------------------------------------------------------------------------------ */

static int call(struct daemon *d, unsigned long command, void *argument)
{
	struct rtxg_host_refusal refusal = { .size = sizeof(refusal) };
	int ret = ioctl(module.fd, command, argument) < 0 ? -errno : 0;

	d->refusal = (struct rtxg_refusal){ 0 };
	if (ret && !ioctl(module.fd, RTXG_IOC_HOST_REFUSAL, &refusal) && refusal.what[0]) {
		snprintf(module.refusal, sizeof(module.refusal), "%s", refusal.what);
		d->refusal = (struct rtxg_refusal){ .what = module.refusal,
						    .value = refusal.value,
						    .limit = refusal.limit };
	}
	return ret;
}

static int ask(struct rtxg_host_info *info)
{
	*info = (struct rtxg_host_info){ .size = sizeof(*info) };
	return ioctl(module.fd, RTXG_IOC_HOST_INFO, info) < 0 ? -errno : 0;
}

static struct rtxg_host_gpu gpu_request(const struct rtxg_gpu_params *p)
{
	return (struct rtxg_host_gpu){
		.policy = p->policy,
		.overrun = p->overrun,
		.period_ns = p->period_ns,
		.window_ns = p->window_ns,
		.band_wait_ns = p->band_wait_ns,
		.think_ns = p->think_ns,
		.revoke_timeout_ns = p->revoke_timeout_ns,
		.switch_ppm = p->switch_ppm,
		.ahead_ns = p->ahead_ns,
		.early_ns = p->early_ns,
	};
}

static struct rtxg_gpu_params gpu_params(const struct rtxg_host_gpu *r)
{
	return (struct rtxg_gpu_params){
		.policy = r->policy,
		.overrun = r->overrun,
		.period_ns = r->period_ns,
		.window_ns = r->window_ns,
		.band_wait_ns = r->band_wait_ns,
		.think_ns = r->think_ns,
		.revoke_timeout_ns = r->revoke_timeout_ns,
		.switch_ppm = r->switch_ppm,
		.ahead_ns = r->ahead_ns,
		.early_ns = r->early_ns,
	};
}

static int module_gpu(struct daemon *d, struct gpu *gpu, enum verb verb,
		      const struct rtxg_gpu_params *params)
{
	struct rtxg_host_gpu request = { 0 };
	int ret;

	if (params)
		request = gpu_request(params);
	request.size = sizeof(request);
	request.flags = verb == VERB_REMOVE ? RTXG_HOST_F_REMOVE : 0;
	request.cookie = cookie_of(gpu->origin, false, 0);
	strcpy(request.name, gpu->name);
	ret = call(d, RTXG_IOC_HOST_GPU, &request);
	if (!ret)
		module.number[gpu->id] = request.number;
	return ret;
}

static void module_changed(struct daemon *d, struct gpu *gpu, struct vgpu *vgpu);

/* As numbers: the kernel knows no names. A name without a user lets no user in. */
static void put_users(struct rtxg_host_vgpu *request, const struct daemon *d,
		      const struct vgpu *vgpu)
{
	request->group =
		vgpu->users_count && d->group != (gid_t)-1 ? d->group : RTXG_HOST_EVERYBODY;
	request->users_count = vgpu->users_count;
	for (uint32_t i = 0; i < vgpu->users_count; i++) {
		uid_t uid;

		request->users[i] = names_user(vgpu->users[i], &uid) ? uid : UINT32_MAX;
		if (request->users[i] == UINT32_MAX)
			module.users_unknown = true;
	}
}

/*
 * A thread looks names up. What was not known when the module was told of a vGPU is known later: it
 * is told again, until no name is left.
 */
static int on_names(sd_event_source *s, uint64_t usec, void *data)
{
	struct daemon *d = data;

	module.users_unknown = false;
	module.names_us *= 2;
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used && d->vgpus[i].users_count)
			module_changed(d, NULL, &d->vgpus[i]);
	if (!module.users_unknown)
		module.names_us = NAMES_FIRST_US;
	return 0;
}

static void look_for_names(struct daemon *d)
{
	if (module.names_us > NAMES_LAST_US)
		module.names_us = NAMES_LAST_US;
	if (!module.names && sd_event_add_time_relative(d->event, &module.names, CLOCK_MONOTONIC,
							module.names_us, 0, on_names, d) < 0)
		return;
	sd_event_source_set_time_relative(module.names, module.names_us);
	sd_event_source_set_enabled(module.names, SD_EVENT_ONESHOT);
}

static int module_account(struct daemon *d, struct account *account, enum verb verb,
			  const struct rtxg_vgpu_params *params)
{
	const struct vgpu *vgpu = account->vgpu;
	struct rtxg_host_info info;
	struct rtxg_host_vgpu request = { .size = sizeof(request),
					  .flags = verb == VERB_REMOVE ? RTXG_HOST_F_REMOVE : 0 };
	int ret;

	strcpy(request.name, vgpu->name);
	strcpy(request.gpu, account->gpu->name);
	if (params) {
		request.min_ppm = params->min_ppm;
		request.max_ppm = params->max_ppm;
		request.weight = params->weight;
		request.priority = params->priority;
		request.period_ns = params->period_ns;
		request.policy = params->policy;
		request.task_priority = vgpu->task_priority;
		put_users(&request, d, vgpu);
		if (module.users_unknown)
			look_for_names(d);
		request.cookie = cookie_of(vgpu->origin, vgpu->gpu[0],
					   vgpu->creator < 0 ? 0 : vgpu->creator_pid);
	}
	ret = call(d, RTXG_IOC_HOST_VGPU, &request);
	if (ret == -ENOSPC && !d->refusal.what && !ask(&info))
		d->refusal =
			(struct rtxg_refusal){ .what = "the kernel module has no room for another "
						       "vGPU on a GPU (its parameter max_vgpus)",
					       .value = info.max_vgpus + 1ull,
					       .limit = info.max_vgpus };
	if (verb == VERB_ADD && !ret)
		memset(module.views[account->id], 0, sizeof(module.views[0]));
	/* What is to go is gone already, made and removed by another program. */
	return verb == VERB_REMOVE && ret == -ENOENT ? 0 : ret;
}

static int module_pool(struct daemon *d, struct pool *pool, enum verb verb)
{
	struct rtxg_host_pool request = { .size = sizeof(request),
					  .flags = verb == VERB_REMOVE ? RTXG_HOST_F_REMOVE : 0 };

	strcpy(request.name, pool->name);
	for (uint32_t g = 0; verb == VERB_ADD && g < GPUS_MAX; g++)
		if (pool->mask >> g & 1)
			request.mask |= 1ull << module.number[g];
	return call(d, RTXG_IOC_HOST_POOL, &request);
}

static void module_look(struct daemon *d);

static int change(struct daemon *d, struct task *task, uint32_t flags,
		  const struct rtxg_task_params *params, const struct vgpu *to)
{
	struct rtxg_host_change request = {
		.size = sizeof(request),
		.flags = flags,
		.number = task->id,
		.serial = module.serials[task->id],
		.priority = params->priority,
		.runtime_ns = params->runtime_ns,
		.deadline_ns = params->deadline_ns,
		.period_ns = params->period_ns,
	};
	struct rtxg_refusal refusal;
	int ret;

	if (to)
		strcpy(request.vgpu, to->name);
	ret = call(d, RTXG_IOC_HOST_TASK, &request);
	refusal = d->refusal;
	module_look(d);
	d->refusal = refusal;
	return ret;
}

static int module_task_set(struct daemon *d, struct task *task,
			   const struct rtxg_task_params *params, bool given)
{
	return change(d, task, RTXG_HOST_F_PARAMS | (given ? RTXG_HOST_F_GIVEN : 0), params, NULL);
}

static int module_task_move(struct daemon *d, struct task *task, struct vgpu *to)
{
	return change(d, task, RTXG_HOST_F_MOVE, &task->permit.params, to);
}

static void module_changed(struct daemon *d, struct gpu *gpu, struct vgpu *vgpu)
{
	if (gpu)
		module_gpu(d, gpu, VERB_SET, &gpu->params);
	for (uint32_t g = 0; vgpu && g < GPUS_MAX; g++)
		if (vgpu->on[g])
			module_account(d, vgpu->on[g], VERB_SET, &vgpu->params);
}

static int claim(struct daemon *d)
{
	struct rtxg_host_front request = { .size = sizeof(request),
					   .tasks_per_user = d->tasks_per_user };

	request.gpu = gpu_request(&d->gpu_default);
	return call(d, RTXG_IOC_HOST_FRONT, &request);
}

static void module_configured(struct daemon *d)
{
	struct rtxg_host_info info;

	if (claim(d) && d->refusal.what)
		fprintf(stderr, "rtxgd: [GPU *] is not accepted by the kernel module: %s\n",
			d->refusal.what);
	if (!ask(&info))
		d->tasks_per_user = info.tasks_per_user;
}

/* --- the picture ------------------------------------------------------------------------------ */

/* Calls each for every row there is. */
static int list(struct daemon *d, uint32_t what, uint32_t flags, uint32_t entry,
		void (*each)(struct daemon *d, const void *row))
{
	static _Alignas(8) char rows[ROWS * sizeof(struct rtxg_host_task)];
	struct rtxg_host_list request = {
		.size = sizeof(request), .flags = flags, .what = what, .entry = entry
	};

	for (;;) {
		request.count = ROWS;
		request.entries = (uintptr_t)rows;
		if (ioctl(module.fd, RTXG_IOC_HOST_LIST, &request) < 0)
			return -errno;
		if (!request.count)
			return 0;
		for (uint32_t i = 0; i < request.count; i++)
			each(d, rows + (size_t)i * entry);
		request.flags = 0; /* once for all rows */
	}
}

static bool seen_gpu[GPUS_MAX], seen_pool[POOLS_MAX], seen_account[ACCOUNTS_MAX],
	seen_task[TASKS_MAX];

static void see_gpu(struct daemon *d, const void *row)
{
	const struct rtxg_host_gpu *r = row;
	struct gpu *gpu = objects_gpu_find(d, r->name);

	if (!gpu) {
		for (uint32_t i = 0; i < GPUS_MAX && !gpu; i++)
			if (!d->gpus[i].used)
				gpu = &d->gpus[i];
		if (!gpu)
			return; /* as many as the module has: cannot be */
		*gpu = (struct gpu){ .used = true,
				     .id = (uint32_t)(gpu - d->gpus),
				     .origin = cookie_origin(r->cookie, ORIGIN_TASK),
				     .last_used_ns = rtxg_now_ns() };
		strcpy(gpu->name, r->name);
	}
	if (gpu->tasks && !r->tasks)
		gpu->last_used_ns = rtxg_now_ns();
	gpu->params = gpu_params(r);
	gpu->tasks = r->tasks;
	module.number[gpu->id] = r->number;
	seen_gpu[gpu->id] = true;
}

/* One that was there before us, or that another program made. */
static struct vgpu *adopt(struct daemon *d, const struct rtxg_host_vgpu *r)
{
	struct vgpu *vgpu = NULL;
	pid_t pid = (pid_t)(r->cookie >> COOKIE_PID_SHIFT);

	for (uint32_t i = 0; i < VGPUS_MAX && !vgpu; i++)
		if (!d->vgpus[i].used)
			vgpu = &d->vgpus[i];
	if (!vgpu)
		return NULL;
	*vgpu = (struct vgpu){
		.daemon = d,
		.used = true,
		.params = { .min_ppm = r->min_ppm,
			    .max_ppm = r->max_ppm,
			    .weight = r->weight,
			    .priority = r->priority,
			    .period_ns = r->period_ns,
			    .policy = r->policy },
		.task_priority = rtxg_task_priority(r->task_priority, 0),
		.users_count = r->users_count,
		.origin = cookie_origin(r->cookie, ORIGIN_RUNTIME),
		.created = ++d->created,
		.creator = -1,
	};
	strcpy(vgpu->name, r->name);
	if (!strcmp(r->name, "default"))
		vgpu->origin = ORIGIN_BUILTIN;
	/* What is made by others may leave to the core what it is to be. */
	if (!vgpu->params.max_ppm)
		vgpu->params.max_ppm = RTXG_PPM;
	if (!vgpu->params.priority)
		vgpu->params.priority = RTXG_PRIORITY_MIN;
	if (!vgpu->params.period_ns)
		vgpu->params.period_ns = RTXG_PERIOD_DEFAULT_NS;
	if (!(r->cookie & COOKIE_OURS) ? vgpu->origin != ORIGIN_BUILTIN
				       : !!(r->cookie & COOKIE_BOUND))
		strcpy(vgpu->gpu, r->gpu);
	for (uint32_t i = 0; i < r->users_count && i < USERS_MAX; i++)
		snprintf(vgpu->users[i], sizeof(vgpu->users[i]), "%u", r->users[i]);
	if (vgpu->origin == ORIGIN_TRANSIENT && pid)
		objects_vgpu_follow(d, vgpu, (int)syscall(SYS_pidfd_open, pid, 0u), pid);
	backend_vgpu_changed(d, vgpu);
	return vgpu;
}

static void see_account(struct daemon *d, const void *row)
{
	const struct rtxg_host_account *r = row;
	struct gpu *gpu = objects_gpu_find(d, r->vgpu.gpu);
	struct vgpu *vgpu = objects_vgpu_find(d, r->vgpu.name);
	struct account *account;

	if (!gpu)
		return; /* came between two lists: next time */
	if (!vgpu)
		vgpu = adopt(d, &r->vgpu);
	account = vgpu ? vgpu->on[gpu->id] : NULL;
	if (vgpu && !account) {
		account = objects_account_adopt(d, vgpu, gpu);
		/*
		 * Made by a task that named a GPU for the first time: what is configured holds
		 * there too.
		 */
		if (account && r->flags & RTXG_HOST_F_AUTOMATIC && vgpu->configured &&
		    module_account(d, account, VERB_SET, &vgpu->params))
			fprintf(stderr, "rtxgd: vGPU %s on GPU %s is not what was configured: %s\n",
				vgpu->name, gpu->name,
				d->refusal.what ? d->refusal.what : strerrordesc_np(errno));
	}
	if (!account)
		return;
	seen_account[account->id] = true;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		const struct rtxg_host_engine *e = &r->engines[i];

		module.views[account->id][i] = (struct rtxg_account_view){
			.stats = e->stats,
			.credit_ns = e->credit_ns,
			.deadline_ns = e->deadline_ns,
			.used_ppm = e->used_ppm,
			.waiting = e->waiting,
			.holder = e->holder,
			.tasks = r->tasks,
		};
		account->permit.engines[i].device_ns = e->device_ns;
		account->permit.engines[i].launches = e->launches;
		account->permit.engines[i].active_ns = e->active_ns;
	}
}

static void see_pool(struct daemon *d, const void *row)
{
	const struct rtxg_host_members *r = row;
	struct pool *pool = objects_pool_find(d, r->name);

	for (uint32_t i = 0; i < POOLS_MAX && !pool; i++)
		if (!d->pools[i].used) {
			pool = &d->pools[i];
			*pool = (struct pool){ .used = true, .id = i };
			strcpy(pool->name, r->name);
		}
	if (!pool)
		return;
	pool->members = r->members;
	pool->mask = 0;
	for (uint32_t g = 0; g < GPUS_MAX; g++)
		if (d->gpus[g].used && r->mask >> module.number[g] & 1)
			pool->mask |= 1ull << g;
	strcpy(module.advice[pool->id], r->advice);
	seen_pool[pool->id] = true;
}

static const char *state_name(const struct rtxg_host_lane *lane)
{
	switch (lane->state) {
	case RTXG_HOST_WAITING:
		return "waiting";
	case RTXG_HOST_HOLDS:
		return lane->in_flight ? "running" : "holding";
	case RTXG_HOST_REVOKED:
		return "revoked";
	default:
		return "idle";
	}
}

static void see_task(struct daemon *d, const void *row)
{
	const struct rtxg_host_task *r = row;
	struct gpu *gpu = objects_gpu_find(d, r->gpu), *pool_gpu = objects_gpu_find(d, r->pool_gpu);
	struct vgpu *vgpu = objects_vgpu_find(d, r->vgpu);
	struct account *account = gpu && vgpu ? vgpu->on[gpu->id] : NULL;
	struct task *task;

	if (!account || r->number >= TASKS_MAX) {
		module.missed = true; /* its vGPU came after the list of those */
		return;
	}
	task = &d->tasks[r->number];
	*task = (struct task){
		.used = true,
		.id = r->number,
		.pid = (pid_t)r->pid,
		.uid = r->uid,
		.doorbell = -1,
		.ungated = r->flags & RTXG_HOST_F_UNGATED,
		.gpu = gpu,
		.vgpu = vgpu,
		.account = account,
		.permit = { .params = { .priority = r->priority,
					.runtime_ns = r->runtime_ns,
					.deadline_ns = r->deadline_ns,
					.period_ns = r->period_ns },
			    .opened_ns = r->opened_ns,
			    .pool_held = pool_gpu != NULL,
			    .pool_gpu = pool_gpu ? pool_gpu->id : 0 },
		.priority_limit = r->priority_limit,
		.moving_to = r->moving_to[0] ? objects_vgpu_find(d, r->moving_to) : NULL,
		.pool = r->pool[0] ? objects_pool_find(d, r->pool) : NULL,
	};
	account->tasks++;
	vgpu->tasks++;
	d->tasks_count++;
	d->tasks_top = r->number + 1; /* they come in order */
	module.serials[r->number] = r->serial;
	seen_task[r->number] = true;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		const struct rtxg_host_lane *l = &r->lanes[i];

		module.lanes[r->number][i] = (struct lane_view){
			.state = state_name(l),
			.in_flight = l->in_flight,
			.launches = l->launches,
			.device_ns = l->device_ns,
			.stats = l->stats,
		};
	}
}

/*
 * What the lists did not show is not there any more. Nothing that stays points to it: tasks were
 * read last.
 */
static void forget_the_rest(struct daemon *d)
{
	for (uint32_t i = 0; i < ACCOUNTS_MAX; i++) {
		struct account *account = &d->accounts[i];
		struct vgpu *vgpu = account->vgpu;
		bool any = false;

		if (!account->used || seen_account[i] || account->tasks)
			continue;
		objects_account_forget(d, account);
		for (uint32_t g = 0; g < GPUS_MAX; g++)
			any |= vgpu->on[g] != NULL;
		/* Another program removed it, and it was not our configuration's. */
		if (!any && (vgpu->origin == ORIGIN_RUNTIME || vgpu->origin == ORIGIN_TRANSIENT))
			objects_vgpu_forget(d, vgpu);
	}
	for (uint32_t i = 0; i < GPUS_MAX; i++) {
		bool any = false;

		for (uint32_t v = 0; v < VGPUS_MAX; v++)
			any |= d->vgpus[v].used && d->vgpus[v].on[i];
		if (d->gpus[i].used && !seen_gpu[i] && !any)
			d->gpus[i].used = false;
	}
	for (uint32_t i = 0; i < POOLS_MAX; i++)
		if (d->pools[i].used && !seen_pool[i])
			d->pools[i].used = false;
}

/* A GPU that a task has named past us: what is reserved everywhere is reserved there too. */
static void reserve_on(struct daemon *d, struct gpu *gpu)
{
	for (uint32_t i = 0; i < VGPUS_MAX; i++) {
		struct vgpu *vgpu = &d->vgpus[i];
		char why[256];
		int error;

		if (vgpu->used && vgpu->params.min_ppm && !vgpu->gpu[0] && !vgpu->on[gpu->id] &&
		    !objects_account_get(d, vgpu, gpu, why, sizeof(why), &error, NULL))
			fprintf(stderr, "rtxgd: %s\n", why);
	}
}

static void draw(struct daemon *d, uint32_t flags)
{
	static bool gpu_before[GPUS_MAX], task_before[TASKS_MAX];
	static bool again;
	uint32_t top = d->tasks_top;
	bool any = false;

	if (module.looking)
		return;
	module.looking = true;
	module.missed = false;
	memset(seen_gpu, 0, sizeof(seen_gpu));
	memset(seen_pool, 0, sizeof(seen_pool));
	memset(seen_account, 0, sizeof(seen_account));
	for (uint32_t i = 0; i < GPUS_MAX; i++)
		gpu_before[i] = d->gpus[i].used;
	/* A task is known again by its serial: a new task may have the number of an old one. */
	for (uint32_t i = 0; i < top; i++) {
		task_before[i] = d->tasks[i].used;
		d->tasks[i].used = false;
		seen_task[i] = false;
		if (task_before[i])
			any = true;
	}
	for (uint32_t i = 0; any && i < ACCOUNTS_MAX; i++)
		d->accounts[i].tasks = 0;
	for (uint32_t i = 0; any && i < VGPUS_MAX; i++)
		d->vgpus[i].tasks = 0;
	d->tasks_count = d->tasks_top = 0;
	if (list(d, RTXG_HOST_LIST_GPUS, 0, sizeof(struct rtxg_host_gpu), see_gpu) ||
	    list(d, RTXG_HOST_LIST_VGPUS, flags, sizeof(struct rtxg_host_account), see_account) ||
	    list(d, RTXG_HOST_LIST_POOLS, 0, sizeof(struct rtxg_host_members), see_pool) ||
	    list(d, RTXG_HOST_LIST_TASKS, 0, sizeof(struct rtxg_host_task), see_task))
		fprintf(stderr, "rtxgd: the kernel module does not list what it hosts: %s\n",
			strerrordesc_np(errno));
	else
		forget_the_rest(d);
	for (uint32_t g = 0; g < GPUS_MAX; g++)
		if (d->gpus[g].used && !gpu_before[g])
			reserve_on(d, &d->gpus[g]);
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		objects_vgpu_collect(d, &d->vgpus[i]);
	if (any && !d->tasks_count)
		d->idle_since = rtxg_now_ns();
	for (uint32_t i = 0; i < d->tasks_top; i++)
		if (d->tasks[i].used &&
		    (!d->tasks[i].account->slots || d->sample_ns == RTXG_TIME_NEVER))
			history_task_opened(d, d->tasks[i].account);
	/*
	 * While tasks are open each sample brings the news; before, the module tells when the first
	 * one comes.
	 */
	if (module.source)
		sd_event_source_set_enabled(module.source,
					    d->tasks_count ? SD_EVENT_OFF : SD_EVENT_ON);
	module.looking = false;
	if (module.missed && !again) {
		again = true;
		draw(d, 0);
		again = false;
	}
}

static void module_look(struct daemon *d)
{
	draw(d, 0);
}

static void module_count(struct daemon *d)
{
	draw(d, RTXG_HOST_F_USAGE);
}

static void module_account_view(struct daemon *d, const struct account *account, uint32_t engine,
				uint64_t now, struct rtxg_account_view *view)
{
	*view = module.views[account->id][engine];
}

static void module_lane_view(struct daemon *d, const struct task *task, uint32_t engine,
			     struct lane_view *view)
{
	*view = module.lanes[task->id][engine];
}

static struct gpu *module_advice(struct daemon *d, const struct pool *pool)
{
	if (!pool) {
		struct rtxg_host_pool wanted = { .size = sizeof(wanted) };

		return ioctl(module.fd, RTXG_IOC_HOST_ADVICE, &wanted)
			       ? NULL
			       : objects_gpu_find(d, wanted.gpu);
	}
	return objects_gpu_find(d, module.advice[pool->id]);
}

static const char *module_check(struct daemon *d)
{
	return NULL;
}

static const struct host host_module = {
	.name = "module",
	.gpu = module_gpu,
	.account = module_account,
	.pool = module_pool,
	.task_set = module_task_set,
	.task_move = module_task_move,
	.changed = module_changed,
	.configured = module_configured,
	.look = module_look,
	.count = module_count,
	.account_view = module_account_view,
	.lane_view = module_lane_view,
	.advice = module_advice,
	.check = module_check,
};

/* --- start and end ---------------------------------------------------------------------------- */

static int on_news(sd_event_source *s, int fd, uint32_t events, void *data)
{
	module_look(data);
	return 0;
}

/*
 * Becomes the front if the module is loaded. 0 also where it is not (or does not know these calls)
 * and the caller does not insist: then the host stays what it was. Every other end is an error, with a line on
 * stderr: two hosts for one GPU would be worse than none.
 */
int module_start(struct daemon *d, bool insist)
{
	struct rtxg_host_info info;
	int ret;

	module.fd = open(RTXG_MODULE_DEVICE, O_RDWR | O_CLOEXEC);
	if (module.fd < 0) {
		if (!insist && (errno == ENOENT || errno == ENXIO || errno == ENODEV))
			return 0;
		fprintf(stderr, "rtxgd: %s cannot be opened: %s%s\n", RTXG_MODULE_DEVICE,
			strerrordesc_np(errno), errno == ENOENT ? "; load rtxg.ko" : "");
		return -errno;
	}
	module.views = calloc(ACCOUNTS_MAX, sizeof(*module.views));
	module.lanes = calloc(TASKS_MAX, sizeof(*module.lanes));
	module.serials = calloc(TASKS_MAX, sizeof(*module.serials));
	ret = module.views && module.lanes && module.serials ? claim(d) : -ENOMEM;
	if (!ret)
		ret = ask(&info);
	if (!ret) {
		d->host = &host_module;
		d->generation = info.generation & INT64_MAX;
		d->tasks_max = info.max_tasks;
		return 0;
	}
	if (ret == -EPERM)
		fprintf(stderr, "rtxgd: the kernel module hosts GPU tasks here, and speaking for "
				"it needs CAP_SYS_NICE: start the system's "
				"daemon as root (systemctl start rtxgd, or rtxgd --system); or say "
				"--host=daemon for one that hosts "
				"programs started with RTXG_HOST=daemon\n");
	else if (ret == -EBUSY && !ask(&info))
		fprintf(stderr, "rtxgd: process %u speaks for the kernel module already\n",
			info.front);
	else if (ret == -ENOTTY)
		fprintf(stderr, "rtxgd: the kernel module that is loaded is of another version; "
				"load the one that came with this rtxgd\n");
	else
		fprintf(stderr, "rtxgd: the kernel module does not accept this daemon: %s%s%s\n",
			strerrordesc_np(-ret), d->refusal.what ? ": " : "",
			d->refusal.what ? d->refusal.what : "");
	module_stop();
	return ret;
}

/* The loop is there: from now on the first task is seen when it comes. */
void module_watch(struct daemon *d)
{
	if (module.fd < 0)
		return;
	if (sd_event_add_io(d->event, &module.source, module.fd, EPOLLIN, on_news, d) < 0)
		fprintf(stderr, "rtxgd: news of the kernel module cannot be waited for; history "
				"begins with the first request\n");
	module_look(d);
}

void module_stop(void)
{
	module.source = sd_event_source_disable_unref(module.source);
	if (module.fd >= 0)
		close(module.fd);
	module.fd = -1;
}
