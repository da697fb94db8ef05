// SPDX-License-Identifier: GPL-2.0-only
/*
 * worker.c - two kernel threads above all others: the enforcer moves tasks whose budget is used up
 * or replenished, the keeper takes threads in and lets them go. They are kicked from where neither
 * may happen. May not: know what they do.
 */
#include <linux/kthread.h>
#include <linux/sched/signal.h>

#include "internal.h"
#include "rtxg_cpu_serve.h"

struct worker {
	struct task_struct *task;
	atomic_t flag;
	void (*work)(void);
	const char *name;
};

static struct worker workers[RTXG_CPU_WORKERS] = {
	[RTXG_CPU_ENFORCER] = { .name = "rtxg_enforce" },
	[RTXG_CPU_KEEPER] = { .name = "rtxg_keeper" },
};

void rtxg_cpu_kick(enum rtxg_cpu_worker which)
{
	atomic_set(&workers[which].flag, 1);
	wake_up_process(workers[which].task);
}

static int worker_main(void *argument)
{
	struct worker *worker = argument;

	while (!kthread_should_stop()) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (!atomic_xchg(&worker->flag, 0)) {
			if (!kthread_should_stop())
				schedule();
			__set_current_state(TASK_RUNNING);
			continue;
		}
		__set_current_state(TASK_RUNNING);
		worker->work();
	}
	return 0;
}

static int start(struct worker *worker, void (*work)(void))
{
	struct sched_attr attr = { .size = sizeof(attr),
				   .sched_policy = SCHED_FIFO,
				   .sched_priority = RTXG_SERVE_HOST };
	struct task_struct *task = kthread_create(worker_main, worker, "%s", worker->name);

	if (IS_ERR(task))
		return PTR_ERR(task);
	worker->work = work;
	worker->task = task;
	sched_setattr_nocheck(task, &attr);
	wake_up_process(task);
	return 0;
}

int rtxg_cpu_workers_start(void (*enforce)(void), void (*keep)(void))
{
	int err = start(&workers[RTXG_CPU_ENFORCER], enforce);

	if (err)
		return err;
	err = start(&workers[RTXG_CPU_KEEPER], keep);
	if (err)
		kthread_stop(workers[RTXG_CPU_ENFORCER].task);
	return err;
}

void rtxg_cpu_workers_stop(void)
{
	kthread_stop(workers[RTXG_CPU_KEEPER].task);
	kthread_stop(workers[RTXG_CPU_ENFORCER].task);
}
