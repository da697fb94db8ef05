// SPDX-License-Identifier: MIT
/*
 * waits.c - lets the blocking waits of a CUDA program that knows nothing of rtxg sleep until an
 * interrupt (RTXG_WAITS=notify), or look at a word of the program's memory (fence): sections III.C
 * and III.D of Linux-RTXG (2015) for unmodified programs. By itself such a wait takes a whole CPU,
 * and under SCHED_DEADLINE the budget too.
 *
 * How: CUPTI tells of each cuStreamSynchronize, cuCtxSynchronize and cuMemcpyDtoH ahead of the
 * call. If the stream has work, it is given one write more, of a timeline's word, and the thread
 * waits for that word by a channel of librtxg's own (rtxg_nvrm.h). Then CUDA's call comes, finds
 * all done, and gives its result. So nothing depends on the wait: if anything is wrong with it,
 * CUDA's own takes its place.
 *
 * Not turned: waits for an event (which stream it stands in is not known), streams of which a graph
 * is captured, of contexts other than the thread's, and streams that do not wait for the legacy
 * stream, in cuCtxSynchronize.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cupti.h"
#include "find.h"
#include "rtxg_clock.h"
#include "rtxg_nvrm.h"
#include "waits.h"

#define DEVICES	      64
#define NOT_READY     600 /* CUDA_ERROR_NOT_READY */
#define LEGACY	      ((void *)1)
#define THREADS_OWN   ((void *)2)
#define FIRST_LOOK_NS 2000000ull
#define LAST_LOOK_NS  100000000ull

#define RELAXED 2 /* CU_STREAM_CAPTURE_MODE_RELAXED */

enum { CTX_DEVICE, BUS_ID, STREAM_CTX, CAPTURING, QUERY, EXCHANGE_MODE, FUNCTIONS };

static inject_fn call[FUNCTIONS];
static enum rtx_sync how;

/* A timeline that no thread uses, or that one does. */
struct line {
	rtx_timeline_t timeline;
	int device;
	struct line *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	rtx_nvrm_t nvrm;
	struct line *idle;
	bool failed, told;
} gpus[DEVICES];

static pthread_key_t own_key; /* a thread's lines */
static __thread struct line *own;
static __thread bool inside;

static void give_back(void *lines)
{
	struct line *line = lines, *next;

	pthread_mutex_lock(&lock);
	for (; line; line = next) {
		next = line->next;
		line->next = gpus[line->device].idle;
		gpus[line->device].idle = line;
	}
	pthread_mutex_unlock(&lock);
}

/* Said once a GPU. */
static void tell(int device, const char *whose, const char *why)
{
	if (!gpus[device].told)
		fprintf(stderr, "rtxg: %s stay CUDA's on its GPU %d: %s\n", whose, device, why);
	gpus[device].told = true;
}

/* Under the lock. */
static struct line *new_line(int device)
{
	struct line *line;
	char bus[32];
	int err;

	if (gpus[device].failed)
		return NULL;
	if (!gpus[device].nvrm) {
		gpus[device].failed = true;
		if (call[BUS_ID](bus, (int)sizeof(bus), device)) {
			tell(device, "waits", "CUDA does not tell its address");
			return NULL;
		}
		if (rtx_nvrm_init(&gpus[device].nvrm, bus)) {
			tell(device, "waits", rtx_strerror());
			return NULL;
		}
		gpus[device].failed = false;
	}
	line = calloc(1, sizeof(*line));
	err = line ? rtx_nvrm_timeline(gpus[device].nvrm, NULL, &line->timeline) : -ENOMEM;
	if (!err) {
		line->device = device;
		return line;
	}
	free(line);
	if (err == -ENOSPC) {
		tell(device, "waits of threads beyond the sixteenth", "each needs a timeline");
	} else {
		gpus[device].failed = true;
		tell(device, "waits", err == -ENOMEM ? strerror(ENOMEM) : rtx_strerror());
	}
	return NULL;
}

/* This thread's timeline on a device. */
static struct line *line_of(int device)
{
	struct line *line;

	for (line = own; line; line = line->next)
		if (line->device == device)
			return line;
	pthread_mutex_lock(&lock);
	line = gpus[device].idle;
	if (line)
		gpus[device].idle = line->next;
	else
		line = new_line(device);
	pthread_mutex_unlock(&lock);
	if (line) {
		line->next = own;
		own = line;
		pthread_setspecific(own_key, own);
	}
	return line;
}

/*
 * Waits until the stream has done what it has been given. A stream that has failed never writes the
 * word: it is asked now and then.
 */
