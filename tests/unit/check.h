/* SPDX-License-Identifier: MIT */
/*
 * check.h - the common parts of the core's unit tests: cmocka's includes in the order that it
 * needs, and a small world to put events into. May not: decide anything that a test should state
 * itself.
 */
#ifndef RTXG_TESTS_UNIT_CHECK_H
#define RTXG_TESTS_UNIT_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rtxg_core.h"

#define US	      1000ull
#define MS	      1000000ull
#define SEC	      1000000000ull
#define WORLD_ACTIONS 64

struct world {
	struct rtxg_core *core;
	void *memory;
	uint64_t now;
	struct rtxg_action actions[WORLD_ACTIONS]; /* of the last event, timers left out */
	int count;
	uint64_t armed; /* the timer, as last armed */
};

static inline void world_open(struct world *world, uint32_t gpus, uint32_t vgpus, uint32_t tasks,
			      uint32_t pools)
{
	const struct rtxg_limits limits = {
		.gpus = gpus, .vgpus = vgpus, .tasks = tasks, .pools = pools
	};
	size_t size = rtxg_core_size(&limits);

	assert_true(size > 0);
	*world = (struct world){ .armed = RTXG_TIME_NEVER };
	world->memory = aligned_alloc(16, size);
	assert_non_null(world->memory);
	world->core = rtxg_core_init(world->memory, size, &limits, 0);
	assert_non_null(world->core);
}

static inline void world_close(struct world *world)
{
	free(world->memory);
}

/* One event at world->now. Returns the errno (0 or negative); the actions stand in the world. */
static inline int world_try(struct world *world, struct rtxg_event event)
{
	struct rtxg_action actions[WORLD_ACTIONS];
	int count = rtxg_core_step(world->core, world->now, &event, actions, WORLD_ACTIONS);
	const char *wrong = rtxg_core_check(world->core);

	if (wrong)
		fail_msg("after event %u: %s", event.type, wrong);
	world->count = 0;
	if (count < 0) {
		assert_non_null(rtxg_core_refusal(world->core).what);
		return count;
	}
	assert_true(count < WORLD_ACTIONS);
	for (int i = 0; i < count; i++) {
		if (actions[i].type == RTXG_ACT_ARM_TIMER)
			world->armed = actions[i].at_ns;
		else
			world->actions[world->count++] = actions[i];
	}
	return 0;
}

/* An event that has to be accepted. */
static inline void world_do(struct world *world, struct rtxg_event event)
{
	int error = world_try(world, event);

	if (error)
		fail_msg("event %u was refused: %d, %s", event.type, error,
			 rtxg_core_refusal(world->core).what);
}

/* An event that has to be refused, with this errno. */
#define world_refuses(world, error, ...) \
	assert_int_equal(world_try(world, (struct rtxg_event){ __VA_ARGS__ }), -(error))

static inline void world_gpu(struct world *world, uint32_t gpu, uint32_t policy)
{
	world_do(world, (struct rtxg_event){ .type = RTXG_EV_GPU_ADD,
					     .gpu = gpu,
					     .gpu_params = { .policy = policy } });
}

static inline void world_vgpu(struct world *world, uint32_t vgpu, uint32_t gpu, uint32_t min_ppm)
{
	world_do(world, (struct rtxg_event){ .type = RTXG_EV_VGPU_ADD,
					     .vgpu = vgpu,
					     .gpu = gpu,
					     .vgpu_params = { .min_ppm = min_ppm } });
}

static inline void world_task(struct world *world, uint32_t task, uint32_t vgpu)
{
	world_do(world, (struct rtxg_event){ .type = RTXG_EV_OPEN, .task = task, .vgpu = vgpu });
}

static inline void world_arrive(struct world *world, uint32_t task)
{
	world_do(world, (struct rtxg_event){ .type = RTXG_EV_ARRIVAL, .task = task });
}

static inline void world_complete(struct world *world, uint32_t task, uint64_t used_ns)
{
	world_do(world, (struct rtxg_event){
				.type = RTXG_EV_COMPLETION, .task = task, .used_ns = used_ns });
}

static inline void world_released(struct world *world, uint32_t task, uint64_t used_ns)
{
	world_do(world,
		 (struct rtxg_event){ .type = RTXG_EV_RELEASED, .task = task, .used_ns = used_ns });
}

static inline struct rtxg_account_view world_view(const struct world *world, uint32_t vgpu)
{
	struct rtxg_account_view view;

	assert_int_equal(
		rtxg_core_vgpu_view(world->core, vgpu, RTXG_ENGINE_COMPUTE, world->now, &view), 0);
	return view;
}

/* The last event gave exactly one action, and it is this. */
static inline void world_gave(const struct world *world, uint32_t type, uint32_t task)
{
	assert_int_equal(world->count, 1);
	assert_int_equal(world->actions[0].type, type);
	assert_int_equal(world->actions[0].task, task);
}

#endif
