// SPDX-License-Identifier: MIT
/*
 * extension.c - the calls of extensions that enqueue a command: command buffers, unified memory,
 * semaphores, memory of other APIs. They are no entries of the loader's table: a program asks its
 * platform for their addresses, and is given the wrappers here.
 *
 * A command buffer occupies the compute engine whatever was recorded in it. Waiting for a semaphore
 * may never end by itself, so nothing behind it has a permit before it has ended.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "extension.h"
#include "enqueue.h"

#define PLATFORMS      16
#define BUFFER_BUCKETS 64

/* --- the platforms' functions ----------------------------------------------------------------- */

enum { EXTENSION_FUNCTIONS = 32 };

static struct {
	cl_platform_id platform;
	void *functions[EXTENSION_FUNCTIONS]; /* as in the table of wrappers; NULL: not asked for */
} platforms[PLATFORMS];
static unsigned int platforms_n;
static void *any[EXTENSION_FUNCTIONS]; /* what a program was given without naming a platform */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *name_of(unsigned int index);

static void *function_of(cl_platform_id platform, unsigned int index)
{
	void *function = NULL;
	unsigned int i;

	pthread_mutex_lock(&table_lock);
	for (i = 0; i < platforms_n && platforms[i].platform != platform; i++)
		;
	if (i == platforms_n && i < PLATFORMS)
		platforms[platforms_n++].platform = platform;
	if (i < platforms_n)
		function = platforms[i].functions[index];
	if (!function && platform)
		function = layer_next.clGetExtensionFunctionAddressForPlatform(platform,
									       name_of(index));
	if (!function)
		function = any[index];
	if (i < platforms_n)
		platforms[i].functions[index] = function;
	pthread_mutex_unlock(&table_lock);
	return function;
}

static cl_platform_id platform_of(cl_command_queue queue)
{
	const struct layer_queue *q = layer_queue_find(queue);
	cl_platform_id platform = NULL;
	cl_device_id device = NULL;

	if (q)
		return q->platform;
	if (!layer_next.clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(cl_device_id), &device,
					      NULL))
		layer_next.clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof(cl_platform_id),
					   &platform, NULL);
	return platform;
}

/* --- the wrappers ----------------------------------------------------------------------------- */

enum {
	CREATE_QUEUE,
	CREATE_COMMAND_BUFFER,
	COMMAND_BUFFER,
	MEM_FILL,
	MEMCPY,
	MEM_ADVISE,
	MIGRATE_MEM,
	MEMSET,
	SVM_FREE,
	SVM_MEMCPY,
	SVM_MEM_FILL,
	SVM_MAP,
	SVM_UNMAP,
	MIGRATE_MEM_OBJECT,
	WAIT_SEMAPHORES,
	SIGNAL_SEMAPHORES,
	ACQUIRE_EXTERNAL,
	RELEASE_EXTERNAL,
	ACQUIRE_VA,
	RELEASE_VA,
	ACQUIRE_GRALLOC,
	RELEASE_GRALLOC,
	MIPMAP,
};

#define TRUE_ONE(type, index) ((type)function_of(platform_of(queue), index))

static layer_create_queue create_queue; /* how queues are made known: layer.c's */

static cl_command_queue CL_API_CALL CreateCommandQueueWithProperties(
	cl_context context, cl_device_id device, const cl_queue_properties *properties, cl_int *err)
{
	cl_platform_id platform = NULL;

	layer_next.clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof(cl_platform_id), &platform,
				   NULL);
	return create_queue((layer_next_create_queue)function_of(platform, CREATE_QUEUE), context,
			    device, properties, err);
}

/* Which queue a command buffer goes to where the program names none. */
static struct buffer_entry {
	struct buffer_entry *next;
	cl_command_buffer_khr buffer;
	cl_command_queue queue;
} * buffers[BUFFER_BUCKETS];

static uint32_t buffer_key(cl_command_buffer_khr buffer)
{
	return (uint32_t)((uintptr_t)buffer * 0x9e3779b97f4a7c15ull >> 32) | 1;
}

