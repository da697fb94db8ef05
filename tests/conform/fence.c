// SPDX-License-Identifier: MIT
/*
 * fence.c - a GPU program that waits for a fence, and says how librtxg waited: by giving the CPU
 * away (sched_yield) or by sleeping (clock_nanosleep). This program defines both functions. They
 * count their calls and write the fence after a few looks, so that no result depends on time.
 * Prints "policy POLICY yields N sleeps N".
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "rtxg.h"

#define LOOKS 5

static volatile uint32_t fence;
static unsigned int yields, sleeps;

static int looked(void)
{
	if (yields + sleeps >= LOOKS)
		fence = 1;
	return 0;
}

int sched_yield(void)
{
	yields++;
	return looked();
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
	sleeps++;
	return looked();
}

int main(void)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	rtx_gpu_t gpu;
	int policy = sched_getscheduler(0), ret;

	options.flags = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;
	notify.how = RTX_SYNC_FENCE;
	notify.word = &fence;
	notify.value = 1;
	ret = rtx_gpu_open(&gpu, &options);
	if (!ret)
		ret = rtx_gpu_launch(gpu, RTX_COMPUTE);
	if (!ret)
		ret = rtx_gpu_notify(gpu, RTX_COMPUTE, &notify);
	yields = sleeps = 0;
	if (!ret)
		ret = rtx_gpu_sync(gpu, RTX_COMPUTE);
	if (ret) {
		fprintf(stderr, "fence: %s\n", rtx_strerror());
		return 1;
	}
	printf("policy %#x yields %u sleeps %u\n", (unsigned int)policy, yields, sleeps);
	return rtx_gpu_close(gpu) ? 1 : 0;
}
