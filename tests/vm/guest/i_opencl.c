// SPDX-License-Identifier: MIT
/*
 * i_opencl.c - SCHED_DEADLINE tasks that wait for their GPU in OpenCL, under rtxg's layer: what the
 * waits cost them, in counted instructions.
 *
 * The layer is the real one, under the real module. The vendor is a small one, on the tests'
 * accelerator: a device, in-order queues, kernels of one length, copies of none, events. Who waits
 * for a kernel sleeps in its driver. The test gives its table to the layer, as an OpenCL loader
 * does.
 */
#include "deadline.h"

#include <stdatomic.h>

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_layer.h>

/* ---- the vendor ---- */

#define WAITS 4

/* A command, or a user event. */
struct command {
	struct command *next; /* held back, in order */
	struct command *waits[WAITS];
	unsigned int waits_count;
	atomic_int refs;
	bool kernel, user;
	atomic_bool begun;	   /* launched; a user event: set */
	_Atomic uint64_t sequence; /* of the kernel that completes with it, or before it */
};

struct watch {
	struct command *command;
	void(CL_CALLBACK *tell)(cl_event, cl_int, void *);
	void *argument;
};

/* OpenCL's types say nothing of what they are. */
static char platform, device, context, queue, kernel, buffer;

static struct {
	pthread_mutex_t lock;
	pthread_cond_t begun;
	int edu;
	volatile uint64_t *fence;
	uint64_t last; /* kernel that was launched */
	struct command *first, **end;
} vendor = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, -1, NULL, 0, NULL, NULL };

static struct command *command_of(cl_event event)
{
	return (struct command *)event;
}

static cl_event event_of(struct command *command)
{
	return (cl_event)command;
}

static void put(struct command *command)
{
	if (atomic_fetch_sub(&command->refs, 1) == 1)
		free(command);
}

static bool done(struct command *command)
{
	return atomic_load(&command->begun) && *vendor.fence >= atomic_load(&command->sequence);
}

/* What nothing holds back begins, and what stands behind it. The lock is held. */
static void begin(void)
{
	while (vendor.first) {
		struct command *command = vendor.first;

		for (unsigned int i = 0; i < command->waits_count; i++)
			if (!atomic_load(&command->waits[i]->begun))
				return;
		if (command->kernel)
			vendor.last = edu_launch(vendor.edu, DEADLINE_GPU_NS);
		vendor.first = command->next;
		if (!vendor.first)
			vendor.end = &vendor.first;
		atomic_store(&command->sequence, vendor.last);
		atomic_store(&command->begun, true);
		for (unsigned int i = 0; i < command->waits_count; i++)
			put(command->waits[i]);
		put(command);
	}
	pthread_cond_broadcast(&vendor.begun);
}

/* Sleeps in the vendor's driver, once the kernel is on the device. */
static void await_command(struct command *command)
{
	uint64_t sequence;

	pthread_mutex_lock(&vendor.lock);
	while (!atomic_load(&command->begun))
		pthread_cond_wait(&vendor.begun, &vendor.lock);
	pthread_mutex_unlock(&vendor.lock);
	sequence = atomic_load(&command->sequence);
	if (sequence)
		edu_sync(vendor.edu, sequence);
}

static struct command *new_command(int refs)
{
	struct command *command = calloc(1, sizeof(*command));

	atomic_store(&command->refs, refs);
	return command;
}

static cl_int enqueue(bool is_kernel, cl_bool blocking, cl_uint n, const cl_event *list,
		      cl_event *event)
{
	/* ours until it has begun, the waiter's, and the program's */
	struct command *command = new_command(2 + !!event);

	if (n > WAITS)
		return CL_OUT_OF_RESOURCES;
	command->kernel = is_kernel;
	for (cl_uint i = 0; i < n; i++) {
		command->waits[i] = command_of(list[i]);
		atomic_fetch_add(&command->waits[i]->refs, 1);
	}
	command->waits_count = n;
	if (event)
		*event = event_of(command);
	pthread_mutex_lock(&vendor.lock);
	*vendor.end = command;
	vendor.end = &command->next;
	begin();
	pthread_mutex_unlock(&vendor.lock);
	if (blocking)
		await_command(command);
	put(command);
	return CL_SUCCESS;
}

static cl_int CL_API_CALL enqueue_kernel(cl_command_queue q, cl_kernel k, cl_uint dim,
					 const size_t *offset, const size_t *global,
					 const size_t *local, cl_uint n, const cl_event *list,
					 cl_event *event)
{
	return enqueue(true, CL_FALSE, n, list, event);
}

static cl_int CL_API_CALL enqueue_read(cl_command_queue q, cl_mem from, cl_bool blocking,
				       size_t offset, size_t size, void *to, cl_uint n,
				       const cl_event *list, cl_event *event)
{
	return enqueue(false, blocking, n, list, event);
}

static cl_int CL_API_CALL enqueue_marker(cl_command_queue q, cl_uint n, const cl_event *list,
					 cl_event *event)
{
	return enqueue(false, CL_FALSE, n, list, event);
}

