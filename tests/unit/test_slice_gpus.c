// SPDX-License-Identifier: MIT
/*
 * test_slice_gpus.c - turns by the clock in life, on several model GPUs (slice_gpus.h): training
 * whose ranks wait for each other on the GPU, beside programs of one GPU each. All of them start,
 * end, are killed in the middle of a turn, pause and work in bursts. The number of random sets can
 * be given: test_slice_gpus [SETS].
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "slice_gpus.h"

#define US MODEL_US
#define MS MODEL_MS
#define S  MODEL_S
#define ALL                                                                     \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)
#define WAIT	    (75 * MS) /* over its share: the longest that a program with work waits */
#define TRAINING    12u	      /* the first vGPU with one; those below are on one GPU each */
#define BEGINS	    (2 * S)   /* all that stay are there by then */
#define ENDS	    (12 * S)
#define POINTS	    3 /* of a share over the time from one to the other */
#define AMONG(list) (list)[below(sizeof(list) / sizeof((list)[0]))]

static int sets = MODEL_SETS(15, 8);
static uint64_t seed;

static uint32_t below(uint32_t n)
{
	return (uint32_t)(model_next_random(&seed) % n);
}

static double percent_of(uint64_t ns, uint64_t of)
{
	return 100.0 * (double)ns / (double)of;
}

/* One program of a random set. */
struct member {
	uint32_t gpu, id, tenant, min;
	bool always;   /* it has work whenever it is there */
	bool stays;    /* it is there to the end */
	uint64_t work; /* when it was there for certain */
};

struct set {
	struct model_gpus *gpus;
	uint32_t gpu_count, count, left[MODEL_GPUS];
	struct member member[MODEL_GPUS * 8];
	struct model_collective *with[2];
	uint32_t collectives;
};

static void add(struct set *set, uint32_t gpu, uint32_t tenant, uint32_t min, bool always,
		struct model_program program)
{
	struct member *member = &set->member[set->count++];

	program.tenant = tenant;
	*member = (struct member){ .gpu = gpu,
				   .tenant = tenant,
				   .min = min,
				   .always = always,
				   .stays = !program.life_ns };
	model_gpus_tenant(set->gpus, gpu, tenant, (struct rtxg_slice_tenant){ .min_ppm = min });
	member->id = model_gpus_program(set->gpus, gpu, program);
	set->left[gpu] -= min;
}

/* It comes and goes: killed after some time, it comes again. */
static void give_life(struct model_program *p)
{
	p->start_ns = below(1500) * MS;
	if (below(3) == 0)
		return;
	p->life_ns = (300 + below(3000)) * MS + below(50000) * US;
	p->rest_ns = (50 + below(1000)) * MS;
	p->building_ns = (20 + below(150)) * MS;
}

static void add_training(struct set *set, uint32_t tenant)
{
	static const uint64_t kernels[] = { 100 * US, 300 * US, 1 * MS, 3 * MS };
	uint32_t ranks = 2 + below(set->gpu_count - 1), first = below(set->gpu_count),
		 min = 1000000;
	struct model_collective *with = model_gpus_collective(set->gpus, ranks);
	struct model_program p = { .kernel_ns = AMONG(kernels),
				   .collective_ns = AMONG(kernels),
				   .launches = 2 * (1 + below(40)),
				   .with = with };
	uint32_t early = below(4) ? 0 : (50 + below(200));

	set->with[set->collectives++] = with;
	p.depth = 2 + below(p.launches);
	p.cpu_ns = below(2) ? 50 * US : below(4000) * US;
	if (!below(3)) {
		p.burst = 1 + below(8);
		p.pause_min_ns = 20 * MS;
		p.pause_max_ns = 300 * MS;
	}
	give_life(&p);
	for (uint32_t r = 0; r < ranks; r++) {
		uint32_t left = set->left[(first + r) % set->gpu_count];

		min = left < min ? left : min;
	}
	if (min > 600000)
		min = 600000;
	min = min > 100000 ? 100000 + below((min - 100000) / 10000 + 1) * 10000 : min;
	for (uint32_t r = 0; r < ranks; r++) {
		struct model_program rank = p;

		rank.rank = r;
		/*
		 * The last rank is killed before the others, which wait for it until they are, too.
		 */
		if (r == ranks - 1 && p.life_ns > early * MS) {
			rank.life_ns = p.life_ns ? p.life_ns - early * MS : 0;
			rank.rest_ns = p.rest_ns + (p.life_ns ? early * MS : 0);
		}
		add(set, (first + r) % set->gpu_count, tenant, min, !p.burst && p.cpu_ns <= 50 * US,
		    rank);
	}
}

