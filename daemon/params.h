/* SPDX-License-Identifier: MIT */
/* params.h - what a request gives as parameters of a GPU, a vGPU or a task: see params.c. */
#ifndef RTXGD_PARAMS_H
#define RTXGD_PARAMS_H

#include "daemon.h"

/* What the request does not give stays. */
void params_merge_gpu(struct rtxg_gpu_params *p, const struct request *r);
void params_merge_task(struct rtxg_task_params *p, const struct request *r);
/* Parameters, and the priority of the vGPU's tasks. */
void params_merge_vgpu(struct vgpu *v, const struct request *r);
/* A vGPU of which nothing was said; the creator's end is not watched. */
struct vgpu params_vgpu(struct daemon *d, const char *name, enum origin origin);

#endif
