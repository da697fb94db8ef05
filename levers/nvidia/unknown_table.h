/* SPDX-License-Identifier: MIT */
/*
 * unknown_table.h - the table of processes whose channels are not known: why, for people, and when
 * they are looked for again (unknown.h).
 */
#ifndef RTXG_NV_UNKNOWN_TABLE_H
#define RTXG_NV_UNKNOWN_TABLE_H

#include "state.h"

#define NV_UNKNOWN_PAUSE_MAX 30000000000ull /* ns, between two looks for one of them */

/* Whose process it is, as a place in `looks_again`. */
uint32_t nv_unknown_user(struct lever_nvidia *l, uint32_t pid);
/* The entry of a process in the table of those that are there and not governed; NULL: none. */
struct nv_unknown *nv_unknown_of(struct lever_nvidia *l, uint32_t pid, bool make);
/*
 * There is no place for its context on a GPU, and why, for people. Returns whether that was so
 * already.
 */
bool nv_has_no_place(struct lever_nvidia *l, uint32_t pid, const char *remedy);
/* The records of it that were waited for have come. */
void nv_is_read(struct lever_nvidia *l, uint32_t pid);
/* It is none of those any more. */
void nv_known_now(struct lever_nvidia *l, uint32_t pid);
/* Takes those out that have ended. */
void nv_unknown_prune(struct lever_nvidia *l);

#endif
