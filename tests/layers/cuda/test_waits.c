// SPDX-License-Identifier: MIT
/*
 * test_waits.c - the blocking waits of a CUDA program, turned into librtxg's: a wait ends with the
 * stream's work and not before, and where it cannot be turned CUDA's own comes at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "cupti.h"
#include "fake_cupti.h"
#include "fake_libcuda.h"
#include "fake_nvrm.h"
#include "nvrm_gpu.h"
#include "releases_write.h"
#include "rtxg_clock.h"
#include "rtxg_nvrm.h"

#define NOT_READY 600
#define ILLEGAL	  700 /* CUDA_ERROR_ILLEGAL_ADDRESS */

int InitializeInjection(void);

/* The GPU stays open from test to test, as a program's does. */
static int before(void **state)
{
	memset(&fake_cuda, 0, sizeof(fake_cuda));
	fake_cuda.active = 1;
	return 0;
}

struct program {
	uint32_t number;
	void *stream;
	bool back;
	pthread_t thread;
};

static void *synchronizes(void *argument)
{
	struct program *p = argument;

	if (!fake_cupti_tell(p->number, &p->stream, fake_cuda_context))
		__atomic_add_fetch(&fake_cuda.wrong, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&p->back, true, __ATOMIC_SEQ_CST);
	pthread_testcancel();
	return NULL;
}

static void start(struct program *p, uint32_t number)
{
	int writes = __atomic_load_n(&fake_cuda.writes, __ATOMIC_SEQ_CST);

	*p = (struct program){ .number = number, .stream = &fake_cuda };
	assert_int_equal(pthread_create(&p->thread, NULL, synchronizes, p), 0);
	while (__atomic_load_n(&fake_cuda.writes, __ATOMIC_SEQ_CST) == writes &&
	       !__atomic_load_n(&p->back, __ATOMIC_SEQ_CST))
		usleep(1000);
}

static void waits_on(struct program *p)
{
	usleep(20000);
	assert_false(__atomic_load_n(&p->back, __ATOMIC_SEQ_CST));
}

/* CUDA's own call comes at once. */
static void is_not_turned(uint32_t number)
{
	struct program p = { .number = number, .stream = &fake_cuda };
	int writes = fake_cuda.writes;

	synchronizes(&p);
	assert_int_equal(fake_cuda.writes, writes);
	assert_int_equal(fake_cuda.wrong, 0);
}

static void a_wait_ends_with_the_work(void **state)
{
	static const uint32_t numbers[] = { CUPTI_STREAM_SYNCHRONIZE, CUPTI_STREAM_SYNCHRONIZE_T,
					    CUPTI_CTX_SYNCHRONIZE, CUPTI_MEMCPY_D_TO_H,
					    CUPTI_MEMCPY_D_TO_H_T };
	bool notify = !strcmp(getenv("RTXG_WAITS"), "notify");
	struct program p;
	int interrupts, held;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		interrupts = __atomic_load_n(&fake_nvrm.interrupts, __ATOMIC_SEQ_CST);
		held = __atomic_load_n(&fake_nvrm.held, __ATOMIC_SEQ_CST);
		fake_cuda.query = NOT_READY;
		start(&p, numbers[i]);
		/* The work that ends before it is waited for raises no interrupt. */
		while (notify && __atomic_load_n(&fake_nvrm.held, __ATOMIC_SEQ_CST) == held)
			usleep(1000);
		waits_on(&p);
		fake_cuda_finish();
		pthread_join(p.thread, NULL);
		assert_int_equal(fake_cuda.writes, i + 1);
		/* The word is the proof, and may be seen before the interrupt is raised. */
		while (notify &&
		       __atomic_load_n(&fake_nvrm.interrupts, __ATOMIC_SEQ_CST) == interrupts)
			usleep(1000);
	}
	assert_int_equal(fake_cuda.wrong, 0);
	assert_int_equal(fake_nvrm.wild, 0);
}

static void without_work_nothing_is_done(void **state)
{
	is_not_turned(CUPTI_STREAM_SYNCHRONIZE);
	is_not_turned(CUPTI_MEMCPY_D_TO_H_T);
}

static void what_cannot_be_ordered_stays_cudas(void **state)
{
	void *stream = &fake_cuda;

	fake_cuda.query = NOT_READY;
	fake_cuda.capturing = 1;
	is_not_turned(CUPTI_STREAM_SYNCHRONIZE);
	is_not_turned(CUPTI_CTX_SYNCHRONIZE);
	fake_cuda.capturing = 0;
	fake_cuda.other = 1;
	is_not_turned(CUPTI_STREAM_SYNCHRONIZE);
	fake_cuda.other = 0;
	assert_true(fake_cupti_tell(CUPTI_STREAM_SYNCHRONIZE, &stream, NULL));
	assert_int_equal(fake_cuda.writes, 0);
	/* waits for an event */
	assert_false(fake_cupti_tell(121, &stream, fake_cuda_context));
}

/*
 * As torch.cuda.graph does it: the program captures, launches what it captured, and waits for that.
 * All launches of a graph are the stream's work, so a wait ends with them.
 */
