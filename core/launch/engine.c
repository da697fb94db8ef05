/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * engine.c - one engine of one GPU: who holds its permit, who waits, what is charged. What the
 * policies share is here; which account comes next is theirs, by the engine's table (policy.h).
 */
#include "account.h"
#include "actions.h"
#include "engine.h"
#include "policy.h"

/*
 * Whether the holder has launched is looked at so often, at most, in the time of an early permit,
 * but not so often that a host does nothing else.
 */
#define EARLY_LOOKS   8u
#define EARLY_LOOK_NS 5000u

/*
 * Uses that differ by more than one part in so many are not foreseen: a CPU that stands ready does
 * so for nothing if the use lasts longer, and a permit that comes early is no worse for it.
 */
#define ALIKE_AHEAD 8u
#define ALIKE_EARLY 2u

static bool is_lease(const struct core_lane *lane)
{
	return !(lane->flags & RTXG_GRANT_ONESHOT);
}

void core_engine_init(struct core_engine *engine, struct core_gpu *gpu, uint32_t index)
{
	engine->gpu = gpu;
	engine->index = index;
	core_engine_set_policy(engine);
}

bool core_engine_set_policy(struct core_engine *engine)
{
	const struct core_policy *policy = core_policy_of(engine->gpu->params.policy);
	bool other = policy != engine->policy;

	engine->policy = policy;
	engine->holder = engine->arrived = engine->ended = NULL;
	if (other)
		memset(engine->books, 0, sizeof(engine->books));
	if (policy->open)
		policy->open(engine);
	return other;
}

void core_account_reset(struct core_account *account, bool other, uint64_t now)
{
	const struct core_policy *policy = account->engine->policy;

	account->window =
		(now - account->vgpu->gpu->epoch_ns) / account->vgpu->gpu->params.window_ns;
	account->window_busy = 0;
	if (other)
		memset(account->books, 0, sizeof(account->books));
	if (policy->reset)
		policy->reset(account, now);
}

void core_account_settle(struct core_account *account, uint64_t now)
{
	if (account->engine->policy->settle)
		account->engine->policy->settle(account, now);
}

void core_account_init(struct core_account *account, struct core_vgpu *vgpu,
		       struct core_engine *engine, uint64_t now)
{
	account->vgpu = vgpu;
	account->engine = engine;
	account->order = engine->next_order++;
	core_account_reset(account, true, now);
}

void core_account_changed(struct core_account *account, uint64_t now)
{
	if (account->engine->policy->changed)
		account->engine->policy->changed(account, now);
}

bool core_account_forget(struct core_account *account)
{
	struct core_engine *engine = account->engine;

	core_account_unplace(account);
	core_account_stop_thinking(account);
	heap_remove(&account->patience);
	if (engine->awaited == account)
		engine->awaited = NULL;
	if (engine->arrived == account)
		engine->arrived = NULL;
	if (engine->ended == account)
		engine->ended = NULL;
	return engine->policy->forget && engine->policy->forget(engine, account);
}

void core_account_place(struct rtxg_core *core, struct core_account *account)
{
	const struct core_policy *policy = account->engine->policy;

	core_account_unplace(account);
	if (!account->waiters.count)
		return;
	if (policy->place)
		policy->place(account, core->now);
	else if (!policy->shared || !account->holder)
		heap_insert(&account->engine->ready, &account->ready, account->order, 0);
}

void core_account_unplace(struct core_account *account)
{
	heap_remove(&account->ready);
	heap_remove(&account->wake);
}

/* A lane starts to wait on the engine: from now on the holder's time is at others' cost. */
static void holder_contended(struct core_engine *engine, struct core_account *own, uint64_t now)
{
	struct core_account *account = engine->policy->shared ? own : engine->holder;
	struct core_lane *lane = account ? account->holder : NULL;

	if (!lane)
		return;
	if (lane->contended_ns == NEVER)
		lane->contended_ns = now;
}

/*
 * The engine is not kept free any longer for the account that it was kept free for. That time was
 * at the others' cost, so it is charged as if the lane had used it.
 */
void core_engine_end_wait(struct core_engine *engine, uint64_t now)
{
	struct core_account *account = engine->awaited;
	uint64_t charge;

	if (!account)
		return;
	engine->awaited = NULL;
	if (!account->thinking)
		return;
	charge = min_u64(now, account->think_until);
	charge -= min_u64(charge, engine->awaited_ns);
	account->thinker->stats.busy_ns += charge;
	account->stats.busy_ns += charge;
	core_account_charge_window(account, charge, now);
	if (charge && engine->policy->paused)
		engine->policy->paused(account, charge, now);
}

