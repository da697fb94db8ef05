// SPDX-License-Identifier: MIT
/*
 * test_nvrm_host.c - a timeline that another thread closes while a host is told of its word, or
 * while the host waits for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "handle.h"
#include "nvrm.h"
#include "nvrm_rig.h"
#include "nvrm_timeline.h"
#include "rtxg.h"

static int before(void **state)
{
	rig_reset();
	return 0;
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

static bool closed;

static void *close_gpu(void *arg)
{
	int ret = rtx_nvrm_close(gpu);

	__atomic_store_n(&closed, true, __ATOMIC_SEQ_CST);
	return (void *)(intptr_t)ret;
}

/* Another descriptor could have its number before it is sent. */
static void what_a_host_is_given_stays_open_until_it_has_it(void **state)
{
	struct timeline_share share;
	pthread_t thread;
	void *ret;

	up();
	closed = false;
	assert_int_equal(rtx_lib_timeline_share(line, &share), 0);
	assert_int_equal(pthread_create(&thread, NULL, close_gpu, NULL), 0);
	/* it has begun, and does not end */
	while (rtx_lib_timeline_check(line) != -EBADF)
		pause_ms(1);
	pause_ms(100);
	assert_false(__atomic_load_n(&closed, __ATOMIC_SEQ_CST));
	assert_true(fcntl(share.memory, F_GETFD) >= 0);
	assert_true(fcntl(share.event, F_GETFD) >= 0);
	rtx_lib_timeline_leave(line);
	pthread_join(thread, &ret);
	assert_null(ret);
	assert_int_equal(fcntl(share.memory, F_GETFD), -1);
	assert_int_equal(fcntl(share.event, F_GETFD), -1);
	nothing_is_left();
}

static void each_timeline_has_a_number_of_its_own(void **state)
{
	uint64_t last = 0;

	for (int i = 0; i < 3; i++) {
		up();
		assert_true(rtx_lib_timeline_opened(line) > last);
		last = rtx_lib_timeline_opened(line);
		assert_int_equal(rtx_timeline_close(line), 0);
		assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &line), 0);
		assert_true(rtx_lib_timeline_opened(line) > last);
		last = rtx_lib_timeline_opened(line);
		down();
	}
}

static int waits;      /* of the host */
static bool goes_back; /* the word, while the host waits */

static int host_fence(struct rtx_gpu *h, unsigned int lane, const struct rtx_gpu_notify *how)
{
	return 0;
}

static int host_sync(struct rtx_gpu *h, unsigned int lane, uint32_t value, uint64_t until)
{
	__atomic_fetch_add(&waits, 1, __ATOMIC_SEQ_CST);
	if (goes_back)
		set(line, 3);
	pause_ms(1);
	return -ETIMEDOUT;
}

static void *sync_task(void *task)
{
	return (void *)(intptr_t)rtx_gpu_sync(task, RTX_COMPUTE);
}

/* Its word is in no memory then. */
static void a_timeline_is_closed_while_the_host_waits(void **state)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	struct transport host = rtx_lib_transport_none;
	pthread_t thread;
	rtx_gpu_t task;
	void *ret;

	setenv("RTXG_HOST", "daemon", 1);
	setenv("RTXG_SOCKET", "/nonexistent/rtxg.sock", 1);
	options.flags = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;
	host.fence = host_fence;
	host.sync = host_sync;
	for (int all = 0; all < 2; all++) {
		up();
		assert_int_equal(rtx_gpu_open(&task, &options), 0);
		task->transport = &host;
		task->managed = true;
		assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
		notify.how = RTX_SYNC_NOTIFY;
		notify.timeline = line;
		notify.value = 1;
		assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
		waits = 0;
		assert_int_equal(pthread_create(&thread, NULL, sync_task, task), 0);
		while (!__atomic_load_n(&waits, __ATOMIC_SEQ_CST))
			pause_ms(1);
		assert_int_equal(all ? rtx_nvrm_close(gpu) : rtx_timeline_close(line), 0);
		pthread_join(thread, &ret);
		assert_int_equal((intptr_t)ret, -ECANCELED);
		/* the launch is outstanding still, and cannot be waited for */
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -EBADF);
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -EPERM);
		if (!all)
			assert_int_equal(rtx_nvrm_close(gpu), 0);
		nothing_is_left();
		assert_int_equal(rtx_gpu_close(task), 0);
	}
}

