// SPDX-License-Identifier: MIT
/*
 * test_unknown.c - the table of processes whose channels are not known: one user's processes take
 * neither the places nor the time of others', and what is known against none is not said of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "adopt.h"
#include "fake_nvidiactl.h"
#include "rig.h"
#include "state.h"
#include "unknown.h"
#include "unknown_table.h"

#define ONE   102u
#define OTHER 5000u /* the first process of the other user */
#define MANY  100u

static int lines, unfollowed;

static void count(void *ctx, enum lever_nvidia_log level, const char *line)
{
	(void)ctx;
	(void)level;
	lines += strstr(line, "UNMANAGED") != NULL;
	unfollowed += strstr(line, "not followed") != NULL;
}

static struct lever_nvidia *up(void)
{
	struct lever_nvidia *l = lever_up();

	l->ops.log = count;
	lines = unfollowed = 0;
	fake->now += 1000 * MS;
	return l;
}

static struct nv_context *context_of(struct lever_nvidia *l, uint32_t pid)
{
	struct nv_process *p = nv_registry_process(&l->registry, pid);

	return p ? nv_context_of(&l->gpu[0], p) : NULL;
}

/* A process that has the driver open, and channels that no record tells of. */
static void unseen(uint32_t pid, uint32_t client, uint32_t cid)
{
	fake_object_add(pid, client, 0, client, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process(pid, client, 0, 0x5c000000, cid);
}

/* Its descriptors may not be looked at. */
static void closed(struct lever_nvidia *l, uint32_t pid)
{
	fake_object_add(pid, 0xc1d00030, 0, 0xc1d00030, NV_CLASS_ROOT_CLIENT, 0, 0);
	fake->getfd_error = EPERM;
	fake->getfd_pid = pid;
	nv_adopt_unknown(l, &l->gpu[0], pid);
	assert_true(context_of(l, pid)->load);
}

static void short_programs_push_out_no_other(void **state)
{
	struct lever_nvidia *l = up();

	(void)state;
	closed(l, ONE);
	for (uint32_t pid = 1000; pid < 1000 + 2 * NV_UNKNOWN; pid++) {
		nv_unknown_of(l, pid, true);
		nv_known_now(l, pid);
	}
	assert_non_null(nv_unknown_of(l, ONE, false));
	lever_nvidia_close(l);
}

static void processes_of_one_user_push_out_his_own(void **state)
{
	struct lever_nvidia *l = up();

	(void)state;
	closed(l, ONE);
	fake->owner_from = OTHER;
	for (uint32_t pid = OTHER; pid < OTHER + 4 * NV_UNKNOWN; pid++)
		nv_unknown_of(l, pid, true);
	assert_non_null(nv_unknown_of(l, ONE, false));
	assert_non_null(nv_unknown_of(l, OTHER + 4 * NV_UNKNOWN - 1, false));
	assert_null(nv_unknown_of(l, OTHER, false));
	lever_nvidia_close(l);
}

/* For half a minute each of them works by turns, and each look costs 50 ms and more. */
static uint64_t looks_of_many(struct lever_nvidia *l)
{
	uint64_t end = fake->now + 30000 * MS, began, took = 0;

	for (uint32_t i = 0; fake->now < end; i++) {
		began = fake->now;
		if (!context_of(l, OTHER + i % MANY))
			nv_adopt_unknown(l, &l->gpu[0], OTHER + i % MANY);
		if (i % 250 == 0)
			nv_adopt_loads(l);
		took += fake->now - began;
		fake->now += MS;
	}
	return took;
}

static void many_processes_of_one_user_cost_others_little(void **state)
{
	struct lever_nvidia *l = up();
	uint32_t looked_for = 0, looks;
	uint64_t took;

	(void)state;
	closed(l, ONE);
	fake->getfd_pid = 0;
	fake->owner_from = OTHER;
	for (uint32_t i = 0; i < MANY; i++)
		fake_object_add(OTHER + i, 0xc1d00031, 0, 0xc1d00031, NV_CLASS_ROOT_CLIENT, 0, 0);
	fake->delay_ns = 50 * MS;
	looks = fake->users;
	took = looks_of_many(l);
	looks = fake->users - looks;
	print_message("looks took %u of 30000 ms\n", (unsigned int)(took / MS));
	assert_in_range(took, 500 * MS, 2000 * MS);
	/* The other's entry stands, and stands for a pause that has grown. */
	assert_non_null(nv_unknown_of(l, ONE, false));
	assert_true(nv_unknown_of(l, ONE, false)->pause > 1000 * MS);
	/* Those that were not looked for yet are loads, and it is not said that none was found. */
	for (uint32_t i = 0; i < MANY; i++) {
		const struct nv_context *c = context_of(l, OTHER + i);
		const struct nv_unknown *u = nv_unknown_of(l, OTHER + i, false);

		assert_true(c && c->load);
		looked_for += u && u->remedy;
		if (u && u->remedy)
			assert_string_equal(c->reason, u->remedy);
		else
			assert_null(strstr(c->reason, "not found"));
	}
	/* Each in its turn; the one that is not theirs had some looks, too. */
	assert_in_range(looked_for, 10, MANY);
	assert_in_range(looked_for, looks - 5, looks);
	/* And a process of another user is found at once, however many of these there are. */
	fake->delay_ns = 0;
	fake->getfd_error = 0;
	for (uint32_t i = 0; i < MANY; i++)
		nv_adopt_unknown(l, &l->gpu[0], OTHER + i);
	unseen(ONE + 1, FIRST, 200);
	nv_adopt_unknown(l, &l->gpu[0], ONE + 1);
	assert_false(context_of(l, ONE + 1)->load);
	lever_nvidia_close(l);
}

/* There are as many as may be: that is said once, and one more is tried again now and then. */
static void one_process_too_many_is_said_once(void **state)
{
	static struct lever_nvidia_process list[LEVER_NVIDIA_CONTEXTS + 8];
	struct lever_nvidia *l = up();
	uint64_t calls;
	int n;

	(void)state;
	for (uint32_t i = 0; i < LEVER_NVIDIA_CONTEXTS; i++)
		nv_context_add(l, &l->gpu[0], nv_registry_note(&l->registry, 1000 + i, "load"),
			       "as it is");
	unseen(ONE, FIRST, 200);
	nv_adopt_unknown(l, &l->gpu[0], ONE);
	calls = fake->calls;
	for (int i = 0; i < 1000; i++, fake->now += MS)
		nv_adopt_unknown(l, &l->gpu[0], ONE);
	assert_int_equal(fake->calls, calls);
	assert_int_equal(lines, 1);
	n = lever_nvidia_processes(l, list, LEVER_NVIDIA_CONTEXTS + 8);
	assert_int_equal(n, LEVER_NVIDIA_CONTEXTS + 1);
	assert_int_equal(list[n - 1].pid, ONE);
	assert_non_null(strstr(list[n - 1].remedy, "one process too many"));
	fake->now += 60000 * MS;
	nv_adopt_unknown(l, &l->gpu[0], ONE);
	assert_int_equal(lines, 1);
	say(l, DISCOVER_EXIT, 1000, 0, 0);
	fake->now += 60000 * MS;
	nv_adopt_unknown(l, &l->gpu[0], ONE);
	assert_false(context_of(l, ONE)->load);
	lever_nvidia_close(l);
}

/* Its records come: nothing was said of it, and nothing is kept. */
static void one_whose_records_wait_is_not_listed(void **state)
{
	struct lever_nvidia *l = up();
	struct lever_nvidia_process list[4];

	(void)state;
	fake_object_add(ONE, FIRST, 0, FIRST, NV_CLASS_ROOT_CLIENT, 0, 0);
	l->pump_again = fake->now;
	nv_adopt_unknown(l, &l->gpu[0], ONE);
	assert_non_null(nv_unknown_of(l, ONE, false));
	assert_int_equal(lever_nvidia_processes(l, list, 4), 0);
	cuda_process(into_lever, l, ONE, FIRST, 200, 0);
	assert_false(context_of(l, ONE)->load);
	assert_null(nv_unknown_of(l, ONE, false));
	lever_nvidia_close(l);
}

/* What it had ends there, and no record says so. */
static void a_load_ends_where_another_program_begins(void **state)
{
	struct lever_nvidia *l = up();

	(void)state;
	closed(l, ONE);
	say(l, DISCOVER_EXEC, ONE, 0, 0);
	assert_null(context_of(l, ONE));
	assert_null(nv_unknown_of(l, ONE, false));
	lever_nvidia_close(l);
}

/* It works by turns for 2 ms, or rests, while the lever goes on. */
static void pass(struct lever_nvidia *l, uint32_t seconds, bool works)
{
	for (uint32_t i = 0; i < 4 * seconds; i++, fake->now += 248 * MS) {
		if (works)
			fake_log(NV_FECS_SIMPLE_START, ONE, 0, fake->now + EPOCH);
		fake->now += 2 * MS;
		if (works)
			fake_log(NV_FECS_SIMPLE_END, ONE, 0, fake->now + EPOCH);
		assert_int_equal(lever_nvidia_dispatch(l), 0);
	}
}

/* It lives on, and its place is another's; it has one again once it has the GPU again. */
static void a_load_that_closes_the_gpu_gives_its_place_back(void **state)
{
	struct lever_nvidia *l = up();
	uint64_t lists;

	(void)state;
	closed(l, ONE);
	/* While its descriptors are there they keep its place, */
	pass(l, 120, false);
	assert_true(context_of(l, ONE)->load);
	/* and so does its work without any, as of a process whose first thread has ended. */
	fake->objects--;
	pass(l, 120, true);
	assert_true(context_of(l, ONE)->load);
	pass(l, 20, false);
	assert_true(context_of(l, ONE)->load);
	pass(l, 100, false);
	assert_null(context_of(l, ONE));
	assert_null(nv_unknown_of(l, ONE, false));
	/* Then it is not looked at any more. */
	lists = fake->lists;
	pass(l, 100, false);
	assert_int_equal(fake->lists, lists);
	/* It has the GPU again, and then in a way that can be governed. */
	fake_object_add(ONE, 0xc1d00030, 0, 0xc1d00030, NV_CLASS_ROOT_CLIENT, 0, 0);
	nv_adopt_unknown(l, &l->gpu[0], ONE);
	assert_true(context_of(l, ONE)->load);
	cuda_process(into_lever, l, ONE, FIRST, 200, 0);
	assert_false(context_of(l, ONE)->load);
	lever_nvidia_close(l);
}

/* All places are those of one user's programs, which go on without the GPU. */
static void loads_that_closed_the_gpu_take_no_place_for_ever(void **state)
{
	struct lever_nvidia *l = up();
	struct lever_nvidia_stats stats;

	(void)state;
	fake->owner_from = OTHER;
	for (uint32_t i = 0; i < LEVER_NVIDIA_CONTEXTS; i++)
		nv_context_add(l, &l->gpu[0], nv_registry_note(&l->registry, OTHER + i, "load"),
			       "as it is");
	pass(l, 25, false);
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.loads, LEVER_NVIDIA_CONTEXTS);
	/* A look takes 10 ms: one user's processes have one in each watch. */
	fake->list_ns = 5 * MS;
	pass(l, 60, false);
	lever_nvidia_stats(l, &stats);
	assert_in_range(stats.loads, LEVER_NVIDIA_CONTEXTS - 100, LEVER_NVIDIA_CONTEXTS - 1);
	pass(l, 30 + LEVER_NVIDIA_CONTEXTS, false);
	lever_nvidia_stats(l, &stats);
	assert_int_equal(stats.loads, 0);
	fake->list_ns = 0;
	unseen(ONE, FIRST, 200);
	nv_adopt_unknown(l, &l->gpu[0], ONE);
	assert_false(context_of(l, ONE)->load);
	lever_nvidia_close(l);
}

