// SPDX-License-Identifier: GPL-2.0-only
/*
 * policy.c - gives threads the policy, priority and affinity that they should have now.
 *
 * The kernel's scheduler stays as it is: only the settings of tasks that asked for it change. All
 * under rtxg_cpu_lock. May not: use anything of the scheduler that is not exported.
 */
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/mm.h>
#include <linux/sched/prio.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "internal.h"
#include "rtxg_cpu_place.h"

/* The core's sets of CPUs are the kernel's masks. */
static_assert(BITS_PER_LONG == 64);

/* For the core, as much as all tasks need. Under rtxg_cpu_lock. */
static struct rtxg_edf edf;
static struct rtxg_rank_rm *rm_tasks;
static struct rtxg_admit_task *promised;
static u64 *promised_bits;

/* Makes a thread's policy and priority what they should be now. */
int rtxg_cpu_apply_thread(const struct cpu_task *t, struct cpu_thread *th)
{
	/*
	 * threads and children begin as ordinary ones: outside of every budget a real-time priority
	 * could stop the machine
	 */
	struct sched_attr attr = { .size = sizeof(attr), .sched_flags = SCHED_FLAG_RESET_ON_FORK };
	const struct rtxg_rank_task rank = { .budget = rtxg_cpu_use(t),
					     .deadline = t->params.policy == RTXG_CPU_DEADLINE,
					     .background = t->background,
					     .kernel = t->kernel };
	int err;

	if (READ_ONCE(th->ended))
		return 0;
	switch (rtxg_rank_class(&rank)) {
	case RTXG_RANK_DEADLINE:
		attr.sched_policy = SCHED_DEADLINE;
		attr.sched_runtime = t->params.runtime_ns;
		attr.sched_deadline = t->params.deadline_ns;
		attr.sched_period = t->params.period_ns;
		break;
	case RTXG_RANK_IDLE:
		attr.sched_policy = SCHED_IDLE;
		break;
	case RTXG_RANK_ORDINARY:
		attr.sched_policy = SCHED_NORMAL;
		break;
	default:
		attr.sched_policy = SCHED_FIFO;
		attr.sched_priority = th->task == t->sleeper && t->params.policy == RTXG_CPU_EDF
					      ? RELEASE_PRIORITY
					      : t->priority;
	}
	/* as it is, and not as we last set it: the task, or another, may have set it since */
	if (th->applied_policy != U32_MAX && attr.sched_policy == th->task->policy &&
	    attr.sched_priority == th->task->rt_priority && th->task->sched_reset_on_fork &&
	    attr.sched_policy != SCHED_DEADLINE)
		return 0;
	err = sched_setattr_nocheck(th->task, &attr);
	if (!err)
		th->applied_policy = attr.sched_policy;
	return err;
}

int rtxg_cpu_apply(struct cpu_task *t)
{
	struct cpu_thread *th;
	int err = 0;

	list_for_each_entry (th, &t->members, member_node) {
		int one;

		/* they stand at the end of the list */
		if (th->plain)
			break;
		one = rtxg_cpu_apply_thread(t, th);
		err = err ?: one;
	}
	return err;
}

void rtxg_cpu_enforce(void)
{
	struct cpu_task *t;

	rt_mutex_lock(&rtxg_cpu_lock);
	list_for_each_entry (t, &rtxg_cpu_tasks, all_node) {
		bool changed, tell;
		u64 releases;

		raw_spin_lock_irq(&t->lock);
		changed = t->changed;
		tell = t->signal && t->budget.exhausted && t->params.flags & RTXG_CPU_F_SIGNAL;
		releases = t->releases;
		t->changed = t->signal = false;
		t->releases = 0;
		raw_spin_unlock_irq(&t->lock);
		if (releases && rtxg_cpu_is_server(t) && t->params.policy == RTXG_CPU_EDF) {
			t->release_ns += releases * t->params.period_ns;
			rtxg_cpu_edf_remove(t);
			rtxg_cpu_edf_insert(t);
		}
		if (changed)
			rtxg_cpu_apply(t);
		if (tell)
			send_sig(SIGXCPU, rtxg_cpu_first(t)->task, 1);
	}
	rt_mutex_unlock(&rtxg_cpu_lock);
}

void rtxg_cpu_rank_all(void)
{
	struct cpu_task *t;
	u32 count = 0;

	list_for_each_entry (t, &rtxg_cpu_tasks, all_node)
		if (t->params.policy == RTXG_CPU_RM)
			rm_tasks[count++].period_ns = t->params.period_ns;
	rtxg_rank_rm(rm_tasks, count);
	count = 0;
	list_for_each_entry (t, &rtxg_cpu_tasks, all_node) {
		if (t->params.policy != RTXG_CPU_RM)
			continue;
		t->priority = rm_tasks[count++].priority;
		rtxg_cpu_apply(t);
	}
}

