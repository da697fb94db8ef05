/* SPDX-License-Identifier: MIT */
/*
 * fecs.h - who held a GPU's compute engine, and when, from the driver's context-switch log.
 *
 * The GPU's own scheduler writes down each switch with its own clock: a context starts, a context
 * has been saved. The lever reads that log and adds up; nothing is sampled and nothing estimated.
 *
 * What the number means: time during which the context was the one on the engine. While others
 * wait, a context that has nothing to do is taken off at once, so the time is time at work. While
 * no other context wants the engine, a context stays on it even when it has nothing to do: that
 * time is `alone` (no other context lost it), and is reported apart.
 */
#ifndef RTXG_FECS_H
#define RTXG_FECS_H

#include "rm.h"

struct nv_fecs {
	struct nv_rm_gpu *gpu;
	uint32_t h_header, h_records, h_buffer;
	uint32_t count; /* records in the ring */
	uint32_t get;	/* ours */
	uint32_t told;	/* ours, as the driver was told last */
	uint16_t seqno; /* of the last record */
	int started;
	uint64_t lost; /* records that the driver dropped */
	const volatile struct nv_event_buffer_header *header;
	const volatile struct nv_fecs_record *records;
	int header_fd, records_fd;
	size_t header_size, records_size;
	int64_t offset_ns;   /* CLOCK_MONOTONIC - GPU time, from nv_fecs_calibrate */
	uint64_t width_ns;   /* it was known to half of that */
	uint64_t calibrated; /* when it was found; 0 = never */
	uint32_t reason;     /* why the driver refused to bind */
};

/* One thing read from the log. */
struct nv_fecs_event {
	uint64_t gpu_ns; /* the GPU's clock */
	/* process that owns the context, global pid namespace; 0xffffffff for the kernel's own */
	uint32_t pid;
	uint32_t context; /* the channel's number (cid) */
	int start;	  /* 1: is on the engine from now on; 0: off it and saved */
};

/*
 * Binds a log of `count` records (a power of two up to 65536) to the GPU. -EPERM without root,
 * -EOPNOTSUPP where the driver has no log. The driver copies from the GPU's own buffer about 30
 * times a second, or when nv_fecs_flush asks.
 */
int nv_fecs_open(struct nv_fecs *fecs, struct nv_rm_gpu *gpu, uint32_t count);
/* The same with more in it than nv_fecs_read shows (NV_FECS_LOD_*). */
int nv_fecs_open_detail(struct nv_fecs *fecs, struct nv_rm_gpu *gpu, uint32_t count,
			uint32_t detail);
void nv_fecs_close(struct nv_fecs *fecs);

/* Makes the driver copy what the GPU has written by now. */
int nv_fecs_flush(struct nv_fecs *fecs);

/* Up to cap events, oldest first. Returns how many; 0 when there are no more. */
int nv_fecs_read(struct nv_fecs *fecs, struct nv_fecs_event *events, int cap);

/*
 * Relates the GPU's clock to CLOCK_MONOTONIC. What is known better from before is kept, unless the
 * GPU's clock has jumped.
 */
int nv_fecs_calibrate(struct nv_fecs *fecs);

#endif
