// SPDX-License-Identifier: MIT
/*
 * test_slice_slow.c - core/slice where each call of the driver waits long for its lock, as while
 * fifty programs start at once: a tenant with a large reservation does not lose a second of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "slice_model.h"

#define MS MODEL_MS
#define S  MODEL_S
#define ALL                                                                     \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)
#define OTHERS	 50
#define VGPUS	 10
#define RESERVED 30 /* percent; the others have the rest in equal parts */
#define SECONDS	 20u
#define AGAIN	 28u /* up to then, if calls take no longer than usual again */

/* What the first one got of the engine's work in its worst second, in percent. */
static double worst_second(struct model *m, uint32_t from, uint32_t to)
{
	double worst = 100;

	for (uint32_t w = from; w + 10 <= to; w++) {
		double got = 0, all = 0;

		for (uint32_t k = w; k < w + 10; k++) {
			got += (double)model_stats(m, 0)->window[k];
			for (uint32_t i = 0; i <= OTHERS; i++)
				all += (double)model_stats(m, i)->window[k];
		}
		if (all > 0 && 100 * got / all < worst)
			worst = 100 * got / all;
	}
	return worst;
}

/* The part that it got of all work from then to then, in percent; in tenths of a second. */
static double part(struct model *m, uint32_t from, uint32_t to)
{
	double got = 0, all = 0;

	for (uint32_t k = from; k < to; k++)
		for (uint32_t i = 0; i <= OTHERS; i++) {
			all += (double)model_stats(m, i)->window[k];
			got += i ? 0 : (double)model_stats(m, i)->window[k];
		}
	return all > 0 ? 100 * got / all : 0;
}

/* Each of the fifty has work all the time, or for 700 ms, and then pauses for 300. */
static struct model *burst(uint64_t slow, bool pauses)
{
	struct model *m = model_open(ALL, NULL, 5);

	model_tenant(m, 0, (struct rtxg_slice_tenant){ .min_ppm = RESERVED * 10000 });
	for (uint32_t i = 1; i <= VGPUS; i++)
		model_tenant(
			m, i,
			(struct rtxg_slice_tenant){ .min_ppm = (100 - RESERVED) * 10000 / VGPUS });
	model_program(m,
		      (struct model_program){
			      .tenant = 0, .kernel_ns = 2 * MS, .launches = 1000000, .depth = 4 });
	for (uint32_t i = 0; i < OTHERS; i++)
		model_program(m, (struct model_program){ .tenant = 1 + i % VGPUS,
							 .kernel_ns = 2 * MS,
							 .launches = pauses ? 8 : 1000000,
							 .depth = 4,
							 .cpu_ns = pauses ? 300 * MS : 0,
							 .start_ns = S + i * 20 * MS });
	/* All are known by then: what the host has to ask about those that come it asks later. */
	model_run(m, 3 * S);
	model_slow_calls(m, slow);
	model_lookout(m);
	model_run(m, (uint64_t)SECONDS * S);
	assert_null(model_wrong(m));
	return m;
}

/* As model_slow_calls() has it. */
static const uint64_t slow[] = { 100 * MS, 200 * MS, 300 * MS, 600 * MS };
#define SLOWS (sizeof(slow) / sizeof(slow[0]))

static void a_large_reservation_loses_no_second(void **state)
{
	(void)state;
	for (size_t i = 0; i < SLOWS; i++) {
		struct model *m = burst(slow[i], false);
		double worst = worst_second(m, 30, SECONDS * 10), all = part(m, 30, SECONDS * 10);

		print_message("calls of up to %u ms: %.1f %% in the worst second, %.1f %% in all\n",
			      (unsigned int)(slow[i] / MS), worst, all);
		model_close(m);
		/* One of six that are enabled has a sixth, less what it waits for at first. */
		assert_true(worst >= (slow[i] > 300 * MS ? 5 : 10));
		assert_true(all >= RESERVED - 3);
	}
}

/* With the longest of them one call of 2 s comes while the first one is stopped: nothing helps. */
static void nor_where_the_others_pause(void **state)
{
	(void)state;
	for (size_t i = 0; i < SLOWS - 1; i++) {
		struct model *m = burst(slow[i], true);
		double worst = worst_second(m, 30, SECONDS * 10), all = part(m, 30, SECONDS * 10);

		print_message(
			"with pauses, up to %u ms: %.1f %% in the worst second, %.1f %% in all\n",
			(unsigned int)(slow[i] / MS), worst, all);
		model_close(m);
		assert_true(worst >= 10);
		assert_true(all >= RESERVED - 3);
	}
}

/* Four times as long as what was late is over then, and what was not forgiven has been given. */
static void turns_are_exact_again_afterwards(void **state)
{
	(void)state;
	for (size_t i = 0; i < SLOWS; i++) {
		struct model *m = burst(slow[i], false);
		double worst, all;

		model_slow_calls(m, 0);
		model_run(m, (uint64_t)AGAIN * S);
		assert_null(model_wrong(m));
		worst = worst_second(m, (AGAIN - 3) * 10, AGAIN * 10);
		all = part(m, (AGAIN - 3) * 10, AGAIN * 10);
		print_message("after calls of up to %u ms: %.1f %% in the worst second, %.1f %%\n",
			      (unsigned int)(slow[i] / MS), worst, all);
		model_close(m);
		assert_true(worst >= RESERVED - 3);
		assert_true(all <= RESERVED + 3);
	}
}

/*
 * Three programs of each vGPU have work all the time. Two more are being started: their context is
 * made, piece by piece, for some seconds, as the driver has it while its lock is contended. Each
 * piece is work of 0.2 ms on the engine, and none of them is to wait for a turn of all others.
 */
static void who_is_being_started_waits_for_no_turns(void **state)
{
	(void)state;
	for (size_t k = 0; k < SLOWS; k++) {
		struct model *m = model_open(ALL, NULL, 5);
		uint64_t worst = 0;

		for (uint32_t i = 0; i < VGPUS; i++)
			model_tenant(m, i,
				     (struct rtxg_slice_tenant){ .min_ppm = 1000000 / VGPUS });
		for (uint32_t i = 0; i < OTHERS; i++)
			model_program(m, (struct model_program){
						 .tenant = i % VGPUS,
						 .kernel_ns = i < 30 ? 2 * MS : MS / 5,
						 .launches = i < 30 ? 1000000 : 1,
						 .depth = 4,
						 .cpu_ns = i < 30 ? 0 : 700 * MS,
						 .start_ns = (i < 30 ? 1 : 3) * S + i * 20 * MS });
		model_run(m, 3 * S);
		model_slow_calls(m, slow[k]);
		model_lookout(m);
		model_run(m, (uint64_t)SECONDS * S);
		assert_null(model_wrong(m));
		for (uint32_t i = 30; i < OTHERS; i++)
			if (model_stats(m, i)->longest_ns > worst)
				worst = model_stats(m, i)->longest_ns;
		print_message("calls of up to %u ms: a piece waits for %.2f s at most\n",
			      (unsigned int)(slow[k] / MS), (double)worst / 1e9);
		model_close(m);
		assert_true(worst <= 100 * MS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_large_reservation_loses_no_second),
		cmocka_unit_test(nor_where_the_others_pause),
		cmocka_unit_test(turns_are_exact_again_afterwards),
		cmocka_unit_test(who_is_being_started_waits_for_no_turns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
