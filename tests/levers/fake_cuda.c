// SPDX-License-Identifier: MIT
/*
 * fake_cuda.c - CUDA's driver library as latency/launcher.c uses it, of a machine with two GPUs.
 * CUDA's device 0 is at the address that the test says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

char fake_cuda_address[32];
static uint64_t memory[512];

int cuInit(unsigned int flags)
{
	return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return 0;
}

int cuDeviceGetName(char *name, int size, int device)
{
	snprintf(name, (size_t)size, "fake %d", device);
	return 0;
}

int cuDeviceGetPCIBusId(char *address, int size, int device)
{
	if (device || !fake_cuda_address[0])
		return 1;
	snprintf(address, (size_t)size, "%s", fake_cuda_address);
	return 0;
}

int cuCtxCreate_v2(void **context, unsigned int flags, int device)
{
	*context = memory;
	return 0;
}

int cuCtxSetCurrent(void *context)
{
	return 0;
}

int cuCtxDestroy_v2(void *context)
{
	return 0;
}

int cuCtxSynchronize(void)
{
	return 0;
}

int cuModuleLoadData(void **module, const void *image)
{
	*module = memory;
	return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = memory;
	return 0;
}

int cuMemHostAlloc(void **host, size_t size, unsigned int flags)
{
	*host = memory;
	return size > sizeof(memory);
}

int cuMemHostGetDevicePointer_v2(unsigned long long *device, void *host, unsigned int flags)
{
	*device = 0;
	return 0;
}

int cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
		   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
		   void *stream, void **parameters, void **extra)
{
	return 0;
}
