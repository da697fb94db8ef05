/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * rtxg_kmod.h - what the files of the module know of each other.
 *
 * Each file is one concern: dev.c (files and ioctls), irq.c (interrupts), cpu.c (CPU scheduling),
 * task.c (both sides at once), host.c (the core and its shared pages), front.c (objects, and what
 * people see), trace.c (the kernel's tracepoints). They meet here and in struct rtxg_file.
 */
#ifndef RTXG_KMOD_H
#define RTXG_KMOD_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/* One open file of /dev/rtxg. Everything that was asked for through it ends with it. */
struct rtxg_file {
	struct mutex lock; /* over the lists below; never taken in interrupts */
	struct list_head irqs;
	struct list_head tasks; /* under cpu.c's lock */
	u32 next_id;
	struct khost_task *entity; /* host.c: the file's GPU task, once there is one */
	/* host.c: why the core refused the last call on it; under host.objects */
	const char *refused;
	u64 refused_value, refused_limit;
	u32 seen; /* front.c: host.changes at the last listing of tasks */
};

/*
 * Copies a structure that begins with its size from user space: at least minimum bytes, at most
 * size; a longer one is taken if what is beyond is zero. 0 or negative errno.
 */
int rtxg_copy_in(void *to, size_t size, size_t minimum, const void __user *from);
/* Back: no more than the caller said it has room for. */
int rtxg_copy_out(void __user *to, const void *from, size_t size, u32 user_size);
bool rtxg_all_zero(const void *memory, size_t size);

/*
 * Tasks that wait for something, highest priority first. Woken with interrupts off and from the top
 * half, also on PREEMPT_RT: hence a raw lock, and no kernel wait queue.
 */
struct rtxg_waiters {
	raw_spinlock_t lock;
	struct list_head list;
};

struct rtxg_waiter {
	struct list_head node;
	struct task_struct *task;
	int priority; /* the kernel's: smaller is more important */
	/* waiting for the GPU since then (ktime_get_mono_fast_ns); 0: for something else */
	u64 since_ns;
	bool woken;
};

void rtxg_waiters_init(struct rtxg_waiters *waiters);
void rtxg_waiters_add(struct rtxg_waiters *waiters, struct rtxg_waiter *waiter);
void rtxg_waiters_remove(struct rtxg_waiters *waiters, struct rtxg_waiter *waiter);
/* Wakes at most limit waiters in order of priority; how many. */
unsigned int rtxg_waiters_wake(struct rtxg_waiters *waiters, unsigned int limit);
unsigned int rtxg_waiters_wake_locked(struct rtxg_waiters *waiters, unsigned int limit);
unsigned int rtxg_waiters_count(struct rtxg_waiters *waiters);

/* irq.c */
long rtxg_irq_ioctl(struct rtxg_file *file, unsigned int command, void __user *argument);
void rtxg_irq_release(struct rtxg_file *file);
int rtxg_irq_init(void);
void rtxg_irq_exit(void);
void rtxg_irq_traced_entry(unsigned int irq, void *dev_id);
void rtxg_irq_traced_exit(unsigned int irq, void *dev_id, int result);

/* cpu.c */
long rtxg_cpu_ioctl(struct rtxg_file *file, unsigned int command, void __user *argument);
void rtxg_cpu_release(struct rtxg_file *file);
int rtxg_cpu_init(void);
void rtxg_cpu_exit(void);
void rtxg_cpu_traced_switch(struct task_struct *prev, struct task_struct *next);
void rtxg_cpu_traced_fork(struct task_struct *parent, struct task_struct *child);
void rtxg_cpu_traced_exit(struct task_struct *task);
void rtxg_cpu_charge_gpu(struct task_struct *task, u64 since_ns);
/*
 * For task.c. What was attached is handed over; it is then kept, or detached again. Parameters are
 * checked, and completed.
 */
struct cpu_task;
struct rtxg_cpu_task;
int rtxg_cpu_attach(struct rtxg_file *file, struct rtxg_cpu_task *params,
		    struct cpu_task **attached);
void rtxg_cpu_attached(struct cpu_task *task, bool keep);
int rtxg_cpu_set(struct rtxg_cpu_task *params);

/* task.c */
long rtxg_task_ioctl(struct rtxg_file *file, unsigned int command, void __user *user);

/* host.c */
struct khost_task;
struct rtxg_host_open;
struct rtxg_host_set;
/* For task.c: a file's task is opened, changed, and made what it was. */
int rtxg_host_open(struct rtxg_file *file, struct rtxg_host_open *open);
int rtxg_host_set(struct rtxg_file *file, const struct rtxg_host_set *set,
		  struct rtxg_host_set *before);
void rtxg_host_set_back(struct rtxg_file *file, const struct rtxg_host_set *before);
struct poll_table_struct;
struct vm_area_struct;
long rtxg_host_ioctl(struct rtxg_file *file, unsigned int command, unsigned long argument);
int rtxg_host_mmap(struct rtxg_file *file, struct vm_area_struct *vma);
void rtxg_host_release(struct rtxg_file *file);
__poll_t rtxg_front_poll(struct file *file, struct rtxg_file *rtxg,
			 struct poll_table_struct *table);
int rtxg_host_init(void);
void rtxg_host_exit(void);

/*
 * trace.c: probes on tracepoints that the kernel has but does not export by name; process context
 */
enum rtxg_trace_set {
	RTXG_TRACE_IRQ,
	RTXG_TRACE_TASK, /* task switches, new threads, ends */
	RTXG_TRACE_SETS,
};
int rtxg_trace_need(enum rtxg_trace_set set);
void rtxg_trace_init(void);
void rtxg_trace_exit(void);

/* dev.c */
struct file;
struct rtxg_file *rtxg_file_of(struct file *file); /* NULL if it is none of ours */
int rtxg_dev_init(void);
void rtxg_dev_exit(void);

#endif
