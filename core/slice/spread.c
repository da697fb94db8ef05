// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * spread.c - SPREAD: every context is enabled. Slices stand in the ratio of the shares; a tenant that
 * is too far ahead of its share, or over its cap, is stopped.
 */
#include "internal.h"

/*
 * Slices in the ratio of the shares, the mean as long as the driver's own so that no more time goes
 * into switching.
 */
static void spread_slices(struct rtxg_slice *s)
{
	uint64_t parts = 0;
	uint32_t i, n = 0;

	for (i = 0; i < s->context_count; i++) {
		const struct slice_context *context = &s->contexts[i];
		const struct slice_tenant *tenant;

		if (!context->used || context->bad || !context->active)
			continue;
		tenant = &s->tenants[context->tenant];
		if (slice_critical(tenant))
			continue;
		n++;
		parts += 1;
	}
	if (!(s->params.can & RTXG_SLICE_CAN_SLICE))
		return;
	if (n < 2)
		return;
	for (i = 0; i < s->tenant_count; i++) {
		struct slice_tenant *tenant = &s->tenants[i];
		uint64_t slice, each = 0, k;

		if (!tenant->present || slice_critical(tenant))
			continue;
		for (k = 0; k < s->context_count; k++)
			if (s->contexts[k].used && s->contexts[k].active &&
			    s->contexts[k].tenant == i)
				each++;
		if (!each)
			continue;
		slice = slice_scaled(s->params.slice_mean_ns * parts, tenant->share_ppm);
		slice = slice / PPM * tenant->gain_ppm + slice % PPM * tenant->gain_ppm / PPM;
		slice /= each;
		if (slice > s->params.slice_max_ns)
			slice = s->params.slice_max_ns;
		if (slice < s->params.slice_min_ns)
			slice = s->params.slice_min_ns;
		for (k = 0; k < s->context_count; k++) {
			struct slice_context *context = &s->contexts[k];

			if (!context->used || context->bad || context->tenant != i)
				continue;
			/* A change of less than 3 % is not worth a call. */
			if (!context->want_slice ||
			    (slice > context->want_slice
				     ? slice - context->want_slice
				     : context->want_slice - slice) > context->want_slice / 32)
				context->want_slice = slice;
		}
	}
}

/*
 * The largest slice is limited, so if it would be cut all are made smaller together: the ratio is
 * what counts.
 */
static void keep_ratio(struct rtxg_slice *s)
{
	uint64_t top = 0, want;
	uint32_t i;

	for (i = 0; i < s->tenant_count; i++) {
		struct slice_tenant *tenant = &s->tenants[i];
		uint64_t n = 0, k, each = 0;

		if (!tenant->present || slice_critical(tenant))
			continue;
		for (k = 0; k < s->context_count; k++) {
			if (s->contexts[k].used && s->contexts[k].active &&
			    !slice_critical(&s->tenants[s->contexts[k].tenant]))
				n++;
			if (s->contexts[k].used && s->contexts[k].active &&
			    s->contexts[k].tenant == i)
				each++;
		}
		if (!each)
			continue;
		want = slice_scaled(s->params.slice_mean_ns * n, tenant->share_ppm) / each;
		want = want / PPM * tenant->gain_ppm + want % PPM * tenant->gain_ppm / PPM;
		if (want > top)
			top = want;
	}
	if (top > s->params.slice_max_ns) {
		uint64_t mean = s->params.slice_mean_ns;

		s->params.slice_mean_ns = mean * (s->params.slice_max_ns / US) / (top / US);
		spread_slices(s);
		s->params.slice_mean_ns = mean;
	} else {
		spread_slices(s);
	}
}

static void correct_gains(struct rtxg_slice *s)
{
	uint64_t work = 0, shares = 0, sum = 0;
	uint32_t i, n = 0;

	if (s->now < s->gain_at)
		return;
	for (i = 0; i < s->tenant_count; i++)
		if (s->tenants[i].present && s->tenants[i].gain_whole && !s->tenants[i].capped) {
			work += s->tenants[i].gain_work;
			shares += s->tenants[i].share_ppm;
			n++;
		}
	for (i = 0; i < s->tenant_count; i++) {
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
	/* Only their ratio counts: around 1, so that none of them wanders off to its limit. */
	for (i = 0; i < s->tenant_count; i++) {
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

	for (i = 0; i < s->context_count; i++)
		if (s->contexts[i].used && s->contexts[i].tenant == id && !s->contexts[i].bad)
			s->contexts[i].want_stop =
				stop && (s->contexts[i].active || s->contexts[i].is_stopped);
}

void slice_plan_spread(struct rtxg_slice *s)
{
	uint32_t i, present = 0, behind = 0;

	s->turn = NONE;
	/* else stopping corrects, sooner and exactly */
	if (!(s->params.can & RTXG_SLICE_CAN_SUSPEND))
		correct_gains(s);
	keep_ratio(s);
	for (i = 0; i < s->tenant_count; i++)
		if (s->tenants[i].present && !slice_critical(&s->tenants[i]) &&
		    !s->tenants[i].capped) {
			present++;
			if (s->tenants[i].lag <= 0)
				behind++;
		}
	for (i = 0; i < s->tenant_count; i++) {
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