void rtxg_cpu_edf_remove(struct cpu_task *t)
{
	rtxg_edf_remove(&edf, &t->edf);
}

static void take_rank(struct rtxg_edf_job *job)
{
	struct cpu_task *t = container_of(job, struct cpu_task, edf);

	job->changed = false;
	t->priority = job->priority;
	rtxg_cpu_apply(t);
}

/* Sorts a released job in; others move only where there is no room between its neighbours. */
void rtxg_cpu_edf_insert(struct cpu_task *t)
{
	int others;

	t->edf.deadline_ns = t->release_ns + t->params.deadline_ns;
	t->edf.domain = (struct rtxg_cpu_domain){
		.bits = (const u64 *)cpumask_bits(t->domain),
		.words = rtxg_cpu_set_words(),
	};
	others = rtxg_edf_insert(&edf, &t->edf);
	/* there is room for each task's job */
	if (WARN_ON_ONCE(others < 0))
		return;
	for (u32 i = 0; others && i < edf.count; i++) {
		if (!edf.jobs[i]->changed || edf.jobs[i] == &t->edf)
			continue;
		take_rank(edf.jobs[i]);
		others--;
	}
	take_rank(&t->edf);
}

unsigned int rtxg_cpu_set_words(void)
{
	return BITS_TO_LONGS(nr_cpu_ids);
}

struct rtxg_cpu_domain rtxg_cpu_online_of(const struct cpumask *mask, u64 *bits)
{
	unsigned int words = rtxg_cpu_set_words();

	bitmap_and((unsigned long *)bits, cpumask_bits(mask), cpumask_bits(cpu_online_mask),
		   nr_cpu_ids);
	return (struct rtxg_cpu_domain){ .bits = bits, .words = words };
}

struct rtxg_admit_task rtxg_cpu_demand(const struct rtxg_cpu_task *p, int cpu,
				       const struct cpumask *mask, u64 *bits)
{
	const struct rtxg_admit_job job = { .policy = p->policy,
					    .period_ns = p->period_ns,
					    .runtime_ns = p->runtime_ns,
					    .wcet_ns = p->wcet_ns,
					    .suspend_ns = p->suspend_ns };
	struct rtxg_admit_task demand = {
		.policy = p->policy,
		.priority = p->priority,
		.cpu = cpu < 0 ? RTXG_ADMIT_GLOBAL : cpu,
		.cpus = num_online_cpus(),
		.cost_ns = rtxg_admit_cost(&job),
		.deadline_ns = p->deadline_ns,
		.period_ns = p->period_ns,
	};

	/* a mask whose CPUs have all gone holds its tasks no longer */
	if (cpu < 0 && !cpumask_subset(cpu_online_mask, mask) &&
	    cpumask_intersects(cpu_online_mask, mask)) {
		demand.domain = rtxg_cpu_online_of(mask, bits);
		demand.cpus = rtxg_cpu_domain_count(&demand.domain);
	}
	return demand;
}

/* Of the CPUs of a mask the one with the least promised; -1: none is online. */
static int least_loaded(const struct cpu_task *self, const struct cpumask *mask, int except)
{
	unsigned int words = rtxg_cpu_set_words();
	struct rtxg_cpu_domain allowed = rtxg_cpu_online_of(mask, promised_bits);
	struct cpu_task *t;
	u32 count = 0;

	list_for_each_entry (t, &rtxg_cpu_tasks, all_node) {
		if (t == self)
			continue;
		promised[count] = rtxg_cpu_demand(&t->params, t->cpu, t->domain,
						  promised_bits + (count + 1) * words);
		count++;
	}
	return rtxg_place_worst_fit(promised, count, &allowed, except);
}

/* Puts all its threads on the CPUs of a mask; NULL: each where it ran before us. */
static int confine(struct cpu_task *t, const struct cpumask *mask)
{
	struct cpu_thread *th;
	int err = 0;

	list_for_each_entry (th, &t->members, member_node) {
		int one = READ_ONCE(th->ended)
				  ? 0
				  : set_cpus_allowed_ptr(th->task, mask ?: th->saved_mask);

		err = err ?: one;
	}
	if (err)
		return err;
	t->confined = mask;
	cpumask_and(t->domain, mask ?: rtxg_cpu_first(t)->saved_mask, cpu_possible_mask);
	return 0;
}

static int put_on_cpu(struct cpu_task *t, int cpu)
{
	int err = confine(t, cpumask_of(cpu));

	if (!err)
		t->cpu = t->params.cpu = cpu;
	return err;
}

