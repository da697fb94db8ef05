// SPDX-License-Identifier: MIT
/*
 * rig.c - the common parts of the tests of the NVIDIA lever.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <cmocka.h>
#include "channels.h"
#include "contexts.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "rig.h"

int before(void **state)
{
	with_queues = false;
	fake_reset();
	return 0;
}

void record(struct discover_record *r, uint32_t pid, uint32_t client, uint32_t parent,
	    uint32_t object, uint32_t class_id, uint32_t engine, uint32_t cid)
{
	memset(r, 0, sizeof(*r));
	r->kind = DISCOVER_ALLOC;
	r->pid = r->tid = pid;
	r->client = client;
	r->parent = parent;
	r->object = object;
	r->class_id = class_id;
	r->engine = engine;
	r->cid = cid;
	r->fd = 7;
	memcpy(r->comm, "load", 5);
}

bool with_queues;

struct fake_memory_object *queues_of(uint32_t client)
{
	for (uint32_t i = 0; i < fake->memories; i++)
		if (fake->memory[i].client == client && fake->memory[i].handle == QUEUES)
			return &fake->memory[i];
	fail_msg("client 0x%x has no queues", client);
	return NULL;
}

/*
 * What a CUDA process was seen to allocate: one group for compute with eight channels, one for a
 * copy engine with four.
 */
void cuda_process_on(sink to, void *ctx, uint32_t gpu, uint32_t pid, uint32_t client,
		     uint32_t first_cid, uint32_t tag)
{
	struct discover_record r;
	uint32_t i;

	record(&r, pid, client, 0, client, DISCOVER_CLASS_ROOT_CLIENT, 0, 0);
	r.tag = tag;
	to(ctx, &r);
	record(&r, pid, client, client, 0x5c000001, DISCOVER_CLASS_DEVICE, 0, 0);
	r.device = gpu;
	to(ctx, &r);
	record(&r, pid, client, 0x5c000001, 0x5c000002, DISCOVER_CLASS_SUBDEVICE, 0, 0);
	to(ctx, &r);
	if (with_queues)
		fake_memory_add(gpu, client, QUEUES, NV_CLASS_MEMORY_LOCAL, FAKE_MEMORY_BYTES);
	record(&r, pid, client, 0x5c000001, 0x5c000015, DISCOVER_CLASS_GROUP, 1, 0);
	to(ctx, &r);
	for (i = 0; i < 8; i++) {
		record(&r, pid, client, 0x5c000015, 0x5c00001c + 4 * i, 0xc86f, 1, first_cid + i);
		r.userd = with_queues ? QUEUES : 0;
		r.userd_offset = QUEUE(i);
		to(ctx, &r);
		fake_channel_add(gpu, client, 0x5c00001c + 4 * i, 0x5c000015);
	}
	record(&r, pid, client, 0x5c000001, 0x5c00003e, DISCOVER_CLASS_GROUP, 11, 0);
	to(ctx, &r);
	for (i = 0; i < 4; i++) {
		record(&r, pid, client, 0x5c00003e, 0x5c000040 + 3 * i, 0xc86f, 11,
		       first_cid + 10 + i);
		to(ctx, &r);
		fake_channel_add(gpu, client, 0x5c000040 + 3 * i, 0x5c00003e);
	}
}

void cuda_process(sink to, void *ctx, uint32_t pid, uint32_t client, uint32_t first_cid,
		  uint32_t tag)
{
	cuda_process_on(to, ctx, 0, pid, client, first_cid, tag);
}

void into_registry(void *ctx, const struct discover_record *r)
{
	struct nv_what what;

	assert_int_equal(nv_registry_feed(ctx, r, &what), 0);
}

void into_lever(void *ctx, const struct discover_record *r)
{
	nv_contexts_feed(ctx, r);
}

bool stopped_on(uint32_t gpu, uint32_t client)
{
	for (uint32_t i = 0; i < fake->channels; i++)
		if (fake->channel[i].gpu == gpu && fake->channel[i].client == client &&
		    fake->channel[i].stopped)
			return true;
	return false;
}

/*
 * What a CUDA process has allocated before we come, on one GPU; the handles lie behind those of the
 * one before.
 */