/* The log names a process that does not seem to have the driver open. */
static void one_without_descriptors_is_not_looked_for_all_the_time(void **state)
{
	struct lever_nvidia *l = up();
	uint64_t calls = fake->calls;
	uint32_t looks = fake->users;

	(void)state;
	for (int i = 0; i < 900; i++, fake->now += MS)
		nv_adopt_unknown(l, &l->gpu[0], ONE);
	assert_int_equal(fake->users - looks, 1);
	assert_true(fake->calls - calls < 10);
	assert_null(context_of(l, ONE));
	fake->now += 1000 * MS;
	unseen(ONE, FIRST, 200);
	nv_adopt_unknown(l, &l->gpu[0], ONE);
	assert_false(context_of(l, ONE)->load);
	/* One that has ended is forgotten: the next process of its number is another. */
	closed(l, ONE + 1);
	fake->now += 60000 * MS;
	fake->dead = ONE + 1;
	fake->objects--;
	nv_adopt_loads(l);
	nv_adopt_unknown(l, &l->gpu[0], ONE + 1);
	assert_null(nv_unknown_of(l, ONE + 1, false));
	lever_nvidia_close(l);
}

/* Its context works until the driver has taken it down, while others of its user are looked for. */
static void one_that_ends_is_no_load(void **state)
{
	struct lever_nvidia *l = up();

	(void)state;
	closed(l, ONE);
	fake->delay_ns = 50 * MS;
	fake->now += 60000 * MS;
	nv_adopt_unknown(l, &l->gpu[0], ONE);
	assert_true(context_of(l, ONE)->load);
	for (int i = 0; i < 100; i++, fake->now += MS)
		nv_adopt_unknown(l, &l->gpu[0], ONE + 1);
	assert_null(context_of(l, ONE + 1));
	assert_null(nv_unknown_of(l, ONE + 1, false));
	/* One that has the driver is a load until it is looked for. */
	fake_object_add(ONE + 2, 0xc1d00031, 0, 0xc1d00031, NV_CLASS_ROOT_CLIENT, 0, 0);
	nv_adopt_unknown(l, &l->gpu[0], ONE + 2);
	assert_true(context_of(l, ONE + 2)->load);
	lever_nvidia_close(l);
}

