// SPDX-License-Identifier: MIT
/*
 * test_claims.c - a process that says of itself what another one has, a client or a channel's
 * number in the log, takes nothing from that one: the driver is asked which of them is right.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>
#include "carry_out.h"
#include "contexts.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "rig.h"
#include "unknown.h"

#define LIAR 300

static struct nv_context *context_of(struct lever_nvidia *l, uint32_t pid)
{
	struct nv_process *p = nv_registry_process(&l->registry, pid);

	return p ? nv_context_of(&l->gpu[0], p) : NULL;
}

/* What the driver says of that process's client: whose it is, and its channels' numbers. */
static void driver_knows(uint32_t pid, uint32_t client, uint32_t first_cid)
{
	fake_object_add(pid, client, 0, client, NV_CLASS_ROOT_CLIENT, 0, 0);
	for (uint32_t i = 0; i < 8; i++)
		fake_object_add(pid, client, 0x5c000015, 0x5c00001c + 4 * i, 0xc86f, 0,
				first_cid + i);
}

static struct lever_nvidia *up(void)
{
	struct rtxg_slice_tenant a = { .min_ppm = 800000 }, b = { .min_ppm = 200000 };
	struct lever_nvidia *l = lever_up();

	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 1, &a), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 2, &b), 0);
	return l;
}

static void down(struct lever_nvidia *l)
{
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake->unjournaled, 0);
	assert_int_equal(fake->open_fds, 0);
}

/* It says that it has made a context, with another's client. */
static void lie_about_the_client(struct lever_nvidia *l, uint32_t client)
{
	cuda_process(into_lever, l, LIAR, client, 900, 2);
	fake_gone(client); /* there are no such channels */
	assert_non_null(context_of(l, LIAR));
}

static void a_client_that_a_liar_named_first_is_its_owners(void **state)
{
	struct lever_nvidia *l = up();

	lie_about_the_client(l, FIRST);
	driver_knows(100, FIRST, 100);
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	assert_non_null(context_of(l, 100));
	assert_int_equal(nv_registry_process(&l->registry, 100)->groups[0].count, 8);
	assert_int_equal(process_of(l, 100).vgpu, 1);
	assert_int_equal(l->registry.refused, 0);
	assert_null(context_of(l, LIAR));
	assert_int_equal(nv_registry_process(&l->registry, LIAR)->client_count, 0);
	down(l);
}

/* It has ended, or there is no such process as yet. */
static void a_client_of_a_process_that_is_gone_is_its_owners(void **state)
{
	struct lever_nvidia *l = up();

	lie_about_the_client(l, FIRST);
	driver_knows(100, FIRST, 100);
	fake->dead = LIAR;
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	assert_non_null(context_of(l, 100));
	assert_null(context_of(l, LIAR));
	down(l);
}

