// SPDX-License-Identifier: MIT
/*
 * load.cu - the GPU loads of the benchmarks, as plain CUDA programs that know nothing of rtxg.
 *
 * load calibrate US
 *     prints the loop turns for a kernel of US microseconds, alone on the GPU
 * load hog TURNS SECONDS OUT [FORKS]
 *     kernels of TURNS turns over the whole GPU back to back. Every 5 ms one line "CLOCK_MONOTONIC
 *     ns, progress" goes to OUT. Progress counts chunks of the kernel's work (20 us each at full
 *     speed), so a kernel cut into pieces is counted piece by piece
 * load rt TURNS PERIOD_US JITTER_US JOBS OUT
 *     a kernel of TURNS turns released every PERIOD_US (and a random 0 to JITTER_US later). The
 *     latency runs from release to the moment the host sees its completion. One line a job:
 *     "release ns, latency ns, ns from the kernel's first to its last moment on the GPU".
 *     LOAD_WARM_US=T LOAD_WARM_KIND=kernel|write|event|memset: the program itself does something
 *     small T us before each release
 * load contexts-made SECONDS OUT
 *     one process after the other that makes a context and ends: "begin ns, end ns" of each
 * load both TURNS SECONDS OUT
 *     as hog, one process on every GPU at once: OUT.0, OUT.1, ...
 * load contexts N TURNS SECONDS OUT
 *     as hog, one process with N contexts that all have work: OUT counts the work of all of them
 * load jobs TURNS JOBS MIB vanilla|mutex LOCK|rtx [wait|fence|notify]
 *     for each two lines on stdin: makes ready after the first, and says so; after the second does
 *     so many jobs: copy MIB in, a kernel, copy it out, each waited for; prints the seconds of all.
 *     mutex: each job holds the lock of that file. rtx: librtxg ($LOAD_LIBRTXG) brackets each of
 *     the three, by a handle that is opened for these jobs alone. Waits by CUDA, or by a word that
 *     the GPU writes (fence), or by an interrupt (notify). The tasks of figure 9 of Linux-RTXG
 * load copy in|out|device MIB SECONDS OUT
 *     copies of that size back to back: every 5 ms a line as of hog, in units of 1 MiB
 *
 * LOAD_STEPS=yes: a hog writes to stderr when it has come how far: "load: began NS" and so on.
 * LOAD_DEVICE=N chooses the GPU (CUDA's number). LOAD_BEGIN_NS=T: a hog makes its context and then
 * waits until CLOCK_MONOTONIC says T ns. LOAD_DEPTH=N: at most so many kernels of a hog are in its
 * queue (4); with 1 it waits for each. LOAD_PAUSE_US=N: a hog waits for each kernel, and its CPU
 * computes for N us before the next; its progress is in kernels. Work is a fixed number of turns,
 * never a fixed time: in time that the GPU gave to other programs no work is done.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <pthread.h>
#include <unistd.h>
#include <cuda_runtime.h>
#include "../../include/rtxg.h"
#include "../../include/rtxg_nvrm.h"

#define CHUNK_TURNS 4096
#define check(x)                                                                       \
	do {                                                                           \
		cudaError_t e_ = (x);                                                  \
		if (e_ != cudaSuccess) {                                               \
			fprintf(stderr, "load: %s: %s\n", #x, cudaGetErrorString(e_)); \
			exit(1);                                                       \
		}                                                                      \
	} while (0)

static unsigned long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

__device__ unsigned int finished_blocks;
__device__ unsigned long long chunks; /* done by all blocks of all kernels */

__device__ unsigned long long gpu_time(void)
{
	unsigned long long t;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
	return t;
}

