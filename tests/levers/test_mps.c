// SPDX-License-Identifier: MIT
/*
 * test_mps.c - an MPS server and its clients, as the driver was seen to show them: the server has a
 * channel group with one channel, and each client a duplicate of that group with two channels of
 * its own. All of them are one context, and one tenant.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "contexts.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "rig.h"
#include "unknown.h"

#define SERVER	       300u
#define SERVER_OWNS    0xc1d00020u
#define GROUP	       0x5c000015u
#define DUPLICATE      0x5c00000fu
#define CLIENT(i)      (310u + (i))
#define CLIENT_OWNS(i) (0xc1d00021u + (i))
#define RIVAL	       101u
#define CID(i)	       (500u + 10u * (i))

static void begin(struct lever_nvidia *l, uint32_t pid, uint32_t client, const char *comm,
		  uint32_t tag)
{
	struct discover_record r;

	record(&r, pid, client, 0, client, DISCOVER_CLASS_ROOT_CLIENT, 0, 0);
	r.tag = tag;
	snprintf(r.comm, sizeof(r.comm), "%s", comm);
	nv_contexts_feed(l, &r);
	record(&r, pid, client, client, 0x5c000003, DISCOVER_CLASS_DEVICE, 0, 0);
	nv_contexts_feed(l, &r);
	if (with_queues)
		fake_memory_add(0, client, QUEUES, NV_CLASS_MEMORY_LOCAL, FAKE_MEMORY_BYTES);
}

/* A channel; the driver does not say of which engine one in a group is. */
static void channel(struct lever_nvidia *l, uint32_t pid, uint32_t client, uint32_t group,
		    uint32_t handle, uint32_t cid, uint32_t queue)
{
	struct discover_record r;

	fake_channel_add(0, client, handle, group);
	record(&r, pid, client, group, handle, 0xc86f, 0, cid);
	r.userd = with_queues ? QUEUES : 0;
	r.userd_offset = QUEUE(queue);
	nv_contexts_feed(l, &r);
}

static void server(struct lever_nvidia *l, uint32_t tag)
{
	struct discover_record r;

	begin(l, SERVER, SERVER_OWNS, "nvidia-cuda-mps", tag);
	record(&r, SERVER, SERVER_OWNS, 0x5c000003, GROUP, DISCOVER_CLASS_GROUP, 1, 0);
	nv_contexts_feed(l, &r);
	channel(l, SERVER, SERVER_OWNS, GROUP, 0x5c00001c, 490, 0);
}

static void says_duplicate(struct lever_nvidia *l, uint32_t pid, uint32_t client, uint32_t handle,
			   uint32_t of_client, uint32_t of)
{
	struct discover_record r;

	record(&r, pid, client, 0x5c000003, handle, 0, 0, 0);
	r.kind = DISCOVER_DUP;
	r.src_client = of_client;
	r.src_object = of;
	nv_contexts_feed(l, &r);
}

static void client(struct lever_nvidia *l, uint32_t i)
{
	struct discover_record r;

	begin(l, CLIENT(i), CLIENT_OWNS(i), "load", 0);
	fake_group_dup(CLIENT_OWNS(i), DUPLICATE, SERVER_OWNS, GROUP);
	says_duplicate(l, CLIENT(i), CLIENT_OWNS(i), DUPLICATE, SERVER_OWNS, GROUP);
	channel(l, CLIENT(i), CLIENT_OWNS(i), DUPLICATE, 0x5c00001d, CID(i), 0);
	channel(l, CLIENT(i), CLIENT_OWNS(i), DUPLICATE, 0x5c000023, CID(i) + 1, 1);
	/* for copies it has a group of its own */
	record(&r, CLIENT(i), CLIENT_OWNS(i), 0x5c000003, 0x5c000027, DISCOVER_CLASS_GROUP, 11, 0);
	nv_contexts_feed(l, &r);
	channel(l, CLIENT(i), CLIENT_OWNS(i), 0x5c000027, 0x5c000029, CID(i) + 3, 2);
}

/* An MPS server with 30 % and two clients, and a rival with 70 %. */
static struct lever_nvidia *beside_a_rival(void)
{
	struct rtxg_slice_tenant mps = { .min_ppm = 300000 }, rival = { .min_ppm = 700000 };
	struct lever_nvidia *l = lever_up();

	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 1, &mps), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 2, &rival), 0);
	cuda_process(into_lever, l, RIVAL, SECOND, 120, 2);
	server(l, 1);
	client(l, 0);
	client(l, 1);
	return l;
}

