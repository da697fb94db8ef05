// SPDX-License-Identifier: MIT
/*
 * test_cpu_place.c - the CPU that a task is given: the least loaded, or the one on which its
 * deadlines are safe.
 */
#include "check.h"

#include "rtxg_cpu_place.h"

static const uint64_t four = 0xf, even = 0x5;

static struct rtxg_cpu_domain cpus(const uint64_t *bits)
{
	return (struct rtxg_cpu_domain){ .bits = bits, .words = 1 };
}

static struct rtxg_admit_task on(int32_t cpu, uint64_t cost)
{
	return (struct rtxg_admit_task){ .policy = RTXG_ADMIT_RM,
					 .cpu = cpu,
					 .cost_ns = cost,
					 .deadline_ns = 100 * MS,
					 .period_ns = 100 * MS };
}

static void test_worst_fit_is_the_least_loaded_of_those_allowed(void **state)
{
	struct rtxg_admit_task tasks[] = { on(0, 30 * MS), on(1, 10 * MS), on(2, 20 * MS),
					   on(3, 10 * MS) };
	struct rtxg_cpu_domain all = cpus(&four), some = cpus(&even);

	assert_int_equal(rtxg_place_worst_fit(tasks, 0, &all, -1), 0);
	assert_int_equal(rtxg_place_worst_fit(tasks, 4, &all, -1), 1);
	assert_int_equal(rtxg_place_worst_fit(tasks, 4, &all, 1), 3);
	assert_int_equal(rtxg_place_worst_fit(tasks, 4, &some, -1), 2);
	assert_int_equal(rtxg_place_worst_fit(tasks, 4, &some, 2), 0);
}

static void test_no_cpu_is_allowed(void **state)
{
	static const uint64_t none;
	struct rtxg_admit_task task = on(0, 10 * MS);
	struct rtxg_cpu_domain nowhere = cpus(&none);
	struct rtxg_admit_verdict verdict;

	assert_int_equal(rtxg_place_worst_fit(&task, 0, &nowhere, -1), -1);
	assert_int_equal(rtxg_place_admitted(&task, 1, &nowhere, 4, 1000000, &verdict), -EINVAL);
}

/* Tasks of unknown cost spread over the CPUs all the same. */
static void test_a_task_of_unknown_cost_counts_a_little(void **state)
{
	struct rtxg_admit_task tasks[] = { on(0, 0), on(1, 0), on(2, 0) };
	struct rtxg_cpu_domain all = cpus(&four);

	assert_int_equal(rtxg_place_worst_fit(tasks, 3, &all, -1), 3);
}

/* A cluster's task counts on its CPUs for its part. */
static void test_a_cluster_is_avoided(void **state)
{
	struct rtxg_admit_task tasks[] = { on(RTXG_ADMIT_GLOBAL, 60 * MS), on(1, 20 * MS),
					   on(3, 40 * MS) };
	struct rtxg_cpu_domain all = cpus(&four);

	tasks[0].cpus = 2;
	tasks[0].domain = cpus(&even);
	assert_int_equal(rtxg_place_worst_fit(tasks, 3, &all, -1), 1);
}

/* The least loaded CPU cannot take it, as its deadline is short there; another can. */
static void test_the_search_goes_on_where_worst_fit_is_refused(void **state)
{
	static const uint64_t two = 3;
	struct rtxg_admit_task tasks[] = { on(RTXG_ADMIT_GLOBAL, 30 * MS), on(0, 20 * MS),
					   on(1, 30 * MS) };
	struct rtxg_cpu_domain all = cpus(&two);
	struct rtxg_admit_verdict verdict;

	/* the one on CPU 0 has no time to spare at any moment, the one on CPU 1 has */
	tasks[1].policy = tasks[2].policy = RTXG_ADMIT_FP;
	tasks[1].priority = tasks[2].priority = 95;
	tasks[1].period_ns = tasks[1].deadline_ns = 1000 * MS;
	tasks[1].cost_ns = 200 * MS;
	assert_int_equal(rtxg_place_worst_fit(tasks + 1, 2, &all, -1), 0);
	assert_int_equal(rtxg_place_admitted(tasks, 3, &all, 2, 1000000, &verdict), 0);
	assert_int_equal(tasks[0].cpu, 1);
	assert_int_equal(verdict.test, RTXG_ADMIT_OK);

	/* and where none can, the worst fit's numbers are told */
	tasks[0].cost_ns = 80 * MS;
	assert_int_equal(rtxg_place_admitted(tasks, 3, &all, 2, 1000000, &verdict), -ENOSPC);
	assert_int_equal(verdict.test, RTXG_ADMIT_RESPONSE);
	assert_int_equal(verdict.cpu, 0);
	assert_int_equal(tasks[0].cpu, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_worst_fit_is_the_least_loaded_of_those_allowed),
		cmocka_unit_test(test_no_cpu_is_allowed),
		cmocka_unit_test(test_a_task_of_unknown_cost_counts_a_little),
		cmocka_unit_test(test_a_cluster_is_avoided),
		cmocka_unit_test(test_the_search_goes_on_where_worst_fit_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