__global__ void work(long turns, volatile unsigned long long *progress,
		     volatile unsigned long long *done, unsigned long long job, float *sink,
		     volatile unsigned long long *stamp)
{
	float a = threadIdx.x, b = 1.000001f;
	int first = blockIdx.x == 0 && threadIdx.x == 0;

	if (first && stamp)
		stamp[0] = gpu_time();
	for (long t = 0; t < turns; t++) {
		a = a * b + 0.5f;
		if (progress && threadIdx.x == 0 && (t % CHUNK_TURNS) == CHUNK_TURNS - 1) {
			/*
			 * All blocks count: one of them alone may run ahead of the others on its
			 * multiprocessor.
			 */
			unsigned long long n = atomicAdd(&chunks, 1ull) + 1;

			if (n % gridDim.x == 0)
				*progress = n / gridDim.x;
		}
	}
	if (a == 12345.678f)
		*sink = a;
	__syncthreads();
	if (done && threadIdx.x == 0 && atomicAdd(&finished_blocks, 1) == gridDim.x - 1) {
		/* the last block says so */
		finished_blocks = 0;
		if (stamp)
			stamp[1] = gpu_time();
		__threadfence_system();
		*done = job;
	}
}

static int blocks(void)
{
	cudaDeviceProp p;
	int device;

	check(cudaGetDevice(&device));
	check(cudaGetDeviceProperties(&p, device));
	/* every thread slot of the GPU */
	return p.multiProcessorCount * (p.maxThreadsPerMultiProcessor / 1024);
}

static long calibrate(double us)
{
	int n = blocks();
	float *sink, ms;
	cudaEvent_t a, b;
	long turns = 1 << 20;

	check(cudaMalloc(&sink, 4));
	check(cudaEventCreate(&a));
	check(cudaEventCreate(&b));
	for (int i = 0; i < 30; i++) /* clocks up */
		work<<<n, 1024>>>(turns, NULL, NULL, 0, sink, NULL);
	check(cudaDeviceSynchronize());
	check(cudaEventRecord(a));
	for (int i = 0; i < 20; i++)
		work<<<n, 1024>>>(turns, NULL, NULL, 0, sink, NULL);
	check(cudaEventRecord(b));
	check(cudaEventSynchronize(b));
	check(cudaEventElapsedTime(&ms, a, b));
	return (long)(us * turns / (ms * 1000.0 / 20));
}

/*
 * One stream of kernels of a hog: the queue is kept short, so that it never runs dry and ends soon.
 */
struct feed {
	unsigned long long *progress, *done, launched;
	float *sink;
};

static void feed_open(struct feed *f)
{
	unsigned long long *shared;

	check(cudaHostAlloc(&shared, 4096, cudaHostAllocMapped));
	memset(shared, 0, 4096);
	f->progress = shared;
	f->done = shared + 64;
	f->launched = 0;
	check(cudaMalloc(&f->sink, 4));
}

static void feed_fill(struct feed *f, long turns, int n, unsigned long long depth)
{
	unsigned long long finished = *(volatile unsigned long long *)f->done;

	while (f->launched < finished + depth) {
		work<<<n, 1024>>>(turns, f->progress, f->done, ++f->launched, f->sink, NULL);
		check(cudaGetLastError());
	}
}

/* Until all is done, and the CPU has computed for so long since. */
static void feed_wait(struct feed *f, unsigned long long pause_ns)
{
	unsigned long long end;

	while (*(volatile unsigned long long *)f->done < f->launched)
		;
	end = now_ns() + pause_ns;
	while (now_ns() < end)
		;
}

static FILE *lines_to(const char *path)
{
	FILE *out = fopen(path, "w");

	if (!out) {
		fprintf(stderr, "load: cannot write %s: %s\n", path, strerror(errno));
		exit(1);
	}
	setvbuf(out, NULL, _IOLBF, 0); /* a program that reads along wants whole lines, soon */
	return out;
}

static void wait_for_begin(void)
{
	const char *begin = getenv("LOAD_BEGIN_NS");
	unsigned long long at = begin ? strtoull(begin, NULL, 0) : 0;

	while (now_ns() < at)
		usleep(100);
}

static void step(const char *what)
{
	if (getenv("LOAD_STEPS"))
		fprintf(stderr, "load: %s %llu\n", what, now_ns());
}

