// SPDX-License-Identifier: MIT
/*
 * khr_queue.c - a program that makes its queue by cl_khr_create_command_queue and enqueues ten
 * commands. Prints "10 commands" when they have completed, "no extension" where there is none.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdio.h>

int main(void)
{
	clCreateCommandQueueWithPropertiesKHR_fn create;
	cl_platform_id platform;
	cl_command_queue queue;
	cl_device_id device;
	cl_context context;
	cl_mem buffer;
	cl_int err = 0, zero = 0;

	if (clGetPlatformIDs(1, &platform, NULL) ||
	    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL))
		return 1;
	create = (clCreateCommandQueueWithPropertiesKHR_fn)clGetExtensionFunctionAddressForPlatform(
		platform, "clCreateCommandQueueWithPropertiesKHR");
	if (!create) {
		puts("no extension");
		return 0;
	}
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	queue = create(context, device, NULL, &err);
	buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, &err);
	for (int i = 0; i < 10 && !err; i++)
		err = clEnqueueFillBuffer(queue, buffer, &zero, sizeof(zero), 0, 4096, 0, NULL,
					  NULL);
	if (err || clFinish(queue))
		return 1;
	puts("10 commands");
	clReleaseMemObject(buffer);
	clReleaseCommandQueue(queue);
	clReleaseContext(context);
	return 0;
}
