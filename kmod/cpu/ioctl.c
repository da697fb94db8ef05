// SPDX-License-Identifier: GPL-2.0-only
/*
 * ioctl.c - the calls of rtxg/cpu.h, after RESCH, and the beginning and end of CPU scheduling. May
 * not: do more than check what was asked for and hand it on.
 */
#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "../trace.h"
#include "../user.h"
#include "internal.h"

static int hotplug_state;

static struct rtxg_probe probes[] = {
	{ "sched_switch", rtxg_cpu_probe_switch },
	{ "sched_process_fork", rtxg_cpu_probe_fork },
	{ "sched_process_exit", rtxg_cpu_probe_exit },
	{},
};

static long cpu_attach(struct rtxg_file *file, struct rtxg_cpu_task __user *user)
{
	struct rtxg_cpu_task params;
	struct cpu_task *t;
	int err;

	err = rtxg_copy_in(&params, sizeof(params), sizeof(params), user);
	if (!err)
		err = rtxg_cpu_attach(file, &params, &t);
	if (err)
		return err;
	rtxg_cpu_attached(t, true);
	return rtxg_copy_out(user, &params, sizeof(params), params.size);
}

int rtxg_cpu_set(struct rtxg_cpu_task *params)
{
	const u32 kept = RTXG_CPU_F_STAY | RTXG_CPU_F_PROCESS;
	struct cpu_candidates candidates = {};
	struct rtxg_cpu_task before;
	struct cpumask *set, *was;
	const struct cpumask *wanted, *held = NULL;
	struct cpu_thread *th;
	struct cpu_task *t;
	int err, chosen;

	err = rtxg_cpu_check(params);
	if (err)
		return err;
	if (!capable(CAP_SYS_NICE))
		return -EPERM;
	err = rtxg_cpu_copy_set(params, &set);
	if (err)
		return err;
	was = kmalloc(cpumask_size(), GFP_KERNEL_ACCOUNT);
	th = was ? rtxg_cpu_get_thread(params->pid, RTXG_CPU_CHANGE) : ERR_PTR(-ENOMEM);
	if (IS_ERR(th)) {
		kfree(set);
		kfree(was);
		return PTR_ERR(th);
	}
	t = th->group;
	wanted = set;
	mutex_lock(&rtxg_cpu_admission_lock);
	cpus_read_lock();
	rt_mutex_lock(&rtxg_cpu_lock);
	before = t->params;
	cpumask_copy(was, t->domain);
	rt_mutex_unlock(&rtxg_cpu_lock);
	if (before.flags & RTXG_CPU_F_CLUSTER)
		held = was;
	/* a cluster that is not named is the one that the task has */
	if (params->flags & RTXG_CPU_F_CLUSTER && !set)
		wanted = held;
	params->flags = (params->flags & ~kept) | (before.flags & kept);
	err = rtxg_cpu_check(params);
	if (!err)
		err = rtxg_cpu_try(&candidates, t, params, wanted, th->saved_mask, &chosen);
	rt_mutex_lock(&rtxg_cpu_lock);
	if (t->detached)
		err = -ENOENT;
	if (!err) {
		int cpu = t->cpu;

		t->chosen = chosen;
		err = rtxg_cpu_configure(t, params, wanted);
		/* refused by the kernel: back to what it was, and where */
		if (err) {
			t->chosen = cpu;
			rtxg_cpu_configure(t, &before, held);
		} else if (before.policy == RTXG_CPU_RM) {
			rtxg_cpu_rank_all();
		}
		/* the children that it has, from now on */
		if (!err && params->flags & ~before.flags & RTXG_CPU_F_CHILDREN) {
			WRITE_ONCE(t->adopt, true);
			rtxg_cpu_kick(RTXG_CPU_KEEPER);
		}
		rtxg_cpu_tell(t, params);
	}
	rt_mutex_unlock(&rtxg_cpu_lock);
	cpus_read_unlock();
	mutex_unlock(&rtxg_cpu_admission_lock);
	rtxg_cpu_end_try(&candidates);
	rtxg_cpu_put_thread(th);
	kfree(set);
	kfree(was);
	return err;
}

