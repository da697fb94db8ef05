// SPDX-License-Identifier: MIT
/*
 * fake_rtxgd.c - rtxgd whose NVIDIA lever stands on the fake driver, and a GPU that time-slices the
 * processes that a file names. So rtxg's lists of such processes are tested without a GPU. Only for
 * tests; never installed.
 *
 * $RTXG_FAKE_NVIDIA: a file of lines "PID GPU KIND", read again whenever it changes. KIND: hog
 * (always has work), idle, mps (an MPS server that has work), client (one of the MPS server before
 * it), alien (has work, and cannot be adopted), stubborn (has work, and the driver refuses each
 * control on it for good), bursty (work comes every 100 ms, as its queue shows, and takes 2 ms),
 * gone. $RTXG_FAKE_GPUS: how many GPUs (1). $RTXG_FAKE_MIG: bits. $RTXG_FAKE_ASSIGNED: the file
 * that outlives the daemon. $RTXG_FAKE_DISCOVERY: the real discovery program, which sees what real
 * processes do.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "adopt.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "../../daemon/nvidia.h"

/*
 * The lever's own entrance for tests (levers/nvidia/contexts.h, which names its structures as the
 * daemon does its own)
 */
void nv_contexts_feed(void *lever, const struct discover_record *r);

#define PROCESSES 64
#define STAY_NS	  2000000ull
#define REST_NS	  100000000ull
#define QUEUES	  0x5c000017u
#define QUEUE	  0x2000u

struct process {
	uint32_t pid, gpu, client;
	bool hog, alien, gone, mps;
	struct fake_memory_object *queues; /* bursty */
	uint64_t burst;			   /* when work comes next */
	uint32_t put;
};

static struct process process[PROCESSES];
static uint32_t processes, next_client = 0xc1d00100;
static struct lever_nvidia *lever;
static int on[FAKE_GPUS]; /* index of the process on the engine; -1 = none */
static uint64_t since[FAKE_GPUS];
static struct stat was; /* the file, when it was read */

static struct lever_nvidia_options options = {
	.size = sizeof(options),
	.sys = &fake_sys,
	.no_discovery = true,
	.no_guardian = true,
	.allow_unguarded = true,
};

static void record(const struct process *p, const char *comm, uint32_t kind, uint32_t parent,
		   uint32_t object, uint32_t class_id, uint32_t engine)
{
	uint32_t index = (object - 0x5c00001c) / 4;
	struct discover_record r = { .kind = kind,
				     .pid = p->pid,
				     .tid = p->pid,
				     .client = p->client,
				     .parent = parent,
				     .object = object,
				     .class_id = class_id,
				     .engine = engine,
				     .device = p->gpu,
				     .fd = 7 };

	snprintf(r.comm, sizeof(r.comm), "%s", comm);
	if (p->queues && class_id == 0xc86f) {
		r.userd = QUEUES;
		r.userd_offset = QUEUE + 0x1000 * index;
	}
	nv_contexts_feed(lever, &r);
}

/* The MPS server of that GPU; NULL: there is none. */
static const struct process *server_on(uint32_t gpu)
{
	for (uint32_t i = 0; i < processes; i++)
		if (process[i].mps && process[i].gpu == gpu && !process[i].gone)
			return &process[i];
	return NULL;
}

/* A client of MPS has its channels in a duplicate of its server's group. */
static void begin_client(const struct process *p, const char *comm)
{
	const struct process *server = server_on(p->gpu);
	struct discover_record r = { .kind = DISCOVER_DUP,
				     .pid = p->pid,
				     .tid = p->pid,
				     .client = p->client,
				     .parent = 0x5c000001,
				     .object = 0x5c00000f,
				     .src_object = 0x5c000015 };

	if (!server)
		return;
	r.src_client = server->client;
	fake_group_dup(p->client, 0x5c00000f, server->client, 0x5c000015);
	nv_contexts_feed(lever, &r);
	for (uint32_t i = 0; i < 2; i++) {
		fake_channel_add(p->gpu, p->client, 0x5c00001d + 6 * i, 0x5c00000f);
		record(p, comm, DISCOVER_ALLOC, 0x5c00000f, 0x5c00001d + 6 * i, 0xc86f, 0);
	}
}

static void begin(struct process *p, const char *kind)
{
	char comm[16] = "";

	if (!strcmp(kind, "mps"))
		snprintf(comm, sizeof(comm), "nvidia-cuda-mps");
	else
		nv_process_name(p->pid, comm, sizeof(comm));
	p->client = next_client++;
	if (!strcmp(kind, "stubborn"))
		fake_fail(0, p->client, NV_STATUS_INSUFFICIENT_PERMISSIONS);
	if (!strcmp(kind, "bursty"))
		p->queues = fake_memory_add(p->gpu, p->client, QUEUES, NV_CLASS_MEMORY_LOCAL,
					    FAKE_MEMORY_BYTES);
	if (p->alien) {
		fake_object_add(p->pid, p->client, 0, p->client, NV_CLASS_ROOT_CLIENT, p->gpu, 0);
		return;
	}
	record(p, comm, DISCOVER_ALLOC, 0, p->client, DISCOVER_CLASS_ROOT_CLIENT, 0);
	record(p, comm, DISCOVER_ALLOC, p->client, 0x5c000001, DISCOVER_CLASS_DEVICE, 0);
	if (!strcmp(kind, "client")) {
		begin_client(p, comm);
		return;
	}
	record(p, comm, DISCOVER_ALLOC, 0x5c000001, 0x5c000015, DISCOVER_CLASS_GROUP, 1);
	for (uint32_t i = 0; i < 8; i++) {
		fake_channel_add(p->gpu, p->client, 0x5c00001c + 4 * i, 0x5c000015);
		record(p, comm, DISCOVER_ALLOC, 0x5c000015, 0x5c00001c + 4 * i, 0xc86f, 1);
	}
}

