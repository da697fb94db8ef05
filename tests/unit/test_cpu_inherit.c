// SPDX-License-Identifier: MIT
/*
 * test_cpu_inherit.c - threads that keep others waiting for a GPU: what a thread passes on, to what
 * one is raised, and when it has its own priority again.
 */
#include "check.h"

#include "rtxg_cpu_inherit.h"

#define MAX_PRIORITY RTXG_SERVE_MAX
#define FIXED(n)     ((struct rtxg_inherit_setting){ RTXG_INHERIT_FIXED, n, false, false })
#define RAISED(n)    ((struct rtxg_inherit_setting){ RTXG_INHERIT_FIXED, n, true, false })
#define GOVERNED(n)  ((struct rtxg_inherit_setting){ RTXG_INHERIT_FIXED, n, true, true })
#define ORDINARY     ((struct rtxg_inherit_setting){ .policy = RTXG_INHERIT_ORDINARY })
#define DEADLINE     ((struct rtxg_inherit_setting){ RTXG_INHERIT_DEADLINE, 0, true, false })

/* A thread as a kernel would have it, and what the core knows of it. */
struct model {
	struct rtxg_inherit_thread state;
	struct rtxg_inherit_setting now;
};

static void check(const struct model *model, struct rtxg_inherit_setting wanted)
{
	assert_int_equal(model->now.policy, wanted.policy);
	assert_int_equal(model->now.priority, wanted.priority);
	assert_int_equal(model->now.reset, wanted.reset);
}

/* What a host does. False: nothing was to be done. */
static bool turn(struct model *model, uint32_t inherits)
{
	struct rtxg_inherit_setting wanted;

	if (!rtxg_inherit_look(&model->state, inherits, &model->now, &wanted))
		return false;
	assert_int_equal(wanted.policy, model->now.policy);
	model->now = wanted;
	rtxg_inherit_set(&model->state, &wanted);
	return true;
}

static uint32_t passes(const struct model *model)
{
	return rtxg_inherit_passes(&model->state, &model->now);
}

static void test_a_thread_passes_on_its_own_priority(void **state)
{
	struct model model = { .now = FIXED(30) };

	assert_int_equal(passes(&model), 30);
	assert_true(turn(&model, 60));
	assert_int_equal(passes(&model), 30);
	/* what it set itself to is its own, up to what it had before */
	model.now.priority = 20;
	assert_int_equal(passes(&model), 20);
	model.now.priority = 50;
	assert_int_equal(passes(&model), 30);
	model.now = ORDINARY;
	assert_int_equal(passes(&model), 0);
}

static void test_no_more_is_passed_on_or_inherited_than_the_highest(void **state)
{
	struct model model = { .now = FIXED(99) };

	assert_int_equal(passes(&model), MAX_PRIORITY);
	assert_false(turn(&model, UINT32_MAX));
	model.now = FIXED(98);
	assert_int_equal(passes(&model), MAX_PRIORITY);
	model.now = DEADLINE;
	assert_int_equal(passes(&model), MAX_PRIORITY);
	model = (struct model){ .now = FIXED(10) };
	assert_true(turn(&model, UINT32_MAX));
	check(&model, RAISED(MAX_PRIORITY));
}

/* A task's priority gives to the holder what it gives to a kernel thread that works for it. */
static void test_inheritance_and_ceilings_have_one_rule(void **state)
{
	for (uint32_t priority = 1; priority <= 99; priority++) {
		struct model model = { .now = FIXED(priority) };

		assert_int_equal(passes(&model), rtxg_ceiling_with(0, 99 - (int32_t)priority));
	}
	assert_int_equal(passes(&(struct model){ .now = DEADLINE }), rtxg_ceiling_with(0, -1));
	assert_int_equal(passes(&(struct model){ .now = ORDINARY }), rtxg_ceiling_with(0, 120));
}

