// SPDX-License-Identifier: MIT
/*
 * test_pauses.c - how long an engine is kept free for a lane that has just become idle: what is
 * learnt of its pauses, and who pays for the wait.
 */
#include "check.h"
#include "pauses.h"

static struct core_pauses pauses;

static int forget(void **unused)
{
	pauses = (struct core_pauses){ 0 };
	return 0;
}

static void pause(unsigned int times, uint64_t ns)
{
	while (times--)
		core_pauses_note(&pauses, ns);
}

static void test_nothing_known_waits_for_as_long_as_giving_up_costs(void **unused)
{
	assert_int_equal(core_pauses_wait(&pauses, 2 * MS, MS), MS);
	assert_int_equal(core_pauses_wait(&pauses, 2 * MS, 5 * MS), 2 * MS);
	assert_int_equal(core_pauses_wait(&pauses, 0, 5 * MS), 0);
}

static void test_short_pauses_are_waited_for_and_no_longer(void **unused)
{
	pause(8, 30 * US);
	assert_int_equal(core_pauses_wait(&pauses, 2 * MS, MS), 35156);
}

static void test_a_few_long_pauses_do_not_hide_the_short_ones(void **unused)
{
	for (int frame = 0; frame < 20; frame++) {
		pause(5, 30 * US);
		pause(1, 50 * MS);
	}
	assert_int_equal(core_pauses_wait(&pauses, 2 * MS, MS), 35156);
}

static void test_long_pauses_are_not_waited_for(void **unused)
{
	pause(8, 3 * MS);
	assert_int_equal(core_pauses_wait(&pauses, 2 * MS, 100 * MS), 0);
	pause(1, RTXG_TIME_NEVER);
	assert_int_equal(core_pauses_wait(&pauses, 2 * MS, 100 * MS), 0);
}

static void test_a_wait_is_not_longer_than_it_is_worth(void **unused)
{
	pause(4, 30 * US);
	pause(4, 1900 * US);
	/* 1 ms saved for half of them at 31 us, or for all at a mean of 1 ms */
	assert_int_equal(core_pauses_wait(&pauses, 2 * MS, MS), 35156);
	assert_int_equal(core_pauses_wait(&pauses, 2 * MS, 10 * MS), 2 * MS);
	assert_int_equal(core_pauses_wait(&pauses, 20 * US, 10 * MS), 0);
}

static void test_what_was_long_ago_is_forgotten(void **unused)
{
	pause(1000, 50 * MS);
	assert_int_equal(core_pauses_wait(&pauses, 2 * MS, MS), 0);
	pause(PAUSES_KNOWN, 10 * US);
	assert_int_equal(core_pauses_wait(&pauses, 2 * MS, MS), 17578);
}

/* --- in the core ------------------------------------------------------------------------------ */

static struct world world;

/* vGPU 0 with 4 ms every 10 ms, and its tasks 0 and 2; vGPU 1 has no reservation, and task 1. */
static int open_world(void **unused)
{
	world_open(&world, 1, 4, 8, 0);
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_GPU_ADD,
					      .gpu_params = { .policy = RTXG_GPU_CBS } });
	for (uint32_t i = 0; i < 2; i++)
		world_do(&world, (struct rtxg_event){ .type = RTXG_EV_VGPU_ADD,
						      .vgpu = i,
						      .vgpu_params = { .min_ppm = i ? 0 : 400000,
								       .max_ppm = i ? 0 : 900000,
								       .period_ns = 10 * MS } });
	for (uint32_t i = 0; i < 3; i++)
		world_task(&world, i, i % 2);
	return 0;
}

static int close_world(void **unused)
{
	world_close(&world);
	return 0;
}

/* Its cap has vGPU 0 ask for each launch. */
static void launch(uint32_t task)
{
	world_arrive(&world, task);
	world_gave(&world, RTXG_ACT_GRANT, task);
	assert_int_equal(world.actions[0].flags, RTXG_GRANT_ONESHOT);
}

static void end(uint32_t task, uint64_t used)
{
	world.now += used;
	world_complete(&world, task, used);
}

static void timer(void)
{
	world.now = world.armed;
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_TIMER });
}

static void test_a_wait_is_charged_to_the_one_that_is_waited_for(void **unused)
{
	launch(0);
	world_arrive(&world, 1);
	end(0, MS);
	/* Nothing is known: as long as the longest launch, and 100 us to change hands. */
	assert_int_equal(world.count, 0);
	assert_int_equal(world.armed, 2100 * US);
	timer();
	world_gave(&world, RTXG_ACT_GRANT, 1);
	assert_int_equal(world_view(&world, 0).stats.busy_ns, 2100 * US);
	assert_int_equal(world_view(&world, 0).credit_ns, 1900 * US);
	assert_int_equal(world_view(&world, 0).stats.used_ns, MS);
}

static void test_one_that_comes_back_pays_until_then(void **unused)
{
	launch(0);
	world_arrive(&world, 1);
	end(0, MS);
	world.now += 400 * US;
	launch(0);
	assert_int_equal(world_view(&world, 0).stats.busy_ns, 1400 * US);
	assert_int_equal(world_view(&world, 0).credit_ns, 2600 * US);
}

static void test_no_one_pays_while_no_other_waits(void **unused)
{
	launch(0);
	end(0, MS);
	world.now += 400 * US;
	launch(0);
	assert_int_equal(world_view(&world, 0).stats.busy_ns, MS);
}

static void test_each_lane_is_known_by_its_own_pauses(void **unused)
{
	for (int i = 0; i < 8; i++) {
		launch(0);
		end(0, 100 * US);
		world.now += 30 * US;
	}
	for (int i = 0; i < 8; i++) {
		launch(2);
		end(2, 100 * US);
		world.now += 50 * MS;
	}
	launch(0);
	world_arrive(&world, 1);
	end(0, 500 * US);
	assert_int_equal(world.count, 0);
	assert_int_equal(world.armed, world.now + 35156);
	world.now += 30 * US;
	launch(2);
	end(2, 500 * US);
	world_gave(&world, RTXG_ACT_GRANT, 1);
}

static void test_a_task_that_goes_is_not_waited_for(void **unused)
{
	launch(0);
	world_arrive(&world, 1);
	end(0, MS);
	assert_int_equal(world.count, 0);
	world.now += 100 * US;
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_CLOSE, .task = 0 });
	world_gave(&world, RTXG_ACT_GRANT, 1);
	assert_int_equal(world_view(&world, 0).stats.busy_ns, 1100 * US);
}

#define LEARNT(f) cmocka_unit_test_setup(f, forget)
#define WAITED(f) cmocka_unit_test_setup_teardown(f, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LEARNT(test_nothing_known_waits_for_as_long_as_giving_up_costs),
		LEARNT(test_short_pauses_are_waited_for_and_no_longer),
		LEARNT(test_a_few_long_pauses_do_not_hide_the_short_ones),
		LEARNT(test_long_pauses_are_not_waited_for),
		LEARNT(test_a_wait_is_not_longer_than_it_is_worth),
		LEARNT(test_what_was_long_ago_is_forgotten),
		WAITED(test_a_wait_is_charged_to_the_one_that_is_waited_for),
		WAITED(test_one_that_comes_back_pays_until_then),
		WAITED(test_no_one_pays_while_no_other_waits),
		WAITED(test_each_lane_is_known_by_its_own_pauses),
		WAITED(test_a_task_that_goes_is_not_waited_for),
	};

	return cmocka_run_group_tests_name("pauses", tests, NULL, NULL);
}
