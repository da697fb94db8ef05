// SPDX-License-Identifier: MIT
/*
 * test_slice_life.c - core/slice with programs as people run them, on the model of slice_model.h:
 * they come, go and pause, and compute on their CPUs between kernels.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "slice_model.h"

#define US	  MODEL_US
#define MS	  MODEL_MS
#define S	  MODEL_S
#define LOG_ALONE (RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND)
#define ALL	  (LOG_ALONE | RTXG_SLICE_CAN_LEAVE | RTXG_SLICE_CAN_DEMAND)

static struct model *m;

static void start(uint32_t can)
{
	m = model_open(can, NULL, 1);
}

static void end(void)
{
	if (model_wrong(m))
		fail_msg("%s", model_wrong(m));
	model_close(m);
}

static uint32_t add(uint32_t id, struct rtxg_slice_tenant tenant, struct model_program program)
{
	model_tenant(m, id, tenant);
	program.tenant = id;
	program.bound = tenant.latency_ns;
	return model_program(m, program);
}

static const struct model_program hog = { .kernel_ns = 2 * MS, .launches = 1000000, .depth = 8 };
static const struct model_program training = {
	.kernel_ns = 300 * US, .launches = 150, .depth = 64, .cpu_ns = 12 * MS
};
static const struct model_program chat = { .kernel_ns = 100 * US,
					   .launches = 22,
					   .depth = 32,
					   .cpu_ns = 400 * US,
					   .burst = 8,
					   .pause_min_ns = 20 * MS,
					   .pause_max_ns = 120 * MS };

/* reads a prompt of 12 ms, then makes a token for all its requests in one launch of 3.8 ms */
static const struct model_program engine = { .kernel_ns = 120 * US,
					     .launches = 100,
					     .depth = 64,
					     .cpu_ns = 200 * US,
					     .step_ns = 3800 * US,
					     .requests_per_s = 18,
					     .slots = MODEL_SLOTS,
					     .tokens = 48 };

static double percent_of(uint64_t ns, uint64_t of)
{
	return 100.0 * (double)ns / (double)of;
}

static uint64_t four_hogs(uint32_t can, const struct model_program *program)
{
	static const uint32_t min[] = { 600000, 200000, 100000, 100000 };
	uint64_t work;

	start(can);
	for (uint32_t i = 0; i < 4; i++)
		add(i, (struct rtxg_slice_tenant){ .min_ppm = min[i] }, *program);
	model_run(m, 6 * S);
	for (uint32_t i = 0; i < 4 && can; i++) {
		uint64_t all = 0, one = 0;

		for (uint32_t w = 20; w < 60; w++) {
			for (uint32_t k = 0; k < 4; k++)
				all += model_stats(m, k)->window[w];
			one += model_stats(m, i)->window[w];
			if (w < 29)
				continue;
			assert_true(percent_of(one, all) < min[i] / 1e4 + 1 &&
				    percent_of(one, all) > min[i] / 1e4 - 1);
			for (uint32_t k = 0; k < 4; k++)
				all -= model_stats(m, k)->window[w - 9];
			one -= model_stats(m, i)->window[w - 9];
		}
	}
	work = model_work_ns(m);
	end();
	return work;
}

/* Kernels of 20 ms show empty queues while they run. */
static void long_turns_keep_a_seconds_shares_and_do_more_than_the_drivers_slices(void **state)
{
	static const struct model_program loads[] = {
		{ .kernel_ns = 20 * MS, .launches = 1000000, .depth = 2 },
		{ .kernel_ns = 1 * MS, .launches = 1000000, .depth = 16 },
	};

	for (int i = 0; i < 2; i++) {
		uint64_t stock = four_hogs(0, &loads[i]);

		assert_true(four_hogs(LOG_ALONE, &loads[i]) > stock / 100 * 105);
		assert_true(four_hogs(ALL, &loads[i]) > stock / 100 * 105);
	}
}

