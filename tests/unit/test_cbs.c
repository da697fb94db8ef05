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

static void change(uint32_t vgpu, uint32_t min_ppm, uint32_t max_ppm, uint64_t period_ns)
{
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_VGPU_SET,
					      .vgpu = vgpu,
					      .vgpu_params = { .min_ppm = min_ppm,
							       .max_ppm = max_ppm,
							       .period_ns = period_ns } });
}

/*
 * What vGPU 0 gets in a second in which it launches 1 ms whenever it may, and sets one of its
 * parameters after each launch, and each time that it is kept waiting, in turn.
 */
static uint64_t used_while_it_sets(const struct rtxg_vgpu_params *set, unsigned int count)
{
	unsigned int turn = 0;

	while (world.now < SEC) {
		if (rtxg_core_holder(world.core, 0, RTXG_ENGINE_COMPUTE) == 0) {
			end(0, world.now + MS, false);
			world_arrive(&world, 0);
		} else {
			assert_true(world.armed > world.now);
			world.now += 300 * US;
			if (world.armed <= world.now)
				world_do(&world, (struct rtxg_event){ .type = RTXG_EV_TIMER });
		}
		world_do(&world, (struct rtxg_event){ .type = RTXG_EV_VGPU_SET,
						      .vgpu_params = set[turn++ % count] });
	}
	return busy(0);
}

static void test_no_change_brings_the_budget_of_a_cap_back(void **unused)
{
	const struct rtxg_vgpu_params set[] = {
		{ .max_ppm = 200000, .period_ns = 10 * MS },
		{ .max_ppm = 199000, .period_ns = 10 * MS },
		{ .max_ppm = 200000, .period_ns = 70 * MS },
		{ .max_ppm = 200000, .period_ns = 9 * MS },
	};

	server(0, 0, 200000, 10 * MS, 1);
	world_task(&world, 0, 0);
	world_arrive(&world, 0);
	/* 20 % of it, a budget of the longest period, and a launch that may end late */
	assert_in_range(used_while_it_sets(set, 4), 150 * MS, 200 * MS + 14 * MS + MS);
}

static void test_no_change_brings_the_budget_of_a_hard_server_back(void **unused)
{
	const struct rtxg_vgpu_params set[] = {
		{ .min_ppm = 200000, .max_ppm = 200000, .period_ns = 10 * MS },
		{ .min_ppm = 199000, .max_ppm = 199000, .period_ns = 10 * MS },
		{ .min_ppm = 0, .max_ppm = 200000, .period_ns = 10 * MS },
		{ .min_ppm = 100000, .max_ppm = 200000, .period_ns = 9 * MS },
	};

	server(0, 200000, 200000, 10 * MS, 1);
	world_task(&world, 0, 0);
	world_arrive(&world, 0);
	assert_in_range(used_while_it_sets(set, 4), 100 * MS, 200 * MS + 2 * MS + MS);
}

static void test_a_debt_to_a_cap_stays_when_the_cap_changes(void **unused)
{
	server(0, 0, 200000, 10 * MS, 1);
	world_task(&world, 0, 0);
	world_arrive(&world, 0);
	end(0, 5 * MS, false); /* 3 ms too much */
	change(0, 0, 100000, 10 * MS);
	world_arrive(&world, 0);
	assert_int_equal(world.count, 0);
	/* 1 ms each time brings it to 0 at 30 ms */
	assert_int_equal(world.armed, 40 * MS);
	change(0, 0, 1000000, 10 * MS);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	change(0, 0, 200000, 10 * MS);
	world_gave(&world, RTXG_ACT_REVOKE, 0);
	world_released(&world, 0, 0);
	world_arrive(&world, 0);
	assert_int_equal(world.count, 0);
	assert_int_equal(world.armed, 20 * MS);
}

static void test_a_lower_cap_leaves_as_much_of_its_budget_as_was_left(void **unused)
{
	server(0, 0, 800000, 10 * MS, 1); /* 8 ms, of which it uses 6 */
	world_task(&world, 0, 0);
	world_arrive(&world, 0);
	end(0, 6 * MS, false);
	change(0, 0, 400000, 10 * MS); /* a quarter of 4 ms is left */
	world_arrive(&world, 0);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	end(0, 7 * MS, false);
	world_arrive(&world, 0);
	assert_int_equal(world.count, 0);
	assert_int_equal(world.armed, 10 * MS);
}

