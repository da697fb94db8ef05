// SPDX-License-Identifier: MIT
/*
 * semantics.c - an OpenCL program that tries the calls that a layer could get wrong and prints the
 * results. The program knows nothing of rtxg. The test runs it natively and under the layer and
 * compares the outputs, which hold no times and no addresses.
 *
 * Usage: semantics [CASE]... (default: all). There is one exception: if the test double is loaded,
 * a native kernel asks whether a launch is outstanding while the kernel runs.
 */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#include <CL/cl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 1024

static const char source[] =
	"__kernel void advance(__global uint *a, uint k) { size_t i = get_global_id(0); a[i] = "
	"a[i] * 1664525u + k + (uint)i; }\n"
	"__kernel void slow(__global uint *a, uint n) { size_t i = get_global_id(0); uint x = "
	"a[i];\n"
	"  for (uint j = 0; j < n; j++) x = x * 1664525u + 1013904223u; a[i] = x; }\n"
	"__kernel void add(__global uint *a, __global const uint *b) { size_t i = "
	"get_global_id(0); a[i] += b[i]; }\n"
	"__kernel void one(__global uint *a) { a[0] += 1u; }\n";

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_program program;
static const char *current;

static void say(const char *format, ...)
{
	va_list ap;

	printf("%s: ", current);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

static void must_(cl_int err, const char *what, int line)
{
	if (err) {
		printf("%s: line %d: %s = %d\n", current, line, what, err);
		fflush(stdout);
		_exit(1);
	}
}
#define must(call) must_(call, #call, __LINE__)

static cl_program build(cl_context c)
{
	const char *text = source;
	cl_int err;
	cl_program p = clCreateProgramWithSource(c, 1, &text, NULL, &err);

	must(err);
	must(clBuildProgram(p, 1, &device, "", NULL, NULL));
	return p;
}

static cl_command_queue queue_new(cl_command_queue_properties p)
{
	cl_queue_properties list[] = { CL_QUEUE_PROPERTIES, p, 0 };
	cl_int err;
	cl_command_queue q =
		clCreateCommandQueueWithProperties(context, device, p ? list : NULL, &err);

	must(err);
	return q;
}

static cl_mem buffer_new(cl_context c)
{
	cl_int err;
	cl_uint zero[N] = { 0 };
	cl_mem m = clCreateBuffer(c, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof(zero), zero,
				  &err);

	must(err);
	return m;
}

static cl_kernel kernel_new(const char *name, cl_mem m, cl_uint k)
{
	cl_int err;
	cl_kernel kernel = clCreateKernel(program, name, &err);

	must(err);
	must(clSetKernelArg(kernel, 0, sizeof(m), &m));
	if (strcmp(name, "one"))
		must(clSetKernelArg(kernel, 1, sizeof(k), &k));
	return kernel;
}

static cl_int go_n(cl_command_queue q, cl_kernel k, cl_uint n, const cl_event *wait,
		   cl_event *event)
{
	size_t global = N;

	return clEnqueueNDRangeKernel(q, k, 1, NULL, &global, NULL, n, wait, event);
}

static void go(cl_command_queue q, cl_kernel k, cl_uint n, const cl_event *wait, cl_event *event)
{
	must(go_n(q, k, n, wait, event));
}

static unsigned int sum_of(const cl_uint *a)
{
	unsigned int s = 0;

	for (int i = 0; i < N; i++)
		s = s * 31 + a[i];
	return s;
}

static unsigned int sum(cl_command_queue q, cl_mem m)
{
	cl_uint host[N];

	must(clEnqueueReadBuffer(q, m, CL_TRUE, 0, sizeof(host), host, 0, NULL, NULL));
	return sum_of(host);
}

static cl_int status_of(cl_event e)
{
	cl_int s;

	must(clGetEventInfo(e, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(s), &s, NULL));
	return s;
}

/*
 * The program's references. The implementation drops its own some time after completion: waits
 * until one is left.
 */
static cl_uint refs_of(cl_event e)
{
	cl_uint n = 0;

	for (int i = 0; i < 100 && n != 1; i++) {
		if (i)
			usleep(1000);
		must(clGetEventInfo(e, CL_EVENT_REFERENCE_COUNT, sizeof(n), &n, NULL));
	}
	return n;
}

static cl_event user_new(void)
{
	cl_int err;
	cl_event e = clCreateUserEvent(context, &err);

	must(err);
	return e;
}

/* ---- the cases ---- */

static void in_order(void)
{
	cl_command_queue q = queue_new(0);
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 7);

	for (cl_uint i = 0; i < 300; i++) {
		must(clSetKernelArg(k, 1, sizeof(i), &i));
		go(q, k, 0, NULL, NULL);
		if (i % 50 == 49)
			must(clFinish(q));
	}
	say("sum %08x", sum(q, m));
	for (cl_uint i = 0; i < 5000; i++)
		go(q, k, 0, NULL, NULL);
	must(clFlush(q));
	say("far ahead: sum %08x", sum(q, m));
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
	must(clReleaseCommandQueue(q));
}

static void out_of_order(void)
{
	cl_command_queue q = queue_new(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	cl_mem m[4];
	cl_kernel step[4], add;
	cl_event last[4] = { 0 }, e;
	cl_int err;

	for (int i = 0; i < 4; i++) {
		m[i] = buffer_new(context);
		step[i] = kernel_new("advance", m[i], (cl_uint)i + 1);
	}
	add = clCreateKernel(program, "add", &err);
	must(err);
	/* Four chains that are joined now and then; the order is in the events alone. */
	for (int round = 0; round < 60; round++) {
		for (int i = 0; i < 4; i++) {
			go(q, step[i], last[i] ? 1 : 0, last[i] ? &last[i] : NULL, &e);
			if (last[i])
				must(clReleaseEvent(last[i]));
			last[i] = e;
		}
		if (round % 5 == 4) {
			int a = round % 4, b = (round / 5 + 1 + a) % 4;

			if (a == b)
				b = (b + 1) % 4;
			must(clSetKernelArg(add, 0, sizeof(m[a]), &m[a]));
			must(clSetKernelArg(add, 1, sizeof(m[b]), &m[b]));
			go(q, add, 4, last, &e);
			for (int i = 0; i < 4; i++) {
				must(clReleaseEvent(last[i]));
				last[i] = e;
				if (i)
					must(clRetainEvent(e));
			}
		}
	}
	must(clWaitForEvents(4, last));
	for (int i = 0; i < 4; i++)
		say("chain %d: status %d sum %08x", i, status_of(last[i]), sum(q, m[i]));
	for (int i = 0; i < 4; i++) {
		must(clReleaseEvent(last[i]));
		must(clReleaseKernel(step[i]));
		must(clReleaseMemObject(m[i]));
	}
	must(clReleaseKernel(add));
	must(clReleaseCommandQueue(q));
}

static void user_event(void)
{
	cl_command_queue q1 = queue_new(0), q2 = queue_new(0);
	cl_mem m1 = buffer_new(context), m2 = buffer_new(context);
	cl_kernel k1 = kernel_new("advance", m1, 3), k2 = kernel_new("advance", m2, 5);
	cl_event u = user_new(), e1, e2, e3, many[20];

	go(q1, k1, 1, &u, &e1);
	go(q1, k1, 0, NULL, NULL);
	go(q1, k1, 0, NULL, &e2);
	for (int i = 0; i < 50; i++)
		go(q2, k2, 0, NULL, NULL);
	must(clFinish(q2)); /* must not wait for the other queue */
	say("other queue sum %08x", sum(q2, m2));
	say("blocked: first complete %d, last complete %d", status_of(e1) == CL_COMPLETE,
	    status_of(e2) == CL_COMPLETE);
	go(q2, k2, 1, &e2, &e3);
	say("user event references %u", refs_of(u));
	must(clSetUserEventStatus(u, CL_COMPLETE));
	must(clFinish(q1));
	must(clWaitForEvents(1, &e3));
	say("sums %08x %08x, user references %u, event references %u", sum(q1, m1), sum(q2, m2),
	    refs_of(u), refs_of(e3));
	say("set twice: %d", clSetUserEventStatus(u, CL_COMPLETE));
	must(clReleaseEvent(u));
	must(clReleaseEvent(e1));
	must(clReleaseEvent(e2));
	must(clReleaseEvent(e3));

	/* Longer wait lists than a layer might keep on its stack. */
	for (int i = 0; i < 20; i++)
		many[i] = user_new();
	go(q1, k1, 20, many, &e1);
	for (int i = 0; i < 20; i++) {
		must(clSetUserEventStatus(many[19 - i], CL_COMPLETE));
		if (i == 18)
			say("one is missing: complete %d", status_of(e1) == CL_COMPLETE);
	}
	must(clWaitForEvents(1, &e1));
	say("all twenty: status %d sum %08x", status_of(e1), sum(q1, m1));
	for (int i = 0; i < 20; i++)
		must(clReleaseEvent(many[i]));
	must(clReleaseEvent(e1));

	/* An error is handed on. */
	u = user_new();
	go(q2, k2, 1, &u, &e1);
	must(clSetUserEventStatus(u, -77));
	say("waiting for a failed one: %d", clWaitForEvents(1, &e1));
	say("failed: status negative %d", status_of(e1) < 0);
	must(clReleaseEvent(u));
	must(clReleaseEvent(e1));
	go(q1, k1, 0, NULL, NULL);
	say("after a failure: sum %08x", sum(q1, m1));

	/* Released before it is ever set: what waits for it must not disturb others. */
	u = user_new();
	must(clReleaseEvent(u));
	go(q1, k1, 0, NULL, NULL);
	say("after a forgotten user event: sum %08x", sum(q1, m1));
	must(clReleaseKernel(k1));
	must(clReleaseKernel(k2));
	must(clReleaseMemObject(m1));
	must(clReleaseMemObject(m2));
	must(clReleaseCommandQueue(q1));
	must(clReleaseCommandQueue(q2));
}

/* All is in the queue before the first may begin, so the program never pauses between two. */
static void queued(void)
{
	cl_command_queue q = queue_new(0);
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3);
	cl_event u = user_new();

	for (int i = 0; i < 12; i++)
		go(q, k, i == 0, i ? NULL : &u, NULL);
	must(clSetUserEventStatus(u, CL_COMPLETE));
	must(clFinish(q));
	say("done");
	must(clReleaseEvent(u));
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
	must(clReleaseCommandQueue(q));
}

