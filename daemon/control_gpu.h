/* SPDX-License-Identifier: MIT */
/* control_gpu.h - handlers of requests: see control.c for their table, control_gpu.c for them. */
#ifndef RTXGD_CONTROL_GPU_H
#define RTXGD_CONTROL_GPU_H

#include "daemon.h"

void control_gpu_list(struct connection *c, const struct request *r);
void control_gpu_set(struct connection *c, const struct request *r);

#endif
