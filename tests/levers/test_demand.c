// SPDX-License-Identifier: MIT
/*
 * test_demand.c - what the queues of programs show reaches the policy, costs little, keeps nothing
 * of a process alive, and is believed of that process alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "act.h"
#include "carry_out.h"
#include "contexts.h"
#include "demand.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "rig.h"

/*
 * How often the policy asks is the policy's affair (tests/unit/test_slice.c). Here it asks as often
 * as the test says: 0 = as the policy says.
 */
static uint64_t look_every;

uint64_t __real_rtxg_slice_look_ns(const struct rtxg_slice *s, uint32_t context);
uint64_t __wrap_rtxg_slice_look_ns(const struct rtxg_slice *s, uint32_t context);

uint64_t __wrap_rtxg_slice_look_ns(const struct rtxg_slice *s, uint32_t context)
{
	return look_every ? look_every : __real_rtxg_slice_look_ns(s, context);
}

/* The last look at this context that the policy was told of. */
static struct rtxg_slice_event last_look;
static uint32_t looked_at;

int __real_rtxg_slice_step(struct rtxg_slice *s, uint64_t now_ns,
			   const struct rtxg_slice_event *event, struct rtxg_slice_action *actions,
			   unsigned int cap);
int __wrap_rtxg_slice_step(struct rtxg_slice *s, uint64_t now_ns,
			   const struct rtxg_slice_event *event, struct rtxg_slice_action *actions,
			   unsigned int cap);

int __wrap_rtxg_slice_step(struct rtxg_slice *s, uint64_t now_ns,
			   const struct rtxg_slice_event *event, struct rtxg_slice_action *actions,
			   unsigned int cap)
{
	if (event && event->type == RTXG_SLICE_EV_DEMAND && event->context == looked_at)
		last_look = *event;
	return __real_rtxg_slice_step(s, now_ns, event, actions, cap);
}

static int up(void **state)
{
	before(state);
	with_queues = true;
	look_every = MS / 4;
	return 0;
}

/* Two processes that nobody stops but the test. */
static struct lever_nvidia *chat_and_hog(void)
{
	struct lever_nvidia *l = lever_up();

	cuda_process(into_lever, l, 100, FIRST, 100, 0);
	cuda_process(into_lever, l, 101, SECOND, 120, 0);
	return l;
}

static struct nv_context *context_of(struct lever_nvidia *l, uint32_t pid)
{
	struct nv_context *c = nv_context_of(&l->gpu[0], nv_registry_process(&l->registry, pid));

	assert_non_null(c);
	return c;
}

static void stop(struct lever_nvidia *l, uint32_t pid, bool stop)
{
	struct nv_context *c = context_of(l, pid);

	nv_stop_or_go(l, &l->gpu[0], &c, 1, stop, false);
	assert_int_equal(c->stopped, stop);
}

static uint32_t submitted[2];

/* For so long the hog works through its queue, and the chat too if it is told to. */
static void work_for(struct lever_nvidia *l, uint64_t ns, bool chat)
{
	uint64_t end = fake->now + ns;

	while (fake->now < end) {
		for (uint32_t who = chat ? 0 : 1; who < 2; who++) {
			uint32_t put = ++submitted[who] & 1023;

			if (stopped_on(0, FIRST + who))
				continue;
			fake_queue(queues_of(FIRST + who), QUEUE(2), put, (put + 2) & 1023);
			fake_log(NV_FECS_SIMPLE_START, 100 + who, 100 + 20 * who,
				 fake->now + EPOCH);
			for (int i = 0; i < 10 && !stopped_on(0, FIRST + who); i++) {
				fake->now += MS / 10;
				assert_int_equal(lever_nvidia_dispatch(l), 0);
			}
			fake_log(NV_FECS_SIMPLE_END, 100 + who, 100 + 20 * who, fake->now + EPOCH);
		}
		fake->now += MS / 10;
		assert_int_equal(lever_nvidia_dispatch(l), 0);
	}
}

