// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * turns.c - TURNS: a latency-critical tenant is active, so one best-effort context at a time is
 * enabled, with a short slice, and even that one is stopped around a periodic release.
 * A context that has nothing to do passes its turn on.
 *
 * May not: stop a latency-critical context.
 */
#include "internal.h"

#define JUST_RAN  2	   /* ticks */
#define MEANWHILE (8 * MS) /* turns of others while one is being made */
/*
 * What such a turn takes from the others beside its work, about: a stop (0.5 ms on an H200), to
 * let go (0.3), the switches (0.35), and up to a look until its end is seen (0.75).
 */
#define HASTE_COSTS (2 * MS)
#define EARLY	    (5 * MS)  /* a turn by the clock may begin so early for a good moment, */
#define LATE	    (10 * MS) /* or so late */

static bool candidate(const struct rtxg_slice *s, uint32_t i)
{
	const struct slice_context *context = &s->contexts[i];

	return context->used && slice_stoppable(context) && context->active && context->wants &&
	       !slice_critical(&s->tenants[context->tenant]) &&
	       !s->tenants[context->tenant].capped && !s->tenants[context->tenant].exempt;
}

static bool competes(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++)
		if (s->contexts[i].tenant == id && candidate(s, i))
			return true;
	return false;
}

/*
 * Of the tenant `only`, or without it of those that have their turns by the clock or of the others,
 * the one that is furthest behind; of that one the context that has had least.
 */
static uint32_t pick_of(const struct rtxg_slice *s, uint32_t only, bool clock)
{
	uint32_t best = NONE, i;

	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i], *least;

		if (!candidate(s, i) ||
		    (only != NONE ? context->tenant != only
				  : slice_by_the_clock(s, context->tenant) != clock))
			continue;
		if (best == NONE) {
			best = i;
			continue;
		}
		least = &s->contexts[best];
		if (s->tenants[context->tenant].vtime < s->tenants[least->tenant].vtime ||
		    (context->tenant == least->tenant && context->work < least->work))
			best = i;
	}
	return best;
}

static bool waits_with_bound(const struct slice_tenant *tenant)
{
	return tenant->used && tenant->in_turns && tenant->wants;
}

static uint32_t wait_with_bounds(const struct rtxg_slice *s)
{
	uint32_t n = 0, i;

	for (i = 0; i < s->tenant_high; i++)
		n += waits_with_bound(&s->tenants[i]);
	return n;
}

/*
 * From when on one that takes turns and has a bound is next, for it has waited for half of it, or
 * for three eighths if others may come before it.
 */
static uint64_t next_from(const struct rtxg_slice *s, const struct slice_tenant *tenant)
{
	uint64_t eighth = tenant->params.latency_ns / 8;

	return tenant->seen + (wait_with_bounds(s) > 1 ? 3 : 4) * eighth;
}

static bool is_next_for_its_bound(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t of = s->contexts[id].tenant;

	return candidate(s, id) && s->tenants[of].in_turns &&
	       (s->turn == NONE || s->contexts[s->turn].tenant != of) &&
	       s->now >= next_from(s, &s->tenants[of]);
}

/*
 * Of those that have waited for much of their bound the one whose bound ends first; of several of
 * its contexts the one that has had least.
 */
static uint32_t pick_bound(const struct rtxg_slice *s)
{
	uint64_t due, first = NEVER;
	uint32_t best = NONE, i;

	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];
		const struct slice_tenant *tenant = &s->tenants[context->tenant];

		if (!is_next_for_its_bound(s, i))
			continue;
		due = tenant->seen + tenant->params.latency_ns;
		if (due > first || (due == first && context->work >= s->contexts[best].work))
			continue;
		first = due;
		best = i;
	}
	return best;
}

/*
 * What is done while a context is made is little, in some pieces, and its program waits for each:
 * with a turn of the others before each of them it would start late. Not so if its tenant is ahead
 * of its share, for else one that starts program after program would get more.
 */
