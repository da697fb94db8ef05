// SPDX-License-Identifier: MIT
/*
 * test_slice_late.c - core/slice where the log is read late: what it has not been told of yet is no
 * reason to stop a program or to let others go. And what the log tells of an engine that is slow to
 * change from one program to the next is charged to none that did not cause it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "slice_rig.h"

static void run_job(struct rig *r)
{
	pass(r, 10 * MS);
	take(r, 0);
	pass(r, 100 * US);
	take(r, NO_CONTEXT);
	follow(r);
}

/* A critical task runs each 10 ms for 5 s, and a turn has just begun. */
static void settle_in_turns(struct rig *r)
{
	uint32_t before;

	begin_beside_two(r, critical_and_two);
	for (int job = 0; job < 500; job++)
		run_job(r);
	assert_int_equal(rtxg_slice_turns(r->core), 1);
	before = r->on;
	for (int job = 0; job < 100 && r->on == before; job++)
		run_job(r);
	assert_int_not_equal(r->on, before);
	pass(r, 10 * MS);
}

/*
 * The log was read while the critical task was on the engine. The program whose turn it is came
 * back after that, and has been there ever since.
 */
static void a_turn_is_not_lost_by_what_the_log_has_not_told(void **state)
{
	struct rig r;
	uint32_t on;

	settle_in_turns(&r);
	on = r.on;
	take(&r, 0);
	wake(&r, true);
	r.now += 100 * US;
	take(&r, on);
	r.now += 12 * MS;
	decide_unread(&r);
	assert_false(r.stopped[on]);
	assert_true(r.stopped[3 - on]);
	/* The log is asked for, and tells it. */
	assert_true(r.log_wanted && r.timer <= r.now);
	pass(&r, 10 * MS);
	assert_false(r.stopped[on]);
	assert_true(r.stopped[3 - on]);
	end(&r);
}

/* Its queues are filled, and it waits for something else than the engine. */
static void a_turn_passes_on_where_the_log_shows_that_it_is_not_used(void **state)
{
	uint64_t from;
	struct rig r;
	uint32_t on;

	settle_in_turns(&r);
	on = r.on;
	take(&r, NO_CONTEXT);
	r.follows = false;
	from = r.now;
	while (r.stopped[3 - on] && r.now < from + 200 * MS)
		pass(&r, 100 * US);
	/* A tick and its slice, then the log is read. */
	assert_in_range(r.now - from, 7 * MS, 40 * MS);
	end(&r);
}

/* Two take turns, and one of them has begun its turn 2 ms ago. */
static void settle_in_a_turn(struct rig *r)
{
	uint32_t was;

	begin_beside_two(r, two_in_batch);
	pass(r, 100 * MS);
	was = r->on;
	for (int i = 0; i < 2000 && r->on == was; i++)
		pass(r, 50 * US);
	assert_int_not_equal(r->on, was);
	pass(r, 2 * MS);
	demand(r, r->on, RTXG_SLICE_QUEUED);
	wake(r, true);
	assert_true(r->stopped[was]);
	r->follows = false;
}

/*
 * Its queues are filled, and it has left the engine, which none but it may have: it waits for the
 * other one, which is stopped. An engine that is free for a tick is enough to tell.
 */
static void a_turn_passes_on_soon_where_a_free_engine_is_not_used(void **state)
{
	uint64_t from;
	struct rig r;
	uint32_t on;

	settle_in_a_turn(&r);
	on = r.on;
	take(&r, NO_CONTEXT);
	wake(&r, true);
	from = r.now;
	while (r.stopped[3 - on] && r.now < from + 200 * MS)
		pass(&r, 100 * US);
	assert_in_range(r.now - from, 1 * MS, 4 * MS);
	end(&r);
}

/*
 * The host takes 20 ms to let the next one go. That the engine was free all that time says nothing
 * of it: it has had no time to come.
 */
