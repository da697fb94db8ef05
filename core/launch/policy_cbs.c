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
 * Time that no eligible server wants is left over. It goes to a vGPU that waits, by priority, then
 * in proportion to weights (virtual time), without touching budgets: soft servers. But what is left
 * over because a server with budget pauses for a moment is borrowed, and the taker's reservation
 * pays for it. A cap (max) bounds all use; max = min is a hard server.
 *
 * Use while no other vGPU wants the engine is not charged to its budget either: no one
 * lost anything.
 */
#include "account.h"
#include "policy.h"

struct cbs_books {
	int64_t budget;
	uint64_t deadline;    /* absolute */
	uint64_t eligible_ns; /* deadline - period: before it the budget may not be touched */
	int64_t cap_budget;
	uint64_t cap_next; /* when it comes back */
	uint64_t vtime;	   /* weighted time taken of what is left over */
	/* the permit was given out of what is left over, not out of the reservation */
	bool leftover;
	/* and it is left over because another with budget pauses */
	bool borrowed;
	uint8_t band;  /* the priority whose virtual time vtime follows; 0: none yet */
	bool given_up; /* the reservation: min_ppm is what it was */
	/* The reservation and the cap that the books are for: those given last, 0 if none was. */
	uint32_t min_ppm, max_ppm;
};

struct cbs_engine {
	/* The heap engine->ready holds the accounts with budget, by deadline. */
	struct heap leftover; /* the others, by priority and virtual time */
	/* By priority, of the last account that was served from what is left over. */
	uint64_t vtime[RTXG_PRIORITY_MAX + 1];
};

static struct cbs_books *books_of(const struct core_account *account)
{
	return core_books(account, struct cbs_books);
}

static struct cbs_engine *engine_of(const struct core_account *account)
{
	return core_books(account->engine, struct cbs_engine);
}

/*
 * The virtual time that the account competes in. Each priority has its own: what a higher one takes
 * says nothing of how far those below have got among themselves. An account that comes back to a
 * common one would stand behind those that never were away by all that the higher one has had.
 */
static uint64_t *band_vtime(struct core_account *account)
{
	struct cbs_books *books = books_of(account);
	uint8_t priority = (uint8_t)account->vgpu->params.priority;
	uint64_t *vtime = &engine_of(account)->vtime[priority];

	if (books->band != priority) {
		books->band = priority;
		books->vtime = *vtime;
	}
	return vtime;
}

/* Time that it did not want is not made up for. */
static void catch_up(struct core_account *account)
{
	uint64_t vtime = *band_vtime(account);

	books_of(account)->vtime = max_u64(books_of(account)->vtime, vtime);
}

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

	return max_u64(1, params->period_ns * books_of(account)->min_ppm / RTXG_PPM);
}

static uint64_t full_cap(const struct core_account *account)
{
	const struct rtxg_vgpu_params *params = &account->vgpu->params;

	return max_u64(1, params->period_ns * params->max_ppm / RTXG_PPM);
}

static void begin_server(struct core_account *account, uint64_t now)
{
	struct cbs_books *books = books_of(account);

	books->min_ppm = account->vgpu->params.min_ppm;
	books->budget = (int64_t)full_budget(account);
	books->deadline = now + account->vgpu->params.period_ns;
	books->eligible_ns = now;
}

static void cbs_reset(struct core_account *account, uint64_t now)
{
	struct cbs_books *books = books_of(account);
	uint64_t period = account->vgpu->params.period_ns;
	uint64_t since = now - account->vgpu->gpu->epoch_ns;

	begin_server(account, now);
	books->cap_budget = (int64_t)full_cap(account);
	books->cap_next = now + period - since % period;
	books->max_ppm = account->vgpu->params.max_ppm;
	catch_up(account);
}

/* A hard server: nothing beyond its reservation, so its budget is its cap. */
static bool is_hard(const struct core_account *account)
{
	return account->vgpu->params.max_ppm == account->vgpu->params.min_ppm;
}

