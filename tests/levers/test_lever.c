// SPDX-License-Identifier: MIT
/*
 * test_lever.c - the NVIDIA lever against the fake driver: what it does, and what it does when the
 * driver fails, is slow, or goes away.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "act.h"
#include "channels.h"
#include "fake_nvidiactl.h"
#include "fecs.h"
#include "contexts.h"
#include "lever_nvidia.h"

#define MS    1000000ull
#define EPOCH FAKE_EPOCH

static int before(void **state)
{
	fake_reset();
	return 0;
}

static void record(struct discover_record *r, uint32_t pid, uint32_t client, uint32_t parent,
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

typedef void (*sink)(void *ctx, const struct discover_record *r);

/*
 * What a CUDA process was seen to allocate: one group for compute with eight channels, one for a
 * copy engine with four.
 */
static void cuda_process_on(sink to, void *ctx, uint32_t gpu, uint32_t pid, uint32_t client,
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
	record(&r, pid, client, 0x5c000001, 0x5c000015, DISCOVER_CLASS_GROUP, 1, 0);
	to(ctx, &r);
	for (i = 0; i < 8; i++) {
		record(&r, pid, client, 0x5c000015, 0x5c00001c + 4 * i, 0xc86f, 1, first_cid + i);
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

static void cuda_process(sink to, void *ctx, uint32_t pid, uint32_t client, uint32_t first_cid,
			 uint32_t tag)
{
	cuda_process_on(to, ctx, 0, pid, client, first_cid, tag);
}

static void into_registry(void *ctx, const struct discover_record *r)
{
	struct nv_what what;

	assert_int_equal(nv_registry_feed(ctx, r, &what), 0);
}

static void into_lever(void *ctx, const struct discover_record *r)
{
	nv_contexts_feed(ctx, r);
}

/* The driver's answers */

static void opens_and_says_why_not(void **state)
{
	struct nv_rm_gpu gpus[4];
	struct nv_rm rm;

	assert_int_equal(nv_rm_open(&rm, &fake_sys), 0);
	assert_int_equal(rm.client, 0xc1d00040);
	assert_int_equal(nv_rm_gpus_open(&rm, gpus, 4), 1);
	assert_int_equal(gpus[0].device_instance, 0);
	nv_rm_gpu_close(&gpus[0]);
	nv_rm_close(&rm);
	assert_int_equal(fake->open_fds, 0);
	fake->open_error = ENOENT;
	assert_int_equal(nv_rm_open(&rm, &fake_sys), -ENODEV);
	fake->open_error = EACCES;
	assert_int_equal(nv_rm_open(&rm, &fake_sys), -EACCES);
	fake->open_error = 0;
	fake->fail_class = NV_CLASS_ROOT_CLIENT;
	fake->fail_status = NV_STATUS_INSUFFICIENT_PERMISSIONS;
	assert_int_equal(nv_rm_open(&rm, &fake_sys), -EPERM);
	assert_int_equal(fake->open_fds, 0);
}

static void refuses_a_driver_whose_structures_differ(void **state)
{
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_guardian = true };
	struct lever_nvidia *l;
	char reason[300];

	fake->fail_command = NV0000_GPU_GET_ID_INFO_V2;
	fake->fail_status = NV_STATUS_INVALID_PARAM_STRUCT;
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, reason, sizeof(reason)), -EPROTO);
	assert_null(l);
	assert_non_null(strstr(reason, "INVALID_PARAM_STRUCT"));
	assert_int_equal(fake->open_fds, 0);
	fake->fail_command = 0;
	fake->gpus = 0;
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, reason, sizeof(reason)), -ENODEV);
	assert_int_equal(fake->open_fds, 0);
}

static void without_a_log_nothing_is_governed(void **state)
{
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_guardian = true,
					  .allow_unguarded = true };
	struct lever_nvidia *l;

	fake->fail_command = NV2080_GR_FECS_BIND_EVTBUF_V2;
	fake->fail_status = NV_STATUS_NOT_SUPPORTED;
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	cuda_process(into_lever, l, 100, 0xc1d00010, 100, 0);
	fake->now += 1000 * MS;
	assert_int_equal(lever_nvidia_dispatch(l), 0);
	assert_int_equal(fake->disables, 0);
	assert_int_equal(fake->restarts, 0);
	lever_nvidia_close(l);
	assert_int_equal(fake->open_fds, 0);
}

/* The registry */

static void registry_follows_a_process(void **state)
{
	struct nv_registry reg;
	struct nv_process *p;
	struct nv_what what;
	struct discover_record r;

	nv_registry_init(&reg);
	cuda_process(into_registry, &reg, 100, 0xc1d00010, 151, 3);
	p = nv_registry_process(&reg, 100);
	assert_non_null(p);
	assert_int_equal(p->tag, 3);
	assert_int_equal(p->group_count, 2);
	assert_int_equal(p->groups[0].count, 8);
	assert_true(nv_group_is_compute(&p->groups[0]));
	assert_false(nv_group_is_compute(&p->groups[1]));
	assert_ptr_equal(nv_registry_by_cid(&reg, 0, 154), p);
	assert_null(nv_registry_by_cid(&reg, 0, 999));
	assert_null(nv_registry_by_cid(&reg, 1, 154));
	/*
	 * Another process that names this client is not believed, neither in making nor in freeing.
	 */
	record(&r, 200, 0xc1d00010, 0x5c000015, 0x5c000099, 0xc86f, 1, 500);
	assert_int_equal(nv_registry_feed(&reg, &r, &what), -EPERM);
	r.kind = DISCOVER_FREE;
	r.object = 0xc1d00010;
	assert_int_equal(nv_registry_feed(&reg, &r, &what), 0);
	assert_int_equal(p->group_count, 2);
	assert_int_equal(reg.refused, 2);
	/* Freeing a channel, a group, the client */
	r.pid = 100;
	r.object = 0x5c00001c;
	assert_int_equal(nv_registry_feed(&reg, &r, &what), 0);
	assert_int_equal(what.change, NV_GONE_CHANNEL);
	assert_int_equal(p->groups[0].count, 7);
	r.object = 0x5c000015;
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(p->group_count, 1);
	r.object = 0xc1d00010;
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(p->group_count, 0);
	assert_int_equal(p->client_count, 0);
	/* The device takes its groups with it, exec takes all */
	cuda_process(into_registry, &reg, 100, 0xc1d00011, 171, 3);
	r.client = 0xc1d00011;
	r.object = 0x5c000001;
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(p->group_count, 0);
	cuda_process(into_registry, &reg, 100, 0xc1d00012, 191, 3);
	assert_int_equal(p->group_count, 2);
	r.kind = DISCOVER_EXEC;
	memcpy(r.comm, "other", 6);
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(p->group_count, 0);
	assert_string_equal(p->comm, "other");
	r.kind = DISCOVER_EXIT;
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(what.change, NV_GONE_PROCESS);
	nv_registry_drop(&reg, what.process);
	assert_int_equal(reg.count, 0);
	nv_registry_free(&reg);
}

