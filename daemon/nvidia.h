/* SPDX-License-Identifier: MIT */
/*
 * nvidia.h - what the files of the NVIDIA backend share: the open lever, and which of its numbers
 * stands for which vGPU. See nvidia.c.
 */
#ifndef RTXGD_NVIDIA_H
#define RTXGD_NVIDIA_H

#include "daemon.h"
#include "lever_nvidia.h"

/* Counters of a vGPU on a GPU at the border of a slot. */
struct nvidia_sample {
	uint64_t busy_ns, device_ns, wanted_ns, stays;
};

struct nvidia {
	struct daemon *daemon;
	struct lever_nvidia *lever; /* NULL: not open */
	bool starting;		    /* the vGPUs are being told one by one */
	bool locked;		    /* our memory */
	char why_not[300];
	/* vGPU by its number in the lever; 0 is `default`, which has all other processes */
	const struct vgpu *slots[LEVER_NVIDIA_VGPUS];
	uint64_t periods[LEVER_NVIDIA_VGPUS];
	/* SLOTS + 1 of them, as d->times; NULL: nothing happened yet */
	struct nvidia_sample *samples[LEVER_NVIDIA_GPUS][LEVER_NVIDIA_VGPUS];
};
extern struct nvidia nvidia;

/* The lever's number for a vGPU; -1: none. */
int nvidia_number(const struct vgpu *vgpu);
/* The name of the vGPU of that number. */
const char *nvidia_vgpu_name(uint32_t number);
/* The lever's GPU of that name, or -1. */
int nvidia_gpu(const char *name);
/* Does the vGPU apply to that GPU of the lever's? */
bool nvidia_applies(const struct vgpu *vgpu, uint32_t gpu);
/* The vGPU as the slice policy takes it; period_ns: of its releases. */
struct rtxg_slice_tenant nvidia_tenant(const struct vgpu *vgpu, uint64_t period_ns);
/* Gives the lever the parameters of the vGPU of that number. */
int nvidia_tell(uint32_t number);
/* All processes that the lever knows of; to be freed. */
struct lever_nvidia_process *nvidia_processes(int *count);
/* With their memory, as far as the driver says it: for a request, not for the loop. */
struct lever_nvidia_process *nvidia_processes_memory(int *count);
bool nvidia_busy(const struct daemon *d);
/* Counters of a vGPU on a GPU as they are now. False: the lever has no such vGPU there. */
bool nvidia_counters(uint32_t gpu, uint32_t number, struct nvidia_sample *now,
		     struct rtxg_slice_view *view);

/*
 * Tests put a driver of their own below the lever by defining this one; in rtxgd it is not there.
 */
struct lever_nvidia;
struct lever_nvidia_options;
struct nvidia_stand {
	const struct lever_nvidia_options *options;
	void (*started)(struct daemon *d, struct lever_nvidia *lever);
};
extern const struct nvidia_stand nvidia_stand __attribute__((weak));

#endif
