/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * engine.c - one engine of one GPU: who holds its permit, who waits, what is charged. What the
 * policies share is here; which account comes next is theirs (policy_queue.c, policy_cbs.c).
 */
#include "account.h"
#include "actions.h"
#include "engine.h"
#include "policy.h"

static bool is_cbs(const struct core_engine *engine)
{
	return engine->gpu->params.policy == RTXG_GPU_CBS;
}

static bool is_null(const struct core_engine *engine)
{
	return engine->gpu->params.policy == RTXG_GPU_NULL;
}

static bool is_lease(const struct core_lane *lane)
{
	return !(lane->flags & RTXG_GRANT_ONESHOT);
}

void core_engine_init(struct core_engine *engine, struct core_gpu *gpu, uint32_t index)
{
	engine->gpu = gpu;
	engine->index = index;
	engine->band_until = NEVER;
}

void core_account_reset(struct core_account *account, uint64_t now)
{
	account->credit = 0;
	account->credit_tick = 0;
	account->window = 0;
	account->window_busy = 0;
	cbs_reset(account, now);
}

void core_account_init(struct core_account *account, struct core_vgpu *vgpu,
		       struct core_engine *engine, uint64_t now)
{
	const struct core_gpu *gpu = vgpu->gpu;

	account->vgpu = vgpu;
	account->engine = engine;
	account->order = engine->next_order++;
	/* a guess to begin with; learnt from then on */
	account->think_mean = gpu->params.think_ns / 4;
	account->credit_tick = (now - gpu->epoch_ns) / gpu->params.period_ns;
	account->window = (now - gpu->epoch_ns) / gpu->params.window_ns;
	cbs_reset(account, now);
}

/* Where the lane stands in its vGPU's queue. */
static uint64_t lane_key(const struct core_task *task, const struct core_lane *lane, uint64_t *tie)
{
	uint32_t priority = task->params.priority;

	*tie = lane->node.tie;
	switch (task->vgpu->params.policy) {
	case RTXG_TASK_FP:
		if (task->inherited > priority)
			priority = task->inherited;
		return RTXG_PRIORITY_MAX - priority;
	case RTXG_TASK_EDF:
		return task->params.deadline_ns
			       ? add_time(lane->arrived_ns, task->params.deadline_ns)
			       : NEVER;
	default:
		return 0;
	}
}

/* Puts the account where its policy will look for it, or nowhere if nobody waits in it. */
void core_account_place(struct rtxg_core *core, struct core_account *account)
{
	struct core_engine *engine = account->engine;

	core_account_unplace(account);
	if (!account->waiters.count)
		return;
	if (is_cbs(engine))
		cbs_place(account, core->now);
	else if (!is_null(engine) || !account->holder)
		heap_insert(&engine->ready, &account->ready, account->order, 0);
}

void core_account_unplace(struct core_account *account)
{
	heap_remove(&account->ready);
	heap_remove(&account->wake);
}

/* Inside the vGPU: may the waiting lane launch before the holder launches again? */
static bool sibling_first(const struct core_account *account)
{
	const struct heap_node *first = heap_first(&account->waiters);
	uint64_t tie;

	if (!first || !account->holder)
		return false;
	/* Equals take turns, so a holder gives way to a waiter of its own rank. */
	return first->key <= lane_key(account->holder_task, account->holder, &tie);
}

/* Somebody starts to wait on the engine: from now on the holder's time is at somebody's cost. */
static void holder_contended(struct core_engine *engine, struct core_account *own, uint64_t now)
{
	struct core_account *account = is_null(engine) ? own : engine->holder;
	struct core_lane *lane = account ? account->holder : NULL;

	if (!lane)
		return;
	if (lane->contended_ns == NEVER)
		lane->contended_ns = now;
}

void core_lane_arrive(struct rtxg_core *core, struct core_task *task, uint32_t index,
		      uint64_t since)
{
	struct core_account *account = &task->vgpu->accounts[index];
	struct core_engine *engine = account->engine;
	struct core_lane *lane = &task->lanes[index];
	uint64_t tie;

	lane->state = LANE_WAITING;
	lane->arrived_ns = since;
	lane->node.tie = core->sequence++;
	heap_insert(&account->waiters, &lane->node, lane_key(task, lane, &tie), lane->node.tie);
	engine->waiting++;
	if (account->waiters.count == 1) {
		if (!account->holder) {
			if (account->stats.grants)
				core_account_learn(account, core->now - account->idle_since);
			cbs_activate(account, core->now);
		}
		core_account_stop_thinking(account);
		core_account_place(core, account);
	}
	holder_contended(engine, account, core->now);
	if (!is_null(engine))
		engine->arrived = account;
	core_mark(core, engine);
}

