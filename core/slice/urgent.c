// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * urgent.c - tenants with a latency: whose work is there, and who keeps the bound for the moment.
 * A tenant keeps it as long as it is not too far ahead of its share; from then on it is one of the
 * batch until it is level, so that a bound is no way around a share.
 *
 * May not: stop a context or set a slice.
 */
#include "internal.h"

/* Shares are kept by slices for so long after they were needed, for setting a slice costs most. */
#define SHARES_FOR (1000 * MS)

/* Turns may be short enough for such a bound, or beside one that turns keep for such a one. */
#define IN_TURNS	(8 * MS)
#define IN_TURNS_BESIDE (30 * MS)
/* One that always had work takes turns for so long after a pause. */
#define TURNS_FOR (300 * MS)

/*
 * Has it more work in its queues than what the engine's host takes ahead? What comes right after
 * that belongs to it: the first token that is made after a prompt was read, say.
 */
static bool works_long(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];

		if (context->used && context->tenant == id && context->wants &&
		    (context->queued || context->pieces < SLICE_PIECES))
			return true;
	}
	return false;
}

/*
 * A tenant that has had its share is not kept from working, but the others work beside it: what it
 * does in small pieces, each waited for, takes turns with their slices. Only while its queues are
 * filled are they stopped, for then slices would cut its work into pieces. The further ahead it is
 * the longer are their slices.
 */
static void reckon_level(const struct rtxg_slice *s, struct slice_tenant *tenant)
{
	bool slices = tenant->mechanism == RTXG_SLICE_BY_SLICES;
	int64_t burst = (int64_t)s->params.burst_ns;
	/* Slices alone keep its bound: the others are stopped if it falls behind its share. */
	int64_t most = slices ? 0 : burst * 2 / 5;
	int64_t least = slices ? -(int64_t)s->params.owed_ns : burst / 5;

	/* In turns by the clock it falls behind by that without being owed anything. */
	if (tenant->joins)
		least = -(int64_t)(SLICE_FRAME / 2);

	if (!slices && slice_within(s, 2, tenant->for_others) < s->params.slice_min_ns)
		tenant->level = false; /* beside the slices of others its bound would not hold */
	else if (tenant->lag > most)
		tenant->level = true;
	else if (tenant->lag < least || !tenant->present)
		tenant->level = false;
	if (tenant->lag > burst * 7 / 10)
		tenant->generous = 2;
	else if (tenant->lag > burst / 2 && !tenant->generous)
		tenant->generous = 1;
	else if (tenant->lag < most)
		tenant->generous = 0;
	else if (tenant->lag < burst / 2 && tenant->generous > 1)
		tenant->generous = 1;
	if (tenant->level && tenant->wants)
		tenant->leveled = s->now;
}

/* Is its bound to be kept now, or may it be at any moment? */
static bool bound_counts(const struct rtxg_slice *s, const struct slice_tenant *tenant)
{
	return tenant->used && tenant->exempt && tenant->contexts &&
	       (tenant->mechanism != RTXG_SLICE_BY_TURNS ||
		(tenant->seen && slice_excess(s->read, tenant->seen) < s->params.critical_idle_ns));
}

/*
 * Work of tenants with a latency goes in turn. So the slices of each of them are as long as the
 * bounds of all others allow.
 */
static void share_bounds(struct rtxg_slice *s)
{
	uint64_t least = s->params.slice_max_ns, second = s->params.slice_max_ns;
	uint64_t slice = slice_or(s->slice_of_others, s->params.slice_mean_ns);
	uint32_t of = NONE, i;

	s->may_leave = true;
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		if (!bound_counts(s, tenant))
			continue;
		if (tenant->mechanism == RTXG_SLICE_BY_ARRIVAL &&
		    slice_within(s, 1, tenant->for_others) < slice)
			s->may_leave = false;
		if (tenant->for_bound < least) {
			second = least;
			least = tenant->for_bound;
			of = i;
		} else if (tenant->for_bound < second) {
			second = tenant->for_bound;
		}
	}
	for (i = 0; i < s->tenant_high; i++)
		s->tenants[i].most_slice = i == of ? second : least;
}

static bool any_by_the_clock(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		if (s->tenants[i].used && slice_by_the_clock(s, i))
			return true;
	return false;
}

/* Is there a tenant whose bound turns keep? It is not stopped, and its work may be long. */
static bool any_kept_by_turns(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		if (s->tenants[i].used && s->tenants[i].contexts &&
		    s->tenants[i].params.latency_ns && !slice_critical(&s->tenants[i]) &&
		    s->tenants[i].mechanism == RTXG_SLICE_BY_TURNS)
			return true;
	return false;
}

/*
 * Beside critical work each slice ends after some 30 us, so of two that work slice by slice most of
 * the engine's time goes into switches. One that always has work, or had until a short pause, takes
 * turns like the others, which are short enough for its bound: see turns.c. Turns by the clock are
 * not.
 */
static bool takes_turns(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[id];
	uint64_t least = any_kept_by_turns(s) ? IN_TURNS_BESIDE : IN_TURNS;

	return s->turns && tenant->mechanism != RTXG_SLICE_BY_TURNS &&
	       tenant->params.latency_ns >= least && tenant->steady &&
	       slice_excess(s->now, tenant->steady) < TURNS_FOR && !any_by_the_clock(s);
}

