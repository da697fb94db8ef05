// SPDX-License-Identifier: MIT
/*
 * control_vgpu.c - requests about vGPUs. Whether a share fits is the core's to say.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "control_vgpu.h"
#include "host.h"
#include "objects.h"
#include "reply.h"
#include "report.h"

struct vgpu *control_find_vgpu(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = objects_vgpu_find(c->daemon, r->vgpu);

	if (!vgpu)
		reply_no_such(c, r, "vGPU", r->vgpu, "\"rtxg vgpu ls\" lists them");
	return vgpu;
}

void control_vgpu_list(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	const struct vgpu *vgpu;
	json_t *list;

	if (given(r, M_VGPU) && !control_find_vgpu(c, r))
		return;
	list = json_array();
	for (uint64_t order = 0; (vgpu = report_next_vgpu(d, order)); order = vgpu->created)
		if (!given(r, M_VGPU) || !strcmp(vgpu->name, r->vgpu))
			json_array_append_new(list, report_vgpu(d, vgpu));
	reply_ok(c, r, json_pack("{s:o}", "vgpus", list));
}

static void merge_vgpu_params(struct vgpu *v, const struct request *r)
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
	if (given(r, M_TASK_PRIORITY))
		v->task_priority = (uint32_t)r->task_priority;
	if (!v->params.max_ppm)
		v->params.max_ppm = RTXG_PPM;
	if (!v->params.period_ns)
		v->params.period_ns = RTXG_PERIOD_DEFAULT_NS;
}

void control_vgpu_create(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct rtxg_refusal refusal = { 0 };
	struct vgpu wanted = {
		.params = { .max_ppm = RTXG_PPM,
			    .priority = RTXG_PRIORITY_MIN,
			    .period_ns = RTXG_PERIOD_DEFAULT_NS },
		.daemon = d,
		.task_priority = RTXG_PRIORITY_MIN,
		.origin = r->transient ? ORIGIN_TRANSIENT : ORIGIN_RUNTIME,
		.creator = -1,
	};
	struct vgpu *vgpu = NULL;
	char why[512];
	int error;

	strcpy(wanted.name, r->vgpu);
	if (given(r, M_GPU))
		strcpy(wanted.gpu, r->gpu);
	merge_vgpu_params(&wanted, r);
	error = objects_vgpu_create(d, &wanted, &vgpu, why, sizeof(why), &refusal);
	if (error) {
		reply_error(c, r->op_name, error, why, &refusal);
		return;
	}
	if (r->transient) {
		vgpu->creator = fcntl(c->pidfd, F_DUPFD_CLOEXEC, 3);
		if (vgpu->creator < 0 ||
		    sd_event_add_io(d->event, &vgpu->creator_source, vgpu->creator, EPOLLIN,
				    objects_vgpu_creator_ended, vgpu) < 0) {
			objects_vgpu_remove(d, vgpu);
			reply_error(c, r->op_name, -EMFILE,
				    "the end of the calling process cannot be watched", NULL);
			return;
		}
		d->host->changed(d, NULL, vgpu);
	}
	reply_ok(c, r, json_pack("{s:o}", "vgpu", report_vgpu(d, vgpu)));
}

void control_vgpu_set(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = control_find_vgpu(c, r), changed;
	struct rtxg_refusal refusal = { 0 };
	char why[512];
	int error;

	if (!vgpu)
		return;
	changed = *vgpu;
	merge_vgpu_params(&changed, r);
	error = objects_vgpu_change(c->daemon, vgpu, &changed.params, why, sizeof(why), &refusal);
	if (error) {
		reply_error(c, r->op_name, error, why, &refusal);
		return;
	}
	vgpu->task_priority = changed.task_priority;
	c->daemon->host->changed(c->daemon, NULL, vgpu);
	reply_ok(c, r, json_pack("{s:o}", "vgpu", report_vgpu(c->daemon, vgpu)));
}

void control_vgpu_remove(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = control_find_vgpu(c, r);
	char why[256];

	if (!vgpu)
		return;
	if (vgpu->origin == ORIGIN_BUILTIN) {
		reply_error(c, r->op_name, -EPERM,
			    "vGPU default is where tasks go that name none; it stays", NULL);
		return;
	}
	snprintf(why, sizeof(why),
		 "vGPU %s has %u tasks in it, or on their way to it; end or move them first (rtxg "
		 "ps)",
		 vgpu->name, vgpu->tasks);
	if (objects_vgpu_remove(c->daemon, vgpu))
		reply_error(c, r->op_name, -EBUSY, why, NULL);
	else
		reply_ok(c, r, NULL);
}
