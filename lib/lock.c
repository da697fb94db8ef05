// SPDX-License-Identifier: MIT
/*
 * lock.c - the contended way of the lock: the kernel lends the owner the priority of those who
 * wait, and hands the lock to the first of them. May not know what is locked.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lock.h"

__thread __attribute__((tls_model("initial-exec"))) struct rtx_lib_thread rtx_lib_thread;

/* A forked child's thread has another number than the one that it remembers. */
void rtx_lib_thread_ask(uint32_t generation)
{
	rtx_lib_thread.tid = (uint32_t)syscall(SYS_gettid);
	rtx_lib_thread.generation = generation;
}

void rtx_lib_lock_wait(struct rtx_lib_lock *lock)
{
	int saved = errno;
	uint32_t none = 0;

	while (syscall(SYS_futex, &lock->word, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0)) {
		/* A kernel without priority inheritance: then there is none. */
		if (errno != EINTR && errno != EAGAIN)
			sched_yield();
		if (errno == ENOSYS &&
		    __atomic_compare_exchange_n(&lock->word, &none, rtx_lib_thread.tid, false,
						__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			break;
		none = 0;
	}
	/* What the last owner wrote is seen from here. */
	__atomic_load_n(&lock->word, __ATOMIC_ACQUIRE);
	errno = saved;
}

void rtx_lib_unlock_wake(struct rtx_lib_lock *lock)
{
	int saved = errno;

	__atomic_fetch_or(&lock->word, 0, __ATOMIC_RELEASE);
	while (syscall(SYS_futex, &lock->word, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0) &&
	       (errno == EINTR || errno == EAGAIN))
		;
	errno = saved;
}