/* What the policy was told of it last. */
static uint8_t told(struct lever_nvidia *l, uint32_t pid)
{
	return context_of(l, pid)->sight.told;
}

static void wait_until_told(struct lever_nvidia *l, uint32_t pid, uint8_t what, uint64_t ns)
{
	uint64_t end = fake->now + ns;

	while (told(l, pid) != what && fake->now < end) {
		fake->now += MS / 20;
		assert_int_equal(lever_nvidia_dispatch(l), 0);
	}
	assert_int_equal(told(l, pid), what);
}

static void down(struct lever_nvidia *l)
{
	lever_nvidia_close(l);
	assert_int_equal(fake_dups(), 0);
	assert_int_equal(fake_maps(), 0);
	assert_int_equal(fake->wild_maps, 0);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake->unjournaled, 0);
	assert_int_equal(fake->open_fds, 0);
}

static void work_and_its_end_are_told(void **state)
{
	struct rtxg_slice_context_view v;
	struct lever_nvidia *l = chat_and_hog();
	uint32_t chat = (uint32_t)(context_of(l, 100) - l->gpu[0].context);

	work_for(l, 200 * MS, false);
	assert_int_equal(told(l, 100), NV_TOLD_NO_WORK);
	assert_int_equal(told(l, 101), NV_TOLD_WORK);
	/* it submits, and the engine has not taken it */
	fake_queue(queues_of(FIRST), QUEUE(3), 0, 1);
	wait_until_told(l, 100, NV_TOLD_WORK, 8 * MS);
	rtxg_slice_context_view(l->gpu[0].slice, chat, &v);
	assert_true(v.flags & RTXG_SLICE_HAS_WORK);
	fake_queue(queues_of(FIRST), QUEUE(3), 1, 1);
	wait_until_told(l, 100, NV_TOLD_NO_WORK, 8 * MS);
	/* from now on that channel is known: two looks are enough, even if all was taken at once */
	fake_queue(queues_of(FIRST), QUEUE(3), 5, 5);
	wait_until_told(l, 100, NV_TOLD_WORK, MS / 2);
	wait_until_told(l, 100, NV_TOLD_NO_WORK, MS);
	/* a stopped one that has work keeps showing it */
	stop(l, 100, true);
	fake_queue(queues_of(FIRST), QUEUE(3), 5, 6);
	wait_until_told(l, 100, NV_TOLD_WORK, MS / 2);
	work_for(l, 50 * MS, false);
	assert_int_equal(told(l, 100), NV_TOLD_WORK);
	down(l);
}

/* A late one is not told by its interval. */
static void a_look_tells_when_the_one_before_it_was(void **state)
{
	struct lever_nvidia *l = chat_and_hog();
	uint64_t before;

	looked_at = (uint32_t)(context_of(l, 100) - l->gpu[0].context);
	work_for(l, 200 * MS, false);
	fake_queue(queues_of(FIRST), QUEUE(3), 4, 5);
	wait_until_told(l, 100, NV_TOLD_WORK, 8 * MS);
	fake_queue(queues_of(FIRST), QUEUE(3), 5, 5);
	wait_until_told(l, 100, NV_TOLD_NO_WORK, 8 * MS);
	for (uint32_t put = 6; put < 16; put++) {
		before = context_of(l, 100)->sight.looked;
		assert_in_range(fake->now - before, 0, MS / 2);
		fake_queue(queues_of(FIRST), QUEUE(3), put, put);
		fake->now += 3 * MS;
		assert_int_equal(lever_nvidia_dispatch(l), 0);
		assert_int_equal(told(l, 100), NV_TOLD_WORK);
		assert_int_equal(last_look.value, RTXG_SLICE_WORK);
		assert_int_equal(last_look.at_ns, fake->now);
		assert_int_equal(last_look.since_ns, before);
		wait_until_told(l, 100, NV_TOLD_NO_WORK, MS);
	}
	/* One that comes late is told where it shows the same, too. */
	before = context_of(l, 100)->sight.looked;
	fake->now += 30 * MS;
	assert_int_equal(lever_nvidia_dispatch(l), 0);
	assert_int_equal(last_look.value, RTXG_SLICE_NO_WORK);
	assert_int_equal(last_look.at_ns, fake->now);
	assert_int_equal(last_look.since_ns, before);
	down(l);
}

