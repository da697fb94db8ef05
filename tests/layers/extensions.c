// SPDX-License-Identifier: MIT
/*
 * extensions.c - a program that enqueues by functions of extensions, which it asks its platform
 * for. It prints what came of it, the same with the layer and without. "no extension" where there
 * is none.
 *
 * Usage: extensions CASE. There is one exception to knowing nothing of rtxg: if the test double is
 * loaded, some cases ask whether a launch is outstanding.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_egl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE 4096

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;

static void must(cl_int err, const char *what)
{
	if (err) {
		printf("%s: %d\n", what, err);
		fflush(stdout);
		_exit(1);
	}
}

static void *function(const char *name)
{
	void *f = clGetExtensionFunctionAddressForPlatform(platform, name);

	if (!f) {
		puts("no extension");
		exit(0);
	}
	return f;
}

static cl_command_queue queue_new(void)
{
	cl_int err;
	cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, NULL, &err);

	must(err, "clCreateCommandQueueWithProperties");
	return queue;
}

/* Memory that the program sees without a copy. */
static cl_mem buffer_new(void *host)
{
	cl_int err;
	cl_mem buffer =
		clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, SIZE, host, &err);

	must(err, "clCreateBuffer");
	return buffer;
}

static void fill(cl_command_queue queue, cl_mem buffer, cl_uint value, cl_uint n,
		 const cl_event *list, cl_event *event)
{
	must(clEnqueueFillBuffer(queue, buffer, &value, sizeof(value), 0, SIZE, n, list, event),
	     "clEnqueueFillBuffer");
}

/* Whether a permit is held for the engine that computes; always false without the test double. */
static int permit_held(void)
{
	int (*running)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "rtxg_double_running");

	return running && running(0);
}

static void queue(void)
{
	clCreateCommandQueueWithPropertiesKHR_fn create =
		(clCreateCommandQueueWithPropertiesKHR_fn)function(
			"clCreateCommandQueueWithPropertiesKHR");
	static cl_uint host[SIZE / sizeof(cl_uint)];
	cl_mem buffer = buffer_new(host);
	cl_command_queue q;
	cl_int err;

	q = create(context, device, NULL, &err);
	must(err, "clCreateCommandQueueWithPropertiesKHR");
	for (cl_uint i = 0; i < 10; i++)
		fill(q, buffer, i, 0, NULL, NULL);
	must(clFinish(q), "clFinish");
	puts("10 commands");
	clReleaseMemObject(buffer);
	clReleaseCommandQueue(q);
}

static void command_buffer(void)
{
	clCreateCommandBufferKHR_fn create =
		(clCreateCommandBufferKHR_fn)function("clCreateCommandBufferKHR");
	clCommandFillBufferKHR_fn record =
		(clCommandFillBufferKHR_fn)function("clCommandFillBufferKHR");
	clFinalizeCommandBufferKHR_fn finalize =
		(clFinalizeCommandBufferKHR_fn)function("clFinalizeCommandBufferKHR");
	clEnqueueCommandBufferKHR_fn enqueue =
		(clEnqueueCommandBufferKHR_fn)function("clEnqueueCommandBufferKHR");
	clReleaseCommandBufferKHR_fn release =
		(clReleaseCommandBufferKHR_fn)function("clReleaseCommandBufferKHR");
	static cl_uint host[SIZE / sizeof(cl_uint)];
	cl_command_queue q = queue_new();
	cl_mem buffer = buffer_new(host);
	cl_command_buffer_khr commands;
	cl_uint value = 7;
	cl_event event;
	cl_int err;

	commands = create(1, &q, NULL, &err);
	must(err, "clCreateCommandBufferKHR");
	must(record(commands, NULL, buffer, &value, sizeof(value), 0, SIZE, 0, NULL, NULL, NULL),
	     "clCommandFillBufferKHR");
	must(finalize(commands), "clFinalizeCommandBufferKHR");
	/* without naming a queue, with one, behind an event, and with an event */
	must(enqueue(0, NULL, commands, 0, NULL, &event), "clEnqueueCommandBufferKHR");
	must(clWaitForEvents(1, &event), "clWaitForEvents");
	must(enqueue(1, &q, commands, 1, &event, NULL), "clEnqueueCommandBufferKHR");
	must(clFinish(q), "clFinish");
	for (int i = 0; i < 20; i++) {
		must(enqueue(0, NULL, commands, 0, NULL, NULL), "clEnqueueCommandBufferKHR");
		must(clFinish(q), "clFinish");
	}
	printf("filled with %u\n", host[SIZE / sizeof(cl_uint) - 1]);
	clReleaseEvent(event);
	must(release(commands), "clReleaseCommandBufferKHR");
	clReleaseMemObject(buffer);
	clReleaseCommandQueue(q);
}

