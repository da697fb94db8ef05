// SPDX-License-Identifier: MIT
/*
 * test_life.c - programs that come, go and die for a long time, and a daemon that dies among them:
 * shares are right again soon, nothing stays stopped, and nothing grows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "act.h"
#include "contexts.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "rig.h"

/* Both vGPUs, as the host makes them: at its start, or when it has found them in its own file. */
static struct lever_nvidia *daemon_with_vgpus(const char *assigned)
{
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_guardian = true,
					  .allow_unguarded = true,
					  .assigned = assigned };
	struct rtxg_slice_tenant a = { .min_ppm = 800000 }, b = { .min_ppm = 200000 };
	struct lever_nvidia *l;

	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	fake->watched = &l->journal;
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 1, &a), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 2, &b), 0);
	lever_nvidia_restore(l);
	return l;
}

static void shares_are_right_two_seconds_after_a_kill(void **state)
{
	static const uint32_t clients[2] = { 0xc1d00030, 0xc1d00031 };
	char folder[] = "/tmp/rtxg-life-XXXXXX", path[100];
	struct lever_nvidia *dead, *l;
	uint32_t pids[2];
	double share;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/assigned", folder);
	for (int i = 0; i < 2; i++) {
		pids[i] = (uint32_t)sleeper();
		fake_object_add(pids[i], clients[i], 0, clients[i], NV_CLASS_ROOT_CLIENT, 0, 0);
		older_process(pids[i], clients[i], 0, 0x5c000000, 200 + 20 * (uint32_t)i);
	}
	dead = daemon_with_vgpus(path);
	for (int i = 0; i < 2; i++)
		assert_int_equal(lever_nvidia_assign(dead, pids[i], (uint32_t)i + 1), 0);
	turn_of(dead, 300 * MS, pids, clients);
	while (!stopped_on(0, clients[0]) && !stopped_on(0, clients[1]))
		turn_of(dead, MS, pids, clients);
	/* It is killed here, and the guardian lets everything go (test_guardian.c). */
	for (uint32_t i = 0; i < fake->channels; i++) {
		fake->channel[i].stopped = false;
		fake->channel[i].slice_us = NV_DRIVER_SLICE_US;
	}
	fake->next_client += 8;
	l = daemon_with_vgpus(path);
	for (int i = 0; i < 2; i++)
		assert_int_equal(process_of(l, pids[i]).vgpu, i + 1);
	turn_of(l, 2000 * MS, pids, clients);
	share = turn_of(l, 2000 * MS, pids, clients);
	print_message("80 %%: %.2f\n", 100 * share);
	assert_true(share > 0.78 && share < 0.82);
	assert_int_equal(fake->unjournaled, 0);
	fake->watched = NULL;
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
	lever_nvidia_close(dead);
	for (int i = 0; i < 2; i++) {
		kill((pid_t)pids[i], SIGKILL);
		waitpid((pid_t)pids[i], NULL, 0);
	}
	unlink(path);
	rmdir(folder);
}

static unsigned int entries(const char *folder)
{
	DIR *d = opendir(folder);
	unsigned int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static unsigned int mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned int n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n++;
	fclose(f);
	return n;
}

#define SLOTS 16u

struct slot {
	uint32_t pid, client, put; /* pid 0: free */
};

static struct slot slots[SLOTS];

static void ends(struct lever_nvidia *l, struct slot *s)
{
	fake_gone(s->client);
	switch (random() % 4) {
	case 0: /* it ends in order: everything is freed first */
		say(l, DISCOVER_FREE, s->pid, s->client, QUEUES);
		say(l, DISCOVER_FREE, s->pid, s->client, s->client);
		say(l, DISCOVER_EXIT, s->pid, 0, 0);
		break;
	case 1:
		say(l, DISCOVER_EXEC, s->pid, 0, 0);
		say(l, DISCOVER_EXIT, s->pid, 0, 0);
		break;
	case 2: /* its end is not told, and found out later */
		fake->dead = s->pid;
		l->prune = true;
		for (int i = 0; i < 30 && nv_registry_process(&l->registry, s->pid); i++) {
			fake->now += 300 * MS;
			lever_nvidia_dispatch(l);
		}
		assert_null(nv_registry_process(&l->registry, s->pid));
		fake->dead = 0;
		break;
	default:
		say(l, DISCOVER_EXIT, s->pid, 0, 0);
	}
	s->pid = 0;
}

static void churn(struct lever_nvidia *l, unsigned int rounds)
{
	static uint32_t next;

	for (unsigned int r = 0; r < rounds; r++) {
		struct slot *s = &slots[(unsigned long)random() % SLOTS];

		if (!s->pid) {
			s->pid = 1000 + ++next;
			s->client = 0xc1e00000 + next;
			if (random() % 4 == 0) {
				static const uint32_t what[] = { NVA06C_SET_TIMESLICE,
								 NV2080_FIFO_DISABLE_CHANNELS,
								 NV_ESC_RM_DUP_OBJECT,
								 NV_ESC_RM_MAP_MEMORY };

				fake->failures = 0;
				fake_fail(what[random() % 4], s->client, NV_STATUS_INVALID_STATE)
					->times = (uint32_t)random() % 9 + 1;
			}
			cuda_process(into_lever, l, s->pid, s->client, 0, (uint32_t)random() % 4);
		} else if (random() % 3 == 0) {
			ends(l, s);
		}
		for (uint32_t i = 0; i < SLOTS; i++) {
			struct fake_memory_object *m;

			if (!slots[i].pid || stopped_on(0, slots[i].client) || random() % 3)
				continue;
			m = queues_of(slots[i].client);
			slots[i].put++;
			fake_queue(m, QUEUE(random() % 8), slots[i].put, slots[i].put + 1);
			fake_log(NV_FECS_SIMPLE_START, slots[i].pid, 0, fake->now + EPOCH);
			fake->now += MS / 2;
			assert_int_equal(lever_nvidia_dispatch(l), 0);
			fake_log(NV_FECS_SIMPLE_END, slots[i].pid, 0, fake->now + EPOCH);
		}
		fake->now += MS / 2;
		assert_int_equal(lever_nvidia_dispatch(l), 0);
		assert_null(rtxg_slice_check(l->gpu[0].slice));
	}
}

