// SPDX-License-Identifier: MIT
/*
 * launcher.c - launches a kernel that does nothing but read the GPU's clock. The thread sleeps
 * until it is done: CUDA is asked to (blocking synchronisation); an OpenCL driver may spin.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rtxg_clock.h>

#include "launcher.h"

#define BLOCKING_SYNC 4 /* CU_CTX_SCHED_BLOCKING_SYNC */
#define DEVICE_MAP    2 /* CU_MEMHOSTALLOC_DEVICEMAP */

/* The CUDA driver's functions that are used; their handles are pointers. */
struct cuda {
	void *library;
	int (*init)(unsigned int flags);
	int (*device_get)(int *device, int ordinal);
	int (*device_name)(char *name, int size, int device);
	int (*device_pci)(char *address, int size, int device);
	int (*context_create)(void **context, unsigned int flags, int device);
	int (*context_set)(void *context);
	int (*context_destroy)(void *context);
	int (*synchronize)(void);
	int (*module_load)(void **module, const void *image);
	int (*function_get)(void **function, void *module, const char *name);
	int (*host_alloc)(void **memory, size_t size, unsigned int flags);
	int (*host_device)(unsigned long long *device, void *memory, unsigned int flags);
	int (*launch)(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
		      unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
		      void *stream, void **parameters, void **extra);
	void *context, *function;
	volatile uint64_t *stamps;
	unsigned long long stamps_device;
	bool current; /* in the thread that launches */
};

struct opencl {
	void *library;
	__typeof__(clEnqueueNDRangeKernel) *enqueue;
	__typeof__(clFlush) *flush;
	__typeof__(clWaitForEvents) *wait;
	__typeof__(clGetEventProfilingInfo) *profile;
	__typeof__(clReleaseEvent) *release;
	cl_command_queue queue;
	cl_kernel kernel;
};

struct launcher {
	struct cuda cuda;
	struct opencl cl;
	bool is_cuda;
	char name[160];
	char pci[24]; /* empty: not known */
};

/* Writes the clock's value before and after. */
static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
			  ".visible .entry stamp(.param .u64 out)\n{\n"
			  ".reg .u64 %a<4>;\n"
			  "ld.param.u64 %a0, [out];\n"
			  "mov.u64 %a1, %globaltimer;\n"
			  "st.global.u64 [%a0], %a1;\n"
			  "membar.sys;\n"
			  "mov.u64 %a2, %globaltimer;\n"
			  "st.global.u64 [%a0+8], %a2;\n"
			  "ret;\n}\n";

static const char source[] = "__kernel void stamp(__global uint *a) { a[0] = a[0] + 1; }";

static bool find(void *library, const char *name, void *function)
{
	void *found = dlsym(library, name);

	memcpy(function, &found, sizeof(found));
	return found != NULL;
}

static bool open_cuda(struct launcher *l, const char **reason)
{
	struct cuda *c = &l->cuda;
	void *module, *memory;
	char name[100] = "";
	int device;

	*reason = "libcuda.so.1 is not here";
	c->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!c->library)
		return false;
	*reason = "the CUDA driver lacks a function that is needed";
	if (!find(c->library, "cuInit", &c->init) ||
	    !find(c->library, "cuDeviceGet", &c->device_get) ||
	    !find(c->library, "cuDeviceGetName", &c->device_name) ||
	    !find(c->library, "cuCtxCreate_v2", &c->context_create) ||
	    !find(c->library, "cuCtxSetCurrent", &c->context_set) ||
	    !find(c->library, "cuCtxDestroy_v2", &c->context_destroy) ||
	    !find(c->library, "cuCtxSynchronize", &c->synchronize) ||
	    !find(c->library, "cuModuleLoadData", &c->module_load) ||
	    !find(c->library, "cuModuleGetFunction", &c->function_get) ||
	    !find(c->library, "cuMemHostAlloc", &c->host_alloc) ||
	    !find(c->library, "cuMemHostGetDevicePointer_v2", &c->host_device) ||
	    !find(c->library, "cuLaunchKernel", &c->launch))
		return false;
	*reason = "CUDA has no device";
	if (c->init(0) || c->device_get(&device, 0))
		return false;
	*reason = "the CUDA device takes no context or no kernel";
	if (c->device_name(name, sizeof(name), device) ||
	    c->context_create(&c->context, BLOCKING_SYNC, device) || c->module_load(&module, ptx) ||
	    c->function_get(&c->function, module, "stamp") ||
	    c->host_alloc(&memory, 4096, DEVICE_MAP) ||
	    c->host_device(&c->stamps_device, memory, 0))
		return false;
	c->stamps = memory;
	c->context_set(NULL);
	if (!find(c->library, "cuDeviceGetPCIBusId", &c->device_pci) ||
	    c->device_pci(l->pci, sizeof(l->pci), device))
		l->pci[0] = 0;
	l->is_cuda = true;
	snprintf(l->name, sizeof(l->name), "CUDA: %.100s", name);
	return true;
}

