// SPDX-License-Identifier: MIT
/*
 * test_permit.c - the host's half of the shared page, with pages that behave, that stop, and that
 * lie.
 */
#include "permit_rig.h"

static void test_a_waiter_gets_a_permit_and_is_woken(void **unused)
{
	uint32_t before;

	open_task(0, 0, 1, 0);
	before = page(0)->permit;
	assert_false(has(0));
	want(0);
	assert_true(has(0));
	assert_int_not_equal(page(0)->permit >> RTXG_PERMIT_SEQ_SHIFT,
			     before >> RTXG_PERMIT_SEQ_SHIFT);
	assert_int_equal(w.wakes[0], 1);
}

static void test_a_permit_is_called_back_for_another_and_handed_over_when_drained(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	want(1);
	assert_false(has(0));
	assert_false(has(1));
	pass(5 * MS);
	complete(0);
	assert_true(has(1));
	assert_int_equal(stats_of(0).busy_ns, 5 * MS);
	assert_int_equal(stats_of(1).busy_ns, 0);
}

static void test_a_permit_called_back_before_its_first_use_is_good_for_that_launch(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	want(1);
	assert_true(has(0));
	assert_true(page(0)->permit & RTXG_PERMIT_ONESHOT);
	assert_true(page(0)->permit & RTXG_PERMIT_REPORT);
	launch(0);
	assert_false(has(0));
	pass(MS);
	complete(0);
	assert_true(has(1));
}

static void test_a_permit_that_came_too_late_for_its_waiter_goes_on_at_once(void **unused)
{
	for (uint32_t id = 0; id < 3; id++)
		open_task(id, id % 2, 1, 0);
	want(0);
	launch(0);
	want(1);
	want(2);
	/* It gives up, and its ring is still on the way when the permit comes. */
	page(1)->want = 0;
	pass(MS);
	complete(0);
	pass(20 * MS);
	assert_true(has(2));
	assert_int_equal(stats_of(1).grants, 1);
	assert_int_equal(w.tasks[1].lanes[C].state, PERMIT_FREE);
}

static void test_an_attempt_that_meets_a_permit_being_taken_back_is_served_later(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	open_task(2, 1, 1, 0); /* a sibling: permits of the two are good for one launch */
	want(0);
	launch(0);
	want(1);
	want(2);
	complete(0);
	assert_true(has(1));
	/* It gives up. While the permit is taken back, it tries once more, and meets no permit. */
	page(1)->want = 0;
	page(1)->watch = 1;
	w.attempt = true;
	ring(1);
	assert_false(has(1));
	assert_int_equal(page(1)->in_flight, 1);
	page(1)->in_flight = 0;
	page(1)->watch = 0;
	want(1);
	for (int i = 0; i < 20 && !has(1); i++) {
		if (has(2)) {
			launch(2);
			complete(2);
		}
		pass(MS);
	}
	assert_true(has(1));
	assert_int_equal(stats_of(1).expelled, 0);
	launch(1);
	complete(1);
}

static void test_a_stopped_launch_delays_the_others_once(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	page(0)->want = 1; /* its next thread waits already; then the program is stopped */
	want(1);
	pass(3 * SEC);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 1);
	for (int i = 0; i < 100; i++) {
		if (!has(1))
			want(1);
		launch(1);
		pass(5 * MS);
		complete(1);
		assert_false(has(0));
		/* A look of the host, or a ring of another thread, is no progress of the launch. */
		permit_look(&w.machine, w.now, &w.tasks[0]);
		ring(0);
		assert_false(has(0));
	}
	assert_int_equal(stats_of(0).expelled, 1);
	/* It goes on: what it launched has ended, and it is served as before. */
	complete(0);
	if (page(1)->in_flight)
		complete(1);
	pass(10 * MS);
	assert_true(has(0));
	launch(0);
	complete(0);
}

static void test_a_stopped_waiter_delays_the_others_once(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0); /* has its permit, and is stopped before it launches */
	want(1);
	pass(3 * SEC);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 1);
	for (int i = 0; i < 100; i++) {
		if (!has(1))
			want(1);
		launch(1);
		pass(5 * MS);
		complete(1);
		permit_look(&w.machine, w.now, &w.tasks[0]);
		assert_false(has(0));
	}
	assert_int_equal(stats_of(0).expelled, 1);
	/* It wakes, finds no permit, and says that it still waits. */
	ring(0);
	pass(10 * MS);
	assert_true(has(0));
	launch(0);
	complete(0);
}

