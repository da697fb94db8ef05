// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * slice.c - see rtxg_slice.h.
 *
 * Two halves. plan() decides what ought to be: for each context whether it is stopped and how long
 * its slice is, and when to look again. emit() compares that with what was last commanded and hands
 * out the difference as actions. So an action is never forgotten, and none is given twice.
 */
#include "rtxg_slice.h"

#define PPM   RTXG_SLICE_PPM
#define NONE  RTXG_SLICE_NONE
#define NEVER RTXG_SLICE_NEVER
#define US    1000ull
#define MS    1000000ull
#define LIMIT 4096u
#define MAGIC 0x736c6963u

#define GAIN_INTERVAL (500 * MS) /* between corrections of slices */
#define GAIN_MIN      (PPM / 4)
#define GAIN_MAX      (PPM * 4)
/* 0.1 %: what a tenant of no account is reckoned with, so that nothing is divided by 0 */
#define SHARE_MIN 1000u
/* virtual time of the one furthest behind: far from 0, for what is charged back must not be lost */
#define VBASE (1ull << 40)
/* releases that were seen as expected before a context is brought in ahead of them */
#define WARM_AFTER  20
#define WARM_LISTEN 200 /* one release of so many is waited for */
/* in a shorter period, in units of warm_ns, it would be on the engine ahead of time too often */
#define WARM_PERIODS 8
/*
 * What is not urgent keeps so far from a release: ahead of it the others are stopped, after it the
 * critical context is running. It cannot with a period of less than CALM_PERIOD.
 */
#define CALM_BEFORE (4 * MS)
#define CALM_AFTER  (1 * MS)
#define CALM_PERIOD (8 * MS)
#define CALM_MOST   (100 * MS) /* what is not urgent is put off no longer than this */
#define RELOCK	    8	       /* starts in a row that do not fit the period: it has a new phase */

struct tenant {
	bool used;
	struct rtxg_slice_tenant p;
	uint32_t share_ppm;	    /* among those present */
	uint32_t gain_ppm;	    /* correction of its slices */
	bool present;		    /* wants the GPU: a context of it is active, or stopped */
	bool ahead;		    /* stopped because of its lag */
	bool capped;		    /* stopped because of its cap */
	uint32_t contexts, warming; /* warming: of the contexts, those whose programs can */
	/* virtual time: work over share; VBASE = the one that is furthest behind */
	uint64_t v;
	int64_t lag;
	uint64_t cap_start, cap_used;
	uint64_t gain_work; /* work since the last correction */
	bool gain_whole;    /* was present all the time since */
	uint64_t seen;	    /* last on the engine */
	/* periodic: time of its last release, as far as can be told; 0 = unknown */
	uint64_t phase;
	uint64_t release;      /* the next one; NEVER = unknown */
	uint32_t misses, hits; /* in a row */
	uint64_t work, stay, stays, stopped;
	/* time of contexts stopped; time in which any of its contexts was active */
	uint64_t stopped_ns, wanted_ns;
};

struct context {
	bool used, bad;
	bool warms; /* its program comes onto the engine when it is told to */
	uint32_t tenant;
	bool active;
	uint64_t seen;	  /* last time known to be on the engine, or enabled anew */
	uint64_t since;	  /* start of the present stay; 0 = off the engine */
	uint64_t charged; /* charged up to then */
	uint64_t moved;	  /* during this stay it was moved here from `old`; 0 = it was not */
	uint32_t old;
	uint64_t work;			/* order within the tenant */
	uint64_t worked, stayed, stays; /* since it was added; for people */
	uint64_t stopped_at, stopped;	/* ... and for how long it was stopped */
	/* has not been on the engine since it was last enabled */
	bool fresh;
	bool want_stop, is_stopped;
	uint64_t want_slice, slice; /* 0 = as the driver set it */
};

struct rtxg_slice {
	uint32_t magic, tenants, contexts;
	struct rtxg_slice_params p;
	uint64_t now;
	uint64_t timer, armed;
	uint64_t planned; /* when plan() last looked */
	bool turns;
	uint32_t turn; /* context whose turn it is */
	uint64_t turn_start;
	uint32_t holder; /* context on the engine as far as the log says */
	uint64_t gain_at;
	struct tenant *t;
	struct context *c;
};

static uint64_t or_default(uint64_t v, uint64_t d)
{
	return v ? v : d;
}

size_t rtxg_slice_size(uint32_t tenants, uint32_t contexts)
{
	if (!tenants || !contexts || tenants > LIMIT || contexts > LIMIT)
		return 0;
	return (sizeof(struct rtxg_slice) + tenants * sizeof(struct tenant) +
		contexts * sizeof(struct context) + 15) &
	       ~(size_t)15;
}