static bool is_being_made(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_context *context = &s->contexts[id];

	return candidate(s, id) && slice_is_made(s, context) &&
	       s->tenants[context->tenant].lag <= 0 && !slice_by_the_clock(s, context->tenant);
}

static uint32_t pick_made(const struct rtxg_slice *s)
{
	uint32_t best = NONE, i;

	for (i = 0; i < s->context_high; i++)
		if (is_being_made(s, i) &&
		    (best == NONE || s->contexts[i].work < s->contexts[best].work))
			best = i;
	return best;
}

/*
 * The context whose turn it ought to be: who waits with a bound, and of those with turns by the
 * clock the one that the clock names, else one that is being made or any of the others, and one
 * whose place is over if there is no other.
 */
static uint32_t pick(const struct rtxg_slice *s, uint64_t at)
{
	uint64_t until;
	uint32_t clocked = slice_clock_turn(s, at, competes, &until), best;

	best = pick_bound(s);
	if (best != NONE)
		return best;
	best = clocked == NONE ? pick_made(s) : NONE;
	if (best == NONE)
		best = pick_of(s, clocked, false);
	return best != NONE ? best : pick_of(s, NONE, true);
}

/* Is it for another one's turn by the clock that the present one ends? */
static bool turn_of_another(const struct rtxg_slice *s, uint32_t next)
{
	uint32_t now = s->contexts[s->turn].tenant, then;

	if (next == NONE || next == s->turn)
		return false;
	then = s->contexts[next].tenant;
	return now != then && (slice_by_the_clock(s, now) || slice_by_the_clock(s, then));
}

static uint64_t shortest(const struct rtxg_slice *s)
{
	return s->params.turn_ns / 4;
}

/*
 * The longest turns while one waits that is next for its bound: the shortest that any of the others
 * with a bound needs, for these may be next soon. Those whose bounds end earlier come before it,
 * and a turn may last for half as long again until a good moment comes.
 */
static uint64_t most_turn(const struct rtxg_slice *s, uint32_t tenant)
{
	uint64_t most = NEVER, n = wait_with_bounds(s);
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		uint64_t turn = s->tenants[i].params.latency_ns / (3 + n);

		if (i != tenant && waits_with_bound(&s->tenants[i]) && turn < most)
			most = turn;
	}
	return most;
}

/*
 * Turns are as long as shares are large, but no longer than turn_ns: a large share is several turns
 * of a round, so that a second's shares are closer.
 */
static uint64_t turn_length(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[s->contexts[id].tenant];
	uint64_t least = shortest(s), n = 0, mine = 0, length;
	uint32_t i;

	for (i = 0; i < s->context_high; i++)
		if (candidate(s, i)) {
			n++;
			mine += s->contexts[i].tenant == s->contexts[id].tenant ? 1 : 0;
		}
	if (!mine)
		return s->params.turn_ns;
	length = slice_scaled(s->params.turn_ns * n, tenant->share_ppm) / mine;
	length = length > least ? length : least;
	/*
	 * It has had its share, and has its turn for its bound. Several that are far ahead would
	 * take more together than one that is behind is owed at most.
	 */
	if (tenant->in_turns && tenant->lag > 0)
		length = tenant->lag > (int64_t)s->params.burst_ns / 2 ? least / 8 : least / 4;
	return length < s->params.turn_ns ? length : s->params.turn_ns;
}

/*
 * Is its tenant so far ahead of the next one's that its turn is to end early? That one's own turns
 * end early where it has gaps, and it would never make up for it.
 */
static bool owes_much(const struct rtxg_slice *s, uint32_t next, uint64_t stayed)
{
	const struct slice_tenant *now = &s->tenants[s->contexts[s->turn].tenant];

	return next != NONE && next != s->turn && stayed >= shortest(s) &&
	       now->lag > s->tenants[s->contexts[next].tenant].lag + (int64_t)s->params.turn_ns;
}