static void a_turn_that_was_begun_slowly_is_not_passed_on(void **state)
{
	struct rig r;
	uint32_t was;

	begin_beside_two(&r, two_in_batch);
	pass(&r, 100 * MS);
	was = r.on;
	demand(&r, 3 - was, RTXG_SLICE_QUEUED);
	r.follows = false;
	for (int i = 0; i < 2000 && !r.stopped[was]; i++)
		pass(&r, 50 * US);
	assert_true(r.stopped[was]);
	assert_int_equal(r.on, NO_CONTEXT);
	r.now += 20 * MS;
	wake(&r, true);
	pass(&r, 500 * US);
	assert_true(r.stopped[was]);
	assert_false(r.stopped[3 - was]);
	end(&r);
}

/* It may be another one's that is not governed: that is no free engine. */
static void a_turn_goes_on_where_one_that_is_not_governed_has_the_engine(void **state)
{
	struct rig r;
	uint32_t on;

	settle_in_a_turn(&r);
	on = r.on;
	take(&r, NO_CONTEXT);
	happens(&r, RTXG_SLICE_EV_OTHER, 0);
	wake(&r, true);
	pass(&r, 4 * MS);
	assert_true(r.stopped[3 - on]);
	end(&r);
}

/* All are stopped for work that has a bound: it is waited for, though the engine is free. */
static void work_with_a_bound_keeps_a_free_engine(void **state)
{
	struct rig r;

	begin_beside_two(&r, chat_and_two);
	pass(&r, 100 * MS);
	arrive(&r);
	take(&r, NO_CONTEXT);
	r.follows = false;
	wake(&r, true);
	pass(&r, 3 * MS);
	assert_true(r.stopped[1] && r.stopped[2]);
	end(&r);
}

/* The chat has had bursts without pauses; then one of the others has the engine. */
static void settle_with_a_chat(struct rig *r)
{
	begin_beside_two(r, chat_and_two);
	pass(r, 100 * MS);
	for (int burst = 0; burst < 40; burst++) {
		arrive(r);
		pass(r, 400 * US);
		take(r, 0);
		pass(r, 1 * MS);
		demand(r, 0, RTXG_SLICE_NO_WORK);
		pass(r, 2 * MS);
		take(r, NO_CONTEXT);
		follow(r);
		assert_int_not_equal(r->on, NO_CONTEXT);
		pass(r, 60 * MS);
	}
	wake(r, true);
	follow(r);
}

/* The chat's work is not there yet: the others are not let go. Then it has come, and they are. */
static void waits_for_its_start(struct rig *r)
{
	r->now += 1500 * US;
	arrive(r);
	r->follows = false;
	demand(r, 0, RTXG_SLICE_NO_WORK);
	pass(r, 2 * MS);
	assert_true(r->stopped[1] && r->stopped[2]);
	take(r, 0);
	wake(r, true);
	pass(r, 1 * MS);
	assert_false(r->stopped[1] && r->stopped[2]);
}

/*
 * The engine's host holds the chat's work, and the slice of another goes on. What the log tells
 * only now is that the chat was on the engine before that work arrived.
 */
static void work_has_not_started_that_arrived_after_what_the_log_tells(void **state)
{
	struct rig r;
	uint32_t on;

	settle_with_a_chat(&r);
	on = r.on;
	take(&r, 0);
	r.now += 20 * US;
	take(&r, on);
	waits_for_its_start(&r);
	end(&r);
}

/* The log said that the chat was on the engine, and has not said yet that it is no more. */
static void work_has_not_started_that_arrived_after_a_stay_was_over(void **state)
{
	struct rig r;
	uint32_t on;

	settle_with_a_chat(&r);
	on = r.on;
	take(&r, 0);
	wake(&r, true);
	r.now += 2 * MS;
	decide_unread(&r);
	take(&r, on);
	waits_for_its_start(&r);
	end(&r);
}

/* How many waits of the chat were longer than a limit, of those that are counted. */
static uint64_t waits_above(const struct rig *r, uint64_t limit)
{
	struct rtxg_slice_view view;
	uint64_t count = 0;

	assert_int_equal(rtxg_slice_tenant_view(r->core, 0, &view), 0);
	for (uint32_t i = 1; i < RTXG_SLICE_WAITS; i++)
		count += rtxg_slice_wait_limit(i - 1) >= limit ? view.waits[i] : 0;
	return count;
}