static cl_int CL_API_CALL finish(cl_command_queue q)
{
	return enqueue(false, CL_TRUE, 0, NULL, NULL);
}

static cl_int CL_API_CALL nothing_to_do(cl_command_queue q)
{
	return CL_SUCCESS;
}

static cl_int CL_API_CALL wait_for_events(cl_uint n, const cl_event *list)
{
	for (cl_uint i = 0; i < n; i++)
		await_command(command_of(list[i]));
	return CL_SUCCESS;
}

static cl_event CL_API_CALL create_user_event(cl_context c, cl_int *error)
{
	struct command *command = new_command(1);

	command->user = true;
	if (error)
		*error = CL_SUCCESS;
	return event_of(command);
}

static cl_int CL_API_CALL set_user_event(cl_event event, cl_int status)
{
	pthread_mutex_lock(&vendor.lock);
	atomic_store(&command_of(event)->begun, true);
	begin();
	pthread_mutex_unlock(&vendor.lock);
	return CL_SUCCESS;
}

static void *tell_of(void *argument)
{
	struct watch *watch = argument;

	await_command(watch->command);
	watch->tell(event_of(watch->command), CL_COMPLETE, watch->argument);
	put(watch->command);
	free(watch);
	return NULL;
}

static cl_int CL_API_CALL set_callback(cl_event event, cl_int status,
				       void(CL_CALLBACK *tell)(cl_event, cl_int, void *),
				       void *argument)
{
	struct watch *watch = malloc(sizeof(*watch));
	pthread_t thread;

	*watch = (struct watch){ command_of(event), tell, argument };
	atomic_fetch_add(&watch->command->refs, 1);
	if (pthread_create(&thread, NULL, tell_of, watch))
		return CL_OUT_OF_RESOURCES;
	pthread_detach(thread);
	return CL_SUCCESS;
}

static cl_int CL_API_CALL retain_event(cl_event event)
{
	atomic_fetch_add(&command_of(event)->refs, 1);
	return CL_SUCCESS;
}

static cl_int CL_API_CALL release_event(cl_event event)
{
	put(command_of(event));
	return CL_SUCCESS;
}

static cl_int answer(const void *from, size_t length, size_t size, void *to, size_t *size_ret)
{
	if (to && size < length)
		return CL_INVALID_VALUE;
	if (to)
		memcpy(to, from, length);
	if (size_ret)
		*size_ret = length;
	return CL_SUCCESS;
}

static cl_int CL_API_CALL event_info(cl_event event, cl_event_info name, size_t size, void *value,
				     size_t *size_ret)
{
	cl_command_queue of = (cl_command_queue)&queue;
	cl_int status = done(command_of(event)) ? CL_COMPLETE : CL_SUBMITTED;

	if (name == CL_EVENT_COMMAND_EXECUTION_STATUS)
		return answer(&status, sizeof(status), size, value, size_ret);
	if (name == CL_EVENT_COMMAND_QUEUE)
		return answer(&of, sizeof(of), size, value, size_ret);
	return CL_INVALID_VALUE;
}

static cl_int CL_API_CALL profiling_info(cl_event event, cl_profiling_info name, size_t size,
					 void *value, size_t *size_ret)
{
	return CL_PROFILING_INFO_NOT_AVAILABLE;
}

static cl_int CL_API_CALL queue_info(cl_command_queue q, cl_command_queue_info name, size_t size,
				     void *value, size_t *size_ret)
{
	cl_context in = (cl_context)&context;

	return name == CL_QUEUE_CONTEXT ? answer(&in, sizeof(in), size, value, size_ret)
					: CL_INVALID_VALUE;
}

static cl_int CL_API_CALL device_info(cl_device_id d, cl_device_info name, size_t size, void *value,
				      size_t *size_ret)
{
	cl_platform_id of = (cl_platform_id)&platform;

	if (name == CL_DEVICE_PLATFORM)
		return answer(&of, sizeof(of), size, value, size_ret);
	if (name == CL_DEVICE_NAME)
		return answer("edu", sizeof("edu"), size, value, size_ret);
	if (name == CL_DEVICE_VERSION)
		return answer("OpenCL 1.2", sizeof("OpenCL 1.2"), size, value, size_ret);
	return CL_INVALID_VALUE;
}

static cl_int CL_API_CALL platform_info(cl_platform_id p, cl_platform_info name, size_t size,
					void *value, size_t *size_ret)
{
	return answer("tests", sizeof("tests"), size, value, size_ret);
}

static cl_int CL_API_CALL device_ids(cl_platform_id p, cl_device_type type, cl_uint cap,
				     cl_device_id *list, cl_uint *count)
{
	return CL_DEVICE_NOT_FOUND;
}

static cl_command_queue CL_API_CALL create_queue(cl_context c, cl_device_id d,
						 cl_command_queue_properties properties,
						 cl_int *error)
{
	if (error)
		*error = CL_SUCCESS;
	return (cl_command_queue)&queue;
}

