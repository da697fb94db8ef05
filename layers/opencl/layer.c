// SPDX-License-Identifier: MIT
/*
 * layer.c - the OpenCL layer's entry points, and the calls about queues and events that must not
 * show that the layer is there.
 *
 * With RTXG_OPENCL_PROFILING=yes the layer asks for profiling on every queue, so that execution
 * times come from OpenCL's own events. A program that did not ask for it sees a queue without
 * profiling. Else times are the events' own only where the program asked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "enqueue.h"
#include "extension.h"
#include "foreign.h"
#include "gate.h"
#include "monitor.h"
#include "queue.h"
#include "rtxg_cpu.h"

static cl_icd_dispatch table;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cl_command_queue_properties asked; /* of every queue */

static void read_environment(void)
{
	const char *text = secure_getenv("RTXG_OPENCL_PROFILING");

	if (!text || !*text || !strcmp(text, "no"))
		return;
	if (!strcmp(text, "yes"))
		asked = CL_QUEUE_PROFILING_ENABLE;
	else
		fprintf(stderr, "rtxg: RTXG_OPENCL_PROFILING=%s: yes or no expected; using no\n",
			text);
}

static bool refused(struct layer_gpu *gpu, cl_int *errcode_ret)
{
	if (!gpu || !gpu->refused)
		return false;
	if (errcode_ret)
		*errcode_ret = CL_OUT_OF_RESOURCES;
	return true;
}

static cl_command_queue CL_API_CALL CreateCommandQueue(cl_context context, cl_device_id device,
						       cl_command_queue_properties properties,
						       cl_int *errcode_ret)
{
	cl_command_queue_properties with;
	cl_command_queue queue;
	struct layer_gpu *gpu;
	cl_int err;

	pthread_once(&once, read_environment);
	with = properties | asked;
	queue = layer_next.clCreateCommandQueue(context, device, with, &err);
	if (!queue && with != properties) {
		with = properties;
		queue = layer_next.clCreateCommandQueue(context, device, properties, &err);
	}
	if (queue) {
		gpu = layer_device_gpu(device);
		if (refused(gpu, errcode_ret)) {
			layer_next.clReleaseCommandQueue(queue);
			return NULL;
		}
		layer_queue_remember(queue, device, gpu, properties, with != properties,
				     with & CL_QUEUE_PROFILING_ENABLE, NULL);
	}
	if (errcode_ret)
		*errcode_ret = err;
	return queue;
}

static cl_command_queue create_with_properties(layer_next_create_queue create, cl_context context,
					       cl_device_id device,
					       const cl_queue_properties *properties,
					       cl_int *errcode_ret)
{
	cl_queue_properties with[64];
	cl_command_queue_properties shown = 0;
	cl_command_queue queue = NULL;
	struct layer_gpu *gpu;
	size_t n = 0;
	bool found = false, hidden = false;
	cl_int err = CL_SUCCESS;

	pthread_once(&once, read_environment);
	while (properties && properties[n] && n < 60) {
		with[n] = properties[n];
		with[n + 1] = properties[n + 1];
		if (properties[n] == CL_QUEUE_PROPERTIES) {
			shown = properties[n + 1];
			with[n + 1] |= asked;
			found = true;
		}
		n += 2;
	}
	/* A queue that kernels enqueue to is the device's own business. */
	if ((shown & CL_QUEUE_ON_DEVICE) || n >= 60) {
		queue = create(context, device, properties, errcode_ret);
		if (queue)
			layer_device_ungated("kernels");
		return queue;
	}
	if (!found) {
		with[n++] = CL_QUEUE_PROPERTIES;
		with[n++] = asked;
	}
	with[n] = 0;
	if (asked && !(shown & CL_QUEUE_PROFILING_ENABLE)) {
		queue = create(context, device, with, &err);
		hidden = queue != NULL;
	}
	if (!queue)
		queue = create(context, device, properties, &err);
	if (queue) {
		gpu = layer_device_gpu(device);
		if (refused(gpu, errcode_ret)) {
			layer_next.clReleaseCommandQueue(queue);
			return NULL;
		}
		layer_queue_remember(queue, device, gpu, shown, hidden,
				     hidden || shown & CL_QUEUE_PROFILING_ENABLE, properties);
	}
	if (errcode_ret)
		*errcode_ret = err;
	return queue;
}

