// SPDX-License-Identifier: MIT
/*
 * test_cpu_ceiling.c - kernel threads that may work for any of several tasks: how high they are
 * raised, and when they have their own priority again.
 */
#include "check.h"

#include "rtxg_cpu_ceiling.h"

#define MAX_PRIORITY RTXG_SERVE_MAX
#define FIFO(n)	     ((struct rtxg_ceiling_setting){ RTXG_CEILING_FIFO, n })
#define RR(n)	     ((struct rtxg_ceiling_setting){ RTXG_CEILING_RR, n })
#define ORDINARY     ((struct rtxg_ceiling_setting){ RTXG_CEILING_ORDINARY, 0 })
#define OTHER	     ((struct rtxg_ceiling_setting){ RTXG_CEILING_OTHER, 0 })

/* A thread as a kernel would have it, and what the core knows of it. */
struct model {
	struct rtxg_ceiling_thread state;
	struct rtxg_ceiling_setting now;
};

static void check(const struct model *model, struct rtxg_ceiling_setting wanted)
{
	assert_int_equal(model->now.policy, wanted.policy);
	assert_int_equal(model->now.priority, wanted.priority);
}

/* What a host does. False: nothing was to be done. */
static bool turn(struct model *model, uint32_t ceiling)
{
	struct rtxg_ceiling_setting wanted;

	if (!rtxg_ceiling_look(&model->state, ceiling, &model->now, &wanted))
		return false;
	model->now = wanted;
	rtxg_ceiling_set(&model->state, &wanted);
	return true;
}

static void test_the_ceiling_is_the_highest_of_the_real_time_tasks(void **state)
{
	assert_int_equal(rtxg_ceiling_with(0, 120), 0);
	assert_int_equal(rtxg_ceiling_with(0, 99), 0);
	assert_int_equal(rtxg_ceiling_with(0, 98), 1);
	assert_int_equal(rtxg_ceiling_with(30, 99 - 20), 30);
	assert_int_equal(rtxg_ceiling_with(30, 99 - 40), 40);
	assert_int_equal(rtxg_ceiling_with(30, 120), 30);
	assert_int_equal(rtxg_ceiling_join(30, 20), 30);
	assert_int_equal(rtxg_ceiling_join(20, 30), 30);
}

static void test_a_task_gives_what_it_gives_to_a_thread_that_serves_it(void **state)
{
	for (int32_t prio = -1; prio < 99; prio++)
		assert_int_equal(rtxg_ceiling_with(0, prio), rtxg_serve_priority(prio));
}

static void test_no_ceiling_is_above_the_highest_whatever_is_given(void **state)
{
	static const int32_t prios[] = { INT32_MIN, -100, -1, 0, 1, 2 };
	struct model model = { .now = ORDINARY };

	for (size_t i = 0; i < sizeof(prios) / sizeof(prios[0]); i++)
		assert_int_equal(rtxg_ceiling_with(0, prios[i]), MAX_PRIORITY);
	assert_int_equal(rtxg_ceiling_with(UINT32_MAX, 120), MAX_PRIORITY);
	assert_int_equal(rtxg_ceiling_with(0, INT32_MAX), 0);
	assert_int_equal(rtxg_ceiling_join(98, 0), MAX_PRIORITY);
	assert_int_equal(rtxg_ceiling_join(0, UINT32_MAX), MAX_PRIORITY);
	assert_true(turn(&model, UINT32_MAX));
	check(&model, FIFO(MAX_PRIORITY));
}

static void test_an_ordinary_thread_is_raised_and_set_back(void **state)
{
	struct model model = { .now = ORDINARY };

	assert_false(turn(&model, 0));
	assert_true(turn(&model, 30));
	check(&model, FIFO(30));
	assert_false(turn(&model, 30));
	assert_true(turn(&model, 40));
	check(&model, FIFO(40));
	assert_true(turn(&model, 20));
	check(&model, FIFO(20));
	assert_true(turn(&model, 0));
	check(&model, ORDINARY);
	assert_false(turn(&model, 0));
}

static void test_a_real_time_thread_is_never_below_its_own(void **state)
{
	struct model model = { .now = RR(50) };

	assert_false(turn(&model, 20));
	assert_false(turn(&model, 50));
	assert_true(turn(&model, 51));
	check(&model, RR(51));
	assert_true(turn(&model, 20));
	check(&model, RR(50));
	model = (struct model){ .now = FIFO(99) };
	assert_false(turn(&model, MAX_PRIORITY));
	assert_false(turn(&model, UINT32_MAX));
	assert_false(turn(&model, 0));
}

