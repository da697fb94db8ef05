// SPDX-License-Identifier: MIT
/*
 * test_nvrm_threads.c - threads that call timelines, on a GPU that is not there: one that is cancelled
 * (pthread_cancel) leaves nothing that others wait for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>
#include "nvrm_rig.h"
#include "rtxg.h"
#include "rtxg_clock.h"

#define LONG_NS (60 * 1000000000ull)

static int before(void **state)
{
	setenv("RTXG_HOST", "daemon", 1);
	setenv("RTXG_SOCKET", "/nonexistent/rtxg.sock", 1);
	rig_reset();
	return 0;
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

static uint64_t waits_of(rtx_timeline_t t)
{
	struct rtx_timeline_stats s = RTX_INIT(struct rtx_timeline_stats);

	assert_int_equal(rtx_timeline_stats(t, &s), 0);
	return s.waits;
}

/* --- cancelled -------------------------------------------------------------------------------- */

struct call {
	int (*function)(void);
	int ret;
	bool back;
};

static void *make_call(void *arg)
{
	struct call *c = arg;

	c->ret = c->function();
	__atomic_store_n(&c->back, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* What it returns; -EDEADLK: it does not come back. */
static int comes_back(int (*function)(void))
{
	struct call *c = calloc(1, sizeof(*c)); /* for a thread that stays */
	uint64_t end = rtxg_now_ns() + LONG_NS / 2;
	pthread_t thread;
	int ret = -EDEADLK;

	c->function = function;
	assert_int_equal(pthread_create(&thread, NULL, make_call, c), 0);
	while (!__atomic_load_n(&c->back, __ATOMIC_SEQ_CST) && rtxg_now_ns() < end)
		pause_ms(1);
	if (!__atomic_load_n(&c->back, __ATOMIC_SEQ_CST))
		return ret;
	pthread_join(thread, NULL);
	ret = c->ret;
	free(c);
	return ret;
}

static enum rtx_sync way;

static int wait_for_9(void)
{
	return rtx_timeline_wait(line, 9, way, UINT64_MAX);
}

static int wait_for_1(void)
{
	return rtx_timeline_wait(line, 1, way, rtxg_now_ns() + LONG_NS);
}

static int close_line(void)
{
	return rtx_timeline_close(line);
}

/* A thread that makes that call, and is cancelled in it. */
static void cancelled_in(int (*function)(void), bool (*is_in_it)(void))
{
	struct call *c = calloc(1, sizeof(*c)); /* for a thread that stays */
	struct timespec end;
	pthread_t thread;
	void *ret = NULL;

	c->function = function;
	assert_int_equal(pthread_create(&thread, NULL, make_call, c), 0);
	while (!is_in_it())
		pause_ms(1);
	pause_ms(2);
	assert_int_equal(pthread_cancel(thread), 0);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 30;
	assert_int_equal(pthread_timedjoin_np(thread, &ret, &end), 0);
	assert_ptr_equal(ret, PTHREAD_CANCELED);
	assert_false(c->back);
	free(c);
}

static uint64_t waits_before;

static bool waits_for_line(void)
{
	return waits_of(line) > waits_before;
}

static void a_wait_that_is_cancelled_leaves_the_timeline(void **state)
{
	static const enum rtx_sync ways[] = { RTX_SYNC_FENCE, RTX_SYNC_NOTIFY };

	for (int i = 0; i < 2; i++) {
		struct rtx_timeline_stats s = RTX_INIT(struct rtx_timeline_stats);

		way = ways[i];
		up();
		waits_before = 0;
		cancelled_in(wait_for_9, waits_for_line);
		/* the next one sleeps until its interrupt, and not behind the one that has gone */
		assert_int_equal(rtx_timeline_arm(line, 9), 0);
		set(line, 9);
		assert_int_equal(comes_back(wait_for_9), 0);
		assert_int_equal(rtx_timeline_stats(line, &s), 0);
		assert_int_equal(comes_back(close_line), 0);
		down();
	}
}

/* It is the one that sleeps in the driver: another does so in its place. */
static void others_go_on_where_one_is_cancelled(void **state)
{
	struct rtx_timeline_stats s = RTX_INIT(struct rtx_timeline_stats);
	struct call other = { .function = wait_for_1 };
	pthread_t thread;

	way = RTX_SYNC_NOTIFY;
	up();
	waits_before = 0;
	cancelled_in(wait_for_9, waits_for_line);
	assert_int_equal(pthread_create(&thread, NULL, make_call, &other), 0);
	do
		assert_int_equal(rtx_timeline_stats(line, &s), 0);
	while (s.waits < 2);
	for (int i = 0; i < 1000 && !s.wakes; i++) {
		fake_nvrm_interrupt();
		pause_ms(1);
		assert_int_equal(rtx_timeline_stats(line, &s), 0);
	}
	assert_true(s.wakes > 0);
	set(line, 1);
	pthread_join(thread, NULL);
	assert_int_equal(other.ret, 0);
	assert_int_equal(comes_back(close_line), 0);
	down();
}

static int init(void)
{
	return rtx_nvrm_init(&gpu, NULL);
}

static int open_line(void)
{
	return rtx_nvrm_timeline(gpu, NULL, &line);
}

static int arm_1(void)
{
	return rtx_timeline_arm(line, 1);
}

static int wait_armed(void)
{
	way = RTX_SYNC_NOTIFY;
	return wait_for_1();
}

static int close_all(void)
{
	return rtx_nvrm_close(gpu);
}

static void *call_and_end(void *arg)
{
	struct call *c = arg;

	pthread_cancel(pthread_self());
	make_call(c);
	pthread_testcancel();
	return NULL;
}

/* It has locks, and is in the middle of the driver's calls: it is cancelled when it is out. */
static void calls_that_open_and_close_are_whole(void **state)
{
	static int (*const calls[])(void) = { init,	  open_line, arm_1,
					      close_line, open_line, close_all };

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct call c = { .function = calls[i] };
		pthread_t thread;
		void *ret;

		assert_int_equal(pthread_create(&thread, NULL, call_and_end, &c), 0);
		pthread_join(thread, &ret);
		assert_ptr_equal(ret, PTHREAD_CANCELED);
		assert_true(c.back);
		assert_int_equal(c.ret, 0);
	}
	nothing_is_left();
}

/* The wait opens the event by itself: it may end there, and leaves no lock behind. */
static void a_wait_is_cancelled_while_it_opens_its_event(void **state)
{
	struct call c = { .function = wait_armed };
	pthread_t thread;
	void *ret;

	up();
	assert_int_equal(pthread_create(&thread, NULL, call_and_end, &c), 0);
	pthread_join(thread, &ret);
	assert_ptr_equal(ret, PTHREAD_CANCELED);
	assert_false(c.back);
	assert_int_equal(comes_back(arm_1), 0);
	assert_int_equal(comes_back(close_line), 0);
	down();
}

static rtx_gpu_t task;

static int sync_task(void)
{
	return rtx_gpu_sync(task, RTX_COMPUTE);
}

static int close_task(void)
{
	return rtx_gpu_close(task);
}

static void a_sync_that_is_cancelled_leaves_its_launch(void **state)
{
	static const enum rtx_sync ways[] = { RTX_SYNC_FENCE, RTX_SYNC_NOTIFY };
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);

	options.flags = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;
	for (int i = 0; i < 2; i++) {
		struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);

		up();
		assert_int_equal(rtx_gpu_open(&task, &options), 0);
		notify.how = ways[i];
		notify.timeline = line;
		notify.value = 1;
		for (uint64_t round = 0; round < 2; round++) {
			if (!round) {
				assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
				assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
			}
			waits_before = round;
			cancelled_in(sync_task, waits_for_line);
		}
		set(line, 1);
		assert_int_equal(comes_back(sync_task), 0);
		assert_int_equal(comes_back(sync_task), -EPERM);
		assert_int_equal(comes_back(close_task), 0);
		down();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_wait_that_is_cancelled_leaves_the_timeline, before),
		cmocka_unit_test_setup(others_go_on_where_one_is_cancelled, before),
		cmocka_unit_test_setup(calls_that_open_and_close_are_whole, before),
		cmocka_unit_test_setup(a_wait_is_cancelled_while_it_opens_its_event, before),
		cmocka_unit_test_setup(a_sync_that_is_cancelled_leaves_its_launch, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
