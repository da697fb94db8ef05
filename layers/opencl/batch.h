/* SPDX-License-Identifier: MIT */
/*
 * batch.h - commands that share a permit, and what they wait for. All under the monitor's lock but
 * the numbers.
 *
 * A batch is
 *   blocked    it depends on something that may never come by itself: a user event, or a batch that
 *              has no permit yet;
 *   ready      only the permit is missing;
 *   admitted   it runs under a permit, and everything it depends on is admitted too, so it
 *              completes by itself.
 * Blocked and ready batches are "unresolved" and in the event table.
 */
#ifndef RTXG_OPENCL_BATCH_H
#define RTXG_OPENCL_BATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "events.h"

enum layer_state { LAYER_BLOCKED, LAYER_READY, LAYER_ADMITTED };

struct layer_command {
	cl_event event;	 /* NULL: bare */
	uint64_t number; /* in its queue; 0: none */
	uint32_t key;
	uint64_t units;
	uint64_t est_ns; /* when it was enqueued */
	bool mapped;	 /* in the event table */
	bool times;	 /* its event will say when the device ran it */
	bool timed;	 /* that is known */
	bool failed;	 /* its event has completed, by an error */
	cl_ulong start, end;
};

struct layer_batch {
	struct layer_batch *prev, *next;   /* in its lane's list */
	struct layer_batch *uprev, *unext; /* among the unresolved */
	struct layer_lane *lane;	   /* NULL: occupies no engine */
	struct layer_queue *queue;	   /* NULL: a user event */
	enum layer_state state;
	/* unresolved batches (or a user event's setting) that it waits for */
	unsigned int deps;
	/* among these the one that stood last in its queue before it; NULL: none does any more */
	struct layer_batch *behind;
	unsigned int entering; /* enqueue calls that have not returned */
	bool in_order;	       /* all its commands are in one in-order queue */
	/* its first command stands in that queue: what comes behind needs no gate */
	bool first_in;
	/* its event completes by what is outside: a semaphore, another API. Counted in deps */
	bool outside;
	/* it may have failed, and its queue then keeps nothing back: takes no more commands */
	bool frail;
	cl_event watched;  /* or NULL: the command of its whose end will be told */
	unsigned int refs; /* of a user event or one of another API: the program's references */
	cl_event gate;
	cl_event fence; /* or NULL: holds the queue back until the gate is opened */
	struct layer_batch **dependents;
	unsigned int dependents_n, dependents_cap;
	struct layer_command *commands;
	unsigned int n, cap;
	uint64_t est_ns;
};

/* Looked at without the lock too. */
extern atomic_uint layer_unresolved_n;
extern atomic_uint layer_admitted_n;
extern atomic_uint layer_foreign_n; /* events whose references are counted */

/* The unresolved ones, the newest first. */
struct layer_batch *layer_batch_unresolved(void);

/* NULL without memory. */
struct layer_batch *layer_batch_new(struct layer_lane *lane, struct layer_queue *queue);
void layer_batch_drop(struct layer_batch *b);
/* Makes it one of the unresolved. */
void layer_batch_block(struct layer_batch *b);
void layer_batch_depend(struct layer_batch *b, struct layer_batch *on) LAYER_RARE;
/* It waits for nothing but the permit. */
void layer_batch_ready(struct layer_batch *b);
/* It is ready no more. */
void layer_batch_unready(struct layer_batch *b) LAYER_RARE;
/*
 * Nothing is left in it that could run. It only keeps its place in its queue for those behind it,
 * while something before it is unresolved.
 */
void layer_batch_moot(struct layer_batch *b, struct layer_todo *todo) LAYER_RARE;
/* It will complete by itself from here: who waits for it may go on. */
void layer_batch_resolve(struct layer_batch *b, struct layer_todo *todo) LAYER_RARE;
/* Opens its gate, if it has one; refused: what stands behind the gate fails. */
void layer_batch_open(struct layer_batch *b, struct layer_todo *todo, bool refused) LAYER_RARE;
/* It runs under a permit; or has run. */
void layer_batch_begin(struct layer_lane *lane, struct layer_batch *b);
void layer_batch_end(struct layer_lane *lane, struct layer_batch *b);
/* Room for one more command; NULL without memory. */
struct layer_command *layer_batch_command(struct layer_batch *b);
/*
 * An enqueue call that added nothing leaves a batch without commands, which must not wait for
 * anything.
 */
void layer_batch_drop_if_empty(struct layer_batch *b, struct layer_todo *todo);
/* How many references to the event it holds. */
unsigned int layer_batch_holds(const struct layer_batch *b, cl_event event);
/* In a forked child: they are the parent's. */
void layer_batch_forget(void);

#endif
