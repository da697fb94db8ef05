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
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "foresee.h"
#include "nvrm.h"
#include "nvrm_rig.h"

#define US    1000ull
#define MS    1000000ull
#define USES  60u
#define FIRST 20u /* uses before anything is expected */

static int slacks; /* the library's calls that ask for the slack of timers or set it */

/* In the place of the C library's: the library under test finds this one. */
int prctl(int option, ...)
{
	unsigned long argument;
	va_list args;

	va_start(args, option);
	argument = va_arg(args, unsigned long);
	va_end(args);
	if (option == PR_SET_TIMERSLACK || option == PR_GET_TIMERSLACK)
		slacks++;
	return (int)syscall(SYS_prctl, option, argument, 0, 0, 0);
}

static int own_slack(void)
{
	return (int)syscall(SYS_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0);
}

static int before(void **state)
{
	rig_reset();
	foreseeing = RTX_FORESEE_LOOK;
	up();
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
	down();
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
	fake_nvrm.awake_at = fake_nvrm.clock;
	assert_int_equal(rtx_timeline_wait(line, value, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	assert_true(rtx_timeline_reached(line, value));
	fake_nvrm.busy += fake_nvrm.clock - fake_nvrm.awake_at;
	fake_nvrm.awake_at = 0; /* between waits it is another's time */
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

/* What USES waits of that kind cost on average: time outside of sleeps, and calls. */
struct cost {
	uint64_t late, busy;
	int sleeps, slacks, interrupts;
};

static struct cost cost(enum rtx_foresee how)
{
	struct cost c = { 0 };
	uint64_t late;

	before(NULL);
	assert_int_equal(rtx_timeline_foresee(line, how), 0);
	for (uint32_t v = 1; v <= 3 * USES; v++) {
		if (v == 2 * USES + 1) {
			fake_nvrm.busy = 0;
			fake_nvrm.sleeps = slacks = fake_nvrm.interrupts = 0;
		}
		late = use(v, MS);
		c.late += v > 2 * USES ? late : 0;
	}
	c.late /= USES;
	c.busy = fake_nvrm.busy / USES;
	c.sleeps = fake_nvrm.sleeps;
	c.slacks = slacks;
	c.interrupts = fake_nvrm.interrupts;
	after(NULL);
	return c;
}

/*
 * Beside the interrupt alone: three calls for exact timers, and a second sleep only where a look
 * was in vain. No interrupt comes but for these.
 */
static void who_sleeps_is_as_cheap_as_the_interrupt(void **state)
{
	struct cost plain = cost(RTX_FORESEE_OFF), looks = cost(RTX_FORESEE_LOOK),
		    sleeps = cost(RTX_FORESEE_SLEEP);

	assert_true(plain.late >= 60 * US);
	assert_true(sleeps.late < plain.late / 10);
	assert_true(sleeps.busy <= plain.busy + US / 2);
	assert_true(looks.busy >= 3 * sleeps.busy);
	assert_true(plain.sleeps <= (int)USES + 2);
	assert_true(sleeps.sleeps <= (int)(USES + USES / 10));
	assert_int_equal(plain.interrupts, USES);
	assert_true(sleeps.interrupts <= (int)USES / 10);
	assert_true(looks.interrupts <= (int)USES / 2);
	assert_int_equal(plain.slacks, 0);
	assert_true(sleeps.slacks <= 3 * (int)USES);
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

/*
 * Wherever the thread is when the word comes: no interrupt is asked for any more then, and none is
 * slept for. What is foreseen is learned again for each, so that looks begin where they did.
 */
static void an_end_right_after_a_look_is_not_slept_over(void **state)
{
	for (uint64_t more = 0; more < 15 * US; more += 50) {
		after(NULL);
		before(NULL);
		for (uint32_t v = 1; v <= FIRST; v++)
			use(v, MS);
		assert_true(use(FIRST + 1, MS + more) <= 2 * fake_nvrm.interrupt_late);
	}
}

/* It sleeps on a timer alone, so that is when it looks. */
static void an_end_before_the_one_foreseen_is_seen_by_then(void **state)
{
	for (int how = RTX_FORESEE_LOOK; how <= RTX_FORESEE_SLEEP; how++) {
		assert_int_equal(rtx_timeline_foresee(line, (enum rtx_foresee)how), 0);
		for (uint32_t v = 1; v <= USES; v++)
			use((uint32_t)how * 100 + v, MS);
		assert_true(use((uint32_t)how * 100 + USES + 1, MS / 2) <= MS / 2 + 10 * US);
	}
}

/* The word is the test's to write, and the engine is a real thread. */
static void raises(uint32_t value, int more)
{
	int before = __atomic_load_n(&fake_nvrm.interrupts, __ATOMIC_SEQ_CST);

	__atomic_store_n(rtx_timeline_word(line), value, __ATOMIC_RELEASE);
	wait_for_stamp(value);
	while (__atomic_load_n(&fake_nvrm.interrupts, __ATOMIC_SEQ_CST) < before + more)
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	assert_int_equal(__atomic_load_n(&fake_nvrm.interrupts, __ATOMIC_SEQ_CST), before + more);
}

/* Only the wait that foresees does without: who else may wait for the value has its interrupt. */
static void others_have_their_interrupts(void **state)
{
	struct timeline_share share;
	uint32_t v;

	for (v = 1; v <= USES; v++)
		use(v, MS);
	assert_int_equal(rtx_timeline_arm(line, v), 0);
	raises(v, 0);
	/* one more is outstanding: each may be waited for by another thread */
	assert_int_equal(rtx_timeline_arm(line, v + 1), 0);
	assert_int_equal(rtx_timeline_arm(line, v + 2), 0);
	raises(v + 2, 2);
	/* the host is to be told */
	assert_int_equal(rtx_timeline_arm(line, v + 3), 0);
	assert_int_equal(rtx_lib_timeline_ask(line, v + 3), 0);
	assert_int_equal(rtx_lib_timeline_ask(line, v + 3), 0);
	raises(v + 3, 1);
	/* and knows the timeline from now on: one descriptor more is rung */
	assert_int_equal(rtx_lib_timeline_share(line, &share), 0);
	rtx_lib_timeline_leave(line);
	assert_int_equal(rtx_timeline_arm(line, v + 4), 0);
	raises(v + 4, 1);
}

/* One place of the ring is for the interrupt that a wait may ask for later. */
static void as_many_values_as_stated_may_be_armed_at_once(void **state)
{
	uint32_t v, most = RTX_TIMELINE_ARMED_MAX - 1;

	for (v = 0; v < USES; v++)
		use(v + 1, MS);
	for (uint32_t i = 1; i <= most; i++)
		assert_int_equal(rtx_timeline_arm(line, v + i), 0);
	assert_int_equal(rtx_timeline_arm(line, v + most + 1), -EAGAIN);
	assert_non_null(strstr(rtx_strerror(), "254 values are armed"));
	raises(v + most, (int)most);
	assert_int_equal(rtx_timeline_arm(line, v + most + 1), 0);
}

static void uses_that_differ_are_slept_through(void **state)
{
	for (uint32_t v = 1; v <= USES; v++)
		assert_true(use(v, v % 2 ? MS : 3 * MS) >= fake_nvrm.interrupt_late);
	assert_int_equal(stats().looks, 0);
}

static void what_is_not_asked_for_is_not_done(void **state)
{
	assert_int_equal(rtx_timeline_foresee(line, RTX_FORESEE_OFF), 0);
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

/* However a wait ends. */
static void slack_is_as_it_was(void **state)
{
	int slack = own_slack();

	assert_true(slack > 1);
	for (uint32_t v = 1; v <= USES; v++) {
		use(v, MS);
		assert_int_equal(own_slack(), slack);
	}
	assert_true(slacks > 0);
	assert_int_equal(rtx_timeline_arm(line, USES + 1), 0);
	assert_int_equal(
		rtx_timeline_wait(line, USES + 1, RTX_SYNC_NOTIFY, fake_nvrm.clock + MS / 2),
		-ETIMEDOUT);
	assert_int_equal(own_slack(), slack);
}

static void a_bad_timeline_is_refused(void **state)
{
	assert_int_equal(rtx_timeline_foresee(NULL, RTX_FORESEE_LOOK), -EINVAL);
}

static void a_way_that_is_none_is_refused(void **state)
{
	assert_int_equal(rtx_timeline_foresee(line, (enum rtx_foresee)3), -EINVAL);
	assert_non_null(strstr(rtx_strerror(), "no way 3 to foresee"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(equal_uses_are_met, before, after),
		cmocka_unit_test(who_sleeps_is_as_cheap_as_the_interrupt),
		cmocka_unit_test_setup_teardown(a_look_is_short, before, after),
		cmocka_unit_test_setup_teardown(an_end_right_after_a_look_is_not_slept_over, before,
						after),
		cmocka_unit_test_setup_teardown(an_end_before_the_one_foreseen_is_seen_by_then,
						before, after),
		cmocka_unit_test_setup_teardown(others_have_their_interrupts, before, after),
		cmocka_unit_test_setup_teardown(as_many_values_as_stated_may_be_armed_at_once,
						before, after),
		cmocka_unit_test_setup_teardown(uses_that_differ_are_slept_through, before, after),
		cmocka_unit_test_setup_teardown(what_is_not_asked_for_is_not_done, before, after),
		cmocka_unit_test_setup_teardown(its_time_is_obeyed, before, after),
		cmocka_unit_test_setup_teardown(slack_is_as_it_was, before, after),
		cmocka_unit_test(a_bad_timeline_is_refused),
		cmocka_unit_test_setup_teardown(a_way_that_is_none_is_refused, before, after),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
