// SPDX-License-Identifier: MIT
/*
 * cuda_task.cu - a periodic real-time task with a CUDA kernel in each job, as the sample of
 * Linux-RTXG (2015, figures 2 and 3): the GPU is asked for, the kernel launched, and its end learnt
 * from a word that the GPU writes (FENCE) or from an interrupt that the GPU raises (NOTIFY), not
 * from CUDA.
 *
 *     nvcc -o cuda_task cuda_task.cu $(pkg-config --cflags --libs rtxg)
 *     ./cuda_task [fence | notify | cuda] [JOBS [PERIOD_MS [KERNEL_US]]]
 *
 * With the kernel module loaded the thread is scheduled by rate-monotonic priority, too. Without it
 * the program says so, and sleeps until each release by itself. It prints response times (from a
 * job's release to its end) and the processor time of a job. "cuda" waits by CUDA's own
 * cudaStreamSynchronize, for comparison.
 */
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include <rtxg.h>
#include <rtxg_cpu.h>
#include <rtxg_nvrm.h>

/* How much longer than its kernel a job may take before it is given up. */
static const uint64_t LIMIT_NS = 10000000000u;

static uint64_t time_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void must(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "cuda_task: %s: %s\n", what, rtx_strerror());
	exit(1);
}

static void must_cuda(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "cuda_task: %s: %s\n", what, cudaGetErrorString(error));
	exit(1);
}

/* The job's work: so many turns of a multiplication in each thread. */
__global__ void work(float *data, int turns)
{
	float x = data[threadIdx.x];

	for (int i = 0; i < turns; i++)
		x = x * 1.000001f + 0.5f;
	data[threadIdx.x] = x;
}

/* By the GPU's clock: the CPU's would count how late this thread learns of the end, too. */
static int turns_for(float *data, cudaStream_t stream, uint64_t us)
{
	int turns = 1000000;
	cudaEvent_t began, ended;
	float ms;

	must_cuda(cudaEventCreate(&began), "event");
	must_cuda(cudaEventCreate(&ended), "event");
	work<<<1, 256, 0, stream>>>(data, 1000); /* the first one loads code */
	must_cuda(cudaEventRecord(began, stream), "first event");
	work<<<1, 256, 0, stream>>>(data, turns);
	must_cuda(cudaEventRecord(ended, stream), "second event");
	must_cuda(cudaStreamSynchronize(stream), "kernel");
	must_cuda(cudaEventElapsedTime(&ms, began, ended), "time");
	must_cuda(cudaEventDestroy(began), "event");
	must_cuda(cudaEventDestroy(ended), "event");
	return (int)(turns * (double)us / 1000.0 / ms) + 1;
}

/* Asks for a place among the CPU's real-time tasks; false without the kernel module. */
static bool schedule_thread(uint64_t period_ns, uint64_t kernel_ns)
{
	int ret = rtx_cpu_init();

	if (!ret)
		ret = rtx_cpu_set_scheduler(RTX_CPU_RM, 0);
	if (!ret)
		ret = rtx_cpu_set_period(period_ns);
	if (!ret)
		ret = rtx_cpu_set_wcet(kernel_ns / 10 + 200000);
	if (!ret)
		ret = rtx_cpu_set_suspension(kernel_ns);
	if (!ret)
		ret = rtx_cpu_run(0);
	if (ret)
		fprintf(stderr, "cuda_task: not scheduled by the kernel module: %s\n",
			rtx_strerror());
	return !ret;
}

/* Sleeps until the next job's release, and says when that was. */
static uint64_t wait_for_release(uint64_t release, bool scheduled)
{
	struct timespec t;
	struct rtx_cpu_job job = RTX_INIT(struct rtx_cpu_job);

	if (scheduled) {
		must(rtx_cpu_wait_period(&job), "rtx_cpu_wait_period");
		return job.release_ns;
	}
	t.tv_sec = (time_t)(release / 1000000000u);
	t.tv_nsec = (long)(release % 1000000000u);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
	return release;
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "notify";
	int jobs = argc > 2 ? atoi(argv[2]) : 200;
	uint64_t period_ns = (argc > 3 ? strtoull(argv[3], NULL, 10) : 10) * 1000000u;
	uint64_t kernel_us = argc > 4 ? strtoull(argv[4], NULL, 10) : 1000;
	bool by_cuda = !strcmp(way, "cuda"), scheduled;
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	std::vector<double> response_us;
	rtx_timeline_t timeline = NULL;
	rtx_nvrm_t nvrm = NULL;
	cudaStream_t stream;
	uint64_t release, cpu_ns;
	rtx_gpu_t gpu;
	float *data;
	int turns;

	if ((!by_cuda && strcmp(way, "fence") && strcmp(way, "notify")) || jobs < 1 || !period_ns) {
		fprintf(stderr, "usage: cuda_task [fence | notify | cuda] [JOBS [PERIOD_MS "
				"[KERNEL_US]]]\n");
		return 64;
	}
	must_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
	must_cuda(cudaMalloc(&data, 256 * sizeof(*data)), "memory");
	turns = turns_for(data, stream, kernel_us);

	options.period_ns = period_ns;
	options.runtime_ns = kernel_us * 1000;
	options.flags =
		RTX_OPEN_UNMANAGED; /* works without rtxgd, too: then nobody is waited for */
	must(rtx_gpu_open(&gpu, &options), "rtx_gpu_open");
	if (!by_cuda) {
		must(rtx_nvrm_init(&nvrm, NULL), "rtx_nvrm_init");
		must(rtx_nvrm_timeline(nvrm, NULL, &timeline), "rtx_nvrm_timeline");
	}
	notify.how = !strcmp(way, "fence") ? RTX_SYNC_FENCE : RTX_SYNC_NOTIFY;
	notify.timeline = timeline;

	scheduled = schedule_thread(period_ns, kernel_us * 1000);
	cpu_ns = time_of(CLOCK_THREAD_CPUTIME_ID);
	release = time_of(CLOCK_MONOTONIC);
	for (int job = 0; job < jobs; job++) {
		must(rtx_gpu_launch(gpu, RTX_COMPUTE), "rtx_gpu_launch");
		work<<<1, 256, 0, stream>>>(data, turns);
		if (by_cuda) {
			must_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
		} else {
			must(rtx_timeline_signal(timeline, stream, &notify.value),
			     "rtx_timeline_signal");
			/* work that fails writes no word */
			notify.until_ns = time_of(CLOCK_MONOTONIC) + LIMIT_NS + kernel_us * 1000;
			must(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), "rtx_gpu_notify");
		}
		must(rtx_gpu_sync(gpu, RTX_COMPUTE), "rtx_gpu_sync");
		response_us.push_back((double)(time_of(CLOCK_MONOTONIC) - release) / 1e3);

		release = wait_for_release(release + period_ns, scheduled);
	}
	cpu_ns = time_of(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	std::sort(response_us.begin(), response_us.end());
	printf("%s: %d jobs, response p50 %.0f us, p99 %.0f us, worst %.0f us, %.0f us of CPU a "
	       "job\n",
	       way, jobs, response_us[jobs / 2], response_us[jobs * 99 / 100],
	       response_us[jobs - 1], (double)cpu_ns / 1e3 / jobs);

	if (scheduled)
		rtx_cpu_exit();
	if (!by_cuda)
		must(rtx_nvrm_close(nvrm), "rtx_nvrm_close");
	must(rtx_gpu_close(gpu), "rtx_gpu_close");
	return 0;
}