/*
 * Short commands that no call waits for are known to have completed all the same, also where the
 * next one in their queue waits for what only comes later.
 */
static void unwaited(void)
{
	int (*running)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "rtxg_double_running");
	cl_command_queue q = queue_new(0);
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3);

	for (int i = 0; i < 40; i++) {
		go(q, k, 0, NULL, NULL);
		must(clFinish(q));
	}
	for (int i = 0; i < 20; i++) {
		cl_event u = user_new();

		for (int j = 0; j < 3; j++)
			go(q, k, 0, NULL, NULL);
		if (i & 1)
			go(q, k, 1, &u, NULL);
		must(clFlush(q));
		while (running && running(0))
			usleep(500);
		must(clSetUserEventStatus(u, CL_COMPLETE));
		must(clReleaseEvent(u));
		if (i % 3 == 0)
			must(clFinish(q));
	}
	say("done, %08x", sum(q, m));
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
	must(clReleaseCommandQueue(q));
}

/*
 * A command that fails, and much later one that is held back by the program. A layer that waited
 * for the first one's permit has to begin again with the second.
 */
static void failed_before(void)
{
	cl_command_queue q = queue_new(0);
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3);
	size_t global = N, uneven = 3;
	cl_event u = user_new();

	say("uneven %d", clEnqueueNDRangeKernel(q, k, 1, NULL, &global, &uneven, 0, NULL, NULL));
	usleep(100000);
	go(q, k, 1, &u, NULL);
	must(clSetUserEventStatus(u, CL_COMPLETE));
	must(clFinish(q));
	say("sum %08x", sum(q, m));
	must(clReleaseEvent(u));
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
	must(clReleaseCommandQueue(q));
}

static void CL_CALLBACK set_user(cl_event e, cl_int status, void *arg)
{
	(void)e;
	clSetUserEventStatus(arg, status == CL_COMPLETE ? CL_COMPLETE : -1);
	clReleaseEvent(arg);
}

/*
 * The earlier command waits for the later. A layer that holds an engine for the earlier command
 * while that command waits is stuck.
 */
static void later_frees_earlier(void)
{
	cl_command_queue q1 = queue_new(0), q2 = queue_new(0),
			 q3 = queue_new(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	cl_mem m1 = buffer_new(context), m2 = buffer_new(context);
	cl_kernel k1 = kernel_new("advance", m1, 3), k2 = kernel_new("slow", m2, 2000);
	cl_event e1, e2;

	for (int i = 0; i < 30; i++) {
		cl_event u = user_new();

		go(q1, k1, 1, &u, &e1);
		go(i & 1 ? q2 : q3, k2, 0, NULL, &e2);
		must(clRetainEvent(u));
		must(clSetEventCallback(e2, CL_COMPLETE, set_user, u));
		must(clFlush(i & 1 ? q2 : q3));
		must(clWaitForEvents(1, &e1));
		must(clReleaseEvent(e1));
		must(clReleaseEvent(e2));
		must(clReleaseEvent(u));
	}
	say("sums %08x %08x", sum(q1, m1), sum(q2, m2));
	/* The same inside one out-of-order queue, with copies in between. */
	for (int i = 0; i < 30; i++) {
		cl_event u = user_new();
		cl_uint host[N];

		go(q3, k1, 1, &u, &e1);
		must(clEnqueueReadBuffer(q3, m2, CL_FALSE, 0, sizeof(host), host, 0, NULL, &e2));
		must(clRetainEvent(u));
		must(clSetEventCallback(e2, CL_COMPLETE, set_user, u));
		must(clFinish(q3));
		must(clReleaseEvent(e1));
		must(clReleaseEvent(e2));
		must(clReleaseEvent(u));
	}
	say("one queue: sum %08x", sum(q1, m1));
	must(clReleaseKernel(k1));
	must(clReleaseKernel(k2));
	must(clReleaseMemObject(m1));
	must(clReleaseMemObject(m2));
	must(clReleaseCommandQueue(q1));
	must(clReleaseCommandQueue(q2));
	must(clReleaseCommandQueue(q3));
}

static void *set_later(void *arg)
{
	usleep(5000);
	clSetUserEventStatus(arg, CL_COMPLETE);
	return NULL;
}

static void blocking(void)
{
	cl_command_queue q = queue_new(0);
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 11);
	cl_uint host[N], *map;
	pthread_t thread;
	cl_int err;
	cl_event u, e;

	for (int i = 0; i < 5; i++) {
		u = user_new();
		pthread_create(&thread, NULL, set_later, u);
		go(q, k, 1, &u, NULL);
		must(clEnqueueReadBuffer(q, m, CL_TRUE, 0, sizeof(host), host, 0, NULL, NULL));
		say("read %08x", sum_of(host));
		pthread_join(thread, NULL);
		must(clReleaseEvent(u));
	}
	u = user_new();
	pthread_create(&thread, NULL, set_later, u);
	must(clEnqueueReadBuffer(q, m, CL_TRUE, 0, sizeof(host), host, 1, &u, &e));
	say("read with a user event: %08x, status %d, references %u", sum_of(host), status_of(e),
	    refs_of(e));
	pthread_join(thread, NULL);
	must(clReleaseEvent(u));
	must(clReleaseEvent(e));

	for (int i = 0; i < N; i++)
		host[i] = (cl_uint)i;
	must(clEnqueueWriteBuffer(q, m, CL_TRUE, 0, sizeof(host), host, 0, NULL, NULL));
	memset(host, 0, sizeof(host));
	go(q, k, 0, NULL, NULL);
	map = clEnqueueMapBuffer(q, m, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, sizeof(host), 0,
				 NULL, NULL, &err);
	must(err);
	say("mapped %08x", sum_of(map));
	map[5] = 5;
	must(clEnqueueUnmapMemObject(q, m, map, 0, NULL, &e));
	go(q, k, 1, &e, NULL);
	must(clReleaseEvent(e));
	map = clEnqueueMapBuffer(q, m, CL_FALSE, CL_MAP_READ, 0, sizeof(host), 0, NULL, &e, &err);
	must(err);
	must(clWaitForEvents(1, &e));
	say("mapped without blocking %08x", sum_of(map));
	must(clReleaseEvent(e));
	must(clEnqueueUnmapMemObject(q, m, map, 0, NULL, NULL));
	must(clFinish(q));

	/* Writes from memory that is reused at once: a blocking write has taken it. */
	for (cl_uint i = 0; i < 50; i++) {
		for (int j = 0; j < N; j++)
			host[j] = i + (cl_uint)j;
		must(clEnqueueWriteBuffer(q, m, CL_TRUE, 0, sizeof(host), host, 0, NULL, NULL));
		memset(host, 0xff, sizeof(host));
		go(q, k, 0, NULL, NULL);
	}
	say("after writes %08x", sum(q, m));
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
	must(clReleaseCommandQueue(q));
}

