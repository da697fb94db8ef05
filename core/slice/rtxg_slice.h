/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_slice.h - how contexts share one GPU whose own scheduler can be steered: by the length of
 * each context's time slice, and by stopping contexts in mid-flight. Events in, actions out, as in
 * rtxg_core.h: no system call, no allocation, no clock, no float.
 *
 * The core sees the GPU's context-switch log: a context came onto the engine, a context left it.
 * Where the lever can look into queues, it also knows which contexts have work. From both it keeps
 * one account for each tenant (a vGPU, however many contexts and processes it has), and decides
 * between the ways of sharing:
 *
 * BATCH, where contexts can be stopped and no tenant needs a short latency. Tenants take turns,
 *	each alone on the engine, so long that changing over costs less than the driver's slices,
 *	and so short that a second's shares are kept. The tenant furthest behind its share goes
 *	next. A tenant that is on several GPUs has its turns by the clock, the same on all of them:
 *	its processes may wait for each other on the GPU, and what one of them does alone is lost.
 *	A tenant with short work, and pauses that are too short for turns, runs beside those of the
 *	others, whose slices are short then.
 *
 * ARRIVAL, while work of a tenant with a latency is there: all others are stopped, in one go, when
 *	it arrives, and let go when it has been quiet for a moment. Else as BATCH. If the tenant has
 *	had its share, others run beside it slice by slice, but for the time in which its queues are
 *	filled.
 *
 * TURNS, while a latency-critical tenant is active, or one whose bound is too short for ARRIVAL.
 *	One best-effort context is enabled at a time, with a short slice, so that a critical kernel
 *	that arrives waits for one short slice at most. Tenants with a latency take no turns: the
 *	slices of each are as long as the bounds of the others allow. Turns go to the tenant that is
 *	furthest behind its share, or by the clock as in BATCH, to a tenant that is on several
 *	GPUs. If the critical tenant is periodic, even that context is stopped just ahead of each
 *	release, and let go once the release has started.
 *
 * SPREAD, where the lever cannot stop a context. All contexts are enabled. Slices stand in the
 *	ratio of the shares, divided among a tenant's contexts, as far as that costs no throughput:
 *	each switch costs the same, so short slices are dear. What slices leave to correct is
 *	corrected by what was measured.
 *
 * A tenant that has nothing to do is not waited for: its turn passes on, and what it is owed
 * shrinks meanwhile, down to owed_ns. Idle tenants are never stopped and take no turns. They stay
 * enabled, so that the first thing they do is seen, and their time goes to the others in
 * proportion.
 * A tenant that wakes up starts level with the tenant that is furthest behind: it has saved up
 * nothing. Time on the engine without a sign of work is charged only if the log shows that it was
 * work after all.
 *
 * Shares: a tenant is guaranteed min_ppm, and what the guarantees leave over is divided by weight.
 * Both count only tenants that want the GPU now. A context that cannot be stopped takes its part;
 * what it leaves is divided among the others in the ratio of their shares.
 *
 * Units as in rtxg_core.h: nanoseconds of one monotonic clock, parts per million. Times in events
 * may lie before `now`, because the log is read late, but the times of one context do not go
 * backwards.
 */
#ifndef RTXG_SLICE_H
#define RTXG_SLICE_H

#ifdef __KERNEL__
#include <linux/types.h>
#include <linux/errno.h>
#else
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#define RTXG_SLICE_NONE	 UINT32_MAX
#define RTXG_SLICE_NEVER UINT64_MAX
#define RTXG_SLICE_PPM	 1000000u

/*
 * What the lever can do, as its probes found. Without either there is nothing to decide: all is
 * left to the driver.
 */
#define RTXG_SLICE_CAN_SLICE   (1u << 0)
#define RTXG_SLICE_CAN_SUSPEND (1u << 1)
/* it can stop a context and leave it on the engine to the end of its slice, which costs less */
#define RTXG_SLICE_CAN_LEAVE (1u << 2)
/* it can look into the queues of contexts, and says what it sees there (DEMAND) */
#define RTXG_SLICE_CAN_DEMAND (1u << 3)