static long cpu_set(struct rtxg_cpu_task __user *user)
{
	struct rtxg_cpu_task params;
	int err;

	err = rtxg_copy_in(&params, sizeof(params), sizeof(params), user);
	if (!err)
		err = rtxg_cpu_set(&params);
	return err ?: rtxg_copy_out(user, &params, sizeof(params), params.size);
}

/* What admission would say, and why: changes nothing. */
static long cpu_admission(struct rtxg_cpu_admission __user *user)
{
	struct rtxg_cpu_admission answer;
	struct cpu_candidates c = {};
	struct rtxg_cpu_task params;
	struct task_struct *task;
	struct cpu_thread *th;
	struct cpumask *set = NULL;
	cpumask_var_t mask;
	int err, chosen;

	err = rtxg_copy_in(&answer, sizeof(answer), sizeof(answer), user);
	if (!err && !rtxg_all_zero(answer.reserved, sizeof(answer.reserved)))
		err = -EINVAL;
	if (!err)
		err = rtxg_copy_in(&params, sizeof(params), sizeof(params),
				   u64_to_user_ptr(answer.task));
	if (!err)
		err = rtxg_cpu_check(&params);
	if (!err && !capable(CAP_SYS_NICE))
		err = -EPERM;
	if (!err)
		err = rtxg_cpu_copy_set(&params, &set);
	task = err ? NULL : rtxg_cpu_task_of(params.pid);
	if (!task) {
		kfree(set);
		return err ?: -ESRCH;
	}
	err = alloc_cpumask_var(&mask, GFP_KERNEL_ACCOUNT) ? 0 : -ENOMEM;
	if (err) {
		kfree(set);
		put_task_struct(task);
		return err;
	}
	cpumask_copy(mask, &task->cpus_mask);
	put_task_struct(task);
	th = rtxg_cpu_get_thread(params.pid, RTXG_CPU_CHANGE);
	if (!IS_ERR(th))
		cpumask_copy(mask, th->saved_mask);
	mutex_lock(&rtxg_cpu_admission_lock);
	cpus_read_lock();
	err = rtxg_cpu_try(&c, IS_ERR(th) ? NULL : th->group, &params, set, mask, &chosen);
	cpus_read_unlock();
	mutex_unlock(&rtxg_cpu_admission_lock);
	answer.test = err == -ENOSPC ? c.verdict.test : 0;
	answer.pid = c.pids && c.verdict.task < c.count ? c.pids[c.verdict.task] : 0;
	answer.cpu = c.verdict.cpu;
	answer.needed = c.verdict.needed;
	answer.there = c.verdict.there;
	if (!IS_ERR(th))
		rtxg_cpu_put_thread(th);
	rtxg_cpu_end_try(&c);
	free_cpumask_var(mask);
	kfree(set);
	return err && err != -ENOSPC ? err
				     : rtxg_copy_out(user, &answer, sizeof(answer), answer.size);
}

/* As much of a set as the caller has room for, and zero beyond the CPUs that can be. */
static int put_set(const struct rtxg_cpu_task *params, const struct cpumask *set)
{
	unsigned int size =
		min_t(unsigned int, params->set_size, rtxg_cpu_set_words() * sizeof(u64));
	void __user *to = u64_to_user_ptr(params->set);

	if (copy_to_user(to, cpumask_bits(set), size) ||
	    clear_user(to + size, params->set_size - size))
		return -EFAULT;
	return 0;
}

