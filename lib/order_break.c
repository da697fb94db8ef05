// SPDX-License-Identifier: MIT
/*
 * order_break.c - giving an order up: who was first says why, and its host lets all threads go. May
 * not: know how a host does that.
 */
#include "order.h"
#include "sys.h"

uint64_t rtx_lib_order_moved(const struct rtx_order *order)
{
	uint64_t sum = 0;

	for (uint32_t t = 0; t < order->core.shape.threads; t++)
		sum += load_relaxed(&order->thread[t].clock);
	return sum;
}

void rtx_lib_order_break(struct rtx_order *order, const struct rtxg_order_break *why)
{
	uint32_t whole = 0;

	if (!__atomic_compare_exchange_n(&order->broken_state, &whole, 1, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return;
	order->broken = *why;
	store(&order->broken_state, 2);
	order->ops->let_go(order);
}

void rtx_lib_order_break_at(struct rtx_order *order, const struct rtx_order_thread *thread,
			    enum rtxg_order_break_kind kind)
{
	const struct rtxg_order_entry *entry = &order->core.entry[thread->entry];
	const struct rtxg_order_need *need = rtx_lib_order_held(order, thread);
	struct rtxg_order_break why = {
		.kind = kind,
		.step = { .thread = thread->index, .number = entry->number, .mark = entry->mark },
	};

	if (!need)
		return; /* met at the last moment */
	/* Of several, the one that ended is the reason. */
	for (uint32_t i = 0; kind == RTXG_ORDER_BREAK_ENDED && i < entry->count; i++) {
		const struct rtxg_order_need *other = &order->core.need[entry->first + i];
		const struct rtx_order_thread *needed = &order->thread[other->thread];

		if (load(&needed->state) == RTX_ORDER_ENDED && load(&needed->clock) < other->clock)
			need = other;
	}
	why.step.need = *need;
	why.clock = load(&order->thread[need->thread].clock);
	why.ended = load(&order->thread[need->thread].state) == RTX_ORDER_ENDED;
	rtx_lib_order_break(order, &why);
}
