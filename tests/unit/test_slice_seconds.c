// SPDX-License-Identifier: MIT
/*
 * test_slice_seconds.c - random programs on the model GPU of slice_model.h that come, go, pause and
 * launch kernels one by one, beside at least one that always has work: in no second does one that
 * always has work get less of it than its reservation by more than POINTS. The number of sets can
 * be given, and one of them: test_slice_seconds [SETS [SET]].
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "slice_model.h"

#define US MODEL_US
#define MS MODEL_MS
#define S  MODEL_S
#define ALL                                                                     \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)
#define AMONG(list) (list)[below(sizeof(list) / sizeof((list)[0]))]
#define POINTS	    3
#define BEGINS	    20u /* windows of 100 ms: all that stay are there by then */
#define ENDS	    120u
#define MOST	    6u

static int sets = MODEL_SETS(100, 30), only;
static bool capped; /* at all there is */
static uint64_t seed;

static uint32_t below(uint32_t n)
{
	return (uint32_t)(model_next_random(&seed) % n);
}

struct member {
	uint32_t min;
	bool always; /* it has work all the time, from the begin to the end */
	struct model_program program;
};

static void give_life(struct model_program *p)
{
	p->start_ns = below(1500) * MS;
	if (below(3))
		return;
	p->life_ns = (300 + below(3000)) * MS;
	p->rest_ns = (50 + below(1000)) * MS;
	p->building_ns = (20 + below(150)) * MS;
}

static struct member any_member(bool always)
{
	static const uint64_t kernels[] = { 100 * US, 300 * US, 1 * MS, 2 * MS, 10 * MS, 20 * MS };
	static const uint64_t pauses[] = { 200 * US, 500 * US, 1 * MS, 2 * MS, 5 * MS };
	static const uint64_t small[] = { 20 * US, 50 * US, 200 * US, 1 * MS, 5 * MS };
	struct model_program p = { .kernel_ns = AMONG(kernels) };

	switch (always ? 0 : below(5)) {
	case 0: /* always has work */
		p.launches = 1000000;
		p.depth = 3 + below(8);
		always = true;
		break;
	case 1: /* waits for each of its kernels */
		p.cpu_ns = 20 * US;
		always = p.kernel_ns >= 1 * MS;
		break;
	case 2: /* the same with pauses */
		p.kernel_ns = AMONG(small);
		p.cpu_ns = AMONG(pauses);
		break;
	case 3: /* steps of a training */
		p.launches = 1 + below(100);
		p.depth = 1 + below(32);
		p.cpu_ns = (100 + below(15000)) * US;
		break;
	default: /* bursts */
		p.launches = 1 + below(22);
		p.depth = 1 + below(32);
		p.cpu_ns = (100 + below(1000)) * US;
		p.burst = 1 + below(8);
		p.pause_min_ns = 5 * MS;
		p.pause_max_ns = 200 * MS;
		break;
	}
	give_life(&p);
	return (struct member){ .always = always && !p.life_ns, .program = p };
}

static uint32_t make(struct model *m, struct member member[MOST])
{
	uint32_t count = 2 + below(MOST - 1), left = 100;

	for (uint32_t i = 0; i < count; i++) {
		member[i] = any_member(i == 0);
		member[i].min = i == count - 1 ? left : 1 + below(left - (count - 1 - i));
		left -= member[i].min;
		member[i].program.tenant = i;
		model_tenant(m, i,
			     (struct rtxg_slice_tenant){ .min_ppm = member[i].min * 10000,
							 .max_ppm = capped ? 1000000 : 0 });
		model_program(m, member[i].program);
	}
	return count;
}

