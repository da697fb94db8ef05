// SPDX-License-Identifier: MIT
/*
 * last_zero.c - 15 threads each make one element of an array greater than the one before it, and
 * another looks for the last zero from the end (Abdulla, Aronsson, Jonsson and Sagonas 2014).
 */
#include "time_threads.h"

#define N 15

static int array[N + 1];

static void *look(void)
{
	int i = N;

	while (array[i] != 0)
		i--;
	return NULL;
}

static void *make(int j)
{
	array[j] = array[j - 1] + 1;
	return NULL;
}

static void *run(void *number)
{
	int j = *(int *)number;

	return j ? make(j) : look();
}

int main(void)
{
	int numbers[N + 1];

	for (int t = 0; t <= N; t++)
		numbers[t] = t;
	time_threads(N + 1, (thread_function *[]){ run }, numbers);
	return 0;
}