static void usm(void)
{
	clEnqueueMemcpyINTEL_fn copy = (clEnqueueMemcpyINTEL_fn)function("clEnqueueMemcpyINTEL");
	clEnqueueMemFillINTEL_fn mem_fill =
		(clEnqueueMemFillINTEL_fn)function("clEnqueueMemFillINTEL");
	clEnqueueMemsetINTEL_fn set = (clEnqueueMemsetINTEL_fn)function("clEnqueueMemsetINTEL");
	clEnqueueMemAdviseINTEL_fn advise =
		(clEnqueueMemAdviseINTEL_fn)function("clEnqueueMemAdviseINTEL");
	cl_uint *a = clSVMAlloc(context, CL_MEM_READ_WRITE, SIZE, 0);
	cl_uint *b = clSVMAlloc(context, CL_MEM_READ_WRITE, SIZE, 0);
	cl_command_queue q = queue_new();
	cl_uint value = 9;
	cl_event event;

	must(mem_fill(q, a, &value, sizeof(value), SIZE, 0, NULL, &event), "clEnqueueMemFillINTEL");
	must(advise(q, a, SIZE, 0, 1, &event, NULL), "clEnqueueMemAdviseINTEL");
	must(copy(q, CL_TRUE, b, a, SIZE, 1, &event, NULL), "clEnqueueMemcpyINTEL");
	printf("copied %u\n", b[5]);
	must(set(q, b, 1, SIZE, 0, NULL, NULL), "clEnqueueMemsetINTEL");
	must(copy(q, CL_FALSE, a, b, SIZE, 0, NULL, NULL), "clEnqueueMemcpyINTEL");
	must(clFinish(q), "clFinish");
	printf("copied %u\n", a[5]);
	clReleaseEvent(event);
	clSVMFree(context, a);
	clSVMFree(context, b);
	clReleaseCommandQueue(q);
}

static void arm_svm(void)
{
	cl_int(CL_API_CALL * copy)(cl_command_queue, cl_bool, void *, const void *, size_t, cl_uint,
				   const cl_event *, cl_event *) =
		(cl_int(CL_API_CALL *)(cl_command_queue, cl_bool, void *, const void *, size_t,
				       cl_uint, const cl_event *,
				       cl_event *))function("clEnqueueSVMMemcpyARM");
	cl_uint *a = clSVMAlloc(context, CL_MEM_READ_WRITE, SIZE, 0);
	cl_uint *b = clSVMAlloc(context, CL_MEM_READ_WRITE, SIZE, 0);
	cl_command_queue q = queue_new();

	for (size_t i = 0; i < SIZE / sizeof(*a); i++)
		a[i] = (cl_uint)i;
	must(copy(q, CL_TRUE, b, a, SIZE, 0, NULL, NULL), "clEnqueueSVMMemcpyARM");
	printf("copied %u\n", b[500]);
	clSVMFree(context, a);
	clSVMFree(context, b);
	clReleaseCommandQueue(q);
}

/* A command stands behind a wait for what only this program can bring about, later. */
static void semaphores(void)
{
	clCreateSemaphoreWithPropertiesKHR_fn create =
		(clCreateSemaphoreWithPropertiesKHR_fn)function(
			"clCreateSemaphoreWithPropertiesKHR");
	clEnqueueWaitSemaphoresKHR_fn wait =
		(clEnqueueWaitSemaphoresKHR_fn)function("clEnqueueWaitSemaphoresKHR");
	clEnqueueSignalSemaphoresKHR_fn signal =
		(clEnqueueSignalSemaphoresKHR_fn)function("clEnqueueSignalSemaphoresKHR");
	clReleaseSemaphoreKHR_fn release =
		(clReleaseSemaphoreKHR_fn)function("clReleaseSemaphoreKHR");
	static cl_uint host[2][SIZE / sizeof(cl_uint)];
	cl_mem first = buffer_new(host[0]), second = buffer_new(host[1]);
	cl_command_queue waits = queue_new(), signals = queue_new();
	cl_semaphore_khr semaphore;
	cl_event event;
	cl_int err;

	for (cl_uint round = 1; round <= 20; round++) {
		semaphore = create(context, NULL, &err);
		must(err, "clCreateSemaphoreWithPropertiesKHR");
		must(wait(waits, 1, &semaphore, NULL, 0, NULL, round % 2 ? &event : NULL),
		     "clEnqueueWaitSemaphoresKHR");
		fill(waits, first, round, 0, NULL, NULL);
		must(clFlush(waits), "clFlush");
		if (round == 1)
			printf("permit held while it waits: %d\n", permit_held());
		fill(signals, second, round, 0, NULL, NULL);
		must(clFinish(signals), "clFinish");
		if (round == 1)
			printf("%u behind the semaphore, %u beside it\n", host[0][0], host[1][0]);
		must(signal(signals, 1, &semaphore, NULL, 0, NULL, NULL),
		     "clEnqueueSignalSemaphoresKHR");
		must(clFinish(waits), "clFinish");
		if (round % 2)
			clReleaseEvent(event);
		must(release(semaphore), "clReleaseSemaphoreKHR");
	}
	printf("%u behind the semaphore\n", host[0][0]);
	err = wait(waits, 0, NULL, NULL, 0, NULL, NULL);
	printf("without a semaphore: %s\n", err ? "refused" : "taken");
	fill(waits, first, 77, 0, NULL, NULL);
	must(clFinish(waits), "clFinish");
	printf("%u behind the refused call\n", host[0][0]);
	clReleaseMemObject(first);
	clReleaseMemObject(second);
	clReleaseCommandQueue(waits);
	clReleaseCommandQueue(signals);
}

