/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * permit.c - the lane and permit protocol, for every host: see permit.h.
 *
 *   page --(look)--> event --> core --> action --(apply)--> permit word
 *
 * An action never leads to an event directly: apply() queues the lane for another look, and
 * run_looks() goes on until no lane is queued.
 */
#include "claims.h"
#include "permit.h"
#include "permit_lane.h"
#include "words.h"

#define ACTIONS 16u

/* --- the core --------------------------------------------------------------------------------- */

/* A new permit, or other flags for the one in force. */
static void granted(struct permit_machine *m, struct permit_lane *lane, uint32_t gpu,
		    uint32_t flags)
{
	bool fresh = lane->state != PERMIT_HELD;

	lane->flags = flags;
	lane->taken = false;
	if (fresh) {
		lane->again = lane->last = lane->idle_reported = false;
		lane->launches_at = permit_load(&words(lane)->launches);
		permit_lane_set(m, lane, PERMIT_HELD);
		permit_begin_claims(m, lane, gpu);
		if (burst_granted(&lane->burst, now(m), lane->launches_at) &&
		    !lane->task->moving_to)
			permit_burst_start(m, lane);
	}
	/* A task that is being moved gets its permit from its new vGPU. */
	if (!lane->task->moving_to) {
		if (fresh)
			permit_lane_give(m, lane);
		else
			permit_lane_write(lane, flags);
	}
	/*
	 * It may have fallen idle under a permit that asked for no report, or have given up while
	 * this was decided.
	 */
	if (!fresh || !permit_load(&words(lane)->want))
		permit_look_queue(m, lane);
}

/*
 * The core wants the permit back. If a thread that waited for it is on its way and has not launched
 * yet, the permit is cut down to that one launch: otherwise two tasks that both wait could take the
 * permit from each other without end, before either has run. A more urgent task waits for that
 * launch as if it had begun; if it never comes (a stopped program) the core's patience ends, and
 * the task is expelled.
 */
static void call_back(struct permit_machine *m, struct permit_lane *lane)
{
	struct rtxg_lane *p = words(lane);

	lane->last = lane->state == PERMIT_HELD && !lane->task->moving_to &&
		     permit_load(&p->want) && !permit_lane_in_flight(m, lane) &&
		     permit_load(&p->launches) == lane->launches_at;
	permit_lane_set(m, lane, PERMIT_REVOKED);
	/*
	 * REPORT, because the launch may be faster than the word: it then leaves the permit behind,
	 * and must ring all the same.
	 */
	if (lane->last)
		permit_lane_write(lane, RTXG_GRANT_ONESHOT | RTXG_GRANT_REPORT);
	else
		permit_lane_take(m, lane);
	permit_look_queue(m, lane);
}

/* A waiting lane is likely to get its permit soon: its threads wake, and look at the word. */
static void alerted(struct permit_machine *m, struct permit_lane *lane,
		    const struct rtxg_action *action)
{
	struct rtxg_lane *p = words(lane);

	if (lane->state != PERMIT_WAITING)
		return;
	permit_note(&p->ready_until, action->at_ns);
	permit_store(&p->permit, lane->sequence << RTXG_PERMIT_SEQ_SHIFT | RTXG_PERMIT_READY);
	m->ops->wake(m->host, lane->task, lane->engine);
	if (m->ops->stand_ready)
		m->ops->stand_ready(m->host, action->gpu, lane->engine, action->at_ns);
}

/* The core took the permit by force, and has dropped the lane from its queues. */
static void expelled(struct permit_machine *m, struct permit_lane *lane)
{
	struct rtxg_lane *p = words(lane);

	permit_lane_take(m, lane);
	permit_lane_set(m, lane, PERMIT_FREE);
	lane->again = lane->last = false;
	lane->launches_at = permit_load(&p->launches);
	lane->completions_at = permit_load(&p->completions);
	lane->barred = permit_lane_in_flight(m, lane) ? PERMIT_BARRED_BUSY : PERMIT_BARRED_IDLE;
	permit_look_queue(m, lane);
}

