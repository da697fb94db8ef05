/* SPDX-License-Identifier: MIT */
/*
 * lever_nvidia.h - the NVIDIA lever as a host uses it: one descriptor to wait on, one function to
 * call when it is readable.
 *
 * The lever finds the contexts (BPF), reads who held the GPU when (the driver's context-switch
 * log), asks the core's slice policy (core/slice/rtxg_slice.h) what to do, and does it through the
 * stock driver's controls. Programs carry nothing of it. What it stops stands in a journal that a
 * guardian process watches: nothing stays stopped when the daemon dies.
 *
 * Not thread-safe: one thread calls it. Every call that reaches the driver may take up to a few
 * milliseconds.
 */
#ifndef RTXG_LEVER_NVIDIA_H
#define RTXG_LEVER_NVIDIA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include "rtxg_slice.h"

struct lever_nvidia;
struct nv_sys;

#define LEVER_NVIDIA_GPUS 32u
/* vGPUs of one GPU: 0 is the default one, for processes that were not assigned */
#define LEVER_NVIDIA_VGPUS    64u
#define LEVER_NVIDIA_CONTEXTS 512u /* governed processes of one GPU */

/* instead of a number: the driver does not say */
#define LEVER_NVIDIA_NOT_KNOWN UINT64_MAX

enum lever_nvidia_log {
	LEVER_NVIDIA_ERROR,
	LEVER_NVIDIA_WARNING,
	LEVER_NVIDIA_INFO,
	LEVER_NVIDIA_DEBUG,
};

struct lever_nvidia_ops {
	size_t size; /* sizeof(struct lever_nvidia_ops) */
	void *ctx;
	/* A line for the log. May be NULL. */
	void (*log)(void *ctx, enum lever_nvidia_log level, const char *line);
	/*
	 * A process got its first context on a GPU (vgpu: the one it was put in), or has none any
	 * more. May be NULL.
	 */
	void (*context)(void *ctx, uint32_t gpu, uint32_t pid, const char *comm, uint32_t vgpu,
			bool alive);
	/*
	 * One stay on the engine, from the log: when (CLOCK_MONOTONIC), for how long, whose. May be
	 * NULL.
	 */
	void (*stay)(void *ctx, uint32_t gpu, uint32_t pid, uint32_t vgpu, uint64_t start_ns,
		     uint64_t end_ns);
	/*
	 * The lever stopped or resumed a process, or set its slice (ns; 0 = stop, UINT64_MAX =
	 * resume). May be NULL.
	 */
	void (*acted)(void *ctx, uint32_t gpu, uint32_t pid, uint64_t at_ns, uint64_t took_ns,
		      uint64_t what);
	/*
	 * What the host calls a vGPU, for the file of assignments (one line, at most 127 bytes;
	 * false: not worth keeping), and the number of the vGPU that it calls so now (negative:
	 * none as yet). Both NULL: by their numbers.
	 */
	bool (*label)(void *ctx, uint32_t vgpu, char *text, size_t size);
	int (*number)(void *ctx, const char *label);
	/*
	 * The number of the vGPU that a process belongs to which was put into none, and which did
	 * not inherit one. NULL: of the default one.
	 */
	uint32_t (*place)(void *ctx, uint32_t pid);
	/*
	 * Called between two pieces of what takes the lever long: what the host does must not wait.
	 * It may not call the lever. May be NULL.
	 */
	void (*breathe)(void *ctx);
	/*
	 * Starts a program with these words (up to a NULL), the files as its descriptors 3 and 4
	 * and no others but the standard ones, in a process group of its own, with all signals
	 * blocked. Its pidfd and *pid, or a negative errno. NULL: the lever forks, and closes what
	 * the host has open.
	 */
	int (*start_program)(void *ctx, const char *path, const char *const words[],
			     const int files[2], pid_t *pid);
};

