// SPDX-License-Identifier: MIT
/*
 * test_core_api.c - the contract of rtxg_core.h: memory, errors and their reasons, action buffers,
 * names, death and revocation.
 */
#include <stdio.h>

#include "check.h"

static struct world world;

static int open_world(void **unused)
{
	world_open(&world, 2, 4, 8, 1);
	return 0;
}

static int close_world(void **unused)
{
	world_close(&world);
	return 0;
}

/* GPU 0 under a policy, vGPUs 0 and 1 on it, tasks 0 1 in vGPU 0 and 2 3 in vGPU 1. */
static void populate(uint32_t policy)
{
	world_gpu(&world, 0, policy);
	for (uint32_t vgpu = 0; vgpu < 2; vgpu++)
		world_vgpu(&world, vgpu, 0, 400000);
	for (uint32_t task = 0; task < 4; task++)
		world_task(&world, task, task / 2);
}

static void test_sizes_are_refused_out_of_range(void **unused)
{
	static const struct rtxg_limits bad[] = {
		{ 0, 1, 1, 0 },	 { 65, 1, 1, 0 },
		{ 1, 0, 1, 0 },	 { 1, 4097, 1, 0 },
		{ 1, 1, 0, 0 },	 { 1, 1, 65537, 0 },
		{ 1, 1, 1, 65 }, { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX },
	};
	static const struct rtxg_limits good[] = { { 1, 1, 1, 0 }, { 64, 4096, 65536, 64 } };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(rtxg_core_size(&bad[i]), 0);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_true(rtxg_core_size(&good[i]) > 0);
		assert_int_equal(rtxg_core_size(&good[i]) % 16, 0);
	}
	assert_int_equal(rtxg_core_size(NULL), 0);
}

static void test_memory_is_checked(void **unused)
{
	const struct rtxg_limits limits = { .gpus = 1, .vgpus = 1, .tasks = 1 };
	size_t size = rtxg_core_size(&limits);
	char *memory = aligned_alloc(16, size + 16);

	assert_non_null(memory);
	assert_null(rtxg_core_init(NULL, size, &limits, 0));
	assert_null(rtxg_core_init(memory, size - 1, &limits, 0));
	assert_null(rtxg_core_init(memory + 8, size, &limits, 0));
	assert_non_null(rtxg_core_init(memory, size, &limits, 0));
	free(memory);
}

static void test_every_limit_of_parameters_is_named(void **unused)
{
	world_gpu(&world, 0, RTXG_GPU_CBS);
#define GPU(...)  .type = RTXG_EV_GPU_ADD, .gpu = 1, .gpu_params = { __VA_ARGS__ }
#define VGPU(...) .type = RTXG_EV_VGPU_ADD, .vgpu = 0, .vgpu_params = { __VA_ARGS__ }
#define TASK(...) .type = RTXG_EV_OPEN, .task = 1, .task_params = { __VA_ARGS__ }
	world_refuses(&world, EINVAL, GPU(.policy = RTXG_GPU_POLICIES));
	world_refuses(&world, EINVAL, GPU(.overrun = 2));
	world_refuses(&world, EINVAL, GPU(.ahead_ns = RTXG_AHEAD_MAX_NS + 1));
	world_refuses(&world, EINVAL, GPU(.switch_ppm = RTXG_PPM));
	world_refuses(&world, EINVAL, GPU(.period_ns = RTXG_PERIOD_MIN_NS - 1));
	assert_int_equal(rtxg_core_refusal(world.core).value, RTXG_PERIOD_MIN_NS - 1);
	assert_int_equal(rtxg_core_refusal(world.core).limit, RTXG_PERIOD_MIN_NS);
	world_refuses(&world, EINVAL, GPU(.period_ns = RTXG_PERIOD_MAX_NS + 1));
	world_refuses(&world, EINVAL, GPU(.window_ns = 1));
	world_refuses(&world, EINVAL, VGPU(.min_ppm = RTXG_PPM + 1));
	world_refuses(&world, EINVAL, VGPU(.max_ppm = RTXG_PPM + 1));
	world_refuses(&world, EINVAL, VGPU(.min_ppm = 2, .max_ppm = 1));
	world_refuses(&world, EINVAL, VGPU(.weight = RTXG_WEIGHT_MAX + 1));
	world_refuses(&world, EINVAL, VGPU(.priority = RTXG_PRIORITY_MAX + 1));
	world_refuses(&world, EINVAL, VGPU(.period_ns = RTXG_PERIOD_MIN_NS - 1));
	world_refuses(&world, EINVAL, VGPU(.period_ns = RTXG_PERIOD_MAX_NS + 1));
	world_refuses(&world, EINVAL, VGPU(.policy = RTXG_TASK_POLICIES));
	world_refuses(&world, EINVAL, VGPU(.reserved = 1));
	world_vgpu(&world, 0, 0, 0);
	world_refuses(&world, EINVAL, TASK(.priority = RTXG_PRIORITY_MAX + 1));
	world_refuses(&world, EINVAL, TASK(.reserved = 1));
	world_refuses(&world, EINVAL, TASK(.runtime_ns = 2, .deadline_ns = 1));
	world_refuses(&world, EINVAL, TASK(.deadline_ns = RTXG_TIME_NEVER));
	world_refuses(&world, EINVAL, .type = RTXG_EV_TYPES);
	world_refuses(&world, EINVAL, .type = UINT32_MAX);
	world_refuses(&world, EINVAL, .type = RTXG_EV_NONE, .reserved = 1);
	world_refuses(&world, EINVAL, .type = RTXG_EV_GPU_ADD, .gpu = 2);
	world_refuses(&world, EINVAL, .type = RTXG_EV_VGPU_ADD, .vgpu = 4);
	world_refuses(&world, EINVAL, .type = RTXG_EV_OPEN, .task = 8);
}