static void nothing_waits_for_a_program_that_computes_on_its_cpu(void **state)
{
	start(ALL);
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 400000 }, training);
	add(1, (struct rtxg_slice_tenant){ .min_ppm = 400000 }, training);
	add(2, (struct rtxg_slice_tenant){ .min_ppm = 200000 }, hog);
	model_run(m, 10 * S);
	assert_true(percent_of(model_idle_ns(m), 10 * S) < 2);
	/* and they lose nothing by it */
	assert_true(percent_of(model_stats(m, 0)->work_ns, model_work_ns(m)) > 38);
	assert_true(percent_of(model_stats(m, 1)->work_ns, model_work_ns(m)) > 38);
	end();
}

/*
 * Steps of 20 ms with a batch prepared between them, alike or of any length, beside a program that
 * waits for its kernels now and then: the next one is there when a step ends, and each has its
 * share.
 */
static void the_next_one_is_there_when_a_step_ends(void **state)
{
	static const uint32_t min[] = { 300000, 200000, 200000 };
	static const struct {
		uint32_t vary;
		double idle;
	} cases[] = { { 2, 0.6 }, { 20, 1.6 } };

	for (int i = 0; i < 2; i++) {
		struct model_program steps = { .kernel_ns = 40 * US,
					       .launches = 500,
					       .depth = 256,
					       .vary = cases[i].vary,
					       .cpu_ns = 14 * MS };
		struct model_program waits = {
			.kernel_ns = 190 * US, .launches = 40, .depth = 64, .cpu_ns = 60 * US
		};
		double idle;

		start(ALL);
		for (uint32_t k = 0; k < 3; k++)
			add(k, (struct rtxg_slice_tenant){ .min_ppm = min[k] },
			    k == 1 ? waits : steps);
		model_run(m, 10 * S);
		idle = percent_of(model_idle_ns(m), 10 * S);
		print_message("steps vary by %u %%: idle for %.2f %%\n", cases[i].vary, idle);
		assert_true(idle < cases[i].idle);
		for (uint32_t k = 0; k < 3; k++)
			assert_true(percent_of(model_stats(m, k)->work_ns, model_work_ns(m)) >
				    min[k] / 7e3 - 2);
		end();
	}
}

/*
 * Kernels of 50 us, each waited for, and pauses of 1 ms: no look sees these, and turns would leave
 * the engine idle for most of the program's own. It runs beside the others' turns, is slowed down
 * by no more than the others are due, and no promise counts as broken.
 */
static void others_use_pauses_that_are_too_short_for_turns(void **state)
{
	static const struct model_program small = { .kernel_ns = 50 * US, .cpu_ns = 1 * MS };
	static const struct {
		uint32_t can, hogs, min;
		double idle, rate, others; /* percent: of the time, of alone, of the time */
	} cases[] = {
		{ ALL, 1, 50, 1, 80, 65 },	 { ALL, 3, 50, 1, 80, 65 },
		{ ALL, 2, 20, 1, 50, 75 },	 { ALL, 1, 80, 1, 80, 65 },
		{ ALL, 3, 80, 6, 80, 60 },	 { LOG_ALONE, 1, 50, 1, 80, 65 },
		{ LOG_ALONE, 2, 20, 1, 50, 75 }, { LOG_ALONE, 1, 80, 1, 80, 65 },
	};
	double alone;

	start(0);
	add(0, (struct rtxg_slice_tenant){ 0 }, small);
	model_run(m, 5 * S);
	alone = (double)model_stats(m, 0)->work_ns;
	end();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t each = (100 - cases[i].min) / cases[i].hogs;
		struct rtxg_slice_view view;
		double idle, rate, others;

		start(cases[i].can);
		add(0, (struct rtxg_slice_tenant){ .min_ppm = cases[i].min * 10000 }, small);
		for (uint32_t k = 1; k <= cases[i].hogs; k++)
			add(k, (struct rtxg_slice_tenant){ .min_ppm = each * 10000 }, hog);
		model_run(m, 5 * S);
		idle = percent_of(model_idle_ns(m), 5 * S);
		rate = 100 * (double)model_stats(m, 0)->work_ns / alone;
		others = percent_of(model_work_ns(m) - model_stats(m, 0)->work_ns, 5 * S);
		print_message("%u %% beside %u: idle for %.2f %%, %.1f %% of alone, others %.1f "
			      "%%\n",
			      cases[i].min, cases[i].hogs, idle, rate, others);
		assert_true(idle < cases[i].idle);
		assert_true(rate > cases[i].rate);
		assert_true(others > cases[i].others);
		for (uint32_t k = 0; k <= cases[i].hogs; k++) {
			assert_int_equal(rtxg_slice_tenant_view(model_core(m), k, &view), 0);
			assert_int_equal(view.broken, 0);
		}
		end();
	}
}

