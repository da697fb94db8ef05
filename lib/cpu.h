/* SPDX-License-Identifier: MIT */
/*
 * cpu.h - the calling thread's CPU task, as the calls for both sides see it. Not installed.
 */
#ifndef RTX_LIB_CPU_H
#define RTX_LIB_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "rtxg/cpu.h"
#include "rtxg_cpu.h"

/* a cluster within the first 1024 CPUs */
#define RTX_LIB_CPU_SET_WORDS 16

struct cpu_thread {
	int fd; /* 0: none. Standard input is never ours */
	bool attached;
	bool outside; /* by another process (`rtxg run`), which also ends it */
	struct rtxg_cpu_task task;
	uint64_t set[RTX_LIB_CPU_SET_WORDS]; /* of its cluster */
};

/* The CPU's side of a task, asked for together with the GPU's: rtx_task_open, rtx_task_set. */
struct cpu_request {
	struct rtxg_cpu_task *task;
	const struct rtxg_cpu_task *before; /* set: what it was */
	int file;			    /* of /dev/rtxg, to own it */
	bool done;			    /* the transport did both at once */
	bool refused;			    /* it was this side that was refused */
};

struct cpu_thread *rtx_lib_cpu_thread(void);
/* A call to the module on the thread's file, without words for its error. */
int rtx_lib_cpu_call(unsigned long command, void *argument);
int rtx_lib_cpu_explain(int ret, const struct rtxg_cpu_task *task, const char *what);
int rtx_lib_cpu_check(enum rtx_cpu_scheduler scheduler, unsigned int flags);
bool rtx_lib_cpu_take_over(void);
void rtx_lib_cpu_end(void);
/*
 * Around a wait for the GPU that the host does not know: rtx_cpu_wait_for_gpu without words for its
 * error.
 */
int rtx_lib_cpu_waits_for_gpu(bool on);
/* What is not said of the CPU's side is as on the GPU's. */
void rtx_lib_cpu_complete(struct rtxg_cpu_task *task, const struct rtx_gpu_options *gpu);

#endif
