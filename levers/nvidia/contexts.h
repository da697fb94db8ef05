/* SPDX-License-Identifier: MIT */
/*
 * contexts.h - the contexts of each GPU, as they come and go.
 */
#ifndef RTXG_NV_CONTEXTS_H
#define RTXG_NV_CONTEXTS_H

#include "state.h"

struct discover_record;

/* Before the first record. */
void nv_contexts_begin(struct lever_nvidia *l);
/* One record of the discovery program; `lever` is the struct lever_nvidia. */
void nv_contexts_feed(void *lever, const struct discover_record *r);
/* Looks again for the channels of one process of which records are missing, if it is time. */
void nv_contexts_rescan(struct lever_nvidia *l);
/*
 * The context that a record of the switch log is about: by the context's number if that is known,
 * else by the process. NULL: not known.
 */
struct nv_context *nv_context_by_record(struct lever_nvidia *l, struct nv_gpu *g, uint32_t cid,
					uint32_t pid);
/*
 * A process has the engine of this GPU and is not known: looks for its channels. While they are not
 * found it is a load that the policy knows of.
 */
void nv_adopt_unknown(struct lever_nvidia *l, struct nv_gpu *g, uint32_t pid);
/* Looks again for the channels of such processes, with growing pauses. */
void nv_adopt_loads(struct lever_nvidia *l);
/* Removes what is left of processes whose end was not seen. */
void nv_contexts_prune(struct lever_nvidia *l);
/* Adopts all processes that had the driver open before the lever. */
void nv_adopt_old(struct lever_nvidia *l);

#endif
