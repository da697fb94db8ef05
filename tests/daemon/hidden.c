// SPDX-License-Identifier: MIT
/*
 * hidden.c - whether /proc hides processes is read in the list of mounts, which may take long: it
 * is not waited for, and what was known stays.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "process.h"

#define MOUNT "24 30 0:22 / /proc rw,nosuid - proc proc rw"

FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
int __real_clock_gettime(clockid_t clock, struct timespec *at);
int __wrap_clock_gettime(clockid_t clock, struct timespec *at);
int __real_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
				  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
				  const struct timespec *until);

enum { TEXT, HANGS, NONE };
static _Atomic int what;
static const char *_Atomic mounts;
static sem_t opened, go_on, answered;
static _Atomic int ahead; /* of the clock, s */

static FILE *list_of_mounts(void)
{
	const char *text;

	if (what == NONE) {
		errno = ENFILE;
		return NULL;
	}
	if (what == HANGS) {
		sem_post(&opened);
		while (sem_wait(&go_on))
			;
	}
	text = mounts;
	return fmemopen((char *)text, strlen(text), "r");
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	return strcmp(path, "/proc/self/mountinfo") ? __real_fopen64(path, mode) : list_of_mounts();
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	return strcmp(path, "/proc/self/mountinfo") ? __real_fopen(path, mode) : list_of_mounts();
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *at)
{
	int error = __real_clock_gettime(clock, at);

	if (clock == CLOCK_MONOTONIC)
		at->tv_sec += ahead;
	return error;
}

/* What waits until a time waits by the clock of the machine. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
				  const struct timespec *until)
{
	struct timespec end = *until;

	end.tv_sec -= ahead;
	return __real_pthread_cond_timedwait(condition, lock, &end);
}

static void *ask(void *group)
{
	bool hidden = process_others_hidden(group);

	sem_post(&answered);
	return hidden ? group : NULL;
}

static bool wait_a_minute(sem_t *semaphore)
{
	struct timespec end;
	int error;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 60;
	do
		error = sem_timedwait(semaphore, &end);
	while (error && errno == EINTR);
	return !error;
}

/* What is told while the list cannot be read; it can be afterwards. */
static bool told_while_it_hangs(gid_t *group)
{
	pthread_t thread;
	bool in_time;
	void *hidden;

	what = HANGS;
	ahead += 2; /* what was read is old */
	assert_int_equal(pthread_create(&thread, NULL, ask, group), 0);
	assert_true(wait_a_minute(&opened));
	in_time = wait_a_minute(&answered);
	what = TEXT;
	sem_post(&go_on);
	pthread_join(thread, &hidden);
	assert_true(in_time);
	return hidden != NULL;
}

/* Who has held it up is not asked for a while. */
static void wait_until(const char *text, bool hidden, gid_t wanted)
{
	gid_t group = 0;

	what = TEXT;
	mounts = text;
	for (int i = 0; i < 6000; i++) {
		ahead += 20;
		if (process_others_hidden(&group) == hidden && group == wanted)
			return;
		usleep(10000);
	}
	fail_msg("never so");
}

static void a_list_that_hangs_is_not_waited_for(void **state)
{
	gid_t group = 0;

	mounts = MOUNT;
	assert_true(told_while_it_hangs(&group)); /* nothing is known: nothing is told */
	assert_int_equal(group, (gid_t)-1);
	wait_until(MOUNT ",hidepid=0\n", false, (gid_t)-1);
	assert_false(told_while_it_hangs(&group));
	wait_until(MOUNT ",gid=7,hidepid=2\n", true, 7);
	assert_true(told_while_it_hangs(&group));
	assert_int_equal(group, 7);
}

static void a_list_that_cannot_be_opened_says_nothing(void **state)
{
	gid_t group = 0;

	wait_until(MOUNT ",gid=7,hidepid=2\n", true, 7);
	what = NONE;
	ahead += 2;
	assert_true(process_others_hidden(&group));
	assert_int_equal(group, 7);
	wait_until(MOUNT "\n", false, (gid_t)-1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_that_hangs_is_not_waited_for),
		cmocka_unit_test(a_list_that_cannot_be_opened_says_nothing),
	};

	if (sem_init(&opened, 0, 0) || sem_init(&go_on, 0, 0) || sem_init(&answered, 0, 0))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
