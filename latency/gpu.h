/* SPDX-License-Identifier: MIT */
/*
 * gpu.h - `rtxg latency --gpu`: from the launch of a small kernel to the moment at which the
 * program knows that it is done, and where that time went.
 */
#ifndef RTXG_LATENCY_GPU_H
#define RTXG_LATENCY_GPU_H

#include <jansson.h>
#include <stdio.h>

#include "kernel.h"
#include "probe.h"

struct gpu;

/*
 * which: "cuda", "opencl", or NULL for the first that works. The log of context switches is read
 * where the driver has one and allows it; `said` is called with the reason where not. NULL, and why
 * in *reason.
 */
struct gpu *gpu_open(const char *which, void (*said)(const char *format, ...), const char **reason);
void gpu_close(struct gpu *g);
/*
 * Makes the thread launch in each cycle. The kernel's side (may be NULL) tells when it was woken.
 */
void gpu_attach(struct gpu *g, struct probe *p, struct kernel *k);
/* Reads the log; to be called ten times a second, and once when the thread has ended. */
void gpu_collect(struct gpu *g);
void gpu_show(struct gpu *g, FILE *out);
/* A new reference. */
json_t *gpu_json(struct gpu *g);
/*
 * The longest launch since the last call, as recorder_worst_json has a wake-up; NULL: there was
 * none.
 */
json_t *gpu_line_json(struct gpu *g);

#endif