/*
 * A short job of the chat, which is there and over between two looks: the host stops another, and
 * looks late. The log is read before the late look or after it.
 */
static void run_between_looks(struct rig *r, bool read_before)
{
	demand(r, 0, RTXG_SLICE_NO_WORK);
	r->now += 100 * US;
	take(r, 0);
	r->now += 50 * US;
	take(r, 1);
	if (read_before) {
		wake(r, true);
		pass(r, 1200 * US);
	}
	r->now += 1200 * US;
	demand(r, 0, RTXG_SLICE_WORK);
	wake(r, true);
	follow(r);
	demand(r, 0, RTXG_SLICE_NO_WORK);
	pass(r, 60 * MS);
}

static void work_has_not_waited_that_ran_between_two_looks(void **state)
{
	uint64_t before;
	struct rig r;

	settle_with_a_chat(&r);
	before = waits_above(&r, 1 * MS);
	for (int job = 0; job < 20; job++)
		run_between_looks(&r, job % 2);
	assert_int_equal(waits_above(&r, 1 * MS), before);
	end(&r);
}

static void work_has_not_waited_that_ran_before_the_first_look(void **state)
{
	struct rig r;

	begin_beside_two(&r, chat_and_two);
	take(&r, 0);
	pass(&r, 50 * US);
	take(&r, 1);
	pass(&r, 1 * MS);
	demand(&r, 0, RTXG_SLICE_WORK);
	pass(&r, 60 * MS);
	take(&r, 0);
	wake(&r, true);
	assert_int_equal(waits_above(&r, 1 * MS), 0);
	end(&r);
}

/* It comes between two looks, and onto the engine long after the second one. */
static void work_has_waited_from_the_look_that_showed_it(void **state)
{
	uint64_t before;
	struct rig r;

	settle_with_a_chat(&r);
	for (int job = 0; job < 5; job++) {
		before = waits_above(&r, 5 * MS);
		demand(&r, 0, RTXG_SLICE_NO_WORK);
		r.now += 1 * MS;
		demand(&r, 0, RTXG_SLICE_WORK);
		r.follows = false;
		pass(&r, 7 * MS);
		assert_int_equal(waits_above(&r, 5 * MS), before);
		take(&r, 0);
		wake(&r, true);
		assert_int_equal(waits_above(&r, 5 * MS), before + 1);
		assert_int_equal(waits_above(&r, 10 * MS), 0);
		take(&r, 1);
		r.follows = true;
		demand(&r, 0, RTXG_SLICE_NO_WORK);
		pass(&r, 60 * MS);
	}
	end(&r);
}

/* It is the turn of a program whose queues cannot be seen; that it uses it is not told yet. */
static void a_program_is_not_idle_that_the_log_has_not_told_of(void **state)
{
	static const struct rtxg_slice_tenant three[CONTEXTS] = { { .min_ppm = 300000 },
								  { .min_ppm = 300000 },
								  { .min_ppm = 300000 } };
	struct rtxg_slice_context_view view;
	uint32_t before, on;
	struct rig r;

	begin(&r, three);
	take(&r, 1);
	take(&r, 2);
	wake(&r, true);
	r.follows = true;
	follow(&r);
	pass(&r, 100 * MS);
	before = r.on;
	r.follows = false;
	for (int i = 0; i < 1000 && r.stopped[3 - before]; i++)
		pass(&r, 100 * US);
	on = 3 - before;
	assert_false(r.stopped[on]);
	take(&r, NO_CONTEXT);
	wake(&r, true);
	r.now += 90 * US;
	take(&r, on);
	r.now += 20 * MS;
	decide_unread(&r);
	assert_int_equal(rtxg_slice_context_view(r.core, on, &view), 0);
	assert_int_not_equal(view.state, RTXG_SLICE_IDLE);
	assert_true(r.log_wanted && r.timer <= r.now);
	end(&r);
}

