// SPDX-License-Identifier: MIT
/*
 * test_slice_period.c - core/slice where the period of a critical program was told a little wrong:
 * it is learnt from starts that are late now and then. The starts are drawn from fixed seeds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "rtxg_slice.h"

#define US	1000ull
#define MS	1000000ull
#define AHEAD	(900 * US) /* expected releases are looked at so long ahead of them */
#define RESTORE (85 * US)  /* from a release, or from when it is brought in, to the start */
#define WARM	(350 * US) /* a context is brought in so long ahead */
#define HOLD	(200 * US) /* after a release that was expected others take the engine */
#define CLOSE	(200 * US)
#define SEEDS	12

/* What happens besides releases. */
enum noise {
	LATE,	/* half of the starts are late by up to 0.3 ms, and releases are missed */
	WIDE,	/* all are late by up to 1.5 % of the period */
	ROUGH,	/* some are late by ms, once many in a row, and there is other work */
	RANDOM, /* and there is no period */
};

struct program {
	void *memory;
	struct rtxg_slice *core;
	uint64_t now, random;
	uint64_t told, actual;
	bool warms;
	enum noise noise;
	uint32_t late_for, missed_for; /* of the releases that follow */
	uint32_t expected, close;      /* releases, from the one that counts first on */
	uint32_t brought_in;
};

static void tell(struct program *p, struct rtxg_slice_event event)
{
	struct rtxg_slice_action actions[16];

	assert_in_range(rtxg_slice_step(p->core, p->now, &event, actions, 16), 0, 15);
	assert_null(rtxg_slice_check(p->core));
}

static void set_period(struct program *p, uint64_t period)
{
	tell(p,
	     (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TENANT_SET,
					.tenant_params = { .priority = RTXG_SLICE_CRITICAL_PRIORITY,
							   .period_ns = period } });
}

/* One of 0 .. n - 1. */
static uint64_t draw(struct program *p, uint64_t n)
{
	p->random = p->random * 6364136223846793005ull + 1442695040888963407ull;
	return (p->random >> 33) % n;
}

static bool happens(struct program *p, uint64_t in_1000)
{
	return draw(p, 1000) < in_1000;
}

static void be_on(struct program *p, uint64_t from, uint64_t until)
{
	p->now = from > p->now ? from : p->now;
	tell(p, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_START, .at_ns = p->now });
	p->now = until > p->now ? until : p->now + 20 * US;
	tell(p, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_END, .at_ns = p->now });
	tell(p, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
}

static void begin(struct program *p, uint64_t told, uint64_t actual, enum noise noise, bool warms,
		  uint64_t seed)
{
	const struct rtxg_slice_params both = { .can = RTXG_SLICE_CAN_SUSPEND |
						       RTXG_SLICE_CAN_SLICE };
	uint64_t size = rtxg_slice_size(1, 1);

	*p = (struct program){ .memory = calloc(1, size),
			       .random = seed,
			       .told = told,
			       .actual = actual,
			       .warms = warms,
			       .noise = noise };
	p->core = rtxg_slice_init(p->memory, size, 1, 1, &both, 0);
	assert_non_null(p->core);
	set_period(p, told);
	tell(p, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD });
	if (warms)
		tell(p, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_WARMS });
}

static void end(struct program *p)
{
	free(p->memory);
}

/* By how much its job starts late; UINT64_MAX: not at all. */
static uint64_t lateness(struct program *p)
{
	uint64_t late = draw(p, 20) * US;

	if (p->noise == WIDE)
		return draw(p, p->actual * 15 / 1000);
	if (happens(p, 5) && !p->missed_for)
		p->missed_for = happens(p, 250) ? 5 + (uint32_t)draw(p, 30) : 1;
	if (happens(p, 500))
		late += draw(p, 300) * US;
	if (p->noise != LATE && happens(p, 20))
		late += 500 * US + draw(p, 2500) * US;
	if (p->late_for) {
		p->late_for--;
		late += 1500 * US;
	}
	if (!p->missed_for)
		return late;
	p->missed_for--;
	return UINT64_MAX;
}

