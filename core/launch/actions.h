/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* actions.h - what goes out to the host, and what is put off until later. */
#ifndef RTXG_CORE_ACTIONS_H
#define RTXG_CORE_ACTIONS_H

#include "state.h"

/* Refuses the event and remembers why. Returns error. */
int core_refuse(struct rtxg_core *core, int error, const char *what, uint64_t value,
		uint64_t limit);

/* The next action, with no object named yet. Callers make sure that there is room. */
struct rtxg_action *core_emit(struct rtxg_core *core, uint32_t type);

/* The engine has to decide before this step ends. */
void core_mark(struct rtxg_core *core, struct core_engine *engine);

/* Sets one of the core's own timers; NEVER stops it. */
void core_arm(struct rtxg_core *core, struct heap_node *timer, uint32_t kind, uint64_t at);

#endif
