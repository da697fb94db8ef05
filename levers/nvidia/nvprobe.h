/* SPDX-License-Identifier: MIT */
/*
 * nvprobe.h - the memory that rtxg-nvprobe shares with the daemon: a kernel of its own counts in
 * it.
 */
#ifndef RTXG_NVPROBE_H
#define RTXG_NVPROBE_H

#include <stdint.h>

#define NVPROBE_SIZE 65536u

struct nvprobe_page {
	uint64_t count; /* written by the GPU */
	uint64_t pad0[7];
	uint32_t stop;	 /* written by the daemon: end */
	uint32_t ready;	 /* written by the helper: the kernel runs */
	uint32_t wanted; /* written by the daemon: so many launches more */
	uint32_t kicked; /* written by the helper: so many were made */
	char error[112]; /* why not */
};

#endif
