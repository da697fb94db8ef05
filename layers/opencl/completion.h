/* SPDX-License-Identifier: MIT */
/*
 * completion.h - what has completed, and what will tell of it. Under the monitor's lock.
 */
#ifndef RTXG_OPENCL_COMPLETION_H
#define RTXG_OPENCL_COMPLETION_H

#include <stdbool.h>
#include <stdint.h>

#include "batch.h"

/* The event's state of execution; negative: ended by an error. */
cl_int layer_completion_status(cl_event event);
/* That command of a queue and all before it have completed. */
void layer_completion_raise(struct layer_queue *q, uint64_t number, struct layer_todo *todo);
/*
 * What is unresolved may fail. What fails ends before those in front of it in its queue, and PoCL
 * then lets what enters from there on run beside these: no end of one tells of them any more.
 */
void layer_completion_doubt(void) LAYER_RARE;
/* The first command of an unresolved batch that has not ended; NULL: all have, and so failed. */
cl_event layer_completion_awaited(const struct layer_batch *b);
/* Does the end of what enters that queue now tell of those before it? */
bool layer_completion_tells(struct layer_queue *q);
/* Is there something in the queue that nothing tells of? */
bool layer_completion_untold(const struct layer_queue *q);
/* The engine is begun with by that batch: may measure how long it takes. */
void layer_completion_begin(struct layer_lane *lane, const struct layer_batch *b);
/* Looks what has completed. */
void layer_completion_reap(struct layer_lane *lane, struct layer_todo *todo);
/* Has the oldest batch tell when its last command completes. */
void layer_completion_arm(struct layer_lane *lane, struct layer_todo *todo);

#endif
