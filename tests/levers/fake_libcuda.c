// SPDX-License-Identifier: MIT
/*
 * fake_libcuda.c - the few functions of CUDA's driver library that librtxg-warm.so calls, for
 * test_warm.c. The library counts the calls and keeps the time of the last launch. It holds a
 * context's users up while a module is loaded, as the real library does. Never installed.
 */
#include <pthread.h>
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
	*stream = &context;
	return flags == 1 ? 0 : 1;
}

int cuStreamQuery(void *stream)
{
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