/* The launch stays for another thread, and no close waits for the one that has gone. */
static void a_thread_is_cancelled_while_the_host_waits(void **state)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	struct transport host = rtx_lib_transport_none;
	struct timespec end;
	pthread_t thread;
	rtx_gpu_t task;
	void *ret;

	setenv("RTXG_HOST", "daemon", 1);
	setenv("RTXG_SOCKET", "/nonexistent/rtxg.sock", 1);
	options.flags = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;
	host.fence = host_fence;
	host.sync = host_sync;
	up();
	closed = false;
	assert_int_equal(rtx_gpu_open(&task, &options), 0);
	task->transport = &host;
	task->managed = true;
	assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
	notify.how = RTX_SYNC_NOTIFY;
	notify.timeline = line;
	notify.value = 1;
	assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
	waits = 0;
	assert_int_equal(pthread_create(&thread, NULL, sync_task, task), 0);
	while (!__atomic_load_n(&waits, __ATOMIC_SEQ_CST))
		pause_ms(1);
	assert_int_equal(pthread_cancel(thread), 0);
	assert_int_equal(pthread_join(thread, &ret), 0);
	assert_ptr_equal(ret, PTHREAD_CANCELED);
	set(line, 1);
	assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_close(task), 0);
	assert_int_equal(pthread_create(&thread, NULL, close_gpu, NULL), 0);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 30;
	assert_int_equal(pthread_timedjoin_np(thread, &ret, &end), 0);
	assert_null(ret);
	nothing_is_left();
}

/*
 * The host has interrupts and the word alone, and would wait for ever. The launch ends: an engine
 * is not blocked by work that cannot be waited for.
 */
static void what_no_host_sees_ends_its_wait(void **state)
{
	static const struct {
		bool lost;
		int error;
		const char *said;
	} cases[] = { { true, -ENODEV, "the GPU is lost" },
		      { false, -ERANGE, "timeline 0 went back from 10 to 3" } };
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	struct transport host = rtx_lib_transport_none;
	rtx_gpu_t task;

	setenv("RTXG_HOST", "daemon", 1);
	setenv("RTXG_SOCKET", "/nonexistent/rtxg.sock", 1);
	options.flags = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;
	host.fence = host_fence;
	host.sync = host_sync;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		goes_back = !cases[i].lost;
		up();
		set(line, 10);
		assert_int_equal(rtx_gpu_open(&task, &options), 0);
		task->transport = &host;
		task->managed = true;
		assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
		notify.how = RTX_SYNC_NOTIFY;
		notify.timeline = line;
		notify.value = 12;
		/* so that the test ends where the wait does not */
		notify.until_ns = rtxg_now_ns() + 60 * NS_PER_S;
		assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
		__atomic_store_n(&fake_nvrm.lost, cases[i].lost, __ATOMIC_RELAXED);
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), cases[i].error);
		assert_non_null(strstr(rtx_strerror(), cases[i].said));
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -EPERM);
		assert_int_equal(rtx_gpu_close(task), 0);
		__atomic_store_n(&fake_nvrm.lost, false, __ATOMIC_RELAXED);
		down();
	}
	goes_back = false;
}

/* --- calls in which a thread is cancelled where the host is spoken to ------------------------- */

static int fence_of_a_socket(struct rtx_gpu *h, unsigned int lane, const struct rtx_gpu_notify *how)
{
	pthread_testcancel(); /* as in sendmsg() */
	return 0;
}

static int rings;

static void ring_of_an_eventfd(struct rtx_gpu *h)
{
	pthread_testcancel(); /* as in write() */
	rings++;
}

static bool alive_by_a_socket(struct rtx_gpu *h)
{
	pthread_testcancel(); /* as in recv() */
	return true;
}

static int set_by_a_socket(struct rtx_gpu *h, const struct rtx_gpu_options *options,
			   struct cpu_request *cpu)
{
	pthread_testcancel(); /* as in sendmsg() */
	return 0;
}

static int release_by_a_socket(struct rtx_gpu *h, const char *pool)
{
	pthread_testcancel(); /* as in sendmsg() */
	return 0;
}

static int wait_of_a_nap(struct rtx_gpu *h, unsigned int lane, uint32_t value, uint64_t until)
{
	pthread_testcancel(); /* as in clock_nanosleep() */
	pause_ms(1);
	return -ETIMEDOUT;
}

