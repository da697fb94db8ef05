// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * share.c - which tenants want the GPU, what share each of them has then, how far each is ahead of
 * that share, and who has reached a cap.
 *
 * May not: stop a context or set a slice.
 */
#include "internal.h"

/* what a tenant is owed that had work all the time: longer than any round of turns */
#define OWED_MAX (250 * MS)
/* how far ahead of its share a tenant counts at most for those with a latency */
#define AHEAD_COUNTS (100 * MS)
#define ROUNDS	     4 /* of reckoning who is so far ahead */

/*
 * Each that takes turns for its bound may be burst_ns ahead before it waits like the others, who
 * are owed all of that then: with less they would not get what they are due while all work.
 */
static uint64_t owed_most(const struct rtxg_slice *s)
{
	uint64_t most = s->params.burst_ns;
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		most += s->tenants[i].in_turns ? s->params.burst_ns : 0;
	return most > OWED_MAX ? most : OWED_MAX;
}

/* The weight in parts per million of a reservation, so that a small reservation is not rounded. */
static uint64_t weight_ppm(const struct slice_tenant *tenant)
{
	if (tenant->params.weight != RTXG_SLICE_WEIGHT_NOT_GIVEN)
		return (uint64_t)tenant->params.weight * RTXG_SLICE_WEIGHT_PPM;
	if (tenant->params.min_ppm)
		return tenant->params.min_ppm;
	return (uint64_t)RTXG_SLICE_WEIGHT_UNRESERVED * RTXG_SLICE_WEIGHT_PPM;
}

bool slice_params_valid(const struct rtxg_slice_tenant *params)
{
	if (params->min_ppm > PPM || params->max_ppm > PPM ||
	    params->weight > RTXG_SLICE_WEIGHT_MAX || params->priority > RTXG_SLICE_PRIORITY_MAX)
		return false;
	if (params->max_ppm && params->max_ppm < params->min_ppm)
		return false;
	if (slice_critical_params(params) && params->period_ns &&
	    (params->period_ns < 100 * US || params->period_ns > 10000 * MS))
		return false;
	if (params->latency_ns && (params->latency_ns < RTXG_SLICE_LATENCY_MIN ||
				   params->latency_ns > RTXG_SLICE_LATENCY_MAX))
		return false;
	return !params->quantum_ns || (params->quantum_ns >= RTXG_SLICE_QUANTUM_MIN &&
				       params->quantum_ns <= RTXG_SLICE_QUANTUM_MAX);
}

/* When it was last known to want the GPU. */
static uint64_t last_seen(const struct rtxg_slice *s, const struct slice_context *context)
{
	if (context->demand == SLICE_FILLED && !context->blocked)
		return s->now;
	/* Empty queues: it may sit on the engine because no other wants it. */
	if (slice_seen_empty(s, context))
		return context->sign + context->grace > context->seen
			       ? context->sign + context->grace
			       : context->seen;
	if (context->since)
		return s->now;
	return context->seen;
}

void slice_look_around(struct rtxg_slice *s)
{
	uint64_t furthest_behind = NEVER, guaranteed = 0, weights = 0;
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		s->tenants[i].present = s->tenants[i].free = false;
	for (i = 0; i < s->context_high; i++) {
		struct slice_context *context = &s->contexts[i];

		if (!context->used)
			continue;
		if (context->active && !context->is_stopped && !context->want_stop &&
		    slice_excess(s->read, last_seen(s, context)) > s->params.idle_ns)
			slice_set_active(s, context, false);
		if (!context->active)
			continue;
		s->tenants[context->tenant].present = true;
		if (!slice_stoppable(context))
			s->tenants[context->tenant].free = true;
	}
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		if (!tenant->present || slice_critical(tenant)) {
			tenant->gain_whole = false;
			continue;
		}
		guaranteed += tenant->params.min_ppm;
		weights += weight_ppm(tenant);
		if (tenant->vtime < furthest_behind)
			furthest_behind = tenant->vtime;
	}
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		if (!tenant->used)
			continue;
		tenant->vtime = VBASE + (furthest_behind == NEVER
						 ? 0
						 : slice_excess(tenant->vtime, furthest_behind));
		if (!tenant->present || slice_critical(tenant)) {
			tenant->share_ppm = tenant->params.min_ppm > SHARE_MIN
						    ? tenant->params.min_ppm
						    : SHARE_MIN;
			tenant->lag = 0;
			continue;
		}
		if (guaranteed >= PPM)
			tenant->share_ppm =
				(uint32_t)((uint64_t)tenant->params.min_ppm * PPM / guaranteed);
		else
			tenant->share_ppm =
				(uint32_t)(tenant->params.min_ppm +
					   (PPM - guaranteed) * weight_ppm(tenant) / weights);
		if (tenant->share_ppm < SHARE_MIN)
			tenant->share_ppm = SHARE_MIN;
	}
}

void slice_set_active(struct rtxg_slice *s, struct slice_context *context, bool active)
{
	struct slice_tenant *tenant = &s->tenants[context->tenant];
	bool comes = active && !tenant->present;

	context->active = active;
	if (!active)
		context->wants = false;
	if (!comes)
		return;
	tenant->gain_whole = false;
	/* It has a share from now on. It has saved up nothing while it was idle. */
	slice_look_around(s);
}

/*
 * The average virtual time of the tenants that count, weighted by share; NEVER: there is none. One
 * that is further ahead of `about` than `most` counts as if it were so far ahead.
 */
