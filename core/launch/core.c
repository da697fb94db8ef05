/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * core.c - the core's entrance: takes an event to the file that handles it, then lets engines
 * decide and hands out actions. Decides nothing about who runs: that is engine.c and the policies.
 * Like all of the core it may not call the system, allocate, read a clock, or use floating point.
 */
#include "actions.h"
#include "engine.h"
#include "launch.h"
#include "objects.h"
#include "pool.h"

#define ALIGN16(n) (((n) + 15u) & ~(size_t)15u)

static bool limits_ok(const struct rtxg_limits *limits)
{
	return limits && limits->gpus >= 1 && limits->gpus <= 64 && limits->vgpus >= 1 &&
	       limits->vgpus <= 4096 && limits->tasks >= 1 && limits->tasks <= 65536 &&
	       limits->pools <= 64;
}

size_t rtxg_core_size(const struct rtxg_limits *limits)
{
	if (!limits_ok(limits))
		return 0;
	return ALIGN16(sizeof(struct rtxg_core)) + ALIGN16(limits->gpus * sizeof(struct core_gpu)) +
	       ALIGN16(limits->vgpus * sizeof(struct core_vgpu)) +
	       ALIGN16(limits->tasks * sizeof(struct core_task)) +
	       ALIGN16(limits->pools * sizeof(struct core_pool));
}

struct rtxg_core *rtxg_core_init(void *mem, size_t size, const struct rtxg_limits *limits,
				 uint64_t now_ns)
{
	struct rtxg_core *core = mem;
	char *at = mem;
	size_t need = rtxg_core_size(limits);

	if (!mem || ((uintptr_t)mem & 15u) || !need || size < need)
		return NULL;
	memset(mem, 0, need);
	core->limits = *limits;
	core->now = now_ns;
	core->armed = NEVER;
	at += ALIGN16(sizeof(struct rtxg_core));
	core->gpus = (struct core_gpu *)at;
	at += ALIGN16(limits->gpus * sizeof(struct core_gpu));
	core->vgpus = (struct core_vgpu *)at;
	at += ALIGN16(limits->vgpus * sizeof(struct core_vgpu));
	core->tasks = (struct core_task *)at;
	at += ALIGN16(limits->tasks * sizeof(struct core_task));
	core->pools = (struct core_pool *)at;
	return core;
}

struct rtxg_refusal rtxg_core_refusal(const struct rtxg_core *core)
{
	return core->refusal;
}

/* Lets every dirty engine decide, as long as there is room for what it may emit. */
static void core_flush(struct rtxg_core *core)
{
	while (core->dirty_first && core->action_count + RTXG_ACTIONS_MIN / 2 <= core->action_cap) {
		struct core_engine *engine = core->dirty_first;

		core->dirty_first = engine->next_dirty;
		if (!core->dirty_first)
			core->dirty_last = NULL;
		engine->dirty = false;
		engine->next_dirty = NULL;
		core_engine_schedule(core, engine);
	}
	if (core->action_count < core->action_cap) {
		struct heap_node *first = heap_first(&core->timers);
		uint64_t at = first ? first->key : NEVER;

		if (at != core->armed) {
			core->armed = at;
			core_emit(core, RTXG_ACT_ARM_TIMER)->at_ns = at;
		}
	}
}

static void timer(struct rtxg_core *core)
{
	struct heap_node *node;

	core->armed = NEVER; /* a host's timer fires once */
	while ((node = heap_first(&core->timers)) && node->key <= core->now) {
		heap_remove(node);
		if (node->kind == TIMER_ENGINE)
			core_mark(core, heap_owner(node, struct core_engine, timer));
		else
			core_engine_expired(core, heap_owner(node, struct core_account, patience));
		/*
		 * engine_expired emits one action at most; the others wait for the next step if
		 * there is no room.
		 */
		if (core->action_count + RTXG_ACTIONS_MIN / 2 > core->action_cap)
			break;
	}
}

