// SPDX-License-Identifier: MIT
/*
 * test_refusals.c - no program is lost: a driver that refuses a control now and does it later, at
 * each moment of a context's life, leaves nothing ungoverned and nothing stopped. What it refuses
 * for good is known, said and counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>
#include "act.h"
#include "carry_out.h"
#include "contexts.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "rig.h"

static const uint32_t passing[] = {
	NV_STATUS_INVALID_STATE,
	NV_STATUS_BUSY_RETRY,
	NV_STATUS_IN_USE,
	NV_STATUS_NO_MEMORY,
	NV_STATUS_INSUFFICIENT_RESOURCES,
	NV_STATUS_NOT_READY,
	NV_STATUS_TIMEOUT,
	NV_STATUS_TIMEOUT_RETRY,
	NV_STATUS_STATE_IN_USE,
	NV_STATUS_IN_FULLCHIP_RESET,
	NV_STATUS_OBJECT_NOT_FOUND,
	NV_STATUS_GENERIC,
};

static const uint32_t controls[] = { NVA06C_SET_TIMESLICE, NVA06F_RESTART_RUNLIST,
				     NV2080_FIFO_DISABLE_CHANNELS };

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/*
 * Both are governed in every way: slices that were decided are set, and the shares are kept.
 * (Without suspension the policy decides about slices, which the GPU of turn_for() does not look
 * at.)
 */
static void both_are_governed(struct lever_nvidia *l)
{
	struct lever_nvidia_stats stats;
	double share;

	turn_for(l, 2500 * MS); /* the longest pause of the policy, and then some */
	share = turn_for(l, 3000 * MS);
	if (can != RTXG_SLICE_CAN_SLICE)
		assert_true(share > 0.77 && share < 0.83);
	for (uint32_t pid = 100; pid < 102; pid++) {
		struct lever_nvidia_process p = process_of(l, pid);

		assert_true(p.managed);
		assert_null(p.remedy);
		assert_true(p.slice_ns || can != RTXG_SLICE_CAN_SLICE);
		if (p.slice_ns)
			assert_int_equal(fake_slice(FIRST + pid - 100), p.slice_ns / 1000);
	}
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.loads, 0);
}

/* What the policy may use, so that it uses this control. */
static uint32_t can_for(uint32_t control)
{
	return control == NV2080_FIFO_DISABLE_CHANNELS ? 0 : RTXG_SLICE_CAN_SLICE;
}

static void down(struct lever_nvidia *l)
{
	can = 0;
	fake->failures = 0;
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake->unjournaled, 0);
	assert_int_equal(fake->open_fds, 0);
	assert_int_equal(fake->foreign_fds, 0);
}

static void a_refusal_while_a_context_is_built_passes(void **state)
{
	for (size_t c = 0; c < COUNT(controls); c++)
		for (size_t i = 0; i < COUNT(passing); i++) {
			struct lever_nvidia_stats stats;
			struct fake_failure *f;
			struct lever_nvidia *l;

			before(NULL);
			f = fake_fail(controls[c], SECOND, passing[i]);
			f->times = 5;
			can = can_for(controls[c]);
			l = two_tenants();
			both_are_governed(l);
			assert_int_equal(f->failed, 5);
			lever_nvidia_stats(l, &stats);
			assert_true(stats.failures >= 1);
			assert_int_equal(stats.final, 0);
			down(l);
		}
}

static void a_refusal_for_a_time_passes(void **state)
{
	for (size_t c = 0; c < COUNT(controls); c++) {
		struct fake_failure *f;
		struct lever_nvidia *l;

		before(NULL);
		can = can_for(controls[c]);
		l = two_tenants();
		turn_for(l, 500 * MS);
		f = fake_fail(controls[c], SECOND, NV_STATUS_INVALID_STATE);
		f->until_ns = fake->now + 3000 * MS;
		if (controls[c] != NV2080_FIFO_DISABLE_CHANNELS)
			fake_set_slice(SECOND, NV_DRIVER_SLICE_US);
		turn_for(l, 3100 * MS);
		assert_true(f->failed > 0);
		/* pauses grow: not one attempt for each of a thousand decisions */
		/*
		 * (a process that cannot be let go is tried ten times a second, channel by channel)
		 */
		assert_true(f->failed < (controls[c] == NV2080_FIFO_DISABLE_CHANNELS ? 600u : 20u));
		both_are_governed(l);
		down(l);
	}
}

