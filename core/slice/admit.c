// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * admit.c - which bound on latency each mechanism gives beside what is there, so which is the
 * cheapest that keeps a bound, and whether a tenant can be admitted with it.
 *
 * May not: change the core's state.
 */
#include "internal.h"

#define UNIT	  32	     /* a slice is longer by less than this part of it */
#define LATE	  (500 * US) /* the host comes so late */
#define SET_COSTS (900 * US) /* what the driver takes for it */

/* What a tenant's work may have to wait for. */
struct beside {
	uint32_t all;	  /* contexts of others that can be stopped, at least 1 */
	uint32_t latency; /* contexts of other tenants with a latency */
	uint32_t tenants; /* those tenants */
	uint32_t loads, critical;
};

/* `more` is a tenant that is reckoned with as if it had `params` and at least one context. */
static struct beside look_beside(const struct rtxg_slice *s, uint32_t tenant, uint32_t more,
				 const struct rtxg_slice_tenant *params)
{
	uint32_t i, k;
	struct beside b = { 0 };

	for (i = 0; i < s->tenant_high; i++) {
		const struct rtxg_slice_tenant *p = i == more ? params : &s->tenants[i].params;
		uint32_t n = 0;

		if (i == tenant || (!s->tenants[i].used && i != more))
			continue;
		if (slice_critical_params(p)) {
			b.critical++;
			continue;
		}
		for (k = 0; k < s->context_high; k++) {
			const struct slice_context *context = &s->contexts[k];

			if (!context->used || context->tenant != i)
				continue;
			if (slice_is_load(s, context) || !slice_stoppable(context))
				b.loads++;
			else
				n++;
		}
		if (!n && i == more)
			n = 1;
		if (p->latency_ns) {
			b.tenants++;
			b.latency += n ? n : 1;
			continue;
		}
		b.all += n;
	}
	/* One that has never been there. */
	if (more != tenant && more >= s->tenant_high && !slice_critical_params(params)) {
		b.tenants += params->latency_ns ? 1 : 0;
		b.latency += params->latency_ns ? 1 : 0;
		b.all += params->latency_ns ? 0 : 1;
	}
	b.critical += more != tenant && more >= s->tenant_high && slice_critical_params(params);
	b.all = b.all ? b.all : 1;
	return b;
}

/* What passes until the next one is on the engine. The hardware counts in units of 1.024 us. */
static uint64_t rounds(const struct rtxg_slice *s, uint64_t contexts, uint64_t slice)
{
	uint64_t longer = slice < s->params.slice_min_ns ? 0 : slice / UNIT;

	return contexts * (slice + longer + s->params.save_ns + s->params.restore_ns);
}

/* The slice of so many contexts that last that long together. */
static uint64_t slice_in(const struct rtxg_slice *s, uint64_t contexts, uint64_t ns)
{
	uint64_t slice =
		contexts ? slice_excess(ns / contexts, s->params.save_ns + s->params.restore_ns)
			 : s->params.slice_max_ns;

	slice -= slice / UNIT;
	return slice < s->params.slice_max_ns ? slice : s->params.slice_max_ns;
}

/* The slice of contexts that the lever cannot act on, and of those that it leaves alone. */
static uint64_t driver_slice(const struct rtxg_slice *s)
{
	return s->params.slice_mean_ns;
}

static uint64_t by_slices(const struct rtxg_slice *s, const struct beside *b, uint64_t slice)
{
	if (!(s->params.can & RTXG_SLICE_CAN_SLICE) || b->critical)
		return NEVER;
	return rounds(s, b->all + b->latency, slice) + rounds(s, b->loads, driver_slice(s));
}

/* Until all others are stopped that have no latency. */
static uint64_t stopping(const struct rtxg_slice *s, const struct beside *b, uint64_t look)
{
	const struct rtxg_slice_params *p = &s->params;
	uint64_t stop = p->stop_ns + (b->all - 1) * p->stop_more_ns;
	uint64_t begun = p->stop_ns + p->resume_ns + (b->all - 1) * p->resume_more_ns;

	/*
	 * A change-over may have just begun: some are let go and one is stopped. Or a slice is set.
	 */
	begun = begun > SET_COSTS ? begun : SET_COSTS;
	return look + begun + stop + p->save_ns + p->restore_ns +
	       rounds(s, b->loads, driver_slice(s));
}

/* The shortest slice that tenants with a latency by arrival are given for each other's bounds. */
static uint64_t least_slice(const struct rtxg_slice *s)
{
	return s->params.can & RTXG_SLICE_CAN_SLICE ? s->params.slice_min_ns : driver_slice(s);
}

static uint64_t by_arrival(const struct rtxg_slice *s, const struct beside *b, uint64_t look)
{
	if (!(s->params.can & RTXG_SLICE_CAN_SUSPEND) || !(s->params.can & RTXG_SLICE_CAN_DEMAND))
		return NEVER;
	return stopping(s, b, look) + rounds(s, b->latency, least_slice(s));
}