static long cpu_get(struct rtxg_cpu_task __user *user)
{
	struct rtxg_cpu_task params;
	struct cpu_thread *th;
	cpumask_var_t set;
	int err;

	err = rtxg_copy_in(&params, sizeof(params), sizeof(params), user);
	if (!err && (params.set_size % sizeof(u64) || params.set_size > PAGE_SIZE))
		err = -EINVAL;
	if (err)
		return err;
	if (!alloc_cpumask_var(&set, GFP_KERNEL_ACCOUNT))
		return -ENOMEM;
	th = rtxg_cpu_get_thread(params.pid, RTXG_CPU_LOOK);
	if (IS_ERR(th)) {
		free_cpumask_var(set);
		return PTR_ERR(th);
	}
	rt_mutex_lock(&rtxg_cpu_lock);
	rtxg_cpu_tell(th->group, &params);
	cpumask_copy(set, th->group->domain);
	rt_mutex_unlock(&rtxg_cpu_lock);
	rtxg_cpu_put_thread(th);
	err = put_set(&params, set);
	free_cpumask_var(set);
	return err ?: rtxg_copy_out(user, &params, sizeof(params), params.size);
}

static int cpu_reserve(struct cpu_task *t, bool on)
{
	if (t->params.policy == RTXG_CPU_DEADLINE || !t->params.runtime_ns)
		return -EINVAL;
	if (on == t->reserving)
		return -EALREADY;
	rtxg_cpu_stop_clock(t);
	rtxg_cpu_start_clock(t, on);
	t->reserving = on;
	return rtxg_cpu_apply(t);
}

static long cpu_pid(unsigned int command, struct rtxg_cpu_pid __user *user)
{
	struct rtxg_cpu_pid target;
	struct cpu_thread *th;
	struct cpu_task *t;
	long err;

	err = rtxg_copy_in(&target, sizeof(target), sizeof(target), user);
	if (err)
		return err;
	if (target.reserved || target.on > 1)
		return -EINVAL;
	if (command == RTXG_IOC_CPU_GPU_WAIT && target.pid)
		return -EINVAL;
	th = rtxg_cpu_get_thread(target.pid,
				 command == RTXG_IOC_CPU_WAKE_UP || command == RTXG_IOC_CPU_GPU_WAIT
					 ? RTXG_CPU_ITSELF
					 : RTXG_CPU_CHANGE);
	if (IS_ERR(th))
		return PTR_ERR(th);
	t = th->group;
	if (command == RTXG_IOC_CPU_WAKE_UP) {
		raw_spin_lock_irq(&th->sleepers.lock);
		th->wake_pending = true;
		rtxg_waiters_wake_locked(&th->sleepers);
		raw_spin_unlock_irq(&th->sleepers.lock);
	} else if (command == RTXG_IOC_CPU_GPU_WAIT) {
		err = rtxg_cpu_waits_for_gpu(th, target.on);
	} else if (command == RTXG_IOC_CPU_DETACH) {
		/* of two that detach the same task one does it */
		err = rtxg_cpu_detach(t) ? 0 : -ENOENT;
	} else {
		rt_mutex_lock(&rtxg_cpu_lock);
		if (t->detached) {
			err = -ENOENT;
		} else if (command == RTXG_IOC_CPU_BACKGROUND) {
			t->background = target.on;
			err = rtxg_cpu_apply(t);
		} else {
			err = cpu_reserve(t, target.on);
		}
		rt_mutex_unlock(&rtxg_cpu_lock);
	}
	rtxg_cpu_put_thread(th);
	return err;
}