static bool stopped(uint32_t client_, uint32_t handle)
{
	for (uint32_t i = 0; i < fake->channels; i++)
		if (fake->channel[i].client == client_ && fake->channel[i].handle == handle &&
		    !fake->channel[i].gone)
			return fake->channel[i].stopped;
	fail_msg("client 0x%x has no channel 0x%x", client_, handle);
	return false;
}

static bool clients_stopped(void)
{
	for (uint32_t i = 0; i < 2; i++)
		if (!stopped(CLIENT_OWNS(i), 0x5c00001d) || !stopped(CLIENT_OWNS(i), 0x5c000023))
			return false;
	return true;
}

/*
 * The GPU runs whose channels may: it turns between the rival and the server's group, as long as
 * one channel in that is enabled. The log names the client whose channel came on. Returns MPS's
 * part.
 */
static double turn(struct lever_nvidia *l, uint64_t ns)
{
	static uint32_t who, which;
	uint64_t end = fake->now + ns, work[2] = { 0, 0 };

	while (fake->now < end) {
		bool may[2] = { !clients_stopped(), !stopped_on(0, SECOND) };
		uint32_t pid;

		if (may[1 - who])
			who = 1 - who;
		if (!may[who]) {
			fake->now += MS;
			lever_nvidia_dispatch(l);
			continue;
		}
		which = 1 - which;
		pid = who ? RIVAL : CLIENT(which);
		fake_log(NV_FECS_SIMPLE_START, pid, who ? 120 : CID(which), fake->now + EPOCH);
		for (int i = 0; i < 4; i++) {
			fake->now += MS / 2;
			if (lever_nvidia_dispatch(l) < 0)
				return -1;
		}
		work[who] += 2 * MS;
		fake_log(NV_FECS_SIMPLE_END, pid, who ? 120 : CID(which), fake->now + EPOCH);
		fake->now += 84000;
	}
	return (double)work[0] / (double)(work[0] + work[1]);
}

static void clients_get_the_share_of_their_server(void **state)
{
	struct lever_nvidia *l = beside_a_rival();
	struct lever_nvidia_stats stats;
	double share;

	turn(l, 1000 * MS);
	share = turn(l, 4000 * MS);
	print_message("30 %%: %.2f\n", 100 * share);
	assert_true(share > 0.285 && share < 0.315);
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.loads, 0);
	assert_int_equal(fake->unjournaled, 0);
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
}

static void until_stopped(struct lever_nvidia *l)
{
	for (int i = 0; i < 2000 && !stopped(SERVER_OWNS, 0x5c00001c); i++)
		turn(l, MS);
	assert_true(stopped(SERVER_OWNS, 0x5c00001c));
}

static void clients_are_listed_with_their_server(void **state)
{
	struct lever_nvidia *l = beside_a_rival();
	struct lever_nvidia_process p;

	turn(l, 100 * MS);
	for (uint32_t i = 0; i < 2; i++) {
		p = process_of(l, CLIENT(i));
		assert_true(p.managed);
		assert_int_equal(p.server, SERVER);
		assert_int_equal(p.vgpu, 1);
		assert_int_equal(p.channels, 3);
		assert_int_equal(p.stays, 0);
	}
	p = process_of(l, SERVER);
	assert_true(p.mps && p.managed && !p.server && p.stays);
	assert_int_equal(p.channels, 1);
	lever_nvidia_close(l);
}

/* The group's slice is the server's to set; a client's word for it is not needed. */
static void the_slice_is_set_once_for_the_group(void **state)
{
	struct rtxg_slice_tenant first = { .priority = RTXG_SLICE_CRITICAL_PRIORITY };
	struct lever_nvidia *l = beside_a_rival();

	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 2, &first), 0);
	turn(l, 100 * MS);
	assert_int_equal(fake_slice(SERVER_OWNS), 16);
	assert_int_equal(fake_slice(CLIENT_OWNS(1)), 16);
	for (uint32_t i = 0; i < fake->users && i < 32; i++)
		assert_true(fake->user[i] == SERVER || fake->user[i] == RIVAL);
	lever_nvidia_close(l);
}