/* A critical task that comes once a second came again, and the log has not told it yet. */
static void a_critical_task_is_not_gone_that_the_log_has_not_told_of(void **state)
{
	struct rig r;

	settle_in_turns(&r);
	take(&r, 0);
	r.now += 100 * US;
	take(&r, NO_CONTEXT);
	follow(&r);
	pass(&r, 980 * MS);
	assert_int_equal(rtxg_slice_turns(r.core), 1);
	wake(&r, true);
	r.now += 10 * MS;
	take(&r, 0);
	r.now += 15 * MS;
	decide_unread(&r);
	assert_int_equal(rtxg_slice_turns(r.core), 1);
	wake(&r, true);
	pass(&r, 900 * MS);
	assert_int_equal(rtxg_slice_turns(r.core), 1);
	pass(&r, 200 * MS);
	assert_int_equal(rtxg_slice_turns(r.core), 0);
	end(&r);
}

/*
 * Two programs that always have work, and 0 while it has a job, on an engine that is slow to
 * change.
 */
struct slow_engine {
	uint64_t since; /* the present one is on it, or the last one left it */
	bool job;
};

#define CHANGE_OVER (350 * US)

static void pass_slowly(struct rig *r, struct slow_engine *e, uint64_t ns)
{
	for (uint64_t until = r->now + ns; r->now < until;) {
		uint32_t next = NO_CONTEXT;

		r->now += 50 * US;
		if (r->timer <= r->now)
			wake(r, r->log_wanted);
		for (uint32_t i = 0; i < CONTEXTS; i++)
			if (i != r->on && !r->stopped[i] && (i || e->job))
				next = next == NO_CONTEXT ? i : next;
		if (r->on != NO_CONTEXT && (r->stopped[r->on] || (!r->on && !e->job) ||
					    (next != NO_CONTEXT && r->now - e->since >= 2 * MS))) {
			take(r, NO_CONTEXT);
			e->since = r->now;
		} else if (r->on == NO_CONTEXT && next != NO_CONTEXT &&
			   r->now - e->since >= CHANGE_OVER) {
			take(r, next);
			e->since = r->now;
		}
	}
}

/* A short job of program 0: for how long it waits for the engine. */
static uint64_t wait_of_job(struct rig *r, struct slow_engine *e)
{
	uint64_t from = r->now, waited;

	e->job = true;
	demand(r, 0, RTXG_SLICE_QUEUED);
	while (r->on && r->now - from < 1000 * MS)
		pass_slowly(r, e, 50 * US);
	waited = r->now - from;
	pass_slowly(r, e, 50 * US);
	e->job = false;
	demand(r, 0, RTXG_SLICE_NO_WORK);
	return waited;
}

/*
 * It does not pay for the time that the engine takes to change between the others, which always
 * have work: its share is so small that it would be ahead of it for ever.
 */
static void a_small_share_keeps_its_bound_beside_programs_that_never_rest(void **state)
{
	struct slow_engine e = { 0 };
	struct rig r;

	begin(&r, small_and_two);
	for (uint32_t i = 1; i < CONTEXTS; i++) {
		take(&r, i);
		demand(&r, i, RTXG_SLICE_QUEUED);
	}
	wake(&r, true);
	e.since = r.now;
	for (int job = 0; job < 40; job++) {
		assert_in_range(wait_of_job(&r, &e), 0, 5 * MS);
		pass_slowly(&r, &e, 500 * MS);
	}
	end(&r);
}

/*
 * A burst of the chat with a small share: the log is read while it is on the engine, and again 20
 * ms later, when it has left it 1 ms ago and the others are still stopped for it. It is charged for
 * 19 ms of work, and for what it kept from the others since: not for the 20 ms as well.
 */
static void late_reading_of_the_log_charges_no_time_twice(void **state)
{
	struct rig r;

	begin_beside_two(&r, small_and_two);
	pass(&r, 100 * MS);
	for (int burst = 0; burst < 5; burst++) {
		struct rtxg_slice_gpu_view before, after;
		int64_t was;

		arrive(&r);
		take(&r, 0);
		wake(&r, true);
		was = lag(&r);
		rtxg_slice_gpu_view(r.core, &before);
		r.now += 19 * MS;
		take(&r, NO_CONTEXT);
		r.now += 1 * MS;
		wake(&r, true);
		wake(&r, true);
		rtxg_slice_gpu_view(r.core, &after);
		/* The bound is a tick. */
		assert_in_range(after.idle_ns - before.idle_ns, 1 * MS, 3 * MS);
		assert_in_range(lag(&r) - was, 15 * MS, 22 * MS);
		demand(&r, 0, RTXG_SLICE_NO_WORK);
		pass(&r, 2000 * MS);
	}
	end(&r);
}