struct rtxg_slice *rtxg_slice_init(void *mem, size_t size, uint32_t tenants, uint32_t contexts,
				   const struct rtxg_slice_params *params, uint64_t now_ns)
{
	size_t need = rtxg_slice_size(tenants, contexts), i;
	struct rtxg_slice *s = mem;

	if (!mem || !need || size < need || !params)
		return NULL;
	for (i = 0; i < need; i++)
		((unsigned char *)mem)[i] = 0;
	s->magic = MAGIC;
	s->tenants = tenants;
	s->contexts = contexts;
	s->t = (struct tenant *)(s + 1);
	s->c = (struct context *)(s->t + tenants);
	s->p = *params;
	s->p.dead_band_ppm = (uint32_t)or_default(params->dead_band_ppm, 3000);
	s->p.switch_ns = or_default(params->switch_ns, 84 * US);
	s->p.save_ns = or_default(params->save_ns, 130 * US);
	s->p.slice_mean_ns = or_default(params->slice_mean_ns, 2 * MS);
	s->p.slice_max_ns = or_default(params->slice_max_ns, 4 * MS);
	s->p.slice_min_ns = or_default(params->slice_min_ns,
				       params->can & RTXG_SLICE_CAN_SUSPEND ? 1 * MS : 200 * US);
	s->p.slice_critical_ns = or_default(params->slice_critical_ns, 30 * US);
	s->p.lag_ns = or_default(params->lag_ns, 2 * MS);
	s->p.tick_ns = or_default(params->tick_ns, 3 * MS);
	s->p.turn_ns = or_default(params->turn_ns, 100 * MS);
	s->p.idle_ns = or_default(params->idle_ns, 40 * MS);
	s->p.critical_idle_ns = or_default(params->critical_idle_ns, 1000 * MS);
	s->p.lead_ns = or_default(params->lead_ns, 1 * MS);
	s->p.hold_ns = or_default(params->hold_ns, 200 * US);
	s->p.cap_window_ns = or_default(params->cap_window_ns, 100 * MS);
	s->p.warm_ns = or_default(params->warm_ns, 350 * US);
	s->now = s->planned = now_ns;
	s->timer = s->armed = NEVER;
	s->turn = NONE;
	s->holder = NONE;
	s->gain_at = now_ns + GAIN_INTERVAL;
	return s;
}

static bool critical_params(const struct rtxg_slice_tenant *params)
{
	return params->priority >= RTXG_SLICE_CRITICAL_PRIORITY;
}

static bool critical(const struct tenant *t)
{
	return critical_params(&t->p);
}

/* The weight in parts per million of a reservation, so that a small reservation is not rounded. */
static uint64_t weight_ppm(const struct tenant *t)
{
	if (t->p.weight != RTXG_SLICE_WEIGHT_NOT_GIVEN)
		return (uint64_t)t->p.weight * RTXG_SLICE_WEIGHT_PPM;
	if (t->p.min_ppm)
		return t->p.min_ppm;
	return (uint64_t)RTXG_SLICE_WEIGHT_UNRESERVED * RTXG_SLICE_WEIGHT_PPM;
}

/* Accounting */

static uint64_t scaled(uint64_t ns, uint32_t ppm)
{
	return ns / PPM * ppm + ns % PPM * ppm / PPM;
}

static uint64_t unscaled(uint64_t ns, uint32_t ppm)
{
	return ns / ppm * PPM + ns % ppm * PPM / ppm;
}

