/* SPDX-License-Identifier: MIT */
/*
 * host.h - where the core is: in this process (host.c) or in rtxg.ko (module.c). The rest of the
 * daemon calls struct host and does not know which.
 */
#ifndef RTXGD_HOST_H
#define RTXGD_HOST_H

#include "daemon.h"

/* A task on one engine, as people see it. */
struct lane_view {
	const char *state;
	uint32_t in_flight;
	uint64_t launches, device_ns; /* its own claims */
	struct rtxg_stats stats;
};

enum verb { VERB_ADD, VERB_SET, VERB_REMOVE };

/*
 * Where the core is: in this process (host.c), or in rtxg.ko (module.c). Calls return 0 or a
 * negative errno; if it was the core that refused daemon.refusal says why.
 */
struct host {
	const char *name;
	bool here; /* tasks open through our socket, and their permits are ours to give */
	int (*gpu)(struct daemon *d, struct gpu *gpu, enum verb verb,
		   const struct rtxg_gpu_params *params);
	int (*account)(struct daemon *d, struct account *account, enum verb verb,
		       const struct rtxg_vgpu_params *params);
	int (*pool)(struct daemon *d, struct pool *pool, enum verb verb);
	/*
	 * given: by one who may name any priority: from now on the task may name this one where it
	 * is.
	 */
	int (*task_set)(struct daemon *d, struct task *task, const struct rtxg_task_params *params,
			bool given);
	/*
	 * Its account on the task's GPU is there. Takes effect once nothing of the task is in
	 * flight.
	 */
	int (*task_move)(struct daemon *d, struct task *task, struct vgpu *to);
	/*
	 * Something has changed that is no parameter of the core: who made it, who may use it, what
	 * its tasks get. Either may be NULL.
	 */
	void (*changed)(struct daemon *d, struct gpu *gpu, struct vgpu *vgpu);
	/* The configuration was read. */
	void (*configured)(struct daemon *d);
	/* The daemon's tables show what is there now. */
	void (*look)(struct daemon *d);
	/* That, and all accounts are brought up to this moment. */
	void (*count)(struct daemon *d);
	void (*account_view)(struct daemon *d, const struct account *account, uint32_t engine,
			     uint64_t now, struct rtxg_account_view *view);
	void (*lane_view)(struct daemon *d, const struct task *task, uint32_t engine,
			  struct lane_view *view);
	/*
	 * The GPU that a new task had best use, of the pool or (NULL) of all; NULL: there is none.
	 */
	struct gpu *(*advice)(struct daemon *d, const struct pool *pool);
	/* An invariant that does not hold; NULL. */
	const char *(*check)(struct daemon *d);
};

/* What the host reports to the file that keeps the tasks. */
struct host_news {
	/* The core granted the task the GPU task->permit.pool_gpu of its pool. */
	void (*pool_granted)(struct daemon *d, struct task *task);
	/* The task is in task->account now, and has left the other for good. */
	void (*moved)(struct daemon *d, struct task *task, struct account *from);
};

int host_init(struct daemon *d, const struct host_news *news);
/*
 * Calls that return int: 0 or a negative errno, and then d->permits.refusal says why. The task has
 * its page, its account and its parameters.
 */
int host_open(struct daemon *d, struct task *task);
/* What the task held or wanted is free; nothing looks at its page after this. */
void host_close(struct daemon *d, struct task *task);
/* A GPU of the pool; the answer comes by news->pool_granted, perhaps at once. */
int host_pool_acquire(struct daemon *d, struct task *task, const struct pool *pool);
/* Gives the GPU back, or withdraws the request. */
void host_pool_release(struct daemon *d, struct task *task);
/*
 * A descriptor of the epoll set is readable: data is the task whose client rang, or fence_mark() of
 * the one whose device wrote. Looks at the task's page.
 */
void host_event(struct daemon *d, void *data);
void host_look(struct daemon *d, struct task *task);
/* The core's timer is due. */
void host_timer(struct daemon *d);

#endif