static void profiling(void)
{
	cl_command_queue_properties combos[] = { 0, CL_QUEUE_PROFILING_ENABLE,
						 CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
						 CL_QUEUE_PROFILING_ENABLE |
							 CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE };
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("slow", m, 100);

	for (int old = 0; old < 2; old++) {
		for (int i = 0; i < 4; i++) {
			cl_queue_properties array[16] = { 0 };
			cl_command_queue_properties shown = 99;
			cl_ulong t[4] = { 0 };
			cl_command_queue q;
			cl_event e;
			size_t size = 99, shown_size = 99;
			cl_int err[4], array_err;

			if (old) {
				q = clCreateCommandQueue(context, device, combos[i], err);
				must(err[0]);
			} else {
				q = queue_new(combos[i]);
			}
			must(clGetCommandQueueInfo(q, CL_QUEUE_PROPERTIES, sizeof(shown), &shown,
						   &shown_size));
			array_err = clGetCommandQueueInfo(q, CL_QUEUE_PROPERTIES_ARRAY,
							  sizeof(array), array, &size);
			say("queue %d %d: properties %d size %zu, array %d: size %zu %d %d", old, i,
			    (int)shown, shown_size, array_err, size, (int)array[0], (int)array[1]);
			say("too small: %d",
			    clGetCommandQueueInfo(q, CL_QUEUE_PROPERTIES, 1, &shown, NULL));
			go(q, k, 0, NULL, &e);
			must(clFinish(q));
			for (int p = 0; p < 4; p++)
				err[p] = clGetEventProfilingInfo(
					e, CL_PROFILING_COMMAND_QUEUED + (cl_uint)p, sizeof(t[p]),
					&t[p], NULL);
			say("profiling %d %d %d %d, ordered %d, took time %d, references %u",
			    err[0], err[1], err[2], err[3],
			    t[0] <= t[1] && t[1] <= t[2] && t[2] <= t[3], t[3] > t[2], refs_of(e));
			must(clReleaseEvent(e));
			must(clReleaseCommandQueue(q));
		}
	}
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
}

/* A size behind which no memory is: who reads more of them than there are crashes. */
static size_t *last_size(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), *at;
	char *two =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(two == MAP_FAILED ? -1 : mprotect(two + page, page, PROT_NONE));
	at = (size_t *)(void *)(two + page) - 1;
	*at = size;
	return at;
}

static void errors(void)
{
	cl_command_queue q = queue_new(0);
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3), bare;
	cl_uint host[N];
	cl_event e = NULL, u = user_new();
	size_t global = N, local = 3, zero = 0;
	cl_int err;
	cl_context other;
	cl_event foreign;

	bare = clCreateKernel(program, "advance", &err);
	must(err);
	say("list without count %d",
	    clEnqueueNDRangeKernel(q, k, 1, NULL, &global, NULL, 0, &u, NULL));
	say("no arguments %d",
	    clEnqueueNDRangeKernel(q, bare, 1, NULL, &global, NULL, 0, NULL, &e));
	say("no arguments, waiting %d",
	    clEnqueueNDRangeKernel(q, bare, 1, NULL, &global, NULL, 1, &u, &e));
	say("bad local size %d", clEnqueueNDRangeKernel(q, k, 1, NULL, &global, &local, 1, &u, &e));
	say("dimension %d", clEnqueueNDRangeKernel(q, k, 4, NULL, last_size(N), NULL, 0, NULL, &e));
	say("nothing to do %d", clEnqueueNDRangeKernel(q, k, 1, NULL, &zero, NULL, 0, NULL, NULL));
	say("read too far %d", clEnqueueReadBuffer(q, m, CL_TRUE, 4096, 4096, host, 0, NULL, NULL));
	say("read too far, waiting %d",
	    clEnqueueReadBuffer(q, m, CL_FALSE, 4096, 4096, host, 1, &u, NULL));
	say("read to nowhere %d", clEnqueueReadBuffer(q, m, CL_TRUE, 0, 4096, NULL, 0, NULL, NULL));
	clEnqueueMapBuffer(q, m, CL_TRUE, CL_MAP_READ, 4000, 4000, 0, NULL, NULL, &err);
	say("map too far %d", err);
	say("wait for none %d", clWaitForEvents(0, NULL));
	other = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	must(err);
	foreign = clCreateUserEvent(other, &err);
	must(err);
	say("event of another context %d",
	    clEnqueueNDRangeKernel(q, k, 1, NULL, &global, NULL, 1, &foreign, NULL));
	must(clSetUserEventStatus(foreign, CL_COMPLETE));
	must(clReleaseEvent(foreign));
	must(clReleaseContext(other));
	go(q, k, 1, &u, NULL);
	must(clSetUserEventStatus(u, CL_COMPLETE));
	say("still works: sum %08x", sum(q, m));
	must(clReleaseEvent(u));
	must(clReleaseKernel(bare));
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
	must(clReleaseCommandQueue(q));
}

/*
 * Calls that fail, whose lists name a user event that is then never set. What comes behind them in
 * their queue waits for what was before them, and for nothing else.
 */
static void failed_calls(void)
{
	int (*running)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "rtxg_double_running");
	cl_context other;
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3);
	size_t global = N, uneven = 3;
	cl_uint host[N];
	cl_event never, foreign;
	cl_int err;

	other = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	must(err);
	foreign = clCreateUserEvent(other, &err);
	must(err);
	never = user_new();
	for (int i = 0; i < 10; i++) {
		cl_command_queue q = queue_new(i & 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
		cl_event u = user_new(), first, last;

		/* in the second half behind something that waits */
		if (i >= 5)
			must(clEnqueueBarrierWithWaitList(q, 1, &u, &first));
		say("kernel %d",
		    clEnqueueNDRangeKernel(q, k, 1, NULL, &global, &uneven, 1, &never, NULL));
		say("read %d",
		    clEnqueueReadBuffer(q, m, CL_FALSE, 4096, 4096, host, 1, &never, NULL));
		say("marker %d", clEnqueueMarkerWithWaitList(q, 1, &foreign, NULL));
		say("barrier %d", clEnqueueBarrierWithWaitList(q, 1, &foreign, NULL));
		go(q, k, 0, NULL, &last);
		must(clFlush(q));
		if (i >= 5) {
			usleep(2000);
			say("before: %d", status_of(last) == CL_COMPLETE);
			must(clSetUserEventStatus(u, CL_COMPLETE));
			must(clReleaseEvent(first));
		}
		must(clWaitForEvents(1, &last));
		must(clFinish(q));
		while (running && running(0))
			usleep(500);
		say("after: sum %08x, references %u", sum(q, m), refs_of(never));
		must(clReleaseEvent(last));
		must(clReleaseEvent(u));
		must(clReleaseCommandQueue(q));
	}
	must(clReleaseEvent(never));
	must(clReleaseEvent(foreign));
	must(clReleaseContext(other));
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
}

/*
 * What waits for two user events fails with the first. It waits for the second no more, and nothing
 * behind it does. (PoCL looks at a failed command again when the second is set, or what is before
 * it has ended, so the program keeps its event.)
 */
