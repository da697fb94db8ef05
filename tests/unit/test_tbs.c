/* SPDX-License-Identifier: MIT */
/* test_tbs.c - total bandwidth servers: deadlines as their paper gives them, and who goes first. */
#include "check.h"

static struct world world;

static int open_world(void **unused)
{
	world_open(&world, 1, 4, 8, 0);
	world_gpu(&world, 0, rtxg_gpu_policy_find("tbs"));
	return 0;
}

static int close_world(void **unused)
{
	world_close(&world);
	return 0;
}

static void task_of_runtime(uint32_t task, uint32_t vgpu, uint64_t runtime_ns)
{
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_OPEN,
					      .task = task,
					      .vgpu = vgpu,
					      .task_params = { .runtime_ns = runtime_ns } });
}

/* Vgpu 3, without a reservation, holds the engine, so that what comes next has to wait. */
static void occupy(void)
{
	world_vgpu(&world, 3, 0, 0);
	world_task(&world, 7, 3);
	world_arrive(&world, 7);
	world_gave(&world, RTXG_ACT_GRANT, 7);
}

/* The holder's launch ends; what it used is at others' cost. */
static void ends(uint32_t task, uint64_t after_ns)
{
	world.now += after_ns;
	if (world_try(&world, (struct rtxg_event){ .type = RTXG_EV_RELEASED,
						   .task = task,
						   .used_ns = after_ns }))
		world_complete(&world, task, after_ns);
}

/*
 * The engine is kept free for a server that is likely to come back with an earlier deadline. It has
 * not come when the time is over.
 */
static void not_back_in_time(void)
{
	assert_int_equal(world.count, 0);
	assert_int_not_equal(world.armed, RTXG_TIME_NEVER);
	world.now = world.armed;
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_TIMER });
}

static void test_deadlines_are_those_of_the_papers_rule(void **unused)
{
	world_vgpu(&world, 0, 0, 250000);
	task_of_runtime(0, 0, 2 * MS);
	task_of_runtime(1, 0, 1 * MS);
	occupy();
	world.now = 5 * MS;
	world_arrive(&world, 0);
	/* max(5, 0) + 2 / 0.25 */
	assert_int_equal(world_view(&world, 0).deadline_ns, 13 * MS);
	world.now = 6 * MS;
	world_arrive(&world, 1);
	assert_int_equal(world_view(&world, 0).deadline_ns, 13 * MS);
	ends(7, MS);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	ends(0, 2 * MS);
	/* max(6, 13) + 1 / 0.25 */
	world_gave(&world, RTXG_ACT_GRANT, 1);
	assert_int_equal(world_view(&world, 0).deadline_ns, 17 * MS);
}

static void test_the_earliest_deadline_goes_first_and_the_unreserved_last(void **unused)
{
	world_vgpu(&world, 0, 0, 200000);
	world_vgpu(&world, 1, 0, 500000);
	world_vgpu(&world, 2, 0, 0);
	task_of_runtime(0, 0, MS);
	task_of_runtime(1, 1, MS);
	task_of_runtime(2, 2, 0);
	occupy();
	world_arrive(&world, 2);
	world_arrive(&world, 0); /* due after 5 ms */
	world_arrive(&world, 1); /* due after 2 ms */
	ends(7, MS);
	world_gave(&world, RTXG_ACT_GRANT, 1);
	ends(1, MS);
	not_back_in_time();
	world_gave(&world, RTXG_ACT_GRANT, 0);
	ends(0, MS);
	not_back_in_time();
	world_gave(&world, RTXG_ACT_GRANT, 2);
}

