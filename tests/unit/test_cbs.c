// SPDX-License-Identifier: MIT
/*
 * test_cbs.c - constant-bandwidth servers on paper: small schedules whose every step can be
 * computed by hand.
 */
#include "check.h"

static struct world world;

static int open_world(void **unused)
{
	world_open(&world, 1, 4, 8, 0);
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_GPU_ADD,
					      .gpu_params = { .policy = RTXG_GPU_CBS,
							      .think_ns = RTXG_TIME_NEVER } });
	return 0;
}

static int close_world(void **unused)
{
	world_close(&world);
	return 0;
}

static void server(uint32_t vgpu, uint32_t min_ppm, uint32_t max_ppm, uint64_t period_ns,
		   uint32_t priority)
{
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_VGPU_ADD,
					      .vgpu = vgpu,
					      .vgpu_params = { .min_ppm = min_ppm,
							       .max_ppm = max_ppm,
							       .period_ns = period_ns,
							       .priority = priority } });
}

/* Ends the holder's launch at `at`, whatever kind of permit it has. */
static void end(uint32_t task, uint64_t at, bool revoked)
{
	uint64_t used = at - world.now;

	world.now = at;
	if (revoked)
		world_released(&world, task, used);
	else
		world_complete(&world, task, used);
}

static void test_a_server_begins_with_a_full_budget(void **unused)
{
	server(0, 400000, 0, 10 * MS, 1);
	world.now = 3 * MS;
	world_task(&world, 0, 0);
	world_arrive(&world, 0);
	assert_int_equal(world_view(&world, 0).credit_ns, 4 * MS);
	assert_int_equal(world_view(&world, 0).deadline_ns, 13 * MS);
}

static void test_the_earlier_deadline_goes_first(void **unused)
{
	server(0, 300000, 0, 50 * MS, 1);
	server(1, 300000, 0, 20 * MS, 1);
	server(2, 300000, 0, 80 * MS, 99); /* priority is for what is left over */
	for (uint32_t i = 0; i < 4; i++)
		world_task(&world, i, i < 3 ? i : 0);
	world_arrive(&world, 3);
	world_gave(&world, RTXG_ACT_GRANT, 3);
	world_arrive(&world, 2);
	world_arrive(&world, 0);
	world_arrive(&world, 1);
	end(3, MS, true);
	world_gave(&world, RTXG_ACT_GRANT, 1);
}

static void test_an_overrun_is_charged_back_exactly(void **unused)
{
	server(0, 500000, 500000, 10 * MS, 1); /* a hard server: 5 ms every 10 ms */
	world_task(&world, 0, 0);
	world_arrive(&world, 0);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	/*
	 * 23 ms with a budget of 5: five budgets (25 ms) cover it, 2 ms are left, and the deadline
	 * is five periods later.
	 */
	end(0, 23 * MS, false);
	assert_int_equal(world_view(&world, 0).credit_ns, 2 * MS);
	assert_int_equal(world_view(&world, 0).deadline_ns, 10 * MS + 4 * 10 * MS);
	assert_int_equal(world_view(&world, 0).stats.overruns, 1);
	/* It may not launch before the period of that budget begins. */
	world_arrive(&world, 0);
	assert_int_equal(world.count, 0);
	assert_int_equal(world.armed, 40 * MS);
	assert_true(world_view(&world, 0).stats.throttled > 0);
	world.now = 40 * MS;
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_TIMER });
	world_gave(&world, RTXG_ACT_GRANT, 0);
}

static void test_what_nobody_else_wanted_costs_no_budget(void **unused)
{
	server(0, 100000, 0, 10 * MS, 1);
	server(1, 100000, 0, 10 * MS, 1);
	world_task(&world, 0, 0);
	world_task(&world, 1, 1);
	world_arrive(&world, 0);
	world.now = 500 * MS;
	world_arrive(&world, 1);
	world_gave(&world, RTXG_ACT_REVOKE, 0);
	world_released(&world, 0, 500 * MS);
	world_gave(&world, RTXG_ACT_GRANT, 1);
	assert_int_equal(world_view(&world, 0).credit_ns, MS);
	assert_int_equal(world_view(&world, 0).stats.busy_ns, 500 * MS);
	/* And it has not fallen behind meanwhile: its deadline is not half a second old. */
	assert_true(world_view(&world, 0).deadline_ns >= 500 * MS);
}

static void test_a_cap_throttles_until_the_period_that_makes_it_up(void **unused)
{
	server(0, 0, 200000, 10 * MS, 1); /* 2 ms every 10 ms, no reservation */
	world_task(&world, 0, 0);
	world_arrive(&world, 0);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	assert_int_equal(world.actions[0].flags, RTXG_GRANT_ONESHOT);
	end(0, 5 * MS, false); /* 3 ms too much: 10 ms brings it to -1, 20 ms to 1 */
	world_arrive(&world, 0);
	assert_int_equal(world.count, 0);
	assert_int_equal(world.armed, 20 * MS);
	world.now = 20 * MS;
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_TIMER });
	world_gave(&world, RTXG_ACT_GRANT, 0);
}

static void test_left_over_time_goes_by_priority(void **unused)
{
	server(0, 0, 0, 10 * MS, 1);
	server(1, 0, 0, 10 * MS, 5);
	server(2, 0, 0, 10 * MS, 3);
	for (uint32_t i = 0; i < 4; i++)
		world_task(&world, i, i < 3 ? i : 0);
	world_arrive(&world, 3);
	world_arrive(&world, 0);
	world_arrive(&world, 2);
	world_arrive(&world, 1);
	end(3, MS, true);
	world_gave(&world, RTXG_ACT_GRANT, 1);
}

