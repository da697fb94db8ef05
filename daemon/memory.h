/* SPDX-License-Identifier: MIT */
/* memory.h - limits on GPU memory of vGPUs: see memory.c. */
#ifndef RTXGD_MEMORY_H
#define RTXGD_MEMORY_H

#include "daemon.h"

/* The backends have been started: on which GPUs memory can be limited is tried from now on. */
void memory_start(struct daemon *d);
void memory_stop(void);
/* A vGPU, its limit or its cgroups have changed: all limits are looked at soon. */
void memory_changed(struct daemon *d);
/* A cgroup may have come, gone, or been made again: looks at some. Call it often. */
void memory_next(struct daemon *d);
/*
 * Can the limit of `wanted` be kept on a GPU of its, as far as is known by now? 0, or a negative
 * errno with a sentence. A request is refused then. What a file says is kept as far as it goes,
 * because at the start nothing is known: the doctor says how far.
 */
int memory_admit(struct daemon *d, const struct vgpu *wanted, char *why, size_t size);
/* "memory_limit" of docs/reference/protocol.md; NULL: the vGPU has none. */
json_t *memory_report(const struct vgpu *vgpu);
/* A line of the doctor for each GPU, and for each vGPU with a limit; say: report_check(). */
void memory_doctor(struct daemon *d, json_t *checks,
		   void (*say)(json_t *list, const char *name, bool ok, const char *remedy,
			       const char *format, ...));

#endif