static void failed_behind(void)
{
	int (*running)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "rtxg_double_running");
	cl_mem m = buffer_new(context), m2 = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3), k2 = kernel_new("advance", m2, 5);
	cl_uint host[N];

	for (int i = 0; i < 16; i++) {
		cl_command_queue q = queue_new(i & 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0),
				 r = queue_new(0);
		cl_event u[3] = { user_new(), user_new(), user_new() }, before = NULL, failed,
			 other[4], last[3];

		/* in the second half behind something that waits for the program */
		if (i & 8)
			must(clEnqueueBarrierWithWaitList(q, 1, &u[2], &before));
		switch (i / 2 % 4) {
		case 0:
			go(q, k, 2, u, &failed);
			break;
		case 1:
			must(clEnqueueReadBuffer(q, m, CL_FALSE, 0, sizeof(host), host, 2, u,
						 &failed));
			break;
		case 2:
			must(clEnqueueMarkerWithWaitList(q, 2, u, &failed));
			break;
		default:
			must(clEnqueueBarrierWithWaitList(q, 2, u, &failed));
			break;
		}
		go(q, k, 1, &failed, &other[0]); /* fails with it */
		go(r, k2, 1, &failed, &other[1]);
		must(clEnqueueMarkerWithWaitList(r, 1, &u[1], &other[2]));
		must(clEnqueueReadBuffer(r, m2, CL_FALSE, 0, sizeof(host), host, 0, NULL,
					 &other[3]));
		must(clSetUserEventStatus(u[0], -5));
		say("%d waits: %d", i, clWaitForEvents(1, &failed));
		for (int j = 0; j < 4; j++)
			say("%d: failed %d", j, clWaitForEvents(1, &other[j]));
		/* queues and engines that are free again */
		if (i & 8) {
			must(clSetUserEventStatus(u[2], CL_COMPLETE));
			must(clReleaseEvent(before));
		}
		go(r, k2, 0, NULL, &last[0]);
		go(q, k, 0, NULL, &last[1]);
		must(clEnqueueMarkerWithWaitList(q, 0, NULL, &last[2]));
		must(clWaitForEvents(3, last));
		must(clFinish(q));
		must(clFinish(r));
		while (running && running(0))
			usleep(500);
		say("%d: sums %08x %08x", i, sum(q, m), sum(r, m2));
		must(clSetUserEventStatus(u[1], CL_COMPLETE));
		for (int j = 0; j < 3; j++) {
			must(clReleaseEvent(last[j]));
			must(clReleaseEvent(u[j]));
		}
		must(clReleaseCommandQueue(q));
		must(clReleaseCommandQueue(r));
	}
	must(clReleaseKernel(k));
	must(clReleaseKernel(k2));
	must(clReleaseMemObject(m));
	must(clReleaseMemObject(m2));
}

/*
 * What each call says of a list without a count and of a count without a list, while it is held
 * back and while it is not. Implementations refuse it in some calls and not in others.
 */
static void odd_lists(void)
{
	cl_command_queue in = queue_new(0), out = queue_new(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	cl_mem m = buffer_new(context), m2 = buffer_new(context), m3 = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3), k2 = kernel_new("advance", m2, 5);
	cl_uint host[N], seven = 7;
	size_t global = N;

	/* free; held back by the queue and on another engine; held back by a barrier */
	for (int round = 0; round < 6; round++) {
		cl_command_queue q = round % 3 == 2 ? out : in;
		cl_event u = user_new(), done = user_new(), e;

		must(clSetUserEventStatus(done, CL_COMPLETE));
		if (round % 3 == 1)
			go(q, k2, 1, &u, NULL);
		else if (round % 3 == 2)
			must(clEnqueueBarrierWithWaitList(q, 1, &u, NULL));
		for (cl_uint n = 0; n < 2; n++) {
			const cl_event *list = n ? NULL : &done;

			say("write %d", clEnqueueWriteBuffer(q, m3, CL_FALSE, 0, sizeof(seven),
							     &seven, n, list, NULL));
			say("read %d", clEnqueueReadBuffer(q, m3, CL_FALSE, 0, sizeof(host), host,
							   n, list, NULL));
			say("fill %d", clEnqueueFillBuffer(q, m3, &seven, sizeof(seven), 0, 64, n,
							   list, NULL));
			say("migrate %d", clEnqueueMigrateMemObjects(q, 1, &m3, 0, n, list, NULL));
			say("copy %d", clEnqueueCopyBuffer(q, m3, m3, 0, 2048, 256, n, list, NULL));
		}
		/* PoCL takes this one, and crashes where it is a count without a list. */
		say("kernel %d",
		    clEnqueueNDRangeKernel(q, k, 1, NULL, &global, NULL, 0, &done, NULL));
		go(q, k2, 0, NULL, &e);
		say("complete %d", status_of(e) == CL_COMPLETE && round % 3);
		must(clSetUserEventStatus(u, CL_COMPLETE));
		must(clWaitForEvents(1, &e));
		must(clFinish(q));
		must(clReleaseEvent(e));
		must(clReleaseEvent(u));
		must(clReleaseEvent(done));
	}
	say("sums %08x %08x", sum(in, m), sum(out, m2));
	must(clReleaseKernel(k));
	must(clReleaseKernel(k2));
	must(clReleaseMemObject(m));
	must(clReleaseMemObject(m2));
	must(clReleaseMemObject(m3));
	must(clReleaseCommandQueue(in));
	must(clReleaseCommandQueue(out));
}

static void markers(void)
{
	cl_command_queue q = queue_new(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE), p = queue_new(0),
			 r = queue_new(0);
	cl_mem m = buffer_new(context), m2 = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3), k2 = kernel_new("advance", m2, 9);
	cl_event u, e1, marker, e2, e3;

	for (int round = 0; round < 6; round++) {
		u = user_new();
		go(q, k, 1, &u, &e1);
		switch (round % 3) {
		case 0:
			must(clEnqueueBarrierWithWaitList(q, 0, NULL, &marker));
			break;
		case 1:
			must(clEnqueueMarkerWithWaitList(q, 0, NULL, &marker));
			must(clEnqueueBarrierWithWaitList(q, 1, &marker, NULL));
			break;
		default:
			must(clEnqueueMarker(q, &marker));
			must(clEnqueueBarrier(q));
			break;
		}
		go(q, k, 0, NULL, &e2); /* the same buffer: ordered by the barrier only */
		go(p, k2, 1, &e2, &e3); /* and another queue behind it */
		go(r, k2, 1, &marker, NULL);
		must(clFlush(q));
		must(clFlush(p));
		must(clFlush(r));
		usleep(2000);
		say("round %d before: %d %d %d %d", round, status_of(e1) == CL_COMPLETE,
		    status_of(marker) == CL_COMPLETE, status_of(e2) == CL_COMPLETE,
		    status_of(e3) == CL_COMPLETE);
		must(clSetUserEventStatus(u, CL_COMPLETE));
		must(clFinish(q));
		must(clFinish(p));
		must(clFinish(r));
		say("round %d after: %d %d %d %d sum %08x", round, status_of(e1), status_of(marker),
		    status_of(e2), status_of(e3), sum(p, m));
		must(clReleaseEvent(u));
		must(clReleaseEvent(e1));
		must(clReleaseEvent(e2));
		must(clReleaseEvent(e3));
		must(clReleaseEvent(marker));
	}
	/*
	 * In an in-order queue a marker that waits holds back everything behind it, on every
	 * engine.
	 */
	u = user_new();
	must(clEnqueueMarkerWithWaitList(p, 1, &u, NULL));
	go(p, k, 0, NULL, &e1);
	must(clEnqueueBarrier(p));
	go(p, k, 0, NULL, &e2);
	must(clFlush(p));
	go(r, k2, 0, NULL, NULL);
	must(clFinish(r));
	say("in order before: %d %d", status_of(e1) == CL_COMPLETE, status_of(e2) == CL_COMPLETE);
	must(clSetUserEventStatus(u, CL_COMPLETE));
	must(clFinish(p));
	say("in order after: %d %d sum %08x", status_of(e1), status_of(e2), sum(p, m));
	must(clReleaseEvent(u));
	must(clReleaseEvent(e1));
	must(clReleaseEvent(e2));
	must(clReleaseKernel(k));
	must(clReleaseKernel(k2));
	must(clReleaseMemObject(m));
	must(clReleaseMemObject(m2));
	must(clReleaseCommandQueue(q));
	must(clReleaseCommandQueue(p));
	must(clReleaseCommandQueue(r));
}

