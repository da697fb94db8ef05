/* SPDX-License-Identifier: MIT */
/* access.h - who may do what, and which vGPU a process belongs to: see access.c. */
#ifndef RTXGD_ACCESS_H
#define RTXGD_ACCESS_H

#include "daemon.h"

/* Root, group rtxg, and the owner of a user's own daemon. */
bool access_administer(const struct connection *c);
/* May it raise its own priorities? Administrators. */
bool access_raise(const struct connection *c);
/* Is that group one of those that the peer of the socket has beside its own? */
bool access_in_group(int fd, gid_t group);
/* May this user open tasks in that vGPU? */
bool access_vgpu(const struct vgpu *vgpu, const struct connection *c);
/* The same of a user without a connection, by the vGPU's list of users alone. */
bool access_vgpu_user(const struct vgpu *vgpu, uid_t uid);
/*
 * May it know of that process, of that user? Where the machine hides the processes of others from a
 * user (hidepid=), what is told of them here is what is told of one that is not there.
 */
bool access_sees(const struct connection *c, uid_t owner);
/* The same of a process whose user is not known here. False as well: there is no such process. */
bool access_sees_process(const struct connection *c, pid_t pid);
/*
 * May this user say what holds for all who use that vGPU? Administrators, and the one who alone may
 * use it.
 */
bool access_vgpu_all(const struct vgpu *vgpu, const struct connection *c);
/*
 * The name of the vGPU that the cgroup of a process or the [Match] rules give it; "default" if
 * neither does.
 */
void access_match(struct daemon *d, pid_t pid, uid_t uid, char name[RTXG_NAME_MAX + 1]);

#endif
