/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * claims.c - what a client says of itself in its page: see claims.h. May not believe it beyond what
 * is possible.
 */
#include "claims.h"
#include "words.h"

/*
 * The fastest launch: a page that claims more launches than that for its lifetime is not believed.
 */
#define LAUNCH_NS 10u

uint64_t permit_active_ns(const struct permit_use *use, uint64_t at)
{
	return use->active_ns +
	       (use->waiting && at > use->waiting_since ? at - use->waiting_since : 0);
}

static void begin_count(struct permit_machine *m, struct permit_lane *lane, uint64_t claim)
{
	lane->counted_claim = claim;
	lane->counted_ns = now(m);
	lane->counted_active =
		permit_active_ns(&lane->task->account->engines[lane->engine], lane->counted_ns);
}

/* What the page claims up to now; the one before, if it claims less. */
static uint64_t claim_of(struct permit_machine *m, struct permit_lane *lane)
{
	struct rtxg_lane *p = words(lane);
	uint64_t since, claim, at = now(m);
	int tries = 3;

	/*
	 * The client writes the two words one after the other: a pair is good if the first did not
	 * change.
	 */
	do {
		since = permit_load(&p->busy_since);
		permit_barrier();
		claim = permit_load(&p->busy_ns);
		permit_barrier();
	} while (permit_load(&p->busy_since) != since && --tries);
	if (since && since < at)
		claim += at - since;
	/* A claim that falls is garbage. */
	return claim < lane->claimed_ns ? lane->claimed_ns : claim;
}

/* Time in which another lane of the account waited counts already, and no time counts twice. */
static void count_active(struct permit_machine *m, struct permit_lane *lane, uint64_t claim)
{
	struct permit_use *use = &lane->task->account->engines[lane->engine];
	uint64_t at = now(m), free = at - lane->counted_ns;
	uint64_t counted = permit_active_ns(use, at) - lane->counted_active;
	uint64_t used = claim > lane->counted_claim ? claim - lane->counted_claim : 0;

	free -= counted < free ? counted : free;
	use->active_ns += used < free ? used : free;
	begin_count(m, lane, claim);
}

/*
 * A permit may come beside that of another of the vGPU. What the other one has used up to now is
 * not this one's time: it counts before this one's begins.
 */
void permit_begin_claims(struct permit_machine *m, struct permit_lane *lane, uint32_t gpu)
{
	uint32_t id = rtxg_core_holder(m->core, gpu, lane->engine);
	struct permit_task *other = id < m->tasks_limit ? m->tasks[id] : NULL;

	if (other && other != lane->task && other->account == lane->task->account) {
		struct permit_lane *held = &other->lanes[lane->engine];

		count_active(m, held, claim_of(m, held));
	}
	begin_count(m, lane, lane->claimed_ns);
}

uint64_t permit_claimed_use(struct permit_machine *m, struct permit_lane *lane)
{
	uint64_t claim = claim_of(m, lane), used = claim - lane->claimed_ns;

	lane->claimed_ns = claim;
	count_active(m, lane, claim);
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
