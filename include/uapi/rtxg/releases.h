/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * releases.h - the page in which the lever tells programs when to bring their contexts onto the
 * GPU: written by the daemon, read by librtxg-cuda.so inside a latency-critical program. Nothing
 * depends on what a program does with it.
 */
#ifndef RTXG_UAPI_RELEASES_H
#define RTXG_UAPI_RELEASES_H

#include <stdint.h>

#define NV_RELEASES_PATH  "/run/rtxg/nvidia-releases" /* $RTXG_RELEASES names another */
#define NV_RELEASES_MAGIC 0x72747872u
#define NV_RELEASES	  100u

struct nv_release {
	uint32_t sequence; /* odd while it is being written */
	uint32_t pid;	   /* 0: free */
	uint32_t pci_domain, pci_bus, pci_slot;
	uint32_t reserved;
	uint64_t warm_ns; /* CLOCK_MONOTONIC; UINT64_MAX: nothing to do as yet */
};

struct nv_releases {
	uint32_t magic, size; /* sizeof(struct nv_releases) */
	uint64_t heartbeat_ns;
	struct nv_release entry[NV_RELEASES];
};

_Static_assert(sizeof(struct nv_releases) <= 4096, "one page");

#endif
