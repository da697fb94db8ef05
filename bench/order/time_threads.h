/* SPDX-License-Identifier: MIT */
/*
 * time_threads.h - starts a program's threads, waits for them, and prints how long both took. The
 * programs of this folder know nothing of rtxg.
 */
#ifndef BENCH_ORDER_TIME_THREADS_H
#define BENCH_ORDER_TIME_THREADS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void *thread_function(void *argument);

#define THREADS_MOST 64

static inline long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* Thread t runs functions[t], or functions[0] with its number if there is a number for each. */
static inline void time_threads(int count, thread_function *const *functions, int *numbers)
{
	pthread_t threads[THREADS_MOST];
	long long start = now_ns();

	for (int t = 0; t < count; t++)
		if (pthread_create(&threads[t], NULL, functions[numbers ? 0 : t],
				   numbers ? &numbers[t] : NULL)) {
			perror("pthread_create");
			exit(1);
		}
	for (int t = 0; t < count; t++)
		pthread_join(threads[t], NULL);
	fprintf(stderr, "threads took %lld ns\n", now_ns() - start);
}

#endif
