// SPDX-License-Identifier: MIT
/*
 * test_foreseen.c - waits that foresee, by the library in whole, on a GPU and a clock that are not
 * there: they end right after the word has come where uses take equally long, look no longer than
 * they may, and are as others where they do not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <sys/prctl.h>
#include <time.h>
#include <cmocka.h>
#include "fake_nvrm.h"
#include "foresee.h"
#include "nvrm_gpu.h"
#include "rtxg_nvrm.h"

#define US    1000ull
#define MS    1000000ull
#define USES  60u
#define FIRST 20u /* uses before anything is expected */

static rtx_nvrm_t gpu;
static rtx_timeline_t line;

static int before(void **state)
{
	fake_nvrm_reset();
	rtx_lib_nvrm_sys = &fake_nvrm_sys;
	assert_int_equal(rtx_nvrm_init(&gpu, NULL), 0);
	assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &line), 0);
	assert_int_equal(rtx_timeline_foresee(line, true), 0);
	fake_nvrm.clock = 1000 * MS;
	fake_nvrm.apart = 77777777777;
	fake_nvrm.timer_late = 5 * US;
	fake_nvrm.interrupt_late = 60 * US;
	fake_nvrm.word = rtx_timeline_word(line);
	return 0;
}

static int after(void **state)
{
	fake_nvrm.clock = 0;
	assert_int_equal(rtx_nvrm_close(gpu), 0);
	assert_int_equal(fake_nvrm.wild, 0);
	return 0;
}

static struct rtx_timeline_stats stats(void)
{
	struct rtx_timeline_stats s = RTX_INIT(struct rtx_timeline_stats);

	assert_int_equal(rtx_timeline_stats(line, &s), 0);
	return s;
}

/* The engine is a real thread: until it has written the fence. */
static void wait_for_stamp(uint32_t value)
{
	uint64_t at;

	while (rtx_timeline_stamp(line, value, &at))
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

/* How long after its end the wait for a use of that length came back. */
static uint64_t use(uint32_t value, uint64_t length)
{
	uint64_t end;

	assert_int_equal(rtx_timeline_arm(line, value), 0);
	fake_nvrm.value = value;
	end = fake_nvrm.clock + length;
	fake_nvrm.end_at = end;
	assert_int_equal(rtx_timeline_wait(line, value, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	assert_true(rtx_timeline_reached(line, value));
	end = fake_nvrm.clock - end;
	wait_for_stamp(value);
	fake_nvrm.clock += 5 * MS;
	return end;
}

static void equal_uses_are_met(void **state)
{
	uint64_t late = 0;

	for (uint32_t v = 1; v <= USES; v++) {
		uint64_t ns = use(v, MS);

		if (v == 1)
			assert_true(ns >= fake_nvrm.interrupt_late);
		if (v > FIRST)
			late += ns;
	}
	assert_true(stats().hits >= USES / 2);
	assert_true(late / (USES - FIRST) < 5 * US);
}

static void a_look_is_short(void **state)
{
	for (uint32_t v = 1; v <= USES; v++)
		use(v, MS);
	fake_nvrm.awake = fake_nvrm.awake_at = 0;
	/* this one takes longer: the look is in vain, and the interrupt ends the wait */
	assert_true(use(USES + 1, 9 * MS) >= fake_nvrm.interrupt_late);
	assert_true(fake_nvrm.awake > 0);
	assert_true(fake_nvrm.awake <= FORESEE_LOOK_NS + 2 * US);
	/* and so does this one, which ends while it sleeps */
	assert_true(use(USES + 2, 100 * US) >= fake_nvrm.interrupt_late);
}

static void uses_that_differ_are_slept_through(void **state)
{
	for (uint32_t v = 1; v <= USES; v++)
		assert_true(use(v, v % 2 ? MS : 3 * MS) >= fake_nvrm.interrupt_late);
	assert_int_equal(stats().looks, 0);
}

static void what_is_not_asked_for_is_not_done(void **state)
{
	assert_int_equal(rtx_timeline_foresee(line, false), 0);
	for (uint32_t v = 1; v <= USES; v++)
		assert_true(use(v, MS) >= fake_nvrm.interrupt_late);
	assert_int_equal(stats().looks, 0);
}

static void its_time_is_obeyed(void **state)
{
	uint64_t until;

	for (uint32_t v = 1; v <= USES; v++)
		use(v, MS);
	assert_int_equal(rtx_timeline_arm(line, USES + 1), 0);
	until = fake_nvrm.clock + MS / 2;
	assert_int_equal(rtx_timeline_wait(line, USES + 1, RTX_SYNC_NOTIFY, until), -ETIMEDOUT);
	assert_true(fake_nvrm.clock >= until && fake_nvrm.clock < until + 20 * US);
}

/* The driver's own poll() of Linux: the slack of the thread's timers is as before. */
static void slack_is_as_it_was(void **state)
{
	int slack = prctl(PR_GET_TIMERSLACK);

	fake_nvrm.clock = 0;
	for (int exact = 0; exact < 2; exact++) {
		int fd = fake_nvrm_sys.open(NULL, "/dev/nvidia0");

		assert_true(fd >= 0);
		assert_int_equal(nv_sys_linux.poll(NULL, fd, 50 * US, exact), 0);
		assert_int_equal(prctl(PR_GET_TIMERSLACK), slack);
		fake_nvrm_sys.close(NULL, fd);
	}
}

static void a_bad_timeline_is_refused(void **state)
{
	assert_int_equal(rtx_timeline_foresee(NULL, true), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(equal_uses_are_met, before, after),
		cmocka_unit_test_setup_teardown(a_look_is_short, before, after),
		cmocka_unit_test_setup_teardown(uses_that_differ_are_slept_through, before, after),
		cmocka_unit_test_setup_teardown(what_is_not_asked_for_is_not_done, before, after),
		cmocka_unit_test_setup_teardown(its_time_is_obeyed, before, after),
		cmocka_unit_test_setup_teardown(slack_is_as_it_was, before, after),
		cmocka_unit_test(a_bad_timeline_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
