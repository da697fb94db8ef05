// SPDX-License-Identifier: MIT
/*
 * test_nvrm_threads.c - threads that call timelines, on a GPU that is not there: one that is
 * cancelled (pthread_cancel) leaves nothing that others wait for, one that is forked by a signal's
 * handler is not in memory that the child does not have, and one that has a budget is charged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "nvrm_rig.h"
#include "rtxg.h"
#include "rtxg/control.h"
#include "rtxg/cpu.h"
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

/* --- forked ----------------------------------------------------------------------------------- */

static pid_t forked;

static void fork_in_a_handler(int number)
{
	__atomic_store_n(&forked, fork(), __ATOMIC_SEQ_CST);
}

static bool over;

/* As a program does that looks at the word between its other work. */
static void *look(void *arg)
{
	while (__atomic_load_n(&forked, __ATOMIC_SEQ_CST) &&
	       !__atomic_load_n(&over, __ATOMIC_SEQ_CST)) {
		uint64_t at;

		rtx_timeline_reached(line, 9);
		rtx_timeline_stamp(line, 9, &at);
		rtx_timeline_arm(line, 9);
	}
	if (!__atomic_load_n(&forked, __ATOMIC_SEQ_CST))
		_exit(rtx_timeline_arm(line, 9) == -ECHILD ? 0 : 1);
	return NULL;
}

/* Wherever it is, the child comes back into the call. */
static void a_call_that_is_forked_ends_in_the_child(void **state)
{
	struct sigaction action = { .sa_handler = fork_in_a_handler };

	sigaction(SIGUSR1, &action, NULL);
	up();
	assert_int_equal(rtx_timeline_arm(line, 9), 0);
	for (int i = 0; i < 60; i++) {
		pthread_t thread;
		pid_t child;
		int status;

		__atomic_store_n(&forked, -1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&over, false, __ATOMIC_SEQ_CST);
		assert_int_equal(pthread_create(&thread, NULL, look, NULL), 0);
		nanosleep(&(struct timespec){ .tv_nsec = 100000 + i * 7919 % 100000 }, NULL);
		pthread_kill(thread, SIGUSR1);
		while ((child = __atomic_load_n(&forked, __ATOMIC_SEQ_CST)) <= 0)
			usleep(100);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		__atomic_store_n(&over, true, __ATOMIC_SEQ_CST);
		pthread_join(thread, NULL);
	}
	down();
}

/* As a handler of crashes does it: no handler of pthread_atfork() is called. */
static void a_child_that_is_told_nothing_has_none_of_it(void **state)
{
	pid_t child;
	int status;

	up();
	assert_int_equal(rtx_timeline_arm(line, 1), 0);
	child = _Fork();
	if (!child) {
		rtx_nvrm_t own;
		bool ok = !rtx_timeline_reached(line, 0) && rtx_timeline_arm(line, 2) == -ECHILD &&
			  rtx_timeline_wait(line, 1, RTX_SYNC_FENCE, 0) == -ECHILD &&
			  !rtx_timeline_word(line) &&
			  rtx_nvrm_timeline(gpu, NULL, &line) == -ECHILD;

		/* It lets go of the parent's descriptors before it opens its own. */
		fake_nvrm.open_error = EMFILE;
		ok = ok && rtx_nvrm_init(&own, NULL) == -EMFILE && !fake_nvrm.fds;
		_exit(ok && rtx_nvrm_close(gpu) == -ECHILD ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	set(line, 1);
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	down();
}

/* --- with a budget ---------------------------------------------------------------------------- */

static bool has_budget;
static int module = -1, told_on, told_off;

/* In the place of the C library's, which the library under test calls. */
int sched_getscheduler(pid_t pid)
{
	return has_budget ? 6 /* SCHED_DEADLINE */ : SCHED_OTHER;
}

int open(const char *path, int flags, ...)
{
	mode_t mode;
	va_list args;

	va_start(args, flags);
	mode = flags & O_CREAT ? (mode_t)va_arg(args, int) : 0;
	va_end(args);
	if (!strcmp(path, RTXG_MODULE_DEVICE) && has_budget)
		return module = eventfd(0, EFD_CLOEXEC);
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *argument;

	va_start(args, request);
	argument = va_arg(args, void *);
	va_end(args);
	if (fd != module || request != RTXG_IOC_CPU_GPU_WAIT)
		return (int)syscall(SYS_ioctl, fd, request, argument);
	*(((struct rtxg_cpu_pid *)argument)->on ? &told_on : &told_off) += 1;
	return 0;
}

static void *set_later(void *arg)
{
	pause_ms(5);
	set(line, *(const uint32_t *)arg);
	return NULL;
}

/* The time that a thread sleeps for its GPU is its own: the module is to charge it. */
static void a_wait_under_sched_deadline_is_charged(void **state)
{
	static const enum rtx_sync ways[] = { RTX_SYNC_FENCE, RTX_SYNC_NOTIFY };

	up();
	has_budget = true;
	for (uint32_t v = 1; v <= 2; v++) {
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, set_later, &v), 0);
		assert_int_equal(rtx_timeline_wait(line, v, ways[v - 1], UINT64_MAX), 0);
		pthread_join(thread, NULL);
		/* once it has come there is nothing to charge */
		assert_int_equal(rtx_timeline_wait(line, v, ways[v - 1], UINT64_MAX), 0);
		assert_int_equal(told_on, v);
		assert_int_equal(told_off, v);
	}
	assert_int_equal(rtx_timeline_wait(line, 3, RTX_SYNC_NOTIFY, 0), -ETIMEDOUT);
	assert_int_equal(told_on, 3);
	assert_int_equal(told_off, 3);
	has_budget = false;
	down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_wait_that_is_cancelled_leaves_the_timeline, before),
		cmocka_unit_test_setup(others_go_on_where_one_is_cancelled, before),
		cmocka_unit_test_setup(calls_that_open_and_close_are_whole, before),
		cmocka_unit_test_setup(a_wait_is_cancelled_while_it_opens_its_event, before),
		cmocka_unit_test_setup(a_sync_that_is_cancelled_leaves_its_launch, before),
		cmocka_unit_test_setup(a_call_that_is_forked_ends_in_the_child, before),
		cmocka_unit_test_setup(a_child_that_is_told_nothing_has_none_of_it, before),
		cmocka_unit_test_setup(a_wait_under_sched_deadline_is_charged, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