static void nothing_is_looked_at_while_nothing_depends_on_it(void **state)
{
	struct lever_nvidia_stats stats;
	struct lever_nvidia *l = chat_and_hog(); /* in one vGPU */

	look_every = 0;
	work_for(l, 1000 * MS, true);
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.looks, 0);
	look_every = RTXG_SLICE_NEVER;
	work_for(l, 1000 * MS, true);
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.looks, 0);
	assert_int_equal(fake_dups(), 0);
	down(l);
}

static void a_look_reads_the_channels_that_move(void **state)
{
	struct lever_nvidia_stats a, b;
	struct lever_nvidia *l = chat_and_hog();

	work_for(l, 2000 * MS, true);
	lever_nvidia_stats(l, &a);
	work_for(l, 2000 * MS, true);
	lever_nvidia_stats(l, &b);
	assert_true(b.looks > a.looks);
	print_message("%.2f channels a look\n",
		      (double)(b.reads - a.reads) / (double)(b.looks - a.looks));
	/* one that moves and, in turn, one of the other seven */
	assert_true(b.reads - a.reads <= 2 * (b.looks - a.looks));
	/* one page holds them all */
	assert_int_equal(fake_dups(), 2);
	down(l);
}

/* How many channels of a client are stopped. */
static uint32_t stopped_channels(uint32_t client)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fake->channels; i++)
		n += fake->channel[i].client == client && fake->channel[i].stopped;
	return n;
}

static void only_the_channels_that_carry_work_are_stopped(void **state)
{
	struct lever_nvidia *l = chat_and_hog();

	work_for(l, 100 * MS, true);
	stop(l, 101, true);
	assert_int_equal(stopped_channels(SECOND), 8); /* they are not known as yet */
	stop(l, 101, false);
	work_for(l, 3000 * MS, true);
	stop(l, 101, true);
	assert_int_equal(stopped_channels(SECOND), 1);
	assert_int_equal(nv_journal_count(&l->journal), 1);
	stop(l, 101, false);
	assert_int_equal(nv_journal_count(&l->journal), 0);
	/* a new channel: nothing is known of it */
	cuda_process(into_lever, l, 101, 0xc1d00012, 140, 0);
	stop(l, 101, true);
	assert_int_equal(stopped_channels(SECOND) + stopped_channels(0xc1d00012), 16);
	down(l);
}

static void a_channel_that_begins_to_move_while_stopped_is_stopped(void **state)
{
	struct lever_nvidia_stats stats;
	struct lever_nvidia *l = chat_and_hog();
	uint64_t at;

	work_for(l, 3000 * MS, true);
	stop(l, 101, true);
	assert_int_equal(stopped_channels(SECOND), 1);
	look_every = RTXG_SLICE_NEVER; /* also when the policy does not ask */
	fake_queue(queues_of(SECOND), QUEUE(5), 0, 3);
	for (at = fake->now; stopped_channels(SECOND) < 8 && fake->now < at + 16 * MS;) {
		fake->now += MS / 10;
		lever_nvidia_dispatch(l);
	}
	assert_int_equal(stopped_channels(SECOND), 8);
	assert_int_equal(nv_journal_count(&l->journal), 8);
	assert_true(fake->now - at <= 2 * MS);
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.rests, 1);
	stop(l, 101, false);
	assert_int_equal(stopped_channels(SECOND), 0);
	assert_int_equal(nv_journal_count(&l->journal), 0);
	down(l);
}