static int hog(long turns, double seconds, const char *path)
{
	unsigned long long end, next;
	FILE *out = lines_to(path);
	struct feed f;
	int n;
	bool worked = false;
	const char *most = getenv("LOAD_DEPTH");
	unsigned long long depth = most ? strtoull(most, NULL, 0) : 4;
	const char *pause_us = getenv("LOAD_PAUSE_US");
	unsigned long long pause_ns = pause_us ? strtoull(pause_us, NULL, 0) * 1000 : 0;

	if (pause_ns)
		depth = 1;
	if (!depth) {
		fprintf(stderr, "load: LOAD_DEPTH=%s: a number of kernels, 1 at least\n", most);
		exit(1);
	}
	step("began");
	n = blocks();
	check(cudaFree(NULL));
	step("context");
	feed_open(&f);
	step("memory");
	wait_for_begin();
	end = now_ns() + (unsigned long long)(seconds * 1e9);
	next = now_ns();
	while (now_ns() < end) {
		unsigned long long t;

		feed_fill(&f, turns, n, depth);
		if (pause_ns)
			feed_wait(&f, pause_ns);
		t = now_ns();
		if (t >= next) {
			fprintf(out, "%llu %llu\n", t,
				*(volatile unsigned long long *)(pause_ns ? f.done : f.progress));
			next = t + 5000000;
		}
		if (!worked && *(volatile unsigned long long *)f.done) {
			worked = true;
			step("worked");
		}
		if (!pause_ns)
			usleep(200);
	}
	fclose(out);
	step("ends");
	check(cudaDeviceSynchronize());
	if (getenv("LOAD_STEPS"))
		check(cudaDeviceReset());
	step("ended");
	return 0;
}

struct on_device {
	int device;
	long turns;
	double seconds;
	char path[4096];
};

static void *hog_on(void *arg)
{
	struct on_device *o = (struct on_device *)arg;

	check(cudaSetDevice(o->device));
	hog(o->turns, o->seconds, o->path);
	return NULL;
}

static int both(long turns, double seconds, const char *path)
{
	pthread_t thread[16];
	struct on_device on[16];
	int devices = 0;

	check(cudaGetDeviceCount(&devices));
	devices = devices > 16 ? 16 : devices;
	for (int i = 0; i < devices; i++) {
		on[i].device = i;
		on[i].turns = turns;
		on[i].seconds = seconds;
		snprintf(on[i].path, sizeof(on[i].path), "%s.%d", path, i);
		pthread_create(&thread[i], NULL, hog_on, &on[i]);
	}
	for (int i = 0; i < devices; i++)
		pthread_join(thread[i], NULL);
	return 0;
}

/* The driver's own functions, looked up so that nothing need be linked. */
typedef int (*driver_fn)(...);

static driver_fn driver(const char *name)
{
	static void *lib;
	void *fn;

	if (!lib)
		lib = dlopen("libcuda.so.1", RTLD_NOW);
	fn = lib ? dlsym(lib, name) : NULL;
	if (!fn) {
		fprintf(stderr, "load: libcuda.so.1 has no %s\n", name);
		exit(1);
	}
	return (driver_fn)fn;
}

static int contexts(int count, long turns, double seconds, const char *path)
{
	driver_fn create = driver("cuCtxCreate_v2"), current = driver("cuCtxSetCurrent");
	void **context = (void **)calloc(count, sizeof(*context));
	struct feed *f = (struct feed *)calloc(count, sizeof(*f));
	unsigned long long end, next;
	FILE *out = lines_to(path);
	int n = blocks();

	check(cudaFree(0));
	for (int i = 0; i < count; i++) {
		int e = create(&context[i], 0u, 0);

		if (e) {
			fprintf(stderr, "load: context %d of %d: CUDA error %d\n", i + 1, count, e);
			return 1;
		}
		feed_open(&f[i]);
	}
	end = now_ns() + (unsigned long long)(seconds * 1e9);
	next = now_ns();
	while (now_ns() < end) {
		unsigned long long t, sum = 0;

		for (int i = 0; i < count; i++) {
			current(context[i]);
			feed_fill(&f[i], turns, n, 2);
			sum += *(volatile unsigned long long *)f[i].progress;
		}
		t = now_ns();
		if (t >= next) {
			fprintf(out, "%llu %llu\n", t, sum);
			next = t + 5000000;
		}
		usleep(200);
	}
	fclose(out);
	return 0; /* the process ends, and its contexts with it */
}

