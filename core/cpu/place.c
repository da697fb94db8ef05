// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * place.c - the CPU of a task that stays on one. See rtxg_cpu_place.h. May not: move a task, or know
 * which CPUs are online: the host allows them.
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

int rtxg_place_admitted(struct rtxg_admit_task *tasks, uint32_t count,
			const struct rtxg_cpu_domain *allowed, uint32_t cpus, uint32_t capacity_ppm,
			struct rtxg_admit_verdict *verdict)
{
	int32_t first = rtxg_place_worst_fit(tasks + 1, count - 1, allowed, -1);
	struct rtxg_admit_verdict other;
	int ret;

	*verdict = (struct rtxg_admit_verdict){ .test = RTXG_ADMIT_OK };
	if (first < 0)
		return -EINVAL;
	tasks[0].cpu = first;
	ret = rtxg_cpu_admit(tasks, count, cpus, capacity_ppm, verdict);
	for (uint32_t cpu = 0; ret == -ENOSPC && cpu < allowed->words * 64; cpu++) {
		if ((int32_t)cpu == first || !rtxg_cpu_domain_has(allowed, cpu))
			continue;
		tasks[0].cpu = (int32_t)cpu;
		if (rtxg_cpu_admit(tasks, count, cpus, capacity_ppm, &other))
			continue;
		*verdict = other;
		return 0;
	}
	if (ret)
		tasks[0].cpu = first;
	return ret;
}
