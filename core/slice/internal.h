/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * internal.h - what the files of core/slice share. Who calls whom, each only those below it:
 *
 *	slice.c					events, the plan as a whole
 *	check.c  view.c  look.c			invariants, what people are shown, when to look
 *	promise.c				promises that are broken
 *	emit.c					actions, and those that fail
 *	batch.c  spread.c  turns.c		the ways of sharing
 *	urgent.c  clock.c  beside.c		tenants with a latency; on several GPUs; with pauses
 *	admit.c					which bound on it can be kept, and how
 *	share.c  release.c			shares, lags and caps; expected releases
 *	demand.c				what is known of the queues
 *	slow.c					a host that is too slow for turns
 *	account.c				charges
 */
#ifndef RTXG_SLICE_INTERNAL_H
#define RTXG_SLICE_INTERNAL_H

#include "rtxg_slice.h"

#define PPM	    RTXG_SLICE_PPM
#define NONE	    RTXG_SLICE_NONE
#define NEVER	    RTXG_SLICE_NEVER
#define SLICE_MAGIC 0x736c6963u

#define US 1000ull
#define MS 1000000ull

/* 0.1 %: the smallest share that a tenant is reckoned with, so that nothing is divided by 0 */
#define SHARE_MIN 1000u
/* virtual time of the tenant furthest behind: far from 0, so charges taken back are not lost */
#define VBASE (1ull << 40)
/* the correction of a tenant's slices: how often, and its limits */
#define GAIN_INTERVAL (500 * MS) /* between corrections */
#define GAIN_MIN      (PPM / 4)
#define GAIN_MAX      (PPM * 4)

#define SLICE_FRAME	(50 * MS) /* of turns by the clock, at most */
#define SLICE_SPARE_MIN (5 * MS)  /* to be stopped for less is not worth its change-overs */

#define SLICE_ROUGH 5 /* turns are so many times as long where shares are off by more in any case */

/* Of the present second, and what the last one came to. */
struct slice_promise {
	uint64_t work;	  /* the tenant's when it began */
	uint64_t wanted;  /* for how long it had work */
	uint64_t waiting; /* longest wait of work that arrived */
	uint64_t waited;  /* the same, of the last second */
	uint32_t broken, by;
	uint64_t waits[RTXG_SLICE_WAITS], waits_ns; /* since the tenant was made */
};

/* Does it run beside the turns of others? */
enum slice_beside_state {
	SLICE_APART,	   /* no */
	SLICE_TRIED,	   /* for a moment, to see whether its work is short */
	SLICE_TRIED_SHORT, /* and whether its pauses are long, beside short slices */
	SLICE_BESIDE,
};

struct slice_beside {
	enum slice_beside_state state;
	uint64_t at;	/* APART: it is not tried before; else it was tried from then on */
	uint64_t again; /* from one time that it is tried to the next */
	/* since it was judged last, without what was too long for a pause */
	uint64_t span;	    /* stays on the engine, and times off it */
	uint64_t pauses;    /* of that, it certainly had nothing to do */
	uint64_t lost;	    /* it was off the engine for another reason */
	uint64_t costs;	    /* change-overs between it and others, as far as they are known */
	uint64_t tried;	    /* for so long it ran beside others */
	uint32_t changes;   /* it came onto the engine so often */
	uint32_t dry, full; /* stays that ended by themselves; in a row, by their slice */
	uint64_t saved;	    /* so much less than it might has it waited before that */
	uint64_t alone;	    /* it is to have the engine alone for so long */
	bool ahead;	    /* of its share, so it takes turns until it is level */
	bool held;	    /* APART: it waits too long for those beside its turns */
	bool waits;	    /* it is tried because its filled queues wait: that may take longer */
	uint64_t free;	    /* its filled queues left the engine free for so long, */
	uint64_t free_from; /* since it had done so much work */
	bool idles;	    /* that is so much of its time that others can use it */
};

struct slice_tenant {
	bool used;
	struct rtxg_slice_tenant params;
	uint32_t contexts; /* how many it has */
	bool coupled;	   /* it has others on other GPUs */
	uint32_t warming;  /* of those, how many come onto the engine when they are told to */

