/* SPDX-License-Identifier: MIT */
/*
 * timer.h - the lever's one timer.
 */
#ifndef RTXG_NV_TIMER_H
#define RTXG_NV_TIMER_H

#include "state.h"

/*
 * Arms it for the earliest time at which a GPU's policy, a look into a queue or the watch wants it;
 * no system call if it stands there already.
 */
void nv_arm(struct lever_nvidia *l);

#endif
