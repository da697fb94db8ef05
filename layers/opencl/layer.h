/* SPDX-License-Identifier: MIT */
/*
 * layer.h - what the parts of the OpenCL layer share. Nothing here is seen by programs.
 *
 *   layer.c    the layer's two entry points, queues, events and information calls
 *   enqueue.c  one wrapper for each call that enqueues a command
 *   gate.c     when a command may run: batches, permits, dependencies, completion
 *   device.c   which GPU of rtxg an OpenCL device is
 */
#ifndef RTXG_OPENCL_LAYER_H
#define RTXG_OPENCL_LAYER_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_layer.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rtxg.h"
#include "rtxg_clock.h"

#define LAYER_ENGINES 3
#define ENGINE_NONE   (-1) /* a command that occupies no engine: marker, barrier */

/* The rest of the chain: the next layer, or the loader. Written once, before any call arrives. */
extern cl_icd_dispatch layer_next;

struct layer_batch;

/* One engine of one GPU, as this process uses it. All under the layer's lock. */
struct layer_lane {
	struct layer_gpu *gpu;
	enum rtx_engine engine;
	struct layer_batch *ready_head, *ready_tail; /* may run; have no permit yet */
	/* under a permit, not known to be complete */
	struct layer_batch *admitted_head, *admitted_tail;
	/* the admitted batch that takes further commands, or NULL */
	struct layer_batch *current;
	unsigned int admitted;
	uint64_t outstanding_ns; /* estimated execution time of what is admitted */
	uint64_t launches;	 /* permits taken */
	bool contended;		 /* somebody else wants the engine, or did a moment ago */
	uint64_t contended_at;
	bool asleep;	   /* the helper sleeps until it is signalled, however long that is */
	atomic_bool armed; /* a completion callback is registered on the oldest batch */
	bool closed;	   /* no permit will come any more */
	bool helper_started;
	bool permit_missed; /* a try for the permit failed: the helper has to wait for it */
	/* futex: the helper sleeps here when it does not sleep in librtxg */
	atomic_uint signals;
	atomic_bool sleeping; /* it does, and has to be woken */
	/* copies: moving average of the time for a byte, times 1024 */
	uint64_t bytes_ns_x1024;
};

/*
 * A GPU of rtxg that this process has opened. Never freed: handles of a forked child's parent are
 * forgotten, not closed.
 */
struct layer_gpu {
	struct layer_gpu *next;
	char name[256];
	rtx_gpu_t handle; /* NULL: unmanaged */
	bool refused;	  /* could not be opened, and the policy is closed */
	struct layer_lane lanes[LAYER_ENGINES];
};

struct layer_queue {
	_Atomic(cl_command_queue) handle; /* key in the table; NULL = free */
	struct layer_gpu *gpu;		  /* NULL or ->handle NULL: unmanaged */
	cl_device_id device;
	cl_context context;
	bool in_order;
	bool hidden_profiling; /* we enabled profiling, the program did not */
	cl_command_queue_properties shown;
	/* what the program passed, with its final 0; NULL if it passed none */
	cl_queue_properties *array;
	size_t array_len;
	unsigned int generation; /* of the process (forks) in which gpu was looked up */
	unsigned int refs;	 /* the program's references, under the layer's lock */
	/* calls that enqueue and have not returned (nested ones of one thread), under the lock */
	unsigned int busy;
	pthread_t owner;      /* whose they are */
	unsigned int waiters; /* calls that wait behind them */
	/* newest unresolved batch (in order) or barrier (out of order) */
	struct layer_batch *tail;
};

/* One enqueue call on its way: what to hand to the next layer. */
struct layer_ticket {
	struct layer_batch *batch; /* NULL: pass through */
	struct layer_queue *queue;
	cl_uint n;
	const cl_event *list;
	cl_event *event;
	cl_event own;	    /* the event, where the program wants none */
	bool program_event; /* the program gets the event */
	uint32_t key;
	uint64_t units;
	uint64_t est_ns;
	cl_event gate; /* retained for the time of the call */
	bool refused;  /* no permit will ever come: fail the call */
	cl_event *heap;
	cl_event stack[16];
};

enum layer_pass {
	PASS_COMMAND, /* ordered by its wait list and its queue only */
	PASS_MARKER,  /* an empty wait list means: everything before it in the queue */
	PASS_BARRIER, /* the same, and everything after it in the queue waits for it */
};

/* gate.c */
void layer_gate_enter(struct layer_ticket *t, cl_command_queue queue, int engine, uint32_t key,
		      uint64_t units, cl_uint n, const cl_event *list, cl_event *event);
void layer_gate_enter_pass(struct layer_ticket *t, cl_command_queue queue, enum layer_pass pass,
			   cl_uint n, const cl_event *list, cl_event *event);
cl_int layer_gate_leave(struct layer_ticket *t, cl_int err, bool blocking);
void layer_gate_user_event(cl_event event);
void layer_gate_user_event_set(cl_event event);
void layer_gate_reap(void);
unsigned int layer_gate_holds(cl_event event);
void layer_gate_gpu_init(struct layer_gpu *gpu);
void layer_gate_lock(void);
void layer_gate_unlock(void);
void layer_gate_after_fork(struct layer_gpu *gpus);

/* device.c */
int layer_device_name(cl_device_id device, char *name, size_t size);
struct layer_gpu *layer_device_gpu(cl_device_id device);
void layer_device_after_fork(void);

/* layer.c */
struct layer_queue *layer_queue_find(cl_command_queue handle);
unsigned int layer_generation(void);
void layer_queue_forget_tails(void);

/* enqueue.c */
void layer_enqueue_install(cl_icd_dispatch *table);

#endif
