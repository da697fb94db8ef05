// SPDX-License-Identifier: MIT
/*
 * test_cpu_serve.c - threads that work for others: whose priority they have, and on which CPU.
 */
#include "check.h"

#include <errno.h>

#include "rtxg/cpu.h"
#include "rtxg/irq.h"
#include "rtxg_cpu_ceiling.h"
#include "rtxg_cpu_serve.h"

static const struct rtxg_serve_rule owned = { .mode = RTXG_SERVE_OWNER, .priority = 5 };

static void test_without_an_owner_it_has_the_rules_priority(void **state)
{
	struct rtxg_serve serve = rtxg_serve(&owned, NULL, 0);

	assert_false(serve.kept);
	assert_int_equal(serve.priority, 5);
	assert_int_equal(serve.cpu, -1);
}

static void test_it_has_the_highest_priority_of_its_owners(void **state)
{
	const struct rtxg_serve_owner owners[] = { { .prio = 99 - 30, .cpu = -1 },
						   { .prio = 99 - 70, .cpu = 2 },
						   { .prio = 120, .cpu = 3 } };

	assert_int_equal(rtxg_serve(&owned, owners, 1).priority, 30);
	assert_int_equal(rtxg_serve(&owned, owners, 3).priority, 70);
	/* where it runs is the affair of the one whose work is on the device */
	assert_int_equal(rtxg_serve(&owned, owners, 3).cpu, -1);
}

static void test_an_ordinary_owner_is_below_all_that_are_real_time(void **state)
{
	assert_int_equal(rtxg_serve_priority(120), RTXG_SERVE_ORDINARY);
	assert_int_equal(rtxg_serve_priority(100), RTXG_SERVE_ORDINARY);
	assert_int_equal(rtxg_serve_priority(98), 1);
}

/* Whoever gives a priority: those who take it back come before, and after the kernel's own. */
static void test_nothing_is_given_the_priority_of_the_hosts_own_threads(void **state)
{
	assert_true(RTXG_SERVE_HOST < 99);
	for (int32_t prio = -2; prio <= 140; prio++) {
		assert_true(rtxg_serve_priority(prio) < RTXG_SERVE_HOST);
		assert_true(rtxg_ceiling_with(UINT32_MAX, prio) < RTXG_SERVE_HOST);
	}
	assert_true(RTXG_CPU_PRIORITY_MAX < RTXG_SERVE_HOST);
	assert_true(RTXG_IRQ_PRIORITY_MAX < RTXG_SERVE_HOST);
}

static void test_no_owner_gives_more_than_the_highest(void **state)
{
	assert_int_equal(rtxg_serve_priority(0), RTXG_SERVE_MAX);
	assert_int_equal(rtxg_serve_priority(1), RTXG_SERVE_MAX);
	assert_int_equal(rtxg_serve_priority(2), 97);
	assert_int_equal(rtxg_serve_priority(3), 96);
	/* DEADLINE */
	assert_int_equal(rtxg_serve_priority(-1), RTXG_SERVE_MAX);
}

static void test_it_stays_with_an_owner_that_stays(void **state)
{
	const struct rtxg_serve_owner owner = { .prio = 50, .cpu = 3 };
	struct rtxg_serve_rule rule = owned;

	assert_int_equal(rtxg_serve(&rule, &owner, 1).cpu, 3);
	rule.beside = true;
	assert_int_equal(rtxg_serve(&rule, &owner, 1).cpu, -1);
}

static void test_only_process_aware_work_runs_at_once_and_only_above_what_runs(void **state)
{
	const struct rtxg_serve_rule aware = { .mode = RTXG_SERVE_PAI, .priority = 5 };
	const struct rtxg_serve_owner owner = { .prio = 99 - 30, .cpu = 1 };

	assert_true(rtxg_serve_at_once(&aware, 99 - 30, 99 - 29));
	assert_true(rtxg_serve_at_once(&aware, 99 - 30, 120));
	assert_false(rtxg_serve_at_once(&aware, 99 - 30, 99 - 30));
	assert_false(rtxg_serve_at_once(&aware, 99 - 30, 99 - 31));
	assert_false(rtxg_serve_at_once(&owned, 99 - 30, 120));
	/* else it is as in the other mode */
	assert_int_equal(rtxg_serve(&aware, &owner, 1).priority, 30);
	assert_int_equal(rtxg_serve(&aware, &owner, 1).cpu, 1);
	assert_int_equal(rtxg_serve(&aware, NULL, 0).priority, 5);
}

static void test_other_modes_know_no_owner(void **state)
{
	const struct rtxg_serve_owner owner = { .prio = 10, .cpu = 3 };
	const struct rtxg_serve_rule fixed = { .mode = RTXG_SERVE_FIXED, .priority = 2 }, kept = {};

	assert_int_equal(rtxg_serve(&fixed, &owner, 1).priority, 2);
	assert_int_equal(rtxg_serve(&fixed, &owner, 1).cpu, -1);
	assert_true(rtxg_serve(&kept, &owner, 1).kept);
}

static void test_rules_that_are_none(void **state)
{
	const struct rtxg_serve_rule wrong[] = {
		{ .mode = RTXG_SERVE_MODES, .priority = 1 },
		{ .mode = RTXG_SERVE_OWNER },
		{ .mode = RTXG_SERVE_OWNER, .priority = RTXG_SERVE_MAX + 1 },
		{ .mode = RTXG_SERVE_FIXED },
		{ .mode = RTXG_SERVE_FIXED, .priority = 1, .beside = true },
		{ .mode = RTXG_SERVE_KEPT, .priority = 1 },
		{ .mode = RTXG_SERVE_KEPT, .beside = true },
	};
	const struct rtxg_serve_rule kept = {};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(rtxg_serve_check(&wrong[i]), -EINVAL);
	assert_int_equal(rtxg_serve_check(&owned), 0);
	assert_int_equal(rtxg_serve_check(&kept), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_an_owner_it_has_the_rules_priority),
		cmocka_unit_test(test_it_has_the_highest_priority_of_its_owners),
		cmocka_unit_test(test_an_ordinary_owner_is_below_all_that_are_real_time),
		cmocka_unit_test(test_nothing_is_given_the_priority_of_the_hosts_own_threads),
		cmocka_unit_test(test_no_owner_gives_more_than_the_highest),
		cmocka_unit_test(test_it_stays_with_an_owner_that_stays),
		cmocka_unit_test(
			test_only_process_aware_work_runs_at_once_and_only_above_what_runs),
		cmocka_unit_test(test_other_modes_know_no_owner),
		cmocka_unit_test(test_rules_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