/* The lane goes: it will not be back. */
void core_lane_forget(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_account *account = &task->vgpu->accounts[index];

	if (account->thinker != &task->lanes[index])
		return;
	if (account->engine->awaited == account)
		core_engine_end_wait(account->engine, core->now);
	core_account_stop_thinking(account);
	core_mark(core, account->engine);
}

void core_lane_arrive(struct rtxg_core *core, struct core_task *task, uint32_t index,
		      uint64_t since)
{
	struct core_account *account = &task->vgpu->accounts[index];
	struct core_engine *engine = account->engine;
	struct core_lane *lane = &task->lanes[index];
	uint64_t tie;

	if (engine->awaited == account)
		core_engine_end_wait(engine, core->now);
	if (lane->stats.grants)
		core_pauses_note(&lane->pauses, core->now - lane->idle_since);
	lane->state = LANE_WAITING;
	lane->arrived_ns = since;
	lane->node.tie = core->sequence++;
	heap_insert(&account->waiters, &lane->node, core_lane_key(task, lane, &tie),
		    lane->node.tie);
	engine->waiting++;
	if (account->waiters.count == 1) {
		if (!account->holder && engine->policy->wake)
			engine->policy->wake(account, core->now);
		core_account_stop_thinking(account);
		core_account_place(core, account);
	}
	holder_contended(engine, account, core->now);
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
		 * The holder keeps no lane waiting any more. Where one vGPU holds the engine, all
		 * the engine's waiters count: review_holder.
		 */
		if (account->engine->policy->shared)
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
	key = core_lane_key(task, lane, &tie);
	heap_update(&account->waiters, &lane->node, key, tie);
	core_mark(core, account->engine);
}

/*
 * Charges the holder up to now. With a one-shot permit it had the engine to itself, so all the time
 * that passed is its own. Under a lease no task is kept waiting at first: of that part only what it
 * says it used counts; once a task waits, all of it does. What it says covers both parts, so the
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
	if (engine->policy->charge) {
		struct core_usage usage = {
			.all = charge,
			.contended = min_u64(contended, charge),
		};

		if (!(lane->flags & RTXG_GRANT_REPORT))
			usage.alone = elapsed - min_u64(contended, elapsed);
		engine->policy->charge(account, &usage, now);
	}
	lane->charged_ns = now;
	/* Siblings that wait stand where the account's deadline or debt puts them. */
	if (account->waiters.count)
		core_account_place(core, account);
	if (used_ns)
		lane->was_idle = false;
}

/*
 * A lease lasts for as long as no other wants the engine, and says little of the uses under it. If
 * the client says that it used the engine for most of that time, it was likely to be one use.
 */
void core_lane_note_length(struct core_task *task, uint32_t index, uint64_t now, uint64_t used_ns)
{
	struct core_account *account = &task->vgpu->accounts[index];
	struct core_lane *lane = &task->lanes[index];
	uint64_t length = now - lane->began_ns, least = lane->flags ? 0 : length / 2;

	if (!lane->flags)
		length = min_u64(length, used_ns);
	if (lane->began_ns != NEVER && length >= least) {
		core_lengths_note(&lane->lengths, length);
		core_lengths_note(&account->lengths, length);
	}
	lane->began_ns = NEVER;
}

/* The lane waits no more: it gets a permit. */
static void lane_grant(struct rtxg_core *core, struct core_account *account, struct core_task *task,
		       uint32_t flags)
{
	struct core_engine *engine = account->engine;
	struct core_lane *lane = &task->lanes[engine->index];
	struct rtxg_action *action;
	uint64_t waited = core->now - lane->arrived_ns;

	heap_remove(&lane->node);
	engine->waiting--;
	lane->flags = flags;
	lane->stats.wait_ns += waited;
	lane->stats.grants++;
	account->stats.wait_ns += waited;
	account->stats.grants++;

	action = core_emit(core, RTXG_ACT_GRANT);
	action->task = task->id;
	action->engine = engine->index;
	action->flags = flags;
	action->gpu = engine->gpu->id;
}

