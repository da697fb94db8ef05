/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* account.h - what is noted of a vGPU on an engine whatever the policy. */
#ifndef RTXG_CORE_ACCOUNT_H
#define RTXG_CORE_ACCOUNT_H

#include "state.h"

/* The longest use of the engine under one permit, in this window of the GPU and the one before. */
uint64_t core_engine_longest(struct core_engine *engine, uint64_t now);
void core_engine_note_longest(struct core_engine *engine, uint64_t time, uint64_t now);

/* Utilisation in the GPU's window. */
uint32_t core_account_used_ppm(const struct core_account *account, uint64_t now);
void core_account_charge_window(struct core_account *account, uint64_t charge, uint64_t now);

/*
 * Thinking: the account is idle and likely to be back soon. It lends the engine for so many ns from
 * the end of its last launch on.
 */
void core_account_start_thinking(struct core_account *account, struct core_lane *lane,
				 uint64_t lends, uint64_t now);
void core_account_stop_thinking(struct core_account *account);

/*
 * Does another vGPU wait for the engine, or is one likely to come soon? To an account with a
 * reservation, does another lend it?
 */
bool core_account_others_want(struct core_engine *engine, const struct core_account *account,
			      uint64_t now);

/*
 * The engine is free and best is next: is another account, likely to be back soon, to have it
 * first? before() says so of one that thinks. If so, *look_again is when waiting for it ends, and
 * engine->awaited is that one.
 */
bool core_engine_awaits(struct core_engine *engine, struct core_account *best,
			bool (*before)(struct core_account *thinking, struct core_account *best,
				       uint64_t now),
			uint64_t now, uint64_t *look_again);

/* The first account of engine->ready, or NULL. */
static inline struct core_account *core_engine_first(const struct core_engine *engine)
{
	struct heap_node *node = heap_first(&engine->ready);

	return node ? heap_owner(node, struct core_account, ready) : NULL;
}

/* The account's first waiter, if it has one, and its task. */
static inline struct core_task *core_account_first(const struct core_account *account,
						   struct core_lane **lane)
{
	struct heap_node *node = heap_first(&account->waiters);

	*lane = heap_owner(node, struct core_lane, node);
	return heap_owner(*lane - account->engine->index, struct core_task, lanes);
}

/* Where the lane stands in its vGPU's queue. */
uint64_t core_lane_key(const struct core_task *task, const struct core_lane *lane, uint64_t *tie);

/* Inside the vGPU: may the waiting lane launch before the holder launches again? */
bool core_sibling_first(const struct core_account *account);
bool core_sibling_urgent(const struct core_account *account);

#endif
