// SPDX-License-Identifier: MIT
/*
 * cpu_kernel.c - policy and affinity of a thread, by the kernel's own system calls.
 *
 * May not: work around a refusal.
 */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu_kernel.h"
#include "cpu_policy.h"
#include "cpu_why.h"
#include "message.h"
#include "value.h"

#define FLAG_RESET_ON_FORK 1ull /* SCHED_FLAG_RESET_ON_FORK */

/* As the kernel has it (version 0); the C library's own differs from release to release. */
struct sched_attributes {
	uint32_t size;
	uint32_t policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

_Static_assert(sizeof(struct sched_attributes) == 48, "SCHED_ATTR_SIZE_VER0 of the kernel");

int cpu_kernel_set(pid_t pid, const struct cpu_settings *settings)
{
	struct sched_attributes attributes = {
		.size = sizeof(attributes),
		.policy = (uint32_t)settings->policy,
		.nice = settings->nice,
	};

	if (cpu_policy_realtime(settings->policy))
		attributes.priority = (uint32_t)settings->priority;
	if (settings->policy == SCHED_DEADLINE) {
		attributes.runtime = settings->runtime_ns;
		attributes.deadline = settings->deadline_ns;
		attributes.period = settings->period_ns;
		/*
		 * Without it the program could not create a thread: the kernel does not clone a
		 * deadline task.
		 */
		attributes.flags = FLAG_RESET_ON_FORK;
	}
	return syscall(SYS_sched_setattr, pid, &attributes, 0) == 0 ? 0 : -errno;
}

int cpu_kernel_affinity(pid_t pid, const cpu_set_t *affinity)
{
	char asked[256];
	int ret;

	if (sched_setaffinity(pid, sizeof(*affinity), affinity) == 0)
		return 0;
	ret = -errno;
	value_format_cpus(affinity, asked, sizeof(asked));
	if (ret == -EINVAL)
		message_error(
			"--affinity %s: none of these CPUs is there for this process (%ld are "
			"online; a cpuset may allow fewer)",
			asked, sysconf(_SC_NPROCESSORS_ONLN));
	else if (ret == -EPERM)
		message_error("--affinity %s: process %d is another user's; only root may move it",
			      asked, (int)pid);
	else
		message_error("--affinity %s: %s", asked, strerror(-ret));
	return ret;
}

int cpu_kernel_read(pid_t pid, struct cpu_settings *settings)
{
	struct sched_attributes attributes = { 0 };

	memset(settings, 0, sizeof(*settings));
	if (syscall(SYS_sched_getattr, pid, &attributes, (unsigned int)sizeof(attributes), 0))
		return -errno;
	settings->has_policy = true;
	settings->policy = (int)attributes.policy;
	settings->priority = (int)attributes.priority;
	settings->nice = attributes.nice;
	/* For a fair policy kernels since 6.12 tell the slice here, which is no reservation. */
	if (settings->policy == SCHED_DEADLINE) {
		settings->runtime_ns = attributes.runtime;
		settings->deadline_ns = attributes.deadline;
		settings->period_ns = attributes.period;
	}
	settings->has_affinity =
		sched_getaffinity(pid, sizeof(settings->affinity), &settings->affinity) == 0;
	return 0;
}

int cpu_kernel_probe(int policy, char *why, size_t size)
{
	struct cpu_settings settings = {
		.has_policy = true,
		.policy = policy,
		.priority = cpu_policy_realtime(policy) ? 1 : 0,
		.runtime_ns = 100000,
		.deadline_ns = 100000000,
		.period_ns = 100000000,
	};
	struct cpu_machine machine;
	int status, ret;
	pid_t child = fork();

	if (child < 0)
		return -errno;
	if (child == 0)
		_exit(-cpu_kernel_set(0, &settings));
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	ret = WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
	if (ret) {
		cpu_why_look(&machine);
		cpu_why_kernel(&settings, ret, &machine, why, size);
	}
	return ret;
}
