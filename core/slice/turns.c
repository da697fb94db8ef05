// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * turns.c - TURNS: a latency-critical tenant is active, so one best-effort context at a time is
 * enabled, with a short slice, and even that one is stopped around a periodic release.
 * A context that has nothing to do passes its turn on.
 *
 * May not: stop a latency-critical context.
 */
#include "internal.h"

#define JUST_RAN 2 /* ticks */

static bool candidate(const struct rtxg_slice *s, uint32_t i)
{
	const struct slice_context *context = &s->contexts[i];

	return context->used && slice_stoppable(context) && context->active && context->wants &&
	       !slice_critical(&s->tenants[context->tenant]) &&
	       !s->tenants[context->tenant].capped && !s->tenants[context->tenant].exempt;
}

/*
 * The context whose turn it ought to be: of the tenant that is furthest behind, the one that has
 * had least.
 */
static uint32_t pick(const struct rtxg_slice *s)
{
	uint32_t best = NONE, i;

	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i], *least;

		if (!candidate(s, i))
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

/*
 * Turns are as long as shares are large, but no longer than turn_ns: a large share is several turns
 * of a round, so that a second's shares are closer.
 */
static uint64_t turn_length(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[s->contexts[id].tenant];
	uint64_t n = 0, mine = 0, length;
	uint32_t i;

	for (i = 0; i < s->context_high; i++)
		if (candidate(s, i)) {
			n++;
			mine += s->contexts[i].tenant == s->contexts[id].tenant ? 1 : 0;
		}
	if (!mine)
		return s->params.turn_ns;
	length = slice_scaled(s->params.turn_ns * n, tenant->share_ppm) / mine;
	if (length < s->params.turn_ns / 4)
		return s->params.turn_ns / 4;
	return length > s->params.turn_ns ? s->params.turn_ns : length;
}

static void begin_turn(struct rtxg_slice *s, uint32_t id)
{
	s->turn = id;
	s->turn_start = s->now;
	if (id != NONE && s->contexts[id].is_stopped)
		s->contexts[id].fresh = true;
}

/*
 * The context whose turn it is has nothing to do, as far as can be told, or may run no longer. If
 * another one has, it takes over. The first stays enabled for a moment, for its queues may be empty
 * because it is in the middle of a kernel: then it comes back onto the engine, and the log shows
 * it.
 */
static void give_up_turn(struct rtxg_slice *s)
{
	struct slice_context *context = &s->contexts[s->turn];
	uint32_t next = pick(s);

	if (context->active && slice_stoppable(context) &&
	    !slice_critical(&s->tenants[context->tenant]) && !s->tenants[context->tenant].capped) {
		if (next == NONE)
			return;
		if (!context->is_stopped) {
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
static void wake_for_turn(struct rtxg_slice *s, bool periodic)
{
	const struct slice_context *context;
	uint64_t end;
	uint32_t i;

	if (s->turn == NONE)
		return;
	context = &s->contexts[s->turn];
	if (context->fresh && !context->is_stopped && context->active)
		slice_wake_at(s, context->seen + s->params.tick_ns > s->now
					 ? context->seen + s->params.tick_ns
					 : s->now + s->params.tick_ns);
	if (periodic)
		return;
	for (i = 0; i < s->context_high; i++)
		if (i != s->turn && candidate(s, i)) {
			end = s->turn_start + turn_length(s, s->turn);
			slice_wake_at(s,
				      end > s->now ? end : s->now + JUST_RAN * s->params.tick_ns);
			return;
		}
}

/*
 * Is its tenant so far ahead of the next one's that its turn is to end early? That one's own turns
 * end early where it has gaps, and it would never make up for it.
 */
static bool owes_much(const struct rtxg_slice *s, uint32_t next, uint64_t stayed)
{
	const struct slice_tenant *now = &s->tenants[s->contexts[s->turn].tenant];

	return next != NONE && next != s->turn && stayed >= s->params.turn_ns / 4 &&
	       now->lag > s->tenants[s->contexts[next].tenant].lag + (int64_t)s->params.turn_ns;
}

void slice_plan_turns(struct rtxg_slice *s)
{
	bool critical = slice_critical_active(s);
	bool hold, arrival = slice_arrival(s), idle = false, periodic, just_ran = false;
	uint64_t stayed, length;
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

		if (context->fresh && !context->since && !context->is_stopped &&
		    slice_excess(s->read, context->seen) >= s->params.tick_ns)
			idle = true;
		/*
		 * A critical context stays on the engine beyond its slice only if no other context
		 * wants the engine.
		 */
		if (s->holder != NONE &&
		    slice_critical(&s->tenants[s->contexts[s->holder].tenant]) &&
		    slice_excess(s->read, s->contexts[s->holder].since) >
			    s->params.slice_max_ns + 2 * MS &&
		    !context->is_stopped)
			idle = true;
		if (idle)
			slice_set_active(s, context, false);
	}
	hold = slice_hold(s, &periodic);
	if (s->turn != NONE && !candidate(s, s->turn))
		give_up_turn(s);
	for (i = 0; i < s->tenant_high; i++)
		if (s->tenants[i].used && slice_critical(&s->tenants[i]) && s->tenants[i].seen &&
		    slice_excess(s->now, s->tenants[i].seen) < JUST_RAN * s->params.tick_ns)
			just_ran = true;
	stayed = s->now - s->turn_start;
	length = s->turn == NONE ? 0 : turn_length(s, s->turn);
	/*
	 * A change-over takes the driver about 1 ms, and a critical kernel that arrives during it
	 * waits longer. So it is made when an arrival is least likely: with a periodic tenant while
	 * all are stopped anyway, with a sporadic tenant just after it has run.
	 */
	next = pick(s);
	if (s->turn == NONE) {
		begin_turn(s, next);
	} else if ((stayed >= length || owes_much(s, next, stayed)) &&
		   (periodic ? hold || stayed >= 3 * length
			     : just_ran || stayed >= length * 3 / 2)) {
		if (next != s->turn)
			begin_turn(s, next);
		else
			s->turn_start = s->now;
	}
	wake_for_turn(s, periodic);
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
		/* An idle context stays enabled, to be seen when it wakes up. */
		context->want_stop =
			context->active && ((i != s->turn && i != s->yield) || hold || arrival ||
					    s->tenants[context->tenant].capped);
		if (s->params.can & RTXG_SLICE_CAN_SLICE)
			context->want_slice = s->params.slice_critical_ns;
	}
}
