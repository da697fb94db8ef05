/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * irq.h - the counts that irq.bpf.c makes and irq.c shows. Times are nanoseconds of
 * bpf_ktime_get_ns (CLOCK_MONOTONIC).
 */
#ifndef RTXG_BPF_IRQ_H
#define RTXG_BPF_IRQ_H

#define IRQ_NAME  32
#define IRQ_SLOTS 32 /* of a histogram: slot n counts times of 2^n .. 2^(n+1)-1 ns */
#define IRQ_MAX	  1024

/* What an interrupt's work woke, by the kind of thread. */
enum { IRQ_PROGRAMS, IRQ_THREADS, IRQ_WORKERS, IRQ_KINDS };

struct irq_times {
	unsigned long long count, sum_ns, min_ns, max_ns;
};

struct irq_counts {
	char name[IRQ_NAME]; /* as the driver gave it */
	unsigned long long entries;
	unsigned long long handled;
	unsigned long long handler_ns; /* the driver's top half */
	unsigned long long handler_max_ns;
	unsigned long long handler_min_ns;
	unsigned long long woken; /* tasks that the top half woke */
	unsigned long long ran;	  /* of them, those seen to run */
	/* from the top half's entry to the woken task running */
	unsigned long long latency_ns;
	unsigned long long latency_max_ns;
	/* the same by kind, with threads of the kernel that such a thread or the softirq woke */
	struct irq_times reached[IRQ_KINDS];
	/* runs of softirqs that followed the interrupt on its CPU */
	unsigned long long softirqs;
	/* dma_fences signalled by its top half, its softirq, or a task that it woke */
	unsigned long long fences;
	/* of them, from being emitted to being signalled: how long the device took */
	unsigned long long fence_busy_ns;
	unsigned long long fence_emits; /* of them, those seen to be emitted */
	/* tasks that slept for one of these fences and were seen to go on */
	unsigned long long fence_waits;
	/* from the top half's entry to such a task going on */
	unsigned long long fence_wait_ns;
	unsigned long long fence_wait_max_ns;
	unsigned int handler_slots[IRQ_SLOTS];
	unsigned int latency_slots[IRQ_SLOTS];
	unsigned int fence_slots[IRQ_SLOTS]; /* of fence_wait_ns */
};

/* All dma_fences of the machine, of every driver. */
struct irq_fences {
	unsigned long long emitted;
	unsigned long long signalled;
	unsigned long long attributed; /* of them, to a chosen interrupt */
	unsigned long long waits;      /* waits begun by tasks */
};

/* Something that runs because of an interrupt. */
struct irq_cause {
	unsigned int irq;
	unsigned int on;	       /* it runs now */
	unsigned long long entered_ns; /* when the top half was entered */
};

/* What one CPU does for chosen interrupts; the first of these that is on has the processor. */
struct irq_now {
	struct irq_cause top;  /* a top half */
	struct irq_cause soft; /* the softirq that followed one */
	struct irq_cause task; /* a kernel thread that one woke, until it is switched out */
	unsigned int task_depth;
	unsigned int unfollowed; /* no softirq has come since the last top half */
	/* the last top half asked for its thread, which the kernel wakes just after it */
	unsigned int wakes_thread;
	unsigned int reserved;
};

#define IRQ_DEPTH 2 /* a top half wakes its thread, that a worker: no further */

/* A task that a top half woke and that has not run yet. */
struct irq_waking {
	unsigned int irq;
	/*
	 * 0: woken by the top half; else a kernel thread, woken by the softirq (1) or by another
	 * kernel thread of that interrupt
	 */
	unsigned int depth;
	unsigned long long entered_ns;
};

/* A fence on its way: emitted, then signalled by an interrupt (or not: then irq_known is 0). */
struct irq_fence {
	unsigned int irq;
	unsigned int irq_known;
	unsigned long long emitted_ns;
	unsigned long long signalled_ns; /* 0 before */
	unsigned long long entered_ns;	 /* of the top half that caused it */
};

/* A task that waits for a fence. */
struct irq_fence_wait {
	unsigned long long fence;
	unsigned long long began_ns;
};

#endif
