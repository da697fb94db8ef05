/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * params.c - checks the parameters that an event brings and fills in what stands for "not given".
 * May not: change an object.
 */
#include "actions.h"
#include "params.h"

struct rtxg_gpu_params rtxg_core_gpu_defaults(void)
{
	return (struct rtxg_gpu_params){
		.policy = RTXG_GPU_POLICY_DEFAULT,
		.overrun = RTXG_OVERRUN_CHARGE,
		.period_ns = RTXG_PERIOD_DEFAULT_NS,
		.window_ns = 1000000000,
		.band_wait_ns = 500000,
		.think_ns = 2000000,
		.revoke_timeout_ns = 2000000000,
	};
}

int core_check_gpu_params(struct rtxg_core *core, const struct rtxg_gpu_params *in,
			  struct rtxg_gpu_params *out)
{
	const struct rtxg_gpu_params defaults = rtxg_core_gpu_defaults();

	*out = *in;
	if (in->policy >= RTXG_GPU_POLICIES)
		return core_refuse(core, -EINVAL, "unknown GPU policy", in->policy,
				   RTXG_GPU_POLICIES - 1);
	if (in->overrun > RTXG_OVERRUN_CHARGE)
		return core_refuse(core, -EINVAL, "unknown overrun rule", in->overrun,
				   RTXG_OVERRUN_CHARGE);
	if (in->ahead_ns > RTXG_AHEAD_MAX_NS)
		return core_refuse(core, -EINVAL, "alert (ns) comes too long ahead", in->ahead_ns,
				   RTXG_AHEAD_MAX_NS);
	if (in->early_ns > RTXG_AHEAD_MAX_NS)
		return core_refuse(core, -EINVAL, "permit (ns) comes too early", in->early_ns,
				   RTXG_AHEAD_MAX_NS);
	if (in->reserved)
		return core_refuse(core, -EINVAL,
				   "a reserved field of the GPU's parameters is not 0",
				   in->reserved, 0);
	if (in->switch_ppm >= RTXG_PPM)
		return core_refuse(core, -EINVAL,
				   "switching cost (ppm) must be below the whole GPU",
				   in->switch_ppm, RTXG_PPM - 1);
	if (!out->period_ns)
		out->period_ns = defaults.period_ns;
	if (out->period_ns < RTXG_PERIOD_MIN_NS)
		return core_refuse(core, -EINVAL, "period (ns) is shorter than the shortest",
				   in->period_ns, RTXG_PERIOD_MIN_NS);
	if (out->period_ns > RTXG_PERIOD_MAX_NS)
		return core_refuse(core, -EINVAL, "period (ns) is longer than the longest",
				   in->period_ns, RTXG_PERIOD_MAX_NS);
	if (!out->window_ns)
		out->window_ns = defaults.window_ns;
	if (out->window_ns < RTXG_PERIOD_MIN_NS)
		return core_refuse(core, -EINVAL, "window (ns) is shorter than the shortest",
				   in->window_ns, RTXG_PERIOD_MIN_NS);
	if (out->window_ns > 100 * RTXG_PERIOD_MAX_NS)
		return core_refuse(core, -EINVAL, "window (ns) is longer than the longest",
				   in->window_ns, 100 * RTXG_PERIOD_MAX_NS);
	if (!out->band_wait_ns)
		out->band_wait_ns = defaults.band_wait_ns;
	if (!out->think_ns)
		out->think_ns = defaults.think_ns;
	else if (out->think_ns == NEVER)
		out->think_ns = 0;
	if (!out->revoke_timeout_ns)
		out->revoke_timeout_ns = defaults.revoke_timeout_ns;
	return 0;
}

int core_check_vgpu_params(struct rtxg_core *core, const struct core_gpu *gpu,
			   const struct core_vgpu *old, const struct rtxg_vgpu_params *in,
			   struct rtxg_vgpu_params *out)
{
	uint64_t others = gpu->reserved_ppm - (old ? old->params.min_ppm : 0);
	uint64_t room = RTXG_PPM - gpu->params.switch_ppm;

