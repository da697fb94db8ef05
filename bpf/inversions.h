/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * inversions.h - the priority inversions that inversions.bpf.c measures and inversions_run.c shows.
 * Times are nanoseconds of bpf_ktime_get_ns (CLOCK_MONOTONIC).
 */
#ifndef RTXG_BPF_INVERSIONS_H
#define RTXG_BPF_INVERSIONS_H

#define INV_SLOTS  32	/* of a histogram: slot n counts times of 2^n .. 2^(n+1)-1 ns */
#define INV_SHORT  5000 /* ns: the paper's bound for short ones */
#define INV_CPUS   1024
#define INV_IRQS   256
#define INV_READY  512
#define INV_RAISED 16 /* tasklets that are queued on a CPU at a time, a power of two */

/* Linux's count of priorities: smaller is higher, real-time ones are below 100 */
#define INV_ORDINARY 120

enum inv_kind {
	INV_TOP,   /* a top half runs, and a real-time task above its owner does not */
	INV_RUNS,  /* the same of a bottom half: a softirq, or a thread */
	INV_WAITS, /* a bottom half could run, and something below its owner does */
	INV_KINDS,
};

/* An interrupt that is looked at. */
struct inv_irq {
	unsigned int owner; /* a thread; 0: none is known yet */
	unsigned int named; /* it was named, and is not learned */
};

struct inv_key {
	unsigned int owner;
	unsigned int kind; /* enum inv_kind */
};

struct inv_stats {
	unsigned long long count, sum_ns, longest_ns, below; /* below: shorter than INV_SHORT */
	unsigned int slots[INV_SLOTS];
};

/* Something of an interrupt that runs on a CPU. */
struct inv_work {
	unsigned int irq;
	unsigned int on;
	unsigned long long since_ns;
};

/*
 * Tasklets that were queued on a CPU, in that order: the interrupt of each; 0: none that is looked
 * at.
 */
struct inv_raised {
	unsigned int first, end; /* counts; what lies between them is queued */
	unsigned int irqs[INV_RAISED];
};

struct inv_cpu {
	unsigned int tid; /* what runs, whatever interrupts it */
	int prio;
	struct inv_work top, soft, thread;
	struct inv_raised raised, raised_high; /* as TASKLET_SOFTIRQ, and as HI_SOFTIRQ */
	unsigned int taken;    /* end of those that the softirq which runs has taken */
	unsigned int vector;   /* of that softirq, plus 1; 0: none runs */
	unsigned int in_top;   /* a top half runs, of whichever interrupt */
	unsigned int waiting;  /* threads of interrupts that wait here */
	unsigned int in_timer; /* a high-resolution timer's function runs */
};

/* A real-time task that could run. */
struct inv_ready {
	int prio;
	unsigned int cpu;
	unsigned long long since_ns;
};

/* A thread of an interrupt that could run. */
struct inv_pending {
	unsigned int irq;
	unsigned int cpu;
	unsigned long long
		lower_ns; /* something below its owner runs since then; 0: nothing does */
	unsigned long long sum_ns;
};

struct inv_owner {
	int prio;
	unsigned int ended; /* nothing keeps it waiting any more */
	char comm[16];
};

#endif