/* The job that was released then starts so late; its context may be brought in ahead of it. */
static void run_job(struct program *p, uint64_t release, uint64_t late, uint64_t warm)
{
	uint64_t comes = release + late, in = warm + RESTORE, out = warm + WARM + HOLD;

	if (warm > release + p->actual / 2 || in > comes) {
		be_on(p, comes + RESTORE, comes + RESTORE + 100 * US);
		return;
	}
	p->brought_in++;
	if (comes <= out) {
		be_on(p, in, comes + 100 * US);
		return;
	}
	be_on(p, in, out);
	be_on(p, comes + RESTORE, comes + RESTORE + 100 * US);
}

/* Is a release expected where this one is? Which one of them does not matter. */
static bool is_close(const struct program *p, uint64_t release)
{
	uint64_t next = rtxg_slice_next_release(p->core, 0), from = release + RESTORE + CLOSE;

	return next != RTXG_SLICE_NEVER && next <= from && from - next <= 2 * CLOSE;
}

/* So many jobs, of which those from `first` on are looked at. */
static void run(struct program *p, uint32_t jobs, uint32_t first)
{
	uint64_t release = p->now + p->actual + 50 * MS, warm, late;

	/* The program does something before its first release. */
	be_on(p, release - p->actual * (20 + draw(p, 70)) / 100, 0);
	for (uint32_t job = 0; job < jobs; job++) {
		release += p->noise == RANDOM ? 1 * MS + draw(p, 2 * p->actual) : p->actual;
		if (p->noise == ROUGH && job == jobs / 2)
			p->late_for = 20;
		if (p->noise == ROUGH && happens(p, 30))
			be_on(p, release - p->actual * (20 + draw(p, 50)) / 100, 0);
		p->now = release - AHEAD > p->now ? release - AHEAD : p->now;
		tell(p, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER,
						   .value = RTXG_SLICE_UNREAD });
		warm = rtxg_slice_next_warm(p->core, 0);
		if (job >= first && (!p->warms || warm != RTXG_SLICE_NEVER)) {
			p->expected++;
			p->close += is_close(p, release);
		}
		late = lateness(p);
		if (late != UINT64_MAX)
			run_job(p, release, late, warm);
	}
}

static const uint64_t periods[][2] = {
	/* as it was told, and as it is, in us */
	{ 10000, 10000 }, { 16600, 16667 }, { 33000, 33333 }, { 10000, 9900 },
	{ 10000, 10100 }, { 10000, 9985 },  { 10000, 10015 }, { 10000, 9960 },
	{ 10000, 10040 }, { 10000, 9800 },  { 10000, 10200 },
};

/*
 * Of the releases of programs that differ in what is drawn so many % are expected well. Where a
 * context is brought in, those ahead of which it is count.
 */
static void releases_are_expected(enum noise noise, bool warms, uint32_t percent)
{
	for (size_t i = 0; i < sizeof(periods) / sizeof(*periods); i++) {
		uint32_t expected = 0, close = 0;

		for (uint64_t seed = 1; seed <= SEEDS; seed++) {
			struct program p;

			begin(&p, periods[i][0] * US, periods[i][1] * US, noise, warms, seed);
			run(&p, 1000, 60);
			expected += p.expected;
			close += p.close;
			end(&p);
		}
		print_message("told %llu us, is %llu us: %u, %.2f %%\n",
			      (unsigned long long)periods[i][0], (unsigned long long)periods[i][1],
			      expected / SEEDS, 100.0 * close / expected);
		assert_true(close * 100 >= expected * percent);
	}
}

static void a_period_that_was_told_wrong_is_learnt(void **state)
{
	releases_are_expected(LATE, false, 95);
}

/* Also those count here that are not known: 93 % where the period was told right. */
static void it_is_learnt_whatever_else_the_program_does(void **state)
{
	releases_are_expected(ROUGH, false, 90);
}

static void it_is_learnt_where_the_context_is_brought_in_ahead(void **state)
{
	releases_are_expected(LATE, true, 95);
	releases_are_expected(ROUGH, true, 95);
}

