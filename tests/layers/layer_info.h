/* SPDX-License-Identifier: MIT */
/*
 * layer_info.h - what the loader asks each OpenCL layer of the tests, and its answer.
 */
#ifndef TESTS_LAYER_INFO_H
#define TESTS_LAYER_INFO_H

#include <CL/cl.h>
#include <CL/cl_layer.h>
#include <string.h>

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *value,
					       size_t *size_ret)
{
	cl_layer_api_version version = CL_LAYER_API_VERSION_100;

	if (name != CL_LAYER_API_VERSION)
		return CL_INVALID_VALUE;
	if (value)
		memcpy(value, &version, sizeof(version));
	if (size_ret)
		*size_ret = sizeof(version);
	(void)size;
	return CL_SUCCESS;
}

#endif
