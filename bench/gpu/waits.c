// SPDX-License-Identifier: MIT
/*
 * waits.c - what it costs to wait for a kernel: CUDA's own ways beside rtxg's FENCE and NOTIFY
 * (Linux-RTXG, figure 8). Prints one JSON object a line.
 *
 *     waits [--runs N] [--rounds N] [--for S] [--load] [--device N] [--only PART] [--init N]
 *           [--trace N]
 *     waits --unregister N [--device N]
 *     waits --words [--device N]
 *
 * Each way waits for the same kernel of one thread, which runs for a given time by the GPU's clock
 * and then writes a number to the memory of the host. Another thread, on a processor of its own,
 * looks for that number and notes the time: "wake" is how much later the waiting thread goes on.
 * "call" is what the way costs before the wait begins, "cpu" the processor time of a job in the
 * waiting thread, "interrupts" those of the GPU for each job on the whole machine. --load keeps
 * each processor busy with a program of ordinary priority; the waiting thread has SCHED_FIFO 40
 * then, and the one that looks 41. The ways take turns, --rounds of --runs each after 5 that are
 * not counted, and 20 where waits foresee. --for begins no round but the first after so many
 * seconds. --only leaves those whose name has that part, and may be given again. --trace prints as
 * many single waits of NOTIFY that foresees: when the launch was made, by the GPU's clock the word
 * came, it was seen, the wait ended. "timer" is no wait for a GPU: how late a timer of that length
 * wakes the same thread.
 *
 * --init opens and closes rtxg's channel so often and prints how long it took, by tenths in their
 * order: before the process has CUDA, with CUDA, with contexts, after all kernels, and while
 * another handle of the GPU is open. --unregister gives a stream a kernel of 20 ms and a write to a
 * page of the host behind it, lets CUDA forget the page at once, and prints how long that took and
 * whether the write had come by then. --words opens timelines on words that the GPU cannot be
 * given, and on one that it can, and prints what was said; it needs no CUDA.
 *
 * It loads CUDA when it runs, and needs librtxg.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_driver.h"
#include "rtxg_clock.h"
#include "rtxg_nvrm.h"

#define RUNS_MAX   10000
#define ROUNDS_MAX 100
/* of a series, that are not counted: what foresees learns in them, the others warm up */
#define FIRST_RUNS   20
#define WARM_RUNS    5
#define RELAXED	     2000000000ull /* no wait takes longer, ns */
#define SPIN	     1u		   /* CU_CTX_SCHED_SPIN */
#define BLOCK	     4u		   /* CU_CTX_SCHED_BLOCKING_SYNC */
#define EVENT_BLOCKS 3u		   /* CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING */

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry spin(.param .u64 ns, .param .u64 word, .param .u32 n)\n"
	"{\n"
	"  .reg .u64 %t<4>; .reg .u32 %n; .reg .pred %p;\n"
	"  ld.param.u64 %t0, [ns]; ld.param.u64 %t1, [word]; ld.param.u32 %n, [n];\n"
	"  mov.u64 %t2, %globaltimer; add.u64 %t3, %t2, %t0;\n"
	"AGAIN:\n"
	"  mov.u64 %t2, %globaltimer; setp.lt.u64 %p, %t2, %t3;\n"
	"  @%p bra AGAIN;\n"
	"  st.volatile.global.u32 [%t1], %n; membar.sys; ret;\n"
	"}\n";

static struct gpu {
	struct cuda_gpu cuda;
	void *event;
} gpus[2], gpu;

static rtx_nvrm_t nvrm;
static rtx_timeline_t timeline;
static int runs = 100, rounds = 3, traced, device;
static uint64_t time_ns = UINT64_MAX; /* after the first round, when none is begun any more */
static uint32_t awaited;
static uint64_t timer_ns;
static bool loaded;

/* --- the thread that sees the kernel's end ---------------------------------------------------- */

static uint64_t seen_ns[RUNS_MAX + FIRST_RUNS];
static uint32_t base; /* number of the series' first kernel */
static bool stop, looks;

static void on_processor(int number, int priority)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(number % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
	sched_setaffinity(0, sizeof(set), &set);
	if (loaded)
		sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ priority });
}

