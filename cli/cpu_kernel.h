/* SPDX-License-Identifier: MIT */
/*
 * cpu_kernel.h - policy and affinity of a thread, by the kernel.
 */
#ifndef RTXG_CLI_CPU_KERNEL_H
#define RTXG_CLI_CPU_KERNEL_H

#include <stddef.h>
#include <sys/types.h>

#include "cpu_policy.h"

/* Sets the policy of a thread (0: the caller). Negative errno, without a word. */
int cpu_kernel_set(pid_t thread, const struct cpu_settings *settings);
/* Sets the affinity of a thread. Negative errno after complaining. */
int cpu_kernel_affinity(pid_t thread, const cpu_set_t *affinity);
/* What a thread has. Negative errno, without a word. */
int cpu_kernel_read(pid_t thread, struct cpu_settings *settings);
/* Tries a policy in a child. 0 if permitted, else negative errno and the reason in why. */
int cpu_kernel_probe(int policy, char *why, size_t size);

#endif
