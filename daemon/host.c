// SPDX-License-Identifier: MIT
/*
 * host.c - hosts the core in this process: memory, the clock, the timer and the wake-ups of the
 * machine in core/launch/permit.c, which turns pages into events and actions into permits. This is
 * the path of every hand-over between programs, so nothing here allocates, logs or makes a system
 * call but to wake.
 *
 * May not: decide who runs; read or write a permit.
 */
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fence.h"
#include "host.h"
#include "inherit.h"
#include "ready.h"

#define WAKE_MOST (8 * RTXG_LAUNCHES_MAX) /* waiters of one task */

/* --- what the machine asks for ---------------------------------------------------------------- */

static struct task *task_of(struct permit_task *permit)
{
	return (struct task *)((char *)permit - offsetof(struct task, permit));
}

static struct account *account_of(struct permit_account *permit)
{
	return (struct account *)((char *)permit - offsetof(struct account, permit));
}

/*
 * A program may have any number of waiters on its word, threads or requests of io_uring, and this
 * thread wakes each. Those beyond look for themselves (HOST_CHECK_NS), and no more than
 * RTXG_LAUNCHES_MAX can launch.
 */
static void wake(void *host, struct permit_task *task, uint32_t engine)
{
	syscall(SYS_futex, &task->page->lanes[engine].permit, FUTEX_WAKE, WAKE_MOST, NULL, NULL, 0);
}

static void arm(void *host, uint64_t at_ns)
{
	((struct daemon *)host)->armed_ns = at_ns;
}

static void pool_granted(void *host, struct permit_task *task)
{
	struct daemon *d = host;

	d->news->pool_granted(d, task_of(task));
}

static void moved(void *host, struct permit_task *permit, struct permit_account *from)
{
	struct task *task = task_of(permit);
	struct daemon *d = host;

	task->account = account_of(permit->account);
	d->news->moved(d, task, account_of(from));
}

static bool passed(void *host, const struct permit_task *permit, uint32_t engine, uint64_t value)
{
	return fence_passed(task_of((struct permit_task *)(uintptr_t)permit), engine, value);
}

static void stand_ready(void *host, uint32_t gpu, uint32_t engine, uint64_t until_ns)
{
	ready_begin(gpu, engine, until_ns);
}

static const struct permit_ops ops = {
	.passed = passed,
	.wake = wake,
	.stand_ready = stand_ready,
	.arm = arm,
	.pool_granted = pool_granted,
	.moved = moved,
};

/* --- what the daemon asks for ----------------------------------------------------------------- */

int host_open(struct daemon *d, struct task *task)
{
	task->permit.id = task->id;
	task->permit.account = &task->account->permit;
	return permit_open(&d->permits, rtxg_now_ns(), &task->permit);
}

void host_event(struct daemon *d, void *data)
{
	struct task *fenced = fence_marked(data);

	/* The device is no sign that the task goes on, as its doorbell is. */
	if (fenced)
		host_look(d, fenced);
	else
		permit_ring(&d->permits, rtxg_now_ns(), &((struct task *)data)->permit);
}

void host_look(struct daemon *d, struct task *task)
{
	permit_look(&d->permits, rtxg_now_ns(), &task->permit);
}

void host_timer(struct daemon *d)
{
	d->armed_ns = RTXG_TIME_NEVER;
	permit_timer(&d->permits, rtxg_now_ns());
}

void host_close(struct daemon *d, struct task *task)
{
	permit_close(&d->permits, rtxg_now_ns(), &task->permit);
	inherit_update(d);
}

int host_pool_acquire(struct daemon *d, struct task *task, const struct pool *pool)
{
	int error = permit_pool_acquire(&d->permits, rtxg_now_ns(), &task->permit, pool->id);

	inherit_update(d);
	return error;
}

void host_pool_release(struct daemon *d, struct task *task)
{
	permit_pool_release(&d->permits, rtxg_now_ns(), &task->permit);
	inherit_update(d);
}

/* Brings all accounts up to this moment, rather than to the last completion. */
static void count_all(struct daemon *d)
{
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (d->tasks[id].used)
			permit_count(&d->permits, rtxg_now_ns(), &d->tasks[id].permit);
}

/* --- as a host among hosts -------------------------------------------------------------------- */

static int answered(struct daemon *d, int ret)
{
	d->refusal = ret ? d->permits.refusal : (struct rtxg_refusal){ 0 };
	return ret;
}

static int event_or_refusal(struct daemon *d, const struct rtxg_event *event)
{
	return answered(d, permit_event(&d->permits, rtxg_now_ns(), event));
}

static int here_gpu(struct daemon *d, struct gpu *gpu, enum verb verb,
		    const struct rtxg_gpu_params *params)
{
	static const uint32_t types[] = { RTXG_EV_GPU_ADD, RTXG_EV_GPU_SET, RTXG_EV_GPU_REMOVE };
	struct rtxg_event event = { .type = types[verb], .gpu = gpu->id };

	if (params)
		event.gpu_params = *params;
	return event_or_refusal(d, &event);
}

static int here_account(struct daemon *d, struct account *account, enum verb verb,
			const struct rtxg_vgpu_params *params)
{
	static const uint32_t types[] = { RTXG_EV_VGPU_ADD, RTXG_EV_VGPU_SET, RTXG_EV_VGPU_REMOVE };
	struct rtxg_event event = { .type = types[verb], .vgpu = account->id };

	if (verb == VERB_ADD)
		event.gpu = account->gpu->id;
	if (params)
		event.vgpu_params = *params;
	return event_or_refusal(d, &event);
}

