// SPDX-License-Identifier: MIT
/*
 * host.c - hosts the core: what clients' pages and the clock say becomes events, what the core
 * answers becomes permits. This is the path of every hand-over between programs, so nothing here
 * allocates, logs or makes a system call but to wake. May not decide who runs; what a page says is
 * a claim, and is only ever compared with what was seen before.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"
#include "host.h"

#define ACTIONS 64u

/* --- what the daemon remembers of a lane ------------------------------------------------------ */

static void set_state(struct task *task, uint32_t engine, enum lane_state state)
{
	struct lane *lane = &task->lanes[engine];
	struct account_engine *e = &task->account->engines[engine];
	bool was = lane->state != LANE_FREE, is = state != LANE_FREE;

	lane->state = (uint8_t)state;
	if (was == is)
		return;
	if (is) {
		if (!e->active++)
			e->active_since = rtxg_now_ns();
	} else if (!--e->active) {
		e->active_ns += rtxg_now_ns() - e->active_since;
	}
}

static void queue_look(struct daemon *d, struct task *task, uint32_t engine)
{
	struct lane *lane = &task->lanes[engine];

	if (lane->queued)
		return;
	lane->queued = true;
	task->look_next[engine] = NULL;
	*d->looks_end[engine] = task;
	d->looks_end[engine] = &task->look_next[engine];
}

/*
 * What the client says it has used since it was last asked. The core bounds it by the time that has
 * passed.
 */
static uint64_t claimed_use(struct task *task, uint32_t engine, uint64_t now)
{
	struct rtxg_lane *p = &task->page->lanes[engine];
	struct lane *lane = &task->lanes[engine];
	uint64_t since, claimed, used = 0;
	int tries = 3;

	/*
	 * The client writes the two words one after the other: a pair is good if the first did not
	 * change.
	 */
	do {
		since = page_load(&p->busy_since);
		claimed = page_load(&p->busy_ns);
	} while (page_load(&p->busy_since) != since && --tries);
	if (since && since < now)
		claimed += now - since;
	if (claimed > lane->claimed_ns)
		used = claimed - lane->claimed_ns;
	/* A claim that falls is garbage. */
	if (used)
		lane->claimed_ns = claimed;
	return used;
}

/*
 * Device time and launches, which nothing depends on: kept for people to see, and bounded to what
 * is possible.
 */
static void claims(struct task *task)
{
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct rtxg_lane *p = &task->page->lanes[i];
		struct lane *lane = &task->lanes[i];
		struct account_engine *e = &task->account->engines[i];
		uint64_t device = page_load(&p->device_ns), launches = page_load(&p->launches);
		uint64_t most = rtxg_now_ns() - task->opened_ns;

		if (device > most)
			device = most;
		if (device > lane->device_seen) {
			e->device_ns += device - lane->device_seen;
			lane->device_seen = device;
		}
		/* A launch takes some nanoseconds. */
		if (launches > most / 10)
			launches = most / 10;
		if (launches > lane->launches_seen) {
			e->launches += launches - lane->launches_seen;
			lane->launches_seen = launches;
		}
	}
}

/* --- the core --------------------------------------------------------------------------------- */

/*
 * The core wants the permit back. If a thread that waited for it is on its way and has not launched
 * yet, the permit is cut down to that one launch: otherwise two tasks that both wait could take the
 * permit from each other without end, before either has run. Whoever is more urgent waits for that
 * launch as if it had begun; if it never does (a stopped program), the core's patience ends and it
 * is expelled.
 */
static void call_back(struct task *task, uint32_t engine)
{
	struct rtxg_lane *p = &task->page->lanes[engine];
	struct lane *lane = &task->lanes[engine];

	lane->last = lane->state == LANE_HELD && !task->moving_to && page_load(&p->want) &&
		     !page_load(&p->in_flight) && page_load(&p->launches) == lane->launches_at;
	set_state(task, engine, LANE_REVOKED);
	/*
	 * REPORT, because the launch may be faster than the word: it then leaves the permit behind,
	 * and must ring all the same.
	 */
	if (lane->last)
		task->gpu->lever->grant(task, engine, RTXG_GRANT_ONESHOT | RTXG_GRANT_REPORT,
					false);
	else
		task->gpu->lever->revoke(task, engine);
}