static cl_command_buffer_khr CL_API_CALL
CreateCommandBuffer(cl_uint queues_n, const cl_command_queue *queues,
		    const cl_command_buffer_properties_khr *properties, cl_int *err)
{
	cl_command_queue queue = queues_n && queues ? queues[0] : NULL;
	clCreateCommandBufferKHR_fn create =
		TRUE_ONE(clCreateCommandBufferKHR_fn, CREATE_COMMAND_BUFFER);
	cl_command_buffer_khr buffer = create(queues_n, queues, properties, err);
	struct buffer_entry **bucket, *e;

	if (!buffer)
		return buffer;
	bucket = &buffers[buffer_key(buffer) % BUFFER_BUCKETS];
	pthread_mutex_lock(&table_lock);
	for (e = *bucket; e && e->buffer != buffer; e = e->next)
		; /* the address of one that is gone */
	if (!e) {
		e = calloc(1, sizeof(*e));
		if (e) {
			e->buffer = buffer;
			e->next = *bucket;
			*bucket = e;
		}
	}
	if (e)
		e->queue = queue;
	pthread_mutex_unlock(&table_lock);
	return buffer;
}

static cl_command_queue queue_of_buffer(cl_command_buffer_khr buffer)
{
	cl_command_queue queue = NULL;

	pthread_mutex_lock(&table_lock);
	for (struct buffer_entry *e = buffers[buffer_key(buffer) % BUFFER_BUCKETS]; e; e = e->next)
		if (e->buffer == buffer)
			queue = e->queue;
	pthread_mutex_unlock(&table_lock);
	return queue;
}

/* One that goes to several queues stands in the first of them. */
static cl_int CL_API_CALL CommandBuffer(cl_uint queues_n, cl_command_queue *queues,
					cl_command_buffer_khr buffer, WAIT)
{
	cl_command_queue queue = queues_n && queues ? queues[0] : queue_of_buffer(buffer);
	clEnqueueCommandBufferKHR_fn call = TRUE_ONE(clEnqueueCommandBufferKHR_fn, COMMAND_BUFFER);

	RUN(RTX_COMPUTE, buffer_key(buffer), 1, false, call(queues_n, queues, buffer, GIVE));
}

static cl_int CL_API_CALL MemFill(cl_command_queue queue, void *to, const void *pattern,
				  size_t pattern_size, size_t size, WAIT)
{
	clEnqueueMemFillINTEL_fn call = TRUE_ONE(clEnqueueMemFillINTEL_fn, MEM_FILL);

	RUN(RTX_COMPUTE, 0, size, false, call(queue, to, pattern, pattern_size, size, GIVE));
}

static cl_int CL_API_CALL Memcpy(cl_command_queue queue, cl_bool blocking, void *to,
				 const void *from, size_t size, WAIT)
{
	clEnqueueMemcpyINTEL_fn call = TRUE_ONE(clEnqueueMemcpyINTEL_fn, MEMCPY);

	RUN(RTX_COMPUTE, 0, size, blocking, call(queue, BLOCKING, to, from, size, GIVE));
}

static cl_int CL_API_CALL MemAdvise(cl_command_queue queue, const void *ptr, size_t size,
				    cl_mem_advice_intel advice, WAIT)
{
	clEnqueueMemAdviseINTEL_fn call = TRUE_ONE(clEnqueueMemAdviseINTEL_fn, MEM_ADVISE);

	PASS(PASS_COMMAND, call(queue, ptr, size, advice, GIVE));
}

static int migrate_engine(cl_mem_migration_flags flags)
{
	return flags & CL_MIGRATE_MEM_OBJECT_HOST ? RTX_COPY_OUT : RTX_COPY_IN;
}

static cl_int CL_API_CALL MigrateMem(cl_command_queue queue, const void *ptr, size_t size,
				     cl_mem_migration_flags flags, WAIT)
{
	clEnqueueMigrateMemINTEL_fn call = TRUE_ONE(clEnqueueMigrateMemINTEL_fn, MIGRATE_MEM);

	RUN(migrate_engine(flags), 0, size, false, call(queue, ptr, size, flags, GIVE));
}

static cl_int CL_API_CALL Memset(cl_command_queue queue, void *to, cl_int value, size_t size, WAIT)
{
	clEnqueueMemsetINTEL_fn call = TRUE_ONE(clEnqueueMemsetINTEL_fn, MEMSET);

	RUN(RTX_COMPUTE, 0, size, false, call(queue, to, value, size, GIVE));
}

typedef void(CL_CALLBACK *free_function)(cl_command_queue, cl_uint, void *[], void *);

static cl_int CL_API_CALL SVMFree(cl_command_queue queue, cl_uint count, void *ptrs[],
				  free_function func, void *arg, WAIT)
{
	cl_api_clEnqueueSVMFree call = TRUE_ONE(cl_api_clEnqueueSVMFree, SVM_FREE);

	PASS(PASS_COMMAND, call(queue, count, ptrs, func, arg, GIVE));
}