static uint64_t active(uint32_t account)
{
	return permit_active_ns(&w.accounts[account].engines[C], w.now);
}

static void
test_an_engine_is_wanted_while_a_lane_waits_or_has_launched_and_not_in_pauses(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 0, 1, 0);
	open_task(2, 1, 1, 0);
	want(0);
	assert_int_equal(active(0), 0);
	launch(0);
	pass(3 * MS);
	complete(0);
	pass(50 * MS); /* it keeps its permit, and does nothing */
	permit_count(&w.machine, w.now, &w.tasks[0]);
	assert_int_equal(active(0), 3 * MS);
	launch(0);
	pass(2 * MS);
	want(2); /* of another vGPU: it is owed the time from now on */
	pass(1 * MS);
	assert_int_equal(active(1), 1 * MS);
	want(1); /* of the same one: its waiting and the other's launch are one time, not two */
	pass(4 * MS);
	assert_int_equal(active(1), 5 * MS);
	complete(0);
	assert_int_equal(active(0), 3 * MS + 7 * MS);
}

static void test_a_claim_of_use_counts_no_time_twice(void **unused)
{
	open_task(0, 0, 1, 0);
	want(0);
	launch(0);
	pass(1 * MS);
	page(0)->busy_ns += 500 * SEC;
	permit_count(&w.machine, w.now, &w.tasks[0]);
	assert_int_equal(active(0), 1 * MS);
	permit_count(&w.machine, w.now, &w.tasks[0]);
	assert_int_equal(active(0), 1 * MS);
}

static void test_a_move_takes_nothing_of_the_old_permit_along(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	want(1); /* 0 may launch once more */
	assert_true(w.tasks[0].lanes[C].last);
	permit_move(&w.machine, w.now, &w.tasks[0], &w.accounts[1]);
	assert_int_equal(w.moves, 1);
	assert_ptr_equal(w.left, &w.accounts[0]);
	assert_ptr_equal(w.tasks[0].account, &w.accounts[1]);
	assert_false(w.tasks[0].lanes[C].last);
	assert_true(has(1));
	launch(1);
	complete(1);
	assert_true(has(0));
	launch(0);
	complete(0);
	assert_int_equal(w.accounts[0].engines[C].waiting, 0);
}

static void test_a_move_waits_for_what_is_in_flight_and_keeps_the_counts(void **unused)
{
	open_task(0, 0, 1, 0);
	want(0);
	launch(0);
	permit_move(&w.machine, w.now, &w.tasks[0], &w.accounts[1]);
	assert_false(has(0));
	assert_int_equal(w.moves, 0);
	assert_int_equal(permit_pool_acquire(&w.machine, w.now, &w.tasks[0], 0), -EBUSY);
	assert_non_null(w.machine.refusal.what);
	pass(MS);
	complete(0);
	assert_int_equal(w.moves, 1);
	assert_int_equal(stats_of(0).grants, 1);
	assert_int_equal(stats_of(0).used_ns, MS);
	assert_int_equal(w.accounts[0].engines[C].launches, 1);
	assert_int_equal(permit_pool_acquire(&w.machine, w.now, &w.tasks[0], 0), 0);
}

/* A copy of the task is in flight, so that it cannot move yet. */
static void start_copy(uint32_t id)
{
	struct rtxg_lane *copy = &w.pages[id].lanes[RTXG_ENGINE_COPY_IN];

	copy->want = 1;
	ring(id);
	assert_true(copy->permit & RTXG_PERMIT_GRANTED);
	copy->want = 0;
	copy->in_flight = 1;
	copy->launches++;
}

static void end_copy(uint32_t id)
{
	struct rtxg_lane *copy = &w.pages[id].lanes[RTXG_ENGINE_COPY_IN];

	copy->in_flight = 0;
	copy->completions++;
	ring(id);
}