static void *see(void *arg)
{
	uint32_t last = *gpu.cuda.words;

	on_processor(5, 41);
	__atomic_store_n(&looks, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		uint32_t now = __atomic_load_n(gpu.cuda.words, __ATOMIC_ACQUIRE);

		if (now == last)
			continue;
		__atomic_store_n(&seen_ns[(now - base) % (RUNS_MAX + FIRST_RUNS)], rtxg_now_ns(),
				 __ATOMIC_RELEASE);
		last = now;
	}
	return NULL;
}

/* --- ways to wait ----------------------------------------------------------------------------- */

/* What the program does between its launch and the wait, and the wait. */
static void stream_synchronize(uint64_t *called)
{
	*called = rtxg_now_ns();
	must(cu[STREAM_SYNC](gpu.cuda.stream), "cuStreamSynchronize");
}

static void event_synchronize(uint64_t *called)
{
	must(cu[RECORD](gpu.event, gpu.cuda.stream), "cuEventRecord");
	*called = rtxg_now_ns();
	must(cu[EVENT_SYNC](gpu.event), "cuEventSynchronize");
}

static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t host_done = PTHREAD_COND_INITIALIZER;
static bool host_called;

static void host_function(void *arg)
{
	pthread_mutex_lock(&host_lock);
	host_called = true;
	pthread_cond_signal(&host_done);
	pthread_mutex_unlock(&host_lock);
}

static void host_func(uint64_t *called)
{
	must(cu[HOST_FUNC](gpu.cuda.stream, host_function, NULL), "cuLaunchHostFunc");
	*called = rtxg_now_ns();
	pthread_mutex_lock(&host_lock);
	while (!host_called)
		pthread_cond_wait(&host_done, &host_lock);
	host_called = false;
	pthread_mutex_unlock(&host_lock);
}

static void wait_timeline(uint64_t *called, enum rtx_sync how)
{
	uint32_t value = 0;

	must(rtx_timeline_signal(timeline, gpu.cuda.stream, &value), "rtx_timeline_signal");
	*called = rtxg_now_ns();
	must(rtx_timeline_wait(timeline, value, how, *called + RELAXED), "rtx_timeline_wait");
	awaited = value;
}

static void fence(uint64_t *called)
{
	wait_timeline(called, RTX_SYNC_FENCE);
}

static void notify(uint64_t *called)
{
	wait_timeline(called, RTX_SYNC_NOTIFY);
}

/* No launch: how late a timer is. */
static void timer(uint64_t *called)
{
	struct timespec t = { .tv_sec = (time_t)(timer_ns / 1000000000u),
			      .tv_nsec = (long)(timer_ns % 1000000000u) };

	*called = rtxg_now_ns();
	ppoll(NULL, 0, &t, NULL);
}

static const struct way {
	const char *name;
	int context; /* 0: CUDA spins in it, 1: it blocks */
	void (*wait)(uint64_t *called);
	enum rtx_foresee foresee;
} ways[] = {
	{ "cuStreamSynchronize, spinning", 0, stream_synchronize, RTX_FORESEE_OFF },
	{ "FENCE", 0, fence, RTX_FORESEE_OFF },
	{ "cuEventSynchronize, blocking event", 0, event_synchronize, RTX_FORESEE_OFF },
	{ "NOTIFY", 0, notify, RTX_FORESEE_OFF },
	{ "NOTIFY, foreseen", 0, notify, RTX_FORESEE_LOOK },
	{ "NOTIFY, foreseen, asleep", 0, notify, RTX_FORESEE_SLEEP },
	{ "cuLaunchHostFunc", 0, host_func, RTX_FORESEE_OFF },
	{ "cuStreamSynchronize, blocking", 1, stream_synchronize, RTX_FORESEE_OFF },
	{ "cuEventSynchronize, blocking", 1, event_synchronize, RTX_FORESEE_OFF },
	{ "NOTIFY, blocking", 1, notify, RTX_FORESEE_OFF },
	{ "timer", 0, timer, RTX_FORESEE_OFF },
};

#define WAYS	(sizeof(ways) / sizeof(ways[0]))
#define KERNELS 3

