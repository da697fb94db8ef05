// SPDX-License-Identifier: MIT
/*
 * handover.c - from one process's completion to the next process's start.
 *
 * Two processes want the same engine all the time and occupy it for 50 us a launch, under FIFO. So
 * one process sleeps in its launch when the other completes, and every launch is a decision of the
 * daemon. The completing process stamps the time before it reports the completion. The starting
 * process stamps the time after its launch returned. For comparison, two processes hand a futex to
 * each other in the same manner. A hand-over wakes one process with the futex, and two (the daemon
 * and the other process) with rtxg; one where rtxg.ko is the host.
 *
 * Hand-overs that the machine interrupted count in the median like all others. A start that follows
 * a completion of the same process is no hand-over and is not counted.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rtxg.h>
#include <rtxg/host.h>

#include "bench.h"
#include "rtxg_core.h"

#define ROUNDS	    9
#define TURNS	    1500
#define OCCUPIED_NS 50000
#define PATIENCE_S  60 /* a round takes about half a second */

struct shared {
	_Atomic uint32_t turn; /* futex ping-pong: whose turn it is */
	_Atomic uint32_t ready, go;
	_Atomic uint64_t completed; /* when */
	_Atomic uint32_t completed_by;
	uint32_t count[2];
	double us[2][TURNS];
};

static struct shared *shared;
static pid_t sides[2];

/*
 * A round that does not end says how far it came, rather than nothing. It comes while main() sleeps
 * or waits, so formatting is safe.
 */
static void stalled(int signal)
{
	char text[128];
	int n = snprintf(text, sizeof(text),
			 "handover: stalled: %u sides ready, %u and %u hand-overs seen\n",
			 (unsigned int)shared->ready, shared->count[0], shared->count[1]);

	for (int i = 0; i < 2; i++)
		if (sides[i] > 0)
			kill(sides[i], SIGKILL);
	_exit(write(STDERR_FILENO, text, (size_t)n) == n ? 1 : 2);
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
	syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

/*
 * The two sides start together, each on its own core if there are two, and ahead of whatever else
 * the machine does where that is allowed.
 */
static void line_up(int side)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(side, &set);
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		sched_setaffinity(0, sizeof(set), &set);
	sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = 1 });
	shared->ready++;
	while (!shared->go)
		futex(&shared->go, FUTEX_WAIT, 0);
}

static void occupy(void)
{
	uint64_t until;

	/* On one CPU the other side could not ask before this one is through with all its turns. */
	if (sysconf(_SC_NPROCESSORS_ONLN) == 1)
		sched_yield();
	until = rtxg_now_ns() + OCCUPIED_NS;
	while (rtxg_now_ns() < until)
		;
}

static void started(int side)
{
	uint64_t now = rtxg_now_ns();

	if (shared->completed_by == (uint32_t)!side + 1)
		shared->us[side][shared->count[side]++] = (double)(now - shared->completed) / 1000;
}

static void completing(int side)
{
	shared->completed_by = (uint32_t)side + 1;
	shared->completed = rtxg_now_ns();
}

static int ping_pong(int side)
{
	line_up(side);
	for (int i = 0; i < TURNS; i++) {
		uint32_t seen;

		while ((seen = shared->turn) != (uint32_t)side)
			futex(&shared->turn, FUTEX_WAIT, seen);
		started(side);
		occupy();
		completing(side);
		shared->turn = (uint32_t)!side;
		futex(&shared->turn, FUTEX_WAKE, 1);
	}
	return 0;
}

static int permits(int side)
{
	rtx_gpu_t gpu;
	int ret = rtx_gpu_open(&gpu, NULL);

	if (ret) {
		fprintf(stderr, "handover: rtx_gpu_open: %s\n", rtx_strerror());
		return 1;
	}
	line_up(side);
	for (int i = 0; i < TURNS && !ret; i++) {
		ret = rtx_gpu_launch(gpu, RTX_COMPUTE);
		if (ret)
			break;
		started(side);
		occupy();
		completing(side);
		ret = rtx_gpu_complete(gpu, RTX_COMPUTE, 0);
	}
	if (ret)
		fprintf(stderr, "handover: %s\n", rtx_strerror());
	rtx_gpu_close(gpu);
	return ret != 0;
}

static double both(int (*side)(int))
{
	int bad = 0;

	memset(shared, 0, sizeof(*shared));
	alarm(PATIENCE_S);
	for (int i = 0; i < 2; i++) {
		sides[i] = fork();
		if (!sides[i])
			_exit(side(i));
	}
	while (shared->ready < 2) {
		int status;

		/* A side that could not start never gets ready. */
		for (int i = 0; i < 2; i++)
			if (waitpid(sides[i], &status, WNOHANG) == sides[i]) {
				fprintf(stderr,
					"handover: a side ended with status 0x%x before it was "
					"ready\n",
					status);
				exit(1);
			}
		usleep(1000);
	}
	shared->go = 1;
	futex(&shared->go, FUTEX_WAKE, INT_MAX);
	for (int i = 0; i < 2; i++) {
		int status;

		waitpid(sides[i], &status, 0);
		sides[i] = 0;
		bad |= status;
	}
	alarm(0);
	if (bad) {
		fprintf(stderr, "handover: a side ended with status 0x%x\n", bad);
		exit(1);
	}
	/*
	 * On a busy machine one side may be kept from running while the other goes through all its
	 * turns: that round says nothing.
	 */
	if (shared->count[0] < 50 || shared->count[1] < 50)
		return -1;
	return (bench_median(shared->us[0], shared->count[0]) +
		bench_median(shared->us[1], shared->count[1])) /
	       2;
}

static double round_of(int (*side)(int))
{
	for (int i = 0; i < 5; i++) {
		double us = both(side);

		if (us >= 0)
			return us;
	}
	fprintf(stderr, "handover: this machine is too busy: the two sides never ran together\n");
	exit(1);
}

/* The policy under which every launch is a decision: by the daemon, or else to rtxg.ko itself. */
static int set_fifo(void)
{
	struct rtxg_host_gpu fifo = { .size = sizeof(fifo), .name = "0", .policy = RTXG_GPU_FIFO };
	char *reply = NULL;
	int device, ret = rtx_control("{\"op\": \"gpu-set\", \"policy\": \"fifo\"}", &reply);

	free(reply);
	if (ret != -EHOSTDOWN)
		return ret;
	device = open("/dev/rtxg", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return ret;
	ret = ioctl(device, RTXG_IOC_HOST_GPU, &fifo) ? -errno : 0;
	close(device);
	return ret;
}

int main(void)
{
	double bare[ROUNDS], rtxg[ROUNDS];
	rtx_gpu_t gpu;
	int ret;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	signal(SIGALRM, stalled);
	/* Keeps the host alive. */
	ret = rtx_gpu_open(&gpu, NULL);
	if (!ret)
		ret = set_fifo();
	if (ret) {
		fprintf(stderr, "handover: %s\n", rtx_strerror());
		return 1;
	}
	for (int i = 0; i < ROUNDS; i++) {
		bare[i] = round_of(ping_pong);
		rtxg[i] = round_of(permits);
	}
	rtx_gpu_close(gpu);
	{
		double b = bench_median(bare, ROUNDS), r = bench_median(rtxg, ROUNDS);

		bench_report("handover", "hand-over between processes", "us", r, b,
			     "futex ping-pong", "ratio", r / b, 2);
	}
	return 0;
}
