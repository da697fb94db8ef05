// SPDX-License-Identifier: MIT
/*
 * load.cu - the GPU loads of the benchmarks, as plain CUDA programs that know nothing of rtxg.
 *
 *   load calibrate US            loop turns for a kernel of US microseconds, alone on the GPU; prints one number
 *   load hog TURNS SECONDS OUT [FORKS]   kernels of TURNS turns over the whole GPU back to back; every 5 ms one line
 *                                "CLOCK_MONOTONIC ns, progress" goes to OUT. Progress counts chunks of the kernel's own
 *                                work (20 us each at full speed), so a kernel cut into pieces is counted piece by piece.
 *   load rt TURNS PERIOD_US JITTER_US JOBS OUT   a kernel of TURNS turns released every PERIOD_US (+ a random 0..JITTER_US),
 *                                latency from release to the moment the host sees its completion, one line per job:
 *                                "release ns, latency ns, ns from the kernel's first to its last moment on the GPU"
 *
 * Work is a fixed number of turns, never a fixed time: time during which the GPU was somebody else's does no work.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cuda_runtime.h>

#define CHUNK_TURNS 4096
#define check(x)                                                                                                   \
	do {                                                                                                       \
		cudaError_t e_ = (x);                                                                              \
		if (e_ != cudaSuccess) {                                                                           \
			fprintf(stderr, "load: %s: %s\n", #x, cudaGetErrorString(e_));                             \
			exit(1);                                                                                   \
		}                                                                                                  \
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

__global__ void work(long turns, volatile unsigned long long *progress, volatile unsigned long long *done,
		     unsigned long long job, float *sink, volatile unsigned long long *stamp)
{
	float a = threadIdx.x, b = 1.000001f;
	int first = blockIdx.x == 0 && threadIdx.x == 0;

	if (first && stamp)
		stamp[0] = gpu_time();
	for (long t = 0; t < turns; t++) {
		a = a * b + 0.5f;
		if (progress && threadIdx.x == 0 && (t % CHUNK_TURNS) == CHUNK_TURNS - 1) {
			/* All blocks count: one of them alone may run ahead of the others on its multiprocessor. */
			unsigned long long n = atomicAdd(&chunks, 1ull) + 1;

			if (n % gridDim.x == 0)
				*progress = n / gridDim.x;
		}
	}
	if (a == 12345.678f)
		*sink = a;
	__syncthreads();
	if (done && threadIdx.x == 0 && atomicAdd(&finished_blocks, 1) == gridDim.x - 1) { /* the last block says so */
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

	check(cudaGetDeviceProperties(&p, 0));
	return p.multiProcessorCount * (p.maxThreadsPerMultiProcessor / 1024); /* every thread slot of the GPU */
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

static int hog(long turns, double seconds, const char *path)
{
	int n = blocks();
	unsigned long long *shared, end, next, *progress, *done;
	unsigned long long launched = 0;
	float *sink;
	FILE *out = fopen(path, "w");

	if (!out) {
		fprintf(stderr, "load: cannot write %s: %s\n", path, strerror(errno));
		return 1;
	}
	setvbuf(out, NULL, _IOLBF, 0); /* whoever reads along wants whole lines, soon */
	check(cudaHostAlloc(&shared, 4096, cudaHostAllocMapped));
	memset(shared, 0, 4096);
	progress = shared;
	done = shared + 64;
	check(cudaMalloc(&sink, 4));
	end = now_ns() + (unsigned long long)(seconds * 1e9);
	next = now_ns();
	while (now_ns() < end) {
		unsigned long long finished = *(volatile unsigned long long *)done, t;

		/* A short queue, so that it never runs dry and ends soon. */
		while (launched < finished + 4) {
			work<<<n, 1024>>>(turns, progress, done, ++launched, sink, NULL);
			check(cudaGetLastError());
		}
		t = now_ns();
		if (t >= next) {
			fprintf(out, "%llu %llu\n", t, *(volatile unsigned long long *)progress);
			next = t + 5000000;
		}
		usleep(200);
	}
	fflush(out);
	fclose(out);
	check(cudaDeviceSynchronize());
	return 0;
}

static int by_value(const void *a, const void *b)
{
	unsigned long long x = *(const unsigned long long *)a, y = *(const unsigned long long *)b;

	return x < y ? -1 : x > y;
}

static int rt(long turns, double period_us, double jitter_us, int jobs, const char *path)
{
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
	release = now_ns() + 10000000;
	for (i = 0; i < jobs; i++) {
		unsigned long long end;

		while (now_ns() < release) /* awake all the time: the GPU's latency is measured, not the CPU's wake-up */
			;
		work<<<n, 1024>>>(turns, NULL, done, i + 1, sink, shared + 64);
		while (*(volatile unsigned long long *)done != (unsigned long long)(i + 1))
			;
		end = now_ns();
		latency[i] = end - release;
		fprintf(out, "%llu %llu %llu\n", release, latency[i], shared[65] - shared[64]);
		release += (unsigned long long)(period_us * 1000);
		if (jitter_us > 0)
			release += (unsigned long long)(jitter_us * 1000.0 * (rand_r(&seed) / (RAND_MAX + 1.0)));
		if (now_ns() > release) { /* a late job does not make the next one late: releases go on from here */
			unsigned long long behind = now_ns() - release, period = (unsigned long long)(period_us * 1000);

			release += (behind / period + 1) * period;
		}
	}
	fclose(out);
	qsort(latency, jobs, sizeof(*latency), by_value);
	printf("{\"jobs\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n", jobs, latency[jobs / 2] / 1e3,
	       latency[(int)(jobs * 0.99)] / 1e3, latency[jobs - 1] / 1e3);
	return 0;
}

int main(int argc, char **argv)
{
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
			"load rt TURNS PERIOD_US JITTER_US JOBS OUT\n");
	return 2;
}
