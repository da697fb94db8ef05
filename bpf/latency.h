/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * latency.h - what latency.bpf.c and its reader (latency/kernel.c) share. Times are nanoseconds of
 * bpf_ktime_get_ns (CLOCK_MONOTONIC).
 */
#ifndef RTXG_BPF_LATENCY_H
#define RTXG_BPF_LATENCY_H

#include "event.h"

#define LATENCY_RING	   1024 /* events of one bank of one CPU */
#define LATENCY_BANKS	   8	/* of one CPU at most */
#define LATENCY_STACKS	   32	/* stacks of one bank of one CPU */
#define LATENCY_STACK_DEEP 32
#define LATENCY_STACK_FEW  16	/* where it is likely not to be needed */
#define LATENCY_THREADS	   4096 /* measuring threads */
#define LATENCY_FOLDED	   32	/* tasks and interrupts */

/* The first of the bins of a CPU, a class and a kind; one more than `bins` are the longer ones. */
#define LATENCY_BIN(cpu, of, kind, bins) \
	((((cpu)*LATENCY_CLASSES + (of)) * LATENCY_KINDS + (kind)) * ((bins) + 1))

/* Microseconds, rounded down. To divide takes longer than all else that a count needs. */
static __attribute__((always_inline)) inline unsigned long long latency_us(unsigned long long ns)
{
	/* exact below 2^32: 2^38 / 1000, rounded up */
	return ns < 1ull << 32 ? ns * 274877907 >> 38 : ns / 1000;
}

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

/*
 * An event as it is recorded: one cache line, and what its type needs alone. latency/kernel.c makes
 * a struct event of it. An interrupt is recorded once, at its end.
 */
struct latency_record {
	unsigned long long ns;
	int context; /* the task that runs; of EVENT_SWITCH the one before */
	int pid;     /* of EVENT_*_DONE the number */
	short context_prio, prio;
	union {
		struct {
			short syscall;
			signed char stack;
			unsigned char type;
		};
		unsigned int word; /* these three at once */
	};
	long long arg; /* as in struct event; of EVENT_*_DONE when it began, 0: not known */
	union {
		char name[EVENT_NAME];
		struct {
			char comm[EVENT_COMM], other_comm[EVENT_COMM];
		};
		struct {
			char waking_comm[EVENT_COMM];
			int from;		   /* EVENT_FROM_* */
			unsigned long long due_ns; /* of its timer; 0: that has an event */
		};
	};
};

/* Of a record that is new: no stack, and no system call is known. Little-endian. */
#define LATENCY_WORD(type) \
	((unsigned int)(unsigned short)EVENT_NOT_KNOWN | 0xffu << 16 | (unsigned int)(type) << 24)

/* Sums of one CPU. */
struct latency_sum {
	unsigned long long count, sum_ns, min_ns, max_ns;
};

/* The last wake-up of a task, or the worst one of a CPU. */
struct latency_wake {
	unsigned long long due_ns; /* 0: no timer woke it */
	unsigned long long timer_ns, waking_ns, switch_ns;
	/* of the timer's interrupt: its first timer's function, and its end if that was seen */
	unsigned long long irq_ns, irq_end_ns;
	unsigned long long worst_ns;	/* of a measuring thread so far; the reader stores 0 */
	unsigned long long expected_ns; /* a measuring thread's next time, stored by itself */
	int pid, prio, other, other_prio;
	int syscall; /* of the task itself */
	int cpu, timer_cpu;
	char comm[EVENT_COMM], other_comm[EVENT_COMM]; /* other_comm only if it may be kept */
};

/* A wake-up that no switch to the task followed so far. */
struct latency_waking {
	unsigned long long due_ns, timer_ns, waking_ns; /* waking_ns 0: there is none */
	int cpu;
};

/*
 * Of a measuring thread. What the way from its timer to it needs comes first, and no line of a
 * cache has two threads.
 */
struct latency_own {
	struct latency_waking waking;
	unsigned int number;
	int counted; /* false: last is to be counted when the thread gives up the CPU */
	struct latency_wake last;
} __attribute__((aligned(64)));

/* A late wake-up on its way to the reader, with the bank that has what led to it. */
struct latency_late {
	unsigned int state; /* enum latency_late_state */
	int bank;	    /* -1: none was free */
	unsigned long long expected_ns, ran_ns;
	struct latency_wake wake;
};

enum latency_late_state {
	LATENCY_NONE,
	LATENCY_WRITTEN, /* by the one who was late */
	LATENCY_READY,
	LATENCY_READ, /* by the reader: it copies one at a time */
};

/*
 * The recorder of one CPU: banks, of which one is written. What each event needs is in the first
 * line of the cache.
 */
