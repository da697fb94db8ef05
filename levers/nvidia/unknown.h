/* SPDX-License-Identifier: MIT */
/*
 * unknown.h - processes that are there and whose channels are not known, because they are older
 * than the lever or because records of the discovery program are missing. The channels are looked
 * for, again and again with growing pauses.
 */
#ifndef RTXG_NV_UNKNOWN_H
#define RTXG_NV_UNKNOWN_H

#include "state.h"

/*
 * A process has the engine of this GPU and is not known: looks for its channels. While they are not
 * found it is a load that the policy knows of.
 */
void nv_adopt_unknown(struct lever_nvidia *l, struct nv_gpu *g, uint32_t pid);
/* Looks again for the channels of such processes, with growing pauses. */
void nv_adopt_loads(struct lever_nvidia *l);
/* Adopts all processes that had the driver open before the lever. */
void nv_adopt_old(struct lever_nvidia *l);
/* Looks again for the channels of one process of which records are missing, if it is time. */
void nv_rescan(struct lever_nvidia *l);

#endif
