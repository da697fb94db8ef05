// SPDX-License-Identifier: MIT
/*
 * test_lengths.c - the next task is alerted ahead of a hand-over that can be foreseen, and only
 * then.
 */
#include "lengths.h"
#include "permit_rig.h"

#define AHEAD (60 * US)

static void test_uses_that_are_alike_are_foreseen(void **unused)
{
	struct core_lengths lengths = { 0 };

	assert_int_equal(core_lengths_expected(&lengths, 8), 0);
	core_lengths_note(&lengths, 1000 * US);
	assert_int_equal(core_lengths_expected(&lengths, 8), 1000 * US);
	core_lengths_note(&lengths, 1100 * US);
	assert_int_equal(core_lengths_expected(&lengths, 8), 1000 * US);
	core_lengths_note(&lengths, 1000 * US);
	assert_int_equal(core_lengths_expected(&lengths, 8), 1000 * US);
	core_lengths_note(&lengths, 800 * US);
	assert_int_equal(core_lengths_expected(&lengths, 8), 0);
	assert_int_equal(core_lengths_expected(&lengths, 2), 800 * US);
	core_lengths_note(&lengths, 5 * US);
	assert_int_equal(core_lengths_expected(&lengths, 2), 0);
	core_lengths_note(&lengths, UINT64_MAX);
	assert_int_equal(core_lengths_expected(&lengths, 8), 0);
}

/* A waiting task does not want it any more. */
static void forgo(uint32_t id)
{
	page(id)->want--;
	ring(id);
}

/* Both launch without end, each use of the engine so long; then task 0 holds, and task 1 waits. */
static void alternate(uint32_t ahead_ns, const uint64_t *uses, unsigned int count)
{
	struct rtxg_gpu_params params = rtxg_core_gpu_defaults();
	uint32_t holder = 0;

	params.policy = RTXG_GPU_FIFO;
	params.ahead_ns = ahead_ns;
	event((struct rtxg_event){ .type = RTXG_EV_GPU_SET, .gpu_params = params });
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	want(1);
	launch(0);
	for (unsigned int i = 0; i < count; i++) {
		pass(uses[i]);
		complete(holder);
		want(holder);
		holder = !holder;
		assert_true(has(holder));
		launch(holder);
	}
	if (holder) { /* what task 1 does now counts no more */
		pass(uses[count - 1]);
		complete(1);
		want(1);
		launch(0);
	}
	assert_false(has(1));
}

static const uint64_t alike[] = { 1000 * US, 1000 * US, 1000 * US, 1000 * US };

static void test_the_next_task_is_woken_just_before_the_end(void **unused)
{
	unsigned int before;

	alternate(AHEAD, alike, 4);
	before = w.wakes[1];
	w.ready_until = 0;
	pass(1000 * US - AHEAD - 1);
	assert_int_equal(w.wakes[1], before);
	pass(1);
	assert_int_equal(w.wakes[1], before + 1);
	assert_true(page(1)->permit & RTXG_PERMIT_READY);
	assert_int_equal(page(1)->ready_until, w.now + 2 * AHEAD);
	assert_int_equal(w.ready_until, page(1)->ready_until);
	/* Once for each use. */
	pass(AHEAD);
	assert_int_equal(w.wakes[1], before + 1);
	complete(0);
	assert_true(has(1));
	assert_false(page(1)->permit & RTXG_PERMIT_READY);
}

static void test_a_task_that_comes_late_is_alerted_at_once(void **unused)
{
	alternate(AHEAD, alike, 4);
	forgo(1);
	pass(1000 * US);
	assert_false(page(1)->permit & RTXG_PERMIT_READY);
	want(1);
	assert_true(page(1)->permit & RTXG_PERMIT_READY);
	assert_int_equal(page(1)->ready_until, w.now + AHEAD);
}

/* One that lasts longer than was foreseen costs no CPU for longer. */
static void test_a_use_that_goes_on_alerts_no_more(void **unused)
{
	alternate(AHEAD, alike, 4);
	w.ready_until = 0;
	forgo(1);
	pass(1000 * US + AHEAD);
	want(1);
	assert_false(page(1)->permit & RTXG_PERMIT_READY);
	assert_int_equal(w.ready_until, 0);
}

static void no_alert(uint32_t ahead_ns, const uint64_t *uses, unsigned int count)
{
	unsigned int before;

	alternate(ahead_ns, uses, count);
	before = w.wakes[1];
	w.ready_until = 0;
	for (unsigned int i = 0; i < 400; i++)
		pass(10 * US);
	assert_int_equal(w.wakes[1], before);
	assert_false(page(1)->permit & RTXG_PERMIT_READY);
	assert_int_equal(w.ready_until, 0);
}

static void test_none_is_alerted_unless_it_was_asked_for(void **unused)
{
	no_alert(0, alike, 4);
}

static void test_short_uses_are_not_worth_it(void **unused)
{
	static const uint64_t uses[] = { 200 * US, 200 * US, 200 * US, 200 * US };

	no_alert(AHEAD, uses, 4);
}

static void test_uses_that_are_not_alike_are_not_foreseen(void **unused)
{
	static const uint64_t uses[] = { 1000 * US, 3000 * US, 3000 * US, 1000 * US };

	no_alert(AHEAD, uses, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uses_that_are_alike_are_foreseen),
		TEST(test_the_next_task_is_woken_just_before_the_end),
		TEST(test_a_task_that_comes_late_is_alerted_at_once),
		TEST(test_a_use_that_goes_on_alerts_no_more),
		TEST(test_none_is_alerted_unless_it_was_asked_for),
		TEST(test_short_uses_are_not_worth_it),
		TEST(test_uses_that_are_not_alike_are_not_foreseen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
