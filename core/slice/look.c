// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * look.c - how often the queues of a context are to be looked into: as seldom as the decisions that
 * depend on it allow, and not at all while there are none.
 *
 * May not: change the core's state.
 */
#include "internal.h"

#define YOUNG_STAYS   4
#define SETTLED_TICKS 4
#define CALM_TICKS    10
#define STEADY	      (10000 * MS) /* so long without a gap: its queues are looked into less */

/* Has another tenant than this one something on the engine, or waiting for it? */
static bool others_active(const struct rtxg_slice *s, uint32_t tenant)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		if (i != tenant && s->tenants[i].used && s->tenants[i].present)
			return true;
	return false;
}

/*
 * In turns one that has just come is stopped as soon as it begins to work. What is done while it is
 * being made cannot be preempted: beside the one whose turn it is a critical kernel waits for two
 * pieces of it. Its queues show the beginning sooner than the log, which the driver does not read
 * while it makes a context.
 */
static bool begins(const struct rtxg_slice *s, const struct slice_context *context)
{
	return s->turns && s->turn != NONE && s->params.can & RTXG_SLICE_CAN_DEMAND &&
	       slice_stoppable(context) && !context->active && context->stays <= YOUNG_STAYS &&
	       slice_excess(s->now, context->added) <= SLICE_YOUNG;
}

/* Has another one work, and is stopped? */
static bool another_waits(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++)
		if (i != id && s->contexts[i].used && s->contexts[i].is_stopped &&
		    s->contexts[i].wants)
			return true;
	return false;
}

/* May the log tell of it at any time what is to be answered soon? */
static bool is_young(const struct rtxg_slice *s, const struct slice_context *context)
{
	if (slice_retried(s, context))
		return true;
	if (begins(s, context) && context->demand != SLICE_UNSEEN)
		return false;
	return slice_excess(s->now, context->added) <= SLICE_YOUNG &&
	       (context->stays <= YOUNG_STAYS ||
		(!context->active && !slice_critical(&s->tenants[context->tenant])));
}

/* May it begin to work, or stop working, and only the log show it? */
static bool may_change(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_context *context = &s->contexts[id];

	if (slice_critical(&s->tenants[context->tenant]) || !slice_stoppable(context))
		return false;
	return !context->active || s->tenants[context->tenant].exempt ||
	       (id == s->turn && context->demand == SLICE_UNSEEN);
}

uint64_t slice_calm_ns(const struct rtxg_slice *s, bool caps)
{
	uint64_t ticks = caps ? SETTLED_TICKS : CALM_TICKS;
	uint32_t i;

	for (i = 0; i < s->context_high; i++) {
		if (!s->contexts[i].used)
			continue;
		if (is_young(s, &s->contexts[i]))
			return s->params.tick_ns;
		if (may_change(s, i))
			ticks = SETTLED_TICKS;
	}
	/* A context that is not seen for idle_ns is idle: it has to have a chance to be seen. */
	if (ticks * s->params.tick_ns > s->params.idle_ns / 4 * 3)
		ticks = SETTLED_TICKS;
	return ticks * s->params.tick_ns;
}

static uint64_t at_least(const struct rtxg_slice *s, uint64_t ns)
{
	return ns < s->params.look_ns ? s->params.look_ns : ns;
}

uint64_t rtxg_slice_look_ns(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_context *context;
	const struct slice_tenant *tenant;
	uint64_t quiet;

	if (id >= s->context_count || !s->contexts[id].used ||
	    !(s->params.can & RTXG_SLICE_CAN_DEMAND))
		return NEVER;
	context = &s->contexts[id];
	tenant = &s->tenants[context->tenant];
	if (slice_is_load(s, context) || slice_critical(tenant) ||
	    !others_active(s, context->tenant))
		return NEVER;
	/* Its work may come at any time, and the others are to be stopped then. */
	if (tenant->exempt && tenant->mechanism == RTXG_SLICE_BY_ARRIVAL) {
		/* All others are stopped: the end of it is not to be missed for long. */
		quiet = context->demand == SLICE_EMPTY ? s->params.quiet_ns / 8
						       : s->params.quiet_ns / 4;
		quiet = at_least(s, quiet);
		return tenant->urgent && quiet < tenant->look ? quiet : tenant->look;
	}
	/* Short slices keep its bound; when it has work for longer, the others are stopped, too. */
	if (tenant->exempt && tenant->mechanism == RTXG_SLICE_BY_TURNS)
		return at_least(s, SLICE_LOOK_GAPS);
	if (!(s->params.can & RTXG_SLICE_CAN_SUSPEND))
		return NEVER;
	if (begins(s, context))
		return at_least(s, s->params.tick_ns / 4);
	if (!context->active)
		return NEVER;
	/* It waits for its turn, with work. */
	if (context->is_stopped && context->had_work)
		return NEVER;
	/* Its work may come at any time, and is to have its turn in time. */
	if (tenant->in_turns && !context->wants)
		return at_least(s, tenant->params.latency_ns / 8);
	/* It has its turn for a piece of work, and the others wait until that is over. */
	if (id == s->turn && slice_is_made(s, context) && another_waits(s, id))
		return at_least(s, s->params.tick_ns / 4);
	/* The log tells when it has work. */
	if (tenant->runs_beside)
		return at_least(s, s->params.tick_ns);
	if (context->gap_at && slice_excess(s->now, context->gap_at) < SLICE_GAPS_FOR)
		return at_least(s, SLICE_LOOK_GAPS);
	if (!s->turns)
		return at_least(s, s->params.tick_ns);
	/* It is not on the engine: its queues may be empty by now. */
	if (!context->is_stopped && !context->since && context->demand == SLICE_FILLED)
		return at_least(s, s->params.tick_ns);
	/* Turns of contexts are long. */
	if (context->demand == SLICE_FILLED && slice_excess(s->now, context->added) > SLICE_YOUNG &&
	    (!context->gap_at || slice_excess(s->now, context->gap_at) > STEADY))
		return at_least(s, CALM_TICKS * s->params.tick_ns);
	return at_least(s, SETTLED_TICKS * s->params.tick_ns);
}
