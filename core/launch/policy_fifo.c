/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy_fifo.c - one launch at a time, vGPUs in turn: the first in the list that has a waiter is
 * next, and goes to the tail once it has had the engine.
 *
 * Good where all kernels are about as long: shares follow the length of the kernels. There is no
 * reservation and no cap.
 */
#include "policy.h"
#include "policy_queue.h"

static void fifo_ended(struct core_account *account, uint64_t now)
{
	queue_to_tail(account);
}

const struct core_policy fifo_policy = {
	.summary = "one launch at a time, vGPUs in turn",
	.ended = fifo_ended,
};