static void charge_work(struct rtxg_slice *s, struct context *c, uint64_t ns)
{
	struct tenant *t = &s->t[c->tenant];

	c->work += ns;
	c->worked += ns;
	t->work += ns;
	t->cap_used += ns;
	t->gain_work += ns;
	t->v += unscaled(ns, t->share_ppm ? t->share_ppm : PPM);
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static void charge_back(struct rtxg_slice *s, uint32_t tenant, struct context *c, uint64_t ns)
{
	struct tenant *t = &s->t[tenant];

	c->work = less(c->work, ns);
	c->worked = less(c->worked, ns);
	t->work = less(t->work, ns);
	t->cap_used = less(t->cap_used, ns);
	t->gain_work = less(t->gain_work, ns);
	t->v = less(t->v, unscaled(ns, t->share_ppm ? t->share_ppm : PPM));
}

/* It was not even on the engine. */
static void stay_back(struct rtxg_slice *s, uint32_t tenant, struct context *c, uint64_t ns)
{
	c->stayed = less(c->stayed, ns);
	s->t[tenant].stay = less(s->t[tenant].stay, ns);
	charge_back(s, tenant, c, ns);
}

static void charge(struct rtxg_slice *s, struct context *c, uint64_t upto)
{
	if (!c->since || upto <= c->charged)
		return;
	s->t[c->tenant].stay += upto - c->charged;
	c->stayed += upto - c->charged;
	charge_work(s, c, upto - c->charged);
	c->charged = upto;
}

static void seen(struct rtxg_slice *s, struct context *c, uint64_t at)
{
	if (at > c->seen)
		c->seen = at;
	if (at > s->t[c->tenant].seen)
		s->t[c->tenant].seen = at;
}

static void ended(struct rtxg_slice *s, uint32_t id, uint64_t at)
{
	struct context *c = &s->c[id];
	uint64_t slice = or_default(c->slice, 2 * MS), stay;

	if (s->holder == id)
		s->holder = NONE;
	if (!c->since)
		return;
	if (at < c->since)
		at = c->since;
	if (at >= c->charged) {
		charge(s, c, at);
	} else if (at < c->moved) {
		/*
		 * charged up to a moment that the log had not come to yet, in part to the tenant
		 * that it has left
		 */
		stay_back(s, c->tenant, c, c->charged - c->moved);
		if (s->t[c->old].used)
			stay_back(s, c->old, c, c->moved - at);
	} else {
		stay_back(s, c->tenant, c, c->charged - at);
	}
	stay = less(at, c->since);
	/*
	 * Cut short by the hardware or by us: the last part was saving. The hardware counts slices
	 * in units of 1.024 us.
	 */
	if (stay > slice + slice / 32 || c->is_stopped)
		charge_back(s, c->tenant, c, stay < s->p.save_ns ? stay : s->p.save_ns);
	c->since = c->moved = 0;
	seen(s, c, at);
}

/* Whose release comes when (periodic critical tenants) */

/* Are its releases far enough apart for a context to be brought in ahead of each? */
static bool may_warm(const struct rtxg_slice *s, const struct tenant *t)
{
	return critical(t) && t->p.period_ns && t->p.period_ns >= WARM_PERIODS * s->p.warm_ns;
}

/* Is the next release one before which its contexts are brought onto the engine? */
static bool warms(const struct rtxg_slice *s, const struct tenant *t)
{
	return may_warm(s, t) && t->contexts && t->warming == t->contexts &&
	       t->hits >= WARM_AFTER && t->release && t->release != NEVER &&
	       t->release / t->p.period_ns % WARM_LISTEN;
}

static void learn_release(const struct rtxg_slice *s, struct tenant *t, uint64_t at)
{
	uint64_t period = t->p.period_ns, expected, late, early, drift = period / 1000;

	if (!period)
		return;
	/*
	 * That it came in ahead of time, because it was brought in, says nothing of the release
	 * itself.
	 */
	if (warms(s, t) && at < t->release && t->release - at <= s->p.warm_ns)
		return;
	if (!t->phase) {
		t->phase = at;
		t->release = at + period;
		return;
	}
	if (at <= t->phase) {
		if (t->phase - at < period / 4)
			t->phase = at;
		return;
	}
	expected = t->phase + (at - t->phase) / period * period;
	late = at - expected;
	early = expected + period - at;
	if (early < late && early < period / 4) {
		/* never before was one seen so early: releases are where the earliest starts are */
		t->phase = at;
		t->misses = 0;
		t->hits = early > period / 100 ? 0 : t->hits + 1;
	} else if (late < period / 4) {
		/* Delayed by what was still running; follow slowly, for the clocks may drift. */
		t->phase = expected + (late < drift ? late : drift);
		t->misses = 0;
		t->hits = late > period / 50 ? 0 : t->hits + 1;
	} else if (++t->misses >= RELOCK) {
		t->phase = at;
		t->misses = t->hits = 0;
	} else {
		t->phase = expected;
	}
	t->release = t->phase + period;
}

/* Deciding */

static void set_active(struct rtxg_slice *s, struct context *c, bool active)
{
	struct tenant *t = &s->t[c->tenant];

	if (active && !t->present) {
		t->present = true;
		t->gain_whole = false;
		/*
		 * It has saved up nothing while it was idle: look_around() puts it level with the
		 * one furthest behind.
		 */
	}
	c->active = active;
}

static void look_around(struct rtxg_slice *s)
{
	uint64_t min_v = NEVER, guaranteed = 0, weights = 0;
	uint32_t i;

	for (i = 0; i < s->tenants; i++)
		s->t[i].present = false;
	for (i = 0; i < s->contexts; i++) {
		struct context *c = &s->c[i];

		if (!c->used)
			continue;
		if (c->active && !c->is_stopped && !c->want_stop && !c->since && s->now > c->seen &&
		    s->now - c->seen > s->p.idle_ns)
			c->active = false;
		if (c->active)
			s->t[c->tenant].present = true;
	}
	for (i = 0; i < s->tenants; i++) {
		struct tenant *t = &s->t[i];

		if (!t->present || critical(t)) {
			t->gain_whole = false;
			continue;
		}
		guaranteed += t->p.min_ppm;
		weights += weight_ppm(t);
		if (t->v < min_v)
			min_v = t->v;
	}
	for (i = 0; i < s->tenants; i++) {
		struct tenant *t = &s->t[i];
		if (!t->used)
			continue;
		t->v = VBASE + (min_v == NEVER ? 0 : less(t->v, min_v));
		if (!t->present || critical(t)) {
			t->share_ppm = t->p.min_ppm > SHARE_MIN ? t->p.min_ppm : SHARE_MIN;
			t->lag = 0;
			continue;
		}
		if (guaranteed >= PPM)
			t->share_ppm = (uint32_t)((uint64_t)t->p.min_ppm * PPM / guaranteed);
		else
			t->share_ppm = (uint32_t)(t->p.min_ppm +
						  (PPM - guaranteed) * weight_ppm(t) / weights);
		if (t->share_ppm < SHARE_MIN)
			t->share_ppm = SHARE_MIN;
	}
}

/*
 * How far each is ahead of its share: its virtual time against the average one, weighted by share.
 */
static void reckon_lags(struct rtxg_slice *s)
{
	uint64_t sum = 0, shares = 0, average, most;
	uint32_t i;

	/*
	 * A tenant that could not use what it was owed is owed no more than this: else the others
	 * would wait for it in vain.
	 */
	most = 16 * s->p.lag_ns;
	for (i = 0; i < s->tenants; i++) {
		struct tenant *t = &s->t[i];

		if (!t->present || critical(t))
			continue;
		/* 18 minutes of difference: somebody was starved by hand; start anew */
		if (t->v > 2 * VBASE)
			t->v = 2 * VBASE;
		sum += scaled(t->v, t->share_ppm);
		shares += t->share_ppm;
	}
	if (!shares)
		return;
	average = unscaled(sum, (uint32_t)(shares > UINT32_MAX ? UINT32_MAX : shares));
	for (i = 0; i < s->tenants; i++) {
		struct tenant *t = &s->t[i];

		if (!t->present || critical(t))
			continue;
		if (t->v < average && scaled(average - t->v, t->share_ppm) > most)
			t->v = average - unscaled(most, t->share_ppm);
		t->lag = t->v >= average ? (int64_t)scaled(t->v - average, t->share_ppm)
					 : -(int64_t)scaled(average - t->v, t->share_ppm);
	}
}

static bool reckon_caps(struct rtxg_slice *s)
{
	bool any = false;
	uint32_t i;

	for (i = 0; i < s->tenants; i++) {
		struct tenant *t = &s->t[i];
		uint64_t allowed, windows;

		t->capped = false;
		if (!t->used || !t->p.max_ppm || t->p.max_ppm >= PPM || critical(t))
			continue;
		allowed = scaled(s->p.cap_window_ns, t->p.max_ppm);
		windows = less(s->now, t->cap_start) / s->p.cap_window_ns;
		if (windows) {
			/*
			 * what was overdrawn is carried over: in the long run the cap holds exactly
			 */
			t->cap_start += windows * s->p.cap_window_ns;
			t->cap_used = windows > 1000 ? 0 : less(t->cap_used, windows * allowed);
		}
		if (t->cap_used >= allowed) {
			t->capped = true;
			if (t->cap_start + s->p.cap_window_ns < s->timer)
				s->timer = t->cap_start + s->p.cap_window_ns;
		}
		if (t->present)
			any = true;
	}
	return any;
}

static bool critical_active(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenants; i++) {
		const struct tenant *t = &s->t[i];

		if (t->used && critical(t) && t->seen &&
		    less(s->now, t->seen) < s->p.critical_idle_ns)
			return true;
	}
	return false;
}

