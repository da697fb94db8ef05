// SPDX-License-Identifier: MIT
/*
 * test_slice_waits.c - core/slice with programs whose queues, though filled, wait for something
 * else than the engine, on the model of slice_model.h.
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

static const struct model_program hog = { .kernel_ns = 2 * MS, .launches = 1000000, .depth = 8 };

static struct model *m;

static void start(void)
{
	m = model_open(ALL, NULL, 1);
}

static void end(void)
{
	if (model_wrong(m))
		fail_msg("%s", model_wrong(m));
	model_close(m);
}

static void add(uint32_t id, struct rtxg_slice_tenant tenant, struct model_program program)
{
	model_tenant(m, id, tenant);
	program.tenant = id;
	model_program(m, program);
}

/* After every eight kernels its queue, though filled, waits for something else than the engine. */
static struct model_program that_waits(uint64_t kernel_ns, uint64_t stall_ns)
{
	return (struct model_program){ .kernel_ns = kernel_ns,
				       .launches = 1000000,
				       .depth = 64,
				       .stall_every = 8,
				       .stall_ns = stall_ns };
}

static double percent_of(uint64_t ns, uint64_t of)
{
	return 100.0 * (double)ns / (double)of;
}

/*
 * Its queue, though filled, waits for something else after each piece of work, as for a copy. Alone
 * the programs would have 29, 44, 14 and 35 % of the GPU.
 */
static void others_use_what_a_filled_queue_waits_for(void **state)
{
	static const struct {
		uint64_t kernel_ns, stall_ns;
		double least, hog; /* percent */
	} cases[] = {
		{ 100 * US, 2 * MS, 25, 60 },
		{ 600 * US, 6 * MS, 33, 45 },
		{ 300 * US, 15 * MS, 12, 78 },
		{ 1000 * US, 15 * MS, 29, 57 },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t waiter, hogs, idle;

		start();
		add(0, (struct rtxg_slice_tenant){ .min_ppm = 500000 },
		    that_waits(cases[i].kernel_ns, cases[i].stall_ns));
		add(1, (struct rtxg_slice_tenant){ .min_ppm = 500000 }, hog);
		model_run(m, 3 * S);
		waiter = model_stats(m, 0)->work_ns;
		hogs = model_stats(m, 1)->work_ns;
		idle = model_idle_ns(m);
		model_run(m, 13 * S);
		waiter = model_stats(m, 0)->work_ns - waiter;
		hogs = model_stats(m, 1)->work_ns - hogs;
		idle = model_idle_ns(m) - idle;
		print_message("waits for %u ms: %.1f %%, the other one %.1f %%, idle for %.2f %%\n",
			      (unsigned int)(cases[i].stall_ns / MS), percent_of(waiter, 10 * S),
			      percent_of(hogs, 10 * S), percent_of(idle, 10 * S));
		assert_true(percent_of(idle, 10 * S) < 2);
		assert_true(percent_of(waiter, 10 * S) > cases[i].least);
		assert_true(percent_of(hogs, 10 * S) > cases[i].hog);
		end();
	}
}

/*
 * The queues of several wait. One after the other in turns they left the GPU idle for 70, 38, 25,
 * 22 and 27 % of the time. Two thirds of what they would have alone, or of their shares, is the
 * least.
 */
static void several_whose_filled_queues_wait_run_together(void **state)
{
	static const struct {
		uint64_t kernel_ns[4], stall_ns[4]; /* stall_ns 0: it always has work */
		uint32_t percent[4];		    /* its reservation */
		double least[4], idle;		    /* percent */
	} cases[] = {
		{ { 300 * US, 300 * US, 300 * US, 300 * US },
		  { 15 * MS, 15 * MS, 15 * MS, 15 * MS },
		  { 25, 25, 25, 25 },
		  { 9, 9, 9, 9 },
		  5 },
		{ { 600 * US, 600 * US, 600 * US, 600 * US },
		  { 6 * MS, 6 * MS, 6 * MS, 6 * MS },
		  { 25, 25, 25, 25 },
		  { 17, 17, 17, 17 },
		  15 },
		{ { 600 * US, 600 * US, 600 * US, 600 * US },
		  { 6 * MS, 6 * MS, 6 * MS, 6 * MS },
		  { 40, 30, 20, 10 },
		  { 27, 21, 15, 7 },
		  15 },
		{ { 600 * US, 600 * US }, { 6 * MS, 6 * MS }, { 80, 20 }, { 38, 38 }, 2 },
		{ { 600 * US, 600 * US, 2 * MS },
		  { 6 * MS, 6 * MS, 0 },
		  { 30, 30, 40 },
		  { 22, 22, 37 },
		  2 },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t before[4] = { 0 }, idle;
		uint32_t k;

		start();
		for (k = 0; k < 4 && cases[i].percent[k]; k++)
			add(k, (struct rtxg_slice_tenant){ .min_ppm = 10000 * cases[i].percent[k] },
			    cases[i].stall_ns[k]
				    ? that_waits(cases[i].kernel_ns[k], cases[i].stall_ns[k])
				    : hog);
		model_run(m, 3 * S);
		for (k = 0; k < 4 && cases[i].percent[k]; k++)
			before[k] = model_stats(m, k)->work_ns;
		idle = model_idle_ns(m);
		model_run(m, 13 * S);
		idle = model_idle_ns(m) - idle;
		print_message("idle for %.1f %%:", percent_of(idle, 10 * S));
		for (k = 0; k < 4 && cases[i].percent[k]; k++) {
			double got = percent_of(model_stats(m, k)->work_ns - before[k], 10 * S);

			print_message(" %.1f", got);
			assert_true(got > cases[i].least[k]);
		}
		print_message(" %%\n");
		assert_true(percent_of(idle, 10 * S) < cases[i].idle);
		end();
	}
}

