/* SPDX-License-Identifier: MIT */
/* nvidia_metrics.h - the NVIDIA lever in the reply of "metrics": see nvidia_metrics.c. */
#ifndef RTXGD_NVIDIA_METRICS_H
#define RTXGD_NVIDIA_METRICS_H

#include "metrics.h"

/* Before a slot of the history is closed: what was wanted in it counts with the share of now. */
void nvidia_metrics_sample(struct daemon *d);
/* A vGPU of that number has gone. */
void nvidia_metrics_forget(uint32_t number);
void nvidia_metrics(struct daemon *d, uint64_t now, struct metrics *m);

#endif