struct lever_nvidia_options {
	size_t size;		  /* sizeof(struct lever_nvidia_options) */
	const struct nv_sys *sys; /* NULL: Linux */
	/* path of rtxg-guardian; NULL: beside the running program, else in PATH */
	const char *guardian;
	/* tests only: then nothing is ever stopped unless allow_unguarded */
	bool no_guardian;
	bool allow_unguarded;
	/* try each capability by its effect first (some seconds) */
	bool probe;
	bool no_discovery;    /* tests: records come by nv_contexts_feed */
	bool no_adoption;     /* tests: what is there at the start is left alone */
	bool no_lookout;      /* tests: no thread looks into queues while a call lasts */
	const char *releases; /* page for librtxg-cuda.so (rtxg/releases.h); NULL: none */
	/* file of who was put into which vGPU, which a restarted daemon reads; NULL: none */
	const char *assigned;
	/* `can` is ANDed with what the probes found; 0 means to slice and to suspend */
	struct rtxg_slice_params slice;
};

/*
 * Opens the driver and every GPU, the log, the discovery, the guardian; adopts the contexts that
 * are already there. On failure returns a negative errno and a sentence for people in reason (if
 * not NULL): no driver, no permission, MIG, a driver whose answers do not fit. Programs then run as
 * if rtxg were not there.
 */
int lever_nvidia_open(const struct lever_nvidia_options *options,
		      const struct lever_nvidia_ops *ops, struct lever_nvidia **lever, char *reason,
		      size_t reason_size);
/* Resumes everything, gives back the driver's own slices, ends the guardian. */
void lever_nvidia_close(struct lever_nvidia *lever);

/* Readable (poll, epoll) when there is something to do. */
int lever_nvidia_fd(const struct lever_nvidia *lever);
/*
 * Does it. 0, or a negative errno after which the lever has let go of everything and is to be
 * closed.
 */
int lever_nvidia_dispatch(struct lever_nvidia *lever);
/*
 * Reads the log where it was not read for 20 ms, so that all views are true of now. A host that
 * looks at them regularly does so before; the lever wakes up by itself the less often.
 */
void lever_nvidia_catch_up(struct lever_nvidia *lever);

/* GPUs are numbered as nvidia-smi does it, by their place on the PCI bus. */
uint32_t lever_nvidia_gpus(const struct lever_nvidia *lever);
struct lever_nvidia_gpu {
	char pci[24]; /* 0000:41:00.0 */
	bool lost;    /* the lever has let go of it */
	bool mig;     /* in MIG mode: nothing is governed there */
	bool turns;   /* a latency-critical task is active: best effort takes turns */
	/* 0, or why there is no context-switch log: nothing is governed there */
	int log_error;
	uint32_t contexts;
	uint64_t log_lost; /* records of the log that the driver dropped */
};
int lever_nvidia_gpu(const struct lever_nvidia *lever, uint32_t gpu, struct lever_nvidia_gpu *view);

/* vGPU 1..63 on one GPU: add or change. -EINVAL as rtxg_slice. */
int lever_nvidia_vgpu_set(struct lever_nvidia *lever, uint32_t gpu, uint32_t vgpu,
			  const struct rtxg_slice_tenant *tenant);
/* -EBUSY while processes are in it. */
int lever_nvidia_vgpu_remove(struct lever_nvidia *lever, uint32_t gpu, uint32_t vgpu);

/*
 * Puts a process, and the children that it forks from now on, into a vGPU (by number, on every GPU
 * it uses): before it has a context or after. -ENOENT if no GPU has such a vGPU.
 */
int lever_nvidia_assign(struct lever_nvidia *lever, uint32_t pid, uint32_t vgpu);
/*
 * Asks the host again where processes belong that were put into no vGPU: all of them, or one that
 * was not asked about for the longest time.
 */
void lever_nvidia_place(struct lever_nvidia *lever, bool all);
/*
 * The host has vGPUs now (or one more) to which processes may belong that an earlier daemon had put
 * there: puts them and what they have forked meanwhile back.
 */
void lever_nvidia_restore(struct lever_nvidia *lever);

/* Stops governing (everything resumed, the driver's slices back) and starts again. */
int lever_nvidia_enable(struct lever_nvidia *lever, bool on);

int lever_nvidia_vgpu_view(const struct lever_nvidia *lever, uint32_t gpu, uint32_t vgpu,
			   struct rtxg_slice_view *view);

/*
 * Could a vGPU (RTXG_SLICE_NONE: one that is not there yet) have these parameters on that GPU? As
 * rtxg_slice_admit(); -ENODEV where nothing is governed on the GPU.
 */
int lever_nvidia_vgpu_admit(const struct lever_nvidia *lever, uint32_t gpu, uint32_t vgpu,
			    const struct rtxg_slice_tenant *tenant,
			    struct rtxg_slice_admission *admission);