/* How far below its reservation the worst second of this program is, in points, and its end. */
static double worst_second(struct model *m, uint32_t count, uint32_t id, uint32_t min,
			   uint32_t *when)
{
	double worst = -100;

	for (uint32_t w = BEGINS; w + 10 <= ENDS; w++) {
		uint64_t all = 0, got = 0;

		for (uint32_t k = w; k < w + 10; k++) {
			for (uint32_t i = 0; i < count; i++)
				all += model_stats(m, i)->window[k];
			got += model_stats(m, id)->window[k];
		}
		if (min - 100 * (double)got / (double)all > worst) {
			worst = min - 100 * (double)got / (double)all;
			*when = 100 * (w + 10);
		}
	}
	return worst;
}

static uint32_t below_in(uint64_t number, double *idle)
{
	struct model *m = model_open(ALL, NULL, number);
	struct member member[MOST];
	uint32_t count, broken = 0;

	seed = number * 0x9e3779b97f4a7c15ull;
	count = make(m, member);
	model_run(m, ENDS * 100 * MS);
	if (model_wrong(m))
		fail_msg("set %u: %s", (unsigned int)number, model_wrong(m));
	*idle += 100.0 * (double)model_idle_ns(m) / (double)(ENDS * 100 * MS);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t when = 0;
		double worst =
			member[i].always ? worst_second(m, count, i, member[i].min, &when) : -100;

		if (worst <= POINTS && !only)
			continue;
		broken += worst > POINTS;
		print_message("set %u: program %u is %.1f points below %u %% at %u ms\n",
			      (unsigned int)number, i, worst, member[i].min, when);
	}
	for (uint32_t i = 0; i < count && only; i++) {
		const struct model_program *p = &member[i].program;

		print_message("%u: %u %%, kernels of %u us, %u launches, depth %u, cpu %u us, "
			      "burst %u, start %u ms, life %u ms\n",
			      i, member[i].min, (unsigned int)(p->kernel_ns / US), p->launches,
			      p->depth, (unsigned int)(p->cpu_ns / US), p->burst,
			      (unsigned int)(p->start_ns / MS), (unsigned int)(p->life_ns / MS));
	}
	for (uint32_t w = 0; w < ENDS && only; w++) {
		print_message("%5u ms:", 100 * (w + 1));
		for (uint32_t i = 0; i < count; i++)
			print_message(" %5.1f", (double)model_stats(m, i)->window[w] / (double)MS);
		print_message("\n");
	}
	model_close(m);
	return broken;
}

static void no_second_is_far_below_a_reservation(void **state)
{
	uint32_t broken = 0;
	double idle = 0;

	(void)state;
	for (int i = only ? only : 1; i <= (only ? only : sets); i++)
		broken += below_in((uint64_t)i, &idle);
	print_message("%u below; idle for %.2f %%\n", broken, idle / (only ? 1 : sets));
	assert_int_equal(broken, 0);
}

static void work_of_a_set(uint64_t number, uint64_t work[MOST][ENDS])
{
	struct model *m = model_open(ALL, NULL, number);
	struct member member[MOST];
	uint32_t count;

	seed = number * 0x9e3779b97f4a7c15ull;
	count = make(m, member);
	model_run(m, ENDS * 100 * MS);
	memset(work, 0, MOST * sizeof(work[0]));
	for (uint32_t i = 0; i < count; i++)
		memcpy(work[i], model_stats(m, i)->window, sizeof(work[i]));
	model_close(m);
}

/* rtxgd says of each vGPU that has no cap that its cap is all there is. */
static void a_cap_of_all_there_is_is_none(void **state)
{
	static uint64_t none[MOST][ENDS], all[MOST][ENDS];

	(void)state;
	for (uint64_t i = 1; i <= 12; i++) {
		capped = false;
		work_of_a_set(i, none);
		capped = true;
		work_of_a_set(i, all);
		capped = false;
		assert_memory_equal(none, all, sizeof(none));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_second_is_far_below_a_reservation),
		cmocka_unit_test(a_cap_of_all_there_is_is_none),
	};

	sets = argc > 1 ? atoi(argv[1]) : sets;
	only = argc > 2 ? atoi(argv[2]) : 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
