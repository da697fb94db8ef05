/* SPDX-License-Identifier: MIT */
/* control_vgpu.h - handlers of requests: see control.c for their table, control_vgpu.c for them. */
#ifndef RTXGD_CONTROL_VGPU_H
#define RTXGD_CONTROL_VGPU_H

#include "daemon.h"

/* The vGPU that the request names. NULL: the client knows that it is not there. */
struct vgpu *control_find_vgpu(struct connection *c, const struct request *r);

void control_vgpu_list(struct connection *c, const struct request *r);
void control_vgpu_create(struct connection *c, const struct request *r);
void control_vgpu_set(struct connection *c, const struct request *r);
void control_vgpu_remove(struct connection *c, const struct request *r);

#endif
