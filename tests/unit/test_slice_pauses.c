// SPDX-License-Identifier: MIT
/*
 * test_slice_pauses.c - core/slice with several programs that wait for each kernel and compute on
 * their CPUs before the next, on the model of slice_model.h. What they do is set against what the
 * same programs do there without rtxg. The number of random sets can be given:
 * test_slice_pauses [SETS].
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "slice_model.h"

#define US MODEL_US
#define MS MODEL_MS
#define S  MODEL_S
#define ALL                                                                     \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)
#define MOST	8
#define SETTLES (4 * S)
#define SECONDS 10

static int sets = MODEL_SETS(20, 6);
static uint64_t seed = 3;

/* Those that pause, and perhaps one more that always has work; and what each of them got. */
struct set {
	struct model_program program[MOST + 1];
	uint32_t count;
	double stock[MOST + 1], rtxg[MOST + 1]; /* percent of the time */
};

static void pausing(struct set *set, uint64_t kernel_ns, uint64_t cpu_ns)
{
	set->program[set->count++] = (struct model_program){ .kernel_ns = kernel_ns,
							     .cpu_ns = cpu_ns,
							     .waits_seen = true };
}

static void busy(struct set *set)
{
	set->program[set->count++] = (struct model_program){
		.kernel_ns = 2 * MS, .launches = 1000000, .depth = 8, .waits_seen = true
	};
}

/* All have equal reservations. */
static void run(const struct set *set, uint32_t can, double *percent)
{
	struct model *m = model_open(can, NULL, 1);
	uint64_t before[MOST + 1];

	for (uint32_t i = 0; i < set->count; i++) {
		struct model_program program = set->program[i];

		program.tenant = i;
		model_tenant(m, i, (struct rtxg_slice_tenant){ .min_ppm = 1000000 / set->count });
		model_program(m, program);
	}
	model_run(m, SETTLES);
	for (uint32_t i = 0; i < set->count; i++)
		before[i] = model_stats(m, i)->work_ns;
	model_run(m, SETTLES + SECONDS * S);
	for (uint32_t i = 0; i < set->count; i++)
		percent[i] = 100.0 * (double)(model_stats(m, i)->work_ns - before[i]) /
			     (double)(SECONDS * S);
	if (model_wrong(m))
		fail_msg("%s", model_wrong(m));
	model_close(m);
}

static void run_both(struct set *set)
{
	run(set, 0, set->stock);
	run(set, ALL, set->rtxg);
}

static double sum(const struct set *set, const double *percent)
{
	double all = 0;

	for (uint32_t i = 0; i < set->count; i++)
		all += percent[i];
	return all;
}

/* The least that one got, over what it is due or, if that is less, got without rtxg. */
static double least(const struct set *set)
{
	double found = 1;

	for (uint32_t i = 0; i < set->count; i++) {
		double due = 85.0 / set->count;

		due = set->stock[i] < due ? set->stock[i] : due;
		found = set->rtxg[i] / due < found ? set->rtxg[i] / due : found;
	}
	return found;
}

