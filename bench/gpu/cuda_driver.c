// SPDX-License-Identifier: MIT
/*
 * cuda_driver.c - see cuda_driver.h.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_driver.h"
#include "rtxg.h"

#define PAGE_BYTES ((size_t)4096)

cuda_fn cu[CUDA_FUNCTIONS_COUNT];

void must(int error, const char *what)
{
	char words[512] = "";
	const char *name = NULL;

	if (!error)
		return;
	if (error < 0)
		name = rtx_strerror();
	else if (cu[ERROR_NAME])
		cu[ERROR_NAME](error, &name);
	snprintf(words, sizeof(words), "%s", name ? name : "");
	for (char *p = words; *p; p++)
		if (*p == '"' || *p == '\\' || (unsigned char)*p < ' ')
			*p = '\'';
	printf("{\"error\": \"%s: %d %s\"}\n", what, error, words);
	exit(1);
}

void cuda_find(const char *program)
{
#define CUDA_NAME(number, name) name,
	static const char *const names[CUDA_FUNCTIONS_COUNT] = { CUDA_FUNCTIONS(CUDA_NAME) };
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	for (int i = 0; i < CUDA_FUNCTIONS_COUNT; i++) {
		*(void **)&cu[i] = library ? dlsym(library, names[i]) : NULL;
		if (!cu[i]) {
			fprintf(stderr, "%s: no CUDA driver with %s\n", program, names[i]);
			exit(77);
		}
	}
	must(cu[INIT](0), "cuInit");
}

void cuda_open(struct cuda_gpu *gpu, int device, unsigned int flags, const char *ptx,
	       const char *kernel)
{
	void *module, *memory;
	int number;

	must(cu[DEVICE](&number, device), "cuDeviceGet");
	must(cu[CREATE](&gpu->context, flags, number), "cuCtxCreate");
	must(cu[LOAD](&module, ptx), "cuModuleLoadData");
	must(cu[FUNCTION](&gpu->kernel, module, kernel), "cuModuleGetFunction");
	must(cu[STREAM](&gpu->stream, 1u /* waits for no other */), "cuStreamCreate");
	must(cu[HOST_ALLOC](&memory, PAGE_BYTES, CUDA_HOST_MAPPED), "cuMemHostAlloc");
	must(cu[HOST_POINTER](&gpu->words_at, memory, 0u), "cuMemHostGetDevicePointer");
	memset(memory, 0, PAGE_BYTES);
	gpu->words = memory;
}

uint64_t processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}
