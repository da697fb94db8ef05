/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * claims.c - what a client says of itself in its page: see claims.h. May not believe it beyond what
 * is possible.
 */
#include "claims.h"
#include "words.h"

/* The fastest launch: a page that claims more launches than that for its lifetime is not believed. */
#define LAUNCH_NS 10u

uint64_t permit_claimed_use(struct permit_machine *m, struct permit_lane *lane)
{
	struct rtxg_lane *p = words(lane);
	uint64_t since, claimed, used, at = now(m);
	int tries = 3;

	/*
	 * The client writes the two words one after the other: a pair is good if the first did not
	 * change.
	 */
	do {
		since = permit_load(&p->busy_since);
		permit_barrier();
		claimed = permit_load(&p->busy_ns);
		permit_barrier();
	} while (permit_load(&p->busy_since) != since && --tries);
	if (since && since < at)
		claimed += at - since;
	/* A claim that falls is garbage. */
	if (claimed <= lane->claimed_ns)
		return 0;
	used = claimed - lane->claimed_ns;
	lane->claimed_ns = claimed;
	return used;
}

void permit_count_claims(struct permit_machine *m, struct permit_task *task)
{
	uint64_t most = now(m) - task->opened_ns;

	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct permit_lane *lane = &task->lanes[i];
		struct permit_use *use = &task->account->engines[i];
		uint64_t device = permit_load(&words(lane)->device_ns);
		uint64_t launches = permit_load(&words(lane)->launches);

		if (device > most)
			device = most;
		if (launches > most / LAUNCH_NS)
			launches = most / LAUNCH_NS;
		if (device > lane->device_seen) {
			use->device_ns += device - lane->device_seen;
			lane->device_seen = device;
		}
		if (launches > lane->launches_seen) {
			use->launches += launches - lane->launches_seen;
			lane->launches_seen = launches;
		}
	}
}
