// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * demand.c - which contexts have work, from the looks into their queues and from the log.
 *
 * Filled queues are certain. Empty ones are not: the engine's host takes about two launches ahead
 * of the engine, so a program that waits for each of its kernels shows empty queues all the time
 * that a kernel runs. A context is therefore taken to have work for a while after the last sign of
 * it, its grace. Signs are filled queues, and that it came onto the engine, which no context does
 * without work. A context that comes onto the engine after its grace, and whose queues were empty
 * all along, was in the middle of a kernel: its grace doubles. One that had nothing to do for
 * longer than its grace, and shows it by new work, has it halved.
 *
 * May not: stop a context or set a slice.
 */
#include "internal.h"

#define GRACE_MIN   (1 * MS)
#define GRACE_FIRST (2 * MS)
#define GRACE_MAX   (64 * MS)
/* a look follows an arrival that soon: work that came onto the engine is seen in the queues, too */
#define LOOKED_WITHIN (4 * MS)
/* after a real gap the next ones are looked for more often, for so long */
#define GAPS_FOR (1000 * MS)
/* how often a context is looked at that has gaps */
#define LOOK_GAPS (500 * US)

static void sign(struct slice_context *context, uint64_t at)
{
	if (at > context->sign)
		context->sign = at;
	context->blocked = false;
}

void slice_demand(struct rtxg_slice *s, uint32_t id, uint64_t at, bool filled, bool *replan)
{
	struct slice_context *context = &s->contexts[id];
	bool wanted = context->active && context->wants;

	/* The daemon may look at what the log has not told it of yet, but not ahead of time. */
	at = at > s->now ? s->now : at;
	if (!filled) {
		*replan = context->demand == SLICE_FILLED;
		if (context->demand != SLICE_EMPTY)
			sign(context, at);
		context->demand = SLICE_EMPTY;
		return;
	}
	if (context->demand == SLICE_EMPTY) {
		if (at > context->sign + context->grace || context->doubted) {
			/* It had nothing to do indeed: what it sat on the engine is no use of it. */
			context->gap_at = at;
			context->grace =
				context->grace / 2 > GRACE_MIN ? context->grace / 2 : GRACE_MIN;
		}
		context->blocked = false;
		context->doubt = 0;
	}
	context->doubted = 0;
	context->demand = SLICE_FILLED;
	if (!context->blocked)
		sign(context, at);
	if (!context->active)
		slice_set_active(s, context, true);
	*replan = !wanted;
}

void slice_demand_started(struct rtxg_slice *s, uint32_t id, uint64_t at, bool *replan)
{
	struct slice_context *context = &s->contexts[id];

	if (context->demand == SLICE_EMPTY && at > context->sign + context->grace &&
	    !context->doubted)
		context->doubted = at ? at : 1;
	sign(context, at);
	if (!context->wants)
		*replan = true;
}

void slice_demand_added(struct rtxg_slice *s, struct slice_context *context)
{
	context->seen = s->now;
	context->fresh = true;
	context->grace = GRACE_FIRST;
}

void slice_demand_enabled(struct rtxg_slice *s, struct slice_context *context)
{
	context->seen = s->now;
	context->fresh = true;
	context->doubted = 0;
	/* It has its grace to show what it had when it was stopped. */
	if (context->had_work)
		sign(context, s->now);
	context->had_work = false;
}

void slice_demand_stopping(struct rtxg_slice *s, struct slice_context *context)
{
	(void)s;
	context->had_work = context->wants;
	context->doubted = 0;
}

/* How long a context with work may be off an engine on which it could be. */
static uint64_t patience(const struct rtxg_slice *s)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < s->context_count; i++)
		n += s->contexts[i].used && s->contexts[i].active && !s->contexts[i].is_stopped;
	return s->params.tick_ns + s->params.slice_max_ns * n;
}

static bool has_work(struct rtxg_slice *s, struct slice_context *context, uint64_t most)
{
	uint64_t until;

	if (!context->active)
		return false;
	if (context->is_stopped)
		return context->had_work || context->demand == SLICE_FILLED;
	if (context->demand == SLICE_UNSEEN)
		return true;
	if (context->demand == SLICE_FILLED) {
		/* It may wait for something else than the engine: an event, or another GPU. */
		if (!context->since && !context->blocked &&
		    slice_excess(s->now, context->seen) > most &&
		    slice_excess(s->now, context->sign) > most)
			context->blocked = true;
		if (context->blocked)
			return false;
		return true;
	}
	until = context->sign + context->grace;
	if (s->now >= until)
		return false;
	if (until < s->timer)
		s->timer = until;
	return true;
}

void slice_look_at_demand(struct rtxg_slice *s)
{
	uint64_t most = patience(s);
	uint32_t i;

	for (i = 0; i < s->tenant_count; i++)
		s->tenants[i].wants = false;
	for (i = 0; i < s->context_count; i++) {
		struct slice_context *context = &s->contexts[i];

		if (!context->used)
			continue;
		if (context->doubted && slice_excess(s->now, context->doubted) > LOOKED_WITHIN) {
			/* No new work was seen: it was in the middle of a kernel all the time. */
			context->doubted = 0;
			context->grace =
				context->grace * 2 < GRACE_MAX ? context->grace * 2 : GRACE_MAX;
			slice_charge_doubt(s, context);
		}
		context->wants = has_work(s, context, most);
		if (context->wants)
			s->tenants[context->tenant].wants = true;
	}
}

uint64_t rtxg_slice_look_ns(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_context *context;

	if (id >= s->context_count || !s->contexts[id].used || !s->waiting)
		return NEVER;
	context = &s->contexts[id];
	if (!context->active || slice_is_load(s, context))
		return NEVER;
	if (context->gap_at && slice_excess(s->now, context->gap_at) < GAPS_FOR)
		return LOOK_GAPS < s->params.look_ns ? s->params.look_ns : LOOK_GAPS;
	return s->params.tick_ns;
}
