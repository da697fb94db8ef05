/* SPDX-License-Identifier: MIT */
/*
 * turn.h - calls on one queue, one by one.
 *
 * What the layer takes for the order of a queue has to be the queue's: a command that runs under a
 * permit must not stand behind one that waits for a gate. No call waits for anything but the
 * queue's own calls.
 */
#ifndef RTXG_OPENCL_TURN_H
#define RTXG_OPENCL_TURN_H

#include "device.h"
#include "queue.h"

#define LAYER_MARK_QUEUES 16

/* ---- under the monitor's lock ---- */

/* Waits until no other thread's call on the queue is under way. */
void layer_turn_wait(struct layer_queue *q);
void layer_turn_begin(struct layer_queue *q);
/* A call on the queue has returned. */
void layer_turn_end(struct layer_queue *q);
/*
 * The queues (LAYER_MARK_QUEUES at most) with something under way on that engine that nothing tells
 * of. A call under way on one is asked to put the marker when it leaves.
 */
unsigned int layer_turn_untold(const struct layer_lane *lane, struct layer_queue **queues);

/* ---- without it ---- */

/*
 * What is known to be in the queue tells of its end from here. By a thread whose turn it is.
 * number: the marker's, drawn under the lock before that of any command that enters behind it.
 */
void layer_turn_marker(struct layer_queue *q, cl_command_queue handle, uint64_t number) LAYER_RARE;
/*
 * Puts a marker into the queue if there is something to tell of; a call under way does it itself.
 */
void layer_turn_mark(struct layer_queue *q) LAYER_RARE;

#endif
