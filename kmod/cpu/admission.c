// SPDX-License-Identifier: GPL-2.0-only
/*
 * admission.c - asks the core whether the deadlines of all tasks are safe with one more, or with
 * other parameters of one. May not: judge by itself, or change a task.
 */
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"
#include "rtxg_cpu_place.h"

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

	if (p->flags & ~RTXG_CPU_F_ALL || p->reserved || p->policy >= RTXG_CPU_POLICIES)
		return -EINVAL;
	if (p->flags & RTXG_CPU_F_CPU &&
	    (!(p->flags & RTXG_CPU_F_PARTITIONED) || p->cpu >= nr_cpu_ids))
		return -EINVAL;
	if (p->flags & RTXG_CPU_F_CLUSTER ? p->flags & RTXG_CPU_F_PARTITIONED : p->set_size)
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
	if (p->flags & RTXG_CPU_F_CHILDREN && !(p->flags & RTXG_CPU_F_PROCESS))
		return -EINVAL;
	if (p->flags & RTXG_CPU_F_HARD && p->policy != RTXG_CPU_DEADLINE) {
		if (!p->runtime_ns)
			return -EINVAL;
		if (!rtxg_cpu_add_work)
			return -EOPNOTSUPP;
	}
	return 0;
}

int rtxg_cpu_copy_set(const struct rtxg_cpu_task *params, struct cpumask **set)
{
	int err;

	*set = NULL;
	if (!(params->flags & RTXG_CPU_F_CLUSTER) || !params->set_size)
		return 0;
	if (params->set_size % sizeof(u64) || params->set_size > PAGE_SIZE)
		return -EINVAL;
	*set = kzalloc(cpumask_size(), GFP_KERNEL_ACCOUNT);
	if (!*set)
		return -ENOMEM;
	/* CPUs that cannot be are not in the set: their words are zero */
	err = copy_struct_from_user(cpumask_bits(*set), rtxg_cpu_set_words() * sizeof(u64),
				    u64_to_user_ptr(params->set), params->set_size);
	if (!err && find_next_bit(cpumask_bits(*set), rtxg_cpu_set_words() * BITS_PER_LONG,
				  nr_cpu_ids) < rtxg_cpu_set_words() * BITS_PER_LONG)
		err = -E2BIG;
	if (!err)
		return 0;
	kfree(*set);
	*set = NULL;
	return err == -E2BIG ? -EINVAL : err;
}

static int gather(struct cpu_candidates *c, const struct cpu_task *self)
{
	unsigned int words = rtxg_cpu_set_words();
	struct cpu_task *t;

	c->tasks = kvcalloc(rtxg_cpu_tasks_max + 1, sizeof(*c->tasks), GFP_KERNEL_ACCOUNT);
	c->pids = kvcalloc(rtxg_cpu_tasks_max + 1, sizeof(*c->pids), GFP_KERNEL_ACCOUNT);
	c->bits = kvcalloc((rtxg_cpu_tasks_max + 2) * words, sizeof(u64), GFP_KERNEL_ACCOUNT);
	if (!c->tasks || !c->pids || !c->bits)
		return -ENOMEM;
	c->count = 1;
	rt_mutex_lock(&rtxg_cpu_lock);
	list_for_each_entry (t, &rtxg_cpu_tasks, all_node) {
		if (t == self)
			continue;
		c->pids[c->count] = task_pid_vnr(rtxg_cpu_first(t)->task);
		c->tasks[c->count] =
			rtxg_cpu_demand(&t->params, t->cpu, t->domain, c->bits + c->count * words);
		c->count++;
	}
	rt_mutex_unlock(&rtxg_cpu_lock);
	return 0;
}

/*
 * A test of many tasks takes long: between two steps, what waits for this CPU runs. A caller that
 * is killed does not wait for the rest.
 */
static bool interrupted(void)
{
	cond_resched();
	return fatal_signal_pending(current);
}

static int admit(struct cpu_candidates *c, u32 cpus, u32 capacity)
{
	struct rtxg_admission admission;
	int ret;

	rtxg_admission_begin(&admission, c->tasks, c->count, cpus, capacity);
	do
		ret = rtxg_admission_step(&admission, &c->verdict);
	while (ret > 0 && !interrupted());
	return ret > 0 ? -EINTR : ret;
}

/* On one of these CPUs. */
static int admit_somewhere(struct cpu_candidates *c, const struct rtxg_cpu_domain *allowed,
			   u32 cpus, u32 capacity)
{
	struct rtxg_placing placing;
	int ret;

	rtxg_placing_begin(&placing, c->tasks, c->count, allowed, cpus, capacity);
	do
		ret = rtxg_placing_step(&placing, &c->verdict);
	while (ret > 0 && !interrupted());
	return ret > 0 ? -EINTR : ret;
}

/*
 * Whether all deadlines are safe with these parameters, and if the CPU is left to us: where. self:
 * whose parameters are replaced.
 */
int rtxg_cpu_try(struct cpu_candidates *c, const struct cpu_task *self,
		 const struct rtxg_cpu_task *params, const struct cpumask *set,
		 const struct cpumask *mask, int *chosen)
{
	u32 capacity = clamp(READ_ONCE(cpu_capacity_ppm), 1u, 1000000u), cpus = num_online_cpus();
	int cpu = params->flags & RTXG_CPU_F_CPU ? params->cpu : -1, err;
	unsigned int how = READ_ONCE(admission);
	struct rtxg_cpu_domain allowed;

	*chosen = -1;
	if (!how)
		return 0;
	err = gather(c, self);
	if (err)
		return err;
	c->tasks[0] = rtxg_cpu_demand(params, cpu, set ?: mask, c->bits);
	if (!c->tasks[0].cost_ns) {
		c->verdict.test = RTXG_CPU_UNKNOWN;
		return how >= 2 ? -ENOSPC : 0;
	}
	if (!(params->flags & RTXG_CPU_F_PARTITIONED) || cpu >= 0)
		return admit(c, cpus, capacity);
	allowed =
		rtxg_cpu_online_of(mask, c->bits + (rtxg_cpu_tasks_max + 1) * rtxg_cpu_set_words());
	err = admit_somewhere(c, &allowed, cpus, capacity);
	if (!err)
		*chosen = c->tasks[0].cpu;
	return err;
}

void rtxg_cpu_end_try(struct cpu_candidates *c)
{
	kvfree(c->tasks);
	kvfree(c->pids);
	kvfree(c->bits);
}