static void test_a_move_that_waits_for_a_copy_leaves_the_compute_engine_to_others(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	complete(0); /* a lease stays */
	start_copy(0);
	permit_move(&w.machine, w.now, &w.tasks[0], &w.accounts[1]);
	assert_int_equal(w.moves, 0);
	pass(50 * MS);
	want(1);
	assert_true(has(1));
	end_copy(0);
	assert_int_equal(w.moves, 1);
	assert_int_equal(stats_of(0).expelled, 0);
}

static void test_a_permit_that_others_wait_for_ends_with_the_move(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	start_copy(0);
	want(0);
	want(1);
	assert_true(w.tasks[0].lanes[C].last); /* 0 may launch once more */
	permit_move(&w.machine, w.now, &w.tasks[0], &w.accounts[1]);
	assert_true(has(1));
	assert_int_equal(w.moves, 0);
	launch(1);
	end_copy(0);
	complete(1);
	assert_true(has(0)); /* what it wants it wants in its new vGPU */
	launch(0);
	complete(0);
}

static void test_a_task_that_waits_while_it_is_moved_keeps_none_behind_it(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	open_task(2, 1, 1, 0);
	start_copy(0);
	want(1);
	launch(1);
	want(0);
	permit_move(&w.machine, w.now, &w.tasks[0], &w.accounts[1]);
	want(2);
	pass(5 * MS);
	complete(1);
	assert_true(has(2));
	assert_int_equal(stats_of(0).grants, 0);
	launch(2);
	end_copy(0);
	complete(2);
	assert_true(has(0));
}

static void test_a_pause_that_begins_with_a_move_is_told_to_the_core(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	start_copy(0);
	want(1);
	launch(1);
	want(0);
	pass(MS);
	complete(1); /* 1 is likely to be back: 0 is to report its pauses */
	assert_true(has(0) && page(0)->permit & RTXG_PERMIT_REPORT);
	launch(0);
	permit_move(&w.machine, w.now, &w.tasks[0], &w.accounts[1]);
	pass(MS);
	complete(0);
	assert_true(w.tasks[0].lanes[C].idle_reported);
	pass(50 * MS);
	want(1);
	assert_true(has(1));
	assert_int_equal(stats_of(0).busy_ns, MS);
}

static void test_claims_are_bounded_by_what_is_possible(void **unused)
{
	open_task(0, 0, 1, 0);
	page(0)->launches = UINT64_MAX;
	page(0)->device_ns = UINT64_MAX;
	pass(SEC);
	permit_count(&w.machine, w.now, &w.tasks[0]);
	assert_int_equal(w.accounts[0].engines[C].device_ns, SEC);
	assert_int_equal(w.accounts[0].engines[C].launches, SEC / 10);
	page(0)->launches = page(0)->device_ns = 0;
	permit_count(&w.machine, w.now, &w.tasks[0]);
	assert_int_equal(w.accounts[0].engines[C].launches, SEC / 10);
}

static void test_a_page_of_another_host_brings_no_permit_and_no_charge(void **unused)
{
	w.pages[0].lanes[C].permit = 7u << RTXG_PERMIT_SEQ_SHIFT | RTXG_PERMIT_GRANTED;
	w.pages[0].lanes[C].busy_ns = SEC;
	w.pages[0].lanes[C].want = 1;
	open_task(0, 0, 1, 0);
	assert_int_equal(page(0)->permit, 8u << RTXG_PERMIT_SEQ_SHIFT);
	permit_look(&w.machine, w.now, &w.tasks[0]);
	assert_true(has(0));
	launch(0);
	pass(MS);
	complete(0);
	permit_count(&w.machine, w.now, &w.tasks[0]);
	assert_int_equal(stats_of(0).used_ns, MS);
}

