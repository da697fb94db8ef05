// SPDX-License-Identifier: MIT
/*
 * api_opencl - a load of the GPU benchmarks that speaks OpenCL and knows nothing of rtxg. The
 * loader is opened at run time, so that no OpenCL is needed to build it but the headers.
 *
 *   api_opencl SECONDS OUT [PLATFORM]
 *
 * Kernels of about 1 ms back to back on the first device of the platform whose name begins with
 * PLATFORM ("NVIDIA"). Every 5 ms one line "CLOCK_MONOTONIC ns, kernels completed" goes to OUT.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AHEAD	 4	/* kernels that are enqueued and not completed */
#define ITEMS	 262144 /* enough for every thread slot of a large GPU */
#define TARGET_S 0.001

static void *lib;

static void *function(const char *name)
{
	void *f = dlsym(lib, name);

	if (!f) {
		fprintf(stderr, "api_opencl: libOpenCL.so.1 has no %s\n", name);
		exit(1);
	}
	return f;
}

/* cl(Name)(arguments): the loader's function of that name */
#define cl(name) ((__typeof__(&cl##name))function("cl" #name))

static void check(cl_int err, const char *what)
{
	if (err) {
		fprintf(stderr, "api_opencl: %s: OpenCL error %d\n", what, err);
		exit(1);
	}
}

static unsigned long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (unsigned long long)ts.tv_sec * 1000000000ull + (unsigned long long)ts.tv_nsec;
}

static const char source[] =
	"__kernel void work(__global float *a, uint n) { float x = get_global_id(0);\n"
	"  for (uint i = 0; i < n; i++) x = x * 1.000001f + 0.5f; if (x == 12345.678f) a[0] = x; "
	"}\n";

static cl_platform_id platform_of(const char *name)
{
	cl_platform_id found[16];
	cl_uint count = 0;

	check(cl(GetPlatformIDs)(16, found, &count), "clGetPlatformIDs");
	for (cl_uint i = 0; i < count && i < 16; i++) {
		char text[256] = "";

		cl(GetPlatformInfo)(found[i], CL_PLATFORM_NAME, sizeof(text), text, NULL);
		if (!strncmp(text, name, strlen(name)))
			return found[i];
	}
	fprintf(stderr, "api_opencl: none of the %u platforms is called '%s...'\n", count, name);
	exit(1);
}

int main(int argc, char **argv)
{
	unsigned long long end, next, started = 0, done = 0;
	const char *text = source;
	size_t items = ITEMS, group = 256;
	cl_command_queue queue;
	cl_event event[AHEAD];
	cl_program program;
	cl_context context;
	cl_device_id device;
	cl_kernel kernel;
	cl_uint turns = 1000;
	cl_mem memory;
	cl_int err;
	FILE *out;

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: api_opencl SECONDS OUT [PLATFORM]\n");
		return 2;
	}
	lib = dlopen("libOpenCL.so.1", RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "api_opencl: %s\n", dlerror());
		return 77;
	}
	out = fopen(argv[2], "w");
	if (!out) {
		perror(argv[2]);
		return 1;
	}
	setvbuf(out, NULL, _IOLBF, 0);
	check(cl(GetDeviceIDs)(platform_of(argc > 3 ? argv[3] : "NVIDIA"), CL_DEVICE_TYPE_ALL, 1,
			       &device, NULL),
	      "clGetDeviceIDs");
	context = cl(CreateContext)(NULL, 1, &device, NULL, NULL, &err);
	check(err, "clCreateContext");
	queue = cl(CreateCommandQueue)(context, device, 0, &err);
	check(err, "clCreateCommandQueue");
	program = cl(CreateProgramWithSource)(context, 1, &text, NULL, &err);
	check(err, "clCreateProgramWithSource");
	check(cl(BuildProgram)(program, 1, &device, "", NULL, NULL), "clBuildProgram");
	kernel = cl(CreateKernel)(program, "work", &err);
	check(err, "clCreateKernel");
	memory = cl(CreateBuffer)(context, CL_MEM_READ_WRITE, 4096, NULL, &err);
	check(err, "clCreateBuffer");
	check(cl(SetKernelArg)(kernel, 0, sizeof(memory), &memory), "clSetKernelArg");
	/* as many turns as make a kernel of about a millisecond, now that nothing else runs */
	for (int i = 0; i < 12; i++) {
		unsigned long long begin;
		double took;

		check(cl(SetKernelArg)(kernel, 1, sizeof(turns), &turns), "clSetKernelArg");
		begin = now_ns();
		check(cl(EnqueueNDRangeKernel)(queue, kernel, 1, NULL, &items, &group, 0, NULL,
					       NULL),
		      "clEnqueueNDRangeKernel");
		check(cl(Finish)(queue), "clFinish");
		took = (double)(now_ns() - begin) / 1e9;
		if (took < TARGET_S * 0.8)
			turns = (cl_uint)(turns * (took < TARGET_S / 8 ? 4 : TARGET_S / took));
	}
	fprintf(stderr, "api_opencl: %u turns\n", turns);
	end = now_ns() + (unsigned long long)(atof(argv[1]) * 1e9);
	next = now_ns();
	while (now_ns() < end) {
		unsigned long long t;

		for (; started < done + AHEAD; started++)
			check(cl(EnqueueNDRangeKernel)(queue, kernel, 1, NULL, &items, &group, 0,
						       NULL, &event[started % AHEAD]),
			      "clEnqueueNDRangeKernel");
		check(cl(Flush)(queue), "clFlush");
		while (done < started) {
			cl_int state = CL_QUEUED;

			check(cl(GetEventInfo)(event[done % AHEAD],
					       CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state),
					       &state, NULL),
			      "clGetEventInfo");
			if (state > CL_COMPLETE)
				break;
			check(state, "a kernel");
			cl(ReleaseEvent)(event[done++ % AHEAD]);
		}
		t = now_ns();
		if (t >= next) {
			fprintf(out, "%llu %llu\n", t, done);
			next = t + 5000000;
		}
		usleep(100);
	}
	check(cl(Finish)(queue), "clFinish");
	fclose(out);
	return 0;
}
