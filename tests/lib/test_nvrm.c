// SPDX-License-Identifier: MIT
/*
 * test_nvrm.c - timelines on a GPU that is not there: a wait ends when its word has its value and
 * not before, whatever the interrupts do, and nothing leaks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "nvrm_rig.h"
#include "rtxg_clock.h"

#define S  1000000000ull
#define MS 1000000ull

static int before(void **state)
{
	unsetenv("RTXG_HOST");
	rig_reset();
	return 0;
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static struct rtx_timeline_stats stats_of(rtx_timeline_t t)
{
	struct rtx_timeline_stats s = RTX_INIT(struct rtx_timeline_stats);

	assert_int_equal(rtx_timeline_stats(t, &s), 0);
	return s;
}

/* --- a thread that waits ---------------------------------------------------------------------- */

struct waiter {
	rtx_timeline_t line;
	uint32_t value;
	enum rtx_sync how;
	uint64_t until;
	int ret;
	uint32_t word; /* when it came back */
	bool back;
	char why[160];
	pthread_t thread;
};

static void *wait_for(void *arg)
{
	struct waiter *w = arg;

	w->ret = rtx_timeline_wait(w->line, w->value, w->how, w->until);
	snprintf(w->why, sizeof(w->why), "%s", rtx_strerror());
	w->word = w->ret ? 0 : *rtx_timeline_word(w->line);
	__atomic_store_n(&w->back, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void start(struct waiter *w, rtx_timeline_t t, uint32_t value, enum rtx_sync how)
{
	*w = (struct waiter){ .line = t, .value = value, .how = how, .until = UINT64_MAX };
	assert_int_equal(pthread_create(&w->thread, NULL, wait_for, w), 0);
}

/* Until so many have begun to wait for the timeline. */
static void wait_for_waiters(rtx_timeline_t t, uint64_t count)
{
	while (stats_of(t).waits < count)
		pause_ms(1);
}

static void waits_on(struct waiter *w)
{
	assert_false(__atomic_load_n(&w->back, __ATOMIC_SEQ_CST));
}

static int ends(struct waiter *w)
{
	pthread_join(w->thread, NULL);
	return w->ret;
}

/* --- waiting ---------------------------------------------------------------------------------- */

static void a_wait_ends_with_its_value_and_not_before(void **state)
{
	static const enum rtx_sync ways[] = { RTX_SYNC_FENCE, RTX_SYNC_NOTIFY };

	for (int i = 0; i < 2; i++) {
		struct waiter w;

		up();
		start(&w, line, 2, ways[i]);
		wait_for_waiters(line, 1);
		set(line, 1);
		fake_nvrm_interrupt(); /* another's */
		pause_ms(20);
		waits_on(&w);
		set(line, 2);
		assert_int_equal(ends(&w), 0);
		assert_int_equal(w.word, 2);
		down();
	}
}

static void a_value_that_has_been_reached_costs_no_call_of_the_driver(void **state)
{
	int calls;

	up();
	set(line, 7);
	calls = fake_nvrm.calls;
	assert_int_equal(rtx_timeline_wait(line, 7, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	assert_int_equal(rtx_timeline_wait(line, 3, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	assert_true(rtx_timeline_reached(line, 7));
	assert_false(rtx_timeline_reached(line, 8));
	assert_int_equal(fake_nvrm.calls, calls);
	assert_int_equal(stats_of(line).waits, 0);
	down();
}

/* From now on one who sleeps does so until it is let go, and one does. */
static void hold_a_sleep(struct waiter *w)
{
	__atomic_store_n(&fake_nvrm.hold_sleeps, true, __ATOMIC_RELAXED);
	start(w, line, 1, RTX_SYNC_NOTIFY);
	while (!__atomic_load_n(&fake_nvrm.asleep, __ATOMIC_SEQ_CST))
		pause_ms(1);
}

static void let_sleeps_go(void)
{
	__atomic_store_n(&fake_nvrm.hold_sleeps, false, __ATOMIC_RELAXED);
}

static void a_lost_interrupt_costs_time_and_nothing_else(void **state)
{
	struct waiter w;

	up();
	__atomic_store_n(&fake_nvrm.no_interrupts, true, __ATOMIC_RELAXED);
	hold_a_sleep(&w);
	set(line, 1);
	let_sleeps_go();
	assert_int_equal(ends(&w), 0);
	assert_int_equal(stats_of(line).wakes, 0);
	assert_int_equal(stats_of(line).missed, 1);
	down();
}

/* The fence is for the stamp alone: a waiter goes on ahead of it. */
static void an_interrupt_does_not_wait_for_the_fence(void **state)
{
	struct rtx_timeline_stats s;
	struct waiter w;
	uint64_t stamp;

	up();
	__atomic_store_n(&fake_nvrm.hold_fences, true, __ATOMIC_RELAXED);
	hold_a_sleep(&w);
	set(line, 1);
	while (!__atomic_load_n(&fake_nvrm.interrupts, __ATOMIC_SEQ_CST))
		pause_ms(1);
	let_sleeps_go();
	assert_int_equal(ends(&w), 0);
	s = stats_of(line);
	assert_int_equal(s.missed, 0);
	assert_true(s.wakes >= 1);
	assert_int_equal(rtx_timeline_stamp(line, 1, &stamp), -EAGAIN);
	__atomic_store_n(&fake_nvrm.hold_fences, false, __ATOMIC_RELAXED);
	for (int i = 0; i < 1000 && rtx_timeline_stamp(line, 1, &stamp); i++)
		pause_ms(1);
	assert_int_equal(rtx_timeline_stamp(line, 1, &stamp), 0);
	down();
}

static void an_interrupt_wakes_and_its_stamp_is_kept(void **state)
{
	uint64_t stamp = 0, earlier, now = rtxg_now_ns();
	struct waiter w;

	up();
	assert_int_equal(rtx_timeline_stamp(line, 1, &stamp), -ENOENT);
	assert_int_equal(rtx_timeline_arm(line, 1), 0);
	assert_int_equal(rtx_timeline_stamp(line, 1, &stamp), -EAGAIN);
	start(&w, line, 1, RTX_SYNC_NOTIFY);
	wait_for_waiters(line, 1);
	set(line, 1);
	assert_int_equal(ends(&w), 0);
	for (int i = 0; i < 1000 && rtx_timeline_stamp(line, 1, &stamp); i++)
		pause_ms(1);
	assert_true(stamp >= now);
	earlier = stamp;
	assert_int_equal(rtx_timeline_arm(line, 2), 0);
	set(line, 2);
	for (int i = 0; i < 1000 && rtx_timeline_stamp(line, 2, &stamp); i++)
		pause_ms(1);
	assert_true(stamp > earlier);
	assert_int_equal(stats_of(line).armed, 2);
	down();
}

static void as_many_values_as_stated_may_be_armed_at_once(void **state)
{
	up();
	for (uint32_t v = 1; v <= RTX_TIMELINE_ARMED_MAX; v++)
		assert_int_equal(rtx_timeline_arm(line, v), 0);
	assert_int_equal(rtx_timeline_arm(line, 256), -EAGAIN);
	assert_non_null(strstr(rtx_strerror(), "255 values are armed"));
	assert_int_equal(rtx_timeline_arm(line, 255), 0); /* it is armed */
	assert_int_equal(rtx_timeline_arm(line, 17), -ERANGE);
	assert_non_null(strstr(rtx_strerror(), "value 17 lies before 255"));
	/* a wait beyond them is woken by those before it */
	set(line, 300);
	assert_int_equal(rtx_timeline_wait(line, 300, RTX_SYNC_NOTIFY, rtxg_now_ns() + 20 * S), 0);
	assert_int_equal(rtx_timeline_arm(line, 17), 0); /* it has been reached */
	down();
}

static void ten_thousand_waits_leave_nothing(void **state)
{
	int fds, objects;

	up();
	assert_int_equal(rtx_timeline_arm(line, 1), 0); /* opens the event */
	fds = fake_nvrm.fds;
	objects = fake_nvrm.objects;
	for (uint32_t v = 1; v <= 10000; v++) {
		int ret;

		while ((ret = rtx_timeline_arm(line, v)) == -EAGAIN)
			pause_ms(1);
		assert_int_equal(ret, 0);
		set(line, v);
		assert_int_equal(rtx_timeline_wait(line, v, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	}
	assert_int_equal(stats_of(line).armed, 10000);
	assert_int_equal(fake_nvrm.fds, fds);
	assert_int_equal(fake_nvrm.objects, objects);
	down();
}

static void values_go_round(void **state)
{
	struct waiter w;
	volatile uint32_t *word =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	*word = UINT32_MAX - 1;
	assert_int_equal(rtx_nvrm_init(&gpu, NULL), 0);
	assert_int_equal(rtx_nvrm_timeline(gpu, word, &line), 0);
	assert_int_equal(rtx_timeline_arm(line, UINT32_MAX), 0);
	start(&w, line, 1, RTX_SYNC_NOTIFY);
	wait_for_waiters(line, 1);
	set(line, UINT32_MAX);
	pause_ms(15);
	waits_on(&w);
	set(line, 1);
	assert_int_equal(ends(&w), 0);
	down();
	munmap((void *)(uintptr_t)word, 4096);
}

static void all_who_wait_for_a_timeline_are_woken(void **state)
{
	struct waiter w[6];

	up();
	for (uint32_t i = 0; i < 6; i++)
		start(&w[i], line, 1 + i / 2, RTX_SYNC_NOTIFY);
	wait_for_waiters(line, 6);
	set(line, 2);
	for (int i = 0; i < 4; i++)
		assert_int_equal(ends(&w[i]), 0);
	waits_on(&w[4]);
	waits_on(&w[5]);
	set(line, 3);
	assert_int_equal(ends(&w[4]), 0);
	assert_int_equal(ends(&w[5]), 0);
	down();
}

static void a_timeline_that_waits_holds_no_other_up(void **state)
{
	rtx_timeline_t others[RTX_TIMELINES_MAX - 1];
	struct waiter w;

	up();
	start(&w, line, 1, RTX_SYNC_NOTIFY);
	for (size_t i = 0; i < RTX_TIMELINES_MAX - 1; i++) {
		assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &others[i]), 0);
		assert_int_equal(rtx_timeline_arm(others[i], 1), 0);
		set(others[i], 1);
		assert_int_equal(rtx_timeline_wait(others[i], 1, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	}
	waits_on(&w);
	assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &(rtx_timeline_t){ NULL }), -ENOSPC);
	assert_non_null(strstr(rtx_strerror(), "16 timelines are open"));
	/* a place that is closed can be had again, and begins with 0 */
	assert_int_equal(rtx_timeline_close(others[3]), 0);
	assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &others[3]), 0);
	assert_int_equal(*rtx_timeline_word(others[3]), 0);
	set(line, 1);
	assert_int_equal(ends(&w), 0);
	down();
}

static void handled(int number)
{
}

static void limits_of_time_signals_and_other_ways(void **state)
{
	struct sigaction action = { .sa_handler = handled };
	timer_t timer;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };

	up();
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, rtxg_now_ns() + 5 * MS),
			 -ETIMEDOUT);
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_FENCE, rtxg_now_ns() + 5 * MS),
			 -ETIMEDOUT);
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, 0), -ETIMEDOUT);
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_CALLER, UINT64_MAX), -EINVAL);
	sigaction(SIGUSR1, &action, NULL);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	/* again and again, since the first may come before the wait */
	timer_settime(timer, 0,
		      &(struct itimerspec){ .it_value = { .tv_nsec = 3000000 },
					    .it_interval = { .tv_nsec = 3000000 } },
		      NULL);
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, UINT64_MAX), -EINTR);
	timer_delete(timer);
	set(line, 1);
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	down();
}