static void apply(struct permit_machine *m, const struct rtxg_action *action)
{
	struct permit_task *task = action->task < m->tasks_limit ? m->tasks[action->task] : NULL;
	struct permit_lane *lane =
		task && action->engine < RTXG_ENGINES ? &task->lanes[action->engine] : NULL;

	switch (action->type) {
	case RTXG_ACT_GRANT:
		granted(m, lane, action->gpu, action->flags);
		break;
	case RTXG_ACT_REVOKE:
		call_back(m, lane);
		break;
	case RTXG_ACT_EXPEL:
		expelled(m, lane);
		break;
	case RTXG_ACT_ARM_TIMER:
		m->core_ns = action->at_ns;
		permit_arm(m);
		break;
	case RTXG_ACT_POOL_GRANT:
		task->pool_held = true;
		task->pool_gpu = action->gpu;
		m->ops->pool_granted(m->host, task);
		break;
	case RTXG_ACT_ALERT:
		alerted(m, lane, action);
		break;
	case RTXG_ACT_POOL_INHERIT:
		break; /* counts inside the core alone: a CPU priority is another scale */
	}
}

static int step(struct permit_machine *m, const struct rtxg_event *event)
{
	static const struct rtxg_event none = { .type = RTXG_EV_NONE };
	struct rtxg_action actions[ACTIONS];
	int n, first;

	first = n = rtxg_core_step(m->core, now(m), event, actions, ACTIONS);
	if (first < 0)
		m->refusal = rtxg_core_refusal(m->core);
	while (n > 0) {
		for (int i = 0; i < n; i++)
			apply(m, &actions[i]);
		if (n < (int)ACTIONS)
			break;
		n = rtxg_core_step(m->core, now(m), &none, actions, ACTIONS);
	}
	return first < 0 ? first : 0;
}

static int lane_event(struct permit_machine *m, struct permit_lane *lane, uint32_t type,
		      uint64_t used)
{
	struct rtxg_event event = {
		.type = type, .task = lane->task->id, .engine = lane->engine, .used_ns = used
	};

	return step(m, &event);
}

/* --- looking at a lane ------------------------------------------------------------------------ */

/* The permit has ended. If the task wants another, the core knows already. */
static void permit_ended(struct permit_machine *m, struct permit_lane *lane, uint32_t type)
{
	bool again = lane->again;

	lane->again = false;
	permit_burst_stop(m, lane);
	burst_ended(&lane->burst, now(m));
	permit_lane_set(m, lane, again ? PERMIT_WAITING : PERMIT_FREE);
	lane_event(m, lane, type, permit_claimed_use(m, lane));
}

/* The task launched again under a permit that it was reported idle on. */
static bool busy_again(struct permit_machine *m, struct permit_lane *lane)
{
	if (!permit_lane_in_flight(m, lane))
		return false;
	lane->idle_reported = false;
	lane_event(m, lane, RTXG_EV_BUSY, 0);
	return true;
}

/* Has the task launched what its permit is good for? */
static void look_launched(struct permit_machine *m, struct permit_lane *lane)
{
	if (permit_load(&words(lane)->launches) != lane->launches_at &&
	    permit_lane_in_flight(m, lane))
		lane_event(m, lane, RTXG_EV_BUSY, 0);
}

static void charge(struct permit_machine *m, struct permit_task *task)
{
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct permit_lane *lane = &task->lanes[i];
		uint64_t claimed = lane->claimed_ns;

		if (lane->state != PERMIT_HELD && lane->state != PERMIT_REVOKED)
			continue;
		if (lane->idle_reported && !busy_again(m, lane))
			continue;
		if (lane_event(m, lane, RTXG_EV_USAGE, permit_claimed_use(m, lane)))
			/* not taken: it comes with the next report */
			lane->claimed_ns = claimed;
	}
}

/*
 * Before a task leaves the core: a permit that it merely kept is not time that it used, and the
 * core, which would charge it all, is told so.
 */
static void settle(struct permit_machine *m, struct permit_task *task)
{
	charge(m, task);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		if (task->lanes[i].state == PERMIT_HELD && task->lanes[i].idle_reported)
			lane_event(m, &task->lanes[i], RTXG_EV_BUSY, 0);
	permit_count_claims(m, task);
}

/*
 * The task is being moved, and waits for the end of what it has in flight on another engine. On
 * this one it has nothing, and gets nothing before it has moved: the others may have the engine.
 */
