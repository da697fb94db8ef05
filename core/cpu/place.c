// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * place.c - the CPU of a task that stays on one. See rtxg_cpu_place.h. May not: move a task, or
 * know which CPUs are online: the host allows them.
 */
#include "rtxg_cpu_place.h"

#define PPM 1000000ull

/* What a task adds to the load of a CPU. */
static uint64_t load_on(const struct rtxg_admit_task *t, uint32_t cpu)
{
	uint64_t load = t->period_ns ? t->cost_ns * PPM / t->period_ns : 0;

	if (t->cpu >= 0)
		return t->cpu != (int32_t)cpu ? 0 : load ? load : 1;
	return t->cpus && rtxg_cpu_domain_has(&t->domain, cpu) ? load / t->cpus : 0;
}

int32_t rtxg_place_worst_fit(const struct rtxg_admit_task *tasks, uint32_t count,
			     const struct rtxg_cpu_domain *allowed, int32_t except)
{
	uint64_t least = UINT64_MAX;
	int32_t best = -1;

	for (uint32_t cpu = 0; cpu < allowed->words * 64; cpu++) {
		uint64_t load = 0;

		if ((int32_t)cpu == except || !rtxg_cpu_domain_has(allowed, cpu))
			continue;
		for (uint32_t i = 0; i < count; i++)
			load += load_on(&tasks[i], cpu);
		if (load < least) {
			least = load;
			best = (int32_t)cpu;
		}
	}
	return best;
}

/* Admission with the task on that CPU, from the beginning. */
static void try_on(struct rtxg_placing *placing, uint32_t cpu)
{
	const struct rtxg_admission a = placing->admission;

	placing->tasks[0].cpu = (int32_t)cpu;
	rtxg_admission_begin(&placing->admission, a.tasks, a.count, a.cpus, a.capacity_ppm);
}

void rtxg_placing_begin(struct rtxg_placing *placing, struct rtxg_admit_task *tasks, uint32_t count,
			const struct rtxg_cpu_domain *allowed, uint32_t cpus, uint32_t capacity_ppm)
{
	*placing = (struct rtxg_placing){ .tasks = tasks, .allowed = allowed };
	placing->first = rtxg_place_worst_fit(tasks + 1, count - 1, allowed, -1);
	rtxg_admission_begin(&placing->admission, tasks, count, cpus, capacity_ppm);
	if (placing->first >= 0)
		try_on(placing, (uint32_t)placing->first);
}

int rtxg_placing_step(struct rtxg_placing *placing, struct rtxg_admit_verdict *verdict)
{
	bool others = placing->tasks[0].cpu != placing->first;
	struct rtxg_admit_verdict other;
	int ret;

	if (placing->first < 0) {
		*verdict = (struct rtxg_admit_verdict){ .test = RTXG_ADMIT_OK };
		return -EINVAL;
	}
	ret = rtxg_admission_step(&placing->admission, others ? &other : verdict);
	if (!ret && others)
		*verdict = (struct rtxg_admit_verdict){ .test = RTXG_ADMIT_OK };
	if (ret != -ENOSPC)
		return ret;
	for (; placing->next < placing->allowed->words * 64; placing->next++) {
		if ((int32_t)placing->next == placing->first ||
		    !rtxg_cpu_domain_has(placing->allowed, placing->next))
			continue;
		try_on(placing, placing->next++);
		return 1;
	}
	placing->tasks[0].cpu = placing->first;
	return -ENOSPC;
}

int rtxg_place_admitted(struct rtxg_admit_task *tasks, uint32_t count,
			const struct rtxg_cpu_domain *allowed, uint32_t cpus, uint32_t capacity_ppm,
			struct rtxg_admit_verdict *verdict)
{
	struct rtxg_placing placing;
	int ret;

	rtxg_placing_begin(&placing, tasks, count, allowed, cpus, capacity_ppm);
	do
		ret = rtxg_placing_step(&placing, verdict);
	while (ret > 0);
	return ret;
}