static void registry_knows_mps_and_lone_channels(void **state)
{
	struct discover_record r;
	struct nv_registry reg;
	struct nv_what what;
	struct nv_process *p;

	nv_registry_init(&reg);
	record(&r, 300, 0xc1d00020, 0, 0xc1d00020, DISCOVER_CLASS_ROOT_CLIENT, 0, 0);
	memcpy(r.comm, "nvidia-cuda-mps", 16);
	nv_registry_feed(&reg, &r, &what);
	p = nv_registry_process(&reg, 300);
	assert_true(p->mps_server);
	record(&r, 300, 0xc1d00020, 0x80, 0x99, 0xc56f, 1, 42);
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(what.change, NV_NEW_CHANNEL);
	assert_true(p->groups[0].lone);
	nv_registry_free(&reg);
}

/* Acting */

struct rig {
	struct nv_rm rm;
	struct nv_rm_gpu gpu;
	struct nv_registry reg;
	struct nv_journal journal;
	struct nv_batch batch;
};

static void rig_up(struct rig *g)
{
	memset(g, 0, sizeof(*g));
	assert_int_equal(nv_rm_open(&g->rm, &fake_sys), 0);
	assert_int_equal(nv_rm_gpus_open(&g->rm, &g->gpu, 1), 1);
	nv_registry_init(&g->reg);
	assert_int_equal(nv_journal_create(&g->journal), 0);
	fake->watched = &g->journal;
}

static void rig_down(struct rig *g)
{
	nv_batch_free(&g->batch);
	nv_registry_free(&g->reg);
	nv_journal_close(&g->journal);
	nv_rm_gpu_close(&g->gpu);
	nv_rm_close(&g->rm);
	fake->watched = NULL;
	assert_int_equal(fake->open_fds, 0);
}

static void stops_and_resumes_more_than_one_call_holds(void **state)
{
	struct rig g;

	rig_up(&g);
	for (uint32_t i = 0; i < 20; i++) {
		cuda_process(into_registry, &g.reg, 100 + i, 0xc1d00100 + i, 1000 + 20 * i, 0);
		assert_int_equal(nv_batch_add(&g.batch, nv_registry_process(&g.reg, 100 + i), 0),
				 0);
	}
	assert_int_equal(g.batch.count, 160);
	assert_int_equal(nv_suspend(&g.gpu, &g.journal, &g.batch, false), 0);
	assert_int_equal(fake->disables, 3);
	assert_int_equal(fake->biggest, 64);
	assert_int_equal(fake_stopped(), 160);
	assert_int_equal(fake->unjournaled, 0);
	assert_int_equal(nv_journal_count(&g.journal), 160);
	assert_int_equal(nv_resume(&g.gpu, &g.journal, &g.batch), 0);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(nv_journal_count(&g.journal), 0);
	rig_down(&g);
}

static void half_a_stop_is_undone(void **state)
{
	struct rig g;

	rig_up(&g);
	for (uint32_t i = 0; i < 20; i++) {
		cuda_process(into_registry, &g.reg, 100 + i, 0xc1d00100 + i, 1000 + 20 * i, 0);
		nv_batch_add(&g.batch, nv_registry_process(&g.reg, 100 + i), 0);
	}
	fake->fail_command = NV2080_FIFO_DISABLE_CHANNELS;
	fake->fail_status = NV_STATUS_TIMEOUT;
	fake->fail_after = 2; /* the third call fails, and then all */
	assert_int_equal(nv_suspend(&g.gpu, &g.journal, &g.batch, false), -ETIMEDOUT);
	assert_int_equal(fake_stopped(), 128);
	/* It could not be undone: then the journal keeps it, for the guardian. */
	assert_int_equal(nv_journal_count(&g.journal), 160);
	fake->fail_command = 0;
	assert_int_equal(nv_resume(&g.gpu, &g.journal, &g.batch), 0);
	assert_int_equal(fake_stopped(), 0);
	/* A channel that is gone by then spoils nothing. */
	assert_int_equal(nv_suspend(&g.gpu, &g.journal, &g.batch, false), 0);
	fake->channel[3].gone = true;
	assert_int_equal(nv_resume(&g.gpu, &g.journal, &g.batch), 0);
	fake->channel[3].stopped = false;
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(nv_journal_count(&g.journal), 0);
	/* One that is gone before makes the stop fail, and nothing stays stopped. */
	assert_int_equal(nv_suspend(&g.gpu, &g.journal, &g.batch, false), -ENOENT);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(nv_journal_count(&g.journal), 0);
	rig_down(&g);
}

static void nothing_is_stopped_without_room_in_the_journal(void **state)
{
	struct rig g;

	rig_up(&g);
	cuda_process(into_registry, &g.reg, 100, 0xc1d00100, 1000, 0);
	nv_batch_add(&g.batch, nv_registry_process(&g.reg, 100), 0);
	for (uint32_t i = 0; i < NV_JOURNAL_ENTRIES - 4; i++)
		assert_int_equal(nv_journal_add(&g.journal, 0, 1, i + 1), 0);
	assert_int_equal(nv_suspend(&g.gpu, &g.journal, &g.batch, false), -ENOSPC);
	assert_int_equal(fake_stopped(), 0);
	rig_down(&g);
}

static void slices_go_through_the_owners_descriptor(void **state)
{
	struct nv_process *p;
	struct rig g;
	uint32_t us = 0;

	rig_up(&g);
	cuda_process(into_registry, &g.reg, 100, 0xc1d00100, 1000, 0);
	p = nv_registry_process(&g.reg, 100);
	assert_int_equal(nv_set_slice(&g.gpu, &g.journal, p, 0, 500), 0);
	assert_int_equal(fake->slice_us, 500);
	assert_int_equal(fake->restarts, 1);
	assert_int_equal(nv_get_slice(&g.gpu, p, 0, &us), 0);
	assert_int_equal(us, 500);
	assert_int_equal(g.journal.page->slice[0].used, 1);
	assert_int_equal(g.journal.page->slice[0].pid, 100);
	assert_int_equal(nv_set_slice(&g.gpu, &g.journal, p, 0, NV_DRIVER_SLICE_US), 0);
	assert_int_equal(g.journal.page->slice[0].used, 0);
	assert_int_equal(nv_set_slice(&g.gpu, &g.journal, p, 0, 0), -EINVAL);
	assert_int_equal(nv_set_slice(&g.gpu, &g.journal, p, 0, 1000001), -EINVAL);
	fake->getfd_error = EPERM;
	assert_int_equal(nv_set_slice(&g.gpu, &g.journal, p, 0, 500), -EPERM);
	assert_int_equal(fake->foreign_fds, 0);
	rig_down(&g);
}

/* The log */

