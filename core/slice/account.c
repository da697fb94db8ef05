// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * account.c - who is charged for which stay on the engine, from the context-switch log. The log is
 * read late, so a charge up to the present moment may have to be taken back in part.
 *
 * May not: decide anything.
 */
#include "internal.h"

uint64_t slice_scaled(uint64_t ns, uint32_t ppm)
{
	return ns / PPM * ppm + ns % PPM * ppm / PPM;
}

uint64_t slice_unscaled(uint64_t ns, uint32_t ppm)
{
	return ns / ppm * PPM + ns % ppm * PPM / ppm;
}

static uint64_t more_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * A charge that is taken back later was shown: what is shown stands still until it is made up for.
 */
static void note_most(struct slice_tenant *tenant, struct slice_context *context)
{
	tenant->most_work = more_of(tenant->most_work, tenant->work);
	tenant->most_stay = more_of(tenant->most_stay, tenant->stay);
	context->most_worked = more_of(context->most_worked, context->worked);
	context->most_stayed = more_of(context->most_stayed, context->stayed);
}

/*
 * For how much of that time of its present stay its queues were empty, and it had come with no work
 * so lately: known from looks, however late the log tells of the stay.
 */
static uint64_t in_gaps(const struct slice_context *context, uint64_t from, uint64_t upto)
{
	uint64_t ns = 0;
	uint32_t i;

	from = more_of(from, context->since + context->grace);
	for (i = 0; i < SLICE_GAPS; i++) {
		const struct slice_gap *gap = &context->gaps[i];

		ns += slice_excess(upto < gap->to ? upto : gap->to,
				   more_of(from, gap->from + context->grace));
	}
	return ns;
}

static void charge_work(struct rtxg_slice *s, struct slice_context *context, uint64_t ns)
{
	struct slice_tenant *tenant = &s->tenants[context->tenant];

	context->work += ns;
	context->worked += ns;
	tenant->work += ns;
	tenant->cap_used += ns;
	tenant->gain_work += ns;
	tenant->overdraft += ns;
	s->worked += tenant->free ? 0 : ns;
	tenant->vtime += slice_unscaled(ns, tenant->share_ppm ? tenant->share_ppm : PPM);
	note_most(tenant, context);
}

static void charge_back(struct rtxg_slice *s, uint32_t id, struct slice_context *context,
			uint64_t ns)
{
	struct slice_tenant *tenant = &s->tenants[id];

	context->work = slice_excess(context->work, ns);
	context->worked = slice_excess(context->worked, ns);
	tenant->work = slice_excess(tenant->work, ns);
	tenant->cap_used = slice_excess(tenant->cap_used, ns);
	tenant->gain_work = slice_excess(tenant->gain_work, ns);
	tenant->overdraft = slice_excess(tenant->overdraft, ns);
	s->worked = slice_excess(s->worked, tenant->free ? 0 : ns);
	tenant->vtime = slice_excess(
		tenant->vtime, slice_unscaled(ns, tenant->share_ppm ? tenant->share_ppm : PPM));
}

/* Takes a charge back for a time in which it was not on the engine. */
static void stay_back(struct rtxg_slice *s, uint32_t id, struct slice_context *context,
		      uint64_t from, uint64_t upto)
{
	uint64_t ns = upto - from, gaps = in_gaps(context, from, upto);
	uint64_t doubt = context->doubt < ns - gaps ? context->doubt : ns - gaps;

	context->stayed = slice_excess(context->stayed, ns);
	s->tenants[id].stay = slice_excess(s->tenants[id].stay, ns);
	context->doubt -= doubt;
	s->tenants[id].cap_used = slice_excess(s->tenants[id].cap_used, doubt + gaps);
	charge_back(s, id, context, ns - doubt - gaps);
}

/*
 * For how much of that time it is not known whether it had work, as the host was late to look: it
 * came onto the engine with work, and may sit there since because no other wants the engine.
 */
static uint64_t blind(const struct slice_context *context, uint64_t from, uint64_t upto)
{
	if (context->blind_worked && upto >= context->blind_to)
		return 0;
	from = more_of(from, more_of(context->blind_from, context->since + context->grace));
	return slice_excess(upto < context->blind_to ? upto : context->blind_to, from);
}