static void nothing_grows_over_a_long_life(void **state)
{
	struct rtxg_slice_tenant t[4] = { { 0 },
					  { .min_ppm = 300000, .latency_ns = 5 * MS },
					  { .min_ppm = 200000 },
					  { .priority = RTXG_SLICE_CRITICAL_PRIORITY } };
	unsigned int fds, maps;
	struct lever_nvidia *l;
	size_t memory;
	int own_fds;

	srandom(3);
	with_queues = true;
	l = lever_up();
	for (uint32_t v = 1; v < 4; v++)
		assert_int_equal(lever_nvidia_vgpu_set(l, 0, v, &t[v]), 0);
	churn(l, 3000);
	for (uint32_t i = 0; i < SLOTS; i++)
		if (slots[i].pid)
			ends(l, &slots[i]);
	fds = entries("/proc/self/fd");
	maps = mappings();
	own_fds = fake->open_fds;
	memory = mallinfo2().uordblks;
	for (int round = 0; round < 3; round++) {
		churn(l, 3000);
		for (uint32_t i = 0; i < SLOTS; i++)
			if (slots[i].pid)
				ends(l, &slots[i]);
		assert_int_equal(entries("/proc/self/fd"), fds);
		assert_int_equal(fake->open_fds, own_fds);
		assert_true(mappings() <= maps + 2);
		assert_true(mallinfo2().uordblks <= memory + 16384);
		assert_int_equal(fake_dups(), 0);
		assert_int_equal(fake_maps(), 0);
		assert_int_equal(fake_stopped(), 0);
		assert_int_equal(nv_journal_count(&l->journal), 0);
		assert_int_equal(l->registry.count, 0);
		for (uint32_t i = 0; i < NV_JOURNAL_SLICES; i++)
			assert_int_equal(l->journal.page->slice[i].used, 0);
	}
	print_message("%u descriptors, %u mappings, %zu KiB before; %zu KiB after\n", fds, maps,
		      memory / 1024, mallinfo2().uordblks / 1024);
	assert_int_equal(fake->unjournaled, 0);
	assert_int_equal(fake->wild_maps, 0);
	lever_nvidia_close(l);
	assert_int_equal(fake->open_fds, 0);
}

/*
 * The host's CPU was taken away for a while, or the driver kept a call: both are told, for they are
 * why something stayed stopped that was to go on.
 */
static void coming_late_is_counted(void **state)
{
	struct lever_nvidia_stats before, after;
	struct lever_nvidia *l = two_tenants();

	turn_for(l, 200 * MS);
	lever_nvidia_stats(l, &before);
	assert_in_range(before.late_most_ns, 0, 3 * MS);
	fake->now += 40 * MS;
	assert_int_equal(lever_nvidia_dispatch(l), 0);
	lever_nvidia_stats(l, &after);
	assert_in_range(after.late_most_ns, 30 * MS, 40 * MS);
	/* 50 ms is a limit, 25 ms the one before it. */
	assert_int_equal(rtxg_slice_wait_limit(8), 50 * MS);
	assert_int_equal(after.late[8], before.late[8] + 1);
	assert_in_range(after.call_most_ns, 0, 1 * MS);
	before = after;
	fake->delay_ns = 7 * MS;
	turn_for(l, 50 * MS);
	lever_nvidia_stats(l, &after);
	assert_in_range(after.call_most_ns, 7 * MS, 8 * MS);
	assert_true(after.calls > before.calls);
	assert_true(after.calls_ns - before.calls_ns >= 7 * MS);
	assert_int_not_equal(after.call_most, 0);
	lever_nvidia_close(l);
}

/* Each reading of the log takes the lock that programs which start and end wait for. */
static void the_log_is_read_less_while_calls_are_slow(void **state)
{
	struct lever_nvidia_stats before, after;
	struct lever_nvidia *l = two_tenants();
	uint64_t quick;

	(void)state;
	turn_for(l, 100 * MS);
	lever_nvidia_stats(l, &before);
	turn_for(l, 400 * MS);
	lever_nvidia_stats(l, &after);
	quick = after.flushes - before.flushes;
	fake->delay_ns = 2 * MS;
	before = after;
	turn_for(l, 400 * MS);
	lever_nvidia_stats(l, &after);
	print_message("the log was read %u times in 400 ms, and %u times by calls of 2 ms\n",
		      (unsigned int)quick, (unsigned int)(after.flushes - before.flushes));
	/* 20 ms from one reading to the next, and what else is called takes 2 ms, too. */
	assert_in_range(after.flushes - before.flushes, 10, 21);
	assert_true(quick > 40);
	lever_nvidia_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(coming_late_is_counted, before),
		cmocka_unit_test_setup(the_log_is_read_less_while_calls_are_slow, before),
		cmocka_unit_test_setup(shares_are_right_two_seconds_after_a_kill, before),
		cmocka_unit_test_setup(nothing_grows_over_a_long_life, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
