// SPDX-License-Identifier: MIT
/*
 * test_lookout.c - while a call of the driver lasts queues are looked into, and the policy is told
 * afterwards when what was seen.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "carry_out.h"
#include "contexts.h"
#include "demand.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "lookout.h"
#include "rig.h"

#define MS    1000000ull
#define EVERY (MS / 4)
#define TOLD  64

/* Each look that the policy was told of, of one context. */
static struct rtxg_slice_event looks[TOLD];
static uint32_t told, looked_at;

uint64_t __wrap_rtxg_slice_look_ns(const struct rtxg_slice *s, uint32_t context);
int __real_rtxg_slice_step(struct rtxg_slice *s, uint64_t now_ns,
			   const struct rtxg_slice_event *event, struct rtxg_slice_action *actions,
			   unsigned int cap);
int __wrap_rtxg_slice_step(struct rtxg_slice *s, uint64_t now_ns,
			   const struct rtxg_slice_event *event, struct rtxg_slice_action *actions,
			   unsigned int cap);

uint64_t __wrap_rtxg_slice_look_ns(const struct rtxg_slice *s, uint32_t context)
{
	return EVERY;
}

int __wrap_rtxg_slice_step(struct rtxg_slice *s, uint64_t now_ns,
			   const struct rtxg_slice_event *event, struct rtxg_slice_action *actions,
			   unsigned int cap)
{
	if (event && event->type == RTXG_SLICE_EV_DEMAND && event->context == looked_at &&
	    told < TOLD)
		looks[told++] = *event;
	return __real_rtxg_slice_step(s, now_ns, event, actions, cap);
}

static int up(void **state)
{
	before(state);
	with_queues = true;
	told = 0;
	return 0;
}

static struct nv_context *context_of(struct lever_nvidia *l, uint32_t pid)
{
	struct nv_context *c = nv_context_of(&l->gpu[0], nv_registry_process(&l->registry, pid));

	assert_non_null(c);
	return c;
}

/* A process whose queues are seen, and are empty. */
static struct lever_nvidia *chat(void)
{
	struct lever_nvidia *l = lever_up();

	cuda_process(into_lever, l, 100, FIRST, 100, 0);
	looked_at = (uint32_t)(context_of(l, 100) - l->gpu[0].context);
	while (!context_of(l, 100)->sight.whole_since || told < 1) {
		fake->now += EVERY;
		assert_int_equal(lever_nvidia_dispatch(l), 0);
	}
	for (uint64_t end = fake->now + 20 * MS; fake->now < end;) {
		fake->now += EVERY;
		assert_int_equal(lever_nvidia_dispatch(l), 0);
	}
	told = 0;
	return l;
}

/* A call that lasts: what happens in it, once. */
static void (*happens)(struct lever_nvidia *l);

static void long_call(void *ctx, bool begins)
{
	void (*once)(struct lever_nvidia *) = happens;

	if (!begins || !once)
		return;
	happens = NULL;
	once(ctx);
}

static void make_a_call(struct lever_nvidia *l, void (*what)(struct lever_nvidia *l))
{
	struct nv_context *c = context_of(l, 100);

	l->rm.in_call_ctx = l;
	l->rm.in_call = long_call;
	happens = what;
	nv_stop_or_go(l, &l->gpu[0], &c, 1, true, false);
	assert_null(happens);
	nv_stop_or_go(l, &l->gpu[0], &c, 1, false, false);
	l->rm.in_call = NULL;
}

static uint64_t filled_at, emptied_at;

/* Work comes, is worked through, and comes again. */
static void works_twice(struct lever_nvidia *l)
{
	for (int i = 0; i < 100; i++) {
		fake->now += EVERY;
		if (i == 10) {
			fake_queue(queues_of(FIRST), QUEUE(0), 0, 1);
			filled_at = fake->now;
		} else if (i == 30) {
			fake_queue(queues_of(FIRST), QUEUE(0), 1, 1);
			emptied_at = fake->now;
		} else if (i == 90) {
			fake_queue(queues_of(FIRST), QUEUE(0), 1, 2);
		}
		nv_lookout_pass(l);
	}
}

static void what_is_seen_in_a_call_is_told_with_its_times(void **state)
{
	struct lever_nvidia *l = chat();

	make_a_call(l, works_twice);
	assert_int_equal(told, 0); /* not while it acts */
	assert_int_equal(lever_nvidia_dispatch(l), 0);
	assert_in_range(told, 3, 4); /* an end may be seen in two steps */
	assert_int_equal(looks[0].value, RTXG_SLICE_QUEUED | RTXG_SLICE_FOLLOWED);
	assert_in_range(looks[0].at_ns, filled_at, filled_at + 8 * EVERY); /* a cold channel */
	assert_int_equal(looks[0].since_ns, looks[0].at_ns - EVERY);
	assert_int_equal(looks[told - 2].value, RTXG_SLICE_NO_WORK | RTXG_SLICE_FOLLOWED);
	assert_in_range(looks[told - 2].at_ns, emptied_at, emptied_at + 2 * EVERY);
	/* the last one alone is decided on */
	assert_int_equal(looks[told - 1].value, RTXG_SLICE_QUEUED);
	/* and none of them is told again */
	told = 0;
	assert_int_equal(lever_nvidia_dispatch(l), 0);
	assert_int_equal(told, 0);
	lever_nvidia_close(l);
}

