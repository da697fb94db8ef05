// SPDX-License-Identifier: MIT
/*
 * rtxg_double.c - a stand-in for librtxg in the tests of the layers: the same calls, and a host
 * that cannot be depended on.
 *
 * RTXG_DOUBLE=grant   always grants; the engine is never called back
 *             random  grants and calls back at random moments (RTXG_DOUBLE_SEED, default 1), some
 *                     permits good for one launch
 *             late    as grant, but the first launch that does not wait gets no permit
 *             refuse  rtx_gpu_open fails: there is no host
 *             forbid  rtx_gpu_open fails: the host says no
 *             dies    grants, then after RTXG_DOUBLE_LAUNCHES (default 20) launches says -EPIPE for
 *                     ever
 *
 * It also keeps the books: rtxg_double_running(engine) says whether any launch is outstanding, so
 * that a native kernel can ask whether it runs under a permit; at exit a line on stderr
 * (RTXG_DOUBLE_REPORT=1) says launches, how many of them found nothing outstanding on their engine,
 * completions, revocations, waits for the GPU. It schedules nothing; it is for
 * tests only.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rtxg.h"
#include "rtxg_cpu.h"

#define ENGINES 3

struct rtx_gpu {
	pid_t pid;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct {
		atomic_bool granted; /* written under the lock, looked at without */
		atomic_bool oneshot;
		unsigned int in_flight;
		uint64_t waits;
		struct rtx_gpu_stats stats;
	} lane[ENGINES];
};

int rtxg_double_running(int engine);
unsigned long rtxg_double_revocations(void);

static atomic_int running[ENGINES];
static atomic_ulong revocations, launches, from_idle, completions, misuse, waits;
static atomic_bool was_late;
static __thread char error[128];

static const char *mode(void)
{
	const char *m = getenv("RTXG_DOUBLE");

	return m ? m : "grant";
}

int rtxg_double_running(int engine)
{
	return atomic_load(&running[engine]);
}

unsigned long rtxg_double_revocations(void)
{
	return atomic_load(&revocations);
}

__attribute__((destructor)) static void report(void)
{
	const char *r = getenv("RTXG_DOUBLE_REPORT");

	if (r && *r == '1')
		fprintf(stderr,
			"double: launches %lu from_idle %lu completions %lu revocations %lu "
			"misuse %lu outstanding %d waits %lu\n",
			atomic_load(&launches), atomic_load(&from_idle), atomic_load(&completions),
			atomic_load(&revocations), atomic_load(&misuse),
			atomic_load(&running[0]) + atomic_load(&running[1]) +
				atomic_load(&running[2]),
			atomic_load(&waits));
}

/*
 * A wait that ends without having begun, or is still under way when a thread begins another, is
 * misuse.
 */
int rtx_cpu_wait_for_gpu(bool on)
{
	static __thread bool waiting;

	atomic_fetch_add(&waits, on);
	atomic_fetch_add(&misuse, waiting == on);
	waiting = on;
	return 0;
}

/*
 * Gives and takes permits at random. A permit that is taken counts as released when nothing is in
 * flight.
 */
static void *moody(void *arg)
{
	rtx_gpu_t h = arg;
	const char *seed_text = getenv("RTXG_DOUBLE_SEED");
	unsigned int seed = seed_text ? (unsigned int)atoi(seed_text) : 1;

	for (;;) {
		usleep(50 + (useconds_t)(rand_r(&seed) % 1500));
		pthread_mutex_lock(&h->lock);
		for (int e = 0; e < ENGINES; e++) {
			unsigned int dice = (unsigned int)rand_r(&seed) % 4;

			if (h->lane[e].granted) {
				if (dice < 2) {
					h->lane[e].granted = false;
					atomic_fetch_add(&revocations, 1);
				}
			} else if (!h->lane[e].in_flight && dice) {
				/* As a real host: nothing new before the old is drained. */
				h->lane[e].granted = true;
				h->lane[e].oneshot = dice == 3;
			}
		}
		pthread_cond_broadcast(&h->changed);
		pthread_mutex_unlock(&h->lock);
	}
	return NULL;
}

int rtx_gpu_open(rtx_gpu_t *handle, const struct rtx_gpu_options *options)
{
	pthread_condattr_t attr;
	pthread_t thread;
	rtx_gpu_t h;

	if (!strcmp(mode(), "forbid")) {
		snprintf(error, sizeof(error), "the test double forbids device %s",
			 options ? options->device : "0");
		return -EACCES;
	}
	if (!strcmp(mode(), "refuse")) {
		snprintf(error, sizeof(error), "the test double refuses device %s",
			 options ? options->device : "0");
		return -ECONNREFUSED;
	}
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->pid = getpid();
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->changed, &attr);
	for (int e = 0; e < ENGINES; e++)
		h->lane[e].granted = strcmp(mode(), "random") != 0;
	if (!strcmp(mode(), "random") && pthread_create(&thread, NULL, moody, h))
		return -EAGAIN;
	*handle = h;
	return 0;
}

