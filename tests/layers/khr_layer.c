// SPDX-License-Identifier: MIT
/*
 * khr_layer.c - an OpenCL layer that stands for a platform with cl_khr_create_command_queue, which
 * PoCL is not: it answers the question for the extension's function. Loaded below the layer that is
 * tested.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_layer.h>
#include <string.h>

static cl_icd_dispatch target, table;

static cl_command_queue CL_API_CALL create(cl_context context, cl_device_id device,
					   const cl_queue_properties *properties, cl_int *err)
{
	return target.clCreateCommandQueueWithProperties(context, device, properties, err);
}

static void *CL_API_CALL address(cl_platform_id platform, const char *name)
{
	if (!strcmp(name, "clCreateCommandQueueWithPropertiesKHR"))
		return (void *)create;
	return target.clGetExtensionFunctionAddressForPlatform(platform, name);
}

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
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch *next,
					    cl_uint *entries_ret, const cl_icd_dispatch **layer)
{
	memcpy(&target, next, sizeof(target));
	memcpy(&table, next, sizeof(table));
	table.clGetExtensionFunctionAddressForPlatform = address;
	*entries_ret = sizeof(table) / sizeof(void *);
	*layer = &table;
	return CL_SUCCESS;
}