/*
 * Their queues wait for a tenth of the time, or a fifth with turns that are nearly full: that costs
 * less than to run slice by slice. They keep their turns, and nearly all that the GPU gives in
 * those.
 */
static void those_that_wait_seldom_keep_their_turns(void **state)
{
	static const struct {
		uint64_t stall_ns;
		uint32_t percent[4];
		double all;
	} cases[] = {
		{ 1 * MS, { 40, 30, 20, 10 }, 86 },
		{ 2 * MS, { 70, 30 }, 84 },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double all = 0;
		uint32_t k;

		start();
		for (k = 0; k < 4 && cases[i].percent[k]; k++)
			add(k, (struct rtxg_slice_tenant){ .min_ppm = 10000 * cases[i].percent[k] },
			    that_waits(1 * MS, cases[i].stall_ns));
		model_run(m, 20 * S);
		for (k = 0; k < 4 && cases[i].percent[k]; k++) {
			double got = percent_of(model_stats(m, k)->work_ns, 20 * S);

			all += got;
			assert_true(got > 0.77 * cases[i].percent[k] &&
				    got < 1.02 * cases[i].percent[k]);
		}
		print_message("work for %.1f %%\n", all);
		assert_true(all > cases[i].all);
		end();
	}
}

/*
 * It waits for 2 ms after each 8 ms of work, for another's event perhaps. Beside a critical task
 * that seldom runs a turn lasts long: passed on at each wait, it would leave one a half of its
 * share.
 */
static void a_turn_beside_a_critical_task_outlasts_short_waits_of_its_program(void **state)
{
	start();
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 500000 }, that_waits(1 * MS, 2 * MS));
	add(1, (struct rtxg_slice_tenant){ .min_ppm = 500000 }, hog);
	add(2, (struct rtxg_slice_tenant){ .priority = RTXG_SLICE_CRITICAL_PRIORITY },
	    (struct model_program){ .kernel_ns = 100 * US, .launches = 1, .period_ns = S / 5 });
	model_run(m, 12 * S);
	/* 40 at most with half of the time: 80 % of it is work */
	assert_true(percent_of(model_stats(m, 0)->work_ns, 12 * S) > 35);
	assert_true(percent_of(model_stats(m, 1)->work_ns, 12 * S) > 35);
	end();
}

/*
 * The time in which the queues of the one wait is a part of its share: else its turns were so many
 * that the other one had 12 to 30 %.
 */
static void waits_in_a_turn_beside_a_critical_task_are_a_part_of_the_share(void **state)
{
	static const struct {
		uint64_t kernel_ns, stall_ns;
		double least; /* percent */
	} cases[] = {
		{ 100 * US, 2 * MS, 12 },
		{ 600 * US, 6 * MS, 20 },
		{ 300 * US, 15 * MS, 6 },
		{ 1000 * US, 15 * MS, 16 },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t waiter, hogs;

		start();
		add(0, (struct rtxg_slice_tenant){ .min_ppm = 500000 },
		    that_waits(cases[i].kernel_ns, cases[i].stall_ns));
		add(1, (struct rtxg_slice_tenant){ .min_ppm = 500000 }, hog);
		add(2, (struct rtxg_slice_tenant){ .priority = RTXG_SLICE_CRITICAL_PRIORITY },
		    (struct model_program){
			    .kernel_ns = 100 * US, .launches = 1, .period_ns = 10 * MS });
		model_run(m, 12 * S);
		waiter = model_stats(m, 0)->work_ns;
		hogs = model_stats(m, 1)->work_ns;
		print_message("waits for %u ms: %.1f %%, the other one %.1f %%\n",
			      (unsigned int)(cases[i].stall_ns / MS), percent_of(waiter, 12 * S),
			      percent_of(hogs, 12 * S));
		assert_true(percent_of(waiter, 12 * S) > cases[i].least);
		assert_true(percent_of(hogs, 12 * S) > 40);
		end();
	}
}