/* This process makes no context of its own, so that it may fork. */
static int contexts_made(double seconds, const char *path)
{
	unsigned long long end = now_ns() + (unsigned long long)(seconds * 1e9);
	FILE *out = lines_to(path);

	while (now_ns() < end) {
		unsigned long long begin = now_ns();
		int status = 0;
		pid_t child = fork();

		if (!child) {
			check(cudaFree(0));
			_exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) < 0 || status) {
			fprintf(stderr, "load: a process that makes a context failed (%d)\n",
				status);
			return 1;
		}
		fprintf(out, "%llu %llu\n", begin, now_ns());
	}
	fclose(out);
	return 0;
}

static int copy(const char *kind, double mib, double seconds, const char *path)
{
	size_t size = (size_t)(mib * 1048576);
	unsigned long long end, next, started = 0, finished = 0;
	FILE *out = lines_to(path);
	void *host, *a, *b;
	cudaEvent_t done[4];
	cudaStream_t stream;

	check(cudaHostAlloc(&host, size, cudaHostAllocDefault));
	check(cudaMalloc(&a, size));
	check(cudaMalloc(&b, size));
	check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int i = 0; i < 4; i++)
		check(cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming));
	end = now_ns() + (unsigned long long)(seconds * 1e9);
	next = now_ns();
	while (now_ns() < end) {
		unsigned long long t;

		while (started < finished + 4) {
			if (kind[0] == 'i')
				check(cudaMemcpyAsync(a, host, size, cudaMemcpyHostToDevice,
						      stream));
			else if (kind[0] == 'o')
				check(cudaMemcpyAsync(host, a, size, cudaMemcpyDeviceToHost,
						      stream));
			else
				check(cudaMemcpyAsync(a, b, size, cudaMemcpyDeviceToDevice,
						      stream));
			check(cudaEventRecord(done[started++ % 4], stream));
		}
		while (finished < started && cudaEventQuery(done[finished % 4]) == cudaSuccess)
			finished++;
		t = now_ns();
		if (t >= next) {
			fprintf(out, "%llu %.0f\n", t, finished * mib);
			next = t + 5000000;
		}
		usleep(50);
	}
	fclose(out);
	check(cudaDeviceSynchronize());
	return 0;
}

/* librtxg's functions, looked up so that nothing need be linked. */
struct rtx {
	decltype(&rtx_gpu_open) open;
	decltype(&rtx_gpu_launch) launch;
	decltype(&rtx_gpu_notify) notify;
	decltype(&rtx_gpu_sync) sync;
	decltype(&rtx_nvrm_init) nvrm_init;
	decltype(&rtx_nvrm_timeline) nvrm_timeline;
	decltype(&rtx_timeline_signal) signal;
	decltype(&rtx_gpu_close) close;
	decltype(&rtx_nvrm_close) nvrm_close;
	decltype(&rtx_timeline_close) timeline_close;
	rtx_nvrm_t nvrm;
	rtx_gpu_t task;		   /* NULL: unmanaged */
	struct rtx_gpu_notify how; /* of each wait */
};

static int stream_done(void *)
{
	return cudaStreamSynchronize(0) == cudaSuccess ? 0 : -EIO;
}

static void rtx_check(int err, const char *what)
{
	if (err) {
		fprintf(stderr, "load: %s: %s\n", what, strerror(-err));
		exit(1);
	}
}