static void a_gpu_that_is_lost_is_named(void **state)
{
	static const enum rtx_sync ways[] = { RTX_SYNC_FENCE, RTX_SYNC_NOTIFY };

	for (int i = 0; i < 2; i++) {
		__atomic_store_n(&fake_nvrm.lost, false, __ATOMIC_RELAXED);
		up();
		__atomic_store_n(&fake_nvrm.lost, true, __ATOMIC_RELAXED);
		assert_int_equal(rtx_timeline_wait(line, 1, ways[i], UINT64_MAX), -ENODEV);
		assert_non_null(strstr(rtx_strerror(), "the GPU is lost"));
		/* its file is ready at once, and says so: none looks again and again */
		assert_in_range(fake_nvrm.sleeps, 0, 1);
		down();
	}
}

static void a_gpu_that_is_lost_takes_no_word_and_no_event(void **state)
{
	static uint32_t word;
	rtx_timeline_t other;

	up();
	__atomic_store_n(&fake_nvrm.lost, true, __ATOMIC_RELAXED);
	assert_int_equal(rtx_nvrm_timeline(gpu, &word, &other), -ENODEV);
	assert_non_null(strstr(rtx_strerror(), "giving a word to the GPU: the GPU is lost"));
	assert_int_equal(rtx_timeline_arm(line, 1), -ENODEV);
	assert_non_null(strstr(rtx_strerror(), "opening an event: the GPU is lost"));
	down();
}