void core_lane_leave_queue(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_account *account = &task->vgpu->accounts[index];
	struct core_lane *lane = &task->lanes[index];

	heap_remove(&lane->node);
	account->engine->waiting--;
	lane->state = LANE_IDLE;
	lane->stats.wait_ns += core->now - lane->arrived_ns;
	account->stats.wait_ns += core->now - lane->arrived_ns;
	if (!account->waiters.count) {
		core_account_place(core, account);
		/*
		 * The holder keeps nobody waiting any more. Under the other policies its engine's
		 * waiters decide: review_holder.
		 */
		if (is_null(account->engine))
			heap_remove(&account->patience);
	}
}

void core_lane_requeue(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_account *account = &task->vgpu->accounts[index];
	struct core_lane *lane = &task->lanes[index];
	uint64_t key, tie;

	if (lane->state != LANE_WAITING)
		return;
	key = lane_key(task, lane, &tie);
	heap_update(&account->waiters, &lane->node, key, tie);
	core_mark(core, account->engine);
}

/*
 * Charges the holder up to now. With a one-shot permit it had the engine to itself, so all the time
 * that passed is its own. Under a lease nobody is kept waiting at first: of that part only what it
 * says it used counts; once somebody waits, all of it does. What it says covers both parts, so the
 * second is not counted twice. A reporting lease was given because others are about, even if they
 * only think: all that it is charged for is at their cost.
 */
void core_lane_charge(struct rtxg_core *core, struct core_task *task, uint32_t index,
		      uint64_t used_ns)
{
	struct core_account *account = &task->vgpu->accounts[index];
	struct core_engine *engine = account->engine;
	struct core_lane *lane = &task->lanes[index];
	uint64_t now = core->now;
	uint64_t elapsed = now - lane->charged_ns;
	uint64_t contended = 0, charge;

	if (lane->contended_ns != NEVER)
		contended = min_u64(elapsed, now - min_u64(now, lane->contended_ns));
	if (lane->flags & RTXG_GRANT_ONESHOT)
		charge = elapsed;
	else
		charge = max_u64(min_u64(used_ns, elapsed), contended);
	if (lane->flags & RTXG_GRANT_REPORT)
		contended = charge;

	used_ns = min_u64(used_ns, charge);
	lane->stats.busy_ns += charge;
	lane->stats.used_ns += used_ns;
	account->stats.busy_ns += charge;
	account->stats.used_ns += used_ns;
	core_account_charge_window(account, charge, now);
	core_engine_note_longest(engine, elapsed, now);
	if (is_cbs(engine))
		cbs_charge(account, lane, charge, min_u64(contended, charge),
			   lane->flags & RTXG_GRANT_REPORT ? 0
							   : elapsed - min_u64(contended, elapsed),
			   now);
	else
		queue_charge(account, charge, now);
	lane->charged_ns = now;
	/* Siblings that wait stand where the account's deadline or debt puts them. */
	if (account->waiters.count)
		core_account_place(core, account);
	if (used_ns)
		lane->was_idle = false;
}

static void lane_hold(struct rtxg_core *core, struct core_account *account, struct core_task *task,
		      uint32_t flags, bool contended)
{
	struct core_engine *engine = account->engine;
	struct core_lane *lane = &task->lanes[engine->index];
	struct rtxg_action *action;
	uint64_t waited = core->now - lane->arrived_ns;

	heap_remove(&lane->node);
	engine->waiting--;
	lane->state = LANE_HELD;
	lane->flags = flags;
	lane->granted_ns = lane->charged_ns = core->now;
	lane->contended_ns = contended ? core->now : NEVER;
	lane->stats.wait_ns += waited;
	lane->stats.grants++;
	account->stats.wait_ns += waited;
	account->stats.grants++;
	account->holder = lane;
	account->holder_task = task;
	engine->permits++;
	if (!is_null(engine))
		engine->holder = account;
	core_account_stop_thinking(account);
	core_account_place(core, account);

	action = core_emit(core, RTXG_ACT_GRANT);
	action->task = task->id;
	action->engine = engine->index;
	action->flags = flags;
	action->gpu = engine->gpu->id;
}

