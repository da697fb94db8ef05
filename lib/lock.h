/* SPDX-License-Identifier: MIT */
/*
 * lock.h - a lock with priority inheritance whose uncontended way is two instructions in place:
 * pthread's mutex of that kind takes two hundred, twice for each launch. Not installed.
 */
#ifndef RTX_LIB_LOCK_H
#define RTX_LIB_LOCK_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: free. Else the kernel's format: the owner's thread number, and whether others wait. */
struct rtx_lib_lock {
	uint32_t word;
};

/* The thread's number, and the process's generation (process.c) of when it was asked for. */
struct rtx_lib_thread {
	uint32_t tid, generation;
};

extern __thread __attribute__((tls_model("initial-exec"))) struct rtx_lib_thread rtx_lib_thread;

void rtx_lib_thread_ask(uint32_t generation);
void rtx_lib_lock_wait(struct rtx_lib_lock *lock);
void rtx_lib_unlock_wake(struct rtx_lib_lock *lock);

/* generation: that of the lock's handle, which is not 0 and is no other process's. */
static inline void rtx_lib_lock(struct rtx_lib_lock *lock, uint32_t generation)
{
	uint32_t none = 0;

	if (__builtin_expect(rtx_lib_thread.generation != generation, false))
		rtx_lib_thread_ask(generation);
	if (__builtin_expect(!__atomic_compare_exchange_n(&lock->word, &none, rtx_lib_thread.tid,
							  false, __ATOMIC_ACQUIRE,
							  __ATOMIC_RELAXED),
			     false))
		rtx_lib_lock_wait(lock);
}

static inline void rtx_lib_unlock(struct rtx_lib_lock *lock)
{
	uint32_t mine = rtx_lib_thread.tid;

	if (__builtin_expect(!__atomic_compare_exchange_n(&lock->word, &mine, 0, false,
							  __ATOMIC_RELEASE, __ATOMIC_RELAXED),
			     false))
		rtx_lib_unlock_wake(lock);
}

#endif
