// SPDX-License-Identifier: MIT
/*
 * metrics_ask.c - a thread that asks the host for its counters, so that one that hangs holds up
 * no other work: librtxg waits for as long as the host may be busy. May not know who wants them.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "metrics.h"
#include "metrics_ask.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wanted;
	int fd;
	uint64_t asked, begun; /* questions: the last one, and up to which one the host was asked */
	bool answered;
	json_t *reply;
	uint64_t upto;
} metrics_host = { .lock = PTHREAD_MUTEX_INITIALIZER, .wanted = PTHREAD_COND_INITIALIZER };

static void *ask(void *unused)
{
	pthread_mutex_lock(&metrics_host.lock);
	for (;;) {
		uint64_t upto;
		json_t *reply;

		while (metrics_host.begun == metrics_host.asked)
			pthread_cond_wait(&metrics_host.wanted, &metrics_host.lock);
		upto = metrics_host.begun = metrics_host.asked;
		pthread_mutex_unlock(&metrics_host.lock);
		reply = metrics_reply(NULL);
		pthread_mutex_lock(&metrics_host.lock);
		json_decref(metrics_host.reply);
		metrics_host.reply = reply;
		metrics_host.upto = upto;
		metrics_host.answered = true;
		eventfd_write(metrics_host.fd, 1);
	}
	return NULL;
}

int metrics_ask_start(void)
{
	pthread_t thread;
	int error;

	metrics_host.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (metrics_host.fd < 0)
		return -errno;
	error = pthread_create(&thread, NULL, ask, NULL);
	if (!error)
		pthread_detach(thread);
	return -error;
}

int metrics_ask_fd(void)
{
	return metrics_host.fd;
}

uint64_t metrics_ask(void)
{
	uint64_t number;

	pthread_mutex_lock(&metrics_host.lock);
	/* Nothing of an answer that is under way may be older than the question. */
	if (metrics_host.asked == metrics_host.begun) {
		metrics_host.asked++;
		pthread_cond_signal(&metrics_host.wanted);
	}
	number = metrics_host.asked;
	pthread_mutex_unlock(&metrics_host.lock);
	return number;
}

bool metrics_answer(json_t **reply, uint64_t *upto)
{
	eventfd_t count;
	bool answered;

	eventfd_read(metrics_host.fd, &count);
	pthread_mutex_lock(&metrics_host.lock);
	answered = metrics_host.answered;
	*reply = metrics_host.reply;
	*upto = metrics_host.upto;
	metrics_host.reply = NULL;
	metrics_host.answered = false;
	pthread_mutex_unlock(&metrics_host.lock);
	return answered;
}
