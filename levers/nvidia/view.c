// SPDX-License-Identifier: MIT
/*
 * view.c - what the lever tells its host: GPUs, vGPUs, processes, counters. May not: change
 * anything.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "adopt.h"
#include "state.h"
#include "vgpus.h"

uint32_t lever_nvidia_gpus(const struct lever_nvidia *l)
{
	return l->gpus;
}

int lever_nvidia_gpu(const struct lever_nvidia *l, uint32_t gpu, struct lever_nvidia_gpu *view)
{
	const struct nv_gpu *g;

	if (gpu >= l->gpus)
		return -EINVAL;
	g = &l->gpu[gpu];
	memset(view, 0, sizeof(*view));
	snprintf(view->pci, sizeof(view->pci), "%04x:%02x:%02x.0", g->rm.pci_domain, g->rm.pci_bus,
		 g->rm.pci_slot);
	view->lost = g->lost;
	view->mig = g->rm.mig == 1;
	view->turns = rtxg_slice_turns(g->slice);
	view->log_error = g->log_error;
	view->log_lost = g->fecs.lost;
	for (uint32_t i = 0; i < g->high; i++)
		view->contexts += g->context[i].process ? 1 : 0;
	return 0;
}

int lever_nvidia_vgpu_view(const struct lever_nvidia *l, uint32_t gpu, uint32_t vgpu,
			   struct rtxg_slice_view *view)
{
	const struct rtxg_slice_view *b;
	int err;

	if (gpu >= l->gpus)
		return -EINVAL;
	err = rtxg_slice_tenant_view(l->gpu[gpu].slice, vgpu, view);
	if (err)
		return err;
	b = &l->gpu[gpu].before[vgpu];
	view->work_ns += b->work_ns;
	view->stay_ns += b->stay_ns;
	view->stays += b->stays;
	view->suspended += b->suspended;
	view->stopped_ns += b->stopped_ns;
	view->wanted_ns += b->wanted_ns;
	view->waits_ns += b->waits_ns;
	for (uint32_t i = 0; i < RTXG_SLICE_WAITS; i++)
		view->waits[i] += b->waits[i];
	return 0;
}

int lever_nvidia_vgpu_admit(const struct lever_nvidia *l, uint32_t gpu, uint32_t vgpu,
			    const struct rtxg_slice_tenant *tenant,
			    struct rtxg_slice_admission *admission)
{
	memset(admission, 0, sizeof(*admission));
	if (gpu >= l->gpus)
		return -EINVAL;
	if (l->gpu[gpu].lost || l->gpu[gpu].log_error)
		return -ENODEV;
	return rtxg_slice_admit(l->gpu[gpu].slice, vgpu, tenant, admission);
}

int lever_nvidia_gpu_slice(const struct lever_nvidia *l, uint32_t gpu,
			   struct rtxg_slice_gpu_view *view)
{
	if (gpu >= l->gpus)
		return -EINVAL;
	rtxg_slice_gpu_view(l->gpu[gpu].slice, view);
	return 0;
}

uint32_t lever_nvidia_pid(const struct lever_nvidia *l, uint32_t gpu, uint32_t context)
{
	if (gpu >= l->gpus || context >= l->gpu[gpu].high || !l->gpu[gpu].context[context].process)
		return 0;
	return l->gpu[gpu].context[context].process->pid;
}

static bool has_slot(const struct lever_nvidia *l, uint32_t pid)
{
	const struct nv_process *p = nv_registry_process(&l->registry, pid);

	for (uint32_t k = 0; p && k < l->gpus; k++)
		if (nv_process_host(p, l->gpu[k].rm.device_instance))
			return true;
	for (uint32_t k = 0; k < l->gpus; k++)
		for (uint32_t i = 0; i < l->gpu[k].high; i++)
			if (l->gpu[k].context[i].process &&
			    l->gpu[k].context[i].process->pid == pid)
				return true;
	return false;
}

static uint32_t channels_on(const struct nv_process *p, const struct nv_gpu *g)
{
	uint32_t n = 0;

	for (unsigned int i = 0; i < p->group_count; i++)
		if (p->groups[i].device == g->rm.device_instance)
			n += p->groups[i].count;
	return n;
}

/* Clients of MPS, after their server, whose entry `of` is: what holds for it holds for them. */
static int list_guests(const struct lever_nvidia *l, const struct nv_gpu *g,
		       const struct nv_process *host, const struct lever_nvidia_process *of,
		       struct lever_nvidia_process *list, int n, int cap)
{
	for (unsigned int i = 0; i < host->guest_count; i++) {
		const struct nv_process *p = host->guests[i];
		struct lever_nvidia_process *o;

		if (nv_process_host(p, g->rm.device_instance) != host ||
		    nv_process_computes(p, g->rm.device_instance))
			continue; /* it is listed by itself */
		if (n++ >= cap)
			continue;
		o = &list[n - 1];
		memset(o, 0, sizeof(*o));
		o->pid = p->pid;
		memcpy(o->comm, p->comm, sizeof(o->comm));
		o->gpu = (uint32_t)(g - l->gpu);
		o->vgpu = of->vgpu;
		o->managed = of->managed;
		o->remedy = of->remedy;
		if (!o->remedy && p->tag && nv_vgpu_of(g, p->tag) != of->vgpu)
			o->remedy = "it works in its MPS server's context, which is in another "
				    "vGPU: move the server there (rtxg set -p SERVER -v VGPU)";
		o->server = host->pid;
		o->adopted = p->adopted;
		o->stopped = of->stopped;
		o->slice_ns = of->slice_ns;
		o->since_ns = of->since_ns;
		o->state = of->state;
		o->channels = channels_on(p, g);
		o->memory_bytes = LEVER_NVIDIA_NOT_KNOWN;
	}
	return n;
}

