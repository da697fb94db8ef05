/* SPDX-License-Identifier: MIT */
/*
 * claims.h - what a process says is its own, and another says so too: a client, or a channel's
 * number in the log of switches. The driver knows, and is asked then and only then.
 *
 * May not: decide who runs.
 */
#ifndef RTXG_NV_CLAIMS_H
#define RTXG_NV_CLAIMS_H

#include "state.h"

/* Is the client that `owner` was seen to own the process's that the record is of? */
bool nv_claim_client(struct lever_nvidia *l, const struct nv_process *owner,
		     const struct discover_record *r);
/*
 * A channel of the group (0: each) has a number. Where another process's channel has the same, one
 * of them keeps it: this one if the driver confirms it, else the other. Not looked for while claims
 * that were in vain have taken long.
 */
void nv_claim_numbers(struct lever_nvidia *l, struct nv_group *group, uint32_t channel);
/* Of channels of that number: those keep it of which the driver does not say another one. */
void nv_claim_deny(struct lever_nvidia *l, struct nv_gpu *g, uint32_t cid);

#endif
