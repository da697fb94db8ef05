// SPDX-License-Identifier: MIT
/*
 * test_cpu_rank.c - priorities under rate monotonic and EDF, at the numbers where the rule changes.
 * tests/property/test_cpu.py tries them at random.
 */
#include "check.h"

#include "rtxg_cpu_rank.h"

#define JOBS 200

static struct rtxg_edf_job jobs[JOBS], *order[JOBS];

static struct rtxg_edf fresh(void)
{
	memset(jobs, 0, sizeof(jobs));
	return (struct rtxg_edf){ .jobs = order, .cap = JOBS };
}

static void test_equal_periods_share_a_priority(void **state)
{
	static const uint64_t periods[] = { 20 * MS, 5 * MS, 20 * MS, 10 * MS, 5 * MS };
	struct rtxg_rank_rm tasks[5];

	for (uint32_t i = 0; i < 5; i++)
		tasks[i].period_ns = periods[i];
	rtxg_rank_rm(tasks, 5);
	assert_int_equal(tasks[1].priority, RTXG_RANK_HIGH);
	assert_int_equal(tasks[4].priority, RTXG_RANK_HIGH);
	assert_int_equal(tasks[3].priority, RTXG_RANK_HIGH - 1);
	assert_int_equal(tasks[0].priority, RTXG_RANK_HIGH - 2);
	assert_int_equal(tasks[2].priority, RTXG_RANK_HIGH - 2);
}

static void test_more_periods_than_levels_share_the_lowest(void **state)
{
	struct rtxg_rank_rm tasks[RTXG_RANK_LEVELS + 5];

	for (uint32_t i = 0; i < RTXG_RANK_LEVELS + 5; i++)
		tasks[i].period_ns = (i + 1) * MS;
	rtxg_rank_rm(tasks, RTXG_RANK_LEVELS + 5);
	assert_int_equal(tasks[0].priority, RTXG_RANK_HIGH);
	assert_int_equal(tasks[RTXG_RANK_LEVELS - 2].priority, RTXG_RANK_LOW + 1);
	for (uint32_t i = RTXG_RANK_LEVELS - 1; i < RTXG_RANK_LEVELS + 5; i++)
		assert_int_equal(tasks[i].priority, RTXG_RANK_LOW);
}

/* A job that finds room between its neighbours moves none of them. */
static void test_a_release_moves_no_other_while_there_is_room(void **state)
{
	struct rtxg_edf edf = fresh();

	jobs[0].deadline_ns = 10;
	jobs[1].deadline_ns = 30;
	jobs[2].deadline_ns = 20;
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(rtxg_edf_insert(&edf, &jobs[i]), 0);
	assert_true(jobs[0].priority > jobs[2].priority);
	assert_true(jobs[2].priority > jobs[1].priority);
}

static void test_the_order_is_spread_where_there_is_no_room(void **state)
{
	struct rtxg_edf edf = fresh();
	bool spread = false;

	/* each is earlier than all before it: halves the room above until there is none */
	for (uint32_t i = 0; i < 20; i++) {
		jobs[i].deadline_ns = 100 - i;
		spread |= rtxg_edf_insert(&edf, &jobs[i]) > 0;
		for (uint32_t k = 0; k + 1 < edf.count; k++)
			assert_true(order[k]->priority > order[k + 1]->priority);
	}
	assert_true(spread);
	assert_in_range(order[0]->priority, RTXG_RANK_LOW, RTXG_RANK_HIGH);
	assert_in_range(order[19]->priority, RTXG_RANK_LOW, RTXG_RANK_HIGH);
}

static void test_of_more_jobs_than_levels_the_latest_share_the_lowest(void **state)
{
	struct rtxg_edf edf = fresh();

	for (uint32_t i = 0; i < JOBS; i++) {
		jobs[i].deadline_ns = i;
		assert_true(rtxg_edf_insert(&edf, &jobs[i]) >= 0);
	}
	assert_int_equal(rtxg_edf_insert(&edf, &jobs[0]), -ENOSPC);
	for (uint32_t i = 0; i < JOBS; i++)
		assert_int_equal(jobs[i].priority,
				 i < RTXG_RANK_LEVELS ? RTXG_RANK_HIGH - i : RTXG_RANK_LOW);
}

