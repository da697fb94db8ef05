/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * compat.h - where the kernels that rtxg.ko is built for differ, and nowhere else. Only kernel
 * interfaces; no policy.
 */
#ifndef RTXG_COMPAT_H
#define RTXG_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define rtxg_nr_irqs()					 irq_get_nr_irqs()
#define rtxg_hrtimer_setup(timer, function, clock, mode) hrtimer_setup(timer, function, clock, mode)
#else
#define rtxg_nr_irqs() ((unsigned int)nr_irqs)
static inline void rtxg_hrtimer_setup(struct hrtimer *timer,
				      enum hrtimer_restart (*function)(struct hrtimer *),
				      clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

/* what the tracepoint sched_process_exit says besides the task */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
#define RTXG_EXIT_PROBE_MORE , bool group_dead
#else
#define RTXG_EXIT_PROBE_MORE
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
#define RTXG_PF_USER_WORKER PF_USER_WORKER
#else
#define RTXG_PF_USER_WORKER 0
#endif

/* For how long at a time an ordinary task asked to run (sched_runtime); 0: as the kernel has it. */
static inline u64 rtxg_own_slice(const struct task_struct *task)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	return task->se.custom_slice ? task->se.slice : 0;
#else
	return 0;
#endif
}

static inline void rtxg_vm_flags(struct vm_area_struct *vma, unsigned long set, unsigned long clear)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags = (vma->vm_flags & ~clear) | set;
#endif
}

#endif