static void cap_fill(struct core_account *account, uint64_t until, uint64_t limit)
{
	struct cbs_books *books = books_of(account);
	uint64_t period = account->vgpu->params.period_ns;
	uint64_t full = full_cap(account);
	uint64_t ticks;

	if (until < books->cap_next)
		return;
	ticks = (until - books->cap_next) / period + 1;
	books->cap_next += ticks * period;
	books->cap_budget += (int64_t)(ticks > LARGE / full ? LARGE : ticks * full);
	if (books->cap_budget > (int64_t)limit)
		books->cap_budget = (int64_t)limit;
}

/*
 * The cap's budget comes back at every period; what was overdrawn is made up for first. What the
 * holder has used since its last account is not taken off yet, so a period that began meanwhile
 * filled up that much more.
 */
static void cap_refresh(struct core_account *account, uint64_t now)
{
	struct cbs_books *books = books_of(account);
	uint64_t period = account->vgpu->params.period_ns;
	uint64_t full = full_cap(account), begun;

	if (now < books->cap_next)
		return;
	begun = now - (now - books->cap_next) % period;
	if (account->holder && begun > account->holder->charged_ns) {
		cap_fill(account, account->holder->charged_ns, full);
		cap_fill(account, now, full + min_u64(begun - account->holder->charged_ns, LARGE));
	} else {
		cap_fill(account, now, full);
	}
}

/* May it not launch now because of its cap? A reservation is never capped: max is at least min. */
static bool is_capped(struct core_account *account, uint64_t now)
{
	struct cbs_books *books = books_of(account);
	const struct rtxg_vgpu_params *params = &account->vgpu->params;

	if (params->max_ppm >= RTXG_PPM || (params->min_ppm && books->eligible_ns <= now))
		return false;
	if (is_hard(account))
		return true;
	cap_refresh(account, now);
	return books->cap_budget <= 0;
}

/*
 * When it may launch again: when the cap's budget is positive again, or the reservation's has come.
 */
static uint64_t cap_release(const struct core_account *account)
{
	struct cbs_books *books = books_of(account);
	uint64_t at;

	if (is_hard(account))
		return books->eligible_ns;
	at = books->cap_next +
	     (uint64_t)-books->cap_budget / full_cap(account) * account->vgpu->params.period_ns;
	return account->vgpu->params.min_ppm ? min_u64(at, books->eligible_ns) : at;
}

/* What the cap's budget got back under the old parameters, it has. */
static void cbs_settle(struct core_account *account, uint64_t now)
{
	if (account->vgpu->params.max_ppm < RTXG_PPM)
		cap_refresh(account, now);
}

/*
 * New parameters bring no new budget, and forgive no debt: who sets them again and again has no
 * more than who does not. What is left of a budget stays, and the time until the next one becomes
 * what the new reservation takes for as much of the engine. Of the cap's budget as great a part is
 * left as was. A period that has begun ends when it would have ended.
 */
static void cbs_changed(struct core_account *account, uint64_t now)
{
	struct cbs_books *books = books_of(account);
	const struct rtxg_vgpu_params *params = &account->vgpu->params;

	if (params->max_ppm < books->max_ppm && books->cap_budget > 0)
		books->cap_budget = (int64_t)scale_time((uint64_t)books->cap_budget,
							params->max_ppm, books->max_ppm);
	if (params->max_ppm < RTXG_PPM)
		books->max_ppm = params->max_ppm;
	if (!params->min_ppm) {
		books->given_up = true;
		return;
	}
	/* Without a reservation it was owed nothing. */
	if (!books->min_ppm || (books->given_up && books->deadline <= now)) {
		begin_server(account, now);
	} else if (books->min_ppm != params->min_ppm) {
		books->deadline = move_time(books->deadline, now, books->min_ppm, params->min_ppm);
		books->eligible_ns =
			move_time(books->eligible_ns, now, books->min_ppm, params->min_ppm);
		books->min_ppm = params->min_ppm;
	}
	books->given_up = false;
}

