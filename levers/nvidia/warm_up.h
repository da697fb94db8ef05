/* SPDX-License-Identifier: MIT */
/*
 * warm_up.h - programs that bring their own contexts in ahead of a release.
 */
#ifndef RTXG_NV_WARM_UP_H
#define RTXG_NV_WARM_UP_H

#include "state.h"

/* Looks for processes that have the library and are in a periodic latency-critical vGPU. */
void nv_look_for_warm(struct lever_nvidia *l);
/* Writes into the page when each of them is to bring its context in. */
void nv_tell_releases(struct lever_nvidia *l);

#endif
