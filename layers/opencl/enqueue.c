// SPDX-License-Identifier: MIT
/*
 * enqueue.c - one wrapper for each OpenCL call that enqueues a command. Each says which engine the
 * command occupies and how its time is estimated, and leaves everything else to gate.c.
 *
 * Engines: kernels, fills and copies within the device are compute; what goes to the device is copy
 * in, what comes from it copy out.
 */
#include <stdlib.h>

#include "enqueue.h"

/* Keys of execution times: kernels by handle and size; 0 = a copy, by its bytes. */
static uint32_t kernel_key(cl_kernel kernel, cl_uint dim, const size_t *global)
{
	uint64_t h = (uintptr_t)kernel * 0x9e3779b97f4a7c15ull;

	for (cl_uint i = 0; global && dim <= 3 && i < dim; i++)
		h = (h ^ global[i]) * 0xff51afd7ed558ccdull;
	return (uint32_t)(h >> 32) | 1;
}

static uint64_t volume(const size_t *region)
{
	return region ? (uint64_t)region[0] * region[1] * region[2] : 0;
}

/* Images: the size of an element is not asked for at every call; sixteen bytes at most. */
static uint64_t image_volume(const size_t *region)
{
	return 16 * volume(region);
}

static cl_int CL_API_CALL NDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dim,
					const size_t *offset, const size_t *global,
					const size_t *local, WAIT)
{
	RUN(RTX_COMPUTE, kernel_key(kernel, dim, global), 1, false,
	    layer_next.clEnqueueNDRangeKernel(queue, kernel, dim, offset, global, local, GIVE));
}

static cl_int CL_API_CALL Task(cl_command_queue queue, cl_kernel kernel, WAIT)
{
	RUN(RTX_COMPUTE, kernel_key(kernel, 0, NULL), 1, false,
	    layer_next.clEnqueueTask(queue, kernel, GIVE));
}

static cl_int CL_API_CALL NativeKernel(cl_command_queue queue, void(CL_CALLBACK *func)(void *),
				       void *args, size_t size, cl_uint objects, const cl_mem *mems,
				       const void **locs, WAIT)
{
	RUN(RTX_COMPUTE, (uint32_t)((uintptr_t)func >> 2) | 1, 1, false,
	    layer_next.clEnqueueNativeKernel(queue, func, args, size, objects, mems, locs, GIVE));
}

static cl_int CL_API_CALL ReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
				     size_t offset, size_t size, void *ptr, WAIT)
{
	RUN(RTX_COPY_OUT, 0, size, blocking,
	    layer_next.clEnqueueReadBuffer(queue, buffer, BLOCKING, offset, size, ptr, GIVE));
}

static cl_int CL_API_CALL WriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
				      size_t offset, size_t size, const void *ptr, WAIT)
{
	RUN(RTX_COPY_IN, 0, size, blocking,
	    layer_next.clEnqueueWriteBuffer(queue, buffer, BLOCKING, offset, size, ptr, GIVE));
}

static cl_int CL_API_CALL ReadBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
					 const size_t *borigin, const size_t *horigin,
					 const size_t *region, size_t brow, size_t bslice,
					 size_t hrow, size_t hslice, void *ptr, WAIT)
{
	RUN(RTX_COPY_OUT, 0, volume(region), blocking,
	    layer_next.clEnqueueReadBufferRect(queue, buffer, BLOCKING, borigin, horigin, region,
					       brow, bslice, hrow, hslice, ptr, GIVE));
}

static cl_int CL_API_CALL WriteBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
					  const size_t *borigin, const size_t *horigin,
					  const size_t *region, size_t brow, size_t bslice,
					  size_t hrow, size_t hslice, const void *ptr, WAIT)
{
	RUN(RTX_COPY_IN, 0, volume(region), blocking,
	    layer_next.clEnqueueWriteBufferRect(queue, buffer, BLOCKING, borigin, horigin, region,
						brow, bslice, hrow, hslice, ptr, GIVE));
}

static cl_int CL_API_CALL CopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to,
				     size_t from_offset, size_t to_offset, size_t size, WAIT)
{
	RUN(RTX_COMPUTE, 0, size, false,
	    layer_next.clEnqueueCopyBuffer(queue, from, to, from_offset, to_offset, size, GIVE));
}

