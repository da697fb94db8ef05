/* SPDX-License-Identifier: MIT */
/*
 * blame.h - what made a task late: a pure function over decoded events.
 *
 * The time between the point at which a task was to wake and the moment at which it runs is cut at
 * each event of its CPU. Each piece is put down to what the CPU did in it, the innermost first:
 * NMI, interrupt, softirq, task. So the parts add up to the whole latency, exactly.
 *
 * The method is that of OSADL (Emde, "Accelerated graphics with real-time", 2021): find the point
 * at which the task gave up the CPU, add its period, look at what ran instead of it.
 */
#ifndef RTXG_LATENCY_BLAME_H
#define RTXG_LATENCY_BLAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../bpf/event.h"

#define BLAME_PARTS 24

enum blame_kind {
	BLAME_UNSEEN,  /* before the first event, or on another CPU */
	BLAME_HELD,    /* the timer's interrupt was held off by a task in the kernel */
	BLAME_STALLED, /* the same, but interrupts were on: the CPU stood still */
	BLAME_OUTSIDE, /* the same, while user code ran: nothing of the kernel could hold it off */
	BLAME_IDLE,    /* the timer was late on an idle CPU */
	BLAME_INTERRUPT, /* a driver's handler, or another interrupt than the timer's */
	BLAME_NMI,
	BLAME_SOFTIRQ,
	BLAME_TIMER,	  /* the timer's interrupt itself, up to the wake-up and its end */
	BLAME_PREEMPTION, /* runnable, but a task of lower priority went on in the kernel */
	BLAME_HIGHER,	  /* runnable, but a task of the same or a higher priority ran */
	BLAME_TURN,	  /* runnable without a real-time policy, and another such task ran */
	BLAME_WAKE_IDLE,  /* runnable, and the CPU left its idle loop */
	BLAME_SWITCH,	  /* the scheduler's change to the task, and its way back to user space */
	BLAME_SELF,	  /* it had not slept: its last cycle still ran, or its CPU stood still */
	BLAME_KINDS,
};

struct blame_part {
	enum blame_kind kind;
	uint64_t ns;
	int pid, prio;		/* of the task that ran */
	int syscall;		/* of that task, or EVENT_IN_* */
	char name[EVENT_NAME];	/* of the interrupt, softirq or task */
	char where[EVENT_NAME]; /* the kernel function; empty where it is not known */
	int stack;		/* as in struct event */
	uint64_t stack_ns;	/* when that stack was taken */
};

struct blame_case {
	int pid; /* the task that was late */
	/* When it was to wake; 0: the end of its last run before ran_ns, and interval_ns later. */
	uint64_t expected_ns;
	uint64_t interval_ns;
	/* When it ran; 0: its first event after the last switch to it. */
	uint64_t ran_ns;
	/* When its timer fired and it was woken, where another CPU did it; 0: these events tell. */
	uint64_t timer_ns, woken_ns;
	bool whole; /* the first event is the first one after expected_ns */
	bool here;  /* this CPU woke it, also where no event tells */
	bool awake; /* it had not slept: it was runnable all the time */
	/*
	 * Parts of the time from before_ns to the first event, if the task was woken before and
	 * more happened than there are events of. Of tasks they have the kind BLAME_PREEMPTION.
	 */
	const struct blame_part *before;
	int before_count;
	uint64_t before_ns;
};

struct blame {
	uint64_t expected_ns, timer_ns, woken_ns, switched_ns, ran_ns; /* 0: not seen */
	uint64_t latency_ns;					       /* ran_ns - expected_ns */
	bool elsewhere;	      /* another CPU woke it: what that did is not seen */
	uint64_t observed_ns; /* from the end of its last run to ran_ns; 0: not seen */
	struct blame_part parts[BLAME_PARTS]; /* the longest first; their sum is latency_ns */
	int count;
	/* whom it followed on the CPU: the OSADL record */
	int pid, prio;
	char name[EVENT_COMM];
	int before, before_prio;
	char before_name[EVENT_COMM];
	int syscall; /* of the task that was late */
};

/*
 * Events of one CPU in the order of their times. 0; -ESRCH if the task was not switched to and
 * ran_ns is 0, -ERANGE if it did not run before and neither expected_ns nor an interval says when
 * it was to wake, -EINVAL if it ran before it was to.
 */
int blame_find(const struct event *events, size_t count, const struct blame_case *c,
	       struct blame *out);

/*
 * Shares of the parts in tenths of a percent: their sum is 1000. `out` has room for b->count.
 */
void blame_shares(const struct blame *b, int *out);

/* A part in words, as "interrupt nvidia" or "preemption off: Xorg in drm_ioctl". */
char *blame_words(const struct blame_part *part, char *text, size_t size);

/*
 * OSADL's record: PID Prio Latency (timer,wake-up) Command <- PID Prio Command Timestamp Syscall.
 * Times in us; priorities as there: 99 is the highest real-time one, an ordinary task has -21.
 */
char *blame_record(const struct blame *b, const char *syscall, char *text, size_t size);

/* A kernel priority (0 the highest) as in the record. */
int blame_priority(int prio);

const char *blame_softirq(long long number);

#endif