/*
 * A kernel of 10 ms that waits to go on is longer than what the core had learnt, and by so little
 * that it is over before the next look: it is not taken as the end of the work again and again.
 */
static void a_kernel_that_outlives_its_grace_by_little_is_learnt(void **state)
{
	static const uint64_t kernels[] = { 5 * MS, 10 * MS, 18 * MS };

	for (int i = 0; i < 3; i++) {
		start(ALL);
		add(0, (struct rtxg_slice_tenant){ .min_ppm = 900000 },
		    (struct model_program){ .kernel_ns = kernels[i], .cpu_ns = 20 * US });
		add(1, (struct rtxg_slice_tenant){ .min_ppm = 100000 }, hog);
		model_run(m, 5 * S);
		print_message("%u ms: %.1f for 90\n", (unsigned int)(kernels[i] / MS),
			      percent_of(model_stats(m, 0)->work_ns, model_work_ns(m)));
		assert_true(percent_of(model_stats(m, 0)->work_ns, model_work_ns(m)) > 87);
		end();
	}
}

/* What people are shown of these waits: hardly one is longer than twice that. */
static void the_waits_that_are_shown_keep_the_bound(uint64_t bound)
{
	uint64_t count = 0, longer = 0;
	struct rtxg_slice_view view;

	assert_int_equal(rtxg_slice_tenant_view(model_core(m), 0, &view), 0);
	for (uint32_t i = 0; i < RTXG_SLICE_WAITS; i++) {
		count += view.waits[i];
		longer += i && rtxg_slice_wait_limit(i - 1) >= 2 * bound ? view.waits[i] : 0;
	}
	/* Those that find it on the engine already do not wait. */
	assert_true(count > 20 && longer <= 20);
	assert_true(view.waits_ns > 0 && view.waits_ns < count * 2 * bound);
	assert_true(rtxg_slice_wait_limit(RTXG_SLICE_WAITS - 1) == RTXG_SLICE_NEVER);
}

static void work_that_arrives_is_on_the_engine_within_the_bound(void **state)
{
	static const uint64_t bounds[] = { 20 * MS, 5 * MS, 3 * MS, 1 * MS };

	for (int i = 0; i < 4; i++) {
		const struct model_stats *stats;
		struct rtxg_slice_admission a;
		struct rtxg_slice_tenant t = { .min_ppm = 300000, .latency_ns = bounds[i] };
		uint32_t id;

		start(ALL);
		add(1, (struct rtxg_slice_tenant){ .min_ppm = 200000 }, hog);
		add(2, (struct rtxg_slice_tenant){ .min_ppm = 200000 }, training);
		add(3, (struct rtxg_slice_tenant){ .min_ppm = 100000 }, hog);
		id = add(0, t, chat);
		model_run(m, 1 * S);
		assert_int_equal(rtxg_slice_admit(model_core(m), 0, &t, &a), 0);
		model_run(m, 10 * S);
		stats = model_stats(m, id);
		/* The first ones teach the core what it has to do with. */
		assert_true(model_quantile(stats->waits, stats->wait_count, 20, 1) <= a.bound_ns);
		assert_true(stats->bursts > 50);
		the_waits_that_are_shown_keep_the_bound(bounds[i]);
		end();
	}
}

static void a_bound_is_no_way_around_a_share(void **state)
{
	start(ALL);
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 300000, .latency_ns = 5 * MS }, hog);
	add(1, (struct rtxg_slice_tenant){ .min_ppm = 700000 }, hog);
	model_run(m, 10 * S);
	assert_true(percent_of(model_stats(m, 0)->work_ns, model_work_ns(m)) < 33);
	assert_true(percent_of(model_stats(m, 0)->work_ns, model_work_ns(m)) > 27);
	end();
}