static cl_int CL_API_CALL CopyBufferRect(cl_command_queue queue, cl_mem from, cl_mem to,
					 const size_t *from_origin, const size_t *to_origin,
					 const size_t *region, size_t from_row, size_t from_slice,
					 size_t to_row, size_t to_slice, WAIT)
{
	RUN(RTX_COMPUTE, 0, volume(region), false,
	    layer_next.clEnqueueCopyBufferRect(queue, from, to, from_origin, to_origin, region,
					       from_row, from_slice, to_row, to_slice, GIVE));
}

static cl_int CL_API_CALL FillBuffer(cl_command_queue queue, cl_mem buffer, const void *pattern,
				     size_t pattern_size, size_t offset, size_t size, WAIT)
{
	RUN(RTX_COMPUTE, 0, size, false,
	    layer_next.clEnqueueFillBuffer(queue, buffer, pattern, pattern_size, offset, size,
					   GIVE));
}

static cl_int CL_API_CALL ReadImage(cl_command_queue queue, cl_mem image, cl_bool blocking,
				    const size_t *origin, const size_t *region, size_t row,
				    size_t slice, void *ptr, WAIT)
{
	RUN(RTX_COPY_OUT, 0, image_volume(region), blocking,
	    layer_next.clEnqueueReadImage(queue, image, BLOCKING, origin, region, row, slice, ptr,
					  GIVE));
}

static cl_int CL_API_CALL WriteImage(cl_command_queue queue, cl_mem image, cl_bool blocking,
				     const size_t *origin, const size_t *region, size_t row,
				     size_t slice, const void *ptr, WAIT)
{
	RUN(RTX_COPY_IN, 0, image_volume(region), blocking,
	    layer_next.clEnqueueWriteImage(queue, image, BLOCKING, origin, region, row, slice, ptr,
					   GIVE));
}

static cl_int CL_API_CALL CopyImage(cl_command_queue queue, cl_mem from, cl_mem to,
				    const size_t *from_origin, const size_t *to_origin,
				    const size_t *region, WAIT)
{
	RUN(RTX_COMPUTE, 0, image_volume(region), false,
	    layer_next.clEnqueueCopyImage(queue, from, to, from_origin, to_origin, region, GIVE));
}

static cl_int CL_API_CALL CopyImageToBuffer(cl_command_queue queue, cl_mem from, cl_mem to,
					    const size_t *origin, const size_t *region,
					    size_t offset, WAIT)
{
	RUN(RTX_COMPUTE, 0, image_volume(region), false,
	    layer_next.clEnqueueCopyImageToBuffer(queue, from, to, origin, region, offset, GIVE));
}

static cl_int CL_API_CALL CopyBufferToImage(cl_command_queue queue, cl_mem from, cl_mem to,
					    size_t offset, const size_t *origin,
					    const size_t *region, WAIT)
{
	RUN(RTX_COMPUTE, 0, image_volume(region), false,
	    layer_next.clEnqueueCopyBufferToImage(queue, from, to, offset, origin, region, GIVE));
}

static cl_int CL_API_CALL FillImage(cl_command_queue queue, cl_mem image, const void *colour,
				    const size_t *origin, const size_t *region, WAIT)
{
	RUN(RTX_COMPUTE, 0, image_volume(region), false,
	    layer_next.clEnqueueFillImage(queue, image, colour, origin, region, GIVE));
}

static void *CL_API_CALL MapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
				   cl_map_flags flags, size_t offset, size_t size, WAIT,
				   cl_int *errcode_ret)
{
	struct layer_ticket t;
	void *ptr = NULL;
	cl_int err = CL_OUT_OF_RESOURCES;

	layer_gate_enter(&t, queue, map_engine(flags), 0, size, blocking, n, list, event);
	if (!t.refused)
		ptr = layer_next.clEnqueueMapBuffer(queue, buffer, BLOCKING, flags, offset, size,
						    GIVE, &err);
	err = layer_gate_leave(&t, err);
	if (err)
		ptr = NULL;
	if (errcode_ret)
		*errcode_ret = err;
	return ptr;
}

static void *CL_API_CALL MapImage(cl_command_queue queue, cl_mem image, cl_bool blocking,
				  cl_map_flags flags, const size_t *origin, const size_t *region,
				  size_t *row, size_t *slice, WAIT, cl_int *errcode_ret)
{
	struct layer_ticket t;
	void *ptr = NULL;
	cl_int err = CL_OUT_OF_RESOURCES;

	layer_gate_enter(&t, queue, map_engine(flags), 0, image_volume(region), blocking, n, list,
			 event);
	if (!t.refused)
		ptr = layer_next.clEnqueueMapImage(queue, image, BLOCKING, flags, origin, region,
						   row, slice, GIVE, &err);
	err = layer_gate_leave(&t, err);
	if (err)
		ptr = NULL;
	if (errcode_ret)
		*errcode_ret = err;
	return ptr;
}