static void test_what_is_not_there_and_what_is_there_already(void **unused)
{
	world_refuses(&world, ENOENT, .type = RTXG_EV_VGPU_ADD, .vgpu = 0, .gpu = 0);
	populate(RTXG_GPU_FIFO);
	world_refuses(&world, EEXIST, .type = RTXG_EV_GPU_ADD, .gpu = 0);
	world_refuses(&world, EEXIST, .type = RTXG_EV_VGPU_ADD, .vgpu = 1);
	world_refuses(&world, EEXIST, .type = RTXG_EV_OPEN, .task = 3);
	world_refuses(&world, ENOENT, .type = RTXG_EV_GPU_SET, .gpu = 1);
	world_refuses(&world, ENOENT, .type = RTXG_EV_GPU_REMOVE, .gpu = UINT32_MAX);
	world_refuses(&world, ENOENT, .type = RTXG_EV_VGPU_SET, .vgpu = 2);
	world_refuses(&world, ENOENT, .type = RTXG_EV_VGPU_REMOVE, .vgpu = UINT32_MAX);
	world_refuses(&world, ENOENT, .type = RTXG_EV_OPEN, .task = 4, .vgpu = 2);
	for (uint32_t type = RTXG_EV_SET; type <= RTXG_EV_USAGE; type++) {
		world_refuses(&world, ENOENT, .type = type, .task = 5);
		world_refuses(&world, ENOENT, .type = type, .task = UINT32_MAX);
	}
	world_refuses(&world, ENOENT, .type = RTXG_EV_MOVE, .task = 0, .vgpu = 3);
	world_refuses(&world, EBUSY, .type = RTXG_EV_GPU_REMOVE, .gpu = 0);
	world_refuses(&world, EBUSY, .type = RTXG_EV_VGPU_REMOVE, .vgpu = 0);
}

