// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * release.c - when the next release of a periodic critical tenant is expected, whether its contexts
 * are brought onto the engine ahead of it, and whether work that is not urgent keeps clear of it.
 *
 * May not: stop a context or set a slice.
 */
#include "internal.h"

/* releases that were seen as expected before a context is brought in ahead of them */
#define WARM_AFTER  10
#define HITS_MOST   (2 * WARM_AFTER)
#define ODD	    5	/* a start that was not as expected takes back so many that were */
#define EARLIER	    3	/* releases are earlier if starts of so many in a row were */
#define WARM_LISTEN 200 /* one release of so many is waited for */
/* in a shorter period, in units of warm_ns, a context would be on the engine early too often */
#define WARM_PERIODS 8
/*
 * Work that is not urgent keeps so far from a release: ahead of it the others are stopped, after it
 * the critical context is running. A period of CALM_PERIOD or less leaves no room for that.
 */
#define CALM_BEFORE (4 * MS)
#define CALM_AFTER  (1 * MS)
#define CALM_PERIOD (8 * MS)
#define CALM_MOST   (100 * MS) /* work that is not urgent is put off no longer than this */
/* a host that comes so late, or later, is given that time; at most; of it is forgotten a release */
#define LATE	    (250 * US)
#define LATE_MOST   (1 * MS)
#define LATE_FORGET 16
#define RELOCK	    8 /* starts in a row that do not fit the period: it has a new phase */
/* a start is as expected that is so early, or so late, a part of the period */
#define AS_EARLY 100
#define AS_LATE	 50
/*
 * The period that was told may be wrong by such a part of it: 2.5 %. Releases are where the
 * earliest starts are, so the earliest of each BLOCK of starts is looked at. It is where it was
 * expected if it is off by STRAY or less, or by such a part of the period.
 */
#define PERIOD_OFF 40
#define BLOCK	   8
#define STRAY	   (150 * US)
#define STRAY_PART 110

/*
 * From one release to the next, as far as is known. It says when releases are; what was told says
 * all else, as how near to each other two of them are, for which it is exact enough.
 */
static uint64_t period_of(const struct slice_tenant *tenant)
{
	return slice_or(tenant->period, tenant->params.period_ns);
}

/* Are its releases far enough apart for a context to be brought in ahead of each? */
static bool may_warm(const struct rtxg_slice *s, const struct slice_tenant *tenant)
{
	return slice_critical(tenant) && tenant->params.period_ns &&
	       tenant->params.period_ns >= WARM_PERIODS * s->params.warm_ns;
}

/*
 * Is this release one before which its contexts are brought onto the engine? Up to the next one
 * that is waited for no start shows that the period is wrong. One that was learnt was right for as
 * long before.
 */
static bool warms_for(const struct rtxg_slice *s, const struct slice_tenant *tenant,
		      uint64_t release)
{
	return may_warm(s, tenant) && tenant->contexts && tenant->warming == tenant->contexts &&
	       tenant->regular && tenant->measured >= WARM_LISTEN && release && release != NEVER &&
	       release >= tenant->listen && release / tenant->params.period_ns % WARM_LISTEN;
}

/* The starts that were seen may yet show which period there is. */
static void forget_phase(struct slice_tenant *tenant)
{
	tenant->phase = tenant->listen = 0;
	tenant->release = NEVER;
	tenant->misses = tenant->hits = tenant->earlier = tenant->delayed = 0;
	tenant->early_for = 0;
	tenant->regular = tenant->was_regular = false;
}

void slice_forget_phase(struct slice_tenant *tenant)
{
	forget_phase(tenant);
	tenant->base = 0;
	tenant->counted = 0;
}

void slice_forget_releases(struct slice_tenant *tenant)
{
	slice_forget_phase(tenant);
	tenant->period = 0;
	tenant->doubted = false;
	tenant->measured = WARM_LISTEN; /* what was told holds until starts say otherwise */
}