static void add_other(struct set *set, uint32_t gpu, uint32_t tenant, bool last)
{
	static const uint64_t kernels[] = { 100 * US, 1 * MS, 2 * MS, 10 * MS };
	struct model_program p = { .kernel_ns = AMONG(kernels) };
	uint32_t left = set->left[gpu] / 10000, min = last ? left : 1 + below(left);
	bool always = false;

	switch (below(4)) {
	case 0:
	case 1:
		p.launches = 1000000;
		p.depth = 1 + below(8);
		always = p.depth > 2 || p.kernel_ns > 1 * MS;
		break;
	case 2:
		p.launches = 1 + below(50);
		p.depth = 1 + below(32);
		p.cpu_ns = (100 + below(10000)) * US;
		break;
	default:
		p.launches = 1 + below(22);
		p.depth = 1 + below(32);
		p.cpu_ns = (100 + below(1000)) * US;
		p.burst = 1 + below(8);
		p.pause_min_ns = 5 * MS;
		p.pause_max_ns = 200 * MS;
		break;
	}
	give_life(&p);
	add(set, gpu, tenant, min * 10000, always, p);
}

static void make_set(struct set *set, uint64_t number)
{
	uint32_t trainings;

	seed = number * 0x9e3779b97f4a7c15ull;
	*set = (struct set){ .gpu_count = 2 + below(MODEL_GPUS - 1) };
	set->gpus = model_gpus_open(set->gpu_count, ALL, number);
	for (uint32_t g = 0; g < set->gpu_count; g++)
		set->left[g] = 1000000;
	trainings = 1 + (below(3) == 0);
	for (uint32_t k = 0; k < trainings; k++)
		add_training(set, TRAINING + k);
	for (uint32_t g = 0; g < set->gpu_count; g++) {
		uint32_t others = 1 + below(3);

		for (uint32_t k = 0; k < others && set->left[g] >= 20000; k++)
			add_other(set, g, 3 * g + k, k == others - 1);
	}
}

struct counts {
	double idle, apart;  /* percent of the time, of all GPUs together */
	double useful, work; /* of training that always has work and stays, where it has least */
	double wait;	     /* ms, over its share: the longest of a program with work */
	uint32_t gpus, programs, shares;
};

static void waits_are_bounded(const struct set *set, uint64_t number, struct counts *c)
{
	for (uint32_t i = 0; i < set->count; i++) {
		const struct member *b = &set->member[i];
		const struct model_stats *stats = model_stats(model_gpu(set->gpus, b->gpu), b->id);
		uint64_t most = WAIT * 1000000 / b->min;
		double wait = (double)stats->longest_ns / 1e6 * b->min / 1e6;

		c->programs++;
		c->wait = wait > c->wait ? wait : c->wait;
		if (stats->longest_ns > most)
			fail_msg("set %u: vGPU %u with %u %% of GPU %u waited %u ms, at %u ms",
				 (unsigned int)number, b->tenant, b->min / 10000, b->gpu,
				 (unsigned int)(stats->longest_ns / MS),
				 (unsigned int)(stats->longest_at / MS));
	}
}

