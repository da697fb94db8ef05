// SPDX-License-Identifier: MIT
/*
 * test_nvrm_stream.c - timelines that streams of the program's CUDA write, also behind launches of
 * CUDA graphs and beside their capture, on a GPU and a CUDA that are not there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "nvrm_rig.h"
#include "rtxg_clock.h"

extern int fake_stream_registered, fake_stream_refuses;
extern int fake_stream_works, fake_stream_calls;
extern unsigned long long fake_stream_context;
extern int fake_stream_captures, fake_stream_captured, fake_stream_elsewhere, fake_stream_broken;
int cuMemHostUnregister(void *page);
int cuStreamWriteValue32_v2(void *stream, unsigned long long at, uint32_t value,
			    unsigned int flags);
int cuThreadExchangeStreamCaptureMode(int *mode);
void fake_stream_launch(void);

static void no_page_is_left(void)
{
	assert_int_equal(fake_stream_registered, 0);
}

static int before(void **state)
{
	rig_reset();
	nothing_else_is_left = no_page_is_left;
	fake_stream_registered = fake_stream_refuses = 0;
	fake_stream_captures = fake_stream_captured = 0;
	fake_stream_elsewhere = fake_stream_broken = 0;
	fake_stream_works = fake_stream_calls = 0;
	fake_stream_context = 7;
	return 0;
}

static void a_stream_signals(void **state)
{
	uint32_t value = 99;

	up();
	fake_stream_refuses = 1;
	assert_int_equal(rtx_timeline_signal(line, NULL, &value), -EIO);
	assert_non_null(strstr(rtx_strerror(), "error 201"));
	fake_stream_refuses = 0;
	for (uint32_t v = 1; v <= 3; v++) {
		assert_int_equal(rtx_timeline_signal(line, NULL, &value), 0);
		assert_true(value >= v);
		assert_int_equal(rtx_timeline_wait(line, value, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	}
	fake_stream_refuses = 1;
	assert_int_equal(rtx_timeline_signal(line, NULL, &value), -EIO);
	assert_non_null(strstr(rtx_strerror(), "cuStreamWriteValue32"));
	assert_int_equal(rtx_timeline_signal(line, NULL, NULL), -EINVAL);
	down();
}

static void signalled(rtx_timeline_t t)
{
	uint32_t value;

	assert_int_equal(rtx_timeline_signal(t, NULL, &value), 0);
	assert_true(rtx_timeline_reached(t, value));
}

/*
 * A signal costs three calls of CUDA's once it knows the page, and asks again in another context.
 */
static void a_page_is_asked_for_once_a_context(void **state)
{
	uint32_t value;
	int calls;

	up();
	signalled(line);
	for (int i = 0; i < 3; i++) {
		fake_stream_context = 7 + (unsigned long long)i % 2;
		signalled(line);
		calls = fake_stream_calls;
		signalled(line);
		assert_int_equal(fake_stream_calls, calls + 3);
	}
	/* CUDA has forgotten it, and says so with the write: the next one asks. */
	fake_stream_refuses = 1;
	assert_int_equal(rtx_timeline_signal(line, NULL, &value), -EIO);
	fake_stream_refuses = 0;
	calls = fake_stream_calls;
	signalled(line);
	assert_int_equal(fake_stream_calls, calls + 6);
	/* A thread without a context: CUDA says what it says. */
	fake_stream_context = 0;
	calls = fake_stream_calls;
	signalled(line);
	signalled(line);
	assert_int_equal(fake_stream_calls, calls + 12);
	down();
}

/* --- CUDA graphs ------------------------------------------------------------------------------ */

