/* SPDX-License-Identifier: MIT */
/* control_cgroup.h - requests about cgroups with a vGPU: see control_cgroup.c. */
#ifndef RTXGD_CONTROL_CGROUP_H
#define RTXGD_CONTROL_CGROUP_H

#include "daemon.h"

/*
 * May the client bind the cgroup that the request names, by its name or by a process in it? Its
 * name, and the user whose processes it is to hold for. 0, or a negative errno with a sentence.
 */
int control_cgroup_name(struct connection *c, const struct request *r, const struct vgpu *vgpu,
			char name[RTXG_CGROUP_MAX + 1], uid_t *uid, char *why, size_t size);

void control_cgroup_bind(struct connection *c, const struct request *r);
void control_cgroup_unbind(struct connection *c, const struct request *r);

#endif