/* How the GPU is shared now, and what that costs. -EINVAL: there is no such GPU. */
int lever_nvidia_gpu_slice(const struct lever_nvidia *lever, uint32_t gpu,
			   struct rtxg_slice_gpu_view *view);
/* The process of a context that a view of that GPU names; 0: none. */
uint32_t lever_nvidia_pid(const struct lever_nvidia *lever, uint32_t gpu, uint32_t context);

struct lever_nvidia_process {
	uint32_t pid, vgpu, gpu;
	char comm[16];
	/*
	 * false: it has a context that the lever cannot act on, remedy says why and what to do.
	 * true and a remedy: a part of the means is refused, for good or for now
	 */
	bool managed;
	bool mps; /* an MPS server: all of its clients are one context */
	/*
	 * It is a client of the MPS server of that pid: it works in the server's context and vGPU,
	 * and the server has all accounts. 0: it is not
	 */
	uint32_t server;
	bool adopted, stopped;
	bool warms; /* librtxg-cuda.so is in it */
	uint32_t channels;
	uint64_t slice_ns; /* 0: the driver's own */
	const char *remedy;
	/*
	 * From the context-switch log, since it is governed (what was before a restart of the
	 * policy is kept)
	 */
	uint32_t state; /* enum rtxg_slice_state */
	uint32_t reserved;
	uint64_t work_ns, stay_ns, stays, stopped_ns, since_ns;
	/*
	 * GPU memory that it has in use on this GPU; LEVER_NVIDIA_NOT_KNOWN unless
	 * lever_nvidia_memory() was told it
	 */
	uint64_t memory_bytes;
};
/*
 * Fills up to cap; returns how many there are: one entry for each GPU that a process has a context
 * on, or works on in its MPS server's.
 */
int lever_nvidia_processes(const struct lever_nvidia *lever, struct lever_nvidia_process *list,
			   int cap);
/*
 * Fills in memory_bytes of a list that lever_nvidia_processes() gave: what the process alone has,
 * and what it shares with others and has allocated itself. Asks the driver once for each GPU (and
 * each 200 processes), which looks through all of their allocations: for people who ask, not for
 * the loop. Returns 0, or the error of the first GPU that would not say (-ENOTSUP: a driver that
 * does not know the question); what the others said is filled in.
 */
int lever_nvidia_memory(struct lever_nvidia *lever, struct lever_nvidia_process *list, int count);

/* What this GPU and driver allow, tried out: one line for each capability. */
struct lever_nvidia_probe {
	/* "discovery", "log", "slice", "suspend", "resume", "adoption", "guardian" */
	const char *name;
	int error; /* 0: works; negative errno: does not */
	char detail[160];
};
int lever_nvidia_probes(const struct lever_nvidia *lever, struct lever_nvidia_probe *list, int cap);

/* Counters since the start, for metrics. */
struct lever_nvidia_stats {
	uint64_t suspends, resumes, slices, failures, log_lost, refused_records;
	uint64_t suspend_ns, resume_ns, slice_ns; /* sums of time taken */
	uint64_t xids;
	uint64_t slices_lost; /* found changed by the program itself, and set again */
	uint64_t final;	      /* of the failures, those that will not pass */
	uint64_t dispatches;  /* times the lever was woken */
	uint64_t arms;	      /* times its timer was set */
	uint64_t flushes;     /* of the log */
	uint64_t calls;	      /* of the driver, */
	uint64_t calls_ns;    /* and how long they took, with their waits for its locks */
	/* into queues: looks, channels read, channels that cannot be seen */
	uint64_t looks, reads, blind;
	uint64_t rests; /* channels began to carry work while their process was stopped */
	uint64_t loads; /* processes that have a context and cannot be governed, now */
	bool guarded;	/* a guardian resumes what is stopped if this process dies */
	/*
	 * By how much the lever came later than it was to, how often by as much as
	 * rtxg_slice_wait_limit() says, and at most. It is late where its CPU is taken away, or
	 * where a call of the driver lasts: the longest one, and its command, class or escape.
	 */
	uint64_t late[RTXG_SLICE_WAITS];
	uint64_t late_most_ns, call_most_ns;
	uint32_t call_most;
};
void lever_nvidia_stats(const struct lever_nvidia *lever, struct lever_nvidia_stats *stats);

#endif