int lever_nvidia_processes(const struct lever_nvidia *l, struct lever_nvidia_process *list, int cap)
{
	int n = 0;

	for (uint32_t k = 0; k < l->gpus; k++)
		for (uint32_t i2 = 0; i2 < l->gpu[k].high; i2++) {
			const struct nv_context *c = &l->gpu[k].context[i2];
			struct rtxg_slice_context_view v;
			struct lever_nvidia_process own, *o = &own;

			if (!c->process)
				continue;
			if (n++ < cap)
				o = &list[n - 1];
			memset(o, 0, sizeof(*o));
			o->pid = c->process->pid;
			o->vgpu = c->vgpu;
			o->gpu = k;
			o->memory_bytes = LEVER_NVIDIA_NOT_KNOWN;
			memcpy(o->comm, c->process->comm, sizeof(o->comm));
			o->managed = !c->load && !(c->refusal[NV_ACTION(RTXG_SLICE_SET)].final &&
						   c->refusal[NV_ACTION(RTXG_SLICE_SUSPEND)].final);
			o->remedy = c->reason[0] ? c->reason : NULL;
			o->mps = c->process->mps_server;
			o->adopted = c->process->adopted;
			o->stopped = c->stopped;
			o->warms = c->warms;
			o->slice_ns = c->slice_ns;
			o->since_ns = c->known;
			if (!rtxg_slice_context_view(l->gpu[k].slice, i2, &v)) {
				o->state = v.state;
				o->work_ns = v.work_ns + c->before.work_ns;
				o->stay_ns = v.stay_ns + c->before.stay_ns;
				o->stays = v.stays + c->before.stays;
				o->stopped_ns = v.stopped_ns + c->before.stopped_ns;
			}
			o->channels = channels_on(c->process, &l->gpu[k]);
			n = list_guests(l, &l->gpu[k], c->process, o, list, n, cap);
		}
	/* Those that have the driver open and an unknown context */
	for (uint32_t k = 0; k < NV_UNKNOWN; k++) {
		uint32_t pid = l->unknown[k].pid;
		const char *remedy = l->unknown[k].remedy;

		if (!pid || !remedy || l->unknown[k].found || has_slot(l, pid) ||
		    !nv_uses_driver(l->sys, pid))
			continue;
		if (n++ < cap) {
			struct lever_nvidia_process *o = &list[n - 1];

			memset(o, 0, sizeof(*o));
			o->pid = pid;
			o->memory_bytes = LEVER_NVIDIA_NOT_KNOWN;
			nv_process_name(pid, o->comm, sizeof(o->comm));
			o->remedy = remedy;
		}
	}
	return n;
}

void lever_nvidia_stats(const struct lever_nvidia *l, struct lever_nvidia_stats *stats)
{
	*stats = l->stats;
	stats->refused_records = l->registry.refused;
	stats->calls = l->rm.calls;
	stats->calls_ns = l->rm.calls_ns;
	stats->guarded = l->guarded;
	stats->call_most_ns = l->rm.longest_ns;
	stats->call_most = l->rm.longest;
	for (uint32_t k = 0; k < l->gpus; k++)
		for (uint32_t i = 0; i < l->gpu[k].high; i++)
			stats->loads += l->gpu[k].context[i].process && l->gpu[k].context[i].load;
}