static void unknown(void)
{
	printf("    # a call of OpenCL that the vendor does not have\n");
	abort();
}

static cl_icd_dispatch vendor_table(void)
{
	void (*every[sizeof(cl_icd_dispatch) / sizeof(void *)])(void);
	cl_icd_dispatch table;

	for (size_t i = 0; i < sizeof(every) / sizeof(every[0]); i++)
		every[i] = unknown;
	_Static_assert(sizeof(table) == sizeof(every), "a table of functions");
	memcpy(&table, every, sizeof(table));
	table.clGetPlatformInfo = platform_info;
	table.clGetDeviceIDs = device_ids;
	table.clGetDeviceInfo = device_info;
	table.clCreateCommandQueue = create_queue;
	table.clRetainCommandQueue = table.clReleaseCommandQueue = table.clFlush = nothing_to_do;
	table.clGetCommandQueueInfo = queue_info;
	table.clEnqueueNDRangeKernel = enqueue_kernel;
	table.clEnqueueReadBuffer = enqueue_read;
	table.clEnqueueMarkerWithWaitList = table.clEnqueueBarrierWithWaitList = enqueue_marker;
	table.clFinish = finish;
	table.clWaitForEvents = wait_for_events;
	table.clCreateUserEvent = create_user_event;
	table.clSetUserEventStatus = set_user_event;
	table.clSetEventCallback = set_callback;
	table.clRetainEvent = retain_event;
	table.clReleaseEvent = release_event;
	table.clGetEventInfo = event_info;
	table.clGetEventProfilingInfo = profiling_info;
	return table;
}

/* ---- its users ---- */

enum wait_by { BY_FINISH, BY_EVENT, BY_READ };

struct cl_load {
	struct deadline_load load;
	const cl_icd_dispatch *cl;
	cl_command_queue queue;
	enum wait_by by;
};

/* As a program has it that knows nothing of rtxg. */
static int kernel_and_wait(void *argument)
{
	const struct cl_load *load = argument;
	cl_event event = NULL;
	const size_t one = 1;
	char byte;
	cl_int err;

	err = load->cl->clEnqueueNDRangeKernel(load->queue, (cl_kernel)&kernel, 1, NULL, &one, NULL,
					       0, NULL, load->by == BY_EVENT ? &event : NULL);
	if (err)
		return err;
	if (load->by == BY_FINISH)
		return load->cl->clFinish(load->queue);
	if (load->by == BY_READ)
		return load->cl->clEnqueueReadBuffer(load->queue, (cl_mem)&buffer, CL_TRUE, 0, 1,
						     &byte, 0, NULL, NULL);
	return load->cl->clWaitForEvents(1, &event) ?: load->cl->clReleaseEvent(event);
}

static void *cl_thread(void *argument)
{
	struct cl_load *load = argument;

	deadline_jobs(&load->load, kernel_and_wait, load);
	return NULL;
}

static void test_deadline_under_the_layer(void)
{
	static const struct {
		const char *name;
		enum wait_by by;
		bool layer;
	} cases[] = { { "opencl_unsaid", BY_FINISH, false },
		      { "opencl_finish", BY_FINISH, true },
		      { "opencl_event", BY_EVENT, true },
		      { "opencl_read", BY_READ, true } };
	static cl_icd_dispatch own;
	const cl_icd_dispatch *layer = NULL;
	char limit[32];
	cl_uint count = 0;

	vendor.edu = open_edu(0);
	vendor.fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, vendor.edu, 0);
	vendor.end = &vendor.first;
	own = vendor_table();
	if (!check(vendor.fence != MAP_FAILED &&
			   !clInitLayer(sizeof(own) / sizeof(void *), &own, &count, &layer),
		   "the layer does not begin"))
		return;
	admission_off(limit);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct cl_load load = { .by = cases[i].by, .cl = cases[i].layer ? layer : &own };
		cl_int err = CL_SUCCESS;

		load.queue = load.cl->clCreateCommandQueue((cl_context)&context,
							   (cl_device_id)&device, 0, &err);
		check(load.queue && !err, "%s: the queue: %d", cases[i].name, err);
		deadline_set(cases[i].name, &load.load, cl_thread, &load);
		if (!cases[i].layer) {
			check_unsaid(cases[i].name, &load.load);
		} else {
			check_charged(cases[i].name, &load.load, 40 * MS,
				      (forced_threads() ? 100 : 50) * MS);
			if (!forced_threads())
				check(!load.load.misses, "%s: %u misses", cases[i].name,
				      load.load.misses);
		}
		load.cl->clReleaseCommandQueue(load.queue);
	}
	admission_on(limit);
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "deadline_under_the_layer", test_deadline_under_the_layer },
	};

	load_module();
	setenv("RTXG_HOST", "module", 1);
	/* a queue that is not managed is none */
	setenv("RTXG_FAIL", "closed", 1);
	return RUN(cases);
}