static const uint64_t kernels_ns[KERNELS] = { 100000, 1000000, 5000000 };

static struct series {
	int64_t *wake, *call;
	int count;
	uint64_t cpu_ns, raised, looks, hits;
} all[WAYS][KERNELS];

/* --- measuring -------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static void put(const char *name, int64_t *values, int count, const char *end)
{
	qsort(values, (size_t)count, sizeof(*values), compare);
	printf("\"%s_us\": {\"min\": %.1f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, "
	       "\"max\": %.1f}%s",
	       name, (double)values[0] / 1e3, (double)values[count / 2] / 1e3,
	       (double)values[count * 9 / 10] / 1e3, (double)values[count * 99 / 100] / 1e3,
	       (double)values[count - 1] / 1e3, end);
}

/* Interrupts of NVIDIA's driver since the machine started, on all processors. */
static uint64_t interrupts(void)
{
	FILE *f = fopen("/proc/interrupts", "r");
	char line[16384];
	uint64_t sum = 0;

	while (f && fgets(line, sizeof(line), f)) {
		char *p = strchr(line, ':');

		if (!strstr(line, "nvidia") || !p)
			continue;
		for (p++;;) {
			char *end;
			unsigned long long n = strtoull(p, &end, 10);

			if (end == p)
				break;
			sum += n;
			p = end;
		}
	}
	if (f)
		fclose(f);
	return sum;
}

static struct rtx_timeline_stats stats(void)
{
	struct rtx_timeline_stats s = RTX_INIT(struct rtx_timeline_stats);

	must(rtx_timeline_stats(timeline, &s), "rtx_timeline_stats");
	return s;
}

static void print_trace(int i, bool asleep, uint64_t kernel_ns, uint64_t launched, uint64_t seen,
			uint64_t done)
{
	struct rtx_timeline_stats s = stats();
	uint64_t stamp = 0;

	/* the channel comes a little after the word */
	for (int look = 0; look < 1000 && rtx_timeline_stamp(timeline, awaited, &stamp); look++)
		usleep(10);
	printf("{\"trace\": %d, \"asleep\": %s, \"kernel_us\": %llu, \"launched_ns\": %llu, "
	       "\"stamp_ns\": %llu, "
	       "\"seen_ns\": %lld, \"done_ns\": %lld, \"looks\": %llu, \"hits\": %llu}\n",
	       i, asleep ? "true" : "false", (unsigned long long)kernel_ns / 1000,
	       (unsigned long long)launched, (unsigned long long)stamp,
	       (long long)(seen - launched), (long long)(done - launched),
	       (unsigned long long)s.looks, (unsigned long long)s.hits);
}

static void measure(const struct way *way, struct series *series, uint64_t kernel_ns)
{
	uint64_t cpu_ns = 0, raised = 0;
	uint32_t number = base = *gpu.cuda.words + 1;
	struct rtx_timeline_stats before = { 0 }, after;
	pthread_t seer;

	memset(seen_ns, 0, sizeof(seen_ns));
	stop = looks = false;
	pthread_create(&seer, NULL, see, NULL);
	while (!__atomic_load_n(&looks, __ATOMIC_ACQUIRE))
		usleep(50);
	on_processor(3, 40);
	must(rtx_timeline_foresee(timeline, way->foresee), "rtx_timeline_foresee");
	timer_ns = kernel_ns;
	for (int i = way->foresee ? -FIRST_RUNS : -WARM_RUNS; i < runs; i++, number++) {
		void *arguments[] = { &kernel_ns, &gpu.cuda.words_at, &number };
		uint64_t launched, called, done, seen;

		if (!i) {
			before = stats();
			raised = interrupts();
			cpu_ns = processor_ns();
		}
		if (way->wait == timer) {
			way->wait(&called);
			if (i < 0)
				continue;
			series->wake[series->count] = (int64_t)(rtxg_now_ns() - called - timer_ns);
			series->call[series->count++] = 0;
			continue;
		}
		must(cu[LAUNCH](gpu.cuda.kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, gpu.cuda.stream,
				arguments, NULL),
		     "cuLaunchKernel");
		launched = rtxg_now_ns();
		way->wait(&called);
		done = rtxg_now_ns();
		do
			seen = __atomic_load_n(&seen_ns[number - base], __ATOMIC_ACQUIRE);
		while (!seen && rtxg_now_ns() < done + RELAXED);
		if (i < 0)
			continue;
		series->wake[series->count] = (int64_t)(done - seen);
		series->call[series->count++] = (int64_t)(called - launched);
		if (way->foresee && i < traced) {
			uint64_t began = processor_ns();

			print_trace(i, way->foresee == RTX_FORESEE_SLEEP, kernel_ns, launched, seen,
				    done);
			cpu_ns += processor_ns() - began; /* no part of the wait */
		}
	}
	series->cpu_ns += processor_ns() - cpu_ns;
	series->raised += interrupts() - raised;
	after = stats();
	series->looks += after.looks - before.looks;
	series->hits += after.hits - before.hits;
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(seer, NULL);
}

