/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * lane.h - the state of one engine as a program under the gate uses it, and who has to act on it
 * next.
 *
 * What is ready must never wait for a thread that sleeps: each transition says whether the helper
 * has to be woken, and each look what comes next. tests/unit/test_lane.c walks all states. Under
 * the lock of its host, which is a layer.
 */
#ifndef RTXG_GATE_LANE_H
#define RTXG_GATE_LANE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

struct lane {
	unsigned int ready;	 /* batches that lack the permit only */
	unsigned int admitted;	 /* batches under a permit, not known to be complete */
	uint64_t outstanding_ns; /* estimated execution time of what is admitted */
	bool launched;		 /* a permit has been taken, ever */
	bool missed;		 /* a try for the permit failed: the helper has to wait for it */
	bool closed;		 /* no permit will come any more */
	bool contended;		 /* another task wants the engine, or did a moment ago */
	uint64_t contended_at;
	/* about the helper */
	bool asleep;	    /* until it is woken, however long that is */
	bool begun;	    /* something was admitted since it looked last */
	bool progressed;    /* something was found complete since it looked last */
	bool found;	    /* something was found complete by its present look */
	unsigned int quiet; /* looks in a row before which nothing was admitted */
	unsigned int vain;  /* looks in a row that found nothing complete */
};

/* ---- batches ---- */

/* Is there room for one more batch? ahead_ns: how much may be queued on the device. */
bool lane_room(const struct lane *l, uint64_t est_ns, uint64_t ahead_ns);
/* May a new batch try for the permit at once? */
bool lane_at_once(const struct lane *l, uint64_t est_ns, uint64_t ahead_ns);
/* Joins a command the batch that runs, if it may. */
bool lane_join(struct lane *l, uint64_t est_ns, uint64_t ahead_ns, bool revoked);

/*
 * What can be done for the first ready batch. LANE_ASK_EARLY: the next permit is asked for while
 * this one drains, so that the host knows that we want to go on (lane_missed).
 */
enum lane_admission { LANE_STOP, LANE_TRY, LANE_ASK_EARLY };
enum lane_admission lane_admission(const struct lane *l, uint64_t est_ns, uint64_t ahead_ns,
				   bool revoked);
/* The permit has been taken for a batch. Returns whether to wake the helper. */
bool lane_admit(struct lane *l, uint64_t est_ns);
/* A try failed. Returns whether to wake the helper. */
bool lane_missed(struct lane *l, uint64_t now);
/* A batch is known to be complete. */
void lane_finish(struct lane *l, uint64_t est_ns);
/* Completions have been told to the host. Returns whether to wake the helper. */
bool lane_reported(const struct lane *l);

/* ---- ends ---- */

/*
 * Does it matter that ends are noticed at once? awaited: the host says that others wait for them.
 */
bool lane_watches(const struct lane *l, bool awaited);

/* What is seen of the oldest admitted batch, behind the look for ends. */
enum lane_oldest {
	LANE_SILENT, /* nothing tells of its end; perhaps its call is under way */
	LANE_TELLS,  /* an event does */
	LANE_ENDED,  /* it has ended since it was looked at */
};
enum lane_arming { LANE_LEAVE, LANE_ARM, LANE_LOOK_AGAIN };
/* armed: a callback is registered already. */
enum lane_arming lane_arming(bool armed, enum lane_oldest oldest);

/* An enqueue call returns. May something be due? */
bool lane_due(const struct lane *l, bool failed, bool awaited);
/* It was, and has been looked at. Returns whether to wake the helper. */
bool lane_leaves(const struct lane *l);

/* ---- the helper ---- */

/* It is going to look for ends; it has. */
void lane_look(struct lane *l);
void lane_look_ends(struct lane *l);
/* Should queues in which nothing tells of an end get a marker? */
bool lane_marks(const struct lane *l, bool revoked);

enum lane_next {
	LANE_ASK,	/* ask for the permit and wait for it */
	LANE_DRAIN,	/* called back: have the queues begin, watch for the end, sleep a little */
	LANE_LISTEN,	/* until called back, or a little while */
	LANE_LISTEN_ON, /* the same for longer */
	LANE_SLEEP,	/* until woken */
};
enum lane_next lane_next(struct lane *l, uint64_t now, bool revoked);
/*
 * LANE_ASK: the host grants nothing before what is admitted has ended, and the helper hears nothing
 * while it waits for the host. So where no callback is to come, be it that the platform refuses
 * them or that a call is under way, it sleeps a little and looks again instead.
 */
bool lane_asks(bool drains, bool armed);
/* LANE_SLEEP has ended. */
void lane_woken(struct lane *l);

enum lane_answer {
	LANE_GRANTED,	/* admit the first ready batch */
	LANE_GIVE_BACK, /* what wanted it is gone */
	LANE_AGAIN,	/* look, then ask again */
	LANE_CLOSED,	/* no permit will come; said once */
};
/* The host has answered the helper; err: as rtx_gpu_launch_until's. */
enum lane_answer lane_answered(struct lane *l, int err, bool awaited, uint64_t now);

#endif
