/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * latency.h - what latency.bpf.c and its reader (latency/kernel.c) share. Times are nanoseconds of
 * bpf_ktime_get_ns (CLOCK_MONOTONIC).
 */
#ifndef RTXG_BPF_LATENCY_H
#define RTXG_BPF_LATENCY_H

#include "../latency/event.h"

#define LATENCY_RING	   1024 /* events of one bank of one CPU */
#define LATENCY_STACKS	   32	/* stacks of one bank of one CPU */
#define LATENCY_STACK_DEEP 32
#define LATENCY_THREADS	   4096 /* measuring threads */

/* The first of the bins of a CPU, a class and a kind; one more than `bins` are the longer ones. */
#define LATENCY_BIN(cpu, of, kind, bins) \
	((((cpu)*LATENCY_CLASSES + (of)) * LATENCY_KINDS + (kind)) * ((bins) + 1))

/* Kinds of time that are counted. */
enum latency_kind {
	LATENCY_TIMER,	/* a timer's function ran after it was due */
	LATENCY_WAKEUP, /* from the wake-up to the switch to the task */
	LATENCY_TOTAL,	/* from the time at which the timer was due to the switch to the task */
	LATENCY_KINDS,
};

/* Whose they are. */
enum latency_class {
	LATENCY_OWN, /* the measuring threads */
	LATENCY_ALL, /* every other real-time task */
	LATENCY_CLASSES,
};

/* Sums of one CPU. */
struct latency_sum {
	unsigned long long count, sum_ns, min_ns, max_ns;
};

/* The last wake-up of a task, or the worst one of a CPU. */
struct latency_wake {
	unsigned long long due_ns; /* 0: no timer woke it */
	unsigned long long timer_ns, waking_ns, switch_ns;
	unsigned long long worst_ns; /* of a measuring thread so far; the reader stores 0 */
	int pid, prio, other, other_prio;
	int syscall; /* of the task itself */
	int cpu, timer_cpu;
	unsigned int count; /* written last: the reader sees whether it is whole */
	char comm[EVENT_COMM], other_comm[EVENT_COMM];
};

/*
 * The recorder of one CPU: two banks, of which one is written. A bank that is full (set by the one
 * who wants to keep it, cleared by the reader) is not written to.
 */
struct latency_control {
	unsigned int bank;
	unsigned int full[2];
	unsigned int watched; /* events of this CPU are recorded */
	unsigned int cpu;     /* its number: set before the run */
	unsigned int reserved;
	unsigned long long head[2];
	unsigned int stacks[2];
	unsigned long long worst_ns; /* of the other tasks that were kept; the reader stores 0 */
	unsigned long long untaken;  /* could not be kept: the other bank was still full */
	/* the timer function that runs now on this CPU; due_ns is 0 where none does */
	unsigned long long due_ns, timer_ns;
	struct latency_sum sums[LATENCY_CLASSES][LATENCY_KINDS];
} __attribute__((aligned(64))); /* no CPU writes to the memory of another one's cache */

struct latency_stack {
	unsigned long long ip[LATENCY_STACK_DEEP + 1]; /* 0 ends it */
};

/* Told by the ring buffer: another task than a measuring thread was late. */
struct latency_notice {
	struct latency_wake wake;
	unsigned int bank;
	unsigned int reserved;
};

#endif
