/* SPDX-License-Identifier: MIT */
/*
 * demand.h - which contexts have work in their queues, told to the slice policy. It looks only
 * while the policy asks it to, and mostly at the channels that move: a look at one costs a read
 * across PCIe, about 1 us. A context of which not all compute channels can be seen is not looked
 * at; the policy then goes by the log alone, as without this file.
 *
 * May not: decide who runs.
 */
#ifndef RTXG_NV_DEMAND_H
#define RTXG_NV_DEMAND_H

#include "state.h"

/* Looks at the contexts whose time has come, and tells the policy what has changed. */
void nv_demand_look(struct lever_nvidia *l);
/*
 * The same for one context while the lever's thread waits for the driver (lookout.h). Is the policy
 * to be told what was seen?
 */
bool nv_demand_glance(struct lever_nvidia *l, struct nv_gpu *g, uint32_t context,
		      struct nv_glance *seen);
/* Tells the policy what was seen so in calls. Called by the lever's thread. */
void nv_demand_tell(struct lever_nvidia *l);
/* When that is due next for any context; UINT64_MAX: for none. */
uint64_t nv_demand_next_glance(struct lever_nvidia *l);
/* When it wants to be called next; UINT64_MAX: not until something happens. */
uint64_t nv_demand_next(struct lever_nvidia *l);

#endif
