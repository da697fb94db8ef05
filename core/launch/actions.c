/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * actions.c - the bottom of the core: what goes out to the host (actions, refusals) and what is put
 * off (engines to be looked at, timers). Decides nothing.
 */
#include "actions.h"

/* Refuses the event and remembers why. */
int core_refuse(struct rtxg_core *core, int error, const char *what, uint64_t value, uint64_t limit)
{
	core->refusal = (struct rtxg_refusal){ .what = what, .value = value, .limit = limit };
	return error;
}

struct rtxg_action *core_emit(struct rtxg_core *core, uint32_t type)
{
	/* Callers make sure that there is room: see core_flush. */
	struct rtxg_action *action = &core->actions[core->action_count++];

	memset(action, 0, sizeof(*action));
	action->type = type;
	action->task = action->engine = action->gpu = action->pool = RTXG_NONE;
	return action;
}

void core_mark(struct rtxg_core *core, struct core_engine *engine)
{
	if (engine->dirty)
		return;
	engine->dirty = true;
	engine->next_dirty = NULL;
	if (core->dirty_last)
		core->dirty_last->next_dirty = engine;
	else
		core->dirty_first = engine;
	core->dirty_last = engine;
}

void core_arm(struct rtxg_core *core, struct heap_node *timer, uint32_t kind, uint64_t at)
{
	if (heap_holds(timer) && timer->key == at)
		return;
	heap_remove(timer);
	timer->kind = kind;
	if (at != NEVER)
		heap_insert(&core->timers, timer, at, 0);
}