void slice_charge(struct rtxg_slice *s, struct slice_context *context, uint64_t upto)
{
	uint64_t sure = upto, from = context->charged, unknown, gaps;

	if (!context->since || upto <= from)
		return;
	s->tenants[context->tenant].stay += upto - from;
	context->stayed += upto - from;
	/* Without a sign of work it may well sit there because no other wants the engine. */
	if (slice_seen_empty(s, context) && context->sign + context->grace < upto)
		sure = more_of(context->sign + context->grace, from);
	gaps = in_gaps(context, from, sure);
	unknown = blind(context, from, sure);
	unknown = unknown < sure - from - gaps ? unknown : sure - from - gaps;
	charge_work(s, context, sure - from - unknown - gaps);
	s->busy += slice_excess(slice_excess(sure, more_of(from, s->idle_at)), unknown + gaps);
	unknown += upto - sure;
	context->doubt += unknown;
	/* A cap is no matter of doubt: a program alone is never displaced, which would show it. */
	s->tenants[context->tenant].cap_used += unknown + gaps;
	context->charged = upto;
}

void slice_charge_told(struct rtxg_slice *s, struct slice_context *context, uint64_t upto)
{
	slice_charge(s, context, upto < s->told_until ? upto : s->told_until);
}

void slice_charge_blind(struct rtxg_slice *s, struct slice_context *context, uint64_t from,
			uint64_t upto, bool worked)
{
	uint64_t ns;

	/* By what was known before this look. */
	slice_charge_told(s, context, upto);
	/* What the log has not told of yet is judged by all of the gaps in it. */
	if (context->blind_to <= s->read)
		context->blind_from = from;
	context->blind_to = upto;
	context->blind_worked = worked;
	ns = blind(context, context->since, context->charged);
	if (!context->since || slice_seen_empty(s, context))
		return;
	charge_back(s, context->tenant, context, ns);
	s->tenants[context->tenant].cap_used += ns;
	context->doubt += ns;
}

void slice_charge_doubt(struct rtxg_slice *s, struct slice_context *context)
{
	struct slice_tenant *tenant = &s->tenants[context->tenant];
	uint64_t ns = context->doubt;

	/*
	 * While others are stopped for it, it has the engine for as long as the host takes to let
	 * them go: what it is not believed to have worked is the host's.
	 */
	if (tenant->params.latency_ns && context->grace < ns)
		ns = context->grace;
	charge_work(s, context, ns);
	tenant->cap_used = slice_excess(tenant->cap_used, ns);
	context->doubt = 0;
}

/*
 * Until when the engine is kept for this tenant by what it does itself. Of what has been on the
 * engine since it came more may follow, and the others are let go after a quiet: what passes after
 * that is the host's delay. What has not been there keeps the engine for as long as it is waited
 * for.
 */
static uint64_t kept_until(const struct rtxg_slice *s, uint32_t tenant)
{
	uint64_t last = 0;
	uint32_t i;

	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];

		if (!context->used || context->tenant != tenant || !context->wants)
			continue;
		if (context->arrived && !context->is_stopped)
			return NEVER;
		last = more_of(last, context->seen);
	}
	return last + s->params.quiet_ns + s->params.resume_ns + s->params.restore_ns;
}

void slice_charge_kept(struct rtxg_slice *s, uint64_t from, uint64_t upto)
{
	uint32_t n = 0, i;

	for (i = 0; i < s->tenant_high; i++)
		n += s->tenants[i].urgent ? 1 : 0;
	for (i = 0; i < s->tenant_high; i++) {
		uint64_t until, ns;

		if (!s->tenants[i].urgent)
			continue;
		until = kept_until(s, i);
		ns = slice_excess(until < upto ? until : upto, from) / n;
		s->tenants[i].overdraft += ns;
		s->worked += ns;
		s->tenants[i].vtime +=
			slice_unscaled(ns, (uint32_t)slice_or(s->tenants[i].share_ppm, PPM));
	}
}

