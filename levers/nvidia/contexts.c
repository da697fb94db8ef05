// SPDX-License-Identifier: MIT
/*
 * contexts.c - the contexts of each GPU: a process gets one with its first compute channel there
 * and loses it with the last. They come by the discovery program or, if they are older than the
 * lever, by adoption.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "../../bpf/discovery.h"
#include "act.h"
#include "carry_out.h"
#include "claims.h"
#include "contexts.h"
#include "couple.h"
#include "state.h"
#include "unknown_table.h"
#include "vgpus.h"
#include "warm_up.h"

/* pauses between answers to a program's own controls: the first one, and when it is forgotten */
#define OWN_PAUSE_NS  1000000ull
#define OWN_FORGET_NS 2000000000ull
#define ASSIGNED_NS   250000000ull /* the file of assignments may be so old */

/* The GPU of that instance; NULL: there is none. */
static struct nv_gpu *gpu_of(struct lever_nvidia *l, uint32_t device)
{
	for (uint32_t i = 0; i < l->gpus; i++)
		if (l->gpu[i].rm.device_instance == device)
			return &l->gpu[i];
	return NULL;
}

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
	struct nv_process *p, *named;
	struct nv_context *c;

	if (cid && g->cid[h].cid == cid && g->context[g->cid[h].context].process)
		return &g->context[g->cid[h].context];
	p = nv_registry_by_cid(&l->registry, g->rm.device_instance, cid);
	named = nv_registry_process(&l->registry, pid);
	/* The driver names a process of which the number is not known: is it the other one's? */
	if (p && named && p != named && nv_process_host(named, g->rm.device_instance) != p &&
	    nv_context_of(g, named)) {
		nv_claim_deny(l, g, cid);
		p = nv_registry_by_cid(&l->registry, g->rm.device_instance, cid);
	}
	if (!p)
		p = named;
	c = p ? nv_context_of(g, p) : NULL;
	if (!c && p && nv_process_host(p, g->rm.device_instance))
		c = nv_context_of(g, nv_process_host(p, g->rm.device_instance));
	if (c && cid) {
		g->cid[h].cid = cid;
		g->cid[h].context = (uint32_t)(c - g->context);
	}
	return c;
}

static struct nv_context *free_slot(struct nv_gpu *g)
{
	for (uint32_t i = 0; i < LEVER_NVIDIA_CONTEXTS; i++)
		if (!g->context[i].process) {
			if (i >= g->high)
				g->high = i + 1;
			memset(&g->context[i], 0, sizeof(g->context[i]));
			return &g->context[i];
		}
	return NULL;
}

void nv_context_add(struct lever_nvidia *l, struct nv_gpu *g, struct nv_process *p,
		    const char *load)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_ADD };
	struct nv_context *c = nv_context_of(g, p);

	if (c && c->load && !load) { /* it was there, and can be governed now */
		c->load = false;
		c->reason[0] = '\0';
		e.type = RTXG_SLICE_EV_GOVERN;
		e.context = (uint32_t)(c - g->context);
		nv_decide(l, g, &e);
	}
	if (c)
		return;
	c = free_slot(g);
	if (!c) {
		static const char full[] = "it is one process too many on this GPU for rtxg; it is "
					   "governed when another one ends";

		if (nv_has_no_place(l, p->pid, full))
			return;
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "pid %u is UNMANAGED: more than %u processes on one GPU", p->pid,
		       LEVER_NVIDIA_CONTEXTS);
		return;
	}
	c->process = p;
	c->known = nv_now(l);
	p->tag = nv_belongs(l, p);
	c->vgpu = nv_vgpu_of(g, p->tag);
	e.context = (uint32_t)(c - g->context);
	e.tenant = c->vgpu;
	if (load) {
		c->load = true;
		snprintf(c->reason, sizeof(c->reason), "%s", load);
		e.value = RTXG_SLICE_LOAD;
	}
	nv_decide(l, g, &e);
	nv_couple(l);
	if (l->ops.context)
		l->ops.context(l->ops.ctx, (uint32_t)(g - l->gpu), p->pid, p->comm, c->vgpu, true);
	if (p->mps_server)
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "pid %u is an MPS server: all of its clients are one context and share "
		       "one vGPU; "
		       "stop MPS to govern them one by one",
		       p->pid);
}