static void wait_for_stream(void *stream, void *context)
{
	uint64_t look_ns = FIRST_LOOK_NS, look_at;
	void *its_context = context;
	int status = 0, device;
	struct line *line;
	uint32_t value;
	int err;

	if (call[CAPTURING](stream, &status) || status ||
	    (stream != LEGACY && stream != THREADS_OWN &&
	     (call[STREAM_CTX](stream, &its_context) || its_context != context)) ||
	    /* the legacy stream waits for others, which its own state does not tell */
	    (stream != LEGACY && call[QUERY](stream) != NOT_READY))
		return;
	if (call[CTX_DEVICE](&device) || device < 0 || device >= DEVICES)
		return;
	line = line_of(device);
	if (!line || rtx_timeline_signal(line->timeline, stream, &value))
		return;
	look_at = rtxg_now_ns() + look_ns;
	do {
		/* A signal does not put the question off: programs have timers. */
		err = rtx_timeline_wait(line->timeline, value, how, look_at);
		if (err != -ETIMEDOUT)
			continue;
		if (call[QUERY](stream) != NOT_READY)
			return;
		look_ns = look_ns < LAST_LOOK_NS ? 2 * look_ns : LAST_LOOK_NS;
		look_at = rtxg_now_ns() + look_ns;
	} while (err == -ETIMEDOUT || err == -EINTR);
}

/*
 * The same, while this thread's calls break no graph that another thread captures: by itself the
 * program asks CUDA for nothing here but to wait.
 */
static void wait_beside_captures(void *stream, void *context)
{
	int mode = RELAXED;

	call[EXCHANGE_MODE](&mode);
	wait_for_stream(stream, context);
	call[EXCHANGE_MODE](&mode);
}

/* CUDA's own wait cancels no thread, and its locks may be held around ours. */
static void on_call(void *user, uint32_t domain, uint32_t number, const struct cupti_call *now)
{
	void *stream = LEGACY;
	int cancelled;

	if (domain != CUPTI_DRIVER_API || now->site != CUPTI_ENTER || !now->context || inside)
		return;
	switch (number) {
	case CUPTI_STREAM_SYNCHRONIZE:
	case CUPTI_STREAM_SYNCHRONIZE_T:
		memcpy(&stream, now->parameters, sizeof(stream));
		if (!stream)
			stream = number == CUPTI_STREAM_SYNCHRONIZE ? LEGACY : THREADS_OWN;
		break;
	case CUPTI_MEMCPY_D_TO_H_T:
		stream = THREADS_OWN;
		break;
	}
	inside = true;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
	wait_beside_captures(stream, now->context);
	pthread_setcancelstate(cancelled, NULL);
	inside = false;
}

/* CUPTI of the program itself, which must be there once only; else the one that is installed. */
static void *find_cupti(void)
{
	static const char *const names[] = { "libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8",
					     "libcupti.so" };
	const char *asked = secure_getenv("RTXG_CUPTI");
	void *library = NULL;

	if (asked && *asked)
		return dlopen(asked, RTLD_NOW);
	for (int flags = RTLD_NOW | RTLD_NOLOAD; !library; flags = RTLD_NOW) {
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !library; i++)
			library = dlopen(names[i], flags);
		if (flags == RTLD_NOW)
			break;
	}
	return library ?: dlopen("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", RTLD_NOW);
}

void inject_waits_begin(void *cuda)
{
	static const char *const names[FUNCTIONS] = {
		"cuCtxGetDevice",      "cuDeviceGetPCIBusId", "cuStreamGetCtx",
		"cuStreamIsCapturing", "cuStreamQuery",	      "cuThreadExchangeStreamCaptureMode"
	};
	static const char *const of_cupti[] = { "cuptiSubscribe", "cuptiEnableCallback" };
	static const uint32_t numbers[] = { CUPTI_STREAM_SYNCHRONIZE, CUPTI_STREAM_SYNCHRONIZE_T,
					    CUPTI_CTX_SYNCHRONIZE, CUPTI_MEMCPY_D_TO_H,
					    CUPTI_MEMCPY_D_TO_H_T };
	const char *asked = secure_getenv("RTXG_WAITS");
	inject_fn cupti[2];
	void *library, *subscriber;
	int err;

	if (!asked || !*asked)
		return;
	if (strcmp(asked, "notify") && strcmp(asked, "fence")) {
		fprintf(stderr, "rtxg: RTXG_WAITS is '%s'; accepted: notify, fence\n", asked);
		return;
	}
	how = *asked == 'n' ? RTX_SYNC_NOTIFY : RTX_SYNC_FENCE;
	if (!inject_find(cuda, names, (void **)call, FUNCTIONS) ||
	    pthread_key_create(&own_key, give_back)) {
		fprintf(stderr,
			"rtxg: waits stay CUDA's: this CUDA lacks a function that they need\n");
		return;
	}
	library = find_cupti();
	if (!inject_find(library, of_cupti, (void **)cupti, 2)) {
		fprintf(stderr, "rtxg: waits stay CUDA's: no CUPTI was found (libcupti.so.13, "
				".12); it is part "
				"of the CUDA toolkit and of the package nvidia-cuda-cupti; "
				"RTXG_CUPTI names a "
				"file\n");
		return;
	}
	err = cupti[0](&subscriber, on_call, NULL);
	for (size_t i = 0; !err && i < sizeof(numbers) / sizeof(numbers[0]); i++)
		err = cupti[1](1u, subscriber, CUPTI_DRIVER_API, numbers[i]);
	if (err)
		fprintf(stderr,
			"rtxg: waits stay CUDA's: CUPTI refuses (error %d); 39 means that a "
			"profiler "
			"has the program\n",
			err);
}
