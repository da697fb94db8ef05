/* SPDX-License-Identifier: MIT */
/* cgroup.h - `rtxg run --cgroup`: see cgroup.c. */
#ifndef RTXG_CLI_CGROUP_H
#define RTXG_CLI_CGROUP_H

/* Puts this process into a cgroup that is there. 0, or a negative errno after complaining. */
int cgroup_enter(const char *name);
/* The cgroup that this process is in belongs to the vGPU from now on. As above. */
int cgroup_bind_own(const char *vgpu);

#endif