static rtx_gpu_t with_host(struct transport *host)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	rtx_gpu_t task;

	setenv("RTXG_HOST", "daemon", 1);
	setenv("RTXG_SOCKET", "/nonexistent/rtxg.sock", 1);
	options.flags = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;
	*host = rtx_lib_transport_none;
	host->fence = fence_of_a_socket;
	host->ring = ring_of_an_eventfd;
	host->alive = alive_by_a_socket;
	host->set = set_by_a_socket;
	host->pool_release = release_by_a_socket;
	host->wait = wait_of_a_nap;
	assert_int_equal(rtx_gpu_open(&task, &options), 0);
	task->transport = host;
	return task;
}

static int notify_1(rtx_gpu_t task)
{
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);

	notify.how = RTX_SYNC_NOTIFY;
	notify.timeline = line;
	notify.value = 1;
	return rtx_gpu_notify(task, RTX_COMPUTE, &notify);
}

static int sync_1(rtx_gpu_t task)
{
	return rtx_gpu_sync(task, RTX_COMPUTE);
}

static int launch_1(rtx_gpu_t task)
{
	return rtx_gpu_launch(task, RTX_COMPUTE);
}

static int complete_1(rtx_gpu_t task)
{
	return rtx_gpu_complete(task, RTX_COMPUTE, 0);
}

static int set_1(rtx_gpu_t task)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);

	options.priority = 7;
	return rtx_gpu_set(task, &options);
}

static int release_1(rtx_gpu_t task)
{
	return rtx_gpu_pool_release(task, "pool");
}

static int revoked_1(rtx_gpu_t task)
{
	return rtx_gpu_wait_revoked(task, RTX_COMPUTE, UINT64_MAX);
}

struct last_call {
	int (*function)(rtx_gpu_t task);
	rtx_gpu_t task;
	int ret;
	bool back;
};

static void *cancelled_beforehand(void *arg)
{
	struct last_call *c = arg;

	pthread_cancel(pthread_self());
	c->ret = c->function(c->task);
	c->back = true;
	pthread_testcancel();
	return NULL;
}

static struct last_call last_call_of_a_thread(int (*function)(rtx_gpu_t task), rtx_gpu_t task)
{
	struct last_call c = { .function = function, .task = task };
	pthread_t thread;
	void *ret;

	assert_int_equal(pthread_create(&thread, NULL, cancelled_beforehand, &c), 0);
	assert_int_equal(pthread_join(thread, &ret), 0);
	assert_ptr_equal(ret, PTHREAD_CANCELED);
	return c;
}

/* Others go on: no lock is held, and no thread is counted that has gone. */
static void a_thread_that_is_cancelled_beside_the_host_leaves_nothing(void **state)
{
	struct transport host;
	rtx_gpu_t task;
	struct rtxg_lane *lane;
	struct last_call c;

	up();
	task = with_host(&host);
	lane = &task->page->lanes[RTX_COMPUTE];
	assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
	task->managed = true;
	c = last_call_of_a_thread(notify_1, task);
	assert_true(c.back);
	assert_int_equal(c.ret, 0);
	/* It ends, and others are told of that: they want the engine. */
	set(line, 1);
	lane->permit |= RTXG_PERMIT_REPORT;
	c = last_call_of_a_thread(sync_1, task);
	assert_int_equal(task->users, 0);
	assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), c.back ? -EPERM : 0);
	/* No permit comes, or it is not called back. */
	lane->permit = 0;
	c = last_call_of_a_thread(launch_1, task);
	assert_false(c.back);
	assert_int_equal(task->users, 0);
	assert_int_equal(lane->want, 0);
	lane->permit = RTXG_PERMIT_GRANTED;
	c = last_call_of_a_thread(revoked_1, task);
	assert_false(c.back);
	assert_int_equal(task->users, 0);
	assert_int_equal(lane->watch, 0);
	assert_int_equal(rtx_gpu_close(task), 0);
	down();
	(void)state;
}

