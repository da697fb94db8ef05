// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * promise.c - which promises were broken in the last second, and by which context most likely: what
 * a tenant got against its reservation and its cap, and how long work that arrived waited.
 *
 * May not: decide what becomes of a context; it is for people, and for tools that ask.
 */
#include "internal.h"

#define POINTS	  20000u  /* 2 %: what a share may be off in a second in any case */
#define RUN_OUT	  30000u  /* the same where a launch runs to its end */
#define ALL_ALONG 950000u /* it wanted the GPU for so much of the second */

bool rtxg_slice_share_broken(const struct rtxg_slice_share *share)
{
	uint32_t points = share->stoppable ? POINTS : RUN_OUT;

	return share->min_ppm > points &&
	       share->wanted_ns >= slice_scaled(share->span_ns, ALL_ALONG) &&
	       share->got_ns < slice_scaled(share->whole_ns, share->min_ppm - points);
}

void slice_promise_arrived(const struct rtxg_slice *s, const struct rtxg_slice_event *look)
{
	struct slice_context *context = &s->contexts[look->context];
	uint64_t at = look->at_ns < s->now ? look->at_ns : s->now;
	uint64_t from = slice_or(look->since_ns, context->added);

	if (context->arrived)
		return;
	/*
	 * What the engine's host has not taken waits now. The rest came since the look before, and
	 * may have come onto the engine since: the host looks late while it carries out an action.
	 */
	if (!context->queued && context->started && context->started >= from)
		return;
	context->arrived = at ? at : 1;
	context->arrived_from = context->queued || from > at ? context->arrived : from;
}

uint64_t rtxg_slice_wait_limit(uint32_t i)
{
	/* From a launch on an idle GPU to a bound that is none any more. */
	static const uint64_t limits[RTXG_SLICE_WAITS - 1] = {
		100 * US, 250 * US, 500 * US, 1 * MS,	2500 * US, 5 * MS,
		10 * MS,  25 * MS,  50 * MS,  100 * MS, 1000 * MS,
	};

	return i < RTXG_SLICE_WAITS - 1 ? limits[i] : NEVER;
}

static void count(struct slice_promise *p, uint64_t waited)
{
	uint32_t i = 0;

	while (i < RTXG_SLICE_WAITS - 1 && waited > rtxg_slice_wait_limit(i))
		i++;
	p->waits[i]++;
	p->waits_ns += waited;
}

void slice_promise_started(struct rtxg_slice *s, struct slice_context *context, uint64_t at)
{
	struct slice_tenant *tenant = &s->tenants[context->tenant];
	uint64_t waited = slice_excess(at, context->arrived);
	bool keeps = tenant->exempt || tenant->in_turns;

	context->started = at;
	/* The log is read late: it may tell of what was there before. */
	if (!context->arrived || at < context->arrived_from)
		return;
	if (keeps)
		count(&tenant->promise, waited);
	context->arrived = 0;
	if (keeps && waited > tenant->promise.waiting)
		tenant->promise.waiting = waited;
}

/* Of the contexts that cannot be governed as they ought to be, the one that worked most. */
static uint32_t culprit(const struct rtxg_slice *s, uint32_t victim, bool own)
{
	uint64_t most = 0;
	uint32_t found = NONE, i;

	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];
		uint64_t work = slice_excess(context->worked, context->promise_work);

		if (!context->used || (context->tenant == victim) != own || work <= most)
			continue;
		if (slice_stoppable(context) && slice_sliceable(context) &&
		    !slice_retried(s, context))
			continue;
		found = i;
		most = work;
	}
	return found;
}

static void judge(struct rtxg_slice *s, uint32_t id, uint64_t span, uint64_t all)
{
	struct slice_tenant *tenant = &s->tenants[id];
	struct slice_promise *p = &tenant->promise;
	uint64_t got = slice_excess(tenant->work, p->work);
	const struct rtxg_slice_share share = { .min_ppm = tenant->params.min_ppm,
						.stoppable = true,
						.span_ns = span,
						.wanted_ns = p->wanted,
						.got_ns = got,
						.whole_ns = all };

	p->broken = 0;
	p->by = NONE;
	if (!tenant->capped && rtxg_slice_share_broken(&share)) {
		p->broken |= RTXG_SLICE_BROKEN_SHARE;
		p->by = culprit(s, id, false);
	}
	if (tenant->params.latency_ns && p->waiting > tenant->params.latency_ns) {
		p->broken |= RTXG_SLICE_BROKEN_LATENCY;
		p->by = culprit(s, id, false);
	}
	if (tenant->params.max_ppm && tenant->params.max_ppm < PPM - POINTS &&
	    !slice_critical(tenant) && got > slice_scaled(span, tenant->params.max_ppm + POINTS)) {
		p->broken |= RTXG_SLICE_BROKEN_CAP;
		p->by = culprit(s, id, true);
	}
	p->waited = p->waiting;
}

void slice_look_at_promises(struct rtxg_slice *s)
{
	uint64_t span = slice_excess(s->now, s->promised), all = 0;
	uint32_t i;

	/* What the log has not been read for may have to be taken back. */
	if (span < RTXG_SLICE_SHARE_SPAN_NS || s->read != s->now)
		return;
	for (i = 0; i < s->tenant_high; i++)
		all += slice_excess(s->tenants[i].work, s->tenants[i].promise.work);
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_promise *p = &s->tenants[i].promise;

		if (!s->tenants[i].used)
			continue;
		judge(s, i, span, all);
		p->work = s->tenants[i].work;
		p->wanted = p->waiting = 0;
	}
	for (i = 0; i < s->context_high; i++)
		s->contexts[i].promise_work = s->contexts[i].worked;
	s->promised = s->now;
}
