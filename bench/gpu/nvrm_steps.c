// SPDX-License-Identifier: MIT
/*
 * nvrm_steps.c - where the time of rtx_nvrm_init goes: each system call of the set-up, in the order
 * in which they come, and what lies between them. Prints one JSON object a line. Needs NVIDIA's
 * driver, and no CUDA.
 *
 *     nvrm_steps [--runs N] [--device N] [--bind] [--bare]
 *
 * Phases of each run: "init" is rtx_nvrm_init and a first timeline, "second" a second timeline,
 * "again" a timeline after both have been closed, which needs a new group of channels. "first_us"
 * is a call's time in the first run, "own_us" what passed between the call before and this one, in
 * the median. The last line of a phase has its whole time, and what came after its last call: for
 * init that is mostly the wait for the GPU's first release. --bind has each channel bound to its
 * engine before it is started, a call that librtxg leaves out where the driver does without: what
 * it saves by that. --bare opens each channel without a group of librtxg's, so that the driver
 * makes one of its own for each: what the group costs.
 */
#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvrm_abi.h"
#include "nvrm_gpu.h"
#include "rtxg_clock.h"
#include "rtxg_nvrm.h"
#ifdef RTXG_FAKE /* tests/lib: a driver that is not there */
#include "fake_nvrm.h"
#define DRIVER fake_nvrm_sys
#else
#define DRIVER nv_sys_linux
#endif

#define STEPS	 48
#define RUNS_MAX 500

enum phase { INIT, SECOND, AGAIN, PHASES };
static const char *const phase_names[PHASES] = { "init", "second", "again" };

static struct phase_times {
	struct step {
		char name[48];
		int64_t took[RUNS_MAX], own[RUNS_MAX];
		int count;
	} steps[STEPS];
	int64_t whole[RUNS_MAX], after[RUNS_MAX];
} phases[PHASES];

static struct phase_times *now; /* NULL: not a part of what is measured */
static int step;
static uint64_t last_ended;
static bool binds, bare;
static uint32_t last_channel, engine; /* that the driver was asked for last */
static uint32_t device, space, group; /* group: one that is not there */

static void took(const char *what, uint64_t number, uint64_t began)
{
	uint64_t ended = rtxg_now_ns();
	struct step *s;

	if (!now || step == STEPS)
		return;
	s = &now->steps[step++];
	if (s->count == RUNS_MAX)
		return;
	snprintf(s->name, sizeof(s->name), what, (unsigned int)number);
	s->took[s->count] = (int64_t)(ended - began);
	s->own[s->count++] = (int64_t)(began - last_ended);
	last_ended = rtxg_now_ns();
}

static int timed_open(void *ctx, const char *path)
{
	uint64_t began = rtxg_now_ns();
	int fd = DRIVER.open(ctx, path);

	took(!strcmp(path, "/dev/nvidiactl") ? "open nvidiactl" : "open nvidiaN", 0, began);
	return fd;
}

static int timed_close(void *ctx, int fd)
{
	uint64_t began = rtxg_now_ns();
	int ret = DRIVER.close(ctx, fd);

	took("close", 0, began);
	return ret;
}

static int timed_ioctl(void *ctx, int fd, uint32_t request, void *arg);

/* Ahead of the start of a group: what librtxg leaves out. */
static void bind_channel(void *ctx, int fd, uint32_t client)
{
	struct nvos54 c = { .client = client,
			    .object = last_channel,
			    .cmd = NVA06F_BIND,
			    .params = (uintptr_t)&engine,
			    .params_size = sizeof(engine) };

	timed_ioctl(ctx, fd, RM_IOC(NV_ESC_RM_CONTROL, struct nvos54), &c);
	if (c.status)
		fprintf(stderr, "nvrm_steps: --bind: status 0x%x\n", c.status);
}

/* Turns a call for librtxg's group into one for the channel alone. True: there is none to make. */
static bool without_group(uint32_t request, void *arg)
{
	struct nvos64 *a = arg;
	struct nvos54 *c = arg;
	struct nvos00 *f = arg;

	if (request == RM_IOC(NV_ESC_RM_ALLOC, struct nvos64)) {
		if (a->class_id == NV_CLASS_CHANNEL_GROUP) {
			device = a->parent;
			group = a->object;
			space = ((const struct nvrm_group_alloc *)(uintptr_t)a->params)->space;
			a->status = NV_STATUS_OK;
			return true;
		}
		if (group && a->parent == group) {
			a->parent = device;
			((struct nvrm_channel_alloc *)(uintptr_t)a->params)->space = space;
		}
	} else if (request == RM_IOC(NV_ESC_RM_CONTROL, struct nvos54)) {
		if (c->cmd == NVA06C_GPFIFO_SCHEDULE) {
			c->cmd = NVA06F_GPFIFO_SCHEDULE;
			c->object = last_channel;
		}
	} else if (request == RM_IOC(NV_ESC_RM_FREE, struct nvos00) && f->object == group) {
		f->status = NV_STATUS_OK;
		return true;
	}
	return false;
}