/* A latency-critical process works once: for a second the others take turns with short slices. */
static void critical_once(struct lever_nvidia *l)
{
	struct rtxg_slice_tenant t = { .priority = RTXG_SLICE_CRITICAL_PRIORITY };

	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 3, &t), 0);
	cuda_process(into_lever, l, 105, 0xc1d00020, 160, 3);
	turn_for(l, 50 * MS);
	fake_log(NV_FECS_SIMPLE_START, 105, 160, fake->now + EPOCH);
	fake->now += MS / 10;
	fake_log(NV_FECS_SIMPLE_END, 105, 160, fake->now + EPOCH);
	turn_for(l, 100 * MS);
}

static void a_slice_that_is_refused_for_good_leaves_suspension(void **state)
{
	struct lever_nvidia_stats stats;
	struct lever_nvidia_process p;
	struct lever_nvidia *l;
	double share;

	fake_fail(NVA06C_SET_TIMESLICE, SECOND, NV_STATUS_INSUFFICIENT_PERMISSIONS);
	l = two_tenants();
	critical_once(l);
	turn_for(l, 1500 * MS);
	share = turn_for(l, 3000 * MS);
	assert_true(share > 0.77 && share < 0.83);
	p = process_of(l, 101);
	assert_true(p.managed);
	assert_non_null(strstr(p.remedy, "INSUFFICIENT_PERMISSIONS"));
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.final, 1);
	assert_true(stats.suspends > 10);
	down(l);
}

static void one_that_refuses_everything_is_a_load_and_said(void **state)
{
	struct lever_nvidia_process p;
	struct rtxg_slice_gpu_view view;
	struct lever_nvidia_stats stats;
	struct lever_nvidia *l;
	uint64_t failures;

	fake_fail(NVA06C_SET_TIMESLICE, SECOND, NV_STATUS_NOT_SUPPORTED);
	fake_fail(NV2080_FIFO_DISABLE_CHANNELS, SECOND, NV_STATUS_NOT_SUPPORTED);
	l = two_tenants();
	critical_once(l);
	turn_for(l, 1500 * MS);
	p = process_of(l, 101);
	assert_false(p.managed);
	assert_non_null(strstr(p.remedy, "NOT_SUPPORTED"));
	assert_non_null(strstr(p.remedy, "restart"));
	rtxg_slice_gpu_view(l->gpu[0].slice, &view);
	assert_int_equal(view.loads, 1);
	lever_nvidia_stats(l, &stats);
	failures = stats.failures;
	turn_for(l, 3000 * MS);
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.failures, failures); /* it is left in peace */
	/* A context that it makes later may be another matter. */
	fake->failures = 0;
	cuda_process(into_lever, l, 101, 0xc1d00012, 140, 2);
	both_are_governed(l);
	down(l);
}

/* An answer of which it is not known whether it passes is taken to, for some attempts. */
static void a_doubtful_refusal_is_final_in_the_end(void **state)
{
	struct fake_failure *f =
		fake_fail(NVA06C_SET_TIMESLICE, SECOND, NV_STATUS_INVALID_ARGUMENT);
	struct lever_nvidia_stats stats;
	struct lever_nvidia *l;

	f->times = 7;
	can = RTXG_SLICE_CAN_SLICE;
	l = two_tenants();
	both_are_governed(l);
	down(l);

	before(NULL);
	fake_fail(NVA06C_SET_TIMESLICE, SECOND, NV_STATUS_INVALID_ARGUMENT);
	can = RTXG_SLICE_CAN_SLICE;
	l = two_tenants();
	turn_for(l, 5000 * MS);
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.final, 1);
	down(l);
}

