// SPDX-License-Identifier: MIT
/*
 * estimate.c - how long a command will take: a moving average of what the same kernel at the same
 * size took, and for copies of the time for a byte. May not look at an event.
 */
#include "estimate.h"

#define ESTIMATES 512

static struct {
	uint32_t key;
	uint64_t ns;
} estimates[ESTIMATES];

uint64_t layer_estimate(const struct layer_lane *lane, uint32_t key, uint64_t units,
			uint64_t unknown)
{
	if (!key) {
		uint64_t per_byte = lane->bytes_ns_x1024 ? lane->bytes_ns_x1024 : 1024;

		return 5000 + (units / 1024) * per_byte;
	}
	if (estimates[key % ESTIMATES].key == key)
		return estimates[key % ESTIMATES].ns;
	return unknown;
}

void layer_learn(struct layer_lane *lane, uint32_t key, uint64_t units, uint64_t ns)
{
	if (!key) {
		if (units >= 4096) {
			uint64_t x = ns / (units / 1024);

			lane->bytes_ns_x1024 =
				lane->bytes_ns_x1024 ? (3 * lane->bytes_ns_x1024 + x) / 4 : x;
			if (!lane->bytes_ns_x1024)
				lane->bytes_ns_x1024 = 1;
		}
		return;
	}
	if (estimates[key % ESTIMATES].key == key)
		estimates[key % ESTIMATES].ns = (3 * estimates[key % ESTIMATES].ns + ns) / 4;
	else
		estimates[key % ESTIMATES].ns = ns;
	estimates[key % ESTIMATES].key = key;
}