static void shares_are_kept(const struct set *set, const uint64_t before[MODEL_GPUS],
			    uint64_t number, struct counts *c)
{
	uint64_t least = UINT64_MAX, useful = 0;

	for (uint32_t i = 0; i < set->count; i++) {
		const struct member *b = &set->member[i];
		struct model *m = model_gpu(set->gpus, b->gpu);
		double got = percent_of(model_stats(m, b->id)->work_ns - b->work,
					model_work_ns(m) - before[b->gpu]);

		if (!b->stays || !b->always)
			continue;
		c->shares++;
		if (got < b->min / 1e4 - POINTS)
			fail_msg("set %u: vGPU %u got %.1f of %u %% of GPU %u",
				 (unsigned int)number, b->tenant, got, b->min / 10000, b->gpu);
		if (b->tenant < TRAINING || set->collectives > 1)
			continue;
		least = model_stats(m, b->id)->work_ns < least ? model_stats(m, b->id)->work_ns
							       : least;
		useful = model_stats(m, b->id)->useful_ns;
	}
	c->useful += (double)useful;
	c->work += useful ? (double)least : 0;
}

static double idle_of(struct model_gpus *gpus, uint32_t count)
{
	double idle = 0;

	for (uint32_t g = 0; g < count; g++)
		idle += percent_of(model_idle_ns(model_gpu(gpus, g)), ENDS);
	return idle;
}

static void one_set(uint64_t number, struct counts *c)
{
	uint64_t before[MODEL_GPUS];
	struct set set;

	make_set(&set, number);
	model_gpus_uncouple(set.gpus);
	model_gpus_run(set.gpus, ENDS);
	c->apart += idle_of(set.gpus, set.gpu_count);
	model_gpus_close(set.gpus);
	make_set(&set, number);
	model_gpus_run(set.gpus, BEGINS);
	for (uint32_t g = 0; g < set.gpu_count; g++)
		before[g] = model_work_ns(model_gpu(set.gpus, g));
	for (uint32_t i = 0; i < set.count; i++)
		set.member[i].work =
			model_stats(model_gpu(set.gpus, set.member[i].gpu), set.member[i].id)
				->work_ns;
	model_gpus_run(set.gpus, ENDS);
	if (model_gpus_wrong(set.gpus))
		fail_msg("set %u: %s", (unsigned int)number, model_gpus_wrong(set.gpus));
	waits_are_bounded(&set, number, c);
	shares_are_kept(&set, before, number, c);
	c->idle += idle_of(set.gpus, set.gpu_count);
	c->gpus += set.gpu_count;
	model_gpus_close(set.gpus);
}

static void programs_that_come_and_go_get_what_they_are_due(void **state)
{
	/* In this set a small share is far ahead when others come: it waited for 658 ms once. */
	static const int far_ahead = 70;
	struct counts c = { 0 };

	for (int i = 1; i <= sets; i++)
		one_set((uint64_t)i, &c);
	if (sets < far_ahead)
		one_set((uint64_t)far_ahead, &c);
	print_message("%d sets, %u GPUs, %u programs: idle %.2f %% (%.2f apart); of %u shares none "
		      "below; the longest wait is %.1f ms over its share; %.1f %% of the "
		      "training's time is of use\n",
		      sets, c.gpus, c.programs, c.idle / c.gpus, c.apart / c.gpus, c.shares, c.wait,
		      100 * c.useful / c.work);
	assert_true(c.programs > (uint32_t)sets * 4);
	assert_true(c.shares > (uint32_t)sets / 2);
	/* Beside turns by the clock pauses are not used that are too short for turns. */
	assert_true(c.idle / c.gpus < c.apart / c.gpus + 0.7);
	assert_true(c.useful > 0.75 * c.work);
}

static const struct model_program hog = { .kernel_ns = 2 * MS, .launches = 1000000, .depth = 8 };

/* Two hogs on each of two GPUs, and training that is killed after `life`, if it is not 0. */
static struct model_gpus *two_gpus(uint64_t life, uint32_t id[2][2])
{
	struct model_gpus *all = model_gpus_open(2, ALL, 1);
	struct model_collective *with = model_gpus_collective(all, 2);

