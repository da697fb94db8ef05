/* SPDX-License-Identifier: MIT */
/*
 * gpu_log.h - the driver's log of context switches, of the GPU that is measured.
 */
#ifndef RTXG_LATENCY_GPU_LOG_H
#define RTXG_LATENCY_GPU_LOG_H

#include "../levers/nvidia/fecs.h"
#include "../nvidia/rm.h"

struct gpu_log {
	struct nv_rm rm;
	struct nv_rm_gpu devices[RM_GPUS_MAX];
	int count;
	struct nv_fecs fecs;
};

/*
 * pci: the GPU's address as "0000:41:00.0", or NULL where CUDA does not say: then there may be one
 * GPU only. CUDA's own numbers are no help: CUDA_VISIBLE_DEVICES changes them, and without it the
 * fastest GPU comes first. 0, or a negative errno: -ENODEV where the driver has no such GPU (or
 * there is no driver), -ENOTUNIQ where there are several and no address; nothing is left open.
 */
int gpu_log_open(struct gpu_log *log, const struct nv_sys *sys, const char *pci);
void gpu_log_close(struct gpu_log *log);

#endif
