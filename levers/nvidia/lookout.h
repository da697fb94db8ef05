/* SPDX-License-Identifier: MIT */
/*
 * lookout.h - a second thread that looks into queues while a call of the driver keeps the lever's
 * own.
 *
 * A program that starts or ends holds the driver's lock, and every call of the lever waits for it:
 * mostly 1 ms, now and then 100 ms. A queue is memory: to look at it takes no lock. What the
 * lookout sees in that time is told to the policy as soon as the call has ended, with the times at
 * which it was seen (demand.h). So the policy knows for how long a program worked, and for how long
 * it had nothing to do while the others could not be let go.
 *
 * The lever's state belongs to its own thread, and to the lookout while that thread is in a call.
 *
 * May not: call the driver, or step the policy.
 */
#ifndef RTXG_NV_LOOKOUT_H
#define RTXG_NV_LOOKOUT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct lever_nvidia;

#define NV_LOOKOUT_ROOM 1024u /* looks that tell of a change, kept in one call of the driver */

struct nv_lookout {
	pthread_t thread;
	pthread_mutex_t lent; /* the lever's thread has it, but not while it is in a call */
	int timer;	      /* when the lookout begins: a call has lasted for long then */
	bool runs, wanted, armed;
	bool ends; /* read by the lookout at any time */
	int leads; /* thread of the lever, whose priority the lookout takes */
	uint32_t count, into;
	/* one that is filled, and one that the policy is being told */
	struct nv_glance {
		uint32_t gpu, context, value;
		uint64_t known; /* when the context was found: it is that one still */
		uint64_t at, since;
	} seen[2][NV_LOOKOUT_ROOM];
};

/*
 * Starts it, from the lever's thread. Returns 0 or a negative errno: then the policy takes all that
 * comes late for what it cannot know.
 */
int nv_lookout_start(struct lever_nvidia *l);
/* Ends it. Safe if it was not started. */
void nv_lookout_stop(struct lever_nvidia *l);
/*
 * The looks that are due. Called by the lookout while it has the lever's state. Returns when the
 * next one is due; UINT64_MAX: not before the policy has been told.
 */
uint64_t nv_lookout_pass(struct lever_nvidia *l);

#endif
