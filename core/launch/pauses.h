/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * pauses.h - how long a lane pauses between two launches, learnt from those that it made lately,
 * and for how long an engine is worth keeping free for it. Inner.
 *
 * A mean says little of pauses. A program that waits for each result launches again after some tens
 * of microseconds; now and then it reads a file, or waits for a CPU, for longer than any engine
 * should stand still. So what is kept is how many pauses were how long.
 */
#ifndef RTXG_CORE_PAUSES_H
#define RTXG_CORE_PAUSES_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdint.h>
#endif

/* Class i: pauses of at most PAUSES_FIRST_NS << i; the last: all that are longer. */
#define PAUSES_FIRST_NS 15625u
#define PAUSES_CLASSES	16
/* When so many are known all count half, so that what was long ago is forgotten. */
#define PAUSES_KNOWN 64

struct core_pauses {
	uint8_t seen[PAUSES_CLASSES];
	uint8_t known; /* the sum */
};

void core_pauses_note(struct core_pauses *pauses, uint64_t ns);

/*
 * How long to keep the engine free: 0..most ns. The time for which it would stand still by that, in
 * the mean, is less than what giving it up would cost: price ns whenever the pause is shorter than
 * the wait. Of all such times the one that saves most.
 */
uint64_t core_pauses_wait(const struct core_pauses *pauses, uint64_t most, uint64_t price);

#endif