static void stand_back(struct permit_machine *m, struct permit_lane *lane)
{
	uint64_t launches = permit_load(&words(lane)->launches);

	if (lane->again && !lane_event(m, lane, RTXG_EV_CANCEL, 0))
		lane->again = false;
	lane->last = false;
	if (lane->state == PERMIT_WAITING) {
		permit_lane_set(m, lane, PERMIT_FREE);
		lane_event(m, lane, RTXG_EV_CANCEL, 0);
	} else if (lane->state == PERMIT_REVOKED) {
		permit_ended(m, lane, RTXG_EV_RELEASED);
	} else if (lane->state == PERMIT_HELD && lane->flags & RTXG_GRANT_ONESHOT) {
		permit_ended(m, lane, RTXG_EV_COMPLETION);
	} else if (lane->state == PERMIT_HELD && lane->flags & RTXG_GRANT_REPORT &&
		   (!lane->idle_reported || launches != lane->launches_at)) {
		lane->launches_at = launches;
		lane->idle_reported = true;
		lane_event(m, lane, RTXG_EV_COMPLETION, permit_claimed_use(m, lane));
	}
}

/*
 * Nothing of the task may be in flight. It leaves the one vGPU and enters the other, and what it
 * wants it wants there.
 */
static void finish_move(struct permit_machine *m, struct permit_task *task)
{
	struct rtxg_event event = { .type = RTXG_EV_CLOSE, .task = task->id };
	struct permit_account *from = task->account;
	uint32_t busy = 0;

	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		if (permit_lane_in_flight(m, &task->lanes[i]))
			busy |= 1u << i;
	for (uint32_t i = 0; busy && i < RTXG_ENGINES; i++)
		if (!(busy & 1u << i))
			stand_back(m, &task->lanes[i]);
	if (busy)
		return;
	settle(m, task);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct permit_lane *lane = &task->lanes[i];
		struct rtxg_stats stats;

		if (!rtxg_core_task_stats(m->core, task->id, i, &stats))
			rtxg_stats_add(&lane->before, &stats);
		permit_lane_set(m, lane, PERMIT_FREE);
		lane->again = lane->last = lane->idle_reported = false;
	}
	step(m, &event);
	task->account = task->moving_to;
	task->moving_to = NULL;
	event = (struct rtxg_event){ .type = RTXG_EV_OPEN,
				     .task = task->id,
				     .vgpu = task->account->vgpu,
				     .task_params = task->params };
	step(m, &event);
	m->ops->moved(m->host, task, from);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		permit_look_queue(m, &task->lanes[i]);
}

/* Has the page shown that the program goes on? */
static bool progressed(const struct permit_lane *lane, uint32_t left)
{
	struct rtxg_lane *p = words(lane);

	if (lane->barred == PERMIT_BARRED_BUSY)
		return !left || permit_load(&p->completions) != lane->completions_at;
	return permit_load(&p->launches) != lane->launches_at;
}

/* The permit was called back: has it been returned? */
static void look_revoked(struct permit_machine *m, struct permit_lane *lane, uint32_t left,
			 uint32_t want)
{
	struct rtxg_lane *p = words(lane);

	if (lane->last && !left && (permit_load(&p->launches) != lane->launches_at || !want)) {
		/* It was used, or is not wanted any more; a launch may just have been faster. */
		permit_lane_take(m, lane);
		left = permit_lane_in_flight(m, lane);
		lane->last = false;
	}
	if (!lane->last && !left)
		permit_ended(m, lane, RTXG_EV_RELEASED);
}