static void log_is_read_across_its_end_and_losses_are_counted(void **state)
{
	struct nv_fecs_event ev[300];
	struct nv_fecs f;
	struct rig g;
	int n;

	rig_up(&g);
	assert_int_equal(nv_fecs_open(&f, &g.gpu, 100), -EINVAL);
	assert_int_equal(nv_fecs_open(&f, &g.gpu, 256), 0);
	assert_int_equal(nv_fecs_calibrate(&f), 0);
	assert_int_equal(f.offset_ns, -(int64_t)EPOCH);
	for (int round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < 100; i++)
			fake_log(i % 2 ? NV_FECS_SIMPLE_END : NV_FECS_SIMPLE_START, 100, 5, i);
		n = nv_fecs_read(&f, ev, 300);
		assert_int_equal(n, 100);
		assert_int_equal(ev[0].start, 1);
		assert_int_equal(ev[99].start, 0);
		assert_int_equal(ev[99].gpu_ns, 99);
		assert_int_equal(fake->updated_get, fake->log[0].header.put);
	}
	assert_int_equal(f.lost, 0);
	fake->log[0].seqno += 7;
	fake_log(NV_FECS_SIMPLE_START, 100, 5, 1);
	assert_int_equal(nv_fecs_read(&f, ev, 300), 1);
	assert_int_equal(f.lost, 7);
	fake_log(NV_FECS_ENGINE_RESET, 100, 5, 1);
	assert_int_equal(nv_fecs_read(&f, ev, 300), 0);
	fake->log[0].header.put = 256; /* nonsense */
	assert_int_equal(nv_fecs_read(&f, ev, 300), -EPROTO);
	nv_fecs_close(&f);
	rig_down(&g);
}

/* All together */

static uint32_t can; /* what the policy may use; 0 = what it uses unless told otherwise */

static struct lever_nvidia *lever_up(void)
{
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_guardian = true,
					  .allow_unguarded = true,
					  .slice = { .can = can } };
	struct lever_nvidia *l;

	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	fake->watched = &l->journal;
	return l;
}

static bool stopped(uint32_t client)
{
	for (uint32_t i = 0; i < fake->channels; i++)
		if (fake->channel[i].client == client && fake->channel[i].stopped)
			return true;
	return false;
}

/*
 * The GPU turns between two busy processes, 2 ms each, whoever is not stopped. Returns the first
 * one's part of the time.
 */
static double turn_for(struct lever_nvidia *l, uint64_t ns)
{
	static uint32_t who;
	uint64_t end = fake->now + ns, work[2] = { 0, 0 };

	while (fake->now < end) {
		uint32_t other = 1 - who;

		if (!stopped(0xc1d00010 + other))
			who = other;
		else if (stopped(0xc1d00010 + who)) {
			fake->now += MS; /* nobody may run */
			lever_nvidia_dispatch(l);
			continue;
		}
		fake_log(NV_FECS_SIMPLE_START, 100 + who, 100 + 20 * who, fake->now + EPOCH);
		for (int i = 0; i < 4; i++) {
			fake->now += MS / 2;
			if (lever_nvidia_dispatch(l) < 0)
				return -1;
		}
		work[who] += 2 * MS;
		fake_log(NV_FECS_SIMPLE_END, 100 + who, 100 + 20 * who, fake->now + EPOCH);
		fake->now += 84000;
	}
	return (double)work[0] / (double)(work[0] + work[1]);
}

static struct lever_nvidia *two_tenants(void)
{
	struct rtxg_slice_tenant a = { .min_ppm = 800000 }, b = { .min_ppm = 200000 };
	struct lever_nvidia *l = lever_up();

	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 1, &a), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 2, &b), 0);
	cuda_process(into_lever, l, 100, 0xc1d00010, 100, 1);
	cuda_process(into_lever, l, 101, 0xc1d00011, 120, 2);
	return l;
}

static void keeps_shares(void **state)
{
	struct lever_nvidia *l = two_tenants();
	struct rtxg_slice_view v;
	double share;

	turn_for(l, 200 * MS);
	share = turn_for(l, 3000 * MS);
	print_message("80/20: %.2f %%\n", 100 * share);
	assert_true(share > 0.78 && share < 0.82);
	assert_int_equal(fake->unjournaled, 0);
	assert_int_equal(fake->leaves, 0);
	assert_int_equal(lever_nvidia_vgpu_view(l, 0, 2, &v), 0);
	assert_true(v.suspended > 10);
	assert_int_equal(v.contexts, 1);
	assert_int_equal(lever_nvidia_vgpu_remove(l, 0, 2), -EBUSY);
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake->slice_us, NV_DRIVER_SLICE_US);
	assert_int_equal(fake->open_fds, 0);
}

static void stops_at_the_end_of_a_slice_if_told_to(void **state)
{
	struct lever_nvidia *l;
	double share;

	can = RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE;
	l = two_tenants();
	can = 0;
	turn_for(l, 200 * MS);
	share = turn_for(l, 3000 * MS);
	assert_true(share > 0.78 && share < 0.82);
	assert_true(fake->leaves > 10);
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
}

static void keeps_shares_on_a_slow_driver(void **state)
{
	struct lever_nvidia *l = two_tenants();

	fake->delay_ns = 3 * MS;
	turn_for(l, 500 * MS);
	assert_true(turn_for(l, 3000 * MS) > 0.70);
	fake->delay_ns = 0;
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
}

static void one_that_cannot_be_stopped_is_left_alone(void **state)
{
	struct lever_nvidia_process list[4];
	struct lever_nvidia_stats stats;
	struct lever_nvidia *l = two_tenants();

	fake->fail_client = 0xc1d00011;
	fake->fail_status = NV_STATUS_INVALID_ARGUMENT;
	turn_for(l, 500 * MS);
	lever_nvidia_stats(l, &stats);
	assert_true(stats.failures >= 1 && stats.failures < 5);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(lever_nvidia_processes(l, list, 4), 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(list[i].managed, list[i].pid != 101);
		if (list[i].pid == 101)
			assert_non_null(list[i].remedy);
	}
	lever_nvidia_close(l);
}

static void a_lost_device_is_let_go(void **state)
{
	struct lever_nvidia *l = two_tenants();

	turn_for(l, 300 * MS);
	fake->fail_command = NV2080_FIFO_DISABLE_CHANNELS;
	fake->fail_status = NV_STATUS_GPU_IS_LOST;
	for (int i = 0; i < 200 && turn_for(l, 5 * MS) >= 0; i++)
		;
	assert_int_equal(lever_nvidia_dispatch(l), -ENODEV);
	fake->fail_command = 0;
	lever_nvidia_close(l);
	assert_int_equal(fake->open_fds, 0);
}

