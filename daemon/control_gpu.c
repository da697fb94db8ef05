// SPDX-License-Identifier: MIT
/*
 * control_gpu.c - requests about GPUs. May not answer twice, or not at all.
 */
#include <string.h>

#include "backend_gate.h"
#include "control_gpu.h"
#include "keep.h"
#include "objects.h"
#include "params.h"
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
		params_merge_gpu(&params, r);
		error = objects_gpu_change(d, &d->gpus[i], &params, why, size, refusal);
		if (!error)
			json_array_append_new(list, backend_gate_gpu(d, &d->gpus[i]));
	}
	if (!error) {
		params_merge_gpu(&d->gpu_default, r);
		d->gpu_default_changed = true;
		for (i = 0; i < GPUS_MAX; i++)
			d->gpus[i].changed = d->gpus[i].used;
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

	gpu = objects_gpu_get(d, r->gpu, ORIGIN_RUNTIME, NULL, why, size, &error);
	if (!gpu)
		return error;
	params = gpu->params;
	params_merge_gpu(&params, r);
	error = objects_gpu_change(d, gpu, &params, why, size, refusal);
	if (error)
		return error;
	gpu->changed = true;
	json_array_append_new(list, backend_gate_gpu(d, gpu));
	return 0;
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
	keep_save(c->daemon);
	reply_ok(c, r, keep_warn(json_pack("{s:o}", "gpus", list)));
}
