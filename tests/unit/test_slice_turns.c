// SPDX-License-Identifier: MIT
/*
 * test_slice_turns.c - vGPUs beside a critical task on a model GPU (slice_model.h): drawn sets of
 * programs with long kernels, with short ones and with gaps have their shares.
 *
 *     test_slice_turns [SETS]	(50 without it, 6 under AddressSanitizer)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "slice_model_internal.h"

#define S MODEL_S
#define ALL                                                                     \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)
#define VGPUS 4u
/* Windows: turns begin; what programs do has been learnt. */
#define BEGINS	(S / 5)
#define LEARNT	(BEGINS + 2 * S)
#define SETTLED (LEARNT + S)
#define ENDS	(SETTLED + 6 * S)
/* Points of a share that one that always has work may be below it. */
#define OFF_AT_FIRST 8.0
#define OFF	     3.0
#define OFF_BOUNDS   6.0 /* who has a bound may be ahead by 100 ms of work */
/* The task's p99 in us, and where programs come: those have slices of 2 ms until they are set. */
#define LATE	   1000.0
#define LATE_LIVES 3000.0
/*
 * The training passes its turn on at the end of each step of 45 ms, and the turn of another lasts
 * for 25 ms and until the task has just run: it cannot have more, in percent.
 */
#define TRAINING_MOST 60.0
#define TRAINING_OFF  12.0
#define TRAINING_LESS 20.0 /* where turns are shorter than its steps, for bounds of others */

#define COMERS 4 /* programs that come one after the other */

enum kind { HOG, WAITS, WAITS_LESS, DEEP, ROUNDS, TRAINING, KINDS };

static const struct model_program programs[KINDS] = {
	[HOG] = { .kernel_ns = 2 * MS, .launches = 1000000, .depth = 8 },
	[WAITS] = { .kernel_ns = 20 * MS, .cpu_ns = 20 * US },
	[WAITS_LESS] = { .kernel_ns = 5 * MS, .cpu_ns = 30 * US },
	[DEEP] = { .kernel_ns = 20 * MS, .launches = 1000000, .depth = 2 },
	[ROUNDS] = { .kernel_ns = 650 * US, .launches = 20, .depth = 20, .cpu_ns = 100 * US },
	[TRAINING] = { .kernel_ns = 300 * US, .launches = 150, .depth = 64, .cpu_ns = 12 * MS },
};

static unsigned int sets = MODEL_SETS(50, 6);

/* In these a kernel of the second one ends again and again as its turn is passed on. */
static const unsigned int in_step[] = { 344 };

/* In these three with a bound may be further ahead together than one is owed beside fewer. */
static const unsigned int three_ahead[] = { 137 };

struct vgpu {
	enum kind kind;
	uint32_t min, program; /* min: percent */
	uint64_t bound, work;
};

struct set {
	struct model *m;
	struct vgpu vgpus[VGPUS];
	uint32_t n, min, critical;
};

static uint32_t draw(uint64_t *seed, uint32_t below)
{
	return (uint32_t)(model_next_random(seed) % below);
}

/* It comes and goes, or works in bursts, or stays as it is. */
static void give_life(uint64_t *seed, struct model_program *p)
{
	switch (draw(seed, 3)) {
	case 0:
		p->start_ns = (200 + draw(seed, 2000)) * MS;
		p->life_ns = (500 + draw(seed, 2000)) * MS;
		p->rest_ns = (50 + draw(seed, 500)) * MS;
		p->building_ns = 150 * MS;
		break;
	case 1:
		p->launches = 1 + draw(seed, 80);
		p->burst = 1 + draw(seed, 3);
		p->pause_min_ns = 20 * MS;
		p->pause_max_ns = 300 * MS;
		p->cpu_ns = 50 * US;
		break;
	default:
		break;
	}
}

/*
 * Two to four vGPUs, and a task of 100 us: nearly periodic, sporadic, or with long pauses. With
 * `bounds` one to three of the vGPUs have one, and the task may be periodic. With `lives` programs
 * come, go and pause.
 */
