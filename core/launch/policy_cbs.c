/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy_cbs.c - every vGPU with a reservation is a constant-bandwidth server (Abeni and Buttazzo,
 * RTSS 1998): budget Q = min * T every T, and among servers with budget the earliest deadline goes
 * first (EDF).
 *
 * GPU work is not preempted under the gate, so a launch may take more than the budget that is left.
 * The excess is a debt: the server gets as many new budgets, and as many later deadlines, as cancel
 * it, and may not touch them before they are due (eligible_ns). That charges overruns back exactly.
 *
 * Time that no eligible server wants is left over. It goes to whoever waits, by priority, then in
 * proportion to weights (virtual time), without touching budgets: soft servers. A cap (max) bounds
 * all use; max = min is a hard server.
 *
 * What a server uses while nobody else wants the engine is not charged to its budget either: nobody
 * lost anything.
 */
#include "account.h"
#include "policy.h"

/*
 * How many periods a backlogged server may lag behind its deadlines in overload before the lag is
 * forgotten.
 */
#define LAG_PERIODS 8

/*
 * Beyond any time that matters, and far enough below INT64_MAX that sums of a few do not overflow.
 */
#define LARGE ((uint64_t)INT64_MAX / 8)

static int64_t max_i64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static uint64_t full_budget(const struct core_account *account)
{
	const struct rtxg_vgpu_params *params = &account->vgpu->params;

	return max_u64(1, params->period_ns * params->min_ppm / RTXG_PPM);
}

static uint64_t full_cap(const struct core_account *account)
{
	const struct rtxg_vgpu_params *params = &account->vgpu->params;

	return max_u64(1, params->period_ns * params->max_ppm / RTXG_PPM);
}

static uint64_t ticks_at(const struct core_account *account, uint64_t now)
{
	uint64_t epoch = account->vgpu->gpu->epoch_ns;

	/* A permit may be older than the rules that it is charged under (GPU_SET). */
	return now > epoch ? (now - epoch) / account->vgpu->params.period_ns : 0;
}

void cbs_reset(struct core_account *account, uint64_t now)
{
	account->budget = (int64_t)full_budget(account);
	account->deadline = now + account->vgpu->params.period_ns;
	account->eligible_ns = now;
	account->cap_budget = (int64_t)full_cap(account);
	account->cap_tick = ticks_at(account, now);
	account->vtime = max_u64(account->vtime, account->engine->vtime);
}

/* A hard server: nothing beyond its reservation, so its budget is its cap. */
static bool is_hard(const struct core_account *account)
{
	return account->vgpu->params.max_ppm == account->vgpu->params.min_ppm;
}

static void cap_fill(struct core_account *account, uint64_t tick, uint64_t limit)
{
	uint64_t ticks = tick - account->cap_tick;
	uint64_t full = full_cap(account);

	account->cap_tick = tick;
	if (!ticks)
		return;
	account->cap_budget += (int64_t)(ticks > LARGE / full ? LARGE : ticks * full);
	if (account->cap_budget > (int64_t)limit)
		account->cap_budget = (int64_t)limit;
}

/*
 * The cap's budget comes back at every period; what was overdrawn is made up for first. What the
 * holder has used since its last account is not taken off yet, so a period that began meanwhile
 * filled up that much more.
 */
static void cap_refresh(struct core_account *account, uint64_t now)
{
	uint64_t tick = ticks_at(account, now);
	uint64_t full = full_cap(account);
	uint64_t begun = account->vgpu->gpu->epoch_ns + tick * account->vgpu->params.period_ns;

	if (account->holder && begun > account->holder->charged_ns) {
		cap_fill(account,
			 max_u64(account->cap_tick, ticks_at(account, account->holder->charged_ns)),
			 full);
		cap_fill(account, tick, full + min_u64(begun - account->holder->charged_ns, LARGE));
	} else {
		cap_fill(account, tick, full);
	}
}

/* May it not launch now because of its cap? A reservation is never capped: max is at least min. */
static bool cbs_capped(struct core_account *account, uint64_t now)
{
	const struct rtxg_vgpu_params *params = &account->vgpu->params;

	if (params->max_ppm >= RTXG_PPM || (params->min_ppm && account->eligible_ns <= now))
		return false;
	if (is_hard(account))
		return true;
	cap_refresh(account, now);
	return account->cap_budget <= 0;
}

