/* SPDX-License-Identifier: MIT */
/*
 * switchlog.h - reads the context-switch log into the slice policy.
 */
#ifndef RTXG_NV_SWITCHLOG_H
#define RTXG_NV_SWITCHLOG_H

#include "state.h"

/* Takes in all records that the log of this GPU holds. */
void nv_switchlog_read(struct lever_nvidia *l, struct nv_gpu *g);

#endif
