/* SPDX-License-Identifier: MIT */
/*
 * watch.h - what is looked after beside the scheduling.
 */
#ifndef RTXG_NV_WATCH_H
#define RTXG_NV_WATCH_H

#include "state.h"

/*
 * Starts the guardian, before the policy. Without it nothing may be stopped, unless the options
 * allow that; where it cannot be started it is tried again, as after its end.
 */
void nv_guard_first(struct lever_nvidia *l);
/* The guardian has ended: resumes everything and starts another. */
void nv_guardian_died(struct lever_nvidia *l);
/* Reads the kernel log for Xids. */
void nv_read_kmsg(struct lever_nvidia *l);
/* Plans the first watch. */
void nv_watch_begin(struct lever_nvidia *l);
/* What is to be looked at from time to time; l->next_watch says when it wants to be called next. */
void nv_watch(struct lever_nvidia *l);

#endif
