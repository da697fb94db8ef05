// SPDX-License-Identifier: MIT
/*
 * stops_after_launch.c - a GPU program that has no CPU any more once it has launched: it stops
 * itself by SIGSTOP behind rtx_gpu_notify. Its GPU is not there: tests/daemon/test_fence.py writes
 * the word and raises the interrupt in its place, from another process.
 *
 *     stops_after_launch notify|fence shared|own|anew LAUNCHES
 *
 * fence: it looks at the word instead of sleeping. own: the word is the program's own, which no
 * host can see. anew: the GPU is closed and opened again after each launch, and the values become
 * less.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_nvrm.h"
#include "nvrm_gpu.h"
#include "rtxg.h"
#include "rtxg_nvrm.h"

static uint32_t own_word[1024] __attribute__((aligned(4096)));

static int check(int ret, const char *what)
{
	if (ret)
		fprintf(stderr, "%s: %s\n", what, rtx_strerror());
	return ret;
}

int main(int argc, char **argv)
{
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	unsigned int launches;
	rtx_nvrm_t nvrm = NULL;
	bool own, anew;
	rtx_gpu_t gpu;

	if (argc != 4)
		return 2;
	own = !strcmp(argv[2], "own");
	anew = !strcmp(argv[2], "anew");
	launches = (unsigned int)strtoul(argv[3], NULL, 10);
	fake_nvrm_reset();
	rtx_lib_nvrm_sys = &fake_nvrm_sys;
	options.flags = RTX_OPEN_NO_SPAWN;
	notify.how = !strcmp(argv[1], "fence") ? RTX_SYNC_FENCE : RTX_SYNC_NOTIFY;
	if (check(rtx_gpu_open(&gpu, &options), "open"))
		return 1;
	for (unsigned int i = 1; i <= launches; i++) {
		notify.value = anew ? launches + 1 - i : i;
		if ((!nvrm || anew) &&
		    ((nvrm && check(rtx_nvrm_close(nvrm), "close")) ||
		     check(rtx_nvrm_init(&nvrm, NULL), "nvrm") ||
		     check(rtx_nvrm_timeline(nvrm, own ? own_word : NULL, &notify.timeline),
			   "timeline")))
			return 1;
		if (check(rtx_gpu_launch(gpu, RTX_COMPUTE), "launch") ||
		    check(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), "notify"))
			return 1;
		raise(SIGSTOP);
		if (check(rtx_gpu_sync(gpu, RTX_COMPUTE), "sync"))
			return 1;
		printf("synced %u\n", notify.value);
		fflush(stdout);
	}
	return rtx_gpu_close(gpu) || rtx_nvrm_close(nvrm);
}