static void print_series(const struct way *way, struct series *s, uint64_t kernel_ns)
{
	printf("{\"way\": \"%s\", \"kernel_us\": %llu, \"loaded\": %s, \"runs\": %d, ", way->name,
	       (unsigned long long)kernel_ns / 1000, loaded ? "true" : "false", s->count);
	put("wake", s->wake, s->count, ", ");
	put("call", s->call, s->count, ", ");
	printf("\"cpu_us\": %.1f, \"interrupts\": %.2f, \"looks\": %.2f, \"hits\": %.2f}\n",
	       (double)s->cpu_ns / 1e3 / s->count, (double)s->raised / s->count,
	       (double)s->looks / s->count, (double)s->hits / s->count);
	fflush(stdout);
}

static void make_context(unsigned int flags)
{
	cuda_open(&gpu.cuda, device, flags, ptx, "spin");
	must(cu[EVENT](&gpu.event, EVENT_BLOCKS), "cuEventCreate");
}

/* rtx_nvrm_init, again and again. */
static void measure_opening(int times, const char *when)
{
	static int64_t open_ns[RUNS_MAX], close_ns[RUNS_MAX];
	int64_t tenth[RUNS_MAX];
	char name[16];
	int64_t first;

	snprintf(name, sizeof(name), "%d", device);
	for (int i = 0; i < times; i++) {
		uint64_t began = rtxg_now_ns(), opened;
		rtx_timeline_t t;
		rtx_nvrm_t n;

		must(rtx_nvrm_init(&n, name), "rtx_nvrm_init");
		must(rtx_nvrm_timeline(n, NULL, &t), "rtx_nvrm_timeline");
		opened = rtxg_now_ns();
		must(rtx_nvrm_close(n), "rtx_nvrm_close");
		open_ns[i] = (int64_t)(opened - began);
		close_ns[i] = (int64_t)(rtxg_now_ns() - opened);
	}
	first = open_ns[0];
	printf("{\"init\": %d, \"when\": \"%s\", \"first_us\": %.0f, \"tenths_us\": [", times, when,
	       (double)first / 1e3);
	for (int from = 0, k = 1; k <= 10; k++) {
		int count = times * k / 10 - from;

		if (!count)
			continue;
		memcpy(tenth, open_ns + from, (size_t)count * sizeof(*tenth));
		qsort(tenth, (size_t)count, sizeof(*tenth), compare);
		printf("%s%.0f", from ? ", " : "", (double)tenth[count / 2] / 1e3);
		from += count;
	}
	printf("], ");
	put("open", open_ns, times, ", ");
	put("close", close_ns, times, "}\n");
	fflush(stdout);
}

