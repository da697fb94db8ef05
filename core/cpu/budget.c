// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * budget.c - CPU time for each period. See rtxg_cpu_budget.h. May not: read a clock, or stop a
 * task.
 */
#include "rtxg_cpu_budget.h"

void rtxg_budget_start(struct rtxg_budget *budget, uint64_t runtime_ns, bool enforced)
{
	budget->runtime_ns = runtime_ns;
	budget->left_ns = enforced ? (int64_t)runtime_ns : 0;
	budget->enforced = enforced;
	budget->exhausted = false;
}

void rtxg_budget_charge(struct rtxg_budget *budget, uint64_t used_ns)
{
	if (budget->enforced)
		budget->left_ns -= (int64_t)used_ns;
}

uint64_t rtxg_budget_lasts(const struct rtxg_budget *budget, uint32_t threads)
{
	if (!budget->enforced || budget->exhausted || !threads)
		return UINT64_MAX;
	return budget->left_ns > 0 ? (uint64_t)budget->left_ns / threads : 0;
}

bool rtxg_budget_spent(struct rtxg_budget *budget)
{
	if (!budget->enforced || budget->exhausted || budget->left_ns > 0)
		return false;
	budget->exhausted = true;
	return true;
}

bool rtxg_budget_replenish(struct rtxg_budget *budget, uint64_t periods)
{
	uint64_t missing = (uint64_t)((int64_t)budget->runtime_ns - budget->left_ns);

	if (!budget->enforced)
		return false;
	/* in this order: many periods at once do not overflow */
	if (!budget->runtime_ns || periods > missing / budget->runtime_ns)
		budget->left_ns = (int64_t)budget->runtime_ns;
	else
		budget->left_ns += (int64_t)(periods * budget->runtime_ns);
	if (budget->left_ns <= 0 || !budget->exhausted)
		return false;
	budget->exhausted = false;
	return true;
}

uint32_t rtxg_budget_state(const struct rtxg_budget_use *use)
{
	if (!use->exhausted)
		return RTXG_BUDGET_RUNS;
	if (use->hard)
		return RTXG_BUDGET_STOPS;
	return use->lent ? RTXG_BUDGET_RUNS : RTXG_BUDGET_BACKGROUND;
}

/*
 * What runs in the background takes nothing from others: were it charged, a task that had an idle
 * CPU for a while would have no budget for as long afterwards.
 */
bool rtxg_budget_counts(const struct rtxg_budget_use *use)
{
	return !use->lent && rtxg_budget_state(use) != RTXG_BUDGET_BACKGROUND;
}

int64_t rtxg_budget_after_sleep(int64_t left_ns, uint64_t slept_ns, uint64_t floor_ns)
{
	/* less than the floor is left as it is */
	if (left_ns <= 0 || (uint64_t)left_ns <= floor_ns)
		return left_ns;
	return slept_ns < (uint64_t)left_ns - floor_ns ? left_ns - (int64_t)slept_ns
						       : (int64_t)floor_ns;
}