static void test_events_that_do_not_fit_the_state(void **unused)
{
	populate(RTXG_GPU_FIFO);
	world_refuses(&world, EINVAL, .type = RTXG_EV_ARRIVAL, .task = 0, .engine = RTXG_ENGINES);
	world_refuses(&world, EPERM, .type = RTXG_EV_COMPLETION, .task = 0);
	world_refuses(&world, EPERM, .type = RTXG_EV_RELEASED, .task = 0);
	world_refuses(&world, EPERM, .type = RTXG_EV_USAGE, .task = 0);
	world_refuses(&world, EPERM, .type = RTXG_EV_BUSY, .task = 0);
	world_refuses(&world, EPERM, .type = RTXG_EV_CANCEL, .task = 0);
	world_arrive(&world, 0);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	world_refuses(&world, EALREADY, .type = RTXG_EV_ARRIVAL, .task = 0);
	world_refuses(&world, EALREADY, .type = RTXG_EV_CANCEL, .task = 0);
	/* the permit was not revoked */
	world_refuses(&world, EPERM, .type = RTXG_EV_RELEASED, .task = 0);
	world_arrive(&world, 2);
	world_gave(&world, RTXG_ACT_REVOKE, 0);
	world_refuses(&world, EALREADY, .type = RTXG_EV_ARRIVAL, .task = 2);
	world_refuses(&world, EPERM, .type = RTXG_EV_COMPLETION, .task = 2);
	world_refuses(&world, EBUSY, .type = RTXG_EV_MOVE, .task = 0, .vgpu = 1);
	world_refuses(&world, EBUSY, .type = RTXG_EV_MOVE, .task = 2, .vgpu = 0);
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_MOVE, .task = 3, .vgpu = 0 });
	assert_int_equal(world_view(&world, 0).tasks, 3);
}

static void test_time_may_not_run_backwards_and_a_refusal_does_not_move_it(void **unused)
{
	populate(RTXG_GPU_FIFO);
	world.now = 5 * MS;
	world_arrive(&world, 0);
	world.now = 50 * MS;
	world_refuses(&world, EALREADY, .type = RTXG_EV_ARRIVAL, .task = 0);
	world.now = 20 * MS; /* the core is still at 5 ms */
	world_arrive(&world, 2);
	world.now = 19 * MS;
	world_refuses(&world, EINVAL, .type = RTXG_EV_TIMER);
	world.now = RTXG_TIME_NEVER;
	world_refuses(&world, EINVAL, .type = RTXG_EV_TIMER);
	world.now = 20 * MS;
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_NONE });
}

static void test_reasons_are_cleared_by_success(void **unused)
{
	world_refuses(&world, ENOENT, .type = RTXG_EV_GPU_SET, .gpu = 0);
	assert_non_null(rtxg_core_refusal(world.core).what);
	world_gpu(&world, 0, RTXG_GPU_FIFO);
	assert_null(rtxg_core_refusal(world.core).what);
}

static void test_too_little_room_for_actions_is_refused(void **unused)
{
	struct rtxg_event event = { .type = RTXG_EV_NONE };
	struct rtxg_action actions[RTXG_ACTIONS_MIN];

	assert_int_equal(rtxg_core_step(world.core, 0, &event, actions, RTXG_ACTIONS_MIN - 1),
			 -EINVAL);
	assert_int_equal(rtxg_core_step(world.core, 0, &event, NULL, RTXG_ACTIONS_MIN), -EINVAL);
	assert_int_equal(rtxg_core_step(world.core, 0, &event, actions, RTXG_ACTIONS_MIN), 0);
}

/*
 * More actions than fit are handed out over several calls, and none is lost: 32 vGPUs under null,
 * all expelled at once.
 */
