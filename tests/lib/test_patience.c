// SPDX-License-Identifier: MIT
/*
 * test_patience.c - calls that are held up are not waited for, their users are not asked again so
 * soon, others are, and what comes too late is taken back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "patience.h"
#include "rtxg_clock.h"

#define OTHERS 8

static sem_t let_go, taken_back;
static int ours[2]; /* a pipe */

struct words {
	int in, out;
};

static void answer(void *memory)
{
	struct words *words = memory;

	words->out = words->in + 1;
}

static void hold_up(void *memory)
{
	struct words *words = memory;

	while (sem_wait(&let_go))
		;
	words->out = words->in + 1;
}

static void take_back(void *memory)
{
	const struct words *words = memory;

	if (words->out == words->in + 1)
		sem_post(&taken_back);
}

static const struct patience_call quick = { .make = answer, .undo = take_back };
static const struct patience_call held = { .make = hold_up, .undo = take_back };

static void ask(uid_t user)
{
	struct words words = { .in = (int)user };
	int error;

	/* Of a busy machine its thread may get no CPU. */
	do
		error = rtx_lib_patience(user, &quick, &words, sizeof(words));
	while (error == -EAGAIN);
	assert_int_equal(error, 0);
	assert_int_equal(words.out, (int)user + 1);
}

static void test_an_answer_comes_back(void **state)
{
	for (uid_t user = 1; user < 1000; user++)
		ask(user);
}

static void test_a_call_that_is_held_up_is_not_waited_for(void **state)
{
	struct words words = { .in = 1 };
	uint64_t began;
	int value;

	for (uid_t user = 2001; user <= 2003; user++) {
		assert_int_equal(rtx_lib_patience(user, &held, &words, sizeof(words)), -ETIMEDOUT);
		assert_int_equal(words.out, 0);
		assert_int_equal(rtx_lib_patience(user, &quick, &words, sizeof(words)), -EBUSY);
		ask(3000);
	}
	sem_getvalue(&taken_back, &value);
	assert_int_equal(value, 0);
	began = rtxg_now_ns();
	/* Each of them ends, its result is taken back, and its user is still not asked so soon. */
	for (int i = 0; i < 3; i++)
		sem_post(&let_go);
	for (int i = 0; i < 3; i++)
		while (sem_wait(&taken_back))
			;
	value = rtx_lib_patience(2001, &quick, &words, sizeof(words));
	if (rtxg_now_ns() - began < 10000000000u)
		assert_int_equal(value, -EBUSY);
	ask(3000);
}

/* An event with the number that was asked for, if the thread has nothing of ours. */
static void open_event(void *memory)
{
	struct words *words = memory;

	/* By number, as in patience.c. */
	words->out = syscall(SYS_fcntl, ours[0], F_GETFD) < 0
			     ? (int)syscall(SYS_eventfd2, words->in, EFD_CLOEXEC)
			     : -EEXIST;
}

static int *event_of(void *memory)
{
	return &((struct words *)memory)->out;
}

static const struct patience_call opens = { .make = open_event, .gives = event_of };

static void get(uid_t user)
{
	struct words words = { .in = (int)user };
	uint64_t value = 0;
	int error;

	do
		error = rtx_lib_patience(user, &opens, &words, sizeof(words));
	while (error == -EAGAIN);
	assert_int_equal(error, 0);
	assert_true(words.out >= 0);
	assert_int_equal(fcntl(words.out, F_GETFD), FD_CLOEXEC);
	assert_int_equal(read(words.out, &value, sizeof(value)), sizeof(value));
	assert_int_equal(value, user);
	close(words.out);
}

/* It is the caller's, though the thread has none of the caller's. */
static void test_a_descriptor_comes_back(void **state)
{
	for (uid_t user = 1; user < 100; user++)
		get(user);
}

static void *ask_often(void *user)
{
	for (int i = 0; i < 300; i++) {
		ask(*(const uid_t *)user);
		get(*(const uid_t *)user);
	}
	return NULL;
}

static void test_several_threads_ask(void **state)
{
	pthread_t threads[OTHERS];
	uid_t users[OTHERS];

	for (int i = 0; i < OTHERS; i++) {
		users[i] = 4000 + (uid_t)i;
		assert_int_equal(pthread_create(&threads[i], NULL, ask_often, &users[i]), 0);
	}
	for (int i = 0; i < OTHERS; i++)
		pthread_join(threads[i], NULL);
}

static void test_no_more_than_sixty_four_threads_are_held(void **state)
{
	struct words words = { 0 };
	int count = 0;

	/* Users of the test before have their places for some seconds. */
	for (uid_t user = 5000; count < 64; user++) {
		int error = rtx_lib_patience(user, &held, &words, sizeof(words));

		assert_true(error == -ETIMEDOUT || error == -EBUSY);
		count += error == -ETIMEDOUT;
		if (error == -EBUSY)
			usleep(100000);
	}
	assert_int_equal(rtx_lib_patience(4000, &quick, &words, sizeof(words)), -EBUSY);
	for (int i = 0; i < 64; i++)
		sem_post(&let_go);
	for (int i = 0; i < 64; i++)
		while (sem_wait(&taken_back))
			;
}

static void test_a_process_that_has_ended_is_not_asked(void **state)
{
	struct words words = { 0 };

	assert_int_equal(rtx_lib_patience_of(0, &quick, &words, sizeof(words)), -ESRCH);
	assert_int_equal(words.out, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_answer_comes_back),
		cmocka_unit_test(test_a_descriptor_comes_back),
		cmocka_unit_test(test_several_threads_ask),
		cmocka_unit_test(test_a_process_that_has_ended_is_not_asked),
		cmocka_unit_test(test_a_call_that_is_held_up_is_not_waited_for),
		cmocka_unit_test(test_no_more_than_sixty_four_threads_are_held),
	};

	if (pipe2(ours, O_CLOEXEC))
		return 1;
	sem_init(&let_go, 0, 0);
	sem_init(&taken_back, 0, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