struct latency_control {
	unsigned int bank;
	unsigned int watched; /* events of this CPU are recorded */
	unsigned int cpu;     /* its number: set before the run */
	unsigned int place;   /* of its banks, among those of the CPUs that are watched */
	/*
	 * What its only measuring thread waits for, stored by that thread: what the CPU does before
	 * makes no wake-up late. 0: there is no such thread, and all is recorded.
	 */
	unsigned long long expected_ns;
	unsigned int own;	 /* the number of that thread */
	int own_pid;		 /* its thread ID; -1: there is no such thread */
	unsigned int uncounted;	 /* it ran since a wake-up was counted */
	unsigned int irq_number; /* which interrupt of the timer began at irq_first_ns */
	unsigned long long irq_first_ns;
	unsigned long long pending_ns;	/* its timer was due then, and it did not run since; 0 */
	unsigned long long recorded_ns; /* the expected_ns since which there are events */
	unsigned long long quiet_ns;	/* a timer that is not later tells nothing */
	unsigned long long kept_ns;	/* a wake-up that is not later is not kept */
	unsigned int fold_of;		/* see fold_ns */
	unsigned long long irq_ns;	/* when the interrupt that runs now began; 0: none does */
	unsigned long long fold_ns;	/* thread fold_of was woken here, and did not run since */
	unsigned long long frame_ns;	/* what it costs to walk a frame of a stack; 0: not known */
	unsigned long long softirq_ns;	/* when the softirq that runs now began, if before then */
	/* the timer function that runs now on this CPU; due_ns is 0 where none does */
	unsigned long long due_ns, timer_ns;
	unsigned long long begun_ns[LATENCY_BANKS]; /* the expected_ns since which a bank has all */
	unsigned long long head[LATENCY_BANKS];
	unsigned int stacks[LATENCY_BANKS];
	unsigned int used[LATENCY_BANKS];  /* is written or kept; the reader clears it */
	unsigned int order[LATENCY_BANKS]; /* the bank before has the number below */
	unsigned long long worst_ns;	   /* of the other tasks; the reader stores 0 */
	unsigned long long untaken;	   /* could not be kept: no bank was free */
	struct latency_late late[2];	   /* of the other tasks */
	struct latency_wake wake;	   /* of its only measuring thread */
	struct latency_sum sums[LATENCY_CLASSES][LATENCY_KINDS];
} __attribute__((aligned(64))); /* no CPU writes to the memory of another one's cache */

/*
 * What ran while a woken thread waited, of the events that newer ones have replaced: a latency may
 * have more of them than a bank. Of one bank.
 */
struct latency_fold {
	unsigned long long from_ns; /* the thread was woken; what is here belongs to that wake-up */
	unsigned long long begin_ns; /* the first of it */
	unsigned long long rest_ns;  /* for which there was no place */
	struct latency_folded {
		unsigned long long ns;
		int kind, id; /* enum latency_folded_kind, and the task or the number */
		short prio, syscall;
		char name[EVENT_NAME];
	} of[LATENCY_FOLDED];
};

enum latency_folded_kind {
	LATENCY_FOLD_TASK,
	LATENCY_FOLD_IRQ,
	LATENCY_FOLD_VECTOR,
	LATENCY_FOLD_SOFTIRQ,
};

/*
 * Where a task or interrupt is added; NULL without room. A loop over all would cost the verifier.
 */
static __attribute__((always_inline)) inline struct latency_folded *
latency_folded_place(struct latency_fold *f, int kind, int id)
{
	unsigned int at = (unsigned int)id * 31 + (unsigned int)kind;

	for (unsigned int i = 0; i < 4; i++) {
		struct latency_folded *one = &f->of[(at + i) % LATENCY_FOLDED];

		if (!one->ns || (one->kind == kind && one->id == id))
			return one;
	}
	return (struct latency_folded *)0;
}

/* Adds a piece of the time between two events. */
static __attribute__((always_inline)) inline void
latency_fold_piece(struct latency_fold *f, const struct latency_record *old,
		   const struct latency_record *next, int kind, int id, unsigned long long ns)
{
	struct latency_folded *one = latency_folded_place(f, kind, id);

	if (!one) {
		f->rest_ns += ns;
		return;
	}
	if (!one->ns) {
		one->kind = kind;
		one->id = id;
		one->prio = next->context_prio;
		one->syscall = next->syscall;
		one->name[0] = 0;
	}
	one->ns += ns;
	if (one->name[0])
		return;
	if (kind == LATENCY_FOLD_IRQ)
		__builtin_memcpy(one->name, next->name, EVENT_NAME);
	else if (kind == LATENCY_FOLD_TASK && next->type == EVENT_SWITCH)
		__builtin_memcpy(one->name, next->other_comm, EVENT_COMM);
	else if (kind == LATENCY_FOLD_TASK && old->type == EVENT_SWITCH)
		__builtin_memcpy(one->name, old->comm, EVENT_COMM);
}

/*
 * Adds the time from the oldest event to the next one to what ran in it, if the thread that waits
 * was woken before, at from_ns. A piece belongs to the context of its end, and what ends or begins
 * there tells an interrupt: what it interrupted ran until its beginning. `now` is of the event that
 * is going to be written: an interrupt may have written over the next one meanwhile.
 */
