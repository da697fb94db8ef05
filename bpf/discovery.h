/* SPDX-License-Identifier: MIT */
/*
 * discovery.h - the user-space end of discover.bpf.c: load it, wait for its records, tell it
 * which processes to follow over fork.
 */
#ifndef RTXG_BPF_DISCOVERY_H
#define RTXG_BPF_DISCOVERY_H

#include <stdbool.h>
#include <stdint.h>
#include "discover.h"

struct discovery;

/*
 * Loads and attaches the program. NULL with *error = negative errno: -EPERM without the privilege
 * to load BPF (root, or CAP_BPF and CAP_PERFMON), -EOPNOTSUPP when the kernel has no BTF. release:
 * of the driver, 580 of 580.159.04; 0 where it is not known: the oldest.
 */
struct discovery *discovery_open(uint32_t release, int *error);
void discovery_close(struct discovery *discovery);

/* Readable when there are records. */
int discovery_fd(const struct discovery *discovery);

/*
 * Calls back for every record there is, in order, but for no more after that time
 * (CLOCK_MONOTONIC), and for each process that records of are missing. Returns whether there may be
 * more. Never blocks.
 */
typedef void (*discovery_fn)(void *ctx, const struct discover_record *record);
bool discovery_read(struct discovery *discovery, uint64_t until_ns, discovery_fn fn, void *ctx);

/*
 * Follows a process: its children inherit the tag, and its fork, exec and exit are reported.
 * -ENOSPC: so many of its user are followed that the places that are left are others'.
 */
int discovery_watch(struct discovery *discovery, uint32_t pid, uint32_t tag);
/*
 * Lets go of processes that have ended unseen, until that time at the latest (CLOCK_MONOTONIC).
 * Returns whether it has not seen all as yet, and goes on with the next call.
 */
bool discovery_sweep(struct discovery *discovery, uint64_t until_ns);
/* The same as discovery_watch() for who knows whose process it is. */
int discovery_watch_of(struct discovery *discovery, uint32_t uid, uint32_t pid, uint32_t tag);

#endif
