// SPDX-License-Identifier: MIT
/*
 * t_rtxcpu.c - the rtx_cpu_* calls of librtxg, as a program uses them.
 */
#include "gpu.h"

#include <rtxg_cpu.h>

static int policy_now(void)
{
	return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
}

static void test_periodic_task(void)
{
	struct rtx_cpu_stats stats = { .size = sizeof(stats) };
	struct rtx_cpu_job job = { .size = sizeof(job) };
	struct sched_param param;

	check(rtx_cpu_set_period(10 * MS) == -EPERM, "before init");
	check(rtx_cpu_wait_period(NULL) == -EPERM, "before init");
	check(!rtx_cpu_init(), "init: %s", rtx_strerror());
	check(rtx_cpu_init() == -EALREADY, "init twice");
	check(rtx_cpu_wait_period(NULL) == -ENOENT, "wait_period before run");
	check(!rtx_cpu_set_scheduler(RTX_CPU_EDF, RTX_CPU_PARTITIONED) &&
		      !rtx_cpu_set_period(10 * MS) && !rtx_cpu_set_wcet(MS) && !rtx_cpu_set_cpu(0),
	      "parameters: %s", rtx_strerror());
	check(!rtx_cpu_run(5 * MS), "run: %s", rtx_strerror());
	check(policy_now() == SCHED_FIFO, "policy %d", policy_now());
	for (int i = 2; i < 7; i++) {
		uint64_t before = job.release_ns;

		check(!rtx_cpu_wait_period(&job), "wait_period: %s", rtx_strerror());
		check(job.job == (uint64_t)i && (!before || job.release_ns == before + 10 * MS) &&
			      job.deadline_ns == job.release_ns + 10 * MS &&
			      rtxg_now_ns() >= job.release_ns,
		      "job %" PRIu64 " release %" PRIu64, job.job, job.release_ns);
	}
	/* changes take effect while it runs; a bad one changes nothing */
	check(rtx_cpu_set_period(1) == -EINVAL, "period of 1 ns");
	check(!rtx_cpu_wait_period(&job), "wait_period after a refusal: %s", rtx_strerror());
	check(!rtx_cpu_set_scheduler(RTX_CPU_RM, 0), "rate monotonic: %s", rtx_strerror());
	check(!sched_getparam(0, &param) && param.sched_priority == 89, "priority %d",
	      param.sched_priority);
	const uint64_t second = 2, third = 4;
	cpu_set_t mask;

	check(!rtx_cpu_set_cluster(&second, 1), "cluster: %s", rtx_strerror());
	check(rtx_cpu_set_cluster(&third, 1) == -EINVAL, "a cluster of a CPU that is not there");
	/* any other change leaves it in its cluster */
	check(!rtx_cpu_set_period(20 * MS) && !sched_getaffinity(0, sizeof(mask), &mask) &&
		      CPU_COUNT(&mask) == 1 && CPU_ISSET(1, &mask),
	      "not on CPU 1 alone: %s", rtx_strerror());
	check(!rtx_cpu_set_cluster(NULL, 0) && !sched_getaffinity(0, sizeof(mask), &mask) &&
		      CPU_COUNT(&mask) == 2,
	      "still in the cluster: %s", rtx_strerror());
	check(!rtx_cpu_background(true) && policy_now() == SCHED_IDLE, "background: %d",
	      policy_now());
	check(!rtx_cpu_background(false) && policy_now() == SCHED_FIFO, "foreground: %d",
	      policy_now());
	check(rtx_cpu_reserve_start() == -EINVAL, "a budget without a runtime");
	check(!rtx_cpu_set_runtime(5 * MS), "budget: %s", rtx_strerror());
	check(rtx_cpu_reserve_start() == -EALREADY, "a budget begins with its runtime");
	check(!rtx_cpu_reserve_stop() && !rtx_cpu_reserve_start(), "reserve: %s", rtx_strerror());
	check(!rtx_cpu_wait_interval(MS) && !rtx_cpu_sleep(MS), "sleep: %s", rtx_strerror());
	check(!rtx_cpu_stats(&stats) && stats.jobs == 7 && stats.exec_ns > 0,
	      "stats: %" PRIu64 " jobs", stats.jobs);
	check(!rtx_cpu_exit() && policy_now() == SCHED_OTHER, "after exit: %d", policy_now());
	check(rtx_cpu_exit() == -EPERM, "exit twice");
}