/*
 * A marker with a list waits for that list, and in some implementations for all before it as well:
 * in PoCL 3.1 in any queue. What waits for the marker holds no permit until then. (PoCL has no
 * clEnqueueWaitForEvents.)
 */
static void marker_lists(void)
{
	int (*running)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "rtxg_double_running");
	cl_mem m = buffer_new(context), m2 = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3), k2 = kernel_new("advance", m2, 9);

	for (int i = 0; i < 8; i++) {
		cl_command_queue q = queue_new(i & 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0),
				 r = queue_new(0);
		cl_event u0 = user_new(), u1 = user_new(), first, marker, last, other;

		go(q, k, 1, &u0, &first);
		must(clEnqueueMarkerWithWaitList(q, 1, &u1, &marker));
		go(r, k2, 1, &marker, &other);
		if (i & 2)
			must(clEnqueueBarrierWithWaitList(q, 1, &u1, NULL));
		if (i & 4)
			must(clEnqueueBarrier(q));
		go(q, k, 1, &first, &last);
		must(clFlush(q));
		must(clFlush(r));
		usleep(2000);
		say("%d before: %d %d %d %d", i, status_of(first) == CL_COMPLETE,
		    status_of(marker) == CL_COMPLETE, status_of(other) == CL_COMPLETE,
		    status_of(last) == CL_COMPLETE);
		must(clSetUserEventStatus(u1, CL_COMPLETE));
		usleep(2000);
		for (int j = 0; j < 2000 && running && running(0); j++)
			usleep(1000);
		say("permit held while it waits: %d", running && running(0));
		say("%d between: %d %d %d %d", i, status_of(first) == CL_COMPLETE,
		    status_of(marker) == CL_COMPLETE, status_of(other) == CL_COMPLETE,
		    status_of(last) == CL_COMPLETE);
		must(clSetUserEventStatus(u0, CL_COMPLETE));
		must(clFinish(q));
		must(clFinish(r));
		say("%d after: %d %d %d %d sums %08x %08x", i, status_of(first), status_of(marker),
		    status_of(other), status_of(last), sum(q, m), sum(r, m2));
		must(clReleaseEvent(u0));
		must(clReleaseEvent(u1));
		must(clReleaseEvent(first));
		must(clReleaseEvent(marker));
		must(clReleaseEvent(other));
		must(clReleaseEvent(last));
		must(clReleaseCommandQueue(q));
		must(clReleaseCommandQueue(r));
	}
	must(clReleaseKernel(k));
	must(clReleaseKernel(k2));
	must(clReleaseMemObject(m));
	must(clReleaseMemObject(m2));
}

struct marking {
	cl_command_queue queue, other;
	cl_kernel kernel;
	atomic_int begun;
	int call;
	cl_event marker, behind;
};

static void *mark(void *arg)
{
	struct marking *w = arg;

	atomic_store(&w->begun, 1);
	if (w->call == 0)
		must(clEnqueueMarkerWithWaitList(w->queue, 0, NULL, &w->marker));
	else if (w->call == 1)
		must(clEnqueueBarrierWithWaitList(w->queue, 0, NULL, &w->marker));
	else
		must(clEnqueueMarker(w->queue, &w->marker));
	go(w->other, w->kernel, 1, &w->marker, &w->behind);
	must(clFlush(w->other));
	return NULL;
}

/*
 * One thread puts a marker while another enqueues a command that waits for the program. Whichever
 * is first: what waits for the marker holds no permit while the marker waits for the command.
 */
static void marker_beside(void)
{
	int (*running)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "rtxg_double_running");
	cl_mem m = buffer_new(context), m2 = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3), k2 = kernel_new("advance", m2, 9);

	for (int i = 0; i < 6; i++) {
		struct marking w = { .kernel = k2, .call = i / 2 };
		cl_event u = user_new(), waits;
		pthread_t thread;
		int held;

		w.queue = queue_new(i & 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
		w.other = queue_new(0);
		must(pthread_create(&thread, NULL, mark, &w));
		while (!atomic_load(&w.begun))
			usleep(100);
		usleep(5000);
		go(w.queue, k, 1, &u, &waits);
		must(clFlush(w.queue));
		must(pthread_join(thread, NULL));
		held = 1;
		for (int j = 0; j < 2000 && held; j++) {
			held = running && running(0);
			if (held)
				usleep(1000);
		}
		say("permit held while it waits: %d", held);
		must(clSetUserEventStatus(u, CL_COMPLETE));
		must(clFinish(w.queue));
		must(clFinish(w.other));
		say("after: %d %d %d, sums %08x %08x", status_of(waits), status_of(w.marker),
		    status_of(w.behind), sum(w.queue, m), sum(w.other, m2));
		must(clReleaseEvent(u));
		must(clReleaseEvent(waits));
		must(clReleaseEvent(w.marker));
		must(clReleaseEvent(w.behind));
		must(clReleaseCommandQueue(w.queue));
		must(clReleaseCommandQueue(w.other));
	}
	must(clReleaseKernel(k));
	must(clReleaseKernel(k2));
	must(clReleaseMemObject(m));
	must(clReleaseMemObject(m2));
}

struct worker {
	cl_command_queue queue; /* shared, or NULL */
	unsigned int seed, sum;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	cl_command_queue q =
		w->queue ? w->queue : queue_new(w->seed & 1 ? CL_QUEUE_PROFILING_ENABLE : 0);
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, w->seed);
	cl_event last = NULL, e;

	for (int i = 0; i < 150; i++) {
		switch (rand_r(&w->seed) % 8) {
		case 0:
			must(clFinish(q));
			break;
		case 1:
			if (last)
				must(clWaitForEvents(1, &last));
			break;
		case 2:
			must(clFlush(q));
			break;
		default:
			break;
		}
		go(q, k, last ? 1 : 0, last ? &last : NULL, &e);
		if (last)
			must(clReleaseEvent(last));
		last = e;
	}
	must(clWaitForEvents(1, &last));
	must(clReleaseEvent(last));
	w->sum = sum(q, m);
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
	if (!w->queue)
		must(clReleaseCommandQueue(q));
	return NULL;
}

static void threads(void)
{
	pthread_t thread[6];
	struct worker w[6];

	for (int shared = 0; shared < 3; shared++) {
		cl_command_queue q = NULL;

		if (shared)
			q = queue_new(shared == 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
		for (unsigned int i = 0; i < 6; i++) {
			w[i] = (struct worker){ .queue = q, .seed = i + 1 };
			pthread_create(&thread[i], NULL, work, &w[i]);
		}
		for (int i = 0; i < 6; i++) {
			pthread_join(thread[i], NULL);
			say("mode %d thread %d sum %08x", shared, i, w[i].sum);
		}
		if (q)
			must(clReleaseCommandQueue(q));
	}
}

/*
 * Does only the program refer to a queue, once all has completed? Commands that have just completed
 * keep theirs for a moment, and PoCL itself holds one.
 */
static const char *references(cl_command_queue q)
{
	cl_uint refs = 0;

	for (int j = 0; j < 3000; j++) {
		usleep(1000);
		must(clGetCommandQueueInfo(q, CL_QUEUE_REFERENCE_COUNT, sizeof(refs), &refs, NULL));
		if (refs <= 2)
			return "few";
	}
	return "many";
}

/* The program says by clFinish that all has ended while a layer is about to find that out. */
static void finished_meanwhile(void)
{
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3);
	cl_command_queue q = queue_new(0);

	for (int i = 0; i < 40; i++) {
		go(q, k, 0, NULL, NULL);
		must(clFinish(q));
	}
	for (int i = 0; i < 4; i++) {
		go(q, k, 0, NULL, NULL);
		must(clFlush(q));
		usleep(20000);
		must(clFinish(q));
		usleep(60000);
		say("queue references %s", references(q));
	}
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
	must(clReleaseCommandQueue(q));
}

