/* SPDX-License-Identifier: MIT */
/* binding.h - which cgroups belong to which vGPU: see binding.c. */
#ifndef RTXGD_BINDING_H
#define RTXGD_BINDING_H

#include "cgroup.h"
#include "daemon.h"

struct binding {
	char *cgroup;
	struct vgpu *vgpu;
	uid_t uid;	   /* whose processes it holds for; 0: of all users */
	struct user *user; /* for whom it counts; NULL: an administrator */
	bool configured;   /* by [VGPU NAME] Cgroup= */
	bool transient;	   /* it goes with the cgroup, as a container's */
};

/*
 * The name (as cgroup_clean() gave it) belongs to the vGPU from now on; one that belonged to
 * another vGPU changes over. 0, or a negative errno with a sentence.
 */
int binding_add(struct daemon *d, const char *cgroup, struct vgpu *vgpu, uid_t uid, bool configured,
		char *why, size_t size);
/* It goes with the cgroup. */
void binding_follow(struct daemon *d, const char *cgroup);
/*
 * Drops one that goes with its cgroup, if that is there no longer; true: it has. Call it often:
 * each looks at one.
 */
bool binding_next(struct daemon *d);
/* -ENOENT: that vGPU has no such cgroup. -EACCES: it is another user's binding. */
int binding_remove(struct daemon *d, const char *cgroup, const struct vgpu *vgpu, uid_t uid);
/* The vGPU goes. */
void binding_forget(struct daemon *d, const struct vgpu *vgpu);
/* Those that the configuration made. */
void binding_forget_configured(struct daemon *d);
/* The vGPU of the deepest cgroup that the path leads through; NULL: none. uid: of the process. */
struct vgpu *binding_find(const struct daemon *d, const char *path, uid_t uid);
/* Those of a vGPU: "cgroups" of docs/reference/protocol.md. */
json_t *binding_report(const struct daemon *d, const struct vgpu *vgpu);

#endif
