/* SPDX-License-Identifier: MIT */
/*
 * sight.h - what of a context's queues can be seen: the pages in which its compute channels have
 * their words, and which of the channels carry work (are hot).
 *
 * Nothing of a process is kept: a page is let go when the process frees its memory, runs another
 * program or ends.
 *
 * May not: decide anything from what is seen.
 */
#ifndef RTXG_NV_SIGHT_H
#define RTXG_NV_SIGHT_H

#include <stdbool.h>
#include <stdint.h>
#include "channels.h"
#include "userd.h"

struct lever_nvidia;
struct nv_gpu;
struct nv_context;

/* of a process on one GPU: a process with that many contexts has some pages each */
#define NV_SIGHT_PAGES 256u

/* One channel's. */
enum nv_sight_of {
	NV_UNSEEN, /* not tried */
	NV_SEEN,
	NV_BLIND, /* it cannot be seen */
};

enum nv_told {
	NV_TOLD_NOTHING,
	NV_TOLD_NO_WORK,
	NV_TOLD_WORK,
};

/* Where CUDA puts the words of a client's channels, in the order in which it makes them. */
struct nv_layout {
	uint64_t first, stride; /* stride 0: not known */
};

struct nv_sight {
	struct nv_userd *pages;
	uint32_t count, room;
	uint64_t looked;      /* when, last; 0 = never */
	uint64_t every;	      /* how often the policy wants it to be looked at */
	uint64_t whole_since; /* all compute channels are seen since then; 0 = not all */
	uint64_t changed;     /* its channels, last */
	uint64_t again;	      /* not before then, after a failure */
	uint32_t failures, turn;
	uint8_t told;		     /* enum nv_told */
	bool queued;		     /* and told that the queues are filled */
	struct rtxg_slice_rest rest; /* the channels that were left alone when it was stopped */
};

/* Calls back for each compute channel of the context. */
typedef void (*nv_sight_fn)(void *ctx, struct nv_group *group, struct nv_channel *channel);
void nv_sight_each(const struct nv_gpu *g, const struct nv_context *c, nv_sight_fn fn, void *ctx);
/* Opens some of what was not tried as yet. Are all compute channels seen? */
bool nv_sight_open(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c, uint64_t now);
/* The channels of this context have changed. */
void nv_sight_changed(struct lever_nvidia *l, struct nv_context *c);
/* A program of our own has made its channels: how these lie is not what another program says. */
void nv_sight_show(struct lever_nvidia *l, const struct nv_process *p);
/* The process has freed an object: what was mapped of it is let go. */
void nv_sight_freed(struct lever_nvidia *l, struct nv_process *p, uint32_t client, uint32_t object);
/* Lets everything of a context go. */
void nv_sight_close(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c);
/*
 * Is it enough to stop the channels that carry work? The core says so. The others have to be
 * watched from then on: nv_sight_stopped().
 */
bool nv_sight_knows_hot(const struct lever_nvidia *l, const struct nv_context *c);
/* It was stopped now, all of it or its hot channels alone. */
void nv_sight_stopped(struct lever_nvidia *l, struct nv_context *c, bool in_part);

/*
 * For the probe: the sum of all words of a context's compute channels, which changes when something
 * is submitted, and how many channels there are. A negative errno if not all can be seen.
 */
int nv_sight_sum(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c, uint64_t *sum);

#endif
