/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy_null.c - no arbitration between vGPUs: each has a permit at any time. Inside a vGPU one
 * task at a time holds it.
 *
 * Good for measuring what rtxg itself costs, and for a GPU whose own scheduler is to decide. There
 * is no reservation and no cap.
 */
#include "policy.h"

const struct core_policy null_policy = {
	.summary = "vGPUs are not arbitrated",
	.shared = true,
};