static void open_set(struct set *set, unsigned int number, bool bounds, bool lives)
{
	static const uint64_t pauses[][2] = { { 10 * MS, 10 * MS + 200 * US },
					      { 10 * MS, 11 * MS },
					      { 4 * MS, 30 * MS } };
	static const uint64_t bound_of[] = { 8 * MS, 15 * MS, 20 * MS, 30 * MS, 50 * MS, 100 * MS };
	static const uint64_t periods[] = { 0, 0, 10 * MS, 33 * MS, 100 * MS };
	uint64_t seed = number * 977ull;
	struct model_program p = { .kernel_ns = 100 * US, .burst = 1 };
	uint32_t pause, bounded;

	*set = (struct set){ .m = model_open(ALL, NULL, number), .n = 2 + draw(&seed, VGPUS - 1) };
	pause = draw(&seed, 3);
	bounded = bounds ? 1 + draw(&seed, 3) : 0;
	p.pause_min_ns = pauses[pause][0];
	p.pause_max_ns = pauses[pause][1];
	p.period_ns = bounds ? periods[draw(&seed, 5)] : 0;
	model_tenant(set->m, 0,
		     (struct rtxg_slice_tenant){ .priority = RTXG_SLICE_CRITICAL_PRIORITY,
						 .period_ns = p.period_ns });
	set->critical = model_program(set->m, p);
	for (uint32_t i = 0; i < set->n; i++) {
		struct vgpu *v = &set->vgpus[i];

		v->min = 5 + draw(&seed, 90 / set->n);
		v->kind = draw(&seed, KINDS);
		v->bound = i < bounded ? bound_of[draw(&seed, 6)] : 0;
		set->min += v->min;
		model_tenant(set->m, i + 1,
			     (struct rtxg_slice_tenant){ .min_ppm = v->min * 10000,
							 .latency_ns = v->bound });
		p = programs[v->kind];
		p.tenant = i + 1;
		p.bound = v->bound > 0;
		if (lives)
			give_life(&seed, &p);
		v->program = model_program(set->m, p);
	}
}

static void run_until(struct set *set, uint64_t until)
{
	model_run(set->m, until);
	for (uint32_t i = 0; i < set->n; i++)
		set->vgpus[i].work = model_stats(set->m, set->vgpus[i].program)->work_ns;
}

/* Who is below its share of what all have worked since `before`, and by how much. */
static double judge(const struct set *before, const struct set *now, unsigned int number,
		    double most)
{
	double all = 0, worst = 0;
	bool bounds = false;

	for (uint32_t i = 0; i < now->n; i++)
		bounds = bounds || now->vgpus[i].bound;
	for (uint32_t i = 0; i < now->n; i++)
		all += (double)(now->vgpus[i].work - before->vgpus[i].work);
	assert_true(all > 0);
	for (uint32_t i = 0; i < now->n; i++) {
		const struct vgpu *v = &now->vgpus[i];
		double got = 100.0 * (double)(v->work - before->vgpus[i].work) / all;
		double due = 100.0 * v->min / now->min, least = most;

		if (v->kind == TRAINING) {
			due = due < TRAINING_MOST ? due : TRAINING_MOST;
			least = bounds ? TRAINING_LESS : TRAINING_OFF;
		}
		if (due - got > least)
			fail_msg("set %u: vGPU %u (kind %d) has %.1f for %.1f %%", number, i + 1,
				 (int)v->kind, got, due);
		if (v->kind != TRAINING && due - got > worst)
			worst = due - got;
	}
	return worst;
}

/*
 * The worst of all sets: points below a share at first and later, the task's p99 in us, and a wait
 * as a part of its bound. And the work of all, in percent of the time, summed up.
 */
struct worst {
	double first, later, late, wait, work;
	uint32_t waits;
};

static double greater(double a, double b)
{
	return a > b ? a : b;
}

static void look_at_task(const struct set *set, unsigned int number, double most,
			 struct worst *worst)
{
	const struct model_stats *task = model_stats(set->m, set->critical);
	double p99 = (double)model_quantile(task->waits, task->wait_count, 20, 0.99) / 1e3;

	worst->late = greater(worst->late, p99);
	if (p99 >= most)
		fail_msg("set %u: the task's p99 is %.0f us", number, p99);
	if (model_wrong(set->m))
		fail_msg("set %u: %s", number, model_wrong(set->m));
}

