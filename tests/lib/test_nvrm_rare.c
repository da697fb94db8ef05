// SPDX-License-Identifier: MIT
/*
 * test_nvrm_rare.c - what seldom happens to timelines, on a GPU that is not there: numbers that
 * have gone round unseen, an engine that reads far ahead, and a handle that another timeline has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "nvrm_rig.h"
#include "rtxg.h"
#include "rtxg_clock.h"

static int before(void **state)
{
	unsetenv("RTXG_HOST");
	rig_reset();
	return 0;
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

static struct rtx_timeline_stats stats_of(rtx_timeline_t t)
{
	struct rtx_timeline_stats s = RTX_INIT(struct rtx_timeline_stats);

	assert_int_equal(rtx_timeline_stats(t, &s), 0);
	return s;
}

/* The engine is a thread: until it has passed an armed value. */
static void wait_for_stamp(uint32_t value)
{
	uint64_t at;

	while (rtx_timeline_stamp(line, value, &at))
		pause_ms(1);
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* By FENCE no value is armed: the last one that was may lie more than half of all numbers back. */
static void values_that_go_round_by_fence_can_be_armed(void **state)
{
	up();
	assert_int_equal(rtx_timeline_arm(line, 1), 0);
	set(line, 1);
	wait_for_stamp(1);
	for (uint32_t v = 0x40000000; v <= 0xc0000000 - 1; v += 0x40000000) {
		set(line, v);
		assert_int_equal(rtx_timeline_wait(line, v, RTX_SYNC_FENCE, UINT64_MAX), 0);
	}
	assert_int_equal(rtx_timeline_arm(line, 0x80000005), 0);
	assert_int_equal(rtx_timeline_arm(line, 0x80000003), -ERANGE);
	set(line, 0x80000005);
	assert_int_equal(rtx_timeline_wait(line, 0x80000005, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	wait_for_stamp(0x80000005);
	/* the same number a round later is another */
	set(line, 0xc0000000);
	set(line, 0x20000000);
	set(line, 0x80000004);
	assert_int_equal(rtx_timeline_arm(line, 0x80000005), 0);
	assert_int_equal(stats_of(line).armed, 3);
	down();
}

/* What it has read and not carried out is in memory still, and is not to be written over. */
static void an_engine_that_reads_ahead_is_told_no_more_than_it_keeps(void **state)
{
	uint32_t v = 1;

	__atomic_store_n(&fake_nvrm.reads_ahead, true, __ATOMIC_RELAXED);
	up();
	for (int round = 0; round < 3; round++) {
		uint32_t last = v + RTX_TIMELINE_ARMED_MAX - 1;

		for (; v <= last; v++)
			assert_int_equal(rtx_timeline_arm(line, v), 0);
		/* it has seen them all, and waits for the first */
		pause_ms(5);
		assert_int_equal(rtx_timeline_arm(line, v), -EAGAIN);
		assert_non_null(strstr(rtx_strerror(), "255 values are armed"));
		set(line, last);
		wait_for_stamp(last);
		assert_int_equal(__atomic_load_n(&fake_nvrm.interrupts, __ATOMIC_SEQ_CST),
				 (round + 1) * (int)RTX_TIMELINE_ARMED_MAX);
	}
	down();
}

/* --- handles ---------------------------------------------------------------------------------- */

/* The launch was told of the one that is closed: it is not waited for by another's word. */
static void a_launch_keeps_to_its_timeline(void **state)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	rtx_timeline_t other;
	rtx_gpu_t task;

	setenv("RTXG_HOST", "daemon", 1);
	setenv("RTXG_SOCKET", "/nonexistent/rtxg.sock", 1);
	options.flags = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;
	up();
	assert_int_equal(rtx_gpu_open(&task, &options), 0);
	assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
	notify.how = RTX_SYNC_NOTIFY;
	notify.timeline = line;
	notify.value = 1;
	/* so that the test ends where the wait does not */
	notify.until_ns = rtxg_now_ns() + 20 * 1000000000ull;
	assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
	assert_int_equal(rtx_timeline_close(line), 0);
	assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &other), 0);
	assert_ptr_equal(other, line);
	assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -EBADF);
	assert_non_null(strstr(rtx_strerror(), "the launch's timeline is closed"));
	assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -EPERM);
	assert_int_equal(rtx_gpu_close(task), 0);
	down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(values_that_go_round_by_fence_can_be_armed, before),
		cmocka_unit_test_setup(an_engine_that_reads_ahead_is_told_no_more_than_it_keeps,
				       before),
		cmocka_unit_test_setup(a_launch_keeps_to_its_timeline, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