/* How long the present turn may be for this one that waits, as far as it is in a hurry. */
static uint64_t most_beside(const struct rtxg_slice *s, uint32_t id)
{
	if (id == NONE || id == s->turn)
		return NEVER;
	if (is_next_for_its_bound(s, id))
		return most_turn(s, s->contexts[s->turn].tenant);
	return is_being_made(s, id) ? MEANWHILE : NEVER;
}

/*
 * The present turn ends at a good moment from *length on, and after *most at any. It is no longer
 * than `shorter`, for one that waits.
 */
static void may_stay(const struct rtxg_slice *s, bool periodic, uint64_t shorter, uint64_t *length,
		     uint64_t *most)
{
	*length = turn_length(s, s->turn);
	*most = periodic ? 3 * *length : *length * 3 / 2;
	if (shorter == NEVER)
		return;
	*length = *length < shorter ? *length : shorter;
	*most = *length * 3 / 2;
}

/*
 * A change-over takes the driver about 1 ms, and a critical kernel that arrives during it waits
 * longer. So it is made when an arrival is least likely: with a periodic tenant while all are
 * stopped anyway, with a sporadic tenant just after it has run. It is not put off for ever, and for
 * a turn by the clock not for long.
 */
static bool is_over(struct rtxg_slice *s, uint32_t next, bool periodic, bool good)
{
	uint64_t stayed = s->now - s->turn_start, length, most;

	may_stay(s, periodic, most_beside(s, next), &length, &most);
	if (turn_of_another(s, next)) {
		s->turn_due = s->turn_due ? s->turn_due : s->now;
		return good || !slice_critical_active(s) || s->now >= s->turn_due + EARLY + LATE;
	}
	s->turn_due = 0;
	if (stayed < length && !owes_much(s, next, stayed))
		return false;
	return good || stayed >= most;
}

/*
 * Since when the engine is free, as far as the log tells; NEVER = it is not. A critical context
 * that is there beyond its slice has nothing to do, and is not displaced, as no other one uses the
 * engine.
 */
static uint64_t free_from(const struct rtxg_slice *s)
{
	uint32_t last = s->holder != NONE ? s->holder : s->ended;
	const struct slice_context *context;
	uint64_t slice;

	if (s->holder == NONE && !s->free_at)
		return NEVER;
	if (last == NONE || !slice_critical(&s->tenants[s->contexts[last].tenant]))
		return s->holder == NONE ? s->free_at : NEVER;
	context = &s->contexts[last];
	slice = slice_or(context->slice, s->params.slice_max_ns);
	if (s->holder != NONE)
		return context->since + slice;
	return context->left == s->free_at ? s->free_at - slice_excess(context->ran, slice)
					   : s->free_at;
}

/*
 * Filled queues that leave the engine free for longer than a change-over takes wait for something
 * else, as a copy, the CPU, or another program. Turns are not passed on for that, as the next one
 * may be long: so it is a part of the share of the one whose turn it is.
 */
void slice_turn_waited(struct rtxg_slice *s, uint64_t upto)
{
	struct slice_context *context;
	uint64_t from;

	if (!s->turns || s->turn == NONE)
		return;
	context = &s->contexts[s->turn];
	from = free_from(s);
	from = from > s->turn_start ? from : s->turn_start;
	from = from > context->seen ? from : context->seen;
	/* For a release it is stopped. */
	if (context->is_stopped && context->stopped_at < upto)
		upto = context->stopped_at;
	if (context->demand == SLICE_FILLED && slice_excess(upto, from) > slice_change_ns(s))
		slice_charge_change(s, context, upto - from);
}

static void begin_turn(struct rtxg_slice *s, uint32_t id)
{
	if (id != s->turn)
		slice_turn_waited(s, s->read);
	s->turn_due = 0;
	s->turn_start = s->now;
	if (id == s->turn)
		return;
	s->turn = id;
	if (id != NONE && s->contexts[id].is_stopped)
		s->contexts[id].fresh = true;
}

