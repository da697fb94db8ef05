/* SPDX-License-Identifier: MIT */
/*
 * carry_out.h - events into the slice policy, its actions out to the driver.
 */
#ifndef RTXG_NV_CARRY_OUT_H
#define RTXG_NV_CARRY_OUT_H

#include "state.h"

/* Lets go of a GPU for good: resumes what is stopped there and acts on it no more. */
void nv_give_up(struct lever_nvidia *l, struct nv_gpu *g, const char *why);
/*
 * Stops or resumes these. Neighbours go to the driver in one call. If that fails, each goes alone,
 * and the policy is told which one failed. With `leave`, see nv_suspend().
 */
void nv_stop_or_go(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context **contexts,
		   unsigned int count, bool stop, bool leave);
/* Stops the channels of a stopped context that run: those that were left, or are new. */
void nv_stop_rest(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c);
/* Stops again what ought to be stopped, after something has let it go. */
void nv_stop_again(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c);
/* What is stopped of a process runs, on all GPUs, and then is as it was. NULL: there is none. */
void nv_let_go_for_a_while(struct lever_nvidia *l, struct nv_process *p);
void nv_stop_as_before(struct lever_nvidia *l, const struct nv_process *p);
/* Sets the slice again that was decided, after something else has been set. */
void nv_slice_again(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c);
/* Channels that could not be let go when they ought to have been: tries again. */
void nv_let_strays_go(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c);
/*
 * Tells the policy of an event now, and carries out what it answers. Returns the policy's refusal,
 * a negative errno, or 0.
 */
int nv_step(struct lever_nvidia *l, struct nv_gpu *g, const struct rtxg_slice_event *e);
/* The same for events that the policy ought to take: a refusal goes to the log. */
void nv_decide(struct lever_nvidia *l, struct nv_gpu *g, const struct rtxg_slice_event *e);

#endif
