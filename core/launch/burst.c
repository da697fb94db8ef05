/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * burst.c - which launches count as one: see burst.h.
 */
#include "burst.h"

static void begin(struct permit_burst *burst, uint64_t now, uint64_t launches)
{
	burst->on = burst->had = true;
	burst->until_ns = now + BURST_NS;
	burst->launches = launches;
}

/*
 * A launch has ended; a burst is one, and its length says nothing of its parts. Whether the next
 * may begin now: between two bursts the core is told once.
 */
static bool note(struct permit_burst *burst, uint64_t now)
{
	bool had = burst->had;

	burst->had = false;
	if (had)
		return false;
	if (now - burst->since_ns > BURST_QUICK_NS)
		burst->quick = 0;
	else if (burst->quick < BURST_TIMES)
		burst->quick++;
	return burst->quick >= BURST_TIMES;
}

void burst_arrival(struct permit_burst *burst, uint64_t now)
{
	if (now - burst->ended_ns > BURST_QUICK_NS)
		burst->quick = 0;
}

bool burst_granted(struct permit_burst *burst, uint64_t now, uint64_t launches)
{
	burst->on = burst->had = false;
	burst->since_ns = now;
	if (burst->quick >= BURST_TIMES)
		begin(burst, now, launches);
	return burst->on;
}

bool burst_reported(struct permit_burst *burst, uint64_t now, uint64_t launches)
{
	bool more = note(burst, now);

	burst->since_ns = now;
	if (more)
		begin(burst, now, launches);
	return burst->on;
}

void burst_ended(struct permit_burst *burst, uint64_t now)
{
	note(burst, now);
	burst->on = false;
	burst->ended_ns = now;
}

bool burst_goes_on(struct permit_burst *burst, uint64_t now, const struct burst_look *look)
{
	bool fresh = look->launches != burst->launches;

	burst->launches = look->launches;
	if (fresh || look->on_way)
		return now < burst->until_ns;
	/* nothing more, or a launch that is not short */
	burst->quick = 0;
	return false;
}
