// SPDX-License-Identifier: MIT
/*
 * slow_marker_layer.c - an OpenCL layer that stands for a platform whose markers take their time:
 * the program waits for its commands, and goes on, before the call that puts one has returned. With
 * SLOW_MARKERS=late they take it before they are in the queue, and so do barriers. Loaded below the
 * layer that is tested.
 */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>
#include <CL/cl_layer.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "layer_info.h"

static cl_icd_dispatch table, below;

static void pass_time(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
}

static cl_int CL_API_CALL slowly(cl_command_queue queue, cl_uint n, const cl_event *list,
				 cl_event *event)
{
	cl_int err = below.clEnqueueMarkerWithWaitList(queue, n, list, event);

	pass_time();
	return err;
}

static cl_int CL_API_CALL late(cl_command_queue queue, cl_uint n, const cl_event *list,
			       cl_event *event)
{
	pass_time();
	return below.clEnqueueMarkerWithWaitList(queue, n, list, event);
}

static cl_int CL_API_CALL late_barrier(cl_command_queue queue, cl_uint n, const cl_event *list,
				       cl_event *event)
{
	pass_time();
	return below.clEnqueueBarrierWithWaitList(queue, n, list, event);
}

static cl_int CL_API_CALL late_old(cl_command_queue queue, cl_event *event)
{
	pass_time();
	return below.clEnqueueMarker(queue, event);
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch *next,
					    cl_uint *entries_ret, const cl_icd_dispatch **layer)
{
	const char *when = getenv("SLOW_MARKERS");

	(void)entries;
	memcpy(&below, next, sizeof(below));
	table = below;
	if (when && !strcmp(when, "late")) {
		table.clEnqueueMarkerWithWaitList = late;
		table.clEnqueueBarrierWithWaitList = late_barrier;
		table.clEnqueueMarker = late_old;
	} else {
		table.clEnqueueMarkerWithWaitList = slowly;
	}
	*entries_ret = sizeof(table) / sizeof(void *);
	*layer = &table;
	return CL_SUCCESS;
}