/* `ended`: its channels are gone, or about to go. */
static void context_remove(struct lever_nvidia *l, struct nv_gpu *g, struct nv_process *p,
			   bool ended)
{
	struct nv_context *c = nv_context_of(g, p);
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_REMOVE };
	bool elsewhere = false;
	struct nv_batch b = { 0 };

	if (!c)
		return;
	/* first what keeps memory of the process alive */
	nv_sight_close(l, g, c);
	e.context = (uint32_t)(c - g->context);
	/* its channels go with it, but a child may hold them a little longer */
	if (!nv_batch_add(&b, p, g->rm.device_instance, NV_STOPPED) && b.count) {
		if (ended)
			nv_resume_last(&g->rm, &l->journal, &b);
		else
			nv_resume(&g->rm, &l->journal, &b);
	}
	nv_batch_free(&b);
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
	nv_couple(l);
}

/* It is not on the engine, and has not been there for a while. */
static bool has_rested(struct lever_nvidia *l, struct nv_gpu *g, const struct nv_context *c)
{
	uint64_t last = c->worked > c->known ? c->worked : c->known;
	struct rtxg_slice_context_view v;

	return nv_now(l) >= last + NV_LOAD_RESTS_NS &&
	       !rtxg_slice_context_view(g->slice, (uint32_t)(c - g->context), &v) &&
	       v.state != RTXG_SLICE_RUNNING;
}

bool nv_load_let_go(struct lever_nvidia *l, struct nv_process *p)
{
	bool any = false;

	for (uint32_t i = 0; i < l->gpus; i++) {
		struct nv_context *c = nv_context_of(&l->gpu[i], p);

		if (!c || !c->load || !has_rested(l, &l->gpu[i], c))
			continue;
		context_remove(l, &l->gpu[i], p, false);
		any = true;
	}
	return any;
}

/* A process has one channel more, on that GPU. Returns whether it is new there. */
static bool channel_added(struct lever_nvidia *l, struct nv_gpu *g, struct nv_process *p)
{
	struct nv_context *c = nv_context_of(g, p);
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_GOVERN };

	if (!c || c->load) {
		bool fresh = !c;

		nv_is_read(l, p->pid);
		nv_context_add(l, g, p, NULL);
		return fresh && nv_context_of(g, p);
	}
	nv_sight_changed(l, c);
	/* What was refused for good may have been so for a group that was half made. */
	for (uint32_t i = 0; i < NV_ACTIONS; i++)
		if (c->refusal[i].final) {
			memset(c->refusal, 0, sizeof(c->refusal));
			c->reason[0] = '\0';
			e.context = (uint32_t)(c - g->context);
			nv_decide(l, g, &e);
			break;
		}
	/* A stopped process has made one more channel: that is stopped with the others. */
	nv_stop_rest(l, g, c);
	return false;
}

/*
 * What a program does to its own context by itself, as CUDA does while it builds one: sets a slice,
 * or says that a group may run. What was decided is done again at once, but a program that does so
 * all the time is not followed all the time: the watch is left to it.
 */
static void own_control(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c,
			const struct discover_record *r)
{
	uint64_t now = nv_now(l);
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_GOVERN,
				      .context = (uint32_t)(c - g->context) };
	bool slice = r->class_id == DISCOVER_SET_TIMESLICE, retried = false;

	for (uint32_t i = 0; i < NV_ACTIONS; i++)
		retried = retried || (c->refusal[i].times && !c->refusal[i].final);
	if (c->load ||
	    (slice ? !c->slice_ns || r->value == c->slice_ns / 1000 : !c->stopped && !retried))
		return;
	if (now > c->own_at + OWN_FORGET_NS)
		c->own_pause = 0;
	if (c->own_pause && now < c->own_at + c->own_pause) {
		c->checked = 0;
		return;
	}
	c->own_pause = c->own_pause ? 2 * c->own_pause : OWN_PAUSE_NS;
	c->own_at = now;
	if (slice) {
		l->stats.slices_lost++;
		nv_slice_again(l, g, c);
	} else if (c->stopped) {
		nv_stop_again(l, g, c);
	}
	/* The group is ready now: what was refused is tried again. */
	if (!slice && retried)
		nv_decide(l, g, &e);
}

