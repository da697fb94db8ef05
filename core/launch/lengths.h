/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * lengths.h - how long a lane's uses of an engine last, learnt from the last two, and so when the
 * one that is on is likely to end. Inner.
 */
#ifndef RTXG_CORE_LENGTHS_H
#define RTXG_CORE_LENGTHS_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdint.h>
#endif

struct core_lengths {
	uint64_t last, before; /* ns; 0: not known */
};

void core_lengths_note(struct core_lengths *lengths, uint64_t ns);

/*
 * ns that the next use is likely to last at least; 0: that cannot be told, as the last two differ
 * by more than one part in so many.
 */
uint64_t core_lengths_expected(const struct core_lengths *lengths, unsigned int alike);

#endif