static cl_int CL_API_CALL SVMMemcpy(cl_command_queue queue, cl_bool blocking, void *to,
				    const void *from, size_t size, WAIT)
{
	cl_api_clEnqueueSVMMemcpy call = TRUE_ONE(cl_api_clEnqueueSVMMemcpy, SVM_MEMCPY);

	RUN(RTX_COMPUTE, 0, size, blocking, call(queue, BLOCKING, to, from, size, GIVE));
}

static cl_int CL_API_CALL SVMMemFill(cl_command_queue queue, void *ptr, const void *pattern,
				     size_t pattern_size, size_t size, WAIT)
{
	cl_api_clEnqueueSVMMemFill call = TRUE_ONE(cl_api_clEnqueueSVMMemFill, SVM_MEM_FILL);

	RUN(RTX_COMPUTE, 0, size, false, call(queue, ptr, pattern, pattern_size, size, GIVE));
}

static cl_int CL_API_CALL SVMMap(cl_command_queue queue, cl_bool blocking, cl_map_flags flags,
				 void *ptr, size_t size, WAIT)
{
	cl_api_clEnqueueSVMMap call = TRUE_ONE(cl_api_clEnqueueSVMMap, SVM_MAP);

	RUN(map_engine(flags), 0, size, blocking, call(queue, BLOCKING, flags, ptr, size, GIVE));
}

static cl_int CL_API_CALL SVMUnmap(cl_command_queue queue, void *ptr, WAIT)
{
	cl_api_clEnqueueSVMUnmap call = TRUE_ONE(cl_api_clEnqueueSVMUnmap, SVM_UNMAP);

	RUN(RTX_COPY_IN, 0, 0, false, call(queue, ptr, GIVE));
}

static cl_int CL_API_CALL MigrateMemObject(cl_command_queue queue, cl_uint count,
					   const cl_mem *mems, cl_mem_migration_flags_ext flags,
					   WAIT)
{
	clEnqueueMigrateMemObjectEXT_fn call =
		TRUE_ONE(clEnqueueMigrateMemObjectEXT_fn, MIGRATE_MEM_OBJECT);

	RUN(migrate_engine(flags), 0, 0, false, call(queue, count, mems, flags, GIVE));
}

static cl_int CL_API_CALL WaitSemaphores(cl_command_queue queue, cl_uint count,
					 const cl_semaphore_khr *semaphores,
					 const cl_semaphore_payload_khr *payloads, WAIT)
{
	clEnqueueWaitSemaphoresKHR_fn call =
		TRUE_ONE(clEnqueueWaitSemaphoresKHR_fn, WAIT_SEMAPHORES);

	PASS(PASS_OUTSIDE, call(queue, count, semaphores, payloads, GIVE));
}

static cl_int CL_API_CALL SignalSemaphores(cl_command_queue queue, cl_uint count,
					   const cl_semaphore_khr *semaphores,
					   const cl_semaphore_payload_khr *payloads, WAIT)
{
	clEnqueueSignalSemaphoresKHR_fn call =
		TRUE_ONE(clEnqueueSignalSemaphoresKHR_fn, SIGNAL_SEMAPHORES);

	PASS(PASS_COMMAND, call(queue, count, semaphores, payloads, GIVE));
}

typedef clEnqueueAcquireExternalMemObjectsKHR_fn share_function;

/* Memory of another API is taken and given back: all these calls look alike. */
#define SHARE(name, index)                                                                        \
	static cl_int CL_API_CALL name(cl_command_queue queue, cl_uint count, const cl_mem *mems, \
				       WAIT)                                                      \
	{                                                                                         \
		share_function call = TRUE_ONE(share_function, index);                            \
                                                                                                  \
		PASS(PASS_COMMAND, call(queue, count, mems, GIVE));                               \
	}

SHARE(AcquireExternal, ACQUIRE_EXTERNAL)
SHARE(ReleaseExternal, RELEASE_EXTERNAL)
SHARE(AcquireVA, ACQUIRE_VA)
SHARE(ReleaseVA, RELEASE_VA)
SHARE(AcquireGralloc, ACQUIRE_GRALLOC)
SHARE(ReleaseGralloc, RELEASE_GRALLOC)

typedef cl_int(CL_API_CALL *mipmap_function)(cl_command_queue, cl_mem, cl_mem,
					     cl_mipmap_filter_mode_img, const size_t *,
					     const size_t *, cl_uint, const cl_event *, cl_event *);