static void test_actions_that_do_not_fit_come_later(void **unused)
{
	const struct rtxg_limits limits = { .gpus = 1, .vgpus = 32, .tasks = 64 };
	size_t size = rtxg_core_size(&limits);
	void *memory = aligned_alloc(16, size);
	struct rtxg_action actions[RTXG_ACTIONS_MIN];
	struct rtxg_event event = { .type = RTXG_EV_GPU_ADD };
	struct rtxg_core *core = rtxg_core_init(memory, size, &limits, 0);
	bool expelled[32] = { 0 }, granted[32] = { 0 };
	int count, rounds = 0;

	assert_non_null(core);
	event.gpu_params.policy = RTXG_GPU_NULL;
	assert_int_equal(rtxg_core_step(core, 0, &event, actions, RTXG_ACTIONS_MIN), 0);
	for (uint32_t v = 0; v < 32; v++) {
		event = (struct rtxg_event){ .type = RTXG_EV_VGPU_ADD, .vgpu = v };
		assert_int_equal(rtxg_core_step(core, 0, &event, actions, RTXG_ACTIONS_MIN), 0);
		for (uint32_t half = 0; half < 2; half++) {
			event = (struct rtxg_event){ .type = RTXG_EV_OPEN,
						     .task = v + 32 * half,
						     .vgpu = v };
			assert_int_equal(rtxg_core_step(core, 0, &event, actions, RTXG_ACTIONS_MIN),
					 0);
		}
	}
	for (uint32_t e = 0; e < 64; e++) {
		event = (struct rtxg_event){ .type = RTXG_EV_ARRIVAL, .task = e };
		assert_true(rtxg_core_step(core, 0, &event, actions, RTXG_ACTIONS_MIN) >= 1);
	}
	/* All patience ends at once: 32 expelled, then 32 granted, eight actions at a time. */
	event = (struct rtxg_event){ .type = RTXG_EV_TIMER };
	do {
		uint64_t armed = RTXG_TIME_NEVER;

		do {
			count = rtxg_core_step(core, 2 * SEC, &event, actions, RTXG_ACTIONS_MIN);
			assert_true(count >= 0);
			for (int i = 0; i < count; i++) {
				if (actions[i].type == RTXG_ACT_EXPEL) {
					assert_false(expelled[actions[i].task]);
					expelled[actions[i].task] = true;
				} else if (actions[i].type == RTXG_ACT_GRANT) {
					assert_true(expelled[actions[i].task - 32]);
					assert_false(granted[actions[i].task - 32]);
					granted[actions[i].task - 32] = true;
				} else if (actions[i].type == RTXG_ACT_ARM_TIMER) {
					armed = actions[i].at_ns;
				}
			}
			event.type = RTXG_EV_NONE;
			assert_true(++rounds < 1000);
		} while (count == RTXG_ACTIONS_MIN);
		/* What is left over of the timer is armed for now: a host comes at once. */
		if (armed > 2 * SEC)
			break;
		event.type = RTXG_EV_TIMER;
	} while (true);
	for (uint32_t v = 0; v < 32; v++) {
		assert_true(expelled[v]);
		assert_true(granted[v]);
	}
	assert_null(rtxg_core_check(core));
	free(memory);
}

static void test_a_lone_holder_keeps_its_lease_until_another_comes(void **unused)
{
	populate(RTXG_GPU_CBS);
	world_arrive(&world, 0);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	assert_int_equal(world.actions[0].flags, 0);
	world.now = 10 * SEC;
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_USAGE, .used_ns = 3 * SEC });
	assert_int_equal(world.count, 0);
	assert_int_equal(world_view(&world, 0).stats.busy_ns, 3 * SEC);
	world_arrive(&world, 2);
	world_gave(&world, RTXG_ACT_REVOKE, 0);
	world.now += 4 * MS; /* its kernel runs on: that much is at the other's cost */
	world_released(&world, 0, 4 * MS);
	world_gave(&world, RTXG_ACT_GRANT, 2);
	assert_int_equal(world_view(&world, 0).stats.busy_ns, 3 * SEC + 4 * MS);
	assert_int_equal(world_view(&world, 1).stats.wait_ns, 4 * MS);
}

static void test_claims_are_not_believed_beyond_the_time_that_passed(void **unused)
{
	populate(RTXG_GPU_CREDIT);
	world_arrive(&world, 0);
	world.now = MS;
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_USAGE, .used_ns = UINT64_MAX });
	assert_int_equal(world_view(&world, 0).stats.busy_ns, MS);
	assert_int_equal(world_view(&world, 0).stats.used_ns, MS);
	assert_int_equal(world_view(&world, 0).used_ppm, RTXG_PPM);
	/* And silence does not make it free once another waits. */
	world_arrive(&world, 2);
	world.now = 3 * MS;
	world_released(&world, 0, 0);
	assert_int_equal(world_view(&world, 0).stats.busy_ns, 3 * MS);
	assert_int_equal(world_view(&world, 0).stats.used_ns, MS);
}

static void test_death_of_a_holder_hands_on_at_once(void **unused)
{
	populate(RTXG_GPU_CBS);
	world_arrive(&world, 0);
	world_arrive(&world, 2);
	world_gave(&world, RTXG_ACT_REVOKE, 0);
	world.now = MS;
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_CLOSE, .task = 0 });
	world_gave(&world, RTXG_ACT_GRANT, 2);
	assert_int_equal(world.armed, RTXG_TIME_NEVER);
	world_refuses(&world, ENOENT, .type = RTXG_EV_RELEASED, .task = 0);
	/* The number may be used again and begins with fresh state. */
	world_task(&world, 0, 1);
	world_arrive(&world, 0);
	assert_int_equal(world_view(&world, 1).waiting, 1);
}