struct rtxg_slice_params {
	uint32_t can; /* RTXG_SLICE_CAN_* */
	/* SPREAD: no correction of slices below this error of a share; 0 = 3000 (0.3 points) */
	uint32_t dead_band_ppm;
	/* of a stay that was cut short, what went into restoring and saving: no work; 0 = 130 us */
	uint64_t save_ns;
	uint64_t slice_mean_ns; /* SPREAD: mean slice; 0 = 2 ms, as the driver */
	uint64_t slice_max_ns;	/* longest slice that the hardware keeps; 0 = 4 ms */
	/* SPREAD: shortest; 0 = 1 ms with suspension, else 200 us */
	uint64_t slice_min_ns;
	uint64_t slice_critical_ns; /* TURNS: slice of best-effort contexts; 0 = 30 us */
	/* the same while one of them is enabled at a time, since none has a latency; 0 = 16 us */
	uint64_t slice_sole_ns;
	/*
	 * BATCH: one that wakes up and is so far behind the turn's owner runs beside it; 0 = 2 ms
	 */
	uint64_t lag_ns;
	/* time between looks while there is something to decide; 0 = 3 ms */
	uint64_t tick_ns;
	uint64_t turn_ns; /* TURNS: length of a turn; 0 = 100 ms */
	/* not seen on the engine for so long while it could have been: idle; 0 = 40 ms */
	uint64_t idle_ns;
	/* a critical tenant not seen for so long is not active; 0 = 1 s */
	uint64_t critical_idle_ns;
	/* periodic: stop the others so long ahead of a release; 0 = 1 ms */
	uint64_t lead_ns;
	uint64_t hold_ns;	/* periodic: let them go so long after it; 0 = 200 us */
	uint64_t cap_window_ns; /* window of caps; 0 = 100 ms */
	/* periodic: a program that can comes onto the engine so long ahead of it; 0 = 350 us */
	uint64_t warm_ns;
	/*
	 * What acting costs, as the lever's probes found it: stopping one context (0 = 500 us) and
	 * each further one in the same call (0 = 150 us), letting one go (0 = 300 us) and each
	 * further one (0 = 80 us), bringing a context onto an engine that is free (0 = 90 us).
	 */
	uint64_t stop_ns, stop_more_ns, resume_ns, resume_more_ns, restore_ns;
	uint64_t look_ns; /* shortest time between looks into a queue; 0 = 50 us */
	/* arrival: the others are let go after so long a quiet at most; 0 = 1 ms */
	uint64_t quiet_ns;
	/*
	 * how far ahead of its share a tenant with a latency may run and keep its bound; 0 = 100 ms
	 */
	uint64_t burst_ns;
	/* while it has nothing to do, what a tenant is owed shrinks to so much; 0 = 10 ms */
	uint64_t owed_ns;
	uint64_t retry_ns; /* first pause after an action that failed; doubles to 2 s; 0 = 4 ms */
	/* batch: what a share may be off in a window of 1 s because turns are long; 0 = 4000 */
	uint32_t tolerance_ppm;
	uint32_t reserved; /* 0 */
};

/* A tenant of this priority or a higher one is latency-critical, all others are best effort. */
#define RTXG_SLICE_CRITICAL_PRIORITY 50u
#define RTXG_SLICE_PRIORITY_MAX	     99u

/*
 * A weight says how much of what the reservations leave over a tenant gets. A weight that was not
 * given follows from the reservation: 100 for each fifth of the GPU. A tenant without a reservation
 * then has 100 too, for it would hardly ever run with 0.
 */
#define RTXG_SLICE_WEIGHT_MAX	     10000u
#define RTXG_SLICE_WEIGHT_NOT_GIVEN  0u
#define RTXG_SLICE_WEIGHT_UNRESERVED 100u
#define RTXG_SLICE_WEIGHT_PPM	     2000u /* the reservation that one unit of weight stands for */