static void apply(struct daemon *d, const struct rtxg_action *action)
{
	struct task *task = action->task < TASKS_MAX ? &d->tasks[action->task] : NULL;
	struct lane *lane =
		task && action->engine < RTXG_ENGINES ? &task->lanes[action->engine] : NULL;

	switch (action->type) {
	case RTXG_ACT_GRANT: {
		struct rtxg_lane *p = &task->page->lanes[action->engine];
		bool anew = lane->state != LANE_HELD;

		lane->flags = action->flags;
		if (anew) {
			lane->again = false;
			lane->last = false;
			lane->idle_reported = false;
			lane->launches_at = page_load(&p->launches);
			set_state(task, action->engine, LANE_HELD);
		}
		/* A task that is being moved gets its permit from its new vGPU. */
		if (!task->moving_to)
			task->gpu->lever->grant(task, action->engine, action->flags, anew);
		/*
		 * It may have fallen idle under a permit that asked for no report; or have given up
		 * while this was decided.
		 */
		if (!anew || !page_load(&p->want))
			queue_look(d, task, action->engine);
		break;
	}
	case RTXG_ACT_REVOKE:
		call_back(task, action->engine);
		queue_look(d, task, action->engine);
		break;
	case RTXG_ACT_EXPEL:
		task->gpu->lever->revoke(task, action->engine);
		set_state(task, action->engine, LANE_FREE);
		lane->again = lane->last = false;
		queue_look(d, task, action->engine);
		break;
	case RTXG_ACT_ARM_TIMER:
		d->armed_ns = action->at_ns;
		break;
	case RTXG_ACT_POOL_GRANT:
		task->pool_held = true;
		task->pool_gpu = action->gpu;
		d->news->pool_granted(d, task);
		break;
	case RTXG_ACT_POOL_INHERIT:
		/* the core counts it in its own queues; there is no other lever for it here */
		break;
	case RTXG_ACT_SET_SLICE:
		task->gpu->lever->slice(task, action->slice_ns);
		break;
	case RTXG_ACT_SUSPEND:
		task->gpu->lever->suspend(task);
		break;
	case RTXG_ACT_RESUME:
		task->gpu->lever->resume(task);
		break;
	}
}

static int step(struct daemon *d, const struct rtxg_event *event)
{
	static const struct rtxg_event none = { .type = RTXG_EV_NONE };
	struct rtxg_action actions[ACTIONS];
	int n, first;

	first = n = rtxg_core_step(d->core, rtxg_now_ns(), event, actions, ACTIONS);
	while (n > 0) {
		for (int i = 0; i < n; i++)
			apply(d, &actions[i]);
		if (n < (int)ACTIONS)
			break;
		n = rtxg_core_step(d->core, rtxg_now_ns(), &none, actions, ACTIONS);
	}
	return first < 0 ? first : 0;
}

static int lane_event(struct daemon *d, struct task *task, uint32_t engine, uint32_t type,
		      uint64_t used)
{
	struct rtxg_event event = {
		.type = type, .task = task->id, .engine = engine, .used_ns = used
	};

	return step(d, &event);
}

/*
 * An event from elsewhere (objects, tasks), with all that follows from it. The refusal stays
 * readable until the next event.
 */
int host_event(struct daemon *d, const struct rtxg_event *event)
{
	int ret = step(d, event);

	if (!ret)
		host_run_looks(d);
	return ret;
}

/* --- looking at a lane ------------------------------------------------------------------------ */

/* The permit has ended. If somebody wants another, the core is told, unless it knows already. */
static void permit_ended(struct daemon *d, struct task *task, uint32_t engine, uint32_t type)
{
	struct lane *lane = &task->lanes[engine];
	bool again = lane->again;

	lane->again = false;
	set_state(task, engine, again ? LANE_WAITING : LANE_FREE);
	lane_event(d, task, engine, type, claimed_use(task, engine, rtxg_now_ns()));
}