static int task_event(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct core_task *task = core_find_task(core, event->task);

	if (!task)
		return core_refuse(core, -ENOENT, "no such task", event->task, 0);
	switch (event->type) {
	case RTXG_EV_SET:
		return core_task_set(core, task, event);
	case RTXG_EV_MOVE:
		return core_task_move(core, task, event);
	case RTXG_EV_CLOSE:
		core_task_close(core, task);
		return 0;
	default:
		break;
	}
	if (event->engine >= RTXG_ENGINES)
		return core_refuse(core, -EINVAL, "no such engine", event->engine,
				   RTXG_ENGINES - 1);
	switch (event->type) {
	case RTXG_EV_ARRIVAL:
		return core_arrival(core, task, event->engine);
	case RTXG_EV_CANCEL:
		return core_cancel(core, task, event->engine);
	case RTXG_EV_BUSY:
		return core_busy(core, task, event->engine);
	case RTXG_EV_COMPLETION:
		return core_completion(core, task, event->engine, event->used_ns, false);
	case RTXG_EV_RELEASED:
		return core_completion(core, task, event->engine, event->used_ns, true);
	case RTXG_EV_USAGE:
		if (task->lanes[event->engine].state != LANE_HELD &&
		    task->lanes[event->engine].state != LANE_REVOKING)
			return core_refuse(core, -EPERM, "the task has no permit", event->task,
					   event->engine);
		core_lane_charge(core, task, event->engine, event->used_ns);
		core_mark(core, &task->vgpu->gpu->engines[event->engine]);
		return 0;
	}
	return core_refuse(core, -EINVAL, "unknown event", event->type, RTXG_EV_TYPES - 1);
}

static int dispatch(struct rtxg_core *core, const struct rtxg_event *event)
{
	if (event->type >= RTXG_EV_TYPES)
		return core_refuse(core, -EINVAL, "unknown event", event->type, RTXG_EV_TYPES - 1);
	switch (event->type) {
	case RTXG_EV_NONE:
		return 0;
	case RTXG_EV_GPU_ADD:
		return core_gpu_add(core, event);
	case RTXG_EV_GPU_SET:
		return core_gpu_set(core, event);
	case RTXG_EV_GPU_REMOVE:
		return core_gpu_remove(core, event);
	case RTXG_EV_VGPU_ADD:
		return core_vgpu_add(core, event);
	case RTXG_EV_VGPU_SET:
		return core_vgpu_set(core, event);
	case RTXG_EV_VGPU_REMOVE:
		return core_vgpu_remove(core, event);
	case RTXG_EV_OPEN:
		return core_task_open(core, event);
	case RTXG_EV_TIMER:
		timer(core);
		return 0;
	case RTXG_EV_POOL_ADD:
	case RTXG_EV_POOL_REMOVE:
	case RTXG_EV_POOL_REQUEST:
	case RTXG_EV_POOL_RELEASE:
		return core_pool_event(core, event);
	default:
		return task_event(core, event);
	}
}

int rtxg_core_step(struct rtxg_core *core, uint64_t now_ns, const struct rtxg_event *event,
		   struct rtxg_action *actions, unsigned int cap)
{
	uint64_t before = core->now;
	int ret;

	core->refusal = (struct rtxg_refusal){ 0 };
	if (!actions || cap < RTXG_ACTIONS_MIN)
		return core_refuse(core, -EINVAL, "there is too little room for actions", cap,
				   RTXG_ACTIONS_MIN);
	if (now_ns < core->now)
		return core_refuse(core, -EINVAL, "time runs backwards (ns)", now_ns, core->now);
	if (now_ns == NEVER)
		return core_refuse(core, -EINVAL, "time is out of range", now_ns, NEVER - 1);
	if (event->reserved)
		return core_refuse(core, -EINVAL, "a reserved field of the event is not 0",
				   event->reserved, 0);

	core->now = now_ns;
	core->actions = actions;
	core->action_count = 0;
	core->action_cap = cap;
	ret = dispatch(core, event);
	if (ret < 0)
		core->now = before;
	else
		core_flush(core);
	core->actions = NULL;
	if (ret < 0)
		return ret;
	/*
	 * A full buffer is how the host knows to come again; with work left over but room unused,
	 * say "full" by filling it.
	 */
	if (core->dirty_first)
		while (core->action_count < core->action_cap) {
			core->actions = actions;
			core_emit(core, RTXG_ACT_ARM_TIMER)->at_ns = core->armed;
			core->actions = NULL;
		}
	return (int)core->action_count;
}
