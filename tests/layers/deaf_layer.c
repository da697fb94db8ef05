// SPDX-License-Identifier: MIT
/*
 * deaf_layer.c - an OpenCL layer that stands for a platform that cannot tell when an event has
 * completed. Loaded below the layer that is tested.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_layer.h>
#include <string.h>
#include "layer_info.h"

static cl_icd_dispatch table;

static cl_int CL_API_CALL refuse(cl_event event, cl_int status,
				 void(CL_CALLBACK *call)(cl_event event, cl_int status, void *data),
				 void *data)
{
	(void)event;
	(void)status;
	(void)call;
	(void)data;
	return CL_OUT_OF_RESOURCES;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch *next,
					    cl_uint *entries_ret, const cl_icd_dispatch **layer)
{
	(void)entries;
	memcpy(&table, next, sizeof(table));
	table.clSetEventCallback = refuse;
	*entries_ret = sizeof(table) / sizeof(void *);
	*layer = &table;
	return CL_SUCCESS;
}
