// SPDX-License-Identifier: MIT
/*
 * contexts.c - the contexts of each GPU: a process gets one with its first compute channel there
 * and loses it with the last. They come by the discovery program or, if they are older than the
 * lever, by adoption.
 */
#include <errno.h>
#include <string.h>
#include "../../bpf/discovery.h"
#include "act.h"
#include "adopt.h"
#include "carry_out.h"
#include "contexts.h"
#include "state.h"
#include "vgpus.h"
#include "warm_up.h"

#define ADOPT_AGAIN_NS 1000000000ull

static void cid_forget(struct nv_gpu *g, uint32_t context)
{
	for (uint32_t i = 0; i < NV_CID_TABLE; i++)
		if (g->cid[i].cid && g->cid[i].context == context)
			g->cid[i].cid = 0;
}

/* The context that a log record is about: by channel number if it is known, else by process. */
struct nv_context *nv_context_by_record(struct lever_nvidia *l, struct nv_gpu *g, uint32_t cid,
					uint32_t pid)
{
	uint32_t h = cid * 2654435761u >> 20 & (NV_CID_TABLE - 1);
	struct nv_process *p;
	struct nv_context *c;

	if (cid && g->cid[h].cid == cid && g->context[g->cid[h].context].process)
		return &g->context[g->cid[h].context];
	p = nv_registry_by_cid(&l->registry, g->rm.device_instance, cid);
	if (!p)
		p = nv_registry_process(&l->registry, pid);
	c = p ? nv_context_of(g, p) : NULL;
	if (c && cid) {
		g->cid[h].cid = cid;
		g->cid[h].context = (uint32_t)(c - g->context);
	}
	return c;
}

static bool has_compute(const struct nv_process *p, uint32_t device)
{
	for (unsigned int i = 0; i < p->group_count; i++)
		if (p->groups[i].device == device && nv_group_is_compute(&p->groups[i]) &&
		    p->groups[i].count)
			return true;
	return false;
}

static void context_add(struct lever_nvidia *l, struct nv_gpu *g, struct nv_process *p)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_ADD };
	struct nv_context *c = NULL;
	uint32_t i;

	if (nv_context_of(g, p))
		return;
	for (i = 0; i < LEVER_NVIDIA_CONTEXTS && !c; i++)
		if (!g->context[i].process)
			c = &g->context[i];
	if (!c) {
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "pid %u is UNMANAGED: more than %u processes on one GPU", p->pid,
		       LEVER_NVIDIA_CONTEXTS);
		return;
	}
	i = (uint32_t)(c - g->context);
	memset(c, 0, sizeof(*c));
	c->process = p;
	c->known = nv_now(l);
	p->tag = nv_belongs(l, p);
	c->vgpu = nv_vgpu_of(g, p->tag);
	if (i >= g->high)
		g->high = i + 1;
	e.context = i;
	e.tenant = c->vgpu;
	nv_decide(l, g, &e);
	if (l->ops.context)
		l->ops.context(l->ops.ctx, (uint32_t)(g - l->gpu), p->pid, p->comm, c->vgpu, true);
	if (p->mps_server)
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "pid %u is an MPS server: all of its clients are one context and share "
		       "one vGPU; "
		       "stop MPS to govern them one by one",
		       p->pid);
}

static void context_remove(struct lever_nvidia *l, struct nv_gpu *g, struct nv_process *p)
{
	struct nv_context *c = nv_context_of(g, p);
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_REMOVE };
	bool elsewhere = false;

	if (!c)
		return;
	e.context = (uint32_t)(c - g->context);
	if (c->stopped) {
		/* its channels go with it, but a child may hold them a little longer */
		struct nv_batch b = { 0 };

		if (!nv_batch_add(&b, p, g->rm.device_instance) && b.count)
			nv_resume(&g->rm, &l->journal, &b);
		nv_batch_free(&b);
	}
	/* its contexts on other GPUs stay as they are */
	for (uint32_t i = 0; i < l->gpus; i++)
		elsewhere = elsewhere || (&l->gpu[i] != g && nv_context_of(&l->gpu[i], p));
	if (!elsewhere)
		nv_journal_slice_remove(&l->journal, p->pid, 0, 0);
	cid_forget(g, e.context);
	if (l->ops.context)
		l->ops.context(l->ops.ctx, (uint32_t)(g - l->gpu), p->pid, p->comm, c->vgpu, false);
	memset(c, 0, sizeof(*c));
	nv_decide(l, g, &e);
}