/*
 * Of two engines the first one's users are served as if it were alone, and the second has its
 * share.
 */
static void an_engine_with_a_bound_answers_as_if_it_were_alone(void **state)
{
	uint64_t first, between, all;

	start(0);
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 700000 }, engine);
	model_run(m, 10 * S);
	first = model_quantile(model_stats(m, 0)->first_ns, model_stats(m, 0)->first_count, 10,
			       0.99);
	between = model_quantile(model_stats(m, 0)->between_ns, model_stats(m, 0)->between_count,
				 500, 0.99);
	end();
	start(ALL);
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 750000, .latency_ns = 4 * MS }, engine);
	add(1, (struct rtxg_slice_tenant){ .min_ppm = 250000 }, engine);
	model_run(m, 10 * S);
	assert_true(model_quantile(model_stats(m, 0)->first_ns, model_stats(m, 0)->first_count, 10,
				   0.99) < first / 10 * 13);
	assert_true(model_quantile(model_stats(m, 0)->between_ns, model_stats(m, 0)->between_count,
				   500, 0.99) < between / 10 * 12);
	all = model_stats(m, 0)->work_ns + model_stats(m, 1)->work_ns;
	assert_true(percent_of(model_stats(m, 1)->work_ns, all) > 23);
	end();
}

/*
 * One launch of the second is all that is in its queue, and the engine's host has taken it: nothing
 * shows that it waits. The first always has work.
 */
static void a_kernel_that_was_displaced_is_not_forgotten(void **state)
{
	static const uint64_t bounds[] = { 2 * MS, 4 * MS, 8 * MS, 20 * MS };

	for (int i = 0; i < 4; i++) {
		uint64_t all;

		start(ALL);
		add(0, (struct rtxg_slice_tenant){ .min_ppm = 550000, .latency_ns = bounds[i] },
		    engine);
		add(1, (struct rtxg_slice_tenant){ .min_ppm = 450000 }, engine);
		model_run(m, 8 * S);
		all = model_stats(m, 0)->work_ns + model_stats(m, 1)->work_ns;
		assert_true(percent_of(model_stats(m, 1)->work_ns, all) > 41);
		end();
	}
}

static void a_bound_that_slices_keep_is_no_way_below_a_share(void **state)
{
	uint64_t all;

	start(ALL);
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 800000, .latency_ns = 20 * MS }, hog);
	add(1, (struct rtxg_slice_tenant){ .min_ppm = 200000 }, hog);
	model_run(m, 8 * S);
	all = model_stats(m, 0)->work_ns + model_stats(m, 1)->work_ns;
	assert_true(percent_of(model_stats(m, 0)->work_ns, all) > 77);
	assert_true(percent_of(model_stats(m, 0)->work_ns, all) < 83);
	end();
}

/* Its context stays on the engine while it has nothing to do, and so looks busy in the log. */
static void sitting_on_the_engine_alone_costs_no_share(void **state)
{
	static const struct model_program now_and_then = { .kernel_ns = 1 * MS,
							   .launches = 10,
							   .depth = 4,
							   .burst = 1,
							   .pause_min_ns = 30 * MS,
							   .pause_max_ns = 31 * MS };
	struct model_program half = hog;
	uint64_t alone;

	start(ALL);
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 500000 }, now_and_then);
	model_run(m, 10 * S);
	alone = model_stats(m, 0)->rounds;
	end();
	start(ALL);
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 500000 }, now_and_then);
	half.launches = 200;
	half.burst = 1;
	half.pause_min_ns = half.pause_max_ns = 500 * MS;
	add(1, (struct rtxg_slice_tenant){ .min_ppm = 500000 }, half);
	model_run(m, 10 * S);
	/* It needs a quarter of the GPU and half of it is reserved: it is hardly held up. */
	assert_true(percent_of(model_stats(m, 0)->rounds, alone) > 90);
	end();
}