	/* share.c */
	bool present;	    /* a context of it is active: it counts when shares are divided */
	bool wants;	    /* a context of it has work now, as far as can be told */
	bool known;	    /* and that is known from its queues */
	bool free;	    /* a context of it is active that cannot be stopped */
	bool ahead;	    /* stopped because of its lag */
	bool capped;	    /* stopped because of its cap */
	uint32_t share_ppm; /* among the tenants that are present */
	uint64_t vtime;	    /* virtual time, work over share; VBASE = the tenant furthest behind */
	int64_t lag;	    /* how far ahead of its share it is; negative: behind */
	uint64_t cap_start, cap_used; /* of the window of its cap: when it began, work in it */

	/* urgent.c, for tenants with a latency */
	enum rtxg_slice_mechanism mechanism;
	uint64_t look; /* how often its queues are looked into where all are stopped for it */
	/* the longest slice of others with a latency with which its bound holds */
	uint64_t for_bound;
	uint64_t for_others; /* what the bound leaves for slices of those without, all together */
	uint64_t most_slice; /* of its own contexts, with which the bounds of the others hold */
	/*
	 * How much more it had than its share of all work: counted up, while its lag is against
	 * what the others had, and jumps when one of them comes or goes.
	 */
	uint64_t overdraft;
	bool over;  /* too far ahead of its share to keep its bound */
	bool level; /* it has had its share: others may run beside it although its work is there */
	uint8_t generous; /* and so far ahead that they get more: 2^generous times their shares */
	uint64_t leveled; /* when that was so last */
	bool exempt;	  /* it keeps its bound for now: it takes no turns */
	bool in_turns;	  /* TURNS: turns are short enough for its bound, and it takes them */
	uint64_t spare;	 /* so long its bound lets it be stopped, for turns by the clock; 0 = not */
	uint64_t busy;	 /* it has had work all the time since then; 0 = it has none */
	uint64_t steady; /* it had always had work for a while then, last */
	bool joins;	 /* it is stopped then */
	uint64_t joined; /* it has been stopped since then; 0 = it is not */
	bool urgent;	 /* and its work is there */

	/* batch.c */
	bool held;   /* stopped because it is another one's turn, or for its cap */
	bool waited; /* it was held in the present turn */

	/* beside.c */
	struct slice_beside beside;
	bool runs_beside; /* it takes no turns now and is not held for those of others */

	/* spread.c, where slices are corrected */
	uint32_t gain_ppm;  /* correction of its slices */
	uint64_t gain_work; /* work since the last correction */
	bool gain_whole;    /* it was present all the time since */

	/* release.c, for periodic tenants */
	uint64_t seen;	     /* last on the engine */
	uint64_t phase;	     /* time of its last release, as far as is known; 0 = not */
	uint64_t release;    /* the next one; NEVER = unknown */
	uint64_t held_for;   /* the one that all were stopped for last */
	uint32_t misses;     /* starts in a row that did not fit the period */
	uint32_t delayed;    /* starts in a row that were late, */
	uint64_t least_late; /* the least by which one was, from the release expected last, */
	uint64_t most_late;  /* and the most */
	uint32_t hits;	     /* starts that came as expected, less those that did not */
	uint32_t earlier;    /* releases in a row ahead of which it came much too early, */
	uint64_t early_for;  /* the last one of them */
	bool regular;	     /* its releases are known */
	bool was_regular;    /* they were, at some time since the first start */
	uint64_t period;     /* from one release to the next, as learnt; 0 = as was told */
	uint64_t measured;   /* for so many periods, or more, that has held, or is taken to */
	bool doubted;	     /* starts did not fit what was learnt */
	uint64_t listen;     /* releases before that one are waited for, to see when they are */
	uint64_t base;	     /* a start that the period is measured from; 0 = none */
	uint64_t recent;     /* the earliest of the last block of starts, */
	uint64_t least;	     /* and of this one, */
	uint32_t counted;    /* which has so many so far */

	struct slice_promise promise; /* promise.c */

	/* account.c, for people */
	uint64_t work, stay, stays, stopped;
	uint64_t most_work, most_stay; /* what was shown at most: counters only grow */
	uint64_t stopped_ns;	       /* time of contexts stopped */
	uint64_t wanted_ns;	       /* time in which a context of it was active */
};

/* Of each kind of action: when it may be given again after it failed. */
struct slice_retry {
	bool never;    /* it failed for good */
	uint64_t at;   /* not before; 0 = at any time */
	uint64_t last; /* when it failed last */
	uint64_t pause;
};