/* When it has been measured for long enough a context is brought in, told wrong or not. */
static void a_context_is_brought_in_with_the_period_that_was_learnt(void **state)
{
	for (size_t i = 0; i < sizeof(periods) / sizeof(*periods); i++) {
		uint32_t brought_in = 0;

		for (uint64_t seed = 1; seed <= SEEDS; seed++) {
			struct program p;

			begin(&p, periods[i][0] * US, periods[i][1] * US, LATE, true, seed);
			run(&p, 1000, 60);
			brought_in += p.brought_in;
			end(&p);
		}
		print_message("told %llu us, is %llu us: brought in for %.1f %%\n",
			      (unsigned long long)periods[i][0], (unsigned long long)periods[i][1],
			      brought_in / 10.0 / SEEDS);
		assert_true(brought_in >= 500 * SEEDS);
	}
}

/*
 * One that was told right is not taken to be another one where starts are late by much: a context
 * is brought in as if the period could not be learnt.
 */
static void late_starts_are_no_other_period(void **state)
{
	for (uint64_t period = 10 * MS; period <= 100 * MS; period += 30 * MS) {
		uint32_t brought_in = 0;

		for (uint64_t seed = 1; seed <= SEEDS; seed++) {
			struct program p;

			begin(&p, period, period, WIDE, true, seed);
			run(&p, 1000, 60);
			brought_in += p.brought_in;
			end(&p);
		}
		print_message("%llu ms: brought in for %.1f %%\n",
			      (unsigned long long)(period / MS), brought_in / 10.0 / SEEDS);
		assert_true(brought_in >= 600 * SEEDS);
	}
}

/* It rests for 2 s: its releases may be at other times then, and are as far apart as before. */
static void what_was_learnt_is_kept_over_a_rest(void **state)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct program p;

		begin(&p, 16600 * US, 16667 * US, LATE, true, seed);
		run(&p, 500, 500);
		assert_true(p.brought_in > 0);
		p.now += 2000 * MS + draw(&p, 16 * MS);
		run(&p, 160, 60);
		assert_true(p.expected >= 90);
		assert_true(p.close * 100 >= p.expected * 95);
		end(&p);
	}
}

/* 4 % are no mistake in writing a period down: it is another one. */
static void a_period_that_is_far_off_is_not_taken(void **state)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct program p;

		begin(&p, 10 * MS, seed % 2 ? 10400 * US : 9600 * US, LATE, true, seed);
		run(&p, 1000, 0);
		assert_int_equal(p.brought_in, 0);
		end(&p);
	}
}

/* Starts that are random are not taken for releases. */
static void a_program_without_a_period_has_no_releases(void **state)
{
	for (uint64_t seed = 1; seed <= 4 * SEEDS; seed++) {
		struct program p;

		begin(&p, 10 * MS, 10 * MS, RANDOM, true, seed);
		run(&p, 1000, 0);
		assert_int_equal(p.brought_in, 0);
		end(&p);
	}
}

/* Another period is told: nothing is left of the one that was learnt. */
static void what_was_learnt_is_forgotten_with_what_was_told(void **state)
{
	struct program p;

	begin(&p, 10 * MS, 9900 * US, LATE, false, 1);
	run(&p, 100, 60);
	assert_int_equal(p.close, p.expected);
	set_period(&p, 20 * MS);
	set_period(&p, 10 * MS);
	assert_int_equal(rtxg_slice_next_release(p.core, 0), RTXG_SLICE_NEVER);
	p.now += 1 * MS;
	tell(&p, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_START, .at_ns = p.now });
	assert_int_equal(rtxg_slice_next_release(p.core, 0), p.now + 10 * MS);
	end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_period_that_was_told_wrong_is_learnt),
		cmocka_unit_test(it_is_learnt_whatever_else_the_program_does),
		cmocka_unit_test(it_is_learnt_where_the_context_is_brought_in_ahead),
		cmocka_unit_test(a_context_is_brought_in_with_the_period_that_was_learnt),
		cmocka_unit_test(late_starts_are_no_other_period),
		cmocka_unit_test(what_was_learnt_is_kept_over_a_rest),
		cmocka_unit_test(a_period_that_is_far_off_is_not_taken),
		cmocka_unit_test(a_program_without_a_period_has_no_releases),
		cmocka_unit_test(what_was_learnt_is_forgotten_with_what_was_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
