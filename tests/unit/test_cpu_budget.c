// SPDX-License-Identifier: MIT
/*
 * test_cpu_budget.c - budgets of CPU time: used up, replenished, and overruns charged to the next
 * period.
 */
#include "check.h"

#include "rtxg_cpu_budget.h"

static void test_what_is_left_is_not_carried_over(void **state)
{
	struct rtxg_budget budget;

	rtxg_budget_start(&budget, 10 * MS, true);
	rtxg_budget_charge(&budget, 4 * MS);
	assert_int_equal(rtxg_budget_lasts(&budget, 1), 6 * MS);
	assert_int_equal(rtxg_budget_lasts(&budget, 3), 2 * MS);
	assert_false(rtxg_budget_spent(&budget));
	assert_false(rtxg_budget_replenish(&budget, 1));
	assert_int_equal(budget.left_ns, 10 * MS);
	assert_false(rtxg_budget_replenish(&budget, ~0ull));
	assert_int_equal(budget.left_ns, 10 * MS);
}

static void test_an_overrun_is_carried_over(void **state)
{
	struct rtxg_budget budget;

	rtxg_budget_start(&budget, 10 * MS, true);
	rtxg_budget_charge(&budget, 35 * MS);
	assert_int_equal(rtxg_budget_lasts(&budget, 1), 0);
	assert_true(rtxg_budget_spent(&budget));
	assert_false(rtxg_budget_spent(&budget));
	assert_int_equal(rtxg_budget_lasts(&budget, 1), UINT64_MAX);
	assert_false(rtxg_budget_replenish(&budget, 1));
	assert_false(rtxg_budget_replenish(&budget, 1));
	assert_int_equal(budget.left_ns, -5 * (int64_t)MS);
	assert_true(rtxg_budget_replenish(&budget, 1));
	assert_int_equal(budget.left_ns, 5 * MS);
	assert_false(budget.exhausted);
}

static void test_nothing_is_charged_unless_it_is_enforced(void **state)
{
	struct rtxg_budget budget;

	rtxg_budget_start(&budget, 10 * MS, false);
	rtxg_budget_charge(&budget, 35 * MS);
	assert_int_equal(budget.left_ns, 0);
	assert_false(rtxg_budget_spent(&budget));
	assert_false(rtxg_budget_replenish(&budget, 5));
	assert_int_equal(budget.left_ns, 0);
	assert_int_equal(rtxg_budget_lasts(&budget, 1), UINT64_MAX);
}

static void test_time_asleep_is_charged_down_to_the_floor(void **state)
{
	assert_int_equal(rtxg_budget_after_sleep(20 * MS, 5 * MS, MS), 15 * MS);
	assert_int_equal(rtxg_budget_after_sleep(20 * MS, 19 * MS, MS), MS);
	assert_int_equal(rtxg_budget_after_sleep(20 * MS, ~0ull, MS), MS);
	/* nothing is ever added */
	assert_int_equal(rtxg_budget_after_sleep(MS / 2, 5 * MS, MS), MS / 2);
	assert_int_equal(rtxg_budget_after_sleep(-3, 5 * MS, MS), -3);
}

static void test_a_task_without_budget_stops_or_goes_to_the_background(void **state)
{
	for (int hard = 0; hard < 2; hard++)
		for (int lent = 0; lent < 2; lent++) {
			struct rtxg_budget_use use = { .hard = hard, .lent = lent };

			assert_int_equal(rtxg_budget_state(&use), RTXG_BUDGET_RUNS);
			use.exhausted = true;
			assert_int_equal(rtxg_budget_state(&use), hard	 ? RTXG_BUDGET_STOPS
								  : lent ? RTXG_BUDGET_RUNS
									 : RTXG_BUDGET_BACKGROUND);
		}
}

/* Until a task that stops has stopped, its time counts: it is in the way of the others. */
static void test_background_time_and_the_time_of_others_is_not_charged(void **state)
{
	struct rtxg_budget_use use = { 0 };

	assert_true(rtxg_budget_counts(&use));
	use.exhausted = true;
	assert_false(rtxg_budget_counts(&use));
	use.hard = true;
	assert_true(rtxg_budget_counts(&use));
	for (int all = 0; all < 4; all++) {
		use = (struct rtxg_budget_use){ .exhausted = all & 1,
						.hard = all & 2,
						.lent = true };
		assert_false(rtxg_budget_counts(&use));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_left_is_not_carried_over),
		cmocka_unit_test(test_an_overrun_is_carried_over),
		cmocka_unit_test(test_nothing_is_charged_unless_it_is_enforced),
		cmocka_unit_test(test_time_asleep_is_charged_down_to_the_floor),
		cmocka_unit_test(test_a_task_without_budget_stops_or_goes_to_the_background),
		cmocka_unit_test(test_background_time_and_the_time_of_others_is_not_charged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