struct rtxg_slice_tenant {
	uint32_t min_ppm;
	uint32_t max_ppm;  /* cap; 0 or all of it = none */
	uint32_t weight;   /* 1..10000, or RTXG_SLICE_WEIGHT_NOT_GIVEN */
	uint32_t priority; /* 0..99; RTXG_SLICE_CRITICAL_PRIORITY divides the two classes */
	/*
	 * critical: releases come so often; 0 = sporadic. When the next one comes is learnt where
	 * this is up to 2.5 % wrong. Means nothing for best effort
	 */
	uint64_t period_ns;
	/*
	 * The bound asked for on how long work that arrives waits before it is on the engine: 0 =
	 * none, else 100 us to 10 s. Kept while the tenant is ahead of its share by burst_ns at
	 * most, and has been on the engine within critical_idle_ns; not in the first 20 ms after a
	 * program has come, or after the tenant was further ahead, for slices are set then.
	 * rtxg_slice_admit() says whether it can be kept.
	 */
	uint64_t latency_ns;
	/*
	 * length of its turns where batch work alternates: 0 = the core chooses, else 1 ms to 1 s
	 */
	uint64_t quantum_ns;
};
#define RTXG_SLICE_LATENCY_MIN 100000ull
#define RTXG_SLICE_LATENCY_MAX 10000000000ull
#define RTXG_SLICE_QUANTUM_MIN 1000000ull
#define RTXG_SLICE_QUANTUM_MAX 1000000000ull

enum rtxg_slice_event_type {
	RTXG_SLICE_EV_TENANT_SET = 1, /* tenant, tenant_params: adds it or changes it */
	RTXG_SLICE_EV_TENANT_REMOVE,  /* tenant: -EBUSY while it has contexts */
	/* context, tenant, value: enabled, slice unknown; RTXG_SLICE_LOAD: it cannot be governed */
	RTXG_SLICE_EV_ADD,
	RTXG_SLICE_EV_REMOVE, /* context: gone, whatever its state was */
	RTXG_SLICE_EV_MOVE,   /* context, tenant */
	/* context: its program comes onto the engine by itself at rtxg_slice_next_warm() */
	RTXG_SLICE_EV_WARMS,
	RTXG_SLICE_EV_START, /* context, at_ns: on the engine from then on */
	RTXG_SLICE_EV_END,   /* context, at_ns: off it */
	/* at_ns: a context that is not governed came onto the engine */
	RTXG_SLICE_EV_OTHER,
	/* tenant, at_ns: its next release will be then (critical tenants that say so) */
	RTXG_SLICE_EV_RELEASE,
	/*
	 * context, value: this action (RTXG_SLICE_SET, _SUSPEND or _RESUME) was refused, for a
	 * reason that may pass, or with RTXG_SLICE_FINAL for good. One that may pass is given again
	 * after a pause; pauses grow. A context that stays stopped because RESUME fails is tried
	 * again in both cases. The value 0 is final for SET and SUSPEND. To be told after all
	 * actions of the step have been carried out, for the answer may be more actions.
	 */
	RTXG_SLICE_EV_FAILED,
	/*
	 * context, value: RTXG_SLICE_LOAD: from now on it cannot be governed; 0: it can, and what
	 * failed before may be tried again
	 */
	RTXG_SLICE_EV_GOVERN,
	/*
	 * context, at_ns, value: a look into its queues then. RTXG_SLICE_QUEUED: they hold work
	 * that the engine's host has not taken (GET != PUT). RTXG_SLICE_WORK: none, but some came
	 * since the look before. RTXG_SLICE_NO_WORK: neither, which says that about two launches
	 * are left at most. May be told for each look, or for changes and for looks that come later
	 * than was asked for: without these the queues are taken to have been seen meanwhile. A
	 * context of which it was never told is taken to have work as long as the log shows it.
	 * RTXG_SLICE_FOLLOWED in addition: more looks were made meanwhile and are told right after
	 * this one; only then is it decided what to do.
	 */
	RTXG_SLICE_EV_DEMAND,
	/*
	 * tenant, value: RTXG_SLICE_COUPLED: it has contexts on other GPUs too, whose clock is the
	 * same as this one's; 0: it has none
	 */
	RTXG_SLICE_EV_COUPLE,
	/*
	 * The armed time has come, or the host has read the log before. The log has been read up to
	 * now; value RTXG_SLICE_UNREAD: it has not, which is enough where ARM says so.
	 */
	RTXG_SLICE_EV_TIMER,
};

