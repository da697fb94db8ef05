// SPDX-License-Identifier: MIT
/*
 * graphs.c - waiting for CUDA graphs: what a wait by FENCE or NOTIFY is ordered behind, by counts.
 * Prints one JSON object a line; exit status 1 if a wait ended early or a capture was broken.
 *
 *     graphs [--launches N] [--device N]
 *     graphs --plain [--launches N] [--device N]
 *
 * A graph has two kernels of one thread, each of which runs for a given time by the GPU's clock and
 * then counts a number up in the host's memory. "early" counts waits that came back before the work
 * that they were to wait for, by these numbers.
 *
 *   behind    the stream signals behind the launch; waits are for the end of the graph
 *   node      a memory operation between the kernels, whose number is set before each launch
 *   counted   a kernel of the graph counts the timeline's word up between the two
 *   constant  a number that was captured: how often it stood there before the kernels had run
 *   captured  rtx_timeline_signal on a stream that is being captured is refused, and the graph that
 *             is captured runs
 *   beside    first signals, and closes, of timelines while another thread captures
 *
 * "inside" counts waits for a place between the kernels that came back before the graph's end.
 * --plain uses nothing of rtxg: it launches graphs and waits for them by cuStreamSynchronize, as
 * programs do that librtxg-cuda.so is loaded into; "cpu_us" is the waiting thread's CPU time for
 * each launch. CUDA is loaded when the program runs.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_driver.h"
#include "rtxg_clock.h"
#include "rtxg_nvrm.h"

#define LAUNCHES_MAX 100000
#define LIMIT_NS     5000000000ull /* no wait takes longer */
#define FIRST_NS     200000ull	   /* the graph's kernels */
#define SECOND_NS    2000000ull
#define WRITE_32     2u /* CU_STREAM_MEM_OP_WRITE_VALUE_32 */

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry run(.param .u64 ns, .param .u64 word)\n"
			  "{\n"
			  "  .reg .u64 %t<4>; .reg .u32 %n; .reg .pred %p;\n"
			  "  ld.param.u64 %t0, [ns]; ld.param.u64 %t1, [word];\n"
			  "  mov.u64 %t2, %globaltimer; add.u64 %t3, %t2, %t0;\n"
			  "AGAIN:\n"
			  "  mov.u64 %t2, %globaltimer; setp.lt.u64 %p, %t2, %t3;\n"
			  "  @%p bra AGAIN;\n"
			  "  ld.volatile.global.u32 %n, [%t1]; add.u32 %n, %n, 1;\n"
			  "  membar.sys; st.volatile.global.u32 [%t1], %n; membar.sys; ret;\n"
			  "}\n";

/* A write of 32 bits, and a node of such, as cuda.h has them. */
struct write_op {
	uint32_t operation;
	uint64_t address;
	uint64_t value;
	uint32_t flags;
	uint64_t alias, rest;
};
_Static_assert(sizeof(struct write_op) == 48, "CUstreamBatchMemOpParams");

struct write_node {
	void *context;
	uint32_t count;
	struct write_op *ops;
	uint32_t flags;
};

static void *context, *stream, *kernel;
/* What the two kernels have counted, and where the GPU finds it. */
static volatile uint32_t *done;
static unsigned long long done_at;
static rtx_nvrm_t nvrm;
static int launches = 50, device;
static bool wrong;

static void make_context(void)
{
	struct cuda_gpu gpu;

	cuda_open(&gpu, device, 1u /* spinning */, ptx, "run");
	context = gpu.context;
	stream = gpu.stream;
	kernel = gpu.kernel;
	done = gpu.words;
	done_at = gpu.words_at;
}

/* A kernel that runs for so long and then counts up the word that the GPU finds there. */
static void run(void *on, uint64_t ns, unsigned long long at)
{
	void *arguments[] = { &ns, &at };

	must(cu[LAUNCH](kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, on, arguments, NULL), "cuLaunchKernel");
}

static void begin(void *on)
{
	must(cu[BEGIN](on, 0 /* the mode that other threads' calls may break */),
	     "cuStreamBeginCapture");
}

static void *end(void *on)
{
	void *graph = NULL;

	must(cu[END](on, &graph), "cuStreamEndCapture");
	return graph;
}

static void *ready(void *graph)
{
	void *exec = NULL;

	must(cu[INSTANTIATE](&exec, graph, 0ull), "cuGraphInstantiate");
	return exec;
}