/* Many wait for the end of a launch, or for its handle; one thread goes. */
static void a_thread_that_is_cancelled_in_its_last_call_ends_it(void **state)
{
	static int (*const ends[])(rtx_gpu_t task) = { complete_1, sync_1 };
	static int (*const talks[])(rtx_gpu_t task) = { launch_1, set_1, release_1 };
	struct transport host;
	rtx_gpu_t task;
	struct rtxg_lane *lane;

	up();
	task = with_host(&host);
	task->managed = true;
	lane = &task->page->lanes[RTX_COMPUTE];
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		lane->permit |= RTXG_PERMIT_GRANTED;
		assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
		/* It is called back: others wait for the end of the launch, and for the bell. */
		lane->permit &= ~RTXG_PERMIT_GRANTED;
		rings = 0;
		assert_true(last_call_of_a_thread(ends[i], task).back);
		assert_int_equal(lane->in_flight, 0);
		assert_int_equal(rings, 1);
	}
	lane->permit |= RTXG_PERMIT_GRANTED;
	for (size_t i = 0; i < sizeof(talks) / sizeof(talks[0]); i++) {
		task->checked_ns = 0; /* a launch looks whether the host lives */
		assert_true(last_call_of_a_thread(talks[i], task).back);
		assert_int_equal(pthread_mutex_trylock(&task->control), 0);
		pthread_mutex_unlock(&task->control);
	}
	assert_int_equal(rtx_gpu_complete(task, RTX_COMPUTE, 0), 0);
	assert_int_equal(rtx_gpu_close(task), 0);
	down();
	(void)state;
}

/* --- closed, and another opened, where it is asked which one it is ---------------------------- */

static void (*when_asked)(rtx_timeline_t t); /* once */
static void (*when_checked)(rtx_timeline_t t);

uint64_t __real_rtx_lib_timeline_opened(rtx_timeline_t t);
uint64_t __wrap_rtx_lib_timeline_opened(rtx_timeline_t t);
uint64_t __wrap_rtx_lib_timeline_opened(rtx_timeline_t t)
{
	uint64_t of = __real_rtx_lib_timeline_opened(t);
	void (*what)(rtx_timeline_t t) = when_asked;

	when_asked = NULL;
	if (what)
		what(t);
	return of;
}

int __real_rtx_lib_timeline_check(rtx_timeline_t t);
int __wrap_rtx_lib_timeline_check(rtx_timeline_t t);
int __wrap_rtx_lib_timeline_check(rtx_timeline_t t)
{
	int ret = __real_rtx_lib_timeline_check(t);
	void (*what)(rtx_timeline_t t) = when_checked;

	when_checked = NULL;
	if (what)
		what(t);
	return ret;
}

static bool replaced;
static pthread_t replaces;

static void *replace_line(void *arg)
{
	intptr_t ret = rtx_timeline_close(line);

	if (!ret)
		ret = rtx_nvrm_timeline(gpu, NULL, (rtx_timeline_t *)arg);
	__atomic_store_n(&replaced, true, __ATOMIC_SEQ_CST);
	return (void *)ret;
}

static rtx_timeline_t other;

/* Until another has its place, or the close waits for this thread. */
static void have_it_replaced(rtx_timeline_t t)
{
	replaced = false;
	assert_int_equal(pthread_create(&replaces, NULL, replace_line, &other), 0);
	while (!__atomic_load_n(&replaced, __ATOMIC_SEQ_CST) &&
	       !(__atomic_load_n(&t->closing, __ATOMIC_SEQ_CST) &&
		 __atomic_load_n(&t->inside, __ATOMIC_SEQ_CST)))
		pause_ms(1);
}

static void replace_it(rtx_timeline_t t)
{
	(void)t;
	assert_null(replace_line(&other));
}

/* The word of the other one never has that value. */
static void a_sync_holds_its_timeline_before_it_asks_which_it_is(void **state)
{
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	struct transport host;
	rtx_gpu_t task;
	void *ret;

	up();
	task = with_host(&host);
	assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
	notify.how = RTX_SYNC_FENCE;
	notify.timeline = line;
	notify.value = 1;
	/* so that the test ends where the wait does not */
	notify.until_ns = rtxg_now_ns() + 30 * NS_PER_S;
	assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
	when_asked = have_it_replaced;
	assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -EBADF);
	assert_string_equal(rtx_strerror(), "timeline 0 is closed");
	assert_null(when_asked);
	pthread_join(replaces, &ret);
	assert_null(ret);
	assert_ptr_equal(other, line);
	assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -EPERM);
	assert_int_equal(rtx_gpu_close(task), 0);
	down();
	(void)state;
}

