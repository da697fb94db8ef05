// SPDX-License-Identifier: MIT
/*
 * nvrm_steps.c - where the time of rtx_nvrm_init goes: each system call of the set-up with the
 * median of its time, in the order in which they come. Needs NVIDIA's driver, and no CUDA.
 *
 *     nvrm_steps [RUNS] [DEVICE]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvrm_abi.h"
#include "nvrm_gpu.h"
#include "rtxg_clock.h"
#include "rtxg_nvrm.h"

#define STEPS 96
#define RUNS  500

static struct step {
	char name[48];
	int64_t took[RUNS];
	int count;
} steps[STEPS];
static int step, run;
static bool counts;

static void took(const char *what, uint64_t number, uint64_t began)
{
	int64_t ns = (int64_t)(rtxg_now_ns() - began);

	if (!counts || step == STEPS)
		return;
	snprintf(steps[step].name, sizeof(steps[step].name), what, (unsigned int)number);
	steps[step].took[steps[step].count++] = ns;
	step++;
}

static int timed_open(void *ctx, const char *path)
{
	uint64_t began = rtxg_now_ns();
	int fd = nv_sys_linux.open(ctx, path);

	took(!strcmp(path, "/dev/nvidiactl") ? "open nvidiactl" : "open nvidiaN", 0, began);
	return fd;
}

static int timed_close(void *ctx, int fd)
{
	uint64_t began = rtxg_now_ns();
	int ret = nv_sys_linux.close(ctx, fd);

	took("close", 0, began);
	return ret;
}

static int timed_ioctl(void *ctx, int fd, uint32_t request, void *arg)
{
	uint64_t began = rtxg_now_ns();
	int ret = nv_sys_linux.ioctl(ctx, fd, request, arg);

	if (request == RM_IOC(NV_ESC_RM_ALLOC, struct nvos64))
		took("alloc class 0x%04x", ((struct nvos64 *)arg)->class_id, began);
	else if (request == RM_IOC(NV_ESC_RM_CONTROL, struct nvos54))
		took("control 0x%08x", ((struct nvos54 *)arg)->cmd, began);
	else
		took("escape 0x%02x", request & 0xff, began);
	return ret;
}

static int timed_map(void *ctx, int fd, size_t length, void **address)
{
	uint64_t began = rtxg_now_ns();
	int ret = nv_sys_linux.mmap_writable(ctx, fd, length, address);

	took("mmap", 0, began);
	return ret;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static double median_us(int64_t *values, int count)
{
	qsort(values, (size_t)count, sizeof(*values), compare);
	return (double)values[count / 2] / 1e3;
}

int main(int argc, char **argv)
{
	static int64_t whole[RUNS], shut[RUNS];
	int runs = argc > 1 ? atoi(argv[1]) : 50;
	struct nv_sys timed = nv_sys_linux;
	double sum = 0;

	if (runs < 1 || runs > RUNS)
		return 64;
	timed.open = timed_open;
	timed.close = timed_close;
	timed.ioctl = timed_ioctl;
	timed.mmap_writable = timed_map;
	rtx_lib_nvrm_sys = &timed;
	for (run = 0; run < runs; run++) {
		uint64_t began = rtxg_now_ns();
		rtx_timeline_t timeline;
		rtx_nvrm_t nvrm;

		step = 0;
		counts = true;
		if (rtx_nvrm_init(&nvrm, argc > 2 ? argv[2] : NULL) ||
		    rtx_nvrm_timeline(nvrm, NULL, &timeline)) {
			fprintf(stderr, "nvrm_steps: %s\n", rtx_strerror());
			return 77;
		}
		counts = false;
		whole[run] = (int64_t)(rtxg_now_ns() - began);
		began = rtxg_now_ns();
		rtx_nvrm_close(nvrm);
		shut[run] = (int64_t)(rtxg_now_ns() - began);
	}
	for (int i = 0; i < STEPS && steps[i].count; i++) {
		double us = median_us(steps[i].took, steps[i].count);

		sum += us;
		printf("%2d %-26s %8.1f us\n", i, steps[i].name, us);
	}
	printf("init and a timeline %.1f us (of it %.1f in %d calls), close %.1f us, %d runs\n",
	       median_us(whole, runs), sum, step, median_us(shut, runs), runs);
	return 0;
}
