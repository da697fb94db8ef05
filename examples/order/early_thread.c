// SPDX-License-Identifier: MIT
/*
 * early_thread.c - a bug of the kind of Mozilla's 61369: a thread is started, and its handle is
 * stored when it has run already. The thread reads the handle and takes it for set. An order
 * violation, after the study of Lu, Park, Seo and Zhou (2008). Exits with 1 when it strikes.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct handle {
	int state;
};

static struct handle *handle;
static int seen = -1;

static void *work(void *unused)
{
	struct handle *mine = handle;

	seen = mine ? mine->state : -1;
	return unused;
}

int main(void)
{
	struct handle *made = calloc(1, sizeof(*made));
	pthread_t thread;

	made->state = 7;
	pthread_create(&thread, NULL, work, NULL);
	handle = made;
	pthread_join(thread, NULL);
	printf("state %d\n", seen);
	free(made);
	return seen == 7 ? 0 : 1;
}
