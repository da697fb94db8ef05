// SPDX-License-Identifier: MIT
/*
 * test_pool.c - the k-FMLP over a pool of GPUs, rule by rule (Elliott and Anderson, ECRTS 2012,
 * appendix A).
 */
#include "check.h"

static struct world world;

static int open_pool(void **unused)
{
	world_open(&world, 4, 4, 12, 2);
	for (uint32_t gpu = 0; gpu < 4; gpu++) {
		world_gpu(&world, gpu, RTXG_GPU_CBS);
		world_vgpu(&world, gpu, gpu, 0);
	}
	for (uint32_t task = 0; task < 12; task++)
		world_task(&world, task, task % 4);
	/* GPUs 1, 2 and 3: the numbers of a pool need not begin with 0. */
	world_do(&world,
		 (struct rtxg_event){ .type = RTXG_EV_POOL_ADD, .pool = 0, .gpu_mask = 0xe });
	return 0;
}

static int close_pool(void **unused)
{
	world_close(&world);
	return 0;
}

static void request_for(uint32_t task, uint32_t priority, uint64_t length_ns)
{
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_POOL_REQUEST,
					      .task = task,
					      .priority = priority,
					      .used_ns = length_ns });
}

static void request(uint32_t task, uint32_t priority)
{
	request_for(task, priority, 0);
}

static void release(uint32_t task)
{
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_POOL_RELEASE, .task = task });
}

/* The last event granted this, among whatever else it did. */
static void granted(uint32_t task, uint32_t gpu)
{
	int found = 0;

	for (int i = 0; i < world.count; i++)
		if (world.actions[i].type == RTXG_ACT_POOL_GRANT) {
			assert_int_equal(world.actions[i].task, task);
			assert_int_equal(world.actions[i].gpu, gpu);
			assert_int_equal(world.actions[i].pool, 0);
			found++;
		}
	assert_int_equal(found, 1);
}

static void granted_nothing(void)
{
	for (int i = 0; i < world.count; i++)
		assert_int_not_equal(world.actions[i].type, RTXG_ACT_POOL_GRANT);
}

/* The last event told what this task inherits; 0: nothing any more. */
static void inherits(uint32_t task, uint32_t priority)
{
	for (int i = 0; i < world.count; i++)
		if (world.actions[i].type == RTXG_ACT_POOL_INHERIT &&
		    world.actions[i].task == task) {
			assert_int_equal(world.actions[i].priority, priority);
			return;
		}
	fail_msg("task %u was not told a priority", task);
}

static void inherits_nothing(void)
{
	for (int i = 0; i < world.count; i++)
		assert_int_not_equal(world.actions[i].type, RTXG_ACT_POOL_INHERIT);
}

static void test_r1_shortest_queue_lowest_number_among_equals(void **unused)
{
	static const uint32_t gpus[] = { 1, 2, 3, 1, 2, 3, 1 };

	for (uint32_t task = 0; task < 7; task++) {
		assert_int_equal(rtxg_core_device_advice(world.core, 0), gpus[task]);
		request(task, 10);
		if (task < 3)
			granted(task, gpus[task]);
		else
			granted_nothing();
	}
	/*
	 * Queues 1: 0 3 6, 2: 1 4, 3: 2 5. The heads leave; each next in its own queue follows, on
	 * the same GPU.
	 */
	release(1);
	granted(4, 2);
	release(0);
	granted(3, 1);
	release(2);
	granted(5, 3);
	/* Queue 1: 3 6, 2: 4, 3: 5. */
	assert_int_equal(rtxg_core_device_advice(world.core, 0), 2);
}

static void test_r1_waits_are_sums_of_critical_sections(void **unused)
{
	request_for(0, 10, 50 * MS);
	granted(0, 1);
	request_for(1, 10, 5 * MS);
	granted(1, 2);
	request_for(2, 10, 20 * MS);
	granted(2, 3);
	/* Two short ones still wait less on GPU 2 than one on the others. */
	request_for(3, 10, 10 * MS);
	request_for(4, 10, 4 * MS);
	assert_int_equal(rtxg_core_device_advice(world.core, 0), 2);
	request_for(5, 10, 30 * MS); /* 2: 49 ms, 3: 20 ms, 1: 50 ms */
	assert_int_equal(rtxg_core_device_advice(world.core, 0), 3);
	release(1);
	granted(3, 2);
	release(3);
	granted(4, 2);
}

static void test_r2_holder_inherits_the_highest_in_its_queue(void **unused)
{
	for (uint32_t task = 0; task < 3; task++)
		request(task, 20);
	request(3, 10); /* behind 0: lower, nothing to inherit */
	inherits_nothing();
	request(4, 50); /* behind 1 */
	inherits(1, 50);
	request(5, 20); /* behind 2: equal */
	inherits_nothing();
	request(6, 70); /* behind 3 behind 0 */
	inherits(0, 70);
	request(7, 60); /* behind 4: higher than 50 */
	inherits(1, 60);
	/* It does not change its mind to less while 60 still waits. */
	release(4);
	inherits_nothing();
	release(7); /* no task waits behind 1 any more */
	inherits(1, 0);
	/* FIFO even so: 3 holds next, and now it is 3 that keeps 70 waiting. */
	release(0);
	granted(3, 1);
	inherits(3, 70);
}