static void rtx_load(struct rtx *rtx)
{
	const char *path = getenv("LOAD_LIBRTXG");
	void *lib = dlopen(path ? path : "librtxg.so.0", RTLD_NOW);

	if (!lib) {
		fprintf(stderr, "load: %s\n", dlerror());
		exit(1);
	}
	rtx->open = (decltype(rtx->open))dlsym(lib, "rtx_gpu_open");
	rtx->launch = (decltype(rtx->launch))dlsym(lib, "rtx_gpu_launch");
	rtx->notify = (decltype(rtx->notify))dlsym(lib, "rtx_gpu_notify");
	rtx->sync = (decltype(rtx->sync))dlsym(lib, "rtx_gpu_sync");
	rtx->close = (decltype(rtx->close))dlsym(lib, "rtx_gpu_close");
	rtx->nvrm_init = (decltype(rtx->nvrm_init))dlsym(lib, "rtx_nvrm_init");
	rtx->nvrm_close = (decltype(rtx->nvrm_close))dlsym(lib, "rtx_nvrm_close");
	rtx->nvrm_timeline = (decltype(rtx->nvrm_timeline))dlsym(lib, "rtx_nvrm_timeline");
	rtx->signal = (decltype(rtx->signal))dlsym(lib, "rtx_timeline_signal");
	rtx->timeline_close = (decltype(rtx->timeline_close))dlsym(lib, "rtx_timeline_close");
}

static void rtx_begin(struct rtx *rtx, const char *wait)
{
	struct rtx_gpu_options options;

	memset(&options, 0, sizeof(options));
	options.size = sizeof(options);
	rtx_check(rtx->open(&rtx->task, &options), "rtx_gpu_open");
	rtx->how.size = sizeof(rtx->how);
	rtx->how.how = RTX_SYNC_WAIT;
	rtx->how.wait = stream_done;
	rtx->how.fd = -1;
	if (wait && strcmp(wait, "wait")) {
		rtx->how.how = !strcmp(wait, "fence") ? RTX_SYNC_FENCE : RTX_SYNC_NOTIFY;
		rtx_check(rtx->nvrm_init(&rtx->nvrm, NULL), "rtx_nvrm_init");
		rtx_check(rtx->nvrm_timeline(rtx->nvrm, NULL, &rtx->how.timeline),
			  "rtx_nvrm_timeline");
	}
}

static void rtx_end(struct rtx *rtx)
{
	rtx_check(rtx->close(rtx->task), "rtx_gpu_close");
	if (rtx->how.timeline)
		rtx_check(rtx->timeline_close(rtx->how.timeline), "rtx_timeline_close");
	if (rtx->nvrm)
		rtx_check(rtx->nvrm_close(rtx->nvrm), "rtx_nvrm_close");
	rtx->nvrm = NULL;
	rtx->task = NULL;
	memset(&rtx->how, 0, sizeof(rtx->how));
}

/* Before a piece of work on an engine, and after it was enqueued: until it is done. */
static void engine_begin(struct rtx *rtx, enum rtx_engine engine)
{
	if (rtx->task)
		rtx_check(rtx->launch(rtx->task, engine), "rtx_gpu_launch");
}

static void engine_end(struct rtx *rtx, enum rtx_engine engine)
{
	if (!rtx->task) {
		check(cudaStreamSynchronize(0));
		return;
	}
	if (rtx->how.timeline)
		rtx_check(rtx->signal(rtx->how.timeline, NULL, &rtx->how.value),
			  "rtx_timeline_signal");
	rtx_check(rtx->notify(rtx->task, engine, &rtx->how), "rtx_gpu_notify");
	rtx_check(rtx->sync(rtx->task, engine), "rtx_gpu_sync");
}

/* What all jobs of a program have. */
struct piece {
	long turns;
	int blocks, lock;
	size_t size;
	void *host, *device;
	float *sink;
};

static void one_job(struct rtx *rtx, const struct piece *p)
{
	if (p->lock >= 0)
		flock(p->lock, LOCK_EX);
	engine_begin(rtx, RTX_COPY_IN);
	check(cudaMemcpyAsync(p->device, p->host, p->size, cudaMemcpyHostToDevice, 0));
	engine_end(rtx, RTX_COPY_IN);
	engine_begin(rtx, RTX_COMPUTE);
	work<<<p->blocks, 1024>>>(p->turns, NULL, NULL, 0, p->sink, NULL);
	check(cudaGetLastError());
	engine_end(rtx, RTX_COMPUTE);
	engine_begin(rtx, RTX_COPY_OUT);
	check(cudaMemcpyAsync(p->host, p->device, p->size, cudaMemcpyDeviceToHost, 0));
	engine_end(rtx, RTX_COPY_OUT);
	if (p->lock >= 0)
		flock(p->lock, LOCK_UN);
}