static void read_file(const char *path)
{
	FILE *f = fopen(path, "re");
	unsigned int pid, gpu;
	char kind[16];

	while (f && fscanf(f, "%u %u %15s", &pid, &gpu, kind) == 3) {
		struct process *p = NULL;

		for (uint32_t i = 0; i < processes; i++)
			if (process[i].pid == pid && process[i].gpu == gpu)
				p = &process[i];
		if (!p && processes < PROCESSES) {
			p = &process[processes++];
			*p = (struct process){ .pid = pid,
					       .gpu = gpu,
					       .alien = !strcmp(kind, "alien"),
					       .mps = !strcmp(kind, "mps") };
			begin(p, kind);
		}
		if (!p || p->gone)
			continue;
		p->hog = strcmp(kind, "idle") && strcmp(kind, "gone") && !p->queues;
		if (!strcmp(kind, "gone")) {
			p->gone = true;
			fake_gone(p->client);
			record(p, "", DISCOVER_EXIT, 0, 0, 0, 0);
		}
	}
	if (f)
		fclose(f);
}

/* Its work comes, and is done when it has been on the engine for a stay. */
static void burst(struct process *p, uint64_t now, bool ran)
{
	if (!p->queues || p->gone)
		return;
	if (p->hog && ran) {
		p->hog = false;
		fake_queue(p->queues, QUEUE, p->put, p->put);
	} else if (now >= p->burst) {
		p->burst = now + REST_NS;
		p->hog = true;
		p->put++;
		fake_queue(p->queues, QUEUE, p->put - 1, p->put);
	}
}

static bool may_run(const struct process *p, uint32_t gpu)
{
	if (p->gpu != gpu || !p->hog)
		return false;
	for (uint32_t i = 0; i < fake->channels; i++)
		if (fake->channel[i].client == p->client && fake->channel[i].stopped)
			return false;
	return true;
}

static void turn(uint32_t gpu)
{
	uint64_t now = fake_sys.now_ns(NULL);
	int next = -1;

	for (uint32_t i = 0; i < processes; i++)
		if (process[i].gpu == gpu)
			burst(&process[i], now, on[gpu] == (int)i && now - since[gpu] >= STAY_NS);
	if (on[gpu] >= 0 && may_run(&process[on[gpu]], gpu) && now - since[gpu] < STAY_NS)
		return;
	for (uint32_t k = 1; k <= processes && next < 0; k++) {
		uint32_t i = ((uint32_t)(on[gpu] < 0 ? 0 : on[gpu]) + k) % processes;

		if (may_run(&process[i], gpu))
			next = (int)i;
	}
	if (on[gpu] >= 0)
		fake_log_on(gpu, NV_FECS_SIMPLE_END, process[on[gpu]].pid, 0, now + FAKE_EPOCH);
	on[gpu] = next;
	since[gpu] = now;
	if (next >= 0)
		fake_log_on(gpu, NV_FECS_SIMPLE_START, process[next].pid, 0, now + FAKE_EPOCH);
}

static int tick(sd_event_source *s, uint64_t usec, void *userdata)
{
	const char *path = getenv("RTXG_FAKE_NVIDIA");
	struct stat st;

	/* Two files may be written within one tick of the file system's clock. */
	if (path && !stat(path, &st) &&
	    (memcmp(&st.st_mtim, &was.st_mtim, sizeof(was.st_mtim)) || st.st_ino != was.st_ino ||
	     st.st_size != was.st_size)) {
		was = st;
		read_file(path);
	}
	for (int g = 0; g < fake->gpus; g++)
		turn((uint32_t)g);
	sd_event_source_set_time_relative(s, 1000);
	return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

static void started(struct daemon *d, struct lever_nvidia *l)
{
	sd_event_source *s = NULL;

	lever = l;
	if (sd_event_add_time_relative(d->event, &s, CLOCK_MONOTONIC, 1000, 100, tick, NULL) < 0)
		abort();
}

const struct nvidia_stand nvidia_stand = { .options = &options, .started = started };

/* Before main: the driver is there when the daemon starts. */
__attribute__((constructor)) static void driver(void)
{
	fake_reset();
	fake->real_time = true;
	options.assigned = getenv("RTXG_FAKE_ASSIGNED");
	options.no_discovery = !getenv("RTXG_FAKE_DISCOVERY");
	fake->gpus = getenv("RTXG_FAKE_GPUS") ? atoi(getenv("RTXG_FAKE_GPUS")) : 1;
	fake->mig = getenv("RTXG_FAKE_MIG") ? (uint32_t)atoi(getenv("RTXG_FAKE_MIG")) : 0;
	for (int g = 0; g < FAKE_GPUS; g++)
		on[g] = -1;
}
