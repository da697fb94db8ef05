/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * claims.h - what a client says of itself in its page. Inner: permit.c's.
 */
#ifndef RTXG_PERMIT_CLAIMS_H
#define RTXG_PERMIT_CLAIMS_H

#include "permit.h"

/* The lane has a permit for that GPU: what it uses from now on counts as wanted. */
void permit_begin_claims(struct permit_machine *m, struct permit_lane *lane, uint32_t gpu);
/*
 * What the client says it has used since it was last asked. The core bounds it by the time that has
 * passed.
 */
uint64_t permit_claimed_use(struct permit_machine *m, struct permit_lane *lane);
/*
 * Device time and launches, on which nothing depends: for people, and bounded to what is possible.
 */
void permit_count_claims(struct permit_machine *m, struct permit_task *task);

#endif
