/* SPDX-License-Identifier: MIT */
/*
 * order.h - an open order, and what each of its hosts does. Not installed.
 *
 * A host is how threads wait and are woken: order_futex.c (the default), order_polled.c
 * (IRS_Shared), order_scheduler.c (IRS_Opt), order_module.c (the six prototypes of rtxg.ko). What
 * they decide is the core's: rtxg_order_unmet() over clocks in this memory, or rtxg_order_step()
 * under a lock.
 */
#ifndef RTX_LIB_ORDER_H
#define RTX_LIB_ORDER_H

#include <pthread.h>
#include <stdbool.h>

#include "order_file.h"
#include "rtxg_order.h"

#define RTX_ORDER_LINE	   64
#define RTX_ORDER_PATIENCE 10000000000ull

enum rtx_order_thread_state {
	RTX_ORDER_ABSENT,
	RTX_ORDER_JOINED,
	RTX_ORDER_ENDED,
};

/* Three lines of the cache: what others read, what is the thread's own, what others write. */
struct rtx_order_thread {
	uint32_t clock __attribute__((aligned(RTX_ORDER_LINE)));
	uint32_t state; /* enum rtx_order_thread_state */
	/*
	 * For a program that says only when an access begins: 1 + the number of the access that is
	 * under way, 0: none. Another thread may find that it is complete, and count it in clock:
	 * see stuck.
	 */
	uint32_t under_way;
	int32_t tid;

	/* accesses that the thread has completed, as it says itself: clock may be one ahead */
	uint32_t made __attribute__((aligned(RTX_ORDER_LINE)));
	uint32_t restricted; /* next number with an entry */
	uint32_t entry;	     /* that one */
	uint32_t signal_at;  /* the clock at which others are to be looked at; MANY: none */
	uint32_t signal;
	uint32_t spin; /* how often to look before sleeping, as learned */
	uint32_t index;
	uint64_t counted, waits, sleeps, wakeups, rescues;

	uint32_t asleep __attribute__((aligned(RTX_ORDER_LINE))); /* futex */
};

#define RTX_ORDER_STRIDE (sizeof(struct rtx_order_thread) / sizeof(uint32_t))

struct rtx_order_ops {
	int (*open)(struct rtx_order *order);
	void (*close)(struct rtx_order *order);
	int (*join)(struct rtx_order *order, struct rtx_order_thread *thread);
	int (*before)(struct rtx_order *order, struct rtx_order_thread *thread);
	int (*after)(struct rtx_order *order, struct rtx_order_thread *thread);
	void (*leave)(struct rtx_order *order, struct rtx_order_thread *thread);
	/* Lets all go: broken stands in the order. */
	void (*let_go)(struct rtx_order *order);
	void (*count)(struct rtx_order *order, struct rtx_order_counts *counts);
};

struct rtx_order {
	struct rtxg_order core;
	void *memory;
	struct rtx_order_thread *thread;
	char (*name)[RTX_ORDER_NAME]; /* of each thread */
	const struct rtx_order_ops *ops;
	enum rtx_order_host host;
	uint64_t patience_ns;
	uint32_t spinners, spinners_max;
	uint32_t users; /* threads inside of a call that can wait */
	/* 0, 1 while broken is written, 2 */
	uint32_t broken_state;
	struct rtxg_order_break broken;
	/*
	 * Called when a thread has waited for a while for another one: true if it has completed the
	 * other one's access that is under way, by counting it in clock. Only the default host
	 * asks.
	 */
	bool (*stuck)(struct rtx_order *order, struct rtx_order_thread *needed);
	void *private; /* of the host */
};

extern const struct rtx_order_ops rtx_lib_order_futex_ops;
extern const struct rtx_order_ops rtx_lib_order_polled_ops;
extern const struct rtx_order_ops rtx_lib_order_scheduler_ops;
extern const struct rtx_order_ops rtx_lib_order_module_ops;

/* An order whose tables are loaded. Takes the memory and the names, also when it fails. */
int rtx_lib_order_start(struct rtx_order **order, const struct rtxg_order *core, void *memory,
			char (*names)[RTX_ORDER_NAME], const struct rtx_order_options *options);

static inline bool rtx_lib_order_is_broken(const struct rtx_order *order)
{
	return __atomic_load_n(&order->broken_state, __ATOMIC_ACQUIRE) != 0;
}

/* Gives the order up, unless it was given up before, and lets all threads go. */
void rtx_lib_order_break(struct rtx_order *order, const struct rtxg_order_break *why);
/* The same, of a thread that waits at its entry. */
void rtx_lib_order_break_at(struct rtx_order *order, const struct rtx_order_thread *thread,
			    enum rtxg_order_break_kind kind);

/* Only its thread counts there; rtx_order_count() reads at any time. */
static inline void rtx_lib_order_count(uint64_t *counter, uint64_t more)
{
	__atomic_store_n(counter, *counter + more, __ATOMIC_RELAXED);
}

static inline const struct rtxg_order_need *
rtx_lib_order_held(const struct rtx_order *order, const struct rtx_order_thread *thread)
{
	return rtxg_order_unmet(&order->core, thread->entry, &order->thread[0].clock,
				RTX_ORDER_STRIDE);
}

/* The sum of all clocks: it changes when anything moves. */
uint64_t rtx_lib_order_moved(const struct rtx_order *order);

/*
 * Has the thread's next entry ready, once its clock has passed the one before. Only the thread
 * itself writes it; another that looks whether to wake this one reads it at any time.
 */
static inline void rtx_lib_order_next_entry(const struct rtx_order *order,
					    struct rtx_order_thread *thread)
{
	uint32_t entry = thread->entry + 1;

	__atomic_store_n(&thread->entry, entry, __ATOMIC_RELAXED);
	thread->restricted = entry < order->core.start[thread->index + 1]
				     ? order->core.entry[entry].number
				     : RTXG_ORDER_MANY;
}

#endif
