/* SPDX-License-Identifier: MIT */
/* timeline.h - which process held which NVIDIA GPU when: see timeline.c. */
#ifndef RTXGD_TIMELINE_H
#define RTXGD_TIMELINE_H

#include "daemon.h"

/* Without memory there is no timeline; nothing else depends on it. */
void timeline_open(void);
void timeline_close(void);
void timeline_stay(uint32_t gpu, uint32_t pid, uint32_t vgpu, uint64_t start_ns, uint64_t end_ns);
/* what: 0 = stop, UINT64_MAX = resume, else a slice in ns. */
void timeline_acted(uint32_t gpu, uint32_t pid, uint64_t at_ns, uint64_t took_ns, uint64_t what);
/* A process got its first context on the GPU (alive), or has none any more. */
void timeline_context(uint32_t gpu, uint32_t pid, const char *comm, uint32_t vgpu, bool alive);
/*
 * The events from number `since` on: {"first", "next", "events"}. Those of processes that the
 * viewer may not know of are of process 0.
 */
json_t *timeline_report(uint64_t since, const struct connection *viewer);

#endif
