/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * engine.c - one engine of one GPU: who holds its permit, who waits, what is charged. What the
 * policies share is here; which account comes next is theirs (policy_queue.c, policy_cbs.c).
 */
#include "internal.h"

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

/*
 * The longest time for which somebody held the engine between two reports, in this window of the
 * GPU and the one before.
 */
static void roll_longest(struct core_engine *engine, uint64_t now)
{
	uint64_t window = (now - engine->gpu->epoch_ns) / engine->gpu->params.window_ns;

	if (window == engine->longest_window)
		return;
	engine->longest_before = window == engine->longest_window + 1 ? engine->longest : 0;
	engine->longest = 0;
	engine->longest_window = window;
}

static void note_longest(struct core_engine *engine, uint64_t time, uint64_t now)
{
	roll_longest(engine, now);
	engine->longest = max_u64(engine->longest, time);
}

uint64_t engine_longest(struct core_engine *engine, uint64_t now)
{
	roll_longest(engine, now);
	return min_u64(max_u64(engine->longest, engine->longest_before), RTXG_PERIOD_MAX_NS);
}

void engine_init(struct core_engine *engine, struct core_gpu *gpu, uint32_t index)
{
	engine->gpu = gpu;
	engine->index = index;
	engine->band_until = NEVER;
}

void account_reset(struct core_account *account, uint64_t now)
{
	account->credit = 0;
	account->credit_tick = 0;
	account->window = 0;
	account->window_busy = 0;
	cbs_reset(account, now);
}

void account_init(struct core_account *account, struct core_vgpu *vgpu, struct core_engine *engine,
		  uint64_t now)
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

/* --- utilisation window ----------------------------------------------------------------------- */

uint32_t account_used_ppm(const struct core_account *account, uint64_t now)
{
	const struct core_gpu *gpu = account->vgpu->gpu;
	uint64_t since = now - gpu->epoch_ns;
	uint64_t elapsed = since % gpu->params.window_ns;

	if (account->window != since / gpu->params.window_ns || !account->window_busy)
		return 0;
	if (!elapsed || account->window_busy >= elapsed)
		return RTXG_PPM;
	return (uint32_t)(account->window_busy * RTXG_PPM / elapsed);
}

static void window_charge(struct core_account *account, uint64_t charge, uint64_t now)
{
	uint64_t window =
		(now - account->vgpu->gpu->epoch_ns) / account->vgpu->gpu->params.window_ns;

	if (window != account->window) {
		account->window = window;
		account->window_busy = 0;
	}
	account->window_busy += charge;
}

/* --- thinking --------------------------------------------------------------------------------- */

void account_stop_thinking(struct core_account *account)
{
	if (!account->thinking)
		return;
	if (account->think_prev)
		account->think_prev->think_next = account->think_next;
	else
		account->engine->thinking = account->think_next;
	if (account->think_next)
		account->think_next->think_prev = account->think_prev;
	account->think_next = account->think_prev = NULL;
	account->thinking = false;
}

/*
 * The account has nothing to do since now. If it usually comes back within the time that the GPU is
 * willing to wait, note until when: a synchronous program leaves such a gap after every launch, and
 * giving each gap to somebody without budget would halve its share ("deceptive idleness", Iyer and
 * Druschel 2001).
 */
static void account_start_thinking(struct core_account *account, uint64_t now)
{
	struct core_engine *engine = account->engine;
	uint64_t patience = engine->gpu->params.think_ns;

	account_stop_thinking(account);
	account->idle_since = now;
	if (!patience || account->think_mean > patience || !account->vgpu->tasks)
		return;
	/*
	 * Waiting is worth it for as long as giving up would cost: one launch of somebody else,
	 * which cannot be taken back (the rule of renting skis). Not for ever, though.
	 */
	account->think_until = now + min_u64(4 * patience, max_u64(4 * account->think_mean + 100000,
								   engine_longest(engine, now)));
	account->think_next = engine->thinking;
	account->think_prev = NULL;
	if (engine->thinking)
		engine->thinking->think_prev = account;
	engine->thinking = account;
	account->thinking = true;
}

/*
 * Learns from a pause: an exponential mean, in which a long absence counts as four times the
 * patience at most.
 */
void account_learn(struct core_account *account, uint64_t pause)
{
	uint64_t patience = account->engine->gpu->params.think_ns;

	pause = min_u64(pause, 4 * patience);
	if (pause > account->think_mean)
		account->think_mean += (pause - account->think_mean) / 8;
	else
		account->think_mean -= (account->think_mean - pause) / 8;
}