/* A group is about to go from the registry, and its duplicates with it, which may live on. */
static void let_duplicates_go(struct lever_nvidia *l, const struct nv_process *p,
			      const struct nv_group *of)
{
	struct nv_gpu *g = gpu_of(l, of->device);
	struct nv_batch b = { 0 };

	for (unsigned int i = 0; i < p->guest_count && !of->host; i++)
		for (unsigned int k = 0; k < p->guests[i]->group_count; k++) {
			struct nv_group *d = &p->guests[i]->groups[k];

			if (d->host == p && d->of == of->handle && d->of_client == of->client)
				nv_batch_add_group(&b, d, NV_STOPPED);
		}
	if (g && b.count)
		nv_resume(&g->rm, &l->journal, &b);
	nv_batch_free(&b);
}

/*
 * Channels are about to go from the registry, with a channel, a group, a device, the client or all
 * of a process. Those that are stopped leave the journal, which would fill up otherwise.
 */
static void before_it_goes(struct lever_nvidia *l, struct nv_process *p,
			   const struct discover_record *r)
{
	bool exec = r->kind == DISCOVER_EXEC;

	if (!exec)
		nv_sight_freed(l, p, r->client, r->object);
	for (uint32_t i = 0; i < l->gpus && exec; i++) {
		struct nv_batch b = { 0 };

		/* a child may hold them still */
		if (!nv_batch_add(&b, p, l->gpu[i].rm.device_instance, NV_STOPPED) && b.count)
			nv_resume(&l->gpu[i].rm, &l->journal, &b);
		nv_batch_free(&b);
	}
	for (unsigned int i = 0; i < p->group_count; i++) {
		const struct nv_group *g = &p->groups[i];
		const struct nv_client *c = nv_process_client(p, g->client);
		bool all = exec || (g->client == r->client &&
				    (r->object == g->client || r->object == g->handle));

		for (unsigned int k = 0; c && !all && k < c->devices; k++)
			all = g->client == r->client && c->device[k].object == r->object &&
			      c->device[k].instance == g->device;
		if (all)
			let_duplicates_go(l, p, g);
		for (unsigned int k = 0; k < g->count; k++)
			if (g->channels[k].stops &&
			    (all || (g->client == r->client && g->channels[k].handle == r->object)))
				nv_journal_note(&l->journal, g->device, g->client,
						g->channels[k].handle, 0);
	}
}

/* The driver's own number of a group, which its duplicates share; 0: it does not say. */
static uint32_t group_number(struct nv_gpu *g, uint32_t client, uint32_t handle)
{
	struct nv_group_uid uid = { .client = client, .object = handle };

	return nv_rm_control(g->rm.rm, g->rm.subdevice, NV2080_FIFO_GET_GROUP_UID, &uid,
			     sizeof(uid))
		       ? 0
		       : uid.group;
}

/*
 * A process says that it has duplicated another one's group, as a client of MPS does with its
 * server's. If the driver says so too, what it does there is part of the other one's context.
 */
static void duplicated(struct lever_nvidia *l, struct nv_process *p, const struct nv_group *of,
		       const struct discover_record *r)
{
	struct nv_gpu *g = gpu_of(l, of->device);
	uint32_t number = g ? group_number(g, r->client, r->object) : 0;

	if (number && number == group_number(g, of->client, of->handle))
		nv_registry_lend(p, r->client, r->object, of);
}

/* Of a process that was adopted: which of the guest's groups are duplicates of the host's? */
static void share_groups(struct lever_nvidia *l, struct nv_process *host, struct nv_process *guest)
{
	for (unsigned int i = 0; i < host->group_count && host != guest; i++) {
		struct nv_group *of = &host->groups[i];
		struct nv_gpu *g = gpu_of(l, of->device);
		uint32_t number = g && !of->lone ? group_number(g, of->client, of->handle) : 0;
		struct nv_context *c = g ? nv_context_of(g, guest) : NULL;

		for (unsigned int k = 0; k < guest->group_count && number; k++) {
			struct nv_group *one = &guest->groups[k];

			if (one->lone || one->host || one->device != of->device ||
			    group_number(g, one->client, one->handle) != number)
				continue;
			/* A server has no compute object of its own: its clients' tell. */
			if (nv_group_is_compute(one))
				of->engine = one->engine;
			/* its channels may be seen, and stopped, in the context that it had */
			if (c)
				context_remove(l, g, guest, false);
			nv_registry_lend(guest, one->client, one->handle, of);
			if (c && nv_process_computes(guest, of->device))
				nv_context_add(l, g, guest, NULL);
			if (nv_process_computes(host, of->device))
				channel_added(l, g, host);
			break;
		}
	}
}

