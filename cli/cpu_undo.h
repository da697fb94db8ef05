/* SPDX-License-Identifier: MIT */
/*
 * cpu_undo.h - applies CPU settings, and takes them back.
 */
#ifndef RTXG_CLI_CPU_UNDO_H
#define RTXG_CLI_CPU_UNDO_H

#include <stdbool.h>
#include <sys/types.h>

#include "cpu_policy.h"

struct cpu_undo;

/*
 * Applies settings to a thread (0: the caller). Negative errno after saying what the machine
 * forbids, and the remedy.
 */
int cpu_apply(pid_t pid, const struct cpu_settings *settings);
/* The same for all threads of a process; on failure no thread has changed. */
int cpu_apply_process(pid_t pid, const struct cpu_settings *settings, struct cpu_undo **undo);
/* With back, makes what cpu_apply_process changed what it was. Frees undo; NULL is accepted. */
void cpu_undo(struct cpu_undo *undo, bool back);

#endif
