// SPDX-License-Identifier: MIT
/*
 * queue.c - the table of the program's queues, and the next layer of the chain. May not know what a
 * GPU is.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "queue.h"

#define QUEUE_BUCKETS 256
#define CACHE_LINE    64

struct layer_queue_entry {
	struct layer_queue queue;
	struct layer_queue_entry *next;
};

cl_icd_dispatch layer_next;
/* entries are never freed, so reading needs no lock */
static _Atomic(struct layer_queue_entry *) buckets[QUEUE_BUCKETS];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint generation;

unsigned int layer_generation(void)
{
	return atomic_load_explicit(&generation, memory_order_relaxed);
}

static unsigned int bucket_of(cl_command_queue handle)
{
	return (unsigned int)(((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15ull >> 56) %
	       QUEUE_BUCKETS;
}

struct layer_queue *layer_queue_find(cl_command_queue handle)
{
	struct layer_queue_entry *e =
		atomic_load_explicit(&buckets[bucket_of(handle)], memory_order_acquire);

	for (; e; e = e->next) {
		if (atomic_load_explicit(&e->queue.handle, memory_order_relaxed) == handle)
			return &e->queue;
	}
	return NULL;
}

void layer_queue_after_fork(void)
{
	atomic_fetch_add(&generation, 1);
	pthread_mutex_init(&table_lock, NULL);
	for (unsigned int i = 0; i < QUEUE_BUCKETS; i++)
		for (struct layer_queue_entry *e = atomic_load(&buckets[i]); e; e = e->next) {
			struct layer_queue *q = &e->queue;

			q->tail = NULL;
			q->busy = q->waiters = 0;
			q->done = q->entered;
			q->marker = NULL;
			q->marker_wanted = false;
		}
}

void layer_queue_remember(cl_command_queue handle, cl_device_id device, struct layer_gpu *gpu,
			  cl_command_queue_properties shown, bool hidden, bool times,
			  const cl_queue_properties *array)
{
	unsigned int i = bucket_of(handle);
	struct layer_queue_entry *e;
	cl_platform_id platform = NULL;
	cl_context context = NULL;
	char version[128] = "";
	size_t len = 0;

	layer_next.clGetCommandQueueInfo(handle, CL_QUEUE_CONTEXT, sizeof(context), &context, NULL);
	layer_next.clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof(cl_platform_id), &platform,
				   NULL);
	pthread_mutex_lock(&table_lock);
	for (e = atomic_load(&buckets[i]); e; e = e->next)
		if (atomic_load(&e->queue.handle) == handle)
			break; /* the address of a queue that is gone */
	if (!e) {
		e = aligned_alloc(CACHE_LINE,
				  (sizeof(*e) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
		if (!e) {
			pthread_mutex_unlock(&table_lock);
			return; /* unmanaged */
		}
		memset(e, 0, sizeof(*e));
		e->next = atomic_load(&buckets[i]);
		atomic_store_explicit(&e->queue.handle, handle, memory_order_relaxed);
		atomic_store_explicit(&buckets[i], e, memory_order_release);
	}
	free(e->queue.array);
	e->queue.array = NULL;
	e->queue.array_len = 0;
	if (array) {
		while (array[len])
			len += 2;
		len++;
		e->queue.array = malloc(len * sizeof(*array));
		if (e->queue.array) {
			memcpy(e->queue.array, array, len * sizeof(*array));
			e->queue.array_len = len;
		}
	}
	e->queue.gpu = gpu;
	e->queue.device = device;
	e->queue.platform = platform;
	e->queue.context = context;
	e->queue.in_order = !(shown & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	e->queue.hidden_profiling = hidden;
	e->queue.times = times;
	e->queue.marks = !layer_next.clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof(version) - 1,
						     version, NULL) &&
			 strncmp(version, "OpenCL 1.0", 10) && strncmp(version, "OpenCL 1.1", 10);
	e->queue.shown = shown;
	e->queue.generation = layer_generation();
	e->queue.refs = 1;
	e->queue.tail = NULL;
	e->queue.busy = 0;
	pthread_mutex_unlock(&table_lock);
}