/* Nothing is in flight under a permit. */
static void look_held(struct permit_machine *m, struct permit_lane *lane, uint32_t want)
{
	struct rtxg_lane *p = words(lane);
	uint64_t launches = permit_load(&p->launches);

	if (lane->burst.on)
		return;
	if (lane->flags & RTXG_GRANT_ONESHOT) {
		/*
		 * Used, or not wanted any more. It ends once nothing is in flight behind the taken
		 * word: a launch may have been faster, or it may still be under way. An attempt
		 * that meets the taken word fails and rings, and finds it taken here.
		 */
		if (launches != lane->launches_at || !want || lane->taken) {
			if (!lane->taken)
				permit_lane_take(m, lane);
			lane->taken = true;
			if (!permit_lane_in_flight(m, lane))
				permit_ended(m, lane, RTXG_EV_COMPLETION);
		}
	} else if (lane->flags & RTXG_GRANT_REPORT &&
		   (launches != lane->launches_at || (!want && !lane->idle_reported))) {
		/*
		 * With want > 0 and nothing launched, a thread is on its way to use the permit.
		 */
		if (launches != lane->launches_at &&
		    burst_reported(&lane->burst, now(m), launches)) {
			lane->launches_at = launches;
			if (lane->idle_reported)
				lane_event(m, lane, RTXG_EV_BUSY, 0);
			lane->idle_reported = false;
			if (lane->state != PERMIT_HELD)
				return;
			permit_burst_start(m, lane);
			permit_lane_write(lane, lane->flags);
			return;
		}
		lane->launches_at = launches;
		lane->idle_reported = true;
		lane_event(m, lane, RTXG_EV_COMPLETION, permit_claimed_use(m, lane));
	}
}

/*
 * A burst is over: the permit says again what it is, and what has completed meanwhile is looked at
 * as ever. One that was good for one launch has been used if there was any.
 */
static void end_burst(struct permit_machine *m, struct permit_lane *lane)
{
	permit_burst_stop(m, lane);
	if (!(lane->flags & RTXG_GRANT_ONESHOT)) {
		permit_lane_write(lane, lane->flags);
	} else if (permit_load(&words(lane)->launches) != lane->launches_at) {
		permit_lane_take(m, lane);
		lane->taken = true;
	} else {
		/* REPORT, as in call_back() */
		permit_lane_write(lane, RTXG_GRANT_ONESHOT | RTXG_GRANT_REPORT);
	}
	permit_look_queue(m, lane);
}

/* What the client wants is what the core has to know. */
static void look_want(struct permit_machine *m, struct permit_lane *lane, uint32_t want)
{
	struct rtxg_lane *p = words(lane);

	switch (lane->state) {
	case PERMIT_FREE:
		if (want && !lane->barred) {
			permit_lane_set(m, lane, PERMIT_WAITING);
			burst_arrival(&lane->burst, now(m));
			if (lane_event(m, lane, RTXG_EV_ARRIVAL, 0))
				permit_lane_set(m, lane, PERMIT_FREE);
		}
		return;
	case PERMIT_WAITING:
		if (!want) {
			permit_lane_set(m, lane, PERMIT_FREE);
			lane_event(m, lane, RTXG_EV_CANCEL, 0);
		}
		return;
	case PERMIT_HELD:
		/* Another thread of the task, while a one-shot permit is in use. */
		if (!(lane->flags & RTXG_GRANT_ONESHOT) ||
		    permit_load(&p->launches) == lane->launches_at)
			return;
		break;
	default:
		if (lane->last && permit_load(&p->launches) == lane->launches_at)
			return; /* what is wanted is this permit */
		break;
	}
	if (want && !lane->again)
		lane->again = !lane_event(m, lane, RTXG_EV_ARRIVAL, 0);
	else if (!want && lane->again && !lane_event(m, lane, RTXG_EV_CANCEL, 0))
		lane->again = false;
}

/* What the client has done to its page since the last look becomes events. */
static void look(struct permit_machine *m, struct permit_lane *lane)
{
	struct rtxg_lane *p = words(lane);
	uint32_t left, want;

	permit_barrier(); /* the client's stores before it rang; our permit before this look */
	if (lane->task->moving_to) {
		finish_move(m, lane->task);
		return;
	}
	left = permit_lane_in_flight(m, lane);
	want = permit_load(&p->want);
	if (lane->barred && progressed(lane, left))
		lane->barred = PERMIT_NOT_BARRED;
	if (lane->state == PERMIT_REVOKED)
		look_revoked(m, lane, left, want);
	if (lane->state == PERMIT_HELD && !left)
		look_held(m, lane, want);
	look_want(m, lane, want);
}

static void run_looks(struct permit_machine *m)
{
	struct permit_lane *lane;

	while ((lane = m->looks)) {
		m->looks = lane->look_next;
		if (!m->looks)
			m->looks_end = &m->looks;
		lane->queued = false;
		look(m, lane);
	}
}

