/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* pool.h - several like GPUs behind one lock. */
#ifndef RTXG_CORE_POOL_H
#define RTXG_CORE_POOL_H

#include "state.h"

int core_pool_event(struct rtxg_core *core, const struct rtxg_event *event);

/* The task holds and waits for nothing of its pool any more. */
void core_pool_leave(struct rtxg_core *core, struct core_task *task);

#endif
