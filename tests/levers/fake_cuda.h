/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda.h - a test's settings for fake_cuda.c, and what is in it.
 */
#ifndef RTXG_FAKE_CUDA_H
#define RTXG_FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* Of device 0, as "0000:41:00.0"; empty: it is not told. */
extern char fake_cuda_address[32];

int cuInit(unsigned int flags);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetName(char *name, int size, int device);
int cuDeviceGetPCIBusId(char *address, int size, int device);
int cuCtxCreate_v2(void **context, unsigned int flags, int device);
int cuCtxSetCurrent(void *context);
int cuCtxDestroy_v2(void *context);
int cuCtxSynchronize(void);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuMemHostAlloc(void **host, size_t size, unsigned int flags);
int cuMemHostGetDevicePointer_v2(unsigned long long *device, void *host, unsigned int flags);
int cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
		   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
		   void *stream, void **parameters, void **extra);

#endif