/* The permit has ended, by completion, return or force. What it used has been charged. */
void core_lane_release(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_account *account = &task->vgpu->accounts[index];
	struct core_engine *engine = account->engine;
	struct core_lane *lane = &task->lanes[index];
	uint64_t since = account->idle_since;
	bool was_idle = lane->was_idle || lane->state == LANE_IDLE_HELD;

	lane->state = LANE_IDLE;
	lane->was_idle = false;
	lane->flags = 0;
	account->holder = NULL;
	account->holder_task = NULL;
	engine->permits--;
	heap_remove(&account->patience);
	if (engine->holder == account)
		engine->holder = NULL;
	if (!account->waiters.count && !lane->again)
		core_account_start_thinking(account, was_idle ? since : core->now);
	engine->last = account;
	engine->completed = account;
	if (!is_cbs(engine))
		queue_completed(account, core->now);
	core_account_place(core, account);
	core_mark(core, engine);
}

static void lane_revoke(struct rtxg_core *core, struct core_account *account)
{
	struct core_engine *engine = account->engine;
	struct rtxg_action *action = core_emit(core, RTXG_ACT_REVOKE);

	action->task = account->holder_task->id;
	action->engine = engine->index;
	action->gpu = engine->gpu->id;
	account->holder->was_idle = account->holder->state == LANE_IDLE_HELD;
	account->holder->state = LANE_REVOKING;
}

/* While somebody waits, a permit that must come back by itself may not stay out for ever. */
static void watch_holder(struct rtxg_core *core, struct core_account *account, bool others_wait)
{
	uint64_t timeout = account->engine->gpu->params.revoke_timeout_ns;

	if (!others_wait || timeout == NEVER) {
		heap_remove(&account->patience);
		return;
	}
	if (!heap_holds(&account->patience))
		core_arm(core, &account->patience, TIMER_PATIENCE, add_time(core->now, timeout));
}

/*
 * The holder's time to give the permit back is over: a stopped or hostile program. It waits for no
 * other permit either: an arrival says when the program goes on.
 */
void core_engine_expired(struct rtxg_core *core, struct core_account *account)
{
	struct core_task *task = account->holder_task;
	struct core_engine *engine = account->engine;
	struct rtxg_action *action;
	struct core_lane *lane;

	if (!task)
		return;
	lane = account->holder;
	action = core_emit(core, RTXG_ACT_EXPEL);
	action->task = task->id;
	action->engine = engine->index;
	action->gpu = engine->gpu->id;
	core_lane_charge(core, task, engine->index, 0);
	lane->again = false;
	lane->stats.expelled++;
	account->stats.expelled++;
	core_lane_release(core, task, engine->index);
	core_account_stop_thinking(account);
}

static void grant_first(struct rtxg_core *core, struct core_account *account)
{
	struct core_engine *engine = account->engine;
	struct heap_node *node = heap_first(&account->waiters);
	struct core_lane *lane = heap_owner(node, struct core_lane, node);
	struct core_task *task = heap_owner(lane - engine->index, struct core_task, lanes);
	bool siblings = account->waiters.count > 1;
	uint32_t flags = 0;
	bool others;

	switch (engine->gpu->params.policy) {
	case RTXG_GPU_NULL:
		others = siblings;
		flags = siblings ? RTXG_GRANT_ONESHOT : 0;
		break;
	case RTXG_GPU_CBS:
		others = core_account_others_want(engine, account, core->now);
		if (siblings || account->vgpu->params.max_ppm < RTXG_PPM)
			flags = RTXG_GRANT_ONESHOT;
		else if (others)
			flags = RTXG_GRANT_REPORT;
		/* Under a lease the pauses are free as long as the others only think. */
		if (!(flags & RTXG_GRANT_ONESHOT))
			others = engine->waiting > account->waiters.count;
		lane->leftover = !account->vgpu->params.min_ppm || account->eligible_ns > core->now;
		if (lane->leftover && account->vtime > engine->vtime)
			engine->vtime = account->vtime;
		break;
	default:
		others = engine->waiting > 1;
		if (others ||
		    (engine->gpu->params.policy == RTXG_GPU_BAND && engine->gpu->users > 1))
			flags = RTXG_GRANT_ONESHOT;
		break;
	}
	lane_hold(core, account, task, flags, others);
}