/* New budgets until it is positive; each moves the deadline on by a period. */
static void replenish(struct core_account *account, uint64_t now)
{
	struct cbs_books *books = books_of(account);
	uint64_t period = account->vgpu->params.period_ns;
	uint64_t full = full_budget(account);
	uint64_t budgets, lag;

	if (books->budget > 0)
		return;
	budgets = (uint64_t)-books->budget / full + 1;
	books->budget += (int64_t)(budgets * full);
	books->deadline =
		add_time(books->deadline, budgets > LARGE / period ? LARGE : budgets * period);
	/*
	 * A single launch of another may keep it waiting for many of its periods: that is no
	 * overload.
	 */
	lag = LAG_PERIODS * period + 2 * core_engine_longest(account->engine, now);
	if (add_time(books->deadline, lag) < now)
		books->deadline = now - lag;
	books->eligible_ns = books->deadline > period ? books->deadline - period : 0;
}

/* The server's queue is no longer empty (CBS, rule for a job that arrives at an idle server). */
static void cbs_wake(struct core_account *account, uint64_t now)
{
	struct cbs_books *books = books_of(account);
	uint64_t left;

	catch_up(account);
	if (!account->vgpu->params.min_ppm || books->eligible_ns > now)
		return; /* in debt: the deadline stands */
	if (account->thinking && now < account->think_until)
		return; /* only a pause: it keeps its deadline, late as it may be */
	if (books->deadline > now) {
		left = books->deadline - now;
		/* budget / left < Q / T: the rest fits into the old deadline */
		if ((uint64_t)books->budget <
		    left / RTXG_PPM * account->vgpu->params.min_ppm +
			    left % RTXG_PPM * account->vgpu->params.min_ppm / RTXG_PPM)
			return;
	}
	books->budget = (int64_t)full_budget(account);
	books->deadline = now + account->vgpu->params.period_ns;
	books->eligible_ns = now;
}

/*
 * For a period a server that pauses lends what is reserved for it. Were that free, the others would
 * have it beyond their reservations, and then their whole reservations in the time that is left.
 */
static uint64_t cbs_lends(const struct core_account *account)
{
	return account->vgpu->params.min_ppm ? account->vgpu->params.period_ns : 0;
}

/* Does another lend the engine that could go before it now? */
static bool is_borrowing(const struct core_account *account, uint64_t now)
{
	const struct core_account *other;

	for (other = account->engine->thinking; other; other = other->think_next)
		if (other != account && now < other->lends_until && cbs_lends(other) &&
		    books_of(other)->eligible_ns <= now)
			return true;
	return false;
}

/*
 * How much of what is borrowed is paid for out of the reservation: what is left of the budget that
 * it has been given, so at most one. It is not shut out for longer, however long another lends.
 */
static uint64_t paid_ahead(const struct core_account *account, uint64_t borrowed)
{
	int64_t budget = books_of(account)->budget;

	return budget > 1 ? min_u64(borrowed, (uint64_t)budget - 1) : 0;
}

static void cbs_charge(struct core_account *account, const struct core_usage *usage, uint64_t now)
{
	struct cbs_books *books = books_of(account);
	const struct rtxg_vgpu_params *params = &account->vgpu->params;
	uint64_t contended = usage->contended, alone = usage->alone, spare = 0, paid;

	if (params->max_ppm < RTXG_PPM) {
		cap_refresh(account, now);
		books->cap_budget = max_i64(books->cap_budget - (int64_t)min_u64(usage->all, LARGE),
					    -(int64_t)LARGE);
		/*
		 * A reservation that the cap lets pass has to be paid for even when no other vGPU
		 * is there.
		 */
		contended = usage->all;
		alone = 0;
	}
	if (books->leftover) {
		/*
		 * Free until its own reservation comes due. A launch that runs on into another's
		 * reservation is free too: the other catches up by its deadline, and to charge it
		 * here would take from a reservation what a vGPU without one need not pay, until
		 * nothing is left of it.
		 */
		uint64_t from = now - contended;

		spare = contended;
		if (params->min_ppm)
			spare = books->eligible_ns > from
					? min_u64(contended, books->eligible_ns - from)
					: 0;
	}
	/* A permit out of a reservation that has been given up since is paid for all the same. */
	if (!params->min_ppm && (books->leftover || !books->min_ppm)) {
		books->vtime += spare * RTXG_WEIGHT_DEFAULT / params->weight;
		return;
	}
	/*
	 * It had all that it could want: whatever it lagged behind its deadline, it did not lag
	 * further meanwhile.
	 */
	if (alone && books->deadline < now + params->period_ns) {
		books->deadline =
			min_u64(add_time(books->deadline, alone), now + params->period_ns);
		books->eligible_ns = books->deadline > params->period_ns
					     ? books->deadline - params->period_ns
					     : 0;
	}
	books->budget -= (int64_t)min_u64(contended - spare, LARGE);
	if (books->budget < 0)
		account->stats.overruns++, account->holder->stats.overruns++;
	/* Time is paid for once: out of the reservation, or as a part of what is left over. */
	paid = books->borrowed ? paid_ahead(account, spare) : 0;
	books->budget -= (int64_t)paid;
	books->vtime += (spare - paid) * RTXG_WEIGHT_DEFAULT / params->weight;
	books->borrowed = is_borrowing(account, now);
	replenish(account, now);
	/* The reservation is used up: what it goes on using under the same permit is left over. */
	if (books->eligible_ns > now)
		books->leftover = true;
}