static void the_end_of_a_stopped_process_leaves_nothing(void **state)
{
	struct lever_nvidia *l = two_tenants();
	struct discover_record r;

	for (int i = 0; i < 100 && !stopped(0xc1d00011); i++)
		turn_for(l, 2 * MS);
	assert_true(stopped(0xc1d00011));
	assert_int_equal(nv_journal_count(&l->journal), 8);
	record(&r, 101, 0, 0, 0, 0, 0, 0);
	r.kind = DISCOVER_EXIT;
	nv_contexts_feed(l, &r);
	assert_false(stopped(0xc1d00011));
	assert_int_equal(nv_journal_count(&l->journal), 0);
	assert_null(nv_registry_process(&l->registry, 101));
	lever_nvidia_close(l);
}

static void off_gives_everything_back(void **state)
{
	struct lever_nvidia *l = two_tenants();
	uint32_t calls;

	for (int i = 0; i < 100 && !stopped(0xc1d00011); i++)
		turn_for(l, 2 * MS);
	assert_true(stopped(0xc1d00011));
	assert_int_equal(lever_nvidia_enable(l, false), 0);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake->slice_us, NV_DRIVER_SLICE_US);
	calls = fake->disables;
	turn_for(l, 200 * MS);
	assert_int_equal(fake->disables, calls);
	assert_int_equal(lever_nvidia_enable(l, true), 0);
	turn_for(l, 500 * MS);
	assert_true(fake->disables > calls);
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
}

static void a_slice_that_the_program_changed_is_set_anew(void **state)
{
	struct lever_nvidia_stats stats;
	struct lever_nvidia *l = two_tenants();

	turn_for(l, 500 * MS);
	fake->slice_us = 2048; /* CUDA does this while it builds a context */
	turn_for(l, 600 * MS);
	lever_nvidia_stats(l, &stats);
	assert_true(stats.slices_lost >= 1);
	assert_int_not_equal(fake->slice_us, 2048);
	lever_nvidia_close(l);
}

static void nothing_is_stopped_without_a_guardian(void **state)
{
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_guardian = true };
	struct rtxg_slice_tenant a = { .min_ppm = 800000 }, b = { .min_ppm = 200000 };
	struct lever_nvidia *l;

	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	lever_nvidia_vgpu_set(l, 0, 1, &a);
	lever_nvidia_vgpu_set(l, 0, 2, &b);
	cuda_process(into_lever, l, 100, 0xc1d00010, 100, 1);
	cuda_process(into_lever, l, 101, 0xc1d00011, 120, 2);
	turn_for(l, 1000 * MS);
	assert_int_equal(fake->disables, 0);
	assert_true(fake->restarts > 0);
	lever_nvidia_close(l);
}

static void refuses_what_does_not_exist(void **state)
{
	struct rtxg_slice_tenant t = { .min_ppm = 100000 };
	struct lever_nvidia *l = lever_up();

	assert_int_equal(lever_nvidia_vgpu_set(l, 1, 1, &t), -EINVAL);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, LEVER_NVIDIA_VGPUS, &t), -EINVAL);
	t.min_ppm = 2000000;
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 1, &t), -EINVAL);
	assert_int_equal(lever_nvidia_assign(l, 100, 5), -ENOENT);
	assert_int_equal(lever_nvidia_assign(l, 100, 5000), -EINVAL);
	assert_int_equal(lever_nvidia_vgpu_remove(l, 0, 0), -EINVAL);
	lever_nvidia_close(l);
}

/* The page that tells programs when to bring their contexts in */

static void releases_are_told_and_taken_back(void **state)
{
	struct nv_release r = { .pid = 7, .pci_bus = 0x41, .warm_ns = 5 };
	struct nv_releases *page, *other;
	char path[] = "/tmp/rtxg-releases-XXXXXX";

	close(mkstemp(path));
	assert_int_equal(nv_releases_open(path, &page), 0); /* replaces what was there */
	assert_int_equal(page->magic, NV_RELEASES_MAGIC);
	nv_releases_set(page, 3, &r);
	assert_int_equal(page->entry[3].sequence, 2);
	nv_releases_set(page, 3, &r); /* nothing new: nothing is written */
	assert_int_equal(page->entry[3].sequence, 2);
	r.warm_ns = 6;
	nv_releases_set(page, 3, &r);
	assert_int_equal(page->entry[3].sequence, 4);
	assert_int_equal(page->entry[3].warm_ns, 6);
	/* a new daemon: the old page stays as it is for whoever maps it */
	assert_int_equal(nv_releases_open(path, &other), 0);
	assert_int_equal(other->entry[3].pid, 0);
	assert_int_equal(page->entry[3].pid, 7);
	nv_releases_close(path, other);
	assert_int_equal(access(path, F_OK), -1);
	nv_releases_close(path, page);
	assert_int_equal(nv_releases_open("/nowhere/at/all", &page), -ENOENT);
	assert_null(page);
}

/* Several GPUs */

static bool stopped_on(uint32_t gpu, uint32_t client)
{
	for (uint32_t i = 0; i < fake->channels; i++)
		if (fake->channel[i].gpu == gpu && fake->channel[i].client == client &&
		    fake->channel[i].stopped)
			return true;
	return false;
}

/*
 * Two busy processes on each of two GPUs, 2 ms each, whoever is not stopped. share: the first one's
 * part on each GPU.
 */
static void turn_both_for(struct lever_nvidia *l, const uint32_t client[2][2],
			  const uint32_t pid[2][2], uint64_t ns, double share[2])
{
	uint64_t end = fake->now + ns, work[2][2] = { { 0 } };
	int who[2] = { 0, 0 }, on[2];

	while (fake->now < end) {
		for (int g = 0; g < 2; g++) {
			on[g] = !stopped_on((uint32_t)g, client[g][1 - who[g]]) ? 1 - who[g]
				: !stopped_on((uint32_t)g, client[g][who[g]])	? who[g]
										: -1;
			if (on[g] < 0)
				continue;
			who[g] = on[g];
			fake_log_on((uint32_t)g, NV_FECS_SIMPLE_START, pid[g][who[g]], 0,
				    fake->now + EPOCH);
		}
		for (int i = 0; i < 4; i++) {
			fake->now += MS / 2;
			assert_true(lever_nvidia_dispatch(l) >= 0);
		}
		for (int g = 0; g < 2; g++)
			if (on[g] >= 0) {
				work[g][on[g]] += 2 * MS;
				fake_log_on((uint32_t)g, NV_FECS_SIMPLE_END, pid[g][on[g]], 0,
					    fake->now + EPOCH);
			}
		fake->now += 84000;
	}
	for (int g = 0; g < 2; g++)
		share[g] = (double)work[g][0] / (double)(work[g][0] + work[g][1]);
}

