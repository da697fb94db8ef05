/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_cpu_serve.h - at which priority, and where, a kernel thread runs that works for others: the
 * thread of an interrupt, for the tasks whose work on the device has ended (klmirqd: Elliott and
 * Anderson 2012, section III).
 */
#ifndef RTXG_CPU_SERVE_H
#define RTXG_CPU_SERVE_H

#include "rtxg_core.h"

/* The highest priority that anything is given: a task, a thread that works for one, a holder. */
#define RTXG_SERVE_MAX 97u
/*
 * Of the hosts' own threads that give priorities and take them back: nothing that they have raised
 * keeps them waiting. 99 is the kernel's own.
 */
#define RTXG_SERVE_HOST (RTXG_SERVE_MAX + 1u)
/* Of an owner that is not real-time: below all that are, and before all that are not. */
#define RTXG_SERVE_ORDINARY 1u

enum rtxg_serve_mode {
	RTXG_SERVE_KEPT,  /* as the kernel made it: FIFO 50, whatever it works for */
	RTXG_SERVE_FIXED, /* one priority, as with PREEMPT_RT */
	RTXG_SERVE_OWNER, /* its owner's effective priority */
	/*
	 * the same; what can run without a thread does, if the owner comes before the interrupted
	 * task
	 */
	RTXG_SERVE_PAI,
	RTXG_SERVE_MODES,
};

struct rtxg_serve_rule {
	uint32_t mode; /* enum rtxg_serve_mode */
	/* FIXED: its priority; OWNER, PAI: while it has no owner. 1..RTXG_SERVE_MAX */
	uint32_t priority;
	/* OWNER, PAI: it may run while its owner does, on another CPU (asynchronous work) */
	bool beside;
	/*
	 * OWNER, PAI: without an owner it runs in a bandwidth server, so long in each period; 0: as
	 * long as it likes
	 */
	uint64_t runtime_ns, period_ns;
};

/*
 * A task for which it works. The first is the one whose work is on the device; others wait for it.
 */
struct rtxg_serve_owner {
	/*
	 * effective, inherited ones included, as Linux counts: -1 DEADLINE, 0..99 real-time (0 is
	 * the highest), from 100 on ordinary
	 */
	int32_t prio;
	int32_t cpu; /* the only one that it may run on; -1: there are several */
};

struct rtxg_serve {
	bool kept;	   /* nothing is to be changed, or all to be put back */
	bool server;	   /* its time is charged to the rule's server */
	uint32_t priority; /* SCHED_FIFO, 1..RTXG_SERVE_MAX */
	int32_t cpu;	   /* -1: where it likes */
};

/* 0, or -EINVAL for a rule that is none. */
int rtxg_serve_check(const struct rtxg_serve_rule *rule);
/*
 * The highest of its owners. On the CPU of the first one, if that one has but one: at one priority
 * on one CPU the two never run at a time, as the single-threaded task model assumes.
 */
struct rtxg_serve rtxg_serve(const struct rtxg_serve_rule *rule,
			     const struct rtxg_serve_owner *owners, uint32_t count);
/*
 * Whether its next piece of work runs at once, in the place of the task that runs here, instead of
 * in the thread. Both priorities as Linux counts.
 */
bool rtxg_serve_at_once(const struct rtxg_serve_rule *rule, int32_t owner, int32_t running);
/* The priority that works for an owner; RTXG_SERVE_MAX for a DEADLINE one. */
uint32_t rtxg_serve_priority(int32_t prio);

#endif
