// SPDX-License-Identifier: MIT
/*
 * fake_libcuda.c - the few functions of CUDA's driver library that librtxg-cuda.so calls, for
 * test_warm.c and test_waits.c. The library counts the calls and keeps the time of the last launch.
 * It holds a context's users up while a module is loaded, as the real library does. Never
 * installed.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "fake_libcuda.h"

struct fake_cuda fake_cuda;

static pthread_mutex_t context = PTHREAD_MUTEX_INITIALIZER;
static __thread int pushed;

static int got(int *count)
{
	__atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static __thread int capture_mode;

static void beside_a_capture(void)
{
	if (__atomic_load_n(&fake_cuda.elsewhere, __ATOMIC_SEQ_CST) && capture_mode != 2)
		got(&fake_cuda.broken);
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = capture_mode;

	capture_mode = *mode;
	*mode = before;
	return 0;
}

int cuDeviceGetCount(int *count)
{
	*count = 2;
	return __atomic_load_n(&fake_cuda.initialised, __ATOMIC_SEQ_CST) ? 0 : 3;
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return 0;
}

int cuDeviceGetByPCIBusId(int *device, const char *bus)
{
	*device = 1;
	return strcmp(bus, "0000:41:00.0") ? 100 : 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active)
{
	*flags = 0;
	*active = device == 1 && __atomic_load_n(&fake_cuda.active, __ATOMIC_SEQ_CST);
	return 0;
}

int cuDevicePrimaryCtxRetain(void **c, int device)
{
	*c = &context;
	if (device != 1 || !__atomic_load_n(&fake_cuda.active, __ATOMIC_SEQ_CST))
		got(&fake_cuda.wrong); /* it would make one */
	return got(&fake_cuda.retains);
}

int cuCtxPushCurrent_v2(void *c)
{
	pushed++;
	return 0;
}

int cuCtxPopCurrent_v2(void **c)
{
	*c = &context;
	pushed--;
	return 0;
}

int cuModuleLoadData(void **module, const void *image)
{
	sigset_t mask;

	beside_a_capture();
	if (!pushed || !strstr(image, ".entry nothing()"))
		got(&fake_cuda.wrong);
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	if (!sigismember(&mask, SIGUSR1))
		got(&fake_cuda.wrong);
	pthread_mutex_lock(&context);
	usleep(60000);
	pthread_mutex_unlock(&context);
	*module = &fake_cuda;
	return got(&fake_cuda.loads);
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = module;
	return strcmp(name, "nothing") ? 500 : 0;
}

int cuStreamCreate(void **stream, unsigned int flags)
{
	beside_a_capture();
	*stream = &context;
	return flags == 1 ? 0 : 1;
}

int cuStreamQuery(void *stream)
{
	beside_a_capture();
	if (__atomic_load_n(&fake_cuda.capturing, __ATOMIC_SEQ_CST))
		got(&fake_cuda.broken);
	return __atomic_load_n(&fake_cuda.active, __ATOMIC_SEQ_CST)
		       ? __atomic_load_n(&fake_cuda.query, __ATOMIC_SEQ_CST)
		       : 709;
}

int cuLaunchKernel(void *function, unsigned int x, unsigned int y, unsigned int z, unsigned int bx,
		   unsigned int by, unsigned int bz, unsigned int shared, void *stream,
		   void **params, void **extra)
{
	struct timespec ts;

	if (!pushed || x * y * z * bx * by * bz != 1 || stream != &context)
		got(&fake_cuda.wrong);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	__atomic_store_n(&fake_cuda.launched_ns,
			 (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec,
			 __ATOMIC_SEQ_CST);
	return got(&fake_cuda.launches);
}

/* The program's own job: it waits while a module is being loaded. */
void fake_cuda_job(void)
{
	pthread_mutex_lock(&context);
	pthread_mutex_unlock(&context);
}

/* --- waits ------------------------------------------------------------------------------------ */

void *const fake_cuda_context = &context;

static pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	volatile uint32_t *at;
	uint32_t value;
} pending[64];
static int pendings;

int cuCtxGetDevice(int *device)
{
	*device = 1;
	return 0;
}

int cuDeviceGetPCIBusId(char *bus, int size, int device)
{
	snprintf(bus, (size_t)size, "0000:40:01.0");
	return device == 1 ? 0 : 101;
}

int cuStreamGetCtx(void *stream, void **c)
{
	*c = fake_cuda.other ? &stream_lock : &context;
	return 0;
}

int cuStreamIsCapturing(void *stream, int *status)
{
	*status = fake_cuda.capturing;
	return 0;
}

int cuMemHostRegister_v2(void *page, size_t bytes, unsigned int flags)
{
	beside_a_capture();
	if (fake_cuda.refuses)
		return 201; /* CUDA_ERROR_INVALID_CONTEXT */
	return fake_cuda.registered++ ? 712 : 0;
}

int cuMemHostUnregister(void *page)
{
	beside_a_capture();
	fake_cuda.registered = 0;
	return 0;
}

int cuMemHostGetDevicePointer_v2(unsigned long long *at, void *here, unsigned int flags)
{
	*at = (uintptr_t)here;
	return fake_cuda.registered ? 0 : 1;
}

/* Behind the work that the streams have. */
int cuStreamWriteValue32_v2(void *stream, unsigned long long at, uint32_t value, unsigned int flags)
{
	volatile uint32_t *word = (volatile uint32_t *)(uintptr_t)at;

	pthread_mutex_lock(&stream_lock);
	if (__atomic_load_n(&fake_cuda.query, __ATOMIC_SEQ_CST)) {
		pending[pendings].at = word;
		pending[pendings++].value = value;
	} else {
		__atomic_store_n(word, value, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&stream_lock);
	return !got(&fake_cuda.writes) ? 0 : 1;
}

void fake_cuda_finish(void)
{
	pthread_mutex_lock(&stream_lock);
	__atomic_store_n(&fake_cuda.query, 0, __ATOMIC_SEQ_CST);
	while (pendings) {
		pendings--;
		__atomic_store_n(pending[pendings].at, pending[pendings].value, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&stream_lock);
}