static void contexts(void)
{
	for (int i = 0; i < 4; i++) {
		cl_int err;
		cl_context c = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
		cl_program p;
		cl_kernel k;
		cl_mem m;
		cl_command_queue q;
		cl_uint refs, host[N], seven = 7;

		must(err);
		p = build(c);
		k = clCreateKernel(p, "advance", &err);
		must(err);
		m = buffer_new(c);
		q = clCreateCommandQueue(c, device, 0, &err);
		must(err);
		must(clSetKernelArg(k, 0, sizeof(m), &m));
		must(clSetKernelArg(k, 1, sizeof(seven), &seven));
		for (int j = 0; j < 20; j++)
			go(q, k, 0, NULL, NULL);
		must(clEnqueueReadBuffer(q, m, CL_TRUE, 0, sizeof(host), host, 0, NULL, NULL));
		must(clFinish(q));
		must(clGetContextInfo(c, CL_CONTEXT_REFERENCE_COUNT, sizeof(refs), &refs, NULL));
		say("context %d sum %08x", i, sum_of(host));
		say("queue references %s", references(q));
		must(clRetainCommandQueue(q));
		must(clReleaseCommandQueue(q));
		must(clReleaseKernel(k));
		must(clReleaseProgram(p));
		must(clReleaseMemObject(m));
		must(clReleaseCommandQueue(q));
		say("last release of the context %d", clReleaseContext(c));
	}
}

static atomic_int called;
static int chained;
static pthread_mutex_t chain_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t chain_moved = PTHREAD_COND_INITIALIZER;

static void CL_CALLBACK count(cl_event e, cl_int status, void *arg)
{
	(void)e;
	(void)arg;
	if (status == CL_COMPLETE)
		atomic_fetch_add(&called, 1);
}

/*
 * A program that never waits in OpenCL: completions wake its own thread. (To enqueue in the
 * callback itself hangs PoCL 3.1 now and then.)
 */
static void CL_CALLBACK moved(cl_event e, cl_int status, void *arg)
{
	(void)e;
	(void)arg;
	pthread_mutex_lock(&chain_lock);
	chained += status == CL_COMPLETE;
	pthread_cond_signal(&chain_moved);
	pthread_mutex_unlock(&chain_lock);
}

static void callbacks(void)
{
	cl_command_queue q = queue_new(0);
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3);
	cl_event e;

	atomic_store(&called, 0);
	for (int i = 0; i < 200; i++) {
		go(q, k, 0, NULL, &e);
		must(clSetEventCallback(e, CL_COMPLETE, count, NULL));
		must(clReleaseEvent(e));
	}
	must(clFinish(q));
	for (int i = 0; i < 5000 && atomic_load(&called) < 200; i++)
		usleep(1000); /* callbacks may come after clFinish */
	say("callbacks %d", atomic_load(&called));
	chained = 0;
	for (int i = 0; i < 50; i++) {
		go(q, k, 0, NULL, &e);
		must(clSetEventCallback(e, CL_COMPLETE, moved, NULL));
		must(clFlush(q));
		pthread_mutex_lock(&chain_lock);
		while (chained <= i)
			pthread_cond_wait(&chain_moved, &chain_lock);
		pthread_mutex_unlock(&chain_lock);
		must(clReleaseEvent(e));
	}
	say("chained %d sum %08x", chained, sum(q, m));
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
	must(clReleaseCommandQueue(q));
}

static int (*double_running)(int engine);
static atomic_int native_calls, without_permit;

static void note_permit(void)
{
	atomic_fetch_add(&native_calls, 1);
	if (double_running && double_running(0) < 1)
		atomic_fetch_add(&without_permit, 1);
}

static void CL_CALLBACK native(void *args)
{
	int *x = *(int **)args;

	note_permit();
	(*x)++;
}

static void native_kernels(void)
{
	cl_device_exec_capabilities can = 0;
	cl_command_queue q = queue_new(0), o = queue_new(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	int x = 0, y = 0, *px = &x, *py = &y;
	cl_event u, done;

	must(clGetDeviceInfo(device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof(can), &can, NULL));
	if (!(can & CL_EXEC_NATIVE_KERNEL)) {
		say("not supported");
		goto out;
	}
	double_running = (int (*)(int))dlsym(RTLD_DEFAULT, "rtxg_double_running");
	atomic_store(&native_calls, 0);
	atomic_store(&without_permit, 0);
	done = user_new();
	must(clSetUserEventStatus(done, CL_COMPLETE));
	for (int i = 0; i < 400; i++) {
		/* A list without a count may be refused, but does not pass without a permit. */
		clEnqueueNativeKernel(q, native, &px, sizeof(px), 0, NULL, NULL, 0,
				      i % 3 ? NULL : &done, NULL);
		if (i % 7 == 0)
			must(clFinish(q));
	}
	for (int i = 0; i < 40; i++) {
		u = user_new();
		must(clEnqueueNativeKernel(o, native, &py, sizeof(py), 0, NULL, NULL, 1, &u, NULL));
		must(clFlush(o));
		usleep(300);
		must(clSetUserEventStatus(u, CL_COMPLETE));
		must(clFinish(o));
		must(clReleaseEvent(u));
	}
	must(clFinish(q));
	must(clReleaseEvent(done));
	say("native calls %d, x %d, y %d, without a permit %d", atomic_load(&native_calls), x, y,
	    atomic_load(&without_permit));
out:
	must(clReleaseCommandQueue(q));
	must(clReleaseCommandQueue(o));
}

/*
 * A command that is held back, behind one that the layer has no event of. Looks at what has
 * completed, as the program does at any time: while a command runs, its permit is not given back.
 */
static void CL_CALLBACK looks(void *args)
{
	cl_event looked_at = *(cl_event *)args;
	cl_int status;

	for (int i = 0; i < 3; i++)
		must(clGetEventInfo(looked_at, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status),
				    &status, NULL));
	note_permit();
}

static void held_behind(void)
{
	cl_device_exec_capabilities can = 0;
	cl_command_queue q = queue_new(0);
	int x = 0, *px = &x;
	cl_event u;

	must(clGetDeviceInfo(device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof(can), &can, NULL));
	if (!(can & CL_EXEC_NATIVE_KERNEL)) {
		say("not supported");
		goto out;
	}
	double_running = (int (*)(int))dlsym(RTLD_DEFAULT, "rtxg_double_running");
	atomic_store(&native_calls, 0);
	atomic_store(&without_permit, 0);
	for (int i = 0; i < 50; i++) {
		u = user_new();
		must(clEnqueueNativeKernel(q, native, &px, sizeof(px), 0, NULL, NULL, 0, NULL,
					   NULL));
		must(clEnqueueNativeKernel(q, looks, &u, sizeof(u), 0, NULL, NULL, 1, &u, NULL));
		must(clSetUserEventStatus(u, CL_COMPLETE));
		must(clFinish(q));
		must(clReleaseEvent(u));
	}
	say("native calls %d, without a permit %d", atomic_load(&native_calls),
	    atomic_load(&without_permit));
out:
	must(clReleaseCommandQueue(q));
}

/* A native kernel that goes on until it is told to end, and asks for its permit then. */
struct lingering {
	atomic_int begun, may_end;
};

static void CL_CALLBACK lingers(void *args)
{
	struct lingering *l = *(struct lingering **)args;

	atomic_store(&l->begun, 1);
	while (!atomic_load(&l->may_end))
		usleep(100);
	note_permit();
}

static void linger(cl_command_queue q, struct lingering *l)
{
	atomic_store(&l->begun, 0);
	atomic_store(&l->may_end, 0);
	must(clEnqueueNativeKernel(q, lingers, &l, sizeof(l), 0, NULL, NULL, 0, NULL, NULL));
}

/*
 * A command fails, by the user event that it waits for, while one before it in its queue runs. PoCL
 * lets what is enqueued from then on run beside that one. Neither end says that the first has
 * ended: its permit is not given back. (PoCL looks at the failed command again behind the end of
 * the first, so the program keeps its event.)
 */