static uint64_t work_in(uint32_t tenant, uint64_t until)
{
	uint64_t before = model_stats(m, tenant)->work_ns;

	model_run(m, until);
	return model_stats(m, tenant)->work_ns - before;
}

/*
 * What its waits cost it while it had the GPU alone is not held against it: it has its turns from
 * the first second on when another one starts, and all of the GPU again when that one has ended.
 */
static void waits_are_no_debt_when_another_one_starts_and_ends(void **state)
{
	struct model_program comes = hog;
	double alone, first, then, again;

	comes.start_ns = 6 * S;
	comes.life_ns = 3 * S;
	comes.rest_ns = 100 * S;
	start();
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 500000 }, that_waits(600 * US, 6 * MS));
	add(1, (struct rtxg_slice_tenant){ .min_ppm = 500000 }, comes);
	add(2, (struct rtxg_slice_tenant){ .priority = RTXG_SLICE_CRITICAL_PRIORITY },
	    (struct model_program){ .kernel_ns = 100 * US, .launches = 1, .period_ns = 10 * MS });
	model_run(m, 3 * S);
	alone = percent_of(work_in(0, 6 * S), 3 * S);
	first = percent_of(work_in(0, 7 * S), S);
	then = percent_of(work_in(0, 9 * S), 2 * S);
	model_run(m, 10 * S);
	again = percent_of(work_in(0, 13 * S), 3 * S);
	print_message("alone %.1f %%, then %.1f and %.1f %%, alone again %.1f %%\n", alone, first,
		      then, again);
	assert_true(alone > 40);
	assert_true(first > 17);
	assert_true(then > 20);
	assert_true(again > 40);
	end();
}

/*
 * Three that pause run together. One that always has work starts, has its quarter from the first
 * second on, and is killed; a fourth that pauses comes later. Those that stay have their speed
 * again each time.
 */
static void those_that_run_together_make_room_and_have_it_back(void **state)
{
	struct model_program pauses = { .kernel_ns = 200 * US, .cpu_ns = 1 * MS }, comes = hog;
	double before = 0, beside = 0, first, again = 0;

	comes.start_ns = 6 * S;
	comes.life_ns = 3 * S;
	comes.rest_ns = 100 * S;
	start();
	for (uint32_t k = 0; k < 3; k++) {
		pauses.cpu_ns += k * 150 * US;
		add(k, (struct rtxg_slice_tenant){ .min_ppm = 200000 }, pauses);
	}
	add(3, (struct rtxg_slice_tenant){ .min_ppm = 250000 }, comes);
	pauses.start_ns = 10 * S;
	add(4, (struct rtxg_slice_tenant){ .min_ppm = 150000 }, pauses);
	model_run(m, 4 * S);
	for (uint32_t k = 0; k < 3; k++)
		before -= (double)model_stats(m, k)->work_ns;
	model_run(m, 6 * S);
	for (uint32_t k = 0; k < 3; k++)
		before += (double)model_stats(m, k)->work_ns;
	first = percent_of(work_in(3, 7 * S), S);
	for (uint32_t k = 0; k < 3; k++)
		beside -= (double)model_stats(m, k)->work_ns;
	model_run(m, 9 * S);
	for (uint32_t k = 0; k < 3; k++)
		beside += (double)model_stats(m, k)->work_ns;
	model_run(m, 13 * S);
	for (uint32_t k = 0; k < 3; k++)
		again -= (double)model_stats(m, k)->work_ns;
	model_run(m, 16 * S);
	for (uint32_t k = 0; k < 3; k++)
		again += (double)model_stats(m, k)->work_ns;
	print_message("three: %.1f %%, beside one %.1f, later %.1f; its first second %.1f %%\n",
		      before / (2e7), beside / (2e7), again / (3e7), first);
	assert_true(before / 2e7 > 30);
	assert_true(beside / 2e7 > 20);
	assert_true(first > 22);
	assert_true(again / 3e7 > 28);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(others_use_what_a_filled_queue_waits_for),
		cmocka_unit_test(several_whose_filled_queues_wait_run_together),
		cmocka_unit_test(those_that_wait_seldom_keep_their_turns),
		cmocka_unit_test(a_turn_beside_a_critical_task_outlasts_short_waits_of_its_program),
		cmocka_unit_test(waits_in_a_turn_beside_a_critical_task_are_a_part_of_the_share),
		cmocka_unit_test(those_that_run_together_make_room_and_have_it_back),
		cmocka_unit_test(waits_are_no_debt_when_another_one_starts_and_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
