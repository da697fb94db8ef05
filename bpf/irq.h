/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * irq.h - what irq.bpf.c counts and irq.c shows. Times are nanoseconds of bpf_ktime_get_ns (CLOCK_MONOTONIC).
 */
#ifndef RTXG_BPF_IRQ_H
#define RTXG_BPF_IRQ_H

#define IRQ_NAME 32
#define IRQ_SLOTS 32 /* of a histogram: slot n counts times of 2^n .. 2^(n+1)-1 ns */
#define IRQ_MAX 1024

struct irq_counts {
	char name[IRQ_NAME];    /* as the driver gave it */
	unsigned long long entries;
	unsigned long long handled;
	unsigned long long handler_ns; /* the driver's top half */
	unsigned long long handler_max_ns;
	unsigned long long woken;      /* tasks that the top half woke */
	unsigned long long ran;        /* of them, those seen to run */
	unsigned long long latency_ns; /* from the top half's entry to the woken task running */
	unsigned long long latency_max_ns;
	unsigned long long softirqs;   /* runs of softirqs that followed the interrupt on its CPU */
	unsigned int handler_slots[IRQ_SLOTS];
	unsigned int latency_slots[IRQ_SLOTS];
};

/* One interrupt on its way, on one CPU. */
struct irq_now {
	unsigned int irq;
	unsigned int inside; /* between entry and exit of the top half */
	unsigned long long entered_ns;
};

/* A task that a top half woke and that has not run yet. */
struct irq_waking {
	unsigned int irq;
	unsigned int reserved;
	unsigned long long entered_ns;
};

#endif