static void failed_early(void)
{
	cl_device_exec_capabilities can = 0;
	cl_command_queue q = queue_new(0);
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3);
	struct lingering l;
	cl_event u, failed, behind[2];

	must(clGetDeviceInfo(device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof(can), &can, NULL));
	if (!(can & CL_EXEC_NATIVE_KERNEL)) {
		say("not supported");
		goto out;
	}
	double_running = (int (*)(int))dlsym(RTLD_DEFAULT, "rtxg_double_running");
	atomic_store(&native_calls, 0);
	atomic_store(&without_permit, 0);
	for (int i = 0; i < 40; i++) {
		/* without an event of the layer's, once it is known to be short */
		atomic_store(&l.may_end, 1);
		for (int j = 0; j < 20 * !i; j++) {
			struct lingering *p = &l;

			must(clEnqueueNativeKernel(q, lingers, &p, sizeof(p), 0, NULL, NULL, 0,
						   NULL, NULL));
			must(clFinish(q));
		}
		u = user_new();
		linger(q, &l);
		go(q, k, 1, &u, &failed);
		must(clFlush(q));
		while (!atomic_load(&l.begun))
			usleep(100);
		must(clSetUserEventStatus(u, -7));
		for (int j = 0; j < 2 * (i & 1); j++)
			go(q, k, 0, NULL, &behind[j]);
		must(clFlush(q));
		for (int j = 0; j < 20; j++) {
			(void)status_of(failed);
			if (i & 1)
				(void)status_of(behind[1]);
			usleep(200);
		}
		atomic_store(&l.may_end, 1);
		if (i & 1)
			must(clWaitForEvents(2, behind));
		must(clFinish(q));
		if (i < 4)
			say("failed %d", status_of(failed) < 0);
		for (int j = 0; j < 2 * (i & 1); j++)
			must(clReleaseEvent(behind[j]));
		must(clReleaseEvent(u));
	}
	say("native calls %d, without a permit %d, sum %08x", atomic_load(&native_calls),
	    atomic_load(&without_permit), sum(q, m));
out:
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
	must(clReleaseCommandQueue(q));
}

static void early_release(void)
{
	for (int i = 0; i < 20; i++) {
		cl_command_queue q = queue_new(i & 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0),
				 r = queue_new(0);
		cl_mem m = buffer_new(context);
		cl_kernel k = kernel_new("slow", m, 500);
		cl_event e;

		for (int j = 0; j < 4; j++)
			go(q, k, 0, NULL, NULL);
		go(q, k, 0, NULL, &e);
		must(clFlush(q));
		must(clReleaseKernel(k));
		must(clReleaseCommandQueue(q));
		must(clWaitForEvents(1, &e));
		if (i % 5 == 0)
			say("status %d references %u", status_of(e), refs_of(e));
		must(clReleaseEvent(e));
		must(clReleaseMemObject(m));
		must(clReleaseCommandQueue(r));
	}
}

#define ROUNDS 1500

static cl_command_queue shared_queue;
static atomic_uint shared_round, arrived, released;

static void release_together(unsigned int round)
{
	atomic_fetch_add(&arrived, 1);
	while (atomic_load(&arrived) < 2 * round)
		;
	must(clReleaseCommandQueue(shared_queue));
	atomic_fetch_add(&released, 1);
}

static void *second_release(void *arg)
{
	(void)arg;
	for (unsigned int round = 1; round <= ROUNDS; round++) {
		while (atomic_load(&shared_round) < round)
			usleep(1);
		release_together(round);
	}
	return NULL;
}

/*
 * Two threads drop the last two references to a queue at the same moment. A layer in which neither
 * finds its own the last would never hear of the end of what is in the queue.
 */
static void released_by_two(void)
{
	int (*running)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "rtxg_double_running");
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("advance", m, 3);
	cl_command_queue q = queue_new(0);
	pthread_t thread;

	for (int i = 0; i < 40; i++) {
		go(q, k, 0, NULL, NULL);
		must(clFinish(q));
	}
	must(pthread_create(&thread, NULL, second_release, NULL));
	for (unsigned int round = 1; round <= ROUNDS; round++) {
		shared_queue = queue_new(0);
		must(clRetainCommandQueue(shared_queue));
		for (int i = 0; i < 3; i++)
			go(shared_queue, k, 0, NULL, NULL);
		must(clFlush(shared_queue));
		atomic_store(&shared_round, round);
		release_together(round);
		while (atomic_load(&released) < 2 * round || (running && running(0)))
			usleep(200);
	}
	must(pthread_join(thread, NULL));
	say("done");
	must(clReleaseKernel(k));
	must(clReleaseMemObject(m));
	must(clReleaseCommandQueue(q));
}

static void copies(void)
{
	cl_command_queue q = queue_new(0);
	cl_mem a = buffer_new(context), b = buffer_new(context), image, image2;
	cl_uint host[N], pattern = 0xdeadbeef;
	size_t zero[3] = { 0, 0, 0 }, region[3] = { 64, 16, 1 }, brow[3] = { 64, 4, 1 }, row, slice,
	       one[3] = { 4, 4, 1 };
	cl_image_format format = { CL_RGBA, CL_UNSIGNED_INT8 };
	cl_image_desc desc = { .image_type = CL_MEM_OBJECT_IMAGE2D,
			       .image_width = 64,
			       .image_height = 16 };
	cl_uint colour[4] = { 1, 2, 3, 4 };
	cl_int err;
	cl_kernel k = kernel_new("one", a, 0);
	cl_event e;
	cl_uint *map;

	must(clEnqueueFillBuffer(q, a, &pattern, sizeof(pattern), 64, 1024, 0, NULL, NULL));
	must(clEnqueueTask(q, k, 0, NULL, NULL));
	must(clEnqueueCopyBuffer(q, a, b, 0, 128, 2048, 0, NULL, &e));
	say("buffers %08x %08x", sum(q, a), sum(q, b));
	must(clReleaseEvent(e));
	must(clEnqueueCopyBufferRect(q, a, b, zero, one, brow, 64, 0, 64, 0, 0, NULL, NULL));
	must(clEnqueueWriteBufferRect(q, a, CL_TRUE, zero, zero, brow, 64, 0, 64, 0,
				      memset(host, 0x5a, sizeof(host)), 0, NULL, NULL));
	must(clEnqueueReadBufferRect(q, b, CL_TRUE, zero, zero, brow, 64, 0, 64, 0, host, 0, NULL,
				     NULL));
	say("rectangles %08x %08x %08x", sum(q, a), sum(q, b), sum_of(host));
	say("migrate %d %d", clEnqueueMigrateMemObjects(q, 1, &a, 0, 0, NULL, NULL),
	    clEnqueueMigrateMemObjects(q, 1, &a, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL));
	image = clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &err);
	image2 = clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &err);
	if (!err) {
		for (cl_uint i = 0; i < N; i++)
			host[i] = i * 77;
		must(clEnqueueWriteImage(q, image, CL_FALSE, zero, region, 0, 0, host, 0, NULL,
					 NULL));
		must(clEnqueueFillImage(q, image, colour, zero, one, 0, NULL, NULL));
		must(clEnqueueCopyImage(q, image, image2, zero, zero, region, 0, NULL, NULL));
		must(clEnqueueCopyImageToBuffer(q, image2, a, zero, region, 0, 0, NULL, NULL));
		must(clEnqueueCopyBufferToImage(q, b, image2, 0, zero, one, 0, NULL, NULL));
		must(clFinish(q));
		memset(host, 0, sizeof(host));
		must(clEnqueueReadImage(q, image2, CL_TRUE, zero, region, 0, 0, host, 0, NULL,
					NULL));
		say("images %08x %08x", sum_of(host), sum(q, a));
		map = clEnqueueMapImage(q, image2, CL_TRUE, CL_MAP_READ, zero, region, &row, &slice,
					0, NULL, NULL, &err);
		must(err);
		say("mapped image row %zu first %08x last %08x", row, map[0], map[1023]);
		must(clEnqueueUnmapMemObject(q, image2, map, 0, NULL, NULL));
		must(clFinish(q));
		must(clReleaseMemObject(image));
		must(clReleaseMemObject(image2));
	}
	must(clReleaseKernel(k));
	must(clReleaseMemObject(a));
	must(clReleaseMemObject(b));
	must(clReleaseCommandQueue(q));
}