/* The engine is its own, by the permit that it was given. */
static void lane_hold(struct rtxg_core *core, struct core_account *account, struct core_task *task,
		      bool contended)
{
	struct core_engine *engine = account->engine;
	struct core_lane *lane = &task->lanes[engine->index];

	lane->state = LANE_HELD;
	lane->launched = lane->followed = false;
	lane->granted_ns = lane->charged_ns = lane->began_ns = core->now;
	lane->contended_ns = contended ? core->now : NEVER;
	account->holder = lane;
	account->holder_task = task;
	engine->permits++;
	if (!engine->policy->shared)
		engine->holder = account;
	core_account_stop_thinking(account);
	core_account_place(core, account);
}

static void start_thinking(struct core_account *account, struct core_lane *lane, uint64_t now)
{
	const struct core_policy *policy = account->engine->policy;

	core_account_start_thinking(account, lane, policy->lends ? policy->lends(account) : 0, now);
}

/* The permit has ended, by completion, return or force. What it used has been charged. */
void core_lane_release(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_account *account = &task->vgpu->accounts[index];
	struct core_engine *engine = account->engine;
	struct core_lane *lane = &task->lanes[index];

	if (!lane->was_idle && lane->state != LANE_IDLE_HELD)
		lane->idle_since = core->now;
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
		start_thinking(account, lane, core->now);
	engine->ended = account;
	if (engine->policy->ended)
		engine->policy->ended(account, core->now);
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

/* The holder keeps its permit, with other flags. */
static void lane_reflag(struct rtxg_core *core, struct core_account *account, uint32_t flags)
{
	struct rtxg_action *action = core_emit(core, RTXG_ACT_GRANT);

	action->task = account->holder_task->id;
	action->engine = account->engine->index;
	action->flags = flags;
	action->gpu = account->engine->gpu->id;
	account->holder->flags = flags;
}

/* While a task waits, a permit that must come back by itself may not stay out for ever. */
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
	struct core_lane *lane;
	struct core_task *task = core_account_first(account, &lane);
	const struct core_policy *policy = engine->policy;
	uint32_t flags;
	bool contended;

	if (policy->permit) {
		flags = policy->permit(account, core->now, &contended);
	} else {
		contended = (policy->shared ? account->waiters.count : engine->waiting) > 1;
		flags = contended ? RTXG_GRANT_ONESHOT : 0;
	}
	lane_grant(core, account, task, flags);
	lane_hold(core, account, task, contended);
}

/* --- permits that come early ------------------------------------------------------------------ */

bool core_lane_unseen(const struct core_lane *lane)
{
	return !lane->launched &&
	       (lane->state == LANE_REVOKING || (lane->state == LANE_HELD && !is_lease(lane)));
}

/*
 * While two permits are out, the engine's time is the holder's, which pays for it; the early one is
 * of the same account, so no account has time for nothing.
 */
void core_lane_end_early(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_engine *engine = task->vgpu->accounts[index].engine;
	struct core_lane *lane = &task->lanes[index];

	lane->state = LANE_IDLE;
	lane->flags = 0;
	lane->idle_since = core->now;
	engine->early = NULL;
	core_mark(core, engine);
}

/*
 * The use before has ended: the engine goes to the one that has its permit already, if there is
 * one.
 */
static void promote_early(struct rtxg_core *core, struct core_engine *engine)
{
	struct core_task *task = engine->early;
	struct core_account *account;
	bool contended = engine->waiting > 0;

	if (!task)
		return;
	account = &task->vgpu->accounts[engine->index];
	if (account->holder || (!engine->policy->shared && engine->permits))
		return;
	engine->early = NULL;
	if (engine->policy->permit) /* for its books: the flags stay as they are */
		engine->policy->permit(account, core->now, &contended);
	lane_hold(core, account, task, contended);
}

/* Could a vGPU that has a task, and wants nothing now, go before this one if it came? */
static bool another_may_come(const struct core_gpu *gpu, const struct core_vgpu *own)
{
	const struct core_vgpu *vgpu;

	if (gpu->users > 1)
		for (vgpu = gpu->vgpus; vgpu; vgpu = vgpu->next)
			if (vgpu != own && vgpu->tasks &&
			    (vgpu->params.min_ppm || vgpu->params.priority > own->params.priority))
				return true;
	return false;
}