static bool open_opencl(struct launcher *l, const char **reason)
{
	struct opencl *c = &l->cl;
	__typeof__(clGetPlatformIDs) *platforms;
	__typeof__(clGetDeviceIDs) *devices;
	__typeof__(clGetDeviceInfo) *info;
	__typeof__(clCreateContext) *context_create;
	__typeof__(clCreateCommandQueue) *queue_create;
	__typeof__(clCreateProgramWithSource) *program_create;
	__typeof__(clBuildProgram) *build;
	__typeof__(clCreateKernel) *kernel_create;
	__typeof__(clCreateBuffer) *buffer_create;
	__typeof__(clSetKernelArg) *argument;
	const char *text = source;
	char name[100] = "";
	cl_platform_id platform;
	cl_device_id device;
	cl_context context;
	cl_program program;
	cl_mem memory;
	cl_int err;

	*reason = "libOpenCL.so.1 is not here; install ocl-icd-libopencl1 and pocl-opencl-icd";
	c->library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!c->library)
		return false;
	*reason = "the OpenCL loader lacks a function that is needed";
	if (!find(c->library, "clGetPlatformIDs", &platforms) ||
	    !find(c->library, "clGetDeviceIDs", &devices) ||
	    !find(c->library, "clGetDeviceInfo", &info) ||
	    !find(c->library, "clCreateContext", &context_create) ||
	    !find(c->library, "clCreateCommandQueue", &queue_create) ||
	    !find(c->library, "clCreateProgramWithSource", &program_create) ||
	    !find(c->library, "clBuildProgram", &build) ||
	    !find(c->library, "clCreateKernel", &kernel_create) ||
	    !find(c->library, "clCreateBuffer", &buffer_create) ||
	    !find(c->library, "clSetKernelArg", &argument) ||
	    !find(c->library, "clEnqueueNDRangeKernel", &c->enqueue) ||
	    !find(c->library, "clFlush", &c->flush) ||
	    !find(c->library, "clWaitForEvents", &c->wait) ||
	    !find(c->library, "clGetEventProfilingInfo", &c->profile) ||
	    !find(c->library, "clReleaseEvent", &c->release))
		return false;
	*reason = "OpenCL has no device; install pocl-opencl-icd, or a vendor's driver";
	if (platforms(1, &platform, NULL) ||
	    devices(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL))
		return false;
	*reason = "the OpenCL device takes no kernel";
	context = context_create(NULL, 1, &device, NULL, NULL, &err);
	if (err)
		return false;
	c->queue = queue_create(context, device, CL_QUEUE_PROFILING_ENABLE, &err);
	if (err)
		return false;
	program = program_create(context, 1, &text, NULL, &err);
	if (err || build(program, 1, &device, "", NULL, NULL))
		return false;
	c->kernel = kernel_create(program, "stamp", &err);
	if (err)
		return false;
	memory = buffer_create(context, CL_MEM_READ_WRITE, 4096, NULL, &err);
	if (err || argument(c->kernel, 0, sizeof(memory), &memory))
		return false;
	info(device, CL_DEVICE_NAME, sizeof(name), name, NULL);
	snprintf(l->name, sizeof(l->name), "OpenCL: %.99s", name);
	return true;
}

struct launcher *launcher_open(const char *which, const char **reason)
{
	struct launcher *l = calloc(1, sizeof(*l));

	*reason = "out of memory";
	if (!l)
		return NULL;
	if ((!which || !strcmp(which, "cuda")) && open_cuda(l, reason))
		return l;
	if ((!which || !strcmp(which, "opencl")) && open_opencl(l, reason))
		return l;
	free(l);
	return NULL;
}

/* The drivers' libraries stay: some do not bear being unloaded. */
void launcher_close(struct launcher *l)
{
	if (l && l->is_cuda)
		l->cuda.context_destroy(l->cuda.context);
	free(l);
}

const char *launcher_name(const struct launcher *l)
{
	return l->name;
}

const char *launcher_pci(const struct launcher *l)
{
	return l->pci[0] ? l->pci : NULL;
}

static int run_cuda(struct cuda *c, struct launcher_times *times)
{
	void *parameters[] = { &c->stamps_device };

	if (!c->current && c->context_set(c->context))
		return -EIO;
	c->current = true;
	if (c->launch(c->function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL))
		return -EIO;
	times->submitted_ns = rtxg_now_ns();
	if (c->synchronize())
		return -EIO;
	times->start_gpu_ns = c->stamps[0];
	times->end_gpu_ns = c->stamps[1];
	return 0;
}

static int run_opencl(struct opencl *c, struct launcher_times *times)
{
	cl_ulong start = 0, end = 0;
	size_t one = 1;
	cl_event event;

	if (c->enqueue(c->queue, c->kernel, 1, NULL, &one, NULL, 0, NULL, &event) ||
	    c->flush(c->queue))
		return -EIO;
	times->submitted_ns = rtxg_now_ns();
	if (c->wait(1, &event))
		return -EIO;
	c->profile(event, CL_PROFILING_COMMAND_START, sizeof(start), &start, NULL);
	c->profile(event, CL_PROFILING_COMMAND_END, sizeof(end), &end, NULL);
	c->release(event);
	times->start_gpu_ns = start;
	times->end_gpu_ns = end;
	return 0;
}

int launcher_run(struct launcher *l, struct launcher_times *times)
{
	return l->is_cuda ? run_cuda(&l->cuda, times) : run_opencl(&l->cl, times);
}