static void channels_that_were_left_are_looked_at_when_the_lever_is_awake_anyway(void **state)
{
	struct lever_nvidia_stats a, b;
	struct lever_nvidia *l = chat_and_hog();

	work_for(l, 3000 * MS, true);
	stop(l, 101, true);
	assert_int_equal(stopped_channels(SECOND), 1);
	look_every = RTXG_SLICE_NEVER;
	l->gpu[0].steps++; /* it is asked again */
	/* they alone wake it late */
	assert_true(nv_demand_next(l) >= fake->now + 5 * MS);
	lever_nvidia_stats(l, &a);
	fake->now += MS;
	lever_nvidia_dispatch(l);
	lever_nvidia_stats(l, &b);
	assert_int_equal(b.reads, a.reads);
	fake->now += MS;
	lever_nvidia_dispatch(l);
	lever_nvidia_stats(l, &b);
	assert_int_equal(b.reads, a.reads + 7);
	stop(l, 101, false);
	down(l);
}

static void nothing_of_a_process_is_kept(void **state)
{
	static const struct {
		enum discover_kind kind;
		uint32_t object;
	} ends[] = { { DISCOVER_EXIT, 0 },
		     { DISCOVER_EXEC, 0 },
		     { DISCOVER_FREE, QUEUES },
		     { DISCOVER_FREE, SECOND } };

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct lever_nvidia *l;

		up(NULL);
		l = chat_and_hog();
		work_for(l, 500 * MS, false);
		assert_int_equal(queues_of(SECOND)->dups, 1);
		assert_int_equal(queues_of(SECOND)->maps, 1);
		say(l, ends[i].kind, 101, SECOND, ends[i].object);
		/* at once: with the record, before anything else is done */
		assert_int_equal(queues_of(SECOND)->dups, 0);
		assert_int_equal(queues_of(SECOND)->maps, 0);
		assert_int_equal(queues_of(FIRST)->dups, 1);
		down(l);
	}
	/* its end was not told */
	struct lever_nvidia *l;

	up(NULL);
	l = chat_and_hog();
	work_for(l, 500 * MS, false);
	fake->dead = 101;
	for (int i = 0; i < 600 && queues_of(SECOND)->dups; i++) {
		fake->now += 50 * MS;
		lever_nvidia_dispatch(l);
	}
	assert_int_equal(queues_of(SECOND)->dups, 0);
	down(l);
}

static void a_lost_gpu_is_not_looked_at(void **state)
{
	struct lever_nvidia *l = chat_and_hog();
	struct nv_context *c;

	work_for(l, 500 * MS, true);
	fake->fail_command = NV2080_FIFO_DISABLE_CHANNELS;
	fake->fail_status = NV_STATUS_GPU_IS_LOST;
	assert_int_equal(fake_dups(), 2);
	c = context_of(l, 101);
	nv_stop_or_go(l, &l->gpu[0], &c, 1, true, false);
	assert_int_equal(lever_nvidia_dispatch(l), -ENODEV);
	assert_int_equal(fake_dups(), 0);
	fake->fail_command = 0;
	lever_nvidia_close(l);
}

static void what_cannot_be_seen_goes_by_the_log(void **state)
{
	static const uint32_t steps[] = { NV_ESC_RM_SHARE, NV_ESC_RM_DUP_OBJECT,
					  NV_ESC_RM_MAP_MEMORY };

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct lever_nvidia_stats stats;
		struct lever_nvidia *l;

		up(NULL);
		l = chat_and_hog();
		fake_fail(steps[i], 0, NV_STATUS_INSUFFICIENT_PERMISSIONS);
		work_for(l, 3000 * MS, true);
		assert_int_equal(told(l, 100), NV_TOLD_NOTHING);
		lever_nvidia_stats(l, &stats);
		assert_true(stats.looks < 20); /* and it is not tried for ever */
		stop(l, 101, true);
		assert_int_equal(stopped_channels(SECOND), 8);
		down(l);

		/* a refusal that passes is no refusal */
		up(NULL);
		l = chat_and_hog();
		fake_fail(steps[i], 0, NV_STATUS_NO_MEMORY)->times = 4;
		work_for(l, 1000 * MS, true);
		assert_int_not_equal(told(l, 100), NV_TOLD_NOTHING);
		assert_int_not_equal(told(l, 101), NV_TOLD_NOTHING);
		down(l);
	}
}