#define RTXG_SLICE_LOAD	    1u
#define RTXG_SLICE_COUPLED  1u
#define RTXG_SLICE_NO_WORK  0u
#define RTXG_SLICE_WORK	    1u
#define RTXG_SLICE_QUEUED   2u
#define RTXG_SLICE_FOLLOWED (1u << 8)
#define RTXG_SLICE_FINAL    (1u << 8)
#define RTXG_SLICE_UNREAD   1u

struct rtxg_slice_event {
	uint32_t type;
	uint32_t tenant;
	uint32_t context;
	uint32_t value; /* of the events that say so, else 0 */
	uint64_t at_ns;
	uint64_t since_ns; /* DEMAND: when the look before that one was; 0 = there was none */
	struct rtxg_slice_tenant tenant_params;
};

enum rtxg_slice_action_type {
	RTXG_SLICE_SET = 1, /* context, ns: time slice */
	/*
	 * context; ns: 0 = off the engine at once, else it may stay there to the end of its slice
	 */
	RTXG_SLICE_SUSPEND,
	RTXG_SLICE_RESUME, /* context */
	/*
	 * ns: send TIMER at that time; replaces the one before. context: RTXG_SLICE_NONE: the log
	 * is to be read first; 0: what is due then does not depend on it
	 */
	RTXG_SLICE_ARM,
};

struct rtxg_slice_action {
	uint32_t type;
	uint32_t context;
	uint64_t ns;
};

struct rtxg_slice;

size_t rtxg_slice_size(uint32_t tenants, uint32_t contexts);
/* In the caller's memory. NULL if it is too small or a limit is 0 or above 4096. */
struct rtxg_slice *rtxg_slice_init(void *mem, size_t size, uint32_t tenants, uint32_t contexts,
				   const struct rtxg_slice_params *params, uint64_t now_ns);

/*
 * One event; returns how many actions were written or a negative errno, in which case nothing has
 * changed: -EINVAL, -ENOENT, -EEXIST, -EBUSY as rtxg_core_step. cap must be at least 4; if cap
 * actions come back there may be more: call again with a NULL event until fewer do. Actions are to
 * be carried out in order; neighbours of one type may go to the driver in one call.
 */
int rtxg_slice_step(struct rtxg_slice *s, uint64_t now_ns, const struct rtxg_slice_event *event,
		    struct rtxg_slice_action *actions, unsigned int cap);

/* Promises of a tenant that are broken, as measured over the last second. */
#define RTXG_SLICE_BROKEN_SHARE	  (1u << 0) /* it wanted the GPU all along and got less than min */
#define RTXG_SLICE_BROKEN_LATENCY (1u << 1) /* its work waited for longer than the bound */
#define RTXG_SLICE_BROKEN_CAP	  (1u << 2) /* it got more than max */

/*
 * Whether a reservation is broken, whichever lever keeps it: it was wanted all along and less was
 * got. `rtxg run --strict` and Kubernetes' PromisesKept read the answer.
 */
#define RTXG_SLICE_SHARE_SPAN_NS 1000000000u

struct rtxg_slice_share {
	uint32_t min_ppm;
	/*
	 * What runs can be stopped in mid-flight: then a share may be off by 2 points. Else a
	 * launch runs to its end, and it may be off by 3. A reservation of no more is not judged.
	 */
	bool stoppable;
	uint64_t span_ns;   /* that was looked at: RTXG_SLICE_SHARE_SPAN_NS or a little more */
	uint64_t wanted_ns; /* of it, there was work for the engine */
	uint64_t got_ns;    /* of it, on the engine */
	uint64_t whole_ns;  /* what the reservation is a part of */
};
bool rtxg_slice_share_broken(const struct rtxg_slice_share *share);

