// SPDX-License-Identifier: GPL-2.0-only
/*
 * admission.c - asks the core whether the deadlines of all tasks are safe with one more, or with
 * other parameters of one. May not: judge by itself, or change a task.
 */
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "../user.h"
#include "internal.h"

static unsigned int admission = 1;
module_param(admission, uint, 0644);
MODULE_PARM_DESC(admission, "CPU policies: 0 no admission test; 1 of tasks that say what they "
			    "need; 2 others are refused (1)");

static unsigned int cpu_capacity_ppm = 950000;
module_param(cpu_capacity_ppm, uint, 0644);
MODULE_PARM_DESC(
	cpu_capacity_ppm,
	"admission: how much of each CPU these tasks may use together, 1..1000000 (950000)");

/* The core's names for policies are ours. */
static_assert((int)RTXG_ADMIT_FP == RTXG_CPU_FP && (int)RTXG_ADMIT_RM == RTXG_CPU_RM &&
	      (int)RTXG_ADMIT_EDF == RTXG_CPU_EDF &&
	      (int)RTXG_ADMIT_DEADLINE == RTXG_CPU_DEADLINE && RTXG_RANK_LOW == RTXG_CPU_BAND_LOW &&
	      RTXG_RANK_HIGH == RTXG_CPU_BAND_HIGH && (int)RTXG_ADMIT_WINDOW == RTXG_CPU_WINDOW);

DEFINE_MUTEX(rtxg_cpu_admission_lock);

int rtxg_cpu_check(struct rtxg_cpu_task *p)
{
	bool timed = p->policy != RTXG_CPU_FP || p->runtime_ns || p->period_ns ||
		     p->flags & RTXG_CPU_F_SERVER;

	if (p->flags & ~RTXG_CPU_F_ALL || p->reserved0 ||
	    !rtxg_all_zero(p->reserved, sizeof(p->reserved)) || p->policy >= RTXG_CPU_POLICIES)
		return -EINVAL;
	if (p->flags & RTXG_CPU_F_CPU && !(p->flags & RTXG_CPU_F_PARTITIONED))
		return -EINVAL;
	if (p->policy == RTXG_CPU_FP && (p->priority < 1 || p->priority > RTXG_CPU_PRIORITY_MAX))
		return -EINVAL;
	if (timed &&
	    (p->period_ns < RTXG_CPU_PERIOD_MIN_NS || p->period_ns > RTXG_CPU_PERIOD_MAX_NS))
		return -EINVAL;
	if (!p->deadline_ns)
		p->deadline_ns = p->period_ns;
	if (p->deadline_ns > p->period_ns || p->wcet_ns > RTXG_CPU_PERIOD_MAX_NS ||
	    p->runtime_ns > p->period_ns || p->suspend_ns > RTXG_CPU_PERIOD_MAX_NS)
		return -EINVAL;
	if (p->policy == RTXG_CPU_DEADLINE &&
	    (!p->runtime_ns || p->runtime_ns > p->deadline_ns || p->flags & RTXG_CPU_F_PROCESS))
		return -EINVAL;
	if (p->flags & RTXG_CPU_F_HARD && p->policy != RTXG_CPU_DEADLINE) {
		if (!p->runtime_ns)
			return -EINVAL;
		if (!rtxg_cpu_add_work)
			return -EOPNOTSUPP;
	}
	return 0;
}

static struct rtxg_admit_task demand(const struct rtxg_cpu_task *p, int cpu,
				     const struct cpumask *mask)
{
	u64 cost = p->period_ns ? p->runtime_ns ?: p->wcet_ns : 0;
	u32 cpus = 0;
	int each;

	/* under DEADLINE the runtime counts the GPU already */
	if (cost && p->policy != RTXG_CPU_DEADLINE)
		cost += p->suspend_ns;
	for_each_online_cpu(each) cpus += cpumask_test_cpu(each, mask);
	return (struct rtxg_admit_task){
		.policy = p->policy,
		.priority = p->priority,
		.cpu = cpu < 0 ? RTXG_ADMIT_GLOBAL : cpu,
		.cpus = max(cpus, 1u),
		.cost_ns = cost,
		.deadline_ns = p->deadline_ns,
		.period_ns = p->period_ns,
	};
}

static int gather(struct cpu_candidates *c, const struct cpu_task *self)
{
	struct cpu_task *t;

	c->tasks = kvcalloc(rtxg_cpu_tasks_max + 1, sizeof(*c->tasks), GFP_KERNEL_ACCOUNT);
	c->pids = kvcalloc(rtxg_cpu_tasks_max + 1, sizeof(*c->pids), GFP_KERNEL_ACCOUNT);
	if (!c->tasks || !c->pids)
		return -ENOMEM;
	c->count = 1;
	rt_mutex_lock(&rtxg_cpu_lock);
	list_for_each_entry (t, &rtxg_cpu_tasks, all_node) {
		if (t == self)
			continue;
		c->pids[c->count] = task_pid_vnr(rtxg_cpu_first(t)->task);
		c->tasks[c->count++] = demand(&t->params, t->cpu, rtxg_cpu_first(t)->saved_mask);
	}
	rt_mutex_unlock(&rtxg_cpu_lock);
	return 0;
}

static int try_on(struct cpu_candidates *c, const struct rtxg_cpu_task *params, int cpu,
		  const struct cpumask *mask)
{
	c->tasks[0] = demand(params, cpu, mask);
	return rtxg_cpu_admit(c->tasks, c->count, num_online_cpus(),
			      clamp(READ_ONCE(cpu_capacity_ppm), 1u, 1000000u), &c->verdict);
}

/*
 * Whether all deadlines are safe with these parameters, and if the CPU is left to us: where. self:
 * whose parameters are replaced.
 */
int rtxg_cpu_try(struct cpu_candidates *c, const struct cpu_task *self,
		 const struct rtxg_cpu_task *params, const struct cpumask *mask, int *chosen)
{
	unsigned int how = READ_ONCE(admission);
	int first, cpu, err;

	*chosen = -1;
	if (!how)
		return 0;
	if (!demand(params, -1, mask).cost_ns) {
		c->verdict.test = RTXG_CPU_UNKNOWN;
		return how >= 2 ? -ENOSPC : 0;
	}
	err = gather(c, self);
	if (err)
		return err;
	if (!(params->flags & RTXG_CPU_F_PARTITIONED))
		return try_on(c, params, -1, mask);
	if (params->flags & RTXG_CPU_F_CPU)
		return try_on(c, params, params->cpu, mask);
	rt_mutex_lock(&rtxg_cpu_lock);
	first = rtxg_cpu_least_loaded(self, mask, -1);
	rt_mutex_unlock(&rtxg_cpu_lock);
	if (first < 0)
		return -EINVAL;
	for_each_online_cpu(cpu)
	{
		if (cpu == first || !cpumask_test_cpu(cpu, mask))
			continue;
		if (*chosen < 0 && !try_on(c, params, cpu, mask))
			*chosen = cpu;
	}
	/* the least loaded one if it can be, and its numbers if none can */
	err = try_on(c, params, first, mask);
	if (!err)
		*chosen = first;
	return *chosen >= 0 ? 0 : err;
}

void rtxg_cpu_end_try(struct cpu_candidates *c)
{
	kvfree(c->tasks);
	kvfree(c->pids);
}