/* The same with an event of another API. */
static void sync_object(void)
{
	clCreateEventFromEGLSyncKHR_fn create =
		(clCreateEventFromEGLSyncKHR_fn)function("clCreateEventFromEGLSyncKHR");
	cl_int(CL_API_CALL * set)(cl_event) =
		(cl_int(CL_API_CALL *)(cl_event))function("clSetSyncTEST");
	static cl_uint host[SIZE / sizeof(cl_uint)];
	cl_mem buffer = buffer_new(host);
	cl_command_queue q = queue_new();
	cl_event sync, event;
	cl_int err;

	event = create(context, (CLeglSyncKHR)&sync, NULL, &err);
	must(err, "clCreateEventFromEGLSyncKHR");
	fill(q, buffer, 3, 1, &event, NULL);
	must(clFlush(q), "clFlush");
	printf("permit held while it waits: %d\n", permit_held());
	must(set(sync), "clSetSyncTEST");
	must(clFinish(q), "clFinish");
	printf("%u behind the event\n", host[0]);
	clReleaseEvent(event);
	clReleaseMemObject(buffer);
	clReleaseCommandQueue(q);
}

static long resident_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size, resident = 0;

	if (f && fscanf(f, "%ld %ld", &size, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Made and released, never set. */
static void user_events(void)
{
	cl_uint references = 0;
	cl_event event;
	long before = 0;
	cl_int err;

	for (int i = 0; i < 60000; i++) {
		if (i == 10000)
			before = resident_kib();
		event = clCreateUserEvent(context, &err);
		must(err, "clCreateUserEvent");
		if (i % 3 == 0) {
			must(clRetainEvent(event), "clRetainEvent");
			must(clReleaseEvent(event), "clReleaseEvent");
		}
		if (!i)
			clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof(references),
				       &references, NULL);
		must(clReleaseEvent(event), "clReleaseEvent");
	}
	printf("%u reference\n", references);
	printf("memory grew: %s\n", resident_kib() - before > 4096 ? "yes" : "no");
}

/* A call of an extension that came later than the layer. */
static void unheard_of(void)
{
	clEnqueueAcquireExternalMemObjectsKHR_fn call =
		(clEnqueueAcquireExternalMemObjectsKHR_fn)function("clEnqueueUnheardOfTEST");
	cl_command_queue q = queue_new();

	must(call(q, 0, NULL, 0, NULL, NULL), "clEnqueueUnheardOfTEST");
	must(clFinish(q), "clFinish");
	puts("enqueued");
	clReleaseCommandQueue(q);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "queue", queue },
		{ "command_buffer", command_buffer },
		{ "usm", usm },
		{ "arm_svm", arm_svm },
		{ "semaphores", semaphores },
		{ "sync_object", sync_object },
		{ "user_events", user_events },
		{ "unheard_of", unheard_of },
	};
	cl_int err;

	if (clGetPlatformIDs(1, &platform, NULL) ||
	    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL))
		return 1;
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	must(err, "clCreateContext");
	for (size_t i = 0; argc == 2 && i < sizeof(cases) / sizeof(cases[0]); i++)
		if (!strcmp(cases[i].name, argv[1])) {
			cases[i].run();
			clReleaseContext(context);
			return 0;
		}
	fprintf(stderr, "Usage: extensions CASE\n");
	return 2;
}