static void CL_CALLBACK svm_freed(cl_command_queue q, cl_uint n, void *ptrs[], void *arg)
{
	(void)q;
	for (cl_uint i = 0; i < n; i++)
		clSVMFree(context, ptrs[i]);
	*(atomic_int *)arg = 1;
}

static void svm(void)
{
	cl_device_svm_capabilities can = 0;
	cl_command_queue q = queue_new(0);
	cl_uint host[N], pattern = 5, *p, *r;
	static atomic_int freed;
	void *ptrs[1];
	cl_kernel k;
	cl_int err;
	cl_event u;

	if (clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof(can), &can, NULL) || !can) {
		say("not supported");
		must(clReleaseCommandQueue(q));
		return;
	}
	p = clSVMAlloc(context, CL_MEM_READ_WRITE, sizeof(host), 0);
	r = clSVMAlloc(context, CL_MEM_READ_WRITE, sizeof(host), 0);
	for (cl_uint i = 0; i < N; i++)
		host[i] = i;
	k = clCreateKernel(program, "advance", &err);
	must(err);
	must(clSetKernelArgSVMPointer(k, 0, p));
	must(clSetKernelArg(k, 1, sizeof(pattern), &pattern));
	must(clEnqueueSVMMemcpy(q, CL_TRUE, p, host, sizeof(host), 0, NULL, NULL));
	go(q, k, 0, NULL, NULL);
	must(clEnqueueSVMMemFill(q, p, &pattern, sizeof(pattern), 64, 0, NULL, NULL));
	must(clEnqueueSVMMemcpy(q, CL_FALSE, r, p, sizeof(host), 0, NULL, NULL));
	must(clEnqueueSVMMap(q, CL_TRUE, CL_MAP_READ, r, sizeof(host), 0, NULL, NULL));
	say("sum %08x", sum_of(r));
	must(clEnqueueSVMUnmap(q, r, 0, NULL, NULL));
	must(clFinish(q));
	clSVMFree(context, r);
	u = user_new();
	go(q, k, 1, &u, NULL);
	ptrs[0] = p;
	must(clEnqueueSVMFree(q, 1, ptrs, svm_freed, &freed, 0, NULL, NULL));
	say("freed early %d", atomic_load(&freed));
	must(clSetUserEventStatus(u, CL_COMPLETE));
	must(clFinish(q));
	for (int i = 0; i < 1000 && !atomic_load(&freed); i++)
		usleep(1000);
	say("freed %d", atomic_load(&freed));
	must(clReleaseEvent(u));
	must(clReleaseKernel(k));
	must(clReleaseCommandQueue(q));
}

static void sub_devices(void)
{
	cl_device_partition_property by[] = { CL_DEVICE_PARTITION_EQUALLY, 1, 0 };
	cl_device_id all[64], whole = device;
	cl_context old = context;
	cl_program old_program = program;
	cl_uint n = 0;
	cl_int err = clCreateSubDevices(device, by, 64, all, &n);

	if (err || !n) {
		say("not supported");
		return;
	}
	device = all[0];
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	must(err);
	program = build(context);
	{
		cl_command_queue q = queue_new(0);
		cl_mem m = buffer_new(context);
		cl_kernel k = kernel_new("advance", m, 3);

		for (int i = 0; i < 10; i++)
			go(q, k, 0, NULL, NULL);
		say("sum %08x", sum(q, m));
		must(clReleaseKernel(k));
		must(clReleaseMemObject(m));
		must(clReleaseCommandQueue(q));
	}
	must(clReleaseProgram(program));
	must(clReleaseContext(context));
	for (cl_uint i = 0; i < n; i++)
		must(clReleaseDevice(all[i]));
	device = whole;
	context = old;
	program = old_program;
}

/* Not among "all": each ends the process. */
static void ends_without_releasing(void)
{
	cl_command_queue q = queue_new(0), r = queue_new(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("slow", m, 20000);
	cl_event u = user_new();

	for (int i = 0; i < 100; i++)
		go(q, k, 0, NULL, NULL);
	go(r, k, 1, &u, NULL);
	must(clFlush(q));
	must(clFlush(r));
	say("leaving");
	_exit(7);
}

static void returns_without_releasing(void)
{
	cl_command_queue q = queue_new(0);
	cl_mem m = buffer_new(context);
	cl_kernel k = kernel_new("slow", m, 1000);

	for (int i = 0; i < 20; i++)
		go(q, k, 0, NULL, NULL);
	say("sum %08x", sum(q, m));
	exit(7);
}

static void setup(void)
{
	cl_int err;

	must(clGetPlatformIDs(1, &platform, NULL));
	must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	must(err);
	program = build(context);
}

/* The loader and the layer are there before fork, the device is used after it: in both. */
static void forks(void)
{
	cl_uint n;
	pid_t pid;
	int status;

	clGetPlatformIDs(0, NULL, &n);
	for (int i = 0; i < 2; i++) {
		fflush(stdout);
		pid = fork();
		if (!pid) {
			setup();
			in_order();
			_exit(3);
		}
		waitpid(pid, &status, 0);
		say("child ended %d with %d", WIFEXITED(status), WEXITSTATUS(status));
	}
	setup();
	in_order();
	/* A child that only goes on to another program, as shells and system() do. */
	fflush(stdout);
	pid = fork();
	if (!pid) {
		execlp("true", "true", NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	say("exec after use: %d %d", WIFEXITED(status), WEXITSTATUS(status));
	/* A child that just ends, with its parent's commands on their way. */
	{
		cl_command_queue q = queue_new(0);
		cl_mem m = buffer_new(context);
		cl_kernel k = kernel_new("slow", m, 5000);

		for (int i = 0; i < 20; i++)
			go(q, k, 0, NULL, NULL);
		pid = fork();
		if (!pid)
			_exit(4);
		waitpid(pid, &status, 0);
		say("child ended %d with %d; parent's sum %08x", WIFEXITED(status),
		    WEXITSTATUS(status), sum(q, m));
	}
}

static const struct {
	const char *name;
	void (*run)(void);
	int alone; /* sets up for itself, or does not return */
} cases[] = {
	{ "in_order", in_order, 0 },
	{ "out_of_order", out_of_order, 0 },
	{ "user_event", user_event, 0 },
	{ "queued", queued, 0 },
	{ "unwaited", unwaited, 0 },
	{ "failed_before", failed_before, 0 },
	{ "later_frees_earlier", later_frees_earlier, 0 },
	{ "blocking", blocking, 0 },
	{ "profiling", profiling, 0 },
	{ "errors", errors, 0 },
	{ "failed_calls", failed_calls, 0 },
	{ "failed_behind", failed_behind, 0 },
	{ "odd_lists", odd_lists, 0 },
	{ "markers", markers, 0 },
	{ "marker_lists", marker_lists, 0 },
	{ "marker_beside", marker_beside, 0 },
	{ "threads", threads, 0 },
	{ "contexts", contexts, 0 },
	{ "finished_meanwhile", finished_meanwhile, 0 },
	{ "callbacks", callbacks, 0 },
	{ "native_kernels", native_kernels, 0 },
	{ "held_behind", held_behind, 0 },
	{ "failed_early", failed_early, 0 },
	{ "early_release", early_release, 0 },
	{ "released_by_two", released_by_two, 1 },
	{ "copies", copies, 0 },
	{ "svm", svm, 0 },
	{ "sub_devices", sub_devices, 0 },
	{ "ends_without_releasing", ends_without_releasing, 1 },
	{ "returns_without_releasing", returns_without_releasing, 1 },
	{ "forks", forks, 2 },
};

int main(int argc, char **argv)
{
	unsigned int ran = 0;
	int ready = 0;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
			puts(cases[i].name);
		return 0;
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int wanted = argc == 1 && !cases[i].alone;

		for (int a = 1; a < argc; a++)
			wanted |= !strcmp(argv[a], cases[i].name);
		if (!wanted)
			continue;
		current = cases[i].name;
		if (cases[i].alone != 2 && !ready) {
			setup();
			ready = 1;
		}
		cases[i].run();
		ran++;
	}
	if (!ran) {
		fprintf(stderr, "semantics: no such case; --list shows them\n");
		return 2;
	}
	return 0;
}