/* It would write one number again and again. */
static void a_signal_to_a_stream_that_is_captured_is_refused(void **state)
{
	uint32_t first, value = 99;

	up();
	assert_int_equal(rtx_timeline_signal(line, NULL, &first), 0);
	for (int status = 1; status <= 2; status++) {
		fake_stream_captures = status; /* active; broken by an error */
		assert_int_equal(rtx_timeline_signal(line, &gpu, &value), -EBUSY);
		assert_non_null(strstr(rtx_strerror(), "signal behind the launch of the graph"));
	}
	fake_stream_captures = 906; /* the default stream, while another one is captured */
	assert_int_equal(rtx_timeline_signal(line, NULL, &value), -EBUSY);
	fake_stream_captures = 400; /* CUDA_ERROR_INVALID_HANDLE */
	assert_int_equal(rtx_timeline_signal(line, &gpu, &value), -EIO);
	assert_non_null(strstr(rtx_strerror(), "error 400 of cuStreamIsCapturing"));
	assert_int_equal(value, 99);
	assert_int_equal(fake_stream_captured, 0);
	/* no number was lost, and behind the launch it has its place */
	fake_stream_captures = 0;
	for (uint32_t launch = 1; launch <= 3; launch++) {
		fake_stream_launch();
		assert_int_equal(rtx_timeline_signal(line, NULL, &value), 0);
		assert_int_equal(value, first + launch);
		assert_int_equal(rtx_timeline_wait(line, value, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	}
	down();
}

static uint64_t waits(rtx_timeline_t t)
{
	struct rtx_timeline_stats s = RTX_INIT(struct rtx_timeline_stats);

	assert_int_equal(rtx_timeline_stats(t, &s), 0);
	return s.waits;
}

static void *wait_for_third(void *arg)
{
	for (uint32_t v = 1; v <= 3; v++)
		*(int *)arg +=
			rtx_timeline_wait(line, v, RTX_SYNC_NOTIFY, rtxg_now_ns() + 60000000000ull);
	return NULL;
}

/*
 * A node of the program's own writes the word in the middle of a graph: its number is set before
 * each launch. One that stays the same is reached from the first launch on.
 */
static void a_graph_writes_a_word_of_its_own(void **state)
{
	static uint32_t words[1024] __attribute__((aligned(4096)));
	unsigned long long at = (uintptr_t)&words[3];
	pthread_t thread;
	int ret = 0;

	words[3] = 0;
	assert_int_equal(rtx_nvrm_init(&gpu, NULL), 0);
	assert_int_equal(rtx_nvrm_timeline(gpu, &words[3], &line), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_third, &ret), 0);
	for (uint32_t v = 1; v <= 3; v++) {
		while (waits(line) < v)
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
		assert_false(rtx_timeline_reached(line, v));
		fake_stream_captures = 1;
		fake_stream_captured = 0; /* the node is given a number */
		assert_int_equal(cuStreamWriteValue32_v2(NULL, at, v, 0), 0);
		fake_stream_captures = 0;
		fake_stream_launch();
	}
	pthread_join(thread, NULL);
	assert_int_equal(ret, 0);
	fake_stream_launch();
	assert_true(rtx_timeline_reached(line, 3));
	down();
}

static int capture_mode(void)
{
	int mode = 1, was;

	cuThreadExchangeStreamCaptureMode(&mode);
	was = mode;
	cuThreadExchangeStreamCaptureMode(&mode);
	return was;
}

/* Also of a mode in which CUDA lets other threads do nothing that might not be safe. */
static void another_threads_capture_goes_on(void **state)
{
	uint32_t value;

	up();
	fake_stream_elsewhere = 1;
	assert_int_equal(rtx_timeline_signal(line, NULL, &value), 0);
	assert_int_equal(rtx_timeline_wait(line, value, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	assert_int_equal(rtx_timeline_close(line), 0);
	assert_int_equal(fake_stream_broken, 0);
	assert_int_equal(fake_stream_registered, 0);
	assert_int_equal(capture_mode(), 0); /* as it was */
	down();
}

/* CUDA writes to the pages that it was given, also when another page has come to their address. */
static void a_stream_signals_to_what_was_opened_again(void **state)
{
	rtx_timeline_t other;

	for (int i = 0; i < 10; i++) {
		up();
		signalled(line);
		assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &other), 0);
		signalled(other);
		assert_int_equal(rtx_timeline_close(line), 0);
		signalled(other);
		assert_int_equal(rtx_timeline_close(other), 0);
		assert_int_equal(fake_stream_registered, 0);
		assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &line), 0);
		signalled(line);
		down();
	}
}

