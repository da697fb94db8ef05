// SPDX-License-Identifier: MIT
/*
 * opencl_task.c - the GPU task of the benchmarks opencl_overhead and fig9: an ordinary OpenCL
 * program that says how long its jobs took. It knows nothing of rtxg.
 *
 * opencl_task small ITERATIONS BATCH CHUNKS
 *     launches kernels of so many iterations, BATCH at a time, then clFinish; prints for each chunk
 *     of 512 launches the microseconds a launch took
 * opencl_task turns ITERATIONS BATCH LAUNCHES
 *     says "ready" and on which platform and device; for each line on stdin it launches an eighth
 *     of LAUNCHES to warm up, then LAUNCHES as above, and prints how long a launch of these took:
 *     microseconds, and microseconds of CPU time of all its threads. Ends with stdin. What it holds
 *     in memory begins at an address drawn by lot, because the time of a launch depends on where
 *     things lie by as much as 2 %
 * opencl_task jobs ITERATIONS JOBS BYTES [LOCK]
 *     waits for a line on stdin, then runs JOBS jobs: copy BYTES in, kernel, copy BYTES out, one
 *     after the other; prints the seconds of all. With LOCK, each job holds that file's lock
 *     (flock): the "mutex" task of figure 9 of the Linux-RTXG paper
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>

#define CHUNK 512

static void check(cl_int err, const char *what)
{
	if (err) {
		fprintf(stderr, "opencl_task: %s: OpenCL error %d\n", what, err);
		exit(1);
	}
}

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double now(void)
{
	return seconds(CLOCK_MONOTONIC);
}

/* Never freed: what is allocated from here on lies somewhere else in each process. */
static void scatter(void)
{
	static void *kept[8];
	unsigned int draw;

	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
		if (getrandom(&draw, sizeof(draw), 0) != sizeof(draw))
			continue;
		kept[i] = malloc(16 + draw % 1024);
	}
}

static void launch(cl_command_queue queue, cl_kernel kernel, int launches, int batch)
{
	size_t global = 64, local = 64;

	for (int i = 0; i < launches; i++) {
		check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL,
					     NULL),
		      "clEnqueueNDRangeKernel");
		if (i % batch == batch - 1)
			check(clFinish(queue), "clFinish");
	}
	check(clFinish(queue), "clFinish");
}

static const char source[] =
	"__kernel void loop(__global uint *a, uint n) { size_t i = get_global_id(0); uint x = "
	"a[i];\n"
	"  for (uint j = 0; j < n; j++) x = x * 1664525u + 1013904223u; a[i] = x; }\n";

int main(int argc, char **argv)
{
	const char *text = source;
	char on[2][128] = { "", "" };
	size_t global = 64, local = 64, bytes = 4096;
	cl_platform_id platform;
	cl_device_id device;
	cl_context context;
	cl_command_queue queue;
	cl_program program;
	cl_kernel kernel;
	cl_mem memory;
	cl_uint iterations;
	cl_int err;
	void *host;

	if (argc < 5 ||
	    (strcmp(argv[1], "small") && strcmp(argv[1], "turns") && strcmp(argv[1], "jobs"))) {
		fprintf(stderr, "Usage: opencl_task small ITERATIONS BATCH CHUNKS | turns "
				"ITERATIONS BATCH LAUNCHES | jobs ITERATIONS JOBS BYTES [LOCK]\n");
		return 2;
	}
	iterations = (cl_uint)strtoul(argv[2], NULL, 10);
	if (!strcmp(argv[1], "turns"))
		scatter();
	if (!strcmp(argv[1], "jobs"))
		bytes = strtoul(argv[4], NULL, 10) + 4096;
	check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
	check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
	check(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(on[0]), on[0], NULL),
	      "clGetPlatformInfo");
	check(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof(on[1]), on[1], NULL),
	      "clGetDeviceInfo");
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	check(err, "clCreateContext");
	queue = clCreateCommandQueue(context, device, 0, &err);
	check(err, "clCreateCommandQueue");
	program = clCreateProgramWithSource(context, 1, &text, NULL, &err);
	check(err, "clCreateProgramWithSource");
	check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
	kernel = clCreateKernel(program, "loop", &err);
	check(err, "clCreateKernel");
	host = calloc(1, bytes);
	memory = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &err);
	check(err, "clCreateBuffer");
	check(clSetKernelArg(kernel, 0, sizeof(memory), &memory), "clSetKernelArg");
	check(clSetKernelArg(kernel, 1, sizeof(iterations), &iterations), "clSetKernelArg");
	/* the kernel is compiled, the estimate of its time settles */
	launch(queue, kernel, 20, 20);

	if (!strcmp(argv[1], "small")) {
		int batch = atoi(argv[3]), chunks = atoi(argv[4]);

		for (int c = 0; c < chunks; c++) {
			double begin = now();

			launch(queue, kernel, CHUNK, batch);
			printf("%.4f\n", (now() - begin) / CHUNK * 1e6);
		}
	} else if (!strcmp(argv[1], "turns")) {
		int batch = atoi(argv[3]), launches = atoi(argv[4]);

		printf("ready %s: %s\n", on[0], on[1]);
		fflush(stdout);
		for (int c = getchar(); c != EOF; c = getchar()) {
			double begin, cpu;

			if (c != '\n')
				continue;
			launch(queue, kernel, (launches + 7) / 8, batch);
			begin = now();
			cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
			launch(queue, kernel, launches, batch);
			printf("%.4f %.4f\n", (now() - begin) / launches * 1e6,
			       (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / launches * 1e6);
			fflush(stdout);
		}
	} else {
		int jobs = atoi(argv[3]), lock = -1;
		size_t copied = bytes - 4096;
		double begin;

		if (argc > 5) {
			lock = open(argv[5], O_RDWR | O_CREAT, 0600);
			if (lock < 0) {
				perror(argv[5]);
				return 1;
			}
		}
		puts("ready");
		fflush(stdout);
		if (getchar() == EOF)
			return 1;
		begin = now();
		for (int j = 0; j < jobs; j++) {
			if (lock >= 0)
				flock(lock, LOCK_EX);
			check(clEnqueueWriteBuffer(queue, memory, CL_FALSE, 0, copied, host, 0,
						   NULL, NULL),
			      "clEnqueueWriteBuffer");
			check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0,
						     NULL, NULL),
			      "clEnqueueNDRangeKernel");
			check(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, copied, host, 0, NULL,
						  NULL),
			      "clEnqueueReadBuffer");
			if (lock >= 0)
				flock(lock, LOCK_UN);
		}
		printf("%.6f\n", now() - begin);
	}
	return 0;
}
