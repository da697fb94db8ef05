// SPDX-License-Identifier: MIT
/*
 * test_driver.c - the lever's calls to the driver: open it, stop and resume channels, set slices,
 * read the log; and the lever's answer to a driver that fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <cmocka.h>
#include "act.h"
#include "channels.h"
#include "fake_nvidiactl.h"
#include "fecs.h"
#include "journal.h"
#include "lever_nvidia.h"
#include "needs.h"
#include "rig.h"

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
		assert_int_equal(
			nv_batch_add(&g.batch, nv_registry_process(&g.reg, 100 + i), 0, NV_ALL), 0);
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
		nv_batch_add(&g.batch, nv_registry_process(&g.reg, 100 + i), 0, NV_ALL);
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
	nv_batch_add(&g.batch, nv_registry_process(&g.reg, 100), 0, NV_ALL);
	for (uint32_t i = 0; i < NV_JOURNAL_ENTRIES - 4; i++)
		assert_int_equal(nv_journal_note(&g.journal, 0, 1, i + 1, 1), 0);
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
	assert_int_equal(nv_get_slice(&g.gpu, p, 0, 500, &us), 0);
	assert_int_equal(us, 500);
	assert_int_equal(g.journal.page->slice[0].used, 1);
	assert_int_equal(g.journal.page->slice[0].pid, 100);
	assert_int_equal(nv_set_slice(&g.gpu, &g.journal, p, 0, NV_DRIVER_SLICE_US), 0);
	assert_int_equal(g.journal.page->slice[0].used, 0);
	assert_int_equal(nv_set_slice(&g.gpu, &g.journal, p, 0, 0), -EINVAL);
	assert_int_equal(nv_set_slice(&g.gpu, &g.journal, p, 0, 1000001), -EINVAL);
	/* where the probes found that a restart is not needed, there is none */
	fake->restarts = 0;
	g.gpu.slice_at_once = true;
	assert_int_equal(nv_set_slice(&g.gpu, &g.journal, p, 0, 700), 0);
	assert_int_equal(fake->slice_us, 700);
	assert_int_equal(fake->restarts, 0);
	fake->getfd_error = EPERM;
	assert_int_equal(nv_set_slice(&g.gpu, &g.journal, p, 0, 500), -EPERM);
	assert_int_equal(fake->foreign_fds, 0);
	rig_down(&g);
}

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
		/* the driver is told in time, and not each time */
		assert_true((fake->log[0].header.put - fake->updated_get) % 256 <= 32 + 100);
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

static void keep_lacking(void *ctx, const struct nv_need *need)
{
	*(const struct nv_need **)ctx = need;
}

/* Each control is asked of an object that has it, and what is asked is not done. */
static void a_driver_is_asked_what_it_lacks(void **state)
{
	static const uint32_t lacks[] = { NV2080_FIFO_GET_GROUP_UID, NV0000_CLIENT_GET_CHILD_HANDLE,
					  NV90CD_FLUSH };
	const struct nv_need *need = NULL;
	struct nv_rm_gpu gpu;
	unsigned int asked;
	struct nv_fecs f;
	struct nv_rm rm;

	assert_int_equal(nv_rm_open(&rm, &fake_sys), 0);
	assert_int_equal(nv_rm_gpus_open(&rm, &gpu, 1), 1);
	assert_int_equal(nv_fecs_open(&f, &gpu, 256), 0);
	assert_int_equal(nv_needs_ask(&gpu, &f, keep_lacking, &need, &asked), 0);
	assert_null(need);
	assert_int_equal(asked, 16);
	assert_int_equal(fake->disables, 0);
	assert_int_equal(fake->flushes, 0);
	for (size_t i = 0; i < sizeof(lacks) / sizeof(lacks[0]); i++) {
		fake->lacks = lacks[i];
		assert_int_equal(nv_needs_ask(&gpu, &f, keep_lacking, &need, NULL), 1);
		assert_int_equal(need->command, lacks[i]);
		assert_non_null(strstr(need->name, "_CTRL_CMD_"));
	}
	assert_int_equal(nv_needs_ask(&gpu, NULL, keep_lacking, &need, &asked), 0);
	assert_int_equal(asked, 13);
	nv_fecs_close(&f);
	nv_rm_gpu_close(&gpu);
	nv_rm_close(&rm);
}