static void test_a_holder_that_does_not_answer_is_expelled(void **unused)
{
	populate(RTXG_GPU_CBS);
	world_arrive(&world, 0);
	world.now = SEC;
	world_arrive(&world, 2);
	world_gave(&world, RTXG_ACT_REVOKE, 0);
	assert_int_equal(world.armed, 3 * SEC);
	world.now = 3 * SEC;
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_TIMER });
	assert_int_equal(world.count, 2);
	assert_int_equal(world.actions[0].type, RTXG_ACT_EXPEL);
	assert_int_equal(world.actions[0].task, 0);
	assert_int_equal(world.actions[1].type, RTXG_ACT_GRANT);
	assert_int_equal(world.actions[1].task, 2);
	assert_int_equal(world_view(&world, 0).stats.expelled, 1);
	/* What it says afterwards is of no permit. */
	world_refuses(&world, EPERM, .type = RTXG_EV_RELEASED, .task = 0);
}

static void test_nobody_is_expelled_for_a_waiter_that_has_gone(void **unused)
{
	static const uint32_t policies[] = { RTXG_GPU_NULL, RTXG_GPU_FIFO, RTXG_GPU_CBS };

	for (size_t i = 0; i < 3; i++) {
		if (i)
			open_world(NULL);
		populate(policies[i]);
		world_arrive(&world, 0);
		/* of the same vGPU: under null no other vGPU matters */
		world_arrive(&world, 1);
		world_do(&world, (struct rtxg_event){ .type = RTXG_EV_CANCEL, .task = 1 });
		world.now = 100 * SEC;
		world_do(&world, (struct rtxg_event){ .type = RTXG_EV_TIMER });
		assert_int_equal(world.count, 0);
		assert_int_equal(world_view(&world, 0).holder, 0);
		if (i < 2)
			close_world(NULL);
	}
}

static void test_engines_are_scheduled_apart(void **unused)
{
	populate(RTXG_GPU_FIFO);
	for (uint32_t engine = 0; engine < RTXG_ENGINES; engine++) {
		world_do(&world, (struct rtxg_event){ .type = RTXG_EV_ARRIVAL,
						      .task = engine == 1 ? 2 : 0,
						      .engine = engine });
		assert_int_equal(world.count, 1);
		assert_int_equal(world.actions[0].type, RTXG_ACT_GRANT);
		assert_int_equal(world.actions[0].engine, engine);
	}
}

static void test_the_order_inside_a_vgpu(void **unused)
{
	static const struct {
		uint32_t policy, order[3];
	} cases[] = {
		{ RTXG_TASK_FIFO, { 1, 2, 3 } },
		{ RTXG_TASK_FP, { 2, 1, 3 } },	/* priorities 5, 9, 5 */
		{ RTXG_TASK_EDF, { 3, 1, 2 } }, /* deadlines 20 ms, none, 10 ms */
	};
	static const struct rtxg_task_params tasks[] = {
		{ .priority = 1 },
		{ .priority = 5, .deadline_ns = 20 * MS },
		{ .priority = 9 },
		{ .priority = 5, .deadline_ns = 10 * MS },
	};

	for (size_t i = 0; i < 3; i++) {
		if (i)
			open_world(NULL);
		world_gpu(&world, 0, RTXG_GPU_FIFO);
		world_do(&world,
			 (struct rtxg_event){ .type = RTXG_EV_VGPU_ADD,
					      .vgpu_params = { .policy = cases[i].policy } });
		for (uint32_t e = 0; e < 4; e++) {
			world_do(&world, (struct rtxg_event){ .type = RTXG_EV_OPEN,
							      .task = e,
							      .task_params = tasks[e] });
			world_arrive(&world, e);
			world.now += US;
		}
		world_released(&world, 0, US);
		for (uint32_t n = 0; n < 3; n++) {
			world_gave(&world, RTXG_ACT_GRANT, cases[i].order[n]);
			world.now += US;
			if (n < 2)
				world_complete(&world, cases[i].order[n], US);
		}
		if (i < 2)
			close_world(NULL);
	}
}

