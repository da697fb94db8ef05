// SPDX-License-Identifier: MIT
/*
 * features.cu - programs that use what CUDA has beside plain kernels, and check what they compute.
 *
 * features KIND SECONDS OUT
 *     rounds of one kind, until the seconds are over or SIGTERM comes. After each round one line
 *     "CLOCK_MONOTONIC ns, rounds done" goes to OUT. Each round begins with what the one before
 *     has made, and is checked against what the processor computes (persistent: one of 64). One
 *     wrong word ends the program with status 1.
 *
 *     managed	      managed memory that both processors write in turns, by page faults
 *     oversubscribed as much managed memory as does not fit: pages are evicted in each round
 *     cooperative    kernels with barriers of the whole grid
 *     persistent     one kernel that never ends and takes its jobs from the processor's memory
 *     child	      kernels that launch kernels
 *     streams	      eight streams, two priorities, events, copies, callbacks and a pool
 *     graph	      a graph of copies, kernels and a callback
 *     copies	      copies in, a kernel and copies out in one stream, four rounds ahead
 *     green	      a green context of half of the multiprocessors
 *
 * features produce SECONDS OUT PATH, features consume SECONDS OUT PATH
 *     two processes, which wait for each other's work on the GPU by events that they share: a
 *     kernel of the one, then eight of the other, and so on. PATH is a file for both.
 *
 * Work is a fixed number of turns of a linear congruential generator. The file is compiled with
 * -rdc=true, for the kernels that launch kernels.
 */
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WORDS	(1 << 20)
#define TURNS	10000 /* of each word in a kernel: some 0.2 ms of a whole H200 */
#define SAMPLES 64    /* words that are checked after each round */
#define PHASES	16    /* of a cooperative kernel */
#define STREAMS 8
#define DEEP	8 /* kernels of a consumer in its queue */
#define AHEAD	4 /* rounds in the queue, of COPY_WORDS and COPY_TURNS each */

#define COPY_WORDS (8 << 20)
#define COPY_TURNS 2000

