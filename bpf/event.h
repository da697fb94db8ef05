/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * event.h - what happened on one CPU, decoded: from the BPF program (latency.bpf.c), or from a
 * trace in text. Times are nanoseconds of one clock. No types of libc: BPF includes it too.
 */
#ifndef RTXG_BPF_EVENT_H
#define RTXG_BPF_EVENT_H

enum event_type {
	EVENT_NONE,
	EVENT_SWITCH, /* from task `other` to task `pid` */
	/*
	 * Task `pid` is about to be woken. If a timer does it and was late: `other` is
	 * EVENT_FROM_*, and `arg` has the 8 bytes of code before the place that its interrupt came
	 * in (x86).
	 */
	EVENT_WAKING,
	EVENT_WAKEUP, /* task `pid` is runnable */
	EVENT_TIMER,  /* a timer's function begins; `arg` is when it was due (0: unknown) */
	EVENT_TIMER_DONE,
	EVENT_IRQ, /* a driver's handler `name` of interrupt `arg` */
	EVENT_IRQ_DONE,
	EVENT_VECTOR, /* an interrupt that no driver owns: `arg` is its vector, `name` perhaps "" */
	EVENT_VECTOR_DONE,
	EVENT_SOFTIRQ, /* `arg` is its number */
	EVENT_SOFTIRQ_DONE,
	EVENT_NMI,  /* one has ended that took `arg` ns */
	EVENT_IDLE, /* enters the idle state `arg` */
	EVENT_IDLE_END,
	EVENT_SYSCALL, /* the context enters system call `arg` */
	EVENT_SYSCALL_END,
	EVENT_FUNCTION, /* the context enters the kernel function `name`, called by `parent` */
	EVENT_RAN,	/* the context measured itself that it ran `arg` ns after it was to */
	EVENT_PRIO,	/* a lock gives task `pid` the priority `prio`, or takes it back */
};

/* In place of a system call's number. */
#define EVENT_IN_USER	(-1) /* runs its own code */
#define EVENT_IN_KERNEL (-2) /* a kernel thread */
#define EVENT_NOT_KNOWN (-3)

/* What a late timer interrupted. */
#define EVENT_FROM_USER	  1
#define EVENT_FROM_KERNEL 2

#define EVENT_NAME	 32
#define EVENT_COMM	 16
#define EVENT_NO_PRIO	 (-100) /* the trace does not say */
#define EVENT_PRIO_LEAST 99 /* kernel priorities below 100 are real-time ones; 0 is the highest */

/*
 * Two cache lines. Most types write the first one alone, and a CPU that comes upon its recorder
 * again has lost it from its cache.
 */
struct event {
	unsigned long long ns;
	long long arg;
	int type;
	int context;	  /* the task that ran when it happened */
	int context_prio; /* its priority then */
	int pid, prio;
	int other, other_prio;
	int syscall;		     /* of the task that ran: its number, or EVENT_IN_* */
	int stack;		     /* index of the stack that was taken with it; -1: none */
	char name[EVENT_NAME];	     /* of the interrupt or function; of task `pid` */
	char other_name[EVENT_COMM]; /* of task `other`; of EVENT_FUNCTION the caller */
	char unused[24];
};

#endif
