/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * account.c - what is noted of a vGPU on an engine whatever the policy: its utilisation in the
 * window, its pauses, and the longest time for which one permit kept the engine. Policies read it.
 * May not: ask a policy, or decide who is next.
 */
#include "account.h"

/* Until another has begun what it was woken for, and has been taken off again. */
#define WAKE_UPS_NS 100000u

/*
 * The longest time for which a task held the engine between two reports, in this window of the
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

void core_engine_note_longest(struct core_engine *engine, uint64_t time, uint64_t now)
{
	roll_longest(engine, now);
	engine->longest = max_u64(engine->longest, time);
}

uint64_t core_engine_longest(struct core_engine *engine, uint64_t now)
{
	roll_longest(engine, now);
	return min_u64(max_u64(engine->longest, engine->longest_before), RTXG_PERIOD_MAX_NS);
}

uint32_t core_account_used_ppm(const struct core_account *account, uint64_t now)
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

void core_account_charge_window(struct core_account *account, uint64_t charge, uint64_t now)
{
	uint64_t window =
		(now - account->vgpu->gpu->epoch_ns) / account->vgpu->gpu->params.window_ns;

	if (window != account->window) {
		account->window = window;
		account->window_busy = 0;
	}
	account->window_busy += charge;
}

void core_account_stop_thinking(struct core_account *account)
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
	account->thinker = NULL;
	account->thinking = false;
}

/*
 * The account has nothing to do since its lane's launch ended. If that lane is likely to come back
 * before giving the engine away would have paid, note until when: a synchronous program leaves such
 * a gap after every launch, and giving each gap to a vGPU without budget would halve its share
 * ("deceptive idleness", Iyer and Druschel 2001).
 */
void core_account_start_thinking(struct core_account *account, struct core_lane *lane,
				 uint64_t lends, uint64_t now)
{
	struct core_engine *engine = account->engine;
	uint64_t wait;

	core_account_stop_thinking(account);
	/*
	 * What giving up costs: one launch of another, which cannot be taken back, and two
	 * wake-ups.
	 */
	wait = core_pauses_wait(&lane->pauses, engine->gpu->params.think_ns,
				core_engine_longest(engine, now) + WAKE_UPS_NS);
	if ((!wait && !lends) || !account->vgpu->tasks)
		return;
	account->thinker = lane;
	account->think_until = add_time(lane->idle_since, wait);
	account->lends_until = add_time(lane->idle_since, max_u64(wait, lends));
	account->think_next = engine->thinking;
	account->think_prev = NULL;
	if (engine->thinking)
		engine->thinking->think_prev = account;
	engine->thinking = account;
	account->thinking = true;
}

bool core_account_others_want(struct core_engine *engine, const struct core_account *account,
			      uint64_t now)
{
	struct core_account *other, *next;
	bool borrows = account->vgpu->params.min_ppm > 0;

	if (engine->waiting > account->waiters.count)
		return true;
	for (other = engine->thinking; other; other = next) {
		next = other->think_next;
		if (now >= other->lends_until)
			/* it did not come back: it is not looked at twice */
			core_account_stop_thinking(other);
		else if (other != account && (borrows || now < other->think_until))
			return true;
	}
	return false;
}

bool core_engine_awaits(struct core_engine *engine, struct core_account *best,
			bool (*before)(struct core_account *thinking, struct core_account *best,
				       uint64_t now),
			uint64_t now, uint64_t *look_again)
{
	struct core_account *account, *next;
	uint64_t wait = 0;

	for (account = engine->thinking; account; account = next) {
		next = account->think_next;
		if (now >= account->lends_until)
			core_account_stop_thinking(account);
		else if (now < account->think_until && account != best &&
			 account->think_until > wait && before(account, best, now)) {
			wait = account->think_until;
			engine->awaited = account;
		}
	}
	if (wait)
		*look_again = wait;
	return wait > 0;
}

/* Where the lane stands in its vGPU's queue. */
uint64_t core_lane_key(const struct core_task *task, const struct core_lane *lane, uint64_t *tie)
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

/* Inside the vGPU: may the waiting lane launch before the holder launches again? */
bool core_sibling_first(const struct core_account *account)
{
	const struct heap_node *first = heap_first(&account->waiters);
	uint64_t tie;

	if (!first || !account->holder)
		return false;
	/* Equals take turns, so a holder gives way to a waiter of its own rank. */
	return first->key <= core_lane_key(account->holder_task, account->holder, &tie);
}

/* The same, of a waiter of a higher rank only. */
bool core_sibling_urgent(const struct core_account *account)
{
	const struct heap_node *first = heap_first(&account->waiters);
	uint64_t tie;

	return first && account->holder &&
	       first->key < core_lane_key(account->holder_task, account->holder, &tie);
}