static void run_set(unsigned int number, struct worst *worst)
{
	struct set set, began;

	open_set(&set, number, false, false);
	run_until(&set, BEGINS);
	began = set;
	run_until(&set, LEARNT);
	worst->first = greater(worst->first, judge(&began, &set, number, OFF_AT_FIRST));
	run_until(&set, SETTLED);
	began = set;
	run_until(&set, ENDS);
	worst->later = greater(worst->later, judge(&began, &set, number, OFF));
	look_at_task(&set, number, LATE, worst);
	model_close(set.m);
}

static void shares_are_kept_beside_a_critical_task(void **state)
{
	struct worst worst = { 0 };

	(void)state;
	for (unsigned int k = 1; k <= sets; k++)
		run_set(k, &worst);
	for (unsigned int i = 0; i < sizeof(in_step) / sizeof(*in_step); i++)
		run_set(in_step[i], &worst);
	print_message("%u sets: at first %.1f, later %.1f points below; the task's p99 %.0f us\n",
		      sets, worst.first, worst.later, worst.late);
}

static void look_at_bounds(const struct set *set, unsigned int number, struct worst *worst)
{
	for (uint32_t i = 0; i < set->n; i++) {
		const struct vgpu *v = &set->vgpus[i];
		const struct model_stats *stats = model_stats(set->m, v->program);

		if (!v->bound)
			continue;
		worst->waits += stats->bound_count;
		worst->wait = greater(worst->wait, (double)stats->bound_wait / (double)v->bound);
		if (stats->bound_wait > v->bound)
			fail_msg("set %u: vGPU %u (kind %d) waits for %.1f of %.0f ms", number,
				 i + 1, (int)v->kind, (double)stats->bound_wait / 1e6,
				 (double)v->bound / 1e6);
	}
}

static void run_bounds(unsigned int number, struct worst *worst)
{
	struct set set, began;

	open_set(&set, number, true, false);
	run_until(&set, SETTLED);
	began = set;
	run_until(&set, ENDS);
	worst->later = greater(worst->later, judge(&began, &set, number, OFF_BOUNDS));
	for (uint32_t i = 0; i < set.n; i++)
		worst->work +=
			(double)(set.vgpus[i].work - began.vgpus[i].work) * 100 / (ENDS - SETTLED);
	look_at_bounds(&set, number, worst);
	look_at_task(&set, number, LATE, worst);
	model_close(set.m);
}

/* Those with a bound that always have work take turns, and do not lose the engine to switches. */
static void bounds_and_shares_are_kept_beside_a_critical_task(void **state)
{
	struct worst worst = { 0 };

	(void)state;
	for (unsigned int k = 1; k <= sets; k++)
		run_bounds(k, &worst);
	print_message("%u sets with bounds: %.1f %% of the time is work; %.1f points below; of %u "
		      "waits the longest is %.2f of its bound; the task's p99 %.0f us\n",
		      sets, worst.work / sets, worst.later, worst.waits, worst.wait, worst.late);
	assert_true(worst.work / sets > 80);
	assert_true(worst.waits > sets * 10);
	for (unsigned int i = 0; i < sizeof(three_ahead) / sizeof(*three_ahead); i++)
		run_bounds(three_ahead[i], &worst);
}

static void bounds_are_kept_where_programs_come_and_go(void **state)
{
	struct worst worst = { 0 };

	(void)state;
	for (unsigned int k = 1; k <= sets; k++) {
		struct set set;

		open_set(&set, k, true, true);
		run_until(&set, ENDS);
		look_at_bounds(&set, k, &worst);
		look_at_task(&set, k, LATE_LIVES, &worst);
		model_close(set.m);
	}
	print_message("%u sets that come and go: of %u waits the longest is %.2f of its bound; the "
		      "task's p99 %.0f us\n",
		      sets, worst.waits, worst.wait, worst.late);
	assert_true(worst.waits > sets * 10);
}