static void an_older_program_is_adopted_though_a_liar_named_its_client(void **state)
{
	struct lever_nvidia *l = up();

	lie_about_the_client(l, FIRST);
	fake_object_add(102, FIRST, 0, FIRST, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process(102, FIRST, 0, 0x5c000000, 200);
	nv_adopt_unknown(l, &l->gpu[0], 102);
	assert_non_null(context_of(l, 102));
	assert_false(context_of(l, 102)->load);
	assert_null(context_of(l, LIAR));
	down(l);
}

/* The driver says of both that the client is theirs: it is the parent's. */
static void a_child_with_its_parents_descriptor_takes_nothing(void **state)
{
	struct discover_record r;
	struct lever_nvidia *l = up();
	uint64_t calls;

	driver_knows(100, FIRST, 100);
	driver_knows(101, FIRST, 100);
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	record(&r, 101, FIRST, 0x5c000015, 0x5c000099, 0xc86f, 1, 500);
	nv_contexts_feed(l, &r);
	assert_int_equal(l->registry.refused, 1);
	/* and that is known from now on */
	calls = fake->calls;
	for (int i = 0; i < 1000; i++)
		nv_contexts_feed(l, &r);
	assert_int_equal(l->registry.refused, 1001);
	assert_int_equal(fake->calls, calls);
	assert_int_equal(nv_registry_process(&l->registry, 100)->groups[0].count, 8);
	down(l);
}

static void claims_that_are_not_so_cost_little(void **state)
{
	struct discover_record r;
	struct lever_nvidia *l = up();
	uint64_t calls, asked;

	driver_knows(100, FIRST, 100);
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	record(&r, LIAR, FIRST, 0, FIRST, DISCOVER_CLASS_ROOT_CLIENT, 0, 0);
	fake->delay_ns = MS;
	calls = fake->calls;
	for (int i = 0; i < 100000; i++) {
		nv_contexts_feed(l, &r);
		fake->now += MS / 100;
	}
	/* of a second that passed beside the questions, each of which takes a millisecond */
	asked = fake->calls - calls;
	assert_true(asked > 0);
	assert_true(asked <= 1000 / 9 + 1);
	assert_int_equal(nv_registry_process(&l->registry, 100)->groups[0].count, 8);
	assert_non_null(context_of(l, 100));
	assert_null(context_of(l, LIAR));
	down(l);
}

/* While it maps a file of its own file system, say: nothing is told of its descriptors. */
static void a_liar_that_does_not_answer_keeps_nothing(void **state)
{
	struct lever_nvidia *l = up();

	lie_about_the_client(l, FIRST);
	driver_knows(100, FIRST, 100);
	fake->getfd_error = EBUSY;
	fake->getfd_pid = LIAR;
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	assert_non_null(context_of(l, 100));
	assert_null(context_of(l, LIAR));
	down(l);
}

/* A descriptor that cannot be had now says nothing of whose the client is. */
static void nothing_changes_while_it_cannot_be_told(void **state)
{
	struct lever_nvidia *l = up();

	lie_about_the_client(l, FIRST);
	driver_knows(100, FIRST, 100);
	fake->getfd_error = EAGAIN;
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	assert_null(context_of(l, 100));
	assert_non_null(context_of(l, LIAR));
	/* of the owner alone */
	fake->getfd_pid = LIAR;
	fake->now += 10000 * MS;
	say(l, DISCOVER_EXIT, 100, 0, 0);
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	assert_null(context_of(l, 100));
	assert_non_null(context_of(l, LIAR));
	fake->getfd_error = 0;
	fake->now += 10000 * MS;
	say(l, DISCOVER_EXIT, 100, 0, 0);
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	assert_non_null(context_of(l, 100));
	assert_null(context_of(l, LIAR));
	down(l);
}

/* --- GPUs and engines ------------------------------------------------------------------------- */

/* What a program says that it has made: all as it is, but for one thing. */
static void lie_about_the_context(struct lever_nvidia *l, uint32_t device, uint32_t engine)
{
	struct discover_record r;

	record(&r, LIAR, FIRST, 0, FIRST, DISCOVER_CLASS_ROOT_CLIENT, 0, 0);
	nv_contexts_feed(l, &r);
	record(&r, LIAR, FIRST, FIRST, 0x5c000001, DISCOVER_CLASS_DEVICE, 0, 0);
	r.device = device;
	nv_contexts_feed(l, &r);
	record(&r, LIAR, FIRST, 0x5c000001, 0x5c000015, DISCOVER_CLASS_GROUP, engine, 0);
	nv_contexts_feed(l, &r);
	for (uint32_t i = 0; i < 8; i++) {
		record(&r, LIAR, FIRST, 0x5c000015, 0x5c00001c + 4 * i, 0xc86f, engine, 200 + i);
		nv_contexts_feed(l, &r);
	}
	assert_null(context_of(l, LIAR));
}

/* It works on a GPU, and would be on none, or on a copy engine alone. */
static void a_program_that_hides_its_context_is_governed(void **state)
{
	static const struct {
		uint32_t device, engine;
	} lies[] = { { 7, 1 }, { 0, NV_ENGINE_TYPE_COPY0 }, { 7, NV_ENGINE_TYPE_COPY0 } };

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct lever_nvidia *l;

		before(NULL);
		l = up();
		lie_about_the_context(l, lies[i].device, lies[i].engine);
		fake_object_add(LIAR, FIRST, 0, FIRST, NV_CLASS_ROOT_CLIENT, 0, 0);
		older_process(LIAR, FIRST, 0, 0x5c000000, 200);
		nv_adopt_unknown(l, &l->gpu[0], LIAR);
		assert_non_null(context_of(l, LIAR));
		assert_false(context_of(l, LIAR)->load);
		assert_int_equal(nv_registry_process(&l->registry, LIAR)->group_count, 2);
		down(l);
	}
}

