/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * tables.h - what the files of core/order share: one walk over a loaded order.
 */
#ifndef RTXG_ORDER_TABLES_H
#define RTXG_ORDER_TABLES_H

#include "rtxg_order_core.h"

/* Words of scratch that a walk needs. */
#define ORDER_WALK_WORDS(threads) (6 * (size_t)(threads))

/* The state of a walk: where each thread stands, and who waits for whom. */
struct order_walk {
	const struct rtxg_order *order;
	uint32_t *clock;  /* RTXG_ORDER_MANY: no entry is left */
	uint32_t *next;	  /* entry that the thread stands at */
	uint32_t *head;	  /* 1 + first of the threads that wait for this one, or 0 */
	uint32_t *link;	  /* 1 + next in the list that this one is in, or 0 */
	uint32_t *met;	  /* needs of that entry that are met: the first ones */
	uint32_t *wanted; /* clock of the thread that it waits for */
};

/*
 * Lets each thread go as far as the order lets it, and calls met() for each entry, after all that
 * the entry needs. Returns the number of threads that are stuck.
 */
uint32_t order_walk(struct order_walk *walk, const struct rtxg_order *order, uint32_t *scratch,
		    void (*met)(void *context, uint32_t entry), void *context);

#endif