/* Tasks on one CPU and tasks of all CPUs stand in one order where they meet. */
static void test_jobs_that_share_a_cpu_stand_in_one_order(void **state)
{
	static const uint64_t first = 1, second = 2;
	struct rtxg_edf edf = fresh();

	for (uint32_t i = 0; i < 3; i++)
		jobs[i].domain =
			(struct rtxg_cpu_domain){ .bits = i ? &second : &first, .words = i < 2 };
	jobs[0].deadline_ns = 300; /* CPU 0 */
	jobs[1].deadline_ns = 100; /* CPU 1 */
	jobs[2].deadline_ns = 200; /* all of them */
	for (uint32_t i = 0; i < 3; i++)
		rtxg_edf_insert(&edf, &jobs[i]);
	assert_true(jobs[1].priority > jobs[2].priority);
	assert_true(jobs[2].priority > jobs[0].priority);
}

static void test_jobs_that_share_no_cpu_leave_each_other_alone(void **state)
{
	static const uint64_t bits[] = { 1, 2 };
	struct rtxg_edf edf = fresh();

	for (uint32_t i = 0; i < 2 * 60; i++) {
		jobs[i].deadline_ns = i;
		jobs[i].domain = (struct rtxg_cpu_domain){ .bits = &bits[i % 2], .words = 1 };
		assert_true(rtxg_edf_insert(&edf, &jobs[i]) >= 0);
	}
	/* 60 fit into the band's 80 levels, 120 would not */
	for (uint32_t i = 2; i < 2 * 60; i++)
		assert_true(jobs[i - 2].priority > jobs[i].priority);
}

static void test_removing_is_idempotent(void **state)
{
	struct rtxg_edf edf = fresh();

	rtxg_edf_remove(&edf, &jobs[0]);
	for (uint32_t i = 0; i < 3; i++)
		rtxg_edf_insert(&edf, &jobs[i]);
	rtxg_edf_remove(&edf, &jobs[1]);
	rtxg_edf_remove(&edf, &jobs[1]);
	assert_int_equal(edf.count, 2);
	assert_ptr_equal(order[0], &jobs[0]);
	assert_ptr_equal(order[1], &jobs[2]);
	assert_false(jobs[1].ready);
}

static void test_the_background_is_idle_but_for_threads_of_the_kernel(void **state)
{
	for (int kernel = 0; kernel < 2; kernel++)
		for (int deadline = 0; deadline < 2; deadline++) {
			struct rtxg_rank_task task = { .kernel = kernel, .deadline = deadline };
			uint32_t background = kernel ? RTXG_RANK_ORDINARY : RTXG_RANK_IDLE;

			assert_int_equal(rtxg_rank_class(&task),
					 deadline ? RTXG_RANK_DEADLINE : RTXG_RANK_FIFO);
			task.background = true;
			assert_int_equal(rtxg_rank_class(&task), background);
			task.budget.hard = true;
			assert_int_equal(rtxg_rank_class(&task), background);
		}
}

/* The kernel's own server has the budget of a DEADLINE task. */
static void test_a_task_without_budget_is_in_the_background_unless_it_stops(void **state)
{
	struct rtxg_rank_task task = { .budget = { .exhausted = true } };

	assert_int_equal(rtxg_rank_class(&task), RTXG_RANK_IDLE);
	task.deadline = true;
	assert_int_equal(rtxg_rank_class(&task), RTXG_RANK_DEADLINE);
	task.deadline = false;
	task.budget.hard = true;
	assert_int_equal(rtxg_rank_class(&task), RTXG_RANK_FIFO);
	task = (struct rtxg_rank_task){ .budget = { .exhausted = true }, .kernel = true };
	assert_int_equal(rtxg_rank_class(&task), RTXG_RANK_ORDINARY);
	task.budget.lent = true;
	assert_int_equal(rtxg_rank_class(&task), RTXG_RANK_FIFO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_periods_share_a_priority),
		cmocka_unit_test(test_more_periods_than_levels_share_the_lowest),
		cmocka_unit_test(test_a_release_moves_no_other_while_there_is_room),
		cmocka_unit_test(test_the_order_is_spread_where_there_is_no_room),
		cmocka_unit_test(test_of_more_jobs_than_levels_the_latest_share_the_lowest),
		cmocka_unit_test(test_jobs_that_share_a_cpu_stand_in_one_order),
		cmocka_unit_test(test_jobs_that_share_no_cpu_leave_each_other_alone),
		cmocka_unit_test(test_removing_is_idempotent),
		cmocka_unit_test(test_the_background_is_idle_but_for_threads_of_the_kernel),
		cmocka_unit_test(test_a_task_without_budget_is_in_the_background_unless_it_stops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
