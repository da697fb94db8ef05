// SPDX-License-Identifier: MIT
/*
 * rtxg-nvprobe - a CUDA program for the daemon to try its lever on: one small kernel that counts in
 * shared memory until told to stop. It loads the CUDA driver library at run time; where there is
 * none it says so and ends.
 *
 *   rtxg-nvprobe FD     (started by the daemon, not by hand)
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>
#include "nvprobe.h"

/* Counts up a 64-bit word in host memory until another word is not 0. */
static const char ptx[] = ".version 6.0\n"
			  ".target sm_50\n"
			  ".address_size 64\n"
			  ".visible .entry count(.param .u64 page)\n"
			  "{\n"
			  "  .reg .pred %p<2>;\n"
			  "  .reg .b64 %rd<3>;\n"
			  "  .reg .b32 %r<2>;\n"
			  "  ld.param.u64 %rd0, [page];\n"
			  "  mov.u64 %rd1, 0;\n"
			  "again:\n"
			  "  add.u64 %rd1, %rd1, 1;\n"
			  "  st.volatile.global.u64 [%rd0], %rd1;\n"
			  "  ld.volatile.global.u32 %r0, [%rd0+64];\n"
			  "  setp.eq.u32 %p0, %r0, 0;\n"
			  "  @%p0 bra again;\n"
			  "  ret;\n"
			  "}\n";

typedef int (*fn)();

static struct nvprobe_page *page;

static int fail(const char *what, int code)
{
	if (page)
		snprintf(page->error, sizeof(page->error), "%s: CUDA error %d", what, code);
	return 1;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {
		"cuInit",	    "cuDeviceGet",	    "cuDevicePrimaryCtxRetain",
		"cuCtxSetCurrent",  "cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2",
		"cuModuleLoadData", "cuModuleGetFunction",  "cuLaunchKernel",
		"cuCtxSynchronize"
	};
	unsigned long long address = 0;
	void *context, *module, *function, *params[1], *lib;
	fn f[10];
	int device, e;

	if (argc != 2)
		return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	page = mmap(NULL, NVPROBE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[1]), 0);
	if (page == MAP_FAILED)
		return 1;
	lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(page->error, sizeof(page->error), "no libcuda.so.1");
		return 1;
	}
	for (int i = 0; i < 10; i++) {
		*(void **)&f[i] = dlsym(lib, names[i]);
		if (!f[i])
			return fail(names[i], -1);
	}
	if ((e = f[0](0)) || (e = f[1](&device, 0)) || (e = f[2](&context, device)) ||
	    (e = f[3](context)))
		return fail("no context", e);
	if ((e = f[4]((void *)page, (size_t)NVPROBE_SIZE, 2u)) ||
	    (e = f[5](&address, (void *)page, 0u)))
		return fail("cannot register memory", e);
	if ((e = f[6](&module, ptx)) || (e = f[7](&function, module, "count")))
		return fail("cannot load the kernel", e);
	params[0] = &address;
	if ((e = f[8](function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, (void *)NULL, params, (void *)NULL)))
		return fail("cannot launch", e);
	while (!__atomic_load_n(&page->count, __ATOMIC_ACQUIRE) &&
	       !__atomic_load_n(&page->stop, __ATOMIC_ACQUIRE))
		usleep(1000);
	__atomic_store_n(&page->ready, 1, __ATOMIC_RELEASE);
	/* Launches behind the running one: they end as soon as they may begin. */
	while (!__atomic_load_n(&page->stop, __ATOMIC_ACQUIRE)) {
		if (page->kicked < __atomic_load_n(&page->wanted, __ATOMIC_ACQUIRE) &&
		    !f[8](function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, (void *)NULL, params, (void *)NULL))
			__atomic_store_n(&page->kicked, page->kicked + 1, __ATOMIC_RELEASE);
		usleep(1000);
	}
	f[9]();
	return 0;
}