/* The process ends in the call, and another one has its place when that is over. */
static void works_and_ends(struct lever_nvidia *l)
{
	for (int i = 0; i < 20; i++) {
		fake->now += EVERY;
		fake_queue(queues_of(FIRST), QUEUE(0), 0, 1);
		nv_lookout_pass(l);
	}
	assert_true(l->lookout.count > 0);
}

static void what_was_seen_of_a_process_that_ended_is_told_of_no_other(void **state)
{
	struct lever_nvidia *l = chat();

	make_a_call(l, works_and_ends);
	say(l, DISCOVER_EXIT, 100, 0, 0);
	cuda_process(into_lever, l, 101, SECOND, 120, 0);
	assert_int_equal(context_of(l, 101) - l->gpu[0].context, looked_at);
	nv_demand_tell(l);
	assert_int_equal(told, 0);
	lever_nvidia_close(l);
}

/* More changes than there is room for. */
static void works_all_the_time(struct lever_nvidia *l)
{
	uint64_t reads = 0;

	for (uint32_t i = 0; i < 4 * NV_LOOKOUT_ROOM; i++) {
		fake->now += EVERY;
		fake_queue(queues_of(FIRST), QUEUE(0), 0, i / 2 % 2);
		nv_lookout_pass(l);
		if (l->lookout.count == NV_LOOKOUT_ROOM && !reads)
			reads = l->stats.reads;
	}
	assert_int_equal(l->lookout.count, NV_LOOKOUT_ROOM);
	assert_int_equal(l->stats.reads, reads);
}

static void a_look_that_cannot_be_kept_is_not_made(void **state)
{
	struct lever_nvidia *l = chat();
	uint64_t last;

	make_a_call(l, works_all_the_time);
	last = context_of(l, 100)->sight.looked;
	assert_true(last < fake->now - 2 * MS);
	assert_int_equal(lever_nvidia_dispatch(l), 0);
	assert_int_equal(told, TOLD);
	lever_nvidia_close(l);
}

static uint64_t reads_then;

static void reads_nothing(struct lever_nvidia *l)
{
	reads_then = l->stats.reads;
	for (int i = 0; i < 10; i++) {
		fake->now += EVERY;
		nv_lookout_pass(l);
	}
	assert_int_equal(l->stats.reads, reads_then);
}

/* The page is unmapped, and the driver takes long to free the object. */
static void nothing_is_read_of_what_is_being_let_go(void **state)
{
	struct lever_nvidia *l = chat();

	l->rm.in_call_ctx = l;
	l->rm.in_call = long_call;
	happens = reads_nothing;
	say(l, DISCOVER_FREE, 100, FIRST, QUEUES);
	assert_null(happens);
	assert_true(reads_then > 0);
	lever_nvidia_close(l);
}

static uint64_t looks_before;
static void (*lends)(void *ctx, bool begins);

/* Calls that last, until the other thread has looked twice: what it has is ours between two. */
static void is_watched(struct lever_nvidia *l)
{
	looks_before = l->stats.looks;
	for (int i = 0; i < 600 && l->stats.looks < looks_before + 2; i++) {
		lends(l, true);
		usleep(100000);
		lends(l, false);
	}
}

static void a_thread_looks_while_a_call_lasts(void **state)
{
	struct lever_nvidia *l = chat();

	fake->real_time = true;
	assert_int_equal(nv_lookout_start(l), 0);
	lends = l->rm.in_call;
	assert_int_equal(lever_nvidia_dispatch(l), 0); /* it learns that looks are wanted */
	make_a_call(l, is_watched);
	assert_true(l->stats.looks >= looks_before + 2);
	lever_nvidia_close(l);
	assert_int_equal(fake_maps(), 0);
	assert_int_equal(fake->wild_maps, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(what_is_seen_in_a_call_is_told_with_its_times, up),
		cmocka_unit_test_setup(what_was_seen_of_a_process_that_ended_is_told_of_no_other,
				       up),
		cmocka_unit_test_setup(a_look_that_cannot_be_kept_is_not_made, up),
		cmocka_unit_test_setup(nothing_is_read_of_what_is_being_let_go, up),
		cmocka_unit_test_setup(a_thread_looks_while_a_call_lasts, up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