static void test_an_arrival_under_a_one_shot_permit_queues_when_it_ends(void **unused)
{
	populate(RTXG_GPU_FIFO);
	world_arrive(&world, 0);
	world_arrive(&world, 2);
	world.now = MS;
	world_released(&world, 0, MS);
	world_gave(&world, RTXG_ACT_GRANT, 2);
	world_arrive(&world, 0);
	world_arrive(&world, 2); /* another thread of it */
	assert_int_equal(world.count, 0);
	world_refuses(&world, EALREADY, .type = RTXG_EV_ARRIVAL, .task = 2);
	world.now = 2 * MS;
	world_complete(&world, 2, MS);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	world.now = 3 * MS;
	world_complete(&world, 0, MS);
	world_gave(&world, RTXG_ACT_GRANT, 2);
	/* both its threads, from their arrivals */
	assert_int_equal(world_view(&world, 1).stats.wait_ns, MS + 2 * MS);
}

static void policy(uint32_t policy)
{
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_GPU_SET,
					      .gpu_params = { .policy = policy } });
}

static void test_a_change_of_policy_keeps_one_permit_an_engine(void **unused)
{
	populate(RTXG_GPU_NULL);
	world_arrive(&world, 0);
	world_arrive(&world, 2);
	world_gave(&world, RTXG_ACT_GRANT, 2); /* both hold */
	policy(RTXG_GPU_FIFO);
	/* A third waits until both have come back. */
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_ARRIVAL, .task = 1 });
	for (int turn = 0; turn < 4 && world_view(&world, 0).holder != 1; turn++) {
		uint32_t revoked = RTXG_NONE;

		for (int i = 0; i < world.count; i++) {
			assert_int_not_equal(world.actions[i].type, RTXG_ACT_GRANT);
			if (world.actions[i].type == RTXG_ACT_REVOKE)
				revoked = world.actions[i].task;
		}
		assert_int_not_equal(revoked, RTXG_NONE);
		world.now += MS;
		world_released(&world, revoked, MS);
		if (world_view(&world, 0).holder == 1)
			break;
	}
	world_gave(&world, RTXG_ACT_GRANT, 1);
	assert_int_equal(world_view(&world, 1).holder, RTXG_NONE);
}

static void test_an_idle_permit_outlives_a_change_of_policy_only_until_a_task_waits(void **unused)
{
	populate(RTXG_GPU_CBS);
	world_arrive(&world, 2);
	world_arrive(&world, 0);
	world.now += MS;
	world_released(&world, 2, MS);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	assert_int_equal(world.actions[0].flags, RTXG_GRANT_REPORT);
	world_complete(&world, 0, 0);
	assert_int_equal(rtxg_core_idle_holder(world.core, 0, RTXG_ENGINE_COMPUTE), 0);
	policy(RTXG_GPU_NULL);
	world_arrive(&world, 1); /* of the same vGPU */
	world_gave(&world, RTXG_ACT_REVOKE, 0);
}

/* All that the timer leads to until then. Returns how many permits are taken by force. */
static unsigned int expelled_until(uint64_t end)
{
	unsigned int expelled = 0;

	while (world.armed <= end) {
		world.now = world.armed;
		world.armed = RTXG_TIME_NEVER;
		world_do(&world, (struct rtxg_event){ .type = RTXG_EV_TIMER });
		for (int i = 0; i < world.count; i++)
			expelled += world.actions[i].type == RTXG_ACT_EXPEL;
	}
	world.now = end;
	return expelled;
}

/* Under null, what a vGPU does keeps no other one waiting, so it may go on as long as it likes. */
static void test_a_holder_that_none_waits_for_under_null_is_not_expelled(void **unused)
{
	populate(RTXG_GPU_FIFO);
	world_arrive(&world, 0);
	world_arrive(&world, 2);
	world_gave(&world, RTXG_ACT_REVOKE, 0);
	assert_int_not_equal(world.armed, RTXG_TIME_NEVER);
	policy(RTXG_GPU_NULL);
	world_gave(&world, RTXG_ACT_GRANT, 2);
	assert_int_equal(expelled_until(10 * SEC), 0);
	world_released(&world, 0, 10 * SEC);
}

