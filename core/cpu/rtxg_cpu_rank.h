/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_cpu_rank.h - as what a task of a CPU policy runs now, and which priority it has: rate
 * monotonic and earliest deadline first, within the band of priorities that both share.
 */
#ifndef RTXG_CPU_RANK_H
#define RTXG_CPU_RANK_H

#include "rtxg_cpu_budget.h"
#include "rtxg_cpu_domain.h"

/* Priorities that RM and EDF share, as rtxg/cpu.h has them. */
#define RTXG_RANK_LOW	 10u
#define RTXG_RANK_HIGH	 89u
#define RTXG_RANK_LEVELS (RTXG_RANK_HIGH - RTXG_RANK_LOW + 1)

enum rtxg_rank_class {
	RTXG_RANK_FIFO, /* at the priority that its policy gives */
	RTXG_RANK_DEADLINE,
	RTXG_RANK_IDLE,	    /* SCHED_IDLE: only what no other wants */
	RTXG_RANK_ORDINARY, /* SCHED_NORMAL */
};

struct rtxg_rank_task {
	struct rtxg_budget_use budget;
	bool deadline;	 /* its policy is the kernel's SCHED_DEADLINE */
	bool background; /* the task asked to stay there, whatever its budget */
	bool kernel;	 /* threads of the kernel: they may hold what others wait for */
};

/* As what the kernel is to run its threads. One that is stopped keeps the class that it had. */
uint32_t rtxg_rank_class(const struct rtxg_rank_task *task);

struct rtxg_rank_rm {
	uint64_t period_ns;
	uint32_t priority; /* out */
	uint32_t repeated; /* the core's: a task before it has the same period */
};

/*
 * Rate monotonic: the shorter the period, the higher the priority. Equal periods share a priority.
 * More periods than levels share the lowest. Time grows with the square of count.
 */
void rtxg_rank_rm(struct rtxg_rank_rm *tasks, uint32_t count);

/* A job that is ready under EDF, as part of the host's object. */
struct rtxg_edf_job {
	uint64_t deadline_ns; /* absolute; constant while the job is in */
	struct rtxg_cpu_domain domain;
	uint32_t priority; /* out */
	uint32_t mark;	   /* the core's */
	/* out: insert gave it another priority; the host clears it */
	bool changed;
	bool ready; /* out: in an order */
};

/* The ready jobs, earliest deadline first, in memory of the host. */
struct rtxg_edf {
	struct rtxg_edf_job **jobs;
	uint32_t count, cap;
};

/*
 * Sorts a ready job in, behind those with the same deadline, and gives it a priority between its
 * neighbours'. Where there is no room between them, all jobs that compete with it, directly or
 * through others, are spread evenly over the band. Of two jobs whose domains meet, the earlier
 * deadline has the higher priority, unless more jobs are ready than there are levels: then the
 * latest share the lowest. Returns how many other jobs have changed, or -ENOSPC if the order is
 * full.
 */
int rtxg_edf_insert(struct rtxg_edf *edf, struct rtxg_edf_job *job);
/* Takes the job out; nothing happens if it is not in. No priority changes. */
void rtxg_edf_remove(struct rtxg_edf *edf, struct rtxg_edf_job *job);

#endif
