/* SPDX-License-Identifier: MIT */
/*
 * userd.h - a look from outside into the queue of another process's channel. A channel takes its
 * work from a ring: the program writes how far it has filled the ring (GP_PUT), the GPU how far it
 * has taken from it (GP_GET). Both words lie in memory of the program, the channel's USERD, which
 * is mapped here, read-only. Nothing is in the program and nothing of it is changed.
 *
 * Trust: all of it is another process's memory. What is read there may be any number at any time;
 * it says something about that process alone, and is never used as an address or an index.
 *
 * May not: decide what the numbers mean.
 */
#ifndef RTXG_NV_USERD_H
#define RTXG_NV_USERD_H

#include <stdint.h>
#include "rm.h"

#define NV_USERD_PAGE 4096u

/*
 * A part of a memory object in which some channels have their words. To map it costs the driver
 * about a millisecond whatever its length is, so that those of one context are mapped together.
 */
struct nv_userd {
	uint32_t client, memory; /* whose it is, and what it calls it */
	uint64_t start, length;	 /* in it: whole pages */
	uint32_t handle;	 /* our own name for it; 0 = not open */
	const volatile uint8_t *map;
};

#define NV_USERD_SPAN (512u << 10) /* longest part */

/* Is there room for a channel's words at that offset of the memory object, within one page? */
static inline int nv_userd_valid(uint32_t memory, uint64_t offset)
{
	return memory && !(offset & 7) && offset < UINT64_MAX - NV_USERD_PAGE &&
	       (offset & (NV_USERD_PAGE - 1)) + NV_USERD_END <= NV_USERD_PAGE;
}

/*
 * Maps the part with the words of two channels, first and last (offsets in the memory object; they
 * may be the same), and of those between. fd: a duplicate of the descriptor on which the client was
 * allocated; it may be closed afterwards. The memory object stays alive until nv_userd_close(),
 * also past the end of its process. -EINVAL for offsets that are none or further apart than
 * NV_USERD_SPAN, -EMEDIUMTYPE for an object that is no memory of the GPU or of the system, -ERANGE
 * if it is shorter; else as the driver answers.
 */
int nv_userd_open(struct nv_userd *userd, struct nv_rm_gpu *gpu, int fd, uint32_t client,
		  uint32_t memory, uint64_t first, uint64_t last);
/* Safe on a zeroed one. */
void nv_userd_close(struct nv_userd *userd, struct nv_rm_gpu *gpu);

/* Has it the words of the channel at that offset of the client's memory object? */
static inline int nv_userd_covers(const struct nv_userd *userd, uint32_t client, uint32_t memory,
				  uint64_t offset)
{
	return userd->handle && userd->client == client && userd->memory == memory &&
	       offset >= userd->start && offset - userd->start < userd->length;
}

/*
 * GP_GET in the lower half, GP_PUT in the upper, of the same instant; offset: of a channel that it
 * covers.
 */
static inline uint64_t nv_userd_read(const struct nv_userd *userd, uint64_t offset)
{
	return *(const volatile uint64_t *)(userd->map + (offset - userd->start) + NV_USERD_GP_GET);
}

static inline uint32_t nv_userd_get(uint64_t words)
{
	return (uint32_t)words;
}

static inline uint32_t nv_userd_put(uint64_t words)
{
	return (uint32_t)(words >> 32);
}

#endif