void older_process(uint32_t pid, uint32_t client, uint32_t gpu, uint32_t base, uint32_t cid)
{
	fake_object_add(pid, client, client, base + 1, NV_CLASS_DEVICE, gpu, 0);
	fake_object_add(pid, client, base + 1, base + 2, NV_CLASS_SUBDEVICE, gpu, 0);
	fake_object_add(pid, client, base + 1, base + 0x15, NV_CLASS_CHANNEL_GROUP, gpu, 0);
	if (with_queues) {
		fake_object_add(pid, client, base + 1, base + 0x17, NV_CLASS_MEMORY_LOCAL, gpu, 0);
		fake_memory_add(gpu, client, base + 0x17, NV_CLASS_MEMORY_LOCAL, FAKE_MEMORY_BYTES);
	}
	for (uint32_t i = 0; i < 8; i++) {
		fake_object_add(pid, client, base + 0x15, base + 0x1c + 4 * i, 0xc86f, gpu,
				cid + i);
		fake_object_add(pid, client, base + 0x1c + 4 * i, base + 0x1d + 4 * i, 0xcbc0, gpu,
				0);
		fake_channel_add(gpu, client, base + 0x1c + 4 * i, base + 0x15);
	}
	fake_object_add(pid, client, base + 1, base + 0x40, NV_CLASS_CHANNEL_GROUP, gpu, 0);
	fake_object_add(pid, client, base + 0x40, base + 0x41, 0xc86f, gpu, cid + 10);
	fake_channel_add(gpu, client, base + 0x41, base + 0x40);
}

/* In a child: ends with its parent, whose end may have come first. */
void die_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	alarm(60);
}

pid_t sleeper(void)
{
	pid_t self = getpid(), pid = fork();

	if (!pid) {
		die_with(self);
		pause();
		_exit(0);
	}
	return pid;
}

uint32_t can; /* what the policy may use; 0 = what it uses unless told otherwise */

struct lever_nvidia *lever_up(void)
{
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_lookout = true,
					  .no_guardian = true,
					  .allow_unguarded = true,
					  .slice = { .can = can } };
	struct lever_nvidia *l;

	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	fake->watched = &l->journal;
	return l;
}

struct lever_nvidia *two_tenants(void)
{
	struct rtxg_slice_tenant a = { .min_ppm = 800000 }, b = { .min_ppm = 200000 };
	struct lever_nvidia *l = lever_up();

	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 1, &a), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 2, &b), 0);
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	cuda_process(into_lever, l, 101, SECOND, 120, 2);
	return l;
}

double turn_of(struct lever_nvidia *l, uint64_t ns, const uint32_t pids[2],
	       const uint32_t clients[2])
{
	static uint32_t who;
	uint64_t end = fake->now + ns, work[2] = { 0, 0 };

	while (fake->now < end) {
		uint32_t other = 1 - who;

		if (!stopped_on(0, clients[other]))
			who = other;
		else if (stopped_on(0, clients[who])) {
			fake->now += MS; /* none may run */
			lever_nvidia_dispatch(l);
			continue;
		}
		fake_log(NV_FECS_SIMPLE_START, pids[who], 0, fake->now + EPOCH);
		for (int i = 0; i < 4; i++) {
			fake->now += MS / 2;
			if (lever_nvidia_dispatch(l) < 0)
				return -1;
		}
		work[who] += 2 * MS;
		fake_log(NV_FECS_SIMPLE_END, pids[who], 0, fake->now + EPOCH);
		fake->now += 84000;
	}
	return (double)work[0] / (double)(work[0] + work[1]);
}

double turn_for(struct lever_nvidia *l, uint64_t ns)
{
	static const uint32_t pids[2] = { 100, 101 }, clients[2] = { FIRST, SECOND };

	return turn_of(l, ns, pids, clients);
}

struct lever_nvidia_process process_of(struct lever_nvidia *l, uint32_t pid)
{
	struct lever_nvidia_process list[64];
	int n = lever_nvidia_processes(l, list, 64);

	for (int i = 0; i < n; i++)
		if (list[i].pid == pid)
			return list[i];
	fail_msg("pid %u is not listed", pid);
	return list[0];
}

void say(struct lever_nvidia *l, enum discover_kind kind, uint32_t pid, uint32_t client,
	 uint32_t object)
{
	struct discover_record r;

	record(&r, pid, client, 0, object, 0, 0, 0);
	r.kind = kind;
	nv_contexts_feed(l, &r);
}
