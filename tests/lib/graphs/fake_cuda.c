// SPDX-License-Identifier: MIT
/*
 * fake_cuda.c - the functions of CUDA's driver library that the programs of bench/gpu call, for
 * test_graphs.py. A stream is a thread that carries out what it was given, in its order; a kernel
 * sleeps for its time, then counts a word up ("run") or stores a number ("spin"). A graph is a list
 * of such work. While a thread captures in CUDA's own mode, calls of other threads that are not
 * safe beside it break the capture, unless they have said that they are relaxed. Never installed.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE	  4096u
#define PAGES	  64
#define OPS	  64 /* of a graph */
#define QUEUE	  4096
#define RELAXED	  2
#define INVALID	  1
#define NOT_MADE  400 /* CUDA_ERROR_INVALID_HANDLE */
#define BROKEN	  901 /* CUDA_ERROR_STREAM_CAPTURE_INVALIDATED */
#define IS_BROKEN 900 /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */

enum kind { RUN, SPIN, STORE, CALL };

struct op {
	enum kind kind;
	uint64_t ns;
	unsigned long long at;
	uint32_t value;
	void (*function)(void *);
	void *arg;
};

struct graph {
	struct op ops[OPS];
	int count;
};

struct stream {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct op queue[QUEUE];
	unsigned int put, done;
	struct graph *captures;
	pthread_t captured_by;
	bool broken;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static uintptr_t pages[PAGES];
static struct stream *capturing; /* one at a time is enough here */
static __thread int capture_mode;

/* Work that may not be done beside another thread's capture. */
static int unsafe(void)
{
	int error = 0;

	pthread_mutex_lock(&lock);
	if (capturing && capture_mode != RELAXED) {
		capturing->broken = true;
		error = IS_BROKEN;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

/* --- streams ---------------------------------------------------------------------------------- */

static void carry_out(const struct op *op)
{
	volatile uint32_t *word = (volatile uint32_t *)(uintptr_t)op->at;
	struct timespec t = { .tv_sec = (time_t)(op->ns / 1000000000u),
			      .tv_nsec = (long)(op->ns % 1000000000u) };

	nanosleep(&t, NULL);
	if (op->kind == RUN)
		__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
	else if (op->kind == CALL)
		op->function(op->arg);
	else
		__atomic_store_n(word, op->value, __ATOMIC_RELEASE);
}

static void *work(void *arg)
{
	struct stream *s = arg;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct op op;

		while (s->done == s->put)
			pthread_cond_wait(&s->changed, &s->lock);
		op = s->queue[s->done % QUEUE];
		pthread_mutex_unlock(&s->lock);
		carry_out(&op);
		pthread_mutex_lock(&s->lock);
		s->done++;
		pthread_cond_broadcast(&s->changed);
	}
	return NULL;
}

static void put(struct stream *s, const struct op *op)
{
	if (s->captures) {
		if (s->captures->count == OPS)
			abort();
		s->captures->ops[s->captures->count++] = *op;
		return;
	}
	pthread_mutex_lock(&s->lock);
	if (s->put - s->done == QUEUE)
		abort();
	s->queue[s->put++ % QUEUE] = *op;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static void wait_until(struct stream *s, unsigned int end)
{
	pthread_mutex_lock(&s->lock);
	while ((int)(s->done - end) < 0)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

int cuStreamCreate(void **stream, unsigned int flags);
int cuStreamCreate(void **stream, unsigned int flags)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s || flags != 1 || unsafe())
		return INVALID;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	*stream = s;
	return pthread_create(&s->thread, NULL, work, s);
}

int cuStreamSynchronize(struct stream *s);
int cuStreamSynchronize(struct stream *s)
{
	unsigned int end;

	if (s->captures)
		return unsafe() ?: IS_BROKEN;
	pthread_mutex_lock(&s->lock);
	end = s->put;
	pthread_mutex_unlock(&s->lock);
	wait_until(s, end);
	return 0;
}

/* --- a context, kernels, memory --------------------------------------------------------------- */

int cuInit(unsigned int flags);
int cuInit(unsigned int flags)
{
	return (int)flags;
}

int cuDeviceGet(int *device, int number);
int cuDeviceGet(int *device, int number)
{
	*device = number;
	return number ? 101 : 0;
}

int cuCtxCreate_v2(void **context, unsigned int flags, int device);
int cuCtxCreate_v2(void **context, unsigned int flags, int device)
{
	*context = &pages;
	return 0;
}

int cuCtxSetCurrent(void *context);
int cuCtxSetCurrent(void *context)
{
	return context != &pages;
}

int cuCtxGetId(void *context, unsigned long long *number);
int cuCtxGetId(void *context, unsigned long long *number)
{
	*number = 1;
	return 0;
}

int cuModuleLoadData(void **module, const void *image);
int cuModuleLoadData(void **module, const void *image)
{
	*module = &lock;
	return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name);
int cuModuleGetFunction(void **function, void *module, const char *name)
{
	static char kernels[2];

	*function = &kernels[!strcmp(name, "spin")];
	return strcmp(name, "spin") && strcmp(name, "run") ? 500 : 0;
}

static int kernel_number(const void *function)
{
	void *run;

	cuModuleGetFunction(&run, NULL, "run");
	return function == run ? RUN : SPIN;
}

int cuLaunchKernel(void *function, unsigned int x, unsigned int y, unsigned int z, unsigned int bx,
		   unsigned int by, unsigned int bz, unsigned int shared, struct stream *s,
		   void **arguments, void **extra);
int cuLaunchKernel(void *function, unsigned int x, unsigned int y, unsigned int z, unsigned int bx,
		   unsigned int by, unsigned int bz, unsigned int shared, struct stream *s,
		   void **arguments, void **extra)
{
	struct op op = { .kind = (enum kind)kernel_number(function),
			 .ns = *(uint64_t *)arguments[0],
			 .at = *(unsigned long long *)arguments[1] };

	if (op.kind == SPIN)
		op.value = *(uint32_t *)arguments[2];
	put(s, &op);
	return x * y * z * bx * by * bz != 1;
}

int cuLaunchHostFunc(struct stream *s, void (*function)(void *), void *arg);
int cuLaunchHostFunc(struct stream *s, void (*function)(void *), void *arg)
{
	put(s, &(struct op){ .kind = CALL, .function = function, .arg = arg });
	return 0;
}

struct event {
	struct stream *stream;
	unsigned int end;
};

int cuEventCreate(void **event, unsigned int flags);
int cuEventCreate(void **event, unsigned int flags)
{
	*event = calloc(1, sizeof(struct event));
	return *event ? 0 : 2;
}

int cuEventRecord(struct event *event, struct stream *s);
int cuEventRecord(struct event *event, struct stream *s)
{
	pthread_mutex_lock(&s->lock);
	event->stream = s;
	event->end = s->put;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

int cuEventSynchronize(struct event *event);
int cuEventSynchronize(struct event *event)
{
	wait_until(event->stream, event->end);
	return 0;
}

static int page_place(uintptr_t page)
{
	int i = 0;

	while (i < PAGES && pages[i] != page)
		i++;
	return i;
}

int cuMemHostRegister_v2(void *page, size_t bytes, unsigned int flags);
int cuMemHostRegister_v2(void *page, size_t bytes, unsigned int flags)
{
	int error = unsafe(), free;

	if (error || (uintptr_t)page % PAGE || bytes != PAGE || flags != 3)
		return error ?: INVALID;
	pthread_mutex_lock(&lock);
	free = page_place(0);
	if (page_place((uintptr_t)page) < PAGES)
		error = 712;
	else if (free < PAGES)
		pages[free] = (uintptr_t)page;
	else
		error = 2;
	pthread_mutex_unlock(&lock);
	return error;
}

int cuMemHostUnregister(void *page);
int cuMemHostUnregister(void *page)
{
	int error = unsafe(), i;

	if (error)
		return error;
	pthread_mutex_lock(&lock);
	i = page_place((uintptr_t)page);
	error = i == PAGES || !page ? 713 : 0;
	if (!error)
		pages[i] = 0;
	pthread_mutex_unlock(&lock);
	return error;
}

int cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags);
int cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags)
{
	*memory = aligned_alloc(PAGE, bytes);
	return *memory ? cuMemHostRegister_v2(*memory, bytes, flags) : 2;
}

int cuMemHostGetDevicePointer_v2(unsigned long long *at, void *here, unsigned int flags);
int cuMemHostGetDevicePointer_v2(unsigned long long *at, void *here, unsigned int flags)
{
	bool known;

	pthread_mutex_lock(&lock);
	known = page_place((uintptr_t)here & ~(uintptr_t)(PAGE - 1)) < PAGES;
	pthread_mutex_unlock(&lock);
	*at = (uintptr_t)here;
	return known ? 0 : INVALID;
}

int cuStreamWriteValue32_v2(struct stream *s, unsigned long long at, uint32_t value,
			    unsigned int flags);
int cuStreamWriteValue32_v2(struct stream *s, unsigned long long at, uint32_t value,
			    unsigned int flags)
{
	put(s, &(struct op){ .kind = STORE, .at = at, .value = value });
	return 0;
}

/* --- graphs ----------------------------------------------------------------------------------- */

int cuThreadExchangeStreamCaptureMode(int *mode);
int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = capture_mode;

