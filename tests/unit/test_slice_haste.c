// SPDX-License-Identifier: MIT
/*
 * test_slice_haste.c - random programs that come, go and pause beside a critical task, or one with
 * a short bound, on the model of slice_model.h: where the log is read seldom, hardly ever is one
 * stopped or let go on an event if the core would leave all as it is with the log read first. The
 * number of sets can be given: test_slice_haste [SETS].
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
#define AMONG(list) (list)[below(sizeof(list) / sizeof((list)[0]))]

/*
 * One of so many may be: which program's turn is next depends on who was on the engine since, and a
 * decision cannot always wait until the log is read.
 */
#define DECISIONS 400u

static int sets = MODEL_SETS(150, 120);
static uint64_t seed;

static uint32_t below(uint32_t n)
{
	return (uint32_t)(model_next_random(&seed) % n);
}

static struct model_program any_program(void)
{
	static const uint64_t kernels[] = { 100 * US, 300 * US, 1 * MS, 2 * MS, 6 * MS };
	struct model_program p = { .kernel_ns = AMONG(kernels) };

	p.launches = below(2) ? 1000000 : 1 + below(100);
	p.depth = 1 + below(16);
	p.cpu_ns = p.launches < 1000000 ? below(15) * MS : 0;
	if (below(2)) {
		p.life_ns = (300 + below(2000)) * MS;
		p.rest_ns = (50 + below(300)) * MS;
		p.building_ns = below(150) * MS;
	}
	return p;
}

static uint64_t one_set(uint64_t number, uint64_t *all)
{
	struct model *m = model_open(ALL, NULL, number);
	uint64_t judged, hasty;
	uint32_t others;

	seed = number * 0x9e3779b97f4a7c15ull;
	model_judge(m);
	model_late(m, number % 3 ? 0 : 800 * US);
	model_tenant(m, 0, (struct rtxg_slice_tenant){ .priority = RTXG_SLICE_CRITICAL_PRIORITY });
	model_program(m, (struct model_program){ .kernel_ns = 100 * US,
						 .burst = 1,
						 .pause_min_ns = (1 + below(10)) * MS,
						 .pause_max_ns = (11 + below(50)) * MS });
	others = 2 + below(4);
	for (uint32_t i = 1; i <= others; i++) {
		struct model_program p = any_program();

		p.tenant = i;
		p.start_ns = 370 * MS * i;
		model_tenant(m, i, (struct rtxg_slice_tenant){ .min_ppm = 150000 });
		model_program(m, p);
	}
	model_run(m, 8 * S);
	if (model_wrong(m))
		fail_msg("set %u: %s", (unsigned int)number, model_wrong(m));
	hasty = model_hasty(m, &judged);
	*all += judged;
	if (hasty)
		print_message("set %u: %u of %u\n", (unsigned int)number, (unsigned int)hasty,
			      (unsigned int)judged);
	model_close(m);
	return hasty;
}

static void next_to_nothing_is_decided_against_what_the_log_will_tell(void **state)
{
	uint64_t hasty = 0, judged = 0;

	for (int i = 1; i <= sets; i++)
		hasty += one_set((uint64_t)i, &judged);
	print_message("%u of %u decisions\n", (unsigned int)hasty, (unsigned int)judged);
	assert_true(judged > (uint64_t)sets * 5);
	assert_true(hasty * DECISIONS <= judged);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(next_to_nothing_is_decided_against_what_the_log_will_tell),
	};

	sets = argc > 1 ? atoi(argv[1]) : sets;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