static void a_critical_task_is_met_by_programs_that_come_and_go(void **state)
{
	const struct model_stats *task;

	start(ALL);
	add(0, (struct rtxg_slice_tenant){ .priority = RTXG_SLICE_CRITICAL_PRIORITY },
	    (struct model_program){ .kernel_ns = 100 * US,
				    .burst = 1,
				    .pause_min_ns = 10 * MS,
				    .pause_max_ns = 11 * MS });
	for (uint32_t i = 1; i < 5; i++) {
		struct model_program p = hog;

		p.start_ns = 370 * MS * i;
		p.life_ns = 1500 * MS;
		p.rest_ns = 100 * MS;
		p.building_ns = 150 * MS;
		add(i, (struct rtxg_slice_tenant){ .min_ppm = 200000 }, p);
	}
	model_run(m, 10 * S);
	task = model_stats(m, 0);
	assert_true(model_quantile(task->waits, task->wait_count, 20, 0.99) < 1 * MS);
	assert_true(model_host(m)->refusals > 20);
	end();
}

/*
 * What has the host's CPU for a while costs the first release of that time, and not those after it.
 */
static void releases_are_met_by_a_host_that_comes_late_for_a_while(void **state)
{
	const struct model_stats *task;
	struct model_program deep = hog;

	deep.kernel_ns = 20 * MS;
	start(ALL);
	model_late(m, 800 * US);
	add(0,
	    (struct rtxg_slice_tenant){ .priority = RTXG_SLICE_CRITICAL_PRIORITY,
					.period_ns = 10 * MS },
	    (struct model_program){ .kernel_ns = 100 * US, .period_ns = 10 * MS });
	for (uint32_t i = 1; i < 4; i++)
		add(i, (struct rtxg_slice_tenant){ .min_ppm = 330000 }, deep);
	model_run(m, 10 * S);
	task = model_stats(m, 0);
	assert_true(model_quantile(task->waits, task->wait_count, 50, 0.98) <= 100 * US);
	assert_true(percent_of(model_work_ns(m), 10 * S) > 88);
	end();
}

static void a_promise_that_is_broken_is_named_with_the_context_that_did_it(void **state)
{
	struct model_program refused = hog;
	struct rtxg_slice_gpu_view gpu;
	struct rtxg_slice_view view;
	uint32_t load;

	start(ALL);
	add(0, (struct rtxg_slice_tenant){ .min_ppm = 700000 }, hog);
	model_run(m, 2 * S);
	assert_int_equal(rtxg_slice_tenant_view(model_core(m), 0, &view), 0);
	assert_int_equal(view.broken, 0);
	refused.refused = true;
	load = add(1, (struct rtxg_slice_tenant){ .min_ppm = 100000, .max_ppm = 300000 }, refused);
	model_run(m, 5 * S);
	assert_int_equal(rtxg_slice_tenant_view(model_core(m), 0, &view), 0);
	assert_int_equal(view.broken, RTXG_SLICE_BROKEN_SHARE);
	assert_int_equal(view.broken_by, load);
	assert_int_equal(rtxg_slice_tenant_view(model_core(m), 1, &view), 0);
	assert_int_equal(view.broken, RTXG_SLICE_BROKEN_CAP);
	assert_int_equal(view.broken_by, load);
	rtxg_slice_gpu_view(model_core(m), &gpu);
	assert_int_equal(gpu.broken, 2);
	end();
}

/*
 * Programs that the driver refuses to stop run all the time, so all others are behind their shares.
 * That is no reason to stop a tenant with a reservation for another one's bound: what is left is
 * divided among them as ever.
 */