	for (uint32_t g = 0; g < 2; g++) {
		struct model_program training = model_training(TRAINING, with, g);

		training.life_ns = life;
		training.rest_ns = 1000 * S;

		for (uint32_t k = 0; k < 2; k++) {
			struct model_program p = hog;

			p.tenant = 3 * g + k;
			model_gpus_tenant(all, g, p.tenant,
					  (struct rtxg_slice_tenant){ .min_ppm = 300000 });
			id[g][k] = model_gpus_program(all, g, p);
		}
		model_gpus_tenant(all, g, TRAINING,
				  (struct rtxg_slice_tenant){ .min_ppm = 400000 });
		if (life)
			model_gpus_program(all, g, training);
	}
	return all;
}

static void the_clock_ends_with_the_last_program_that_needs_it(void **state)
{
	uint64_t stops[2], work[2][2][2];
	uint32_t id[2][2];

	for (int i = 0; i < 2; i++) {
		struct model_gpus *all = two_gpus(i ? 2 * S + 7 * MS : 0, id);
		uint64_t before;

		model_gpus_run(all, 3 * S);
		before = model_host(model_gpu(all, 0))->stops;
		for (uint32_t k = 0; k < 4; k++)
			work[i][k / 2][k % 2] =
				model_stats(model_gpu(all, k / 2), id[k / 2][k % 2])->work_ns;
		model_gpus_run(all, 8 * S);
		stops[i] = model_host(model_gpu(all, 0))->stops - before;
		for (uint32_t k = 0; k < 4; k++)
			work[i][k / 2][k % 2] =
				model_stats(model_gpu(all, k / 2), id[k / 2][k % 2])->work_ns -
				work[i][k / 2][k % 2];
		assert_null(model_gpus_wrong(all));
		model_gpus_close(all);
	}
	print_message("stops in 5 s: %u without training, %u after it\n", (unsigned int)stops[0],
		      (unsigned int)stops[1]);
	assert_true(stops[1] < stops[0] * 102 / 100 + 2 && stops[1] > stops[0] * 98 / 100 - 2);
	for (uint32_t k = 0; k < 4; k++) {
		double off = percent_of(work[1][k / 2][k % 2], 5 * S) -
			     percent_of(work[0][k / 2][k % 2], 5 * S);

		assert_true(off < 0.5 && off > -0.5);
	}
}

/* On one GPU, or on each, beside what makes turns short. */
static void the_clock_is_kept_beside_critical_tasks_and_short_bounds(void **state)
{
	static const struct rtxg_slice_tenant tenants[] = {
		{ .priority = RTXG_SLICE_CRITICAL_PRIORITY },
		{ .priority = RTXG_SLICE_CRITICAL_PRIORITY, .period_ns = 10 * MS },
		{ .min_ppm = 300000, .latency_ns = 1 * MS },
	};
	static const struct model_program programs[] = {
		{ .kernel_ns = 100 * US,
		  .burst = 1,
		  .pause_min_ns = 10 * MS,
		  .pause_max_ns = 11 * MS },
		{ .kernel_ns = 100 * US, .period_ns = 10 * MS },
		{ .kernel_ns = 100 * US,
		  .launches = 22,
		  .depth = 32,
		  .cpu_ns = 400 * US,
		  .burst = 8,
		  .pause_min_ns = 20 * MS,
		  .pause_max_ns = 120 * MS },
	};
	static const uint64_t most[] = { 350 * US, 100 * US, 1 * MS };

	for (uint32_t i = 0; i < 6; i++) {
		struct model_gpus *all = model_gpus_open(2, ALL, 1);
		struct model_collective *with = model_gpus_collective(all, 2);
		uint64_t least = UINT64_MAX, useful = 0;
		uint32_t on = 1 + i / 3, id[2], urgent[2];

		for (uint32_t g = 0; g < 2; g++) {
			struct model_program other = hog, p = programs[i % 3];

			model_gpus_tenant(all, g, TRAINING,
					  (struct rtxg_slice_tenant){ .min_ppm = 400000 });
			id[g] = model_gpus_program(all, g, model_training(TRAINING, with, g));
			other.tenant = 3 * g;
			other.start_ns = (g + 1) * 13 * MS;
			model_gpus_tenant(all, g, other.tenant,
					  (struct rtxg_slice_tenant){ .min_ppm = 300000 });
			model_gpus_program(all, g, other);
			if (g >= on)
				continue;
			p.tenant = 3 * g + 1;
			p.start_ns = 500 * MS;
			p.bound = tenants[i % 3].latency_ns;
			model_gpus_tenant(all, g, p.tenant, tenants[i % 3]);
			urgent[g] = model_gpus_program(all, g, p);
		}
		model_gpus_run(all, 10 * S);
		assert_null(model_gpus_wrong(all));
		for (uint32_t g = 0; g < 2; g++) {
			const struct model_stats *stats = model_stats(model_gpu(all, g), id[g]);

			least = stats->work_ns < least ? stats->work_ns : least;
			useful = stats->useful_ns;
			if (g >= on)
				continue;
			stats = model_stats(model_gpu(all, g), urgent[g]);
			assert_true(model_quantile(stats->waits, stats->wait_count, 50, 0.98) <=
				    most[i % 3]);
			assert_true(stats->bound_wait <= most[i % 3]);
		}
		print_message("%u: on %u of 2: %.1f %% of the time, of that %.1f %% of use\n",
			      i % 3, on, percent_of(least, 10 * S), percent_of(useful, least));
		assert_true(percent_of(least, 10 * S) > 38);
		/* Two chats interrupt it at other times on each GPU. */
		assert_true(percent_of(useful, least) > (i == 5 ? 60 : 80));
		model_gpus_close(all);
	}
}