static void test_a_launch_longer_than_it_said_is_paid_for_by_the_next_deadline(void **unused)
{
	world_vgpu(&world, 0, 0, 500000);
	task_of_runtime(0, 0, MS);
	task_of_runtime(1, 0, MS);
	occupy();
	world_arrive(&world, 0);
	world_arrive(&world, 1);
	assert_int_equal(world_view(&world, 0).deadline_ns, 2 * MS);
	ends(7, MS);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	ends(0, 4 * MS);
	world_gave(&world, RTXG_ACT_GRANT, 1);
	/* 4 / 0.5 for what the first took, and 1 / 0.5 */
	assert_int_equal(world_view(&world, 0).deadline_ns, 10 * MS);
}

static void test_a_length_that_was_not_given_is_learnt(void **unused)
{
	world_vgpu(&world, 0, 0, 500000);
	world_task(&world, 0, 0);
	world_task(&world, 1, 0);
	occupy();
	world_arrive(&world, 0);
	world_arrive(&world, 1);
	ends(7, MS);
	ends(0, 3 * MS);
	/* The first was due at 6 ms by what it took, and the next is taken to be as long. */
	assert_int_equal(world_view(&world, 0).deadline_ns, 12 * MS);
}

/* The holder launches 1 ms, and wants the engine again when another may have it. */
static void turn(void)
{
	uint32_t task = rtxg_core_holder(world.core, 0, RTXG_ENGINE_COMPUTE);

	ends(task, MS);
	world_arrive(&world, task);
}

static void turns(unsigned int count)
{
	while (count--)
		turn();
}

/* Two tasks want the engine for the vGPU, so that it always waits or has it. */
static void backlog(uint32_t vgpu, uint32_t min_ppm)
{
	world_vgpu(&world, vgpu, 0, min_ppm);
	for (uint32_t task = 2 * vgpu; task < 2 * vgpu + 2; task++) {
		task_of_runtime(task, vgpu, MS);
		world_arrive(&world, task);
	}
}

static uint64_t busy(uint32_t vgpu)
{
	return world_view(&world, vgpu).stats.busy_ns;
}

/* While none wants what is reserved, vGPU 0 has all that the one without a reservation leaves. */
static void test_what_is_left_over_takes_nothing_from_a_reservation_later(void **unused)
{
	uint64_t before;

	backlog(3, 0);
	backlog(0, 100000);
	turns(1000);
	assert_in_range(busy(0), 990 * MS, 1000 * MS);
	backlog(1, 900000);
	before = busy(0);
	turns(200);
	assert_in_range(busy(0) - before, 19 * MS, 21 * MS);
}

/* Two share what is left over, and both lose nothing by it. */
static void test_what_several_share_of_it_takes_nothing_either(void **unused)
{
	uint64_t before[2];

	backlog(0, 100000);
	backlog(1, 200000);
	turns(3000);
	assert_in_range(busy(1), 1990 * MS, 2010 * MS);
	backlog(2, 700000);
	before[0] = busy(0), before[1] = busy(1);
	turns(200);
	assert_in_range(busy(0) - before[0], 19 * MS, 21 * MS);
	assert_in_range(busy(1) - before[1], 39 * MS, 41 * MS);
}

/* It has nothing to do when the other comes, and so no deadline that could be seen then. */
static void test_nor_where_it_pauses_before_another_comes(void **unused)
{
	uint64_t before;

	backlog(3, 0);
	backlog(0, 100000);
	turns(1000);
	for (uint32_t i = 0; i < 2; i++)
		ends(rtxg_core_holder(world.core, 0, RTXG_ENGINE_COMPUTE), MS);
	world.now += 100 * MS;
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_TIMER });
	backlog(1, 900000);
	turns(5);
	before = busy(0);
	world_arrive(&world, 0);
	world_arrive(&world, 1);
	turns(200);
	assert_in_range(busy(0) - before, 19 * MS, 21 * MS);
}