static cl_command_queue CL_API_CALL
CreateCommandQueueWithProperties(cl_context context, cl_device_id device,
				 const cl_queue_properties *properties, cl_int *errcode_ret)
{
	return create_with_properties(layer_next.clCreateCommandQueueWithProperties, context,
				      device, properties, errcode_ret);
}

/*
 * Entries of the loader's table that are extensions, or that a program may ask its platform for all
 * the same: it is given the layer's, or the platform's own would pass by the layer.
 */
#define ENTRY(name)                                    \
	{                                              \
#name, offsetof(cl_icd_dispatch, name) \
	}
static const struct {
	const char *name;
	size_t offset;
} entries[] = {
	ENTRY(clCreateEventFromGLsyncKHR),
	ENTRY(clCreateEventFromEGLSyncKHR),
	ENTRY(clEnqueueAcquireGLObjects),
	ENTRY(clEnqueueReleaseGLObjects),
	ENTRY(clEnqueueAcquireEGLObjectsKHR),
	ENTRY(clEnqueueReleaseEGLObjectsKHR),
	ENTRY(clCreateCommandQueue),
	ENTRY(clCreateCommandQueueWithProperties),
	ENTRY(clEnqueueNDRangeKernel),
	ENTRY(clEnqueueTask),
	ENTRY(clEnqueueNativeKernel),
	ENTRY(clEnqueueReadBuffer),
	ENTRY(clEnqueueWriteBuffer),
	ENTRY(clEnqueueReadBufferRect),
	ENTRY(clEnqueueWriteBufferRect),
	ENTRY(clEnqueueCopyBuffer),
	ENTRY(clEnqueueCopyBufferRect),
	ENTRY(clEnqueueFillBuffer),
	ENTRY(clEnqueueReadImage),
	ENTRY(clEnqueueWriteImage),
	ENTRY(clEnqueueCopyImage),
	ENTRY(clEnqueueCopyImageToBuffer),
	ENTRY(clEnqueueCopyBufferToImage),
	ENTRY(clEnqueueFillImage),
	ENTRY(clEnqueueMapBuffer),
	ENTRY(clEnqueueMapImage),
	ENTRY(clEnqueueUnmapMemObject),
	ENTRY(clEnqueueMigrateMemObjects),
	ENTRY(clEnqueueSVMMemcpy),
	ENTRY(clEnqueueSVMMemFill),
	ENTRY(clEnqueueSVMMap),
	ENTRY(clEnqueueSVMUnmap),
	ENTRY(clEnqueueSVMMigrateMem),
	ENTRY(clEnqueueSVMFree),
};

static void *extension_function(cl_platform_id platform, const char *name, void *function)
{
	void *ours = function;

	if (!function || !name)
		return function;
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
		if (!strcmp(entries[i].name, name))
			memcpy(&ours, (const char *)&table + entries[i].offset, sizeof(ours));
	ours = layer_extension(platform, name, ours);
	if (ours == function && !strncmp(name, "clEnqueue", strlen("clEnqueue")))
		layer_device_ungated(name);
	return ours;
}

static void *CL_API_CALL GetExtensionFunctionAddressForPlatform(cl_platform_id platform,
								const char *name)
{
	return extension_function(
		platform, name,
		layer_next.clGetExtensionFunctionAddressForPlatform(platform, name));
}

static void *CL_API_CALL GetExtensionFunctionAddress(const char *name)
{
	return extension_function(NULL, name, layer_next.clGetExtensionFunctionAddress(name));
}

