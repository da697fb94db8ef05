/* SPDX-License-Identifier: MIT */
/*
 * machine.h - the configuration of this machine, as far as latencies depend on it.
 */
#ifndef RTXG_LATENCY_MACHINE_H
#define RTXG_LATENCY_MACHINE_H

#include <jansson.h>
#include <stdint.h>

/* A new reference; members that cannot be found are left out. */
json_t *machine_record(void);
/* Time that the hypervisor took from all CPUs since boot, in ns; 0 where it does not say. */
uint64_t machine_stolen_ns(void);

#endif