static void test_a_pool_takes_priority_and_length_of_the_task(void **unused)
{
	open_task(0, 0, 10, 10 * MS);
	open_task(1, 0, 10, 3 * MS);
	open_task(2, 0, 70, 1 * MS);
	open_task(3, 0, 50, 1 * MS);
	assert_int_equal(permit_pool_acquire(&w.machine, w.now, &w.tasks[0], 0), 0);
	assert_int_equal(permit_pool_acquire(&w.machine, w.now, &w.tasks[1], 0), 0);
	assert_int_equal(w.pool_grants[0] + w.pool_grants[1], 2);
	/* Both queues have one: the shorter use is the shorter wait. */
	assert_int_equal(permit_pool_acquire(&w.machine, w.now, &w.tasks[2], 0), 0);
	assert_int_equal(rtxg_core_pool_holder(w.core, 2), 1);
	assert_int_equal(rtxg_core_pool_holder(w.core, 1), RTXG_NONE);
	assert_int_equal(permit_pool_release(&w.machine, w.now, &w.tasks[1]), 0);
	assert_int_equal(rtxg_core_pool_holder(w.core, 2), RTXG_NONE);
	assert_true(w.tasks[2].pool_held);
	assert_int_equal(w.tasks[2].pool_gpu, 1);
	/* A holder that ends keeps no task waiting either. */
	assert_int_equal(permit_pool_acquire(&w.machine, w.now, &w.tasks[3], 0), 0);
	assert_int_equal(permit_pool_release(&w.machine, w.now, &w.tasks[3]), 0);
	assert_int_equal(permit_pool_release(&w.machine, w.now, &w.tasks[3]), -EPERM);
	assert_int_equal(permit_pool_acquire(&w.machine, w.now, &w.tasks[1], 0), 0);
	permit_close(&w.machine, w.now, &w.tasks[2]);
	assert_true(w.tasks[1].pool_held);
}

static void test_a_task_that_ends_keeps_no_task_waiting(void **unused)
{
	open_task(0, 0, 10, 10 * MS);
	open_task(1, 0, 10, 20 * MS);
	open_task(2, 0, 70, 1 * MS);
	for (uint32_t id = 0; id < 3; id++)
		assert_int_equal(permit_pool_acquire(&w.machine, w.now, &w.tasks[id], 0), 0);
	assert_int_equal(rtxg_core_pool_holder(w.core, 2), 0);
	permit_close(&w.machine, w.now, &w.tasks[0]);
	assert_int_equal(rtxg_core_pool_holder(w.core, 2), RTXG_NONE);
	assert_true(w.tasks[2].pool_held);
}

static void test_a_task_that_ends_lets_go_of_all(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	want(1);
	permit_close(&w.machine, w.now, &w.tasks[0]);
	assert_true(has(1));
	assert_null(w.table[0]);
	assert_int_equal(w.accounts[0].engines[C].waiting, 0);
}

static void test_advice_without_a_pool_is_the_gpu_with_the_fewest_tasks(void **unused)
{
	assert_int_equal(rtxg_core_device_advice(w.core, RTXG_NONE), 0);
	open_task(0, 0, 1, 0);
	assert_int_equal(rtxg_core_device_advice(w.core, RTXG_NONE), 1);
	open_task(1, 2, 1, 0);
	assert_int_equal(rtxg_core_device_advice(w.core, RTXG_NONE), 0);
}

/* ---- completions that the device tells ---- */

static void test_an_interrupt_hands_over_while_the_holder_does_not_run(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	fence(0, 7);
	want(1);
	pass(5 * MS);
	assert_false(interrupt());
	assert_false(has(1));
	w.word[0] = 7;
	assert_true(interrupt());
	assert_true(has(1));
	assert_int_equal(w.wakes[1], 1);
	assert_int_equal(stats_of(0).busy_ns, 5 * MS);
	/* The holder runs at last: that ends nothing, and costs it nothing. */
	launch(1);
	pass(20 * MS);
	complete_fenced(0);
	assert_false(has(0));
	assert_int_equal(stats_of(0).busy_ns, 5 * MS);
	complete(1);
	assert_int_equal(stats_of(1).busy_ns, 20 * MS);
}

static void test_a_launch_that_no_fence_covers_keeps_the_engine(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	fence(0, 7);
	launch(0); /* not with the device yet */
	want(1);
	w.word[0] = 7;
	assert_false(interrupt());
	assert_false(has(1));
	fence(0, 8);
	assert_false(interrupt());
	w.word[0] = 8;
	assert_true(interrupt());
	assert_true(has(1));
}

static void test_a_fence_counts_in_thirty_two_bits(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	w.word[0] = UINT32_MAX - 1;
	want(0);
	launch(0);
	fence(0, 1);
	want(1);
	assert_false(interrupt());
	w.word[0] = 1;
	assert_true(interrupt());
	assert_true(has(1));
}