/* A pause that others were kept waiting for is paid for from where its next launch would be. */
static void cbs_paused(struct core_account *account, uint64_t ns, uint64_t now)
{
	struct cbs_books *books = books_of(account);
	const struct rtxg_vgpu_params *params = &account->vgpu->params;

	if (params->max_ppm < RTXG_PPM) {
		cap_refresh(account, now);
		books->cap_budget =
			max_i64(books->cap_budget - (int64_t)min_u64(ns, LARGE), -(int64_t)LARGE);
	}
	if (!params->min_ppm || books->eligible_ns > now) {
		books->vtime += ns * RTXG_WEIGHT_DEFAULT / params->weight;
		return;
	}
	books->budget -= (int64_t)min_u64(ns, LARGE);
	replenish(account, now);
}

static void place_leftover(struct core_account *account)
{
	struct cbs_books *books = books_of(account);

	band_vtime(account); /* its priority may be another now */
	heap_insert(&engine_of(account)->leftover, &account->ready,
		    RTXG_PRIORITY_MAX - account->vgpu->params.priority, books->vtime);
}

static void cbs_place(struct core_account *account, uint64_t now)
{
	struct cbs_books *books = books_of(account);
	struct core_engine *engine = account->engine;

	if (is_capped(account, now)) {
		account->stats.throttled++;
		heap_insert(&engine->wakes, &account->wake, cap_release(account),
			    account->vgpu->id);
		return;
	}
	if (!account->vgpu->params.min_ppm) {
		place_leftover(account);
	} else if (books->eligible_ns <= now) {
		heap_insert(&engine->ready, &account->ready, books->deadline, account->vgpu->id);
	} else {
		place_leftover(account);
		heap_insert(&engine->wakes, &account->wake, books->eligible_ns, account->vgpu->id);
	}
}

static bool leftover_before(const struct core_account *a, const struct core_account *b)
{
	if (a->vgpu->params.priority != b->vgpu->params.priority)
		return a->vgpu->params.priority > b->vgpu->params.priority;
	return books_of(a)->vtime < books_of(b)->vtime;
}

/* Would the account, which is about to come back, go before the best of those that wait? */
static bool cbs_before(struct core_account *account, struct core_account *best, uint64_t now)
{
	return !is_capped(account, now) &&
	       ((account->vgpu->params.min_ppm && books_of(account)->eligible_ns <= now) ||
		leftover_before(account, best));
}

static struct core_account *cbs_peek(const struct core_engine *engine)
{
	struct core_account *best = core_engine_first(engine);
	struct heap_node *node = heap_first(&core_books(engine, struct cbs_engine)->leftover);

	return best || !node ? best : heap_owner(node, struct core_account, ready);
}

static struct core_account *cbs_pick(struct core_engine *engine, uint64_t now, uint64_t *look_again)
{
	struct core_account *best = cbs_peek(engine);

