/* SPDX-License-Identifier: MIT */
/* metrics_pods.h - the pod and the container of a process: see metrics_pods.c. */
#ifndef RTXG_CLI_METRICS_PODS_H
#define RTXG_CLI_METRICS_PODS_H

#include <stddef.h>
#include <stdint.h>

struct metrics_pod {
	char uid[40], container[65]; /* empty: none */
};

/* A process as a host lists it. */
struct metrics_pod_process {
	uint64_t host_started, received_ns;
	long long pid, task; /* task: negative if it has none */
};

/*
 * Of the process at this place of the list, by proc/PID/cgroup. What the process of a task was found
 * in is kept as long as the task is: a container's processes stay in it. A process without a task is
 * looked at each time.
 */
struct metrics_pod metrics_pod_of(const char *proc, size_t place,
				  const struct metrics_pod_process *process);

#endif
