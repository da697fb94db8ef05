// SPDX-License-Identifier: MIT
/*
 * test_task_priority.c - which priority a task has in its vGPU, and which it may name: the rule
 * that every host asks.
 */
#include "check.h"

#define CONFIGURED 20

static void test_a_task_has_what_it_asks_for_or_what_is_configured(void **unused)
{
	assert_int_equal(rtxg_task_priority(CONFIGURED, 7), 7);
	assert_int_equal(rtxg_task_priority(CONFIGURED, 50), 50);
	assert_int_equal(rtxg_task_priority(CONFIGURED, 0), CONFIGURED);
	assert_int_equal(rtxg_task_priority(0, 0), RTXG_PRIORITY_MIN);
}

/* Neither "no limit" nor "none at all": a vGPU without one has that of its tasks. */
static void test_none_configured_is_the_lowest(void **unused)
{
	for (uint32_t asked = 1; asked <= RTXG_PRIORITY_MAX; asked++) {
		assert_int_equal(rtxg_task_priority_allowed(0, asked, false),
				 rtxg_task_priority_allowed(RTXG_PRIORITY_MIN, asked, false));
		assert_int_equal(rtxg_task_priority_limit(0, asked), asked);
		assert_int_equal(rtxg_task_priority_moved(0, asked, false), RTXG_PRIORITY_MIN);
	}
	assert_int_equal(rtxg_task_priority_limit(0, 0), RTXG_PRIORITY_MIN);
	assert_true(rtxg_task_priority_allowed(0, 0, false));
	assert_false(rtxg_task_priority_allowed(0, UINT32_MAX, false));
}

static void test_only_who_may_raise_names_a_higher_one(void **unused)
{
	assert_true(rtxg_task_priority_allowed(CONFIGURED, 1, false));
	assert_true(rtxg_task_priority_allowed(CONFIGURED, CONFIGURED, false));
	assert_false(rtxg_task_priority_allowed(CONFIGURED, CONFIGURED + 1, false));
	assert_true(rtxg_task_priority_allowed(CONFIGURED, CONFIGURED + 1, true));
}

static void test_a_task_keeps_a_higher_one_that_it_was_given(void **unused)
{
	assert_int_equal(rtxg_task_priority_limit(CONFIGURED, 5), CONFIGURED);
	assert_int_equal(rtxg_task_priority_limit(CONFIGURED, 50), 50);
}

/* With what a task has after a move it could be opened there. */
static void test_a_move_takes_along_what_an_open_would_have(void **unused)
{
	for (uint32_t limit = 0; limit <= RTXG_PRIORITY_MAX; limit++)
		for (uint32_t has = 1; has <= RTXG_PRIORITY_MAX; has++) {
			uint32_t moved = rtxg_task_priority_moved(limit, has, false);

			assert_true(rtxg_task_priority_allowed(limit, moved, false));
			assert_int_equal(moved == has,
					 rtxg_task_priority_allowed(limit, has, false));
			assert_int_equal(rtxg_task_priority_moved(limit, has, true), has);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_task_has_what_it_asks_for_or_what_is_configured),
		cmocka_unit_test(test_none_configured_is_the_lowest),
		cmocka_unit_test(test_only_who_may_raise_names_a_higher_one),
		cmocka_unit_test(test_a_task_keeps_a_higher_one_that_it_was_given),
		cmocka_unit_test(test_a_move_takes_along_what_an_open_would_have),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
