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
/*
 * The context that a record of the switch log is about: by the context's number if that is known,
 * else by the process. NULL: not known.
 */
struct nv_context *nv_context_by_record(struct lever_nvidia *l, struct nv_gpu *g, uint32_t cid,
					uint32_t pid);
/* Removes what is left of processes whose end was not seen. */
void nv_contexts_prune(struct lever_nvidia *l);
/*
 * A process has a context on that GPU: one that can be acted on, or (`load` says why not) one that
 * cannot. Nothing happens to one that is known there.
 */
void nv_context_add(struct lever_nvidia *l, struct nv_gpu *g, struct nv_process *p,
		    const char *load);
/*
 * A process that cannot be governed shows no descriptor of the driver. Where it has not worked for
 * a while either, nothing is left to reckon with, and its place is another's. Returns whether it is
 * gone from a GPU. One that keeps its context by what cannot be seen comes back when it works.
 */
#define NV_LOAD_RESTS_NS 30000000000ull
bool nv_load_let_go(struct lever_nvidia *l, struct nv_process *p);
/* An MPS server, or a client of one, was adopted: who works in whose context? */
void nv_share_adopted(struct lever_nvidia *l, struct nv_process *p);

#endif
