/* SPDX-License-Identifier: MIT */
/*
 * device.h - GPUs of rtxg, as this process uses them.
 */
#ifndef RTXG_OPENCL_DEVICE_H
#define RTXG_OPENCL_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "command.h"
#include "estimate.h"
#include "lane.h"
#include "queue.h"
#include "rtxg.h"

#define LAYER_ENGINES 3

/* One engine of one GPU, as this process uses it. All under the monitor's lock. */
struct layer_lane {
	struct layer_gpu *gpu;
	enum rtx_engine engine;
	struct lane state;
	struct layer_batch *ready_head, *ready_tail; /* may run; have no permit yet */
	/* under a permit, not known to be complete */
	struct layer_batch *admitted_head, *admitted_tail;
	/* the admitted batch that takes further commands, or NULL */
	struct layer_batch *current;
	/* batches known to be complete that librtxg has not heard of, and how long they took */
	unsigned int unreported;
	uint64_t unreported_ns;
	struct lane_row row;
	struct lane_meter meter;
	atomic_bool armed; /* a completion callback is registered on the oldest batch */
	bool helper_started;
	/* futex: the helper sleeps here when it does not sleep in librtxg */
	atomic_uint signals;
	atomic_bool sleeping; /* it does, and has to be woken */
	struct lane_estimates estimates;
};

/*
 * A GPU of rtxg that this process has opened. Never freed: handles of a forked child's parent are
 * forgotten, not closed.
 */
struct layer_gpu {
	struct layer_gpu *next;
	char name[256];
	rtx_gpu_t handle; /* NULL: unmanaged */
	bool refused;	  /* could not be opened, and the policy is closed */
	struct layer_lane lanes[LAYER_ENGINES];
};

/* Opens the GPU of a device, or finds it open. Never NULL except without memory. */
struct layer_gpu *layer_device_gpu(cl_device_id device);
/*
 * Some of what the program enqueues by that call passes by without permits: says so once, also to
 * the host.
 */
void layer_device_ungated(const char *call);
/* Has that been said? */
bool layer_device_in_part(void);
void layer_device_after_fork(void);

#endif
