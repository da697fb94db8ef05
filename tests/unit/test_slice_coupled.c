// SPDX-License-Identifier: MIT
/*
 * test_slice_coupled.c - the steps of a training on two model GPUs (slice_gpus.h), each of which
 * needs both at once, beside another vGPU on both of them and beside others on one of them alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "slice_gpus.h"

#define US MODEL_US
#define MS MODEL_MS
#define S  MODEL_S
#define ALL                                                                     \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)
#define BEGINS	     (2 * S) /* all are there, and turns have settled */
#define ENDS	     (10 * S)
#define FIRST	     12u /* of the two vGPUs that are on both GPUs */
#define POINTS	     4	 /* that a share of all work may be off */
#define DRAWN_POINTS 6	 /* beside bounds that are too short to be stopped for */

/* In percent: the training, the other one on both GPUs, and those of one GPU, if any. */
struct scene {
	uint32_t training, other, rest;
	uint64_t bound;	   /* of the other one */
	uint32_t hogs[2];  /* programs of the vGPU that is on that GPU alone */
	uint32_t least[2]; /* percent of the time in which the training, and the other, get on */
	uint64_t own;	   /* bound of the training */
	uint32_t more[2];  /* hogs that each of the two has on each GPU beside its first program */
};

struct result {
	double use[2];	  /* percent of the time */
	double least;	  /* a share of all work less what is reserved, where that is least */
	double idle[2];	  /* percent of the time */
	uint64_t wait[2]; /* the longest one of each that has a bound */
};

static const struct model_program hog = { .kernel_ns = 2 * MS, .launches = 1000000, .depth = 8 };

static uint64_t sets = MODEL_SETS(12, 4); /* that are drawn */

struct counters {
	uint64_t use[2], work[2][3], all[2], idle[2];
};

/* more: programs of each of the two, whose numbers follow that of its first */
static struct counters count(struct model_gpus *gpus, const uint32_t id[2][2],
			     const uint32_t more[2])
{
	struct counters c = { 0 };

	for (uint32_t g = 0; g < 2; g++) {
		struct model *m = model_gpu(gpus, g);

		c.all[g] = model_work_ns(m);
		c.idle[g] = model_idle_ns(m);
		for (uint32_t k = 0; k < 2; k++) {
			c.work[g][k] = model_stats(m, id[g][k])->work_ns;
			c.use[k] = model_stats(m, id[g][k])->useful_ns;
			for (uint32_t i = 1; i <= more[k]; i++)
				c.work[g][k] += model_stats(m, id[g][k] + i)->work_ns;
		}
		c.work[g][2] = c.all[g] - c.work[g][0] - c.work[g][1];
	}
	return c;
}

/* `second`: the training's number is the higher one. `steady`: the other one never waits. */
static struct result play(const struct scene *scene, bool second, bool steady)
{
	const uint32_t min[3] = { scene->training, scene->other, scene->rest };
	const uint64_t bound[2] = { scene->own, scene->bound };
	struct model_gpus *gpus = model_gpus_open(2, ALL, 1);
	struct model_collective *with[2] = { model_gpus_collective(gpus, 2),
					     model_gpus_collective(gpus, 2) };
	struct counters before, after;
	struct result r = { .least = 100 };
	uint32_t id[2][2];

	for (uint32_t g = 0; g < 2; g++) {
		for (uint32_t k = 0; k < 2; k++) {
			uint32_t tenant = FIRST + (k ^ (second ? 1 : 0));
			struct model_program p = model_training(tenant, with[k], g);

			if (k && steady) {
				p = hog;
				p.tenant = tenant;
			}
			p.bound = bound[k];
			model_gpus_tenant(gpus, g, tenant,
					  (struct rtxg_slice_tenant){ .min_ppm = min[k] * 10000,
								      .latency_ns = bound[k] });
			id[g][k] = model_gpus_program(gpus, g, p);
			for (uint32_t i = 0; i < scene->more[k]; i++) {
				p = hog;
				p.tenant = tenant;
				p.bound = bound[k];
				model_gpus_program(gpus, g, p);
			}
		}
		for (uint32_t k = 0; k < scene->hogs[g]; k++) {
			struct model_program p = hog;

			p.tenant = g;
			p.start_ns = (g + 1) * 13 * MS;
			model_gpus_tenant(gpus, g, g,
					  (struct rtxg_slice_tenant){ .min_ppm = min[2] * 10000 });
			model_gpus_program(gpus, g, p);
		}
	}
	model_gpus_run(gpus, BEGINS);
	before = count(gpus, id, scene->more);
	model_gpus_run(gpus, ENDS);
	after = count(gpus, id, scene->more);
	assert_null(model_gpus_wrong(gpus));
	for (uint32_t k = 0; k < 2; k++)
		r.use[k] = 100.0 * (double)(after.use[k] - before.use[k]) / (ENDS - BEGINS);
	for (uint32_t g = 0; g < 2; g++) {
		for (uint32_t k = 0; k < 2; k++) {
			uint64_t wait = model_stats(model_gpu(gpus, g), id[g][k])->bound_wait;

			r.wait[k] = bound[k] && wait > r.wait[k] ? wait : r.wait[k];
		}
		r.idle[g] = 100.0 * (double)(after.idle[g] - before.idle[g]) / (ENDS - BEGINS);
		for (uint32_t k = 0; k < (scene->hogs[g] ? 3u : 2u); k++) {
			double got = 100.0 * (double)(after.work[g][k] - before.work[g][k]) /
				     (double)(after.all[g] - before.all[g]);

			r.least = got - min[k] < r.least ? got - min[k] : r.least;
		}
	}
	model_gpus_close(gpus);
	return r;
}