/*
 * May a second permit go to the account's first waiter, beside the one that is in use? The work of
 * both is then on the device for a moment. So both are of one vGPU that has no cap, no other one
 * wants the engine or is likely to come before it, and the vGPU's tasks take their turns as they
 * come. The use that is on has to have begun: else the two might change places. And each use has
 * one such permit beside it, so that none launches again and again while it lasts.
 */
static bool may_be_early(struct core_engine *engine, const struct core_account *account,
			 uint64_t now)
{
	const struct core_vgpu *vgpu = account->vgpu;

	return account == engine->holder && vgpu->params.policy == RTXG_TASK_FIFO &&
	       vgpu->params.max_ppm == RTXG_PPM && account->holder->launched &&
	       !core_account_others_want(engine, account, now) &&
	       !another_may_come(engine->gpu, vgpu);
}

/* What is known of uses like the one that is on: of its lane, or else of its vGPU. */
static const struct core_lengths *lengths_known(const struct core_engine *engine)
{
	const struct core_account *account = engine->holder;

	return account->holder->lengths.last ? &account->holder->lengths : &account->lengths;
}

/*
 * The next one's permit, so long before the end that is foreseen. The permit wakes it, so no CPU
 * need stand ready. While the host has not said that the holder has launched, it is asked from time
 * to time, by the timer.
 */
static void give_early(struct rtxg_core *core, struct core_account *account, uint64_t *look_again)
{
	struct core_engine *engine = account->engine;
	const struct core_lane *holder = engine->holder->holder;
	uint64_t early = engine->gpu->params.early_ns, end;
	uint64_t expected = core_lengths_expected(lengths_known(engine), ALIKE_EARLY);
	struct core_lane *lane;
	struct core_task *task;

	if (holder->followed || expected <= early)
		return;
	end = holder->began_ns + expected;
	if (core->now < end - early)
		*look_again = min_u64(*look_again, end - early);
	if (core->now < end - early || core->now >= end + early)
		return;
	if (account == engine->holder && !holder->launched)
		*look_again = min_u64(*look_again,
				      core->now + max_u64(early / EARLY_LOOKS, EARLY_LOOK_NS));
	if (!may_be_early(engine, account, core->now))
		return;
	task = core_account_first(account, &lane);
	lane_grant(core, account, task, RTXG_GRANT_ONESHOT);
	lane->state = LANE_EARLY;
	engine->early = task;
	account->holder->followed = true;
	core_account_place(core, account);
}

/* No arbitration between vGPUs, one permit at a time inside each. */
static void schedule_shared(struct rtxg_core *core, struct core_engine *engine)
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
		/* A permit that is idle comes from a policy that the GPU had before. */
		if (account->waiters.count && account->holder->state != LANE_REVOKING &&
		    is_lease(account->holder))
			lane_revoke(core, account);
		watch_holder(core, account, account->waiters.count > 0);
	}
}

/* Accounts whose time has come get their place. */
static void promote(struct rtxg_core *core, struct core_engine *engine)
{
	struct heap_node *node;

	while ((node = heap_first(&engine->wakes)) && node->key <= core->now)
		core_account_place(core, heap_owner(node, struct core_account, wake));
}

static struct core_account *pick(struct core_engine *engine, uint64_t now, uint64_t *look_again)
{
	return engine->policy->pick ? engine->policy->pick(engine, now, look_again)
				    : core_engine_first(engine);
}

/* May the holder keep what it has? Sets when to look again. */
static void review_holder(struct rtxg_core *core, struct core_engine *engine, uint64_t *look_again)
{
	const struct core_policy *policy = engine->policy;
	struct core_account *account = engine->holder;
	struct core_lane *lane = account->holder;
	uint64_t wait = 0;

	switch (lane->state) {
	case LANE_HELD:
		if (!is_lease(lane))
			break;
		if (policy->displaces ? policy->displaces(account, core->now, look_again)
				      : engine->waiting > 0)
			lane_revoke(core, account);
		else if (engine->waiting && !(lane->flags & RTXG_GRANT_REPORT))
			/* It goes on for now: others have to hear of its pauses. */
			lane_reflag(core, account, RTXG_GRANT_REPORT);
		break;
	case LANE_IDLE_HELD:
		if (!engine->waiting) {
			/* The others are gone: it need not report every pause. */
			if (!core_account_others_want(engine, account, core->now)) {
				lane_reflag(core, account, 0);
				lane->state = LANE_HELD;
				lane->contended_ns = NEVER;
			}
			break;
		}
		/*
		 * The permit stays with it while it only thinks, unless another may go before it.
		 */
		start_thinking(account, lane, core->now);
		if (!policy->displaces || pick(engine, core->now, &wait))
			lane_revoke(core, account);
		else if (wait)
			*look_again = min_u64(*look_again, wait);
		core_account_stop_thinking(account);
		/* The pause is charged with what the permit is charged for. */
		engine->awaited = NULL;
		break;
	default:
		break;
	}
	watch_holder(core, account,
		     (engine->waiting || engine->early) &&
			     (lane->state == LANE_REVOKING ||
			      (lane->state == LANE_HELD && !is_lease(lane))));
}

