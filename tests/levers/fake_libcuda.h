/* SPDX-License-Identifier: MIT */
/*
 * fake_libcuda.h - a test's settings for fake_libcuda.c, and the library's counts.
 */
#ifndef RTXG_FAKE_LIBCUDA_H
#define RTXG_FAKE_LIBCUDA_H

#include <signal.h>
#include <stdint.h>
#include <time.h>

struct fake_cuda {
	/* cuInit has been called; the program has a primary context on device 1 (0000:41:00.0) */
	int initialised, active;
	int query; /* what cuStreamQuery answers */
	int retains, loads, launches, wrong;
	uint64_t launched_ns; /* when the last was */
};

extern struct fake_cuda fake_cuda;

void fake_cuda_job(void);

int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetByPCIBusId(int *device, const char *bus);
int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active);
int cuDevicePrimaryCtxRetain(void **c, int device);
int cuCtxPushCurrent_v2(void *c);
int cuCtxPopCurrent_v2(void **c);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuStreamCreate(void **stream, unsigned int flags);
int cuStreamQuery(void *stream);
int cuLaunchKernel(void *function, unsigned int x, unsigned int y, unsigned int z, unsigned int bx,
		   unsigned int by, unsigned int bz, unsigned int shared, void *stream,
		   void **params, void **extra);

#endif