/* Does CUDA let go of a page that a stream will still write to? The page itself stays. */
static void measure_unregistering(int times)
{
	static const uint64_t kernel_ns = 20000000;
	uint32_t number = 0;

	for (int i = 0; i < times; i++) {
		volatile uint32_t *page = aligned_alloc(4096, 4096);
		unsigned long long at;
		void *arguments[] = { (void *)(uintptr_t)&kernel_ns, &gpu.cuda.words_at, &number };
		uint64_t began, took;
		int error, after;
		uint32_t word;

		number++;
		if (!page)
			exit(1);
		*page = 0;
		must(cu[HOST_REGISTER]((void *)(uintptr_t)page, (size_t)4096, CUDA_HOST_MAPPED),
		     "cuMemHostRegister");
		must(cu[HOST_POINTER](&at, (void *)(uintptr_t)page, 0u),
		     "cuMemHostGetDevicePointer");
		must(cu[LAUNCH](gpu.cuda.kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, gpu.cuda.stream,
				arguments, NULL),
		     "cuLaunchKernel");
		must(cu[WRITE](gpu.cuda.stream, at, number, 0u), "cuStreamWriteValue32");
		began = rtxg_now_ns();
		error = cu[HOST_UNREGISTER]((void *)(uintptr_t)page);
		took = rtxg_now_ns() - began;
		word = *page;
		after = cu[STREAM_SYNC](gpu.cuda.stream);
		printf("{\"unregister\": %d, \"error\": %d, \"took_us\": %.0f, \"kernel_us\": "
		       "%llu, "
		       "\"written_by_then\": %s, \"written\": %s, \"stream_error\": %d}\n",
		       i, error, (double)took / 1e3, (unsigned long long)kernel_ns / 1000,
		       word == number ? "true" : "false", *page == number ? "true" : "false",
		       after);
		fflush(stdout);
		if (after)
			exit(1);
	}
}

static void *page_of(int rights)
{
	void *page = mmap(NULL, 4096, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return page == MAP_FAILED ? NULL : page;
}

/* Timelines on such words. 0, if all but the last one were refused, and that one works. */
static int try_words(void)
{
	static uint32_t ordinary[2048] __attribute__((aligned(4096)));
	void *gone = page_of(PROT_READ | PROT_WRITE);
	const struct {
		const char *what;
		void *word;
		int expected;
	} words[] = {
		{ "unmapped", gone, -EFAULT },
		{ "never mapped", (void *)0x1000, -EFAULT },
		{ "the kernel's", (void *)0xffff888000000000, -EFAULT },
		{ "not to be written", page_of(PROT_READ), -EFAULT },
		{ "not to be touched", page_of(PROT_NONE), -EFAULT },
		{ "misaligned", (char *)ordinary + 2, -EINVAL },
		{ "ordinary", ordinary + 1, 0 },
	};
	char name[16];
	int wrong = 0;
	rtx_nvrm_t n;

	snprintf(name, sizeof(name), "%d", device);
	must(rtx_nvrm_init(&n, name), "rtx_nvrm_init");
	munmap(gone, 4096); /* nothing of ours comes to its place any more */
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		rtx_timeline_t t = NULL;
		int ret = rtx_nvrm_timeline(n, words[i].word, &t);

		printf("{\"word\": \"%s\", \"ret\": %d, \"expected\": %d, \"said\": \"%s\"}\n",
		       words[i].what, ret, words[i].expected, ret ? rtx_strerror() : "");
		wrong |= ret != words[i].expected;
		if (ret)
			continue;
		must(rtx_timeline_arm(t, 1), "rtx_timeline_arm");
		__atomic_store_n(rtx_timeline_word(t), 1, __ATOMIC_RELEASE);
		must(rtx_timeline_wait(t, 1, RTX_SYNC_NOTIFY, rtxg_now_ns() + RELAXED),
		     "rtx_timeline_wait");
		must(rtx_timeline_close(t), "rtx_timeline_close");
	}
	must(rtx_nvrm_close(n), "rtx_nvrm_close");
	return wrong;
}

#define ONLY_MAX 8
static const char *only[ONLY_MAX];

static bool is_wanted(const struct way *way)
{
	bool wanted = !only[0];

	for (int i = 0; i < ONLY_MAX && only[i]; i++)
		wanted = wanted || strstr(way->name, only[i]);
	return wanted;
}