/* 40/60 on one GPU and 80/20 on the other at once; one process has contexts on both. */
static void two_gpus_have_shares_of_their_own(void **state)
{
	static const uint32_t clients[2][2] = { { 0xc1d00010, 0xc1d00011 },
						{ 0xc1d00012, 0xc1d00013 } };
	static const uint32_t pids[2][2] = { { 100, 101 }, { 100, 103 } };
	static const uint32_t percent[2][2] = { { 40, 60 }, { 80, 20 } };
	struct lever_nvidia_process list[8];
	struct lever_nvidia *l;
	double share[2];
	int n;

	fake->gpus = 2;
	l = lever_up();
	assert_int_equal(lever_nvidia_gpus(l), 2);
	for (uint32_t g = 0; g < 2; g++)
		for (uint32_t v = 0; v < 2; v++) {
			struct rtxg_slice_tenant t = { .min_ppm = percent[g][v] * 10000 };

			assert_int_equal(lever_nvidia_vgpu_set(l, g, v + 1, &t), 0);
			cuda_process_on(into_lever, l, g, pids[g][v], clients[g][v], 100 + 50 * v,
					v + 1);
		}
	turn_both_for(l, clients, pids, 300 * MS, share);
	turn_both_for(l, clients, pids, 3000 * MS, share);
	print_message("GPU 0: %.2f of 40 %%, GPU 1: %.2f of 80 %%\n", 100 * share[0],
		      100 * share[1]);
	assert_true(share[0] > 0.38 && share[0] < 0.42);
	assert_true(share[1] > 0.78 && share[1] < 0.82);
	assert_int_equal(fake->wrong_gpu, 0);
	assert_int_equal(fake->unjournaled, 0);
	n = lever_nvidia_processes(l, list, 8);
	assert_int_equal(n, 4); /* the one on both GPUs twice */
	for (int i = 0; i < n; i++) {
		assert_int_equal(list[i].channels, 12);
		assert_true(list[i].work_ns > 500 * MS && list[i].work_ns < 3000 * MS);
		assert_int_equal(list[i].gpu, list[i].pid == 103 || i == 2 ? 1 : 0);
	}
	/* It leaves one GPU, and the other knows nothing of it. */
	struct discover_record r;

	record(&r, 100, clients[1][0], 0, clients[1][0], 0, 0, 0);
	r.kind = DISCOVER_FREE;
	nv_contexts_feed(l, &r);
	n = lever_nvidia_processes(l, list, 8);
	assert_int_equal(n, 3);
	assert_int_equal(list[0].pid, 100);
	assert_int_equal(list[0].gpu, 0);
	assert_int_not_equal(list[0].slice_ns, 0);
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake->slice_us, NV_DRIVER_SLICE_US);
	assert_int_equal(fake->open_fds, 0);
}

static void memory_is_told_for_each_gpu_and_only_when_asked(void **state)
{
	struct lever_nvidia_process list[8];
	struct lever_nvidia *l;
	int n;

	fake->gpus = 2;
	l = lever_up();
	cuda_process_on(into_lever, l, 0, 100, 0xc1d00010, 100, 0);
	cuda_process_on(into_lever, l, 1, 100, 0xc1d00011, 150, 0);
	cuda_process_on(into_lever, l, 1, 103, 0xc1d00012, 200, 0);
	n = lever_nvidia_processes(l, list, 8);
	assert_int_equal(n, 3);
	for (int i = 0; i < n; i++)
		assert_true(list[i].memory_bytes == LEVER_NVIDIA_NOT_KNOWN);
	assert_int_equal(fake->memory_asked, 0);
	assert_int_equal(lever_nvidia_memory(l, list, n), 0);
	assert_int_equal(fake->memory_asked, 2);
	for (int i = 0; i < n; i++)
		assert_true(list[i].memory_bytes == fake_memory(list[i].gpu, list[i].pid));
	/* one whose books the driver does not open does not hide the others */
	fake->no_memory_of = 100;
	assert_int_equal(lever_nvidia_memory(l, list, n), 0);
	for (int i = 0; i < n; i++)
		assert_true(list[i].memory_bytes ==
			    (list[i].pid == 100 ? LEVER_NVIDIA_NOT_KNOWN
						: fake_memory(list[i].gpu, list[i].pid)));
	/* a driver that does not know the question */
	fake->fail_command = NV2080_GPU_GET_PID_INFO;
	fake->fail_status = NV_STATUS_INVALID_COMMAND;
	assert_int_equal(lever_nvidia_memory(l, list, n), -ENOTSUP);
	for (int i = 0; i < n; i++)
		assert_true(list[i].memory_bytes == LEVER_NVIDIA_NOT_KNOWN);
	lever_nvidia_close(l);
}

static void memory_of_more_processes_than_one_call_takes(void **state)
{
	enum { PROCESSES = 2 * NV_PID_INFO_ENTRIES + 1 };
	struct lever_nvidia_process *list = calloc(PROCESSES, sizeof(*list));
	struct lever_nvidia *l = lever_up();

	/* the lever's view is only the question's text: pids, a GPU, channels */
	for (uint32_t i = 0; i < PROCESSES; i++) {
		list[i].pid = 1000 + i;
		list[i].channels = i % 10 != 9; /* every tenth has no context that is known */
	}
	assert_int_equal(lever_nvidia_memory(l, list, PROCESSES), 0);
	assert_int_equal(fake->memory_asked, 2);
	for (uint32_t i = 0; i < PROCESSES; i++)
		assert_true(list[i].memory_bytes ==
			    (i % 10 != 9 ? fake_memory(0, 1000 + i) : LEVER_NVIDIA_NOT_KNOWN));
	lever_nvidia_close(l);
	free(list);
}

/*
 * What a CUDA process has allocated before we come, on one GPU; the handles lie behind those of the
 * one before.
 */
static void older_process(uint32_t pid, uint32_t client, uint32_t gpu, uint32_t base, uint32_t cid)
{
	fake_object_add(pid, client, client, base + 1, NV_CLASS_DEVICE, gpu, 0);
	fake_object_add(pid, client, base + 1, base + 2, NV_CLASS_SUBDEVICE, gpu, 0);
	fake_object_add(pid, client, base + 1, base + 0x15, NV_CLASS_CHANNEL_GROUP, gpu, 0);
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
static void die_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	alarm(60);
}

static pid_t sleeper(void)
{
	pid_t self = getpid(), pid = fork();

	if (!pid) {
		die_with(self);
		pause();
		_exit(0);
	}
	return pid;
}