static void what_loads_leave_goes_to_reservations_before_anothers_bound(void **state)
{
	static const uint64_t bounds[] = { 100 * MS, 20 * MS, 5 * MS, 3 * MS };
	struct model_program load = hog;

	load.refused = true;
	for (uint32_t i = 0; i < 16; i++) {
		static const uint32_t min[] = { 500000, 100000, 300000, 0 };
		uint64_t left;

		start(ALL);
		add(0, (struct rtxg_slice_tenant){ .min_ppm = min[i / 4] / 3 }, load);
		add(1, (struct rtxg_slice_tenant){ .min_ppm = 500000 }, hog);
		add(2,
		    (struct rtxg_slice_tenant){ .min_ppm = min[i / 4] / 2,
						.latency_ns = bounds[i % 4] },
		    i / 4 == 1 ? engine : hog);
		if (i / 4 == 3) /* two of them, in one vGPU with a program that can be stopped */
			add(0, (struct rtxg_slice_tenant){ 0 }, hog), model_program(m, load);
		model_run(m, 5 * S);
		left = model_stats(m, 1)->work_ns + model_stats(m, 2)->work_ns;
		if (percent_of(left, 5 * S) < 20 ||
		    percent_of(model_stats(m, 1)->work_ns, left) < 60)
			fail_msg("case %u: %.1f %% of %.1f %%", i,
				 percent_of(model_stats(m, 1)->work_ns, 5 * S),
				 percent_of(left, 5 * S));
		end();
	}
}

/* Whatever programs there are: promises hold, and all that was stopped runs again in the end. */
static void random_programs_get_what_they_were_promised(void **state)
{
	for (uint64_t seed = 1; seed <= 12; seed++) {
		uint64_t r = seed * 0x9e3779b97f4a7c15ull, reserved = 0;
		uint32_t tenants, min[6];

		m = model_open(seed & 1 ? ALL : LOG_ALONE, NULL, seed);
		r ^= r >> 29;
		tenants = 2 + r % 4;
		for (uint32_t i = 0; i < tenants; i++) {
			struct rtxg_slice_tenant t = { .min_ppm = 100000 * (r >> (4 * i) & 1) +
								  100000 };
			struct model_program p = { .kernel_ns = 100 * US << (r >> (8 + 3 * i) & 7),
						   .launches = 1 + (r >> (20 + i) & 31),
						   .depth = 1 + (r >> (24 + i) & 3) };

			min[i] = t.min_ppm;
			reserved += t.min_ppm;
			if (i == 0) /* one has work all the time */
				p.launches = 100000000, p.depth = 4;
			else if (r >> (40 + i) & 1)
				p.cpu_ns = 5 * MS;
			else
				p.burst = 3, p.pause_min_ns = 1 * MS, p.pause_max_ns = 90 * MS;
			if (i == 2 && seed & 1)
				t.latency_ns = 10 * MS;
			if (i == 3)
				p.life_ns = 700 * MS, p.rest_ns = 300 * MS, p.building_ns = 20 * MS;
			add(i, t, p);
		}
		assert_true(reserved <= 1000000);
		model_run(m, 5 * S);
		if (model_wrong(m))
			fail_msg("seed %llu: %s", (unsigned long long)seed, model_wrong(m));
		/* The one that always has work gets its reservation and all that others leave. */
		if (percent_of(model_stats(m, 0)->work_ns, 5 * S) < min[0] / 1e4 - 3)
			fail_msg("seed %llu: %.1f %% of %u", (unsigned long long)seed,
				 percent_of(model_stats(m, 0)->work_ns, 5 * S), min[0] / 10000);
		if (seed & 1 && percent_of(model_idle_ns(m), 5 * S) > 8)
			fail_msg("seed %llu: idle %.1f %%", (unsigned long long)seed,
				 percent_of(model_idle_ns(m), 5 * S));
		end();
	}
}

/*
 * By how much the reservation of the first of these programs is missed in its worst second, points.
 */
static double most_below(uint32_t programs, double percent, uint32_t from, uint32_t to)
{
	double worst = -100;

	for (uint32_t w = from; w + 10 <= to; w++) {
		uint64_t all = 0, one = 0;

		for (uint32_t k = w; k < w + 10; k++) {
			for (uint32_t p = 0; p < programs; p++)
				all += model_stats(m, p)->window[k];
			one += model_stats(m, 0)->window[k];
		}
		if (percent - percent_of(one, all) > worst)
			worst = percent - percent_of(one, all);
	}
	return worst;
}

/*
 * Fifty programs start within one second, five in each of ten vGPUs, beside one that always has
 * work, and the second time beside a critical task too. The driver refuses to act on each while its
 * context is being built. All of them work, the host comes to its timer in time, and the first
 * one's reservation is kept in each second, also in those in which they start. Beside the critical
 * task turns take up to 100 ms, and a second's shares are off by so much.
 */
