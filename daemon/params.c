// SPDX-License-Identifier: MIT
/*
 * params.c - what a request gives as parameters of a GPU, a vGPU or a task. May not judge a value:
 * its form was read by message.c, and what makes sense is the core's to say.
 */
#include <string.h>

#include "params.h"

static uint64_t or_never(int64_t value)
{
	return value < 0 ? RTXG_TIME_NEVER : (uint64_t)value;
}

void params_merge_gpu(struct rtxg_gpu_params *p, const struct request *r)
{
	if (given(r, M_GPU_POLICY))
		p->policy = r->policy;
	if (given(r, M_OVERRUN))
		p->overrun = r->overrun;
	if (given(r, M_PERIOD))
		p->period_ns = (uint64_t)r->period_ns;
	if (given(r, M_WINDOW))
		p->window_ns = (uint64_t)r->window_ns;
	if (given(r, M_BAND_WAIT))
		p->band_wait_ns = (uint64_t)r->band_wait_ns;
	if (given(r, M_THINK))
		p->think_ns = or_never(r->think_ns);
	if (given(r, M_REVOKE_TIMEOUT))
		p->revoke_timeout_ns = or_never(r->revoke_timeout_ns);
	if (given(r, M_AHEAD))
		p->ahead_ns = (uint32_t)r->ahead_ns;
	if (given(r, M_EARLY))
		p->early_ns = (uint32_t)r->early_ns;
	if (given(r, M_SWITCH))
		p->switch_ppm = (uint32_t)r->switch_ppm;
}

void params_merge_task(struct rtxg_task_params *p, const struct request *r)
{
	if (given(r, M_PRIORITY))
		p->priority = (uint32_t)r->priority;
	if (given(r, M_RUNTIME))
		p->runtime_ns = (uint64_t)r->runtime_ns;
	if (given(r, M_DEADLINE))
		p->deadline_ns = (uint64_t)r->deadline_ns;
	if (given(r, M_PERIOD))
		p->period_ns = (uint64_t)r->period_ns;
}

struct vgpu params_vgpu(struct daemon *d, const char *name, enum origin origin)
{
	struct vgpu v = {
		.daemon = d,
		.params = { .max_ppm = RTXG_PPM,
			    .priority = RTXG_PRIORITY_MIN,
			    .period_ns = RTXG_PERIOD_DEFAULT_NS },
		.task_priority = RTXG_PRIORITY_MIN,
		.origin = origin,
		.creator = -1,
	};

	strcpy(v.name, name);
	return v;
}

void params_merge_vgpu(struct vgpu *v, const struct request *r)
{
	if (given(r, M_MIN))
		v->params.min_ppm = (uint32_t)r->min_ppm;
	if (given(r, M_MAX))
		v->params.max_ppm = (uint32_t)r->max_ppm;
	if (given(r, M_WEIGHT))
		v->params.weight = (uint32_t)r->weight;
	if (given(r, M_PRIORITY))
		v->params.priority = (uint32_t)r->priority;
	if (given(r, M_PERIOD))
		v->params.period_ns = (uint64_t)r->period_ns;
	if (given(r, M_POLICY))
		v->params.policy = r->policy;
	if (given(r, M_LATENCY))
		v->latency_ns = (uint64_t)r->latency_ns;
	if (given(r, M_QUANTUM))
		v->quantum_ns = (uint64_t)r->quantum_ns;
	if (given(r, M_MEMORY))
		v->memory_bytes = (uint64_t)r->memory_bytes;
	if (given(r, M_TASK_PRIORITY))
		v->task_priority = (uint32_t)r->task_priority;
	if (!v->params.max_ppm)
		v->params.max_ppm = RTXG_PPM;
	if (!v->params.period_ns)
		v->params.period_ns = RTXG_PERIOD_DEFAULT_NS;
}