/* What poll() says of a file that is ready and has no event. */
static void a_file_without_its_device_ends_a_sleep(void **state)
{
	char byte = 0;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(nv_sys_linux.poll(NULL, ends[0], 1000), 0);
	assert_int_equal(write(ends[1], &byte, 1), 1);
	assert_int_equal(nv_sys_linux.poll(NULL, ends[0], 60 * S), 1);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	close(ends[1]);
	assert_int_equal(nv_sys_linux.poll(NULL, ends[0], 60 * S), -ENODEV);
	close(ends[0]);
	assert_int_equal(nv_sys_linux.poll(NULL, -1, 1000), 0);
}

/* Two streams write it, say: the value may have been passed for a moment. */
static void a_word_that_goes_back_ends_the_wait(void **state)
{
	static const enum rtx_sync ways[] = { RTX_SYNC_FENCE, RTX_SYNC_NOTIFY };

	for (int i = 0; i < 2; i++) {
		struct waiter w;

		up();
		set(line, 10);
		start(&w, line, 12, ways[i]);
		wait_for_waiters(line, 1);
		set(line, 3);
		fake_nvrm_interrupt();
		assert_int_equal(ends(&w), -ERANGE);
		assert_non_null(strstr(w.why, "timeline 0 went back from 10 to 3"));
		/* and from there it goes on */
		set(line, 12);
		assert_int_equal(rtx_timeline_wait(line, 12, ways[i], UINT64_MAX), 0);
		down();
	}
}