static cl_int CL_API_CALL SetCommandQueueProperty(cl_command_queue queue,
						  cl_command_queue_properties properties,
						  cl_bool enable, cl_command_queue_properties *old)
{
	struct layer_queue *q = layer_queue_find(queue);
	cl_command_queue_properties shown = q ? q->shown : 0, pass = properties;
	cl_int err;

	if (q && q->hidden_profiling && !enable)
		pass &= ~(cl_command_queue_properties)CL_QUEUE_PROFILING_ENABLE;
	err = layer_next.clSetCommandQueueProperty(queue, pass, enable, old);
	if (!err && q) {
		if (old)
			*old = shown;
		q->shown = enable ? shown | properties : shown & ~properties;
		if (properties & CL_QUEUE_PROFILING_ENABLE)
			q->hidden_profiling = !enable && q->hidden_profiling;
		q->in_order = !(q->shown & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	}
	return err;
}

static cl_int CL_API_CALL RetainCommandQueue(cl_command_queue queue)
{
	struct layer_queue *q = layer_queue_find(queue);

	if (q) {
		layer_monitor_lock();
		q->refs++;
		layer_monitor_unlock();
	}
	return layer_next.clRetainCommandQueue(queue);
}

static cl_int CL_API_CALL ReleaseCommandQueue(cl_command_queue queue)
{
	struct layer_queue *q = layer_queue_find(queue);

	layer_gate_reap();
	if (q)
		layer_gate_queue_release(q);
	return layer_next.clReleaseCommandQueue(queue);
}

static cl_int CL_API_CALL ReleaseContext(cl_context context)
{
	/* our references to events of what has completed keep a context alive */
	layer_gate_reap();
	layer_gate_drop_kept();
	return layer_next.clReleaseContext(context);
}

/* Answers a query from our own memory, as every clGet*Info does. */
static cl_int answer(const void *from, size_t from_size, size_t size, void *to, size_t *size_ret)
{
	if (to) {
		if (size < from_size)
			return CL_INVALID_VALUE;
		memcpy(to, from, from_size);
	}
	if (size_ret)
		*size_ret = from_size;
	return CL_SUCCESS;
}

static cl_int CL_API_CALL GetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info name,
					      size_t size, void *value, size_t *size_ret)
{
	struct layer_queue *q = name == CL_QUEUE_PROPERTIES || name == CL_QUEUE_PROPERTIES_ARRAY
					? layer_queue_find(queue)
					: NULL;
	cl_int err;

	if (!q || !q->hidden_profiling)
		return layer_next.clGetCommandQueueInfo(queue, name, size, value, size_ret);
	if (name == CL_QUEUE_PROPERTIES) {
		err = layer_next.clGetCommandQueueInfo(queue, name, size, value, size_ret);
		if (!err && value)
			*(cl_command_queue_properties *)value &=
				~(cl_command_queue_properties)CL_QUEUE_PROFILING_ENABLE;
		return err;
	}
	/* Asked of the implementation only to learn whether it knows the question. */
	err = layer_next.clGetCommandQueueInfo(queue, name, 0, NULL, NULL);
	if (err)
		return err;
	return answer(q->array, q->array_len * sizeof(*q->array), size, value, size_ret);
}

static cl_int CL_API_CALL GetEventInfo(cl_event event, cl_event_info name, size_t size, void *value,
				       size_t *size_ret)
{
	cl_int err = layer_next.clGetEventInfo(event, name, size, value, size_ret);

	if (err || !value)
		return err;
	if (name == CL_EVENT_REFERENCE_COUNT)
		*(cl_uint *)value -= layer_monitor_holds(event);
	else if (name == CL_EVENT_COMMAND_EXECUTION_STATUS && *(cl_int *)value <= CL_COMPLETE)
		layer_gate_reap();
	return err;
}

static cl_int CL_API_CALL GetEventProfilingInfo(cl_event event, cl_profiling_info name, size_t size,
						void *value, size_t *size_ret)
{
	cl_command_queue queue = NULL;
	struct layer_queue *q;

	if (!layer_next.clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof(queue), &queue,
				       NULL) &&
	    queue) {
		q = layer_queue_find(queue);
		if (q && q->hidden_profiling)
			return CL_PROFILING_INFO_NOT_AVAILABLE;
	}
	return layer_next.clGetEventProfilingInfo(event, name, size, value, size_ret);
}

static cl_event CL_API_CALL CreateUserEvent(cl_context context, cl_int *errcode_ret)
{
	cl_event event = layer_next.clCreateUserEvent(context, errcode_ret);

	if (event)
		layer_foreign_user(event);
	return event;
}

static cl_int CL_API_CALL SetUserEventStatus(cl_event event, cl_int status)
{
	cl_int err;

	/* before it does: what fails with it may fail within the call */
	if (status < CL_COMPLETE)
		layer_foreign_fails();
	err = layer_next.clSetUserEventStatus(event, status);
	if (!err)
		layer_foreign_set(event, status);
	return err;
}

static cl_event CL_API_CALL CreateEventFromGLsync(cl_context context, cl_GLsync sync, cl_int *err)
{
	cl_event event = layer_next.clCreateEventFromGLsyncKHR(context, sync, err);

	if (event)
		layer_foreign_outside(event);
	return event;
}

static cl_event CL_API_CALL CreateEventFromEGLSync(cl_context context, CLeglSyncKHR sync,
						   CLeglDisplayKHR display, cl_int *err)
{
	cl_event event = layer_next.clCreateEventFromEGLSyncKHR(context, sync, display, err);

	if (event)
		layer_foreign_outside(event);
	return event;
}

