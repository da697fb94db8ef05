/* SPDX-License-Identifier: MIT */
/* nvidia_promise.h - what is promised to vGPUs on the NVIDIA lever's GPUs: see nvidia_promise.c. */
#ifndef RTXGD_NVIDIA_PROMISE_H
#define RTXGD_NVIDIA_PROMISE_H

#include "nvidia.h"

/* The backend's member `admit`. */
int nvidia_promise_admit(struct daemon *d, const struct vgpu *vgpu, const struct vgpu *wanted,
			 char *why, size_t size, struct rtxg_refusal *refusal);
/*
 * Adds to an object of "stats" what is promised to the vGPU of that number, and what is not kept.
 */
void nvidia_promise_put(json_t *o, uint32_t gpu, uint32_t number,
			const struct rtxg_slice_view *view);
/* Closes a slot: for how long each promise was broken. */
void nvidia_promise_sample(struct daemon *d);
/* Lines of the doctor: each promise that is broken, by which process, and what to do. */
void nvidia_promise_doctor(json_t *checks);
/* How a GPU is shared now, as in "mode". */
const char *nvidia_promise_mode(uint32_t gpu);
/* Forgets what was counted of that number. */
void nvidia_promise_forget(uint32_t number);

#endif