/* Each pauses for a little longer than the one before. In turns they did a third to two thirds. */
static void alike_ones_do_what_they_do_without_rtxg(void **state)
{
	static const struct {
		uint64_t kernel_ns, cpu_ns;
		uint32_t count;
	} cases[] = {
		{ 50 * US, 1 * MS, 4 },	   { 50 * US, 1 * MS, 8 },     { 130 * US, 1 * MS, 8 },
		{ 200 * US, 400 * US, 2 }, { 200 * US, 1 * MS, 4 },    { 240 * US, 1 * MS, 4 },
		{ 260 * US, 1 * MS, 2 },   { 260 * US, 1 * MS, 4 },    { 260 * US, 1 * MS, 8 },
		{ 320 * US, 1 * MS, 4 },   { 500 * US, 1500 * US, 4 }, { 1 * MS, 500 * US, 3 },
		{ 1 * MS, 1 * MS, 2 },	   { 1 * MS, 1 * MS, 4 },      { 5 * MS, 2 * MS, 4 },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct set set = { .count = 0 };

		for (uint32_t k = 0; k < cases[i].count; k++)
			pausing(&set, cases[i].kernel_ns,
				cases[i].cpu_ns + k * cases[i].cpu_ns / 7);
		run_both(&set);
		print_message(
			"%u, %llu us and %llu us: %.1f %% of the time, %.2f of stock's; %.2f\n",
			set.count, (unsigned long long)(cases[i].kernel_ns / US),
			(unsigned long long)(cases[i].cpu_ns / US), sum(&set, set.rtxg),
			sum(&set, set.rtxg) / sum(&set, set.stock), least(&set));
		assert_true(sum(&set, set.rtxg) > 0.9 * sum(&set, set.stock));
		assert_true(least(&set) > 0.8);
	}
}

/* Without rtxg it had 46 to 73 % of the time, and those beside it a fifth of what they can do. */
static void one_that_always_has_work_leaves_them_their_parts(void **state)
{
	static const struct {
		uint64_t kernel_ns, cpu_ns;
		uint32_t count;
		double all, hog; /* percent of the time */
	} cases[] = {
		{ 50 * US, 1 * MS, 2, 45, 38 },
		{ 200 * US, 1 * MS, 3, 60, 27 },
		{ 260 * US, 1 * MS, 3, 65, 27 },
		{ 1 * MS, 1 * MS, 2, 82, 31 },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct set set = { .count = 0 };

		for (uint32_t k = 0; k < cases[i].count; k++)
			pausing(&set, cases[i].kernel_ns,
				cases[i].cpu_ns + k * cases[i].cpu_ns / 7);
		busy(&set);
		run_both(&set);
		print_message("%u and one, %llu us: %.1f %% of the time, that one %.1f; %.2f\n",
			      cases[i].count, (unsigned long long)(cases[i].kernel_ns / US),
			      sum(&set, set.rtxg), set.rtxg[cases[i].count], least(&set));
		assert_true(sum(&set, set.rtxg) > cases[i].all);
		assert_true(set.rtxg[cases[i].count] > cases[i].hog);
		assert_true(least(&set) > 0.85);
	}
}

/* One of the lengths in the list, which are a factor apart, or something up to the next. */
static uint64_t drawn(const uint64_t *list, uint32_t count)
{
	uint64_t from = list[model_next_random(&seed) % count];

	return from + 10 * US * (model_next_random(&seed) % (from / (10 * US)));
}

/* Two to eight, of kernels and pauses of any length. Before, they did 0.63 of stock's. */
static void those_of_any_lengths_lose_little(void **state)
{
	static const uint64_t kernels[] = {
		30 * US, 60 * US, 120 * US, 250 * US, 500 * US, 1 * MS
	};
	static const uint64_t pauses[] = { 200 * US, 400 * US, 800 * US, 1600 * US, 3200 * US };
	double all = 0;

	for (int i = 0; i < sets; i++) {
		uint32_t count = 2 + (uint32_t)(model_next_random(&seed) % (MOST - 1));
		struct set set = { .count = 0 };

		for (uint32_t k = 0; k < count; k++)
			pausing(&set, drawn(kernels, 6), drawn(pauses, 5));
		run_both(&set);
		all += sum(&set, set.rtxg) / sum(&set, set.stock);
		if (least(&set) < 0.6)
			fail_msg("set %d: one got %.2f of what it is due", i, least(&set));
	}
	print_message("%d sets: %.3f of stock's\n", sets, all / sets);
	assert_true(all / sets > 0.85);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alike_ones_do_what_they_do_without_rtxg),
		cmocka_unit_test(one_that_always_has_work_leaves_them_their_parts),
		cmocka_unit_test(those_of_any_lengths_lose_little),
	};

	if (argc > 1)
		sets = atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
