// SPDX-License-Identifier: MIT
/*
 * test_lock.c - the lock of librtxg's lanes: one thread at a time has it, a forked child's thread
 * is another owner, and the kernel lends the owner the priority of who waits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lock.h"

#define THREADS 6
#define ROUNDS	20000

static struct rtx_lib_lock lock;
static unsigned int inside, count;

static void *take_often(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		rtx_lib_lock(&lock, 1);
		assert_int_equal(inside++, 0);
		count++;
		if (i % 64 == 0)
			sched_yield(); /* others have to wait now and then */
		inside--;
		rtx_lib_unlock(&lock);
	}
	return arg;
}

static void one_thread_at_a_time_has_it(void **state)
{
	pthread_t threads[THREADS];

	count = 0;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_often, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(count, THREADS * ROUNDS);
	assert_int_equal(lock.word, 0);
}

static void the_word_names_the_thread_also_in_a_child(void **state)
{
	int status;
	pid_t child;

	rtx_lib_lock(&lock, 1);
	assert_int_equal(lock.word, syscall(SYS_gettid));
	rtx_lib_unlock(&lock);
	child = fork();
	if (!child) {
		/* Its handles are of another generation. */
		rtx_lib_lock(&lock, 2);
		_exit(lock.word == (uint32_t)syscall(SYS_gettid) ? 7 : 8);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
}

/* The kernel's priority of this thread: 20 without nice, below 0 if it is real-time. */
static long priority(void)
{
	char path[64], line[1024], *field;
	long value = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", syscall(SYS_gettid));
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	field = strrchr(line, ')');
	assert_non_null(field);
	assert_int_equal(sscanf(field + 2,
				"%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u "
				"%*d %*d %ld",
				&value),
			 1);
	return value;
}

static void *take_once(void *arg)
{
	rtx_lib_lock(&lock, 1);
	count = 77;
	rtx_lib_unlock(&lock);
	return arg;
}

static void the_owner_is_lent_the_priority_of_who_waits(void **state)
{
	struct sched_param high = { .sched_priority = 5 };
	pthread_attr_t attr;
	pthread_t thread;
	long before = priority();

	pthread_attr_init(&attr);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
	pthread_attr_setschedparam(&attr, &high);
	count = 0;
	rtx_lib_lock(&lock, 1);
	if (before < 0 || pthread_create(&thread, &attr, take_once, NULL)) {
		rtx_lib_unlock(&lock);
		print_message("skipped: no real-time priority may be given here\n");
		skip();
	}
	while (priority() != -6)
		sched_yield();
	assert_true(__atomic_load_n(&lock.word, __ATOMIC_RELAXED) & FUTEX_WAITERS);
	assert_int_equal(count, 0);
	rtx_lib_unlock(&lock);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(count, 77);
	assert_int_equal(priority(), before);
	pthread_attr_destroy(&attr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_thread_at_a_time_has_it),
		cmocka_unit_test(the_word_names_the_thread_also_in_a_child),
		cmocka_unit_test(the_owner_is_lent_the_priority_of_who_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
