/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy_credit.c - CREDIT after Gdev (Kato et al., USENIX ATC 2012) and Linux-RTXG (Fujii et al.
 * 2015): the first vGPU in the list that has a waiter is next, and goes to the tail when its credit
 * is spent.
 *
 * Good for comparisons with those systems. It never leaves the engine idle while a task waits, and
 * keeps reservations only as far as that allows.
 */
#include "policy.h"
#include "policy_queue.h"

static void credit_ended(struct core_account *account, uint64_t now)
{
	queue_settle(account, now);
	if (core_books(account, struct queue_books)->credit <= 0)
		queue_to_tail(account);
}

const struct core_policy credit_policy = {
	.summary = "Gdev's CREDIT: a vGPU whose credit is spent goes to the tail",
	.reads = RTXG_READS_OVERRUN | RTXG_READS_PERIOD,
	.reset = queue_reset,
	.settle = queue_settle,
	.charge = queue_charge,
	.ended = credit_ended,
	.view = queue_view,
};
