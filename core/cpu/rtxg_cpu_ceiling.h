/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_cpu_ceiling.h - to which priority a kernel thread is raised by a host that cannot see for
 * which task it works just then, and when it is set back. It is a ceiling: the highest priority of
 * all that may wait for its work, for as long as there is one of them.
 *
 * A host that sees the owner asks rtxg_cpu_serve.h instead. What a task's priority gives to a
 * thread that works for it is one rule in both: rtxg_serve_priority().
 */
#ifndef RTXG_CPU_CEILING_H
#define RTXG_CPU_CEILING_H

#include "rtxg_cpu_serve.h"

enum rtxg_ceiling_policy {
	RTXG_CEILING_OTHER, /* another policy than those below: such a thread is left alone */
	RTXG_CEILING_ORDINARY,
	RTXG_CEILING_FIFO,
	RTXG_CEILING_RR,
	RTXG_CEILING_POLICIES,
};

struct rtxg_ceiling_setting {
	uint32_t policy;   /* enum rtxg_ceiling_policy */
	uint32_t priority; /* FIFO, RR: 1..99, 99 is the highest; else 0 */
};

/* Zero: nothing is known of it yet. Between calls only rtxg_ceiling_look() and _set() change it. */
struct rtxg_ceiling_thread {
	struct rtxg_ceiling_setting own;    /* without us */
	struct rtxg_ceiling_setting raised; /* its priority 0: it is not raised */
};

/*
 * The ceiling `so_far`, with one more task for which the thread may work; 0: there is none. `prio`
 * as Linux counts (see struct rtxg_serve_owner). An ordinary task has no part in it.
 */
uint32_t rtxg_ceiling_with(uint32_t so_far, int32_t prio);
/* The higher of two, at most RTXG_SERVE_MAX. */
uint32_t rtxg_ceiling_join(uint32_t a, uint32_t b);
/*
 * What the thread, which is `now` as the host found it, is to be set to; false: it stays as it is.
 * Where another has set it while it was raised, that is its own from then on, and it is not raised.
 */
bool rtxg_ceiling_look(struct rtxg_ceiling_thread *thread, uint32_t ceiling,
		       const struct rtxg_ceiling_setting *now, struct rtxg_ceiling_setting *wanted);
/*
 * What the host notes before it sets the thread so, for rtxg_ceiling_left(): the highest priority
 * that it may then be found at. Afterwards the thread's own `raised` is what is to be noted.
 */
uint32_t rtxg_ceiling_noted(const struct rtxg_ceiling_thread *thread,
			    const struct rtxg_ceiling_setting *wanted);
/* The host has set it so. Where it could not, it says nothing, and is asked for it again. */
void rtxg_ceiling_set(struct rtxg_ceiling_thread *thread,
		      const struct rtxg_ceiling_setting *setting);
/*
 * Whether a thread that a killed host left behind is to be set back to its `own` priority (0:
 * ordinary). The host noted `raised` before it acted, so the thread may be below that. What another
 * has set, to more than that or to less than its own, stays.
 */
bool rtxg_ceiling_left(uint32_t own, uint32_t raised, const struct rtxg_ceiling_setting *now);

#endif
