// SPDX-License-Identifier: MIT
/*
 * floor_layer.c - an OpenCL layer that does next to nothing, for bench/opencl_floor.py: what a
 * layer costs before it has done anything of use. RTXG_FLOOR says what it does:
 *
 * forward  its launches and waits call the next layer's, and no more
 * permit   the same, and a permit of librtxg's is taken before each launch and given back after
 *          each wait, by the shortest way: no lock, no queue is looked up, nothing is remembered
 * nothing  launches and waits return at once: below the layer that is measured, so that its own
 *          time is left
 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_layer.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rtxg.h"

static cl_icd_dispatch next, table;
static rtx_gpu_t gpu;
static unsigned int launched;

static cl_int CL_API_CALL forward_launch(cl_command_queue queue, cl_kernel kernel, cl_uint dim,
					 const size_t *offset, const size_t *global,
					 const size_t *local, cl_uint n, const cl_event *list,
					 cl_event *event)
{
	return next.clEnqueueNDRangeKernel(queue, kernel, dim, offset, global, local, n, list,
					   event);
}

static cl_int CL_API_CALL forward_finish(cl_command_queue queue)
{
	return next.clFinish(queue);
}

/* All launches up to the next wait are one. */
static cl_int CL_API_CALL permit_launch(cl_command_queue queue, cl_kernel kernel, cl_uint dim,
					const size_t *offset, const size_t *global,
					const size_t *local, cl_uint n, const cl_event *list,
					cl_event *event)
{
	if (!launched++ && rtx_gpu_launch(gpu, RTX_COMPUTE))
		return CL_OUT_OF_RESOURCES;
	return next.clEnqueueNDRangeKernel(queue, kernel, dim, offset, global, local, n, list,
					   event);
}

static cl_int CL_API_CALL permit_finish(cl_command_queue queue)
{
	cl_int err = next.clFinish(queue);

	if (launched)
		rtx_gpu_complete(gpu, RTX_COMPUTE, 0);
	launched = 0;
	return err;
}

static cl_int CL_API_CALL no_launch(cl_command_queue queue, cl_kernel kernel, cl_uint dim,
				    const size_t *offset, const size_t *global, const size_t *local,
				    cl_uint n, const cl_event *list, cl_event *event)
{
	(void)queue;
	(void)kernel;
	(void)dim;
	(void)offset;
	(void)global;
	(void)local;
	(void)n;
	(void)list;
	(void)event;
	return CL_SUCCESS;
}

static cl_int CL_API_CALL no_finish(cl_command_queue queue)
{
	(void)queue;
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *value,
					       size_t *size_ret)
{
	cl_layer_api_version version = CL_LAYER_API_VERSION_100;

	if (name != CL_LAYER_API_VERSION || (value && size < sizeof(version)))
		return CL_INVALID_VALUE;
	if (value)
		memcpy(value, &version, sizeof(version));
	if (size_ret)
		*size_ret = sizeof(version);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch *target,
					    cl_uint *entries_ret, const cl_icd_dispatch **layer)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	const char *what = getenv("RTXG_FLOOR");

	(void)entries;
	memcpy(&next, target, sizeof(next));
	memcpy(&table, target, sizeof(table));
	if (what && !strcmp(what, "forward")) {
		table.clEnqueueNDRangeKernel = forward_launch;
		table.clFinish = forward_finish;
	} else if (what && !strcmp(what, "permit")) {
		table.clEnqueueNDRangeKernel = permit_launch;
		table.clFinish = permit_finish;
		options.device = "opencl:floor";
		if (rtx_gpu_open(&gpu, &options)) {
			fprintf(stderr, "floor_layer: %s\n", rtx_strerror());
			return CL_INVALID_VALUE;
		}
	} else if (what && !strcmp(what, "nothing")) {
		table.clEnqueueNDRangeKernel = no_launch;
		table.clFinish = no_finish;
	} else {
		fprintf(stderr, "floor_layer: RTXG_FLOOR is forward, permit or nothing\n");
		return CL_INVALID_VALUE;
	}
	*entries_ret = sizeof(table) / sizeof(void *);
	*layer = &table;
	return CL_SUCCESS;
}