static void test_an_idle_lease_is_not_busy_because_its_holder_has_not_run(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 0, 1, 0);
	want(0);
	launch(0);
	fence(0, 1);
	w.word[0] = 1;
	/* No other wants it: the lease stays, and whatever is asked finds the engine idle. */
	interrupt();
	pass(100 * MS);
	permit_count(&w.machine, w.now, &w.tasks[0]);
	want(1);
	pass(100 * MS);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 0);
}

static void test_an_expelled_task_is_served_when_the_device_has_finished(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	fence(0, 1);
	page(0)->want = 1; /* another thread of it waits */
	want(1);
	pass(3 * SEC);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 1);
	launch(1);
	w.word[0] = 1;
	ring(0);
	pass(5 * MS);
	complete(1);
	/* what it held the engine for is paid back first */
	for (int i = 0; i < 1000 && !has(0); i++)
		pass(10 * MS);
	assert_true(has(0));
}

static void test_a_fence_that_lies_harms_no_other(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	for (int i = 0; i < 1000; i++) {
		struct rtxg_lane *p = page(i % 2);

		p->fenced = (uint32_t)(i * 2654435761u);
		p->fence = (uint64_t)i << (i % 40);
		p->in_flight = i % 3 ? p->fenced : (uint32_t)i;
		p->want = i % 5;
		p->launches += i % 2;
		w.word[i % 2] = (uint32_t)(i * 40503u);
		if (i % 7)
			interrupt();
		else
			ring(i % 2);
		pass(MS);
	}
	permit_close(&w.machine, w.now, &w.tasks[1]);
	memset(&page(0)->in_flight, 0, sizeof(*page(0)) - offsetof(struct rtxg_lane, in_flight));
	page(0)->launches++;
	ring(0);
	want(0);
	for (int i = 0; i < 10000 && !has(0); i++)
		pass(10 * MS);
	assert_true(has(0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_waiter_gets_a_permit_and_is_woken),
		TEST(test_a_permit_is_called_back_for_another_and_handed_over_when_drained),
		TEST(test_a_permit_called_back_before_its_first_use_is_good_for_that_launch),
		TEST(test_a_permit_that_came_too_late_for_its_waiter_goes_on_at_once),
		TEST(test_an_attempt_that_meets_a_permit_being_taken_back_is_served_later),
		TEST(test_a_stopped_launch_delays_the_others_once),
		TEST(test_a_stopped_waiter_delays_the_others_once),
		TEST(test_an_engine_is_wanted_while_a_lane_waits_or_has_launched_and_not_in_pauses),
		TEST(test_a_claim_of_use_counts_no_time_twice),
		TEST(test_a_move_takes_nothing_of_the_old_permit_along),
		TEST(test_a_move_waits_for_what_is_in_flight_and_keeps_the_counts),
		TEST(test_a_move_that_waits_for_a_copy_leaves_the_compute_engine_to_others),
		TEST(test_a_permit_that_others_wait_for_ends_with_the_move),
		TEST(test_a_task_that_waits_while_it_is_moved_keeps_none_behind_it),
		TEST(test_a_pause_that_begins_with_a_move_is_told_to_the_core),
		TEST(test_claims_are_bounded_by_what_is_possible),
		TEST(test_a_page_of_another_host_brings_no_permit_and_no_charge),
		TEST(test_a_pool_takes_priority_and_length_of_the_task),
		TEST(test_a_task_that_ends_keeps_no_task_waiting),
		TEST(test_a_task_that_ends_lets_go_of_all),
		TEST(test_advice_without_a_pool_is_the_gpu_with_the_fewest_tasks),
		TEST(test_an_interrupt_hands_over_while_the_holder_does_not_run),
		TEST(test_a_launch_that_no_fence_covers_keeps_the_engine),
		TEST(test_a_fence_counts_in_thirty_two_bits),
		TEST(test_an_idle_lease_is_not_busy_because_its_holder_has_not_run),
		TEST(test_an_expelled_task_is_served_when_the_device_has_finished),
		TEST(test_a_fence_that_lies_harms_no_other),
	};

	return cmocka_run_group_tests_name("permit", tests, NULL, NULL);
}
