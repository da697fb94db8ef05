/* SPDX-License-Identifier: MIT */
/*
 * policy.h - the slice policy of each GPU.
 */
#ifndef RTXG_NV_POLICY_H
#define RTXG_NV_POLICY_H

#include "state.h"

/* A policy that knows nothing of the past, with the vGPUs and contexts that there are. -EINVAL. */
int nv_restart_policy(struct lever_nvidia *l);

#endif