static cl_int CL_API_CALL Mipmap(cl_command_queue queue, cl_mem from, cl_mem to,
				 cl_mipmap_filter_mode_img filter, const size_t *array,
				 const size_t *mip, WAIT)
{
	mipmap_function call = TRUE_ONE(mipmap_function, MIPMAP);

	RUN(RTX_COMPUTE, (uint32_t)MIPMAP << 1 | 1, 1, false,
	    call(queue, from, to, filter, array, mip, GIVE));
}

/* --- what a program that asks is given -------------------------------------------------------- */

#define KHR(name)   "cl" name "KHR"
#define INTEL(name) "clEnqueue" name "INTEL"
#define ARM(name)   "clEnqueue" name "ARM"
#define IMG(name)   "clEnqueue" name "IMG"

static const struct {
	const char *name;
	void *wrapper;
} wrappers[] = {
	[CREATE_QUEUE] = { KHR("CreateCommandQueueWithProperties"),
			   (void *)CreateCommandQueueWithProperties },
	[CREATE_COMMAND_BUFFER] = { KHR("CreateCommandBuffer"), (void *)CreateCommandBuffer },
	[COMMAND_BUFFER] = { KHR("EnqueueCommandBuffer"), (void *)CommandBuffer },
	[MEM_FILL] = { INTEL("MemFill"), (void *)MemFill },
	[MEMCPY] = { INTEL("Memcpy"), (void *)Memcpy },
	[MEM_ADVISE] = { INTEL("MemAdvise"), (void *)MemAdvise },
	[MIGRATE_MEM] = { INTEL("MigrateMem"), (void *)MigrateMem },
	[MEMSET] = { INTEL("Memset"), (void *)Memset },
	[SVM_FREE] = { ARM("SVMFree"), (void *)SVMFree },
	[SVM_MEMCPY] = { ARM("SVMMemcpy"), (void *)SVMMemcpy },
	[SVM_MEM_FILL] = { ARM("SVMMemFill"), (void *)SVMMemFill },
	[SVM_MAP] = { ARM("SVMMap"), (void *)SVMMap },
	[SVM_UNMAP] = { ARM("SVMUnmap"), (void *)SVMUnmap },
	[MIGRATE_MEM_OBJECT] = { "clEnqueueMigrateMemObjectEXT", (void *)MigrateMemObject },
	[WAIT_SEMAPHORES] = { KHR("EnqueueWaitSemaphores"), (void *)WaitSemaphores },
	[SIGNAL_SEMAPHORES] = { KHR("EnqueueSignalSemaphores"), (void *)SignalSemaphores },
	[ACQUIRE_EXTERNAL] = { KHR("EnqueueAcquireExternalMemObjects"), (void *)AcquireExternal },
	[RELEASE_EXTERNAL] = { KHR("EnqueueReleaseExternalMemObjects"), (void *)ReleaseExternal },
	[ACQUIRE_VA] = { INTEL("AcquireVA_APIMediaSurfaces"), (void *)AcquireVA },
	[RELEASE_VA] = { INTEL("ReleaseVA_APIMediaSurfaces"), (void *)ReleaseVA },
	[ACQUIRE_GRALLOC] = { IMG("AcquireGrallocObjects"), (void *)AcquireGralloc },
	[RELEASE_GRALLOC] = { IMG("ReleaseGrallocObjects"), (void *)ReleaseGralloc },
	[MIPMAP] = { IMG("GenerateMipmap"), (void *)Mipmap },
};
#define WRAPPERS (sizeof(wrappers) / sizeof(wrappers[0]))

_Static_assert(WRAPPERS <= EXTENSION_FUNCTIONS, "each wrapper has its platforms' functions");

static const char *name_of(unsigned int index)
{
	return wrappers[index].name;
}

void *layer_extension(cl_platform_id platform, const char *name, void *function)
{
	if (!function || !name)
		return function;
	for (unsigned int i = 0; i < WRAPPERS; i++) {
		if (strcmp(wrappers[i].name, name) != 0)
			continue;
		if (!platform) {
			pthread_mutex_lock(&table_lock);
			any[i] = function;
			pthread_mutex_unlock(&table_lock);
		}
		return wrappers[i].wrapper;
	}
	return function;
}

void layer_extension_init(layer_create_queue create)
{
	create_queue = create;
}

void layer_extension_after_fork(void)
{
	pthread_mutex_init(&table_lock, NULL);
}