static void what_cannot_be_resumed_now_is_resumed_later(void **state)
{
	struct lever_nvidia *l = two_tenants();
	struct fake_failure *f;

	for (int i = 0; i < 100 && !stopped_on(0, SECOND); i++)
		turn_for(l, 2 * MS);
	assert_true(stopped_on(0, SECOND));
	f = fake_fail(NV2080_FIFO_DISABLE_CHANNELS, 0, NV_STATUS_TIMEOUT);
	f->until_ns = fake->now + 1000 * MS;
	turn_for(l, 999 * MS);
	assert_true(f->failed > 0 && f->failed < 2000);
	both_are_governed(l);
	down(l);
}

/* The driver stops some channels, says that it did not, and refuses to undo it. */
static void what_was_half_stopped_is_let_go(void **state)
{
	struct lever_nvidia *l = two_tenants();
	struct fake_failure *f;

	turn_for(l, 100 * MS);
	for (int i = 0; i < 100 && stopped_on(0, SECOND); i++)
		turn_for(l, 1 * MS);
	assert_false(stopped_on(0, SECOND)); /* it is its turn, and at the end it is stopped */
	f = fake_fail(NV2080_FIFO_DISABLE_CHANNELS, SECOND, NV_STATUS_TIMEOUT);
	f->though_done = 4; /* channels */
	f->until_ns = fake->now + 300 * MS;
	while (!f->failed)
		turn_for(l, 1 * MS);
	assert_int_equal(fake_stopped(), 4);
	assert_int_equal(nv_journal_count(&l->journal), 8); /* the guardian would let them go */
	/* No work is there: only the watch is left to do it. */
	while (fake->now < f->until_ns + 1100 * MS && fake_stopped()) {
		fake->now += MS;
		lever_nvidia_dispatch(l);
	}
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(nv_journal_count(&l->journal), 0);
	both_are_governed(l);
	down(l);
}

static void a_new_channel_of_a_stopped_process_is_stopped_when_it_can_be(void **state)
{
	struct lever_nvidia *l = two_tenants();
	struct discover_record r;
	struct fake_failure *f;

	for (int i = 0; i < 100 && !stopped_on(0, SECOND); i++)
		turn_for(l, 2 * MS);
	assert_true(stopped_on(0, SECOND));
	f = fake_fail(NV2080_FIFO_DISABLE_CHANNELS, SECOND, NV_STATUS_INVALID_STATE);
	f->times = 2; /* the stop and the undoing */
	record(&r, 101, SECOND, 0x5c000015, 0x5c000099, 0xc86f, 1, 150);
	fake_channel_add(0, SECOND, 0x5c000099, 0x5c000015);
	nv_contexts_feed(l, &r);
	assert_int_equal(f->failed, 2);
	assert_false(fake->channel[fake->channels - 1].stopped);
	for (int i = 0; i < 50 && !fake->channel[fake->channels - 1].stopped; i++) {
		fake->now += MS / 10;
		lever_nvidia_dispatch(l);
	}
	assert_true(fake->channel[fake->channels - 1].stopped);
	both_are_governed(l);
	down(l);
}

static void a_refusal_at_the_end_of_a_process_leaves_nothing(void **state)
{
	for (size_t c = 0; c < COUNT(controls); c++) {
		struct lever_nvidia *l;

		before(NULL);
		l = two_tenants();
		turn_for(l, 300 * MS);
		/* its channels are gone, and the record of its end is still on its way */
		for (uint32_t i = 0; i < fake->channels; i++)
			if (fake->channel[i].client == SECOND) {
				fake->channel[i].gone = true;
				fake->channel[i].stopped = false;
			}
		fake_fail(controls[c], SECOND, NV_STATUS_INVALID_CLIENT);
		turn_for(l, 100 * MS);
		say(l, DISCOVER_EXIT, 101, 0, 0);
		assert_int_equal(nv_journal_count(&l->journal), 0);
		assert_null(nv_registry_process(&l->registry, 101));
		turn_for(l, 100 * MS);
		assert_int_equal(nv_journal_count(&l->journal), 0);
		down(l);
	}
}