static void contexts_older_than_we_are_are_adopted_on_their_gpu(void **state)
{
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_guardian = true,
					  .allow_unguarded = true };
	pid_t one = sleeper(), both = sleeper();
	struct lever_nvidia_process list[8];
	struct lever_nvidia *l;
	int n, on[2] = { 0, 0 };

	fake->gpus = 2;
	fake->reversed = true; /* the lever counts along the PCI bus, the driver does not */
	fake->next_client = 0xc1d00080;
	fake_object_add((uint32_t)one, 0xc1d00041, 0, 0xc1d00041, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)one, 0xc1d00041, 1, 0x5c000000, 100);
	fake_object_add((uint32_t)both, 0xc1d00042, 0, 0xc1d00042, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)both, 0xc1d00042, 0, 0x5c000000, 200);
	/* beyond the first neighbourhood, and found on the way */
	older_process((uint32_t)both, 0xc1d00042, 1, 0x5c001800, 300);
	fake->channel[0].stopped = true; /* left so by a daemon that died with its guardian */
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	n = lever_nvidia_processes(l, list, 8);
	assert_int_equal(n, 3);
	for (int i = 0; i < n; i++) {
		assert_true(list[i].adopted);
		assert_true(list[i].managed);
		assert_int_equal(list[i].channels, 9);
		if (list[i].pid == (uint32_t)one)
			/* the driver's second is first on the bus */
			assert_int_equal(list[i].gpu, 0);
		else
			on[list[i].gpu]++;
	}
	assert_int_equal(on[0], 1);
	assert_int_equal(on[1], 1);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake->wrong_gpu, 0);
	lever_nvidia_close(l);
	assert_int_equal(fake->open_fds, 0);
	/* If it cannot be told which GPU it is on, it is left alone, and that is said. */
	fake->silent_subdevices = true;
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	n = lever_nvidia_processes(l, list, 8);
	assert_int_equal(n, 2);
	for (int i = 0; i < n; i++) {
		assert_true(list[i].pid == (uint32_t)one || list[i].pid == (uint32_t)both);
		assert_false(list[i].managed);
		assert_non_null(strstr(list[i].remedy, "restart it"));
		assert_string_equal(list[i].comm, "test_lever");
	}
	lever_nvidia_close(l);
	kill(one, SIGKILL);
	kill(both, SIGKILL);
	waitpid(one, NULL, 0);
	waitpid(both, NULL, 0);
}

static void collect(void *ctx, enum lever_nvidia_log level, const char *line)
{
	strncat(ctx, line, 1000 - strlen(ctx));
}

static void a_gpu_in_mig_mode_is_left_alone(void **state)
{
	static const uint32_t clients[2][2] = { { 0xc1d00010, 0xc1d00011 },
						{ 0xc1d00012, 0xc1d00013 } };
	char said[1100] = "";
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_guardian = true,
					  .allow_unguarded = true };
	struct lever_nvidia_ops ops = { .size = sizeof(ops), .ctx = said, .log = collect };
	struct rtxg_slice_tenant t = { .min_ppm = 200000 };
	struct lever_nvidia_gpu view;
	struct lever_nvidia *l;

	fake->gpus = 2;
	fake->mig = 1; /* the first one */
	assert_int_equal(lever_nvidia_open(&o, &ops, &l, NULL, 0), 0);
	assert_non_null(strstr(said, "MIG mode"));
	assert_non_null(strstr(said, "nvidia-smi -i 0 -mig 0"));
	assert_int_equal(lever_nvidia_gpu(l, 0, &view), 0);
	assert_true(view.mig);
	assert_int_equal(view.log_error, -EOPNOTSUPP);
	assert_int_equal(lever_nvidia_gpu(l, 1, &view), 0);
	assert_false(view.mig);
	assert_int_equal(view.log_error, 0);
	assert_int_equal(lever_nvidia_gpu(l, 2, &view), -EINVAL);
	lever_nvidia_vgpu_set(l, 0, 1, &t);
	lever_nvidia_vgpu_set(l, 1, 1, &t);
	for (uint32_t g = 0; g < 2; g++)
		for (uint32_t v = 0; v < 2; v++)
			cuda_process_on(into_lever, l, g, 100 + 10 * g + v, clients[g][v],
					100 + 50 * v, v);
	for (int i = 0; i < 400; i++) {
		uint32_t v = i & 1;

		fake_log_on(1, NV_FECS_SIMPLE_START, 110 + v, 0, fake->now + EPOCH);
		fake->now += 2 * MS;
		assert_int_equal(lever_nvidia_dispatch(l), 0);
		fake_log_on(1, NV_FECS_SIMPLE_END, 110 + v, 0, fake->now + EPOCH);
	}
	assert_true(fake->disables > 0); /* the other GPU is governed ... */
	for (uint32_t v = 0; v < 2; v++) /* ... and here nothing was ever done */
		assert_false(stopped_on(0, clients[0][v]));
	assert_int_equal(fake->wrong_gpu, 0);
	lever_nvidia_close(l);
}

/*
 * A program with librtxg-warm.so in it is told of its releases from its first context on, and not
 * only at the next look.
 */
static void a_warmed_program_is_noticed_at_once(void **state)
{
	char folder[] = "/tmp/rtxg-warm-XXXXXX", library[100], releases[100];
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_guardian = true,
					  .allow_unguarded = true,
					  .releases = releases };
	struct rtxg_slice_tenant t = { .priority = RTXG_SLICE_CRITICAL_PRIORITY,
				       .period_ns = 10 * MS };
	struct lever_nvidia_process list[2];
	struct lever_nvidia *l;
	pid_t pid, self = getpid();
	int fd, ready[2];
	char c;

	assert_non_null(mkdtemp(folder));
	snprintf(library, sizeof(library), "%s/librtxg-warm.so", folder);
	snprintf(releases, sizeof(releases), "%s/releases", folder);
	fd = open(library, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		die_with(self);
		if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED &&
		    write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 9, &t), 0);
	cuda_process(into_lever, l, (uint32_t)pid, 0xc1d00010, 100, 9);
	/* its own pid is not governed */
	cuda_process(into_lever, l, (uint32_t)getpid(), 0xc1d00011, 120, 9);
	assert_int_equal(lever_nvidia_processes(l, list, 2), 1);
	assert_true(list[0].warms);
	assert_int_equal(lever_nvidia_dispatch(l), 0);
	assert_int_equal(l->releases->entry[0].pid, pid);
	/* it has had no release as yet */
	assert_true(l->releases->entry[0].warm_ns == RTXG_SLICE_NEVER);
	lever_nvidia_close(l);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd);
	close(ready[0]);
	close(ready[1]);
	unlink(library);
	rmdir(folder);
}

/* Who is in which vGPU, over a restart */

/* A process that forks one child when it is told to, and says its pid. */
struct parent {
	pid_t pid;
	int ask, answer;
};

static struct parent parent(void)
{
	pid_t self = getpid();
	int ask[2], answer[2];
	struct parent p;

	assert_int_equal(pipe(ask), 0);
	assert_int_equal(pipe(answer), 0);
	p = (struct parent){ .ask = ask[1], .answer = answer[0] };
	p.pid = fork();
	if (!p.pid) {
		pid_t child;
		char c;

		die_with(self);
		close(ask[1]);
		while (read(ask[0], &c, 1) == 1) {
			child = sleeper();
			if (write(answer[1], &child, sizeof(child)) != sizeof(child))
				break;
		}
		_exit(0);
	}
	close(ask[0]);
	close(answer[1]);
	return p;
}

static pid_t have_child(const struct parent *p)
{
	pid_t child;

	assert_int_equal(write(p->ask, "", 1), 1);
	assert_int_equal(read(p->answer, &child, sizeof(child)), sizeof(child));
	return child;
}

static void ended(struct parent *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->ask);
	close(p->answer);
}

