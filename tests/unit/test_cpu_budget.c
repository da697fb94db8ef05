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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_left_is_not_carried_over),
		cmocka_unit_test(test_an_overrun_is_carried_over),
		cmocka_unit_test(test_nothing_is_charged_unless_it_is_enforced),
		cmocka_unit_test(test_time_asleep_is_charged_down_to_the_floor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