#define RTXG_SLICE_WAITS 12u

struct rtxg_slice_view {
	uint64_t work_ns;    /* on the engine, less what the hardware spent saving */
	uint64_t stay_ns;    /* on the engine */
	uint64_t stays;	     /* times it came onto the engine */
	uint64_t suspended;  /* times stopped */
	uint64_t stopped_ns; /* for how long, all contexts together */
	uint64_t wanted_ns;  /* for how long any of its contexts wanted the GPU */
	/* ahead of its share (positive) or behind, among those that want the GPU now */
	int64_t lag_ns;
	uint32_t share_ppm; /* of those that want the GPU now */
	uint32_t contexts, active, stopped;
	uint32_t loads;	    /* of its contexts, those that cannot be governed */
	uint32_t broken;    /* RTXG_SLICE_BROKEN_* */
	uint32_t broken_by; /* the context that most likely did it, or RTXG_SLICE_NONE */
	uint32_t mechanism; /* enum rtxg_slice_mechanism, if it has a latency */
	uint64_t waited_ns; /* longest wait of work that arrived, in the last full second */
	/*
	 * Waits of work that arrived, while it had a latency and did not run ahead: how many were
	 * no longer than rtxg_slice_wait_limit(i), and longer than the one before; the last one:
	 * those longer than all. And their sum.
	 */
	uint64_t waits[RTXG_SLICE_WAITS];
	uint64_t waits_ns;
};
/* ns; i below RTXG_SLICE_WAITS - 1, else RTXG_SLICE_NEVER */
uint64_t rtxg_slice_wait_limit(uint32_t i);
int rtxg_slice_tenant_view(const struct rtxg_slice *s, uint32_t tenant,
			   struct rtxg_slice_view *view);

enum rtxg_slice_state {
	RTXG_SLICE_IDLE,    /* enabled, and not seen on the engine of late */
	RTXG_SLICE_WAITING, /* enabled, another is on the engine */
	RTXG_SLICE_RUNNING, /* on the engine, as far as the log has been read */
	RTXG_SLICE_STOPPED, /* by a decision of ours */
};
/* What is known of a context beside its state. */
#define RTXG_SLICE_IS_LOAD    (1u << 0) /* it cannot be governed */
#define RTXG_SLICE_IS_RETRIED (1u << 1) /* an action failed and will be given again */
#define RTXG_SLICE_HAS_DEMAND (1u << 2) /* its queues were looked into */
#define RTXG_SLICE_HAS_WORK   (1u << 3) /* it wants the GPU, as far as can be told */

struct rtxg_slice_context_view {	  /* since it was added */
	uint64_t work_ns, stay_ns, stays; /* as in struct rtxg_slice_view */
	uint64_t stopped_ns;		  /* for how long it was stopped */
	uint64_t slice_ns;		  /* last decided; 0 = the driver's */
	uint32_t state;			  /* enum rtxg_slice_state */
	uint32_t flags;			  /* RTXG_SLICE_IS_*, RTXG_SLICE_HAS_* */
};
int rtxg_slice_context_view(const struct rtxg_slice *s, uint32_t context,
			    struct rtxg_slice_context_view *view);

enum rtxg_slice_mode {
	RTXG_SLICE_MODE_SPREAD,	 /* all enabled, slices in the ratio of the shares */
	RTXG_SLICE_MODE_BATCH,	 /* long turns of tenants */
	RTXG_SLICE_MODE_ARRIVAL, /* as BATCH, but work of a tenant with a latency is there */
	RTXG_SLICE_MODE_TURNS,	 /* turns of contexts, with short slices */
};
struct rtxg_slice_gpu_view {
	uint32_t mode;	  /* enum rtxg_slice_mode */
	uint32_t loads;	  /* contexts that cannot be governed */
	uint32_t retried; /* contexts on which an action failed and will be given again */
	uint32_t broken;  /* tenants of which a promise is broken */
	uint64_t
		idle_ns; /* for how long the engine had nothing to do while a stopped context had */
	uint64_t steps, actions, arms; /* given so far */
};
void rtxg_slice_gpu_view(const struct rtxg_slice *s, struct rtxg_slice_gpu_view *view);