static void destroy(void *exec, void *graph)
{
	must(cu[STREAM_SYNC](stream), "cuStreamSynchronize");
	must(cu[EXEC_DESTROY](exec), "cuGraphExecDestroy");
	must(cu[GRAPH_DESTROY](graph), "cuGraphDestroy");
}

static void forget_counts(void)
{
	must(cu[STREAM_SYNC](stream), "cuStreamSynchronize");
	done[0] = done[1] = 0;
}

/* first, then what lies between, then second. between_at 0: nothing does. */
static void *two_kernels(unsigned long long between_at)
{
	begin(stream);
	run(stream, FIRST_NS, done_at);
	if (between_at)
		run(stream, 0, between_at);
	run(stream, SECOND_NS, done_at + 4);
	return end(stream);
}

static struct rtx_timeline_stats stats_of(rtx_timeline_t timeline)
{
	struct rtx_timeline_stats s = RTX_INIT(struct rtx_timeline_stats);

	must(rtx_timeline_stats(timeline, &s), "rtx_timeline_stats");
	return s;
}

static void put(const char *part, const char *how, rtx_timeline_t timeline, int early, int inside)
{
	struct rtx_timeline_stats s = stats_of(timeline);

	printf("{\"part\": \"%s\", \"how\": \"%s\", \"launches\": %d, \"early\": %d, "
	       "\"inside\": %d, \"waits\": %llu, \"wakes\": %llu, \"missed\": %llu}\n",
	       part, how, launches, early, inside, (unsigned long long)s.waits,
	       (unsigned long long)s.wakes, (unsigned long long)s.missed);
	fflush(stdout);
	wrong = wrong || early || s.waits < (uint64_t)launches / 2;
}

static const struct way {
	const char *name;
	enum rtx_sync how;
	enum rtx_foresee foresee;
} ways[] = {
	{ "fence", RTX_SYNC_FENCE, RTX_FORESEE_OFF },
	{ "notify", RTX_SYNC_NOTIFY, RTX_FORESEE_OFF },
	{ "notify, foreseen", RTX_SYNC_NOTIFY, RTX_FORESEE_SLEEP },
};

static void wait_for(rtx_timeline_t timeline, uint32_t value, const struct way *way)
{
	must(rtx_timeline_wait(timeline, value, way->how, rtxg_now_ns() + LIMIT_NS),
	     "rtx_timeline_wait");
}

/* --- parts ------------------------------------------------------------------------------------ */

static void behind(const struct way *way)
{
	void *graph = two_kernels(0), *exec = ready(graph);
	rtx_timeline_t timeline;
	int early = 0;

	must(rtx_nvrm_timeline(nvrm, NULL, &timeline), "rtx_nvrm_timeline");
	must(rtx_timeline_foresee(timeline, way->foresee), "rtx_timeline_foresee");
	forget_counts();
	for (uint32_t i = 1; i <= (uint32_t)launches; i++) {
		uint32_t value;

		must(cu[GRAPH_LAUNCH](exec, stream), "cuGraphLaunch");
		must(rtx_timeline_signal(timeline, stream, &value), "rtx_timeline_signal");
		wait_for(timeline, value, way);
		early += done[0] < i || done[1] < i;
	}
	put("behind", way->name, timeline, early, 0);
	must(rtx_timeline_close(timeline), "rtx_timeline_close");
	destroy(exec, graph);
}

/* A word that the graph writes: a timeline of it, and where the GPU finds it. */
static void own_word(rtx_timeline_t *timeline, unsigned long long *at, enum rtx_foresee how)
{
	void *page = aligned_alloc(4096, 4096);

	if (!page)
		exit(1);
	memset(page, 0, 4096);
	must(cu[HOST_REGISTER](page, (size_t)4096, CUDA_HOST_MAPPED), "cuMemHostRegister");
	must(cu[HOST_POINTER](at, page, 0u), "cuMemHostGetDevicePointer");
	must(rtx_nvrm_timeline(nvrm, page, timeline), "rtx_nvrm_timeline, of an own word");
	must(rtx_timeline_foresee(*timeline, how), "rtx_timeline_foresee");
}

static void forget_word(rtx_timeline_t timeline)
{
	void *page = (void *)(uintptr_t)rtx_timeline_word(timeline);

	must(rtx_timeline_close(timeline), "rtx_timeline_close");
	must(cu[HOST_UNREGISTER](page), "cuMemHostUnregister");
	free(page);
}

