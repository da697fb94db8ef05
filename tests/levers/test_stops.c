// SPDX-License-Identifier: MIT
/*
 * test_stops.c - the driver counts stops, so one that is stopped twice and let go once stays
 * stopped: whatever happens between, what is let go runs. And a lever that waits for the driver
 * again and again does not pass for one that hangs.
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
#include "pump.h"
#include "rig.h"
#include "state.h"
#include "unknown.h"
#include "watch.h"

#define PROCESSES 30u

static struct lever_nvidia *processes(struct nv_context *contexts[PROCESSES])
{
	struct lever_nvidia *l = lever_up();

	fake->watched = &l->journal;
	for (uint32_t v = 1; v <= 4; v++)
		assert_int_equal(
			lever_nvidia_vgpu_set(l, 0, v,
					      &(struct rtxg_slice_tenant){ .min_ppm = 100000 * v }),
			0);
	for (uint32_t i = 0; i < PROCESSES; i++) {
		cuda_process(into_lever, l, 100 + i, FIRST + i, 20 * i, 1 + i % 4);
		contexts[i] = nv_context_of(&l->gpu[0], nv_registry_process(&l->registry, 100 + i));
		assert_non_null(contexts[i]);
	}
	return l;
}

static void down(struct lever_nvidia *l)
{
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(nv_journal_count(&l->journal), 0);
	fake->watched = NULL;
	lever_nvidia_close(l);
}

static void stop_or_go(struct lever_nvidia *l, struct nv_context **contexts, uint32_t n, bool stop)
{
	struct nv_context *some[PROCESSES];

	memcpy(some, contexts, n * sizeof(some[0]));
	nv_stop_or_go(l, &l->gpu[0], some, n, stop, false);
}

static void what_was_stopped_twice_is_let_go_by_one_resume(void **state)
{
	struct nv_context *contexts[PROCESSES];
	struct lever_nvidia *l = processes(contexts);

	(void)state;
	stop_or_go(l, contexts, 5, true);
	stop_or_go(l, contexts, 3, true);
	assert_int_equal(fake->channel[0].stopped, 2);
	stop_or_go(l, contexts, 5, false);
	down(l);
}

/* What it has is known by then, and the records of its making come later. */
static void records_that_come_after_an_adoption_forget_no_stop(void **state)
{
	struct lever_nvidia *l = lever_up();
	struct nv_context *c;
	struct discover_record r;

	(void)state;
	fake->watched = &l->journal;
	fake->now += 1000 * MS;
	fake_object_add(102, FIRST, 0, FIRST, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process(102, FIRST, 0, 0x5c000000, 200);
	nv_adopt_unknown(l, &l->gpu[0], 102);
	c = nv_context_of(&l->gpu[0], nv_registry_process(&l->registry, 102));
	assert_non_null(c);
	stop_or_go(l, &c, 1, true);
	assert_int_equal(fake_stopped(), 8);
	record(&r, 102, FIRST, 0x5c000001, 0x5c000015, DISCOVER_CLASS_GROUP, 1, 0);
	r.ns = fake->now - 500 * MS;
	nv_contexts_feed(l, &r);
	for (uint32_t i = 0; i < 8; i++) {
		record(&r, 102, FIRST, 0x5c000015, 0x5c00001c + 4 * i, 0xc86f, 1, 200 + i);
		r.ns = fake->now - 500 * MS;
		nv_contexts_feed(l, &r);
	}
	assert_int_equal(nv_registry_process(&l->registry, 102)->groups[0].count, 8);
	stop_or_go(l, &c, 1, false);
	down(l);
}

/* Pieces of 0.3 ms; what is read after a calm second, and for how much of a long time. */
static void records_are_read_at_once_until_they_do_not_end(void **state)
{
	struct lever_nvidia *l = lever_up();
	uint64_t now = 1000000 * MS, again, read = 0, end;

	for (int calm = 0; calm < 2; calm++, now += 1000 * MS, read = 0) {
		do {
			read += MS / 3;
			again = nv_pump_after(l, now, now + MS / 3);
			now += MS / 3;
		} while (again == now);
		print_message("%.1f ms were read at once\n", (double)read / MS);
		assert_in_range(read, 20 * MS, 30 * MS);
	}
	end = now + 1000 * MS;
	for (read = 0; now < end; now = again) {
		again = nv_pump_after(l, now, now + MS / 3);
		read += MS / 3;
	}
	assert_in_range(read, 230 * MS, 300 * MS);
	/* One long call is as much as many short ones. */
	now += 1000 * MS;
	again = nv_pump_after(l, now, now + 300 * MS);
	assert_int_equal(again, now + 301 * MS);
	now = again + 4 * MS;
	assert_int_equal(nv_pump_after(l, now, now + MS / 3), now + MS / 3);
	down(l);
	(void)state;
}

/*
 * The log of switches names it again and again while records wait in the ring. It is no load for
 * that: what it has is in one of them, or is looked for once they must have been read.
 */
static void one_whose_records_wait_is_not_given_up(void **state)
{
	struct discover_record r;
	uint64_t calls;

	for (int read = 0; read < 2; read++) {
		struct lever_nvidia *l = lever_up();

		fake->now += 1000 * MS;
		fake_object_add(102, FIRST, 0, FIRST, NV_CLASS_ROOT_CLIENT, 0, 0);
		older_process(102, FIRST, 0, 0x5c000000, 200);
		l->pump_again = fake->now;
		calls = fake->calls;
		for (int i = 0; i < 50; i++, fake->now += MS) {
			nv_adopt_unknown(l, &l->gpu[0], 102);
			assert_null(nv_registry_process(&l->registry, 102));
		}
		assert_int_equal(fake->calls, calls);
		if (read) {
			record(&r, 102, FIRST, FIRST, 0x5c000001, DISCOVER_CLASS_DEVICE, 0, 0);
			nv_contexts_feed(l, &r);
			record(&r, 102, FIRST, 0x5c000001, 0x5c000015, DISCOVER_CLASS_GROUP, 1, 0);
			nv_contexts_feed(l, &r);
			record(&r, 102, FIRST, 0x5c000015, 0x5c00001c, 0xc86f, 1, 200);
			nv_contexts_feed(l, &r);
		}
		fake->now += 100 * MS;
		nv_adopt_unknown(l, &l->gpu[0], 102);
		assert_false(
			nv_context_of(&l->gpu[0], nv_registry_process(&l->registry, 102))->load);
		down(l);
		fake_reset();
	}
	(void)state;
}

/* It is looked for again while it is stopped, and its descriptors cannot be had. */
static void an_adoption_that_fails_forgets_no_stop(void **state)
{
	struct lever_nvidia *l = lever_up();
	struct nv_context *c;

	(void)state;
	fake->watched = &l->journal;
	fake_object_add(102, FIRST, 0, FIRST, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process(102, FIRST, 0, 0x5c000000, 200);
	nv_adopt_unknown(l, &l->gpu[0], 102);
	c = nv_context_of(&l->gpu[0], nv_registry_process(&l->registry, 102));
	assert_non_null(c);
	stop_or_go(l, &c, 1, true);
	for (int fails = 0; fails < 2; fails++) {
		fake->getfd_error = fails ? EBADF : 0;
		fake->now += 100000 * MS;
		nv_adopt_unknown(l, &l->gpu[0], 102);
		assert_true(c->stopped);
		assert_int_equal(fake_stopped(), 8);
	}
	fake->getfd_error = 0;
	stop_or_go(l, &c, 1, false);
	down(l);
}

/* The driver fails at one, having stopped those before it, and then each is stopped alone. */
static void what_a_call_that_failed_has_stopped_is_let_go(void **state)
{
	struct nv_context *contexts[PROCESSES];
	struct lever_nvidia *l = processes(contexts);

	(void)state;
	fake_fail(NV2080_FIFO_DISABLE_CHANNELS, FIRST + 6, NV_STATUS_INVALID_STATE)->times = 2;
	stop_or_go(l, contexts, 8, true);
	assert_int_equal(fake->channel[0].stopped, 2);
	stop_or_go(l, contexts, 8, false);
	for (int i = 0; i < 8; i++)
		nv_let_strays_go(l, &l->gpu[0], contexts[i]);
	down(l);
}

/*
 * The guardian takes the daemon for hung and lets all go. What the daemon stops before it hears of
 * that is stopped again with the rest.
 */
static void what_is_stopped_again_after_a_hang_is_let_go(void **state)
{
	struct nv_context *contexts[PROCESSES];
	struct lever_nvidia *l = processes(contexts);

	(void)state;
	stop_or_go(l, contexts, 4, true);
	for (uint32_t i = 0; i < fake->channels; i++)
		fake->channel[i].stopped = 0;
	__atomic_fetch_add(&l->journal.page->let_go, 1, __ATOMIC_RELEASE);
	stop_or_go(l, contexts + 4, 4, true);
	nv_watch(l);
	assert_true(stopped_on(0, FIRST) && stopped_on(0, FIRST + 4));
	stop_or_go(l, contexts, 8, false);
	down(l);
}

/* Thirty slices and thirty stops, each of which waits 150 ms for the driver's lock. */
static void slow_calls_are_no_hang(void **state)
{
	struct nv_context *contexts[PROCESSES];
	struct lever_nvidia *l = processes(contexts);

	(void)state;
	nv_beat(l);
	fake->longest_beat = 0;
	fake->delay_ns = 150 * MS;
	for (uint32_t i = 0; i < PROCESSES; i++) {
		contexts[i]->slice_ns = MS;
		nv_slice_again(l, &l->gpu[0], contexts[i]);
	}
	assert_int_equal(l->stats.slices, PROCESSES);
	/* Each alone, as the call for all of them fails. */
	fake_fail(NV2080_FIFO_DISABLE_CHANNELS, FIRST + 6, NV_STATUS_INVALID_STATE)->times = 2;
	stop_or_go(l, contexts, PROCESSES, true);
	fake->delay_ns = 0;
	print_message("a sign of life each %u ms at least\n",
		      (unsigned int)(fake->longest_beat / MS));
	assert_true(fake->longest_beat < 1000 * MS);
	stop_or_go(l, contexts, PROCESSES, false);
	for (uint32_t i = 0; i < PROCESSES; i++)
		nv_let_strays_go(l, &l->gpu[0], contexts[i]);
	down(l);
}

/* A watch looks at the slices of all that are young: one look each that waits for the lock. */
static void a_watch_is_no_hang(void **state)
{
	struct nv_context *contexts[PROCESSES];
	struct lever_nvidia *l = processes(contexts);
	uint64_t began, longest = 0;

	(void)state;
	for (uint32_t i = 0; i < PROCESSES; i++) {
		contexts[i]->slice_ns = MS;
		nv_slice_again(l, &l->gpu[0], contexts[i]);
		contexts[i]->checked = 0;
	}
	fake->longest_beat = 0;
	fake->delay_ns = 150 * MS;
	for (uint32_t i = 0; i < 2 * PROCESSES; i++) {
		began = fake->now;
		nv_watch(l);
		longest = fake->now - began > longest ? fake->now - began : longest;
	}
	fake->delay_ns = 0;
	/* All had their turn, and none kept the lever from what else there was to do. */
	for (uint32_t i = 0; i < PROCESSES; i++)
		assert_true(contexts[i]->checked > 0);
	assert_in_range(longest, 150 * MS, 300 * MS);
	assert_true(fake->longest_beat < 1000 * MS);
	down(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(what_was_stopped_twice_is_let_go_by_one_resume, before),
		cmocka_unit_test_setup(records_that_come_after_an_adoption_forget_no_stop, before),
		cmocka_unit_test_setup(records_are_read_at_once_until_they_do_not_end, before),
		cmocka_unit_test_setup(one_whose_records_wait_is_not_given_up, before),
		cmocka_unit_test_setup(an_adoption_that_fails_forgets_no_stop, before),
		cmocka_unit_test_setup(what_a_call_that_failed_has_stopped_is_let_go, before),
		cmocka_unit_test_setup(what_is_stopped_again_after_a_hang_is_let_go, before),
		cmocka_unit_test_setup(slow_calls_are_no_hang, before),
		cmocka_unit_test_setup(a_watch_is_no_hang, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