static void look(struct daemon *d, struct task *task, uint32_t engine)
{
	struct rtxg_lane *p = &task->page->lanes[engine];
	struct lane *lane = &task->lanes[engine];
	uint32_t in_flight, want;
	uint64_t launches;

	if (task->moving_to) {
		for (uint32_t i = 0; i < RTXG_ENGINES; i++)
			if (page_load(&task->page->lanes[i].in_flight))
				return;
		d->news->moved(d, task);
		return;
	}
	in_flight = page_load(&p->in_flight);
	want = page_load(&p->want);

	if (lane->state == LANE_REVOKED && lane->last && !in_flight &&
	    (page_load(&p->launches) != lane->launches_at || !want)) {
		/* It was used, or nobody wants it any more; a launch may just have been faster. */
		task->gpu->lever->revoke(task, engine);
		in_flight = page_load(&p->in_flight);
		lane->last = false;
	}
	if (lane->state == LANE_REVOKED && !lane->last && !in_flight)
		permit_ended(d, task, engine, RTXG_EV_RELEASED);

	if (lane->state == LANE_HELD && !in_flight) {
		launches = page_load(&p->launches);
		if (lane->flags & RTXG_GRANT_ONESHOT) {
			if (launches == lane->launches_at && !want) {
				/*
				 * Nobody wants it any more. Take it back; a launch may just have
				 * been faster.
				 */
				task->gpu->lever->revoke(task, engine);
				in_flight = page_load(&p->in_flight);
				if (!in_flight)
					permit_ended(d, task, engine, RTXG_EV_COMPLETION);
			} else if (launches != lane->launches_at) {
				task->gpu->lever->revoke(task, engine);
				permit_ended(d, task, engine, RTXG_EV_COMPLETION);
			}
		} else if (lane->flags & RTXG_GRANT_REPORT) {
			/*
			 * in_flight 0, want > 0 and nothing launched: a thread is on its way to use
			 * the permit.
			 */
			if (launches != lane->launches_at || (!want && !lane->idle_reported)) {
				lane->launches_at = launches;
				lane->idle_reported = true;
				lane_event(d, task, engine, RTXG_EV_COMPLETION,
					   claimed_use(task, engine, rtxg_now_ns()));
			}
		}
	}

	switch (lane->state) {
	case LANE_FREE:
		if (want) {
			set_state(task, engine, LANE_WAITING);
			if (lane_event(d, task, engine, RTXG_EV_ARRIVAL, 0))
				set_state(task, engine, LANE_FREE);
		}
		break;
	case LANE_WAITING:
		if (!want) {
			set_state(task, engine, LANE_FREE);
			lane_event(d, task, engine, RTXG_EV_CANCEL, 0);
		}
		break;
	case LANE_HELD:
		/* Another thread of the task, while a one-shot permit is in use. */
		if (!(lane->flags & RTXG_GRANT_ONESHOT) ||
		    page_load(&p->launches) == lane->launches_at)
			break;
		/* fall through */
	case LANE_REVOKED:
		if (lane->last && page_load(&p->launches) == lane->launches_at)
			break; /* what is wanted is this permit */
		if (want && !lane->again)
			lane->again = !lane_event(d, task, engine, RTXG_EV_ARRIVAL, 0);
		else if (!want && lane->again)
			lane->again = lane_event(d, task, engine, RTXG_EV_CANCEL, 0) == 0
					      ? false
					      : lane->again;
		break;
	}
}

void host_run_looks(struct daemon *d)
{
	bool any = true;

	while (any) {
		any = false;
		for (uint32_t engine = 0; engine < RTXG_ENGINES; engine++) {
			struct task *task = d->looks[engine];

			if (!task)
				continue;
			any = true;
			d->looks[engine] = task->look_next[engine];
			if (!d->looks[engine])
				d->looks_end[engine] = &d->looks[engine];
			task->lanes[engine].queued = false;
			look(d, task, engine);
		}
	}
}

void host_look(struct daemon *d, struct task *task)
{
	for (uint32_t engine = 0; engine < RTXG_ENGINES; engine++)
		look(d, task, engine);
	host_run_looks(d);
}

void host_doorbell(struct daemon *d, struct task *task)
{
	host_look(d, task);
}