static void test_a_reservation_goes_before_any_priority(void **unused)
{
	server(0, 0, 0, 10 * MS, 99);
	server(1, 10000, 0, 10 * MS, 1);
	world_task(&world, 0, 0);
	world_task(&world, 1, 1);
	world_task(&world, 2, 0);
	world_arrive(&world, 2);
	world_arrive(&world, 0);
	world_arrive(&world, 1);
	end(2, MS, true);
	world_gave(&world, RTXG_ACT_GRANT, 1);
}

static void test_what_another_lends_while_it_pauses_is_paid_ahead(void **unused)
{
	server(0, 500000, 0, 10 * MS, 1);
	server(1, 500000, 0, 10 * MS, 1);
	world_task(&world, 0, 0);
	world_task(&world, 1, 1);
	world_arrive(&world, 1);
	world_gave(&world, RTXG_ACT_GRANT, 1);
	world_arrive(&world, 0);
	world_gave(&world, RTXG_ACT_REVOKE, 1);
	end(1, 5 * MS, true); /* all that is reserved for it until 10 ms */
	world_gave(&world, RTXG_ACT_GRANT, 0);
	assert_int_equal(world_view(&world, 1).credit_ns, 5 * MS);
	end(0, 6 * MS, false); /* it pauses, with 4 ms of its reservation left */
	world_arrive(&world, 1);
	world_gave(&world, RTXG_ACT_REVOKE, 0);
	world_released(&world, 0, 0);
	world_gave(&world, RTXG_ACT_GRANT, 1);
	end(1, 8 * MS, false);
	assert_int_equal(world_view(&world, 1).credit_ns, 3 * MS);
	assert_int_equal(world_view(&world, 1).stats.overruns, 0);
}

/*
 * The holder launches 1 ms, and wants the engine again when another may have it. A permit that is
 * called back is returned.
 */
static void turn(void)
{
	uint32_t task = rtxg_core_holder(world.core, 0, RTXG_ENGINE_COMPUTE);

	world.now += MS;
	if (world_try(&world, (struct rtxg_event){
				      .type = RTXG_EV_RELEASED, .task = task, .used_ns = MS })) {
		world_complete(&world, task, MS);
		world_try(&world, (struct rtxg_event){ .type = RTXG_EV_RELEASED, .task = task });
	}
	world_arrive(&world, task);
}

static uint64_t busy(uint32_t vgpu)
{
	return world_view(&world, vgpu).stats.busy_ns;
}

/* Among equals each has the same, though one never pauses and another has had the engine before. */
static void test_what_a_higher_priority_had_changes_nothing_among_those_below(void **unused)
{
	uint64_t before[2];

	server(0, 0, 0, 8 * MS, 2);
	server(1, 0, 0, 8 * MS, 1);
	server(2, 0, 0, 8 * MS, 1);
	for (uint32_t i = 0; i < 5; i++)
		world_task(&world, i, i < 2 ? 0 : i < 4 ? 1 : 2);
	for (uint32_t i = 0; i < 4; i++)
		world_arrive(&world, i);
	for (int i = 0; i < 1000; i++)
		turn();
	assert_int_equal(busy(0), 1000 * MS);
	for (uint32_t i = 0; i < 2; i++)
		world_do(&world, (struct rtxg_event){ .type = RTXG_EV_CLOSE, .task = i });
	world_arrive(&world, 4);
	before[0] = busy(1), before[1] = busy(2);
	for (int i = 0; i < 100; i++)
		turn();
	assert_int_equal(busy(1) - before[0], 50 * MS);
	assert_int_equal(busy(2) - before[1], 50 * MS);
}

static void test_a_vgpu_whose_priority_changes_stands_beside_its_new_equals(void **unused)
{
	struct rtxg_vgpu_params params = { .priority = 1, .period_ns = 8 * MS };
	uint64_t before[2];

	server(0, 0, 0, 8 * MS, 2);
	server(1, 0, 0, 8 * MS, 1);
	for (uint32_t i = 0; i < 4; i++)
		world_task(&world, i, i / 2);
	for (uint32_t i = 0; i < 4; i++)
		world_arrive(&world, i);
	for (int i = 0; i < 1000; i++)
		turn();
	world_do(&world,
		 (struct rtxg_event){ .type = RTXG_EV_VGPU_SET, .vgpu = 0, .vgpu_params = params });
	before[0] = busy(0), before[1] = busy(1);
	for (int i = 0; i < 100; i++)
		turn();
	assert_in_range(busy(0) - before[0], 49 * MS, 51 * MS);
	assert_in_range(busy(1) - before[1], 49 * MS, 51 * MS);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_server_begins_with_a_full_budget),
		TEST(test_the_earlier_deadline_goes_first),
		TEST(test_an_overrun_is_charged_back_exactly),
		TEST(test_what_nobody_else_wanted_costs_no_budget),
		TEST(test_a_cap_throttles_until_the_period_that_makes_it_up),
		TEST(test_left_over_time_goes_by_priority),
		TEST(test_a_reservation_goes_before_any_priority),
		TEST(test_what_another_lends_while_it_pauses_is_paid_ahead),
		TEST(test_what_a_higher_priority_had_changes_nothing_among_those_below),
		TEST(test_a_vgpu_whose_priority_changes_stands_beside_its_new_equals),
	};

	return cmocka_run_group_tests_name("cbs", tests, NULL, NULL);
}