/* One that works all the time, or in bursts as one that decodes does, with a bound of its own. */
static void a_bound_of_ones_own_keeps_the_clock(void **state)
{
	static const struct {
		uint64_t latency;
		uint32_t min, hogs;
		bool close, bursts;
	} cases[] = {
		{ 20 * MS, 500000, 1 },
		{ 20 * MS, 500000, 2 },
		{ 20 * MS, 800000, 1 },
		{ 40 * MS, 500000, 1 },
		{ 40 * MS, 300000, 2 },
		{ 25 * MS, 200000, 2 },
		{ 100 * MS, 400000, 1 },
		/* They may stand still for less than the others' part of a frame, or not at all. */
		{ 22 * MS, 250000, 3, .close = true },
		{ 18 * MS, 300000, 1, .close = true },
		{ 18 * MS, 200000, 2, .close = true },
		{ 30 * MS, 100000, 3, .close = true },
		/* The ranks of the model pause apart, and wait for each other then. */
		{ 20 * MS, 500000, 1, .bursts = true },
		{ 40 * MS, 400000, 2, .bursts = true },
	};

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct model_gpus *all = model_gpus_open(2, ALL, 1 + i);
		struct model_collective *with = model_gpus_collective(all, 2);
		uint64_t least = UINT64_MAX, useful = 0, wait = 0, acts = 0;
		uint32_t id[2], counted = 0;

		for (uint32_t g = 0; g < 2; g++) {
			struct model_program p = model_training(TRAINING, with, g);

			p.bound = true;
			if (cases[i].bursts) {
				p.burst = 2;
				p.pause_min_ns = 20 * MS;
				p.pause_max_ns = 120 * MS;
			}
			model_gpus_tenant(
				all, g, TRAINING,
				(struct rtxg_slice_tenant){ .min_ppm = cases[i].min,
							    .latency_ns = cases[i].latency });
			id[g] = model_gpus_program(all, g, p);
			for (uint32_t k = 0; k < cases[i].hogs; k++) {
				struct model_program other = hog;

				other.tenant = 3 * g + k;
				other.start_ns = (g + 1) * 13 * MS;
				model_gpus_tenant(all, g, other.tenant,
						  (struct rtxg_slice_tenant){
							  .min_ppm = (1000000 - cases[i].min) /
								     cases[i].hogs });
				model_gpus_program(all, g, other);
			}
		}
		model_gpus_run(all, 10 * S);
		assert_null(model_gpus_wrong(all));
		for (uint32_t g = 0; g < 2; g++) {
			const struct model_stats *stats = model_stats(model_gpu(all, g), id[g]);
			const struct model_host *host = model_host(model_gpu(all, g));

			least = stats->work_ns < least ? stats->work_ns : least;
			useful = stats->useful_ns;
			wait = stats->bound_wait > wait ? stats->bound_wait : wait;
			counted += stats->bound_count;
			acts = host->stops + host->resumes + host->sets;
		}
		print_message("%u ms, %u %%, %u others: %.1f %% of the time, of that %.1f %% of "
			      "use, longest wait of %u %.1f ms, %u acts a second\n",
			      (unsigned int)(cases[i].latency / MS), cases[i].min / 10000,
			      cases[i].hogs, percent_of(least, 10 * S), percent_of(useful, least),
			      counted, (double)wait / MS, (unsigned int)(acts / 10));
		assert_true(counted > 0);
		assert_true(wait <= cases[i].latency);
		if (!cases[i].bursts)
			assert_true(percent_of(least, 10 * S) > cases[i].min / 1e4 - 4);
		if (!cases[i].bursts && !cases[i].close)
			assert_true(percent_of(useful, least) > 90);
		model_gpus_close(all);
	}
	(void)state;
}