/* Again and again it says that it has freed what it goes on working with. */
static void a_program_that_hides_all_the_time_is_not_looked_for_all_the_time(void **state)
{
	uint64_t calls, once, governed = 0;
	struct lever_nvidia *l = up();

	fake_object_add(LIAR, FIRST, 0, FIRST, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process(LIAR, FIRST, 0, 0x5c000000, 200);
	calls = fake->calls;
	nv_adopt_unknown(l, &l->gpu[0], LIAR);
	once = fake->calls - calls;
	assert_non_null(context_of(l, LIAR));
	calls = fake->calls;
	for (int i = 0; i < 6000; i++) {
		if (i % 10 == 0)
			say(l, DISCOVER_FREE, LIAR, FIRST, FIRST);
		if (!context_of(l, LIAR))
			nv_adopt_unknown(l, &l->gpu[0], LIAR);
		fake->now += 10 * MS;
		nv_adopt_loads(l);
		/* it is known as a load meanwhile */
		assert_non_null(context_of(l, LIAR));
		governed += !context_of(l, LIAR)->load;
	}
	assert_true(governed > 0);
	assert_true((fake->calls - calls) / once <= 10);
	say(l, DISCOVER_EXIT, LIAR, 0, 0);
	down(l);
}

/* What the driver does not tell, either: it is a load, and not looked for each time it works. */
static void a_program_that_cannot_be_found_on_a_gpu_is_a_load(void **state)
{
	struct nv_context *c, *other;
	struct lever_nvidia *l;
	uint64_t calls;

	fake->gpus = 2;
	l = up();
	cuda_process_on(into_lever, l, 0, LIAR, FIRST, 200, 1);
	fake_gone(FIRST); /* the driver names them as follows */
	fake_object_add(LIAR, FIRST, 0, FIRST, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process(LIAR, FIRST, 0, 0x5c000000, 200);
	c = context_of(l, LIAR);
	nv_stop_or_go(l, &l->gpu[0], &c, 1, true, false);
	assert_true(stopped_on(0, FIRST));
	/* it works on the other one, unseen */
	nv_adopt_unknown(l, &l->gpu[1], LIAR);
	calls = fake->calls;
	for (int i = 0; i < 1000; i++)
		nv_adopt_unknown(l, &l->gpu[1], LIAR);
	assert_int_equal(fake->calls, calls);
	other = nv_context_of(&l->gpu[1], nv_registry_process(&l->registry, LIAR));
	assert_non_null(other);
	assert_true(other->load);
	/* and what was decided for it on the first is as it was */
	assert_false(c->load);
	assert_true(c->stopped);
	assert_int_equal(fake_stopped(), 8);
	nv_stop_or_go(l, &l->gpu[0], &c, 1, false, false);
	assert_int_equal(fake_stopped(), 0);
	down(l);
}

/* --- numbers of channels ---------------------------------------------------------------------- */

static struct nv_context *by(struct lever_nvidia *l, uint32_t cid, uint32_t pid)
{
	return nv_context_by_record(l, &l->gpu[0], cid, pid);
}

/*
 * Of two tenants the second says that its channels have the numbers of the first one's, and the GPU
 * time of the first would be charged to it.
 */
static void a_number_that_two_claim_is_the_right_ones(void **state)
{
	for (int liar_first = 0; liar_first < 2; liar_first++) {
		struct lever_nvidia *l;

		before(NULL);
		l = up();
		driver_knows(100, FIRST, 100);
		driver_knows(LIAR, SECOND, 500);
		if (liar_first) {
			cuda_process(into_lever, l, LIAR, SECOND, 100, 2);
			/* and it is taken for it, as long as no other one says so */
			assert_ptr_equal(by(l, 103, 0), context_of(l, LIAR));
		}
		cuda_process(into_lever, l, 100, FIRST, 100, 1);
		if (!liar_first)
			cuda_process(into_lever, l, LIAR, SECOND, 100, 2);
		assert_non_null(context_of(l, 100));
		assert_non_null(context_of(l, LIAR));
		for (uint32_t i = 0; i < 8; i++) {
			assert_ptr_equal(by(l, 100 + i, 0), context_of(l, 100));
			assert_ptr_equal(by(l, 100 + i, 100), context_of(l, 100));
			/* what it does itself is known by its process */
			assert_ptr_equal(by(l, 500 + i, LIAR), context_of(l, LIAR));
		}
		down(l);
	}
}

/* The first hides its numbers, and the second claims them. The driver names the first. */
static void a_number_that_only_a_liar_claims_is_not_its_own(void **state)
{
	struct lever_nvidia *l = up();

	driver_knows(100, FIRST, 100);
	driver_knows(LIAR, SECOND, 500);
	cuda_process(into_lever, l, 100, FIRST, 700, 1);
	cuda_process(into_lever, l, LIAR, SECOND, 100, 2);
	assert_ptr_equal(by(l, 100, 100), context_of(l, 100));
	assert_ptr_equal(by(l, 500, LIAR), context_of(l, LIAR));
	down(l);
}

/* The log has the processes' numbers of another namespace, where 100 is not this one. */
static void a_number_that_is_right_counts_more_than_a_process(void **state)
{
	struct lever_nvidia *l = up();
	uint64_t calls;

	driver_knows(100, FIRST, 100);
	driver_knows(101, SECOND, 120);
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	cuda_process(into_lever, l, 101, SECOND, 120, 2);
	calls = fake->calls;
	assert_ptr_equal(by(l, 120, 100), context_of(l, 101));
	assert_ptr_equal(by(l, 101, 4711), context_of(l, 100));
	for (int i = 0; i < 1000; i++)
		assert_ptr_equal(by(l, 120, 100), context_of(l, 101));
	assert_int_equal(fake->calls, calls + 1);
	down(l);
}

/* A driver that does not know the question: neither is believed more than the log's process. */
static void numbers_that_cannot_be_checked_count_for_the_first(void **state)
{
	struct lever_nvidia *l = up();

	fake_fail(NV2080_FIFO_GET_GROUP_UID, 0, NV_STATUS_NOT_SUPPORTED);
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	cuda_process(into_lever, l, LIAR, SECOND, 100, 2);
	assert_ptr_equal(by(l, 100, 100), context_of(l, 100));
	assert_ptr_equal(by(l, 500, LIAR), context_of(l, LIAR));
	down(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_client_that_a_liar_named_first_is_its_owners, before),
		cmocka_unit_test_setup(a_client_of_a_process_that_is_gone_is_its_owners, before),
		cmocka_unit_test_setup(an_older_program_is_adopted_though_a_liar_named_its_client,
				       before),
		cmocka_unit_test_setup(a_child_with_its_parents_descriptor_takes_nothing, before),
		cmocka_unit_test_setup(claims_that_are_not_so_cost_little, before),
		cmocka_unit_test_setup(a_liar_that_does_not_answer_keeps_nothing, before),
		cmocka_unit_test_setup(nothing_changes_while_it_cannot_be_told, before),
		cmocka_unit_test_setup(a_program_that_hides_its_context_is_governed, before),
		cmocka_unit_test_setup(
			a_program_that_hides_all_the_time_is_not_looked_for_all_the_time, before),
		cmocka_unit_test_setup(a_program_that_cannot_be_found_on_a_gpu_is_a_load, before),
		cmocka_unit_test_setup(a_number_that_two_claim_is_the_right_ones, before),
		cmocka_unit_test_setup(a_number_that_only_a_liar_claims_is_not_its_own, before),
		cmocka_unit_test_setup(a_number_that_is_right_counts_more_than_a_process, before),
		cmocka_unit_test_setup(numbers_that_cannot_be_checked_count_for_the_first, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