static void fifty_programs_that_start_at_once_are_all_served(void **state)
{
	for (int critical = 0; critical < 2; critical++) {
		const struct model_host *host;
		double worst;

		start(ALL);
		add(0, (struct rtxg_slice_tenant){ .min_ppm = 300000 }, hog);
		for (uint32_t k = 0; k < 50; k++) {
			struct model_program p = k % 5 ? hog : training;

			p.start_ns = 2 * S + k * 20 * MS;
			p.building_ns = 150 * MS;
			add(1 + k % 10, (struct rtxg_slice_tenant){ .min_ppm = 70000 }, p);
		}
		if (critical)
			add(11,
			    (struct rtxg_slice_tenant){ .priority = RTXG_SLICE_CRITICAL_PRIORITY },
			    (struct model_program){ .kernel_ns = 100 * US,
						    .burst = 1,
						    .pause_min_ns = 10 * MS,
						    .pause_max_ns = 11 * MS });
		model_run(m, 14 * S);
		host = model_host(m);
		worst = most_below(51, 30, 20, 140);
		print_message("%s: worst second %.1f points below, host late by %.1f ms, %u "
			      "refusals, %.1f %% of a CPU\n",
			      critical ? "critical" : "batch", worst,
			      (double)host->late_most_ns / 1e6, (unsigned int)host->refusals,
			      percent_of(host->busy_ns, 14 * S));
		assert_true(worst < (critical ? 12 : 3));
		assert_true(host->late_most_ns < 5 * MS);
		assert_true(host->refusals > 20);
		for (uint32_t p = 1; p < 51; p++)
			if (model_stats(m, p)->work_ns < 50 * MS)
				fail_msg("program %u did %.1f ms of work", p,
					 (double)model_stats(m, p)->work_ns / 1e6);
		end();
	}
}

#define GPUS 2

/*
 * Of what a tenant with that share of each of two GPUs does there in 10 s, the part that it does on
 * both at the same time, percent. It has a neighbour on each, which comes at another time, and may
 * have a bound on latency.
 */
static double at_the_same_time(uint32_t min, bool coupled, uint64_t latency, double share[GPUS])
{
	struct model *gpu[GPUS];
	uint64_t both = 0, all = 0, total = 0, before[GPUS] = { 0 };

	for (int g = 0; g < GPUS; g++) {
		struct model_program late = hog;

		start(ALL);
		late.start_ns = (uint64_t)(g + 1) * 13 * MS;
		add(3,
		    (struct rtxg_slice_tenant){ .min_ppm = 1000000 - min, .latency_ns = latency },
		    late);
		add(5, (struct rtxg_slice_tenant){ .min_ppm = min }, hog);
		if (coupled)
			model_couple(m, 5, true);
		gpu[g] = m;
	}
	for (uint64_t at = 1; at <= 11000; at++) {
		uint64_t least = UINT64_MAX;

		for (int g = 0; g < GPUS; g++) {
			uint64_t work, one;

			model_run(gpu[g], at * MS);
			work = model_stats(gpu[g], 1)->work_ns;
			one = work - before[g];
			before[g] = work;
			least = one < least ? one : least;
			all += at > 1000 ? one : 0;
		}
		both += at > 1000 ? GPUS * least : 0;
	}
	for (int g = 0; g < GPUS; g++) {
		m = gpu[g];
		total = model_work_ns(m);
		share[g] = percent_of(model_stats(m, 1)->work_ns, total);
		end();
	}
	return percent_of(both, all);
}

static void a_tenant_on_two_gpus_has_its_turns_on_both_at_the_same_time(void **state)
{
	static const uint32_t shares[] = { 200000, 500000, 700000 };
	double got[GPUS];

	for (int i = 0; i < 3; i++) {
		double apart = at_the_same_time(shares[i], false, 0, got);
		double together = at_the_same_time(shares[i], true, 0, got);

		print_message("%u %%: %.1f %% at the same time, %.1f before; got %.2f and %.2f\n",
			      shares[i] / 10000, together, apart, got[0], got[1]);
		assert_true(together > 80);
		for (int g = 0; g < GPUS; g++) {
			assert_true(got[g] > shares[i] / 1e4 - 1);
			assert_true(got[g] < shares[i] / 1e4 + 1);
		}
	}
}