/* The task goes away: nobody may look at it any more. */
void host_forget_task(struct daemon *d, struct task *task)
{
	for (uint32_t engine = 0; engine < RTXG_ENGINES; engine++) {
		struct task **at = &d->looks[engine];

		set_state(task, engine, LANE_FREE);
		if (!task->lanes[engine].queued)
			continue;
		while (*at != task)
			at = &(*at)->look_next[engine];
		*at = task->look_next[engine];
		if (!*at)
			d->looks_end[engine] = at;
		task->lanes[engine].queued = false;
	}
}

void host_timer(struct daemon *d)
{
	static const struct rtxg_event timer = { .type = RTXG_EV_TIMER };

	/*
	 * A launch under a permit that was reported idle makes no sound: look before the core acts
	 * on idleness.
	 */
	for (uint32_t g = 0; g < GPUS_MAX; g++) {
		for (uint32_t engine = 0; d->gpus[g].used && engine < RTXG_ENGINES; engine++) {
			uint32_t id = rtxg_core_idle_holder(d->core, g, engine);
			struct task *task = id < TASKS_MAX ? &d->tasks[id] : NULL;

			if (!task || task->lanes[engine].state != LANE_HELD ||
			    !page_load(&task->page->lanes[engine].in_flight))
				continue;
			task->lanes[engine].idle_reported = false;
			lane_event(d, task, engine, RTXG_EV_BUSY, 0);
		}
	}
	host_run_looks(d);
	d->armed_ns = RTXG_TIME_NEVER;
	step(d, &timer);
	host_run_looks(d);
}

/* Charges what the task has used up to now. */
static void usage(struct daemon *d, struct task *task)
{
	for (uint32_t engine = 0; engine < RTXG_ENGINES; engine++) {
		struct lane *lane = &task->lanes[engine];
		uint64_t claimed = lane->claimed_ns;

		if (lane->state != LANE_HELD && lane->state != LANE_REVOKED)
			continue;
		if (lane->idle_reported) {
			if (!page_load(&task->page->lanes[engine].in_flight))
				continue;
			lane->idle_reported = false;
			lane_event(d, task, engine, RTXG_EV_BUSY, 0);
		}
		if (lane_event(d, task, engine, RTXG_EV_USAGE,
			       claimed_use(task, engine, rtxg_now_ns())))
			/* not taken: it comes with the next report */
			lane->claimed_ns = claimed;
	}
}

/* Brings all accounts up to this moment, rather than to the last completion. */
static void count_all(struct daemon *d)
{
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (d->tasks[id].used)
			usage(d, &d->tasks[id]);
	host_run_looks(d);
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (d->tasks[id].used)
			claims(&d->tasks[id]);
}

/*
 * Before a task ends: a permit that it merely kept is not time that it used, and the core, which
 * would charge it all, is told so.
 */
void host_settle(struct daemon *d, struct task *task)
{
	usage(d, task);
	for (uint32_t engine = 0; engine < RTXG_ENGINES; engine++)
		if (task->lanes[engine].state == LANE_HELD && task->lanes[engine].idle_reported)
			lane_event(d, task, engine, RTXG_EV_BUSY, 0);
	claims(task);
}

/* --- moving to another vGPU ------------------------------------------------------------------- */

/*
 * Nothing of the task may be in flight: takes its permits back. look() reports when that is so.
 */
static void start_move(struct daemon *d, struct task *task, struct vgpu *to)
{
	task->moving_to = to;
	for (uint32_t engine = 0; engine < RTXG_ENGINES; engine++) {
		task->gpu->lever->revoke(task, engine);
		queue_look(d, task, engine);
	}
	host_run_looks(d);
}

void host_leave(struct daemon *d, struct task *task)
{
	struct rtxg_event event = { .type = RTXG_EV_CLOSE, .task = task->id };
	struct rtxg_stats now;

	host_settle(d, task);
	for (uint32_t engine = 0; engine < RTXG_ENGINES; engine++) {
		if (!rtxg_core_task_stats(d->core, task->id, engine, &now)) {
			uint64_t *sum = (uint64_t *)&task->before[engine];

			for (size_t i = 0; i < sizeof(now) / sizeof(uint64_t); i++)
				sum[i] += ((uint64_t *)&now)[i];
		}
		set_state(task, engine, LANE_FREE);
		task->lanes[engine].again = false;
	}
	step(d, &event);
}

