// SPDX-License-Identifier: MIT
/*
 * indexer.c - 15 threads put four messages each into a hash table of 128 places, by compare and
 * swap (Flanagan and Godefroid 2005).
 */
#include "time_threads.h"

#define THREADS	 15
#define SIZE	 128
#define MESSAGES 4

static int table[SIZE];

static void *run(void *number)
{
	int tid = *(int *)number;

	for (int m = 1; m <= MESSAGES; m++) {
		int w = m * 11 + tid, h = w * 7 % SIZE, free;

		for (;;) {
			free = 0;
			if (__atomic_compare_exchange_n(&table[h], &free, w, 0, __ATOMIC_SEQ_CST,
							__ATOMIC_SEQ_CST))
				break;
			h = (h + 1) % SIZE;
		}
	}
	return NULL;
}

int main(void)
{
	int numbers[THREADS];

	for (int t = 0; t < THREADS; t++)
		numbers[t] = t;
	time_threads(THREADS, (thread_function *[]){ run }, numbers);
	return 0;
}