/* Of two that hold the engine, the one whose sibling waited, and waits no more. */
static void test_nor_whom_one_waited_for_only_under_null(void **unused)
{
	populate(RTXG_GPU_NULL);
	world_arrive(&world, 0);
	world_arrive(&world, 2);
	world_arrive(&world, 1);
	world_gave(&world, RTXG_ACT_REVOKE, 0);
	policy(RTXG_GPU_FIFO);
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_CANCEL, .task = 1 });
	assert_int_equal(expelled_until(10 * SEC), 0);
	world_released(&world, 0, 10 * SEC);
}

/* One that another task waits for has the time that the new policy gives it, and no more. */
static void test_a_change_of_policy_lets_no_one_stay_for_ever(void **unused)
{
	populate(RTXG_GPU_FIFO);
	world_arrive(&world, 0);
	world_arrive(&world, 1);
	policy(RTXG_GPU_NULL);
	assert_int_equal(expelled_until(10 * SEC), 1);
	assert_int_equal(world_view(&world, 0).holder, 1);
}

static void test_names(void **unused)
{
	/* These numbers are in recordings and in programs: they stay. */
	static const char *const gpu[] = { "null", "fifo", "credit", "band", "cbs" };
	static const char *const task[] = { "fifo", "fp", "edf" };

	for (uint32_t i = 0; i < sizeof(gpu) / sizeof(gpu[0]); i++)
		assert_string_equal(rtxg_gpu_policy_name(i), gpu[i]);
	for (uint32_t i = 0; i < RTXG_GPU_POLICIES; i++) {
		assert_int_equal(rtxg_gpu_policy_find(rtxg_gpu_policy_name(i)), i);
		assert_non_null(strstr(rtxg_gpu_policy_names(), rtxg_gpu_policy_name(i)));
		assert_non_null(rtxg_gpu_policy_summary(i));
	}
	assert_int_equal(rtxg_gpu_policy_find("sedf"), RTXG_NONE);
	assert_null(rtxg_gpu_policy_summary(RTXG_GPU_POLICIES));
	for (uint32_t i = 0; i < RTXG_TASK_POLICIES; i++)
		assert_string_equal(rtxg_task_policy_name(i), task[i]);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		assert_non_null(rtxg_engine_name(i));
	assert_null(rtxg_gpu_policy_name(RTXG_GPU_POLICIES));
	assert_null(rtxg_task_policy_name(UINT32_MAX));
	assert_null(rtxg_engine_name(RTXG_ENGINES));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_sizes_are_refused_out_of_range),
		TEST(test_memory_is_checked),
		TEST(test_every_limit_of_parameters_is_named),
		TEST(test_what_is_not_there_and_what_is_there_already),
		TEST(test_events_that_do_not_fit_the_state),
		TEST(test_time_may_not_run_backwards_and_a_refusal_does_not_move_it),
		TEST(test_reasons_are_cleared_by_success),
		TEST(test_too_little_room_for_actions_is_refused),
		TEST(test_actions_that_do_not_fit_come_later),
		TEST(test_a_lone_holder_keeps_its_lease_until_another_comes),
		TEST(test_claims_are_not_believed_beyond_the_time_that_passed),
		TEST(test_death_of_a_holder_hands_on_at_once),
		TEST(test_a_holder_that_does_not_answer_is_expelled),
		TEST(test_nobody_is_expelled_for_a_waiter_that_has_gone),
		TEST(test_engines_are_scheduled_apart),
		TEST(test_the_order_inside_a_vgpu),
		TEST(test_an_arrival_under_a_one_shot_permit_queues_when_it_ends),
		TEST(test_a_change_of_policy_keeps_one_permit_an_engine),
		TEST(test_an_idle_permit_outlives_a_change_of_policy_only_until_a_task_waits),
		TEST(test_a_holder_that_none_waits_for_under_null_is_not_expelled),
		TEST(test_nor_whom_one_waited_for_only_under_null),
		TEST(test_a_change_of_policy_lets_no_one_stay_for_ever),
		TEST(test_names),
	};

	return cmocka_run_group_tests_name("core api", tests, NULL, NULL);
}