/* --- closing and forking ---------------------------------------------------------------------- */

static void closing_sends_waiters_away(void **state)
{
	struct waiter w[3];

	up();
	for (int i = 0; i < 3; i++)
		start(&w[i], line, 1, i ? RTX_SYNC_NOTIFY : RTX_SYNC_FENCE);
	wait_for_waiters(line, 3);
	assert_int_equal(rtx_timeline_close(line), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ends(&w[i]), -ECANCELED);
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, UINT64_MAX), -EBADF);
	assert_int_equal(rtx_timeline_arm(line, 1), -EBADF);
	assert_int_equal(rtx_timeline_close(line), -EBADF);
	assert_null(rtx_timeline_word(line));
	assert_false(rtx_timeline_reached(line, 0));
	assert_non_null(strstr(rtx_strerror(), "closed"));
	down();
	assert_int_equal(rtx_nvrm_close(NULL), -EINVAL);
	assert_int_equal(rtx_timeline_wait(NULL, 1, RTX_SYNC_NOTIFY, 0), -EINVAL);
}

static bool over;

/* All calls of a timeline, of whatever has its place by then. */
static void *call_all(void *arg)
{
	struct rtx_timeline_stats s = RTX_INIT(struct rtx_timeline_stats);
	rtx_timeline_t t = arg;
	uint64_t stamp;

	while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST)) {
		rtx_timeline_wait(t, 1000000, RTX_SYNC_FENCE, rtxg_now_ns() + MS / 20);
		rtx_timeline_arm(t, 1000001);
		rtx_timeline_wait(t, 1000001, RTX_SYNC_NOTIFY, rtxg_now_ns() + MS / 20);
		rtx_timeline_stamp(t, 1000001, &stamp);
		rtx_timeline_stats(t, &s);
		rtx_timeline_foresee(t, foreseeing);
		rtx_timeline_reached(t, 3);
	}
	return NULL;
}

