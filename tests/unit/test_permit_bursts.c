// SPDX-License-Identifier: MIT
/*
 * test_permit_bursts.c - launches in quick succession, which the machine decides about together.
 */
#include "permit_rig.h"

/* Tiny work: launched, waited for, launched again. Counts the rings. */
static unsigned int tiny(uint32_t id, unsigned int times)
{
	unsigned int rings = 0;

	for (unsigned int i = 0; i < times; i++) {
		if (!has(id)) {
			want(id);
			rings++;
		}
		if (!has(id))
			break;
		launch(id);
		pass(5000);
		rings += !has(id) || page(id)->permit & RTXG_PERMIT_REPORT;
		complete(id);
		pass(5000);
	}
	return rings;
}

/* As tiny(), of two tasks: each works while it has the engine, and waits otherwise. */
static unsigned int tiny_both(uint64_t ns, unsigned int *launches)
{
	uint64_t end = w.now + ns;
	unsigned int rings = 0;

	while (w.now < end) {
		uint32_t id = has(1);

		if (!page(1 - id)->want && !has(1 - id)) {
			want(1 - id);
			rings++;
		}
		if (has(id)) {
			rings += tiny(id, 1);
			(*launches)++;
		} else
			pass(5000);
	}
	return rings;
}

static void test_tiny_launches_in_succession_are_decided_about_together(void **unused)
{
	for (uint32_t vgpu = 0; vgpu < 2; vgpu++) { /* of two vGPUs, then of one */
		unsigned int launches = 0, rings;

		open_task(0, 0, 1, 0);
		open_task(1, 1 - vgpu, 1, 0);
		want(0);
		rings = tiny_both(SEC / 10, &launches);
		assert_in_range(launches, 8000, 10000);
		assert_in_range(rings, 10, launches / 10);
		/* They share, and no turn is long. */
		assert_in_range(page(0)->launches, launches * 4 / 10, launches * 6 / 10);
		assert_in_range(stats_of(0).grants, 50, 400);
		permit_close(&w.machine, w.now, &w.tasks[0]);
		permit_close(&w.machine, w.now, &w.tasks[1]);
		memset(w.pages, 0, sizeof(w.pages));
		pass(SEC);
		assert_int_equal(w.armed, RTXG_TIME_NEVER);
	}
}

static void
test_tasks_of_one_vgpu_that_ask_late_change_places_less_often_than_bursts_end(void **unused)
{
	unsigned int turns = 0;
	uint64_t end, since;
	uint32_t last = 0;

	open_task(0, 0, 1, 0);
	open_task(1, 0, 1, 0);
	want(0);
	/* Each asks somewhat after the other has begun, as a program's next launch does. */
	for (end = w.now + SEC / 10, since = w.now; w.now < end;) {
		uint32_t id = has(1);

		if (id != last && has(id)) {
			last = id;
			since = w.now;
			turns++;
		}
		if (w.now - since >= 50000 && !page(1 - id)->want && !has(1 - id))
			want(1 - id);
		/*
		 * The next one is out before the end of the last is told, as the OpenCL layer does.
		 */
		if (has(id))
			launch(id);
		pass(5000);
		for (uint32_t i = 0; i < 2; i++)
			if (page(i)->in_flight > has(i))
				complete(i);
	}
	/* A turn is of 1 ms, or ends with a burst: of 750 us in the mean. */
	assert_in_range(turns, 100, 150);
}

/* A task of vGPU 0 that is in a burst, while another waits. */
static void begin_burst(void)
{
	unsigned int launches = 0;

	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	tiny_both(20 * MS, &launches);
	while (!w.tasks[0].lanes[C].burst.on)
		tiny_both(10000, &launches);
	assert_true(page(1)->want);
	assert_true(has(0));
	assert_false(page(0)->permit & (RTXG_PERMIT_ONESHOT | RTXG_PERMIT_REPORT));
}

static void test_a_burst_ends_when_its_program_pauses(void **unused)
{
	begin_burst();
	/* It says nothing, and is found idle. */
	pass(5 * MS);
	assert_false(w.tasks[0].lanes[C].burst.on);
	assert_true(has(1));
}

static void test_a_burst_ends_with_a_launch_that_is_not_short(void **unused)
{
	begin_burst();
	launch(0);
	pass(BURST_NS + BURST_LOOK_NS);
	assert_false(w.tasks[0].lanes[C].burst.on);
	assert_true(!has(0) || page(0)->permit & RTXG_PERMIT_REPORT);
	pass(20 * MS);
	complete(0);
	pass(20 * MS);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 0);
	/* No burst begins before launches are short again. */
	launch(1);
	want(0);
	pass(MS);
	complete(1);
	pass(20 * MS);
	assert_true(has(0));
	assert_false(w.tasks[0].lanes[C].burst.on);
}

static void test_a_program_that_stops_in_a_burst_delays_the_others_once(void **unused)
{
	begin_burst();
	launch(0);
	pass(3 * SEC);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 1);
}

static void test_a_task_leaves_its_burst_when_it_is_moved_or_ends(void **unused)
{
	begin_burst();
	permit_move(&w.machine, w.now, &w.tasks[0], &w.accounts[1]);
	pass(20 * MS);
	assert_false(has(0));
	assert_int_equal(w.moves, 1);
	assert_null(w.machine.bursts);
	permit_close(&w.machine, w.now, &w.tasks[1]);
	permit_close(&w.machine, w.now, &w.tasks[0]);
	memset(w.pages, 0, sizeof(w.pages));
	begin_burst();
	permit_close(&w.machine, w.now, &w.tasks[0]);
	memset(page(0), 0xff, sizeof(*page(0))); /* another's memory by now */
	pass(20 * MS);
	assert_true(has(1));
	assert_int_equal(page(0)->permit, UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_tiny_launches_in_succession_are_decided_about_together),
		TEST(test_tasks_of_one_vgpu_that_ask_late_change_places_less_often_than_bursts_end),
		TEST(test_a_burst_ends_when_its_program_pauses),
		TEST(test_a_burst_ends_with_a_launch_that_is_not_short),
		TEST(test_a_program_that_stops_in_a_burst_delays_the_others_once),
		TEST(test_a_task_leaves_its_burst_when_it_is_moved_or_ends),
	};

	return cmocka_run_group_tests_name("permit_bursts", tests, NULL, NULL);
}
