/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy.c - the table of policies, made of the lines in policies.h, and the words for policies and
 * engines: the same in configuration files, commands, manual pages and traces.
 */
#include "policy.h"

#define DECLARE(WORD, word) extern const struct core_policy word##_policy;
RTXG_GPU_POLICY_LIST(DECLARE)

#define ENTRY(WORD, word) [RTXG_GPU_##WORD] = { #word, &word##_policy },
static const struct {
	const char *name;
	const struct core_policy *policy;
} policies[] = { RTXG_GPU_POLICY_LIST(ENTRY) };

const struct core_policy *core_policy_of(uint32_t number)
{
	return policies[number].policy;
}

const char *rtxg_gpu_policy_name(uint32_t policy)
{
	return policy < RTXG_GPU_POLICIES ? policies[policy].name : NULL;
}

const char *rtxg_gpu_policy_summary(uint32_t policy)
{
	return policy < RTXG_GPU_POLICIES ? policies[policy].policy->summary : NULL;
}

uint32_t rtxg_gpu_policy_reads(uint32_t policy)
{
	return policy < RTXG_GPU_POLICIES ? policies[policy].policy->reads : 0;
}

bool rtxg_gpu_policy_conserving(uint32_t policy, const struct rtxg_vgpu_params *params)
{
	if (policy >= RTXG_GPU_POLICIES || !policies[policy].policy->conserving)
		return true;
	return policies[policy].policy->conserving(params);
}

uint32_t rtxg_gpu_policy_find(const char *name)
{
	for (uint32_t i = 0; i < RTXG_GPU_POLICIES; i++)
		if (!strcmp(name, policies[i].name))
			return i;
	return RTXG_NONE;
}

const char *rtxg_gpu_policy_names(void)
{
#define LISTED(WORD, word) ", " #word
	static const char names[] = RTXG_GPU_POLICY_LIST(LISTED);

	return names + 2;
}

const char *rtxg_task_policy_name(uint32_t policy)
{
	static const char *const names[RTXG_TASK_POLICIES] = {
		[RTXG_TASK_FIFO] = "fifo",
		[RTXG_TASK_FP] = "fp",
		[RTXG_TASK_EDF] = "edf",
	};

	return policy < RTXG_TASK_POLICIES ? names[policy] : NULL;
}

const char *rtxg_engine_name(uint32_t engine)
{
	static const char *const names[RTXG_ENGINES] = {
		[RTXG_ENGINE_COMPUTE] = "compute",
		[RTXG_ENGINE_COPY_IN] = "copy-in",
		[RTXG_ENGINE_COPY_OUT] = "copy-out",
	};

	return engine < RTXG_ENGINES ? names[engine] : NULL;
}
