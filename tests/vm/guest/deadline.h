/* SPDX-License-Identifier: MIT */
/*
 * deadline.h - what the tests of SCHED_DEADLINE and the GPU share: the set of tasks that shows what
 * the kernel's wake-up rule (equation 1 of Linux-RTXG) costs a task that sleeps for its GPU.
 *
 * Each job has 5 ms of CPU, 45 ms on the GPU and 20 ms of CPU, with 80 of 100 ms reserved. Another
 * task's deadline falls in between.
 */
#ifndef RTXG_VM_DEADLINE_H
#define RTXG_VM_DEADLINE_H

#include "gpu.h"

#include <sys/utsname.h>

#include <rtxg/cpu.h>

#define DEADLINE_JOBS	repeats(4, 10)
#define DEADLINE_GPU_NS (45 * MS)

struct deadline_load {
	uint64_t start_ns;
	uint32_t misses;
	uint64_t max_response_ns;
	struct rtxg_cpu_stats stats;
	int err;
};

static inline void use_cpu(uint64_t ns)
{
	uint64_t end = thread_cpu_ns() + ns;

	while (thread_cpu_ns() < end)
		;
}

/*
 * PREEMPT_RT handles a driver's interrupt in a thread below SCHED_DEADLINE: what it wakes is late,
 * whatever it is charged.
 */
static inline bool forced_threads(void)
{
	struct utsname names;

	uname(&names);
	return strstr(names.version, "PREEMPT_RT") != NULL;
}

static inline int deadline_begin(int fd, uint64_t runtime_ns, uint32_t flags, uint64_t start_ns)
{
	struct rtxg_cpu_task params = { .size = sizeof(params),
					.policy = RTXG_CPU_DEADLINE,
					.flags = flags,
					.period_ns = 100 * MS,
					.runtime_ns = runtime_ns };
	struct rtxg_cpu_job job = { .size = sizeof(job), .start_ns = start_ns };

	return call(fd, RTXG_IOC_CPU_ATTACH, &params) ?: call(fd, RTXG_IOC_CPU_RUN, &job);
}

/* Jobs of the calling thread; gpu launches a kernel and waits for it. */
static inline void deadline_jobs(struct deadline_load *load, int (*gpu)(void *), void *argument)
{
	struct rtxg_cpu_job job = { .size = sizeof(job) };
	int fd = open_rtxg();

	load->err = load->err ?: deadline_begin(fd, 80 * MS, 0, load->start_ns);
	for (int i = 0; i < DEADLINE_JOBS && !load->err; i++) {
		use_cpu(5 * MS);
		load->err = gpu(argument);
		use_cpu(20 * MS);
		load->err = load->err ?: call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job);
		load->misses += job.missed;
		if (job.response_ns > load->max_response_ns)
			load->max_response_ns = job.response_ns;
	}
	load->stats = (struct rtxg_cpu_stats){ .size = sizeof(load->stats) };
	load->err = load->err ?: call(fd, RTXG_IOC_CPU_STATS, &load->stats);
	close(fd);
}

static inline void *deadline_between(void *start)
{
	struct rtxg_cpu_job job = { .size = sizeof(job) };
	int fd = open_rtxg(), err;

	err = deadline_begin(fd, 42 * MS, RTXG_CPU_F_NO_GPU_CHARGE, *(uint64_t *)start);
	for (int i = 0; i < DEADLINE_JOBS && !err; i++) {
		use_cpu(40 * MS);
		err = call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job);
	}
	close(fd);
	return NULL;
}

/* The thread does the jobs of load, which argument holds, beside the other task. */
static inline void deadline_set(const char *name, struct deadline_load *load,
				void *(*thread)(void *), void *argument)
{
	pthread_t threads[2];
	uint64_t between;
	char text[64];

	load->start_ns = rtxg_now_ns() + 50 * MS;
	between = load->start_ns + 49 * MS;
	pthread_create(&threads[0], NULL, thread, argument);
	pthread_create(&threads[1], NULL, deadline_between, &between);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	check(!load->err, "%s: %d %s", name, load->err, rtx_strerror());
	note("%s: %u of %d deadlines missed, longest response %.1f ms, %.0f ms charged", name,
	     load->misses, DEADLINE_JOBS, load->max_response_ns / 1e6,
	     load->stats.gpu_charged_ns / 1e6);
	snprintf(text, sizeof(text), "deadline_sync_misses_%s", name);
	value(text, load->misses * 10.0 / DEADLINE_JOBS, "of_10");
}

/* A wait that was not said to be one for the GPU: it costs deadlines. */
static inline void check_unsaid(const char *name, const struct deadline_load *load)
{
	check(!load->stats.gpu_charges, "%s: %" PRIu64 " charges", name,
	      (uint64_t)load->stats.gpu_charges);
	check(load->misses, "%s: the problem is not there", name);
}

/* A wait that was said: charged with between so much and so much a job. */
static inline void check_charged(const char *name, const struct deadline_load *load, uint64_t least,
				 uint64_t most)
{
	uint64_t charges = load->stats.gpu_charges, charged = load->stats.gpu_charged_ns;

	check(charges >= (uint64_t)DEADLINE_JOBS && charged > DEADLINE_JOBS * least &&
		      charged < DEADLINE_JOBS * most,
	      "%s: %" PRIu64 " charges, %.1f ms", name, charges, charged / 1e6);
}

/* The kernel's admission counts reserved time on the GPU as time on a CPU. */
static inline void admission_off(char limit[32])
{
	check(read_text("/proc/sys/kernel/sched_rt_runtime_us", limit, 32) &&
		      !shell("echo -1 >/proc/sys/kernel/sched_rt_runtime_us; "
			     "echo 0 >/sys/module/rtxg/parameters/admission"),
	      "admission cannot be switched off");
}

static inline void admission_on(const char *limit)
{
	char command[160];

	snprintf(command, sizeof(command),
		 "echo %s >/proc/sys/kernel/sched_rt_runtime_us; "
		 "echo 1 >/sys/module/rtxg/parameters/admission",
		 limit);
	check(!shell(command), "admission cannot be switched on again");
}

#endif
