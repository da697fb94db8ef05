// SPDX-License-Identifier: MIT
/*
 * test_slice_life.c - core/slice with programs as people run them, on the model of slice_model.h:
 * they come, go and pause, and compute on their CPUs between kernels.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "slice_model.h"

#define US	  MODEL_US
#define MS	  MODEL_MS
#define S	  MODEL_S
#define LOG_ALONE (RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND)
#define ALL	  (LOG_ALONE | RTXG_SLICE_CAN_LEAVE | RTXG_SLICE_CAN_DEMAND)

static struct model *m;

static void start(uint32_t can)
{
	m = model_open(can, NULL, 1);
}

static void end(void)
{
	if (model_wrong(m))
		fail_msg("%s", model_wrong(m));
	model_close(m);
}

static uint32_t add(uint32_t id, struct rtxg_slice_tenant tenant, struct model_program program)
{
	model_tenant(m, id, tenant);
	program.tenant = id;
	program.bound = tenant.latency_ns;
	return model_program(m, program);
}

static const struct model_program hog = { .kernel_ns = 2 * MS, .launches = 1000000, .depth = 8 };
static const struct model_program training = {
	.kernel_ns = 300 * US, .launches = 150, .depth = 64, .cpu_ns = 12 * MS
};

static double percent_of(uint64_t ns, uint64_t of)
{
	return 100.0 * (double)ns / (double)of;
}

static uint64_t four_hogs(uint32_t can, const struct model_program *program)
{
	static const uint32_t min[] = { 600000, 200000, 100000, 100000 };
	uint64_t work;

	start(can);
	for (uint32_t i = 0; i < 4; i++)
		add(i, (struct rtxg_slice_tenant){ .min_ppm = min[i] }, *program);
	model_run(m, 6 * S);
	for (uint32_t i = 0; i < 4 && can; i++) {
		uint64_t all = 0, one = 0;

		for (uint32_t w = 20; w < 60; w++) {
			for (uint32_t k = 0; k < 4; k++)
				all += model_stats(m, k)->window[w];
			one += model_stats(m, i)->window[w];
			if (w < 29)
				continue;
			assert_true(percent_of(one, all) < min[i] / 1e4 + 1 &&
				    percent_of(one, all) > min[i] / 1e4 - 1);
			for (uint32_t k = 0; k < 4; k++)
				all -= model_stats(m, k)->window[w - 9];
			one -= model_stats(m, i)->window[w - 9];
		}
	}
	work = model_work_ns(m);
	end();
	return work;
}

/* Kernels of 20 ms show empty queues while they run. */
static void long_turns_keep_a_seconds_shares_and_do_more_than_the_drivers_slices(void **state)
{
	static const struct model_program loads[] = {
		{ .kernel_ns = 20 * MS, .launches = 1000000, .depth = 2 },
		{ .kernel_ns = 1 * MS, .launches = 1000000, .depth = 16 },
	};

	for (int i = 0; i < 2; i++) {
		uint64_t stock = four_hogs(0, &loads[i]);

		assert_true(four_hogs(LOG_ALONE, &loads[i]) > stock / 100 * 105);
		assert_true(four_hogs(ALL, &loads[i]) > stock / 100 * 105);
	}
}

static void nothing_waits_for_a_program_that_computes_on_its_cpu(void **state)
{
	start(ALL);
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 400000 }, training);
	add(1, (struct rtxg_slice_tenant){ .min_ppm = 400000 }, training);
	add(2, (struct rtxg_slice_tenant){ .min_ppm = 200000 }, hog);
	model_run(m, 10 * S);
	assert_true(percent_of(model_idle_ns(m), 10 * S) < 2);
	/* and they lose nothing by it */
	assert_true(percent_of(model_stats(m, 0)->work_ns, model_work_ns(m)) > 38);
	assert_true(percent_of(model_stats(m, 1)->work_ns, model_work_ns(m)) > 38);
	end();
}

static void a_bound_is_no_way_around_a_share(void **state)
{
	start(ALL);
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 300000, .latency_ns = 5 * MS }, hog);
	add(1, (struct rtxg_slice_tenant){ .min_ppm = 700000 }, hog);
	model_run(m, 10 * S);
	assert_true(percent_of(model_stats(m, 0)->work_ns, model_work_ns(m)) < 33);
	assert_true(percent_of(model_stats(m, 0)->work_ns, model_work_ns(m)) > 27);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			long_turns_keep_a_seconds_shares_and_do_more_than_the_drivers_slices),
		cmocka_unit_test(nothing_waits_for_a_program_that_computes_on_its_cpu),
		cmocka_unit_test(a_bound_is_no_way_around_a_share),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