/* More channels of one that has not worked as yet are being made: they cannot be seen so soon. */
static void what_has_not_begun_is_not_said_to_work(void **state)
{
	struct lever_nvidia *l = chat_and_hog();

	work_for(l, 200 * MS, false);
	assert_int_equal(told(l, 100), NV_TOLD_NO_WORK);
	nv_sight_changed(l, context_of(l, 100));
	work_for(l, 10 * MS, false);
	assert_int_equal(told(l, 100), NV_TOLD_NO_WORK);
	/* once it has, what is not seen may be there */
	work_for(l, 100 * MS, true);
	nv_sight_changed(l, context_of(l, 100));
	work_for(l, 10 * MS, false);
	assert_int_equal(told(l, 100), NV_TOLD_WORK);
	down(l);
	(void)state;
}

static void a_process_that_lies_harms_itself(void **state)
{
	struct lever_nvidia *l;
	struct discover_record r;
	uint64_t work;

	l = chat_and_hog();
	/* a third one, whose channels lie wherever you like */
	record(&r, 102, 0xc1d00012, 0, 0xc1d00012, DISCOVER_CLASS_ROOT_CLIENT, 0, 0);
	r.tag = 2;
	nv_contexts_feed(l, &r);
	record(&r, 102, 0xc1d00012, 0xc1d00012, 1, DISCOVER_CLASS_DEVICE, 0, 0);
	nv_contexts_feed(l, &r);
	record(&r, 102, 0xc1d00012, 1, 2, DISCOVER_CLASS_GROUP, 1, 0);
	nv_contexts_feed(l, &r);
	fake_memory_add(0, 0xc1d00012, QUEUES, NV_CLASS_MEMORY_LOCAL, FAKE_MEMORY_BYTES);
	srandom(1);
	for (uint32_t i = 0; i < 20000; i++) {
		record(&r, 102, 0xc1d00012, 2, 100 + i, 0xc86f, 1, (uint32_t)random());
		r.userd = random() & 1 ? QUEUES : (uint32_t)random();
		r.userd_offset = random() & 1 ? (uint64_t)(random() % FAKE_MEMORY_BYTES)
					      : (uint64_t)random() << 32 | (uint64_t)random();
		nv_contexts_feed(l, &r);
	}
	assert_int_equal(nv_registry_process(&l->registry, 102)->channel_count, NV_CHANNELS_MAX);
	assert_true(l->registry.refused > 0);
	work = submitted[1];
	work_for(l, 2000 * MS, false);
	/* the hog goes on, the chat is served, and little of the liar's was opened */
	assert_true(submitted[1] - work > 1000);
	stop(l, 101, true);
	assert_true(fake_dups() < 8);
	say(l, DISCOVER_EXIT, 102, 0, 0);
	assert_true(fake_dups() <= 2);
	down(l);
}

static void words_that_change_at_random_harm_itself(void **state)
{
	struct lever_nvidia_stats stats;
	struct lever_nvidia *l = chat_and_hog();
	uint32_t stops = 0;

	srandom(2);
	for (int i = 0; i < 20000; i++) {
		uint32_t *words = (uint32_t *)queues_of(SECOND)->bytes;

		for (int k = 0; k < 16; k++)
			words[random() % (FAKE_MEMORY_BYTES / 4)] = (uint32_t)random();
		if (!stopped_on(0, SECOND) && i % 20 == 0)
			fake_log(i % 40 ? NV_FECS_SIMPLE_END : NV_FECS_SIMPLE_START, 101, 120,
				 fake->now + EPOCH);
		fake->now += MS / 10;
		assert_int_equal(lever_nvidia_dispatch(l), 0);
		if (i % 1000 == 999) {
			stop(l, 101, !stopped_on(0, SECOND));
			stops++;
			fake_queue(queues_of(FIRST), QUEUE(1), stops, stops + 1);
			wait_until_told(l, 100, NV_TOLD_WORK, 10 * MS);
			fake_queue(queues_of(FIRST), QUEUE(1), stops + 1, stops + 1);
			wait_until_told(l, 100, NV_TOLD_NO_WORK, 10 * MS);
		}
		assert_null(rtxg_slice_check(l->gpu[0].slice));
	}
	assert_int_equal(stops, 20);
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.failures, 0);
	down(l);
}

