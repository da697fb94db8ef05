// SPDX-License-Identifier: MIT
/*
 * launches.cu - CUDA programs for the comparison with other products (peers.py); they know nothing
 * of any of them.
 *
 * launches info
 *     prints the number of multiprocessors that this process may use
 * launches one TURNS JOBS
 *     kernels of TURNS turns (0: empty), each waited for; prints the percentiles in ns
 * launches many TURNS JOBS
 *     the same kernels enqueued one after the other, waited for once; prints ns a kernel
 * launches graph TURNS SECONDS OUT
 *     keeps the GPU busy with a CUDA graph of four kernels; every 5 ms one line "CLOCK_MONOTONIC
 *     ns, kernels finished" goes to OUT
 *
 * All of it in a stream of the program's own, never the default one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cuda_runtime.h>

#define check(x)                                                                           \
	do {                                                                               \
		cudaError_t e_ = (x);                                                      \
		if (e_ != cudaSuccess) {                                                   \
			fprintf(stderr, "launches: %s: %s\n", #x, cudaGetErrorString(e_)); \
			exit(1);                                                           \
		}                                                                          \
	} while (0)

static unsigned long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

__global__ void nothing(void)
{
}

__device__ unsigned int finished_blocks;

__global__ void work(long turns, volatile unsigned long long *done, float *sink)
{
	float a = threadIdx.x, b = 1.000001f;

	for (long t = 0; t < turns; t++)
		a = a * b + 0.5f;
	if (a == 12345.678f)
		*sink = a;
	__syncthreads();
	if (done && threadIdx.x == 0 && atomicAdd(&finished_blocks, 1) == gridDim.x - 1) {
		/* the last block counts */
		finished_blocks = 0;
		*done = *done + 1;
		__threadfence_system();
	}
}

static int multiprocessors(cudaDeviceProp *p)
{
	check(cudaGetDeviceProperties(p, 0));
	return p->multiProcessorCount;
}

static int blocks(void)
{
	cudaDeviceProp p;
	int n = multiprocessors(&p);

	return n * (p.maxThreadsPerMultiProcessor / 1024);
}

static int by_value(const void *a, const void *b)
{
	unsigned long long x = *(const unsigned long long *)a, y = *(const unsigned long long *)b;

	return x < y ? -1 : x > y;
}

static void launch(long turns, int n, float *sink, cudaStream_t stream)
{
	if (turns)
		work<<<n, 1024, 0, stream>>>(turns, NULL, sink);
	else
		nothing<<<1, 32, 0, stream>>>();
}

static int alone(const char *how, long turns, int jobs)
{
	unsigned long long *each = (unsigned long long *)calloc(jobs, sizeof(*each)), start;
	int n = blocks(), i;
	cudaStream_t stream;
	float *sink;

	check(cudaStreamCreate(&stream));
	check(cudaMalloc(&sink, 4));
	for (i = 0; i < 200; i++)
		launch(turns, n, sink, stream);
	check(cudaStreamSynchronize(stream));
	if (!strcmp(how, "many")) {
		start = now_ns();
		for (i = 0; i < jobs; i++)
			launch(turns, n, sink, stream);
		check(cudaStreamSynchronize(stream));
		printf("{\"each\": %.1f}\n", (double)(now_ns() - start) / jobs);
		return 0;
	}
	for (i = 0; i < jobs; i++) {
		start = now_ns();
		launch(turns, n, sink, stream);
		check(cudaStreamSynchronize(stream));
		each[i] = now_ns() - start;
	}
	qsort(each, jobs, sizeof(*each), by_value);
	printf("{\"p10\": %llu, \"p50\": %llu, \"p90\": %llu, \"p99\": %llu, \"max\": %llu, "
	       "\"jobs\": %d}\n",
	       each[jobs / 10], each[jobs / 2], each[jobs * 9 / 10], each[(int)(jobs * 0.99)],
	       each[jobs - 1], jobs);
	return 0;
}

static int graph(long turns, double seconds, const char *path)
{
	unsigned long long *done, launched = 0, next, end, t;
	int n = blocks(), i;
	cudaStream_t stream;
	cudaGraph_t captured;
	cudaGraphExec_t program;
	float *sink;
	FILE *out = fopen(path, "w");

	if (!out) {
		fprintf(stderr, "launches: cannot write %s: %s\n", path, strerror(errno));
		return 1;
	}
	setvbuf(out, NULL, _IOLBF, 0);
	check(cudaHostAlloc(&done, 4096, cudaHostAllocMapped));
	memset(done, 0, 4096);
	check(cudaMalloc(&sink, 4));
	check(cudaStreamCreate(&stream));
	check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	for (i = 0; i < 4; i++)
		work<<<n, 1024, 0, stream>>>(turns, done, sink);
	check(cudaStreamEndCapture(stream, &captured));
	check(cudaGraphInstantiate(&program, captured, 0));
	end = now_ns() + (unsigned long long)(seconds * 1e9);
	next = now_ns();
	while ((t = now_ns()) < end) {
		unsigned long long finished = *(volatile unsigned long long *)done;

		while (launched * 4 < finished + 8) { /* two graphs queued: never dry */
			check(cudaGraphLaunch(program, stream));
			launched++;
		}
		if (t >= next) {
			fprintf(out, "%llu %llu\n", t, finished);
			next = t + 5000000;
		}
		usleep(200);
	}
	fclose(out);
	check(cudaStreamSynchronize(stream));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "info")) {
		cudaDeviceProp p;

		printf("%d\n", multiprocessors(&p));
		return 0;
	}
	if (argc == 4 && (!strcmp(argv[1], "one") || !strcmp(argv[1], "many")))
		return alone(argv[1], atol(argv[2]), atoi(argv[3]));
	if (argc == 5 && !strcmp(argv[1], "graph"))
		return graph(atol(argv[2]), atof(argv[3]), argv[4]);
	fprintf(stderr, "usage: launches info | launches one|many TURNS JOBS | launches graph "
			"TURNS SECONDS OUT\n");
	return 2;
}
