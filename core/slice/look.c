// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * look.c - how often the queues of a context are to be looked into: as seldom as the decisions that
 * depend on it allow, and not at all while there are none.
 *
 * May not: change the core's state.
 */
#include "internal.h"

/* Has another tenant than this one something on the engine, or waiting for it? */
static bool others_active(const struct rtxg_slice *s, uint32_t tenant)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		if (i != tenant && s->tenants[i].used && s->tenants[i].present)
			return true;
	return false;
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
	if (!context->active || !(s->params.can & RTXG_SLICE_CAN_SUSPEND))
		return NEVER;
	/* It waits for its turn, with work. */
	if (context->is_stopped && context->had_work)
		return NEVER;
	if (context->gap_at && slice_excess(s->now, context->gap_at) < SLICE_GAPS_FOR)
		return at_least(s, SLICE_LOOK_GAPS);
	/* Turns of contexts are long. */
	return at_least(s, s->turns ? 4 * s->params.tick_ns : s->params.tick_ns);
}
