// SPDX-License-Identifier: MIT
/*
 * test_latency_histogram.c - bins, quantiles and lost cycles of latency/histogram.c, and the times
 * of cycles.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../../latency/histogram.h"
#include "../../latency/probe.h"

static void a_latency_is_in_the_bin_of_its_microsecond(void **state)
{
	struct histogram h;

	assert_int_equal(histogram_open(&h, 3), 0);
	histogram_add(&h, 999);
	histogram_add(&h, 1000);
	histogram_add(&h, 2999);
	histogram_add(&h, 3000);
	assert_int_equal(h.count[0], 1);
	assert_int_equal(h.count[1], 1);
	assert_int_equal(h.count[2], 1);
	assert_int_equal(h.overflows, 1);
	assert_int_equal(h.total, 4);
	assert_int_equal(h.min_ns, 999);
	assert_int_equal(h.max_ns, 3000);
	histogram_close(&h);
}

static void sizes_outside_the_range_are_refused(void **state)
{
	struct histogram h;

	assert_int_equal(histogram_open(&h, 0), -EINVAL);
	assert_int_equal(histogram_open(&h, HISTOGRAM_MOST + 1), -EINVAL);
}

static void a_quantile_never_passes_the_maximum(void **state)
{
	struct histogram h;

	assert_int_equal(histogram_open(&h, 100), 0);
	assert_true(histogram_quantile_us(&h, 0.5) == 0);
	for (int i = 0; i < 99; i++)
		histogram_add(&h, 10500);
	histogram_add(&h, 5000000);
	assert_true(histogram_quantile_us(&h, 0.5) == 11);
	assert_true(histogram_quantile_us(&h, 0.99) == 11);
	assert_true(histogram_quantile_us(&h, 0.999) == 5000);
	histogram_close(&h);
	assert_int_equal(histogram_open(&h, 100), 0);
	histogram_add(&h, 10500);
	assert_true(histogram_quantile_us(&h, 0.5) == 10.5);
	histogram_close(&h);
}

/* 1 ms late with a period of 200 us: the cycles that it kept from beginning were late too. */
static void lost_cycles_are_counted_as_late(void **state)
{
	struct histogram h;

	assert_int_equal(histogram_open(&h, 2000), 0);
	histogram_add_expected(&h, 1000000, 200000);
	assert_int_equal(h.total, 5);
	for (int us = 200; us <= 1000; us += 200)
		assert_int_equal(h.count[us], 1);
	histogram_add_expected(&h, 200000, 200000);
	assert_int_equal(h.total, 6);
	histogram_close(&h);
}

static void an_endless_latency_adds_a_bounded_number_of_cycles(void **state)
{
	struct histogram h;

	assert_int_equal(histogram_open(&h, 10), 0);
	histogram_add_expected(&h, 3600000000000, 20000);
	assert_int_equal(h.total, 11);
	histogram_close(&h);
}

static void merging_keeps_every_count(void **state)
{
	struct histogram a, b;

	assert_int_equal(histogram_open(&a, 10), 0);
	assert_int_equal(histogram_open(&b, 20), 0);
	histogram_merge(&a, &b);
	assert_int_equal(a.total, 0);
	histogram_add(&a, 5000);
	histogram_add(&b, 4000);
	histogram_add(&b, 15000);
	histogram_add(&b, 25000);
	histogram_merge(&a, &b);
	assert_int_equal(a.total, 4);
	assert_int_equal(a.count[4] + a.count[5], 2);
	assert_int_equal(a.overflows, 2);
	assert_int_equal(a.min_ns, 4000);
	assert_int_equal(a.max_ns, 25000);
	histogram_close(&a);
	histogram_close(&b);
}

static void what_was_counted_since_is_not_counted_again(void **state)
{
	struct histogram h, before, out;

	assert_int_equal(histogram_open(&h, 10), 0);
	assert_int_equal(histogram_open(&before, 10), 0);
	assert_int_equal(histogram_open(&out, 10), 0);
	histogram_add(&h, 2500);
	histogram_add(&h, 50000);
	histogram_since(&out, &h, &before, 50000);
	assert_int_equal(out.total, 2);
	assert_int_equal(out.overflows, 1);
	assert_int_equal(out.min_ns, 2000);
	assert_int_equal(out.max_ns, 50000);
	histogram_add(&h, 3500);
	/* the maximum was taken before that one was counted */
	histogram_since(&out, &h, &before, 0);
	assert_int_equal(out.total, 1);
	assert_int_equal(out.overflows, 0);
	assert_int_equal(out.max_ns, 3000);
	assert_int_equal(out.sum_ns, 3500);
	histogram_close(&h);
	histogram_close(&before);
	histogram_close(&out);
}

/* A thread that was late, or that started late, sleeps until a time that is to come. */
static void a_cycle_is_never_in_the_past(void **state)
{
	uint64_t lost;

	assert_int_equal(probe_next(1000, 900, 200, &lost), 1000);
	assert_int_equal(lost, 0);
	assert_int_equal(probe_next(1000, 1000, 200, &lost), 1000);
	assert_int_equal(lost, 0);
	assert_int_equal(probe_next(1000, 1001, 200, &lost), 1200);
	assert_int_equal(lost, 1);
	assert_int_equal(probe_next(1000, 1650, 200, &lost), 1800);
	assert_int_equal(lost, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_latency_is_in_the_bin_of_its_microsecond),
		cmocka_unit_test(sizes_outside_the_range_are_refused),
		cmocka_unit_test(a_quantile_never_passes_the_maximum),
		cmocka_unit_test(lost_cycles_are_counted_as_late),
		cmocka_unit_test(an_endless_latency_adds_a_bounded_number_of_cycles),
		cmocka_unit_test(merging_keeps_every_count),
		cmocka_unit_test(what_was_counted_since_is_not_counted_again),
		cmocka_unit_test(a_cycle_is_never_in_the_past),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