static void a_graphs_launches_are_waited_for(void **state)
{
	struct program p;

	fake_cuda.capturing = 1;
	is_not_turned(CUPTI_STREAM_SYNCHRONIZE);
	is_not_turned(CUPTI_CTX_SYNCHRONIZE);
	is_not_turned(CUPTI_MEMCPY_D_TO_H_T);
	fake_cuda.capturing = 0;
	for (int launch = 1; launch <= 3; launch++) {
		fake_cuda.query = NOT_READY;
		start(&p, CUPTI_STREAM_SYNCHRONIZE);
		waits_on(&p);
		fake_cuda_finish();
		pthread_join(p.thread, NULL);
		assert_int_equal(fake_cuda.writes, launch);
	}
	assert_int_equal(fake_cuda.broken, 0);
	assert_int_equal(fake_cuda.wrong, 0);
}

/* CUDA lets this thread do nothing then that might not be safe, and its own wait is. */
static void another_threads_capture_goes_on(void **state)
{
	struct program p;

	fake_cuda.elsewhere = 1;
	fake_cuda.query = NOT_READY;
	start(&p, CUPTI_STREAM_SYNCHRONIZE);
	waits_on(&p);
	fake_cuda_finish();
	pthread_join(p.thread, NULL);
	assert_int_equal(fake_cuda.writes, 1);
	assert_int_equal(fake_cuda.broken, 0);
	/* and the program's own calls are as they were */
	assert_int_equal(cuStreamQuery(p.stream), 0);
	assert_int_equal(fake_cuda.broken, 1);
}

/* Its write is never carried out. */
static void a_stream_that_fails_is_not_waited_for(void **state)
{
	struct program p;

	fake_cuda.query = NOT_READY;
	start(&p, CUPTI_STREAM_SYNCHRONIZE);
	waits_on(&p);
	__atomic_store_n(&fake_cuda.query, ILLEGAL, __ATOMIC_SEQ_CST);
	pthread_join(p.thread, NULL);
	fake_cuda_finish();
}

static int signals;

static void on_signal(int number)
{
	__atomic_add_fetch(&signals, 1, __ATOMIC_SEQ_CST);
}

static void signals_do_not_end_a_wait(void **state)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct program p;

	sigaction(SIGUSR1, &action, NULL);
	fake_cuda.query = NOT_READY;
	start(&p, CUPTI_STREAM_SYNCHRONIZE);
	/* ThreadSanitizer lets a signal wait until the thread is back from what it was in. */
	while (__atomic_load_n(&signals, __ATOMIC_SEQ_CST) < 20) {
		pthread_kill(p.thread, SIGUSR1);
		usleep(1000);
	}
	waits_on(&p);
	fake_cuda_finish();
	pthread_join(p.thread, NULL);
}

/* Nor does a request to cancel the thread: CUDA's frames are on its stack, and hold locks. */
static void a_thread_is_cancelled_behind_its_wait(void **state)
{
	struct program p;
	void *ret;

	fake_cuda.query = NOT_READY;
	start(&p, CUPTI_STREAM_SYNCHRONIZE);
	waits_on(&p);
	assert_int_equal(pthread_cancel(p.thread), 0);
	waits_on(&p);
	fake_cuda_finish();
	pthread_join(p.thread, &ret);
	assert_true(p.back);
	assert_ptr_equal(ret, PTHREAD_CANCELED);
	/* its timeline is another's */
	fake_cuda.query = NOT_READY;
	start(&p, CUPTI_STREAM_SYNCHRONIZE);
	waits_on(&p);
	fake_cuda_finish();
	pthread_join(p.thread, NULL);
	assert_int_equal(fake_cuda.writes, 2);
}

/* A profiler's timer, say, or a program's own: each signal ends a wait before it is time to ask. */
static void a_stream_that_fails_between_signals_is_not_waited_for(void **state)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct program p;
	bool back;

	sigaction(SIGUSR1, &action, NULL);
	__atomic_store_n(&signals, 0, __ATOMIC_SEQ_CST);
	fake_cuda.query = NOT_READY;
	start(&p, CUPTI_STREAM_SYNCHRONIZE);
	waits_on(&p);
	__atomic_store_n(&fake_cuda.query, ILLEGAL, __ATOMIC_SEQ_CST);
	/* So many that it has run take longer than the longest time between two questions. */
	while (!(back = __atomic_load_n(&p.back, __ATOMIC_SEQ_CST)) &&
	       __atomic_load_n(&signals, __ATOMIC_SEQ_CST) < 2000) {
		pthread_kill(p.thread, SIGUSR1);
		usleep(500);
	}
	fake_cuda_finish();
	pthread_join(p.thread, NULL);
	assert_true(back);
}

