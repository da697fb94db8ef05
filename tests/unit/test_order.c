// SPDX-License-Identifier: MIT
/*
 * test_order.c - constrained thread order at the places where its rules change.
 * tests/property/test_order.py tries orders at random.
 */
#include "check.h"

#include "rtxg_order_core.h"

#define THREADS 3

static uint64_t memory[1024];
static struct rtxg_order order;
static struct rtxg_order_fault fault;
static struct rtxg_order_run run;
static struct rtxg_order_thread threads[THREADS];
static uint32_t clocks[THREADS];
static struct rtxg_order_action actions[THREADS];

static int load(uint32_t entries, const struct rtxg_order_entry *entry, uint32_t needs,
		const struct rtxg_order_need *need)
{
	struct rtxg_order_shape shape = { THREADS, entries, needs };

	assert_in_range(rtxg_order_size(&shape), 1, sizeof(memory));
	rtxg_order_place(&order, &shape, memory);
	return rtxg_order_load(&order, entry, need, NULL, &fault);
}

static int step(uint32_t event, uint32_t thread)
{
	return rtxg_order_step(&run, event, thread, actions, THREADS);
}

static void begin(void)
{
	rtxg_order_begin(&run, &order, threads, clocks, 1);
	for (uint32_t t = 0; t < THREADS; t++)
		assert_int_equal(step(RTXG_ORDER_JOIN, t), 0);
}

static void make_access(uint32_t thread)
{
	assert_int_equal(step(RTXG_ORDER_BEFORE, thread), 1);
	assert_int_equal(actions[0].type, RTXG_ORDER_GO);
	step(RTXG_ORDER_AFTER, thread);
}

/* Access 1 of thread 0 needs two clocks: the later of both lets it go, and only that one. */
static void test_the_last_need_lets_a_thread_go(void **state)
{
	static const struct rtxg_order_entry entry[] = { { 0, 1, 0, 2, 7, 0 } };
	static const struct rtxg_order_need need[] = { { 1, 2 }, { 2, 1 } };

	assert_int_equal(load(1, entry, 2, need), 0);
	begin();
	make_access(0);
	assert_int_equal(step(RTXG_ORDER_BEFORE, 0), 0);
	make_access(1);
	make_access(2);
	assert_false(rtxg_order_may_go(&run, 0));
	assert_int_equal(step(RTXG_ORDER_BEFORE, 1), 1);
	assert_int_equal(step(RTXG_ORDER_AFTER, 1), 1);
	assert_int_equal(actions[0].type, RTXG_ORDER_GO);
	assert_int_equal(actions[0].thread, 0);
	assert_int_equal(step(RTXG_ORDER_AFTER, 0), 0);
}

/* A thread dies inside of its access: the access does not count, and who waits for it is told. */
static void test_death_inside_an_access_breaks_the_order(void **state)
{
	static const struct rtxg_order_entry entry[] = { { 0, 0, 0, 1, 12, 0 } };
	static const struct rtxg_order_need need[] = { { 2, 1 } };

	assert_int_equal(load(1, entry, 1, need), 0);
	begin();
	assert_int_equal(step(RTXG_ORDER_BEFORE, 0), 0);
	assert_int_equal(step(RTXG_ORDER_BEFORE, 2), 1);
	assert_int_equal(step(RTXG_ORDER_LEAVE, 2), 1);
	assert_int_equal(actions[0].type, RTXG_ORDER_BREAK);
	assert_int_equal(run.broken.kind, RTXG_ORDER_BREAK_ENDED);
	assert_int_equal(run.broken.step.mark, 12);
	assert_int_equal(run.broken.step.need.thread, 2);
	assert_int_equal(run.broken.clock, 0);
	assert_true(rtxg_order_may_go(&run, 0));
	assert_int_equal(step(RTXG_ORDER_AFTER, 0), 0);
	assert_int_equal(step(RTXG_ORDER_BEFORE, 1), -EPIPE);
}

/* A thread that ended early is noticed by who comes later, too. */
static void test_an_early_end_is_seen_by_who_comes_later(void **state)
{
	static const struct rtxg_order_entry entry[] = { { 0, 0, 0, 2, 3, 0 } };
	static const struct rtxg_order_need need[] = { { 1, 1 }, { 2, 1 } };

	assert_int_equal(load(1, entry, 2, need), 0);
	begin();
	assert_int_equal(step(RTXG_ORDER_LEAVE, 2), 0);
	/* the first need that is not met is of a thread that lives */
	assert_int_equal(step(RTXG_ORDER_BEFORE, 0), 1);
	assert_int_equal(actions[0].type, RTXG_ORDER_BREAK);
	assert_int_equal(run.broken.step.need.thread, 2);
	assert_int_equal(run.broken.ended, 1);
}

static void test_a_circle_is_named_step_by_step(void **state)
{
	static const struct rtxg_order_entry entry[] = { { 0, 3, 0, 1, 10, 0 },
							 { 1, 4, 1, 1, 11, 0 },
							 { 2, 0, 2, 1, 12, 0 } };
	static const struct rtxg_order_need need[] = { { 1, 5 }, { 2, 1 }, { 0, 4 } };

	assert_int_equal(load(3, entry, 3, need), -EINVAL);
	assert_int_equal(fault.kind, RTXG_ORDER_FAULT_CYCLE);
	assert_int_equal(fault.cycle, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(fault.steps[i].need.thread, fault.steps[(i + 1) % 3].thread);
}

enum { LONG = 64 * 200 };

static uint32_t breaths;

static void breathe(void)
{
	breaths++;
}

/* Two threads by turns: each entry waits for the one before. */
static void test_each_long_loop_of_loading_breathes(void **state)
{
	static struct rtxg_order_entry entry[LONG];
	static struct rtxg_order_need need[LONG];
	static uint64_t room[6 * LONG];
	struct rtxg_order_shape shape = { THREADS, LONG, LONG };

	for (uint32_t e = 0; e < LONG; e++) {
		entry[e] = (struct rtxg_order_entry){ e % 2, e / 2 + 1 - e % 2, e, 1, e, 0 };
		need[e] = (struct rtxg_order_need){ 1 - e % 2, e / 2 + 1 };
	}
	assert_in_range(rtxg_order_size(&shape), 1, sizeof(room));
	rtxg_order_place(&order, &shape, room);
	order.breathe = breathe;
	assert_int_equal(rtxg_order_load(&order, entry, need, NULL, &fault), 0);
	/*
	 * Once in 64 steps: entries are checked, counted, copied, their signals counted and made;
	 * needs are copied; signals are made a heap, in half as many steps, sorted, and repeated
	 * ones dropped; the walk looks at an entry twice, and makes a turn an entry.
	 */
	assert_in_range(2 * breaths, 23 * (LONG / 64), 23 * (LONG / 64) + 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_last_need_lets_a_thread_go),
		cmocka_unit_test(test_death_inside_an_access_breaks_the_order),
		cmocka_unit_test(test_an_early_end_is_seen_by_who_comes_later),
		cmocka_unit_test(test_a_circle_is_named_step_by_step),
		cmocka_unit_test(test_each_long_loop_of_loading_breathes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
