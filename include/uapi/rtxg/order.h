/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * order.h - an order of shared accesses that threads follow, as it crosses a boundary: what an
 * order is, what is wrong with one, and the calls on /dev/rtxg.
 *
 * Each thread of a program numbers its accesses to the variables that matter, from 0. A thread's
 * clock is the number of accesses that it has completed. An entry restricts one access of one
 * thread: the access may begin once each clock that the entry needs has been reached. Accesses
 * without an entry are free.
 *
 * RTXG_IOC_ORDER_LOAD gives a new descriptor, which is the order: all other calls are made on it,
 * and it ends with its last copy. Memory and threads end with it, and whatever waits is let go.
 */
#ifndef RTXG_UAPI_ORDER_H
#define RTXG_UAPI_ORDER_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define RTXG_ORDER_THREADS_MAX 256u
#define RTXG_ORDER_ENTRIES_MAX (1u << 20)
#define RTXG_ORDER_NEEDS_MAX   (1u << 22)
/* What the module takes: it keeps an order in memory that cannot be paged out. */
#define RTXG_ORDER_KERNEL_ENTRIES_MAX (1u << 16)
#define RTXG_ORDER_KERNEL_NEEDS_MAX   (1u << 18)
/* Orders with a scheduler at a time, which is a thread of the kernel: of a user, and of all. */
#define RTXG_ORDER_SCHEDULERS_OF_A_USER 32u
#define RTXG_ORDER_SCHEDULERS		256u
/* Threads of orders that one task may be at a time. */
#define RTXG_ORDER_PLACES_MAX 16u
/* A clock never passes it. As the number of accesses of a thread: not known. */
#define RTXG_ORDER_MANY 0xffffffffu

/* The clock of a thread that has to be reached: 1 to RTXG_ORDER_MANY - 1. */
struct rtxg_order_need {
	__u32 thread;
	__u32 clock;
};

/* Access `number` of `thread` needs count needs, from needs[first]. */
struct rtxg_order_entry {
	__u32 thread;
	__u32 number;
	__u32 first;
	__u32 count;
	__u32 mark; /* the caller's; faults name it. A line of a file, for instance */
	__u32 reserved;
};

/* What is wrong with an order. */
enum rtxg_order_fault_kind {
	RTXG_ORDER_FAULT_NONE = 0,
	/* a thread, a number or a clock is outside of the order, or of what is accepted */
	RTXG_ORDER_FAULT_RANGE,
	/* the entry stands behind one for a later access of its thread: it would be overtaken */
	RTXG_ORDER_FAULT_OVERTAKEN,
	/* a second entry for the same access */
	RTXG_ORDER_FAULT_TWICE,
	/* the entry needs its own thread's clock */
	RTXG_ORDER_FAULT_ITSELF,
	/* the entry is for an access that its thread does not make */
	RTXG_ORDER_FAULT_BEYOND,
	/* the entry needs an access that the other thread does not make */
	RTXG_ORDER_FAULT_NEVER,
	/* entries wait for each other in a circle */
	RTXG_ORDER_FAULT_CYCLE,
};

/* An access and the need that holds it back. */
struct rtxg_order_step {
	__u32 thread;
	__u32 number;
	__u32 mark;
	__u32 reserved;
	struct rtxg_order_need need;
};

#define RTXG_ORDER_CYCLE_SHOWN 8u

struct rtxg_order_fault {
	__u32 kind;  /* enum rtxg_order_fault_kind */
	__u32 cycle; /* CYCLE: number of steps in it; steps holds the first of them */
	__u32 other; /* OVERTAKEN, TWICE: mark of the entry that it collides with */
	__u32 limit; /* RANGE, BEYOND, NEVER: what is accepted, at most */
	__u32 shown; /* steps filled in; step 0 is the entry at fault */
	__u32 reserved;
	struct rtxg_order_step steps[RTXG_ORDER_CYCLE_SHOWN];
};

/* Why an order cannot be followed any more. */
enum rtxg_order_break_kind {
	RTXG_ORDER_UNBROKEN = 0,
	RTXG_ORDER_BREAK_ENDED,	  /* a thread ended before an access that another needs */
	RTXG_ORDER_BREAK_STALLED, /* no clock moved for as long as the host waits */
	RTXG_ORDER_BREAK_EXTRA,	  /* a thread that the order does not have made an access */
	RTXG_ORDER_BREAK_CLOSED,  /* the order was closed while threads waited */
};

struct rtxg_order_break {
	__u32 kind; /* enum rtxg_order_break_kind */
	__u32 reserved;
	/* the access that could not begin, and the need that was not met */
	struct rtxg_order_step step;
	__u32 clock; /* where the needed thread stood */
	__u32 ended; /* 1: that thread has ended */
};

/* --- the calls on /dev/rtxg ------------------------------------------------------------------- */