void nv_share_adopted(struct lever_nvidia *l, struct nv_process *p)
{
	for (unsigned int i = 0; i < l->registry.count; i++) {
		struct nv_process *other = l->registry.processes[i];

		if (p->mps_server)
			share_groups(l, p, other);
		else if (other->mps_server)
			share_groups(l, other, p);
	}
}

/*
 * A guest's channels are about to go, with its process or its program. Those that are stopped are
 * let go, for a child may hold them still.
 */
static void guest_goes(struct lever_nvidia *l, struct nv_process *p)
{
	for (unsigned int i = 0; i < p->group_count; i++) {
		struct nv_gpu *g = p->groups[i].host ? gpu_of(l, p->groups[i].device) : NULL;
		struct nv_batch b = { 0 };

		if (!g)
			continue;
		nv_sight_freed(l, p, p->groups[i].client, p->groups[i].client);
		if (!nv_batch_add_group(&b, &p->groups[i], NV_STOPPED) && b.count)
			nv_resume(&g->rm, &l->journal, &b);
		nv_batch_free(&b);
	}
}

/* It may have channels that are not known, and may have ended. */
static void missed(struct lever_nvidia *l, const struct discover_record *r)
{
	l->prune = true;
	for (unsigned int i = 0; i < l->registry.count && !r->value; i++)
		if (!r->pid || l->registry.processes[i]->pid == r->pid)
			l->registry.processes[i]->missed = l->rescan = true;
	if (l->next_watch > nv_now(l) + ASSIGNED_NS)
		l->next_watch = nv_now(l) + ASSIGNED_NS;
	if (l->registry.lost < 2 * l->lost_said)
		return;
	l->lost_said = l->registry.lost;
	nv_log(l, LEVER_NVIDIA_WARNING,
	       "discovery records were lost, of pid %u and maybe of others (%llu so far); looking "
	       "for what they have",
	       r->pid, (unsigned long long)l->registry.lost);
}

/* What they are the children of, and their ends, is looked for in /proc now and then. */
static void unwatched(struct lever_nvidia *l, const struct discover_record *r)
{
	l->unwatched += r->object;
	if (l->unwatched < 2 * l->unwatched_said)
		return;
	l->unwatched_said = l->unwatched;
	nv_log(l, LEVER_NVIDIA_WARNING,
	       "%llu processes are not followed so far: of one user more are than are left for "
	       "others; their vGPU is that of a parent while this lives",
	       (unsigned long long)l->unwatched);
}

