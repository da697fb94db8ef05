/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* engine.h - one engine: its accounts, its queues, its permit. */
#ifndef RTXG_CORE_ENGINE_H
#define RTXG_CORE_ENGINE_H

#include "state.h"

void core_engine_init(struct core_engine *engine, struct core_gpu *gpu, uint32_t index);
/*
 * The engine begins under the policy of its GPU's parameters, with no holder. Returns whether that
 * is another policy than before, and then its accounts need core_account_reset(..., true, ...).
 */
bool core_engine_set_policy(struct core_engine *engine);

void core_account_init(struct core_account *account, struct core_vgpu *vgpu,
		       struct core_engine *engine, uint64_t now);

/* The window begins, and the policy's books with it; other: they are another policy's books. */
void core_account_reset(struct core_account *account, bool other, uint64_t now);

/* Brings the policy's books up to date. */
void core_account_settle(struct core_account *account, uint64_t now);

/* The vGPU's reservation, cap or period have changed. */
void core_account_changed(struct core_account *account, uint64_t now);

/* The account is about to vanish. Returns whether its engine has to decide again. */
bool core_account_forget(struct core_account *account);

/* Puts the account where its policy looks for it, or nowhere if none of its lanes waits. */
void core_account_place(struct rtxg_core *core, struct core_account *account);
void core_account_unplace(struct core_account *account);

void core_lane_arrive(struct rtxg_core *core, struct core_task *task, uint32_t index,
		      uint64_t since);
void core_lane_leave_queue(struct rtxg_core *core, struct core_task *task, uint32_t index);
void core_lane_requeue(struct rtxg_core *core, struct core_task *task, uint32_t index);
void core_lane_charge(struct rtxg_core *core, struct core_task *task, uint32_t index,
		      uint64_t used_ns);
/* A use of the engine has ended. */
void core_lane_note_length(struct core_task *task, uint32_t index, uint64_t now, uint64_t used_ns);
void core_lane_release(struct rtxg_core *core, struct core_task *task, uint32_t index);
/* Its permit came early and has ended while that of another is still in use. */
void core_lane_end_early(struct rtxg_core *core, struct core_task *task, uint32_t index);
/* Is its permit good for one launch, of which no event has said whether it was made? */
bool core_lane_unseen(const struct core_lane *lane);
void core_lane_forget(struct rtxg_core *core, struct core_task *task, uint32_t index);

/* The engine is not kept free any longer for one that thinks, which pays for the time. */
void core_engine_end_wait(struct core_engine *engine, uint64_t now);

/* Decides who may launch. Emits RTXG_ACTIONS_MIN / 2 actions at most. */
void core_engine_schedule(struct rtxg_core *core, struct core_engine *engine);

/* The holder's time to give the permit back is over. Emits one action at most. */
void core_engine_expired(struct rtxg_core *core, struct core_account *account);

#endif