/* A start was seen that was as expected, or was not: once says little of the others. */
static void count_start(struct slice_tenant *tenant, bool as_expected)
{
	if (as_expected)
		tenant->hits += tenant->hits < HITS_MOST;
	else
		tenant->hits = tenant->hits > ODD ? tenant->hits - ODD : 0;
	if (tenant->hits >= WARM_AFTER) {
		tenant->regular = tenant->was_regular = true;
		tenant->doubted = false;
	} else if (!tenant->hits) {
		tenant->regular = false;
	}
}

/*
 * It came much too early for the release at `due`. Where releases are known that may be other work,
 * as what a library does once; so may it be if it comes ahead of each, but then that counts.
 */
static bool is_other_work(struct slice_tenant *tenant, uint64_t due)
{
	bool again = due < tenant->early_for + tenant->params.period_ns * 3 / 2;

	if (!tenant->regular)
		return false;
	tenant->earlier = again ? tenant->earlier + (due > tenant->early_for) : 1;
	tenant->early_for = due;
	return tenant->earlier < EARLIER;
}

/*
 * It started so late: by so much its releases are later than was expected. What was still running
 * delays a start, and the clocks may drift: that is followed slowly. But what delays starts does
 * not delay RELOCK of them in a row by the same. Where none was known yet that is how late releases
 * are: the first start that was seen is of what the program does before its first release.
 */
static uint64_t follow(struct slice_tenant *tenant, uint64_t late)
{
	uint64_t period = tenant->params.period_ns, drift = period / 1000, least, most;

	if (late <= period / AS_LATE || tenant->was_regular) {
		tenant->delayed = 0;
		return late < drift ? late : drift;
	}
	/* Those before are counted from what was expected then. */
	least = tenant->delayed ? tenant->least_late - drift : late;
	most = tenant->delayed ? tenant->most_late - drift : late;
	tenant->least_late = least < late ? least : late;
	tenant->most_late = most > late ? most : late;
	tenant->delayed++;
	if (tenant->delayed < RELOCK)
		return drift;
	tenant->delayed = 0;
	return tenant->most_late - tenant->least_late > period / AS_LATE ? drift
									 : tenant->least_late;
}

/* So far off the earliest start of a block is where it was expected. */
static uint64_t stray(const struct slice_tenant *tenant)
{
	uint64_t part = tenant->params.period_ns / STRAY_PART;

	return part > STRAY ? part : STRAY;
}

static uint64_t magnitude(int64_t value)
{
	return (uint64_t)(value < 0 ? -value : value);
}

/* So late is a start for the nearest release if there was one at `from`, *n periods before. */
static int64_t lateness(uint64_t from, uint64_t at, uint64_t period, uint64_t *n)
{
	*n = (at - from + period / 2) / period;
	return (int64_t)(at - from - *n * period);
}

/*
 * Starts were late by `before` after n_before periods, and are by `late` after n: is the period
 * wrong? Then lateness grows evenly. What delays starts for a while makes it jump, which shows if
 * the last n - n_before periods are no small part of all.
 */
static bool is_drift(int64_t before, uint64_t n_before, int64_t late, uint64_t n, uint64_t stray_ns)
{
	uint64_t bend = magnitude(late * (int64_t)n_before - before * (int64_t)n);

	return n_before && n > n_before && bend <= magnitude(late) * n_before / 3 &&
	       bend <= 3 * stray_ns * n_before &&
	       (magnitude(before) <= stray_ns || n_before <= 2 * (n - n_before));
}

/*
 * A block of starts is over. While they are as expected they are compared with one ever longer ago,
 * so that a period that is hardly wrong shows, too. True: it was wrong, and is known now.
 */