/*
 * Two vGPUs on both GPUs, the second with a bound. On one GPU there are so many others that it
 * cannot take its place in turns there. The first has its turns at the same time on both for that.
 */
static void frames_are_alike_though_a_bound_counts_on_one_gpu_alone(void **state)
{
	struct model_gpus *all = model_gpus_open(2, ALL, 1);
	uint64_t least = UINT64_MAX, useful = 0;
	uint32_t id[2];

	for (uint32_t k = 0; k < 2; k++) {
		struct model_collective *with = model_gpus_collective(all, 2);

		for (uint32_t g = 0; g < 2; g++) {
			struct model_program p = model_training(TRAINING + k, with, g);
			uint32_t rank;

			p.bound = k;
			model_gpus_tenant(
				all, g, TRAINING + k,
				(struct rtxg_slice_tenant){ .min_ppm = k ? 300000 : 400000,
							    .latency_ns = k ? 20 * MS : 0 });
			rank = model_gpus_program(all, g, p);
			id[g] = k ? id[g] : rank;
		}
	}
	for (uint32_t i = 0; i < 4; i++) {
		struct model_program p = hog;

		p.tenant = i ? 3 : 0;
		model_gpus_tenant(all, i ? 1 : 0, p.tenant,
				  (struct rtxg_slice_tenant){ .min_ppm = 300000 });
		model_gpus_program(all, i ? 1 : 0, p);
	}
	model_gpus_run(all, 10 * S);
	assert_null(model_gpus_wrong(all));
	for (uint32_t g = 0; g < 2; g++) {
		const struct model_stats *stats = model_stats(model_gpu(all, g), id[g]);

		least = stats->work_ns < least ? stats->work_ns : least;
		useful = stats->useful_ns;
	}
	print_message("beside a bound that counts on one GPU: %.1f %% of the time, of that %.1f %% "
		      "of use\n",
		      percent_of(least, 10 * S), percent_of(useful, least));
	assert_true(percent_of(useful, least) > 65);
	model_gpus_close(all);
	(void)state;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs_that_come_and_go_get_what_they_are_due),
		cmocka_unit_test(the_clock_ends_with_the_last_program_that_needs_it),
		cmocka_unit_test(the_clock_is_kept_beside_critical_tasks_and_short_bounds),
		cmocka_unit_test(a_bound_of_ones_own_keeps_the_clock),
		cmocka_unit_test(frames_are_alike_though_a_bound_counts_on_one_gpu_alone),
	};

	sets = argc > 1 ? atoi(argv[1]) : sets;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
