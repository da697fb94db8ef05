/* SPDX-License-Identifier: MIT */
/*
 * mutex.h - a mutex whose holder inherits the priority of who waits for it: a thread of a low
 * priority that is preempted in it would hold up a real-time one. Not installed.
 */
#ifndef RTX_LIB_MUTEX_H
#define RTX_LIB_MUTEX_H

#include <pthread.h>

static inline void rtx_lib_mutex_init(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t inherit;

	pthread_mutexattr_init(&inherit);
	pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(mutex, &inherit);
	pthread_mutexattr_destroy(&inherit);
}

#endif
