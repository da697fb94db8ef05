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

#define US MODEL_US
#define MS MODEL_MS
#define S  MODEL_S
#define ALL                                                                     \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)
#define OTHERS	 50
#define VGPUS	 10
#define RESERVED 30 /* percent; the others have the rest in equal parts */
#define SECONDS	 20u
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

static double burst(uint64_t slow, double *mean)
{
	struct model *m = model_open(ALL, NULL, 5);
	double worst, got = 0, all = 0;

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
							 .launches = 1000000,
							 .depth = 4,
							 .start_ns = S + i * 20 * MS });
	/* All are known by then: what the host has to ask about those that come it asks later. */
	model_run(m, 3 * S);
	model_slow_calls(m, slow);
	model_lookout(m);
	model_run(m, (uint64_t)SECONDS * S);
	assert_null(model_wrong(m));
	worst = worst_second(m, 30, SECONDS * 10);
	for (uint32_t k = 30; k < SECONDS * 10; k++)
		for (uint32_t i = 0; i <= OTHERS; i++) {
			all += (double)model_stats(m, i)->window[k];
			got += i ? 0 : (double)model_stats(m, i)->window[k];
		}
	*mean = 100 * got / all;
	model_close(m);
	return worst;
}

static void a_large_reservation_loses_no_second(void **state)
{
	/* As model_slow_calls() has it. */
	static const uint64_t slow[] = { 100 * MS, 200 * MS, 300 * MS, 600 * MS };

	(void)state;
	for (size_t i = 0; i < sizeof(slow) / sizeof(slow[0]); i++) {
		double mean, worst = burst(slow[i], &mean);

		print_message("calls of up to %u ms: %.1f %% in the worst second, %.1f %% in all\n",
			      (unsigned int)(slow[i] / MS), worst, mean);
		/* A sixth of its own is left where five others are enabled beside it. */
		assert_true(worst >= (slow[i] > 300 * MS ? 5 : 10));
		assert_true(mean >= RESERVED - 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_large_reservation_loses_no_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
