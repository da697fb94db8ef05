// SPDX-License-Identifier: MIT
/*
 * probe.c - the measuring threads. The loop is cyclictest's: an absolute sleep, one reading of the
 * clock, a counter. May not: allocate, print or make a system call between two sleeps. (What is
 * called after a wake-up later than any before may tell the main thread through an eventfd.)
 */
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rtxg_clock.h>

#include "probe.h"

#define SIGNAL_STOP SIGUSR2
#define STACK_BYTES 65536

static atomic_bool probe_stopped;
static uint64_t probe_begin_ns; /* of the first sleep of all */
static int probe_fd = -1;
static sem_t probe_ready, probe_go;

static struct timespec spec_of(uint64_t ns)
{
	return (struct timespec){ (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
}

static void nothing(int number)
{
	(void)number;
}

static void measure(struct probe *p)
{
	uint64_t lost, next = probe_begin_ns + p->interval_ns;

	/* a thread that starts late has not slept, and nothing woke it late */
	next = probe_next(next, rtxg_now_ns(), p->interval_ns, &lost);
	while (!atomic_load_explicit(&probe_stopped, memory_order_relaxed)) {
		struct timespec t = spec_of(next);
		uint64_t now, late, expected = next;

		if (p->expected)
			__atomic_store_n(p->expected, next, __ATOMIC_RELAXED);
		if (p->begins)
			__atomic_store_n(p->begins, next, __ATOMIC_RELAXED);
		if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
			continue; /* interrupted: looks whether it is to stop */
		now = rtxg_now_ns();
		if (p->work) {
			expected = now;
			p->failed = -p->work(p, &expected, &now);
			if (p->failed) {
				atomic_store(&probe_stopped, true);
				return;
			}
		} else if (p->woken) {
			p->woken(p, expected, now);
		}
		late = now > expected ? now - expected : 0;
		if (late > __atomic_load_n(&p->recent_ns, __ATOMIC_RELAXED)) {
			__atomic_store_n(&p->recent_ns, late, __ATOMIC_RELAXED);
			if (p->late && (!p->break_ns || late > p->break_ns))
				p->late(p, &(struct probe_worst){ expected, now });
		}
		histogram_add(&p->observed, late);
		histogram_add_expected(&p->corrected, late, p->interval_ns);
		p->last_ns = late;
		if (p->break_ns && late > p->break_ns) {
			p->broke = true;
			atomic_store(&probe_stopped, true);
		}
		if (p->loops && p->observed.total >= p->loops)
			return;
		next = probe_next(next + p->interval_ns, rtxg_now_ns(), p->interval_ns, &lost);
		p->missed += lost;
	}
}

const char *probe_name(const struct probe *p, char *name, size_t size)
{
	snprintf(name, size, "rtxg-late/%d", p->number);
	return name;
}

static void *run(void *argument)
{
	struct probe *p = argument;
	struct sched_param param = { .sched_priority = p->priority };
	char name[16];
	uint64_t one = 1;
	cpu_set_t cpus;

	prctl(PR_SET_NAME, probe_name(p, name, sizeof(name)));
	p->tid = (int)syscall(SYS_gettid);
	/* a timer of a thread without a real-time policy may else be 50 us late on purpose */
	prctl(PR_SET_TIMERSLACK, 1);
	if (p->cpu >= 0) {
		CPU_ZERO(&cpus);
		CPU_SET(p->cpu, &cpus);
		sched_setaffinity(0, sizeof(cpus), &cpus);
	}
	if (p->policy != SCHED_OTHER && sched_setscheduler(0, p->policy, &param))
		p->refused = errno;
	sem_post(&probe_ready);
	while (sem_wait(&probe_go) && errno == EINTR)
		;
	measure(p);
	p->ended = true;
	if (write(probe_fd, &one, sizeof(one)) < 0)
		return NULL; /* the counter is full: it is readable */
	return NULL;
}

int probe_end_fd(void)
{
	if (probe_fd < 0)
		probe_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return probe_fd;
}

int probe_start(struct probe *probes, int count, void (*ready)(struct probe *probes, int count))
{
	struct sigaction action = { .sa_handler = nothing };
	pthread_attr_t small;
	sigset_t all, before;
	int started, ret = 0;

	if (probe_end_fd() < 0 || sem_init(&probe_ready, 0, 0) || sem_init(&probe_go, 0, 0))
		return -errno;
	sigaction(SIGNAL_STOP, &action, NULL);
	sigfillset(&all);
	sigdelset(&all, SIGNAL_STOP);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* 8 MB for each thread would pass an ordinary user's limit of locked memory */
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK_BYTES);
	for (started = 0; started < count; started++) {
		ret = -pthread_create(&probes[started].thread, &small, run, &probes[started]);
		if (ret)
			break;
	}
	pthread_attr_destroy(&small);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	for (int i = 0; i < started; i++)
		while (sem_wait(&probe_ready) && errno == EINTR)
			;
	if (ret)
		atomic_store(&probe_stopped, true);
	else if (ready)
		ready(probes, count);
	probe_begin_ns = rtxg_now_ns() + 1000000;
	for (int i = 0; i < started; i++)
		sem_post(&probe_go);
	if (ret)
		for (int i = 0; i < started; i++)
			pthread_join(probes[i].thread, NULL);
	return ret;
}

void probe_stop(struct probe *probes, int count)
{
	atomic_store(&probe_stopped, true);
	for (int i = 0; i < count; i++) {
		/* again, as the signal may come just before the sleep */
		while (!*(volatile bool *)&probes[i].ended) {
			struct timespec t = { .tv_nsec = 5000000 };

			pthread_kill(probes[i].thread, SIGNAL_STOP);
			nanosleep(&t, NULL);
		}
		pthread_join(probes[i].thread, NULL);
	}
}