static int here_pool(struct daemon *d, struct pool *pool, enum verb verb)
{
	struct rtxg_event event = { .type = verb == VERB_ADD ? RTXG_EV_POOL_ADD
							     : RTXG_EV_POOL_REMOVE,
				    .pool = pool->id };

	if (verb == VERB_ADD)
		event.gpu_mask = pool->mask;
	return event_or_refusal(d, &event);
}

static int here_task_set(struct daemon *d, struct task *task, const struct rtxg_task_params *params,
			 bool given)
{
	int ret = answered(d, permit_set(&d->permits, rtxg_now_ns(), &task->permit, params));

	if (!ret && given)
		task->priority_limit =
			rtxg_task_priority_limit(task->priority_limit, params->priority);
	return ret;
}

static int here_task_move(struct daemon *d, struct task *task, struct vgpu *to)
{
	if (to == task->vgpu && !task->moving_to)
		return 0;
	task->moving_to = to;
	permit_move(&d->permits, rtxg_now_ns(), &task->permit, &to->on[task->gpu->id]->permit);
	return 0;
}

static void here_changed(struct daemon *d, struct gpu *gpu, struct vgpu *vgpu)
{
	/* What is no parameter of the core is read from our tables when it is needed. */
}

static void here_configured(struct daemon *d)
{
	for (uint32_t i = 0; i < d->tasks_top; i++)
		if (d->tasks[i].used)
			d->tasks[i].permit.page->flags =
				d->fail_closed ? RTXG_PAGE_F_FAIL_CLOSED : 0;
}

static void here_look(struct daemon *d)
{
	/* The tables are the truth here. */
}

static void here_account_view(struct daemon *d, const struct account *account, uint32_t engine,
			      uint64_t now, struct rtxg_account_view *view)
{
	if (rtxg_core_vgpu_view(d->permits.core, account->id, engine, now, view))
		*view = (struct rtxg_account_view){ .holder = RTXG_NONE };
}

static void here_lane_view(struct daemon *d, const struct task *task, uint32_t engine,
			   struct lane_view *view)
{
	static const char *const states[] = { [PERMIT_FREE] = "idle",
					      [PERMIT_WAITING] = "waiting",
					      [PERMIT_HELD] = "holding",
					      [PERMIT_REVOKED] = "revoked" };
	struct rtxg_lane *p = &task->permit.page->lanes[engine];
	uint32_t state = task->permit.lanes[engine].state;

	*view = (struct lane_view){ .state = states[state],
				    .in_flight = page_load(&p->in_flight),
				    .launches = page_load(&p->launches),
				    .device_ns = page_load(&p->device_ns) };
	if (state == PERMIT_HELD && view->in_flight)
		view->state = "running";
	permit_lane_stats(&d->permits, &task->permit, engine, &view->stats);
}

static struct gpu *here_advice(struct daemon *d, const struct pool *pool)
{
	uint32_t gpu = rtxg_core_device_advice(d->permits.core, pool ? pool->id : RTXG_NONE);

	return gpu < GPUS_MAX ? &d->gpus[gpu] : NULL;
}

static const char *here_check(struct daemon *d)
{
	return rtxg_core_check(d->permits.core);
}

static const struct host host_here = {
	.name = "daemon",
	.here = true,
	.gpu = here_gpu,
	.account = here_account,
	.pool = here_pool,
	.task_set = here_task_set,
	.task_move = here_task_move,
	.changed = here_changed,
	.configured = here_configured,
	.look = here_look,
	.count = count_all,
	.account_view = here_account_view,
	.lane_view = here_lane_view,
	.advice = here_advice,
	.check = here_check,
};

/* --- start ------------------------------------------------------------------------------------ */

int host_init(struct daemon *d, const struct host_news *news)
{
	struct rtxg_limits limits = {
		.gpus = GPUS_MAX, .vgpus = ACCOUNTS_MAX, .tasks = TASKS_MAX, .pools = POOLS_MAX
	};
	size_t size = rtxg_core_size(&limits);
	void *memory = aligned_alloc(64, (size + 63) & ~(size_t)63);
	struct permit_task **table = calloc(TASKS_MAX, sizeof(*table));
	struct rtxg_core *core;

	d->vgpus = calloc(VGPUS_MAX, sizeof(*d->vgpus));
	d->accounts = calloc(ACCOUNTS_MAX, sizeof(*d->accounts));
	d->tasks = calloc(TASKS_MAX, sizeof(*d->tasks));
	d->free_tasks = calloc(TASKS_MAX, sizeof(*d->free_tasks));
	d->matches = calloc(MATCHES_MAX, sizeof(*d->matches));
	if (!memory || !table || !d->vgpus || !d->accounts || !d->tasks || !d->free_tasks ||
	    !d->matches)
		return -ENOMEM;
	core = rtxg_core_init(memory, size, &limits, rtxg_now_ns());
	if (!core)
		return -EINVAL;
	permit_init(&d->permits, core, &limits, table, &ops, d);
	d->armed_ns = d->sample_ns = RTXG_TIME_NEVER;
	d->host = &host_here;
	d->news = news;
	d->tasks_max = TASKS_MAX;
	d->gpus_max = GPUS_MAX;
	/* The lowest numbers are given out first. */
	for (uint32_t i = 0; i < TASKS_MAX; i++)
		d->free_tasks[d->free_tasks_count++] = TASKS_MAX - 1 - i;
	return 0;
}