/*
 * When it may launch again: when the cap's budget is positive again, or the reservation's has come.
 */
static uint64_t cap_release(const struct core_account *account)
{
	uint64_t ticks, at;

	if (is_hard(account))
		return account->eligible_ns;
	ticks = (uint64_t)-account->cap_budget / full_cap(account) + 1;
	at = account->vgpu->gpu->epoch_ns +
	     (account->cap_tick + ticks) * account->vgpu->params.period_ns;
	return account->vgpu->params.min_ppm ? min_u64(at, account->eligible_ns) : at;
}

/* New budgets until it is positive; each moves the deadline on by a period. */
static void replenish(struct core_account *account, uint64_t now)
{
	uint64_t period = account->vgpu->params.period_ns;
	uint64_t full = full_budget(account);
	uint64_t budgets, lag;

	if (account->budget > 0)
		return;
	budgets = (uint64_t)-account->budget / full + 1;
	account->budget += (int64_t)(budgets * full);
	account->deadline =
		add_time(account->deadline, budgets > LARGE / period ? LARGE : budgets * period);
	/*
	 * A single launch of another may keep it waiting for many of its periods: that is no
	 * overload.
	 */
	lag = LAG_PERIODS * period + 2 * core_engine_longest(account->engine, now);
	if (add_time(account->deadline, lag) < now)
		account->deadline = now - lag;
	account->eligible_ns = account->deadline > period ? account->deadline - period : 0;
}

/* The server's queue is no longer empty (CBS, rule for a job that arrives at an idle server). */
void cbs_activate(struct core_account *account, uint64_t now)
{
	uint64_t left;

	account->vtime = max_u64(account->vtime, account->engine->vtime);
	if (!account->vgpu->params.min_ppm || account->eligible_ns > now)
		return; /* in debt: the deadline stands */
	if (account->thinking && now < account->think_until)
		return; /* only a pause: it keeps its deadline, late as it may be */
	if (account->deadline > now) {
		left = account->deadline - now;
		/* budget / left < Q / T: the rest fits into the old deadline */
		if ((uint64_t)account->budget <
		    left / RTXG_PPM * account->vgpu->params.min_ppm +
			    left % RTXG_PPM * account->vgpu->params.min_ppm / RTXG_PPM)
			return;
	}
	account->budget = (int64_t)full_budget(account);
	account->deadline = now + account->vgpu->params.period_ns;
	account->eligible_ns = now;
}

/*
 * lane->charged_ns still says when the time that is charged began. all: charged; contended: the
 * part of it that was at somebody's cost; alone: time with the engine at nobody's cost, used or
 * not.
 */
void cbs_charge(struct core_account *account, struct core_lane *lane, uint64_t all,
		uint64_t contended, uint64_t alone, uint64_t now)
{
	const struct rtxg_vgpu_params *params = &account->vgpu->params;
	uint64_t spare = 0;

	if (params->max_ppm < RTXG_PPM) {
		cap_refresh(account, now);
		account->cap_budget = max_i64(account->cap_budget - (int64_t)min_u64(all, LARGE),
					      -(int64_t)LARGE);
		/*
		 * A reservation that the cap lets pass has to be paid for even when nobody else is
		 * there.
		 */
		contended = all;
		alone = 0;
	}
	if (lane->leftover) {
		/*
		 * Free until its own reservation comes due. A launch that runs on into another's
		 * reservation is free too: the other catches up by its deadline, and to charge it
		 * here would take from a reservation what a vGPU without one need not pay, until
		 * nothing is left of it.
		 */
		uint64_t from = now - contended;

		spare = contended;
		if (params->min_ppm)
			spare = account->eligible_ns > from
					? min_u64(contended, account->eligible_ns - from)
					: 0;
		account->vtime += spare * RTXG_WEIGHT_DEFAULT / params->weight;
	}
	if (!params->min_ppm)
		return;
	/*
	 * It had all that it could want: whatever it lagged behind its deadline, it did not lag
	 * further meanwhile.
	 */
	if (alone && account->deadline < now + params->period_ns) {
		account->deadline =
			min_u64(add_time(account->deadline, alone), now + params->period_ns);
		account->eligible_ns = account->deadline > params->period_ns
					       ? account->deadline - params->period_ns
					       : 0;
	}
	account->budget -= (int64_t)min_u64(contended - spare, LARGE);
	if (account->budget < 0)
		account->stats.overruns++, lane->stats.overruns++;
	replenish(account, now);
	/* The reservation is used up: what it goes on using under the same permit is left over. */
	if (account->eligible_ns > now)
		lane->leftover = true;
}