bool engine_other_vgpu_wants(struct core_engine *engine, const struct core_account *account,
			     uint64_t now)
{
	struct core_account *other, *next;

	if (engine->waiting > account->waiters.count)
		return true;
	for (other = engine->thinking; other; other = next) {
		next = other->think_next;
		if (now >= other->think_until)
			/* it did not come back: nobody looks at it twice */
			account_stop_thinking(other);
		else if (other != account)
			return true;
	}
	return false;
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* Where the lane stands in its vGPU's queue. */
uint64_t lane_key(const struct core_task *task, const struct core_lane *lane, uint64_t *tie)
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
void account_place(struct rtxg_core *core, struct core_account *account)
{
	struct core_engine *engine = account->engine;

	account_unplace(account);
	if (!account->waiters.count)
		return;
	if (is_cbs(engine))
		cbs_place(account, core->now);
	else if (!is_null(engine) || !account->holder)
		heap_insert(&engine->ready, &account->ready, account->order, 0);
}

void account_unplace(struct core_account *account)
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

void lane_arrive(struct rtxg_core *core, struct core_task *task, uint32_t index, uint64_t since)
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
				account_learn(account, core->now - account->idle_since);
			cbs_activate(account, core->now);
		}
		account_stop_thinking(account);
		account_place(core, account);
	}
	holder_contended(engine, account, core->now);
	if (!is_null(engine))
		engine->arrived = account;
	core_mark(core, engine);
}

void lane_leave_queue(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_account *account = &task->vgpu->accounts[index];
	struct core_lane *lane = &task->lanes[index];

	heap_remove(&lane->node);
	account->engine->waiting--;
	lane->state = LANE_IDLE;
	lane->stats.wait_ns += core->now - lane->arrived_ns;
	account->stats.wait_ns += core->now - lane->arrived_ns;
	if (!account->waiters.count) {
		account_place(core, account);
		/*
		 * The holder keeps nobody waiting any more. Under the other policies its engine's
		 * waiters decide: review_holder.
		 */
		if (is_null(account->engine))
			heap_remove(&account->patience);
	}
}

void lane_requeue(struct rtxg_core *core, struct core_task *task, uint32_t index)
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

/* --- accounting ------------------------------------------------------------------------------- */

/*
 * Charges the holder up to now. With a one-shot permit it had the engine to itself, so all the time
 * that passed is its own. Under a lease nobody is kept waiting at first: of that part only what it
 * says it used counts; once somebody waits, all of it does. What it says covers both parts, so the
 * second is not counted twice. A reporting lease was given because others are about, even if they
 * only think: all that it is charged for is at their cost.
 */
void lane_charge(struct rtxg_core *core, struct core_task *task, uint32_t index, uint64_t used_ns)
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
	window_charge(account, charge, now);
	note_longest(engine, elapsed, now);
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
		account_place(core, account);
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
	account_stop_thinking(account);
	account_place(core, account);

	action = core_emit(core, RTXG_ACT_GRANT);
	action->task = task->id;
	action->engine = engine->index;
	action->flags = flags;
	action->gpu = engine->gpu->id;
}

/* The permit has ended, by completion, return or force. What it used has been charged. */
void lane_release(struct rtxg_core *core, struct core_task *task, uint32_t index)
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
		account_start_thinking(account, was_idle ? since : core->now);
	engine->last = account;
	engine->completed = account;
	if (!is_cbs(engine))
		queue_completed(account, core->now);
	account_place(core, account);
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
 * The holder's time to give the permit back is over: a stopped or hostile program. It loses the
 * permit, not its place.
 */
void engine_expired(struct rtxg_core *core, struct core_account *account)
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
	lane_charge(core, task, engine->index, 0);
	lane->stats.expelled++;
	account->stats.expelled++;
	lane_release(core, task, engine->index);
	account_stop_thinking(account);
	if (lane->again) {
		lane->again = false;
		lane_arrive(core, task, engine->index, lane->again_ns);
	}
}

/* --- decisions -------------------------------------------------------------------------------- */

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
		others = engine_other_vgpu_wants(engine, account, core->now);
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
			if (!engine_other_vgpu_wants(engine, account, core->now)) {
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
		account_start_thinking(account, account->idle_since);
		next = is_cbs(engine) ? cbs_pick(engine, core->now, &wait) : NULL;
		if (next || !is_cbs(engine))
			lane_revoke(core, account);
		else if (wait)
			*look_again = min_u64(*look_again, wait);
		account_stop_thinking(account);
		break;
	default:
		break;
	}
	watch_holder(core, account,
		     engine->waiting && (lane->state == LANE_REVOKING ||
					 (lane->state == LANE_HELD && !is_lease(lane))));
}

void engine_schedule(struct rtxg_core *core, struct core_engine *engine)
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
