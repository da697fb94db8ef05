// SPDX-License-Identifier: MIT
/*
 * test_gpus.c - several GPUs: shares on each, contexts that are older than the lever, memory in
 * use.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "act.h"
#include "contexts.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "rig.h"
#include "watch.h"

/*
 * Two busy processes on each of two GPUs, 2 ms each, those that are not stopped. share: the
 * first one's part on each GPU.
 */
static void turn_both_for(struct lever_nvidia *l, const uint32_t client[2][2],
			  const uint32_t pid[2][2], uint64_t ns, double share[2])
{
	uint64_t end = fake->now + ns, work[2][2] = { { 0 } };
	int who[2] = { 0, 0 }, on[2];

	while (fake->now < end) {
		for (int g = 0; g < 2; g++) {
			on[g] = !stopped_on((uint32_t)g, client[g][1 - who[g]]) ? 1 - who[g]
				: !stopped_on((uint32_t)g, client[g][who[g]])	? who[g]
										: -1;
			if (on[g] < 0)
				continue;
			who[g] = on[g];
			fake_log_on((uint32_t)g, NV_FECS_SIMPLE_START, pid[g][who[g]], 0,
				    fake->now + EPOCH);
		}
		for (int i = 0; i < 4; i++) {
			fake->now += MS / 2;
			assert_true(lever_nvidia_dispatch(l) >= 0);
		}
		for (int g = 0; g < 2; g++)
			if (on[g] >= 0) {
				work[g][on[g]] += 2 * MS;
				fake_log_on((uint32_t)g, NV_FECS_SIMPLE_END, pid[g][on[g]], 0,
					    fake->now + EPOCH);
			}
		fake->now += 84000;
	}
	for (int g = 0; g < 2; g++)
		share[g] = (double)work[g][0] / (double)(work[g][0] + work[g][1]);
}

/* 40/60 on one GPU and 80/20 on the other at once; one process has contexts on both. */
static void two_gpus_have_shares_of_their_own(void **state)
{
	static const uint32_t clients[2][2] = { { 0xc1d00010, 0xc1d00011 },
						{ 0xc1d00012, 0xc1d00013 } };
	static const uint32_t pids[2][2] = { { 100, 101 }, { 100, 103 } };
	static const uint32_t percent[2][2] = { { 40, 60 }, { 80, 20 } };
	struct lever_nvidia_process list[8];
	struct lever_nvidia *l;
	double share[2];
	int n;

	fake->gpus = 2;
	l = lever_up();
	assert_int_equal(lever_nvidia_gpus(l), 2);
	for (uint32_t g = 0; g < 2; g++)
		for (uint32_t v = 0; v < 2; v++) {
			struct rtxg_slice_tenant t = { .min_ppm = percent[g][v] * 10000 };

			assert_int_equal(lever_nvidia_vgpu_set(l, g, v + 1, &t), 0);
			cuda_process_on(into_lever, l, g, pids[g][v], clients[g][v], 100 + 50 * v,
					v + 1);
		}
	turn_both_for(l, clients, pids, 300 * MS, share);
	turn_both_for(l, clients, pids, 3000 * MS, share);
	print_message("GPU 0: %.2f of 40 %%, GPU 1: %.2f of 80 %%\n", 100 * share[0],
		      100 * share[1]);
	assert_true(share[0] > 0.38 && share[0] < 0.42);
	assert_true(share[1] > 0.78 && share[1] < 0.82);
	assert_int_equal(fake->wrong_gpu, 0);
	assert_int_equal(fake->unjournaled, 0);
	for (uint32_t g = 0; g < 2; g++) {
		/* Each vGPU is on both, by one process or by two. */
		assert_true(l->gpu[g].coupled[1] && l->gpu[g].coupled[2]);
		assert_false(l->gpu[g].coupled[0]);
	}
	n = lever_nvidia_processes(l, list, 8);
	assert_int_equal(n, 4); /* the one on both GPUs twice */
	for (int i = 0; i < n; i++) {
		assert_int_equal(list[i].channels, 12);
		assert_true(list[i].work_ns > 500 * MS && list[i].work_ns < 3000 * MS);
		assert_int_equal(list[i].gpu, list[i].pid == 103 || i == 2 ? 1 : 0);
	}
	/* It leaves one GPU while it runs there, and the other knows nothing of it. */
	for (int i = 0; i < 100 && stopped_on(1, clients[1][0]); i++)
		turn_both_for(l, clients, pids, 2 * MS, share);
	assert_false(stopped_on(1, clients[1][0]));
	struct discover_record r;

	record(&r, 100, clients[1][0], 0, clients[1][0], 0, 0, 0);
	r.kind = DISCOVER_FREE;
	fake_gone(clients[1][0]);
	nv_contexts_feed(l, &r);
	assert_true(!l->gpu[0].coupled[1] && !l->gpu[1].coupled[1]);
	assert_true(l->gpu[0].coupled[2] && l->gpu[1].coupled[2]);
	lever_nvidia_enable(l, false);
	lever_nvidia_enable(l, true);
	assert_true(!l->gpu[0].coupled[1] && l->gpu[0].coupled[2] && l->gpu[1].coupled[2]);
	assert_int_equal(nv_journal_count(&l->journal), fake_stopped());
	n = lever_nvidia_processes(l, list, 8);
	assert_int_equal(n, 3);
	assert_int_equal(list[0].pid, 100);
	assert_int_equal(list[0].gpu, 0);
	assert_true(list[0].work_ns > 500 * MS);
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake->slice_us, NV_DRIVER_SLICE_US);
	assert_int_equal(fake->open_fds, 0);
}

