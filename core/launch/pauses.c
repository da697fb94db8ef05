/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * pauses.c - how long a lane pauses, and for how long it is worth waiting for: see pauses.h. May
 * not know what a lane is.
 */
#include "pauses.h"

static uint64_t longest_of(unsigned int i)
{
	return (uint64_t)PAUSES_FIRST_NS << i;
}

void core_pauses_note(struct core_pauses *pauses, uint64_t ns)
{
	unsigned int i = 0;

	while (i + 1 < PAUSES_CLASSES && ns > longest_of(i))
		i++;
	pauses->seen[i]++;
	if (++pauses->known < PAUSES_KNOWN)
		return;
	pauses->known = 0;
	for (i = 0; i < PAUSES_CLASSES; i++) {
		pauses->seen[i] /= 2;
		pauses->known += pauses->seen[i];
	}
}

/*
 * With the distribution known, the best time to wait for before giving up can be computed (Karlin,
 * Manasse, McGeoch and Owicki, "Competitive randomized algorithms for nonuniform problems",
 * Algorithmica 11, 1994). While it is not, waiting for as long as giving up would cost is never
 * more than twice as dear as the best.
 */
uint64_t core_pauses_wait(const struct core_pauses *pauses, uint64_t most, uint64_t price)
{
	uint64_t wait = 0, saved = 0, waited = 0;
	unsigned int back = 0;

	if (!pauses->known)
		return price < most ? price : most;
	for (unsigned int i = 0; i + 1 < PAUSES_CLASSES; i++) {
		uint64_t end = longest_of(i), until = end + end / 8, gain, cost;

		if (end > most)
			break;
		/* somewhat longer: a pause that ends with its class ends before the wait */
		if (until > most)
			until = most;
		back += pauses->seen[i];
		waited += pauses->seen[i] * end;
		gain = back * price;
		cost = waited + (pauses->known - back) * until;
		if (gain > cost && gain - cost > saved) {
			saved = gain - cost;
			wait = until;
		}
	}
	return wait;
}
