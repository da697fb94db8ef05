/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* params.h - checks of parameters: 0, or the refusal. *out is complete when they pass. */
#ifndef RTXG_CORE_PARAMS_H
#define RTXG_CORE_PARAMS_H

#include "state.h"

int core_check_gpu_params(struct rtxg_core *core, const struct rtxg_gpu_params *in,
			  struct rtxg_gpu_params *out);

/* old: the vGPU whose parameters these replace, or NULL. Admission control is here. */
int core_check_vgpu_params(struct rtxg_core *core, const struct core_gpu *gpu,
			   const struct core_vgpu *old, const struct rtxg_vgpu_params *in,
			   struct rtxg_vgpu_params *out);

int core_check_task_params(struct rtxg_core *core, const struct rtxg_task_params *in,
			   struct rtxg_task_params *out);

#endif
