/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_order_core.h - constrained thread order: which thread may make its next shared access.
 *
 * An order (rtxg/order.h) restricts some accesses of some threads: such an access needs the clocks
 * of other threads, which count their completed accesses. The machine takes what threads do, and
 * says who may go. rtxg_order_load() refuses an order that no run can follow, so a thread that
 * follows a loaded order waits for a thread that ended early, stands still elsewhere or never came,
 * and for no other reason.
 *
 * The tables of a loaded order never change, so a host may read them without a lock. It can keep
 * clocks of its own, as the host in user space does with a word for each thread, and ask
 * rtxg_order_unmet() alone; or it drives rtxg_order_step() under its lock, as the module does.
 *
 * The idea is that of iteratively relaxed scheduling (IRS): a schedule is a partial order that is
 * relaxed step by step. Clocks of accesses are the vector clocks of Mattern (1989).
 */
#ifndef RTXG_ORDER_CORE_H
#define RTXG_ORDER_CORE_H

#ifdef __KERNEL__
#include <linux/types.h>
#include <linux/errno.h>
#else
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#include <rtxg/order.h>

/* No entry: behind a thread's last one. */
#define RTXG_ORDER_NO_ENTRY 0xffffffffu

/* Some thread's entry waits for this clock: whoever reaches it has somebody to wake. */
struct rtxg_order_signal {
	uint32_t clock;
	uint32_t thread; /* which waits */
};

struct rtxg_order_shape {
	uint32_t threads;
	uint32_t entries;
	uint32_t needs;
};

/* A loaded order, in memory of the host. Arrays of a thread t run from start[t] to start[t + 1]. */
struct rtxg_order {
	struct rtxg_order_shape shape;
	struct rtxg_order_entry *entry; /* by thread, then by number */
	struct rtxg_order_need *need;
	struct rtxg_order_signal *signal; /* by the thread that is needed, then by clock */
	uint32_t *start;		  /* in entry, of each thread */
	uint32_t *signals;		  /* in signal, of each thread */
	uint32_t *accesses;		  /* that each thread makes; RTXG_ORDER_MANY: not known */
	uint32_t *scratch;		  /* six words a thread, and one */
	/* Loading calls it again and again, since it may take long; NULL: nothing is called. */
	void (*breathe)(void);
};

/* Bytes that an order of this shape takes; 0 if the shape is out of range. */
size_t rtxg_order_size(const struct rtxg_order_shape *shape);
/*
 * Finds an order's arrays in such memory, aligned to 8 bytes: before rtxg_order_load(), and again
 * where the memory of a loaded order is mapped at another address. A host sets breathe after it.
 */
void rtxg_order_place(struct rtxg_order *order, const struct rtxg_order_shape *shape, void *memory);

/*
 * Takes entries in the order of their file, and their needs; accesses may be NULL. 0, or -EINVAL
 * with a fault. What it is given must not overlap the order's memory.
 */
int rtxg_order_load(struct rtxg_order *order, const struct rtxg_order_entry *entries,
		    const struct rtxg_order_need *needs, const uint32_t *accesses,
		    struct rtxg_order_fault *fault);

/* The first entry of a thread for access number or a later one, or RTXG_ORDER_NO_ENTRY. */
uint32_t rtxg_order_next(const struct rtxg_order *order, uint32_t thread, uint32_t number);

/*
 * The first need of an entry that the clocks do not meet; NULL: it may go. Clocks stand stride
 * words apart, and are read so that what a counted access wrote is seen by the access that may go.
 */
static inline const struct rtxg_order_need *rtxg_order_unmet(const struct rtxg_order *order,
							     uint32_t entry, const uint32_t *clocks,
							     uint32_t stride)
{
	const struct rtxg_order_entry *e = &order->entry[entry];

	for (uint32_t i = 0; i < e->count; i++) {
		const struct rtxg_order_need *need = &order->need[e->first + i];

		if (__atomic_load_n(&clocks[need->thread * stride], __ATOMIC_ACQUIRE) < need->clock)
			return need;
	}
	return NULL;
}

/* --- the machine ------------------------------------------------------------------------------ */

enum rtxg_order_event {
	RTXG_ORDER_JOIN,   /* the thread has begun */
	RTXG_ORDER_BEFORE, /* it is at its next access */
	RTXG_ORDER_AFTER,  /* it has made that access */
	RTXG_ORDER_LEAVE,  /* it makes no more accesses, or is dead */
	/* the thread has waited for as long as the host allows, and gives up */
	RTXG_ORDER_GIVE_UP,
	RTXG_ORDER_EVENTS,
};

enum rtxg_order_action_type {
	RTXG_ORDER_GO,	  /* the thread may make its access */
	RTXG_ORDER_BREAK, /* the order cannot be followed: all are let go, from now on */
};

