/* SPDX-License-Identifier: MIT */
/* test_wfq.c - weighted fair queueing: shares by weight, whatever the kernels' lengths. */
#include "check.h"

static struct world world;

static int open_world(void **unused)
{
	world_open(&world, 1, 4, 4, 0);
	world_gpu(&world, 0, rtxg_gpu_policy_find("wfq"));
	return 0;
}

static int close_world(void **unused)
{
	world_close(&world);
	return 0;
}

static void client(uint32_t number, uint32_t weight)
{
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_VGPU_ADD,
					      .vgpu = number,
					      .vgpu_params = { .weight = weight } });
	world_task(&world, number, number);
}

/* The holder runs a kernel of its length, and wants the engine again after a short pause. */
static void turn(uint32_t clients, const uint64_t *kernel_ns, uint64_t pause_ns)
{
	for (uint32_t i = 0; i < clients; i++) {
		struct rtxg_account_view view = world_view(&world, i);

		if (view.holder == RTXG_NONE)
			continue;
		world.now += kernel_ns[i];
		/* A lease that was called back ends at this completion, as the host says it. */
		if (world_try(&world, (struct rtxg_event){ .type = RTXG_EV_RELEASED,
							   .task = i,
							   .used_ns = kernel_ns[i] }))
			world_complete(&world, i, kernel_ns[i]);
		world.now += pause_ns;
		world_try(&world, (struct rtxg_event){ .type = RTXG_EV_ARRIVAL, .task = i });
		return;
	}
	fail_msg("the engine is free while tasks wait");
}

/* Within a hundredth of the total. */
static void has_share(uint32_t vgpu, uint64_t total, uint64_t parts, uint64_t of)
{
	uint64_t busy = world_view(&world, vgpu).stats.busy_ns;

	assert_in_range(busy * 100, total * 100 * parts / of - total,
			total * 100 * parts / of + total);
}

static void test_shares_follow_weights_and_not_the_length_of_kernels(void **unused)
{
	static const uint64_t kernel_ns[] = { 1 * MS, 3 * MS, 500 * US };
	uint64_t total;

	client(0, 300);
	client(1, 100);
	client(2, 200);
	for (uint32_t i = 0; i < 3; i++)
		world_arrive(&world, i);
	for (int i = 0; i < 6000; i++)
		turn(3, kernel_ns, 0);
	total = world.now;
	has_share(0, total, 3, 6);
	has_share(1, total, 1, 6);
	has_share(2, total, 2, 6);
}

static void test_a_short_pause_after_each_launch_loses_no_share(void **unused)
{
	static const uint64_t kernel_ns[] = { MS, MS };
	uint64_t total;

	client(0, 400);
	client(1, 100);
	world_arrive(&world, 0);
	world_arrive(&world, 1);
	for (int i = 0; i < 4000; i++)
		turn(2, kernel_ns, 10 * US);
	total = world_view(&world, 0).stats.busy_ns + world_view(&world, 1).stats.busy_ns;
	has_share(0, total, 4, 5);
}

static void test_time_that_was_not_wanted_is_not_made_up_for(void **unused)
{
	static const uint64_t kernel_ns[] = { MS, MS };
	uint64_t before, after;

	client(0, 100);
	client(1, 100);
	world_task(&world, 2, 0); /* the vGPU that stays is never idle */
	world_arrive(&world, 0);
	for (int i = 0; i < 1000; i++)
		turn(1, kernel_ns, 0);
	world_arrive(&world, 1);
	before = world_view(&world, 0).stats.busy_ns;
	for (int i = 0; i < 100; i++)
		turn(2, kernel_ns, 0);
	after = world_view(&world, 0).stats.busy_ns;
	/* Half of the hundred launches, however long the other was away. */
	assert_in_range(after - before, 48 * MS, 52 * MS);
}

static void test_a_lone_vgpu_has_a_lease(void **unused)
{
	client(0, 1);
	world_arrive(&world, 0);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	assert_int_equal(world.actions[0].flags, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_shares_follow_weights_and_not_the_length_of_kernels),
		TEST(test_a_short_pause_after_each_launch_loses_no_share),
		TEST(test_time_that_was_not_wanted_is_not_made_up_for),
		TEST(test_a_lone_vgpu_has_a_lease),
	};

	return cmocka_run_group_tests_name("wfq", tests, NULL, NULL);
}