static bool by_number(void *ctx, uint32_t tag, char *text)
{
	snprintf(text, NV_ASSIGNED_LABEL, "vgpu %u", tag);
	return tag != 9;
}

static void spoil(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void assignments_outlive_the_daemon(void **state)
{
	struct nv_assigned a = { 0 }, b = { 0 };
	const struct nv_assigned_one *e;
	struct parent p = parent(), other = parent();
	char folder[] = "/tmp/rtxg-assigned-XXXXXX", path[100], link[100];
	pid_t older = have_child(&p), child, grandchild;
	struct stat st;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/assigned", folder);
	snprintf(link, sizeof(link), "%s/link", folder);
	assert_int_equal(nv_assigned_load(&b, path), -ENOENT);
	usleep(30000); /* births are known to 10 ms */
	assert_int_equal(nv_assigned_put(&a, (uint32_t)p.pid, 3, false), 0);
	/* it has no name: not kept */
	assert_int_equal(nv_assigned_put(&a, (uint32_t)other.pid, 9, false), 0);
	assert_int_equal(nv_assigned_put(&a, 0x7ffffff0, 3, false), -ESRCH);
	assert_true(a.dirty);
	assert_int_equal(nv_assigned_save(&a, path, by_number, NULL), 0);
	assert_false(a.dirty);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	child = have_child(&p);
	assert_int_equal(nv_assigned_load(&b, path), 0);
	assert_int_equal(b.count, 1);
	e = nv_assigned_find(&b, (uint32_t)p.pid);
	assert_non_null(e);
	assert_int_equal(e->tag, NV_ASSIGNED_NONE);
	assert_string_equal(e->label, "vgpu 3");
	assert_ptr_equal(nv_assigned_find(&b, (uint32_t)child), e);
	/* it was born before its parent was put there */
	assert_null(nv_assigned_find(&b, (uint32_t)older));
	assert_null(nv_assigned_find(&b, (uint32_t)getpid()));
	nv_assigned_inherit(&b);
	assert_int_equal(b.count, 2);
	assert_int_equal(nv_assigned_find(&b, (uint32_t)child)->pid, child);
	/* Its own entry is kept when the parent has gone, and goes with it. */
	grandchild = have_child(&other);
	kill(p.pid, SIGKILL);
	waitpid(p.pid, NULL, 0);
	nv_assigned_prune(&b); /* the child dies with its parent; perhaps not yet */
	assert_null(nv_assigned_find(&b, (uint32_t)p.pid));
	assert_null(nv_assigned_find(&b, (uint32_t)grandchild));
	nv_assigned_free(&b);
	/*
	 * Another process of the same pid is another process; and what somebody else could have
	 * written does not count.
	 */
	assert_int_equal(nv_assigned_put(&b, (uint32_t)other.pid, 1, false), 0);
	b.one[0].start++;
	assert_int_equal(nv_assigned_save(&b, path, by_number, NULL), 0);
	assert_null(nv_assigned_find(&b, (uint32_t)other.pid));
	assert_int_equal(b.count, 0);
	assert_int_equal(nv_assigned_load(&b, path), 0);
	assert_int_equal(b.count, 0);
	assert_int_equal(nv_assigned_put(&b, (uint32_t)other.pid, 1, false), 0);
	assert_int_equal(nv_assigned_save(&b, path, by_number, NULL), 0);
	nv_assigned_free(&b);
	assert_int_equal(chmod(path, 0620), 0);
	assert_int_equal(nv_assigned_load(&b, path), -EPERM);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(nv_assigned_load(&b, link), -ELOOP);
	spoil(path, "something\n");
	assert_int_equal(nv_assigned_load(&b, path), -EINVAL);
	spoil(path, "rtxg-assigned 1 of-another-boot\n1 1 1 name\n");
	assert_int_equal(nv_assigned_load(&b, path), 0);
	assert_int_equal(b.count, 0);
	nv_assigned_free(&a);
	unlink(link);
	unlink(path);
	rmdir(folder);
	ended(&p);
	ended(&other);
}

static uint32_t vgpu_of_pid(const struct lever_nvidia *l, pid_t pid)
{
	struct lever_nvidia_process list[8];
	int n = lever_nvidia_processes(l, list, 8);

	for (int i = 0; i < n && i < 8; i++)
		if (list[i].pid == (uint32_t)pid)
			return list[i].vgpu;
	return UINT32_MAX;
}

static void what_was_assigned_stays_so_after_a_restart(void **state)
{
	char folder[] = "/tmp/rtxg-assigned-XXXXXX", path[100];
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_guardian = true,
					  .allow_unguarded = true,
					  .assigned = path };
	struct rtxg_slice_tenant t = { .min_ppm = 300000 };
	struct parent one = parent(), back = parent();
	struct lever_nvidia *dead, *l;
	struct discover_record r;
	pid_t child, forked;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/assigned", folder);
	assert_int_equal(lever_nvidia_open(&o, NULL, &dead, NULL, 0), 0);
	for (uint32_t v = 1; v < 4; v++)
		assert_int_equal(lever_nvidia_vgpu_set(dead, 0, v, &t), 0);
	assert_int_equal(lever_nvidia_assign(dead, (uint32_t)one.pid, 2), 0);
	assert_int_equal(lever_nvidia_assign(dead, (uint32_t)back.pid, 3), 0);
	assert_int_equal(lever_nvidia_assign(dead, (uint32_t)back.pid, 0), 0);
	/*
	 * A child that it knows of is in the file within the time of a look, and keeps its place
	 * when its parent has gone elsewhere.
	 */
	forked = have_child(&back);
	record(&r, (uint32_t)forked, 0, 0, 0, 0, 0, 0);
	r.kind = DISCOVER_FORK;
	r.tag = 1;
	nv_contexts_feed(dead, &r);
	fake->now += 300 * MS;
	assert_int_equal(lever_nvidia_dispatch(dead), 0);
	/*
	 * From here on it does nothing more, as one that was killed; a child is born, and both work
	 * on the GPU.
	 */
	child = have_child(&one);
	fake->next_client = 0xc1d00080;
	fake_object_add((uint32_t)one.pid, 0xc1d00041, 0, 0xc1d00041, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)one.pid, 0xc1d00041, 0, 0x5c000000, 100);
	fake_object_add((uint32_t)child, 0xc1d00042, 0, 0xc1d00042, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)child, 0xc1d00042, 0, 0x5c000000, 200);
	fake_object_add((uint32_t)back.pid, 0xc1d00043, 0, 0xc1d00043, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)back.pid, 0xc1d00043, 0, 0x5c000000, 300);
	fake_object_add((uint32_t)forked, 0xc1d00044, 0, 0xc1d00044, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)forked, 0xc1d00044, 0, 0x5c000000, 400);
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	assert_int_equal(vgpu_of_pid(l, one.pid), 0); /* there are no vGPUs as yet */
	assert_int_equal(vgpu_of_pid(l, child), 0);
	for (uint32_t v = 1; v < 4; v++)
		assert_int_equal(lever_nvidia_vgpu_set(l, 0, v, &t), 0);
	assert_int_equal(vgpu_of_pid(l, one.pid), 2);
	assert_int_equal(vgpu_of_pid(l, child), 2);
	assert_int_equal(vgpu_of_pid(l, back.pid), 0);
	assert_int_equal(vgpu_of_pid(l, forked), 1);
	lever_nvidia_close(dead);
	lever_nvidia_close(l);
	unlink(path);
	rmdir(folder);
	ended(&one);
	ended(&back);
}