/* NULL: no arbitration between vGPUs, one permit at a time inside each. */
static void schedule_null(struct rtxg_core *core, struct core_engine *engine)
{
	struct core_account *account;
	struct heap_node *node;
	struct core_vgpu *vgpu;

	while ((node = heap_first(&engine->ready))) {
		if (core->action_count + RTXG_ACTIONS_MIN / 2 > core->action_cap) {
			core_mark(core, engine);
			return;
		}
		account = heap_owner(node, struct core_account, ready);
		grant_first(core, account);
	}
	for (vgpu = engine->gpu->vgpus; vgpu && engine->waiting; vgpu = vgpu->next) {
		account = &vgpu->accounts[engine->index];
		if (!account->holder)
			continue;
		if (core->action_count + RTXG_ACTIONS_MIN / 2 > core->action_cap) {
			core_mark(core, engine);
			return;
		}
		if (account->waiters.count && account->holder->state == LANE_HELD &&
		    is_lease(account->holder))
			lane_revoke(core, account);
		watch_holder(core, account, account->waiters.count > 0);
	}
}

/* May the holder keep what it has? Sets when to look again. */
static void review_holder(struct rtxg_core *core, struct core_engine *engine, uint64_t *look_again)
{
	struct core_account *account = engine->holder;
	struct core_lane *lane = account->holder;
	struct core_account *next;
	uint64_t wait = 0;

	switch (lane->state) {
	case LANE_HELD:
		if (!is_lease(lane))
			break;
		if (is_cbs(engine) && account->vgpu->params.max_ppm < RTXG_PPM) {
			/* it got a cap meanwhile: every launch counts from now on */
			lane_revoke(core, account);
			break;
		}
		if (!engine->waiting)
			break;
		if (!is_cbs(engine) || !(lane->flags & RTXG_GRANT_REPORT) ||
		    (account->waiters.count && sibling_first(account)) ||
		    cbs_displaces(engine, account, lane, core->now, look_again))
			lane_revoke(core, account);
		break;
	case LANE_IDLE_HELD:
		if (!engine->waiting) {
			/* Nobody is there any more: it need not report every pause. */
			if (!core_account_others_want(engine, account, core->now)) {
				struct rtxg_action *action = core_emit(core, RTXG_ACT_GRANT);

				action->task = account->holder_task->id;
				action->engine = engine->index;
				action->gpu = engine->gpu->id;
				lane->flags = 0;
				lane->state = LANE_HELD;
				lane->contended_ns = NEVER;
			}
			break;
		}
		/*
		 * The permit stays with it while it only thinks, unless somebody may go before it.
		 */
		core_account_start_thinking(account, account->idle_since);
		next = is_cbs(engine) ? cbs_pick(engine, core->now, &wait) : NULL;
		if (next || !is_cbs(engine))
			lane_revoke(core, account);
		else if (wait)
			*look_again = min_u64(*look_again, wait);
		core_account_stop_thinking(account);
		break;
	default:
		break;
	}
	watch_holder(core, account,
		     engine->waiting && (lane->state == LANE_REVOKING ||
					 (lane->state == LANE_HELD && !is_lease(lane))));
}

void core_engine_schedule(struct rtxg_core *core, struct core_engine *engine)
{
	uint64_t look_again = NEVER, wait = 0;
	struct core_account *next;

	if (is_cbs(engine))
		cbs_promote(engine, core->now);
	if (is_null(engine)) {
		schedule_null(core, engine);
	} else if (engine->holder) {
		review_holder(core, engine, &look_again);
	} else if (engine->permits) {
		/* Left over from the null policy: take them all back first. */
		for (struct core_vgpu *vgpu = engine->gpu->vgpus; vgpu; vgpu = vgpu->next)
			if (vgpu->accounts[engine->index].holder)
				engine->holder = &vgpu->accounts[engine->index];
		core_mark(core, engine);
	} else if (engine->waiting) {
		next = is_cbs(engine) ? cbs_pick(engine, core->now, &wait)
				      : queue_pick(engine, core->now, &wait);
		if (next)
			grant_first(core, next);
		else if (wait)
			look_again = min_u64(look_again, wait);
		/* A permit given just now may have to be looked at again soon. */
		if (next && engine->holder)
			review_holder(core, engine, &look_again);
	}
	engine->arrived = engine->completed = NULL;
	if (is_cbs(engine) && engine->waiting && heap_first(&engine->wakes))
		look_again = min_u64(look_again, heap_first(&engine->wakes)->key);
	core_arm(core, &engine->timer, TIMER_ENGINE, look_again);
}
