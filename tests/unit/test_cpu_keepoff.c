// SPDX-License-Identifier: MIT
/*
 * test_cpu_keepoff.c - interrupts of devices off the CPUs of critical tasks: where they are sent,
 * and when they are sent where they were before.
 */
#include "check.h"

#include "rtxg_cpu_keepoff.h"

#define NONE	((struct rtxg_keepoff_cpus){ { 0 } })
#define CPUS(n) ((struct rtxg_keepoff_cpus){ { n } })

/* An interrupt as a kernel would have it, and what the core knows of it. */
struct model {
	struct rtxg_keepoff_interrupt state;
	struct rtxg_keepoff_cpus now;
};

static const struct rtxg_keepoff_rule calm = {
	.off = { { 0xf0 } },
	.online = { { 0xff } },
};
static const struct rtxg_keepoff_rule critical = {
	.off = { { 0xf0 } },
	.online = { { 0xff } },
	.ceiling = 1,
};

static void check(const struct model *model, struct rtxg_keepoff_cpus wanted)
{
	assert_memory_equal(&model->now, &wanted, sizeof(wanted));
}

/* What a host does. False: nothing was to be done. */
static bool turn(struct model *model, const struct rtxg_keepoff_rule *rule)
{
	struct rtxg_keepoff_cpus wanted;

	if (!rtxg_keepoff_look(&model->state, rule, &model->now, &wanted))
		return false;
	model->now = wanted;
	rtxg_keepoff_set(&model->state, &wanted);
	return true;
}

static void test_moved_while_a_critical_task_is_there(void **state)
{
	struct model model = { .now = CPUS(0xff) };

	assert_false(turn(&model, &calm));
	assert_true(turn(&model, &critical));
	check(&model, CPUS(0x0f));
	assert_false(turn(&model, &critical));
	assert_true(turn(&model, &calm));
	check(&model, CPUS(0xff));
	assert_false(turn(&model, &calm));
	assert_int_equal(model.state.others, 0);
}

static void test_it_stays_on_what_it_has_of_the_other_cpus(void **state)
{
	struct model model = { .now = CPUS(0x18) };

	assert_true(turn(&model, &critical));
	check(&model, CPUS(0x08));
	assert_true(turn(&model, &calm));
	check(&model, CPUS(0x18));
	model = (struct model){ .now = CPUS(0x05) };
	assert_false(turn(&model, &critical));
	check(&model, CPUS(0x05));
}

static void test_one_that_has_none_of_them_may_use_them_all(void **state)
{
	struct model model = { .now = CPUS(0x20) };

	assert_true(turn(&model, &critical));
	check(&model, CPUS(0x0f));
	assert_true(turn(&model, &calm));
	check(&model, CPUS(0x20));
}

static void test_cpus_that_are_not_online_do_not_count(void **state)
{
	struct rtxg_keepoff_rule rule = critical;
	struct model model = { .now = CPUS(0x18) };

	rule.online = CPUS(0xf7);
	assert_true(turn(&model, &rule));
	check(&model, CPUS(0x07));
	assert_true(turn(&model, &calm));
	check(&model, CPUS(0x18));
}

static void test_it_stays_where_no_other_cpu_is_online(void **state)
{
	struct rtxg_keepoff_rule rule = critical;
	struct model model = { .now = CPUS(0xf0) };

	rule.online = CPUS(0xf0);
	assert_false(turn(&model, &rule));
	rule.off = rule.online = CPUS(0xff);
	assert_false(turn(&model, &rule));
	rule.off = NONE;
	assert_false(turn(&model, &rule));
	check(&model, CPUS(0xf0));
}

static void test_the_kernels_way_out_of_a_cpu_that_goes_is_no_setting(void **state)
{
	struct rtxg_keepoff_rule rule = critical;
	struct model model = { .now = CPUS(0x11) };

	assert_true(turn(&model, &rule));
	check(&model, CPUS(0x01));
	/* the kernel sends it to all that are online */
	rule.online = model.now = CPUS(0xfe);
	assert_true(turn(&model, &rule));
	check(&model, CPUS(0x0e));
	assert_int_equal(model.state.others, 0);
	assert_true(turn(&model, &calm));
	check(&model, CPUS(0x11));
}