static pid_t suspended_tid;

static void *suspended(void *result)
{
	if (rtx_cpu_init() || rtx_cpu_set_priority(5) || rtx_cpu_set_period(10 * MS) ||
	    rtx_cpu_run(0))
		return NULL;
	__atomic_store_n(&suspended_tid, gettid(), __ATOMIC_RELEASE);
	*(int *)result = rtx_cpu_suspend();
	/* ends without rtx_cpu_exit: what it had goes with the thread */
	return NULL;
}

static void test_suspend_and_threads(void)
{
	int result = 1;
	pthread_t thread;

	check(!rtx_cpu_init(), "init");
	pthread_create(&thread, NULL, suspended, &result);
	while (!__atomic_load_n(&suspended_tid, __ATOMIC_ACQUIRE))
		sleep_ns(MS);
	check(!rtx_cpu_wake_up(suspended_tid), "wake up: %s", rtx_strerror());
	pthread_join(thread, NULL);
	check(!result, "suspend gave %d", result);
	check(rtx_cpu_wake_up(suspended_tid) < 0, "a thread that has ended is still known");
	check(!rtx_cpu_exit(), "exit");
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "something is held");
}

static volatile uint32_t fence;
static unsigned int yields, sleeps;

static int looked(void)
{
	if (yields + sleeps >= 5)
		fence = 1;
	return 0;
}

/*
 * librtxg's ways to wait for a fence: here they count, and the fence is written after a few looks.
 */
int sched_yield(void)
{
	yields++;
	return looked();
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
	sleeps++;
	return looked();
}

static void fence_once(rtx_gpu_t gpu)
{
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);

	notify.how = RTX_SYNC_FENCE;
	notify.word = &fence;
	notify.value = 1;
	fence = yields = sleeps = 0;
	check(!rtx_gpu_launch(gpu, RTX_COMPUTE) && !rtx_gpu_notify(gpu, RTX_COMPUTE, &notify) &&
		      !rtx_gpu_sync(gpu, RTX_COMPUTE),
	      "fence: %s", rtx_strerror());
}

/* The module sets SCHED_DEADLINE with RESET_ON_FORK; yielding would give the runtime away. */
static void test_fence_of_a_deadline_task_sleeps(void)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	rtx_gpu_t gpu;

	options.flags = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;
	check(!rtx_gpu_open(&gpu, &options), "open: %s", rtx_strerror());
	fence_once(gpu);
	check(yields == 5 && !sleeps, "SCHED_OTHER: %u yields, %u sleeps", yields, sleeps);
	check(!rtx_cpu_init() && !rtx_cpu_set_scheduler(RTX_CPU_DEADLINE, 0) &&
		      !rtx_cpu_set_period(100 * MS) && !rtx_cpu_set_runtime(10 * MS) &&
		      !rtx_cpu_run(0),
	      "deadline: %s", rtx_strerror());
	check(sched_getscheduler(0) == (6 | SCHED_RESET_ON_FORK), "policy %#x",
	      sched_getscheduler(0));
	fence_once(gpu);
	check(!yields && sleeps == 5, "SCHED_DEADLINE: %u yields, %u sleeps", yields, sleeps);
	check(!rtx_cpu_exit() && !rtx_gpu_close(gpu), "end: %s", rtx_strerror());
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "periodic_task", test_periodic_task },
		{ "suspend_and_threads", test_suspend_and_threads },
		{ "fence_of_a_deadline_task_sleeps", test_fence_of_a_deadline_task_sleeps },
	};

	load_module();
	return RUN(cases);
}