static int timed_ioctl(void *ctx, int fd, uint32_t request, void *arg)
{
	bool allocates = request == RM_IOC(NV_ESC_RM_ALLOC, struct nvos64);
	bool controls = request == RM_IOC(NV_ESC_RM_CONTROL, struct nvos54);
	struct nvos64 *a = arg;
	struct nvos54 *c = arg;
	uint64_t began;
	int ret;

	if (allocates && a->class_id == NV_CLASS_CHANNEL_GROUP)
		engine = ((const struct nvrm_group_alloc *)(uintptr_t)a->params)->engine;
	if (binds && controls && c->cmd == NVA06C_GPFIFO_SCHEDULE)
		bind_channel(ctx, fd, c->client);
	if (bare && without_group(request, arg))
		return 0;
	began = rtxg_now_ns();
	ret = DRIVER.ioctl(ctx, fd, request, arg);
	if (allocates)
		took("alloc class 0x%04x", a->class_id, began);
	else if (controls)
		took("control 0x%08x", c->cmd, began);
	else
		took("escape 0x%02x", request & 0xff, began);
	if (allocates &&
	    (a->class_id == NV_CLASS_CHANNEL_AMPERE || a->class_id == NV_CLASS_CHANNEL_HOPPER))
		last_channel = a->object;
	return ret;
}

static int timed_map(void *ctx, int fd, size_t length, void **address)
{
	uint64_t began = rtxg_now_ns();
	int ret = DRIVER.mmap_writable(ctx, fd, length, address);

	took("mmap", 0, began);
	return ret;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static double us(int64_t ns)
{
	return (double)ns / 1e3;
}

static int64_t sorted_at(int64_t *values, int count, int percent)
{
	qsort(values, (size_t)count, sizeof(*values), compare);
	return values[count * percent / 100];
}

static uint64_t phase_begins(enum phase phase)
{
	now = &phases[phase];
	step = 0;
	last_ended = rtxg_now_ns();
	return last_ended;
}

static void phase_ends(int run, uint64_t began)
{
	uint64_t ended = rtxg_now_ns();

	now->whole[run] = (int64_t)(ended - began);
	now->after[run] = (int64_t)(ended - last_ended);
	now = NULL;
}

static void must(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "nvrm_steps: %s: %d: %s\n", what, error, rtx_strerror());
	exit(error == -ENODEV ? 77 : 1);
}

static void measure(int run, const char *name)
{
	rtx_timeline_t first, second, again;
	rtx_nvrm_t nvrm;
	uint64_t began = phase_begins(INIT);

	must(rtx_nvrm_init(&nvrm, name), "rtx_nvrm_init");
	must(rtx_nvrm_timeline(nvrm, NULL, &first), "rtx_nvrm_timeline, the first");
	phase_ends(run, began);
	began = phase_begins(SECOND);
	must(rtx_nvrm_timeline(nvrm, NULL, &second), "rtx_nvrm_timeline, the second");
	phase_ends(run, began);
	must(rtx_timeline_close(second), "rtx_timeline_close");
	must(rtx_timeline_close(first), "rtx_timeline_close");
	began = phase_begins(AGAIN);
	must(rtx_nvrm_timeline(nvrm, NULL, &again), "rtx_nvrm_timeline, after the last");
	phase_ends(run, began);
	must(rtx_nvrm_close(nvrm), "rtx_nvrm_close");
}

static void print_phase(enum phase phase, int runs)
{
	struct phase_times *p = &phases[phase];
	int64_t first = p->whole[0], in_calls = 0;
	int count = 0;

	for (; count < STEPS && p->steps[count].count; count++) {
		struct step *s = &p->steps[count];
		int64_t cold = s->took[0], middle = sorted_at(s->took, s->count, 50);

		in_calls += middle;
		printf("{\"phase\": \"%s\", \"step\": %d, \"call\": \"%s\", \"first_us\": %.1f, "
		       "\"p50_us\": %.1f, \"p90_us\": %.1f, \"own_us\": %.1f}\n",
		       phase_names[phase], count, s->name, us(cold), us(middle),
		       us(sorted_at(s->took, s->count, 90)), us(sorted_at(s->own, s->count, 50)));
	}
	printf("{\"phase\": \"%s\", \"runs\": %d, \"calls\": %d, \"first_us\": %.1f, "
	       "\"p50_us\": %.1f, \"p90_us\": %.1f, \"in_calls_us\": %.1f, \"after_us\": %.1f, "
	       "\"bind\": %s, \"bare\": %s}\n",
	       phase_names[phase], runs, count, us(first), us(sorted_at(p->whole, runs, 50)),
	       us(sorted_at(p->whole, runs, 90)), us(in_calls), us(sorted_at(p->after, runs, 50)),
	       binds ? "true" : "false", bare ? "true" : "false");
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "runs", 1, NULL, 'r' },
						 { "device", 1, NULL, 'd' },
						 { "bind", 0, NULL, 'b' },
						 { "bare", 0, NULL, 'a' },
						 { NULL, 0, NULL, 0 } };
	static struct nv_sys timed;
	const char *name = NULL;
	int runs = 50, opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0)
		switch (opt) {
		case 'r':
			runs = atoi(optarg);
			break;
		case 'd':
			name = optarg;
			break;
		case 'b':
			binds = true;
			break;
		case 'a':
			bare = true;
			break;
		default:
			return 64;
		}
	if (runs < 1 || runs > RUNS_MAX) {
		fprintf(stderr, "nvrm_steps: --runs takes 1 to %d\n", RUNS_MAX);
		return 64;
	}
#ifdef RTXG_FAKE
	fake_nvrm_reset();
#endif
	timed = DRIVER;
	timed.open = timed_open;
	timed.close = timed_close;
	timed.ioctl = timed_ioctl;
	timed.mmap_writable = timed_map;
	rtx_lib_nvrm_sys = &timed;
	for (int run = 0; run < runs; run++)
		measure(run, name);
	for (enum phase phase = INIT; phase < PHASES; phase++)
		print_phase(phase, runs);
	return 0;
}