/* Two servers, of which the first has used 3 of its 4 ms at the other's cost. */
static void use_three_of_four(void)
{
	server(0, 400000, 0, 10 * MS, 1);
	server(1, 100000, 0, 100 * MS, 1);
	world_task(&world, 0, 0);
	world_task(&world, 1, 0);
	world_task(&world, 2, 1);
	world_arrive(&world, 0);
	world_arrive(&world, 2);
	world_arrive(&world, 1);
	end(0, 3 * MS, true);
	world_gave(&world, RTXG_ACT_GRANT, 1);
	assert_int_equal(world_view(&world, 0).credit_ns, MS);
	assert_int_equal(world_view(&world, 0).deadline_ns, 10 * MS);
}

static void test_a_budget_that_is_left_goes_by_the_new_reservation(void **unused)
{
	use_three_of_four();
	/* 7 ms of 40 % are 14 ms of 20 % */
	change(0, 200000, 0, 10 * MS);
	assert_int_equal(world_view(&world, 0).credit_ns, MS);
	assert_int_equal(world_view(&world, 0).deadline_ns, 17 * MS);
	change(0, 400000, 0, 10 * MS);
	assert_int_equal(world_view(&world, 0).credit_ns, MS);
	assert_int_equal(world_view(&world, 0).deadline_ns, 10 * MS);
	/* nor does giving it up and taking it again bring anything */
	change(0, 0, 0, 10 * MS);
	change(0, 400000, 0, 10 * MS);
	assert_int_equal(world_view(&world, 0).credit_ns, MS);
	assert_int_equal(world_view(&world, 0).deadline_ns, 10 * MS);
	/* A cap has no part in it, and a period counts from the next budget on. */
	change(0, 400000, 900000, 5 * MS);
	assert_int_equal(world_view(&world, 0).credit_ns, MS);
	assert_int_equal(world_view(&world, 0).deadline_ns, 10 * MS);
}

static void test_a_debt_is_paid_by_the_new_reservation(void **unused)
{
	server(0, 500000, 500000, 10 * MS, 1);
	world_task(&world, 0, 0);
	world_arrive(&world, 0);
	/* as above: its next budget, of which 2 ms are left, begins at 40 ms */
	end(0, 23 * MS, false);
	change(0, 250000, 250000, 10 * MS);
	world_arrive(&world, 0);
	assert_int_equal(world.count, 0);
	/* 17 ms of 50 % are 34 ms of 25 % */
	assert_int_equal(world.armed, 57 * MS);
	change(0, 500000, 500000, 10 * MS);
	assert_int_equal(world.armed, 40 * MS);
}

static void test_what_it_waits_without_a_reservation_is_not_owed_to_it(void **unused)
{
	use_three_of_four();
	change(0, 0, 0, 10 * MS);
	world.now += 500 * MS;
	change(0, 400000, 0, 10 * MS);
	assert_int_equal(world_view(&world, 0).credit_ns, 4 * MS);
	assert_int_equal(world_view(&world, 0).deadline_ns, world.now + 10 * MS);
}

/* Nor is what it had out of its reservation free when that is given up before the end. */
static void test_a_launch_is_paid_for_by_the_reservation_that_let_it_go(void **unused)
{
	use_three_of_four();
	world.now += 3 * MS;
	change(0, 0, 0, 10 * MS);
	end(1, world.now + 2 * MS, false);
	change(0, 400000, 0, 10 * MS);
	/* 5 ms with a budget of 1: the next one comes at 10 ms, and is used up */
	assert_int_equal(world_view(&world, 0).credit_ns, 4 * MS);
	assert_int_equal(world_view(&world, 0).deadline_ns, 30 * MS);
}

static void test_a_first_reservation_begins_with_a_full_budget(void **unused)
{
	server(0, 0, 0, 10 * MS, 1);
	world.now = 500 * MS;
	change(0, 300000, 0, 20 * MS);
	assert_int_equal(world_view(&world, 0).credit_ns, 6 * MS);
	assert_int_equal(world_view(&world, 0).deadline_ns, 520 * MS);
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
		TEST(test_no_change_brings_the_budget_of_a_cap_back),
		TEST(test_no_change_brings_the_budget_of_a_hard_server_back),
		TEST(test_a_debt_to_a_cap_stays_when_the_cap_changes),
		TEST(test_a_lower_cap_leaves_as_much_of_its_budget_as_was_left),
		TEST(test_a_budget_that_is_left_goes_by_the_new_reservation),
		TEST(test_a_debt_is_paid_by_the_new_reservation),
		TEST(test_what_it_waits_without_a_reservation_is_not_owed_to_it),
		TEST(test_a_launch_is_paid_for_by_the_reservation_that_let_it_go),
		TEST(test_a_first_reservation_begins_with_a_full_budget),
	};

	return cmocka_run_group_tests_name("cbs", tests, NULL, NULL);
}