void slice_charge_change(struct rtxg_slice *s, struct slice_context *context, uint64_t ns)
{
	struct slice_tenant *tenant = &s->tenants[context->tenant];

	tenant->vtime += slice_unscaled(ns, (uint32_t)slice_or(tenant->share_ppm, PPM));
}

void slice_seen(struct rtxg_slice *s, struct slice_context *context, uint64_t at)
{
	if (at > context->seen)
		context->seen = at;
	if (at > s->tenants[context->tenant].seen)
		s->tenants[context->tenant].seen = at;
}

void slice_was_on(struct slice_context *context, uint64_t upto)
{
	if (context->since && upto >= context->arrived_from)
		context->arrived = 0;
}

bool slice_was_cut(const struct rtxg_slice *s, const struct slice_context *context, uint64_t stay)
{
	uint64_t slice = slice_or(context->slice, s->params.slice_mean_ns);

	return stay >= slice && stay <= slice + slice / 32 + s->params.save_ns;
}

#define ALIKE	   32 /* of 128: of its stays that end before, so many are pieces of a length */
#define MOSTLY_CUT 64 /* of 128: of its stays so many were ended by slices */

bool slice_ran_out(const struct rtxg_slice *s, const struct slice_context *context, uint64_t stay)
{
	return context->alike > ALIKE && stay > context->piece + context->piece / 8 &&
	       !slice_was_cut(s, context, stay);
}

/* Did its slice end the stay, or had it nothing to do before? */
static void note_how_it_ended(struct rtxg_slice *s, struct slice_context *context, uint64_t stay,
			      uint64_t at)
{
	uint64_t slice = slice_or(context->slice, s->params.slice_mean_ns);
	bool cut = slice_was_cut(s, context, stay);

	context->cuts = (uint8_t)(context->cuts - context->cuts / 8 + (cut ? 16 : 0));
	if (context->cuts > MOSTLY_CUT)
		context->piece = 0;
	if (slice_ran_out(s, context, stay))
		s->out_at = at;
	if (stay >= slice)
		return;
	s->dry_before = s->dry_at;
	s->dry_at = at;
	if (stay > slice - slice / 4 || at < s->set_at + SLICE_SETTLES)
		return;
	context->alike = (uint8_t)(context->alike - context->alike / 8 +
				   (stay <= context->piece + context->piece / 8 ? 16 : 0));
	if (!context->piece || stay < context->piece)
		context->piece = stay;
	else
		context->piece += (stay - context->piece) / 16;
}

void slice_ended(struct rtxg_slice *s, uint32_t id, uint64_t at)
{
	struct slice_context *context = &s->contexts[id];
	uint64_t slice = slice_or(context->slice, 2 * MS), stay, alone;

	if (s->holder == id)
		s->holder = NONE;
	if (!context->since)
		return;
	if (at < context->since)
		at = context->since;
	slice_was_on(context, at);
	if (at >= context->charged) {
		slice_charge(s, context, at);
	} else if (at < context->moved) {
		/*
		 * It was charged up to a moment that the log had not come to yet, in part to the
		 * tenant that it has left.
		 */
		stay_back(s, context->tenant, context, context->moved, context->charged);
		if (s->tenants[context->old].used)
			stay_back(s, context->old, context, at, context->moved);
	} else {
		stay_back(s, context->tenant, context, at, context->charged);
	}
	stay = slice_excess(at, context->since);
	/*
	 * The hardware or the lever cut it short, so the last part of the stay was saving. The
	 * hardware counts slices in units of 1.024 us.
	 */
	if (stay > slice + slice / 32 || context->is_stopped)
		charge_back(s, context->tenant, context,
			    stay < s->params.save_ns ? stay : s->params.save_ns);
	/* It is cut at the end of its slice, or after that as soon as another one wants to work. */
	alone = slice_excess(at, s->params.save_ns);
	if (context->is_stopped && context->stopped_at < alone)
		alone = context->stopped_at;
	if (alone > context->since + slice + slice / 32)
		s->over_at = alone;
	if (!context->is_stopped)
		note_how_it_ended(s, context, stay, at);
	context->left = context->is_stopped ? 0 : at;
	context->ran = stay;
	s->ended = id;
	context->since = context->moved = 0;
	slice_seen(s, context, at);
}
