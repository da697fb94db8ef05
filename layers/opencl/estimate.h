/* SPDX-License-Identifier: MIT */
/*
 * estimate.h - how long a command will take. Under the monitor's lock.
 */
#ifndef RTXG_OPENCL_ESTIMATE_H
#define RTXG_OPENCL_ESTIMATE_H

#include <stdint.h>

#include "device.h"

/* key: kernel and size, 0 = a copy of so many bytes (units). unknown: for a key not seen before. */
uint64_t layer_estimate(const struct layer_lane *lane, uint32_t key, uint64_t units,
			uint64_t unknown);
void layer_learn(struct layer_lane *lane, uint32_t key, uint64_t units, uint64_t ns);

#endif
