/* SPDX-License-Identifier: MIT */
/*
 * objects.h - GPUs, vGPUs and pools: names and lifetimes. A call that can be refused returns 0 or a
 * negative errno, with a sentence in `why`, and with the core's refusal in `refusal` unless that is
 * NULL.
 */
#ifndef RTXGD_OBJECTS_H
#define RTXGD_OBJECTS_H

#include "daemon.h"

/* Sets d->gpu_default: the parameters of a GPU that no file configured. */
void objects_gpu_defaults(struct daemon *d);
struct gpu *objects_gpu_find(struct daemon *d, const char *name);
/* Is the name a place on the PCI bus where a device is that computes or draws? */
bool objects_gpu_on_bus(const char *name);
/*
 * The GPU of that name; a new name adds a GPU. user: whose task names it, NULL = an administrator.
 */
struct gpu *objects_gpu_get(struct daemon *d, const char *name, enum origin origin,
			    struct user *user, char *why, size_t size, int *error);
int objects_gpu_change(struct daemon *d, struct gpu *gpu, const struct rtxg_gpu_params *params,
		       char *why, size_t size, struct rtxg_refusal *refusal);

/* An account: a vGPU on a GPU. adopt and forget change our tables only, not the host's. */
struct account *objects_account_adopt(struct daemon *d, struct vgpu *vgpu, struct gpu *gpu);
void objects_account_forget(struct daemon *d, struct account *account);
/* Makes it if it is not there. user: whose task it is for, with a quota; NULL: no quota holds. */
struct account *objects_account_get(struct daemon *d, struct vgpu *vgpu, struct gpu *gpu,
				    struct user *user, char *why, size_t size, int *error,
				    struct rtxg_refusal *refusal);
/* Ends one without tasks. -EBUSY: a task has come that our tables do not show yet. */
int objects_account_put(struct daemon *d, struct account *account);

struct vgpu *objects_vgpu_find(struct daemon *d, const char *name);
int objects_vgpu_create(struct daemon *d, const struct vgpu *wanted, struct vgpu **vgpu, char *why,
			size_t size, struct rtxg_refusal *refusal);
/* Takes over the parameters of `wanted`, and the priority of its tasks. */
int objects_vgpu_change(struct daemon *d, struct vgpu *vgpu, const struct vgpu *wanted, char *why,
			size_t size, struct rtxg_refusal *refusal);
/*
 * It is for that GPU from now on; "": for all. An objects_vgpu_change() has to follow, which asks
 * for what it reserves there. -EBUSY with a sentence while programs are in it.
 */
int objects_vgpu_retarget(struct daemon *d, struct vgpu *vgpu, const char *gpu, char *why,
			  size_t size);
/* -EBUSY while tasks are in the vGPU or on their way to it. */
int objects_vgpu_remove(struct daemon *d, struct vgpu *vgpu);
/* Removes the vGPU from our tables; the host has nothing of it any more. */
void objects_vgpu_forget(struct daemon *d, struct vgpu *vgpu);
/* Removes a transient vGPU whose creator has ended and which has neither task nor program. */
void objects_vgpu_collect(struct daemon *d, struct vgpu *vgpu);
/* The vGPU goes with that process; takes the descriptor over. 0 or a negative errno. */
int objects_vgpu_follow(struct daemon *d, struct vgpu *vgpu, int pidfd, pid_t pid);
/* It goes with no process: it has been made to last, or that process has ended. */
void objects_vgpu_unfollow(struct vgpu *vgpu);
/* Whether a vGPU gets, beyond its reservation, the time that others leave on that GPU. */
bool objects_work_conserving(const struct vgpu *vgpu, const struct gpu *gpu);

struct pool *objects_pool_find(struct daemon *d, const char *name);
int objects_pool_create(struct daemon *d, const char *name, uint64_t mask, char *why, size_t size);
int objects_pool_remove(struct daemon *d, struct pool *pool);

/* A refusal of the core (NULL: an errno) as a sentence about `what`. */
void objects_explain(char *why, size_t size, const char *what, const struct rtxg_refusal *refusal,
		     int error);

#endif