/* A program may close the descriptor that CUDA opened first, after it has duplicated it. */
static void a_descriptor_that_has_moved_is_found(void **state)
{
	struct lever_nvidia *l;

	fake->moved_pid = 101;
	fake->moved_to = 9;
	l = two_tenants();
	both_are_governed(l);
	down(l);
}

static void a_process_of_which_nothing_is_found_is_a_load(void **state)
{
	struct lever_nvidia *l = two_tenants();
	struct lever_nvidia_process p;
	struct rtxg_slice_gpu_view view;
	struct lever_nvidia_stats stats;

	/* it has the driver open, and its clients answer nobody */
	fake_object_add(102, 0xc1d00030, 0, 0xc1d00030, NV_CLASS_ROOT_CLIENT, 0, 0);
	fake_fail(NV0000_CLIENT_GET_HANDLE_INFO, 0xc1d00030, NV_STATUS_INVALID_STATE);
	fake_log(NV_FECS_SIMPLE_START, 102, 0, fake->now + EPOCH);
	fake->now += 5 * MS;
	fake_log(NV_FECS_SIMPLE_END, 102, 0, fake->now + EPOCH);
	turn_for(l, 100 * MS);
	rtxg_slice_gpu_view(l->gpu[0].slice, &view);
	assert_int_equal(view.loads, 1);
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.loads, 1);
	p = process_of(l, 102);
	assert_false(p.managed);
	assert_non_null(strstr(p.remedy, "restart"));
	assert_true(p.work_ns > 0);
	/* It answers now: it is found, with all that it has, and governed. */
	fake->failures = 0;
	older_process(102, 0xc1d00030, 0, 0x5c000000, 200);
	turn_for(l, 2000 * MS);
	assert_true(process_of(l, 102).managed);
	rtxg_slice_gpu_view(l->gpu[0].slice, &view);
	assert_int_equal(view.loads, 0);
	assert_int_equal(process_of(l, 102).channels, 9);
	/* and if its end is not told, it is seen */
	fake->dead = 102;
	turn_for(l, 22000 * MS);
	assert_null(nv_registry_process(&l->registry, 102));
	down(l);
}

static void one_bad_process_does_not_slow_the_others_stop(void **state)
{
	struct lever_nvidia *l = two_tenants();
	struct discover_record r;
	uint32_t calls;

	/* a channel that does not exist, as a process can pretend */
	record(&r, 101, SECOND, 0x5c000015, 0x5c0000f0, 0xc86f, 1, 150);
	nv_contexts_feed(l, &r);
	turn_for(l, 3000 * MS);
	calls = fake->disables;
	turn_for(l, 3000 * MS);
	/* it is tried again, but every 2 s and not at each decision */
	assert_true(fake->disables - calls < 500);
	down(l);
}

/* CUDA sets a slice of its own at the end of building a context: ours is set again at once. */
static void a_slice_that_the_program_sets_is_set_again_at_once(void **state)
{
	struct lever_nvidia *l;
	struct lever_nvidia_stats stats;
	struct discover_record r;
	uint64_t slice;

	can = RTXG_SLICE_CAN_SLICE;
	l = two_tenants();
	turn_for(l, 500 * MS);
	slice = process_of(l, 101).slice_ns;
	assert_int_not_equal(slice, 0);
	record(&r, 101, SECOND, 0, 0x5c000015, DISCOVER_SET_TIMESLICE, 0, 0);
	r.kind = DISCOVER_CONTROL;
	r.value = NV_DRIVER_SLICE_US;
	fake_set_slice(SECOND, NV_DRIVER_SLICE_US);
	nv_contexts_feed(l, &r);
	assert_int_equal(fake_slice(SECOND), slice / 1000);
	/* a copy engine's group is another matter, and another's group is none of its business */
	r.object = 0x5c00003e;
	fake_set_slice(SECOND, 77);
	nv_contexts_feed(l, &r);
	r.client = FIRST;
	r.object = 0x5c000015;
	nv_contexts_feed(l, &r);
	assert_int_equal(fake_slice(SECOND), 77);
	/* one that does so all the time does not keep us busy */
	r.client = SECOND;
	fake->restarts = 0;
	for (int i = 0; i < 10000; i++) {
		fake->now += MS / 10;
		nv_contexts_feed(l, &r);
	}
	assert_true(fake->restarts < 30);
	turn_for(l, 2500 * MS);
	assert_int_equal(fake_slice(SECOND), process_of(l, 101).slice_ns / 1000);
	lever_nvidia_stats(l, &stats);
	assert_true(stats.slices_lost >= 2);
	down(l);
}