static int place(struct cpu_task *t, const struct cpumask *set)
{
	const struct cpumask *mask = rtxg_cpu_first(t)->saved_mask;
	int cpu = t->params.cpu, err = 0;

	if (t->params.flags & RTXG_CPU_F_PARTITIONED) {
		if (!(t->params.flags & RTXG_CPU_F_CPU))
			cpu = t->chosen >= 0 ? t->chosen : least_loaded(t, mask, -1);
		/* no policy takes a task to a CPU that its cpuset keeps it from */
		if (cpu < 0 || cpu >= nr_cpu_ids || !cpu_online(cpu) ||
		    !cpumask_test_cpu(cpu, mask))
			return -EINVAL;
		return put_on_cpu(t, cpu);
	}
	if (t->params.flags & RTXG_CPU_F_CLUSTER) {
		if (!set || !cpumask_subset(set, mask) || !cpumask_intersects(set, cpu_online_mask))
			return -EINVAL;
		err = confine(t, set);
	} else if (t->confined) {
		err = confine(t, NULL);
	} else {
		cpumask_and(t->domain, mask, cpu_possible_mask);
	}
	if (!err)
		t->cpu = -1;
	return err;
}

/* The CPU is the last one of those that the task's threads were put on. */
static bool goes_with(const struct cpu_task *t, unsigned int cpu)
{
	unsigned int other;

	if (!t->confined || !cpumask_test_cpu(cpu, t->domain))
		return false;
	for_each_cpu_and(other, t->domain, cpu_online_mask) if (other != cpu) return false;
	return true;
}

/*
 * A CPU goes: its tasks move to the least loaded of the others, and where it was the last one of a
 * cluster, each thread of the cluster's tasks to where it ran before us. The kernel has widened
 * their masks by now, or will as they wake up. For a suspend nothing moves: programs are frozen,
 * and the CPU is back before they go on.
 */
int rtxg_cpu_goes(unsigned int cpu)
{
	struct cpu_task *t;

	if (cpuhp_tasks_frozen)
		return 0;
	rt_mutex_lock(&rtxg_cpu_lock);
	list_for_each_entry (t, &rtxg_cpu_tasks, all_node) {
		pid_t pid = rtxg_cpu_first(t)->task->pid;
		bool ready = t->edf.ready;
		int to = -1;

		if (!goes_with(t, cpu))
			continue;
		if (t->cpu >= 0) {
			to = least_loaded(t, rtxg_cpu_first(t)->saved_mask, cpu);
			if (to < 0)
				continue;
		}
		if (ready)
			rtxg_cpu_edf_remove(t);
		if (to >= 0 && !put_on_cpu(t, to))
			pr_info("rtxg: CPU %u goes, task %d moves to CPU %d\n", cpu, pid, to);
		if (to < 0 && !confine(t, NULL))
			pr_info("rtxg: CPU %u goes, the last one of its cluster: task %d runs "
				"where it did before\n",
				cpu, pid);
		if (ready)
			rtxg_cpu_edf_insert(t);
	}
	rt_mutex_unlock(&rtxg_cpu_lock);
	return 0;
}

/*
 * Takes new parameters over: placement, priority, budget. On failure the task is left as apply()
 * last left it.
 */
int rtxg_cpu_configure(struct cpu_task *t, const struct rtxg_cpu_task *params,
		       const struct cpumask *set)
{
	int err;

	rtxg_cpu_stop_clock(t);
	rtxg_cpu_edf_remove(t);
	t->params = *params;
	/* of the caller's memory */
	t->params.set = t->params.set_size = 0;
	err = place(t, set);
	if (err)
		return err;
	switch (params->policy) {
	case RTXG_CPU_FP:
		t->priority = params->priority;
		break;
	case RTXG_CPU_RM:
		rtxg_cpu_rank_all();
		break;
	case RTXG_CPU_EDF:
		/* until a job is ready */
		t->priority = RTXG_CPU_BAND_LOW;
		if (rtxg_cpu_is_server(t))
			t->release_ns = ktime_get_ns();
		if (rtxg_cpu_is_server(t) || (!t->sleeper && (t->started || t->waiting)))
			rtxg_cpu_edf_insert(t);
		break;
	}
	err = rtxg_cpu_apply(t);
	if (err)
		return err;
	t->reserving = params->runtime_ns && params->policy != RTXG_CPU_DEADLINE;
	rtxg_cpu_start_clock(t, t->reserving);
	return 0;
}

void rtxg_cpu_policy_exit(void)
{
	kvfree(edf.jobs);
	kvfree(rm_tasks);
	kvfree(promised);
	kvfree(promised_bits);
}

int rtxg_cpu_policy_init(void)
{
	u32 max = rtxg_cpu_tasks_max;

	edf.cap = max;
	edf.jobs = kvcalloc(max, sizeof(struct rtxg_edf_job *), GFP_KERNEL);
	rm_tasks = kvcalloc(max, sizeof(*rm_tasks), GFP_KERNEL);
	promised = kvcalloc(max, sizeof(*promised), GFP_KERNEL);
	promised_bits = kvcalloc((max + 1) * rtxg_cpu_set_words(), sizeof(u64), GFP_KERNEL);
	if (edf.jobs && rm_tasks && promised && promised_bits)
		return 0;
	rtxg_cpu_policy_exit();
	return -ENOMEM;
}