void nv_contexts_feed(void *ctx, const struct discover_record *r)
{
	struct lever_nvidia *l = ctx;
	struct nv_what what;
	bool fresh = false;
	int err;

	if (r->pid == l->self || (l->guardian > 0 && r->pid == (uint32_t)l->guardian))
		return;
	if (r->kind == DISCOVER_FREE && nv_registry_process(&l->registry, r->pid)) {
		/* A stopped channel that is being freed: its journal entry goes too. */
		for (uint32_t i = 0; i < l->gpus; i++)
			nv_journal_remove(&l->journal, l->gpu[i].rm.device_instance, r->client,
					  r->object);
	}
	err = nv_registry_feed(&l->registry, r, &what);
	if (err == -EPERM)
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "pid %u named client 0x%x, which is another process's: ignored", r->pid,
		       r->client);
	else if (err)
		nv_log(l, LEVER_NVIDIA_ERROR, "out of memory for the registry: pid %u is UNMANAGED",
		       r->pid);
	if (l->options.assigned) {
		if (r->kind == DISCOVER_FORK && r->tag)
			nv_assigned_put(&l->assigned, r->pid, r->tag, true);
		else if (r->kind == DISCOVER_EXIT)
			nv_assigned_remove(&l->assigned, r->pid);
		else if (r->kind == DISCOVER_LOST)
			nv_assigned_inherit(&l->assigned);
	}
	if (r->kind == DISCOVER_LOST)
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "%u discovery records were lost; looking for new contexts by hand",
		       r->object);
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct nv_gpu *g = &l->gpu[i];

		switch (what.change) {
		case NV_NEW_CHANNEL:
			if (what.group->device != g->rm.device_instance ||
			    !nv_group_is_compute(what.group))
				break;
			if (!nv_context_of(g, what.process)) {
				context_add(l, g, what.process);
				fresh = true;
			} else if (nv_context_of(g, what.process)->stopped) {
				/*
				 * A stopped process has made one more context. All of its contexts
				 * are stopped again, and so the new one is.
				 */
				struct nv_context *c = nv_context_of(g, what.process);

				nv_stop_or_go(l, g, &c, 1, true, false);
			}
			break;
		case NV_GONE_CHANNEL:
			if (nv_context_of(g, what.process) &&
			    !has_compute(what.process, g->rm.device_instance))
				context_remove(l, g, what.process);
			break;
		case NV_GONE_PROCESS:
			context_remove(l, g, what.process);
			break;
		case NV_NOTHING:
			break;
		}
	}
	/* a periodic program is to be told of its releases from the first one on */
	if (fresh)
		nv_look_for_warm(l);
	if (what.change == NV_GONE_PROCESS)
		nv_registry_drop(&l->registry, what.process);
}

void nv_contexts_pump(struct lever_nvidia *l)
{
	if (l->discovery)
		discovery_read(l->discovery, nv_contexts_feed, l);
}

static int adopt(struct lever_nvidia *l, uint32_t pid, struct nv_adopt_stats *st)
{
	struct nv_rm_gpu gpus[RM_GPUS_MAX];
	struct nv_process *p;
	uint32_t i;
	int n;

	for (i = 0; i < l->gpus; i++)
		gpus[i] = l->gpu[i].rm;
	n = nv_adopt(gpus, (int)l->gpus, &l->registry, pid, st);
	if (n <= 0)
		return n;
	p = nv_registry_process(&l->registry, pid);
	if (!p)
		return -ESRCH;
	p->tag = nv_belongs(l, p);
	if (l->discovery)
		discovery_watch(l->discovery, pid, p->tag);
	for (i = 0; i < l->gpus; i++) {
		struct nv_gpu *g = &l->gpu[i];
		struct nv_batch b = { 0 };

		if (!has_compute(p, g->rm.device_instance))
			continue;
		/* A daemon that died together with its guardian may have left it stopped. */
		if (!nv_batch_add(&b, p, g->rm.device_instance) && b.count)
			nv_resume(&g->rm, &l->journal, &b);
		nv_batch_free(&b);
		nv_set_slice(&g->rm, &l->journal, p, g->rm.device_instance, NV_DRIVER_SLICE_US);
		context_add(l, g, p);
	}
	return n;
}

void nv_adopt_unknown(struct lever_nvidia *l, uint32_t pid)
{
	struct nv_adopt_stats st;
	struct nv_process *p;
	uint32_t i;
	int n;

	if (!pid || pid == NV_FECS_KERNEL_PID || pid == l->self ||
	    (l->guardian > 0 && pid == (uint32_t)l->guardian))
		return;
	for (i = 0; i < NV_UNKNOWN; i++)
		if (l->unknown[i].pid == pid && nv_now(l) < l->unknown[i].again)
			return;
	i = l->unknown_next++ % NV_UNKNOWN;
	l->unknown[i].pid = pid;
	l->unknown[i].again = nv_now(l) + ADOPT_AGAIN_NS;
	n = adopt(l, pid, &st);
	if (n == -ENOENT || n == -ESRCH || (n <= 0 && !nv_uses_driver(l->sys, pid))) {
		l->unknown[i].pid = 0; /* the log is read late: it has ended meanwhile */
		return;
	}
	if (n <= 0) {
		l->unknown[i].again = nv_now(l) + 30 * ADOPT_AGAIN_NS;
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "pid %u is UNMANAGED: it has a context that was not seen being made, and it "
		       "could not "
		       "be adopted (%s); "
		       "restart that program to govern it",
		       pid, n ? strerror(-n) : "no channel found");
		return;
	}
	p = nv_registry_process(&l->registry, pid);
	nv_log(l, LEVER_NVIDIA_INFO, "adopted pid %u (%s): %d channels found in %llu ms", pid,
	       p ? p->comm : "?", n, (unsigned long long)st.ns / 1000000);
}

void nv_adopt_old(struct lever_nvidia *l)
{
	uint32_t users[256];
	int n = nv_users(l->sys, users, 256), err;

	for (int i = 0; i < n && i < 256; i++) {
		struct nv_adopt_stats st;

		if (users[i] == l->self || (l->guardian > 0 && users[i] == (uint32_t)l->guardian) ||
		    nv_registry_process(&l->registry, users[i]))
			continue;
		err = adopt(l, users[i], &st);
		if (err > 0) {
			nv_log(l, LEVER_NVIDIA_INFO, "adopted pid %u: %d channels found in %llu ms",
			       users[i], err, (unsigned long long)st.ns / 1000000);
		} else if (err < 0) {
			uint32_t k = l->unknown_next++ % NV_UNKNOWN;

			l->unknown[k].pid = users[i];
			l->unknown[k].again = nv_now(l) + 30 * ADOPT_AGAIN_NS;
			nv_log(l, LEVER_NVIDIA_WARNING,
			       "pid %u is UNMANAGED: older than the daemon, and %s; restart it to "
			       "govern it",
			       users[i], strerror(-err));
		}
	}
}
