/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy_queue.h - what the policies share that keep vGPUs in a list: the place in it, and Gdev's
 * credit, on which two of them decide.
 */
#ifndef RTXG_CORE_POLICY_QUEUE_H
#define RTXG_CORE_POLICY_QUEUE_H

#include "policy.h"

struct queue_books {
	int64_t credit;
	uint64_t tick; /* periods already credited */
};

/* The account goes to the tail of the list. The engine places it afterwards. */
static inline void queue_to_tail(struct core_account *account)
{
	account->order = account->engine->next_order++;
}

void queue_reset(struct core_account *account, uint64_t now);
void queue_settle(struct core_account *account, uint64_t now);
void queue_charge(struct core_account *account, const struct core_usage *usage, uint64_t now);
void queue_view(const struct core_account *account, struct rtxg_account_view *view);

#endif
