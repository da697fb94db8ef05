/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_cpu_inherit.h - at which CPU priority a thread runs that holds a GPU of a pool: at no less
 * than the threads that it keeps waiting. A GPU priority is not passed on: it says nothing about a
 * right to a CPU.
 *
 * Only a thread under SCHED_FIFO or SCHED_RR is raised: a thread that is not real-time was not
 * trusted with a CPU, and does not become so by holding a GPU. SCHED_DEADLINE comes before all that
 * can be inherited.
 *
 * The kernel lets any thread set a priority up to the one that it has now. While a thread is
 * raised, a priority above its own is therefore no wish to keep, and what it forks begins as an
 * ordinary thread.
 *
 * The host says which thread waits for which: rtxg_core_pool_holder(). One thread may keep several
 * waiting: it inherits the highest that any of them passes on, by rtxg_ceiling_join().
 */
#ifndef RTXG_CPU_INHERIT_H
#define RTXG_CPU_INHERIT_H

#include "rtxg_cpu_ceiling.h"

enum rtxg_inherit_policy {
	RTXG_INHERIT_ORDINARY, /* none of the following */
	RTXG_INHERIT_FIXED,    /* SCHED_FIFO, SCHED_RR */
	RTXG_INHERIT_DEADLINE, /* SCHED_DEADLINE */
	RTXG_INHERIT_POLICIES,
};

struct rtxg_inherit_setting {
	uint32_t policy;   /* enum rtxg_inherit_policy. The host never changes it */
	uint32_t priority; /* FIXED: 1..99, 99 is the highest; else 0 */
	bool reset;	   /* what the thread forks begins as an ordinary thread */
	/* A CPU policy of ours says its priority: it passes that on, and is not raised. */
	bool governed;
};

/* Zero: it is not raised. Between calls only rtxg_inherit_look() and _set() change it. */
struct rtxg_inherit_thread {
	uint32_t own;	 /* its priority without us */
	uint32_t raised; /* what it was raised to; 0: it is not raised */
	bool reset;	 /* without us */
};

/*
 * What the thread, which is `now` as the host found it, passes on to the holder of what it waits
 * for: the priority that it has without us, at most RTXG_SERVE_MAX; 0: nothing.
 */
uint32_t rtxg_inherit_passes(const struct rtxg_inherit_thread *thread,
			     const struct rtxg_inherit_setting *now);
/* What it is without us. */
struct rtxg_inherit_setting rtxg_inherit_own(const struct rtxg_inherit_thread *thread,
					     const struct rtxg_inherit_setting *now);
/*
 * What the thread is to be set to, which inherits that priority; 0: it inherits nothing. False: it
 * stays as it is, and that is known of it then.
 */
bool rtxg_inherit_look(struct rtxg_inherit_thread *thread, uint32_t inherits,
		       const struct rtxg_inherit_setting *now, struct rtxg_inherit_setting *wanted);
/* The host has set it so. Where it could not, it says nothing, and is asked for it again. */
void rtxg_inherit_set(struct rtxg_inherit_thread *thread,
		      const struct rtxg_inherit_setting *setting);
/*
 * Whether a thread that a killed host left behind is to be set back, and to what. The host noted
 * `thread` before it acted, so the thread may not have been raised at all.
 */
bool rtxg_inherit_left(const struct rtxg_inherit_thread *thread,
		       const struct rtxg_inherit_setting *now, struct rtxg_inherit_setting *wanted);
/*
 * The thread is not there any more under its number. Where threads have numbers, one that executes
 * a program goes on under that of its process's first thread, as it is, and the first thread ends.
 * Whether the one that has that number, and is `now`, is to be set back, and to what. `first`: the
 * priority that the first thread had at the last look, before the other one was gone; 0: none.
 *
 * No thread without a right loses the flag while it is raised. One that has no flag, a priority
 * above what was inherited, or no more than the first thread had, is taken for the first thread.
 */
bool rtxg_inherit_executed(const struct rtxg_inherit_thread *thread, uint32_t first,
			   const struct rtxg_inherit_setting *now,
			   struct rtxg_inherit_setting *wanted);

#endif
