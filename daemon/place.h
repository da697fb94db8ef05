/* SPDX-License-Identifier: MIT */
/* place.h - where programs belong that named no vGPU, while they run: see place.c. */
#ifndef RTXGD_PLACE_H
#define RTXGD_PLACE_H

#include "daemon.h"

/* What is bound or the rules have changed: every program is put where it belongs now. */
void place_all(struct daemon *d);
/* A process may be put into another cgroup at any time: looks at the next one. Call it often. */
void place_next(struct daemon *d);

#endif
