/* SPDX-License-Identifier: MIT */
/*
 * metrics.h - what the request "metrics" collects: counters since the daemon began, without what
 * tells who runs what. Each backend appends to the lists; docs/reference/protocol.md has the
 * members.
 */
#ifndef RTXGD_METRICS_H
#define RTXGD_METRICS_H

#include "daemon.h"

/*
 * vgpus and processes have a string for each row: cells with '/' between them, in the order of
 * metrics_vgpu_columns and metrics_process_columns. more: what only some vGPUs have.
 */
struct metrics {
	const struct connection *viewer; /* who asked */
	json_t *gpus, *vgpus, *more, *processes, *levers;
};

extern const char *const metrics_vgpu_columns[];
extern const char *const metrics_process_columns[];
/* The names of columns as a list. */
json_t *metrics_columns(const char *const *names);

/* One engine of a vGPU on a GPU. */
struct metrics_engine {
	const char *gpu, *engine;
	const struct vgpu *vgpu; /* NULL: the default one */
	uint32_t tasks, waiting;
	uint64_t received_ns, entitled_ns, wanted_ns;
	uint64_t waited_ns, stopped_ns; /* UINT64_MAX: does not apply */
	/* what it got less what it was entitled to, of the last second; negative: too little */
	int64_t error_ppm;
};

/* What a vGPU with that reservation is owed for having wanted an engine for so long. */
uint64_t metrics_entitled(const struct vgpu *vgpu, uint64_t wanted_ns);
int64_t metrics_error(uint64_t received_ns, uint64_t entitled_ns, uint64_t span_ns);
/* Appends a row. more: promises and what else only some have, which is taken over; or NULL. */
void metrics_put(struct metrics *m, const struct metrics_engine *e, json_t *more);

/* A program on a GPU. */
struct metrics_process {
	pid_t pid;
	int64_t task;		       /* negative: it has none */
	const char *comm, *vgpu, *gpu; /* vgpu and gpu: NULL is none */
	bool managed;
	uint64_t received_ns, waited_ns, stopped_ns, memory; /* UINT64_MAX: not known */
};
void metrics_put_process(struct metrics *m, const struct metrics_process *p);

#endif