static long cpu_stats(struct rtxg_cpu_stats __user *user)
{
	struct rtxg_cpu_stats stats;
	struct cpu_thread *th;
	struct cpu_task *t;
	long err;

	err = rtxg_copy_in(&stats, sizeof(stats), sizeof(stats), user);
	if (err)
		return err;
	if (!rtxg_all_zero(stats.reserved, sizeof(stats.reserved)))
		return -EINVAL;
	th = rtxg_cpu_get_thread(stats.pid, RTXG_CPU_LOOK);
	if (IS_ERR(th))
		return PTR_ERR(th);
	t = th->group;
	rt_mutex_lock(&rtxg_cpu_lock);
	raw_spin_lock_irq(&t->lock);
	rtxg_cpu_account(t, ktime_get_mono_fast_ns());
	stats.exec_ns = t->exec_ns;
	stats.throttles = t->throttles;
	stats.replenishments = t->replenishments;
	stats.budget_ns = t->budget.enforced ? t->budget.left_ns : 0;
	stats.gpu_charges = t->gpu_charges;
	stats.gpu_charged_ns = t->gpu_charged_ns;
	raw_spin_unlock_irq(&t->lock);
	stats.jobs = t->jobs;
	stats.misses = t->misses;
	stats.overruns = t->overruns;
	stats.max_exec_ns = t->max_exec_ns;
	stats.max_response_ns = t->max_response_ns;
	/* what it has, and not what it was given: the task, or another, may have set it since */
	stats.priority = th->task->policy == SCHED_FIFO ? th->task->rt_priority : 0;
	stats.cpu = t->cpu >= 0 && cpumask_equal(&th->task->cpus_mask, cpumask_of(t->cpu))
			    ? t->cpu
			    : task_cpu(th->task);
	rt_mutex_unlock(&rtxg_cpu_lock);
	rtxg_cpu_put_thread(th);
	return rtxg_copy_out(user, &stats, sizeof(stats), stats.size);
}

long rtxg_cpu_ioctl(struct rtxg_file *file, unsigned int command, void __user *argument)
{
	switch (command) {
	case RTXG_IOC_CPU_ATTACH:
		return cpu_attach(file, argument);
	case RTXG_IOC_CPU_SET:
		return cpu_set(argument);
	case RTXG_IOC_CPU_RUN:
	case RTXG_IOC_CPU_WAIT_PERIOD:
	case RTXG_IOC_CPU_WAIT_INTERVAL:
	case RTXG_IOC_CPU_SUSPEND:
		return rtxg_cpu_job(command, argument);
	case RTXG_IOC_CPU_DETACH:
	case RTXG_IOC_CPU_WAKE_UP:
	case RTXG_IOC_CPU_BACKGROUND:
	case RTXG_IOC_CPU_RESERVE:
	case RTXG_IOC_CPU_GPU_WAIT:
		return cpu_pid(command, argument);
	case RTXG_IOC_CPU_STATS:
		return cpu_stats(argument);
	case RTXG_IOC_CPU_GET:
		return cpu_get(argument);
	case RTXG_IOC_CPU_ADMISSION:
		return cpu_admission(argument);
	}
	return -ENOTTY;
}

int rtxg_cpu_init(void)
{
	int err;

	if (rtxg_cpu_tasks_max < 1 || rtxg_cpu_tasks_max > 1024) {
		pr_err("rtxg: max_cpu_tasks=%u must be 1..1024\n", rtxg_cpu_tasks_max);
		return -EINVAL;
	}
	hash_init(rtxg_cpu_threads);
	rtxg_trace_register(RTXG_TRACE_TASK, probes);
	rtxg_cpu_deadline_init();
	rt_mutex_init(&rtxg_cpu_lock);
	err = rtxg_cpu_policy_init();
	if (err)
		return err;
	err = rtxg_cpu_workers_start(rtxg_cpu_enforce, rtxg_cpu_keep);
	if (err) {
		rtxg_cpu_policy_exit();
		return err;
	}
	err = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "rtxg:cpu", NULL, rtxg_cpu_goes);
	if (err < 0) {
		rtxg_cpu_workers_stop();
		rtxg_cpu_policy_exit();
		return err;
	}
	hotplug_state = err;
	rtxg_cpu_add_work = symbol_get(task_work_add);
	return 0;
}

void rtxg_cpu_exit(void)
{
	cpuhp_remove_state_nocalls(hotplug_state);
	rtxg_cpu_workers_stop();
	if (rtxg_cpu_add_work)
		symbol_put(task_work_add);
	/*
	 * threads that let go of the module in park() have left it; tasks are freed after a grace
	 * period, by code of this module
	 */
	synchronize_rcu_tasks();
	rcu_barrier();
	rtxg_cpu_policy_exit();
}