static void test_a_thread_is_raised_and_set_back(void **state)
{
	for (int reset = 0; reset < 2; reset++) {
		struct model model = { .now = FIXED(10) };

		model.now.reset = reset;
		assert_false(turn(&model, 0));
		assert_false(turn(&model, 10));
		assert_true(turn(&model, 30));
		check(&model, RAISED(30));
		assert_false(turn(&model, 30));
		assert_true(turn(&model, 40));
		check(&model, RAISED(40));
		assert_true(turn(&model, 20));
		check(&model, RAISED(20));
		assert_true(turn(&model, 0));
		assert_int_equal(model.now.priority, 10);
		assert_int_equal(model.now.reset, reset);
		assert_false(turn(&model, 0));
		assert_int_equal(model.state.raised, 0);
	}
}

static void test_only_a_thread_of_a_fixed_priority_is_raised(void **state)
{
	const struct rtxg_inherit_setting others[] = { ORDINARY,
						       DEADLINE,
						       GOVERNED(10),
						       { RTXG_INHERIT_POLICIES, 0, false, false },
						       { UINT32_MAX, 0, false, false } };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct model model = { .now = others[i] };

		assert_false(turn(&model, 60));
		check(&model, others[i]);
		assert_int_equal(model.state.raised, 0);
	}
}

/* The kernel lets a raised thread set any priority up to the one that it inherits. */
static void test_a_raised_thread_keeps_no_priority_above_its_own(void **state)
{
	static const uint32_t sets[] = { 59, 11, 10, 4 }, gets[] = { 10, 10, 10, 4 };

	for (size_t i = 0; i < 4; i++) {
		struct model model = { .now = FIXED(10) };

		turn(&model, 60);
		model.now.priority = sets[i];
		assert_true(turn(&model, 60));
		check(&model, RAISED(60));
		turn(&model, 0);
		check(&model, FIXED(gets[i]));
	}
}

/* Even where there is nothing to set, it is known that it is not raised any more. */
static void test_a_thread_that_lowered_itself_is_not_raised(void **state)
{
	struct model model = { .now = FIXED(10) };

	turn(&model, 60);
	model.now = FIXED(10);
	assert_false(turn(&model, 0));
	assert_int_equal(model.state.raised, 0);
	/* given by another since: it is not ours */
	model.now = FIXED(80);
	assert_false(turn(&model, 0));
	check(&model, FIXED(80));
}

/* What others gave it by a right that inheritance does not give. */
static void test_what_a_raised_thread_became_by_another_right_stays(void **state)
{
	const struct rtxg_inherit_setting became[] = { DEADLINE, GOVERNED(5), GOVERNED(90) };

	for (size_t i = 0; i < sizeof(became) / sizeof(became[0]); i++)
		for (uint32_t inherits = 0; inherits <= 60; inherits += 60) {
			struct model model = { .now = FIXED(10) };

			turn(&model, 60);
			model.now = became[i];
			assert_false(turn(&model, inherits));
			assert_int_equal(model.state.raised, 0);
			model.now = FIXED(80);
			assert_false(turn(&model, 0));
			check(&model, FIXED(80));
		}
}

static void test_a_raised_thread_that_became_ordinary_has_its_flag_back(void **state)
{
	struct model model = { .now = FIXED(10) };

	turn(&model, 60);
	model.now.policy = RTXG_INHERIT_ORDINARY;
	model.now.priority = 0;
	assert_true(turn(&model, 60));
	check(&model, ORDINARY);
	assert_int_equal(model.state.raised, 0);
}

static void test_what_a_governed_thread_passes_on_is_what_its_policy_gave_it(void **state)
{
	struct model model = { .now = FIXED(10) };

	turn(&model, 60);
	model.now = GOVERNED(40);
	assert_int_equal(passes(&model), 40);
}

static void test_what_could_not_be_set_is_asked_for_again(void **state)
{
	struct rtxg_inherit_thread thread = { 0 };
	struct rtxg_inherit_setting now = FIXED(10), wanted;

	assert_true(rtxg_inherit_look(&thread, 30, &now, &wanted));
	assert_int_equal(thread.raised, 0);
	assert_true(rtxg_inherit_look(&thread, 30, &now, &wanted));
	rtxg_inherit_set(&thread, &wanted);
	now = wanted;
	/* It cannot be set back: it is still ours. */
	assert_true(rtxg_inherit_look(&thread, 0, &now, &wanted));
	assert_true(rtxg_inherit_look(&thread, 0, &now, &wanted));
	assert_int_equal(wanted.priority, 10);
	assert_int_equal(thread.raised, 30);
}

