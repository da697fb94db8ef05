/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * permit_lane.h - one lane: its permit word, the looks and the timer that it waits for, and what is
 * remembered of it. Inner: permit.c's.
 */
#ifndef RTXG_PERMIT_LANE_H
#define RTXG_PERMIT_LANE_H

#include "permit.h"

/*
 * The same permit with other flags (RTXG_GRANT_*) changes no sequence and wakes no thread. Only a
 * lease is changed so, whose word no launch uses up, and a permit that is cut down to one launch
 * before it was used: nothing that a launch has taken is given back.
 */
void permit_lane_write(struct permit_lane *lane, uint32_t flags);
/* A new permit, with the lane's flags; its threads wake if they wait. */
void permit_lane_give(struct permit_machine *m, struct permit_lane *lane);
/* The word is taken back; who watches for that wakes. */
void permit_lane_take(struct permit_machine *m, struct permit_lane *lane);

/* Its state is that from now on; the time in which lanes wait is counted. */
void permit_lane_set(struct permit_machine *m, struct permit_lane *lane, enum permit_state state);
/*
 * Launches that have not completed, as the client says. The device may know better: if its fence
 * covers all of them and has passed, none is left, though the client has not run since.
 */
uint32_t permit_lane_in_flight(struct permit_machine *m, const struct permit_lane *lane);

/* The host's timer is set to what the core and the looks at bursts want, if that has changed. */
void permit_arm(struct permit_machine *m);
/* The lane is looked at when its burst may be over, and is not any more. */
void permit_burst_start(struct permit_machine *m, struct permit_lane *lane);
void permit_burst_stop(struct permit_machine *m, struct permit_lane *lane);

/* The lane is looked at before the call ends, once; and is not. */
void permit_look_queue(struct permit_machine *m, struct permit_lane *lane);
void permit_look_unqueue(struct permit_machine *m, struct permit_lane *lane);

#endif