/*
 * Work of the one with a small share arrives and does not come onto the engine, and the host comes
 * 20 or 50 ms after it was to: the log has nothing to tell of that time. The engine was idle, but
 * what the others lost by the host is not charged to the one that they were stopped for. Else it
 * would be too far ahead of its share for its bound after two such times.
 */
static void a_late_host_is_not_charged_to_one_that_others_are_stopped_for(void **state)
{
	struct rig r;

	begin_beside_two(&r, small_and_two);
	pass(&r, 100 * MS);
	for (int burst = 0; burst < 8; burst++) {
		uint64_t late = burst % 2 ? 20 * MS : 50 * MS, due;
		struct rtxg_slice_gpu_view before, after;

		arrive(&r);
		assert_true(lag(&r) < 20 * (int64_t)MS);
		take(&r, NO_CONTEXT);
		r.now += 500 * US;
		wake(&r, true);
		due = r.timer - r.now;
		assert_in_range(due, 0, 5 * MS);
		rtxg_slice_gpu_view(r.core, &before);
		r.now = r.timer + late;
		wake(&r, true);
		rtxg_slice_gpu_view(r.core, &after);
		assert_in_range(after.idle_ns - before.idle_ns, late, late + due);
		demand(&r, 0, RTXG_SLICE_NO_WORK);
		follow(&r);
		pass(&r, 300 * MS);
	}
	end(&r);
}

/*
 * The machine slept for an hour, which the GPU's clock counts and ours does not: for some seconds
 * the log tells of times that are to come. Then the clocks are compared again.
 */
static void times_to_come_are_not_believed_for_longer_than_they_are_told(void **state)
{
	const uint64_t hour = 3600ull * 1000 * MS;
	struct rtxg_slice_context_view view;
	uint64_t work;
	struct rig r;

	settle_in_turns(&r);
	for (int job = 0; job < 100; job++) {
		take(&r, 0);
		r.log[r.unread - 1].at_ns += hour;
		r.now += 100 * US;
		take(&r, NO_CONTEXT);
		r.log[r.unread - 1].at_ns += hour;
		follow(&r);
		r.log[r.unread - 1].at_ns += hour;
		wake(&r, true);
		pass(&r, 10 * MS);
	}
	assert_int_equal(rtxg_slice_context_view(r.core, 0, &view), 0);
	work = view.work_ns;
	/* The critical task ends. */
	pass(&r, 2000 * MS);
	assert_int_equal(rtxg_slice_turns(r.core), 0);
	assert_int_equal(rtxg_slice_context_view(r.core, 0, &view), 0);
	assert_int_equal(view.state, RTXG_SLICE_IDLE);
	assert_in_range(view.work_ns - work, 0, 1 * MS);
	end(&r);
}

/* The GPU's clock was set back by an hour: none is charged for that time. */
static void times_long_ago_are_charged_to_none(void **state)
{
	const uint64_t hour = 3600ull * 1000 * MS;
	struct rtxg_slice_context_view before, after;
	struct rig r;

	settle_in_turns(&r);
	r.now += 2 * hour; /* the rig's own clock is young */
	wake(&r, true);
	assert_int_equal(rtxg_slice_context_view(r.core, 0, &before), 0);
	for (int job = 0; job < 100; job++) {
		take(&r, 0);
		for (uint32_t i = 0; i < r.unread; i++)
			r.log[i].at_ns -= hour;
		wake(&r, true);
		r.now += 100 * US;
		take(&r, NO_CONTEXT);
		follow(&r);
		for (uint32_t i = 0; i < r.unread; i++)
			r.log[i].at_ns -= hour;
		wake(&r, true);
		pass(&r, 10 * MS);
	}
	assert_int_equal(rtxg_slice_context_view(r.core, 0, &after), 0);
	/* No more than the time that has passed, and 50 ms. */
	assert_in_range(after.work_ns - before.work_ns, 0, 1060 * MS);
	assert_in_range(after.stay_ns - before.stay_ns, 0, 1060 * MS);
	end(&r);
}

