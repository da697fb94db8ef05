// SPDX-License-Identifier: MIT
/*
 * policy.c - the slice policy of each GPU: started with the vGPUs and contexts that there are,
 * switched on and off. May not: decide who runs.
 */
#include <errno.h>
#include <string.h>
#include "act.h"
#include "carry_out.h"
#include "couple.h"
#include "policy.h"
#include "state.h"
#include "timer.h"

/* what is used unless asked otherwise */
#define NV_CAN (RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_DEMAND)

/* What was counted up to now, before the policy forgets it. */
static void keep_accounts(struct nv_gpu *g)
{
	struct rtxg_slice_context_view c;
	struct rtxg_slice_view t;

	if (!g->slice)
		return;
	for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++)
		if (g->vgpu[v] && !rtxg_slice_tenant_view(g->slice, v, &t)) {
			g->before[v].work_ns += t.work_ns;
			g->before[v].stay_ns += t.stay_ns;
			g->before[v].stays += t.stays;
			g->before[v].suspended += t.suspended;
			g->before[v].stopped_ns += t.stopped_ns;
			g->before[v].wanted_ns += t.wanted_ns;
		}
	for (uint32_t k = 0; k < g->high; k++)
		if (g->context[k].process && !rtxg_slice_context_view(g->slice, k, &c)) {
			g->context[k].before.work_ns += c.work_ns;
			g->context[k].before.stay_ns += c.stay_ns;
			g->context[k].before.stays += c.stays;
			g->context[k].before.stopped_ns += c.stopped_ns;
		}
}

/* A policy that knows nothing of the past, with the vGPUs and contexts that there are. */
int nv_restart_policy(struct lever_nvidia *l)
{
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct nv_gpu *g = &l->gpu[i];
		struct rtxg_slice_params params = l->options.slice;
		struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TENANT_SET };

		keep_accounts(g);
		params.stop_ns = params.stop_ns ? params.stop_ns : l->costs.stop_ns;
		params.stop_more_ns =
			params.stop_more_ns ? params.stop_more_ns : l->costs.stop_more_ns;
		params.resume_ns = params.resume_ns ? params.resume_ns : l->costs.resume_ns;
		params.resume_more_ns =
			params.resume_more_ns ? params.resume_more_ns : l->costs.resume_more_ns;
		params.can = (params.can ? params.can : NV_CAN) & g->can;
		g->stepped = nv_now(l);
		g->slice = rtxg_slice_init(
			g->mem, rtxg_slice_size(LEVER_NVIDIA_VGPUS, LEVER_NVIDIA_CONTEXTS),
			LEVER_NVIDIA_VGPUS, LEVER_NVIDIA_CONTEXTS, &params, g->stepped);
		if (!g->slice)
			return -EINVAL;
		memset(g->coupled, 0, sizeof(g->coupled));
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++)
			if (g->vgpu[v]) {
				e.tenant = v;
				e.tenant_params = g->params[v];
				nv_decide(l, g, &e);
			}
		for (uint32_t k = 0; k < g->high; k++)
			if (g->context[k].process) {
				struct rtxg_slice_event a = {
					.type = RTXG_SLICE_EV_ADD,
					.context = k,
					.tenant = g->context[k].vgpu,
					.value = g->context[k].load ? RTXG_SLICE_LOAD : 0,
				};

				g->context[k].sight.told = NV_TOLD_NOTHING;
				memset(g->context[k].refusal, 0, sizeof(g->context[k].refusal));
				if (!g->context[k].load)
					g->context[k].reason[0] = '\0';
				nv_decide(l, g, &a);
				a.value = 0;
				a.type = RTXG_SLICE_EV_WARMS;
				if (g->context[k].warms)
					nv_decide(l, g, &a);
			}
	}
	nv_couple(l);
	nv_arm(l);
	return 0;
}

int lever_nvidia_enable(struct lever_nvidia *l, bool on)
{
	if (on == l->enabled)
		return 0;
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct nv_gpu *g = &l->gpu[i];

		for (uint32_t k = 0; k < g->high && !g->lost; k++) {
			struct nv_context *c = &g->context[k];

			if (!c->process)
				continue;
			if (c->stopped)
				nv_stop_or_go(l, g, &c, 1, false, false);
			nv_let_strays_go(l, g, c);
			if (c->slice_ns)
				nv_set_slice(&g->rm, &l->journal, c->process, g->rm.device_instance,
					     NV_DRIVER_SLICE_US);
			c->slice_ns = 0;
		}
	}
	l->enabled = on;
	if (on)
		return nv_restart_policy(l);
	return 0;
}
