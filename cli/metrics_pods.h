/* SPDX-License-Identifier: MIT */
/* metrics_pods.h - the pod and the container of a process: see metrics_pods.c. */
#ifndef RTXG_CLI_METRICS_PODS_H
#define RTXG_CLI_METRICS_PODS_H

#include <stddef.h>

struct metrics_pod {
	char uid[40], container[65]; /* empty: none */
};

/*
 * Of the process at this place of the list, by proc/PID/cgroup. What a process was found in is kept as
 * long as it is at its place: a container's processes stay in it.
 */
struct metrics_pod metrics_pod_of(const char *proc, size_t place, long long pid);

#endif