static void test_what_another_has_set_is_its_own(void **state)
{
	struct model model = { .now = CPUS(0xff) };

	assert_true(turn(&model, &critical));
	model.now = CPUS(0x02);
	assert_false(turn(&model, &critical));
	assert_int_equal(model.state.others, 1);
	assert_false(turn(&model, &calm));
	check(&model, CPUS(0x02));

	assert_false(turn(&model, &critical));
	model.now = CPUS(0x40);
	assert_true(turn(&model, &critical));
	check(&model, CPUS(0x0f));
	/* it was not moved then */
	assert_int_equal(model.state.others, 1);
	model.now = CPUS(0x80);
	assert_true(turn(&model, &critical));
	check(&model, CPUS(0x0f));
	assert_int_equal(model.state.others, 2);
	assert_true(turn(&model, &calm));
	check(&model, CPUS(0x80));
}

static void test_what_could_not_be_set_is_asked_for_again(void **state)
{
	struct model model = { .now = CPUS(0xff) };
	struct rtxg_keepoff_cpus wanted;

	for (int i = 0; i < 3; i++) {
		assert_true(rtxg_keepoff_look(&model.state, &critical, &model.now, &wanted));
		assert_true(rtxg_keepoff_same(&wanted, &CPUS(0x0f)));
		assert_true(rtxg_keepoff_none(&model.state.moved));
	}
	assert_true(turn(&model, &critical));
	for (int i = 0; i < 3; i++) {
		assert_true(rtxg_keepoff_look(&model.state, &calm, &model.now, &wanted));
		assert_true(rtxg_keepoff_same(&wanted, &CPUS(0xff)));
	}
}

static void test_what_a_killed_host_left_is_found(void **state)
{
	static const uint64_t owns[] = { 0x01, 0x10, 0x18, 0xff, 0xf0 };
	static const uint64_t offs[] = { 0x01, 0x10, 0x1f, 0xfe };

	for (size_t own = 0; own < sizeof(owns) / sizeof(owns[0]); own++) {
		struct model model = { .now = CPUS(owns[own]) };

		/* killed before it acted, and after, at each change of the rule */
		for (size_t off = 0; off < sizeof(offs) / sizeof(offs[0]); off++) {
			struct rtxg_keepoff_rule rule = critical;
			struct rtxg_keepoff_cpus wanted;

			rule.off = CPUS(offs[off]);
			if (!rtxg_keepoff_look(&model.state, &rule, &model.now, &wanted))
				continue;
			assert_int_equal(rtxg_keepoff_left(&model.state.moved, &wanted, &model.now),
					 !rtxg_keepoff_same(&model.now, &model.state.own));
			assert_true(rtxg_keepoff_left(&model.state.moved, &wanted, &wanted));
			model.now = wanted;
			rtxg_keepoff_set(&model.state, &wanted);
			assert_true(rtxg_keepoff_same(&model.state.own, &CPUS(owns[own])));
		}
	}
}

static void test_what_another_has_set_stays_when_the_host_is_killed(void **state)
{
	assert_false(rtxg_keepoff_left(&CPUS(0x0f), &CPUS(0x07), &CPUS(0x01)));
	assert_false(rtxg_keepoff_left(&NONE, &CPUS(0x07), &CPUS(0xff)));
	assert_false(rtxg_keepoff_left(&NONE, &NONE, &NONE));
	assert_true(rtxg_keepoff_left(&NONE, &CPUS(0x07), &CPUS(0x07)));
}

static void test_all_cpus_count(void **state)
{
	struct rtxg_keepoff_rule rule = { .ceiling = 97 };
	struct model model = { .now = NONE };

	memset(&rule.online, 0xff, sizeof(rule.online));
	for (uint32_t word = 0; word < RTXG_KEEPOFF_WORDS; word++) {
		rule.off = rule.online;
		rule.off.words[word] ^= 1ull << 63;
		model = (struct model){ .now = rule.online };
		assert_true(turn(&model, &rule));
		assert_int_equal(model.now.words[word], 1ull << 63);
		assert_false(rtxg_keepoff_meet(&model.now, &rule.off));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moved_while_a_critical_task_is_there),
		cmocka_unit_test(test_it_stays_on_what_it_has_of_the_other_cpus),
		cmocka_unit_test(test_one_that_has_none_of_them_may_use_them_all),
		cmocka_unit_test(test_cpus_that_are_not_online_do_not_count),
		cmocka_unit_test(test_it_stays_where_no_other_cpu_is_online),
		cmocka_unit_test(test_the_kernels_way_out_of_a_cpu_that_goes_is_no_setting),
		cmocka_unit_test(test_what_another_has_set_is_its_own),
		cmocka_unit_test(test_what_could_not_be_set_is_asked_for_again),
		cmocka_unit_test(test_what_a_killed_host_left_is_found),
		cmocka_unit_test(test_what_another_has_set_stays_when_the_host_is_killed),
		cmocka_unit_test(test_all_cpus_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