static struct result judge(const struct scene *scene, bool second, bool steady)
{
	struct result r = play(scene, second, steady);

	print_message("%u %% with %u ms, %u %% with %u ms%s%s, %u and %u others: of use %.1f and "
		      "%.1f %% of the time, least share %+.1f, longest waits %.1f and %.1f ms, "
		      "idle %.1f and %.1f %%\n",
		      scene->training, (unsigned int)(scene->own / MS), scene->other,
		      (unsigned int)(scene->bound / MS), steady ? ", steady" : "",
		      second ? ", second" : "", scene->hogs[0], scene->hogs[1], r.use[0], r.use[1],
		      r.least, (double)r.wait[0] / 1e6, (double)r.wait[1] / 1e6, r.idle[0],
		      r.idle[1]);
	/* Programs of one that has many wait for each other, too. */
	if (!scene->more[0] && !scene->more[1]) {
		assert_true(r.wait[0] <= scene->own);
		assert_true(r.wait[1] <= scene->bound);
	}
	return r;
}

static void judge_all(const struct scene *scenes, uint32_t n)
{
	for (uint32_t i = 0; i < n * 4; i++) {
		const struct scene *scene = &scenes[i / 4];
		struct result r = judge(scene, i & 1, i & 2);

		assert_true(r.least >= -POINTS);
		assert_true(r.use[0] >= scene->least[0]);
		assert_true(r.use[1] >= scene->least[1]);
		assert_true(r.idle[0] < 1 && r.idle[1] < 1);
	}
}

/* Where none has a bound each has its place, and slices alone never divide the two. */
static void both_keep_their_steps(void **state)
{
	static const struct scene scenes[] = {
		{ 40, 30, 30, 0, { 1, 0 }, { 36, 27 } },
		{ 25, 50, 25, 0, { 2, 1 }, { 22, 42 } },
		{ 60, 20, 20, 0, { 0, 3 }, { 55, 17 } },
	};

	judge_all(scenes, sizeof(scenes) / sizeof(scenes[0]));
	(void)state;
}

/* A bound that leaves time for the training's turns. */
static void steps_are_kept_beside_a_bound(void **state)
{
	static const struct scene scenes[] = {
		{ 40, 30, 30, 18 * MS, { 1, 0 }, { 33, 15 } },
		{ 40, 30, 30, 20 * MS, { 1, 0 }, { 33, 26 } },
		{ 40, 30, 30, 50 * MS, { 1, 0 }, { 36, 27 } },
		{ 40, 30, 30, 100 * MS, { 1, 0 }, { 37, 27 } },
		{ 40, 30, 30, 30 * MS, { 3, 1 }, { 33, 24 } },
	};

	judge_all(scenes, sizeof(scenes) / sizeof(scenes[0]));
	(void)state;
}

/* One that is too short for them, beside so many: it works in the training's turns then. */
static void a_short_bound_costs_steps_and_no_share(void **state)
{
	static const struct scene scenes[] = {
		{ 40, 30, 30, 20 * MS, { 1, 3 }, { 27, 10 } },
		{ 40, 30, 30, 13 * MS, { 1, 0 }, { 24, 11 } },
		{ 40, 30, 30, 10 * MS, { 1, 0 }, { 18, 12 } },
		{ 40, 30, 30, 6 * MS, { 1, 0 }, { 18, 12 } },
	};

	judge_all(scenes, sizeof(scenes) / sizeof(scenes[0]));
	(void)state;
}

