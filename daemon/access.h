/* SPDX-License-Identifier: MIT */
/* access.h - who may do what, and which vGPU a process belongs to: see access.c. */
#ifndef RTXGD_ACCESS_H
#define RTXGD_ACCESS_H

#include "daemon.h"

/* Root, group rtxg, and the owner of a user's own daemon. */
bool access_administer(const struct connection *c);
/* May it raise its own priorities? Administrators. */
bool access_raise(const struct connection *c);
/* May this user open tasks in that vGPU? */
bool access_vgpu(const struct vgpu *vgpu, const struct connection *c);
/* The name of the vGPU that the [Match] rules give the process; "default" if none matches. */
void access_match(struct daemon *d, const struct connection *c, char name[RTXG_NAME_MAX + 1]);

#endif
