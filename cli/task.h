/* SPDX-License-Identifier: MIT */
/*
 * task.h - the options by which a task is described, the same in `run` and `set`.
 */
#ifndef RTXG_CLI_TASK_H
#define RTXG_CLI_TASK_H

#include <stdint.h>

#include "command.h"
#include "cpu_policy.h"

/* Letters and options that `run` and `set` share. */
enum {
	OPT_CPU_POLICY = 1000,
	OPT_CPU_PRIORITY,
	OPT_CPU_RUNTIME,
	OPT_CPU_WCET,
	OPT_CPU_HARD,
	OPT_CPU_PARTITION,
	OPT_CPU_THREADS,
};

/* What a task asks for, on both sides. Zero: not asked for. */
struct task_settings {
	long priority;
	uint64_t runtime_ns, deadline_ns, period_ns; /* of a job on the GPU */
	struct cpu_settings cpu;
};

#define TASK_OPTIONS                                                                               \
	{ "priority", required_argument, NULL, 'p' }, { "runtime", required_argument, NULL, 'T' }, \
		{ "deadline", required_argument, NULL, 'D' },                                      \
		{ "period", required_argument, NULL, 'P' },                                        \
		{ "affinity", required_argument, NULL, 'c' },                                      \
		{ "cpu-policy", required_argument, NULL, OPT_CPU_POLICY },                         \
		{ "cpu-priority", required_argument, NULL, OPT_CPU_PRIORITY },                     \
		{ "cpu-runtime", required_argument, NULL, OPT_CPU_RUNTIME },                       \
		{ "cpu-wcet", required_argument, NULL, OPT_CPU_WCET },                             \
		{ "cpu-hard", no_argument, NULL, OPT_CPU_HARD },                                   \
		{ "cpu-partition", required_argument, NULL, OPT_CPU_PARTITION },                   \
	{                                                                                          \
		"cpu-threads", required_argument, NULL, OPT_CPU_THREADS                            \
	}
#define TASK_LETTERS "T:D:P:c:"
#define TASK_HELP_CPU                                                                             \
	"CPU:\n"                                                                                  \
	"     --cpu-policy NAME  fifo, rr, deadline, other, batch, idle; with the kernel module " \
	"also fp, rm, edf\n"                                                                      \
	"     --cpu-priority N   of fifo and rr, 1..99; of fp, 1..97\n"                           \
	"     --cpu-runtime TIME of deadline; of fp, rm, edf a budget for each period. Period "   \
	"and deadline are those "                                                                 \
	"above\n"                                                                                 \
	"     --cpu-hard         the budget used up, not to run at all until the next period "    \
	"(else: in the "                                                                          \
	"background)\n"                                                                           \
	"     --cpu-wcet TIME    CPU time that a job needs at most, where it has no budget: for " \
	"admission\n"                                                                             \
	"     --cpu-partition CPU  to stay on that CPU; 'auto': the least loaded one\n"           \
	"     --cpu-threads WHICH  fp, rm, edf: 'all', the process is one task (default), or "    \
	"'first'\n"                                                                               \
	" -c, --affinity LIST    CPUs it may run on, as 0-3,6\n\n"

/* 0: taken; 1: not one of these options; negative errno after complaining. */
int task_option(struct task_settings *task, int letter);
/* Whether the values fit together; completes task->cpu. Complains. */
int task_check(struct task_settings *task);

#endif