static void test_what_another_has_set_is_its_own(void **state)
{
	const struct rtxg_ceiling_setting others[] = { FIFO(40), FIFO(10), RR(30), ORDINARY };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct model model = { .now = ORDINARY };

		assert_true(turn(&model, 30));
		model.now = others[i];
		turn(&model, 30);
		assert_true(model.now.priority >= 30);
		turn(&model, 0);
		check(&model, others[i]);
	}
}

static void test_a_thread_of_another_policy_is_left_alone(void **state)
{
	const struct rtxg_ceiling_setting odd[] = {
		OTHER, FIFO(0), RR(0), { RTXG_CEILING_POLICIES, 50 }, { UINT32_MAX, UINT32_MAX },
	};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		struct model model = { .now = odd[i] };

		assert_false(turn(&model, 30));
		/* nor where it became one while it was raised */
		model = (struct model){ .now = ORDINARY };
		assert_true(turn(&model, 30));
		model.now = odd[i];
		assert_false(turn(&model, 40));
		assert_false(turn(&model, 0));
		assert_int_equal(model.state.raised.priority, 0);
	}
}

static void test_what_could_not_be_set_is_asked_for_again(void **state)
{
	struct rtxg_ceiling_thread thread = { 0 };
	struct rtxg_ceiling_setting now = ORDINARY, wanted;

	assert_true(rtxg_ceiling_look(&thread, 30, &now, &wanted));
	assert_true(rtxg_ceiling_look(&thread, 30, &now, &wanted));
	rtxg_ceiling_set(&thread, &wanted);
	now = wanted;
	/* It cannot be set back: it is still ours. */
	assert_true(rtxg_ceiling_look(&thread, 0, &now, &wanted));
	assert_true(rtxg_ceiling_look(&thread, 0, &now, &wanted));
	assert_int_equal(wanted.policy, RTXG_CEILING_ORDINARY);
	assert_false(rtxg_ceiling_look(&thread, 30, &now, &wanted));
}

/* Wherever a host is killed, and with whatever it was about to do. */
static void test_what_a_killed_host_left_is_found(void **state)
{
	static const uint32_t ceilings[] = { 0, 20, 30, 97 };
	const struct rtxg_ceiling_setting owns[] = { ORDINARY, FIFO(10), RR(25) };

	for (size_t own = 0; own < 3; own++)
		for (size_t from = 0; from < 4; from++)
			for (size_t to = 0; to < 4; to++) {
				struct model model = { .now = owns[own] };
				struct rtxg_ceiling_setting wanted;
				uint32_t noted;

				turn(&model, ceilings[from]);
				if (!rtxg_ceiling_look(&model.state, ceilings[to], &model.now,
						       &wanted))
					continue;
				noted = rtxg_ceiling_noted(&model.state, &wanted);
				assert_int_equal(
					rtxg_ceiling_left(owns[own].priority, noted, &model.now),
					model.now.priority > owns[own].priority);
				assert_int_equal(
					rtxg_ceiling_left(owns[own].priority, noted, &wanted),
					wanted.priority > owns[own].priority);
			}
}

static void test_what_another_has_set_stays_when_the_host_is_killed(void **state)
{
	assert_false(rtxg_ceiling_left(0, 30, &FIFO(40)));
	assert_false(rtxg_ceiling_left(50, 60, &FIFO(70)));
	assert_false(rtxg_ceiling_left(50, 60, &FIFO(40)));
	assert_false(rtxg_ceiling_left(50, 60, &FIFO(50)));
	assert_false(rtxg_ceiling_left(0, 30, &ORDINARY));
	assert_false(rtxg_ceiling_left(0, 30, &OTHER));
	assert_true(rtxg_ceiling_left(50, 60, &RR(60)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_ceiling_is_the_highest_of_the_real_time_tasks),
		cmocka_unit_test(test_a_task_gives_what_it_gives_to_a_thread_that_serves_it),
		cmocka_unit_test(test_no_ceiling_is_above_the_highest_whatever_is_given),
		cmocka_unit_test(test_an_ordinary_thread_is_raised_and_set_back),
		cmocka_unit_test(test_a_real_time_thread_is_never_below_its_own),
		cmocka_unit_test(test_what_another_has_set_is_its_own),
		cmocka_unit_test(test_a_thread_of_another_policy_is_left_alone),
		cmocka_unit_test(test_what_could_not_be_set_is_asked_for_again),
		cmocka_unit_test(test_what_a_killed_host_left_is_found),
		cmocka_unit_test(test_what_another_has_set_stays_when_the_host_is_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