static void children_and_gpus_have_queues_of_their_own(void **state)
{
	struct lever_nvidia *l;

	fake->gpus = 2;
	fake->reversed = true;
	l = lever_up();
	cuda_process_on(into_lever, l, 0, 100, FIRST, 100, 1);
	say(l, DISCOVER_FORK, 101, 0, 0);
	cuda_process_on(into_lever, l, 0, 101, SECOND, 120, 0); /* a child */
	cuda_process_on(into_lever, l, 1, 100, 0xc1d00012, 100, 1);
	cuda_process_on(into_lever, l, 1, 102, 0xc1d00013, 140, 0);
	for (int i = 0; i < 400; i++) {
		for (uint32_t g = 0; g < 2; g++)
			fake_log_on(g, i & 1 ? NV_FECS_SIMPLE_END : NV_FECS_SIMPLE_START,
				    g ? 102 : 101, 0, fake->now + EPOCH);
		fake->now += MS / 2;
		assert_int_equal(lever_nvidia_dispatch(l), 0);
	}
	/* each was mapped through a descriptor of its GPU: the driver refuses another */
	assert_int_equal(queues_of(FIRST)->dups, 1);
	assert_int_equal(queues_of(0xc1d00012)->dups, 1);
	say(l, DISCOVER_EXIT, 101, 0, 0);
	assert_int_equal(queues_of(SECOND)->dups, 0);
	assert_int_equal(queues_of(FIRST)->dups, 1);
	say(l, DISCOVER_EXIT, 100, 0, 0);
	assert_int_equal(queues_of(FIRST)->dups, 0);
	assert_int_equal(queues_of(0xc1d00012)->dups, 0);
	down(l);
}

/* Its channels do not say where their queues are; one that was seen being made does. */
static void an_older_context_is_seen_by_the_layout_of_another(void **state)
{
	struct fake_memory_object *m;

	for (int good = 1; good >= 0; good--) {
		struct lever_nvidia *l;

		up(NULL);
		l = chat_and_hog();
		fake_object_add(102, 0xc1d00030, 0, 0xc1d00030, NV_CLASS_ROOT_CLIENT, 0, 0);
		older_process(102, 0xc1d00030, 0, 0x5c000000, 200);
		m = queues_of(0xc1d00030);
		for (uint32_t i = 0; i < 9; i++)
			fake_queue(m, QUEUE(i), 1, good ? 1 : 0x5f000000 + i);
		fake_log(NV_FECS_SIMPLE_START, 102, 200, fake->now + EPOCH);
		work_for(l, 500 * MS, false);
		assert_int_equal(nv_registry_process(&l->registry, 102)->groups[0].count, 8);
		if (good) {
			assert_int_equal(told(l, 102), NV_TOLD_NO_WORK);
			fake_queue(m, QUEUE(7), 1, 2);
			wait_until_told(l, 102, NV_TOLD_WORK, 4 * MS);
			fake_queue(m, QUEUE(7), 2, 2);
			wait_until_told(l, 102, NV_TOLD_NO_WORK, 4 * MS);
			/* the ninth is a copy engine's */
			fake_queue(m, QUEUE(8), 1, 2);
			work_for(l, 20 * MS, false);
			assert_int_equal(told(l, 102), NV_TOLD_NO_WORK);
		} else {
			/* what lies there does not look like queues: the log is all there is */
			assert_int_equal(told(l, 102), NV_TOLD_NOTHING);
		}
		say(l, DISCOVER_EXIT, 102, 0, 0);
		assert_int_equal(m->dups, 0);
		down(l);
	}
}