static void a_notify_is_for_the_timeline_that_was_there_when_it_began(void **state)
{
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	struct transport host;
	rtx_gpu_t task;

	up();
	task = with_host(&host);
	assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
	notify.how = RTX_SYNC_FENCE;
	notify.timeline = line;
	notify.value = 1;
	notify.until_ns = rtxg_now_ns() + 30 * NS_PER_S;
	when_checked = replace_it;
	assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
	assert_null(when_checked);
	assert_ptr_equal(other, line);
	assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -EBADF);
	assert_non_null(strstr(rtx_strerror(), "another one is open in its place"));
	assert_int_equal(rtx_gpu_close(task), 0);
	down();
	(void)state;
}

static int fences;

static int count_fence(struct rtx_gpu *h, unsigned int lane, const struct rtx_gpu_notify *how)
{
	fences++;
	return 0;
}

static int done_by_itself(void *arg)
{
	*(int *)arg += 1;
	return 0;
}

/* Where the program tells otherwise, what stands there may be of an earlier launch. */
static void a_word_and_a_timeline_that_do_not_count_are_not_looked_at(void **state)
{
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	volatile uint32_t word = 0;
	struct transport host;
	rtx_gpu_t task;
	int calls = 0, fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);

	up();
	task = with_host(&host);
	host.fence = count_fence;
	task->managed = true;
	assert_int_equal(rtx_timeline_close(line), 0);
	fences = 0;
	notify.word = &word;
	notify.wait = done_by_itself;
	notify.arg = &calls;
	for (int i = 0; i < 3; i++) {
		static const enum rtx_sync ways[] = { RTX_SYNC_WAIT, RTX_SYNC_CALLER,
						      RTX_SYNC_NOTIFY };

		notify.how = ways[i];
		notify.fd = fd;
		notify.timeline = notify.how == RTX_SYNC_NOTIFY ? NULL : line;
		assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
		assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), 0);
		assert_int_equal(fences, 0);
	}
	assert_int_equal(calls, 1);
	close(fd);
	assert_int_equal(rtx_gpu_close(task), 0);
	down();
	(void)state;
}

static void abandon_a_socket(struct rtx_gpu *h)
{
	pthread_testcancel(); /* as in close() */
	h->socket = -1;
}

/* The child is whole in any case, and is cancelled in its own time. */
static void *fork_cancelled(void *arg)
{
	rtx_gpu_t task = arg;
	pid_t child;

	pthread_cancel(pthread_self());
	child = fork();
	if (!child)
		_exit(fake_nvrm.fds || task->socket != -1 ? 1 : 2);
	return (void *)(intptr_t)child;
}

static void a_child_of_a_thread_that_is_cancelled_has_none_of_it(void **state)
{
	struct transport host;
	pthread_t thread;
	rtx_gpu_t task;
	int status;
	void *child;

	up();
	assert_int_equal(rtx_timeline_arm(line, 1), 0);
	task = with_host(&host);
	host.abandon = abandon_a_socket;
	task->socket = INT_MAX;
	assert_int_equal(pthread_create(&thread, NULL, fork_cancelled, task), 0);
	assert_int_equal(pthread_join(thread, &child), 0);
	assert_int_equal(waitpid((pid_t)(intptr_t)child, &status, 0), (pid_t)(intptr_t)child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 2);
	task->socket = -1;
	assert_int_equal(rtx_gpu_close(task), 0);
	down();
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(what_a_host_is_given_stays_open_until_it_has_it, before),
		cmocka_unit_test_setup(each_timeline_has_a_number_of_its_own, before),
		cmocka_unit_test_setup(a_timeline_is_closed_while_the_host_waits, before),
		cmocka_unit_test_setup(what_no_host_sees_ends_its_wait, before),
		cmocka_unit_test_setup(a_thread_is_cancelled_while_the_host_waits, before),
		cmocka_unit_test_setup(a_thread_that_is_cancelled_beside_the_host_leaves_nothing,
				       before),
		cmocka_unit_test_setup(a_thread_that_is_cancelled_in_its_last_call_ends_it, before),
		cmocka_unit_test_setup(a_sync_holds_its_timeline_before_it_asks_which_it_is,
				       before),
		cmocka_unit_test_setup(a_notify_is_for_the_timeline_that_was_there_when_it_began,
				       before),
		cmocka_unit_test_setup(a_word_and_a_timeline_that_do_not_count_are_not_looked_at,
				       before),
		cmocka_unit_test_setup(a_child_of_a_thread_that_is_cancelled_has_none_of_it,
				       before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
