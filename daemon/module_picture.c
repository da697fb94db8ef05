// SPDX-License-Identifier: MIT
/*
 * module_picture.c - what there is in rtxg.ko, drawn into the daemon's own tables from the module's
 * lists. See module_picture.h. May not: change a task.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend.h"
#include "history.h"
#include "module_calls.h"
#include "module_picture.h"
#include "objects.h"

#define ROWS 32u

static struct {
	bool looking; /* draws the picture: no second time in between */
	bool missed;  /* what came in the middle of it */
	sd_event_source *news;
	struct rtxg_account_view (*views)[RTXG_ENGINES]; /* ACCOUNTS_MAX */
	struct lane_view (*lanes)[RTXG_ENGINES];	 /* TASKS_MAX */
	char advice[POOLS_MAX][RTXG_NAME_MAX + 1];
} picture;

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
		if (ioctl(module_link.fd, RTXG_IOC_HOST_LIST, &request) < 0)
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
				     .origin = module_cookie(r->cookie, ORIGIN_TASK).origin,
				     .last_used_ns = rtxg_now_ns() };
		strcpy(gpu->name, r->name);
	}
	if (gpu->tasks && !r->tasks)
		gpu->last_used_ns = rtxg_now_ns();
	gpu->params = module_gpu_params(r);
	gpu->tasks = r->tasks;
	module_link.number[gpu->id] = r->number;
	seen_gpu[gpu->id] = true;
}

/* One that was there before us, or that another program made. */
static struct vgpu *adopt(struct daemon *d, const struct rtxg_host_vgpu *r)
{
	struct vgpu *vgpu = NULL;
	struct module_cookie cookie = module_cookie(r->cookie, ORIGIN_RUNTIME);

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
		.origin = cookie.origin,
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
	if (cookie.ours ? cookie.bound : vgpu->origin != ORIGIN_BUILTIN)
		strcpy(vgpu->gpu, r->gpu);
	for (uint32_t i = 0; i < r->users_count && i < USERS_MAX; i++)
		snprintf(vgpu->users[i], sizeof(vgpu->users[i]), "%u", r->users[i]);
	if (vgpu->origin == ORIGIN_TRANSIENT && cookie.pid)
		objects_vgpu_follow(d, vgpu, (int)syscall(SYS_pidfd_open, cookie.pid, 0u),
				    cookie.pid);
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
		    module_ask_account(d, account, VERB_SET, &vgpu->params))
			fprintf(stderr, "rtxgd: vGPU %s on GPU %s is not what was configured: %s\n",
				vgpu->name, gpu->name,
				d->refusal.what ? d->refusal.what : strerrordesc_np(errno));
	}
	if (!account)
		return;
	seen_account[account->id] = true;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		const struct rtxg_host_engine *e = &r->engines[i];

		picture.views[account->id][i] = (struct rtxg_account_view){
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
		if (d->gpus[g].used && r->mask >> module_link.number[g] & 1)
			pool->mask |= 1ull << g;
	strcpy(picture.advice[pool->id], r->advice);
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
		picture.missed = true; /* its vGPU came after the list of those */
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
	module_link.serials[r->number] = r->serial;
	seen_task[r->number] = true;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		const struct rtxg_host_lane *l = &r->lanes[i];

		picture.lanes[r->number][i] = (struct lane_view){
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
		    !objects_account_get(d, vgpu, gpu, NULL, why, sizeof(why), &error, NULL))
			fprintf(stderr, "rtxgd: %s\n", why);
	}
}

void module_picture_draw(struct daemon *d, uint32_t flags)
{
	static bool gpu_before[GPUS_MAX], task_before[TASKS_MAX];
	static bool again;
	uint32_t top = d->tasks_top;
	bool any = false;

	if (picture.looking)
		return;
	picture.looking = true;
	picture.missed = false;
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
	if (picture.news)
		sd_event_source_set_enabled(picture.news,
					    d->tasks_count ? SD_EVENT_OFF : SD_EVENT_ON);
	picture.looking = false;
	if (picture.missed && !again) {
		again = true;
		module_picture_draw(d, 0);
		again = false;
	}
}

/* --- what it shows ---------------------------------------------------------------------------- */

void module_picture_account(const struct account *account, uint32_t engine,
			    struct rtxg_account_view *view)
{
	*view = picture.views[account->id][engine];
}

void module_picture_forget(const struct account *account)
{
	memset(picture.views[account->id], 0, sizeof(picture.views[0]));
}

void module_picture_lane(const struct task *task, uint32_t engine, struct lane_view *view)
{
	*view = picture.lanes[task->id][engine];
}

const char *module_picture_advice(const struct pool *pool)
{
	return picture.advice[pool->id];
}

/* --- start and end ---------------------------------------------------------------------------- */

int module_picture_begin(void)
{
	picture.views = calloc(ACCOUNTS_MAX, sizeof(*picture.views));
	picture.lanes = calloc(TASKS_MAX, sizeof(*picture.lanes));
	module_link.serials = calloc(TASKS_MAX, sizeof(*module_link.serials));
	return picture.views && picture.lanes && module_link.serials ? 0 : -ENOMEM;
}

static int on_news(sd_event_source *s, int fd, uint32_t events, void *data)
{
	module_picture_draw(data, 0);
	return 0;
}

int module_picture_watch(struct daemon *d)
{
	return sd_event_add_io(d->event, &picture.news, module_link.fd, EPOLLIN, on_news, d);
}

void module_picture_end(void)
{
	picture.news = sd_event_source_disable_unref(picture.news);
}