static void look_at_bursts(struct permit_machine *m)
{
	struct permit_lane *next;

	m->look_ns = now(m) + BURST_LOOK_NS;
	for (struct permit_lane *lane = m->bursts; lane; lane = next) {
		struct rtxg_lane *p = words(lane);
		struct burst_look look = { .launches = permit_load(&p->launches) };

		next = lane->burst_next;
		look.on_way = permit_load(&p->want) && look.launches == lane->launches_at;
		if (!burst_goes_on(&lane->burst, now(m), &look))
			end_burst(m, lane);
	}
	if (!m->bursts)
		m->look_ns = RTXG_TIME_NEVER;
	run_looks(m);
}

/* --- calls of the host ------------------------------------------------------------------------ */

void permit_init(struct permit_machine *m, struct rtxg_core *core, const struct rtxg_limits *limits,
		 struct permit_task **tasks, const struct permit_ops *ops, void *host)
{
	*m = (struct permit_machine){ .core = core,
				      .ops = ops,
				      .host = host,
				      .tasks = tasks,
				      .tasks_limit = limits->tasks,
				      .gpus_limit = limits->gpus,
				      .core_ns = RTXG_TIME_NEVER,
				      .look_ns = RTXG_TIME_NEVER,
				      .armed_ns = RTXG_TIME_NEVER };
	m->looks_end = &m->looks;
}

int permit_event(struct permit_machine *m, uint64_t now_ns, const struct rtxg_event *event)
{
	int ret;

	m->now_ns = now_ns;
	ret = step(m, event);
	if (!ret)
		run_looks(m);
	return ret;
}

int permit_open(struct permit_machine *m, uint64_t now_ns, struct permit_task *task)
{
	struct rtxg_event event = { .type = RTXG_EV_OPEN,
				    .task = task->id,
				    .vgpu = task->account->vgpu,
				    .task_params = task->params };
	int ret;

	task->moving_to = NULL;
	task->opened_ns = now_ns;
	task->pool = RTXG_NONE;
	task->pool_held = false;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct permit_lane *lane = &task->lanes[i];
		struct rtxg_lane *p = &task->page->lanes[i];

		*lane = (struct permit_lane){ .task = task, .engine = (uint8_t)i };
		lane->sequence = (permit_load(&p->permit) >> RTXG_PERMIT_SEQ_SHIFT) + 1;
		lane->claimed_ns = permit_load(&p->busy_ns);
		lane->device_seen = permit_load(&p->device_ns);
		lane->launches_seen = permit_load(&p->launches);
		permit_store(&p->permit, lane->sequence << RTXG_PERMIT_SEQ_SHIFT);
	}
	m->tasks[task->id] = task;
	ret = permit_event(m, now_ns, &event);
	if (ret)
		m->tasks[task->id] = NULL;
	return ret;
}

void permit_close(struct permit_machine *m, uint64_t now_ns, struct permit_task *task)
{
	struct rtxg_event event = { .type = RTXG_EV_CLOSE, .task = task->id };

	m->now_ns = now_ns;
	settle(m, task);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		permit_lane_set(m, &task->lanes[i], PERMIT_FREE);
		permit_look_unqueue(m, &task->lanes[i]);
	}
	task->moving_to = NULL;
	task->pool = RTXG_NONE;
	task->pool_held = false;
	step(m, &event);
	m->tasks[task->id] = NULL;
	run_looks(m);
}

int permit_set(struct permit_machine *m, uint64_t now_ns, struct permit_task *task,
	       const struct rtxg_task_params *params)
{
	struct rtxg_event event = { .type = RTXG_EV_SET, .task = task->id, .task_params = *params };
	int ret = permit_event(m, now_ns, &event);

	if (!ret)
		task->params = *params;
	return ret;
}

void permit_move(struct permit_machine *m, uint64_t now_ns, struct permit_task *task,
		 struct permit_account *to)
{
	if (to == task->account && !task->moving_to)
		return;
	m->now_ns = now_ns;
	task->moving_to = to;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		permit_burst_stop(m, &task->lanes[i]);
		permit_lane_take(m, &task->lanes[i]);
		permit_look_queue(m, &task->lanes[i]);
	}
	run_looks(m);
}

void permit_ring(struct permit_machine *m, uint64_t now_ns, struct permit_task *task)
{
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		if (task->lanes[i].barred == PERMIT_BARRED_IDLE)
			task->lanes[i].barred = PERMIT_NOT_BARRED;
	permit_look(m, now_ns, task);
}