/* How often its queues are looked into: what acting leaves of the bound, divided by four. */
static uint64_t look_for(const struct rtxg_slice *s, const struct beside *b, uint64_t latency)
{
	uint64_t left = slice_excess(latency, by_arrival(s, b, 0)) / 4, often = latency / 10;

	left = left < often ? left : often;
	return left > s->params.look_ns ? left : s->params.look_ns;
}

/* Until those have had their short slices that have no latency. */
static uint64_t turning(const struct rtxg_slice *s, const struct beside *b)
{
	/* In a change-over two of them are enabled. */
	return rounds(s, 2, s->params.slice_critical_ns) + rounds(s, b->loads, driver_slice(s));
}

static uint64_t by_turns(const struct rtxg_slice *s, const struct beside *b)
{
	const uint32_t both = RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND;

	if ((s->params.can & both) != both)
		return NEVER;
	return turning(s, b) + rounds(s, b->latency, s->params.slice_critical_ns);
}

/* The cheapest mechanism that keeps a bound, and the bound that it gives. */
static enum rtxg_slice_mechanism cheapest(const struct rtxg_slice *s, const struct beside *b,
					  uint64_t latency, uint64_t *bound)
{
	/*
	 * Work that is longer than a slice waits once more for each of its slices: slices alone are
	 * for bounds that leave room for that.
	 */
	*bound = by_slices(s, b, driver_slice(s));
	if (*bound <= latency / 2)
		return RTXG_SLICE_BY_SLICES;
	*bound = by_arrival(s, b, s->params.look_ns);
	if (*bound <= latency) {
		*bound = by_arrival(s, b, look_for(s, b, latency));
		return RTXG_SLICE_BY_ARRIVAL;
	}
	*bound = by_slices(s, b, s->params.slice_min_ns);
	if (*bound <= latency)
		return RTXG_SLICE_BY_SLICES;
	*bound = by_turns(s, b);
	if (*bound <= latency)
		return RTXG_SLICE_BY_TURNS;
	*bound = 0;
	return RTXG_SLICE_BY_NOTHING;
}

static enum rtxg_slice_mechanism best(const struct rtxg_slice *s, const struct beside *b,
				      uint64_t *bound)
{
	uint64_t slices = by_slices(s, b, s->params.slice_min_ns);
	uint64_t arrival = by_arrival(s, b, s->params.look_ns), turns = by_turns(s, b);

	*bound = slices < arrival ? slices : arrival;
	*bound = turns < *bound ? turns : *bound;
	return *bound == NEVER	   ? RTXG_SLICE_BY_NOTHING
	       : *bound == turns   ? RTXG_SLICE_BY_TURNS
	       : *bound == arrival ? RTXG_SLICE_BY_ARRIVAL
				   : RTXG_SLICE_BY_SLICES;
}

enum rtxg_slice_mechanism slice_mechanism(const struct rtxg_slice *s, uint32_t id)
{
	const struct rtxg_slice_tenant *params = &s->tenants[id].params;
	enum rtxg_slice_mechanism mechanism;
	struct beside b;
	uint64_t bound;

	if (!params->latency_ns || slice_critical_params(params))
		return RTXG_SLICE_BY_NOTHING;
	b = look_beside(s, id, id, params);
	mechanism = cheapest(s, &b, params->latency_ns, &bound);
	/* One that was given all the same gets the best that there is. */
	return mechanism ? mechanism : best(s, &b, &bound);
}

uint64_t slice_look_for(const struct rtxg_slice *s, uint32_t id)
{
	struct beside b = look_beside(s, id, id, &s->tenants[id].params);

	return look_for(s, &b, s->tenants[id].params.latency_ns);
}

/* Those are enabled at once in a change-over: the contexts of the two that have most of them. */
static uint32_t enabled_beside(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t i, n, most = 0, second = 0;

	for (i = 0; i < s->tenant_high; i++) {
		if (i == id || !s->tenants[i].used || s->tenants[i].params.latency_ns ||
		    slice_critical(&s->tenants[i]))
			continue;
		n = s->tenants[i].contexts;
		second = n > most ? most : n > second ? n : second;
		most = n > most ? n : most;
	}
	return most + second ? most + second : 1;
}

