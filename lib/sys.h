/* SPDX-License-Identifier: MIT */
/*
 * sys.h - the futex, how a thread is scheduled, units of time, and the two orders in which a shared
 * word is read and written. Not installed.
 */
#ifndef RTX_LIB_SYS_H
#define RTX_LIB_SYS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "rtxg_clock.h"

#define NS_PER_S  1000000000ull
#define NS_PER_MS 1000000ull
#define NEVER	  UINT64_MAX

#define load(p)		    __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define load_relaxed(p)	    __atomic_load_n((p), __ATOMIC_RELAXED)
#define store(p, v)	    __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)

/* Waits while *word is value, until an absolute time: 0, -EINTR, -ETIMEDOUT. */
int rtx_lib_futex_wait(volatile uint32_t *word, uint32_t value, uint64_t until, bool shared);
void rtx_lib_futex_wake(volatile uint32_t *word, bool shared);

/* Between two looks at a word that another processor writes. */
static inline void rtx_lib_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/*
 * By how much the timers of this thread may end later, to be put together with others', ns: 0 asks,
 * else sets it. 1 is exact; real-time threads have no such time. The time, 0 where it was set, or a
 * negative errno.
 */
int rtx_lib_timer_slack(int ns);

static inline int rtx_lib_cancel_later(void)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void rtx_lib_cancel_as_before(const int *before)
{
	pthread_setcancelstate(*before, NULL);
}

/*
 * Until its block ends no other thread's pthread_cancel() ends this one: it has a lock that others
 * need, or is in the middle of what must be whole.
 */
#define not_cancelled()                                                                      \
	const int cancel_before __attribute__((cleanup(rtx_lib_cancel_as_before), unused)) = \
		rtx_lib_cancel_later()

/* Would sched_yield() of this thread give the rest of its budget away (SCHED_DEADLINE)? */
bool rtx_lib_yield_costs_budget(void);

#endif