static cl_int CL_API_CALL UnmapMemObject(cl_command_queue queue, cl_mem memory, void *ptr, WAIT)
{
	RUN(RTX_COPY_IN, 0, 0, false, layer_next.clEnqueueUnmapMemObject(queue, memory, ptr, GIVE));
}

static cl_int CL_API_CALL MigrateMemObjects(cl_command_queue queue, cl_uint objects,
					    const cl_mem *mems, cl_mem_migration_flags flags, WAIT)
{
	RUN(flags & CL_MIGRATE_MEM_OBJECT_HOST ? RTX_COPY_OUT : RTX_COPY_IN, 0, 0, false,
	    layer_next.clEnqueueMigrateMemObjects(queue, objects, mems, flags, GIVE));
}

static cl_int CL_API_CALL SVMMemcpy(cl_command_queue queue, cl_bool blocking, void *to,
				    const void *from, size_t size, WAIT)
{
	RUN(RTX_COMPUTE, 0, size, blocking,
	    layer_next.clEnqueueSVMMemcpy(queue, BLOCKING, to, from, size, GIVE));
}

static cl_int CL_API_CALL SVMMemFill(cl_command_queue queue, void *ptr, const void *pattern,
				     size_t pattern_size, size_t size, WAIT)
{
	RUN(RTX_COMPUTE, 0, size, false,
	    layer_next.clEnqueueSVMMemFill(queue, ptr, pattern, pattern_size, size, GIVE));
}

static cl_int CL_API_CALL SVMMap(cl_command_queue queue, cl_bool blocking, cl_map_flags flags,
				 void *ptr, size_t size, WAIT)
{
	RUN(map_engine(flags), 0, size, blocking,
	    layer_next.clEnqueueSVMMap(queue, BLOCKING, flags, ptr, size, GIVE));
}

static cl_int CL_API_CALL SVMUnmap(cl_command_queue queue, void *ptr, WAIT)
{
	RUN(RTX_COPY_IN, 0, 0, false, layer_next.clEnqueueSVMUnmap(queue, ptr, GIVE));
}

static cl_int CL_API_CALL SVMMigrateMem(cl_command_queue queue, cl_uint count, const void **ptrs,
					const size_t *sizes, cl_mem_migration_flags flags, WAIT)
{
	RUN(flags & CL_MIGRATE_MEM_OBJECT_HOST ? RTX_COPY_OUT : RTX_COPY_IN, 0, 0, false,
	    layer_next.clEnqueueSVMMigrateMem(queue, count, ptrs, sizes, flags, GIVE));
}

static cl_int CL_API_CALL MarkerWithWaitList(cl_command_queue queue, WAIT)
{
	PASS(PASS_MARKER, layer_next.clEnqueueMarkerWithWaitList(queue, GIVE));
}

static cl_int CL_API_CALL BarrierWithWaitList(cl_command_queue queue, WAIT)
{
	PASS(PASS_BARRIER, layer_next.clEnqueueBarrierWithWaitList(queue, GIVE));
}

static cl_int CL_API_CALL Marker(cl_command_queue queue, cl_event *event)
{
	struct layer_ticket t;

	layer_gate_enter_pass(&t, queue, PASS_MARKER, 0, NULL, event);
	return layer_gate_leave(&t, layer_next.clEnqueueMarker(queue, event));
}

static cl_int CL_API_CALL Barrier(cl_command_queue queue)
{
	struct layer_ticket t;

	layer_gate_enter_pass(&t, queue, PASS_BARRIER, 0, NULL, NULL);
	return layer_gate_leave(
		&t, t.event && t.queue->marks
			    ? layer_next.clEnqueueBarrierWithWaitList(queue, 0, NULL, t.event)
			    : layer_next.clEnqueueBarrier(queue));
}