	if (!best || core_engine_first(engine))
		return best;
	return core_engine_awaits(engine, best, cbs_before, now, look_again) ? NULL : best;
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
 * For so long after it was given, a permit is not called back for a waiter of the same vGPU and
 * rank, while its holder goes on without a pause: two programs that launch tiny kernels would
 * change places after each. A change takes about as long as two such launches, which is shared by
 * the launches of a turn. No shorter than the least turn of leftover time between vGPUs.
 */
#define SIBLING_TURN_NS 1000000u

static bool cbs_displaces(struct core_account *holder, uint64_t now, uint64_t *look_again)
{
	const struct cbs_books *books = books_of(holder);
	const struct core_engine *engine = holder->engine;
	const struct core_lane *lane = holder->holder;
	struct heap_node *reserved = heap_first(&engine->ready);
	struct heap_node *leftover = heap_first(&engine_of(holder)->leftover);
	uint64_t end;

	/* With a cap, even one that came meanwhile, every launch counts. */
	if (holder->vgpu->params.max_ppm < RTXG_PPM)
		return true;
	if (!engine->waiting)
		return false;
	if (core_sibling_first(holder)) {
		end = add_time(lane->granted_ns, SIBLING_TURN_NS);
		if (now >= end || core_sibling_urgent(holder))
			return true;
		*look_again = min_u64(*look_again, end);
		if (engine->waiting == holder->waiters.count)
			return false;
	}
	if (!(lane->flags & RTXG_GRANT_REPORT))
		return true;
	if (!books->leftover) {
		/*
		 * In its own reservation: until the budget is spent, or an earlier deadline comes.
		 */
		end = lane->charged_ns;
		if (lane->contended_ns != NEVER)
			/* pauses before it cost nothing */
			end = max_u64(end, lane->contended_ns);
		end = add_time(end, (uint64_t)books->budget);
		if (now >= end || (reserved && reserved->key < books->deadline))
			return true;
		*look_again = min_u64(*look_again, end);
		return false;
	}
	if (reserved)
		return true;
	if (!leftover)
		return false;
	if (leftover_before(heap_owner(leftover, struct core_account, ready), holder) &&
	    heap_owner(leftover, struct core_account, ready)->vgpu->params.priority >
		    holder->vgpu->params.priority)
		return true;
	end = add_time(lane->granted_ns, leftover_turn(holder));
	if (now >= end)
		return true;
	*look_again = min_u64(*look_again, end);
	return false;
}

static uint32_t cbs_permit(struct core_account *account, uint64_t now, bool *contended)
{
	struct core_engine *engine = account->engine;
	struct cbs_books *books = books_of(account);
	const struct rtxg_vgpu_params *params = &account->vgpu->params;
	bool others = core_account_others_want(engine, account, now);
	uint64_t *vtime = band_vtime(account);

	books->leftover = !params->min_ppm || books->eligible_ns > now;
	books->borrowed = is_borrowing(account, now);
	if (books->leftover)
		*vtime = max_u64(*vtime, books->vtime);
	if (account->waiters.count > 1 || params->max_ppm < RTXG_PPM) {
		*contended = others;
		return RTXG_GRANT_ONESHOT;
	}
	/* Under a lease the pauses are free as long as the others only think. */
	*contended = engine->waiting > account->waiters.count;
	return others ? RTXG_GRANT_REPORT : 0;
}

static bool cbs_conserving(const struct rtxg_vgpu_params *params)
{
	return !params->max_ppm || params->max_ppm > params->min_ppm;
}

static void cbs_view(const struct core_account *account, struct rtxg_account_view *view)
{
	view->credit_ns = books_of(account)->budget;
	view->deadline_ns = books_of(account)->deadline;
}

const struct core_policy cbs_policy = {
	.summary = "reservations by constant-bandwidth servers under EDF",
	.reads = RTXG_READS_THINK,
	.reset = cbs_reset,
	.settle = cbs_settle,
	.changed = cbs_changed,
	.wake = cbs_wake,
	.place = cbs_place,
	.pick = cbs_pick,
	.peek = cbs_peek,
	.permit = cbs_permit,
	.displaces = cbs_displaces,
	.charge = cbs_charge,
	.paused = cbs_paused,
	.lends = cbs_lends,
	.conserving = cbs_conserving,
	.view = cbs_view,
};
