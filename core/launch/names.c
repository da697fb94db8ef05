/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * names.c - the words for policies and engines, the same in configuration files, commands and
 * traces.
 */
#include "rtxg_core.h"

const char *rtxg_gpu_policy_name(uint32_t policy)
{
	static const char *const names[RTXG_GPU_POLICIES] = {
		[RTXG_GPU_NULL] = "null", [RTXG_GPU_FIFO] = "fifo", [RTXG_GPU_CREDIT] = "credit",
		[RTXG_GPU_BAND] = "band", [RTXG_GPU_CBS] = "cbs",
	};

	return policy < RTXG_GPU_POLICIES ? names[policy] : NULL;
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
