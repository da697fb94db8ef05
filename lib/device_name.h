/* SPDX-License-Identifier: MIT */
/*
 * device_name.h - the name of an OpenCL device, for the layer and for rtxgd: see device_name.c. Not
 * installed.
 */
#ifndef RTX_LIB_DEVICE_NAME_H
#define RTX_LIB_DEVICE_NAME_H

#include <CL/cl_icd.h>
#include <stddef.h>

/*
 * The name under which rtxg knows the device. Of `next`, clGetDeviceIDs, clGetDeviceInfo and
 * clGetPlatformInfo are called. 0 or -ENODEV if the platform does not answer.
 */
int rtx_lib_device_name(const cl_icd_dispatch *next, cl_device_id device, char *name, size_t size);

#endif
