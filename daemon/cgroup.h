/* SPDX-License-Identifier: MIT */
/* cgroup.h - names of cgroups, and which one a process is in: see cgroup.c. */
#ifndef RTXGD_CGROUP_H
#define RTXGD_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "message.h"

#define CGROUP_MAX RTXG_CGROUP_MAX

/*
 * A cgroup is named by its path from the root of the hierarchy ("/robot.slice/camera.service"), or
 * by the name of a systemd unit ("camera.service"). Takes a leading /sys/fs/cgroup and trailing
 * slashes off. NULL, or what is wrong with the name and what is accepted.
 */
const char *cgroup_clean(const char *name, char clean[CGROUP_MAX + 1]);
/*
 * The path of the cgroup that a process is in. 0, -ESRCH, or -EXDEV if this daemon cannot see it.
 */
int cgroup_of(pid_t pid, char path[CGROUP_MAX + 1]);
/*
 * How deep the cgroup of that name stands in a path: the process is in it, or below it. 0: it is
 * not in the path. pattern: the name is one of glob(7), component by component.
 */
unsigned int cgroup_depth(const char *path, const char *name, bool pattern);
/* Who owns the cgroup's folder. 0 or -ENOENT: there is no such cgroup now. */
int cgroup_owner(const char *path, uid_t *uid);

#endif