static void a_client_that_comes_while_its_server_is_stopped_is_stopped(void **state)
{
	struct lever_nvidia *l = beside_a_rival();

	until_stopped(l);
	client(l, 2);
	assert_true(stopped(CLIENT_OWNS(2), 0x5c00001d));
	assert_true(stopped(CLIENT_OWNS(2), 0x5c000023));
	assert_false(stopped(CLIENT_OWNS(2), 0x5c000029)); /* copies go on */
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
}

static uint32_t journaled(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fake->watched->page->high; i++)
		n += fake->watched->page->entry[i].used;
	return n;
}

static void a_client_that_dies_leaves_nothing(void **state)
{
	struct lever_nvidia *l;
	uint32_t before_;
	double share;

	with_queues = true;
	l = beside_a_rival();
	turn(l, 1500 * MS);
	until_stopped(l);
	before_ = journaled();
	fake_gone(CLIENT_OWNS(1));
	say(l, DISCOVER_EXIT, CLIENT(1), 0, 0);
	assert_true(journaled() < before_);
	for (uint32_t i = 0; i < fake->memories; i++)
		if (fake->memory[i].client == CLIENT_OWNS(1))
			assert_int_equal(fake->memory[i].dups + fake->memory[i].maps, 0);
	/* and what is left is governed as before */
	client(l, 1);
	share = turn(l, 3000 * MS);
	print_message("30 %%: %.2f\n", 100 * share);
	assert_true(share > 0.28 && share < 0.32);
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake_dups(), 0);
}

static void a_server_that_dies_lets_its_clients_go(void **state)
{
	struct lever_nvidia *l = beside_a_rival();

	until_stopped(l);
	say(l, DISCOVER_EXIT, SERVER, 0, 0);
	assert_false(stopped(CLIENT_OWNS(0), 0x5c00001d));
	assert_false(stopped(CLIENT_OWNS(1), 0x5c000023));
	assert_int_equal(journaled(), 0);
	say(l, DISCOVER_EXIT, CLIENT(0), 0, 0);
	say(l, DISCOVER_EXIT, CLIENT(1), 0, 0);
	turn_of(l, 100 * MS, (uint32_t[]){ RIVAL, RIVAL }, (uint32_t[]){ SECOND, SECOND });
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
}

static void a_group_that_the_server_frees_takes_its_duplicates_along(void **state)
{
	struct lever_nvidia *l = beside_a_rival();

	until_stopped(l);
	say(l, DISCOVER_FREE, SERVER, SERVER_OWNS, GROUP);
	assert_false(stopped(CLIENT_OWNS(0), 0x5c00001d));
	assert_int_equal(journaled(), 0);
	assert_null(nv_process_host(nv_registry_process(&l->registry, CLIENT(0)), 0));
	lever_nvidia_close(l);
}

/* What a program says of itself is seen by its memory, which it may change at any time. */
static void a_program_that_only_says_so_is_no_client(void **state)
{
	struct lever_nvidia *l = beside_a_rival();

	begin(l, 400, 0xc1d00030, "liar", 0);
	says_duplicate(l, 400, 0xc1d00030, DUPLICATE, SERVER_OWNS, GROUP);
	says_duplicate(l, 400, 0xc1d00030, DUPLICATE, SECOND, 0x5c000015);
	/* of another one's client it may say nothing at all */
	says_duplicate(l, 400, CLIENT_OWNS(0), DUPLICATE + 1, SECOND, 0x5c000015);
	channel(l, 400, 0xc1d00030, DUPLICATE, 0x5c00001d, 700, 0);
	until_stopped(l);
	assert_false(stopped(0xc1d00030, 0x5c00001d));
	assert_null(nv_process_host(nv_registry_process(&l->registry, 400), 0));
	assert_ptr_equal(nv_process_host(nv_registry_process(&l->registry, CLIENT(0)), 0),
			 nv_registry_process(&l->registry, SERVER));
	lever_nvidia_close(l);
}

static void work_in_a_clients_queue_is_work_of_the_tenant(void **state)
{
	struct lever_nvidia *l;
	struct nv_context *c;

	with_queues = true;
	l = beside_a_rival();
	turn(l, 200 * MS);
	c = nv_context_of(&l->gpu[0], nv_registry_process(&l->registry, SERVER));
	assert_non_null(c);
	assert_true(c->sight.whole_since);
	for (int i = 0; i < 200; i++) {
		fake_queue(queues_of(CLIENT_OWNS(1)), QUEUE(1), (uint32_t)i, (uint32_t)i + 3);
		turn(l, 5 * MS);
	}
	assert_int_equal(c->sight.told, NV_TOLD_WORK);
	fake_queue(queues_of(CLIENT_OWNS(1)), QUEUE(1), 300, 300);
	for (int i = 0; i < 4000 && c->sight.told == NV_TOLD_WORK; i++) {
		/* the rival alone comes onto the engine */
		fake->now += MS / 2;
		lever_nvidia_dispatch(l);
	}
	assert_int_equal(c->sight.told, NV_TOLD_NO_WORK);
	lever_nvidia_close(l);
	assert_int_equal(fake_dups(), 0);
}