/* Its neighbour always has work and a bound that is long against the tenant's turn. */
static void turns_by_the_clock_are_kept_beside_a_long_bound(void **state)
{
	static const uint64_t bounds[] = { 20 * MS, 50 * MS };
	double got[GPUS];

	for (int i = 0; i < 2; i++) {
		double apart = at_the_same_time(500000, false, bounds[i], got);
		double together = at_the_same_time(500000, true, bounds[i], got);

		print_message("%u ms: %.1f %% at the same time, %.1f before; got %.2f and %.2f\n",
			      (unsigned int)(bounds[i] / MS), together, apart, got[0], got[1]);
		assert_true(together > 80);
		for (int g = 0; g < GPUS; g++)
			assert_true(got[g] > 49 && got[g] < 51);
	}
}

/* The last one launches its kernels one by one, so each of them may wait for the bound. */
static void a_bound_takes_no_share_of_a_tenant_with_turns_by_the_clock(void **state)
{
	static const struct model_program one_by_one = { .kernel_ns = 2 * MS };
	static const uint64_t bounds[] = { 20 * MS, 50 * MS };

	for (int i = 0; i < 4; i++) {
		start(ALL);
		add(3, (struct rtxg_slice_tenant){ .min_ppm = 100000 }, hog);
		add(5, (struct rtxg_slice_tenant){ .min_ppm = 500000 }, hog);
		model_couple(m, 5, true);
		add(7, (struct rtxg_slice_tenant){ .min_ppm = 400000, .latency_ns = bounds[i % 2] },
		    i / 2 ? one_by_one : hog);
		model_run(m, 10 * S);
		assert_true(percent_of(model_stats(m, 1)->work_ns, model_work_ns(m)) > 47);
		assert_true(percent_of(model_stats(m, 2)->work_ns, model_work_ns(m)) > 37);
		assert_true(model_stats(m, 2)->bound_wait <= bounds[i % 2]);
		assert_true(i < 2 || model_stats(m, 2)->bound_count > 500);
		end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			long_turns_keep_a_seconds_shares_and_do_more_than_the_drivers_slices),
		cmocka_unit_test(nothing_waits_for_a_program_that_computes_on_its_cpu),
		cmocka_unit_test(the_next_one_is_there_when_a_step_ends),
		cmocka_unit_test(others_use_pauses_that_are_too_short_for_turns),
		cmocka_unit_test(a_kernel_that_outlives_its_grace_by_little_is_learnt),
		cmocka_unit_test(work_that_arrives_is_on_the_engine_within_the_bound),
		cmocka_unit_test(a_bound_is_no_way_around_a_share),
		cmocka_unit_test(an_engine_with_a_bound_answers_as_if_it_were_alone),
		cmocka_unit_test(a_kernel_that_was_displaced_is_not_forgotten),
		cmocka_unit_test(a_bound_that_slices_keep_is_no_way_below_a_share),
		cmocka_unit_test(sitting_on_the_engine_alone_costs_no_share),
		cmocka_unit_test(a_critical_task_is_met_by_programs_that_come_and_go),
		cmocka_unit_test(releases_are_met_by_a_host_that_comes_late_for_a_while),
		cmocka_unit_test(a_promise_that_is_broken_is_named_with_the_context_that_did_it),
		cmocka_unit_test(what_loads_leave_goes_to_reservations_before_anothers_bound),
		cmocka_unit_test(a_tenant_on_two_gpus_has_its_turns_on_both_at_the_same_time),
		cmocka_unit_test(turns_by_the_clock_are_kept_beside_a_long_bound),
		cmocka_unit_test(a_bound_takes_no_share_of_a_tenant_with_turns_by_the_clock),
		cmocka_unit_test(fifty_programs_that_start_at_once_are_all_served),
		cmocka_unit_test(random_programs_get_what_they_were_promised),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
