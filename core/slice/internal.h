/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * internal.h - what the files of core/slice share. Who calls whom, each only those below it:
 *
 *	slice.c				events, the plan as a whole, actions, views
 *	spread.c  turns.c		the two ways of sharing
 *	share.c  release.c		shares, lags and caps; expected releases
 *	account.c			charges
 */
#ifndef RTXG_SLICE_INTERNAL_H
#define RTXG_SLICE_INTERNAL_H

#include "rtxg_slice.h"

#define PPM   RTXG_SLICE_PPM
#define NONE  RTXG_SLICE_NONE
#define NEVER RTXG_SLICE_NEVER
#define US    1000ull
#define MS    1000000ull

/* 0.1 %: the smallest share that a tenant is reckoned with, so that nothing is divided by 0 */
#define SHARE_MIN 1000u
/* virtual time of the tenant furthest behind: far from 0, for charges taken back must not be lost */
#define VBASE (1ull << 40)
/* the correction of a tenant's slices: how often, and its limits */
#define GAIN_INTERVAL (500 * MS) /* between corrections */
#define GAIN_MIN      (PPM / 4)
#define GAIN_MAX      (PPM * 4)

struct slice_tenant {
	bool used;
	struct rtxg_slice_tenant params;
	uint32_t contexts; /* how many it has */
	uint32_t warming;  /* of those, how many come onto the engine when they are told to */

	/* share.c */
	bool present;	    /* wants the GPU: a context of it is active, or stopped */
	bool ahead;	    /* stopped because of its lag */
	bool capped;	    /* stopped because of its cap */
	uint32_t share_ppm; /* among the tenants that are present */
	uint64_t vtime;	    /* virtual time, work over share; VBASE = the tenant furthest behind */
	int64_t lag;	    /* how far ahead of its share it is; negative: behind */
	uint64_t cap_start, cap_used; /* of the window of its cap: when it began, work in it */

	/* spread.c, where slices are corrected */
	uint32_t gain_ppm;  /* correction of its slices */
	uint64_t gain_work; /* work since the last correction */
	bool gain_whole;    /* it was present all the time since */

	/* release.c, for periodic tenants */
	uint64_t seen;	  /* last on the engine */
	uint64_t phase;	  /* time of its last release, as far as can be told; 0 = unknown */
	uint64_t release; /* the next one; NEVER = unknown */
	uint32_t misses;  /* starts in a row that did not fit the period */
	uint32_t hits;	  /* starts in a row that came as expected */

	/* account.c, for people */
	uint64_t work, stay, stays, stopped;
	uint64_t stopped_ns; /* time of contexts stopped */
	uint64_t wanted_ns;  /* time in which a context of it was active */
};

struct slice_context {
	bool used;
	bool bad;    /* the lever cannot act on it */
	bool warms;  /* its program comes onto the engine when it is told to */
	bool active; /* it has work, as far as can be seen */
	bool fresh;  /* it has not been on the engine since it was last enabled */
	uint32_t tenant;
	uint64_t seen;	  /* last time known to be on the engine, or when it was enabled */
	uint64_t since;	  /* start of the present stay; 0 = off the engine */
	uint64_t charged; /* up to when that stay is charged */
	uint64_t moved;	  /* during this stay it was moved here from `old`; 0 = it was not */
	uint32_t old;
	uint64_t work; /* order within the tenant */

	/* since it was added, for people */
	uint64_t worked, stayed, stays;
	uint64_t stopped_at, stopped; /* when it was stopped last, and for how long in all */

	/* what plan() decided, and what was commanded last; a slice of 0 is the driver's own */
	bool want_stop, is_stopped;
	uint64_t want_slice, slice;
};

struct rtxg_slice {
	uint32_t magic, tenant_count, context_count;
	struct rtxg_slice_params params;
	uint64_t now;
	uint64_t timer, armed; /* when plan() wants to look again; what was commanded */
	uint64_t planned;      /* when plan() last looked */
	bool turns;
	uint32_t turn; /* context whose turn it is */
	uint64_t turn_start;
	uint32_t holder; /* context on the engine as far as the log says */
	uint64_t gain_at;
	struct slice_tenant *tenants;
	struct slice_context *contexts;
};

/* How much a exceeds b, or 0. */
static inline uint64_t slice_excess(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static inline uint64_t slice_or(uint64_t value, uint64_t otherwise)
{
	return value ? value : otherwise;
}

static inline bool slice_critical_params(const struct rtxg_slice_tenant *params)
{
	return params->priority >= RTXG_SLICE_CRITICAL_PRIORITY;
}

static inline bool slice_critical(const struct slice_tenant *tenant)
{
	return slice_critical_params(&tenant->params);
}

/* account.c: times share, and time over share */
uint64_t slice_scaled(uint64_t ns, uint32_t ppm);
uint64_t slice_unscaled(uint64_t ns, uint32_t ppm);
/* Charges the present stay up to then. */
void slice_charge(struct rtxg_slice *s, struct slice_context *context, uint64_t upto);
/* It was on the engine at that time. */
void slice_seen(struct rtxg_slice *s, struct slice_context *context, uint64_t at);
/* Its stay ended at that time. */
void slice_ended(struct rtxg_slice *s, uint32_t id, uint64_t at);

/* share.c */
void slice_set_active(struct rtxg_slice *s, struct slice_context *context, bool active);
/* Who is present, and with which share. */
void slice_look_around(struct rtxg_slice *s);
/* How far each tenant is ahead of its share. */
void slice_reckon_lags(struct rtxg_slice *s);
/* Who has reached a cap; true if a tenant with a cap is present. */
bool slice_reckon_caps(struct rtxg_slice *s);
bool slice_critical_active(const struct rtxg_slice *s);

/* release.c: nothing is known of this tenant's releases any more. */
void slice_forget_releases(struct slice_tenant *tenant);
/* A context of this tenant came onto the engine at that time. */
void slice_learn_release(const struct rtxg_slice *s, struct slice_tenant *tenant, uint64_t at);
/*
 * Is a release so near that the engine is to be free? Sets s->timer to when that changes, and
 * *periodic to whether a tenant with known releases is active.
 */
bool slice_hold(struct rtxg_slice *s, bool *periodic);

/* spread.c, turns.c: for each context want_stop and want_slice, and s->timer if need be */
void slice_plan_spread(struct rtxg_slice *s);
void slice_plan_turns(struct rtxg_slice *s);

#endif