/*
 * The turn has passed to a program whose queues are filled and empty by turns, and that is looked
 * into often. What the log tells of the change is not waited for longer than a tick.
 */
static void looks_do_not_put_the_reading_of_the_log_off(void **state)
{
	struct rig r;
	uint64_t from;

	begin_beside_two(&r, two_in_batch);
	pass(&r, 100 * MS);
	for (int turn = 0; turn < 5; turn++) {
		uint32_t was = r.on;

		for (int i = 0; i < 2000 && r.on == was; i++)
			pass(&r, 50 * US);
		assert_int_not_equal(r.on, was);
		from = r.now;
		for (int i = 0; i < 400 && r.unread; i++) {
			demand(&r, r.on, i % 2 ? RTXG_SLICE_QUEUED : RTXG_SLICE_NO_WORK);
			pass(&r, 100 * US);
		}
		assert_int_equal(r.unread, 0);
		assert_in_range(r.now - from, 0, 4 * MS);
		demand(&r, r.on, RTXG_SLICE_QUEUED);
	}
	end(&r);
}

/*
 * A vGPU is set again each 10 ms, as a program does that adjusts shares all the time. The programs
 * that have begun meanwhile are in the log, and it is read in time all the same.
 */
static void what_is_set_again_and_again_does_not_put_the_reading_off(void **state)
{
	uint32_t turns = 0, on;
	struct rig r;

	begin(&r, two_in_batch);
	for (int i = 0; i < 20; i++) {
		tell(&r, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TENANT_SET,
						    .tenant = 0,
						    .tenant_params = two_in_batch[0] });
		pass(&r, 10 * MS);
	}
	r.follows = true;
	take(&r, 1);
	r.now += 2 * MS;
	take(&r, 2);
	for (int i = 0; i < 100; i++) {
		on = r.on;
		tell(&r, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TENANT_SET,
						    .tenant = (uint32_t)i % 3,
						    .tenant_params = two_in_batch[i % 3] });
		pass(&r, 10 * MS);
		follow(&r);
		turns += on != r.on;
	}
	assert_in_range(turns, 20, 200);
	end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_turn_is_not_lost_by_what_the_log_has_not_told),
		cmocka_unit_test(a_turn_passes_on_where_the_log_shows_that_it_is_not_used),
		cmocka_unit_test(a_turn_passes_on_soon_where_a_free_engine_is_not_used),
		cmocka_unit_test(a_turn_that_was_begun_slowly_is_not_passed_on),
		cmocka_unit_test(a_turn_goes_on_where_one_that_is_not_governed_has_the_engine),
		cmocka_unit_test(work_with_a_bound_keeps_a_free_engine),
		cmocka_unit_test(work_has_not_started_that_arrived_after_what_the_log_tells),
		cmocka_unit_test(work_has_not_started_that_arrived_after_a_stay_was_over),
		cmocka_unit_test(work_has_not_waited_that_ran_between_two_looks),
		cmocka_unit_test(work_has_not_waited_that_ran_before_the_first_look),
		cmocka_unit_test(work_has_waited_from_the_look_that_showed_it),
		cmocka_unit_test(a_program_is_not_idle_that_the_log_has_not_told_of),
		cmocka_unit_test(a_critical_task_is_not_gone_that_the_log_has_not_told_of),
		cmocka_unit_test(a_small_share_keeps_its_bound_beside_programs_that_never_rest),
		cmocka_unit_test(late_reading_of_the_log_charges_no_time_twice),
		cmocka_unit_test(a_late_host_is_not_charged_to_one_that_others_are_stopped_for),
		cmocka_unit_test(times_to_come_are_not_believed_for_longer_than_they_are_told),
		cmocka_unit_test(times_long_ago_are_charged_to_none),
		cmocka_unit_test(looks_do_not_put_the_reading_of_the_log_off),
		cmocka_unit_test(what_is_set_again_and_again_does_not_put_the_reading_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
