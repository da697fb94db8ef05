/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cpu.h - CPU scheduling, as the rest of the module sees it.
 */
#ifndef RTXG_KMOD_CPU_H
#define RTXG_KMOD_CPU_H

#include <linux/list.h>
#include <linux/types.h>

#include "rtxg_cpu_inherit.h"

struct cpu_task;
struct rtxg_cpu_task;
struct rtxg_file;
struct task_struct;

long rtxg_cpu_ioctl(struct rtxg_file *file, unsigned int command, void __user *argument);
void rtxg_cpu_release(struct rtxg_file *file);
int rtxg_cpu_init(void);
void rtxg_cpu_exit(void);
/* A task that sleeps for its GPU since then is about to be woken; in any context. */
void rtxg_cpu_charge_gpu(struct task_struct *task, u64 since_ns);
/*
 * For task.c. What was attached is handed over; it is then kept, or detached again. Parameters are
 * checked, and completed.
 */
int rtxg_cpu_attach(struct rtxg_file *file, struct rtxg_cpu_task *params,
		    struct cpu_task **attached);
void rtxg_cpu_attached(struct cpu_task *task, bool keep);
int rtxg_cpu_set(struct rtxg_cpu_task *params);

/*
 * Kernel threads that run in a bandwidth server while nothing else says how they run. ERR_PTR:
 * -ENOSPC: not admitted.
 */
struct cpu_task *rtxg_cpu_server_begin(struct task_struct *const *threads, unsigned int count,
				       u32 priority, u64 runtime_ns, u64 period_ns);
/*
 * They run at that priority from now on; in the server, or lent to one that has a time of its own.
 */
void rtxg_cpu_server_set(struct cpu_task *t, u32 priority, bool lent);
/* How often its budget was used up. */
u64 rtxg_cpu_server_exhausted(struct cpu_task *t);
/* They are as they were, if they are there. */
void rtxg_cpu_server_end(struct cpu_task *t);

/*
 * A thread that may inherit a priority; one record for a thread. The caller serialises these calls.
 */
struct rtxg_cpu_heir {
	u32 wanted; /* set by the caller: it runs at no less than this; 0: inherits nothing */
	/* for inherit.c */
	struct list_head node;
	struct task_struct *thread;
	unsigned int users;
	struct rtxg_inherit_thread state;
};

/* Of the calling thread; NULL: no memory. */
struct rtxg_cpu_heir *rtxg_cpu_heir_get(void);
/* The last one that puts it ends what is inherited. */
void rtxg_cpu_heir_put(struct rtxg_cpu_heir *heir);
/* What the thread passes on to one that keeps it waiting. */
u32 rtxg_cpu_heir_passes(const struct rtxg_cpu_heir *heir);
/* Raises the thread to what is wanted, or puts its own priority back. */
void rtxg_cpu_heir_set(struct rtxg_cpu_heir *heir);

#endif