	capture_mode = *mode;
	*mode = before;
	return 0;
}

int cuStreamIsCapturing(struct stream *s, int *status);
int cuStreamIsCapturing(struct stream *s, int *status)
{
	*status = s->captures != NULL;
	return 0;
}

int cuStreamBeginCapture_v2(struct stream *s, int mode);
int cuStreamBeginCapture_v2(struct stream *s, int mode)
{
	int error = mode ? INVALID : 0;

	pthread_mutex_lock(&lock);
	if (capturing || !error)
		error = capturing ? NOT_MADE : 0;
	if (!error) {
		capturing = s;
		s->broken = false;
		s->captured_by = pthread_self();
		s->captures = calloc(1, sizeof(*s->captures));
	}
	pthread_mutex_unlock(&lock);
	return error;
}

int cuStreamEndCapture(struct stream *s, void **graph);
int cuStreamEndCapture(struct stream *s, void **graph)
{
	int error = 0;

	pthread_mutex_lock(&lock);
	if (capturing != s || !pthread_equal(s->captured_by, pthread_self()))
		error = INVALID;
	else if (s->broken)
		error = BROKEN;
	*graph = error ? NULL : s->captures;
	if (error)
		free(s->captures);
	s->captures = NULL;
	capturing = NULL;
	pthread_mutex_unlock(&lock);
	return error;
}