static cl_int CL_API_CALL WaitForEventsInQueue(cl_command_queue queue, cl_uint n,
					       const cl_event *list)
{
	struct layer_ticket t;
	cl_int err = CL_INVALID_VALUE;

	layer_gate_enter_pass(&t, queue, PASS_BARRIER, n, list, NULL);
	if (t.event && t.queue->marks && n && list)
		err = layer_next.clEnqueueBarrierWithWaitList(queue, n, list, t.event);
	if (err) /* what is wrong with it has other names in the older call */
		err = layer_next.clEnqueueWaitForEvents(queue, n, list);
	return layer_gate_leave(&t, err);
}

static cl_int CL_API_CALL SVMFree(cl_command_queue queue, cl_uint count, void *ptrs[],
				  void(CL_CALLBACK *func)(cl_command_queue, cl_uint, void *[],
							  void *),
				  void *arg, WAIT)
{
	PASS(PASS_COMMAND, layer_next.clEnqueueSVMFree(queue, count, ptrs, func, arg, GIVE));
}

static cl_int CL_API_CALL AcquireGLObjects(cl_command_queue queue, cl_uint count,
					   const cl_mem *mems, WAIT)
{
	PASS(PASS_COMMAND, layer_next.clEnqueueAcquireGLObjects(queue, count, mems, GIVE));
}

static cl_int CL_API_CALL AcquireEGLObjects(cl_command_queue queue, cl_uint count,
					    const cl_mem *mems, WAIT)
{
	PASS(PASS_COMMAND, layer_next.clEnqueueAcquireEGLObjectsKHR(queue, count, mems, GIVE));
}

static cl_int CL_API_CALL ReleaseEGLObjects(cl_command_queue queue, cl_uint count,
					    const cl_mem *mems, WAIT)
{
	PASS(PASS_COMMAND, layer_next.clEnqueueReleaseEGLObjectsKHR(queue, count, mems, GIVE));
}

static cl_int CL_API_CALL ReleaseGLObjects(cl_command_queue queue, cl_uint count,
					   const cl_mem *mems, WAIT)
{
	PASS(PASS_COMMAND, layer_next.clEnqueueReleaseGLObjects(queue, count, mems, GIVE));
}

void layer_enqueue_install(cl_icd_dispatch *table)
{
	table->clEnqueueNDRangeKernel = NDRangeKernel;
	table->clEnqueueTask = Task;
	table->clEnqueueNativeKernel = NativeKernel;
	table->clEnqueueReadBuffer = ReadBuffer;
	table->clEnqueueWriteBuffer = WriteBuffer;
	table->clEnqueueReadBufferRect = ReadBufferRect;
	table->clEnqueueWriteBufferRect = WriteBufferRect;
	table->clEnqueueCopyBuffer = CopyBuffer;
	table->clEnqueueCopyBufferRect = CopyBufferRect;
	table->clEnqueueFillBuffer = FillBuffer;
	table->clEnqueueReadImage = ReadImage;
	table->clEnqueueWriteImage = WriteImage;
	table->clEnqueueCopyImage = CopyImage;
	table->clEnqueueCopyImageToBuffer = CopyImageToBuffer;
	table->clEnqueueCopyBufferToImage = CopyBufferToImage;
	table->clEnqueueFillImage = FillImage;
	table->clEnqueueMapBuffer = MapBuffer;
	table->clEnqueueMapImage = MapImage;
	table->clEnqueueUnmapMemObject = UnmapMemObject;
	table->clEnqueueMigrateMemObjects = MigrateMemObjects;
	table->clEnqueueSVMMemcpy = SVMMemcpy;
	table->clEnqueueSVMMemFill = SVMMemFill;
	table->clEnqueueSVMMap = SVMMap;
	table->clEnqueueSVMUnmap = SVMUnmap;
	table->clEnqueueSVMMigrateMem = SVMMigrateMem;
	table->clEnqueueMarkerWithWaitList = MarkerWithWaitList;
	table->clEnqueueBarrierWithWaitList = BarrierWithWaitList;
	table->clEnqueueMarker = Marker;
	table->clEnqueueBarrier = Barrier;
	table->clEnqueueWaitForEvents = WaitForEventsInQueue;
	table->clEnqueueSVMFree = SVMFree;
	table->clEnqueueAcquireGLObjects = AcquireGLObjects;
	table->clEnqueueReleaseGLObjects = ReleaseGLObjects;
	table->clEnqueueAcquireEGLObjectsKHR = AcquireEGLObjects;
	table->clEnqueueReleaseEGLObjectsKHR = ReleaseEGLObjects;
}