/*
 * All are stopped whenever work of the other one is there. Those whose turn it was must not be let
 * go each time before the training, whose queues are empty while it waits, has been on the engine.
 */
static void a_turn_begins_between_arrivals(void **state)
{
	static const struct scene scenes[] = {
		{ 40, 30, 30, 10 * MS, { 1, 3 }, { 20, 8 } },
	};

	judge_all(scenes, sizeof(scenes) / sizeof(scenes[0]));
	(void)state;
}

/* Training has a bound of its own, and a vGPU on both GPUs has none: the frame is short. */
static void a_bound_of_the_training_leaves_it_its_steps(void **state)
{
	static const struct scene scenes[] = {
		{ 50, 50, 0, 0, { 0, 0 }, { 47, 47 }, .own = 20 * MS },
		{ 50, 50, 0, 0, { 0, 0 }, { 45, 45 }, .own = 100 * MS },
	};

	judge_all(scenes, sizeof(scenes) / sizeof(scenes[0]));
	(void)state;
}

/* Both on both GPUs have a bound: neither is stopped for the other one, and each has its place. */
static void two_bounds_leave_both_their_steps(void **state)
{
	static const struct scene scenes[] = {
		{ 40, 30, 30, 30 * MS, { 1, 0 }, { 36, 26 }, .own = 30 * MS },
		{ 50, 30, 20, 24 * MS, { 1, 0 }, { 45, 25 }, .own = 24 * MS },
		{ 60, 40, 0, 50 * MS, { 0, 0 }, { 56, 37 }, .own = 50 * MS },
		{ 40, 30, 30, 50 * MS, { 2, 1 }, { 33, 25 }, .own = 100 * MS },
	};

	judge_all(scenes, sizeof(scenes) / sizeof(scenes[0]));
	(void)state;
}

/*
 * One of the two has many contexts and a bound that is too short for them: it does not stand still
 * in the place of the other one, which is not far behind for ever.
 */
static void who_does_not_stand_still_takes_no_place_for_ever(void **state)
{
	static const struct scene scenes[] = {
		{ 40, 50, 10, 100 * MS, { 1, 1 }, { 0, 0 }, .own = 18 * MS, .more = { 2, 0 } },
		{ 40, 50, 10, 100 * MS, { 1, 1 }, { 0, 0 }, .own = 20 * MS, .more = { 2, 0 } },
		{ 50, 40, 10, 20 * MS, { 1, 1 }, { 15, 0 }, .own = 50 * MS, .more = { 0, 2 } },
	};

	judge_all(scenes, sizeof(scenes) / sizeof(scenes[0]));
	(void)state;
}

static uint32_t below(uint64_t *seed, uint32_t n)
{
	return (uint32_t)(model_next_random(seed) % n);
}

/* With hogs of any number beside them, bounds and shares are kept. */
static void drawn_sets_keep_bounds_and_shares(void **state)
{
	static const uint32_t bounds[] = { 0, 10, 13, 15, 18, 20, 25, 30, 50, 100 };
	enum { BOUNDS = sizeof(bounds) / sizeof(bounds[0]) };

	for (uint64_t number = 1; number <= sets; number++) {
		uint64_t seed = number * 0x9e3779b97f4a7c15ull;
		struct scene scene = {
			.training = 20 + 5 * below(&seed, 9),
			.other = 10 + 5 * below(&seed, 5),
			.own = bounds[below(&seed, BOUNDS)] * MS,
			.bound = bounds[below(&seed, BOUNDS)] * MS,
			.hogs = { below(&seed, 4), below(&seed, 4) },
			.more = { below(&seed, 3), below(&seed, 3) },
		};

		scene.rest = 100 - scene.training - scene.other;
		assert_true(judge(&scene, below(&seed, 2), below(&seed, 2)).least >= -DRAWN_POINTS);
	}
	(void)state;
}

/* test_slice_coupled [SETS]: how many are drawn */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_keep_their_steps),
		cmocka_unit_test(steps_are_kept_beside_a_bound),
		cmocka_unit_test(a_short_bound_costs_steps_and_no_share),
		cmocka_unit_test(a_turn_begins_between_arrivals),
		cmocka_unit_test(a_bound_of_the_training_leaves_it_its_steps),
		cmocka_unit_test(two_bounds_leave_both_their_steps),
		cmocka_unit_test(who_does_not_stand_still_takes_no_place_for_ever),
		cmocka_unit_test(drawn_sets_keep_bounds_and_shares),
	};

	if (argc > 1)
		sets = strtoull(argv[1], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
