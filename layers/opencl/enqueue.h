/* SPDX-License-Identifier: MIT */
/*
 * enqueue.h - the calls that enqueue a command, and what their wrappers have in common.
 */
#ifndef RTXG_OPENCL_ENQUEUE_H
#define RTXG_OPENCL_ENQUEUE_H

#include "gate.h"
#include "queue.h"
#include "rtxg.h"

#define WAIT cl_uint n, const cl_event *list, cl_event *event
#define GIVE t.n, t.list, t.event
/* A managed command is enqueued without blocking; layer_gate_leave waits. */
#define BLOCKING (t.batch ? CL_FALSE : blocking)

#define RUN(engine, key, units, blocking, call)                                            \
	do {                                                                               \
		struct layer_ticket t;                                                     \
                                                                                           \
		layer_gate_enter(&t, queue, engine, key, units, blocking, n, list, event); \
		return layer_gate_leave(&t, t.refused ? CL_OUT_OF_RESOURCES : (call));     \
	} while (0)

/* What occupies no engine, but may carry a dependency from one command to the next. */
#define PASS(kind, call)                                                \
	do {                                                            \
		struct layer_ticket t;                                  \
                                                                        \
		layer_gate_enter_pass(&t, queue, kind, n, list, event); \
		return layer_gate_leave(&t, call);                      \
	} while (0)

/*
 * A map for writing only moves nothing from the device, one that invalidates moves nothing at all.
 */
static inline int map_engine(cl_map_flags flags)
{
	return flags & CL_MAP_READ ? RTX_COPY_OUT : RTX_COPY_IN;
}

void layer_enqueue_install(cl_icd_dispatch *table);

#endif
