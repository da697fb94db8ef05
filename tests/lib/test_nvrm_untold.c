// SPDX-License-Identifier: MIT
/*
 * test_nvrm_untold.c - children of _Fork(), in which no handler of pthread_atfork() is called: they
 * find their parent's lists, and learn with their first call that they are others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "nvrm.h"
#include "nvrm_rig.h"

#define NUMBERS 256

/* In a child: what is wrong ends it. */
#define is_so(what)                                                                  \
	do {                                                                         \
		if (!(what)) {                                                       \
			fprintf(stderr, "child, line %d: %s: %s\n", __LINE__, #what, \
				rtx_strerror());                                     \
			_exit(1);                                                    \
		}                                                                    \
	} while (0)

static int before(void **state)
{
	rig_reset();
	return 0;
}

static void ends_well(pid_t child)
{
	int status;

	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* Opens all kinds of descriptors that a handle has; their numbers are those that were not open. */
static void up_with_all(bool driver[NUMBERS])
{
	struct timeline_share share;

#ifdef __SANITIZE_THREAD__
	print_message("skipped: ThreadSanitizer's own locks stay held in a child of _Fork()\n");
	skip();
#endif
	for (int fd = 0; fd < NUMBERS; fd++)
		driver[fd] = !is_open(fd);
	up();
	assert_int_equal(rtx_timeline_arm(line, 1), 0);
	assert_int_equal(rtx_lib_timeline_share(line, &share), 0);
	rtx_lib_timeline_leave(line);
	for (int fd = 0; fd < NUMBERS; fd++)
		driver[fd] = driver[fd] && is_open(fd);
}

static unsigned int open_of(const bool driver[NUMBERS])
{
	unsigned int count = 0;

	for (int fd = 0; fd < NUMBERS; fd++)
		count += driver[fd] && is_open(fd);
	return count;
}

static void works(rtx_nvrm_t own)
{
	rtx_timeline_t t;

	is_so(!rtx_nvrm_timeline(own, NULL, &t));
	is_so(!rtx_timeline_arm(t, 1));
	set(t, 1);
	is_so(!rtx_timeline_wait(t, 1, RTX_SYNC_NOTIFY, UINT64_MAX));
	is_so(!rtx_nvrm_close(own));
}

static void the_first_call_lets_go_of_all(void **state)
{
	bool driver[NUMBERS];
	rtx_nvrm_t second, own;
	rtx_timeline_t t;
	pid_t child;

	(void)state;
	/* Whichever is closed first is not the last of the parent's list. */
	up_with_all(driver);
	assert_int_equal(rtx_nvrm_init(&second, NULL), 0);
	assert_int_equal(rtx_nvrm_timeline(second, NULL, &t), 0);
	assert_int_equal(rtx_timeline_arm(t, 1), 0);
	for (int opens = 0; opens < 2; opens++) {
		child = fake_nvrm_fork_untold();
		if (!child) {
			is_so(open_of(driver));
			is_so(opens ? !rtx_nvrm_init(&own, NULL)
				    : rtx_nvrm_close(second) == -ECHILD);
			if (opens)
				works(own);
			is_so(!open_of(driver));
			is_so(!fake_nvrm.fds);
			is_so(rtx_nvrm_close(gpu) == -ECHILD);
			is_so(!rtx_nvrm_init(&own, NULL));
			works(own);
			is_so(!fake_nvrm.fds && !fake_nvrm.objects && !fake_nvrm.clients);
			_exit(0);
		}
		ends_well(child);
	}
	assert_int_equal(rtx_nvrm_close(second), 0);
	down();
}

/* As a child that becomes a service does it: it closes all, and opens what it needs. */
static void numbers_that_a_child_has_used_anew_stay_open(void **state)
{
	bool driver[NUMBERS];
	pid_t child;

	(void)state;
	up_with_all(driver);
	child = fake_nvrm_fork_untold();
	if (!child) {
		unsigned int count = open_of(driver);
		rtx_nvrm_t own;
		int low, mine;

		/* two of the device, two for interrupts, and the words */
		is_so(count == 5);
		/* of the same kind as the driver's here: a program may open its files, too */
		low = eventfd(0, EFD_CLOEXEC);
		mine = fcntl(low, F_DUPFD_CLOEXEC, NUMBERS);
		is_so(mine >= NUMBERS && !close(low));
		for (int fd = 0; fd < NUMBERS; fd++)
			if (driver[fd] && is_open(fd))
				is_so(dup2(mine, fd) == fd);
		is_so(rtx_nvrm_close(gpu) == -ECHILD);
		is_so(open_of(driver) == count);
		is_so(!rtx_nvrm_init(&own, NULL));
		works(own);
		is_so(open_of(driver) == count);
		_exit(0);
	}
	ends_well(child);
	down();
}

static struct nv_sys slow;
static pthread_t second_thread;
static bool second_begun, second_open;
static rtx_nvrm_t second_gpu;

static void *open_second(void *arg)
{
	is_so(!rtx_nvrm_init(&second_gpu, NULL));
	__atomic_store_n(&second_open, true, __ATOMIC_SEQ_CST);
	return arg;
}

/* Of what was the parent's: meanwhile another thread makes its first call, too. */
static int close_slowly(void *ctx, int fd)
{
	if (!second_begun) {
		second_begun = true;
		is_so(!pthread_create(&second_thread, NULL, open_second, NULL));
		/* It waits for this thread; so long is enough to see that it does not. */
		for (int i = 0; i < 100 && !__atomic_load_n(&second_open, __ATOMIC_SEQ_CST); i++)
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return fake_nvrm_sys.close(ctx, fd);
}

static void of_two_first_calls_one_waits_for_the_other(void **state)
{
	bool driver[NUMBERS];
	pid_t child;

	(void)state;
	up_with_all(driver);
	child = fake_nvrm_fork_untold();
	if (!child) {
		rtx_nvrm_t own;

		slow = fake_nvrm_sys;
		slow.close = close_slowly;
		rtx_lib_nvrm_sys = &slow;
		is_so(!rtx_nvrm_init(&own, NULL));
		is_so(second_begun);
		is_so(!pthread_join(second_thread, NULL));
		works(own);
		works(second_gpu);
		is_so(!fake_nvrm.fds && !fake_nvrm.objects && !fake_nvrm.clients);
		is_so(!open_of(driver));
		_exit(0);
	}
	ends_well(child);
	down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_first_call_lets_go_of_all, before),
		cmocka_unit_test_setup(numbers_that_a_child_has_used_anew_stay_open, before),
		cmocka_unit_test_setup(of_two_first_calls_one_waits_for_the_other, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