/*
 * What is on the engine is likely to end soon, and then it goes to the next one, which is alerted,
 * so that a CPU stands ready when it does.
 */
static void alert_next(struct rtxg_core *core, struct core_account *account, uint64_t *look_again)
{
	struct core_engine *engine = account->engine;
	const struct core_lane *holder = engine->holder->holder;
	uint64_t ahead = engine->gpu->params.ahead_ns, begin, until;
	uint64_t expected = core_lengths_expected(lengths_known(engine), ALIKE_AHEAD);
	struct rtxg_action *action;
	struct core_task *task;
	struct core_lane *next;

	if (expected < RTXG_AHEAD_WORTH * ahead)
		return;
	begin = holder->began_ns + expected - ahead;
	until = begin + 2 * ahead;
	if (core->now < begin)
		*look_again = min_u64(*look_again, begin);
	if (core->now < begin || core->now >= until)
		return;
	task = core_account_first(account, &next);
	if (next->alerted_ns == until)
		return;
	next->alerted_ns = until;
	action = core_emit(core, RTXG_ACT_ALERT);
	action->task = task->id;
	action->engine = engine->index;
	action->gpu = engine->gpu->id;
	action->at_ns = until;
}

/*
 * The use that is on is likely to end soon, and another waits: it gets its permit early, or is
 * alerted. Which one that is, is a guess: an arrival until then, and the policy, may make it
 * another.
 */
static void foresee_end(struct rtxg_core *core, struct core_engine *engine, uint64_t *look_again)
{
	const struct rtxg_gpu_params *params = &engine->gpu->params;
	const struct core_lane *holder = engine->holder->holder;
	struct core_account *account;

	/* A lease that was not called back outlives the launch that is on. */
	if ((!params->ahead_ns && !params->early_ns) || engine->early ||
	    holder->began_ns == NEVER ||
	    (holder->state != LANE_REVOKING && (holder->state != LANE_HELD || is_lease(holder))))
		return;
	account = engine->policy->peek ? engine->policy->peek(engine) : core_engine_first(engine);
	if (account && params->early_ns)
		give_early(core, account, look_again);
	if (account && params->ahead_ns && !engine->early)
		alert_next(core, account, look_again);
}

void core_engine_schedule(struct rtxg_core *core, struct core_engine *engine)
{
	uint64_t look_again = NEVER, wait = 0;
	struct core_account *next;

	core_engine_end_wait(engine, core->now);
	promote(core, engine);
	promote_early(core, engine);
	if (engine->policy->shared) {
		schedule_shared(core, engine);
	} else if (engine->holder) {
		review_holder(core, engine, &look_again);
	} else if (engine->permits) {
		/* Left over from a shared policy: take them all back first. */
		for (struct core_vgpu *vgpu = engine->gpu->vgpus; vgpu; vgpu = vgpu->next)
			if (vgpu->accounts[engine->index].holder)
				engine->holder = &vgpu->accounts[engine->index];
		core_mark(core, engine);
	} else if (engine->waiting) {
		next = pick(engine, core->now, &wait);
		engine->awaited_ns = core->now;
		if (next)
			grant_first(core, next);
		else if (wait)
			look_again = min_u64(look_again, wait);
		/* A permit given just now may have to be looked at again soon. */
		if (next && engine->holder)
			review_holder(core, engine, &look_again);
	}
	engine->arrived = engine->ended = NULL;
	if (engine->holder && !engine->policy->shared)
		foresee_end(core, engine, &look_again);
	if (engine->waiting && heap_first(&engine->wakes))
		look_again = min_u64(look_again, heap_first(&engine->wakes)->key);
	core_arm(core, &engine->timer, TIMER_ENGINE, look_again);
}
