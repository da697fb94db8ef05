/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* policy.h - what the engine asks of the policies. */
#ifndef RTXG_CORE_POLICY_H
#define RTXG_CORE_POLICY_H

#include "state.h"

/* policy_queue.c: null, fifo, credit, band */
void queue_credit(struct core_account *account, uint64_t now);
void queue_charge(struct core_account *account, uint64_t charge, uint64_t now);
void queue_completed(struct core_account *account, uint64_t now);
struct core_account *queue_pick(struct core_engine *engine, uint64_t now, uint64_t *wait_until);

/* policy_cbs.c */
void cbs_reset(struct core_account *account, uint64_t now);
void cbs_activate(struct core_account *account, uint64_t now);
void cbs_place(struct core_account *account, uint64_t now);
void cbs_promote(struct core_engine *engine, uint64_t now);
void cbs_charge(struct core_account *account, struct core_lane *lane, uint64_t all,
		uint64_t contended, uint64_t alone, uint64_t now);
struct core_account *cbs_pick(struct core_engine *engine, uint64_t now, uint64_t *wait_until);
bool cbs_displaces(struct core_engine *engine, struct core_account *holder, struct core_lane *lane,
		   uint64_t now, uint64_t *look_again);

#endif
