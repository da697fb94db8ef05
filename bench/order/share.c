// SPDX-License-Identifier: MIT
/*
 * share.c - four threads that count in one array, 1000 times each: two accesses a time. For sweeps
 * over the share of accesses that an order restricts.
 */
#include "time_threads.h"

#define THREADS 4
#define ROUNDS	1000

static int counts[THREADS];

static void *count(void *number)
{
	int *mine = &counts[*(int *)number];

	for (int round = 0; round < ROUNDS; round++)
		*mine = *mine + 1;
	return NULL;
}

int main(void)
{
	int numbers[THREADS];

	for (int t = 0; t < THREADS; t++)
		numbers[t] = t;
	time_threads(THREADS, (thread_function *[]){ count }, numbers);
	return 0;
}
