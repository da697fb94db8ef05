/* SPDX-License-Identifier: MIT */
/*
 * record.h - writes down who accessed what, in the order in which it happened.
 */
#ifndef RTXG_LAYERS_ORDER_RECORD_H
#define RTXG_LAYERS_ORDER_RECORD_H

#include "runtime.h"

/*
 * Writes the access down. Until record_release() no other thread's access to the same memory is
 * written down: their order in the record is the order in which they happen.
 */
void record_access(uint64_t address, size_t size, enum area_kind kind, uint64_t code);
/* The same access, to one more place. */
void record_more(uint64_t address, enum area_kind kind, uint64_t code);
void record_release(void);

#endif
