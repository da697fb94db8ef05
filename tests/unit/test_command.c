// SPDX-License-Identifier: MIT
/*
 * test_command.c - what core/gate decides of a single command as it goes in: which batch takes it,
 * whether it goes without an event, what is measured, and how long it is taken to last.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "command.h"
#include "estimate.h"

#define US    1000ull
#define MS    1000000ull
#define S     1000000000ull
#define AHEAD (4 * MS)

static void test_takes(void **state)
{
	(void)state;
	/* half of what may be queued is one batch at most: the next stands ready behind it */
	assert_true(lane_takes(1, AHEAD / 2 - 1, 1, AHEAD));
	assert_false(lane_takes(1, AHEAD / 2, 1, AHEAD));
	assert_true(lane_takes(255, 0, 0, AHEAD));
	assert_false(lane_takes(256, 0, 0, AHEAD));
}

static void test_refuses(void **state)
{
	struct lane l = { .closed = true };

	(void)state;
	assert_true(lane_refuses(&l));
	l.admitted = 1; /* what runs may take more: its permit is there */
	assert_false(lane_refuses(&l));
	l = (struct lane){ 0 };
	assert_false(lane_refuses(&l));
}

static void test_bare(void **state)
{
	struct lane_row row = { 0 };
	struct lane l = { 0 };

	(void)state;
	assert_true(lane_may_be_bare(&l, &row, 250 * US, false));
	assert_false(lane_may_be_bare(&l, &row, 250 * US + 1, false));
	l.admitted = 1;
	/* of two batches at once each tells of its own end */
	assert_false(lane_may_be_bare(&l, &row, US, false));
	assert_true(lane_may_be_bare(&l, &row, US, true));
	/* others want to hear at once, or something stands behind it that its end lets go */
	l.contended = true;
	assert_false(lane_may_be_bare(&l, &row, US, true));
	l.contended = false;
	l.ready = 1;
	assert_false(lane_may_be_bare(&l, &row, US, true));
}

/* So many in a row, or so long a row; then one that tells. */
static void test_row(void **state)
{
	struct lane_row row = { 0 };
	struct lane l = { .admitted = 1 };
	unsigned int n = 0;

	(void)state;
	for (; lane_may_be_bare(&l, &row, US, true); n++)
		lane_entered(&row, true, US);
	assert_int_equal(n, 32);
	lane_entered(&row, false, US);
	for (n = 0; lane_may_be_bare(&l, &row, 200 * US, true); n++)
		lane_entered(&row, true, 200 * US);
	assert_int_equal(n, 5);
	/* Ends behind which something runs say nothing of the row. */
	lane_row_ended(&row, &l);
	assert_false(lane_may_be_bare(&l, &row, 200 * US, true));
	l.admitted = 0;
	lane_row_ended(&row, &l);
	assert_true(lane_may_be_bare(&l, &row, 200 * US, false));
}

/* How often of n times that the engine is begun with it is measured. */
static unsigned int measured(unsigned int n, bool contended, bool told, uint64_t est_ns)
{
	struct lane l = { .contended = contended };
	struct lane_meter m = { 0 };
	unsigned int count = 0;

	while (n--)
		count += lane_measures(&m, &l, told, est_ns);
	return count;
}

static void test_measures(void **state)
{
	(void)state;
	assert_int_equal(measured(80, false, false, US), 10); /* a clock costs as much as they */
	assert_int_equal(measured(80, false, false, MS), 80);
	assert_int_equal(measured(80, true, false, US), 80);
	assert_int_equal(measured(80, true, true, MS), 0);
}

/* A queue that never drains is measured as often, from one end to the next. */
static void test_measures_rest(void **state)
{
	struct lane l = { .admitted = 1 };
	struct lane_meter m = { 0 };
	unsigned int count = 0;

	(void)state;
	for (int i = 0; i < 80; i++)
		count += lane_measures_rest(&m, &l);
	assert_int_equal(count, 10);
	l.admitted = 0;
	for (int i = 0; i < 80; i++)
		assert_false(lane_measures_rest(&m, &l));
}

static void test_meter(void **state)
{
	struct lane l = { .admitted = 1 };
	struct lane_meter m = { 0 };

	(void)state;
	lane_meter_begin(&m, 10 * S);
	assert_int_equal(lane_meter_read(&m, &l, 10 * S + 30), 30);
	/* the next end counts from this one */
	l.admitted = 0;
	assert_int_equal(lane_meter_read(&m, &l, 10 * S + 50), 20);
	assert_int_equal(m.from, 0);
	/* a machine that slept */
	lane_meter_begin(&m, 10 * S);
	assert_int_equal(lane_meter_read(&m, &l, 111 * S), 0);
	assert_int_equal(m.from, 0);
}

static void test_kernels(void **state)
{
	static struct lane_estimates e;

	(void)state;
	assert_int_equal(lane_estimate(&e, 7, 0, AHEAD), AHEAD);
	lane_learn(&e, 7, 0, 100);
	assert_int_equal(lane_estimate(&e, 7, 0, AHEAD), 100);
	lane_learn(&e, 7, 0, 200);
	assert_int_equal(lane_estimate(&e, 7, 0, AHEAD), 125);
	/* another one in its place begins anew, and so does the first after it */
	lane_learn(&e, 7 + LANE_ESTIMATES, 0, 1000);
	assert_int_equal(lane_estimate(&e, 7 + LANE_ESTIMATES, 0, AHEAD), 1000);
	assert_int_equal(lane_estimate(&e, 7, 0, AHEAD), AHEAD);
}

static void test_copies(void **state)
{
	static struct lane_estimates e;

	(void)state;
	/* 1 GB/s, until something is known */
	assert_int_equal(lane_estimate(&e, 0, 1 << 20, AHEAD), 5 * US + (1 << 20));
	lane_learn(&e, 0, 1024, S);
	assert_int_equal(e.kib_ns, 0);
	lane_learn(&e, 0, 1 << 20, 100 * 1024);
	assert_int_equal(lane_estimate(&e, 0, 1 << 20, AHEAD), 5 * US + 100 * 1024);
	lane_learn(&e, 0, 1 << 20, 200 * 1024);
	assert_int_equal(lane_estimate(&e, 0, 1 << 20, AHEAD), 5 * US + 125 * 1024);
	/* too fast to be seen is not unknown */
	e.kib_ns = 0;
	lane_learn(&e, 0, 1 << 20, 0);
	assert_int_equal(e.kib_ns, 1);
}

/* As the exact quotient, within the share that a few bits are of many. */
static void test_part(void **state)
{
	static const uint64_t times[] = { 1, 999, US, 50 * US, 3 * MS, 70 * MS, 2 * S, 100 * S };
	const size_t n = sizeof(times) / sizeof(times[0]);

	(void)state;
	for (size_t w = 0; w < n; w++)
		for (size_t e = 0; e < n; e++)
			for (size_t x = e; x < n; x++) {
				uint64_t got = lane_part(times[w], times[e], times[x], 1);
				long double exact = (long double)times[w] * times[e] / times[x];

				assert_true(got <= exact * 1.00001L + 1);
				if (times[e] >= 50 * US)
					assert_true(got >= exact * 0.95L - 1);
			}
	assert_int_equal(lane_part(300, 0, 0, 3), 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_takes),	 cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_bare),	 cmocka_unit_test(test_row),
		cmocka_unit_test(test_measures), cmocka_unit_test(test_measures_rest),
		cmocka_unit_test(test_meter),	 cmocka_unit_test(test_kernels),
		cmocka_unit_test(test_copies),	 cmocka_unit_test(test_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
