// SPDX-License-Identifier: MIT
/*
 * inject.c - librtxg-cuda.so: what rtxg does inside a CUDA program that knows nothing of it.
 *
 *   CUDA_INJECTION64_PATH=.../librtxg-cuda.so program     CUDA's driver library loads it when the
 *                                                         program starts to use CUDA
 *
 * Two things, each of which can fail and leaves the program as it is then: warm.c brings the
 * context of a latency-critical program onto the GPU ahead of its releases, and waits.c lets the
 * program's blocking waits sleep for an interrupt (rtxg run --waits). May not: make a context, or
 * change what a call of CUDA's gives back.
 */
#include <dlfcn.h>

#include "waits.h"
#include "warm.h"

/* Called by CUDA's driver library, from within the program's first call of it. */
__attribute__((visibility("default"))) int InitializeInjection(void);
int InitializeInjection(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	inject_waits_begin(cuda);
	inject_warm_begin(cuda);
	return 1;
}