void host_join(struct daemon *d, struct task *task)
{
	struct rtxg_event event = { .type = RTXG_EV_OPEN,
				    .task = task->id,
				    .vgpu = task->account->id,
				    .task_params = task->params };

	step(d, &event);
	for (uint32_t engine = 0; engine < RTXG_ENGINES; engine++)
		queue_look(d, task, engine);
}

/* --- as a host among hosts -------------------------------------------------------------------- */

static int event_or_refusal(struct daemon *d, const struct rtxg_event *event)
{
	int ret = host_event(d, event);

	d->refusal = ret ? rtxg_core_refusal(d->core) : (struct rtxg_refusal){ 0 };
	return ret;
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

static int here_task_set(struct daemon *d, struct task *task, const struct rtxg_task_params *params)
{
	struct rtxg_event event = { .type = RTXG_EV_SET, .task = task->id, .task_params = *params };
	int ret = event_or_refusal(d, &event);

	if (!ret)
		task->params = *params;
	return ret;
}

static int here_task_move(struct daemon *d, struct task *task, struct vgpu *to)
{
	if (to != task->vgpu)
		start_move(d, task, to);
	else if (task->moving_to)
		task->moving_to = to;
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
			d->tasks[i].page->flags = d->fail_closed ? RTXG_PAGE_F_FAIL_CLOSED : 0;
}

static void here_look(struct daemon *d)
{
	/* The tables are the truth here. */
}

static void here_account_view(struct daemon *d, const struct account *account, uint32_t engine,
			      uint64_t now, struct rtxg_account_view *view)
{
	if (rtxg_core_vgpu_view(d->core, account->id, engine, now, view))
		*view = (struct rtxg_account_view){ .holder = RTXG_NONE };
}

static void here_lane_view(struct daemon *d, const struct task *task, uint32_t engine,
			   struct lane_view *view)
{
	struct rtxg_lane *p = &task->page->lanes[engine];
	const struct lane *lane = &task->lanes[engine];
	const uint64_t *before = (const uint64_t *)&task->before[engine];
	uint64_t *sum;

	*view = (struct lane_view){ .state = "idle",
				    .in_flight = page_load(&p->in_flight),
				    .launches = page_load(&p->launches),
				    .device_ns = page_load(&p->device_ns) };
	if (lane->state == LANE_WAITING)
		view->state = "waiting";
	else if (lane->state == LANE_REVOKED)
		view->state = "revoked";
	else if (lane->state == LANE_HELD)
		view->state = view->in_flight ? "running" : "holding";
	rtxg_core_task_stats(d->core, task->id, engine, &view->stats);
	sum = (uint64_t *)&view->stats;
	for (size_t i = 0; i < sizeof(view->stats) / sizeof(uint64_t); i++)
		sum[i] += before[i];
}

static struct gpu *here_advice(struct daemon *d, const struct pool *pool)
{
	uint32_t gpu = rtxg_core_device_advice(d->core, pool->id);

	return gpu < GPUS_MAX ? &d->gpus[gpu] : NULL;
}

static const char *here_check(struct daemon *d)
{
	return rtxg_core_check(d->core);
}

const struct host host_here = {
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

	d->vgpus = calloc(VGPUS_MAX, sizeof(*d->vgpus));
	d->accounts = calloc(ACCOUNTS_MAX, sizeof(*d->accounts));
	d->tasks = calloc(TASKS_MAX, sizeof(*d->tasks));
	d->free_tasks = calloc(TASKS_MAX, sizeof(*d->free_tasks));
	d->matches = calloc(MATCHES_MAX, sizeof(*d->matches));
	if (!memory || !d->vgpus || !d->accounts || !d->tasks || !d->free_tasks || !d->matches)
		return -ENOMEM;
	d->core = rtxg_core_init(memory, size, &limits, rtxg_now_ns());
	if (!d->core)
		return -EINVAL;
	d->armed_ns = d->sample_ns = RTXG_TIME_NEVER;
	d->host = &host_here;
	d->news = news;
	d->tasks_max = TASKS_MAX;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		d->looks_end[i] = &d->looks[i];
	/* The lowest numbers are given out first. */
	for (uint32_t i = 0; i < TASKS_MAX; i++)
		d->free_tasks[d->free_tasks_count++] = TASKS_MAX - 1 - i;
	return 0;
}