/* As the driver shows them to a daemon that comes later. */
static void older(uint32_t pid, uint32_t owns, uint32_t group, bool compute, uint32_t channels,
		  uint32_t cid)
{
	fake_object_add(pid, owns, 0, owns, NV_CLASS_ROOT_CLIENT, 0, 0);
	fake_object_add(pid, owns, owns, 0x5c000003, NV_CLASS_DEVICE, 0, 0);
	fake_object_add(pid, owns, 0x5c000003, 0x5c000004, NV_CLASS_SUBDEVICE, 0, 0);
	fake_object_add(pid, owns, 0x5c000003, group, NV_CLASS_CHANNEL_GROUP, 0, 0);
	for (uint32_t i = 0; i < channels; i++) {
		fake_object_add(pid, owns, group, 0x5c00001c + 8 * i, 0xc86f, 0, cid + i);
		fake_channel_add(0, owns, 0x5c00001c + 8 * i, group);
		if (compute)
			fake_object_add(pid, owns, 0x5c00001c + 8 * i, 0x5c000020 + 8 * i, 0xcbc0,
					0, 0);
	}
}

static struct nv_process *adopted(struct lever_nvidia *l, uint32_t pid)
{
	nv_adopt_unknown(l, &l->gpu[0], pid);
	return nv_registry_process(&l->registry, pid);
}

static void adopted_clients_are_one_context_with_their_server(void **state)
{
	/*
	 * the server before its clients, after them, and in the midst; with a compute object or not
	 */
	for (int order = 0; order < 6; order++) {
		struct lever_nvidia *l;
		struct nv_process *s = NULL, *a, *b;
		uint32_t contexts = 0;

		fake_reset();
		l = lever_up();
		older(SERVER, 0xc1d00030, GROUP, order % 2, 1, 490);
		older(CLIENT(0), 0xc1d00031, DUPLICATE, true, 2, 500);
		older(CLIENT(1), 0xc1d00032, DUPLICATE, true, 2, 510);
		fake_group_dup(0xc1d00031, DUPLICATE, 0xc1d00030, GROUP);
		fake_group_dup(0xc1d00032, DUPLICATE, 0xc1d00030, GROUP);
		nv_registry_note(&l->registry, SERVER, "nvidia-cuda-mps");
		if (order / 2 == 0)
			s = adopted(l, SERVER);
		a = adopted(l, CLIENT(0));
		if (order / 2 == 1)
			s = adopted(l, SERVER);
		b = adopted(l, CLIENT(1));
		if (order / 2 == 2)
			s = adopted(l, SERVER);
		assert_ptr_equal(nv_process_host(a, 0), s);
		assert_ptr_equal(nv_process_host(b, 0), s);
		for (uint32_t i = 0; i < l->gpu[0].high; i++)
			contexts += l->gpu[0].context[i].process != NULL;
		assert_int_equal(contexts, 1);
		assert_non_null(nv_context_of(&l->gpu[0], s));
		assert_false(nv_context_of(&l->gpu[0], s)->load);
		lever_nvidia_close(l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(clients_get_the_share_of_their_server, before),
		cmocka_unit_test_setup(clients_are_listed_with_their_server, before),
		cmocka_unit_test_setup(the_slice_is_set_once_for_the_group, before),
		cmocka_unit_test_setup(a_client_that_comes_while_its_server_is_stopped_is_stopped,
				       before),
		cmocka_unit_test_setup(a_client_that_dies_leaves_nothing, before),
		cmocka_unit_test_setup(a_server_that_dies_lets_its_clients_go, before),
		cmocka_unit_test_setup(a_group_that_the_server_frees_takes_its_duplicates_along,
				       before),
		cmocka_unit_test_setup(a_program_that_only_says_so_is_no_client, before),
		cmocka_unit_test_setup(work_in_a_clients_queue_is_work_of_the_tenant, before),
		cmocka_unit_test_setup(adopted_clients_are_one_context_with_their_server, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