/* They are refused, or are what is closed waits for: words and channels do not go under them. */
static void calls_that_come_while_it_is_closed(void **state)
{
	pthread_t threads[2];

	up();
	__atomic_store_n(&over, false, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, call_all, line), 0);
	for (int i = 0; i < 60; i++) {
		if (i % 3)
			assert_int_equal(rtx_timeline_close(line), 0);
		assert_int_equal(rtx_nvrm_close(gpu), 0);
		assert_int_equal(rtx_nvrm_init(&gpu, NULL), 0);
		assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &line), 0);
	}
	__atomic_store_n(&over, true, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	down();
}

static void *close_it(void *arg)
{
	return (void *)(intptr_t)rtx_timeline_close(arg);
}

static void one_of_several_closes(void **state)
{
	static uint32_t words[4][1024] __attribute__((aligned(4096)));
	pthread_t threads[4];
	rtx_timeline_t other;
	int fds, objects;

	up();
	/* The memory of further channels comes with the first of them, and stays. */
	assert_int_equal(rtx_nvrm_timeline(gpu, words[0], &other), 0);
	assert_int_equal(rtx_timeline_close(other), 0);
	fds = fake_nvrm.fds;
	objects = fake_nvrm.objects;
	for (int round = 0; round < 60; round++) {
		int closed = 0;
		void *ret;

		assert_int_equal(rtx_nvrm_timeline(gpu, words[round % 4], &other), 0);
		for (int i = 0; i < 4; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, close_it, other), 0);
		for (int i = 0; i < 4; i++) {
			pthread_join(threads[i], &ret);
			assert_true(!ret || (intptr_t)ret == -EBADF);
			closed += !ret;
		}
		assert_int_equal(closed, 1);
		assert_int_equal(fake_nvrm.wild, 0);
		assert_int_equal(fake_nvrm.fds, fds);
		assert_int_equal(fake_nvrm.objects, objects);
	}
	down();
}

/* Of one handle; those of another handle of the same GPU wait on. */
static void closing_a_gpu_sends_its_waiters_away(void **state)
{
	static const enum rtx_sync ways[] = { RTX_SYNC_FENCE, RTX_SYNC_NOTIFY };
	struct waiter sent[2], stays[2];
	rtx_timeline_t theirs;
	rtx_nvrm_t other;

	up();
	assert_int_equal(rtx_nvrm_init(&other, NULL), 0);
	assert_int_equal(rtx_nvrm_timeline(other, NULL, &theirs), 0);
	for (int i = 0; i < 2; i++) {
		start(&sent[i], line, 1, ways[i]);
		start(&stays[i], theirs, 1, ways[i]);
	}
	wait_for_waiters(line, 2);
	wait_for_waiters(theirs, 2);
	assert_int_equal(rtx_nvrm_close(gpu), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ends(&sent[i]), -ECANCELED);
	pause_ms(15);
	for (int i = 0; i < 2; i++)
		waits_on(&stays[i]);
	set(theirs, 1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ends(&stays[i]), 0);
	assert_int_equal(rtx_nvrm_close(other), 0);
	nothing_is_left();
}

/* The handles of a GPU that was closed are refused, though their memory waits for the next. */
static void a_closed_gpu_is_named_and_its_memory_kept(void **state)
{
	rtx_timeline_t old;
	rtx_nvrm_t first;

	up();
	first = gpu;
	old = line;
	down();
	assert_int_equal(rtx_timeline_wait(old, 1, RTX_SYNC_NOTIFY, UINT64_MAX), -EBADF);
	assert_non_null(strstr(rtx_strerror(), "timeline 0 is closed"));
	assert_int_equal(rtx_timeline_close(old), -EBADF);
	assert_int_equal(rtx_nvrm_timeline(first, NULL, &line), -EBADF);
	assert_non_null(strstr(rtx_strerror(), "the GPU's handle is closed"));
	assert_int_equal(rtx_nvrm_close(first), -EBADF);
	for (int i = 0; i < 3; i++) {
		up();
		assert_ptr_equal(gpu, first);
		down();
	}
}

/* --- what is refused -------------------------------------------------------------------------- */

