/* SPDX-License-Identifier: MIT */
/*
 * cpu_module.h - CPU policies by the kernel module.
 */
#ifndef RTXG_CLI_CPU_MODULE_H
#define RTXG_CLI_CPU_MODULE_H

#include <stdbool.h>
#include <sys/types.h>

#include "cpu_policy.h"

struct rtxg_cpu_task;
struct rtxg_cpu_stats;

/*
 * What the module knows of a thread; stats may be NULL. Negative errno, without a word. -ENOENT:
 * the module does not schedule the thread, or is not loaded.
 */
int cpu_module_read(pid_t pid, struct rtxg_cpu_task *task, struct rtxg_cpu_stats *stats);
int cpu_module_policy(const struct rtxg_cpu_task *task);
/*
 * Attaches a task, or changes one that is attached. before, if not NULL, receives what it was;
 * before->size is 0 if it was not attached. Negative errno after complaining.
 */
int cpu_module_apply(pid_t pid, const struct cpu_settings *settings, struct rtxg_cpu_task *before);
/* Detaches a task, if it is attached. */
void cpu_module_detach(pid_t pid);
/* Makes a task what it was. attached: the module has it now. Negative errno, without a word. */
int cpu_module_put_back(const struct rtxg_cpu_task *before, bool attached);
/* Fills in what an attached task has, where nothing else was asked for. */
void cpu_module_inherit(pid_t pid, struct cpu_settings *settings);

#endif
