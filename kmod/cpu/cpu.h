/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cpu.h - CPU scheduling, as the rest of the module sees it.
 */
#ifndef RTXG_KMOD_CPU_H
#define RTXG_KMOD_CPU_H

#include <linux/types.h>

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

#endif