void nv_contexts_feed(void *ctx, const struct discover_record *r)
{
	struct lever_nvidia *l = ctx;
	struct nv_process *p, *host[RM_GPUS_MAX] = { NULL };
	struct nv_what what;
	bool fresh = false;
	int err;

	if (r->pid == l->self || (l->guardian > 0 && r->pid == (uint32_t)l->guardian))
		return;
	p = nv_registry_process(&l->registry, r->pid);
	for (uint32_t i = 0; i < l->gpus && p; i++)
		host[i] = nv_process_host(p, l->gpu[i].rm.device_instance);
	if (p && (r->kind == DISCOVER_EXIT || r->kind == DISCOVER_EXEC))
		guest_goes(l, p);
	/*
	 * Its last records may still be in the log, which is read later; and the next process of
	 * its pid is another one.
	 */
	if (r->kind == DISCOVER_EXIT || r->kind == DISCOVER_EXEC)
		nv_known_now(l, r->pid);
	if (p && (r->kind == DISCOVER_FREE || r->kind == DISCOVER_EXEC))
		before_it_goes(l, p, r);
	err = nv_registry_feed(&l->registry, r, &what);
	if (err == -EPERM || err == -ENOSPC) {
		/* A hostile process can do this as fast as it likes. */
		if (l->registry.refused >= 2 * l->refused_said) {
			l->refused_said = l->registry.refused;
			nv_log(l, LEVER_NVIDIA_WARNING,
			       err == -EPERM
				       ? "pid %u named client 0x%x, which is another process's: "
					 "ignored (%llu such records so far)"
				       : "pid %u has made one object too many (client 0x%x): "
					 "ignored (%llu such records so far)",
			       r->pid, r->client, (unsigned long long)l->registry.refused);
		}
	} else if (err) {
		nv_log(l, LEVER_NVIDIA_ERROR, "out of memory for the registry: pid %u is UNMANAGED",
		       r->pid);
	}
	if (l->options.assigned) {
		if (r->kind == DISCOVER_FORK && r->tag)
			nv_assigned_born(&l->assigned, r->pid, r->tag, r->value);
		else if (r->kind == DISCOVER_EXIT)
			nv_assigned_remove(&l->assigned, r->pid);
		else if (r->kind == DISCOVER_LOST && r->value == 1)
			l->pruning = true;
		else if (r->kind == DISCOVER_LOST && l->inheriting)
			l->inherit_again = true;
		else if (r->kind == DISCOVER_LOST)
			l->inheriting = true;
		/* the watch writes it down */
		if (l->assigned.dirty && l->next_watch > nv_now(l) + ASSIGNED_NS)
			l->next_watch = nv_now(l) + ASSIGNED_NS;
	}
	if (r->kind == DISCOVER_LOST && r->value == DISCOVER_UNWATCHED)
		unwatched(l, r);
	else if (r->kind == DISCOVER_LOST)
		missed(l, r);
	if (what.change == NV_DUPLICATE)
		duplicated(l, what.process, what.group, r);
	if (what.change == NV_NEW_CHANNEL)
		nv_claim_numbers(l, what.group, r->object);
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct nv_gpu *g = &l->gpu[i];
		/* in whose context the group works */
		struct nv_process *of =
			what.group && what.group->host ? what.group->host : what.process;

		switch (what.change) {
		case NV_NEW_CHANNEL:
			if (what.group->device != g->rm.device_instance ||
			    !nv_group_is_compute(what.group))
				break;
			fresh = channel_added(l, g, of) || fresh;
			break;
		case NV_GONE_CHANNEL:
			if (host[i] && nv_context_of(g, host[i]))
				nv_sight_changed(l, nv_context_of(g, host[i]));
			/* What a load has is not known. It ends where another program begins. */
			if (nv_context_of(g, what.process) &&
			    (!nv_context_of(g, what.process)->load || r->kind == DISCOVER_EXEC) &&
			    !nv_process_computes(what.process, g->rm.device_instance))
				context_remove(l, g, what.process, true);
			break;
		case NV_GONE_PROCESS:
			context_remove(l, g, what.process, true);
			break;
		case NV_OWN_CONTROL:
			if (nv_context_of(g, of) &&
			    (!what.group || (what.group->device == g->rm.device_instance &&
					     nv_group_is_compute(what.group))))
				own_control(l, g, nv_context_of(g, of), r);
			break;
		case NV_DUPLICATE:
		case NV_NOTHING:
			break;
		}
	}
	/* a periodic program is to be told of its releases from the first one on */
	if (fresh)
		nv_look_for_warm(l);
	if (what.change != NV_GONE_PROCESS)
		return;
	nv_registry_drop(&l->registry, what.process);
	for (uint32_t i = 0; i < l->gpus; i++)
		if (host[i] && nv_context_of(&l->gpu[i], host[i]))
			nv_sight_changed(l, nv_context_of(&l->gpu[i], host[i]));
}

/* Who was seen to own the client has said what is not so: it is as if it had freed the client. */
static bool contested(void *lever, const struct nv_process *owner, const struct discover_record *r)
{
	struct discover_record gone = { .kind = DISCOVER_FREE,
					.pid = owner->pid,
					.tid = owner->pid,
					.client = r->client,
					.object = r->client,
					.fd = -1 };

	if (!nv_claim_client(lever, owner, r))
		return false;
	nv_log(lever, LEVER_NVIDIA_WARNING,
	       "pid %u had named client 0x%x, which is pid %u's: that has it now", owner->pid,
	       r->client, r->pid);
	nv_contexts_feed(lever, &gone);
	return true;
}

void nv_contexts_begin(struct lever_nvidia *l)
{
	l->registry.contested = contested;
	l->registry.contested_ctx = l;
}

void nv_contexts_prune(struct lever_nvidia *l)
{
	for (unsigned int i = l->registry.count; i-- > 0;) {
		struct discover_record r = { .kind = DISCOVER_EXIT };
		struct nv_process *p = l->registry.processes[i];

		if (l->sys->alive(l->sys->ctx, (int)p->pid))
			continue;
		r.pid = r.tid = p->pid;
		nv_contexts_feed(l, &r);
	}
	nv_unknown_prune(l);
}