/* The group was not ready, and the policy would wait: the program says when it is. */
static void what_was_refused_is_tried_when_the_group_is_ready(void **state)
{
	struct fake_failure *f = fake_fail(NVA06C_SET_TIMESLICE, SECOND, NV_STATUS_INVALID_STATE);
	struct lever_nvidia *l;
	struct discover_record r;

	can = RTXG_SLICE_CAN_SLICE;
	l = two_tenants();
	turn_for(l, 1000 * MS); /* pauses are long by now */
	assert_int_equal(process_of(l, 101).slice_ns, 0);
	assert_non_null(strstr(process_of(l, 101).remedy, "tried again"));
	fake->failures = 0;
	record(&r, 101, SECOND, 0, 0x5c000015, DISCOVER_GROUP_SCHEDULE, 0, 0);
	r.kind = DISCOVER_CONTROL;
	r.value = 1;
	assert_true(f->failed > 3);
	nv_contexts_feed(l, &r);
	assert_int_not_equal(process_of(l, 101).slice_ns, 0);
	assert_int_equal(fake_slice(SECOND), process_of(l, 101).slice_ns / 1000);
	assert_null(process_of(l, 101).remedy);
	down(l);
}

/* A process that lets its own channels go while it is stopped. */
static void one_that_lets_itself_go_is_stopped_again(void **state)
{
	struct lever_nvidia *l = two_tenants();
	struct discover_record r;

	for (int i = 0; i < 400 && !stopped_on(0, SECOND); i++)
		turn_for(l, 2 * MS);
	assert_true(stopped_on(0, SECOND));
	for (uint32_t i = 0; i < fake->channels; i++)
		if (fake->channel[i].client == SECOND)
			fake->channel[i].stopped = false;
	record(&r, 101, SECOND, 0, 0, DISCOVER_DISABLE_CHANNELS, 0, 0);
	r.kind = DISCOVER_CONTROL;
	nv_contexts_feed(l, &r);
	assert_true(stopped_on(0, SECOND));
	both_are_governed(l);
	down(l);
}

/* One of eight processes is still being built: that costs the others few calls, and then none. */
static void one_that_is_refused_costs_few_calls(void **state)
{
	struct nv_context *all[8], *some[8];
	struct lever_nvidia *l = lever_up();
	struct nv_gpu *g = &l->gpu[0];
	struct fake_failure *f;
	uint64_t calls;

	for (uint32_t i = 0; i < 8; i++) {
		cuda_process(into_lever, l, 100 + i, FIRST + i, 20 * i, 0);
		all[i] = nv_context_of(g, nv_registry_process(&l->registry, 100 + i));
		assert_non_null(all[i]);
	}
	f = fake_fail(NV2080_FIFO_DISABLE_CHANNELS, FIRST + 3, NV_STATUS_INVALID_STATE);
	/* All at once, each alone, and one has to be let go again. */
	calls = fake->calls;
	memcpy(some, all, sizeof(all));
	nv_stop_or_go(l, g, some, 8, true, false);
	assert_int_equal(fake->calls - calls, 1 + 8 + 1);
	assert_int_equal(fake_stopped(), 7 * 8);
	assert_false(all[3]->stopped);
	for (uint32_t i = 0, n = 0; i < 8; i++)
		if (i != 3)
			some[n++] = all[i];
	nv_stop_or_go(l, g, some, 7, false, false);
	assert_int_equal(fake_stopped(), 0);
	/* It is asked for apart from the others. */
	calls = fake->calls;
	memcpy(some, all, sizeof(all));
	nv_stop_or_go(l, g, some, 8, true, false);
	assert_int_equal(fake->calls - calls, 1 + 2);
	assert_int_equal(fake_stopped(), 7 * 8);
	/* It was not stopped, as far as is known; while it is refused the watch asks once. */
	calls = fake->calls;
	nv_let_strays_go(l, g, all[3]);
	assert_int_equal(fake->calls - calls, 1);
	f->until_ns = fake->now;
	nv_let_strays_go(l, g, all[3]);
	assert_int_equal(nv_journal_count(&l->journal), 7 * 8);
	memcpy(some, all, sizeof(all));
	nv_stop_or_go(l, g, some, 8, true, false);
	assert_int_equal(fake_stopped(), 8 * 8);
	assert_int_equal(all[3]->refusal[NV_ACTION(RTXG_SLICE_SUSPEND)].times, 0);
	down(l);
}