struct rtxg_order_action {
	uint32_t type;
	uint32_t thread;
};

enum rtxg_order_state {
	RTXG_ORDER_ABSENT, /* has not joined yet */
	RTXG_ORDER_FREE,   /* between two accesses */
	RTXG_ORDER_WAITING,
	RTXG_ORDER_INSIDE, /* may make its access, and has not said that it did */
	RTXG_ORDER_ENDED,
};

struct rtxg_order_thread {
	uint32_t state;	 /* enum rtxg_order_state */
	uint32_t next;	 /* its entry for this access or a later one */
	uint32_t signal; /* the first of its signals that its clock has not reached */
	uint32_t reserved;
};

struct rtxg_order_run {
	const struct rtxg_order *order;
	uint32_t *clocks; /* of the host, stride words apart */
	uint32_t stride;
	struct rtxg_order_thread *thread; /* of the host, one a thread */
	struct rtxg_order_break broken;
};

/* Begins at the order's start: all clocks 0, nobody there. */
void rtxg_order_begin(struct rtxg_order_run *run, const struct rtxg_order *order,
		      struct rtxg_order_thread *threads, uint32_t *clocks, uint32_t stride);

/*
 * One event. Returns the number of actions, at most cap, or a negative errno, and nothing has
 * happened:
 *   -ENXIO   the order has no such thread
 *   -EBUSY   JOIN of a thread that is there or was
 *   -EBADFD  the thread is not where the event can happen: it has not joined, or is inside
 *   -EPIPE   BEFORE and JOIN on a broken order; AFTER and LEAVE are good there
 *   -ERANGE  the thread's clock cannot count one access more
 *   -ENOSPC  cap is less than the order's threads
 * BEFORE gives GO for the thread itself, or nothing: it waits. AFTER gives GO for each thread whose
 * last need it met. LEAVE and GIVE_UP give BREAK, if others cannot go any more.
 */
int rtxg_order_step(struct rtxg_order_run *run, uint32_t event, uint32_t thread,
		    struct rtxg_order_action *actions, uint32_t cap);

/* The host gives the order up: all are let go. Nothing happens to a broken order. */
void rtxg_order_close(struct rtxg_order_run *run);

/* Whether a thread that waits may go by now. */
bool rtxg_order_may_go(const struct rtxg_order_run *run, uint32_t thread);

/* --- from a run to an order, and to a smaller one --------------------------------------------- */

/*
 * One access, in the order in which they happened. Several of one number: one access, two places.
 */
struct rtxg_order_access {
	uint32_t thread;
	uint32_t number;
	uint32_t place; /* which memory: 0 to places - 1 */
	uint32_t write; /* 1, or 0: a read */
	uint32_t mark;
};

struct rtxg_order_place_state {
	uint32_t writer, write_clock; /* the last write; clock 0: none */
	uint32_t reads;		      /* 1 + index of the last read since, or 0 */
};

/*
 * The entries that make a run happen as these accesses did: an access needs the last write of its
 * place, a write needs the reads since too. reads has room for count words. entries and needs have
 * room for count and 2 * count. Writes the numbers of both. -EINVAL: a number of a thread does not
 * follow the one before, or a thread or place is out of range; *bad is its index. -ENOSPC: no room.
 */
int rtxg_order_derive(const struct rtxg_order_access *accesses, uint32_t count, uint32_t threads,
		      struct rtxg_order_place_state *places, uint32_t place_count, uint32_t *reads,
		      struct rtxg_order_entry *entries, uint32_t *entry_count,
		      struct rtxg_order_need *needs, uint32_t *need_count);

/*
 * Adds, behind the entry_count entries and need_count needs of a run that was cut short, that what
 * each thread of cut (1, or 0: it came to its end) does next comes after all that the other threads
 * made. made has the accesses of each thread, mark is that of the new entries. -ENOSPC: no room.
 */
int rtxg_order_derive_ends(const uint32_t *made, const uint32_t *cut, uint32_t threads,
			   uint32_t mark, struct rtxg_order_entry *entries, uint32_t *entry_count,
			   uint32_t entry_room, struct rtxg_order_need *needs, uint32_t *need_count,
			   uint32_t need_room);

/* Words that rtxg_order_relax() works in; 0 if they could not be counted. */
size_t rtxg_order_relax_words(const struct rtxg_order_shape *shape);
/*
 * Drops every need of a loaded order that follows from others: what is left allows the same runs,
 * and nothing more can be left out. Entries without a need go too. The order must be loaded again.
 * Returns how many needs are left, and writes them, by entry.
 */
uint32_t rtxg_order_relax(const struct rtxg_order *order, uint32_t *words,
			  struct rtxg_order_entry *entries, uint32_t *entry_count,
			  struct rtxg_order_need *needs);

#endif
