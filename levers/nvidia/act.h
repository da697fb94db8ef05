/* SPDX-License-Identifier: MIT */
/*
 * act.h - what the lever can do to a context: give it a time slice, stop it in mid-flight, let it
 * go on. It does what it is told and decides nothing; what it has stopped stands in the journal
 * first, so that the guardian can let it go.
 */
#ifndef RTXG_NV_ACT_H
#define RTXG_NV_ACT_H

#include "channels.h"
#include "journal.h"
#include "rm.h"

/* what CUDA sets itself: setting it ends the note in the journal */
#define NV_DRIVER_SLICE_US 2048u

/*
 * A set of channels to stop or to let go, in one call for each 64. It points into the registry: use
 * it before the registry changes.
 */
struct nv_batch {
	uint32_t *client, *channel;
	struct nv_channel **in_registry;
	unsigned int count, room;
	unsigned int *end; /* of each process's part */
	unsigned int parts, part_room;
};

/* Which channels of a process. */
enum nv_which {
	NV_ALL,
	NV_HOT,	    /* those that carry work, as far as their queues show */
	NV_RUNNING, /* those that were not stopped */
	NV_STOPPED, /* those that were, and were not let go */
};

void nv_batch_free(struct nv_batch *batch);
/*
 * Adds these compute channels of a process on one GPU (device instance), and those of its guests in
 * its groups. -ENOMEM.
 */
int nv_batch_add(struct nv_batch *batch, const struct nv_process *process, uint32_t device,
		 enum nv_which which);
/* Adds those of one group. -ENOMEM. */
int nv_batch_add_group(struct nv_batch *batch, struct nv_group *group, enum nv_which which);

/*
 * Stops the channels: none will run until resumed. When it returns none of them is running any
 * more, or with `leave` what is running may stay to the end of its slice, which takes the driver a
 * third less time. On failure of any call, what was stopped is let go again; what could not be let
 * go then stays NV_STOPPED and in the journal.
 */
int nv_suspend(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch,
	       bool leave);
/*
 * The same, but what was stopped stays so on failure: the caller is to stop or resume each of its
 * processes then.
 */
int nv_try_suspend(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch,
		   bool leave);
/*
 * Lets them go on, as often as they were stopped. A channel that no longer exists is no error.
 * Those that could not be let go stay NV_STOPPED and in the journal.
 */
int nv_resume(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch);
/* The same of a process that has ended: what could not be let go goes with it. */
void nv_resume_last(struct nv_rm_gpu *gpu, struct nv_journal *journal,
		    const struct nv_batch *batch);
/*
 * The same, but where the driver says that a process is not ready its channels are not asked for
 * one by one: they are let go later.
 */
int nv_resume_built(struct nv_rm_gpu *gpu, struct nv_journal *journal,
		    const struct nv_batch *batch);

/*
 * Time slice in microseconds (1..1000000) for all compute groups of the process on one GPU, in
 * force when the call returns. Uses a duplicate of the process's own descriptor, closed again at
 * once: held, it would keep the process's memory alive past its end. One group that refuses does
 * not keep the others from theirs; its error is returned.
 */
int nv_set_slice(struct nv_rm_gpu *gpu, struct nv_journal *journal, struct nv_process *process,
		 uint32_t device, uint32_t us);
/* The same for one group whose names are known, without a registry (the guardian). */
int nv_set_slice_of(struct nv_rm_gpu *gpu, uint32_t pid, int fd, uint32_t client, uint32_t group,
		    uint32_t channel, uint32_t us);
/* What is set now: `wanted` if all compute groups have that, else what the first other one has. */
int nv_get_slice(struct nv_rm_gpu *gpu, struct nv_process *process, uint32_t device,
		 uint32_t wanted, uint32_t *us);
/*
 * A duplicate of the descriptor on which a client was allocated, for calls about that client's
 * objects; the caller closes it. A descriptor that the process has moved or closed meanwhile is
 * looked for among its others.
 */
int nv_client_fd(struct nv_rm *rm, int pidfd, uint32_t pid, struct nv_client *client);
/*
 * Was the client allocated on a descriptor of that process? fd: the one that is asked first. 1:
 * yes; 0: no; a negative errno: that cannot be told now.
 */
int nv_client_is_of(struct nv_rm *rm, uint32_t pid, int fd, uint32_t client);
/* Takes it off the engine once; it goes on at its next turn. */
int nv_preempt(struct nv_rm_gpu *gpu, struct nv_process *process, uint32_t device,
	       uint32_t timeout_us);

#endif