/* A vGPU with a bound has three programs, and each has its turns, as has the other vGPU. */
static void programs_of_a_vgpu_with_a_bound_have_turns_in_turn(void **state)
{
	struct model_program task = {
		.kernel_ns = 100 * US, .burst = 1, .pause_min_ns = 10 * MS, .pause_max_ns = 11 * MS
	};
	struct model *m = model_open(ALL, NULL, 1);
	double all = 0;

	(void)state;
	model_tenant(m, 0, (struct rtxg_slice_tenant){ .priority = RTXG_SLICE_CRITICAL_PRIORITY });
	model_tenant(m, 1, (struct rtxg_slice_tenant){ .min_ppm = 300000, .latency_ns = 10 * MS });
	model_tenant(m, 2, (struct rtxg_slice_tenant){ .min_ppm = 500000 });
	model_program(m, task);
	for (uint32_t i = 1; i <= 4; i++) {
		struct model_program p = programs[HOG];

		p.tenant = i < 4 ? 1 : 2;
		model_program(m, p);
	}
	model_run(m, 5 * S);
	for (uint32_t i = 1; i <= 4; i++)
		all += (double)model_stats(m, i)->work_ns;
	for (uint32_t i = 1; i <= 4; i++) {
		double got = 100 * (double)model_stats(m, i)->work_ns / all;
		double due = i < 4 ? 12.5 : 62.5;

		if (got < due - 4)
			fail_msg("program %u has %.1f for %.1f %%", i, got, due);
	}
	if (model_wrong(m))
		fail_msg("%s", model_wrong(m));
	model_close(m);
}

/*
 * Who is alone with a critical task has shorter slices than those that a tenant with a bound runs
 * beside: there each slice ends with a switch.
 */
static void slices_are_shortest_where_they_cost_nothing(void **state)
{
	static const struct rtxg_slice_tenant tenants[] = {
		{ .priority = RTXG_SLICE_CRITICAL_PRIORITY },
		{ .min_ppm = 500000 },
		{ .min_ppm = 300000, .latency_ns = 50 * MS },
	};
	struct model_program task = {
		.kernel_ns = 100 * US, .burst = 1, .pause_min_ns = 10 * MS, .pause_max_ns = 11 * MS
	};
	struct model *m = model_open(ALL, NULL, 1);

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		struct model_program p = i ? programs[HOG] : task;

		p.tenant = i;
		p.bound = tenants[i].latency_ns > 0;
		p.start_ns = i == 2 ? 2 * S : 0;
		model_tenant(m, i, tenants[i]);
		model_program(m, p);
	}
	model_run(m, 2 * S);
	assert_int_equal(m->c[1].slice, 16 * US);
	model_run(m, 4 * S);
	assert_int_equal(m->c[1].slice, 30 * US);
	if (model_wrong(m))
		fail_msg("%s", model_wrong(m));
	model_close(m);
}

/* A model GPU with a critical task each 10 to 11 ms. */
static struct model *open_with_task(void)
{
	struct model *m = model_open(ALL, NULL, 1);

	model_tenant(m, 0, (struct rtxg_slice_tenant){ .priority = RTXG_SLICE_CRITICAL_PRIORITY });
	model_program(m, (struct model_program){ .kernel_ns = 100 * US,
						 .burst = 1,
						 .pause_min_ns = 10 * MS,
						 .pause_max_ns = 11 * MS });
	return m;
}

static uint32_t add(struct model *m, uint32_t tenant, struct model_program p)
{
	p.tenant = tenant;
	return model_program(m, p);
}

/*
 * While a context is made its program waits for each of some pieces of work. None of them waits for
 * a whole turn of the others, and these have their shares.
 */
static void what_makes_a_context_does_not_wait_for_turns(void **state)
{
	struct model_program pieces = {
		.tenant = 3, .kernel_ns = 1 * MS, .launches = 1, .depth = 1, .cpu_ns = 10 * MS
	};
	struct model *m = open_with_task();
	uint64_t began[COMERS], pieces_done = 0;

	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		model_tenant(m, i, (struct rtxg_slice_tenant){ .min_ppm = 300000 });
	add(m, 1, programs[HOG]);
	add(m, 2, programs[HOG]);
	for (uint32_t i = 0; i < COMERS; i++) {
		began[i] = (2 + i) * S + 37 * i * MS;
		pieces.start_ns = began[i];
		pieces.life_ns = 500 * MS;
		pieces.rest_ns = 100 * S;
		model_program(m, pieces);
	}
	model_run(m, began[COMERS - 1] + 500 * MS);
	/* 1 ms of work and 5 to 15 ms on the CPU each: alone it would be 45 of each program */
	for (uint32_t i = 0; i < COMERS; i++)
		pieces_done += model_stats(m, 3 + i)->rounds;
	print_message("%u pieces\n", (unsigned int)pieces_done);
	assert_true(pieces_done > 20 * COMERS);
	assert_true(model_stats(m, 1)->work_ns > 2 * S && model_stats(m, 2)->work_ns > 2 * S);
	if (model_wrong(m))
		fail_msg("%s", model_wrong(m));
	model_close(m);
}

