/* SPDX-License-Identifier: MIT */
/*
 * launcher.h - a small kernel on a GPU, through CUDA or OpenCL, whichever is here. Both are loaded
 * when they are needed: nothing is linked.
 */
#ifndef RTXG_LATENCY_LAUNCHER_H
#define RTXG_LATENCY_LAUNCHER_H

#include <stdint.h>

struct launcher;

struct launcher_times {
	uint64_t submitted_ns; /* CLOCK_MONOTONIC: the launch call had returned */
	uint64_t start_gpu_ns; /* by the GPU's clock: the kernel began, */
	uint64_t end_gpu_ns;   /* and ended */
};

/*
 * which: "cuda", "opencl", or NULL for the first that works. NULL, and why in *reason, where none
 * does: text that need not be freed.
 */
struct launcher *launcher_open(const char *which, const char **reason);
void launcher_close(struct launcher *l);
/* "CUDA: NVIDIA H100". */
const char *launcher_name(const struct launcher *l);
/* The address of CUDA's device, as "0000:41:00.0"; NULL: CUDA does not say, or it is OpenCL's. */
const char *launcher_pci(const struct launcher *l);
/* Launches one kernel and sleeps until it is done. By one thread only. 0 or -EIO. */
int launcher_run(struct launcher *l, struct launcher_times *times);

#endif
