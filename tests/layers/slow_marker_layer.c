// SPDX-License-Identifier: MIT
/*
 * slow_marker_layer.c - an OpenCL layer that stands for a platform whose markers take their time:
 * the program waits for its commands, and goes on, before the call that puts one has returned.
 * Loaded below the layer that is tested.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_layer.h>
#include <string.h>
#include <time.h>
#include "layer_info.h"

static cl_icd_dispatch table, below;

static cl_int CL_API_CALL slowly(cl_command_queue queue, cl_uint n, const cl_event *list,
				 cl_event *event)
{
	cl_int err = below.clEnqueueMarkerWithWaitList(queue, n, list, event);

	nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	return err;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch *next,
					    cl_uint *entries_ret, const cl_icd_dispatch **layer)
{
	(void)entries;
	memcpy(&below, next, sizeof(below));
	table = below;
	table.clEnqueueMarkerWithWaitList = slowly;
	*entries_ret = sizeof(table) / sizeof(void *);
	*layer = &table;
	return CL_SUCCESS;
}
