/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * estimate.h - how long a command of a program under the gate will take: a moving average of what
 * the same kernel at the same size took, and for copies of the time for a byte. Under the lock of
 * its host, which is a layer; all 0 at first.
 */
#ifndef RTXG_GATE_ESTIMATE_H
#define RTXG_GATE_ESTIMATE_H

#include <stdint.h>

#define LANE_ESTIMATES 512

/* Of one engine. Two keys in one place: the one that ran last is remembered. */
struct lane_estimates {
	uint64_t kib_ns; /* copies: the time for 1024 bytes; 0: not known */
	struct {
		uint32_t key;
		uint64_t ns;
	} of[LANE_ESTIMATES];
};

/* key: kernel and size, 0 = a copy of so many bytes (units). unknown: for a key not seen before. */
uint64_t lane_estimate(const struct lane_estimates *e, uint32_t key, uint64_t units,
		       uint64_t unknown);
/* It took that long. */
void lane_learn(struct lane_estimates *e, uint32_t key, uint64_t units, uint64_t ns);
/*
 * n commands, estimated at expected_ns together, took wall_ns together: how long did one take that
 * was estimated at est_ns?
 */
uint64_t lane_part(uint64_t wall_ns, uint64_t est_ns, uint64_t expected_ns, unsigned int n);

#endif