static void pages_stay_that_cuda_does_not_let_go(void **state)
{
	void *page;

	for (int i = 0; i < 3; i++) {
		up();
		signalled(line);
		page = (void *)((uintptr_t)rtx_timeline_word(line) & ~(uintptr_t)4095);
		fake_stream_refuses = 2;
		assert_int_equal(rtx_nvrm_close(gpu), 0);
		assert_int_equal(fake_stream_registered, 1);
		up();
		assert_ptr_not_equal(rtx_timeline_word(line), page);
		signalled(line);
		fake_stream_refuses = 0;
		assert_int_equal(cuMemHostUnregister(page), 0);
		down();
	}
}

static void *close_line(void *arg)
{
	return (void *)(intptr_t)rtx_timeline_close(line);
}

static void *signal_again(void *arg)
{
	uint32_t value;
	int ret = rtx_timeline_signal(arg, NULL, &value);

	return (void *)(intptr_t)(ret ? ret : !rtx_timeline_reached(arg, value));
}

/* CUDA forgets a page when its streams' work has ended: only those of that page wait for it. */
static void a_close_beside_work_delays_no_other(void **state)
{
	pthread_t closes, signals;
	rtx_timeline_t other, again;
	rtx_nvrm_t second;
	void *ret;

	up();
	assert_int_equal(rtx_nvrm_init(&second, NULL), 0);
	assert_int_equal(rtx_nvrm_timeline(second, NULL, &other), 0);
	signalled(line);
	__atomic_store_n(&fake_stream_works, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_create(&closes, NULL, close_line, NULL), 0);
	while (__atomic_load_n(&fake_stream_works, __ATOMIC_SEQ_CST) != 2)
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	/* Another page. */
	for (int i = 0; i < 10; i++)
		signalled(other);
	__atomic_store_n(&fake_stream_works, 0, __ATOMIC_SEQ_CST);
	pthread_join(closes, &ret);
	assert_null(ret);

	/* The same page, of another timeline: CUDA is given it again. */
	assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &line), 0);
	assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &again), 0);
	signalled(line);
	__atomic_store_n(&fake_stream_works, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_create(&closes, NULL, close_line, NULL), 0);
	while (__atomic_load_n(&fake_stream_works, __ATOMIC_SEQ_CST) != 2)
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	assert_int_equal(pthread_create(&signals, NULL, signal_again, again), 0);
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	__atomic_store_n(&fake_stream_works, 0, __ATOMIC_SEQ_CST);
	pthread_join(closes, &ret);
	assert_null(ret);
	pthread_join(signals, &ret);
	assert_null(ret);
	assert_int_equal(fake_stream_registered, 2);
	assert_int_equal(rtx_nvrm_close(second), 0);
	down();
}

static void *signal_until_closed(void *arg)
{
	sem_t *begun = arg;
	uint32_t value;

	sem_post(begun);
	while (!rtx_timeline_signal(line, NULL, &value))
		;
	return NULL;
}

/* What comes too late is refused, and gives CUDA no page that has gone. */
static void a_stream_signals_to_what_is_being_closed(void **state)
{
	pthread_t threads[4];
	sem_t begun;

	assert_int_equal(sem_init(&begun, 0, 0), 0);
	for (int i = 0; i < 300; i++) {
		up();
		for (int k = 0; k < 4; k++)
			assert_int_equal(
				pthread_create(&threads[k], NULL, signal_until_closed, &begun), 0);
		for (int k = 0; k < 4; k++)
			while (sem_wait(&begun))
				;
		assert_int_equal(rtx_timeline_close(line), 0);
		for (int k = 0; k < 4; k++)
			assert_int_equal(pthread_join(threads[k], NULL), 0);
		assert_int_equal(fake_stream_registered, 0);
		assert_int_equal(rtx_nvrm_close(gpu), 0);
	}
	sem_destroy(&begun);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_stream_signals, before),
		cmocka_unit_test_setup(a_page_is_asked_for_once_a_context, before),
		cmocka_unit_test_setup(a_signal_to_a_stream_that_is_captured_is_refused, before),
		cmocka_unit_test_setup(a_graph_writes_a_word_of_its_own, before),
		cmocka_unit_test_setup(another_threads_capture_goes_on, before),
		cmocka_unit_test_setup(a_stream_signals_to_what_was_opened_again, before),
		cmocka_unit_test_setup(a_stream_signals_to_what_is_being_closed, before),
		cmocka_unit_test_setup(a_close_beside_work_delays_no_other, before),
		cmocka_unit_test_setup(pages_stay_that_cuda_does_not_let_go, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