/* A request of vGPU 0 that comes before its last deadline, while another has not had its share. */
static void test_a_request_before_the_last_deadline_counts_from_there(void **unused)
{
	world_vgpu(&world, 0, 0, 250000);
	world_vgpu(&world, 1, 0, 100000);
	task_of_runtime(0, 0, 2 * MS);
	task_of_runtime(1, 1, 4 * MS);
	occupy();
	world_arrive(&world, 0); /* due after 8 ms */
	world_arrive(&world, 1); /* due after 40 ms */
	ends(7, MS);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	ends(0, 2 * MS);
	world_arrive(&world, 0);
	assert_int_equal(world_view(&world, 0).deadline_ns, 16 * MS);
	ends(0, 2 * MS);
	world_arrive(&world, 0);
	assert_int_equal(world_view(&world, 0).deadline_ns, 24 * MS);
}

static void set_min(uint32_t vgpu, uint32_t min_ppm)
{
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_VGPU_SET,
					      .vgpu = vgpu,
					      .vgpu_params = { .min_ppm = min_ppm } });
}

/* A launch of vGPU 0, for which the others wait, and then another reservation beside it. */
static void one_launch_before_another_comes(uint32_t min_ppm)
{
	occupy();
	backlog(0, min_ppm);
	ends(7, MS);
	if (!world.count)
		not_back_in_time();
	world_arrive(&world, 7);
	turn();
	assert_int_equal(busy(0), MS);
	backlog(1, 500000);
	turns(100);
	assert_in_range(busy(0), MS, 2 * MS);
}

/* It gets what the later one gives, whatever it had at its first launch. */
static void the_later_reservation_counts(uint32_t first_ppm)
{
	uint64_t before;

	one_launch_before_another_comes(first_ppm);
	before = busy(0);
	set_min(0, 400000);
	turns(100);
	assert_in_range(busy(0) - before, 39 * MS, 50 * MS);
}

static void test_a_reservation_that_was_tiny_binds_no_later_one(void **unused)
{
	the_later_reservation_counts(13);
}

static void test_a_first_reservation_counts_from_when_it_is_given(void **unused)
{
	the_later_reservation_counts(0);
}

/* 4 ms of which all are paid for by the next deadline, whatever the reservation is by then. */
static void test_what_was_used_stays_used_when_the_reservation_changes(void **unused)
{
	world_vgpu(&world, 0, 0, 500000);
	task_of_runtime(0, 0, MS);
	task_of_runtime(1, 0, MS);
	occupy();
	world_arrive(&world, 0);
	world_arrive(&world, 1);
	ends(7, MS);
	ends(0, 4 * MS);
	/* at 5 ms, counted from 8 ms: 1.5 ms of the engine are paid ahead */
	assert_int_equal(world_view(&world, 0).deadline_ns, 10 * MS);
	set_min(0, 250000);
	assert_int_equal(world_view(&world, 0).deadline_ns, 15 * MS);
	set_min(0, 0);
	set_min(0, 500000);
	assert_int_equal(world_view(&world, 0).deadline_ns, 10 * MS);
	/* The cap has no part in it. */
	world_do(&world,
		 (struct rtxg_event){ .type = RTXG_EV_VGPU_SET,
				      .vgpu_params = { .min_ppm = 500000, .max_ppm = 600000 } });
	assert_int_equal(world_view(&world, 0).deadline_ns, 10 * MS);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_deadlines_are_those_of_the_papers_rule),
		TEST(test_the_earliest_deadline_goes_first_and_the_unreserved_last),
		TEST(test_a_launch_longer_than_it_said_is_paid_for_by_the_next_deadline),
		TEST(test_a_length_that_was_not_given_is_learnt),
		TEST(test_what_is_left_over_takes_nothing_from_a_reservation_later),
		TEST(test_what_several_share_of_it_takes_nothing_either),
		TEST(test_nor_where_it_pauses_before_another_comes),
		TEST(test_a_request_before_the_last_deadline_counts_from_there),
		TEST(test_a_reservation_that_was_tiny_binds_no_later_one),
		TEST(test_a_first_reservation_counts_from_when_it_is_given),
		TEST(test_what_was_used_stays_used_when_the_reservation_changes),
	};

	return cmocka_run_group_tests_name("tbs", tests, NULL, NULL);
}