/* What the driver has half stopped of it, and refuses to let go, is let go by itself. */
static void what_is_half_stopped_of_one_in_a_call_is_let_go(void **state)
{
	struct nv_context *some[3], *bad;
	struct lever_nvidia *l = lever_up();
	struct nv_gpu *g = &l->gpu[0];
	struct fake_failure *f;

	for (uint32_t i = 0; i < 3; i++) {
		cuda_process(into_lever, l, 100 + i, FIRST + i, 20 * i, 0);
		some[i] = nv_context_of(g, nv_registry_process(&l->registry, 100 + i));
	}
	bad = some[2];
	f = fake_fail(NV2080_FIFO_DISABLE_CHANNELS, FIRST + 2, NV_STATUS_INVALID_STATE);
	f->though_done = 20; /* in the first call all of the first two, and half of it */
	f->times = 3;
	nv_stop_or_go(l, g, some, 3, true, false);
	assert_int_equal(f->failed, 3);
	assert_false(bad->stopped);
	assert_true(fake_stopped() > 2 * 8);
	for (int i = 0; i < 1100 && fake_stopped() > 2 * 8; i++) {
		fake->now += MS;
		nv_let_strays_go(l, g, bad);
	}
	assert_int_equal(fake_stopped(), 2 * 8);
	assert_int_equal(nv_journal_count(&l->journal), 2 * 8);
	down(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_refusal_while_a_context_is_built_passes, before),
		cmocka_unit_test_setup(a_refusal_for_a_time_passes, before),
		cmocka_unit_test_setup(a_slice_that_is_refused_for_good_leaves_suspension, before),
		cmocka_unit_test_setup(one_that_refuses_everything_is_a_load_and_said, before),
		cmocka_unit_test_setup(a_doubtful_refusal_is_final_in_the_end, before),
		cmocka_unit_test_setup(what_cannot_be_resumed_now_is_resumed_later, before),
		cmocka_unit_test_setup(what_was_half_stopped_is_let_go, before),
		cmocka_unit_test_setup(a_new_channel_of_a_stopped_process_is_stopped_when_it_can_be,
				       before),
		cmocka_unit_test_setup(a_refusal_at_the_end_of_a_process_leaves_nothing, before),
		cmocka_unit_test_setup(a_descriptor_that_has_moved_is_found, before),
		cmocka_unit_test_setup(a_process_of_which_nothing_is_found_is_a_load, before),
		cmocka_unit_test_setup(one_bad_process_does_not_slow_the_others_stop, before),
		cmocka_unit_test_setup(a_slice_that_the_program_sets_is_set_again_at_once, before),
		cmocka_unit_test_setup(what_was_refused_is_tried_when_the_group_is_ready, before),
		cmocka_unit_test_setup(one_that_lets_itself_go_is_stopped_again, before),
		cmocka_unit_test_setup(one_that_is_refused_costs_few_calls, before),
		cmocka_unit_test_setup(what_is_half_stopped_of_one_in_a_call_is_let_go, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