/* A driver that has moved a channel's fields is seen by the number that it gives itself. */
static void a_channels_number_is_compared_with_the_drivers(void **state)
{
	uint32_t client = 0xc1d00100, seen = 0, said = 0;
	struct nv_registry reg;
	struct nv_process *p;
	struct nv_rm_gpu gpu;
	struct nv_rm rm;

	assert_int_equal(nv_rm_open(&rm, &fake_sys), 0);
	assert_int_equal(nv_rm_gpus_open(&rm, &gpu, 1), 1);
	nv_registry_init(&reg);
	cuda_process(into_registry, &reg, 100, client, 40, 0);
	p = nv_registry_process(&reg, 100);
	assert_non_null(p);
	assert_int_equal(nv_needs_number(&gpu, p, &seen, &said), -ENOENT);
	older_process(100, client, 0, 0x5c000000, 40);
	assert_int_equal(nv_needs_number(&gpu, p, &seen, &said), 0);
	assert_int_equal(said, 40);
	p->groups[0].channels[0].cid = 0; /* what stood at the place that was read */
	assert_int_equal(nv_needs_number(&gpu, p, &seen, &said), -EPROTO);
	assert_int_equal(seen, 0);
	assert_int_equal(said, 40);
	gpu.device_instance = 1;
	assert_int_equal(nv_needs_number(&gpu, p, &seen, &said), -ENOENT);
	nv_registry_free(&reg);
	nv_rm_gpu_close(&gpu);
	nv_rm_close(&rm);
}

static uint32_t updates;

/* Other programs keep the driver busy. */
static int busy(void *ctx, int fd, uint32_t request, void *arg)
{
	const struct nvos54 *c = arg;

	if (request == RM_IOC(NV_ESC_RM_CONTROL, struct nvos54)) {
		fake->now += 100 * MS;
		updates += c->cmd == NV90CD_UPDATE_GET;
	}
	return fake_sys.ioctl(ctx, fd, request, arg);
}

static void a_busy_driver_is_asked_little_and_spoils_no_clock(void **state)
{
	struct nv_fecs_event ev[256];
	struct nv_sys slow = fake_sys;
	struct nv_rm_gpu gpu;
	uint64_t compared;
	int64_t offset_ns;
	struct nv_fecs f;
	struct nv_rm rm;
	int n, all = 0;

	assert_int_equal(nv_rm_open(&rm, &slow), 0);
	assert_int_equal(nv_rm_gpus_open(&rm, &gpu, 1), 1);
	assert_int_equal(nv_fecs_open(&f, &gpu, 16384), 0);
	assert_int_equal(nv_fecs_calibrate(&f), 0);
	offset_ns = f.offset_ns;
	assert_int_equal(offset_ns, -(int64_t)FAKE_EPOCH);
	slow.ioctl = busy;
	compared = fake->compared;
	assert_int_equal(nv_fecs_calibrate(&f), 0);
	assert_int_equal(fake->compared, compared + 1);
	assert_int_equal(f.offset_ns, offset_ns);
	/* A jump is seen all the same, to what can be told. */
	fake->gpu_ahead = 1000 * MS;
	assert_int_equal(nv_fecs_calibrate(&f), 0);
	assert_in_range(offset_ns - f.offset_ns, 949 * MS, 1051 * MS);
	/* And what is better than that is taken. */
	slow.ioctl = fake_sys.ioctl;
	assert_int_equal(nv_fecs_calibrate(&f), 0);
	assert_int_equal(offset_ns - f.offset_ns, 1000 * MS);
	/* The driver is told once how much of a long log was read. */
	slow.ioctl = busy;
	updates = 0;
	for (uint32_t i = 0; i < 10000; i++)
		fake_log(i % 2 ? NV_FECS_SIMPLE_END : NV_FECS_SIMPLE_START, 100, 0, i);
	while ((n = nv_fecs_read(&f, ev, 256)) > 0)
		all += n;
	assert_int_equal(all, 10000);
	assert_int_equal(f.lost, 0);
	assert_int_equal(updates, 1);
	assert_int_equal(fake->updated_get, f.get);
	nv_fecs_close(&f);
	nv_rm_gpu_close(&gpu);
	nv_rm_close(&rm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_driver_is_asked_what_it_lacks, before),
		cmocka_unit_test_setup(a_channels_number_is_compared_with_the_drivers, before),
		cmocka_unit_test_setup(opens_and_says_why_not, before),
		cmocka_unit_test_setup(refuses_a_driver_whose_structures_differ, before),
		cmocka_unit_test_setup(without_a_log_nothing_is_governed, before),
		cmocka_unit_test_setup(stops_and_resumes_more_than_one_call_holds, before),
		cmocka_unit_test_setup(half_a_stop_is_undone, before),
		cmocka_unit_test_setup(nothing_is_stopped_without_room_in_the_journal, before),
		cmocka_unit_test_setup(slices_go_through_the_owners_descriptor, before),
		cmocka_unit_test_setup(log_is_read_across_its_end_and_losses_are_counted, before),
		cmocka_unit_test_setup(a_busy_driver_is_asked_little_and_spoils_no_clock, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