/*
 * The six kernel prototypes of the paper. Blocking: a queue for each thread, or one for all.
 * Waking: by the peer that made an access, or by a scheduler, a thread of the kernel. 5 and 6 are 1
 * and 3 behind a page: the program looks at the page first, and enters the kernel to wait only.
 */
#define RTXG_ORDER_PROTO_1 1u /* own queue, peers wake */
#define RTXG_ORDER_PROTO_2 2u /* own queue, a scheduler wakes */
#define RTXG_ORDER_PROTO_3 3u /* one queue, peers wake */
#define RTXG_ORDER_PROTO_4 4u /* one queue, a scheduler wakes */
#define RTXG_ORDER_PROTO_5 5u /* 1 behind a page */
#define RTXG_ORDER_PROTO_6 6u /* 3 behind a page */

/*
 * On /dev/rtxg. Returns a descriptor. -EINVAL with a fault: the order is wrong. Prototypes 2 and 4,
 * for a caller without CAP_SYS_RESOURCE: -EDQUOT: the user has RTXG_ORDER_SCHEDULERS_OF_A_USER
 * orders of them already; -ENOSPC: there are RTXG_ORDER_SCHEDULERS.
 */
struct rtxg_order_load {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 prototype;
	__u32 threads; /* 1 to RTXG_ORDER_THREADS_MAX */
	__u32 entries; /* at most RTXG_ORDER_KERNEL_ENTRIES_MAX */
	__u32 needs;   /* at most RTXG_ORDER_KERNEL_NEEDS_MAX */
	__u64 entry;   /* address of the entries */
	__u64 need;    /* address of the needs */
	/* address of a __u32 for each thread, the accesses that it makes; 0: not known */
	__u64 accesses;
	__u64 reserved[2];
	struct rtxg_order_fault fault; /* out */
};

/* A thread of the order, which is the calling thread: JOIN, LEAVE, SET_CLOCK, SIGNAL_ALL. */
struct rtxg_order_thread_call {
	__u32 size;
	__u32 thread;
	__u64 reserved;
};

struct rtxg_order_wait {
	__u32 size;
	__u32 thread;
	/* in: when no clock has moved for that long, the order breaks: STALLED. 1 ms to 1 h */
	__u64 patience_ns;
	__u64 reserved;
};

struct rtxg_order_stats {
	__u32 size;
	__u32 prototype;
	/* calls by command, refused ones left out */
	__u64 context_switches;
	__u64 signals;
	__u64 clocks;
	__u64 waits;   /* context switches that slept */
	__u64 wakeups; /* times that a sleeping thread looked again */
	__u32 joined;  /* threads that are in the order now */
	__u32 reserved0;
	struct rtxg_order_break broken;
	__u64 reserved[4];
};

/*
 * The page, mapped read-only from the order's descriptor at offset 0. Clocks move after the access
 * that they count is visible.
 */
struct rtxg_order_page_thread {
	__u32 clock;
	__u32 reserved[15];
};

struct rtxg_order_page {
	__u32 size; /* of the whole mapping's content */
	__u32 threads;
	__u32 broken; /* not 0: no access is restricted any more */
	__u32 reserved[13];
	struct rtxg_order_page_thread thread[];
};

#define RTXG_IOC_ORDER_LOAD _IOWR('x', 0xa0, struct rtxg_order_load)
/*
 * On an order. -EBUSY: another thread is it; -ENXIO: the order has no such thread; -EUSERS: the
 * calling thread is RTXG_ORDER_PLACES_MAX threads of orders already, of this one or of others.
 */
#define RTXG_IOC_ORDER_JOIN _IOW('x', 0xa1, struct rtxg_order_thread_call)
/*
 * Sleeps until the calling thread's next access may begin. -EPIPE: the order is broken, see STATS;
 * -EPERM: the calling thread is not that thread; -EINTR: a signal came, call again.
 */
#define RTXG_IOC_ORDER_CONTEXT_SWITCH _IOW('x', 0xa2, struct rtxg_order_wait)
/* The access is complete: prototypes 2, 4, 5 and 6. */
#define RTXG_IOC_ORDER_SET_CLOCK _IOW('x', 0xa3, struct rtxg_order_thread_call)
/* The access is complete, and all other threads are to look again: prototypes 1 and 3. */
#define RTXG_IOC_ORDER_SIGNAL_ALL _IOW('x', 0xa4, struct rtxg_order_thread_call)
/*
 * The calling thread makes no more accesses. The death of a thread does the same. Thread
 * RTXG_ORDER_MANY: the order is given up, and all are let go.
 */
#define RTXG_IOC_ORDER_LEAVE _IOW('x', 0xa5, struct rtxg_order_thread_call)
#define RTXG_IOC_ORDER_STATS _IOWR('x', 0xa6, struct rtxg_order_stats)

#endif