/* The wait is for what lies between the kernels: the first has run, and the second mostly runs. */
static void count_between(const char *part, const struct way *way, rtx_timeline_t timeline,
			  void *exec, void *node, struct write_node *write)
{
	int early = 0, inside = 0;

	forget_counts();
	for (uint32_t i = 1; i <= (uint32_t)launches; i++) {
		if (node) {
			write->ops->value = i;
			must(cu[SET_WRITE](exec, node, write),
			     "cuGraphExecBatchMemOpNodeSetParams");
		}
		must(cu[GRAPH_LAUNCH](exec, stream), "cuGraphLaunch");
		wait_for(timeline, i, way);
		early += done[0] < i;
		inside += done[1] < i;
		must(cu[STREAM_SYNC](stream), "cuStreamSynchronize");
		early += done[1] < i;
	}
	put(part, way->name, timeline, early, inside);
}

static void node(const struct way *way)
{
	struct write_op op = { .operation = WRITE_32 };
	struct write_node write = { .context = context, .count = 1, .ops = &op };
	void *first, *second, *graph, *nodes[3], *exec;
	rtx_timeline_t timeline;
	unsigned long long at;

	own_word(&timeline, &at, way->foresee);
	op.address = at;
	begin(stream);
	run(stream, FIRST_NS, done_at);
	first = end(stream);
	begin(stream);
	run(stream, SECOND_NS, done_at + 4);
	second = end(stream);
	must(cu[NEW_GRAPH](&graph, 0u), "cuGraphCreate");
	must(cu[ADD_CHILD](&nodes[0], graph, NULL, (size_t)0, first), "cuGraphAddChildGraphNode");
	must(cu[ADD_WRITE](&nodes[1], graph, &nodes[0], (size_t)1, &write),
	     "cuGraphAddBatchMemOpNode");
	must(cu[ADD_CHILD](&nodes[2], graph, &nodes[1], (size_t)1, second),
	     "cuGraphAddChildGraphNode");
	exec = ready(graph);
	count_between("node", way, timeline, exec, nodes[1], &write);
	destroy(exec, graph);
	must(cu[GRAPH_DESTROY](first), "cuGraphDestroy");
	must(cu[GRAPH_DESTROY](second), "cuGraphDestroy");
	forget_word(timeline);
}

static void counted(const struct way *way)
{
	rtx_timeline_t timeline;
	unsigned long long at;
	void *graph, *exec;

	own_word(&timeline, &at, way->foresee);
	graph = two_kernels(at);
	exec = ready(graph);
	count_between("counted", way, timeline, exec, NULL, NULL);
	destroy(exec, graph);
	forget_word(timeline);
}

/* What cannot be ordered. */
static void constant(void)
{
	int there = 0, status;
	unsigned long long at;
	rtx_timeline_t timeline;
	void *graph = NULL, *exec;

	own_word(&timeline, &at, RTX_FORESEE_OFF);
	begin(stream);
	run(stream, FIRST_NS, done_at);
	status = cu[WRITE](stream, at, 1u, 0u);
	if (cu[END](stream, &graph)) {
		printf("{\"part\": \"constant\", \"capture_error\": %d}\n", status);
		forget_word(timeline);
		return;
	}
	exec = ready(graph);
	forget_counts();
	for (uint32_t i = 1; i <= (uint32_t)launches && !status; i++) {
		must(cu[GRAPH_LAUNCH](exec, stream), "cuGraphLaunch");
		there += rtx_timeline_reached(timeline, 1) && done[0] < i;
		must(cu[STREAM_SYNC](stream), "cuStreamSynchronize");
	}
	printf("{\"part\": \"constant\", \"launches\": %d, \"capture_error\": %d, "
	       "\"there_before\": %d}\n",
	       launches, status, there);
	fflush(stdout);
	destroy(exec, graph);
	forget_word(timeline);
}

static void captured(void)
{
	rtx_timeline_t timeline;
	uint32_t value = 99, after;
	void *graph, *exec;
	int refused[2];

	must(rtx_nvrm_timeline(nvrm, NULL, &timeline), "rtx_nvrm_timeline");
	/* of a page that CUDA does not know as yet, and of one that it does */
	for (int i = 0; i < 2; i++) {
		begin(stream);
		run(stream, FIRST_NS, done_at);
		refused[i] = rtx_timeline_signal(timeline, stream, &value);
		graph = end(stream);
		exec = ready(graph);
		forget_counts();
		must(cu[GRAPH_LAUNCH](exec, stream), "cuGraphLaunch");
		must(rtx_timeline_signal(timeline, stream, &after), "rtx_timeline_signal");
		wait_for(timeline, after, &ways[1]);
		wrong = wrong || refused[i] != -EBUSY || value != 99 || done[0] != 1;
		destroy(exec, graph);
	}
	printf("{\"part\": \"captured\", \"refused\": [%d, %d], \"ran\": %s}\n", refused[0],
	       refused[1], done[0] == 1 ? "true" : "false");
	fflush(stdout);
	must(rtx_timeline_close(timeline), "rtx_timeline_close");
}

