/* SPDX-License-Identifier: MIT */
/*
 * order_fibonacci.h - the orders of the Fibonacci program, as bench/order/fibonacci-*.order has
 * them: two threads of 75 accesses; 24, 44 or 98 entries, each order a beginning of the next.
 */
#ifndef RTXG_VM_ORDER_FIBONACCI_H
#define RTXG_VM_ORDER_FIBONACCI_H

#include "order.h"

enum { FIBONACCI = 75 };

/* An order under a host; NULL after saying why. */
static inline struct rtx_order *start_order(enum rtx_order_host host, uint32_t threads,
					    const uint32_t *made, uint32_t entry_count,
					    const struct rtxg_order_entry *entries,
					    uint32_t need_count,
					    const struct rtxg_order_need *needs)
{
	struct rtx_order_options options = { .size = sizeof(options),
					     .host = host,
					     .patience_ns = 30000000000ull };
	struct rtxg_order_shape shape = { threads, entry_count, need_count };
	void *memory = calloc(1, rtxg_order_size(&shape));
	struct rtxg_order_fault fault;
	struct rtx_order *order = NULL;
	struct rtxg_order core;

	rtxg_order_place(&core, &shape, memory);
	if (rtxg_order_load(&core, entries, needs, made, &fault))
		return NULL;
	if (rtx_lib_order_start(&order, &core, memory, NULL, &options))
		note("%s: %s", rtx_order_host_name(host), rtx_strerror());
	return order;
}

static inline void fibonacci_entry(struct rtxg_order_entry *entries, struct rtxg_order_need *needs,
				   uint32_t *count, uint32_t thread, uint32_t number,
				   uint32_t clock)
{
	entries[*count] = (struct rtxg_order_entry){ thread, number, *count, 1, *count + 1, 0 };
	needs[*count] = (struct rtxg_order_need){ 1 - thread, clock };
	++*count;
}

static inline struct rtx_order *fibonacci_order(enum rtx_order_host host, uint32_t length)
{
	static const uint32_t made[2] = { FIBONACCI, FIBONACCI };
	uint32_t clock[2] = { 45, 44 }, count = 0;
	struct rtxg_order_entry entries[98];
	struct rtxg_order_need needs[98];

	/* Thread 2 after thread 1; then in turns of two. */
	for (uint32_t k = 0; k < 44; k++)
		fibonacci_entry(entries, needs, &count, 1, k, k + 1);
	for (uint32_t round = 0; round < 14; round++) {
		uint32_t turn = round < 13 ? 2 : 1;

		for (uint32_t i = 0; i < turn; i++)
			fibonacci_entry(entries, needs, &count, 1, clock[1] + i, clock[0]);
		for (uint32_t i = 0; i < turn; i++)
			fibonacci_entry(entries, needs, &count, 0, clock[0] + i,
					clock[1] + (round == 4 || round == 9 ? turn : i + 1));
		clock[0] += turn;
		clock[1] += turn;
	}
	return count == 98 ? start_order(host, 2, made, length, entries, length, needs) : NULL;
}

#endif