/*
 * Slices in the ratio of the shares, the mean as long as the driver's own so that no more time goes
 * into switching.
 */
static void spread_slices(struct rtxg_slice *s)
{
	uint64_t parts = 0;
	uint32_t i, n = 0;

	for (i = 0; i < s->contexts; i++) {
		const struct context *c = &s->c[i];
		const struct tenant *t;

		if (!c->used || c->bad || !c->active)
			continue;
		t = &s->t[c->tenant];
		if (critical(t))
			continue;
		n++;
		parts += 1;
	}
	if (!(s->p.can & RTXG_SLICE_CAN_SLICE))
		return;
	if (n < 2)
		return;
	for (i = 0; i < s->tenants; i++) {
		struct tenant *t = &s->t[i];
		uint64_t slice, each = 0, k;

		if (!t->present || critical(t))
			continue;
		for (k = 0; k < s->contexts; k++)
			if (s->c[k].used && s->c[k].active && s->c[k].tenant == i)
				each++;
		if (!each)
			continue;
		slice = scaled(s->p.slice_mean_ns * parts, t->share_ppm);
		slice = slice / PPM * t->gain_ppm + slice % PPM * t->gain_ppm / PPM;
		slice /= each;
		if (slice > s->p.slice_max_ns)
			slice = s->p.slice_max_ns;
		if (slice < s->p.slice_min_ns)
			slice = s->p.slice_min_ns;
		for (k = 0; k < s->contexts; k++) {
			struct context *c = &s->c[k];

			if (!c->used || c->bad || c->tenant != i)
				continue;
			/* A change of less than 3 % is not worth a call. */
			if (!c->want_slice ||
			    (slice > c->want_slice ? slice - c->want_slice
						   : c->want_slice - slice) > c->want_slice / 32)
				c->want_slice = slice;
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

	for (i = 0; i < s->tenants; i++) {
		struct tenant *t = &s->t[i];
		uint64_t n = 0, k, each = 0;

		if (!t->present || critical(t))
			continue;
		for (k = 0; k < s->contexts; k++) {
			if (s->c[k].used && s->c[k].active && !critical(&s->t[s->c[k].tenant]))
				n++;
			if (s->c[k].used && s->c[k].active && s->c[k].tenant == i)
				each++;
		}
		if (!each)
			continue;
		want = scaled(s->p.slice_mean_ns * n, t->share_ppm) / each;
		want = want / PPM * t->gain_ppm + want % PPM * t->gain_ppm / PPM;
		if (want > top)
			top = want;
	}
	if (top > s->p.slice_max_ns) {
		uint64_t mean = s->p.slice_mean_ns;

		s->p.slice_mean_ns = mean * (s->p.slice_max_ns / US) / (top / US);
		spread_slices(s);
		s->p.slice_mean_ns = mean;
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
	for (i = 0; i < s->tenants; i++)
		if (s->t[i].present && s->t[i].gain_whole && !s->t[i].capped) {
			work += s->t[i].gain_work;
			shares += s->t[i].share_ppm;
			n++;
		}
	for (i = 0; i < s->tenants; i++) {
		struct tenant *t = &s->t[i];

		if (n >= 2 && work > 50 * MS && shares && t->present && t->gain_whole &&
		    !t->capped) {
			uint64_t got = t->gain_work / (work / PPM + 1);
			uint64_t due = (uint64_t)t->share_ppm * PPM / shares;
			uint64_t off = got > due ? got - due : due - got, gain = t->gain_ppm, step;

			if (off > s->p.dead_band_ppm && due) {
				step = gain * off / due / 2;
				gain = got > due ? less(gain, step) : gain + step;
			}
			t->gain_ppm = (uint32_t)(gain < GAIN_MIN   ? GAIN_MIN
						 : gain > GAIN_MAX ? GAIN_MAX
								   : gain);
			sum += t->gain_ppm;
		}
		t->gain_work = 0;
	}
	/* Only their ratio counts: around 1, so that none of them wanders off to its limit. */
	for (i = 0; i < s->tenants; i++) {
		struct tenant *t = &s->t[i];

		if (sum && t->present && t->gain_whole && !t->capped) {
			uint64_t gain = (uint64_t)t->gain_ppm * n * PPM / sum;

			t->gain_ppm = (uint32_t)(gain < GAIN_MIN   ? GAIN_MIN
						 : gain > GAIN_MAX ? GAIN_MAX
								   : gain);
		}
		t->gain_whole = t->present;
	}
	s->gain_at = s->now + GAIN_INTERVAL;
}

static void stop_tenant(struct rtxg_slice *s, uint32_t id, bool stop)
{
	uint32_t i;

	for (i = 0; i < s->contexts; i++)
		if (s->c[i].used && s->c[i].tenant == id && !s->c[i].bad)
			s->c[i].want_stop = stop && (s->c[i].active || s->c[i].is_stopped);
}

static void plan_spread(struct rtxg_slice *s)
{
	uint32_t i, present = 0, behind = 0;

	s->turn = NONE;
	/* else stopping corrects, sooner and exactly */
	if (!(s->p.can & RTXG_SLICE_CAN_SUSPEND))
		correct_gains(s);
	keep_ratio(s);
	for (i = 0; i < s->tenants; i++)
		if (s->t[i].present && !critical(&s->t[i]) && !s->t[i].capped) {
			present++;
			if (s->t[i].lag <= 0)
				behind++;
		}
	for (i = 0; i < s->tenants; i++) {
		struct tenant *t = &s->t[i];

		if (!t->used)
			continue;
		if (critical(t)) {
			stop_tenant(s, i, false);
			continue;
		}
		if (t->ahead && t->lag <= 0)
			t->ahead = false;
		else if (!t->ahead && t->lag > (int64_t)s->p.lag_ns)
			t->ahead = true;
		if (!t->present || present < 2 || !behind || !(s->p.can & RTXG_SLICE_CAN_SUSPEND))
			t->ahead = false;
		stop_tenant(s, i, t->ahead || t->capped);
	}
}

static bool candidate(const struct rtxg_slice *s, uint32_t i)
{
	const struct context *c = &s->c[i];

	return c->used && !c->bad && c->active && !critical(&s->t[c->tenant]) &&
	       !s->t[c->tenant].capped;
}

/*
 * The context whose turn it ought to be: of the tenant that is furthest behind, the one that has
 * had least.
 */
static uint32_t pick(const struct rtxg_slice *s)
{
	uint32_t best = NONE, i;

	for (i = 0; i < s->contexts; i++) {
		const struct context *c = &s->c[i], *b;

		if (!candidate(s, i))
			continue;
		if (best == NONE) {
			best = i;
			continue;
		}
		b = &s->c[best];
		if (s->t[c->tenant].v < s->t[b->tenant].v ||
		    (c->tenant == b->tenant && c->work < b->work))
			best = i;
	}
	return best;
}

/*
 * Turns are as long as shares are large, so that in a round everybody has one: the mean is turn_ns.
 */
static uint64_t turn_length(const struct rtxg_slice *s, uint32_t id)
{
	const struct tenant *t = &s->t[s->c[id].tenant];
	uint64_t n = 0, mine = 0, length;
	uint32_t i;

	for (i = 0; i < s->contexts; i++)
		if (candidate(s, i)) {
			n++;
			mine += s->c[i].tenant == s->c[id].tenant ? 1 : 0;
		}
	if (!mine)
		return s->p.turn_ns;
	length = scaled(s->p.turn_ns * n, t->share_ppm) / mine;
	if (length < s->p.turn_ns / 4)
		return s->p.turn_ns / 4;
	return length > 4 * s->p.turn_ns ? 4 * s->p.turn_ns : length;
}

static void begin_turn(struct rtxg_slice *s, uint32_t id)
{
	s->turn = id;
	s->turn_start = s->now;
	if (id != NONE && s->c[id].is_stopped)
		s->c[id].fresh = true;
}

static void plan_turns(struct rtxg_slice *s)
{
	bool hold = false, idle = false, periodic = false, just_ran = false;
	uint64_t stayed, length;
	uint32_t i, next;

	/* Has the one whose turn it is anything to do? */
	if (s->turn != NONE && candidate(s, s->turn)) {
		struct context *c = &s->c[s->turn];

		if (c->fresh && !c->since && !c->is_stopped &&
		    less(s->now, c->seen) >= s->p.tick_ns)
			idle = true;
		/*
		 * A critical context stays on the engine beyond its slice only if nobody else wants
		 * it.
		 */
		if (s->holder != NONE && critical(&s->t[s->c[s->holder].tenant]) &&
		    less(s->now, s->c[s->holder].since) > s->p.slice_max_ns + 2 * MS &&
		    !c->is_stopped)
			idle = true;
		if (idle)
			c->active = false;
	}
	/* Is a release near? */
	for (i = 0; i < s->tenants; i++) {
		struct tenant *t = &s->t[i];

		if (!t->used || !critical(t) || !t->p.period_ns || t->release == NEVER ||
		    !t->release)
			continue;
		if (less(s->now, t->seen) >= s->p.critical_idle_ns)
			continue;
		periodic = true;
		if (s->now >= t->release + s->p.hold_ns)
			t->release += (s->now - t->release - s->p.hold_ns) / t->p.period_ns *
					      t->p.period_ns +
				      t->p.period_ns;
		if (s->now + s->p.lead_ns >= t->release) {
			hold = true;
			if (t->release + s->p.hold_ns < s->timer)
				s->timer = t->release + s->p.hold_ns;
		} else if (t->release - s->p.lead_ns < s->timer) {
			s->timer = t->release - s->p.lead_ns;
		}
	}
	if (s->turn != NONE && !candidate(s, s->turn))
		s->turn = NONE;
	for (i = 0; i < s->tenants; i++)
		if (s->t[i].used && critical(&s->t[i]) && s->t[i].seen &&
		    less(s->now, s->t[i].seen) < 2 * s->p.tick_ns)
			just_ran = true;
	stayed = s->now - s->turn_start;
	length = s->turn == NONE ? 0 : turn_length(s, s->turn);
	/*
	 * A change-over takes the driver about 1 ms, and whoever arrives meanwhile waits longer. So
	 * it is made when an arrival is least likely: with a periodic task while all are stopped
	 * anyway, with a sporadic one just after it has run.
	 */
	if (s->turn == NONE) {
		begin_turn(s, pick(s));
	} else if (stayed >= length && (periodic ? hold || stayed >= 3 * length
						 : just_ran || stayed >= length * 3 / 2)) {
		next = pick(s);
		if (next != s->turn)
			begin_turn(s, next);
		else
			s->turn_start = s->now;
	}
	for (i = 0; i < s->contexts; i++) {
		struct context *c = &s->c[i];

		if (!c->used || c->bad)
			continue;
		if (critical(&s->t[c->tenant])) {
			c->want_stop = false;
			if (s->p.can & RTXG_SLICE_CAN_SLICE)
				c->want_slice = s->p.slice_max_ns;
			continue;
		}
		/* An idle one stays enabled, to be seen when it wakes up. */
		c->want_stop = c->active && (i != s->turn || hold || s->t[c->tenant].capped);
		if (s->p.can & RTXG_SLICE_CAN_SLICE)
			c->want_slice = s->p.slice_critical_ns;
	}
}

static void plan(struct rtxg_slice *s)
{
	bool turns, caps;
	uint32_t i, present = 0, stopped = 0;

	if (s->holder != NONE)
		charge(s, &s->c[s->holder], s->now);
	s->timer = NEVER;
	for (i = 0; i < s->tenants; i++)
		if (s->t[i].present)
			s->t[i].wanted_ns += less(s->now, s->planned);
	s->planned = s->now;
	look_around(s);
	reckon_lags(s);
	caps = reckon_caps(s);
	turns = (s->p.can & RTXG_SLICE_CAN_SUSPEND) && critical_active(s);
	if (turns != s->turns) {
		s->turns = turns;
		s->turn = NONE;
		for (i = 0; i < s->contexts; i++)
			s->c[i].want_stop = false;
		for (i = 0; i < s->tenants; i++)
			s->t[i].ahead = false;
	}
	if (turns)
		plan_turns(s);
	else
		plan_spread(s);
	for (i = 0; i < s->tenants; i++)
		present += s->t[i].present ? 1 : 0;
	for (i = 0; i < s->contexts; i++) {
		if (!(s->p.can & RTXG_SLICE_CAN_SUSPEND))
			s->c[i].want_stop = false;
		stopped += s->c[i].want_stop ? 1 : 0;
	}
	/* Alone and without a cap nothing can be decided: look rarely, only to notice. */
	if (present >= 2 || stopped || turns || caps) {
		if (s->now + s->p.tick_ns < s->timer)
			s->timer = s->now + s->p.tick_ns;
	} else if (s->now + 10 * s->p.tick_ns < s->timer) {
		s->timer = s->now + 10 * s->p.tick_ns;
	}
}

static int emit(struct rtxg_slice *s, struct rtxg_slice_action *a, unsigned int cap)
{
	unsigned int n = 0;
	bool leave = false;
	uint32_t i;

	/*
	 * Nobody takes the engine from the last one, and it would be charged for ever: that one is
	 * cut.
	 */
	for (i = 0; i < s->contexts && (s->p.can & RTXG_SLICE_CAN_LEAVE); i++)
		leave = leave || (s->c[i].used && s->c[i].active && !s->c[i].want_stop &&
				  !s->c[i].is_stopped);
	for (i = 0; i < s->contexts && n < cap; i++) {
		struct context *c = &s->c[i];

		if (c->used && c->want_stop && !c->is_stopped) {
			c->is_stopped = true;
			c->stopped_at = s->now;
			s->t[c->tenant].stopped++;
			/* In turns a critical kernel is waiting for the engine, or soon will be. */
			a[n++] = (struct rtxg_slice_action){ .type = RTXG_SLICE_SUSPEND,
							     .context = i,
							     .ns = leave && !s->turns };
		}
	}
	for (i = 0; i < s->contexts && n < cap; i++) {
		struct context *c = &s->c[i];

		if (c->used && !c->want_stop && c->is_stopped) {
			c->is_stopped = false;
			c->stopped += less(s->now, c->stopped_at);
			s->t[c->tenant].stopped_ns += less(s->now, c->stopped_at);
			/* it has time from now on to show that it wants something */
			c->seen = s->now;
			c->fresh = true;
			a[n++] = (struct rtxg_slice_action){ .type = RTXG_SLICE_RESUME,
							     .context = i };
		}
	}
	/* Slices of stopped contexts are set when they are let go. */
	for (i = 0; i < s->contexts && n < cap; i++) {
		struct context *c = &s->c[i];

		if (c->used && !c->is_stopped && c->want_slice && c->want_slice != c->slice) {
			c->slice = c->want_slice;
			a[n++] = (struct rtxg_slice_action){ .type = RTXG_SLICE_SET,
							     .context = i,
							     .ns = c->slice };
		}
	}
	if (n < cap && s->timer != s->armed) {
		s->armed = s->timer;
		a[n++] = (struct rtxg_slice_action){ .type = RTXG_SLICE_ARM,
						     .context = NONE,
						     .ns = s->timer };
	}
	return (int)n;
}

static int check_event(const struct rtxg_slice *s, const struct rtxg_slice_event *e)
{
	switch (e->type) {
	case RTXG_SLICE_EV_TENANT_SET:
		if (e->tenant >= s->tenants || e->tenant_params.min_ppm > PPM ||
		    e->tenant_params.max_ppm > PPM ||
		    e->tenant_params.weight > RTXG_SLICE_WEIGHT_MAX ||
		    e->tenant_params.priority > RTXG_SLICE_PRIORITY_MAX)
			return -EINVAL;
		if (e->tenant_params.max_ppm && e->tenant_params.max_ppm < e->tenant_params.min_ppm)
			return -EINVAL;
		if (critical_params(&e->tenant_params) && e->tenant_params.period_ns &&
		    (e->tenant_params.period_ns < 100 * US ||
		     e->tenant_params.period_ns > 10000 * MS))
			return -EINVAL;
		return 0;
	case RTXG_SLICE_EV_TENANT_REMOVE:
		if (e->tenant >= s->tenants || !s->t[e->tenant].used)
			return -ENOENT;
		return s->t[e->tenant].contexts ? -EBUSY : 0;
	case RTXG_SLICE_EV_ADD:
		if (e->context >= s->contexts)
			return -EINVAL;
		if (s->c[e->context].used)
			return -EEXIST;
		return e->tenant < s->tenants && s->t[e->tenant].used ? 0 : -ENOENT;
	case RTXG_SLICE_EV_MOVE:
		if (e->tenant >= s->tenants || !s->t[e->tenant].used)
			return -ENOENT;
		/* fall through */
	case RTXG_SLICE_EV_REMOVE:
	case RTXG_SLICE_EV_WARMS:
	case RTXG_SLICE_EV_START:
	case RTXG_SLICE_EV_END:
	case RTXG_SLICE_EV_FAILED:
		return e->context < s->contexts && s->c[e->context].used ? 0 : -ENOENT;
	case RTXG_SLICE_EV_RELEASE:
		return e->tenant < s->tenants && s->t[e->tenant].used ? 0 : -ENOENT;
	case RTXG_SLICE_EV_OTHER:
	case RTXG_SLICE_EV_TIMER:
		return 0;
	default:
		return -EINVAL;
	}
}

static void start(struct rtxg_slice *s, uint32_t id, uint64_t at, bool *replan)
{
	struct context *c = &s->c[id];
	struct tenant *t = &s->t[c->tenant];
	uint64_t silent = t->seen;

	if (s->holder != NONE && s->holder != id) /* its end was lost */
		ended(s, s->holder, at);
	if (c->since)
		ended(s, id, at);
	c->since = at ? at : 1;
	c->charged = c->since;
	c->fresh = false;
	t->stays++;
	c->stays++;
	s->holder = id;
	seen(s, c, at);
	if (!c->active) {
		set_active(s, c, true);
		*replan = true;
	}
	if (critical(t)) {
		if (less(at, silent) > s->p.critical_idle_ns) {
			/* whoever begins anew has a phase of his own */
			t->phase = 0;
			t->release = NEVER;
			t->misses = t->hits = 0;
		}
		learn_release(s, t, at);
		if (!s->turns)
			*replan = true;
	}
}

static void apply(struct rtxg_slice *s, const struct rtxg_slice_event *e, bool *replan)
{
	struct tenant *t;
	struct context *c;
	bool first;

	*replan = true;
	switch (e->type) {
	case RTXG_SLICE_EV_TENANT_SET:
		t = &s->t[e->tenant];
		first = !t->used;
		if (first || t->p.period_ns != e->tenant_params.period_ns ||
		    critical(t) != critical_params(&e->tenant_params)) {
			t->phase = 0;
			t->release = NEVER;
			t->misses = t->hits = 0;
		}
		t->p = e->tenant_params;
		t->used = true;
		if (first) {
			t->gain_ppm = PPM;
			t->v = VBASE;
			t->cap_start = s->now;
			t->share_ppm = SHARE_MIN;
		}
		break;
	case RTXG_SLICE_EV_TENANT_REMOVE:
		s->t[e->tenant] = (struct tenant){ 0 };
		break;
	case RTXG_SLICE_EV_ADD:
		c = &s->c[e->context];
		*c = (struct context){
			.used = true, .tenant = e->tenant, .seen = s->now, .fresh = true
		};
		s->t[e->tenant].contexts++;
		break;
	case RTXG_SLICE_EV_REMOVE:
		c = &s->c[e->context];
		if (s->holder == e->context)
			s->holder = NONE;
		if (s->turn == e->context)
			s->turn = NONE;
		s->t[c->tenant].contexts--;
		s->t[c->tenant].warming -= c->warms;
		if (c->is_stopped)
			s->t[c->tenant].stopped_ns += less(s->now, c->stopped_at);
		*c = (struct context){ 0 };
		break;
	case RTXG_SLICE_EV_MOVE:
		c = &s->c[e->context];
		if (c->since) {
			charge(s, c, s->now);
			c->moved = s->now;
			c->old = c->tenant;
		}
		if (c->is_stopped) {
			c->stopped += less(s->now, c->stopped_at);
			s->t[c->tenant].stopped_ns += less(s->now, c->stopped_at);
			c->stopped_at = s->now;
		}
		s->t[c->tenant].contexts--;
		s->t[c->tenant].warming -= c->warms;
		c->tenant = e->tenant;
		c->work = 0;
		s->t[e->tenant].contexts++;
		s->t[e->tenant].warming += c->warms;
		break;
	case RTXG_SLICE_EV_WARMS:
		*replan = false;
		c = &s->c[e->context];
		s->t[c->tenant].warming += !c->warms;
		c->warms = true;
		break;
	case RTXG_SLICE_EV_START:
		*replan = false;
		start(s, e->context, e->at_ns, replan);
		break;
	case RTXG_SLICE_EV_END:
		*replan = false;
		ended(s, e->context, e->at_ns);
		break;
	case RTXG_SLICE_EV_OTHER:
		*replan = false;
		if (s->holder != NONE)
			ended(s, s->holder, e->at_ns);
		break;
	case RTXG_SLICE_EV_RELEASE:
		t = &s->t[e->tenant];
		t->release = e->at_ns;
		t->phase = e->at_ns;
		t->seen = s->now;
		break;
	case RTXG_SLICE_EV_FAILED:
		c = &s->c[e->context];
		c->bad = true;
		c->want_stop = false;
		c->want_slice = c->slice = 0;
		if (s->turn == e->context)
			s->turn = NONE;
		break;
	case RTXG_SLICE_EV_TIMER:
		s->armed = NEVER;
		break;
	}
}

int rtxg_slice_step(struct rtxg_slice *s, uint64_t now_ns, const struct rtxg_slice_event *event,
		    struct rtxg_slice_action *actions, unsigned int cap)
{
	bool replan = false;
	int err;

	if (cap < 4 || now_ns < s->now)
		return -EINVAL;
	if (event) {
		if (event->reserved)
			return -EINVAL;
		err = check_event(s, event);
		if (err)
			return err;
		s->now = now_ns;
		apply(s, event, &replan);
		if (replan)
			plan(s);
	}
	return emit(s, actions, cap);
}

int rtxg_slice_tenant_view(const struct rtxg_slice *s, uint32_t tenant,
			   struct rtxg_slice_view *view)
{
	const struct tenant *t;
	uint32_t i;

	if (tenant >= s->tenants || !s->t[tenant].used)
		return -ENOENT;
	t = &s->t[tenant];
	*view = (struct rtxg_slice_view){ .work_ns = t->work,
					  .stay_ns = t->stay,
					  .stays = t->stays,
					  .suspended = t->stopped,
					  .stopped_ns = t->stopped_ns,
					  .wanted_ns = t->wanted_ns +
						       (t->present ? less(s->now, s->planned) : 0),
					  .lag_ns = t->lag,
					  .share_ppm = t->share_ppm,
					  .contexts = t->contexts };
	for (i = 0; i < s->contexts; i++)
		if (s->c[i].used && s->c[i].tenant == tenant) {
			view->active += s->c[i].active ? 1 : 0;
			view->stopped += s->c[i].is_stopped ? 1 : 0;
			view->stopped_ns +=
				s->c[i].is_stopped ? less(s->now, s->c[i].stopped_at) : 0;
		}
	return 0;
}

int rtxg_slice_context_view(const struct rtxg_slice *s, uint32_t context,
			    struct rtxg_slice_context_view *view)
{
	const struct context *c;

	if (context >= s->contexts || !s->c[context].used)
		return -ENOENT;
	c = &s->c[context];
	*view = (struct rtxg_slice_context_view){ .work_ns = c->worked,
						  .stay_ns = c->stayed,
						  .stays = c->stays,
						  .stopped_ns = c->stopped,
						  .slice_ns = c->slice,
						  .state = c->is_stopped ? RTXG_SLICE_STOPPED
							   : c->since	 ? RTXG_SLICE_RUNNING
							   : c->active	 ? RTXG_SLICE_WAITING
									 : RTXG_SLICE_IDLE };
	if (c->is_stopped)
		view->stopped_ns += less(s->now, c->stopped_at);
	return 0;
}

int rtxg_slice_turns(const struct rtxg_slice *s)
{
	return s->turns;
}

uint64_t rtxg_slice_next_release(const struct rtxg_slice *s, uint32_t tenant)
{
	if (tenant >= s->tenants || !s->t[tenant].used || !critical(&s->t[tenant]) ||
	    !s->t[tenant].p.period_ns || !s->t[tenant].release)
		return NEVER;
	return s->t[tenant].release;
}

uint64_t rtxg_slice_next_warm(const struct rtxg_slice *s, uint32_t tenant)
{
	if (tenant >= s->tenants || !s->t[tenant].used || !warms(s, &s->t[tenant]))
		return NEVER;
	return s->t[tenant].release - s->p.warm_ns;
}

bool rtxg_slice_asks_warm(const struct rtxg_slice *s, uint32_t context)
{
	return context < s->contexts && s->c[context].used && !s->c[context].warms &&
	       may_warm(s, &s->t[s->c[context].tenant]);
}

uint64_t rtxg_slice_calm_at(const struct rtxg_slice *s, uint64_t now_ns, uint64_t due_ns)
{
	uint64_t at = now_ns;
	uint32_t i;

	for (i = 0; i < s->tenants; i++) {
		const struct tenant *t = &s->t[i];
		uint64_t next = rtxg_slice_next_release(s, i);

		if (next == NEVER || t->p.period_ns <= CALM_PERIOD)
			continue;
		if (next + CALM_AFTER > now_ns && next < now_ns + CALM_BEFORE &&
		    next + CALM_AFTER > at)
			at = next + CALM_AFTER;
	}
	if (at > due_ns + CALM_MOST)
		at = due_ns + CALM_MOST;
	return at > now_ns ? at : now_ns;
}

const char *rtxg_slice_check(const struct rtxg_slice *s)
{
	uint32_t i, k, n, on = 0, enabled = 0, wanting = 0;

	if (s->magic != MAGIC)
		return "not a slice core";
	for (i = 0; i < s->tenants; i++) {
		const struct tenant *t = &s->t[i];
		uint32_t warming = 0;

		for (k = n = 0; k < s->contexts; k++) {
			if (!s->c[k].used || s->c[k].tenant != i)
				continue;
			n++;
			warming += s->c[k].warms;
		}
		if (n != t->contexts)
			return "a tenant's count of contexts is wrong";
		if (warming != t->warming)
			return "a tenant's count of contexts that warm is wrong";
		if (t->used && (t->gain_ppm < GAIN_MIN || t->gain_ppm > GAIN_MAX))
			return "a gain is out of range";
		if (!t->used && n)
			return "a context's tenant does not exist";
	}
	for (i = 0; i < s->contexts; i++) {
		const struct context *c = &s->c[i];

		if (!c->used)
			continue;
		if (critical(&s->t[c->tenant]) && c->want_stop)
			return "a critical context is to be stopped";
		if (c->bad && c->want_stop)
			return "a context that cannot be acted on is to be stopped";
		if (c->since)
			on++;
		if (c->slice > s->p.slice_max_ns)
			return "a slice is longer than the hardware keeps";
		if (!critical(&s->t[c->tenant]) && c->active && !c->bad) {
			wanting++;
			enabled += c->want_stop ? 0 : 1;
		}
	}
	if (s->turn != NONE && (s->turn >= s->contexts || !s->c[s->turn].used))
		return "the turn is a context's that is gone";
	if (s->holder != NONE && !s->c[s->holder].used)
		return "the engine is held by a context that is gone";
	if (on > 1)
		return "two contexts on one engine";
	if (s->turns && enabled > 1)
		return "more than one best-effort context enabled in turns";
	return NULL;
}