/* An event that the driver refuses is said by the first who needs it, and the next one may try. */
static void an_event_that_is_refused_is_named(void **state)
{
	up();
	fake_nvrm.refuse_class = 0x79;
	assert_int_equal(rtx_timeline_arm(line, 1), -EOPNOTSUPP);
	assert_non_null(strstr(rtx_strerror(), "opening an event"));
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, UINT64_MAX), -EOPNOTSUPP);
	assert_int_equal(fake_nvrm.fds, 2);
	fake_nvrm.refuse_class = 0;
	set(line, 1);
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_FENCE, UINT64_MAX), 0);
	assert_int_equal(rtx_timeline_arm(line, 2), 0);
	down();
}

static void a_word_that_the_gpu_cannot_have_is_refused(void **state)
{
	static uint32_t words[4] __attribute__((aligned(4096)));
	void *readable = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *bad[] = { NULL, (void *)4096, (void *)0xffff888000000000 };
	rtx_timeline_t other;

	up();
	assert_int_equal(rtx_nvrm_timeline(gpu, (void *)((char *)words + 2), &other), -EINVAL);
	fake_nvrm.unmappable = words;
	assert_int_equal(rtx_nvrm_timeline(gpu, words + 1, &other), -EFAULT);
	assert_non_null(strstr(rtx_strerror(), "cannot give the GPU the page"));
	fake_nvrm.unmappable = NULL;
	assert_true(readable != MAP_FAILED);
	bad[0] = readable;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(rtx_nvrm_timeline(gpu, bad[i], &other), -EFAULT);
		assert_non_null(strstr(rtx_strerror(), "cannot give the GPU the page"));
		assert_non_null(strstr(rtx_strerror(), "INVALID_ADDRESS"));
	}
	munmap(readable, 4096);
	assert_int_equal(rtx_nvrm_timeline(gpu, readable, &other), -EFAULT);
	assert_int_equal(rtx_nvrm_timeline(gpu, words + 1, &other), 0);
	assert_ptr_equal(rtx_timeline_word(other), words + 1);
	words[1] = 1;
	assert_int_equal(rtx_timeline_wait(other, 1, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	down();
}

/* --- in a task -------------------------------------------------------------------------------- */

static void *set_later(void *arg)
{
	pause_ms(20);
	set(line, 5);
	return NULL;
}

static void a_task_syncs_by_a_timeline(void **state)
{
	static const enum rtx_sync ways[] = { RTX_SYNC_FENCE, RTX_SYNC_NOTIFY };
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);

	setenv("RTXG_HOST", "daemon", 1);
	setenv("RTXG_SOCKET", "/nonexistent/rtxg.sock", 1);
	options.flags = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;
	for (int i = 0; i < 2; i++) {
		struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
		pthread_t thread;
		rtx_gpu_t task;

		up();
		assert_int_equal(rtx_gpu_open(&task, &options), 0);
		assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
		notify.how = ways[i];
		notify.timeline = line;
		notify.value = 5;
		notify.until_ns = rtxg_now_ns() + 5000000;
		assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
		assert_int_equal(stats_of(line).armed, ways[i] == RTX_SYNC_NOTIFY);
		/* the GPU does not come, and is not waited for any longer */
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -ETIMEDOUT);
		assert_true(rtxg_now_ns() >= notify.until_ns);
		assert_int_equal(rtx_gpu_complete(task, RTX_COMPUTE, 0), 0);
		notify.until_ns = 0;
		assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
		assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
		assert_int_equal(pthread_create(&thread, NULL, set_later, NULL), 0);
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), 0);
		assert_int_equal(*rtx_timeline_word(line), 5);
		pthread_join(thread, NULL);
		/* closed: refused at notify, not found out at sync */
		assert_int_equal(rtx_timeline_close(line), 0);
		assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
		assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), -EBADF);
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), 0);
		assert_int_equal(rtx_gpu_close(task), 0);
		down();
	}
}

static void launched(rtx_gpu_t task, enum rtx_sync how, uint32_t value)
{
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);

	assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
	notify.how = how;
	notify.timeline = line;
	notify.value = value;
	assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
}