int rtx_gpu_launch_until(rtx_gpu_t h, enum rtx_engine e, uint64_t time_ns)
{
	const char *limit = getenv("RTXG_DOUBLE_LAUNCHES");
	int err = 0;

	if (h->pid != getpid())
		return -ECHILD;
	pthread_mutex_lock(&h->lock);
	if (!strcmp(mode(), "dies") &&
	    atomic_load(&launches) >= (limit ? strtoul(limit, NULL, 10) : 20)) {
		err = -EPIPE;
		h->lane[e].granted = false;
		goto out;
	}
	if (!strcmp(mode(), "late") && time_ns != UINT64_MAX && !atomic_exchange(&was_late, true)) {
		err = -ETIMEDOUT;
		goto out;
	}
	while (!h->lane[e].granted) {
		struct timespec t = { .tv_sec = (time_t)(time_ns / 1000000000ull),
				      .tv_nsec = (long)(time_ns % 1000000000ull) };

		if (!time_ns) {
			err = -EAGAIN;
			goto out;
		}
		if (time_ns == UINT64_MAX) {
			pthread_cond_wait(&h->changed, &h->lock);
		} else if (pthread_cond_timedwait(&h->changed, &h->lock, &t)) {
			err = -ETIMEDOUT;
			goto out;
		}
	}
	if (h->lane[e].in_flight >= 32) {
		err = -EAGAIN;
		goto out;
	}
	if (!h->lane[e].in_flight++)
		atomic_fetch_add(&from_idle, 1);
	if (h->lane[e].oneshot)
		h->lane[e].granted = h->lane[e].oneshot = false;
	h->lane[e].stats.launches++;
	atomic_fetch_add(&running[e], 1);
	atomic_fetch_add(&launches, 1);
out:
	pthread_mutex_unlock(&h->lock);
	return err;
}

int rtx_gpu_launch(rtx_gpu_t h, enum rtx_engine e)
{
	return rtx_gpu_launch_until(h, e, UINT64_MAX);
}

int rtx_gpu_complete(rtx_gpu_t h, enum rtx_engine e, uint64_t device_ns)
{
	int err = 0;

	if (h->pid != getpid())
		return -ECHILD;
	pthread_mutex_lock(&h->lock);
	if (!h->lane[e].in_flight) {
		atomic_fetch_add(&misuse, 1);
		err = -EPERM;
	} else {
		h->lane[e].in_flight--;
		h->lane[e].stats.device_ns += device_ns;
		atomic_fetch_sub(&running[e], 1);
		atomic_fetch_add(&completions, 1);
	}
	pthread_mutex_unlock(&h->lock);
	return err;
}

int rtx_gpu_account(rtx_gpu_t h, enum rtx_engine e, uint64_t device_ns)
{
	pthread_mutex_lock(&h->lock);
	h->lane[e].stats.device_ns += device_ns;
	pthread_mutex_unlock(&h->lock);
	return 0;
}

bool rtx_gpu_revoked(rtx_gpu_t h, enum rtx_engine e)
{
	return !atomic_load(&h->lane[e].granted);
}

int rtx_gpu_ungated(rtx_gpu_t h)
{
	(void)h;
	fprintf(stderr, "ungated\n");
	return 0;
}

bool rtx_gpu_awaited(rtx_gpu_t h, enum rtx_engine e)
{
	return rtx_gpu_revoked(h, e) || atomic_load(&h->lane[e].oneshot);
}

int rtx_gpu_wait_revoked(rtx_gpu_t h, enum rtx_engine e, uint64_t time_ns)
{
	int err = 0;

	pthread_mutex_lock(&h->lock);
	while (h->lane[e].granted && !err) {
		struct timespec t = { .tv_sec = (time_t)(time_ns / 1000000000ull),
				      .tv_nsec = (long)(time_ns % 1000000000ull) };

		if (time_ns == UINT64_MAX)
			pthread_cond_wait(&h->changed, &h->lock);
		else if (pthread_cond_timedwait(&h->changed, &h->lock, &t))
			err = -ETIMEDOUT;
	}
	pthread_mutex_unlock(&h->lock);
	return err;
}

int rtx_gpu_close(rtx_gpu_t h)
{
	(void)h;
	return 0;
}

int rtx_gpu_stats(rtx_gpu_t h, enum rtx_engine e, struct rtx_gpu_stats *stats)
{
	pthread_mutex_lock(&h->lock);
	*stats = h->lane[e].stats;
	pthread_mutex_unlock(&h->lock);
	return 0;
}

bool rtx_gpu_managed(rtx_gpu_t h)
{
	return h != NULL;
}

const char *rtx_strerror(void)
{
	return error;
}
