// SPDX-License-Identifier: MIT
/*
 * philosophers.c - 16 philosophers who wait until one of their two chopsticks is free, take both
 * and lay them down again: those with even numbers take the right one first, those with odd numbers
 * the left one (after Silberschatz). Nothing but the order of their accesses keeps them apart.
 */
#include "time_threads.h"

#define SIZE   16
#define ROUNDS 2

static int chopsticks[SIZE];

static void *run(void *number)
{
	int id = *(int *)number, right = id % SIZE, left = (id + SIZE - 1) % SIZE;

	for (int round = 0; round < ROUNDS; round++) {
		while (__atomic_load_n(&chopsticks[right], __ATOMIC_RELAXED) != 0 &&
		       __atomic_load_n(&chopsticks[left], __ATOMIC_RELAXED) != 0)
			;
		chopsticks[id % 2 ? left : right] = 1;
		chopsticks[id % 2 ? right : left] = 1;
		chopsticks[right] = 0;
		chopsticks[left] = 0;
	}
	return NULL;
}

int main(void)
{
	int numbers[SIZE];

	for (int t = 0; t < SIZE; t++)
		numbers[t] = t;
	time_threads(SIZE, (thread_function *[]){ run }, numbers);
	return 0;
}
