// SPDX-License-Identifier: MIT
/*
 * warm.c - librtxg-warm.so: brings the context of a latency-critical CUDA program onto the GPU just ahead of each release, by an empty kernel of the
 * program's own. The hardware loads a context (about 85 us on an H200) only when there is work in it, and nobody else can put some there.
 *
 *   CUDA_INJECTION64_PATH=.../librtxg-warm.so program     CUDA's driver library loads it when the program starts to use CUDA
 *
 * It has one thread, which sleeps until the moment that the lever wrote into its page (releases.h). It works on primary contexts, which is
 * what the CUDA runtime uses. If anything fails it ends its thread and the program goes on without it; it never prints.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "releases.h"

static const char ptx[] = ".version 6.0\n"
			  ".target sm_50\n"
			  ".address_size 64\n"
			  ".visible .entry nothing()\n"
			  "{\n"
			  "  ret;\n"
			  "}\n";

typedef int (*fn)();

enum { GET_BY_BUS, STATE, RETAIN, PUSH, POP, LOAD, FUNCTION, STREAM, LAUNCH, QUERY, FUNCTIONS };

static fn call[FUNCTIONS];

static void sleep_until(uint64_t at)
{
	struct timespec ts = { .tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u) };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A consistent copy of this process's entry; 0 if it has one. */
static int look(const struct nv_releases *page, uint32_t pid, struct nv_release *copy)
{
	for (uint32_t i = 0; i < NV_RELEASES; i++) {
		const struct nv_release *e = &page->entry[i];
		uint32_t before = __atomic_load_n(&e->sequence, __ATOMIC_ACQUIRE);

		if (__atomic_load_n(&e->pid, __ATOMIC_RELAXED) != pid || before & 1)
			continue;
		*copy = *e;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&e->sequence, __ATOMIC_RELAXED) == before && copy->pid == pid)
			return 0;
	}
	return -1;
}

static const struct nv_releases *page_open(void)
{
	const char *path = getenv("RTXG_RELEASES");
	const struct nv_releases *page;
	int fd = open(path ? path : NV_RELEASES_PATH, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return NULL;
	page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		return NULL;
	if (page->magic != NV_RELEASES_MAGIC || page->size != sizeof(*page)) {
		munmap((void *)(uintptr_t)page, sizeof(*page));
		return NULL;
	}
	return page;
}

/* The program's context on that GPU, with our kernel and a stream of ours in it. */
static int prepare(const struct nv_release *r, void **context, void **function, void **stream)
{
	unsigned int flags;
	int device, active = 0;
	char bus[32];
	void *module;

	snprintf(bus, sizeof(bus), "%04x:%02x:%02x.0", r->pci_domain, r->pci_bus, r->pci_slot);
	if (call[GET_BY_BUS](&device, bus) || call[STATE](device, &flags, &active) || !active)
		return -1; /* the program has no primary context there: we make none */
	if (call[RETAIN](context, device) || call[PUSH](*context))
		return -1;
	if (call[LOAD](&module, ptx) || call[FUNCTION](function, module, "nothing") || call[STREAM](stream, 1u /* non-blocking */)) {
		call[POP](context);
		return -1;
	}
	return 0;
}

static void *work(void *arg)
{
	const struct nv_releases *page = NULL;
	void *context = NULL, *function = NULL, *stream = NULL;
	uint32_t pid = (uint32_t)getpid();
	struct nv_release r;
	uint64_t done = 0;

	prctl(PR_SET_NAME, "rtxg-warm");
	prctl(PR_SET_TIMERSLACK, 1ul);
	for (;;) {
		uint64_t now = now_ns();

		if (!page)
			page = page_open();
		if (!page || now > __atomic_load_n(&page->heartbeat_ns, __ATOMIC_RELAXED) + 3000000000ull || look(page, pid, &r)) {
			if (page && now > page->heartbeat_ns + 3000000000ull) { /* a daemon that starts anew makes a new one */
				munmap((void *)(uintptr_t)page, sizeof(*page));
				page = NULL;
			}
			sleep_until(now + 100000000u);
			continue;
		}
		if (!context && prepare(&r, &context, &function, &stream)) {
			context = NULL;
			sleep_until(now + 100000000u);
			continue;
		}
		if (r.warm_ns == UINT64_MAX || r.warm_ns <= done || r.warm_ns + 1000000u < now) {
			sleep_until(now + 1000000u); /* not as yet, or this one has been seen to: the next will be written soon */
			continue;
		}
		if (r.warm_ns > now + 2000000u) { /* it may still be changed */
			sleep_until(r.warm_ns - 1000000u);
			continue;
		}
		sleep_until(r.warm_ns);
		done = r.warm_ns;
		/* What was launched before has long ended, or something is amiss, and then it is not added to. */
		if (!call[QUERY](stream) && call[LAUNCH](function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, NULL, NULL))
			return NULL; /* the context is gone */
	}
}

/* Called by CUDA's driver library, from within the program's first call of it. */
int InitializeInjection(void);
int InitializeInjection(void)
{
	static const char *const names[FUNCTIONS] = { "cuDeviceGetByPCIBusId", "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain",
						      "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuModuleLoadData",
						      "cuModuleGetFunction", "cuStreamCreate", "cuLaunchKernel", "cuStreamQuery" };
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	pthread_attr_t attr;
	pthread_t thread;

	for (int i = 0; i < FUNCTIONS; i++) {
		*(void **)&call[i] = lib ? dlsym(lib, names[i]) : NULL;
		if (!call[i])
			return 1;
	}
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_create(&thread, &attr, work, NULL);
	pthread_attr_destroy(&attr);
	return 1;
}
