// SPDX-License-Identifier: MIT
/*
 * warm.c - brings the context of a latency-critical CUDA program onto the GPU just ahead of each
 * release, by an empty kernel of the program's own. The hardware loads a context (about 85 us on an
 * H200) only when there is work in it, and no other program can put some there.
 *
 * It has one thread, which sleeps until the moment that the lever wrote into its page
 * (rtxg/releases.h). It works on primary contexts, which is what the CUDA runtime uses. Compiling
 * and loading the kernel holds the whole context up for some 60 ms, so that is done as soon as the
 * program has made its context, with a first launch, and not when the jobs have begun. If anything
 * fails it ends its thread and the program goes on without it; it never prints.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "find.h"
#include "rtxg/releases.h"
#include "rtxg_clock.h"
#include "warm.h"

static const char ptx[] = ".version 6.0\n"
			  ".target sm_50\n"
			  ".address_size 64\n"
			  ".visible .entry nothing()\n"
			  "{\n"
			  "  ret;\n"
			  "}\n";

enum {
	COUNT,
	GET,
	GET_BY_BUS,
	STATE,
	RETAIN,
	PUSH,
	POP,
	LOAD,
	FUNCTION,
	STREAM,
	LAUNCH,
	QUERY,
	EXCHANGE_MODE,
	FUNCTIONS
};

static inject_fn call[FUNCTIONS];

/*
 * A program that was given this library for its waits may never have a release to be warm for: its
 * context is not held up before the lever knows of one.
 */
static bool eager;

#define DEVICES	  64
#define NOT_READY 600 /* CUDA_ERROR_NOT_READY */
#define RELAXED	  2   /* CU_STREAM_CAPTURE_MODE_RELAXED */
/* for so long a context that is made is noticed within a millisecond */
#define EAGER_NS 10000000000ull

/* The program's context on a GPU, with our kernel and a stream of ours in it. */
static struct {
	void *context, *function, *stream;
} ready[DEVICES];

static void sleep_until(uint64_t at)
{
	struct timespec ts = { .tv_sec = (time_t)(at / 1000000000u),
			       .tv_nsec = (long)(at % 1000000000u) };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
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
	const char *path = secure_getenv("RTXG_RELEASES");
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

static int launch(int device)
{
	return call[LAUNCH](ready[device].function, 1u, 1u, 1u, 1u, 1u, 1u, 0u,
			    ready[device].stream, NULL, NULL);
}

/*
 * 0: the program has a primary context on that GPU, and all is in it. If it has none we make none.
 */
static int prepare(int device)
{
	void *context, *function, *stream, *module, *popped;
	unsigned int flags;
	int active = 0, mode = RELAXED, err;

	if (device < 0 || device >= DEVICES)
		return -1;
	if (ready[device].context)
		return 0;
	if (call[STATE](device, &flags, &active) || !active)
		return -1;
	/* From now on this thread breaks no graph that the program captures meanwhile. */
	if (call[EXCHANGE_MODE](&mode))
		return -1;
	if (call[RETAIN](&context, device) || call[PUSH](context))
		return -1;
	err = call[LOAD](&module, ptx) || call[FUNCTION](&function, module, "nothing") ||
	      call[STREAM](&stream, 1u /* non-blocking */);
	if (!err) {
		ready[device].context = context;
		ready[device].function = function;
		ready[device].stream = stream;
		launch(device); /* the first one loads code */
	}
	call[POP](&popped);
	return err ? -1 : 0;
}

/* All contexts that there are; how many. */
static int prepare_all(void)
{
	int count = 0, device, found = 0;

	if (call[COUNT](&count))
		return 0;
	for (int i = 0; i < count && i < DEVICES; i++)
		if (!call[GET](&device, i) && !prepare(device))
			found++;
	return found;
}

static void *work(void *arg)
{
	const struct nv_releases *page = NULL;
	uint32_t pid = (uint32_t)getpid();
	uint64_t done = 0, began = rtxg_now_ns();
	void *current = NULL, *popped;
	struct nv_release r;
	char bus[32];
	int device;

	prctl(PR_SET_NAME, "rtxg-warm");
	prctl(PR_SET_TIMERSLACK, 1ul);
	for (;;) {
		uint64_t now = rtxg_now_ns();

		if (!page)
			page = page_open();
		if (!page ||
		    now > __atomic_load_n(&page->heartbeat_ns, __ATOMIC_RELAXED) + 3000000000ull) {
			if (page) { /* a restarted daemon makes a new one */
				munmap((void *)(uintptr_t)page, sizeof(*page));
				page = NULL;
			}
			sleep_until(now + 100000000u);
			continue;
		}
		if (look(page, pid, &r)) {
			int found = eager ? prepare_all() : 0;

			sleep_until(now + (!eager			     ? 100000000u
					   : found || now > began + EAGER_NS ? 10000000u
									     : 1000000u));
			continue;
		}
		snprintf(bus, sizeof(bus), "%04x:%02x:%02x.0", r.pci_domain, r.pci_bus, r.pci_slot);
		if (!current && (call[GET_BY_BUS](&device, bus) || prepare(device) ||
				 call[PUSH](ready[device].context))) {
			sleep_until(now + 10000000u);
			continue;
		}
		current = ready[device].context;
		if (r.warm_ns == UINT64_MAX || r.warm_ns <= done || r.warm_ns + 1000000u < now) {
			/*
			 * not as yet, or this one has been seen to: the next will be written soon
			 */
			sleep_until(now + 1000000u);
			continue;
		}
		if (r.warm_ns > now + 2000000u) { /* it may still be changed */
			sleep_until(r.warm_ns - 1000000u);
			continue;
		}
		sleep_until(r.warm_ns);
		done = r.warm_ns;
		switch (call[QUERY](ready[device].stream)) {
		case 0:
			if (!launch(device))
				continue;
			break; /* the context is gone */
		/* what was launched before should have ended long ago: it is not added to */
		case NOT_READY:
			continue;
		}
		call[POP](&popped);
		return NULL;
	}
}

void inject_warm_begin(void *cuda)
{
	static const char *const names[FUNCTIONS] = { "cuDeviceGetCount",
						      "cuDeviceGet",
						      "cuDeviceGetByPCIBusId",
						      "cuDevicePrimaryCtxGetState",
						      "cuDevicePrimaryCtxRetain",
						      "cuCtxPushCurrent_v2",
						      "cuCtxPopCurrent_v2",
						      "cuModuleLoadData",
						      "cuModuleGetFunction",
						      "cuStreamCreate",
						      "cuLaunchKernel",
						      "cuStreamQuery",
						      "cuThreadExchangeStreamCaptureMode" };
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;

	if (!inject_find(cuda, names, (void **)call, FUNCTIONS))
		return;
	eager = !secure_getenv("RTXG_WAITS") || secure_getenv("RTXG_PERIOD_NS");
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* Signals are the program's, and its handlers run in its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&thread, &attr, work, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
}
