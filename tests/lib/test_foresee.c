// SPDX-License-Identifier: MIT
/*
 * test_foresee.c - what is foreseen of the next use, on a machine of numbers: uses have lengths,
 * the GPU's clock runs apart, timers and interrupts come late. Looks pay where lengths agree, and
 * cost no more than their share where they do not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "foresee.h"

#define US	  1000
#define MS	  1000000
#define USES	  2000
#define FIRST	  20 /* uses before anything is expected */
#define LOOK_STEP 100

static uint32_t seed;

static int64_t at_random(int64_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return below ? (int64_t)(seed >> 8) % below : 0;
}

struct machine {
	int64_t (*length)(int use);
	bool sleeps;
	int64_t apart;		     /* of the GPU's clock */
	int64_t drift_ppm;	     /* of it */
	int64_t timer, timer_varies; /* how late, ns */
	int64_t interrupt, interrupt_varies;
	int64_t pause; /* between two uses */

	int ends[4];	      /* after the first uses, by enum foresee_end */
	int64_t looked, late; /* ns, in all: looking, and from the end to the waiter */
};

static uint64_t gpu_clock(const struct machine *m, int64_t now)
{
	return (uint64_t)(now + m->apart + now / MS * m->drift_ppm * MS / 1000000);
}

static void use(struct machine *m, struct foresee *f, int number, int64_t *now)
{
	int64_t begun = *now, end = begun + m->length(number), wake, seen;
	int64_t by_interrupt = end + m->interrupt + at_random(m->interrupt_varies);
	struct foresee_use u = { .begun = (uint64_t)begun, .stamp = gpu_clock(m, end) };

	wake = (int64_t)rtx_lib_foresee_wake(f, u.begun, u.begun + 3 * US);
	if (!wake) {
		seen = by_interrupt;
		u.end = FORESEE_SLEPT;
	} else {
		assert_true(wake > begun);
		wake += m->timer + at_random(m->timer_varies);
		seen = wake < by_interrupt ? wake : by_interrupt;
		u.end = FORESEE_LATE;
		if (seen < end) {
			while (seen < end && seen < wake + (int64_t)rtx_lib_foresee_look(f))
				seen += LOOK_STEP;
			u.looked = (uint64_t)(seen - wake);
			u.end = seen < end ? FORESEE_VAIN : FORESEE_HIT;
			if (seen < end)
				seen = by_interrupt;
		}
	}
	u.seen = (uint64_t)seen;
	rtx_lib_foresee_note(f, &u);
	m->looked += (int64_t)u.looked;
	if (number >= FIRST) {
		m->ends[u.end]++;
		m->late += seen - end;
	}
	*now = seen + m->pause;
}

static void run(struct machine *m)
{
	struct foresee f = { .sleeps = m->sleeps };
	int64_t share = m->sleeps ? FORESEE_GLANCE_SHARE_NS : FORESEE_SHARE_NS;
	int64_t now = 1000 * (int64_t)MS;

	seed = 1;
	for (int i = 0; i < USES; i++)
		use(m, &f, i, &now);
	/* whatever came */
	assert_true(m->looked <= share * (int64_t)USES + FORESEE_PURSE_NS);
}

static int percent(const struct machine *m, enum foresee_end end)
{
	return m->ends[end] * 100 / (USES - FIRST);
}

static struct machine machine(int64_t (*length)(int use))
{
	return (struct machine){ .length = length,
				 .apart = -123456789012345,
				 .timer = 4 * US,
				 .interrupt = 40 * US,
				 .interrupt_varies = 30 * US,
				 .pause = 9 * MS };
}

static int64_t constant(int use)
{
	return MS;
}

static int64_t jitter(int use)
{
	return MS + at_random(4 * US);
}

static int64_t alternating(int use)
{
	return use % 2 ? MS : 2 * MS;
}

static int64_t in_turn(int use)
{
	return MS + use % 3 * 200 * US;
}

static int64_t growing(int use)
{
	return MS + use * US;
}

static int64_t with_outliers(int use)
{
	return use % 20 ? MS : MS + 700 * US;
}

static int64_t steps(int use)
{
	return MS + use / 100 % 2 * 500 * US;
}

static int64_t any(int use)
{
	return 100 * US + at_random(3 * MS);
}

static int64_t almost(int use)
{
	return MS + at_random(12 * US);
}

static int64_t tiny(int use)
{
	return 12 * US;
}

static void equal_lengths_are_met(void **state)
{
	struct machine m = machine(constant);

	run(&m);
	assert_true(percent(&m, FORESEE_HIT) >= 90);
	assert_true(m.late / (USES - FIRST) < 4 * US);
}