/*
 * Programs that live for 60 ms, some at a time in each of two vGPUs: what is let go for what is
 * being made does not run beside another, slice by slice, for then a third of the time was work.
 */
static void short_lives_leave_the_engine_to_work(void **state)
{
	struct model *m = open_with_task();
	uint64_t work;

	(void)state;
	model_tenant(m, 1, (struct rtxg_slice_tenant){ .min_ppm = 50000 });
	model_tenant(m, 2, (struct rtxg_slice_tenant){ .min_ppm = 450000 });
	model_tenant(m, 3, (struct rtxg_slice_tenant){ .min_ppm = 450000 });
	add(m, 1, programs[HOG]);
	for (uint32_t i = 0; i < 8; i++) {
		struct model_program p = {
			.kernel_ns = 2 * MS, .launches = 1, .depth = 1, .cpu_ns = 500 * US
		};

		p.start_ns = 1 * S + i / 2 * (20 + i % 2 * 5) * MS;
		p.life_ns = 60 * MS;
		p.rest_ns = 10 * MS;
		add(m, 2 + i % 2, p);
	}
	model_run(m, 2 * S);
	work = model_work_ns(m);
	model_run(m, 8 * S);
	print_message("%.1f %% of the time is work\n",
		      100 * (double)(model_work_ns(m) - work) / (6 * S));
	assert_true(model_work_ns(m) - work > 6 * S * 55 / 100);
	model_close(m);
}

/*
 * A turn for what is being made costs the others more than its work, and that is charged: who has a
 * bound has its share, and does not count as ahead.
 */
static void what_comes_leaves_others_their_bounds_and_shares(void **state)
{
	struct model *m = open_with_task();
	uint32_t bounded, other;
	uint64_t work;

	(void)state;
	model_tenant(m, 1, (struct rtxg_slice_tenant){ .min_ppm = 400000, .latency_ns = 8 * MS });
	model_tenant(m, 2, (struct rtxg_slice_tenant){ .min_ppm = 250000 });
	model_tenant(m, 3, (struct rtxg_slice_tenant){ .min_ppm = 250000 });
	bounded = add(m, 1, programs[HOG]);
	other = add(m, 2, programs[HOG]);
	for (uint32_t i = 0; i < 4; i++) {
		struct model_program p = {
			.kernel_ns = 1 * MS, .launches = 1, .depth = 1, .cpu_ns = 5 * MS
		};

		p.start_ns = 1 * S + i * 100 * MS;
		p.life_ns = 500 * MS;
		p.rest_ns = 30 * MS;
		add(m, 3, p);
	}
	model_run(m, 3 * S);
	work = model_stats(m, bounded)->work_ns;
	model_run(m, 11 * S);
	work = model_stats(m, bounded)->work_ns - work;
	print_message("%.1f %% for 40, off the engine for %.1f of 8 ms at most\n",
		      100 * (double)work / (8 * S),
		      (double)model_stats(m, bounded)->longest_ns / 1e6);
	assert_true(work > 8 * S * 40 / 100);
	assert_true(model_stats(m, bounded)->longest_ns < 10 * MS);
	assert_true(model_stats(m, other)->work_ns > 11 * S * 20 / 100);
	model_close(m);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_are_kept_beside_a_critical_task),
		cmocka_unit_test(bounds_and_shares_are_kept_beside_a_critical_task),
		cmocka_unit_test(bounds_are_kept_where_programs_come_and_go),
		cmocka_unit_test(programs_of_a_vgpu_with_a_bound_have_turns_in_turn),
		cmocka_unit_test(slices_are_shortest_where_they_cost_nothing),
		cmocka_unit_test(what_makes_a_context_does_not_wait_for_turns),
		cmocka_unit_test(short_lives_leave_the_engine_to_work),
		cmocka_unit_test(what_comes_leaves_others_their_bounds_and_shares),
	};

	if (argc > 1)
		sets = (unsigned int)strtoul(argv[1], NULL, 10);
	return cmocka_run_group_tests_name("slice_turns", tests, NULL, NULL);
}
