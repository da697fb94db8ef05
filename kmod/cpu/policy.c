// SPDX-License-Identifier: GPL-2.0-only
/*
 * policy.c - gives threads the policy, priority and affinity that they should have now.
 *
 * The kernel's scheduler stays as it is: only the settings of tasks that asked for it change. All
 * under rtxg_cpu_lock. May not: use anything of the scheduler that is not exported.
 */
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/math64.h>
#include <linux/sched/prio.h>
#include <linux/sched/signal.h>

#include "internal.h"

/* jobs of all EDF tasks; a domain is the tasks of one CPU, or the global ones */
static LIST_HEAD(edf_ready);

/* Makes a thread's policy and priority what they should be now. */
int rtxg_cpu_apply_thread(const struct cpu_task *t, struct cpu_thread *th)
{
	/*
	 * threads and children begin as ordinary ones: outside of every budget a real-time priority
	 * could stop the machine
	 */
	struct sched_attr attr = { .size = sizeof(attr), .sched_flags = SCHED_FLAG_RESET_ON_FORK };
	int err;

	if (READ_ONCE(th->ended))
		return 0;
	if (t->params.policy == RTXG_CPU_DEADLINE && !t->background) {
		attr.sched_policy = SCHED_DEADLINE;
		attr.sched_runtime = t->params.runtime_ns;
		attr.sched_deadline = t->params.deadline_ns;
		attr.sched_period = t->params.period_ns;
	} else if (t->background || (READ_ONCE(t->exhausted) && !rtxg_cpu_stops(t))) {
		attr.sched_policy = SCHED_IDLE;
	} else {
		attr.sched_policy = SCHED_FIFO;
		attr.sched_priority = t->priority;
	}
	if (attr.sched_policy == th->applied_policy &&
	    attr.sched_priority == th->applied_priority && attr.sched_policy != SCHED_DEADLINE)
		return 0;
	err = sched_setattr_nocheck(th->task, &attr);
	if (!err) {
		th->applied_policy = attr.sched_policy;
		th->applied_priority = attr.sched_priority;
	}
	return err;
}

