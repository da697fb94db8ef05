/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* launch.h - the events of one launch. */
#ifndef RTXG_CORE_LAUNCH_H
#define RTXG_CORE_LAUNCH_H

#include "state.h"

int core_arrival(struct rtxg_core *core, struct core_task *task, uint32_t index);
int core_cancel(struct rtxg_core *core, struct core_task *task, uint32_t index);
int core_busy(struct rtxg_core *core, struct core_task *task, uint32_t index);

/* released: the answer to a permit that was called back. */
int core_completion(struct rtxg_core *core, struct core_task *task, uint32_t index,
		    uint64_t used_ns, bool released);

#endif