#define check(x)                                                                           \
	do {                                                                               \
		cudaError_t e_ = (x);                                                      \
		if (e_ != cudaSuccess) {                                                   \
			fprintf(stderr, "features: %s: %s\n", #x, cudaGetErrorString(e_)); \
			exit(1);                                                           \
		}                                                                          \
	} while (0)
#define check_driver(x)                                                            \
	do {                                                                       \
		CUresult e_ = (x);                                                 \
		if (e_ != CUDA_SUCCESS) {                                          \
			fprintf(stderr, "features: %s: status %d\n", #x, (int)e_); \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

static volatile sig_atomic_t ended;
static uint64_t end_ns;
static FILE *out;
static unsigned long long rounds;

static void on_term(int)
{
	ended = 1;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static int goes_on(void)
{
	return !ended && now_ns() < end_ns;
}

static void round_done(void)
{
	fprintf(out, "%llu %llu\n", (unsigned long long)now_ns(), ++rounds);
	fflush(out);
}

__host__ __device__ static inline uint32_t turned(uint32_t x, int turns)
{
	for (int i = 0; i < turns; i++)
		x = x * 1664525u + 1013904223u;
	return x;
}

/* Turns of a word, all in one step: x * factor + addend. */
struct step {
	uint32_t factor, addend;
};

static struct step step_of(int turns)
{
	uint32_t addend = turned(0, turns);
	struct step s = { turned(1, turns) - addend, addend };

	return s;
}

static uint32_t stepped(struct step s, uint32_t x)
{
	return x * s.factor + s.addend;
}

static void must_be(uint32_t is, uint32_t due, const char *what, size_t at)
{
	if (is == due)
		return;
	fprintf(stderr, "features: round %llu: %s %zu is %u and not %u\n", rounds, what, at, is,
		due);
	exit(1);
}

__global__ void turn_all(uint32_t *x, size_t words, int turns)
{
	size_t stride = (size_t)gridDim.x * blockDim.x;

	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += stride)
		x[i] = turned(x[i], turns);
}

static void launch(uint32_t *x, size_t words, int turns, cudaStream_t stream)
{
	turn_all<<<(unsigned)((words + 255) / 256), 256, 0, stream>>>(x, words, turns);
	check(cudaGetLastError());
}

/* Words on the device, begun with their own numbers; what SAMPLES of them are to be. */
struct words {
	uint32_t *on_gpu;
	uint32_t due[SAMPLES];
};

static size_t sample(int n)
{
	return (size_t)n * (WORDS / SAMPLES) + n;
}

static void begin_words(struct words *w)
{
	static uint32_t first[WORDS];

	for (int i = 0; i < WORDS; i++)
		first[i] = i;
	check(cudaMalloc(&w->on_gpu, sizeof(first)));
	check(cudaMemcpy(w->on_gpu, first, sizeof(first), cudaMemcpyHostToDevice));
	for (int i = 0; i < SAMPLES; i++)
		w->due[i] = (uint32_t)sample(i);
}

static void check_words(struct words *w, struct step s)
{
	static uint32_t got[WORDS];

	check(cudaMemcpy(got, w->on_gpu, sizeof(got), cudaMemcpyDeviceToHost));
	for (int i = 0; i < SAMPLES; i++) {
		w->due[i] = stepped(s, w->due[i]);
		must_be(got[sample(i)], w->due[i], "word", sample(i));
	}
}

static void managed(void)
{
	struct step s = step_of(TURNS);
	uint32_t *x, due[SAMPLES];

	check(cudaMallocManaged(&x, WORDS * sizeof(*x)));
	for (int i = 0; i < WORDS; i++)
		x[i] = i;
	for (int i = 0; i < SAMPLES; i++)
		due[i] = (uint32_t)sample(i);
	while (goes_on()) {
		launch(x, WORDS, TURNS, 0);
		check(cudaDeviceSynchronize());
		/* The processor writes into every page: they come here, and go back by faults. */
		for (int i = 0; i < SAMPLES; i++) {
			due[i] = stepped(s, due[i]);
			must_be(x[sample(i)], due[i], "word", sample(i));
			due[i] ^= (uint32_t)rounds;
			x[sample(i)] = due[i];
		}
		round_done();
	}
}

static void oversubscribed(void)
{
	size_t room, all, left = (size_t)1536 << 20, words = ((size_t)2 << 30) / sizeof(uint32_t);
	struct step s = step_of(16);
	uint32_t *x, due[SAMPLES];
	void *filler;

	/* What is left free is less than the managed words take. */
	check(cudaMemGetInfo(&room, &all));
	if (room > left)
		check(cudaMalloc(&filler, room - left));
	check(cudaMallocManaged(&x, words * sizeof(*x)));
	check(cudaMemset(x, 0, words * sizeof(*x)));
	memset(due, 0, sizeof(due));
	while (goes_on()) {
		launch(x, words, 16, 0);
		check(cudaDeviceSynchronize());
		for (int i = 0; i < SAMPLES; i++) {
			size_t at = (size_t)i * (words / SAMPLES) + i;

			due[i] = stepped(s, due[i]);
			must_be(x[at], due[i], "word", at);
		}
		round_done();
	}
}

/* In each phase every word becomes what its neighbour was, turned: none may run ahead. */
__global__ void turn_neighbours(uint32_t *a, uint32_t *b, int words, int turns)
{
	cooperative_groups::grid_group grid = cooperative_groups::this_grid();

	for (int phase = 0; phase < PHASES; phase++) {
		uint32_t *from = phase % 2 ? b : a, *to = phase % 2 ? a : b;

		for (int i = grid.thread_rank(); i < words; i += (int)grid.size())
			to[i] = turned(__ldcg(&from[(i + 1) % words]), turns);
		grid.sync();
	}
}

static void cooperative(void)
{
	struct step s = step_of(TURNS / PHASES), all = { 1, 0 };
	int n = WORDS, turns = TURNS / PHASES, blocks, sms;
	static uint32_t got[WORDS];
	uint32_t *other, shift = 0;
	struct words w;
	void *args[] = { &w.on_gpu, &other, &n, &turns };

	begin_words(&w);
	check(cudaMalloc(&other, WORDS * sizeof(*other)));
	check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
	check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, turn_neighbours, 256, 0));
	while (goes_on()) {
		check(cudaLaunchCooperativeKernel((void *)turn_neighbours, sms * blocks, 256, args,
						  0, 0));
		check(cudaMemcpy(got, w.on_gpu, sizeof(got), cudaMemcpyDeviceToHost));
		for (int phase = 0; phase < PHASES; phase++, shift++) {
			all.factor *= s.factor;
			all.addend = stepped(s, all.addend);
		}
		/* Words have moved by one place in each phase. */
		for (int i = 0; i < SAMPLES; i++)
			must_be(got[sample(i)], stepped(all, (uint32_t)(sample(i) + shift) % WORDS),
				"word", sample(i));
		round_done();
	}
}

/* The post of a persistent kernel, in the processor's memory. */
struct post {
	volatile uint32_t job, done;
};

__device__ unsigned int arrived;

__global__ void serve(struct post *post, volatile uint32_t *told, uint32_t *x, int words, int turns)
{
	int stride = gridDim.x * blockDim.x;
	uint32_t job = 0;

	for (;;) {
		if (threadIdx.x == 0) {
			if (blockIdx.x == 0) {
				while (post->job == job)
					;
				*told = post->job;
				__threadfence();
			} else {
				while (*told == job)
					;
			}
		}
		__syncthreads();
		job = *told;
		if (job == ~0u)
			return;
		for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride)
			x[i] = turned(x[i], turns);
		__threadfence_system();
		__syncthreads();
		if (threadIdx.x == 0 && atomicAdd(&arrived, 1) == gridDim.x - 1) {
			arrived = 0;
			__threadfence_system();
			post->done = job;
		}
	}
}

static void persistent(void)
{
	struct step s = step_of(TURNS);
	uint32_t *told, *got;
	struct post *post;
	struct words w;
	cudaStream_t copies, kernel;
	int sms;

	begin_words(&w);
	check(cudaHostAlloc(&post, sizeof(*post), cudaHostAllocMapped));
	check(cudaHostAlloc(&got, WORDS * sizeof(*got), 0));
	memset((void *)post, 0, sizeof(*post));
	check(cudaMalloc(&told, sizeof(*told)));
	check(cudaMemset(told, 0, sizeof(*told)));
	check(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
	check(cudaStreamCreateWithFlags(&kernel, cudaStreamNonBlocking));
	check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
	check(cudaDeviceSynchronize());
	serve<<<sms, 1024, 0, kernel>>>(post, told, w.on_gpu, WORDS, TURNS);
	check(cudaGetLastError());
	for (uint32_t job = 1; goes_on(); job++) {
		post->job = job;
		for (unsigned tries = 1; post->done != job; tries++) {
			sched_yield();
			/* It would be waited for for ever. */
			if (!(tries % (1 << 20)) && cudaStreamQuery(kernel) != cudaErrorNotReady) {
				fprintf(stderr, "features: the kernel that never ends has ended\n");
				exit(1);
			}
		}
		if (job % 64 == 1) { /* the rounds in between are in what follows from them */
			check(cudaMemcpyAsync(got, w.on_gpu, WORDS * sizeof(*got),
					      cudaMemcpyDeviceToHost, copies));
			check(cudaStreamSynchronize(copies));
		}
		for (int i = 0; i < SAMPLES; i++) {
			w.due[i] = stepped(s, w.due[i]);
			if (job % 64 == 1)
				must_be(got[sample(i)], w.due[i], "word", sample(i));
		}
		round_done();
	}
	post->job = ~0u;
	check(cudaDeviceSynchronize());
}

__global__ void launch_children(uint32_t *x, int words, int turns)
{
	for (int i = 0; i < 4; i++)
		turn_all<<<(words + 255) / 256, 256>>>(x, words, turns);
}

static void child(void)
{
	struct step s = step_of(TURNS / 4 * 4);
	struct words w;

	begin_words(&w);
	while (goes_on()) {
		launch_children<<<1, 1>>>(w.on_gpu, WORDS, TURNS / 4);
		check(cudaGetLastError());
		check_words(&w, s);
		round_done();
	}
}

static void CUDART_CB count_call(void *calls)
{
	++*(volatile unsigned long long *)calls;
}

static void streams(void)
{
	enum { PART = WORDS / STREAMS };
	struct step s = step_of(TURNS);
	static unsigned long long calls[STREAMS];
	cudaStream_t stream[STREAMS];
	cudaEvent_t done[STREAMS];
	uint32_t *x, due[STREAMS];
	int least, most;

	check(cudaDeviceGetStreamPriorityRange(&least, &most));
	check(cudaHostAlloc(&x, WORDS * sizeof(*x), 0));
	for (int i = 0; i < WORDS; i++)
		x[i] = i;
	for (int n = 0; n < STREAMS; n++) {
		check(cudaStreamCreateWithPriority(&stream[n], cudaStreamNonBlocking,
						   n % 2 ? most : least));
		check(cudaEventCreateWithFlags(&done[n], cudaEventDisableTiming));
		due[n] = n * PART;
	}
	while (goes_on()) {
		for (int n = 0; n < STREAMS; n++) {
			uint32_t *part = x + n * PART, *on_gpu;

			check(cudaMallocAsync(&on_gpu, PART * sizeof(*x), stream[n]));
			check(cudaMemcpyAsync(on_gpu, part, PART * sizeof(*x),
					      cudaMemcpyHostToDevice, stream[n]));
			if (n)
				check(cudaStreamWaitEvent(stream[n], done[n - 1], 0));
			launch(on_gpu, PART, TURNS, stream[n]);
			check(cudaEventRecord(done[n], stream[n]));
			check(cudaMemcpyAsync(part, on_gpu, PART * sizeof(*x),
					      cudaMemcpyDeviceToHost, stream[n]));
			check(cudaFreeAsync(on_gpu, stream[n]));
			check(cudaLaunchHostFunc(stream[n], count_call, &calls[n]));
		}
		check(cudaDeviceSynchronize());
		for (int n = 0; n < STREAMS; n++) {
			due[n] = stepped(s, due[n]);
			must_be(x[n * PART], due[n], "word", (size_t)n * PART);
			must_be((uint32_t)calls[n], (uint32_t)rounds + 1, "calls of", n);
		}
		round_done();
	}
}

static void graph(void)
{
	struct step s = step_of(TURNS);
	static unsigned long long calls;
	cudaGraphExec_t exec;
	cudaStream_t stream;
	uint32_t *x, *on_gpu, due[SAMPLES];
	cudaGraph_t g;

	check(cudaHostAlloc(&x, WORDS * sizeof(*x), 0));
	check(cudaMalloc(&on_gpu, WORDS * sizeof(*x)));
	for (int i = 0; i < WORDS; i++)
		x[i] = i;
	for (int i = 0; i < SAMPLES; i++)
		due[i] = (uint32_t)sample(i);
	check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	check(cudaMemcpyAsync(on_gpu, x, WORDS * sizeof(*x), cudaMemcpyHostToDevice, stream));
	for (int i = 0; i < 20; i++)
		launch(on_gpu, WORDS, TURNS / 20, stream);
	check(cudaMemcpyAsync(x, on_gpu, WORDS * sizeof(*x), cudaMemcpyDeviceToHost, stream));
	check(cudaLaunchHostFunc(stream, count_call, &calls));
	check(cudaStreamEndCapture(stream, &g));
	check(cudaGraphInstantiate(&exec, g, 0));
	while (goes_on()) {
		check(cudaGraphLaunch(exec, stream));
		check(cudaStreamSynchronize(stream));
		for (int i = 0; i < SAMPLES; i++) {
			due[i] = stepped(s, due[i]);
			must_be(x[sample(i)], due[i], "word", sample(i));
		}
		must_be((uint32_t)calls, (uint32_t)rounds + 1, "calls of graph", 0);
		round_done();
	}
}

/* What the GPU is to do next waits for a copy half of the time, and its queue is never empty. */
static void copies(void)
{
	struct step s = step_of(COPY_TURNS);
	uint32_t *x[AHEAD], *on_gpu, due[AHEAD][SAMPLES];
	cudaEvent_t done[AHEAD];
	cudaStream_t stream;

	check(cudaMalloc(&on_gpu, COPY_WORDS * sizeof(*on_gpu)));
	check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int n = 0; n < AHEAD; n++) {
		check(cudaHostAlloc(&x[n], COPY_WORDS * sizeof(*x[n]), 0));
		memset(x[n], 0, COPY_WORDS * sizeof(*x[n]));
		memset(due[n], 0, sizeof(due[n]));
		check(cudaEventCreateWithFlags(&done[n],
					       cudaEventBlockingSync | cudaEventDisableTiming));
	}
	for (unsigned long long begun = 0; goes_on(); begun++) {
		int n = begun % AHEAD;

		if (begun >= AHEAD) {
			check(cudaEventSynchronize(done[n]));
			for (int i = 0; i < SAMPLES; i++) {
				due[n][i] = stepped(s, due[n][i]);
				must_be(x[n][sample(i)], due[n][i], "word", sample(i));
			}
			round_done();
		}
		check(cudaMemcpyAsync(on_gpu, x[n], COPY_WORDS * sizeof(*on_gpu),
				      cudaMemcpyHostToDevice, stream));
		launch(on_gpu, COPY_WORDS, COPY_TURNS, stream);
		check(cudaMemcpyAsync(x[n], on_gpu, COPY_WORDS * sizeof(*on_gpu),
				      cudaMemcpyDeviceToHost, stream));
		check(cudaEventRecord(done[n], stream));
	}
}

static void green(void)
{
	struct step s = step_of(TURNS);
	CUdevResource all, part;
	CUdevResourceDesc description;
	unsigned groups = 1;
	CUstream stream;
	CUgreenCtx half;
	CUdevice device;
	struct words w;

	begin_words(&w);
	check_driver(cuDeviceGet(&device, 0));
	check_driver(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
	check_driver(
		cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, all.sm.smCount / 2));
	check_driver(cuDevResourceGenerateDesc(&description, &part, 1));
	check_driver(cuGreenCtxCreate(&half, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
	check_driver(cuGreenCtxStreamCreate(&stream, half, CU_STREAM_NON_BLOCKING, 0));
	while (goes_on()) {
		launch(w.on_gpu, WORDS, TURNS, (cudaStream_t)stream);
		check(cudaStreamSynchronize((cudaStream_t)stream));
		check_words(&w, s);
		round_done();
	}
}

/* What a producer and a consumer share. Sides: 0 produces, 1 consumes. */
struct pipe {
	cudaIpcEventHandle_t event[2];
	cudaIpcMemHandle_t memory;
	uint32_t ready[2];
	uint64_t sent[2]; /* rounds whose work is in the queue */
};

/* Until the side has put so many rounds into its queue; they may not be done. */
static int has_sent(struct pipe *pipe, int side, uint64_t most)
{
	while (__atomic_load_n(&pipe->sent[side], __ATOMIC_ACQUIRE) < most) {
		if (!goes_on())
			return 0;
		sched_yield();
	}
	return 1;
}

static struct pipe *pipe_at(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	struct pipe *pipe = NULL;

	if (fd >= 0 && !ftruncate(fd, sizeof(*pipe)))
		pipe = (struct pipe *)mmap(NULL, sizeof(*pipe), PROT_READ | PROT_WRITE, MAP_SHARED,
					   fd, 0);
	if (!pipe || pipe == MAP_FAILED) {
		fprintf(stderr, "features: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	return pipe;
}

/* What both have done in 64 rounds. */
static void check_both(struct words *w)
{
	struct step s = step_of(TURNS + DEEP * (TURNS / DEEP));

	for (int i = 0; i < SAMPLES; i++)
		for (int n = 0; n < 63; n++)
			w->due[i] = stepped(s, w->due[i]);
	check_words(w, s);
}

static void both_ways(const char *path, int side)
{
	struct pipe *pipe = pipe_at(path);
	int kernels = side ? DEEP : 1;
	cudaEvent_t mine, other;
	cudaStream_t stream;
	struct words w;

	check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	check(cudaEventCreateWithFlags(&mine, cudaEventInterprocess | cudaEventDisableTiming));
	check(cudaIpcGetEventHandle(&pipe->event[side], mine));
	if (!side) {
		begin_words(&w);
		check(cudaIpcGetMemHandle(&pipe->memory, w.on_gpu));
	}
	__atomic_store_n(&pipe->ready[side], 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&pipe->ready[!side], __ATOMIC_ACQUIRE))
		if (!goes_on())
			return;
	check(cudaIpcOpenEventHandle(&other, pipe->event[!side]));
	if (side)
		check(cudaIpcOpenMemHandle((void **)&w.on_gpu, pipe->memory,
					   cudaIpcMemLazyEnablePeerAccess));
	while (goes_on() && has_sent(pipe, !side, rounds + side)) {
		check(cudaStreamWaitEvent(stream, other, 0));
		for (int i = 0; i < kernels; i++)
			launch(w.on_gpu, WORDS, TURNS / kernels, stream);
		check(cudaEventRecord(mine, stream));
		__atomic_store_n(&pipe->sent[side], rounds + 1, __ATOMIC_RELEASE);
		if (side)
			check(cudaStreamSynchronize(stream));
		else if (rounds % 64 == 63 && has_sent(pipe, 1, rounds + 1)) {
			check(cudaStreamWaitEvent(stream, other, 0));
			check(cudaStreamSynchronize(stream));
			check_both(&w);
		}
		round_done();
	}
	/* The other side may wait for it yet. */
	check(cudaStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} kinds[] = {
		{ "managed", managed },
		{ "oversubscribed", oversubscribed },
		{ "cooperative", cooperative },
		{ "persistent", persistent },
		{ "child", child },
		{ "streams", streams },
		{ "graph", graph },
		{ "copies", copies },
		{ "green", green },
	};
	struct sigaction term = {};

	term.sa_handler = on_term;
	sigaction(SIGTERM, &term, NULL);
	if (argc < 4 || !(out = fopen(argv[3], "w"))) {
		fprintf(stderr, "features KIND SECONDS OUT [PATH]\n");
		return 2;
	}
	end_ns = now_ns() + (uint64_t)(atof(argv[2]) * 1e9);
	check(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync | cudaDeviceMapHost));
	check(cudaFree(0));
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(argv[1], kinds[i].name) && argc == 4) {
			kinds[i].run();
			return 0;
		}
	if (argc == 5 && (!strcmp(argv[1], "produce") || !strcmp(argv[1], "consume"))) {
		both_ways(argv[4], argv[1][0] == 'c');
		return 0;
	}
	fprintf(stderr, "features: no kind '%s' with %d words\n", argv[1], argc - 1);
	return 2;
}