/*
 * Its list of descriptors cannot be had (of its user others hang), or shows none while it works for
 * longer than a context takes to go: it is a load, and said to be one.
 */
static void one_that_works_on_is_a_load_at_last(void **state)
{
	static const int errors[] = { EBUSY, ETIMEDOUT, EACCES };

	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		struct lever_nvidia *l = up();

		fake->list_error = errors[i];
		nv_adopt_unknown(l, &l->gpu[0], ONE);
		assert_true(context_of(l, ONE)->load);
		assert_int_equal(lines, 1);
		lever_nvidia_close(l);
		fake_reset();
	}
	for (int ends = 0; ends < 2; ends++) {
		struct lever_nvidia *l = up();

		nv_adopt_unknown(l, &l->gpu[0], ONE);
		assert_null(context_of(l, ONE));
		fake->now += 1100 * MS;
		fake->dead = ends ? ONE : 0;
		nv_adopt_unknown(l, &l->gpu[0], ONE);
		assert_true(ends ? !context_of(l, ONE) : context_of(l, ONE)->load);
		assert_int_equal(lines, !ends);
		lever_nvidia_close(l);
		fake_reset();
	}
}

/* Of those nothing is known: they fill no list of those that have the driver. */
static void descriptors_that_are_not_shown_are_no_use_of_the_driver(void **state)
{
	static const int errors[] = { EBUSY, EACCES };

	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		struct lever_nvidia *l = up();

		fake->list_error = errors[i];
		assert_int_equal(nv_users(l->sys, NULL, 0), 0);
		nv_adopt_old(l);
		assert_int_equal(lines, 0);
		lever_nvidia_close(l);
		fake_reset();
	}
}