static uint64_t average_of(const struct rtxg_slice *s, uint64_t about, uint64_t most)
{
	uint64_t sum = 0, shares = 0;
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		const struct slice_tenant *tenant = &s->tenants[i];
		uint64_t least = NEVER;

		if (!tenant->present || slice_critical(tenant) ||
		    (tenant->free && tenant->vtime >= about))
			continue;
		if (most != NEVER)
			least = about + slice_unscaled(most, tenant->share_ppm);
		sum += slice_scaled(tenant->vtime < least ? tenant->vtime : least,
				    tenant->share_ppm);
		shares += tenant->share_ppm;
	}
	if (!shares)
		return NEVER;
	return slice_unscaled(sum, (uint32_t)(shares > UINT32_MAX ? UINT32_MAX : shares));
}

/*
 * The average from which a tenant with a latency has what it is owed while it has nothing to do.
 * One that is far ahead of its share raises the average while it is there: who has followed that
 * would be ahead of its own share when that one goes, and lose its bound.
 */
static uint64_t average_for_bounds(const struct rtxg_slice *s, uint64_t average)
{
	uint32_t i;

	for (i = 0; i < ROUNDS && average != NEVER; i++)
		average = average_of(s, average, AHEAD_COUNTS);
	return average;
}

/*
 * Turns of tenants let one run ahead of its share by SLICE_ROUGH times the tolerance at most. What
 * it has beyond that it used while others could not, so it need not wait for it later, in the very
 * second in which they all have work again.
 */
static void forgive(const struct rtxg_slice *s, struct slice_tenant *tenant, uint64_t average)
{
	uint64_t most =
		slice_scaled(1000 * MS, s->params.tolerance_ppm) * SLICE_ROUGH + s->params.lag_ns;

	most = most > tenant->params.quantum_ns ? most : tenant->params.quantum_ns;
	most += slice_turns_late(s, tenant);
	if (tenant->vtime > average &&
	    slice_scaled(tenant->vtime - average, tenant->share_ppm) > most)
		tenant->vtime = average + slice_unscaled(most, tenant->share_ppm);
}

/*
 * How far each tenant is ahead of its share: its virtual time against the average one, weighted by
 * share. What a context takes that cannot be stopped is lost to all others alike: a tenant that is
 * ahead by it does not count, else all others would seem to be behind, and one with a latency would
 * have its bound kept without end at the cost of the rest.
 */
void slice_reckon_lags(struct rtxg_slice *s)
{
	uint64_t average, for_bounds, from, most, owed;
	uint32_t i;

	s->plain = s->mode == RTXG_SLICE_MODE_BATCH;
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		if (tenant->contexts &&
		    (tenant->params.latency_ns || tenant->params.max_ppm || tenant->coupled))
			s->plain = false;
		/* 18 minutes of difference: it was starved from outside, and starts again. */
		if (tenant->present && !slice_critical(tenant) && tenant->vtime > 2 * VBASE)
			tenant->vtime = 2 * VBASE;
	}
	average = average_of(s, 0, NEVER);
	average = average_of(s, average, NEVER);
	if (average == NEVER)
		return;
	for_bounds = average_for_bounds(s, average);
	owed = owed_most(s);
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		if (!tenant->present || slice_critical(tenant))
			continue;
		/*
		 * What was kept from a tenant it is owed up to a limit, else the others would wait
		 * for it for as long as it had been starved from outside. While it has nothing to
		 * do it loses what it could use, down to a small amount, and so does one that has
		 * pauses and runs beside others.
		 */
		most = owed;
		if (!tenant->wants || (tenant->runs_beside && !tenant->held)) {
			most = slice_excess(tenant->lag < 0 ? (uint64_t)-tenant->lag : 0, s->past);
			most = most > s->params.owed_ns ? most : s->params.owed_ns;
		}
		from = tenant->params.latency_ns && for_bounds < average ? for_bounds : average;
		if (tenant->vtime < from &&
		    slice_scaled(from - tenant->vtime, tenant->share_ppm) > most)
			tenant->vtime = from - slice_unscaled(most, tenant->share_ppm);
		if (s->plain && !tenant->free)
			forgive(s, tenant, average);
		tenant->lag =
			tenant->vtime >= average
				? (int64_t)slice_scaled(tenant->vtime - average, tenant->share_ppm)
				: -(int64_t)slice_scaled(average - tenant->vtime,
							 tenant->share_ppm);
	}
}

bool slice_reckon_caps(struct rtxg_slice *s)
{
	bool any = false;
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];
		uint64_t allowed, windows;

		tenant->capped = false;
		if (!tenant->used || !tenant->params.max_ppm || slice_critical(tenant))
			continue;
		allowed = slice_scaled(s->params.cap_window_ns, tenant->params.max_ppm);
		windows = slice_excess(s->now, tenant->cap_start) / s->params.cap_window_ns;
		if (windows) {
			/* An overrun is carried over: in the long run the cap holds exactly. */
			tenant->cap_start += windows * s->params.cap_window_ns;
			tenant->cap_used =
				windows > 1000 ? 0
					       : slice_excess(tenant->cap_used, windows * allowed);
		}
		if (tenant->cap_used >= allowed) {
			tenant->capped = true;
			slice_wake_at(s, tenant->cap_start + s->params.cap_window_ns);
		}
		if (tenant->present)
			any = true;
	}
	return any;
}

bool slice_critical_active(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		const struct slice_tenant *tenant = &s->tenants[i];

		if (tenant->used && slice_critical(tenant) && tenant->seen &&
		    slice_excess(s->read, tenant->seen) < s->params.critical_idle_ns)
			return true;
	}
	return false;
}