static int jobs(long turns, int count, double mib, const char *kind, const char *how)
{
	bool gated = !strcmp(kind, "rtx");
	struct piece piece = {};
	struct rtx rtx = {};
	char line[16];

	piece.turns = turns;
	piece.blocks = blocks();
	piece.lock = -1;
	piece.size = (size_t)(mib * 1048576);
	if (gated)
		rtx_load(&rtx);
	if (!strcmp(kind, "mutex")) {
		piece.lock = open(how, O_RDWR | O_CREAT, 0600);
		if (piece.lock < 0) {
			fprintf(stderr, "load: %s: %s\n", how, strerror(errno));
			return 1;
		}
	}
	check(cudaHostAlloc(&piece.host, piece.size, cudaHostAllocDefault));
	check(cudaMalloc(&piece.device, piece.size));
	check(cudaMalloc(&piece.sink, 4));
	while (fgets(line, sizeof(line), stdin)) {
		unsigned long long begin;

		if (gated)
			rtx_begin(&rtx, how);
		for (int i = 0; i < 3; i++) /* the code is loaded, clocks are up */
			work<<<piece.blocks, 1024>>>(turns, NULL, NULL, 0, piece.sink, NULL);
		check(cudaDeviceSynchronize());
		puts("ready");
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			return 1;
		begin = now_ns();
		for (int j = 0; j < count; j++)
			one_job(&rtx, &piece);
		printf("%.6f\n", (now_ns() - begin) / 1e9);
		fflush(stdout);
		if (gated)
			rtx_end(&rtx);
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	unsigned long long x = *(const unsigned long long *)a, y = *(const unsigned long long *)b;

	return x < y ? -1 : x > y;
}

__global__ void nothing(void)
{
}

/* Something small in the program's own context, ahead of its real work. */
static void warm_up(const char *kind, unsigned int *word, cudaEvent_t event)
{
	if (!strcmp(kind, "kernel"))
		nothing<<<1, 1>>>();
	else if (!strcmp(kind, "write"))
		driver("cuStreamWriteValue32_v2")((void *)0, (unsigned long long)word, 1u, 0u);
	else if (!strcmp(kind, "event"))
		check(cudaEventRecord(event));
	else
		check(cudaMemsetAsync(word, 0, 4));
}

static int rt(long turns, double period_us, double jitter_us, int jobs, const char *path)
{
	const char *warm_us = getenv("LOAD_WARM_US"), *kind = getenv("LOAD_WARM_KIND");
	unsigned long long warm = warm_us ? strtoull(warm_us, NULL, 0) * 1000 : 0;
	cudaEvent_t event;
	unsigned int *word;
	int n = blocks(), i;
	unsigned long long *shared, release, *done, *latency;
	float *sink;
	FILE *out = fopen(path, "w");
	unsigned int seed = 12345;

	if (!out) {
		fprintf(stderr, "load: cannot write %s: %s\n", path, strerror(errno));
		return 1;
	}
	latency = (unsigned long long *)calloc(jobs, sizeof(*latency));
	check(cudaHostAlloc(&shared, 4096, cudaHostAllocMapped));
	memset(shared, 0, 4096);
	done = shared;
	check(cudaMalloc(&sink, 4));
	for (i = 0; i < 20; i++)
		work<<<n, 1024>>>(turns, NULL, NULL, 0, sink, NULL);
	check(cudaDeviceSynchronize());
	check(cudaMalloc(&word, 4));
	check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	if (warm) /* the first time loads code */
		warm_up(kind ? kind : "kernel", word, event);
	check(cudaDeviceSynchronize());
	release = now_ns() + 10000000;
	for (i = 0; i < jobs; i++) {
		unsigned long long end;

		if (warm) {
			while (now_ns() + warm < release)
				;
			warm_up(kind ? kind : "kernel", word, event);
		}

		/* awake all the time: the GPU's latency is measured, not the CPU's wake-up */
		while (now_ns() < release)
			;
		work<<<n, 1024>>>(turns, NULL, done, i + 1, sink, shared + 64);
		while (*(volatile unsigned long long *)done != (unsigned long long)(i + 1))
			;
		end = now_ns();
		latency[i] = end - release;
		fprintf(out, "%llu %llu %llu\n", release, latency[i], shared[65] - shared[64]);
		release += (unsigned long long)(period_us * 1000);
		if (jitter_us > 0)
			release += (unsigned long long)(jitter_us * 1000.0 *
							(rand_r(&seed) / (RAND_MAX + 1.0)));
		if (now_ns() > release) {
			/* a late job does not make the next one late: releases go on from here */
			unsigned long long behind = now_ns() - release,
					   period = (unsigned long long)(period_us * 1000);

			release += (behind / period + 1) * period;
		}
	}
	fclose(out);
	qsort(latency, jobs, sizeof(*latency), by_value);
	printf("{\"jobs\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n", jobs,
	       latency[jobs / 2] / 1e3, latency[(int)(jobs * 0.99)] / 1e3, latency[jobs - 1] / 1e3);
	return 0;
}

int main(int argc, char **argv)
{
	const char *device = getenv("LOAD_DEVICE");

	if (argc == 4 && !strcmp(argv[1], "contexts-made"))
		return contexts_made(atof(argv[2]), argv[3]);
	if (device && (argc < 2 || strcmp(argv[1], "both")))
		check(cudaSetDevice(atoi(device)));
	if (argc == 5 && !strcmp(argv[1], "both"))
		return both(atol(argv[2]), atof(argv[3]), argv[4]);
	if (argc == 6 && !strcmp(argv[1], "contexts"))
		return contexts(atoi(argv[2]), atol(argv[3]), atof(argv[4]), argv[5]);
	if (argc == 6 && !strcmp(argv[1], "copy"))
		return copy(argv[2], atof(argv[3]), atof(argv[4]), argv[5]);
	if ((argc == 6 || argc == 7) && !strcmp(argv[1], "jobs"))
		return jobs(atol(argv[2]), atoi(argv[3]), atof(argv[4]), argv[5],
			    argc == 7 ? argv[6] : NULL);
	if (argc == 3 && !strcmp(argv[1], "calibrate")) {
		printf("%ld\n", calibrate(atof(argv[2])));
		return 0;
	}
	if ((argc == 5 || argc == 6) && !strcmp(argv[1], "hog")) {
		int forks = argc == 6 ? atoi(argv[5]) : 1, status, failed = 0;

		if (forks <= 1)
			return hog(atol(argv[2]), atof(argv[3]), argv[4]);
		for (int i = 0; i < forks; i++)
			if (fork() == 0) {
				char path[4096];

				snprintf(path, sizeof(path), "%s.%d", argv[4], i);
				exit(hog(atol(argv[2]), atof(argv[3]), path));
			}
		while (wait(&status) > 0)
			failed |= status;
		return failed != 0;
	}
	if (argc == 7 && !strcmp(argv[1], "rt"))
		return rt(atol(argv[2]), atof(argv[3]), atof(argv[4]), atoi(argv[5]), argv[6]);
	fprintf(stderr, "usage: load calibrate US | load hog TURNS SECONDS OUT [FORKS] | "
			"load rt TURNS PERIOD_US JITTER_US JOBS OUT |\n"
			"       load both TURNS SECONDS OUT | load contexts N TURNS SECONDS OUT | "
			"load contexts-made SECONDS OUT |\n"
			"       load jobs TURNS JOBS MIB vanilla|mutex LOCK|rtx "
			"[wait|fence|notify] |\n"
			"       load copy in|out|device MIB SECONDS OUT\n");
	return 2;
}
