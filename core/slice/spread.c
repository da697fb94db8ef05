// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * spread.c - SPREAD: every context is enabled. Slices stand in the ratio of the shares. A tenant
 * that is too far ahead of its share, or over its cap, is stopped.
 *
 * May not: look at releases, or stop a latency-critical context.
 */
#include "internal.h"

/* The contexts of a tenant that have work. */
static uint32_t active_of(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->context_high; i++)
		n += s->contexts[i].used && s->contexts[i].active && s->contexts[i].tenant == id;
	return n;
}

/* A tenant's share of `round_ns`, corrected, for each of its contexts. */
static uint64_t slice_of(const struct slice_tenant *tenant, uint64_t round_ns, uint32_t contexts)
{
	uint64_t slice = slice_scaled(round_ns, tenant->share_ppm) / contexts;

	return slice / PPM * tenant->gain_ppm + slice % PPM * tenant->gain_ppm / PPM;
}

static void want_slice(struct slice_context *context, uint64_t slice)
{
	uint64_t old = context->want_slice, change = slice > old ? slice - old : old - slice;

	/* A change of less than 3 % is not worth a call. */
	if (!old || change > old / 32)
		context->want_slice = slice;
}

/*
 * Slices in the ratio of the shares. Their mean is as long as the driver's own, so that no more
 * time goes into switching. The longest slice is limited: if one would be cut, all are made shorter
 * together, for the ratio is what counts.
 */
static void spread_slices(struct rtxg_slice *s)
{
	uint64_t mean = s->params.slice_mean_ns, longest = 0, slice;
	uint32_t i, k, n = 0, own;

	if (!(s->params.can & RTXG_SLICE_CAN_SLICE))
		return;
	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];

		n += context->used && slice_sliceable(context) && context->active &&
		     !slice_critical(&s->tenants[context->tenant]);
	}
	if (n < 2)
		return;
	for (i = 0; i < s->tenant_high; i++) {
		const struct slice_tenant *tenant = &s->tenants[i];

		own = tenant->present && !slice_critical(tenant) ? active_of(s, i) : 0;
		slice = own ? slice_of(tenant, mean * n, own) : 0;
		longest = slice > longest ? slice : longest;
	}
	if (longest > s->params.slice_max_ns)
		mean = mean * (s->params.slice_max_ns / US) / (longest / US);
	for (i = 0; i < s->tenant_high; i++) {
		const struct slice_tenant *tenant = &s->tenants[i];

		own = tenant->present && !slice_critical(tenant) ? active_of(s, i) : 0;
		if (!own)
			continue;
		slice = slice_of(tenant, mean * n, own);
		if (slice > s->params.slice_max_ns)
			slice = s->params.slice_max_ns;
		if (slice < s->params.slice_min_ns)
			slice = s->params.slice_min_ns;
		for (k = 0; k < s->context_high; k++)
			if (s->contexts[k].used && s->contexts[k].tenant == i)
				want_slice(&s->contexts[k], slice);
	}
}

static void correct_gains(struct rtxg_slice *s)
{
	uint64_t work = 0, shares = 0, sum = 0;
	uint32_t i, n = 0;

	if (s->now < s->gain_at)
		return;
	for (i = 0; i < s->tenant_high; i++)
		if (s->tenants[i].present && s->tenants[i].gain_whole && !s->tenants[i].capped) {
			work += s->tenants[i].gain_work;
			shares += s->tenants[i].share_ppm;
			n++;
		}
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		if (n >= 2 && work > 50 * MS && shares && tenant->present && tenant->gain_whole &&
		    !tenant->capped) {
			uint64_t got = tenant->gain_work / (work / PPM + 1);
			uint64_t due = (uint64_t)tenant->share_ppm * PPM / shares;
			uint64_t off = got > due ? got - due : due - got, gain = tenant->gain_ppm,
				 step;

			if (off > s->params.dead_band_ppm && due) {
				step = gain * off / due / 2;
				gain = got > due ? slice_excess(gain, step) : gain + step;
			}
			tenant->gain_ppm = (uint32_t)(gain < GAIN_MIN	? GAIN_MIN
						      : gain > GAIN_MAX ? GAIN_MAX
									: gain);
			sum += tenant->gain_ppm;
		}
		tenant->gain_work = 0;
	}
	/* Only the ratio of the gains counts: they are kept around 1, away from their limits. */
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		if (sum && tenant->present && tenant->gain_whole && !tenant->capped) {
			uint64_t gain = (uint64_t)tenant->gain_ppm * n * PPM / sum;

			tenant->gain_ppm = (uint32_t)(gain < GAIN_MIN	? GAIN_MIN
						      : gain > GAIN_MAX ? GAIN_MAX
									: gain);
		}
		tenant->gain_whole = tenant->present;
	}
	s->gain_at = s->now + GAIN_INTERVAL;
}

static void stop_tenant(struct rtxg_slice *s, uint32_t id, bool stop)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++)
		if (s->contexts[i].used && s->contexts[i].tenant == id)
			s->contexts[i].want_stop =
				stop && (s->contexts[i].active || s->contexts[i].is_stopped);
}

void slice_plan_spread(struct rtxg_slice *s)
{
	uint32_t i, present = 0, behind = 0;

	s->turn = NONE;
	/* Where contexts can be stopped, stopping corrects sooner and exactly. */
	if (!(s->params.can & RTXG_SLICE_CAN_SUSPEND))
		correct_gains(s);
	spread_slices(s);
	for (i = 0; i < s->tenant_high; i++)
		if (s->tenants[i].present && !slice_critical(&s->tenants[i]) &&
		    !s->tenants[i].capped) {
			present++;
			if (s->tenants[i].lag <= 0 && s->tenants[i].wants)
				behind++;
		}
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		if (!tenant->used)
			continue;
		if (slice_critical(tenant)) {
			stop_tenant(s, i, false);
			continue;
		}
		if (tenant->ahead && tenant->lag <= 0)
			tenant->ahead = false;
		else if (!tenant->ahead && tenant->lag > (int64_t)s->params.lag_ns)
			tenant->ahead = true;
		if (!tenant->present || present < 2 || !behind ||
		    !(s->params.can & RTXG_SLICE_CAN_SUSPEND))
			tenant->ahead = false;
		stop_tenant(s, i, tenant->ahead || tenant->capped);
	}
}
