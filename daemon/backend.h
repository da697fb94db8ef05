/* SPDX-License-Identifier: MIT */
/*
 * backend.h - what governs GPUs on the daemon's side: the gate (tasks that were opened, wherever
 * the core is) and the NVIDIA lever (processes that carry nothing of rtxg). A request that lists or
 * changes goes to each of them. A member that is NULL has nothing to do.
 */
#ifndef RTXGD_BACKEND_H
#define RTXGD_BACKEND_H

#include "daemon.h"

struct metrics;
struct reply_rows;
struct series_list;

/* Which tasks a list is to have. NULL, 0 and false: all. */
struct backend_filter {
	const char *vgpu, *gpu;
	int64_t pid;
	bool numbered; /* only the task of this number */
	int64_t task;
	bool on_gpu; /* only what is on a GPU, and no process of which that is not known */
	const struct connection *viewer;
};

/*
 * A list of tasks that is made in pieces, and what of it is done. Between two pieces tasks start,
 * end and change. Each row is true when it is made. No task has two rows, and one that lives all
 * the time has one.
 */
struct backend_rows {
	struct reply_rows *out;
	uint64_t end_ns;  /* the piece ends when this has passed, after one row at least */
	uint32_t backend; /* whose rows are made */
	uint32_t next;	  /* the backend's own: where it goes on, zero at first */
	void *seen;	  /* likewise: NULL at first, and freed at the end */
};

/* Members stand in the order of the daemon's life. */
struct backend {
	const char *name;
	/* The daemon's real-time priority while the backend is busy; 0: any. */
	int urgency;
	/* Never an error: doctor says what a backend could not do. */
	void (*start)(struct daemon *d);
	void (*stop)(void);

	/*
	 * Can the vGPU (NULL: one that is not there yet) have the parameters of `wanted`? 1: its
	 * bound on latency is kept on a GPU of the backend's; 0: nothing against it; or a negative
	 * errno with a sentence.
	 */
	int (*admit)(struct daemon *d, const struct vgpu *vgpu, const struct vgpu *wanted,
		     char *why, size_t size, struct rtxg_refusal *refusal);
	/* No backend keeps the bound on latency: what it is on the GPUs of this one. */
	void (*unkept)(struct daemon *d, const struct vgpu *wanted, char *why, size_t size);
	/* A vGPU was made or changed; it goes. */
	void (*vgpu_changed)(struct daemon *d, const struct vgpu *vgpu);
	void (*vgpu_gone)(struct daemon *d, const struct vgpu *vgpu);
	/*
	 * Puts a process without a task of ours, and its children, into a vGPU. period_ns: of its
	 * releases, which holds for the whole vGPU; 0 = sporadic. sets: whether the vGPU's may be
	 * another one afterwards. Where it may not, 0 says nothing, and -EPERM: it would have to.
	 * -EOPNOTSUPP: the backend governs no such processes.
	 */
	int (*assign)(struct daemon *d, pid_t pid, const struct vgpu *vgpu, uint64_t period_ns,
		      bool sets);

	/*
	 * Puts programs that were put nowhere by a request where access_match() says: all of them,
	 * or the next one.
	 */
	void (*place)(struct daemon *d, bool all);

	/* Does the backend govern a program without a task of ours in this vGPU? */
	bool (*populates)(struct daemon *d, const struct vgpu *vgpu);
	/* Does the backend govern a program now? Then samples are taken, and the daemon stays. */
	bool (*busy)(const struct daemon *d);
	/* Processor time that the backend used in this thread, which is no client's doing. */
	uint64_t (*own_ns)(void);
	/* Closes the slot numbered d->samples of the backend's history. */
	void (*sample)(struct daemon *d);

	/* Is there a GPU of that name? */
	bool (*has)(struct daemon *d, const char *gpu);
	/* Append what docs/reference/protocol.md has of each to a list of the reply. */
	void (*gpus)(struct daemon *d, json_t *gpus);
	/* The next piece of the list; true: it was the last one. */
	bool (*tasks)(struct daemon *d, const struct backend_filter *filter,
		      struct backend_rows *rows);
	void (*stats)(struct daemon *d, uint64_t now, json_t *gpus);
	/* Adds what is known of the GPU memory of each vGPU's programs; UINT64_MAX = nothing. */
	void (*memory)(struct daemon *d, uint64_t used[VGPUS_MAX]);
	/* Counters, for the request "metrics". */
	void (*metrics)(struct daemon *d, uint64_t now, struct metrics *m);
	/* Copies the next piece of the series in which something happened; true: the last one. */
	bool (*history)(struct daemon *d, struct series_list *list);
	/* The events from number `since` on: {"first", "next", "events"}. */
	json_t *(*timeline)(uint64_t since, const struct connection *viewer);
	void (*doctor)(struct daemon *d, json_t *checks, const struct connection *viewer);
};

/* All that this build has, NULL at the end: for daemon.backends. */
extern const struct backend *const backends[];

/* Each asks all backends of the daemon. */
void backend_start(struct daemon *d);
void backend_stop(struct daemon *d);
/*
 * 0: no backend is against it, and one keeps the bound on latency if there is one. Else a negative
 * errno with a sentence; with the numbers in refusal unless that is NULL.
 */
int backend_admit(struct daemon *d, const struct vgpu *vgpu, const struct vgpu *wanted, char *why,
		  size_t size, struct rtxg_refusal *refusal);
void backend_vgpu_changed(struct daemon *d, const struct vgpu *vgpu);
void backend_vgpu_gone(struct daemon *d, const struct vgpu *vgpu);
/* The first answer that is not -EOPNOTSUPP. */
int backend_assign(struct daemon *d, pid_t pid, const struct vgpu *vgpu, uint64_t period_ns,
		   bool sets);
void backend_place(struct daemon *d, bool all);
bool backend_populates(struct daemon *d, const struct vgpu *vgpu);
bool backend_busy(const struct daemon *d);
/* The highest urgency of those that are busy. */
int backend_urgency(const struct daemon *d);
uint64_t backend_own_ns(const struct daemon *d);
void backend_sample(struct daemon *d);
bool backend_has(struct daemon *d, const char *gpu);
void backend_gpus(struct daemon *d, json_t *gpus);
/* The next piece, into rows->out; true: it was the last one. */
bool backend_tasks(struct daemon *d, const struct backend_filter *filter,
		   struct backend_rows *rows);
/* Frees what the backends keep between two pieces. */
void backend_rows_drop(struct backend_rows *rows);
void backend_stats(struct daemon *d, uint64_t now, json_t *gpus);
/* GPU memory that the programs of d->vgpus[i] have in use; UINT64_MAX: not known. */
void backend_memory(struct daemon *d, uint64_t used[VGPUS_MAX]);
void backend_metrics(struct daemon *d, uint64_t now, struct metrics *m);
/* The next piece; true: it was the last one. */
bool backend_history(struct daemon *d, struct series_list *list);
json_t *backend_timeline(struct daemon *d, uint64_t since, const struct connection *viewer);
void backend_doctor(struct daemon *d, json_t *checks, const struct connection *viewer);

#endif
