/* SPDX-License-Identifier: MIT */
/*
 * queue.h - the rest of the chain of layers, and what is known of a program's queues. Nothing in
 * the layer's headers is seen by programs.
 *
 * The layer's files, each calling only those above it:
 *
 *   queue.c      the table of queues, the next layer, the generation of a forked process
 *   device.c     the GPU of rtxg that a device is (lib/device_name.c), opened once for the process
 *   events.c     the table of events, and the calls that are left for after the lock
 *   batch.c      commands that share a permit, and what they wait for
 *   permit.c     the conversation with librtxg
 *   completion.c what has completed, and what will tell of it
 *   admission.c  which batches run
 *   monitor.c    the one lock, and what is done when it is left
 *   turn.c       calls on one queue one by one, and markers
 *   helper.c     the thread that waits for permits
 *   foreign.c    events that no command brings about
 *   gate.c       what happens around an enqueue call
 *   enqueue.c    one wrapper for each call that enqueues a command
 *   extension.c  the same for calls of extensions, which programs ask the platform for
 *   layer.c      the layer's two entry points, queues, events and information calls
 */
#ifndef RTXG_OPENCL_QUEUE_H
#define RTXG_OPENCL_QUEUE_H

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

/*
 * Not on the way of a command that nothing holds back. That way is walked after the processor has
 * slept, and each line of code it touches comes from memory: so what is rare lies elsewhere.
 */
#define LAYER_RARE	 __attribute__((cold))
#define layer_rarely(it) __builtin_expect(!!(it), 0)

/* The rest of the chain: the next layer, or the loader. Written once, before any call arrives. */
extern cl_icd_dispatch layer_next;

struct layer_batch;
struct layer_gpu;

struct layer_queue {
	/* What each command needs comes first: its lines of the cache are few. */
	_Atomic(cl_command_queue) handle; /* key in the table; NULL = free */
	struct layer_gpu *gpu;		  /* NULL or ->handle NULL: unmanaged */
	unsigned int generation;	  /* of the process (forks) in which gpu was looked up */
	/* calls that enqueue and have not returned (nested ones of one thread), under the lock */
	unsigned int busy;
	pthread_t owner;      /* whose they are */
	unsigned int waiters; /* calls that wait behind them */
	bool in_order;
	bool times;	    /* its events say when the device ran their commands */
	bool marks;	    /* its device knows markers that wait for all before them */
	bool marker_wanted; /* by another thread, which found a call under way */
	/* newest unresolved batch (in order) or barrier (out of order) */
	struct layer_batch *tail;
	/*
	 * Commands that occupy an engine are numbered as they go in. Under the monitor's lock;
	 * `left` is looked at without.
	 */
	uint64_t entered;      /* the newest */
	_Atomic uint64_t left; /* the newest when no call was under way last */
	uint64_t done;	       /* that one and all before it are known to be complete */
	uint64_t bare;	       /* the newest that has no event of which we know */
	/* of those up to this one some may have failed before those in front of them ended */
	uint64_t frail;
	cl_event marker; /* or NULL: completes with all up to marker_number */
	uint64_t marker_number;
	unsigned int refs; /* the program's references, under the monitor's lock */
	cl_device_id device;
	cl_platform_id platform;
	cl_context context;
	bool hidden_profiling; /* we enabled profiling, the program did not */
	cl_command_queue_properties shown;
	/* what the program passed, with its final 0; NULL if it passed none */
	cl_queue_properties *array;
	size_t array_len;
};

/*
 * What is known of a queue; NULL if it was not created through the layer (device-side queues,
 * garbage). Its gpu is that of the process in whose generation it was looked up.
 */
struct layer_queue *layer_queue_find(cl_command_queue handle);
void layer_queue_remember(cl_command_queue handle, cl_device_id device, struct layer_gpu *gpu,
			  cl_command_queue_properties shown, bool hidden, bool times,
			  const cl_queue_properties *array);

/* Counts the forks that led to this process. */
unsigned int layer_generation(void);
/* In a forked child: what was under way is the parent's. */
void layer_queue_after_fork(void);

#endif