static __attribute__((always_inline)) inline void
latency_fold(struct latency_fold *f, const struct latency_record *old,
	     const struct latency_record *next, unsigned long long from_ns, unsigned long long now)
{
	unsigned long long begin = old->ns, irq = (unsigned long long)next->arg;
	int kind = LATENCY_FOLD_TASK, id = next->context;

	if (begin < from_ns || next->ns <= begin || next->ns >= now)
		return;
	if (f->from_ns != from_ns) {
		f->from_ns = from_ns;
		f->begin_ns = begin;
		f->rest_ns = 0;
		for (int i = 0; i < LATENCY_FOLDED; i++)
			f->of[i].ns = 0;
	}
	if (next->type == EVENT_SOFTIRQ_DONE) {
		kind = LATENCY_FOLD_SOFTIRQ;
		id = next->pid;
	} else if (old->type == EVENT_SOFTIRQ) {
		kind = LATENCY_FOLD_SOFTIRQ;
		id = (int)old->arg;
	}
	if (next->type == EVENT_IRQ_DONE || next->type == EVENT_VECTOR_DONE) {
		if (irq > begin && irq < next->ns) {
			latency_fold_piece(f, old, next, kind, id, irq - begin);
			begin = irq;
		}
		kind = next->type == EVENT_IRQ_DONE ? LATENCY_FOLD_IRQ : LATENCY_FOLD_VECTOR;
		id = next->pid;
	}
	latency_fold_piece(f, old, next, kind, id, next->ns - begin);
}

/*
 * Keeps the bank that is written: another one is written from now on. Returns its number, or -1 if
 * no other one is free. What interrupts it may do the same: each gets a bank of its own.
 */
static __attribute__((always_inline)) inline int latency_keep(struct latency_control *c,
							      unsigned int banks)
{
	for (unsigned int i = 0; i < LATENCY_BANKS && i < banks; i++) {
		if (__sync_val_compare_and_swap(&c->used[i], 0, 1))
			continue;
		c->head[i] = 0;
		c->stacks[i] = 0;
		c->begun_ns[i] = c->begun_ns[c->bank & (LATENCY_BANKS - 1)]; /* not from here on */
		c->order[i] = c->order[c->bank & (LATENCY_BANKS - 1)] + 1;
		return (int)__sync_lock_test_and_set(&c->bank, i);
	}
	__sync_fetch_and_add(&c->untaken, 1);
	return -1;
}

/*
 * Of two places the one for a wake-up that is later than those before it. Of these the reader wants
 * the latest alone: one that it has not begun to read is taken back, with its bank in *back, else
 * -1. As the reader reads one at a time, there is always a place.
 */
static __attribute__((always_inline)) inline struct latency_late *
latency_late_place(struct latency_late *late, int *back)
{
	*back = -1;
	for (unsigned int i = 0; i < 2; i++)
		if (__sync_val_compare_and_swap(&late[i].state, LATENCY_READY, LATENCY_WRITTEN) ==
		    LATENCY_READY) {
			*back = late[i].bank;
			return &late[i];
		}
	for (unsigned int i = 0; i < 2; i++)
		if (__sync_val_compare_and_swap(&late[i].state, LATENCY_NONE, LATENCY_WRITTEN) ==
		    LATENCY_NONE)
			return &late[i];
	return (struct latency_late *)0;
}

/* The local timer's interrupt of x86. */
#define LATENCY_LOCAL_TIMER 0xec

#define LATENCY_WAKE_RECORDS 3

/*
 * The records of a wake-up that was in time so far: none is written while nothing else happens.
 * `context` and its priority ran when the timer fired. Returns how many.
 */
static __attribute__((always_inline)) inline int
latency_wake_records(const struct latency_wake *wake, int context, int context_prio,
		     struct latency_record *to)
{
	int count = 1;

	to->ns = wake->waking_ns;
	to->context = context;
	to->context_prio = (short)context_prio;
	to->word = LATENCY_WORD(EVENT_WAKING);
	to->pid = wake->pid;
	to->prio = EVENT_NO_PRIO;
	to->arg = 0;
	to->from = 0;
	to->due_ns = wake->due_ns;
	to->waking_comm[0] = 0;
	if (wake->irq_end_ns > wake->waking_ns) {
		to++;
		count++;
		to->ns = wake->irq_end_ns;
		to->context = context;
		to->context_prio = (short)context_prio;
		to->word = LATENCY_WORD(EVENT_VECTOR_DONE);
		to->pid = LATENCY_LOCAL_TIMER;
		to->prio = EVENT_NO_PRIO;
		to->arg = (long long)wake->irq_ns;
	}
	if (wake->switch_ns > wake->waking_ns) {
		to++;
		count++;
		to->ns = wake->switch_ns;
		to->context = wake->other;
		to->context_prio = (short)wake->other_prio;
		to->word = LATENCY_WORD(EVENT_SWITCH);
		to->pid = wake->pid;
		to->prio = (short)wake->prio;
		for (int i = 0; i < EVENT_COMM; i++) {
			to->comm[i] = wake->comm[i];
			to->other_comm[i] = wake->other_comm[i];
		}
	}
	return count;
}

struct latency_stack {
	unsigned long long ip[LATENCY_STACK_DEEP + 1]; /* 0 ends it */
};

#endif
