/* SPDX-License-Identifier: MIT */
/*
 * fake_libcuda.h - a test's settings for fake_libcuda.c, and the library's counts.
 */
#ifndef RTXG_FAKE_LIBCUDA_H
#define RTXG_FAKE_LIBCUDA_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct fake_cuda {
	/* cuInit has been called; the program has a primary context on device 1 (0000:41:00.0) */
	int initialised, active;
	int query;     /* what cuStreamQuery answers */
	int capturing; /* what cuStreamIsCapturing tells */
	int elsewhere; /* a graph is captured by another thread, in the mode that is CUDA's own */
	int other;     /* streams are of another context than the thread's */
	int refuses;   /* cuMemHostRegister fails */
	int registered, writes, retains, loads, launches, wrong;
	int broken;	      /* calls that broke that capture */
	uint64_t launched_ns; /* when the last was */
};

extern struct fake_cuda fake_cuda;

void fake_cuda_job(void);

/* The streams' work has ended: they write what they were given to write. */
void fake_cuda_finish(void);
/* A thread's context, as CUPTI tells it. */
extern void *const fake_cuda_context;

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

int cuCtxGetDevice(int *device);
int cuDeviceGetPCIBusId(char *bus, int size, int device);
int cuStreamGetCtx(void *stream, void **c);
int cuStreamIsCapturing(void *stream, int *status);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuMemHostRegister_v2(void *page, size_t bytes, unsigned int flags);
int cuMemHostUnregister(void *page);
int cuMemHostGetDevicePointer_v2(unsigned long long *at, void *here, unsigned int flags);
int cuStreamWriteValue32_v2(void *stream, unsigned long long at, uint32_t value,
			    unsigned int flags);

#endif
