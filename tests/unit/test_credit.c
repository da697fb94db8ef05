// SPDX-License-Identifier: MIT
/*
 * test_credit.c - credit is a function of time: the credit computed in one step must equal the
 * credit after a tick in every period, for every share, period, debt and number of ticks.
 */
#include "check.h"

static int64_t tick(int64_t credit, uint64_t period, uint32_t min_ppm, uint32_t overrun)
{
	int64_t threshold = (int64_t)period;

	credit += (int64_t)(period * min_ppm / RTXG_PPM);
	if (credit > threshold)
		return overrun == RTXG_OVERRUN_CHARGE ? threshold : 0;
	if (credit < -threshold)
		return overrun == RTXG_OVERRUN_CHARGE ? -threshold : 0;
	return credit;
}

/* A vGPU that is charged `debt` at once, then looked at after each of many numbers of ticks. */
static void check_one(uint64_t period, uint32_t min_ppm, uint32_t overrun, uint64_t debt)
{
	static const uint32_t looks[] = { 0, 1, 2, 3, 5, 10, 33, 100, 999, 1000, 1001, 5000 };
	struct world world;
	int64_t credit;
	uint64_t ticks = 0;

	world_open(&world, 1, 1, 1, 0);
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_GPU_ADD,
					      .gpu_params = { .policy = RTXG_GPU_CREDIT,
							      .period_ns = period,
							      .overrun = overrun } });
	world_vgpu(&world, 0, 0, min_ppm);
	world_task(&world, 0, 0);
	world_arrive(&world, 0);
	world_gave(&world, RTXG_ACT_GRANT, 0);
	credit = 0;
	world.now = debt;
	for (; (ticks + 1) * period <= world.now; ticks++)
		credit = tick(credit, period, min_ppm, overrun);
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_USAGE, .used_ns = debt });
	credit -= (int64_t)debt;
	assert_int_equal(world_view(&world, 0).credit_ns, credit);

	for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
		struct rtxg_account_view view;
		uint64_t at = ticks + looks[i];
		int64_t wanted = credit;

		for (uint32_t n = 0; n < looks[i]; n++)
			wanted = tick(wanted, period, min_ppm, overrun);
		/* At the tick, and a nanosecond before the next. */
		for (uint64_t within = 0; within < period; within += period - 1) {
			uint64_t now = at * period + within;

			if (now < world.now)
				continue;
			assert_int_equal(rtxg_core_vgpu_view(world.core, 0, 0, now, &view), 0);
			if (view.credit_ns != wanted)
				fail_msg("period %llu, %u ppm, rule %u, debt %llu, %u ticks: "
					 "credit %lld, by ticks %lld",
					 (unsigned long long)period, min_ppm, overrun,
					 (unsigned long long)debt, looks[i],
					 (long long)view.credit_ns, (long long)wanted);
		}
	}
	world_close(&world);
}

static void check_all(uint32_t overrun)
{
	static const uint64_t periods[] = { 100 * US, 100 * US + 1, 30 * MS, 333333333, 10 * SEC };
	static const uint32_t shares[] = { 0,	   1,	   7,	   1000,   99999,   333333,
					   400000, 500000, 500001, 999999, RTXG_PPM };
	static const uint64_t debts[] = { 0,	  1,	   50 * US, 100 * US,
					  3 * MS, 30 * MS, 75 * MS, 12 * SEC };

	for (size_t p = 0; p < sizeof(periods) / sizeof(periods[0]); p++)
		for (size_t s = 0; s < sizeof(shares) / sizeof(shares[0]); s++)
			for (size_t d = 0; d < sizeof(debts) / sizeof(debts[0]); d++)
				check_one(periods[p], shares[s], overrun, debts[d]);
}

static void test_forgiven_overruns_are_as_by_ticks(void **unused)
{
	check_all(RTXG_OVERRUN_FORGIVE);
}

static void test_charged_overruns_are_as_by_ticks(void **unused)
{
	check_all(RTXG_OVERRUN_CHARGE);
}

static void test_years_of_ticks_take_one_step(void **unused)
{
	struct world world;

	/*
	 * 10^12 ticks one by one would outlast any patience; the sum of whole cycles of 0, c, 2c,
	 * .. is exact.
	 */
	world_open(&world, 1, 1, 1, 0);
	world_do(&world, (struct rtxg_event){ .type = RTXG_EV_GPU_ADD,
					      .gpu_params = { .policy = RTXG_GPU_CREDIT,
							      .period_ns = 100 * US } });
	/* 30 us a tick: 0 30 60 90, then 120 > 100 is 0 again: a cycle of four */
	world_vgpu(&world, 0, 0, 300000);
	world.now = 1000000000000ull * 100 * US;
	assert_int_equal(world_view(&world, 0).credit_ns, 0);
	world.now += 3 * 100 * US;
	assert_int_equal(world_view(&world, 0).credit_ns, 90 * US);
	world.now += 100 * US;
	assert_int_equal(world_view(&world, 0).credit_ns, 0);
	world_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forgiven_overruns_are_as_by_ticks),
		cmocka_unit_test(test_charged_overruns_are_as_by_ticks),
		cmocka_unit_test(test_years_of_ticks_take_one_step),
	};

	return cmocka_run_group_tests_name("credit", tests, NULL, NULL);
}