static void clocks_and_timers_may_be_off(void **state)
{
	static const int64_t aparts[] = { 0, 5, INT64_C(1) << 62, -(INT64_C(1) << 62) };
	static const int64_t timers[] = { 0, 55 * US, 300 * US };

	for (int a = 0; a < 4; a++)
		for (int t = 0; t < 3; t++) {
			struct machine m = machine(constant);

			m.apart = aparts[a];
			m.timer = timers[t];
			m.drift_ppm = a % 2 ? 20 : -20;
			run(&m);
			assert_true(percent(&m, FORESEE_HIT) >= 80);
		}
}

static void a_little_jitter_is_met(void **state)
{
	struct machine m = machine(jitter);

	m.timer_varies = 3 * US;
	run(&m);
	assert_true(percent(&m, FORESEE_HIT) >= 60);
	assert_true(m.late / (USES - FIRST) < 10 * US);
}

static void lengths_that_change_are_followed(void **state)
{
	struct machine m = machine(growing), n = machine(steps);

	run(&m);
	assert_true(percent(&m, FORESEE_HIT) >= 60);
	run(&n);
	assert_true(percent(&n, FORESEE_HIT) >= 80);
}

static void an_outlier_is_no_reason_to_give_up(void **state)
{
	struct machine m = machine(with_outliers);

	run(&m);
	assert_true(percent(&m, FORESEE_HIT) >= 80);
}

static void lengths_that_differ_are_slept_through(void **state)
{
	int64_t (*const series[])(int) = { alternating, in_turn };

	for (int i = 0; i < 2; i++) {
		struct machine m = machine(series[i]);

		run(&m);
		assert_int_equal(percent(&m, FORESEE_SLEPT), 100);
		assert_int_equal(m.looked, 0);
	}
}

static void lengths_at_random_cost_next_to_nothing(void **state)
{
	struct machine m = machine(any);

	run(&m);
	assert_true(percent(&m, FORESEE_SLEPT) >= 99);
}

/* The share of run() holds: looks in vain are paid for by waits without a look. */
static void timers_at_random_cost_no_more_than_the_share(void **state)
{
	int64_t (*const series[])(int) = { constant, constant, jitter,	jitter,
					   almost,   almost,   growing, growing };

	for (int i = 0; i < 8; i++)
		for (int64_t varies = 10 * US; varies < MS; varies *= 3) {
			struct machine m = machine(series[i]), plain = machine(any);

			m.sleeps = i % 2;
			m.timer_varies = varies;
			run(&m);
			run(&plain);
			/* and no wait is longer than by the interrupt alone */
			assert_true(m.late <= plain.late + (USES - FIRST) * US);
		}
}

/* Waits that sleep look for a tenth of the time of the others, and are some microseconds late. */
static void who_sleeps_looks_seldom_and_is_not_late(void **state)
{
	static const int64_t varies[] = { 0, 2 * US, 6 * US };
	int64_t (*const series[])(int) = { constant, jitter };

	for (int i = 0; i < 2; i++)
		for (int v = 0; v < 3; v++)
			for (int drift = -20; drift <= 20; drift += 20) {
				struct machine looking = machine(series[i]), m = looking;

				m.sleeps = true;
				m.timer_varies = looking.timer_varies = varies[v];
				m.drift_ppm = looking.drift_ppm = drift;
				run(&m);
				run(&looking);
				assert_true(m.late / (USES - FIRST) < 7 * US);
				assert_true(m.looked * 10 <= looking.looked);
				assert_true(percent(&m, FORESEE_SLEPT) == 0);
				assert_true(percent(&m, FORESEE_VAIN) <= 2);
			}
}

static void a_use_that_is_shorter_than_a_sleep_is_left(void **state)
{
	struct machine m = machine(tiny);

	run(&m);
	assert_int_equal(percent(&m, FORESEE_SLEPT), 100);
}

static void a_long_pause_is_survived(void **state)
{
	struct foresee f = { 0 };
	struct machine m = machine(constant);
	int64_t now = 1000 * (int64_t)MS;

	m.drift_ppm = 50;
	for (int i = 0; i < USES; i++) {
		if (!(i % 100))
			now += 60000 * (int64_t)MS;
		use(&m, &f, i, &now);
	}
	assert_true(percent(&m, FORESEE_HIT) >= 70);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_lengths_are_met),
		cmocka_unit_test(clocks_and_timers_may_be_off),
		cmocka_unit_test(a_little_jitter_is_met),
		cmocka_unit_test(lengths_that_change_are_followed),
		cmocka_unit_test(an_outlier_is_no_reason_to_give_up),
		cmocka_unit_test(lengths_that_differ_are_slept_through),
		cmocka_unit_test(lengths_at_random_cost_next_to_nothing),
		cmocka_unit_test(timers_at_random_cost_no_more_than_the_share),
		cmocka_unit_test(who_sleeps_looks_seldom_and_is_not_late),
		cmocka_unit_test(a_use_that_is_shorter_than_a_sleep_is_left),
		cmocka_unit_test(a_long_pause_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