static bool stop;
static int rounds;

static void *signals(void *arg)
{
	must(cu[SET_CURRENT](context), "cuCtxSetCurrent");
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		rtx_timeline_t timeline;
		uint32_t value;

		must(rtx_nvrm_timeline(nvrm, NULL, &timeline), "rtx_nvrm_timeline");
		must(rtx_timeline_signal(timeline, arg, &value), "rtx_timeline_signal beside");
		wait_for(timeline, value, &ways[1]);
		must(rtx_timeline_close(timeline), "rtx_timeline_close");
		__atomic_fetch_add(&rounds, 1, __ATOMIC_ACQ_REL);
	}
	return NULL;
}

/* Each graph is captured while at least one timeline has been opened, signalled and closed. */
static void beside(void)
{
	int broken = 0, some = launches < 20 ? launches : 20;
	pthread_t thread;
	void *other;

	must(cu[STREAM](&other, 1u), "cuStreamCreate");
	pthread_create(&thread, NULL, signals, other);
	for (int i = 0; i < some; i++) {
		uint64_t until = rtxg_now_ns() + LIMIT_NS;
		int before = __atomic_load_n(&rounds, __ATOMIC_ACQUIRE);
		void *graph = NULL;

		begin(stream);
		run(stream, FIRST_NS, done_at);
		while (__atomic_load_n(&rounds, __ATOMIC_ACQUIRE) < before + 2 &&
		       rtxg_now_ns() < until)
			;
		broken += cu[END](stream, &graph) != 0;
		if (graph)
			must(cu[GRAPH_DESTROY](graph), "cuGraphDestroy");
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	printf("{\"part\": \"beside\", \"captures\": %d, \"broken\": %d, \"timelines\": %d}\n",
	       some, broken, rounds);
	fflush(stdout);
	wrong = wrong || broken || rounds < some;
}

static void plain(void)
{
	void *graph = two_kernels(0), *exec = ready(graph);
	uint64_t cpu_ns, began;
	int early = 0;

	forget_counts();
	cpu_ns = processor_ns();
	began = rtxg_now_ns();
	for (uint32_t i = 1; i <= (uint32_t)launches; i++) {
		must(cu[GRAPH_LAUNCH](exec, stream), "cuGraphLaunch");
		must(cu[STREAM_SYNC](stream), "cuStreamSynchronize");
		early += done[0] < i || done[1] < i;
	}
	printf("{\"part\": \"plain\", \"launches\": %d, \"early\": %d, \"cpu_us\": %.1f, "
	       "\"took_us\": %.1f}\n",
	       launches, early, (double)(processor_ns() - cpu_ns) / 1e3 / launches,
	       (double)(rtxg_now_ns() - began) / 1e3 / launches);
	wrong = early;
	destroy(exec, graph);
}

static void all_parts(void)
{
	char name[16];

	snprintf(name, sizeof(name), "%d", device);
	must(rtx_nvrm_init(&nvrm, name), "rtx_nvrm_init");
	for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
		behind(&ways[w]);
		node(&ways[w]);
		counted(&ways[w]);
	}
	constant();
	captured();
	beside();
	must(rtx_nvrm_close(nvrm), "rtx_nvrm_close");
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "launches", 1, NULL, 'l' },
						 { "device", 1, NULL, 'd' },
						 { "plain", 0, NULL, 'p' },
						 { NULL, 0, NULL, 0 } };
	bool only_cuda = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0)
		switch (opt) {
		case 'l':
			launches = atoi(optarg);
			break;
		case 'd':
			device = atoi(optarg);
			break;
		case 'p':
			only_cuda = true;
			break;
		default:
			return 64;
		}
	if (launches < 2 || launches > LAUNCHES_MAX) {
		fprintf(stderr, "graphs: --launches takes 2 to %d\n", LAUNCHES_MAX);
		return 64;
	}
	cuda_find("graphs");
	make_context();
	if (only_cuda)
		plain();
	else
		all_parts();
	return wrong;
}