static cl_int CL_API_CALL RetainEvent(cl_event event)
{
	layer_foreign_refs(event, 1);
	return layer_next.clRetainEvent(event);
}

static cl_int CL_API_CALL ReleaseEvent(cl_event event)
{
	layer_foreign_refs(event, -1);
	return layer_next.clReleaseEvent(event);
}

static cl_int CL_API_CALL WaitForEvents(cl_uint n, const cl_event *list)
{
	cl_int err;

	rtx_cpu_wait_for_gpu(true);
	err = layer_next.clWaitForEvents(n, list);
	rtx_cpu_wait_for_gpu(false);
	layer_gate_reap();
	return err;
}

static cl_int CL_API_CALL Finish(cl_command_queue queue)
{
	struct layer_queue *q = layer_queue_find(queue);
	uint64_t newest = layer_gate_newest(q);
	cl_int err;

	rtx_cpu_wait_for_gpu(true);
	err = layer_next.clFinish(queue);
	rtx_cpu_wait_for_gpu(false);
	layer_gate_finished(err ? NULL : q, newest);
	return err;
}

static void forked(void)
{
	layer_queue_after_fork();
	layer_device_after_fork();
	layer_extension_after_fork();
	layer_monitor_after_fork();
}

CL_API_ENTRY __attribute__((visibility("default"))) cl_int CL_API_CALL
clGetLayerInfo(cl_layer_info name, size_t size, void *value, size_t *size_ret)
{
	static const char layer_name[] = "rtxg";
	cl_layer_api_version version = CL_LAYER_API_VERSION_100;

	switch (name) {
	case CL_LAYER_API_VERSION:
		return answer(&version, sizeof(version), size, value, size_ret);
	case CL_LAYER_NAME:
		return answer(layer_name, sizeof(layer_name), size, value, size_ret);
	default:
		return CL_INVALID_VALUE;
	}
}

CL_API_ENTRY __attribute__((visibility("default"))) cl_int CL_API_CALL
clInitLayer(cl_uint num_entries, const cl_icd_dispatch *target, cl_uint *num_entries_ret,
	    const cl_icd_dispatch **layer_ret)
{
	if (!target || !num_entries_ret || !layer_ret)
		return CL_INVALID_VALUE;
	if (num_entries < sizeof(cl_icd_dispatch) / sizeof(void *)) {
		fprintf(stderr,
			"rtxg: this OpenCL loader knows %u calls, the layer needs %zu: not "
			"managed; a loader for OpenCL 3.0 is needed\n",
			num_entries, sizeof(cl_icd_dispatch) / sizeof(void *));
		return CL_INVALID_VALUE;
	}
	memcpy(&layer_next, target, sizeof(layer_next));
	memcpy(&table, target, sizeof(table));
	table.clCreateCommandQueue = CreateCommandQueue;
	table.clCreateCommandQueueWithProperties = CreateCommandQueueWithProperties;
	table.clSetCommandQueueProperty = SetCommandQueueProperty;
	table.clRetainCommandQueue = RetainCommandQueue;
	table.clReleaseCommandQueue = ReleaseCommandQueue;
	table.clReleaseContext = ReleaseContext;
	table.clGetCommandQueueInfo = GetCommandQueueInfo;
	table.clGetEventInfo = GetEventInfo;
	table.clGetEventProfilingInfo = GetEventProfilingInfo;
	table.clCreateUserEvent = CreateUserEvent;
	table.clSetUserEventStatus = SetUserEventStatus;
	table.clCreateEventFromGLsyncKHR = CreateEventFromGLsync;
	table.clCreateEventFromEGLSyncKHR = CreateEventFromEGLSync;
	table.clRetainEvent = RetainEvent;
	table.clReleaseEvent = ReleaseEvent;
	table.clWaitForEvents = WaitForEvents;
	table.clFinish = Finish;
	table.clGetExtensionFunctionAddress = GetExtensionFunctionAddress;
	table.clGetExtensionFunctionAddressForPlatform = GetExtensionFunctionAddressForPlatform;
	layer_enqueue_install(&table);
	layer_extension_init(create_with_properties);
	pthread_atfork(layer_monitor_lock, layer_monitor_unlock, forked);
	*num_entries_ret = sizeof(table) / sizeof(void *);
	*layer_ret = &table;
	return CL_SUCCESS;
}
