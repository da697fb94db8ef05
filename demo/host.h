/* SPDX-License-Identifier: MIT */
/*
 * host.h - the host side of both demonstration programs: find a device, build a kernel, keep the
 * device busy with jobs, write down the end of each job. Plain OpenCL 1.2; no call to rtxg.
 */
#ifndef DEMO_HOST_H
#define DEMO_HOST_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *program_name;
static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static void check(cl_int err, const char *what)
{
	if (err) {
		fprintf(stderr, "%s: %s: OpenCL error %d\n", program_name, what, err);
		exit(1);
	}
}

static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The first GPU of any platform, else the first device. */
static cl_device_id pick_device(void)
{
	cl_platform_id platforms[16];
	cl_device_id device;
	cl_uint n = 0;

	check(clGetPlatformIDs(16, platforms, &n),
	      "clGetPlatformIDs (no OpenCL platform? install pocl-opencl-icd)");
	for (int any = 0; any < 2; any++)
		for (cl_uint i = 0; i < n; i++)
			if (!clGetDeviceIDs(platforms[i],
					    any ? CL_DEVICE_TYPE_ALL : CL_DEVICE_TYPE_GPU, 1,
					    &device, NULL))
				return device;
	fprintf(stderr, "%s: no OpenCL device\n", program_name);
	exit(1);
}

struct host {
	unsigned long work; /* how much a job is; what it means is the program's */
	double seconds;	    /* how long to go on */
	unsigned long jobs; /* or how many jobs; 0 = no limit */
	/* do one job, then nothing: a program that only has the device open */
	int idle;
	FILE *log; /* one line a job: when it was done (CLOCK_MONOTONIC, seconds) */
	cl_context context;
	cl_command_queue queue;
	cl_kernel kernel;
};

static unsigned long number(const char *option, const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || !*text || !value || *text == '-') {
		fprintf(stderr, "%s: %s=%s: a positive number expected\n", program_name, option,
			text);
		exit(2);
	}
	return value;
}

static void host_start(struct host *h, int argc, char **argv, const char *source,
		       const char *kernel)
{
	static const struct option options[] = { { "work", required_argument, NULL, 'w' },
						 { "seconds", required_argument, NULL, 's' },
						 { "jobs", required_argument, NULL, 'j' },
						 { "log", required_argument, NULL, 'l' },
						 { "idle", no_argument, NULL, 'i' },
						 { 0 } };
	struct sigaction action = { .sa_handler = on_signal };
	cl_device_id device;
	cl_program program;
	cl_int err;
	int option;

	program_name = argv[0];
	memset(h, 0, sizeof(*h));
	h->work = 100;
	h->seconds = 10;
	h->log = stdout;
	while ((option = getopt_long(argc, argv, "w:s:j:l:i", options, NULL)) != -1) {
		switch (option) {
		case 'w':
			h->work = number("--work", optarg);
			break;
		case 's':
			h->seconds = (double)number("--seconds", optarg);
			break;
		case 'j':
			h->jobs = number("--jobs", optarg);
			break;
		case 'l':
			h->log = fopen(optarg, "w");
			if (!h->log) {
				perror(optarg);
				exit(1);
			}
			break;
		case 'i':
			h->idle = 1;
			break;
		default:
			fprintf(stderr,
				"Usage: %s [--work N] [--seconds N] [--jobs N] [--idle] [--log "
				"FILE]\n",
				argv[0]);
			exit(2);
		}
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	device = pick_device();
	h->context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	check(err, "clCreateContext");
	h->queue = clCreateCommandQueue(h->context, device, 0, &err);
	check(err, "clCreateCommandQueue");
	program = clCreateProgramWithSource(h->context, 1, &source, NULL, &err);
	check(err, "clCreateProgramWithSource");
	err = clBuildProgram(program, 1, &device, "-cl-fast-relaxed-math", NULL, NULL);
	if (err) {
		static char log[16384];

		clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof(log) - 1, log,
				      NULL);
		fprintf(stderr, "%s\n", log);
	}
	check(err, "clBuildProgram");
	h->kernel = clCreateKernel(program, kernel, &err);
	check(err, "clCreateKernel");
}

#define AHEAD 4 /* jobs in the queue */

static void job_done(struct host *h, cl_event event)
{
	check(clWaitForEvents(1, &event), "clWaitForEvents");
	fprintf(h->log, "%.6f\n", seconds_now());
	clReleaseEvent(event);
}

/*
 * Runs jobs until the time is over, one kernel a job, some queued ahead, as programs do that keep a
 * GPU busy. Returns how many were done.
 */
static unsigned long host_run(struct host *h, cl_uint dimensions, const size_t *global,
			      const size_t *local)
{
	cl_event queued[AHEAD];
	unsigned long started = 0, done = 0;
	double end = seconds_now() + h->seconds;

	if (h->idle)
		h->jobs = 1;
	while (!stop && seconds_now() < end && (!h->jobs || started < h->jobs)) {
		if (started - done == AHEAD)
			job_done(h, queued[done++ % AHEAD]);
		check(clEnqueueNDRangeKernel(h->queue, h->kernel, dimensions, NULL, global, local,
					     0, NULL, &queued[started++ % AHEAD]),
		      "clEnqueueNDRangeKernel");
		check(clFlush(h->queue), "clFlush");
	}
	while (done < started)
		job_done(h, queued[done++ % AHEAD]);
	fflush(h->log);
	while (h->idle && !stop && seconds_now() < end)
		nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	return done;
}

#endif
