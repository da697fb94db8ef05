/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_cpu_budget.h - CPU time that a task may use in each period, and what is left of it.
 *
 * The host tells what ran and when a period ended; it arms its timers by the answers. What is left
 * at the end of a period is not carried over, what was used beyond is.
 */
#ifndef RTXG_CPU_BUDGET_H
#define RTXG_CPU_BUDGET_H

#include "rtxg_core.h"

struct rtxg_budget {
	uint64_t runtime_ns; /* of each period */
	int64_t left_ns;     /* negative: used beyond, to be charged */
	bool enforced;	     /* else nothing is charged, and it is never used up */
	bool exhausted;	     /* used up, and not replenished yet */
};

/* Begins with a whole period's budget, or ends with enforced = false. */
void rtxg_budget_start(struct rtxg_budget *budget, uint64_t runtime_ns, bool enforced);
/* So much was used, by all threads together. */
void rtxg_budget_charge(struct rtxg_budget *budget, uint64_t used_ns);
/* After how long it will be used up if so many threads run; UINT64_MAX: never, or it is already. */
uint64_t rtxg_budget_lasts(const struct rtxg_budget *budget, uint32_t threads);
/* The time that lasts() said has passed: true if it is used up from now on. */
bool rtxg_budget_spent(struct rtxg_budget *budget);
/* So many periods have ended: true if it was used up and is not any more. */
bool rtxg_budget_replenish(struct rtxg_budget *budget, uint64_t periods);

/* What becomes of a task whose budget is used up, and what of its time is charged. */
struct rtxg_budget_use {
	bool exhausted; /* as of struct rtxg_budget */
	bool hard;	/* it stops then; else it goes on in the background */
	bool lent;	/* kernel threads that work for a task with a time of its own */
};

enum rtxg_budget_state {
	RTXG_BUDGET_RUNS, /* as its policy says */
	RTXG_BUDGET_BACKGROUND,
	RTXG_BUDGET_STOPS,
};

uint32_t rtxg_budget_state(const struct rtxg_budget_use *use);
/* Whether the time for which it runs now is charged. */
bool rtxg_budget_counts(const struct rtxg_budget_use *use);

/* The floor of rtxg_budget_after_sleep(), where the machine's administrator names none. */
#define RTXG_BUDGET_FLOOR_US 1000

/*
 * What is left of the kernel's SCHED_DEADLINE runtime after a task slept for its GPU (Linux-RTXG,
 * section III.D): the time asleep is charged, down to a floor, and nothing is ever added.
 */
int64_t rtxg_budget_after_sleep(int64_t left_ns, uint64_t slept_ns, uint64_t floor_ns);

#endif