static void memory_is_told_for_each_gpu_and_only_when_asked(void **state)
{
	struct lever_nvidia_process list[8];
	struct lever_nvidia *l;
	int n;

	fake->gpus = 2;
	l = lever_up();
	cuda_process_on(into_lever, l, 0, 100, 0xc1d00010, 100, 0);
	cuda_process_on(into_lever, l, 1, 100, 0xc1d00011, 150, 0);
	cuda_process_on(into_lever, l, 1, 103, 0xc1d00012, 200, 0);
	n = lever_nvidia_processes(l, list, 8);
	assert_int_equal(n, 3);
	for (int i = 0; i < n; i++)
		assert_true(list[i].memory_bytes == LEVER_NVIDIA_NOT_KNOWN);
	assert_int_equal(fake->memory_asked, 0);
	assert_int_equal(lever_nvidia_memory(l, list, n), 0);
	assert_int_equal(fake->memory_asked, 2);
	for (int i = 0; i < n; i++)
		assert_true(list[i].memory_bytes == fake_memory(list[i].gpu, list[i].pid));
	/* one whose books the driver does not open does not hide the others */
	fake->no_memory_of = 100;
	assert_int_equal(lever_nvidia_memory(l, list, n), 0);
	for (int i = 0; i < n; i++)
		assert_true(list[i].memory_bytes ==
			    (list[i].pid == 100 ? LEVER_NVIDIA_NOT_KNOWN
						: fake_memory(list[i].gpu, list[i].pid)));
	/* a driver that does not know the question */
	fake->fail_command = NV2080_GPU_GET_PID_INFO;
	fake->fail_status = NV_STATUS_INVALID_COMMAND;
	assert_int_equal(lever_nvidia_memory(l, list, n), -ENOTSUP);
	for (int i = 0; i < n; i++)
		assert_true(list[i].memory_bytes == LEVER_NVIDIA_NOT_KNOWN);
	lever_nvidia_close(l);
}

static void memory_of_more_processes_than_one_call_takes(void **state)
{
	enum { PROCESSES = 2 * NV_PID_INFO_ENTRIES + 1 };
	struct lever_nvidia_process *list = calloc(PROCESSES, sizeof(*list));
	struct lever_nvidia *l = lever_up();

	/* the lever's view is only the question's text: pids, a GPU, channels */
	for (uint32_t i = 0; i < PROCESSES; i++) {
		list[i].pid = 1000 + i;
		list[i].channels = i % 10 != 9; /* every tenth has no context that is known */
	}
	assert_int_equal(lever_nvidia_memory(l, list, PROCESSES), 0);
	assert_int_equal(fake->memory_asked, 2);
	for (uint32_t i = 0; i < PROCESSES; i++)
		assert_true(list[i].memory_bytes ==
			    (i % 10 != 9 ? fake_memory(0, 1000 + i) : LEVER_NVIDIA_NOT_KNOWN));
	lever_nvidia_close(l);
	free(list);
}