/* What follows from the parameters and from which contexts there are. */
static void choose_mechanisms(struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		if (!tenant->used || !tenant->params.latency_ns || slice_critical(tenant))
			continue;
		tenant->mechanism = slice_mechanism(s, i);
		tenant->look = slice_look_for(s, i);
		tenant->for_bound = slice_for_bound(s, i, &tenant->for_others);
		tenant->spare = slice_spare(s, i, tenant->for_others);
	}
	s->changed = false;
}

void slice_look_at_urgent(struct rtxg_slice *s)
{
	/* What was charged may have been taken back: then nothing has passed. */
	uint64_t worked = slice_excess(s->worked, s->worked_then);
	int64_t burst = (int64_t)s->params.burst_ns;
	uint32_t i;

	s->worked_then += worked;
	if (s->changed)
		choose_mechanisms(s);
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];
		int64_t ahead;
		bool slices;

		tenant->overdraft =
			slice_excess(tenant->overdraft, slice_scaled(worked, tenant->share_ppm));
		tenant->exempt = tenant->urgent = tenant->in_turns = false;
		tenant->busy = !tenant->wants ? 0 : tenant->busy ? tenant->busy : s->now;
		tenant->steady = slice_is_steady(s, i) ? s->now : tenant->steady;
		if (!tenant->used || !tenant->params.latency_ns || slice_critical(tenant)) {
			tenant->level = tenant->joins = false;
			tenant->generous = 0;
			continue;
		}
		slices = tenant->mechanism == RTXG_SLICE_BY_SLICES;
		reckon_level(s, tenant);
		ahead = (int64_t)tenant->overdraft;
		ahead = tenant->lag < ahead ? tenant->lag : ahead;
		if (ahead > burst)
			tenant->over = true;
		else if (ahead <= burst / 2 || !tenant->present)
			tenant->over = false;
		tenant->in_turns = !tenant->over && !tenant->capped && takes_turns(s, i);
		tenant->exempt = !tenant->over && !tenant->capped && !tenant->in_turns;
		if (!tenant->exempt || !tenant->wants)
			continue;
		if (slices)
			tenant->urgent = !tenant->level && !slice_keeps_place(s, i);
		else
			tenant->urgent = tenant->known &&
					 (!tenant->level ||
					  (tenant->lag < burst * 9 / 10 && works_long(s, i)));
	}
	share_bounds(s);
}

bool slice_arrival(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		if (s->tenants[i].urgent)
			return true;
	return false;
}

bool slice_latency_needs_turns(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		const struct slice_tenant *tenant = &s->tenants[i];

		if (tenant->exempt && tenant->mechanism == RTXG_SLICE_BY_TURNS && tenant->seen &&
		    slice_excess(s->read, tenant->seen) < s->params.critical_idle_ns)
			return true;
	}
	return false;
}

/* Does it share the engine with others slice by slice, now or of late? */
static bool shares_slices(const struct rtxg_slice *s, const struct slice_tenant *tenant)
{
	return tenant->exempt && tenant->present && tenant->leveled &&
	       tenant->mechanism != RTXG_SLICE_BY_TURNS &&
	       slice_excess(s->now, tenant->leveled) < SHARES_FOR;
}

/* The longest slice of each of the others with which the bound of this tenant is kept. */
static uint64_t longest_beside(const struct rtxg_slice *s, const struct slice_tenant *tenant,
			       uint32_t others)
{
	bool slices = tenant->mechanism == RTXG_SLICE_BY_SLICES;
	uint64_t most = slices ? s->params.slice_mean_ns : s->params.slice_max_ns;
	uint64_t slice = slice_within(s, others, tenant->for_others);

	slice = slice < most ? slice : most;
	return slice < s->params.slice_min_ns ? s->params.slice_min_ns : slice;
}

/*
 * Slices in the ratio of the shares, or of more for the others, where this tenant has the longest
 * slice that it may have.
 */
static uint64_t due_beside(const struct rtxg_slice *s, const struct slice_tenant *tenant,
			   uint32_t others)
{
	uint64_t all = slice_unscaled(tenant->most_slice, tenant->share_ppm) - tenant->most_slice;

	return (all << tenant->generous) / (others ? others : 1);
}

uint64_t slice_beside_others(const struct rtxg_slice *s, const struct slice_tenant *tenant,
			     uint32_t others)
{
	uint64_t due, most, slice = tenant->most_slice;

	if (!shares_slices(s, tenant))
		return 0;
	due = due_beside(s, tenant, others);
	most = longest_beside(s, tenant, others);
	if (due > most)
		slice = slice * (most / US) / (due / US);
	return slice < s->params.slice_min_ns ? s->params.slice_min_ns : slice;
}

uint64_t slice_longest_beside(const struct rtxg_slice *s, uint32_t others)
{
	uint64_t most = NEVER, slice;
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		const struct slice_tenant *tenant = &s->tenants[i];

		/* Work of one that has none now may come at any time. */
		if (!tenant->exempt || !tenant->contexts ||
		    (tenant->mechanism != RTXG_SLICE_BY_SLICES && !shares_slices(s, tenant)))
			continue;
		slice = longest_beside(s, tenant, others);
		most = slice < most ? slice : most;
	}
	return most;
}

uint64_t slice_latency_slice(const struct rtxg_slice *s, uint32_t others)
{
	uint64_t most = slice_longest_beside(s, others), due = NEVER, slice;
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		if (!shares_slices(s, &s->tenants[i]))
			continue;
		slice = due_beside(s, &s->tenants[i], others);
		due = slice < due ? slice : due;
	}
	slice = due == NEVER ? s->params.slice_mean_ns : due;
	slice = slice < most ? slice : most;
	return slice < s->params.slice_min_ns ? s->params.slice_min_ns : slice;
}
