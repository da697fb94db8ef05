// SPDX-License-Identifier: MIT
/*
 * test_latency_split.c - where the time of a launch went, and how far two clocks are apart:
 * latency/split.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "../../latency/split.h"

#define US  1000ull
#define OWN 70u

static const struct split_cycle whole = {
	.launch_ns = 1000 * US,
	.submitted_ns = 1010 * US,
	.start_ns = 3100 * US,
	.end_ns = 3150 * US,
	.waking_ns = 3160 * US,
	.switched_ns = 3165 * US,
	.done_ns = 3170 * US,
	.pid = OWN,
};

static uint64_t of(const struct split_part *parts, int count, enum split_kind kind, uint32_t pid)
{
	for (int i = 0; i < count; i++)
		if (parts[i].kind == kind && parts[i].pid == pid)
			return parts[i].ns;
	return 0;
}

static uint64_t sum(const struct split_part *parts, int count)
{
	uint64_t ns = 0;

	for (int i = 0; i < count; i++)
		ns += parts[i].ns;
	return ns;
}

static void the_holder_of_the_engine_is_named(void **state)
{
	/* 50 had it, was saved at 3000; ours was restored at 3090 */
	static const struct split_switch log[] = {
		{ 500 * US, 50, true },
		{ 3000 * US, 50, false },
		{ 3090 * US, OWN, true },
	};
	struct split_part parts[SPLIT_PARTS];
	int count = split_cycle(&whole, log, 3, parts);

	assert_int_equal(sum(parts, count), 2170 * US);
	assert_int_equal(of(parts, count, SPLIT_SUBMIT, 0), 10 * US);
	assert_int_equal(of(parts, count, SPLIT_HELD, 50), 1990 * US);
	assert_int_equal(of(parts, count, SPLIT_CHANGE, 0), 90 * US);
	assert_int_equal(of(parts, count, SPLIT_BEFORE, 0), 10 * US);
	assert_int_equal(of(parts, count, SPLIT_EXECUTION, 0), 50 * US);
	assert_int_equal(of(parts, count, SPLIT_COMPLETION, 0), 10 * US);
	assert_int_equal(of(parts, count, SPLIT_WAKEUP, 0), 5 * US);
	assert_int_equal(of(parts, count, SPLIT_RETURN, 0), 5 * US);
}

static void two_holders_share_the_blame(void **state)
{
	static const struct split_switch log[] = {
		{ 500 * US, 50, true },	  { 1500 * US, 50, false }, { 1600 * US, 51, true },
		{ 2600 * US, 51, false }, { 2700 * US, 50, true },  { 3000 * US, 50, false },
		{ 3090 * US, OWN, true },
	};
	struct split_part parts[SPLIT_PARTS];
	int count = split_cycle(&whole, log, 7, parts);

	assert_int_equal(sum(parts, count), 2170 * US);
	assert_int_equal(of(parts, count, SPLIT_HELD, 50), 790 * US);
	assert_int_equal(of(parts, count, SPLIT_HELD, 51), 1000 * US);
	assert_int_equal(of(parts, count, SPLIT_CHANGE, 0), 290 * US);
}

static void a_kernel_that_was_stopped_did_not_execute(void **state)
{
	static const struct split_switch log[] = {
		{ 900 * US, OWN, true },  { 3110 * US, OWN, false }, { 3115 * US, 50, true },
		{ 3130 * US, 50, false }, { 3135 * US, OWN, true },
	};
	struct split_part parts[SPLIT_PARTS];
	int count = split_cycle(&whole, log, 5, parts);

	assert_int_equal(sum(parts, count), 2170 * US);
	assert_int_equal(of(parts, count, SPLIT_BEFORE, 0), 2090 * US);
	assert_int_equal(of(parts, count, SPLIT_EXECUTION, 0), 25 * US);
	assert_int_equal(of(parts, count, SPLIT_HELD, 50), 15 * US);
}