/*
 * The first program that comes has queues of its own, laid out as no other's are. The lever's own
 * program shows how CUDA's are.
 */
static void the_layout_is_that_of_our_own_program(void **state)
{
	struct fake_memory_object *m;
	struct discover_record r;
	struct lever_nvidia *l = lever_up();

	record(&r, 103, 0xc1d00013, 0, 0xc1d00013, DISCOVER_CLASS_ROOT_CLIENT, 0, 0);
	nv_contexts_feed(l, &r);
	record(&r, 103, 0xc1d00013, 0xc1d00013, 1, DISCOVER_CLASS_DEVICE, 0, 0);
	nv_contexts_feed(l, &r);
	record(&r, 103, 0xc1d00013, 1, 2, DISCOVER_CLASS_GROUP, 1, 0);
	nv_contexts_feed(l, &r);
	fake_memory_add(0, 0xc1d00013, QUEUES, NV_CLASS_MEMORY_LOCAL, FAKE_MEMORY_BYTES);
	for (uint32_t i = 0; i < 8; i++) {
		record(&r, 103, 0xc1d00013, 2, 100 + i, 0xc86f, 1, 300 + i);
		r.userd = QUEUES;
		r.userd_offset = QUEUE(0) + 0x200 * i;
		nv_contexts_feed(l, &r);
	}
	assert_int_equal(l->layout.stride, 0x200);
	cuda_process(into_lever, l, 104, 0xc1d00014, 320, 0);
	nv_sight_show(l, nv_registry_process(&l->registry, 104));
	say(l, DISCOVER_EXIT, 104, 0, 0);
	cuda_process(into_lever, l, 100, FIRST, 100, 0);
	cuda_process(into_lever, l, 101, SECOND, 120, 0);
	fake_object_add(102, 0xc1d00030, 0, 0xc1d00030, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process(102, 0xc1d00030, 0, 0x5c000000, 200);
	m = queues_of(0xc1d00030);
	for (uint32_t i = 0; i < 9; i++)
		fake_queue(m, QUEUE(i), 1, 1);
	fake_log(NV_FECS_SIMPLE_START, 102, 200, fake->now + EPOCH);
	work_for(l, 500 * MS, false);
	assert_int_equal(told(l, 102), NV_TOLD_NO_WORK);
	fake_queue(m, QUEUE(7), 1, 2);
	wait_until_told(l, 102, NV_TOLD_WORK, 4 * MS);
	down(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(work_and_its_end_are_told, up),
		cmocka_unit_test_setup(a_look_tells_when_the_one_before_it_was, up),
		cmocka_unit_test_setup(nothing_is_looked_at_while_nothing_depends_on_it, up),
		cmocka_unit_test_setup(a_look_reads_the_channels_that_move, up),
		cmocka_unit_test_setup(only_the_channels_that_carry_work_are_stopped, up),
		cmocka_unit_test_setup(a_channel_that_begins_to_move_while_stopped_is_stopped, up),
		cmocka_unit_test_setup(
			channels_that_were_left_are_looked_at_when_the_lever_is_awake_anyway, up),
		cmocka_unit_test_setup(nothing_of_a_process_is_kept, up),
		cmocka_unit_test_setup(a_lost_gpu_is_not_looked_at, up),
		cmocka_unit_test_setup(what_cannot_be_seen_goes_by_the_log, up),
		cmocka_unit_test_setup(what_has_not_begun_is_not_said_to_work, up),
		cmocka_unit_test_setup(a_process_that_lies_harms_itself, up),
		cmocka_unit_test_setup(words_that_change_at_random_harm_itself, up),
		cmocka_unit_test_setup(children_and_gpus_have_queues_of_their_own, up),
		cmocka_unit_test_setup(an_older_context_is_seen_by_the_layout_of_another, up),
		cmocka_unit_test_setup(the_layout_is_that_of_our_own_program, up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