/* Wherever a host is killed: before it raised the thread, after it, or after it set it back. */
static void test_what_a_killed_host_left_is_found(void **state)
{
	for (int reset = 0; reset < 2; reset++) {
		struct model model = { .now = FIXED(10) };
		struct rtxg_inherit_setting wanted, before;
		struct rtxg_inherit_thread noted;

		model.now.reset = reset;
		assert_true(rtxg_inherit_look(&model.state, 60, &model.now, &wanted));
		noted = model.state;
		noted.raised = wanted.priority;
		assert_false(rtxg_inherit_left(&noted, &model.now, &before));
		assert_true(rtxg_inherit_left(&noted, &wanted, &before));
		assert_int_equal(before.priority, 10);
		assert_int_equal(before.reset, reset);
		assert_false(rtxg_inherit_left(&noted, &before, &before));
		/* what it became since */
		assert_false(rtxg_inherit_left(&noted, &DEADLINE, &before));
	}
}

/* The first thread of its process is what the raised one has become, or still another one. */
static void test_a_raised_thread_that_executed_a_program_is_found(void **state)
{
	static const struct {
		struct rtxg_inherit_setting now;
		uint32_t first, gets; /* 0: it is another one */
	} cases[] = {
		{ RAISED(60), 0, 10 },	{ RAISED(60), 30, 10 }, { RAISED(59), 0, 10 },
		{ RAISED(31), 30, 10 }, { RAISED(4), 0, 4 },	{ RAISED(60), 60, 0 },
		{ RAISED(60), 80, 0 },	{ RAISED(30), 30, 0 },	{ RAISED(61), 0, 0 },
		{ FIXED(60), 0, 0 },	{ FIXED(10), 0, 0 },	{ ORDINARY, 0, 0 },
		{ DEADLINE, 0, 0 },	{ GOVERNED(60), 0, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct model model = { .now = FIXED(10) };
		struct rtxg_inherit_setting wanted;

		turn(&model, 60);
		assert_int_equal(
			rtxg_inherit_executed(&model.state, cases[i].first, &cases[i].now, &wanted),
			cases[i].gets != 0);
		if (!cases[i].gets)
			continue;
		model.now = wanted;
		check(&model, FIXED(cases[i].gets));
	}
}

/* Where none was raised, no thread is taken for it. */
static void test_no_thread_that_executed_a_program_is_found_without_one(void **state)
{
	const struct rtxg_inherit_thread thread = { .own = 10 };
	struct rtxg_inherit_setting wanted;

	for (uint32_t priority = 1; priority <= 99; priority++)
		assert_false(rtxg_inherit_executed(&thread, 0, &RAISED(priority), &wanted));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_thread_passes_on_its_own_priority),
		cmocka_unit_test(test_no_more_is_passed_on_or_inherited_than_the_highest),
		cmocka_unit_test(test_inheritance_and_ceilings_have_one_rule),
		cmocka_unit_test(test_a_thread_is_raised_and_set_back),
		cmocka_unit_test(test_only_a_thread_of_a_fixed_priority_is_raised),
		cmocka_unit_test(test_a_raised_thread_keeps_no_priority_above_its_own),
		cmocka_unit_test(test_a_thread_that_lowered_itself_is_not_raised),
		cmocka_unit_test(test_what_a_raised_thread_became_by_another_right_stays),
		cmocka_unit_test(test_a_raised_thread_that_became_ordinary_has_its_flag_back),
		cmocka_unit_test(test_what_a_governed_thread_passes_on_is_what_its_policy_gave_it),
		cmocka_unit_test(test_what_could_not_be_set_is_asked_for_again),
		cmocka_unit_test(test_what_a_killed_host_left_is_found),
		cmocka_unit_test(test_a_raised_thread_that_executed_a_program_is_found),
		cmocka_unit_test(test_no_thread_that_executed_a_program_is_found_without_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