int cuGraphCreate(void **graph, unsigned int flags);
int cuGraphCreate(void **graph, unsigned int flags)
{
	*graph = calloc(1, sizeof(struct graph));
	return *graph ? 0 : 2;
}

/* A node is the place of its first work in the graph, from 1. Nodes come in their order. */
static int add(void **node, struct graph *graph, size_t after, const struct op *ops, int count)
{
	if (graph->count + count > OPS || (graph->count && !after))
		return INVALID;
	*node = (void *)(uintptr_t)(graph->count + 1);
	memcpy(&graph->ops[graph->count], ops, (size_t)count * sizeof(*ops));
	graph->count += count;
	return 0;
}

int cuGraphAddChildGraphNode(void **node, struct graph *graph, void *const *after, size_t count,
			     struct graph *child);
int cuGraphAddChildGraphNode(void **node, struct graph *graph, void *const *after, size_t count,
			     struct graph *child)
{
	return add(node, graph, count, child->ops, child->count);
}

/* As cuda.h has them. */
struct write_node {
	void *context;
	uint32_t count;
	struct {
		uint32_t operation;
		uint64_t address, value;
		uint32_t flags;
		uint64_t alias, rest;
	} * ops;
	uint32_t flags;
};

static struct op write_of(const struct write_node *node)
{
	return (struct op){ .kind = STORE,
			    .at = node->ops->address,
			    .value = (uint32_t)node->ops->value };
}

int cuGraphAddBatchMemOpNode(void **node, struct graph *graph, void *const *after, size_t count,
			     const struct write_node *write);
int cuGraphAddBatchMemOpNode(void **node, struct graph *graph, void *const *after, size_t count,
			     const struct write_node *write)
{
	struct op op = write_of(write);

	return write->count != 1 || write->ops->operation != 2 || write->context != &pages
		       ? INVALID
		       : add(node, graph, count, &op, 1);
}

int cuGraphInstantiateWithFlags(void **exec, const struct graph *graph, unsigned long long flags);
int cuGraphInstantiateWithFlags(void **exec, const struct graph *graph, unsigned long long flags)
{
	*exec = malloc(sizeof(*graph));
	if (*exec)
		memcpy(*exec, graph, sizeof(*graph));
	return *exec ? 0 : 2;
}

int cuGraphExecBatchMemOpNodeSetParams(struct graph *exec, void *node,
				       const struct write_node *write);
int cuGraphExecBatchMemOpNodeSetParams(struct graph *exec, void *node,
				       const struct write_node *write)
{
	uintptr_t place = (uintptr_t)node - 1;

	if (place >= (uintptr_t)exec->count || exec->ops[place].kind != STORE)
		return INVALID;
	exec->ops[place] = write_of(write);
	return 0;
}

int cuGraphLaunch(const struct graph *exec, struct stream *s);
int cuGraphLaunch(const struct graph *exec, struct stream *s)
{
	for (int i = 0; i < exec->count; i++)
		put(s, &exec->ops[i]);
	return 0;
}

int cuGraphExecDestroy(struct graph *exec);
int cuGraphExecDestroy(struct graph *exec)
{
	free(exec);
	return 0;
}

int cuGraphDestroy(struct graph *graph);
int cuGraphDestroy(struct graph *graph)
{
	free(graph);
	return 0;
}

int cuGetErrorName(int error, const char **name);
int cuGetErrorName(int error, const char **name)
{
	*name = "CUDA_ERROR_OF_THE_FAKE";
	return 0;
}