/* More threads than there are timelines: those that have none wait as before, and all come back. */
static void many_threads(void **state)
{
	enum { THREADS = RTX_TIMELINES_MAX + 8 };
	struct program p[THREADS];
	int turned, objects;

	for (int round = 0; round < 3; round++) {
		fake_cuda.writes = 0;
		fake_cuda.query = NOT_READY;
		for (int i = 0; i < THREADS; i++)
			start(&p[i], CUPTI_STREAM_SYNCHRONIZE);
		turned = fake_cuda.writes;
		fake_cuda_finish();
		for (int i = 0; i < THREADS; i++)
			pthread_join(p[i].thread, NULL);
		/* this thread has had one since it was refused */
		assert_int_equal(turned, RTX_TIMELINES_MAX - 1);
		/* threads that have ended leave theirs to others */
		if (!round)
			objects = fake_nvrm.objects;
		assert_int_equal(fake_nvrm.objects, objects);
	}
}

/* The kernel for periodic programs holds up no context of one that wants its waits turned. */
static void no_module_is_loaded_for_waits(void **state)
{
	__atomic_store_n(&fake_cuda.initialised, 1, __ATOMIC_SEQ_CST);
	/* some looks at the page, which does not name this program */
	usleep(300000);
	assert_int_equal(__atomic_load_n(&fake_cuda.loads, __ATOMIC_SEQ_CST), 0);
	assert_int_equal(__atomic_load_n(&fake_cuda.retains, __ATOMIC_SEQ_CST), 0);
}

static void cuda_that_refuses_the_word(void **state)
{
	fake_cuda.query = NOT_READY;
	fake_cuda.refuses = 1;
	is_not_turned(CUPTI_STREAM_SYNCHRONIZE);
}

/* What a program prints that starts so; it goes on in any case. */
static char *starts(const char *waits, int refuses, int open_error, char *said, size_t size)
{
	int pipes[2], status = -1;
	ssize_t length = 0, n;
	pid_t child;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (!child) {
		struct program p = { .number = CUPTI_STREAM_SYNCHRONIZE, .stream = &fake_cuda };

		dup2(pipes[1], 2);
		setenv("RTXG_WAITS", waits, 1);
		fake_nvrm_reset();
		fake_cupti.refuses = refuses;
		fake_nvrm.open_error = open_error;
		fake_cuda.active = 1;
		fake_cuda.query = NOT_READY;
		InitializeInjection();
		for (int i = 0; i < 3; i++)
			fake_cupti_tell(p.number, &p.stream, fake_cuda_context);
		_exit(fake_cuda.writes ? 1 : 0);
	}
	close(pipes[1]);
	while ((n = read(pipes[0], said + length, size - 1 - (size_t)length)) > 0)
		length += n;
	said[length] = '\0';
	close(pipes[0]);
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	return said;
}

static void why_waits_stay_is_said_once(void **state)
{
	char said[4000], *at;

	assert_string_equal(starts("", 0, 0, said, sizeof(said)), "");
	assert_string_equal(starts("spin", 0, 0, said, sizeof(said)),
			    "rtxg: RTXG_WAITS is 'spin'; accepted: notify, fence\n");
	assert_non_null(strstr(starts("notify", 1, 0, said, sizeof(said)), "a profiler"));
	at = strstr(starts("notify", 0, EACCES, said, sizeof(said)),
		    "rtxg: waits stay CUDA's on its GPU 1: ");
	assert_non_null(at);
	assert_null(strstr(at + 1, "rtxg: waits"));
	setenv("RTXG_CUPTI", "/nonexistent/libcupti.so", 1);
	assert_non_null(strstr(starts("fence", 0, 0, said, sizeof(said)), "no CUPTI was found"));
	unsetenv("RTXG_CUPTI");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_wait_ends_with_the_work, before),
		cmocka_unit_test_setup(without_work_nothing_is_done, before),
		cmocka_unit_test_setup(what_cannot_be_ordered_stays_cudas, before),
		cmocka_unit_test_setup(a_graphs_launches_are_waited_for, before),
		cmocka_unit_test_setup(another_threads_capture_goes_on, before),
		cmocka_unit_test_setup(a_stream_that_fails_is_not_waited_for, before),
		cmocka_unit_test_setup(signals_do_not_end_a_wait, before),
		cmocka_unit_test_setup(a_thread_is_cancelled_behind_its_wait, before),
		cmocka_unit_test_setup(a_stream_that_fails_between_signals_is_not_waited_for,
				       before),
		cmocka_unit_test_setup(cuda_that_refuses_the_word, before),
		cmocka_unit_test_setup(no_module_is_loaded_for_waits, before),
		cmocka_unit_test_setup(many_threads, before),
	};
	const struct CMUnitTest starting[] = { cmocka_unit_test(why_waits_stay_is_said_once) };
	struct nv_releases *page;
	char path[] = "/tmp/rtxg-releases-XXXXXX";
	int failed;

	rtx_lib_nvrm_sys = &fake_nvrm_sys;
	failed = cmocka_run_group_tests_name("starting", starting, NULL, NULL);

	fake_nvrm_reset();
	close(mkstemp(path));
	setenv("RTXG_RELEASES", path, 1);
	if (nv_releases_open(path, &page))
		return 1;
	page->heartbeat_ns = rtxg_now_ns() + 3600000000000;
	InitializeInjection();
	failed += cmocka_run_group_tests_name("waiting", tests, NULL, NULL);
	nv_releases_close(path, page);
	return failed;
}