static bool measure_period(struct slice_tenant *tenant)
{
	uint64_t told = tenant->params.period_ns, period = period_of(tenant), n_before, n;
	int64_t before = lateness(tenant->base, tenant->recent, period, &n_before);
	int64_t late = lateness(tenant->base, tenant->least, period, &n);
	uint64_t since = tenant->least - tenant->base;

	if (magnitude(late) <= stray(tenant)) {
		tenant->recent = tenant->least;
		tenant->measured = n > tenant->measured ? n : tenant->measured;
		return false;
	}
	tenant->base = tenant->recent;
	tenant->recent = tenant->least;
	if (!is_drift(before, n_before, late, n, stray(tenant)))
		return false;
	period = (since + n / 2) / n;
	if (period < told - told / PERIOD_OFF || period > told + told / PERIOD_OFF)
		return false;
	tenant->period = period;
	tenant->measured = n;
	return true;
}

/*
 * Starts do not fit. A period that was learnt and has held for long may be right all the same, and
 * releases are at other times. If that comes again before they are known, neither does it fit, nor
 * is the one that was told known to.
 */
static void doubt_period(struct slice_tenant *tenant)
{
	if (!tenant->period)
		return;
	tenant->doubted = tenant->measured >= WARM_LISTEN && !tenant->doubted;
	if (!tenant->doubted)
		tenant->period = tenant->measured = 0;
}

/* Learns the period from a start. True: it is another one, and there was a release at `least`. */
static bool learn_period(struct slice_tenant *tenant, uint64_t at)
{
	uint64_t period = period_of(tenant), n;
	int64_t late = tenant->counted ? lateness(tenant->least, at, period, &n) : 0;

	if (!tenant->counted || (late < 0 && magnitude(late) < period / 4))
		tenant->least = at;
	if (++tenant->counted < BLOCK)
		return false;
	tenant->counted = 0;
	if (tenant->base)
		return measure_period(tenant);
	tenant->base = tenant->recent = tenant->least;
	return false;
}

void slice_learn_release(const struct rtxg_slice *s, struct slice_tenant *tenant, uint64_t at)
{
	uint64_t period = period_of(tenant), expected, late, early;
	bool odd;

	if (!period)
		return;
	if (!tenant->phase) {
		tenant->phase = at;
		tenant->release = at + period;
		return;
	}
	if (at <= tenant->phase) {
		if (tenant->phase - at < period / AS_EARLY)
			tenant->phase = at;
		return;
	}
	/* It has come for that release before, and is back. */
	if (at - tenant->phase < period / 4)
		return;
	expected = tenant->phase + (at - tenant->phase) / period * period;
	late = at - expected;
	early = expected + period - at;
	/*
	 * It came in ahead of time because it was brought in: that says nothing about the release.
	 * The log may tell of it when later releases have passed.
	 */
	if (early <= s->params.warm_ns && warms_for(s, tenant, expected + period))
		return;
	odd = early < late ? early > period / AS_EARLY : late > period / AS_LATE;
	/* Releases may be earlier by now: that does not show where it is brought in. */
	if (odd && early <= s->params.warm_ns)
		tenant->listen = expected + period * (EARLIER + 2);
	/* Where releases are known an odd start may be other work, or delayed. */
	if (!(odd && tenant->regular) && learn_period(tenant, at)) {
		/* Earlier starts are followed as they come. */
		if (tenant->period > period)
			tenant->phase = tenant->least;
		period = tenant->period;
		tenant->delayed = 0;
		expected = tenant->phase + (at - tenant->phase) / period * period;
		late = at - expected;
		early = expected + period - at;
	}
	if (early < late && early < period / 4) {
		/* No start was seen so early before: releases are where the earliest starts are. */
		count_start(tenant, early <= period / AS_EARLY);
		if (early > period / AS_EARLY && is_other_work(tenant, expected + period))
			return;
		tenant->phase = at;
		tenant->misses = tenant->delayed = 0;
	} else if (late < period / 4) {
		tenant->phase = expected + follow(tenant, late);
		tenant->misses = 0;
		count_start(tenant, late <= period / AS_LATE);
	} else if (++tenant->misses >= RELOCK) {
		doubt_period(tenant);
		forget_phase(tenant);
		tenant->phase = at;
	} else {
		tenant->phase = expected;
		tenant->delayed = 0;
	}
	tenant->release = tenant->phase + period;
}

