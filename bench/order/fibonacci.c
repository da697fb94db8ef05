// SPDX-License-Identifier: MIT
/*
 * fibonacci.c - two threads that compute Fibonacci numbers together, 25 times each: three accesses
 * to i and j in each round, so 75 for each thread. Unlucky switches make the numbers greater.
 */
#include "time_threads.h"

#define ROUNDS 25

static int i = 1, j = 1;

static void *add_j(void *unused)
{
	for (int round = 0; round < ROUNDS; round++)
		i += j;
	return unused;
}

static void *add_i(void *unused)
{
	for (int round = 0; round < ROUNDS; round++)
		j += i;
	return unused;
}

int main(void)
{
	time_threads(2, (thread_function *[]){ add_j, add_i }, NULL);
	printf("%d %d\n", i, j);
	return 0;
}
