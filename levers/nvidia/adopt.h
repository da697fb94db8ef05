/* SPDX-License-Identifier: MIT */
/*
 * adopt.h - contexts that are older than the daemon: finds the clients, groups and channels of a
 * process that were not seen being allocated, by asking the driver through duplicates of the
 * process's own descriptors.
 */
#ifndef RTXG_NV_ADOPT_H
#define RTXG_NV_ADOPT_H

#include "channels.h"
#include "rm.h"

struct nv_adopt_stats {
	unsigned int descriptors, clients, objects, calls;
	uint64_t ns;
};

/*
 * Feeds the registry with what the process owns. Returns how many compute channels it found (0: it
 * has none), or a negative errno: -EPERM without the privilege to duplicate its descriptors
 * (CAP_SYS_PTRACE).
 */
int nv_adopt(struct nv_rm_gpu *gpus, int gpu_count, struct nv_registry *registry, uint32_t pid,
	     struct nv_adopt_stats *stats);

/*
 * What a process owns, for people and for looking further: seen is called for each client that has
 * objects, with a duplicate of the descriptor it was allocated on (for the time of the call).
 */
struct nv_adopt_object {
	uint32_t handle, class_id, parent;
};
typedef void (*nv_adopt_seen)(void *ctx, int fd, uint32_t client,
			      const struct nv_adopt_object *list, unsigned int count);
int nv_adopt_objects(struct nv_rm_gpu *gpus, int gpu_count, uint32_t pid, nv_adopt_seen seen,
		     void *ctx);

/* Does that process have the control device open? Also if that cannot be looked at. */
bool nv_uses_driver(const struct nv_sys *sys, uint32_t pid);

/* Its name, from /proc; empty if it has gone. */
void nv_process_name(uint32_t pid, char *comm, size_t size);

/*
 * Process ids that have the control device open, at most cap; how many there are. Looks at /proc.
 */
int nv_users(const struct nv_sys *sys, uint32_t *pids, int cap);

#endif
