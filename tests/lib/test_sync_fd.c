// SPDX-License-Identifier: MIT
/*
 * test_sync_fd.c - rtx_gpu_sync() by a descriptor of the program's (RTX_SYNC_NOTIFY with
 * notify.fd): one completion ends one wait, and a wait keeps its limit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "rtxg.h"
#include "rtxg_clock.h"

/* Another thread that waits for the same descriptor is the first to read it, so often. */
static int stolen;

int poll(struct pollfd *p, nfds_t count, int timeout_ms)
{
	struct timespec t = { .tv_sec = timeout_ms / 1000,
			      .tv_nsec = timeout_ms % 1000 * 1000000l };
	int n = ppoll(p, count, timeout_ms < 0 ? NULL : &t, NULL);
	eventfd_t taken;

	if (n > 0 && stolen) {
		stolen--;
		assert_int_equal(eventfd_read(p->fd, &taken), 0);
	}
	return n;
}

static rtx_gpu_t launch(int fd, uint64_t limit_ns)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	rtx_gpu_t task;

	setenv("RTXG_HOST", "daemon", 1);
	setenv("RTXG_SOCKET", "/nonexistent/rtxg.sock", 1);
	options.flags = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;
	assert_int_equal(rtx_gpu_open(&task, &options), 0);
	assert_int_equal(rtx_gpu_launch(task, RTX_COMPUTE), 0);
	notify.how = RTX_SYNC_NOTIFY;
	notify.fd = fd;
	notify.until_ns = rtxg_now_ns() + limit_ns;
	assert_int_equal(rtx_gpu_notify(task, RTX_COMPUTE, &notify), 0);
	return task;
}

static void a_completion_that_another_took_is_waited_for_no_longer_than_asked(void **state)
{
	static const int flags[] = { 0, EFD_NONBLOCK, EFD_SEMAPHORE };

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		int fd = eventfd(0, flags[i]);
		rtx_gpu_t task = launch(fd, 20000000);

		stolen = 1;
		assert_int_equal(eventfd_write(fd, 1), 0);
		alarm(60);
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), -ETIMEDOUT);
		alarm(0);
		assert_int_equal(stolen, 0);
		/* the launch is outstanding, and ends with the next one */
		assert_int_equal(rtx_gpu_complete(task, RTX_COMPUTE, 0), 0);
		rtx_gpu_close(task);
		close(fd);
	}
}

static void one_completion_is_taken(void **state)
{
	static const int flags[] = { 0, EFD_NONBLOCK, EFD_SEMAPHORE };

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		int fd = eventfd(0, flags[i]);
		rtx_gpu_t task = launch(fd, 60000000000ull);
		struct pollfd p = { .fd = fd, .events = POLLIN };

		assert_int_equal(eventfd_write(fd, 2), 0);
		assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), 0);
		assert_int_equal(poll(&p, 1, 0), flags[i] == EFD_SEMAPHORE);
		rtx_gpu_close(task);
		close(fd);
	}
}

/* What a descriptor of another kind takes: one byte of a pipe, whose end ends the wait, too. */
static void other_descriptors_do(void **state)
{
	rtx_gpu_t task;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	task = launch(fds[0], 60000000000ull);
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_int_equal(rtx_gpu_sync(task, RTX_COMPUTE), 0);
	rtx_gpu_close(task);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_completion_that_another_took_is_waited_for_no_longer_than_asked),
		cmocka_unit_test(one_completion_is_taken),
		cmocka_unit_test(other_descriptors_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