/*
 * How often the lever is to look into this context's queues now; RTXG_SLICE_NEVER while no decision
 * depends on it, and where the lever cannot look (RTXG_SLICE_CAN_DEMAND). Asked for after a step.
 */
uint64_t rtxg_slice_look_ns(const struct rtxg_slice *s, uint32_t context);

/* How a bound on latency is kept, the cheapest first. */
enum rtxg_slice_mechanism {
	RTXG_SLICE_BY_NOTHING, /* it cannot be kept */
	RTXG_SLICE_BY_SLICES,  /* slices of the others that together are shorter */
	RTXG_SLICE_BY_ARRIVAL, /* all others are stopped when its work arrives */
	RTXG_SLICE_BY_TURNS,   /* one other context at a time, with short slices */
};
struct rtxg_slice_admission {
	uint32_t mechanism;	 /* enum rtxg_slice_mechanism: the one that would keep it */
	uint32_t best_mechanism; /* the one that gives the shortest bound */
	uint64_t bound_ns;	 /* the bound that `mechanism` gives; 0 if there is none */
	uint64_t best_ns;	 /* the shortest bound that can be given; NEVER = none at all */
	/* contexts of others that were reckoned with: those there are, at least 1 */
	uint32_t contexts;
	uint32_t loads;	 /* of those, the ones that cannot be governed: they break any bound */
	uint32_t beside; /* other tenants with a latency: their work goes in turn with this one's */
	uint32_t critical; /* critical tenants: the bound is kept outside the time of their work */
	uint32_t reserved_ppm; /* all reservations with this one */
	/* the tenant with a latency whose bound would break, or RTXG_SLICE_NONE */
	uint32_t breaks;
};
/*
 * Can this tenant have these parameters beside the others as they are now? Changes nothing. 0, or
 * -EINVAL (parameters out of range), -ENOTSUP (a bound, and the lever can neither set slices nor
 * stop), -EBUSY (the bound of `breaks` would be lost, whatever bound is asked for), -ERANGE (the
 * bound is below best_ns, which would be accepted), -ENOSPC (more than all is reserved). The
 * numbers are filled in in each case but -EINVAL. A tenant that does not exist yet may be asked
 * about; NONE is one of these.
 */
int rtxg_slice_admit(const struct rtxg_slice *s, uint32_t tenant,
		     const struct rtxg_slice_tenant *params,
		     struct rtxg_slice_admission *admission);

/* 1 while turns are taken, 0 while the GPU is spread. */
int rtxg_slice_turns(const struct rtxg_slice *s);
/* The release that it expects next of a periodic critical tenant, or RTXG_SLICE_NEVER. */
uint64_t rtxg_slice_next_release(const struct rtxg_slice *s, uint32_t tenant);
/*
 * When the programs of a tenant are to bring their contexts onto the engine, or RTXG_SLICE_NEVER:
 * unless each of them can (WARMS), while the period is too short for it to be worth while, before
 * the releases are known well enough, also over 200 periods where another period than was told is
 * learnt, and now and then (one release of 200), to see again when the context comes without.
 */
uint64_t rtxg_slice_next_warm(const struct rtxg_slice *s, uint32_t tenant);
/* Is it of use to find out whether the program of this context can do so, and not known as yet? */
bool rtxg_slice_asks_warm(const struct rtxg_slice *s, uint32_t context);
/*
 * When work that takes the driver a millisecond and is not urgent may be done that has been due
 * since due_ns: now_ns, or a later time if the release of a periodic critical tenant is near, but
 * at most 100 ms after due_ns.
 */
uint64_t rtxg_slice_calm_at(const struct rtxg_slice *s, uint64_t now_ns, uint64_t due_ns);
/* NULL if every invariant holds, else which does not. */
const char *rtxg_slice_check(const struct rtxg_slice *s);

#endif