/*
 * The context whose turn it is has nothing to do, as far as can be told, or may run no longer. If
 * another one has, it takes over. The first stays enabled for a moment, for its queues may be empty
 * because it is in the middle of a kernel: then it comes back onto the engine, and the log shows
 * it. Not so while it is being made, for then its next piece would come beside the other one, and
 * both would lose the engine to switches.
 */
static void give_up_turn(struct rtxg_slice *s, uint64_t ahead)
{
	struct slice_context *context = &s->contexts[s->turn];
	uint32_t next = pick(s, s->now + ahead);

	if (context->active && slice_stoppable(context) &&
	    !slice_critical(&s->tenants[context->tenant]) && !s->tenants[context->tenant].capped) {
		if (next == NONE)
			return;
		if (!context->is_stopped &&
		    !(slice_is_made(s, context) && slice_seen_empty(s, context))) {
			s->yield = s->turn;
			s->yield_until = s->now + s->params.tick_ns;
		}
	}
	begin_turn(s, next);
}

/*
 * The log is wanted when the context whose turn it is has had time to show that it has work, and
 * from the end of the turn on: where releases are not known, the change-over waits for one.
 */
static void wake_for_turn(struct rtxg_slice *s, bool periodic, uint64_t ahead)
{
	const struct slice_context *context;
	uint64_t length, most, last, end, until, shorter = NEVER, beside;
	bool any = false, owes = false;
	uint32_t i;

	if (s->turn == NONE)
		return;
	context = &s->contexts[s->turn];
	if (context->fresh && !context->is_stopped && context->active)
		slice_wake_at(s, context->seen + s->params.tick_ns > s->now
					 ? context->seen + s->params.tick_ns
					 : s->now + s->params.tick_ns);
	slice_clock_turn(s, s->now + ahead, competes, &until);
	if (until != NEVER)
		slice_wake_at(s, until - ahead);
	if (s->turn_due)
		slice_wake_at(s, s->now + s->params.tick_ns);
	for (i = 0; i < s->context_high; i++) {
		const struct slice_tenant *tenant = &s->tenants[s->contexts[i].tenant];

		if (i == s->turn || !candidate(s, i))
			continue;
		any = true;
		beside = most_beside(s, i);
		shorter = beside < shorter ? beside : shorter;
		if (tenant->in_turns && next_from(s, tenant) > s->now)
			slice_wake_at(s, next_from(s, tenant));
		owes = owes || owes_much(s, i, shortest(s));
	}
	if (!any)
		return;
	may_stay(s, periodic, shorter, &length, &most);
	end = s->turn_start + (periodic && shorter == NEVER ? most : length);
	if (!periodic && owes && end > s->turn_start + shortest(s))
		end = s->turn_start + shortest(s);
	if (end <= s->now) {
		last = s->turn_start + most;
		end = s->now + JUST_RAN * s->params.tick_ns;
		end = last > s->now && last < end ? last : end;
	}
	slice_wake_at(s, end);
}

/*
 * Critical work that comes waits for what is left of the slice of the one that is there: half of it
 * in the mean. Shorter slices than the driver's cost nothing while no other context can come onto
 * the engine at their end. Tenants with a latency can: each of their slices costs a switch.
 */
static uint64_t turn_slice(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		if (s->tenants[i].used && s->tenants[i].contexts &&
		    s->tenants[i].params.latency_ns && !slice_critical(&s->tenants[i]))
			return s->params.slice_critical_ns;
	return s->params.slice_sole_ns < s->params.slice_critical_ns ? s->params.slice_sole_ns
								     : s->params.slice_critical_ns;
}

