/* SPDX-License-Identifier: MIT */
/*
 * permit.h - what the layer says to librtxg and hears from it, and how the helper sleeps.
 */
#ifndef RTXG_OPENCL_PERMIT_H
#define RTXG_OPENCL_PERMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"

/* ---- under the monitor's lock; none of these waits ---- */

/* The permit has been called back, or none is there. */
bool layer_permit_revoked(const struct layer_lane *lane);
/*
 * Others wait to hear when what is admitted has completed. Without that, it is noticed when the
 * program looks, or by the helper.
 */
bool layer_permit_awaited(const struct layer_lane *lane);
/* Takes the permit if it is there; never asks the host, which the helper does. */
bool layer_permit_try(struct layer_lane *lane);
/* The helper has to wait for the permit. */
void layer_permit_missed(struct layer_lane *lane) LAYER_RARE;
/* Tells of what has completed. */
void layer_permit_report(struct layer_lane *lane);
/* What was taken is not used. */
void layer_permit_return(struct layer_lane *lane);
/* The helper looks at the lane. */
void layer_permit_wake(struct layer_lane *lane) LAYER_RARE;

/* ---- by the helper, without the lock ---- */

/* Asks the host and waits for its answer, so long at most (UINT64_MAX: for ever). */
int layer_permit_wait(struct layer_lane *lane, uint64_t until_ns);
/* Sleeps until called back, so long at most. */
void layer_permit_listen(struct layer_lane *lane, uint64_t until_ns);
/*
 * Sleeps until woken. `signals` is what lane->signals was when there was nothing to do. ns:
 * UINT64_MAX = without a limit.
 */
void layer_permit_sleep(struct layer_lane *lane, unsigned int signals, uint64_t ns);

#endif
