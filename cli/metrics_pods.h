/* SPDX-License-Identifier: MIT */
/* metrics_pods.h - the pod and the container of a process: see metrics_pods.c. */
#ifndef RTXG_CLI_METRICS_PODS_H
#define RTXG_CLI_METRICS_PODS_H

#include <stddef.h>

/* Where the kubelet has a link for the log of each container. */
#define METRICS_POD_LOGS "/var/log/containers"

/* Empty: none, or not known. Names are as long as Kubernetes lets them be. */
struct metrics_pod {
	char uid[40], id[65]; /* of the pod, of the container */
	char space[64], pod[254], container[64];
};

/*
 * Of the process at this place of the list, by proc/PID/cgroup, and by the names in logs. What a
 * process was found in is kept as long as it is at its place: a container's processes stay in it.
 */
struct metrics_pod metrics_pod_of(const char *proc, const char *logs, size_t place, long long pid);

#endif