static void place_leftover(struct core_account *account)
{
	heap_insert(&account->engine->leftover, &account->ready,
		    RTXG_PRIORITY_MAX - account->vgpu->params.priority, account->vtime);
}

void cbs_place(struct core_account *account, uint64_t now)
{
	struct core_engine *engine = account->engine;

	if (cbs_capped(account, now)) {
		account->stats.throttled++;
		heap_insert(&engine->wakes, &account->wake, cap_release(account),
			    account->vgpu->id);
		return;
	}
	if (!account->vgpu->params.min_ppm) {
		place_leftover(account);
	} else if (account->eligible_ns <= now) {
		heap_insert(&engine->ready, &account->ready, account->deadline, account->vgpu->id);
	} else {
		place_leftover(account);
		heap_insert(&engine->wakes, &account->wake, account->eligible_ns,
			    account->vgpu->id);
	}
}

/* Accounts whose time has come get their place. */
void cbs_promote(struct core_engine *engine, uint64_t now)
{
	struct heap_node *node;

	while ((node = heap_first(&engine->wakes)) && node->key <= now) {
		struct core_account *account = heap_owner(node, struct core_account, wake);

		heap_remove(&account->wake);
		heap_remove(&account->ready);
		cbs_place(account, now);
	}
}

static bool cbs_leftover_before(const struct core_account *a, const struct core_account *b)
{
	if (a->vgpu->params.priority != b->vgpu->params.priority)
		return a->vgpu->params.priority > b->vgpu->params.priority;
	return a->vtime < b->vtime;
}

struct core_account *cbs_pick(struct core_engine *engine, uint64_t now, uint64_t *wait_until)
{
	struct heap_node *node = heap_first(&engine->ready);
	struct core_account *best, *other, *next;
	uint64_t wait = 0;

	if (node)
		return heap_owner(node, struct core_account, ready);
	node = heap_first(&engine->leftover);
	if (!node)
		return NULL;
	best = heap_owner(node, struct core_account, ready);
	/* Before time is given away: is somebody about to come back who would go before? */
	for (other = engine->thinking; other; other = next) {
		next = other->think_next;
		if (now >= other->think_until) {
			core_account_stop_thinking(other);
			continue;
		}
		if (other == best || cbs_capped(other, now))
			continue;
		if ((other->vgpu->params.min_ppm && other->eligible_ns <= now) ||
		    cbs_leftover_before(other, best))
			wait = max_u64(wait, other->think_until);
	}
	if (wait) {
		*wait_until = wait;
		return NULL;
	}
	return best;
}

/*
 * How long a holder of leftover time launches on before another with less virtual time takes its
 * turn.
 */
static uint64_t leftover_turn(const struct core_account *account)
{
	return max_u64(1000000, account->vgpu->params.period_ns / 8);
}

/*
 * Others wait while this account goes on launching under its lease: must it stop? look_again is
 * lowered to the time at which the answer may change.
 */
bool cbs_displaces(struct core_engine *engine, struct core_account *holder, struct core_lane *lane,
		   uint64_t now, uint64_t *look_again)
{
	struct heap_node *reserved = heap_first(&engine->ready);
	struct heap_node *leftover = heap_first(&engine->leftover);
	uint64_t end;

	if (!lane->leftover) {
		/*
		 * In its own reservation: until the budget is spent, or an earlier deadline comes.
		 */
		end = lane->charged_ns;
		if (lane->contended_ns != NEVER)
			/* pauses before it cost nothing */
			end = max_u64(end, lane->contended_ns);
		end = add_time(end, (uint64_t)holder->budget);
		if (now >= end || (reserved && reserved->key < holder->deadline))
			return true;
		*look_again = min_u64(*look_again, end);
		return false;
	}
	if (reserved)
		return true;
	if (!leftover)
		return false;
	if (cbs_leftover_before(heap_owner(leftover, struct core_account, ready), holder) &&
	    heap_owner(leftover, struct core_account, ready)->vgpu->params.priority >
		    holder->vgpu->params.priority)
		return true;
	end = add_time(lane->granted_ns, leftover_turn(holder));
	if (now >= end)
		return true;
	*look_again = min_u64(*look_again, end);
	return false;
}