static void measure_all(void)
{
	uint64_t now = rtxg_now_ns();
	uint64_t end = time_ns < UINT64_MAX - now ? now + time_ns : UINT64_MAX;

	for (size_t w = 0; w < WAYS; w++)
		for (size_t k = 0; k < KERNELS; k++) {
			all[w][k].wake = calloc((size_t)(runs * rounds), sizeof(int64_t));
			all[w][k].call = calloc((size_t)(runs * rounds), sizeof(int64_t));
			if (!all[w][k].wake || !all[w][k].call)
				exit(1);
		}
	for (int round = 0; round < rounds && (!round || rtxg_now_ns() < end); round++)
		for (size_t w = 0; w < WAYS; w++) {
			if (!is_wanted(&ways[w]))
				continue;
			gpu = gpus[ways[w].context];
			must(cu[SET_CURRENT](gpu.cuda.context), "cuCtxSetCurrent");
			for (size_t k = 0; k < KERNELS; k++)
				measure(&ways[w], &all[w][k], kernels_ns[k]);
		}
	for (size_t w = 0; w < WAYS; w++)
		for (size_t k = 0; k < KERNELS && is_wanted(&ways[w]); k++)
			print_series(&ways[w], &all[w][k], kernels_ns[k]);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "runs", 1, NULL, 'r' },   { "load", 0, NULL, 'l' },
		{ "device", 1, NULL, 'd' }, { "init", 1, NULL, 'i' },
		{ "rounds", 1, NULL, 'o' }, { "trace", 1, NULL, 't' },
		{ "only", 1, NULL, 'y' },   { "unregister", 1, NULL, 'u' },
		{ "for", 1, NULL, 'f' },    { "words", 0, NULL, 'w' },
		{ NULL, 0, NULL, 0 }
	};
	int opt, times = 0, unregister = 0, parts = 0;
	bool words = false;
	char name[16];

	while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0)
		switch (opt) {
		case 'r':
			runs = atoi(optarg);
			break;
		case 'l':
			loaded = true;
			break;
		case 'd':
			device = atoi(optarg);
			break;
		case 'i':
			times = atoi(optarg);
			break;
		case 'o':
			rounds = atoi(optarg);
			break;
		case 't':
			traced = atoi(optarg);
			break;
		case 'w':
			words = true;
			break;
		case 'u':
			unregister = atoi(optarg);
			break;
		case 'f':
			time_ns = strtoull(optarg, NULL, 10) * 1000000000u;
			break;
		case 'y':
			if (parts == ONLY_MAX)
				return 64;
			only[parts++] = optarg;
			break;
		default:
			return 64;
		}
	if (runs < 10 || runs > RUNS_MAX || times < 0 || times > RUNS_MAX || rounds < 1 ||
	    rounds > ROUNDS_MAX) {
		fprintf(stderr, "waits: --runs takes 10 to %d, --init 0 to %d, --rounds 1 to %d\n",
			RUNS_MAX, RUNS_MAX, ROUNDS_MAX);
		return 64;
	}
	if (words)
		return try_words();
	if (times)
		measure_opening(times, "before CUDA");
	cuda_find("waits");
	if (times)
		measure_opening(times, "with CUDA");
	for (long i = 0; loaded && i < sysconf(_SC_NPROCESSORS_ONLN); i++)
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (volatile uint64_t n = 0;; n++)
				;
		}
	for (int c = 0; c < 2; c++) {
		make_context(c ? BLOCK : SPIN);
		gpus[c] = gpu;
	}
	if (unregister) {
		measure_unregistering(unregister);
		return 0;
	}
	if (times)
		measure_opening(times, "with contexts");
	snprintf(name, sizeof(name), "%d", device);
	must(rtx_nvrm_init(&nvrm, name), "rtx_nvrm_init");
	must(rtx_nvrm_timeline(nvrm, NULL, &timeline), "rtx_nvrm_timeline");
	measure_all();
	if (times)
		measure_opening(times, "beside another handle");
	{
		struct rtx_timeline_stats s = stats();

		printf("{\"armed\": %llu, \"waits\": %llu, \"wakes\": %llu, \"missed\": %llu, "
		       "\"looks\": %llu, \"hits\": %llu}\n",
		       (unsigned long long)s.armed, (unsigned long long)s.waits,
		       (unsigned long long)s.wakes, (unsigned long long)s.missed,
		       (unsigned long long)s.looks, (unsigned long long)s.hits);
	}
	must(rtx_nvrm_close(nvrm), "rtx_nvrm_close");
	if (times)
		measure_opening(times, "after all kernels");
	return 0;
}
