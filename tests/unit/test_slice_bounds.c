// SPDX-License-Identifier: MIT
/*
 * test_slice_bounds.c - random sets of vGPUs with latencies and reservations, each admitted beside
 * those that are there, on the model of slice_model.h: no wait that a bound is for is longer than
 * the bound. The number of sets can be given: test_slice_bounds [SETS].
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <cmocka.h>
#include "slice_model.h"

#define US MODEL_US
#define MS MODEL_MS
#define S  MODEL_S
#define ALL                                                                     \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)
#define VGPUS	    7u /* two to five with a latency, and up to two without */
#define AMONG(list) (list)[below(sizeof(list) / sizeof((list)[0]))]

static int sets = MODEL_SETS(150, 30);
static uint64_t seed;

static uint32_t below(uint32_t n)
{
	return (uint32_t)(model_next_random(&seed) % n);
}

/* One that always has work, one with bursts, one that is seldom seen, one with gaps. */
static struct model_program any_program(void)
{
	static const uint64_t kernels[] = { 50 * US, 100 * US, 300 * US, 1 * MS, 2 * MS, 6 * MS };
	struct model_program p = { .kernel_ns = AMONG(kernels) };

	switch (below(4)) {
	case 0:
		p.launches = 1000000;
		p.depth = 1 + below(8);
		break;
	case 1:
		p.launches = 1 + below(22);
		p.depth = 1 + below(32);
		p.cpu_ns = (100 + below(1000)) * US;
		p.burst = 1 + below(8);
		p.pause_min_ns = 5 * MS;
		p.pause_max_ns = 120 * MS;
		break;
	case 2:
		p.launches = 1 + below(4);
		p.depth = 1 + below(4);
		p.burst = 1;
		p.pause_min_ns = 50 * MS;
		p.pause_max_ns = 900 * MS;
		break;
	default:
		p.launches = 1 + below(4);
		p.depth = 1 + below(4);
		p.cpu_ns = 200 * US + below(20) * MS;
		break;
	}
	return p;
}

struct counts {
	uint32_t asked, admitted, waits;
};

/* Is it accepted, if need be with the best bound that the refusal names? */
static bool admitted(struct model *m, uint32_t id, struct rtxg_slice_tenant *t, struct counts *c)
{
	struct rtxg_slice_admission a;
	int err = rtxg_slice_admit(model_core(m), id, t, &a);

	c->asked += t->latency_ns ? 1 : 0;
	c->admitted += t->latency_ns && !err ? 1 : 0;
	if (err == -ERANGE) {
		assert_true(a.best_ns > t->latency_ns);
		t->latency_ns = a.best_ns;
		assert_int_equal(rtxg_slice_admit(model_core(m), id, t, &a), 0);
	} else if (err) {
		assert_int_equal(err, -EBUSY);
		assert_in_range(a.breaks, 0, id);
		return false;
	}
	if (t->latency_ns)
		assert_true(a.bound_ns && a.bound_ns <= t->latency_ns);
	return true;
}

static void one_set(uint64_t number, struct counts *c)
{
	static const uint64_t latencies[] = { 300 * US,	 500 * US, 750 * US, 1 * MS,
					      1500 * US, 2 * MS,   3 * MS,   5 * MS,
					      8 * MS,	 12 * MS,  20 * MS,  50 * MS };
	struct model *m = model_open(ALL, NULL, number);
	uint64_t bounds[VGPUS], until = 0;
	uint32_t bound, all, left = 1000000, n = 0;

	seed = number * 0x9e3779b97f4a7c15ull;
	bound = 2 + below(4);
	all = bound + below(3);
	for (uint32_t i = 0; i < all; i++) {
		struct rtxg_slice_tenant t = { .min_ppm = (1 + below(10)) * 40000 };
		struct model_program p = any_program();

		t.min_ppm = t.min_ppm < left ? t.min_ppm : left;
		t.latency_ns = i < bound ? AMONG(latencies) : 0;
		if (!admitted(m, n, &t, c))
			continue;
		left -= t.min_ppm;
		p.tenant = n;
		p.bound = t.latency_ns;
		bounds[n++] = t.latency_ns;
		model_tenant(m, p.tenant, t);
		if (!t.latency_ns && number % 2)
			model_couple(m, p.tenant, true);
		model_program(m, p);
		until += 200 * MS;
		model_run(m, until);
	}
	model_run(m, until + 4 * S);
	if (model_wrong(m))
		fail_msg("set %u: %s", (unsigned int)number, model_wrong(m));
	for (uint32_t i = 0; i < n; i++) {
		const struct model_stats *stats = model_stats(m, i);

		c->waits += stats->bound_count;
		if (bounds[i] && stats->bound_wait > bounds[i])
			fail_msg("set %u: %u of %u waits %u us with a bound of %u us, at %u us",
				 (unsigned int)number, i, n, (unsigned int)(stats->bound_wait / US),
				 (unsigned int)(bounds[i] / US),
				 (unsigned int)(stats->bound_wait_at / US));
	}
	model_close(m);
}

static void no_wait_of_an_admitted_vgpu_is_longer_than_its_bound(void **state)
{
	struct counts c = { 0 };

	for (int i = 1; i <= sets; i++)
		one_set((uint64_t)i, &c);
	print_message("%d sets: %u of %u bounds admitted as asked for, %u waits\n", sets,
		      c.admitted, c.asked, c.waits);
	/* Not because hardly anything is admitted, or waits. */
	assert_true(c.admitted > c.asked / 2);
	assert_true(c.waits > (uint32_t)sets * 500);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_wait_of_an_admitted_vgpu_is_longer_than_its_bound),
	};

	sets = argc > 1 ? atoi(argv[1]) : sets;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
