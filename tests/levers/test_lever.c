// SPDX-License-Identifier: MIT
/*
 * test_lever.c - the whole lever on the fake driver: shares are kept, and a driver that fails, is
 * slow or goes away is borne.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <cmocka.h>
#include "act.h"
#include "channels.h"
#include "contexts.h"
#include "fake_nvidiactl.h"
#include "journal.h"
#include "lever_nvidia.h"
#include "rig.h"
#include "state.h"

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

static uint64_t last_stay[2];

static void note_stay(void *ctx, uint32_t gpu, uint32_t pid, uint32_t vgpu, uint64_t since,
		      uint64_t until)
{
	last_stay[0] = since;
	last_stay[1] = until;
}

/*
 * The machine has slept for an hour, which the GPU's clock counts and ours does not; then that
 * clock is set back. Stays are where they were at once, and none is charged for an hour.
 */
static void a_jump_of_the_gpus_clock_is_seen(void **state)
{
	static const int64_t jumps[] = { 3600 * 1000, -7200 * 1000, 500, -500 };
	uint64_t work[2], compared;
	struct rtxg_slice_view v;
	struct lever_nvidia *l;

	fake->now += 8000ull * 1000 * MS; /* our clock is older than the jumps are long */
	l = two_tenants();
	l->ops.stay = note_stay;
	turn_for(l, 1000 * MS);
	for (unsigned int i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
		compared = fake->compared;
		for (uint32_t k = 0; k < 2; k++) {
			assert_int_equal(lever_nvidia_vgpu_view(l, 0, k + 1, &v), 0);
			work[k] = v.work_ns;
		}
		fake->gpu_ahead += jumps[i] * (int64_t)MS;
		turn_for(l, 200 * MS);
		assert_in_range(last_stay[0], fake->now - 30 * MS, fake->now);
		assert_in_range(last_stay[1], last_stay[0], fake->now);
		for (uint32_t k = 0; k < 2; k++) {
			assert_int_equal(lever_nvidia_vgpu_view(l, 0, k + 1, &v), 0);
			assert_in_range(v.work_ns - work[k], 0, 230 * MS);
		}
		/* Eight readings make a comparison. */
		assert_in_range(fake->compared - compared, 8, 24);
	}
	lever_nvidia_close(l);
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

static void one_that_cannot_be_stopped_keeps_its_slice(void **state)
{
	struct lever_nvidia_process list[4];
	struct lever_nvidia_stats stats;
	struct lever_nvidia *l = two_tenants();

	fake->fail_client = 0xc1d00011;
	fake->fail_status = NV_STATUS_NOT_SUPPORTED;
	turn_for(l, 500 * MS);
	lever_nvidia_stats(l, &stats);
	assert_true(stats.failures >= 1 && stats.failures < 5);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(lever_nvidia_processes(l, list, 4), 2);
	for (int i = 0; i < 2; i++) {
		assert_true(list[i].managed);
		if (list[i].pid == 101)
			assert_non_null(strstr(list[i].remedy, "NOT_SUPPORTED"));
		else
			assert_null(list[i].remedy);
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

	for (int i = 0; i < 100 && !stopped_on(0, 0xc1d00011); i++)
		turn_for(l, 2 * MS);
	assert_true(stopped_on(0, 0xc1d00011));
	assert_int_equal(nv_journal_count(&l->journal), 8);
	record(&r, 101, 0, 0, 0, 0, 0, 0);
	r.kind = DISCOVER_EXIT;
	nv_contexts_feed(l, &r);
	assert_false(stopped_on(0, 0xc1d00011));
	assert_int_equal(nv_journal_count(&l->journal), 0);
	assert_null(nv_registry_process(&l->registry, 101));
	lever_nvidia_close(l);
}

static void one_that_could_not_be_adopted_is_gone_with_its_end(void **state)
{
	struct lever_nvidia_process list[4];
	struct lever_nvidia *l = two_tenants();
	uint32_t alien = (uint32_t)sleeper();
	struct discover_record r;

	fake_object_add(alien, 0xc1d00041, 0, 0xc1d00041, NV_CLASS_ROOT_CLIENT, 0, 0);
	fake_log(NV_FECS_SIMPLE_START, alien, 0, fake->now + EPOCH);
	turn_for(l, 300 * MS);
	assert_int_equal(lever_nvidia_processes(l, list, 4), 3);
	assert_false(process_of(l, alien).managed);
	/* It ends before its last record is read, and before it would be looked at again. */
	fake_log(NV_FECS_SIMPLE_START, alien, 0, fake->now + EPOCH);
	fake_gone(0xc1d00041);
	kill((pid_t)alien, SIGKILL);
	record(&r, alien, 0, 0, 0, 0, 0, 0);
	r.kind = DISCOVER_EXIT;
	nv_contexts_feed(l, &r);
	turn_for(l, 300 * MS);
	assert_int_equal(lever_nvidia_processes(l, list, 4), 2);
	lever_nvidia_close(l);
}

static bool all_stopped(uint32_t client, uint32_t group)
{
	for (uint32_t i = 0; i < fake->channels; i++)
		if (fake->channel[i].client == client && fake->channel[i].group == group &&
		    !fake->channel[i].stopped)
			return false;
	return true;
}

/* It has the channels that were seen, and some that were not, for records were lost. */
static void channels_whose_records_were_lost_are_found(void **state)
{
	const uint32_t client = 0xc1d00011, group = 0x5c000015;
	struct lever_nvidia *l = two_tenants();
	struct discover_record r;
	uint64_t calls;

	fake_object_add(101, client, 0, client, NV_CLASS_ROOT_CLIENT, 0, 0);
	fake_object_add(101, client, client, 0x5c000001, NV_CLASS_DEVICE, 0, 0);
	fake_object_add(101, client, 0x5c000001, 0x5c000002, NV_CLASS_SUBDEVICE, 0, 0);
	fake_object_add(101, client, 0x5c000001, group, NV_CLASS_CHANNEL_GROUP, 0, 0);
	for (uint32_t i = 0; i < 10; i++) {
		uint32_t handle = (i < 8 ? 0x5c00001c : 0x5c000060) + 4 * i;

		fake_object_add(101, client, group, handle, 0xc86f, 0, 120 + i);
		fake_object_add(101, client, handle, handle + 1, 0xcbc0, 0, 0);
		if (i >= 8)
			fake_channel_add(0, client, handle, group);
	}
	for (int i = 0; i < 100 && !stopped_on(0, client); i++)
		turn_for(l, 2 * MS);
	assert_true(stopped_on(0, client));
	assert_false(all_stopped(client, group));
	record(&r, 101, 0, 0, 0, 0, 0, 0);
	r.kind = DISCOVER_LOST;
	r.object = 7;
	nv_contexts_feed(l, &r);
	calls = l->rm.calls;
	for (int i = 0; i < 1000 && !all_stopped(client, group); i++)
		turn_for(l, 2 * MS);
	assert_true(all_stopped(client, group));
	assert_int_equal(process_of(l, 101).vgpu, 2);
	calls = l->rm.calls - calls;
	/* To cause that again and again is of no use. */
	for (int i = 0; i < 4; i++) {
		uint64_t before = l->rm.calls;

		nv_contexts_feed(l, &r);
		turn_for(l, 200 * MS);
		assert_in_range(l->rm.calls - before, 0, calls / 2);
	}
	/* When it ends nothing stays stopped, or in the journal. */
	r.kind = DISCOVER_EXIT;
	nv_contexts_feed(l, &r);
	assert_false(stopped_on(0, client));
	assert_int_equal(nv_journal_count(&l->journal), 0);
	lever_nvidia_close(l);
}

static void off_gives_everything_back(void **state)
{
	struct lever_nvidia *l = two_tenants();
	uint32_t calls;

	for (int i = 0; i < 100 && !stopped_on(0, 0xc1d00011); i++)
		turn_for(l, 2 * MS);
	assert_true(stopped_on(0, 0xc1d00011));
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
	struct lever_nvidia *l;

	can = RTXG_SLICE_CAN_SLICE; /* shares are kept by slices */
	l = two_tenants();
	can = 0;
	turn_for(l, 500 * MS);
	fake_set_slice(0xc1d00011, 2048); /* CUDA does this while it builds a context */
	turn_for(l, 600 * MS);
	lever_nvidia_stats(l, &stats);
	assert_true(stats.slices_lost >= 1);
	assert_int_not_equal(fake_slice(0xc1d00011), 2048);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(keeps_shares, before),
		cmocka_unit_test_setup(a_jump_of_the_gpus_clock_is_seen, before),
		cmocka_unit_test_setup(stops_at_the_end_of_a_slice_if_told_to, before),
		cmocka_unit_test_setup(keeps_shares_on_a_slow_driver, before),
		cmocka_unit_test_setup(one_that_cannot_be_stopped_keeps_its_slice, before),
		cmocka_unit_test_setup(a_lost_device_is_let_go, before),
		cmocka_unit_test_setup(the_end_of_a_stopped_process_leaves_nothing, before),
		cmocka_unit_test_setup(channels_whose_records_were_lost_are_found, before),
		cmocka_unit_test_setup(one_that_could_not_be_adopted_is_gone_with_its_end, before),
		cmocka_unit_test_setup(off_gives_everything_back, before),
		cmocka_unit_test_setup(a_slice_that_the_program_changed_is_set_anew, before),
		cmocka_unit_test_setup(nothing_is_stopped_without_a_guardian, before),
		cmocka_unit_test_setup(refuses_what_does_not_exist, before),
		cmocka_unit_test_setup(a_gpu_in_mig_mode_is_left_alone, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