#define SLICE_GAPS 16 /* that are kept: more come between two readings of the log at most rarely */

/* What its queues show. */
enum slice_demand { SLICE_UNSEEN, SLICE_EMPTY, SLICE_FILLED };

struct slice_context {
	bool used;
	bool load;   /* the host says that it cannot be governed */
	bool warms;  /* its program comes onto the engine when it is told to */
	bool active; /* it has work, as far as can be seen */
	bool fresh;  /* it has not been on the engine since it was last enabled */
	uint32_t tenant;
	uint64_t seen; /* last time known to be on the engine, or when it was enabled */
	uint64_t added;
	uint64_t since;	  /* start of the present stay; 0 = off the engine */
	uint64_t charged; /* up to when that stay is charged */
	uint64_t moved;	  /* during this stay it was moved here from `old`; 0 = it was not */
	uint32_t old;
	uint64_t work;	/* order within the tenant */
	uint64_t piece; /* its shortest stays that its slice did not end; 0 = not known */
	uint8_t alike;	/* of such stays, the part that is no longer; 128 = all */
	uint8_t cuts;	/* of its last stays, the part that slices ended; 128 = all */
	uint64_t left;	/* its last stay ended then, and it was not stopped; 0 = unknown */
	uint64_t ran;	/* how long that stay was */

	/* since it was added, for people */
	uint64_t worked, stayed, stays;
	uint64_t most_worked, most_stayed; /* as in struct slice_tenant */
	uint64_t stopped_at, stopped;	   /* when it was stopped last, and for how long in all */

	/* demand.c */
	enum slice_demand demand;
	bool had_work;	    /* it is stopped, and had work when that began */
	bool cut;	    /* it was on the engine when it was stopped last */
	bool probe;	    /* it was let go, and has not shown yet that it still has work */
	bool wants;	    /* it has work now, as far as can be told */
	bool queued;	    /* more is in its queues than what the engine's host takes ahead */
	uint8_t pieces;	    /* of work that came into empty queues since that was so */
	bool blocked;	    /* its queues are filled, yet it does not use an engine that is free */
	uint64_t waited_at; /* it was so for a while, and came onto the engine then; 0 = never */
	uint64_t looked_at_from;     /* a look has been made from then on; NEVER = none is made */
	uint64_t asked_ns, asked_at; /* looks are to come so often, and since when so soon */
	uint64_t sign;		     /* last sign of work */
	uint64_t pause;	  /* that the queues are empty at most between pieces of a burst */
	uint64_t burst;	  /* the longest such pause in the present burst */
	uint64_t grace;	  /* how long it is taken to have work after the last sign */
	uint64_t doubted; /* it was taken to have none, and came onto the engine then; 0 = no */
	bool passed;	  /* it was taken to have none while it was on the engine */
	uint8_t returns;  /* so often in a row it came back soon then */
	uint64_t doubt;	  /* on the engine without a sign of work, charged to none */
	uint64_t blind_from, blind_to; /* its queues were not seen then: the host was late */
	bool blind_worked;	       /* and were filled afterwards */
	/*
	 * Its queues were empty in those times, the last ones before the present one, and since
	 * when they are now: the log tells later who was on the engine meanwhile.
	 */
	struct slice_gap {
		uint64_t from, to;
	} gaps[SLICE_GAPS];
	uint32_t next_gap;
	uint64_t late_at; /* a look was told that was made while the host could not act */
	uint64_t empty_at;
	uint64_t gap_at;  /* last time that it really had nothing to do for a while */
	uint64_t step;	  /* what it works from one such time to the next */
	uint64_t step_at; /* what it had worked when the present step began */
	uint8_t steps;	  /* so many in a row were alike */
	bool ending; /* another one was let go beside it because the present one is about to end */

	/* promise.c */
	uint64_t
		arrived; /* its work arrived then, and it was not on the engine since; 0 = it was */
	uint64_t started;      /* it came onto the engine last, as far as the log has been read */
	uint64_t arrived_from; /* it may have arrived so much earlier, between two looks */
	uint64_t promise_work; /* its work when the present second began */

	/* emit.c, by the type of the action less one */
	struct slice_retry retry[3];

	/* what plan() decided, and what was commanded last; a slice of 0 is the driver's own */
	bool want_stop, is_stopped;
	uint64_t want_slice, slice;
};

