// SPDX-License-Identifier: MIT
/*
 * sys.c - the system calls that wait for a word, wake those who wait, and say how this thread is
 * scheduled. May not read a page.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
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

int rtx_lib_timer_slack(int ns)
{
	int saved = errno, ret;

	ret = ns ? prctl(PR_SET_TIMERSLACK, (unsigned long)ns) : prctl(PR_GET_TIMERSLACK);
	ret = ret < 0 ? -errno : ret;
	errno = saved;
	return ret;
}

/*
 * sched_yield() of a SCHED_DEADLINE thread gives away what is left of its runtime in this period.
 * Who set the policy may have set RESET_ON_FORK with it (`rtxg run` and the module do, since a
 * program could not start a thread otherwise), and sched_getscheduler() returns both.
 */
bool rtx_lib_yield_costs_budget(void)
{
	int policy = sched_getscheduler(0);

	return policy >= 0 && (policy & ~SCHED_RESET_ON_FORK) == 6 /* SCHED_DEADLINE */;
}
