// SPDX-License-Identifier: MIT
/*
 * handover.c - from one process's completion to the next process's start: two processes that both always want the engine and use it for
 * nothing, under FIFO, so that every launch goes through the daemon; against two processes that hand a futex to and fro. One hand-over is one
 * wake-up of the other process with the futex, and two (daemon, other process) with rtxg.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rtxg.h>

#include "bench.h"

#define ROUNDS 15
#define TURNS 4000

struct shared {
	_Atomic uint32_t turn; /* futex ping-pong: whose turn it is */
	_Atomic uint32_t ready, go;
	double ns[2];
};

static struct shared *shared;

static void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
	syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

/* The two sides start together, each on its own core if there are two. */
static void line_up(int side)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(side, &set);
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		sched_setaffinity(0, sizeof(set), &set);
	shared->ready++;
	while (!shared->go)
		futex(&shared->go, FUTEX_WAIT, 0);
}

static int ping_pong(int side)
{
	uint64_t start;

	line_up(side);
	start = bench_now();
	for (int i = 0; i < TURNS; i++) {
		uint32_t seen;

		while ((seen = shared->turn) != (uint32_t)side)
			futex(&shared->turn, FUTEX_WAIT, seen);
		shared->turn = (uint32_t)!side;
		futex(&shared->turn, FUTEX_WAKE, 1);
	}
	shared->ns[side] = (double)(bench_now() - start) / (2 * TURNS);
	return 0;
}

static int permits(int side)
{
	rtx_gpu_t gpu;
	uint64_t start;
	int ret = rtx_gpu_open(&gpu, NULL);

	if (ret) {
		fprintf(stderr, "handover: rtx_gpu_open: %s\n", rtx_strerror());
		return 1;
	}
	line_up(side);
	start = bench_now();
	for (int i = 0; i < TURNS && !ret; i++) {
		ret = rtx_gpu_launch(gpu, RTXG_COMPUTE);
		if (!ret)
			ret = rtx_gpu_complete(gpu, RTXG_COMPUTE, 0);
	}
	shared->ns[side] = (double)(bench_now() - start) / (2 * TURNS);
	if (ret)
		fprintf(stderr, "handover: %s\n", rtx_strerror());
	rtx_gpu_close(gpu);
	return ret != 0;
}

static double both(int (*side)(int))
{
	pid_t pid[2];
	int bad = 0;

	memset(shared, 0, sizeof(*shared));
	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		if (!pid[i])
			_exit(side(i));
	}
	while (shared->ready < 2) {
		int status;

		/* A side that could not start never gets ready. */
		for (int i = 0; i < 2; i++)
			if (waitpid(pid[i], &status, WNOHANG) == pid[i])
				exit(1);
		usleep(1000);
	}
	shared->go = 1;
	futex(&shared->go, FUTEX_WAKE, INT_MAX);
	for (int i = 0; i < 2; i++) {
		int status;

		waitpid(pid[i], &status, 0);
		bad |= status;
	}
	if (bad)
		exit(1);
	return (shared->ns[0] + shared->ns[1]) / 2;
}

int main(void)
{
	double bare[ROUNDS], rtxg[ROUNDS];
	char *reply = NULL;
	rtx_gpu_t gpu;
	int ret;

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	/* Keeps the host alive, and sets the policy under which every launch is a decision. */
	ret = rtx_gpu_open(&gpu, NULL);
	if (!ret)
		ret = rtx_control("{\"op\": \"gpu-set\", \"policy\": \"fifo\"}", &reply);
	free(reply);
	if (ret) {
		fprintf(stderr, "handover: %s\n", rtx_strerror());
		return 1;
	}
	for (int i = 0; i < ROUNDS; i++) {
		bare[i] = both(ping_pong) / 1000;
		rtxg[i] = both(permits) / 1000;
	}
	rtx_gpu_close(gpu);
	{
		double b = bench_median(bare, ROUNDS), r = bench_median(rtxg, ROUNDS);

		bench_report("handover", "hand-over between processes", "us", r, b, "futex ping-pong", "ratio", r / b, 2);
	}
	return 0;
}
