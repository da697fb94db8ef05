// SPDX-License-Identifier: MIT
/*
 * control_gpu.c - requests about GPUs. May not answer twice, or not at all.
 */
#include <string.h>

#include "backend_gate.h"
#include "control_gpu.h"
#include "objects.h"
#include "reply.h"
#include "report.h"

void control_gpu_list(struct connection *c, const struct request *r)
{
	json_t *list = json_array();

	backend_gpus(c->daemon, list);
	reply_ok(c, r,
		 json_pack("{s:o, s:o}", "gpus", list, "default",
			   report_gpu_params(&c->daemon->gpu_default)));
}

static uint64_t or_never(int64_t value)
{
	return value < 0 ? RTXG_TIME_NEVER : (uint64_t)value;
}

static void merge_gpu_params(struct rtxg_gpu_params *p, const struct request *r)
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
	if (given(r, M_SWITCH))
		p->switch_ppm = (uint32_t)r->switch_ppm;
}

/* All GPUs or none: what was accepted before a refusal is taken back. */
static int set_all(struct daemon *d, const struct request *r, json_t *list, char *why, size_t size,
		   struct rtxg_refusal *refusal)
{
	struct rtxg_gpu_params before[GPUS_MAX], params;
	char ignored[256];
	int error = 0;
	uint32_t i;

	for (i = 0; i < GPUS_MAX && !error; i++) {
		if (!d->gpus[i].used)
			continue;
		before[i] = params = d->gpus[i].params;
		merge_gpu_params(&params, r);
		error = objects_gpu_change(d, &d->gpus[i], &params, why, size, refusal);
		if (!error)
			json_array_append_new(list, backend_gate_gpu(d, &d->gpus[i]));
	}
	if (!error) {
		merge_gpu_params(&d->gpu_default, r);
		return 0;
	}
	for (uint32_t n = 0; n + 1 < i; n++)
		if (d->gpus[n].used)
			objects_gpu_change(d, &d->gpus[n], &before[n], ignored, sizeof(ignored),
					   NULL);
	return error;
}

static int set_one(struct daemon *d, const struct request *r, json_t *list, char *why, size_t size,
		   struct rtxg_refusal *refusal)
{
	struct rtxg_gpu_params params;
	struct gpu *gpu;
	int error;

	gpu = objects_gpu_get(d, r->gpu, ORIGIN_RUNTIME, why, size, &error);
	if (!gpu)
		return error;
	params = gpu->params;
	merge_gpu_params(&params, r);
	error = objects_gpu_change(d, gpu, &params, why, size, refusal);
	if (!error)
		json_array_append_new(list, backend_gate_gpu(d, gpu));
	return error;
}

void control_gpu_set(struct connection *c, const struct request *r)
{
	struct rtxg_refusal refusal = { 0 };
	json_t *list = json_array();
	char why[512];
	int error = given(r, M_GPU) ? set_one(c->daemon, r, list, why, sizeof(why), &refusal)
				    : set_all(c->daemon, r, list, why, sizeof(why), &refusal);

	if (error) {
		json_decref(list);
		reply_error(c, r->op_name, error, why, &refusal);
		return;
	}
	reply_ok(c, r, json_pack("{s:o}", "gpus", list));
}