/* No record is missing for that, so no process is looked for; it is said, and not all the time. */
static void processes_that_are_not_followed_are_told_of(void **state)
{
	struct lever_nvidia *l = up();
	struct discover_record r = { .kind = DISCOVER_LOST,
				     .object = 1,
				     .value = DISCOVER_UNWATCHED };

	(void)state;
	cuda_process(into_lever, l, ONE, FIRST, 200, 0);
	l->options.assigned =
		"none"; /* what was put into vGPUs is looked for among their children */
	for (int i = 0; i < 1000; i++)
		nv_contexts_feed(l, &r);
	assert_false(nv_registry_process(&l->registry, ONE)->missed || l->rescan);
	assert_int_equal(l->registry.lost, 0);
	assert_true(l->inheriting);
	assert_in_range(unfollowed, 1, 12);
	l->options.assigned = NULL;
	lever_nvidia_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(short_programs_push_out_no_other, before),
		cmocka_unit_test_setup(processes_of_one_user_push_out_his_own, before),
		cmocka_unit_test_setup(many_processes_of_one_user_cost_others_little, before),
		cmocka_unit_test_setup(one_process_too_many_is_said_once, before),
		cmocka_unit_test_setup(one_whose_records_wait_is_not_listed, before),
		cmocka_unit_test_setup(a_load_ends_where_another_program_begins, before),
		cmocka_unit_test_setup(a_load_that_closes_the_gpu_gives_its_place_back, before),
		cmocka_unit_test_setup(loads_that_closed_the_gpu_take_no_place_for_ever, before),
		cmocka_unit_test_setup(processes_that_are_not_followed_are_told_of, before),
		cmocka_unit_test_setup(one_that_ends_is_no_load, before),
		cmocka_unit_test_setup(one_that_works_on_is_a_load_at_last, before),
		cmocka_unit_test_setup(descriptors_that_are_not_shown_are_no_use_of_the_driver,
				       before),
		cmocka_unit_test_setup(one_without_descriptors_is_not_looked_for_all_the_time,
				       before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
