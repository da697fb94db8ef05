// SPDX-License-Identifier: MIT
/*
 * w_flips.c - shows that KASAN's report in drm_atomic_helper_wait_for_vblanks() is the kernel's own
 * (OTHERS in tests/vm/rtxgvm/ktap.py). No module of ours is loaded while a client shows two buffers
 * in turn: alone, and beside a real-time thread on one CPU, which interrupts the kernel's worker
 * between two flips. For the guest of tests/vm/run:
 *
 *   tests/vm/run --add t_flips=build/vm/guest/w_flips 6.12-debug t_flips
 */
#include "flips.h"

#include <sys/prctl.h>

#define FLIPS 300
#define MS    1000000ull

/* Runs for 200 ms of its CPU's time, 50 to 150 ms after it did so before. */
static void run_in_bursts(int cpu)
{
	const struct sched_param param = { .sched_priority = 50 };
	unsigned int random = 1;
	cpu_set_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) || sched_setscheduler(0, SCHED_FIFO, &param))
		_exit(1);
	for (;;) {
		uint64_t begin;

		random = random * 1103515245 + 12345;
		sleep_ns((50 + (random >> 8) % 100) * MS);
		begin = thread_cpu_ns();
		while (thread_cpu_ns() - begin < 200 * MS)
			;
	}
}

/* How many reports the kernel's log holds so far. */
static int reports(void)
{
	FILE *file =
		popen("dmesg | grep -c 'KASAN: .* in drm_atomic_helper_wait_for_vblanks'", "r");
	int count = -1;

	check(file && fscanf(file, "%d", &count) == 1, "the kernel's log cannot be read");
	if (file)
		pclose(file);
	return count;
}

static void flip_beside(int cpu)
{
	int before = reports(), status = 0;
	struct client client;
	pid_t bursts = 0;

	check(shell("grep -q rtxg /proc/modules"), "a module of ours is loaded");
	check(load_virtio_gpu(), "this kernel has no virtio-gpu");
	fflush(NULL);
	if (cpu >= 0 && !(bursts = fork()))
		run_in_bursts(cpu);
	client = begin_client();
	for (int i = 0; i < FLIPS; i++)
		await_flip(&client);
	end_client(&client);
	if (bursts)
		check(!waitpid(bursts, &status, WNOHANG), "the thread has ended: %x", status);
	if (bursts > 0 && !kill(bursts, SIGKILL))
		waitpid(bursts, NULL, 0);
	note("%d flips, %d reports", FLIPS, reports() - before);
}

static void test_flips_alone(void)
{
	flip_beside(-1);
}

static void test_flips_beside_bursts_on_cpu_0(void)
{
	flip_beside(0);
}

static void test_flips_beside_bursts_on_cpu_1(void)
{
	flip_beside(1);
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "flips_alone", test_flips_alone },
		{ "flips_beside_bursts_on_cpu_0", test_flips_beside_bursts_on_cpu_0 },
		{ "flips_beside_bursts_on_cpu_1", test_flips_beside_bursts_on_cpu_1 },
	};

	shell("rmmod rtxg_edu; echo -1 >/proc/sys/kernel/sched_rt_runtime_us");
	return RUN(cases);
}