static void contexts_older_than_we_are_are_adopted_on_their_gpu(void **state)
{
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_guardian = true,
					  .allow_unguarded = true };
	pid_t one = sleeper(), both = sleeper();
	struct lever_nvidia_process list[8];
	struct lever_nvidia *l;
	int n, on[2] = { 0, 0 };

	fake->gpus = 2;
	fake->reversed = true; /* the lever counts along the PCI bus, the driver does not */
	fake->next_client = 0xc1d00080;
	fake_object_add((uint32_t)one, 0xc1d00041, 0, 0xc1d00041, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)one, 0xc1d00041, 1, 0x5c000000, 100);
	fake_object_add((uint32_t)both, 0xc1d00042, 0, 0xc1d00042, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)both, 0xc1d00042, 0, 0x5c000000, 200);
	/* beyond the first neighbourhood, and found on the way */
	older_process((uint32_t)both, 0xc1d00042, 1, 0x5c001800, 300);
	fake->channel[0].stopped = true; /* left so by a daemon that died with its guardian */
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	n = lever_nvidia_processes(l, list, 8);
	assert_int_equal(n, 3);
	for (int i = 0; i < n; i++) {
		assert_true(list[i].adopted);
		assert_true(list[i].managed);
		assert_int_equal(list[i].channels, 9);
		if (list[i].pid == (uint32_t)one)
			/* the driver's second is first on the bus */
			assert_int_equal(list[i].gpu, 0);
		else
			on[list[i].gpu]++;
	}
	assert_int_equal(on[0], 1);
	assert_int_equal(on[1], 1);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake->wrong_gpu, 0);
	lever_nvidia_close(l);
	assert_int_equal(fake->open_fds, 0);
	/* If it cannot be told which GPU it is on, it is left alone, and that is said. */
	fake->silent_subdevices = true;
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	n = lever_nvidia_processes(l, list, 8);
	assert_int_equal(n, 2);
	for (int i = 0; i < n; i++) {
		assert_true(list[i].pid == (uint32_t)one || list[i].pid == (uint32_t)both);
		assert_false(list[i].managed);
		assert_non_null(strstr(list[i].remedy, "restart it"));
		assert_string_equal(list[i].comm, "test_gpus");
	}
	lever_nvidia_close(l);
	kill(one, SIGKILL);
	kill(both, SIGKILL);
	waitpid(one, NULL, 0);
	waitpid(both, NULL, 0);
}

/*
 * Guests often have all GPUs on one bus. What the kernel log says of one is not said of the rest.
 */
static void an_xid_is_one_gpus_alone(void **state)
{
	static const char program[] = "4,100,1,-;NVRM: Xid (PCI:0000:00:07): 31, pid=100, fault\n";
	static const char card[] = "3,101,2,-;NVRM: Xid (PCI:0000:00:07): 79, GPU has fallen off\n";
	static const char unknown[] = "3,102,3,-;NVRM: Xid (PCI:0000:00:09): 79, GPU has fallen\n";
	struct lever_nvidia *l;
	int ends[2];

	fake->gpus = 2;
	fake->one_bus = true;
	l = lever_up();
	assert_int_equal(lever_nvidia_gpus(l), 2);
	assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
	if (l->kmsg >= 0)
		close(l->kmsg);
	l->kmsg = ends[0];
	assert_int_equal(write(ends[1], program, sizeof(program) - 1), sizeof(program) - 1);
	nv_read_kmsg(l);
	assert_false(l->gpu[0].lost || l->gpu[1].lost);
	assert_int_equal(write(ends[1], unknown, sizeof(unknown) - 1), sizeof(unknown) - 1);
	nv_read_kmsg(l);
	assert_false(l->gpu[0].lost || l->gpu[1].lost);
	assert_int_equal(write(ends[1], card, sizeof(card) - 1), sizeof(card) - 1);
	nv_read_kmsg(l);
	assert_false(l->gpu[0].lost);
	assert_true(l->gpu[1].lost);
	assert_int_equal(l->stats.xids, 3);
	close(ends[1]);
	lever_nvidia_close(l);
	assert_int_equal(fake->open_fds, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(two_gpus_have_shares_of_their_own, before),
		cmocka_unit_test_setup(memory_is_told_for_each_gpu_and_only_when_asked, before),
		cmocka_unit_test_setup(memory_of_more_processes_than_one_call_takes, before),
		cmocka_unit_test_setup(contexts_older_than_we_are_are_adopted_on_their_gpu, before),
		cmocka_unit_test_setup(an_xid_is_one_gpus_alone, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
