// SPDX-License-Identifier: MIT
/*
 * test_burst.c - fifty programs that start within one second, on the fake driver, whose calls take
 * as long as those of an H200, and which refuses to act on a context while it is being built.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "act.h"
#include "contexts.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "rig.h"

#define PROGRAMS 50u
#define VGPUS	 10u
#define SLICE	 (2 * MS)
#define TURN	 (MS / 2)    /* the daemon has the CPU so often */
#define EACH	 (20 * MS)   /* between two starts */
#define BUILT	 (150 * MS)  /* after its start a context is complete */
#define CALL	 (300000ull) /* a call of the driver takes so long */
#define BEGIN	 (1000 * MS) /* the first one starts */
#define ENDS	 (6000 * MS)

static uint32_t pid_of(uint32_t i)
{
	return 2000 + i;
}

static uint32_t client_of(uint32_t i)
{
	return 0xc1f00000 + i;
}

/* The driver refuses to act on the last programs that have come, until their contexts are there. */
static void refuse_for_now(uint32_t client)
{
	static uint32_t next;
	struct fake_failure *f;

	if (fake->failures < FAKE_FAILURES)
		f = fake_fail(NVA06C_SET_TIMESLICE, client, NV_STATUS_INVALID_STATE);
	else
		f = &fake->failure[next++ % FAKE_FAILURES];
	*f = (struct fake_failure){ .command = next % 2 ? NVA06C_SET_TIMESLICE
							: NV2080_FIFO_DISABLE_CHANNELS,
				    .client = client,
				    .status = NV_STATUS_INVALID_STATE,
				    .until_ns = fake->now + BUILT };
}

/* Of those that are not stopped the one that was on the engine longest ago; PROGRAMS: none. */
static uint32_t next_of(const uint64_t left[PROGRAMS], uint32_t started)
{
	uint32_t best = PROGRAMS;

	for (uint32_t i = 0; i < started; i++)
		if (!stopped_on(0, client_of(i)) && (best == PROGRAMS || left[i] < left[best]))
			best = i;
	return best;
}

static uint64_t longest;

static void daemon_runs(struct lever_nvidia *l)
{
	uint64_t from = fake->now;

	assert_int_equal(lever_nvidia_dispatch(l), 0);
	longest = fake->now - from > longest ? fake->now - from : longest;
	assert_null(rtxg_slice_check(l->gpu[0].slice));
}

static void starts(struct lever_nvidia *l, uint32_t i)
{
	uint64_t from = fake->now;

	refuse_for_now(client_of(i));
	cuda_process(into_lever, l, pid_of(i), client_of(i), 0, 1 + i % VGPUS);
	longest = fake->now - from > longest ? fake->now - from : longest;
}

static void fifty_programs_that_start_at_once_are_governed(void **state)
{
	uint64_t work[PROGRAMS] = { 0 }, left[PROGRAMS] = { 0 }, all = 0;
	uint32_t started = 0, on, put[PROGRAMS] = { 0 };
	struct lever_nvidia_stats stats;
	struct lever_nvidia *l;

	with_queues = true;
	l = lever_up();
	for (uint32_t v = 1; v <= VGPUS; v++)
		assert_int_equal(lever_nvidia_vgpu_set(
					 l, 0, v, &(struct rtxg_slice_tenant){ .min_ppm = 100000 }),
				 0);
	fake->delay_ns = CALL;
	for (uint64_t begin = fake->now; fake->now < begin + ENDS;) {
		uint64_t at;

		while (started < PROGRAMS && fake->now >= begin + BEGIN + started * EACH)
			starts(l, started++);
		on = next_of(left, started);
		if (on == PROGRAMS) {
			fake->now += TURN;
			daemon_runs(l);
			continue;
		}
		put[on]++;
		fake_queue(queues_of(client_of(on)), QUEUE(1), put[on], put[on] + 4);
		at = fake->now;
		fake_log(NV_FECS_SIMPLE_START, pid_of(on), 0, at + EPOCH);
		while (fake->now < at + SLICE && !stopped_on(0, client_of(on))) {
			fake->now += TURN;
			daemon_runs(l);
		}
		fake_log(NV_FECS_SIMPLE_END, pid_of(on), 0, fake->now + EPOCH);
		left[on] = fake->now;
		work[on] += fake->now - at;
		all += started == PROGRAMS ? fake->now - at : 0;
	}
	lever_nvidia_stats(l, &stats);
	print_message("the loop takes %.1f ms at most, the timer is late by %.1f ms at most; %u "
		      "refusals\n",
		      (double)longest / 1e6, (double)stats.late_most_ns / 1e6,
		      (unsigned int)stats.failures);
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		assert_true(process_of(l, pid_of(i)).managed);
		/* Of ten vGPUs with 10 % each and five programs in each, a tenth of a tenth. */
		if (work[i] < all / PROGRAMS / 2)
			fail_msg("program %u had the engine for %.1f ms of %.1f", i,
				 (double)work[i] / 1e6, (double)all / 1e6);
	}
	assert_true(stats.failures > 0);
	assert_int_equal(stats.loads, 0);
	/* Some 100 calls: queues that become visible, and what is tried again, in one pass. */
	assert_true(longest <= 40 * MS);
	fake->failures = 0;
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake_dups(), 0);
	assert_int_equal(fake_maps(), 0);
	assert_int_equal(fake->open_fds, 0);
	assert_int_equal(fake->unjournaled, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(fifty_programs_that_start_at_once_are_governed, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
