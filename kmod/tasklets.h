/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * tasklets.h - tasklets of a driver's interrupt that run in a thread of ours: see tasklets.c.
 */
#ifndef RTXG_KMOD_TASKLETS_H
#define RTXG_KMOD_TASKLETS_H

#include <linux/types.h>

struct rtxg_hook;
struct rtxg_tasklets;
struct task_struct;

struct rtxg_tasklets_user {
	/*
	 * Whether the thread is to run it, and not the kernel here and now. In any context, under
	 * RCU.
	 */
	bool (*takes)(void *user);
	/* The thread is about to run one. */
	void (*runs)(void *user);
};

/*
 * From now on what the hook's handler schedules, and what these tasklets schedule, is run by a
 * thread of ours. In process context. ERR_PTR: -EBUSY: another has patched the kernel's function;
 * -EOPNOTSUPP: this kernel has no function tracer.
 */
struct rtxg_tasklets *rtxg_tasklets_begin(const struct rtxg_hook *hook,
					  const struct rtxg_tasklets_user *calls, void *user);
/* Its thread, for as long as it is not ended. */
struct task_struct *rtxg_tasklets_thread(const struct rtxg_tasklets *tasklets);
/* How many it has run. */
u64 rtxg_tasklets_count(const struct rtxg_tasklets *tasklets);
/* The kernel runs what is left, and what comes. */
void rtxg_tasklets_end(struct rtxg_tasklets *tasklets);
/* The module goes. */
void rtxg_tasklets_exit(void);

#endif
