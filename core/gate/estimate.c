// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * estimate.c - how long a command will take. May not look at an event or read a clock.
 */
#include "estimate.h"

/* the time for 1024 bytes of a copy while none has been measured, and what each costs besides */
#define KIB_UNKNOWN_NS 1024
#define COPY_NS	       5000
/* a shorter copy says nothing of the time for a byte */
#define COPY_LEARN_MIN 4096
/* an estimate of so many bits times 100 s, the longest that is measured, fits in 64 */
#define PART_BITS 26

uint64_t lane_estimate(const struct lane_estimates *e, uint32_t key, uint64_t units,
		       uint64_t unknown)
{
	if (!key)
		return COPY_NS + (units / 1024) * (e->kib_ns ? e->kib_ns : KIB_UNKNOWN_NS);
	if (e->of[key % LANE_ESTIMATES].key == key)
		return e->of[key % LANE_ESTIMATES].ns;
	return unknown;
}

void lane_learn(struct lane_estimates *e, uint32_t key, uint64_t units, uint64_t ns)
{
	if (!key) {
		if (units >= COPY_LEARN_MIN) {
			uint64_t x = ns / (units / 1024);

			e->kib_ns = e->kib_ns ? (3 * e->kib_ns + x) / 4 : x;
			if (!e->kib_ns)
				e->kib_ns = 1;
		}
		return;
	}
	if (e->of[key % LANE_ESTIMATES].key == key)
		e->of[key % LANE_ESTIMATES].ns = (3 * e->of[key % LANE_ESTIMATES].ns + ns) / 4;
	else
		e->of[key % LANE_ESTIMATES].ns = ns;
	e->of[key % LANE_ESTIMATES].key = key;
}

uint64_t lane_part(uint64_t wall_ns, uint64_t est_ns, uint64_t expected_ns, unsigned int n)
{
	if (!expected_ns)
		return wall_ns / n;
	while (expected_ns >> PART_BITS) {
		expected_ns >>= 1;
		est_ns >>= 1;
	}
	return wall_ns * est_ns / expected_ns;
}