void slice_plan_turns(struct rtxg_slice *s)
{
	bool critical = slice_critical_active(s);
	bool hold, arrival = slice_arrival(s), idle = false, periodic, just_ran = false;
	uint64_t ahead = critical ? EARLY : 0, slice = turn_slice(s);
	uint32_t i, next;

	if (s->yield != NONE &&
	    (s->now >= s->yield_until || s->yield == s->turn || !s->contexts[s->yield].active)) {
		if (s->now >= s->yield_until)
			slice_demand_yielded(s, &s->contexts[s->yield]);
		s->yield = NONE;
	}
	/* Has the context whose turn it is anything to do? */
	if (s->turn != NONE && candidate(s, s->turn)) {
		struct slice_context *context = &s->contexts[s->turn];

		/* Work that came since the log was read may have brought it there. */
		if (context->fresh && !context->since && !context->is_stopped &&
		    slice_excess(s->read, context->seen) >= s->params.tick_ns &&
		    context->sign <= s->read)
			idle = true;
		/*
		 * A critical context stays on the engine beyond its slice only if no other context
		 * wants the engine, since this one may.
		 */
		if (s->holder != NONE &&
		    slice_critical(&s->tenants[s->contexts[s->holder].tenant]) &&
		    slice_excess(s->read, s->contexts[s->holder].since > context->seen
						  ? s->contexts[s->holder].since
						  : context->seen) >
			    s->params.slice_max_ns + 2 * MS &&
		    !context->is_stopped)
			idle = true;
		if (idle)
			slice_set_active(s, context, false);
	}
	hold = slice_hold(s, &periodic);
	if (s->turn != NONE && !candidate(s, s->turn))
		give_up_turn(s, ahead);
	for (i = 0; i < s->tenant_high; i++)
		if (s->tenants[i].used && slice_critical(&s->tenants[i]) && s->tenants[i].seen &&
		    slice_excess(s->now, s->tenants[i].seen) < JUST_RAN * s->params.tick_ns)
			just_ran = true;
	next = pick(s, s->now + ahead);
	if (s->turn == NONE)
		begin_turn(s, next);
	else if (is_over(s, next, periodic, periodic ? hold : just_ran)) {
		if (next != NONE && next != s->turn && is_being_made(s, next))
			slice_charge_change(s, &s->contexts[next], HASTE_COSTS);
		begin_turn(s, next);
	}
	wake_for_turn(s, periodic, ahead);
	if (s->yield != NONE)
		slice_wake_at(s, s->yield_until);
	for (i = 0; i < s->context_high; i++) {
		struct slice_context *context = &s->contexts[i];

		if (!context->used)
			continue;
		if (slice_critical(&s->tenants[context->tenant])) {
			context->want_stop = false;
			if (s->params.can & RTXG_SLICE_CAN_SLICE)
				context->want_slice = s->params.slice_max_ns;
			continue;
		}
		/* One with a latency takes no turns and stays enabled, but for a release. */
		if (s->tenants[context->tenant].exempt) {
			context->want_stop = context->active && hold;
			if (s->params.can & RTXG_SLICE_CAN_SLICE)
				context->want_slice =
					critical ? s->params.slice_critical_ns
						 : s->tenants[context->tenant].most_slice;
			continue;
		}
		/*
		 * An idle context stays enabled, to be seen when it wakes up. One that was stopped
		 * as such becomes idle, too: if it has work after all, the log will show it.
		 */
		if (context->is_stopped && !context->wants &&
		    slice_excess(s->now, context->stopped_at) > s->params.idle_ns)
			slice_set_active(s, context, false);
		/* Who has a bound itself is not stopped for work of another one that has. */
		context->want_stop =
			context->active && ((i != s->turn && i != s->yield) || hold ||
					    (arrival && !s->tenants[context->tenant].in_turns) ||
					    s->tenants[context->tenant].capped);
		if (s->params.can & RTXG_SLICE_CAN_SLICE)
			context->want_slice = slice;
	}
}
