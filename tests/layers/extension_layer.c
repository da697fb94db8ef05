// SPDX-License-Identifier: MIT
/*
 * extension_layer.c - an OpenCL layer that stands for a platform with extensions that PoCL does not
 * have: it answers the question for their functions, and does their work by OpenCL's own. Loaded
 * below the layer that is tested. A semaphore is a user event: it is signalled once. Native kernels
 * take a wait list without a count, which PoCL refuses.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_layer.h>
#include <stdlib.h>
#include <string.h>
#include "layer_info.h"

static cl_icd_dispatch target, table;

static cl_command_queue CL_API_CALL create(cl_context context, cl_device_id device,
					   const cl_queue_properties *properties, cl_int *err)
{
	return target.clCreateCommandQueueWithProperties(context, device, properties, err);
}

static cl_int CL_API_CALL mem_advise(cl_command_queue queue, const void *ptr, size_t size,
				     cl_mem_advice_intel advice, cl_uint n, const cl_event *list,
				     cl_event *event)
{
	(void)ptr;
	(void)size;
	(void)advice;
	return target.clEnqueueMarkerWithWaitList(queue, n, list, event);
}

static cl_int CL_API_CALL mem_set(cl_command_queue queue, void *to, cl_int value, size_t size,
				  cl_uint n, const cl_event *list, cl_event *event)
{
	unsigned char byte = (unsigned char)value;

	return target.clEnqueueSVMMemFill(queue, to, &byte, 1, size, n, list, event);
}

static cl_semaphore_khr CL_API_CALL create_semaphore(cl_context context,
						     const cl_semaphore_properties_khr *properties,
						     cl_int *err)
{
	(void)properties;
	return (cl_semaphore_khr)target.clCreateUserEvent(context, err);
}

static cl_int CL_API_CALL release_semaphore(cl_semaphore_khr semaphore)
{
	return target.clReleaseEvent((cl_event)semaphore);
}

static cl_int CL_API_CALL wait_semaphores(cl_command_queue queue, cl_uint count,
					  const cl_semaphore_khr *semaphores,
					  const cl_semaphore_payload_khr *payloads, cl_uint n,
					  const cl_event *list, cl_event *event)
{
	cl_event all[16];

	(void)payloads;
	if (!count || count + n > 16)
		return CL_INVALID_VALUE;
	memcpy(all, semaphores, count * sizeof(*all));
	if (n)
		memcpy(all + count, list, n * sizeof(*all));
	return target.clEnqueueBarrierWithWaitList(queue, count + n, all, event);
}

static void CL_CALLBACK signalled(cl_event event, cl_int status, void *semaphore)
{
	(void)status;
	target.clSetUserEventStatus((cl_event)semaphore, CL_COMPLETE);
	target.clReleaseEvent((cl_event)semaphore);
	target.clReleaseEvent(event);
}

static cl_int CL_API_CALL signal_semaphores(cl_command_queue queue, cl_uint count,
					    const cl_semaphore_khr *semaphores,
					    const cl_semaphore_payload_khr *payloads, cl_uint n,
					    const cl_event *list, cl_event *event)
{
	cl_event done;
	cl_int err;

	(void)payloads;
	if (count != 1)
		return CL_INVALID_VALUE;
	err = target.clEnqueueMarkerWithWaitList(queue, n, list, &done);
	if (err)
		return err;
	if (event) {
		target.clRetainEvent(done);
		*event = done;
	}
	target.clRetainEvent((cl_event)semaphores[0]);
	return target.clSetEventCallback(done, CL_COMPLETE, signalled, semaphores[0]);
}

static cl_int CL_API_CALL share(cl_command_queue queue, cl_uint count, const cl_mem *mems,
				cl_uint n, const cl_event *list, cl_event *event)
{
	(void)count;
	(void)mems;
	return target.clEnqueueMarkerWithWaitList(queue, n, list, event);
}

/* The "sync object" is where the event is put that stands for it. */
static cl_event CL_API_CALL from_sync(cl_context context, CLeglSyncKHR sync,
				      CLeglDisplayKHR display, cl_int *err)
{
	cl_event event = target.clCreateUserEvent(context, err);

	(void)display;
	*(cl_event *)sync = event;
	return event;
}

static cl_int CL_API_CALL set_sync(cl_event event)
{
	return target.clSetUserEventStatus(event, CL_COMPLETE);
}

static cl_int CL_API_CALL native(cl_command_queue queue, void(CL_CALLBACK *func)(void *),
				 void *args, size_t size, cl_uint objects, const cl_mem *mems,
				 const void **locs, cl_uint n, const cl_event *list,
				 cl_event *event)
{
	return target.clEnqueueNativeKernel(queue, func, args, size, objects, mems, locs, n,
					    n ? list : NULL, event);
}

static const struct {
	const char *name;
	void *function;
} functions[] = {
	{ "clCreateCommandQueueWithPropertiesKHR", (void *)create },
	{ "clEnqueueMemAdviseINTEL", (void *)mem_advise },
	{ "clEnqueueMemsetINTEL", (void *)mem_set },
	{ "clCreateSemaphoreWithPropertiesKHR", (void *)create_semaphore },
	{ "clReleaseSemaphoreKHR", (void *)release_semaphore },
	{ "clEnqueueWaitSemaphoresKHR", (void *)wait_semaphores },
	{ "clEnqueueSignalSemaphoresKHR", (void *)signal_semaphores },
	{ "clEnqueueAcquireExternalMemObjectsKHR", (void *)share },
	{ "clEnqueueReleaseExternalMemObjectsKHR", (void *)share },
	{ "clCreateEventFromEGLSyncKHR", (void *)from_sync },
	{ "clSetSyncTEST", (void *)set_sync },
	{ "clEnqueueUnheardOfTEST", (void *)share },
};

static void *CL_API_CALL address(cl_platform_id platform, const char *name)
{
	/* These are OpenCL's own under another name. */
	if (!strcmp(name, "clEnqueueMemcpyINTEL") || !strcmp(name, "clEnqueueSVMMemcpyARM"))
		return (void *)target.clEnqueueSVMMemcpy;
	if (!strcmp(name, "clEnqueueMemFillINTEL") || !strcmp(name, "clEnqueueSVMMemFillARM"))
		return (void *)target.clEnqueueSVMMemFill;
	if (!strcmp(name, "clEnqueueSVMMapARM"))
		return (void *)target.clEnqueueSVMMap;
	if (!strcmp(name, "clEnqueueSVMUnmapARM"))
		return (void *)target.clEnqueueSVMUnmap;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!strcmp(functions[i].name, name))
			return functions[i].function;
	return target.clGetExtensionFunctionAddressForPlatform(platform, name);
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch *next,
					    cl_uint *entries_ret, const cl_icd_dispatch **layer)
{
	(void)entries;
	memcpy(&target, next, sizeof(target));
	memcpy(&table, next, sizeof(table));
	table.clGetExtensionFunctionAddressForPlatform = address;
	table.clCreateEventFromEGLSyncKHR = from_sync;
	table.clEnqueueNativeKernel = native;
	*entries_ret = sizeof(table) / sizeof(void *);
	*layer = &table;
	return CL_SUCCESS;
}