int rtxg_cpu_apply(struct cpu_task *t)
{
	struct cpu_thread *th;
	int err = 0;

	list_for_each_entry (th, &t->members, member_node) {
		int one = rtxg_cpu_apply_thread(t, th);

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
		tell = t->signal && t->exhausted && t->params.flags & RTXG_CPU_F_SIGNAL;
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

/*
 * Priorities by period: equal periods share one. More ranks than the band holds share its lowest.
 */
void rtxg_cpu_rank_all(void)
{
	struct cpu_task *t, *other;

	list_for_each_entry (t, &rtxg_cpu_tasks, all_node) {
		unsigned int faster = 0;

		if (t->params.policy != RTXG_CPU_RM)
			continue;
		list_for_each_entry (other, &rtxg_cpu_tasks, all_node) {
			struct cpu_task *earlier;
			bool counted = false;

			if (other->params.policy != RTXG_CPU_RM ||
			    other->params.period_ns >= t->params.period_ns)
				continue;
			/* each period counts once */
			list_for_each_entry (earlier, &rtxg_cpu_tasks, all_node) {
				if (earlier == other)
					break;
				if (earlier->params.policy == RTXG_CPU_RM &&
				    earlier->params.period_ns == other->params.period_ns)
					counted = true;
			}
			faster += !counted;
		}
		t->priority =
			RTXG_CPU_BAND_HIGH - min(faster, RTXG_CPU_BAND_HIGH - RTXG_CPU_BAND_LOW);
		rtxg_cpu_apply(t);
	}
}

static u64 edf_deadline(const struct cpu_task *t)
{
	return t->release_ns + t->params.deadline_ns;
}

static bool edf_same_domain(const struct cpu_task *a, const struct cpu_task *b)
{
	return a->cpu == b->cpu;
}

void rtxg_cpu_edf_remove(struct cpu_task *t)
{
	list_del_init(&t->ready_node);
}

/* Spreads a domain's ready jobs evenly over the band, in order of deadline. */
static void edf_relabel(const struct cpu_task *member)
{
	const unsigned int levels = RTXG_CPU_BAND_HIGH - RTXG_CPU_BAND_LOW + 1;
	unsigned int count = 0, rank = 0;
	struct cpu_task *t;

	list_for_each_entry (t, &edf_ready, ready_node)
		count += edf_same_domain(t, member);
	list_for_each_entry (t, &edf_ready, ready_node) {
		if (!edf_same_domain(t, member))
			continue;
		/* more jobs than levels: the latest deadlines share the lowest */
		t->priority = count < levels
				      ? RTXG_CPU_BAND_HIGH - (rank + 1) * levels / (count + 1)
				      : RTXG_CPU_BAND_HIGH - min(rank, levels - 1);
		rank++;
		rtxg_cpu_apply(t);
	}
}

/*
 * Sorts a released job in and gives it a priority between its neighbours', moving others only where
 * there is no room.
 */
void rtxg_cpu_edf_insert(struct cpu_task *t)
{
	unsigned int above = RTXG_CPU_BAND_HIGH + 1, below = RTXG_CPU_BAND_LOW - 1;
	struct list_head *place = &edf_ready;
	struct cpu_task *other;

	list_for_each_entry (other, &edf_ready, ready_node) {
		if (!edf_same_domain(other, t))
			continue;
		if (edf_deadline(other) > edf_deadline(t)) {
			below = other->priority;
			place = &other->ready_node;
			break;
		}
		above = other->priority;
	}
	list_add_tail(&t->ready_node, place);
	if (above > below + 1) {
		t->priority = (above + below) / 2;
		rtxg_cpu_apply(t);
	} else {
		edf_relabel(t);
	}
}

static u64 utilisation_ppm(const struct cpu_task *t)
{
	u64 work = (t->params.runtime_ns ?: t->params.wcet_ns) + t->params.suspend_ns;

	return t->params.period_ns ? div64_u64(work * 1000, max(t->params.period_ns / 1000, 1ull))
				   : 0;
}

/* Worst fit: the CPU with the least promised. */
int rtxg_cpu_least_loaded(const struct cpu_task *self, const struct cpumask *mask, int except)
{
	u64 best_load = U64_MAX;
	int cpu, best = -1;

	for_each_online_cpu(cpu)
	{
		struct cpu_task *t;
		u64 load = 0;

		if (cpu == except || !cpumask_test_cpu(cpu, mask))
			continue;
		list_for_each_entry (t, &rtxg_cpu_tasks, all_node)
			if (t->cpu == cpu && t != self)
				/* a task of unknown demand still counts for something */
				load += max(utilisation_ppm(t), 1ull);
		if (load < best_load) {
			best_load = load;
			best = cpu;
		}
	}
	return best;
}

/* Puts all its threads on a CPU; -1: each where it may be. */
static int move(struct cpu_task *t, int cpu)
{
	struct cpu_thread *th;
	int err = 0;

	list_for_each_entry (th, &t->members, member_node) {
		int one = READ_ONCE(th->ended)
				  ? 0
				  : set_cpus_allowed_ptr(th->task, cpu < 0 ? th->saved_mask
									   : cpumask_of(cpu));

		err = err ?: one;
	}
	if (!err)
		t->cpu = cpu;
	return err;
}

static int place(struct cpu_task *t)
{
	int cpu, err;

	if (!(t->params.flags & RTXG_CPU_F_PARTITIONED)) {
		if (t->cpu >= 0)
			move(t, -1);
		t->cpu = -1;
		return 0;
	}
	if (t->params.flags & RTXG_CPU_F_CPU)
		cpu = t->params.cpu;
	else
		cpu = t->chosen >= 0 ? t->chosen
				     : rtxg_cpu_least_loaded(t, rtxg_cpu_first(t)->saved_mask, -1);
	if (cpu < 0 || cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -EINVAL;
	err = move(t, cpu);
	if (!err)
		t->params.cpu = cpu;
	return err;
}

/*
 * A CPU goes: its tasks move to the least loaded of the others. The kernel has widened their masks
 * by now.
 */
int rtxg_cpu_goes(unsigned int cpu)
{
	struct cpu_task *t;

	rt_mutex_lock(&rtxg_cpu_lock);
	list_for_each_entry (t, &rtxg_cpu_tasks, all_node) {
		bool ready = !list_empty(&t->ready_node);
		int to;

		if (t->cpu != (int)cpu)
			continue;
		to = rtxg_cpu_least_loaded(t, rtxg_cpu_first(t)->saved_mask, cpu);
		if (to < 0)
			continue;
		if (ready)
			rtxg_cpu_edf_remove(t);
		if (!move(t, to)) {
			pr_info("rtxg: CPU %u goes, task %d moves to CPU %d\n", cpu,
				rtxg_cpu_first(t)->task->pid, to);
			t->params.cpu = to;
		}
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
int rtxg_cpu_configure(struct cpu_task *t, const struct rtxg_cpu_task *params)
{
	int err;

	rtxg_cpu_stop_clock(t);
	if (!list_empty(&t->ready_node))
		rtxg_cpu_edf_remove(t);
	t->params = *params;
	err = place(t);
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
		/* the first release sorts it in */
		t->priority = RELEASE_PRIORITY;
		if (rtxg_cpu_is_server(t))
			t->release_ns = ktime_get_ns();
		if (rtxg_cpu_is_server(t) || (t->started && !t->waiting))
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