struct rtxg_slice {
	uint32_t magic, tenant_count, context_count;
	uint32_t tenant_high, context_high; /* those from there on were never used */
	bool changed;			    /* who is there, or what can be done with whom */
	struct rtxg_slice_params params;
	uint64_t now;
	uint64_t timer, armed; /* when plan() wants to look again; what was commanded */
	uint64_t due;	       /* the host was to come then, as was commanded last */
	uint64_t log_at;       /* when it wants the log to have been read */
	bool armed_log;	       /* and whether that was commanded with it */
	uint64_t late;	       /* so late the host has come of late to stop all for a release */
	bool log_pending;      /* the log told something that calls for a plan */
	bool look_pending;     /* a look did, and more looks follow */
	uint64_t told;	       /* time of the last switch that it told of */
	uint64_t read;	       /* up to when the log has been read */
	uint64_t told_until;   /* up to when charges go that the log has not told of yet */
	uint64_t planned;      /* when plan() last looked */
	uint64_t past;	       /* since plan() looked before that */

	/* slow.c: by how much it has come late in all, of late; as of then; is that too much? */
	uint64_t slow, slow_at;
	bool is_slow;

	bool turns;
	uint32_t turn; /* context whose turn it is */
	uint64_t turn_start;
	uint64_t turn_due; /* it was another one's turn by the clock from then on; 0 = it is not */
	uint32_t yield;	   /* context that has passed its turn on and is watched for a moment yet */
	uint64_t yield_until;
	uint32_t holder;      /* context on the engine as far as the log says */
	uint64_t free_at;     /* since when the engine is free, as far as that; 0 = it is not */
	uint64_t waited;      /* the engine was free for so long though queues were filled, */
	uint64_t waited_from; /* since then */
	bool idles;	      /* that is so much of the time that several run together */
	/* The host had carried all actions out at that time, which were so many by then. */
	uint64_t acted_at, acted;
	uint32_t ended;	  /* context whose stay ended last */
	uint64_t over_at; /* up to then one stayed beyond its slice: no other wanted the engine */
	uint64_t dry_at, dry_before; /* ends of the last two stays that were shorter than slices */
	uint64_t set_at;	     /* a slice was set last */
	uint64_t beside_slice; /* of the others beside tenants with pauses; 0 = there are none */
	bool beside_set;       /* and whether slices are so */
	uint64_t out_at;       /* one whose pieces are alike stayed on without work until then */
	uint32_t tried;	       /* tenant that is tried, so that its own slices are not short */
	uint32_t tried_set;    /* and that slices are set for */
	uint64_t gain_at;
	bool plain;		  /* BATCH, and none has a bound, a cap or turns by the clock */
	uint32_t owner;		  /* tenant whose turn it is in BATCH */
	uint32_t leaving;	  /* tenant whose turn it was, until the owner is there */
	uint64_t early_at;	  /* in this turn one was let go so at that time; 0 = none was */
	uint32_t early;		  /* tenant that was let go as the owner's work is about to end */
	uint64_t owner_since;	  /* when the turn began */
	uint64_t arrival_at;	  /* up to when it is reckoned that the turn was interrupted */
	uint64_t owner_work;	  /* the owner's work at that time */
	uint64_t owner_until;	  /* the turn ends then, by the clock */
	uint64_t slices_at;	  /* in BATCH, when the lengths of slices are looked at again */
	uint64_t slice_of_others; /* than tenants with a latency */
	uint64_t promised;	  /* when promises were judged last */
	enum rtxg_slice_mode mode;
	/* a bound leaves time for a stopped context to go at the end of its slice */
	bool may_leave;
	bool waiting;	  /* two tenants or more have work, or a stopped one has */
	uint64_t idle;	  /* the engine had nothing to do while a stopped context had */
	uint64_t idle_at; /* up to when that is reckoned */
	uint64_t busy;	  /* for so long it has had work since then, as the log has told */
	/*
	 * What was charged to all but those that cannot be stopped, whose work is lost to all
	 * alike; and what that was when plan() looked last.
	 */
	uint64_t worked, worked_then;
	uint64_t steps, actions, arms;
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

static inline bool slice_stoppable(const struct slice_context *context)
{
	return !context->load && !context->retry[RTXG_SLICE_SUSPEND - 1].never;
}

static inline bool slice_sliceable(const struct slice_context *context)
{
	return !context->load && !context->retry[RTXG_SLICE_SET - 1].never;
}

/*
 * Its driver may be making it: that is little work, in pieces, and its program waits for each.
 */
#define SLICE_MADE  (30 * MS)
#define SLICE_YOUNG (3000 * MS) /* what its driver and its libraries build comes now and then */
static inline bool slice_is_made(const struct rtxg_slice *s, const struct slice_context *context)
{
	return context->work < SLICE_MADE && slice_excess(s->now, context->added) <= SLICE_YOUNG;
}

/* Is it out of reach of all that the lever could do? */
static inline bool slice_is_load(const struct rtxg_slice *s, const struct slice_context *context)
{
	return context->load ||
	       (!(slice_stoppable(context) && s->params.can & RTXG_SLICE_CAN_SUSPEND) &&
		!(slice_sliceable(context) && s->params.can & RTXG_SLICE_CAN_SLICE));
}

/* Its queues are empty, and are being looked at. */
static inline bool slice_seen_empty(const struct rtxg_slice *s, const struct slice_context *context)
{
	return context->demand == SLICE_EMPTY && s->now >= context->looked_at_from;
}

/* plan() wants to look again at that time, when the log has been read. */
static inline void slice_wake_at(struct rtxg_slice *s, uint64_t at)
{
	s->timer = at < s->timer ? at : s->timer;
	s->log_at = at < s->log_at ? at : s->log_at;
}

/* The same where the log makes no difference. */
static inline void slice_wake_unread(struct rtxg_slice *s, uint64_t at)
{
	s->timer = at < s->timer ? at : s->timer;
}

/* An action on it failed and will be given again. */
static inline bool slice_retried(const struct rtxg_slice *s, const struct slice_context *context)
{
	uint32_t i;

	for (i = 0; i < 3; i++)
		if (!context->load && !context->retry[i].never && context->retry[i].at > s->now)
			return true;
	return false;
}

/* account.c: times share, and time over share */
uint64_t slice_scaled(uint64_t ns, uint32_t ppm);
uint64_t slice_unscaled(uint64_t ns, uint32_t ppm);
/* Charges the present stay up to then. */
void slice_charge(struct rtxg_slice *s, struct slice_context *context, uint64_t upto);
/*
 * The same, but not beyond the time by which the log was to be read: where the host comes late for
 * that, it may have left the engine long before.
 */
void slice_charge_told(struct rtxg_slice *s, struct slice_context *context, uint64_t upto);
/*
 * The host came late to look into its queues: in that time they were not seen. What was charged for
 * it is in doubt, and what will be. `worked`: they are filled now, so a stay that goes on is work.
 */
void slice_charge_blind(struct rtxg_slice *s, struct slice_context *context, uint64_t from,
			uint64_t upto, bool worked);
/* It had work in the time that was charged to none. */
void slice_charge_doubt(struct rtxg_slice *s, struct slice_context *context);
/*
 * The engine had nothing to do in that time while others were stopped for work that did not come
 * onto it: that counts as a part of the share of those whose work it is, as if they had worked.
 */
void slice_charge_kept(struct rtxg_slice *s, uint64_t from, uint64_t upto);
/* The engine did no work for so long because of this context: it counts as work of its tenant. */
void slice_charge_change(struct rtxg_slice *s, struct slice_context *context, uint64_t ns);
/* It was on the engine at that time. */
void slice_seen(struct rtxg_slice *s, struct slice_context *context, uint64_t at);
/* The log has been read up to then: a stay that it told of before went on. */
void slice_was_on(struct slice_context *context, uint64_t upto);
/* Was a stay of so many ns ended by its slice? Longer ones ended when another one came. */
bool slice_was_cut(const struct rtxg_slice *s, const struct slice_context *context, uint64_t stay);
/*
 * Had it done a piece of work that is as long as its others, and stayed on the engine without work
 * until another one came?
 */
bool slice_ran_out(const struct rtxg_slice *s, const struct slice_context *context, uint64_t stay);

/* Its stay ended at that time. */
void slice_ended(struct rtxg_slice *s, uint32_t id, uint64_t at);

/* admit.c: how the bound of this tenant is kept, if it has one. */
enum rtxg_slice_mechanism slice_mechanism(const struct rtxg_slice *s, uint32_t tenant);

/*
 * The longest slice of each context of other tenants with a latency with which this one's bound is
 * kept by its mechanism, and what it leaves then for the slices of those without, all together.
 */
uint64_t slice_for_bound(const struct rtxg_slice *s, uint32_t tenant, uint64_t *others);

/*
 * So long the tenant may be stopped for another's turn and keep its bound, where that leaves so
 * much for the slices of those without one; 0 if that is too short.
 */
uint64_t slice_spare(const struct rtxg_slice *s, uint32_t tenant, uint64_t for_others);

/* The slice with which so many contexts take that time together. */
uint64_t slice_within(const struct rtxg_slice *s, uint32_t contexts, uint64_t ns);

/* How often its queues are looked into for its bound to be kept by arrival. */
uint64_t slice_look_for(const struct rtxg_slice *s, uint32_t tenant);

/* promise.c: that look showed work that has arrived; it came onto the engine then. */
void slice_promise_arrived(const struct rtxg_slice *s, const struct rtxg_slice_event *look);
void slice_promise_started(struct rtxg_slice *s, struct slice_context *context, uint64_t at);
/* Once a second: what was promised, and what was got. */
void slice_look_at_promises(struct rtxg_slice *s);

/* emit.c: the difference between the plan and what was commanded. */
int slice_emit(struct rtxg_slice *s, struct rtxg_slice_action *actions, unsigned int cap);
/* An action failed. */
void slice_failed(struct rtxg_slice *s, uint32_t id, uint32_t what);
/* It came onto the engine: what failed is given again at once. */
void slice_ready(struct rtxg_slice *s, uint32_t id);
/* Sets s->timer to when an action that failed is to be given again. */
void slice_plan_retries(struct rtxg_slice *s);

/* look.c: in turns, how long the log is not read while nothing that it may tell is waited for. */
uint64_t slice_calm_ns(const struct rtxg_slice *s, bool caps);

/* so many pieces of work after filled queues show that it is back to short work */
#define SLICE_PIECES 2
/* until a slice is what it was set to */
#define SLICE_SETTLES (5 * MS)
/* how often a context is looked at that had gaps; how long it is taken to have them */
#define SLICE_LOOK_GAPS (250 * US)
#define SLICE_GAPS_FOR	(1000 * MS)

/* demand.c: a look into the queues of this context. */
void slice_demand(struct rtxg_slice *s, const struct rtxg_slice_event *look, bool *replan);
/* It came onto the engine at that time. */
void slice_demand_started(struct rtxg_slice *s, uint32_t id, uint64_t at, bool *replan);
void slice_demand_added(struct rtxg_slice *s, struct slice_context *context);
/* It is let go. */
void slice_demand_enabled(struct rtxg_slice *s, struct slice_context *context);
/* It could have come back onto the engine for a while after it had passed its turn on. */
void slice_demand_yielded(struct rtxg_slice *s, struct slice_context *context);
/* It is going to be stopped. */
void slice_demand_stopping(struct rtxg_slice *s, struct slice_context *context);
/* How much it works yet before it has nothing to do; NEVER: that cannot be told. */
uint64_t slice_step_left(const struct rtxg_slice *s, const struct slice_context *context);
/* How long a context that may run and has work may be off the engine. */
uint64_t slice_patience(const struct rtxg_slice *s);
/* Who has work now. Sets s->timer to when that may change by time alone. */
void slice_look_at_demand(struct rtxg_slice *s);

/* share.c */
void slice_set_active(struct rtxg_slice *s, struct slice_context *context, bool active);
/* Who is present, and with which share. */
void slice_look_around(struct rtxg_slice *s);
/* How far each tenant is ahead of its share. */
void slice_reckon_lags(struct rtxg_slice *s);
/* Who has reached a cap; true if a tenant with a cap is present. */
bool slice_reckon_caps(struct rtxg_slice *s);
bool slice_critical_active(const struct rtxg_slice *s);
/* The parameters that are accepted. */
bool slice_params_valid(const struct rtxg_slice_tenant *params);

/* release.c: nothing is known of this tenant's releases any more. */
void slice_forget_releases(struct slice_tenant *tenant);
/* Nothing is known any more of when its next release is; the period that was learnt is kept. */
void slice_forget_phase(struct slice_tenant *tenant);
/* A context of this tenant came onto the engine at that time. */
void slice_learn_release(const struct rtxg_slice *s, struct slice_tenant *tenant, uint64_t at);
/*
 * Is a release so near that the engine is to be free? Sets s->timer to when that changes, and
 * *periodic to whether a tenant with known releases is active.
 */
bool slice_hold(struct rtxg_slice *s, bool *periodic);

/* clock.c: has it its turns by the clock? Not if it was said how long they shall be. */
bool slice_by_the_clock(const struct rtxg_slice *s, uint32_t tenant);
/* For so long others have the frame between two of its places. */
uint64_t slice_clock_away(const struct rtxg_slice *s, uint32_t tenant);
/* Has it had work for longer than a burst? */
bool slice_is_steady(const struct rtxg_slice *s, uint32_t tenant);
/* Has a tenant with a bound its share from the clock, so that none is stopped for it? */
bool slice_keeps_place(const struct rtxg_slice *s, uint32_t tenant);
/* What is reserved of each frame for a tenant that has its turns by the clock, ns. */
uint64_t slice_clock_place(const struct rtxg_slice *s, uint32_t tenant);
/* Does this tenant take turns, and has it work? */
typedef bool (*slice_competes_fn)(const struct rtxg_slice *s, uint32_t tenant);
/* Whose turn it is by the clock at that time; NONE: it is the others'. *until: when that ends. */
uint32_t slice_clock_turn(const struct rtxg_slice *s, uint64_t at, slice_competes_fn competes,
			  uint64_t *until);

/* beside.c: which tenants run beside the turns of others. */
void slice_look_who_is_beside(struct rtxg_slice *s, slice_competes_fn competes);
/* Nothing is known of its pauses any more. */
void slice_beside_forget(struct slice_tenant *tenant);
/* There are no turns of tenants now. */
void slice_beside_none(struct rtxg_slice *s);
/* What it costs the engine that a pause is used: to another one and back. */
uint64_t slice_change_ns(const struct rtxg_slice *s);
/* It came onto the engine at that time. */
void slice_beside_started(struct rtxg_slice *s, struct slice_context *context, uint64_t at);
/* Its slice in ns where several tenants run together; 0: it is none of those. */
uint64_t slice_together(const struct rtxg_slice *s, const struct slice_context *context);

/* slow.c: the host has come for its timer. */
void slice_came(struct rtxg_slice *s);
/* Does the host come too late to keep turns, and has none a bound or a cap? */
bool slice_is_slow(const struct rtxg_slice *s);
/* By how much turns are longer then. */
uint64_t slice_turns_longer(const struct rtxg_slice *s);
/* By how much a tenant may be ahead of its share because the host came late to stop it. */
uint64_t slice_turns_late(const struct rtxg_slice *s, const struct slice_tenant *tenant);
/* Is the host so slow, and has this tenant the share of so many that it stays enabled? */
bool slice_stays(const struct rtxg_slice *s, uint32_t tenant);
/* Is the host so slow, and has this context had so little that no turn is to keep it waiting? */
bool slice_begins(const struct rtxg_slice *s, const struct slice_context *context);

/* urgent.c: which tenants with a latency keep their bounds now. */
void slice_look_at_urgent(struct rtxg_slice *s);
/* Is work there before which all others are stopped? */
bool slice_arrival(const struct rtxg_slice *s);
/* Is a tenant with a latency active that only turns can serve? */
bool slice_latency_needs_turns(const struct rtxg_slice *s);
/* The slice of the contexts that are enabled beside tenants with a latency. */
uint64_t slice_latency_slice(const struct rtxg_slice *s, uint32_t others);
/* The longest one with which all bounds that depend on it are kept. */
uint64_t slice_longest_beside(const struct rtxg_slice *s, uint32_t others);
/* The slice of this tenant if it shares the engine with others slice by slice, now or of late. */
uint64_t slice_beside_others(const struct rtxg_slice *s, const struct slice_tenant *tenant,
			     uint32_t others);

/* batch.c, spread.c, turns.c: for each context want_stop and want_slice, and s->timer if need be */
void slice_plan_batch(struct rtxg_slice *s);
void slice_plan_spread(struct rtxg_slice *s);
void slice_plan_turns(struct rtxg_slice *s);
/*
 * turns.c: up to then the log has told. As far as the engine was free, though the queues of the one
 * whose turn it is are filled, that counts as work of its tenant.
 */
void slice_turn_waited(struct rtxg_slice *s, uint64_t upto);

#endif
