// SPDX-License-Identifier: MIT
/*
 * sys.c - the system call that waits for a word and wakes those who wait. May not read a page.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sys.h"

int rtx_lib_futex_wait(volatile uint32_t *word, uint32_t value, uint64_t until, bool shared)
{
	struct timespec t = { .tv_sec = (time_t)(until / NS_PER_S),
			      .tv_nsec = (long)(until % NS_PER_S) };
	int saved = errno, ret;

	/* The bitset form takes an absolute CLOCK_MONOTONIC time. */
	ret = (int)syscall(SYS_futex, word, FUTEX_WAIT_BITSET | (shared ? 0 : FUTEX_PRIVATE_FLAG),
			   value, until == NEVER ? NULL : &t, NULL, FUTEX_BITSET_MATCH_ANY);
	ret = ret < 0 ? -errno : 0;
	errno = saved;
	return ret == -EAGAIN ? 0 : ret;
}

void rtx_lib_futex_wake(volatile uint32_t *word, bool shared)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), INT_MAX, NULL,
		NULL, 0);
	errno = saved;
}
