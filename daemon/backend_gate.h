/* SPDX-License-Identifier: MIT */
/* backend_gate.h - tasks that were opened: see backend_gate.c. */
#ifndef RTXGD_BACKEND_GATE_H
#define RTXGD_BACKEND_GATE_H

#include "backend.h"
#include "report.h"

/* For gpu-set. */
json_t *backend_gate_gpu(const struct daemon *d, const struct gpu *gpu);
/* For task-set. `said`: as report_put_process() has it. */
json_t *backend_gate_task(struct daemon *d, const struct task *task,
			  const struct connection *viewer, struct report_process *said);
/* What can still be reserved on the GPU. */
uint64_t backend_gate_available(const struct daemon *d, const struct gpu *gpu);
uint64_t backend_gate_reserved(const struct daemon *d, const struct gpu *gpu);

extern const struct backend backend_gate;

#endif
