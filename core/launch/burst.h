/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * burst.h - tiny launches in quick succession count as one launch. Inner: permit.c's.
 *
 * A program that launches a few microseconds of work, waits for it and launches again would ring
 * its host and be decided about after each. That costs more than the work. So a lane whose last
 * launches were short and came soon after each other gets a permit that says neither ONESHOT nor
 * REPORT, and its host looks at the page from time to time instead of being told. The burst ends
 * when the host finds nothing new, or one launch that is not short, or after BURST_NS. For the core
 * it was one launch of that length.
 *
 * May not: look at a page, or decide who is next.
 */
#ifndef RTXG_PERMIT_BURST_H
#define RTXG_PERMIT_BURST_H

#include "rtxg_core.h"

#define BURST_QUICK_NS 100000u /* a launch, and the pause before it, are short up to here */
#define BURST_TIMES    4u      /* so many in succession */
#define BURST_NS       500000u
#define BURST_LOOK_NS  250000u /* between two looks of the host */

struct permit_burst {
	bool on;	   /* for now the host is not told, and looks by itself */
	bool had;	   /* it was, since since_ns */
	uint8_t quick;	   /* short launches in succession, BURST_TIMES at most */
	uint64_t since_ns; /* the permit, or the last report under it */
	uint64_t ended_ns; /* the last permit's end */
	uint64_t until_ns; /* on: the end at the latest */
	uint64_t launches; /* on: the page's at the last look */
};

/* What the host saw of the page. */
struct burst_look {
	uint64_t launches;
	bool on_way; /* nothing was launched yet, and a thread is about to */
};

/* The lane begins to wait. */
void burst_arrival(struct permit_burst *burst, uint64_t now);
/* A fresh permit. Whether a burst begins. */
bool burst_granted(struct permit_burst *burst, uint64_t now, uint64_t launches);
/* All that was launched has completed: under a permit that stays (the answer), or ended with it. */
bool burst_reported(struct permit_burst *burst, uint64_t now, uint64_t launches);
void burst_ended(struct permit_burst *burst, uint64_t now);
/* Time to look: does it go on? */
bool burst_goes_on(struct permit_burst *burst, uint64_t now, const struct burst_look *look);

#endif
