/* SPDX-License-Identifier: MIT */
/*
 * probe.h - threads that sleep until a point in time and measure how late they run.
 */
#ifndef RTXG_LATENCY_PROBE_H
#define RTXG_LATENCY_PROBE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "histogram.h"

/* What a thread tells of a late wake-up. */
struct probe_worst {
	uint64_t expected_ns; /* when its timer was due */
	uint64_t ran_ns;      /* when it read the clock */
};

struct probe {
	/* set before the start */
	int number;
	int cpu;    /* the only CPU that it may run on; -1: any */
	int policy; /* SCHED_* */
	int priority;
	uint64_t interval_ns;
	uint64_t loops;	   /* ends after so many; 0: goes on */
	uint64_t break_ns; /* stops all threads above it; 0: never */
	/*
	 * Called by the thread after a wake-up that was later than recent_ns, or than break_ns if
	 * that is set. May not sleep.
	 */
	void (*late)(struct probe *p, const struct probe_worst *worst);
	/* Called by the thread after each wake-up; NULL: not. May not sleep. */
	void (*woken)(struct probe *p, uint64_t expected_ns, uint64_t ran_ns);
	void *context;
	unsigned long long *expected; /* has the time that the thread waits for; NULL: none */
	unsigned long long *begins;   /* as expected */
	/*
	 * Work that the thread does after each wake-up; NULL: none. Its time is measured then, from
	 * *begin_ns (which it may set later) to *done_ns, and not that of the wake-up. A negative
	 * errno ends all threads.
	 */
	int (*work)(struct probe *p, uint64_t *begin_ns, uint64_t *done_ns);
	void *work_context;
	/* results; others may read them while the thread runs, one word at a time */
	struct histogram observed;
	struct histogram corrected; /* with the cycles that were lost */
	uint64_t recent_ns;	    /* the latest wake-up since the reader stored 0 here */
	uint64_t last_ns;	    /* the latest latency */
	uint64_t missed;	    /* cycles that could not begin, as the one before was late */
	int tid;
	int refused; /* errno of the policy that it could not have; 0 */
	bool ended;
	int failed; /* errno of the work that ended it; 0 */
	bool broke; /* its last latency was above break_ns */
	pthread_t thread;
};

/*
 * Starts them; they begin together, after `ready` (may be NULL) has seen their thread IDs. Returns
 * 0, or a negative errno after ending those that were started. A policy that is refused is kept in
 * `refused`, and the thread runs under SCHED_OTHER.
 */
int probe_start(struct probe *probes, int count, void (*ready)(struct probe *probes, int count));
/* What its thread is called; returns `name`. */
const char *probe_name(const struct probe *p, char *name, size_t size);
/* Ends those that still run, and waits for them. */
void probe_stop(struct probe *probes, int count);
/* A file descriptor that is readable once a thread has ended by itself. */
int probe_end_fd(void);

/*
 * The first time, from `next` on in steps of the interval, that is still to come; how many were
 * lost.
 */
static inline uint64_t probe_next(uint64_t next, uint64_t now, uint64_t interval_ns, uint64_t *lost)
{
	*lost = next < now ? (now - next) / interval_ns + 1 : 0;
	return next + *lost * interval_ns;
}

#endif