void permit_look(struct permit_machine *m, uint64_t now_ns, struct permit_task *task)
{
	m->now_ns = now_ns;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		look(m, &task->lanes[i]);
	run_looks(m);
}

struct permit_task *permit_interrupt(struct permit_machine *m, uint64_t now_ns, uint32_t gpu,
				     uint32_t engine)
{
	uint32_t id = rtxg_core_holder(m->core, gpu, engine);
	struct permit_task *task = id < m->tasks_limit ? m->tasks[id] : NULL;
	struct permit_lane *lane;

	if (!task)
		return NULL;
	m->now_ns = now_ns;
	lane = &task->lanes[engine];
	if (!permit_load(&words(lane)->in_flight) || permit_lane_in_flight(m, lane))
		return NULL;
	permit_look_queue(m, lane);
	run_looks(m);
	return task;
}

void permit_timer(struct permit_machine *m, uint64_t now_ns)
{
	static const struct rtxg_event timer = { .type = RTXG_EV_TIMER };

	m->now_ns = now_ns;
	m->armed_ns = RTXG_TIME_NEVER; /* a host's timer fires once */
	if (m->look_ns <= now_ns)
		look_at_bursts(m);
	if (m->core_ns > now_ns) {
		permit_arm(m);
		return;
	}
	m->core_ns = RTXG_TIME_NEVER;
	/*
	 * A launch under a permit that was reported idle, or that is good for one, makes no sound:
	 * look before the core acts on what it knows.
	 */
	for (uint32_t gpu = 0; gpu < m->gpus_limit; gpu++)
		for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
			uint32_t id = rtxg_core_idle_holder(m->core, gpu, i);

			if (id < m->tasks_limit && m->tasks[id] &&
			    m->tasks[id]->lanes[i].state == PERMIT_HELD)
				busy_again(m, &m->tasks[id]->lanes[i]);
			id = rtxg_core_unseen_launch(m->core, gpu, i);
			if (id < m->tasks_limit && m->tasks[id])
				look_launched(m, &m->tasks[id]->lanes[i]);
		}
	run_looks(m);
	step(m, &timer);
	run_looks(m);
	permit_arm(m);
}

void permit_count(struct permit_machine *m, uint64_t now_ns, struct permit_task *task)
{
	m->now_ns = now_ns;
	charge(m, task);
	run_looks(m);
	permit_count_claims(m, task);
}

/* The core knows the task's priority and runtime: the request carries no others. */
int permit_pool_acquire(struct permit_machine *m, uint64_t now_ns, struct permit_task *task,
			uint32_t pool)
{
	struct rtxg_event event = { .type = RTXG_EV_POOL_REQUEST, .task = task->id, .pool = pool };
	uint32_t before = task->pool;
	int ret;

	if (task->moving_to) {
		/* leaving its vGPU would withdraw the request */
		m->refusal =
			(struct rtxg_refusal){ .what = "the task is being moved to another vGPU",
					       .value = task->id };
		return -EBUSY;
	}
	m->now_ns = now_ns;
	task->pool = pool; /* the grant may come at once */
	ret = step(m, &event);
	if (ret)
		task->pool = before;
	else
		run_looks(m);
	return ret;
}

int permit_pool_release(struct permit_machine *m, uint64_t now_ns, struct permit_task *task)
{
	struct rtxg_event event = { .type = RTXG_EV_POOL_RELEASE,
				    .task = task->id,
				    .pool = task->pool };

	if (task->pool == RTXG_NONE) {
		m->refusal = (struct rtxg_refusal){
			.what = "the task neither holds nor waits for a GPU of a pool",
			.value = task->id
		};
		return -EPERM;
	}
	task->pool = RTXG_NONE;
	task->pool_held = false;
	return permit_event(m, now_ns, &event);
}

void permit_lane_stats(const struct permit_machine *m, const struct permit_task *task,
		       uint32_t engine, struct rtxg_stats *stats)
{
	struct rtxg_stats since;

	*stats = task->lanes[engine].before;
	if (!rtxg_core_task_stats(m->core, task->id, engine, &since))
		rtxg_stats_add(stats, &since);
}
