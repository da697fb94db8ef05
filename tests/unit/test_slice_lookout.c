// SPDX-License-Identifier: MIT
/*
 * test_slice_lookout.c - core/slice where the host could not act for a while, and tells afterwards
 * what it saw of the queues in that time. What a program did then is known from that, however late
 * the log tells who was on the engine; and one decision follows from all of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "slice_rig.h"

#define GLANCE (250 * US)

/* A look at context 0 that was made then, told now. */
static void saw(struct rig *r, uint64_t at, uint32_t value)
{
	tell(r, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_DEMAND,
					   .context = 0,
					   .at_ns = at,
					   .since_ns = r->looked[0],
					   .value = value });
	r->looked[0] = at;
}

/* Work that came at that time and was taken at once, so that the queues were empty again. */
static void saw_work(struct rig *r, uint64_t at, bool more_follow)
{
	uint32_t followed = more_follow ? RTXG_SLICE_FOLLOWED : 0;

	r->looked[0] = at - GLANCE;
	saw(r, at, RTXG_SLICE_WORK | RTXG_SLICE_FOLLOWED);
	saw(r, at + GLANCE, RTXG_SLICE_NO_WORK | followed);
}

/* On the engine from then on, as the log will tell. */
static void was_on(struct rig *r, uint32_t type, uint32_t context, uint64_t at)
{
	happens(r, type, context);
	r->log[r->unread - 1].at_ns = at;
}

static uint64_t work(const struct rig *r)
{
	struct rtxg_slice_view view;

	assert_int_equal(rtxg_slice_tenant_view(r->core, 0, &view), 0);
	return view.work_ns;
}

static void settle(struct rig *r)
{
	begin_beside_two(r, small_and_two);
	pass(r, 100 * MS);
	demand(r, 0, RTXG_SLICE_NO_WORK);
	pass(r, 5 * MS);
	assert_false(r->stopped[1] && r->stopped[2]);
}

static void one_decision_follows_from_all_that_was_seen(void **state)
{
	struct rig r;
	uint64_t from;

	settle(&r);
	from = r.now;
	r.now += 60 * MS;
	for (uint64_t at = from + 10 * MS; at <= from + 50 * MS; at += 10 * MS) {
		saw_work(&r, at, true);
		assert_false(r.stopped[1] && r.stopped[2]);
	}
	/* The log tells that all of it was worked through. */
	was_on(&r, RTXG_SLICE_EV_END, r.on, from + 50 * MS);
	was_on(&r, RTXG_SLICE_EV_START, 0, from + 50 * MS + 100 * US);
	was_on(&r, RTXG_SLICE_EV_END, 0, from + 50 * MS + 200 * US);
	was_on(&r, RTXG_SLICE_EV_START, r.on, from + 50 * MS + 300 * US);
	wake(&r, true);
	assert_false(r.stopped[1] && r.stopped[2]);
	/* The same, and the last work is there yet. */
	from = r.now;
	r.now += 30 * MS;
	saw_work(&r, from + 10 * MS, true);
	assert_false(r.stopped[1] && r.stopped[2]);
	r.looked[0] = r.now - GLANCE;
	saw(&r, r.now, RTXG_SLICE_QUEUED);
	assert_true(r.stopped[1] && r.stopped[2]);
	end(&r);
}

/* The others are stopped, and cannot be let go for 60 ms: three jobs of 100 us in that time. */
static void jobs_in_a_long_call(struct rig *r)
{
	uint64_t from;

	arrive(r);
	take(r, NO_CONTEXT);
	r->follows = false;
	from = r->now;
	r->now += 60 * MS;
	r->looked[0] = from;
	saw(r, from + GLANCE, RTXG_SLICE_NO_WORK | RTXG_SLICE_FOLLOWED);
	saw_work(r, from + 20 * MS, true);
	saw_work(r, from + 40 * MS, false);
	/* No other takes the engine, so it stays there. */
	was_on(r, RTXG_SLICE_EV_START, 0, from + 100 * US);
	wake(r, true);
	r->on = 0;
	r->follows = true;
	pass(r, 5 * MS);
	assert_false(r->stopped[1] && r->stopped[2]);
	take(r, NO_CONTEXT);
	follow(r);
	pass(r, 100 * MS);
	wake(r, true);
}

static void a_program_that_had_the_engine_for_want_of_others_is_charged_its_work(void **state)
{
	struct rig r;

	settle(&r);
	for (int call = 0; call < 10; call++) {
		uint64_t before = work(&r);

		jobs_in_a_long_call(&r);
		/* of each job, and of its grace at most */
		assert_in_range(work(&r) - before, 0, 3 * MS);
	}
	end(&r);
}

/*
 * Work that came and was taken waited 2 ms, for another could not be stopped. So it came onto the
 * engine long after it was seen, but it is no long kernel: what the program sits there afterwards
 * is not charged, and the next work is not taken to last so long.
 */
static void work_that_waited_is_no_long_kernel(void **state)
{
	struct rig r;

	settle(&r);
	for (int call = 0; call < 10; call++) {
		uint64_t from = r.now, before = work(&r);

		r.follows = false;
		r.now += 40 * MS;
		saw_work(&r, from + 10 * MS, false);
		take(&r, NO_CONTEXT);
		r.log[r.unread - 1].at_ns = from + 12 * MS - 100 * US;
		was_on(&r, RTXG_SLICE_EV_START, 0, from + 12 * MS);
		wake(&r, true);
		r.on = 0;
		r.now += 10 * MS;
		wake(&r, true);
		assert_in_range(work(&r) - before, 0, 1 * MS);
		r.follows = true;
		take(&r, NO_CONTEXT);
		follow(&r);
		pass(&r, 100 * MS);
		r.looked[0] = r.now - GLANCE;
	}
	end(&r);
}

/*
 * The queues were empty for longer than the grace when it came onto the engine: the host does not
 * know why, so it is taken for a kernel that runs on. It sits there for 60 ms, for the host is
 * late to let the others go. A kernel is believed to be twice as long as before, and not 60 ms.
 */
static void a_kernel_is_not_as_long_as_the_host_is_late(void **state)
{
	struct rig r;
	uint64_t from, before;

	settle(&r);
	from = r.now;
	before = work(&r);
	r.follows = false;
	r.looked[0] = from;
	r.now += 65 * MS;
	take(&r, NO_CONTEXT);
	r.log[r.unread - 1].at_ns = from + 5 * MS - 100 * US;
	was_on(&r, RTXG_SLICE_EV_START, 0, from + 5 * MS);
	r.on = 0;
	wake(&r, true);
	wake(&r, true);
	assert_in_range(work(&r) - before, 500 * US, 2 * MS);
	end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_decision_follows_from_all_that_was_seen),
		cmocka_unit_test(
			a_program_that_had_the_engine_for_want_of_others_is_charged_its_work),
		cmocka_unit_test(work_that_waited_is_no_long_kernel),
		cmocka_unit_test(a_kernel_is_not_as_long_as_the_host_is_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
