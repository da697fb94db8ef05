/* SPDX-License-Identifier: MIT */
/*
 * couple.h - which vGPUs are on several GPUs at once.
 */
#ifndef RTXG_NV_COUPLE_H
#define RTXG_NV_COUPLE_H

#include "state.h"

/* After contexts came, went or moved: tells the policy of each GPU what it does not know yet. */
void nv_couple(struct lever_nvidia *l);

#endif
