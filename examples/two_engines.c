// SPDX-License-Identifier: MIT
/*
 * two_engines.c - a real-time GPU task in the style of Linux-RTXG's sample (2015, figure 2): each
 * job copies its input to the device, runs a kernel and copies the result back, every PERIOD. Each
 * step asks for its engine first, so that one task's copy may overlap another task's kernel.
 *
 * The program uses no GPU API, so that it runs anywhere. Where your program calls its GPU API
 * (cuLaunchKernel, clEnqueueNDRangeKernel, vkQueueSubmit), this program calls gpu_start. There a
 * thread plays the GPU: it takes some time, then writes to an eventfd, as an interrupt would.
 *
 *     cc two_engines.c $(pkg-config --cflags --libs rtxg) -pthread && rtxg run --min 40% -- ./a.out
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>

#include <rtxg.h>

#define PERIOD_NS 20000000ull
#define JOBS	  50

static void sleep_until(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000),
			      .tv_nsec = (long)(ns % 1000000000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
		;
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* --- the GPU, played by a thread -------------------------------------------------------------- */

struct work {
	int completed; /* eventfd */
	uint64_t takes_ns;
	pthread_t thread;
};

static void *gpu_thread(void *arg)
{
	struct work *work = arg;

	sleep_until(now() + work->takes_ns);
	eventfd_write(work->completed, 1);
	return NULL;
}

static void gpu_start(struct work *work, uint64_t takes_ns)
{
	work->takes_ns = takes_ns;
	if (pthread_create(&work->thread, NULL, gpu_thread, work))
		abort();
}

/* --- the task --------------------------------------------------------------------------------- */

static void check(int ret)
{
	if (ret) {
		fprintf(stderr, "%s\n", rtx_strerror());
		exit(1);
	}
}

/*
 * One step of a job: wait for the engine, start the work, sleep until told that it is done, give
 * the engine on.
 */
static void step(rtx_gpu_t gpu, enum rtx_engine engine, int completed, uint64_t takes_ns)
{
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	struct work work = { .completed = completed };

	notify.how = RTX_SYNC_NOTIFY;
	notify.fd = completed;
	check(rtx_gpu_launch(gpu, engine));
	gpu_start(&work, takes_ns);
	check(rtx_gpu_notify(gpu, engine, &notify));
	check(rtx_gpu_sync(gpu, engine));
	pthread_join(work.thread, NULL);
}

int main(void)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	uint64_t release, worst = 0;
	unsigned int missed = 0;
	char device[64];
	rtx_gpu_t gpu;
	int completed = eventfd(0, EFD_CLOEXEC);

	check(rtx_host_start());
	check(rtx_gpu_device_advice(NULL, device, sizeof(device)));
	options.device = device;
	options.period_ns = PERIOD_NS;
	options.runtime_ns = 4000000;
	check(rtx_gpu_open(&gpu, &options));

	release = now();
	for (int job = 0; job < JOBS; job++) {
		uint64_t response;

		step(gpu, RTX_COPY_IN, completed, 500000);
		step(gpu, RTX_COMPUTE, completed, 3000000);
		step(gpu, RTX_COPY_OUT, completed, 500000);
		response = now() - release;
		if (response > worst)
			worst = response;
		missed += response > PERIOD_NS;
		release += PERIOD_NS;
		sleep_until(release);
	}
	printf("%d jobs on GPU %s: longest response %.3f ms, %u past their deadline of %.0f ms\n",
	       JOBS, device, (double)worst / 1e6, missed, PERIOD_NS / 1e6);
	check(rtx_gpu_close(gpu));
	return 0;
}