/* It is the engine that the program waits for, not an interrupt. */
static void a_kernel_that_was_stopped_before_its_completion_waits_for_the_engine(void **state)
{
	static const struct split_switch log[] = {
		{ 900 * US, OWN, true },  { 3151 * US, OWN, false }, { 3152 * US, 50, true },
		{ 3155 * US, 50, false }, { 3156 * US, OWN, true },
	};
	struct split_part parts[SPLIT_PARTS];
	int count = split_cycle(&whole, log, 5, parts);

	assert_int_equal(sum(parts, count), 2170 * US);
	assert_int_equal(of(parts, count, SPLIT_HELD, 50), 3 * US);
	assert_int_equal(of(parts, count, SPLIT_CHANGE, 0), 2 * US);
	assert_int_equal(of(parts, count, SPLIT_COMPLETION, 0), 5 * US);

	/* it was done when it went: what has the engine then does not matter */
	count = split_cycle(&whole, log, 3, parts);
	assert_int_equal(sum(parts, count), 2170 * US);
	assert_int_equal(of(parts, count, SPLIT_HELD, 50), 0);
	assert_int_equal(of(parts, count, SPLIT_COMPLETION, 0), 10 * US);
}

static void without_a_log_the_wait_has_no_name(void **state)
{
	struct split_part parts[SPLIT_PARTS];
	int count = split_cycle(&whole, NULL, 0, parts);

	assert_int_equal(sum(parts, count), 2170 * US);
	assert_int_equal(of(parts, count, SPLIT_WAIT, 0), 2090 * US);
	assert_int_equal(of(parts, count, SPLIT_EXECUTION, 0), 50 * US);
}

/* Clocks that are known badly may put the begin before the launch: the sum stays whole. */
static void times_out_of_order_still_add_up(void **state)
{
	static const uint64_t times[] = { 0, 900 * US, 1000 * US, 2000 * US, 3170 * US, 9000 * US };
	static const struct split_switch log[] = { { 1 * US, 50, true }, { 5000 * US, 50, false } };
	struct split_part parts[SPLIT_PARTS];

	for (int i = 0; i < 6 * 6 * 6 * 6 * 6; i++) {
		struct split_cycle c = whole;
		int count;

		c.submitted_ns = times[i % 6];
		c.start_ns = times[i / 6 % 6];
		c.end_ns = times[i / 36 % 6];
		c.waking_ns = times[i / 216 % 6];
		c.switched_ns = times[i / 1296];
		count = split_cycle(&c, log, 2, parts);
		assert_int_equal(sum(parts, count), 2170 * US);
	}
}

static void more_holders_than_parts_still_add_up(void **state)
{
	struct split_switch log[60];
	struct split_part parts[SPLIT_PARTS];
	int count;

	for (unsigned int i = 0; i < 60; i++)
		log[i] = (struct split_switch){ (900 + 20 * i) * US, 100 + i / 2, i % 2 == 0 };
	count = split_cycle(&whole, log, 60, parts);
	assert_int_equal(count, SPLIT_PARTS);
	assert_int_equal(sum(parts, count), 2170 * US);
}

/* The GPU's clock is 5 s ahead and drifts; launches of varying length narrow it down. */
static void the_distance_of_the_clocks_is_found(void **state)
{
	const int64_t distance = -5000000000ll;
	struct split_clock k = { 0 };
	uint64_t now = 10000000000ull;

	for (int i = 0; i < 200; i++) {
		uint64_t before = (unsigned int)(i * 37 % 100) * US;
		uint64_t after = (unsigned int)(i * 61 % 90 + 2) * US;
		uint64_t start = now + before - (uint64_t)distance;

		split_clock_add(&k, now, start, start + 5 * US, now + before + 5 * US + after);
		now += 200 * US;
		assert_true(k.least <= distance && distance <= k.most);
	}
	assert_true(k.most - k.least < 10 * (int64_t)US);
	assert_true(llabs(split_clock_offset(&k) - distance) < 5 * (int64_t)US);
}

static void a_clock_that_was_set_is_found_again(void **state)
{
	struct split_clock k = { 0 };

	split_clock_add(&k, 1000 * US, 500 * US, 510 * US, 1020 * US);
	split_clock_add(&k, 2000 * US, 90000 * US, 90010 * US, 2020 * US);
	assert_true(k.least == -88000 * (int64_t)US);
	assert_true(k.most == -87990 * (int64_t)US);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_holder_of_the_engine_is_named),
		cmocka_unit_test(two_holders_share_the_blame),
		cmocka_unit_test(a_kernel_that_was_stopped_did_not_execute),
		cmocka_unit_test(
			a_kernel_that_was_stopped_before_its_completion_waits_for_the_engine),
		cmocka_unit_test(without_a_log_the_wait_has_no_name),
		cmocka_unit_test(times_out_of_order_still_add_up),
		cmocka_unit_test(more_holders_than_parts_still_add_up),
		cmocka_unit_test(the_distance_of_the_clocks_is_found),
		cmocka_unit_test(a_clock_that_was_set_is_found_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
