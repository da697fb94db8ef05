/* SPDX-License-Identifier: MIT */
/*
 * rtxg_order.h - threads follow a given order of their shared accesses. `rtxg order record` writes
 * the order of a run to a file, and `rtxg order run` makes a program follow it without a change to
 * its sources (rtxg-order(1), docs/order.md). These calls do the same by hand:
 *
 *     rtx_order_open(&order, "bug.order", NULL);
 *     rtx_order_join(order, 1);               in the thread that is thread 1 of the order
 *     rtx_order_before(order, 1);
 *     shared = shared + 1;                     one access, as the order counts them
 *     rtx_order_after(order, 1);
 *     rtx_order_leave(order, 1);
 *     rtx_order_close(order);                  when all threads have left
 *
 * Threads of an order have the numbers of its file, from 1. Functions return 0 or a negative errno;
 * rtx_strerror() (rtxg.h) has the words. An access that the order does not restrict costs a few
 * nanoseconds.
 *
 * No call waits for ever: a thread whose order cannot be followed any more is let go with -EPIPE,
 * and so are all others. rtx_order_broken() says why.
 */
#ifndef RTXG_ORDER_H
#define RTXG_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "rtxg.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rtx_order *rtx_order_t;

/* Who keeps the clocks, and how threads wait. */
enum rtx_order_host {
	/*
	 * a word for each thread; the thread that meets the last need wakes who waits, and no other
	 */
	RTX_ORDER_FUTEX = 0,
	/*
	 * The six prototypes in rtxg.ko. 1 to 4 enter the kernel around each access; 5 and 6 look
	 * at a page first. Blocking: an own queue (1, 2, 5), one for all (3, 4, 6). Waking: by the
	 * peers (1, 3, 5, 6), by a scheduler in the kernel (2, 4).
	 */
	RTX_ORDER_PROTO_1 = 1,
	RTX_ORDER_PROTO_2 = 2,
	RTX_ORDER_PROTO_3 = 3,
	RTX_ORDER_PROTO_4 = 4,
	RTX_ORDER_PROTO_5 = 5,
	RTX_ORDER_PROTO_6 = 6,
	/* IRS_Shared: busy waiting */
	RTX_ORDER_SHARED = 7,
	/* IRS_Opt: condition variables, and a thread that schedules */
	RTX_ORDER_OPT = 8,
	RTX_ORDER_HOSTS,
};

struct rtx_order_options {
	size_t size; /* of this structure */
	enum rtx_order_host host;
	/* how long no clock may move while threads wait, until the order breaks; 0: 10 s */
	uint64_t patience_ns;
};

struct rtx_order_counts {
	size_t size;		   /* of this structure, set by the caller */
	uint64_t accesses;	   /* completed, of all threads */
	uint64_t restricted;	   /* accesses that had an entry */
	uint64_t waits;		   /* accesses whose needs were not met when their thread came */
	uint64_t sleeps;	   /* of these, those that slept */
	uint64_t wakeups;	   /* sleeping threads that were woken */
	uint64_t rescues;	   /* sleeping threads that nobody woke, and that could go */
	uint64_t context_switches; /* PROTO: calls by command */
	uint64_t signals;
	uint64_t clocks;
};

/* The words for a host ("futex", "proto-1" ..., "shared", "opt"), or NULL. */
const char *rtx_order_host_name(enum rtx_order_host host);

/*
 * Reads and checks an order. -ENOENT: no such file, or rtxg.ko is not loaded; -EINVAL: the file is
 * wrong, rtx_strerror() names the line; -ENOMEM. Of a prototype: -EACCES: /dev/rtxg may not be
 * opened; -ENOTTY: the module is older than the library; -E2BIG: it takes no order of that size.
 * options may be NULL.
 */
int rtx_order_open(rtx_order_t *order, const char *path, const struct rtx_order_options *options);
/* Lets all threads go that still wait, waits until they are out, and frees the order. */
void rtx_order_close(rtx_order_t order);

/*
 * The calling thread is that thread of the order. -EBUSY: there is or was another one; -ENXIO: the
 * order has no such thread; -EPIPE: the order is broken.
 */
int rtx_order_join(rtx_order_t order, unsigned int thread);
/* Waits until the thread's next access may begin. -EPIPE: it may, but the order is broken. */
int rtx_order_before(rtx_order_t order, unsigned int thread);
/* The access is complete: those that it lets go are woken. */
int rtx_order_after(rtx_order_t order, unsigned int thread);
/* The thread makes no more accesses. Who still needs one breaks the order. */
int rtx_order_leave(rtx_order_t order, unsigned int thread);

/* 0: the order is whole. 1: it is broken, and text says why. */
int rtx_order_broken(rtx_order_t order, char *text, size_t size);
int rtx_order_count(rtx_order_t order, struct rtx_order_counts *counts);

#ifdef __cplusplus
}
#endif

#endif
