/* SPDX-License-Identifier: MIT */
/*
 * nvidia.h - the daemon's host side of the NVIDIA lever: processes that carry nothing of rtxg. Without the lever in the build, or
 * without an NVIDIA GPU, all of it does nothing.
 */
#ifndef RTXGD_NVIDIA_H
#define RTXGD_NVIDIA_H

#include "rtxgd.h"

/* vGPUs of at least this priority are latency-critical to the lever. */
#define NVIDIA_CRITICAL_PRIORITY 50u

/* Opens the lever if there is a GPU for it, and tells it of the vGPUs that there are. Never an error: see nvidia_doctor. */
void nvidia_start(struct daemon *d);
void nvidia_stop(void);
/* A vGPU was made or changed; it goes. */
void nvidia_vgpu(struct daemon *d, const struct vgpu *vgpu);
void nvidia_vgpu_gone(const struct vgpu *vgpu);
/*
 * Puts a process without a task of ours, and its children, into a vGPU (NULL: as it is). period_ns: its releases, if the vGPU is critical;
 * 0 = sporadic. -EOPNOTSUPP without the lever.
 */
int nvidia_assign(struct daemon *d, pid_t pid, const struct vgpu *vgpu, uint64_t period_ns);
/* What this GPU and driver allow: {name, ok, detail, remedy} as report_doctor lists them. */
void nvidia_doctor(void (*check)(void *ctx, const char *name, bool ok, const char *detail), void *ctx);

#endif
