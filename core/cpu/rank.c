// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * rank.c - priorities of RM and EDF tasks. See rtxg_cpu_rank.h. May not: know the host's tasks, or
 * set a priority anywhere but in its answer.
 */
#include "rtxg_cpu_rank.h"

/* What is known of a ready job while the competitors of another one are looked for. */
enum mark { UNKNOWN, FOUND, FOLLOWED };

uint32_t rtxg_rank_class(const struct rtxg_rank_task *task)
{
	if (task->deadline && !task->background)
		return RTXG_RANK_DEADLINE;
	if (!task->background && rtxg_budget_state(&task->budget) != RTXG_BUDGET_BACKGROUND)
		return RTXG_RANK_FIFO;
	return task->kernel ? RTXG_RANK_ORDINARY : RTXG_RANK_IDLE;
}

void rtxg_rank_rm(struct rtxg_rank_rm *tasks, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		tasks[i].repeated = 0;
		for (uint32_t k = 0; k < i && !tasks[i].repeated; k++)
			tasks[i].repeated = tasks[k].period_ns == tasks[i].period_ns;
	}
	for (uint32_t i = 0; i < count; i++) {
		uint32_t faster = 0;

		for (uint32_t k = 0; k < count; k++)
			faster += !tasks[k].repeated && tasks[k].period_ns < tasks[i].period_ns;
		if (faster > RTXG_RANK_LEVELS - 1)
			faster = RTXG_RANK_LEVELS - 1;
		tasks[i].priority = RTXG_RANK_HIGH - faster;
	}
}

/* Marks all jobs whose domains meet that of a marked one. */
static uint32_t follow(struct rtxg_edf *edf, struct rtxg_edf_job *from)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < edf->count; i++) {
		struct rtxg_edf_job *job = edf->jobs[i];

		if (job->mark != UNKNOWN || !rtxg_cpu_domains_meet(&job->domain, &from->domain))
			continue;
		/* a domain within this one leads nowhere that this one does not */
		job->mark = rtxg_cpu_domain_within(&job->domain, &from->domain) ? FOLLOWED : FOUND;
		found++;
	}
	return found;
}

/* Marks the jobs that compete with one of the order, directly or through others; how many. */
static uint32_t find_competitors(struct rtxg_edf *edf, struct rtxg_edf_job *member)
{
	uint32_t found = 0;
	bool again = true;

	for (uint32_t i = 0; i < edf->count; i++)
		edf->jobs[i]->mark = UNKNOWN;
	found += follow(edf, member);
	while (again) {
		again = false;
		for (uint32_t i = 0; i < edf->count; i++) {
			if (edf->jobs[i]->mark != FOUND)
				continue;
			edf->jobs[i]->mark = FOLLOWED;
			found += follow(edf, edf->jobs[i]);
			again = true;
		}
	}
	return found;
}

static uint32_t spread_priority(uint32_t rank, uint32_t count)
{
	if (count < RTXG_RANK_LEVELS)
		return RTXG_RANK_HIGH - (rank + 1) * RTXG_RANK_LEVELS / (count + 1);
	return RTXG_RANK_HIGH - (rank < RTXG_RANK_LEVELS ? rank : RTXG_RANK_LEVELS - 1);
}

/* Spreads the ready jobs that compete with this one over the band; how many others changed. */
static int spread(struct rtxg_edf *edf, struct rtxg_edf_job *member)
{
	uint32_t count = find_competitors(edf, member), rank = 0;
	int changed = 0;

	for (uint32_t i = 0; i < edf->count; i++) {
		struct rtxg_edf_job *job = edf->jobs[i];
		uint32_t priority;

		if (job->mark == UNKNOWN)
			continue;
		priority = spread_priority(rank++, count);
		if (job->priority == priority && job != member)
			continue;
		job->priority = priority;
		job->changed = true;
		changed += job != member;
	}
	return changed;
}

int rtxg_edf_insert(struct rtxg_edf *edf, struct rtxg_edf_job *job)
{
	uint32_t above = RTXG_RANK_HIGH + 1, below = RTXG_RANK_LOW - 1, place = 0;

	if (edf->count == edf->cap)
		return -ENOSPC;
	for (uint32_t i = 0; i < edf->count; i++) {
		const struct rtxg_edf_job *other = edf->jobs[i];
		bool earlier = other->deadline_ns <= job->deadline_ns;

		place += earlier;
		if (!rtxg_cpu_domains_meet(&other->domain, &job->domain))
			continue;
		if (earlier && other->priority < above)
			above = other->priority;
		if (!earlier && other->priority > below)
			below = other->priority;
	}
	for (uint32_t i = edf->count++; i > place; i--)
		edf->jobs[i] = edf->jobs[i - 1];
	edf->jobs[place] = job;
	job->ready = true;
	if (above <= below + 1)
		return spread(edf, job);
	job->priority = (above + below) / 2;
	job->changed = true;
	return 0;
}

void rtxg_edf_remove(struct rtxg_edf *edf, struct rtxg_edf_job *job)
{
	uint32_t at = 0;

	if (!job->ready)
		return;
	while (edf->jobs[at] != job)
		at++;
	for (edf->count--; at < edf->count; at++)
		edf->jobs[at] = edf->jobs[at + 1];
	job->ready = false;
}
