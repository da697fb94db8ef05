// SPDX-License-Identifier: MIT
/*
 * ready.c - stands ready for hand-overs that are foreseen. To be woken takes a CPU tens of
 * microseconds, twice for each hand-over: the daemon's, and that of the task that is next. The core
 * says ahead of time that an engine is likely to be handed over; then neither is asleep. The end of
 * a launch is seen by the doorbell, or earlier in the word that the device writes, if the task has
 * told us of one.
 *
 * May not: decide who is next, or for how long it is worth standing ready.
 */
#include "ready.h"

#define ENGINES_MOST 8u /* that are stood ready for at one time; others are handed over as ever */

static struct ready {
	uint32_t gpu, engine;
	uint64_t until;
} ready[ENGINES_MOST];
static unsigned int count;

void ready_begin(uint32_t gpu, uint32_t engine, uint64_t until)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (ready[i].gpu == gpu && ready[i].engine == engine)
			break;
	if (i == ENGINES_MOST)
		return;
	ready[i] = (struct ready){ .gpu = gpu, .engine = engine, .until = until };
	if (i == count)
		count++;
}

/* Drops what has come, or comes later than was foreseen. */
static void look(struct daemon *d, uint64_t now)
{
	for (unsigned int i = 0; i < count;) {
		struct ready *one = &ready[i];

		if (now < one->until && !permit_interrupt(&d->permits, now, one->gpu, one->engine))
			i++;
		else
			*one = ready[--count];
	}
}

int ready_wait(struct daemon *d, struct epoll_event *events, int most, uint64_t at)
{
	uint64_t now;
	int n;

	while (count) {
		n = epoll_wait(d->fast, events, most, 0);
		if (n)
			return n;
		now = rtxg_now_ns();
		if (now >= at)
			return 0;
		look(d, now);
		/* What was handed over may have armed a timer that comes sooner. */
		at = at < d->armed_ns ? at : d->armed_ns;
	}
	return 0;
}
