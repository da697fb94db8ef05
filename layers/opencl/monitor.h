/* SPDX-License-Identifier: MIT */
/*
 * monitor.h - the lock under which the layer decides, and the looks at all lanes.
 */
#ifndef RTXG_OPENCL_MONITOR_H
#define RTXG_OPENCL_MONITOR_H

#include "events.h"

/* Locks, with nothing to do after it. */
void layer_monitor_enter(struct layer_todo *todo);
/*
 * Unlocks, then makes the calls that were collected, then does what others could not do because of
 * us.
 */
void layer_monitor_leave(struct layer_todo *todo);
void layer_monitor_lock(void);
void layer_monitor_unlock(void);

/* ---- under the lock ---- */

/*
 * Waits, the lock free meanwhile, until layer_monitor_tell: a call on some queue has returned.
 * Looks at what was noted until then, so the caller may have nothing of its own to do after the
 * lock.
 */
void layer_monitor_await(void) LAYER_RARE;
void layer_monitor_tell(void) LAYER_RARE;
/* Looks at everything that a note may be about. */
void layer_monitor_run_all(struct layer_todo *todo);
/* A command has failed, and others may have with it: the next look at everything is at them too. */
void layer_monitor_failed(void) LAYER_RARE;
/* Looks at the lanes in which something is under way. */
void layer_monitor_run_admitted(struct layer_todo *todo);
/* From here the lane is looked at. */
void layer_monitor_add(struct layer_lane *lane);

/* ---- without it ---- */

/*
 * Has an event of outside tell when it completes. One that cannot be told of counts as one that
 * completes by itself. The event is retained for the time of the call.
 */
void layer_monitor_watch(cl_event event) LAYER_RARE;
/* How many references to the event are the layer's own. */
unsigned int layer_monitor_holds(cl_event event);
/*
 * In a forked child. What the parent had under way is the parent's: the driver's threads do not
 * exist here and nothing of it will ever complete, so it is forgotten, not freed.
 */
void layer_monitor_after_fork(void);

#endif
