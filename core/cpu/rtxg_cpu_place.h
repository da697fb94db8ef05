/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_cpu_place.h - which CPU a task that stays on one is given.
 */
#ifndef RTXG_CPU_PLACE_H
#define RTXG_CPU_PLACE_H

#include "rtxg_cpu_admit.h"

/*
 * Worst fit: of the allowed CPUs the one that the tasks use least, of several the lowest. A task of
 * unknown cost counts a little. One that moves among several CPUs counts on each for its part.
 * allowed: with words; except: a CPU that is not taken, or -1. -1 if there is none.
 */
int32_t rtxg_place_worst_fit(const struct rtxg_admit_task *tasks, uint32_t count,
			     const struct rtxg_cpu_domain *allowed, int32_t except);

/* A choice of a CPU under way. */
struct rtxg_placing {
	struct rtxg_admit_task *tasks;
	const struct rtxg_cpu_domain *allowed;
	struct rtxg_admission admission;
	int32_t first; /* the worst fit */
	uint32_t next; /* of the other CPUs: not tried yet */
};

/*
 * Chooses a CPU for tasks[0] beside the others, step by step: the worst fit if admission takes it
 * there, else the lowest CPU on which admission does. tasks[0] is left as it is on the CPU found.
 */
void rtxg_placing_begin(struct rtxg_placing *placing, struct rtxg_admit_task *tasks, uint32_t count,
			const struct rtxg_cpu_domain *allowed, uint32_t cpus,
			uint32_t capacity_ppm);
/*
 * 1: there is more to do; else as rtxg_admission_step(), with the verdict of the worst fit where no
 * CPU is found; -EINVAL also if no CPU is allowed.
 */
int rtxg_placing_step(struct rtxg_placing *placing, struct rtxg_admit_verdict *verdict);

/* All steps at once. */
int rtxg_place_admitted(struct rtxg_admit_task *tasks, uint32_t count,
			const struct rtxg_cpu_domain *allowed, uint32_t cpus, uint32_t capacity_ppm,
			struct rtxg_admit_verdict *verdict);

#endif