static void test_r3_a_free_gpu_takes_the_highest_waiting_elsewhere(void **unused)
{
	for (uint32_t task = 0; task < 3; task++)
		request(task, 5);
	request(3, 10); /* 1: 0 3 */
	request(4, 40); /* 2: 1 4 */
	request(5, 30); /* 3: 2 5 */
	request(6, 20); /* 1: 0 3 6 */
	release(5);	/* 3: 2 */
	granted_nothing();
	release(2); /* 3 is free and its queue empty: 40 is stolen from queue 2 */
	granted(4, 3);
	inherits(1, 0); /* 1 keeps no task waiting any more */
	release(1);
	granted(6, 2); /* 20 before 10, both from queue 1 */
	release(6);
	granted(3, 2);
	inherits(0, 0);
	release(3);
	granted_nothing();
	assert_int_equal(rtxg_core_device_advice(world.core, 0), 2);
}

static void test_death_of_holder_and_of_waiter(void **unused)
{
	for (uint32_t task = 0; task < 7; task++)
		request(task, 10 + task);
	/* 1: 0 3 6, 2: 1 4, 3: 2 5 */
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_CLOSE, .task = 6 });
	inherits(0, 13);
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_CLOSE, .task = 0 });
	granted(3, 1);
	world_refuses(&world, ENOENT, .type = RTXG_EV_POOL_RELEASE, .task = 0);
}

static void test_inheritance_counts_inside_the_vgpu(void **unused)
{
	/*
	 * On GPU 1: holder 1 (own priority 1) and 5 (priority 30) both wait to launch in vGPU 1,
	 * ordered by priority.
	 */
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_VGPU_SET,
					      .vgpu = 1,
					      .vgpu_params = { .policy = RTXG_TASK_FP } });
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_SET,
					      .task = 5,
					      .task_params = { .priority = 30 } });
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_SET,
					      .task = 9,
					      .task_params = { .priority = 60 } });
	request(1, 1);
	granted(1, 1);
	request(2, 1);
	request(3, 1);
	world_arrive(&world, 9);
	world_gave(&world, RTXG_ACT_GRANT, 9);
	world_arrive(&world, 1);
	world_arrive(&world, 5);
	request(0, 50); /* waits behind 1 */
	inherits(1, 50);
	world.now = MS;
	for (int i = 0; i < world.count; i++)
		assert_int_not_equal(world.actions[i].type, RTXG_ACT_GRANT);
	world_released(&world, 9, MS);
	world_gave(&world, RTXG_ACT_GRANT, 1);
}

static void test_misuse_is_refused(void **unused)
{
	request(0, 10);
	world_refuses(&world, EALREADY, .type = RTXG_EV_POOL_REQUEST, .task = 0, .priority = 10);
	world_refuses(&world, EPERM, .type = RTXG_EV_POOL_RELEASE, .task = 1);
	world_refuses(&world, ENOENT, .type = RTXG_EV_POOL_REQUEST, .pool = 1, .task = 1);
	world_refuses(&world, EINVAL, .type = RTXG_EV_POOL_REQUEST, .pool = 2, .task = 1);
	world_refuses(&world, EINVAL, .type = RTXG_EV_POOL_REQUEST, .task = 1, .priority = 100);
	world_refuses(&world, EBUSY, .type = RTXG_EV_POOL_REMOVE, .pool = 0);
	world_refuses(&world, EEXIST, .type = RTXG_EV_POOL_ADD, .pool = 0, .gpu_mask = 1);
	world_refuses(&world, EINVAL, .type = RTXG_EV_POOL_ADD, .pool = 1, .gpu_mask = 0);
	world_refuses(&world, ENOENT, .type = RTXG_EV_POOL_ADD, .pool = 1, .gpu_mask = 1ull << 40);
	assert_int_equal(rtxg_core_device_advice(world.core, 1), RTXG_NONE);
	assert_int_equal(rtxg_core_device_advice(world.core, 77), RTXG_NONE);
	release(0);
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_POOL_REMOVE, .pool = 0 });
	assert_int_equal(rtxg_core_device_advice(world.core, 0), RTXG_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_r1_shortest_queue_lowest_number_among_equals,
						open_pool, close_pool),
		cmocka_unit_test_setup_teardown(test_r1_waits_are_sums_of_critical_sections,
						open_pool, close_pool),
		cmocka_unit_test_setup_teardown(test_r2_holder_inherits_the_highest_in_its_queue,
						open_pool, close_pool),
		cmocka_unit_test_setup_teardown(
			test_r3_a_free_gpu_takes_the_highest_waiting_elsewhere, open_pool,
			close_pool),
		cmocka_unit_test_setup_teardown(test_death_of_holder_and_of_waiter, open_pool,
						close_pool),
		cmocka_unit_test_setup_teardown(test_inheritance_counts_inside_the_vgpu, open_pool,
						close_pool),
		cmocka_unit_test_setup_teardown(test_misuse_is_refused, open_pool, close_pool),
	};

	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