/* The others are stopped so long ahead of a release. */
static uint64_t lead(const struct rtxg_slice *s)
{
	return s->params.lead_ns + s->late;
}

/*
 * The others are stopped from now on. If the host came late it is likely to do so again soon, for
 * whatever kept it from its CPU goes on for a while: it is given that time from then on.
 */
static void begin_hold(struct rtxg_slice *s, struct slice_tenant *tenant)
{
	uint64_t late = slice_excess(s->now + lead(s), tenant->release);

	if (tenant->held_for == tenant->release)
		return;
	/* One that has just become known is no case of that. */
	if (tenant->held_for + tenant->params.period_ns / 2 < tenant->release &&
	    tenant->held_for + tenant->params.period_ns * 3 / 2 > tenant->release) {
		s->late -= s->late / LATE_FORGET;
		if (late > LATE && late > s->late)
			s->late = late < LATE_MOST ? late : LATE_MOST;
	}
	tenant->held_for = tenant->release;
}

bool slice_hold(struct rtxg_slice *s, bool *periodic)
{
	bool hold = false;
	uint32_t i;

	*periodic = false;
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];
		uint64_t period = period_of(tenant);

		if (!tenant->used || !slice_critical(tenant) || !tenant->params.period_ns ||
		    tenant->release == NEVER || !tenant->release)
			continue;
		if (slice_excess(s->now, tenant->seen) >= s->params.critical_idle_ns)
			continue;
		*periodic = true;
		if (s->now >= tenant->release + s->params.hold_ns) {
			tenant->release +=
				(s->now - tenant->release - s->params.hold_ns) / period * period +
				period;
		}
		if (s->now + lead(s) >= tenant->release) {
			hold = true;
			begin_hold(s, tenant);
			slice_wake_unread(s, tenant->release + s->params.hold_ns);
		} else {
			slice_wake_unread(s, tenant->release - lead(s));
		}
	}
	return hold;
}

uint64_t rtxg_slice_next_release(const struct rtxg_slice *s, uint32_t id)
{
	if (id >= s->tenant_count || !s->tenants[id].used || !slice_critical(&s->tenants[id]) ||
	    !s->tenants[id].params.period_ns || !s->tenants[id].release)
		return NEVER;
	return s->tenants[id].release;
}

uint64_t rtxg_slice_next_warm(const struct rtxg_slice *s, uint32_t id)
{
	if (id >= s->tenant_count || !s->tenants[id].used ||
	    !warms_for(s, &s->tenants[id], s->tenants[id].release))
		return NEVER;
	return s->tenants[id].release - s->params.warm_ns;
}

bool rtxg_slice_asks_warm(const struct rtxg_slice *s, uint32_t id)
{
	return id < s->context_count && s->contexts[id].used && !s->contexts[id].warms &&
	       may_warm(s, &s->tenants[s->contexts[id].tenant]);
}

uint64_t rtxg_slice_calm_at(const struct rtxg_slice *s, uint64_t now_ns, uint64_t due_ns)
{
	uint64_t at = now_ns;
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		const struct slice_tenant *tenant = &s->tenants[i];
		uint64_t next = rtxg_slice_next_release(s, i);

		if (next == NEVER || tenant->params.period_ns <= CALM_PERIOD)
			continue;
		if (next + CALM_AFTER > now_ns && next < now_ns + CALM_BEFORE &&
		    next + CALM_AFTER > at)
			at = next + CALM_AFTER;
	}
	if (at > due_ns + CALM_MOST)
		at = due_ns + CALM_MOST;
	return at > now_ns ? at : now_ns;
}
