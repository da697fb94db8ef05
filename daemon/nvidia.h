/* SPDX-License-Identifier: MIT */
/*
 * nvidia.h - the daemon's host side of the NVIDIA lever: processes that carry nothing of rtxg.
 * Without the lever in the build, or without an NVIDIA GPU, all of it does nothing.
 */
#ifndef RTXGD_NVIDIA_H
#define RTXGD_NVIDIA_H

#include "daemon.h"

/*
 * The daemon's real-time priority while the lever governs somebody: above what programs are given,
 * below the guardian's.
 */
#define NVIDIA_URGENCY 40

/*
 * Opens the lever if there is a GPU for it, and tells it of the vGPUs that there are. Never an
 * error: see nvidia_doctor.
 */
void nvidia_start(struct daemon *d);
void nvidia_stop(void);
/* A vGPU was made or changed; it goes. */
void nvidia_vgpu(struct daemon *d, const struct vgpu *vgpu);
void nvidia_vgpu_gone(const struct vgpu *vgpu);
/*
 * Puts a process without a task of ours, and its children, into a vGPU (NULL: as it is). period_ns:
 * its releases, if the vGPU is critical; 0 = sporadic. -EOPNOTSUPP without the lever.
 */
int nvidia_assign(struct daemon *d, pid_t pid, const struct vgpu *vgpu, uint64_t period_ns);
/* What this GPU and driver allow: {name, ok, detail, remedy} as report_doctor lists them. */
void nvidia_doctor(void (*check)(void *ctx, const char *name, bool ok, const char *detail),
		   void *ctx);

/* Is there a GPU of that name ("nvidia0", ...) that the lever governs? */
bool nvidia_has(const char *gpu);
/* Does the lever govern any process now? Then samples are taken. */
bool nvidia_busy(void);
/* Processor time that the lever has used in this thread: its own affair, not any client's doing. */
uint64_t nvidia_own_ns(void);
/* Appends what docs/reference/protocol.md has of the lever's GPUs to gpus of "gpu-list". */
void nvidia_gpus(struct daemon *d, json_t *gpus);
/*
 * ... to tasks: the lever's processes. vgpu, gpu: only those, unless NULL; pid: only that, unless
 * 0.
 */
void nvidia_tasks(struct daemon *d, json_t *tasks, const char *vgpu, const char *gpu, int64_t pid);
/* ... to gpus of "stats". */
void nvidia_stats(struct daemon *d, json_t *gpus);
/* ... to series of "history": slots from first to d->samples. */
void nvidia_history(struct daemon *d, json_t *series, uint64_t first);
/* Closes the slot numbered d->samples; d->samples is counted up after it. */
void nvidia_sample(struct daemon *d);
/*
 * What was recorded of who held which GPU when, from number `since` on: {"first", "next",
 * "events"}.
 */
json_t *nvidia_timeline(uint64_t since);

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