uint64_t slice_spare(const struct rtxg_slice *s, uint32_t id, uint64_t for_others)
{
	const struct slice_tenant *tenant = &s->tenants[id];
	struct beside b = look_beside(s, id, id, &tenant->params);
	uint64_t used, spare, own;

	if (!tenant->contexts || tenant->mechanism != RTXG_SLICE_BY_SLICES ||
	    !(s->params.can & RTXG_SLICE_CAN_SUSPEND))
		return 0;
	/* What has its slice first, and what the host may be doing when the time is over. */
	used = rounds(s, enabled_beside(s, id), driver_slice(s)) + s->params.stop_ns +
	       (b.all - 1) * s->params.stop_more_ns + s->params.resume_ns + SET_COSTS + LATE;
	/* Its work may have waited for that long before it was seen. */
	used += s->params.tick_ns + slice_excess(tenant->params.latency_ns, for_others);
	/* Its contexts come onto the engine one after the other, and all of them in each place. */
	own = rounds(s, tenant->contexts, driver_slice(s));
	if (tenant->contexts > 1 && slice_by_the_clock(s, id) && slice_clock_place(s, id) < own)
		return 0;
	used += own - rounds(s, 1, driver_slice(s));
	spare = slice_excess(for_others, used);
	return spare < SLICE_SPARE_MIN ? 0 : spare;
}

uint64_t slice_for_bound(const struct rtxg_slice *s, uint32_t id, uint64_t *others)
{
	const struct slice_tenant *tenant = &s->tenants[id];
	struct beside b = look_beside(s, id, id, &tenant->params);
	uint64_t latency = tenant->params.latency_ns, used, slice, least, most;

	switch (tenant->mechanism) {
	case RTXG_SLICE_BY_SLICES:
		least = s->params.slice_min_ns;
		slice = slice_in(s, b.all + b.latency,
				 slice_excess(latency, rounds(s, b.loads, driver_slice(s))));
		/* Shorter slices of others with a latency leave time to stand still. */
		most = slice_excess(latency, rounds(s, b.latency + b.loads, driver_slice(s)));
		if (slice_by_the_clock(s, id) && slice > driver_slice(s) &&
		    slice_spare(s, id, most))
			slice = driver_slice(s);
		break;
	case RTXG_SLICE_BY_ARRIVAL:
		least = least_slice(s);
		/* Two of the others may be let work beside it. */
		used = stopping(s, &b, tenant->look);
		if (used < rounds(s, 2, least) &&
		    rounds(s, 2, least) + rounds(s, b.latency, least) <= latency)
			used = rounds(s, 2, least);
		slice = slice_in(s, b.latency, slice_excess(latency, used));
		break;
	default:
		least = s->params.slice_critical_ns;
		slice = slice_in(s, b.latency, slice_excess(latency, turning(s, &b)));
		break;
	}
	slice = slice > least ? slice : least;
	*others = slice_excess(latency,
			       rounds(s, b.latency, slice) + rounds(s, b.loads, driver_slice(s)));
	return slice;
}

uint64_t slice_within(const struct rtxg_slice *s, uint32_t contexts, uint64_t ns)
{
	return slice_in(s, contexts ? contexts : 1, ns);
}

/* The tenant whose bound holds now and would not with this one, or NONE. */
static uint32_t broken_by(const struct rtxg_slice *s, uint32_t tenant,
			  const struct rtxg_slice_tenant *params)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		const struct slice_tenant *other = &s->tenants[i];
		struct beside now, then;
		uint64_t bound;

		if (i == tenant || !other->used || !other->params.latency_ns ||
		    slice_critical(other))
			continue;
		now = look_beside(s, i, i, &other->params);
		then = look_beside(s, i, tenant, params);
		if (cheapest(s, &now, other->params.latency_ns, &bound) &&
		    !cheapest(s, &then, other->params.latency_ns, &bound))
			return i;
	}
	return NONE;
}

int rtxg_slice_admit(const struct rtxg_slice *s, uint32_t tenant,
		     const struct rtxg_slice_tenant *params, struct rtxg_slice_admission *admission)
{
	uint64_t reserved;
	struct beside b;
	uint32_t i;

	if (!slice_params_valid(params))
		return -EINVAL;
	b = look_beside(s, tenant, tenant, params);
	reserved = params->min_ppm;
	for (i = 0; i < s->tenant_high; i++)
		reserved += i != tenant && s->tenants[i].used ? s->tenants[i].params.min_ppm : 0;
	*admission = (struct rtxg_slice_admission){
		.contexts = b.all,
		.loads = b.loads,
		.beside = b.tenants,
		.critical = b.critical,
		.reserved_ppm = reserved > UINT32_MAX ? UINT32_MAX : (uint32_t)reserved,
		.breaks = broken_by(s, tenant, params),
	};
	admission->best_mechanism = best(s, &b, &admission->best_ns);
	if (params->latency_ns && !slice_critical_params(params)) {
		if (admission->best_ns == NEVER)
			return -ENOTSUP;
		admission->mechanism = cheapest(s, &b, params->latency_ns, &admission->bound_ns);
		/* Then no other bound would do either. */
		if (!admission->mechanism && admission->breaks == NONE)
			return -ERANGE;
	}
	if (admission->breaks != NONE)
		return -EBUSY;
	return reserved > PPM ? -ENOSPC : 0;
}
