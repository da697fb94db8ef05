/* SPDX-License-Identifier: MIT */
/*
 * gate.h - what happens around an enqueue call, and when the program has waited.
 */
#ifndef RTXG_OPENCL_GATE_H
#define RTXG_OPENCL_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "queue.h"

/* One enqueue call on its way: what to hand to the next layer. */
struct layer_ticket {
	struct layer_batch *batch; /* NULL: pass through */
	struct layer_queue *queue;
	cl_uint n;
	const cl_event *list;
	cl_event *event;
	cl_event own;	    /* the event, where the program wants none */
	bool program_event; /* the program gets the event */
	bool turn;	    /* it is its turn on its queue, though it has no batch */
	bool blocking;	    /* the program's call waits for the command */
	bool bare;	    /* nothing tells of its end but what comes behind it in its queue */
	uint64_t number;    /* in its queue; 0: it has none */
	uint32_t key;
	uint64_t units;
	uint64_t est_ns;
	cl_event gate;	/* retained for the time of the call */
	bool fenced;	/* the gate stands in the queue, not in the list */
	cl_event fence; /* what stands there, if it has an event */
	bool refused;	/* no permit will ever come: fail the call */
	cl_event *heap;
	cl_event stack[16];
};

enum layer_pass {
	PASS_COMMAND, /* ordered by its wait list and its queue only */
	PASS_MARKER,  /* an empty wait list means: everything before it in the queue */
	PASS_BARRIER, /* the same, and everything after it in the queue waits for it */
	/* as a command, but its end may never come by itself: what is outside brings it about */
	PASS_OUTSIDE,
};

void layer_gate_enter(struct layer_ticket *t, cl_command_queue queue, int engine, uint32_t key,
		      uint64_t units, bool blocking, cl_uint n, const cl_event *list,
		      cl_event *event);
void layer_gate_enter_pass(struct layer_ticket *t, cl_command_queue queue, enum layer_pass pass,
			   cl_uint n, const cl_event *list, cl_event *event);
cl_int layer_gate_leave(struct layer_ticket *t, cl_int err);
void layer_gate_reap(void);
/* Drops the events of commands that have failed. */
void layer_gate_drop_kept(void);
/*
 * The program has waited for all commands of a queue up to a number: that of before its call, by
 * layer_gate_newest. The queue may be NULL.
 */
uint64_t layer_gate_newest(const struct layer_queue *q);
void layer_gate_finished(struct layer_queue *q, uint64_t number);
/* The program is about to drop a reference to a queue: behind the last one nothing can be put. */
void layer_gate_queue_release(struct layer_queue *q);

#endif
