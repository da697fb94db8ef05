// SPDX-License-Identifier: MIT
/*
 * permit.c - the cost of a launch when no other task wants the engine, against the same loop
 * without the launch:
 *   - the permit check alone: rtx_gpu_launch, the engine busy already; the completions are not
 *     timed;
 *   - launch and completion, the engine busy with another launch, so that no clock is read;
 *   - launch and completion, the engine idle before and after: two readings of the clock.
 */
#include <errno.h>
#include <string.h>

#include <rtxg.h>

#include "bench.h"

#define ROUNDS	 41
#define LAUNCHES 200000

static volatile uint64_t sink;

/* librtxg allows 32 launches outstanding; one is there for the engine to be busy. */
#define BATCH 31

static double launches_only(rtx_gpu_t gpu)
{
	uint64_t spent = 0;
	int ret = rtx_gpu_launch(gpu, RTX_COMPUTE);

	for (unsigned int i = 0; i < LAUNCHES / BATCH; i++) {
		uint64_t start = rtxg_now_ns();

		for (unsigned int j = 0; j < BATCH; j++) {
			ret |= rtx_gpu_launch(gpu, RTX_COMPUTE);
			sink += j;
		}
		spent += rtxg_now_ns() - start;
		for (unsigned int j = 0; j < BATCH; j++)
			ret |= rtx_gpu_complete(gpu, RTX_COMPUTE, 0);
	}
	ret |= rtx_gpu_complete(gpu, RTX_COMPUTE, 0);
	if (ret) {
		fprintf(stderr, "permit: a launch failed: %s\n", rtx_strerror());
		exit(1);
	}
	return (double)spent / (LAUNCHES / BATCH * BATCH);
}

static double loop(rtx_gpu_t gpu, bool outstanding)
{
	uint64_t start, end;
	int ret = 0;

	if (outstanding)
		ret = rtx_gpu_launch(gpu, RTX_COMPUTE);
	start = rtxg_now_ns();
	for (unsigned int i = 0; i < LAUNCHES; i++) {
		if (gpu) {
			ret |= rtx_gpu_launch(gpu, RTX_COMPUTE);
			sink += i;
			ret |= rtx_gpu_complete(gpu, RTX_COMPUTE, 0);
		} else {
			sink += i;
		}
	}
	end = rtxg_now_ns();
	if (outstanding)
		ret |= rtx_gpu_complete(gpu, RTX_COMPUTE, 0);
	if (ret) {
		fprintf(stderr, "permit: a launch failed: %s\n", rtx_strerror());
		exit(1);
	}
	return (double)(end - start) / LAUNCHES;
}

int main(void)
{
	double bare[ROUNDS], check[ROUNDS], nested[ROUNDS], whole[ROUNDS];
	double bare_ns, check_ns, nested_ns, whole_ns;
	rtx_gpu_t gpu;
	int ret = rtx_gpu_open(&gpu, NULL);

	if (ret) {
		fprintf(stderr, "permit: rtx_gpu_open: %s (%s)\n", rtx_strerror(), strerror(-ret));
		return 1;
	}
	for (int i = 0; i < ROUNDS; i++) {
		bare[i] = loop(NULL, false);
		check[i] = launches_only(gpu);
		nested[i] = loop(gpu, true);
		whole[i] = loop(gpu, false);
	}
	rtx_gpu_close(gpu);
	bare_ns = bench_median(bare, ROUNDS);
	check_ns = bench_median(check, ROUNDS);
	nested_ns = bench_median(nested, ROUNDS);
	whole_ns = bench_median(whole, ROUNDS);
	bench_report("permit", "permit check", "ns", check_ns, bare_ns, "bare loop",
		     "added ns per launch", check_ns - bare_ns, 50);
	bench_report("permit", "launch and completion, engine busy", "ns", nested_ns, bare_ns,
		     "bare loop", "added ns per launch", nested_ns - bare_ns, 100);
	bench_report("permit", "launch and completion, engine idle", "ns", whole_ns, bare_ns,
		     "bare loop", "added ns per launch", whole_ns - bare_ns, 200);
	return 0;
}