/* Work that cannot be waited for any more is not in flight for ever. */
static void a_sync_that_cannot_end_ends_its_launch(void **state)
{
	static const enum rtx_sync ways[] = { RTX_SYNC_FENCE, RTX_SYNC_NOTIFY };
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);

	setenv("RTXG_HOST", "daemon", 1);
	setenv("RTXG_SOCKET", "/nonexistent/rtxg.sock", 1);
	options.flags = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;
	for (int i = 0; i < 2; i++) {
		rtx_gpu_t task;

		__atomic_store_n(&fake_nvrm.lost, false, __ATOMIC_RELAXED);
		up();
		assert_int_equal(rtx_gpu_open(&task, &options), 0);
		/* The timeline is closed between the notify and the sync. */
		launched(task, ways[i], 1);
		assert_int_equal(rtx_timeline_close(line), 0);
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -EBADF);
		assert_non_null(strstr(rtx_strerror(), "timeline 0 is closed"));
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -EPERM);
		/* A value before the last one that was armed: the launch may be told another. */
		assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &line), 0);
		launched(task, RTX_SYNC_NOTIFY, 9);
		assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
		notify.how = RTX_SYNC_NOTIFY;
		notify.timeline = line;
		notify.value = 8;
		assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), -ERANGE);
		assert_non_null(strstr(rtx_strerror(), "value 8 lies before 9"));
		notify.value = 10;
		assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
		set(line, 10);
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), 0);
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), 0);
		/* The GPU is lost. */
		launched(task, ways[i], 11);
		__atomic_store_n(&fake_nvrm.lost, true, __ATOMIC_RELAXED);
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -ENODEV);
		assert_non_null(strstr(rtx_strerror(), "the GPU is lost"));
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -EPERM);
		assert_int_equal(rtx_gpu_close(task), 0);
		down();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_wait_ends_with_its_value_and_not_before, before),
		cmocka_unit_test_setup(a_value_that_has_been_reached_costs_no_call_of_the_driver,
				       before),
		cmocka_unit_test_setup(a_lost_interrupt_costs_time_and_nothing_else, before),
		cmocka_unit_test_setup(an_interrupt_does_not_wait_for_the_fence, before),
		cmocka_unit_test_setup(an_interrupt_wakes_and_its_stamp_is_kept, before),
		cmocka_unit_test_setup(as_many_values_as_stated_may_be_armed_at_once, before),
		cmocka_unit_test_setup(ten_thousand_waits_leave_nothing, before),
		cmocka_unit_test_setup(values_go_round, before),
		cmocka_unit_test_setup(all_who_wait_for_a_timeline_are_woken, before),
		cmocka_unit_test_setup(a_timeline_that_waits_holds_no_other_up, before),
		cmocka_unit_test_setup(limits_of_time_signals_and_other_ways, before),
		cmocka_unit_test_setup(a_gpu_that_is_lost_is_named, before),
		cmocka_unit_test_setup(a_gpu_that_is_lost_takes_no_word_and_no_event, before),
		cmocka_unit_test(a_file_without_its_device_ends_a_sleep),
		cmocka_unit_test_setup(a_word_that_goes_back_ends_the_wait, before),
		cmocka_unit_test_setup(a_closed_gpu_is_named_and_its_memory_kept, before),
		cmocka_unit_test_setup(a_sync_that_cannot_end_ends_its_launch, before),
		cmocka_unit_test_setup(closing_sends_waiters_away, before),
		cmocka_unit_test_setup(calls_that_come_while_it_is_closed, before),
		cmocka_unit_test_setup(one_of_several_closes, before),
		cmocka_unit_test_setup(closing_a_gpu_sends_its_waiters_away, before),
		cmocka_unit_test_setup(an_event_that_is_refused_is_named, before),
		cmocka_unit_test_setup(a_word_that_the_gpu_cannot_have_is_refused, before),
		cmocka_unit_test_setup(a_task_syncs_by_a_timeline, before),
	};

	if (cmocka_run_group_tests(tests, NULL, NULL))
		return 1;
	/* all of it is true of timelines that foresee, too */
	foreseeing = RTX_FORESEE_LOOK;
	if (cmocka_run_group_tests(tests, NULL, NULL))
		return 1;
	foreseeing = RTX_FORESEE_SLEEP;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