	*out = *in;
	if (in->min_ppm > RTXG_PPM)
		return core_refuse(core, -EINVAL, "reservation (ppm) is more than the whole GPU",
				   in->min_ppm, RTXG_PPM);
	if (!out->max_ppm)
		out->max_ppm = RTXG_PPM;
	if (out->max_ppm > RTXG_PPM)
		return core_refuse(core, -EINVAL, "cap (ppm) is more than the whole GPU",
				   in->max_ppm, RTXG_PPM);
	if (out->max_ppm < out->min_ppm)
		return core_refuse(core, -EINVAL, "cap (ppm) is below the reservation", in->max_ppm,
				   in->min_ppm);
	if (!out->weight)
		out->weight = RTXG_WEIGHT_DEFAULT;
	if (out->weight > RTXG_WEIGHT_MAX)
		return core_refuse(core, -EINVAL, "weight is over the largest", in->weight,
				   RTXG_WEIGHT_MAX);
	if (!out->priority)
		out->priority = RTXG_PRIORITY_MIN;
	if (out->priority > RTXG_PRIORITY_MAX)
		return core_refuse(core, -EINVAL, "priority is over the highest", in->priority,
				   RTXG_PRIORITY_MAX);
	if (!out->period_ns)
		out->period_ns = RTXG_PERIOD_DEFAULT_NS;
	if (out->period_ns < RTXG_PERIOD_MIN_NS)
		return core_refuse(core, -EINVAL, "period (ns) is shorter than the shortest",
				   in->period_ns, RTXG_PERIOD_MIN_NS);
	if (out->period_ns > RTXG_PERIOD_MAX_NS)
		return core_refuse(core, -EINVAL, "period (ns) is longer than the longest",
				   in->period_ns, RTXG_PERIOD_MAX_NS);
	if (in->policy >= RTXG_TASK_POLICIES)
		return core_refuse(core, -EINVAL, "unknown task policy", in->policy,
				   RTXG_TASK_POLICIES - 1);
	if (in->reserved)
		return core_refuse(core, -EINVAL,
				   "a reserved field of the vGPU's parameters is not 0",
				   in->reserved, 0);
	/* Admission control: never promise what is promised already, or what switching will eat. */
	if (others + out->min_ppm > room)
		return core_refuse(core, -ENOSPC,
				   "reservation (ppm) is more than what is left to reserve",
				   out->min_ppm, room > others ? room - others : 0);
	return 0;
}

int core_check_task_params(struct rtxg_core *core, const struct rtxg_task_params *in,
			   struct rtxg_task_params *out)
{
	*out = *in;
	if (!out->priority)
		out->priority = RTXG_PRIORITY_MIN;
	if (out->priority > RTXG_PRIORITY_MAX)
		return core_refuse(core, -EINVAL, "priority is over the highest", in->priority,
				   RTXG_PRIORITY_MAX);
	if (in->reserved)
		return core_refuse(core, -EINVAL,
				   "a reserved field of the task's parameters is not 0",
				   in->reserved, 0);
	if (in->deadline_ns == NEVER || in->period_ns == NEVER || in->runtime_ns == NEVER)
		return core_refuse(core, -EINVAL, "a time of the task's parameters is out of range",
				   NEVER, NEVER - 1);
	if (!out->deadline_ns)
		out->deadline_ns = out->period_ns;
	if (out->runtime_ns && out->deadline_ns && out->runtime_ns > out->deadline_ns)
		return core_refuse(core, -EINVAL, "runtime (ns) does not fit into the deadline",
				   out->runtime_ns, out->deadline_ns);
	return 0;
}

uint32_t rtxg_task_priority(uint32_t configured, uint32_t asked)
{
	if (asked)
		return asked;
	return configured ? configured : RTXG_PRIORITY_MIN;
}

uint32_t rtxg_task_priority_limit(uint32_t configured, uint32_t has)
{
	configured = rtxg_task_priority(configured, 0);
	return has > configured ? has : configured;
}

bool rtxg_task_priority_allowed(uint32_t limit, uint32_t asked, bool may_raise)
{
	return may_raise || asked <= rtxg_task_priority(limit, 0);
}

uint32_t rtxg_task_priority_moved(uint32_t limit, uint32_t has, bool may_raise)
{
	return rtxg_task_priority_allowed(limit, has, may_raise) ? has
								 : rtxg_task_priority(limit, 0);
}