/* The guardian: the real program's code, on the fake driver, in a process of its own */

int guardian_main(int argc, char **argv);

static void the_guardian_lets_go_when_the_daemon_dies(void **state)
{
	struct nv_journal journal;
	struct nv_journal_slice slice = { .device = 0,
					  .client = 0xc1d00010,
					  .group = 0x5c000015,
					  .channel = 0x5c00001c,
					  .pid = 1,
					  .fd = 7 };
	static const int meant_for_all[] = { SIGTERM, SIGINT,  SIGHUP,	SIGQUIT, SIGUSR1,
					     SIGUSR2, SIGPIPE, SIGALRM, SIGXCPU };
	char j[16], d[16];
	pid_t daemon, guardian, self = getpid();
	int pidfd, status, i;

	assert_int_equal(nv_journal_create(&journal), 0);
	for (uint32_t c = 0; c < 100; c++) {
		fake_channel_add(0, 0xc1d00010, 0x1000 + c, 1);
		fake->channel[c].stopped = true;
		assert_int_equal(nv_journal_add(&journal, 0, 0xc1d00010, 0x1000 + c), 0);
	}
	fake->channel[50].gone = true; /* it must not keep the others from being let go */
	fake->channel[50].stopped = false;
	fake->slice_us = 30;
	assert_int_equal(nv_journal_slice(&journal, &slice), 0);
	daemon = fork();
	if (!daemon) {
		die_with(self);
		pause();
		_exit(0);
	}
	setpgid(daemon, daemon); /* as a control group that gets every signal */
	pidfd = (int)syscall(SYS_pidfd_open, daemon, 0);
	assert_true(pidfd >= 0);
	snprintf(j, sizeof(j), "%d", journal.fd);
	snprintf(d, sizeof(d), "%d", pidfd);
	guardian = fork();
	if (!guardian) {
		char *argv[] = { "rtxg-guardian", j, d, NULL };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, daemon);
		_exit(guardian_main(3, argv));
	}
	while (!__atomic_load_n(&journal.page->guarded, __ATOMIC_ACQUIRE)) {
		assert_int_equal(waitpid(guardian, &status, WNOHANG), 0);
		usleep(1000);
	}
	assert_int_equal(__atomic_load_n(&journal.page->guarded, __ATOMIC_ACQUIRE), 1);
	assert_int_equal(fake_stopped(), 99); /* it does nothing while the daemon lives */
	for (i = 0; i < (int)(sizeof(meant_for_all) / sizeof(meant_for_all[0])); i++)
		kill(guardian, meant_for_all[i]); /* and does not leave its post */
	kill(-daemon, SIGABRT);			  /* a service manager's watchdog */
	waitpid(daemon, &status, 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	for (i = 0; i < 30000 && waitpid(guardian, &status, WNOHANG) == 0; i++)
		usleep(1000);
	assert_true(WIFEXITED(status));
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake->slice_us, NV_DRIVER_SLICE_US);
	assert_int_equal(nv_journal_count(&journal), 0);
	close(pidfd);
	nv_journal_close(&journal);
}

static void the_guardian_says_when_it_cannot(void **state)
{
	struct nv_journal journal;
	char j[16];
	char *argv[] = { "rtxg-guardian", j, "0", NULL };

	assert_int_equal(nv_journal_create(&journal), 0);
	snprintf(j, sizeof(j), "%d", journal.fd);
	fake->open_error = EACCES;
	assert_int_equal(guardian_main(3, argv), 1);
	assert_int_equal((int32_t)journal.page->guarded, -EACCES);
	journal.page->magic = 1;
	assert_int_equal(guardian_main(3, argv), 1);
	assert_int_equal(guardian_main(1, argv), 2);
	nv_journal_close(&journal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(opens_and_says_why_not, before),
		cmocka_unit_test_setup(refuses_a_driver_whose_structures_differ, before),
		cmocka_unit_test_setup(without_a_log_nothing_is_governed, before),
		cmocka_unit_test_setup(registry_follows_a_process, before),
		cmocka_unit_test_setup(registry_knows_mps_and_lone_channels, before),
		cmocka_unit_test_setup(stops_and_resumes_more_than_one_call_holds, before),
		cmocka_unit_test_setup(half_a_stop_is_undone, before),
		cmocka_unit_test_setup(nothing_is_stopped_without_room_in_the_journal, before),
		cmocka_unit_test_setup(slices_go_through_the_owners_descriptor, before),
		cmocka_unit_test_setup(log_is_read_across_its_end_and_losses_are_counted, before),
		cmocka_unit_test_setup(keeps_shares, before),
		cmocka_unit_test_setup(stops_at_the_end_of_a_slice_if_told_to, before),
		cmocka_unit_test_setup(keeps_shares_on_a_slow_driver, before),
		cmocka_unit_test_setup(one_that_cannot_be_stopped_is_left_alone, before),
		cmocka_unit_test_setup(a_lost_device_is_let_go, before),
		cmocka_unit_test_setup(the_end_of_a_stopped_process_leaves_nothing, before),
		cmocka_unit_test_setup(off_gives_everything_back, before),
		cmocka_unit_test_setup(a_slice_that_the_program_changed_is_set_anew, before),
		cmocka_unit_test_setup(nothing_is_stopped_without_a_guardian, before),
		cmocka_unit_test_setup(refuses_what_does_not_exist, before),
		cmocka_unit_test_setup(releases_are_told_and_taken_back, before),
		cmocka_unit_test_setup(memory_is_told_for_each_gpu_and_only_when_asked, before),
		cmocka_unit_test_setup(memory_of_more_processes_than_one_call_takes, before),
		cmocka_unit_test_setup(two_gpus_have_shares_of_their_own, before),
		cmocka_unit_test_setup(contexts_older_than_we_are_are_adopted_on_their_gpu, before),
		cmocka_unit_test_setup(a_gpu_in_mig_mode_is_left_alone, before),
		cmocka_unit_test_setup(a_warmed_program_is_noticed_at_once, before),
		cmocka_unit_test_setup(assignments_outlive_the_daemon, before),
		cmocka_unit_test_setup(what_was_assigned_stays_so_after_a_restart, before),
		cmocka_unit_test_setup(the_guardian_lets_go_when_the_daemon_dies, before),
		cmocka_unit_test_setup(the_guardian_says_when_it_cannot, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
