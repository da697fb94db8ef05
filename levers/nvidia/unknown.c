// SPDX-License-Identifier: MIT
/*
 * unknown.c - see unknown.h.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "../../bpf/discovery.h"
#include "act.h"
#include "adopt.h"
#include "carry_out.h"
#include "claims.h"
#include "contexts.h"
#include "state.h"
#include "unknown.h"
#include "unknown_table.h"
#include "vgpus.h"

#define ADOPT_AGAIN_NS 1000000000ull /* the first pause; it doubles */
#define UNREAD_NS      100000000ull  /* all that waited is read by then */
#define RESCAN_NS      1000000000ull /* the first pause between two looks; it doubles, */
#define RESCAN_MAX     60000000000ull
#define RESCAN_PART    20u /* and no more than such a part of the time goes into all looks */
#define LOOKS_PART     20u /* the same of the looks for one user's processes */
#define LOOKS_NS       20000000ull /* no look for a load begins so long after the first */

static int adopt(struct lever_nvidia *l, uint32_t pid, struct nv_adopt_stats *st)
{
	struct nv_rm_gpu gpus[RM_GPUS_MAX];
	struct nv_process *p;
	uint32_t i;
	int n;

	for (i = 0; i < l->gpus; i++)
		gpus[i] = l->gpu[i].rm;
	/* It makes its groups again, and what was stopped of them would not be known any more. */
	nv_let_go_for_a_while(l, nv_registry_process(&l->registry, pid));
	n = nv_adopt(gpus, (int)l->gpus, &l->registry, pid, st);
	if (n < 0) {
		nv_stop_as_before(l, nv_registry_process(&l->registry, pid));
		return n;
	}
	p = nv_registry_process(&l->registry, pid);
	if (!p)
		return n ? -ESRCH : 0;
	for (i = 0; i < p->group_count; i++)
		nv_claim_numbers(l, &p->groups[i], 0);
	p->tag = nv_belongs(l, p);
	nv_share_adopted(l, p);
	/* an MPS server, by what its clients have */
	for (i = 0; i < l->gpus && !n; i++)
		n = nv_process_computes(p, l->gpu[i].rm.device_instance) ? 1 : 0;
	if (!n)
		return 0;
	if (l->discovery)
		discovery_watch(l->discovery, pid, nv_inherits(p));
	for (i = 0; i < l->gpus; i++) {
		struct nv_gpu *g = &l->gpu[i];
		struct nv_context *c = nv_context_of(g, p);
		struct nv_batch b = { 0 };

		if (!nv_process_computes(p, g->rm.device_instance))
			continue;
		/* A daemon that died together with its guardian may have left it stopped. */
		if (!nv_batch_add(&b, p, g->rm.device_instance, NV_ALL) && b.count)
			nv_resume(&g->rm, &l->journal, &b);
		nv_batch_free(&b);
		nv_set_slice(&g->rm, &l->journal, p, g->rm.device_instance, NV_DRIVER_SLICE_US);
		if (c && !c->load) { /* it was known here, and looked for because of another GPU */
			nv_sight_changed(l, c);
			if (c->stopped)
				nv_stop_again(l, g, c);
			nv_slice_again(l, g, c);
		}
		nv_context_add(l, g, p, NULL);
	}
	return n;
}

static bool is_own(const struct lever_nvidia *l, uint32_t pid)
{
	return !pid || pid == NV_FECS_KERNEL_PID || pid == l->self ||
	       (l->guardian > 0 && pid == (uint32_t)l->guardian);
}

/* Why a process could not be adopted, and what to do. */
static const char *why_not(int n)
{
	return n == -EPERM || n == -EACCES
		       ? "it has a context that was made unseen, and its descriptors may not be "
			 "looked at: restart it"
	       : n < 0 ? "it has a context that was made unseen, and the driver refuses to say "
			 "which; it is asked again, or restart it"
		       : "it has a context that was made unseen and was not found: restart it";
}

/* It is looked for again after a pause, which grows while that is asked for all the time. */
static void look_later(struct lever_nvidia *l, struct nv_unknown *u, bool found)
{
	uint64_t now = nv_now(l);

	if (found && now > u->again + NV_UNKNOWN_PAUSE_MAX)
		u->pause = 0;
	u->pause = u->pause ? u->pause * 2 : ADOPT_AGAIN_NS;
	if (u->pause > NV_UNKNOWN_PAUSE_MAX)
		u->pause = NV_UNKNOWN_PAUSE_MAX;
	u->again = now + u->pause;
	u->found = found;
}

/* May the process be looked for now? *user: whose it is. */
static bool may_look(struct lever_nvidia *l, uint32_t pid, uint32_t *user)
{
	const struct nv_unknown *u = nv_unknown_of(l, pid, false);
	uint64_t now = nv_now(l);

	*user = u ? u->user : nv_unknown_user(l, pid);
	return now >= l->looks_again[*user] && (!u || now >= u->again);
}

/* Is it governed on that GPU, or a part of another one's context there? NULL: on any. */
static bool is_governed(struct nv_gpu *g, const struct nv_process *p)
{
	const struct nv_context *c = g && p ? nv_context_of(g, p) : NULL;

	return !g || (c && !c->load) || (p && nv_process_host(p, g->rm.device_instance));
}

static bool is_load(struct lever_nvidia *l, struct nv_gpu *g, uint32_t pid)
{
	struct nv_process *p = nv_registry_process(&l->registry, pid);
	const struct nv_context *c = g && p ? nv_context_of(g, p) : NULL;

	return c && c->load;
}

/*
 * Looks for the channels of a process, because of that GPU; NULL: at the beginning, when nothing
 * waits. 1: they are known now; 0: it has ended, or has none; else a negative errno, and when it
 * may be tried again stands in the table.
 */
static int try_to_adopt(struct lever_nvidia *l, struct nv_gpu *g, uint32_t pid)
{
	uint64_t began = nv_now(l);
	struct nv_unknown *u;
	uint32_t user;
	bool works_on, late;
	struct nv_adopt_stats st;
	struct nv_process *p;
	int n;

	/* Who is not looked for takes no place from those who were. */
	if (!may_look(l, pid, &user))
		return -EAGAIN;
	u = nv_unknown_of(l, pid, true);
	works_on = g && u->waits && u->pause;
	late = works_on && u->pause == ADOPT_AGAIN_NS;
	u->waits = false;
	n = adopt(l, pid, &st);
	/* Others have come into the table meanwhile. */
	u = nv_unknown_of(l, pid, true);
	if (g)
		l->looks_again[user] = nv_now(l) + (nv_now(l) - began) * LOOKS_PART;
	if (n == -ENOENT || n == -ESRCH || (n <= 0 && !nv_uses_driver(l->sys, pid))) {
		/* The log is read late: it has ended meanwhile, or has closed what it had. */
		if (!l->sys->alive(l->sys->ctx, (int)pid)) {
			nv_known_now(l, pid);
			return 0;
		}
		/*
		 * If it works after that pause, its context is held by what cannot be seen (a
		 * process whose first thread has ended shows no descriptors): it is a load.
		 */
		if (!works_on && !is_load(l, g, pid)) {
			look_later(l, u, false);
			u->waits = true;
			u->remedy = NULL;
			return 0;
		}
		/* It lives on without the GPU, perhaps for ever. */
		p = nv_registry_process(&l->registry, pid);
		if (is_load(l, g, pid) && nv_load_let_go(l, p)) {
			nv_known_now(l, pid);
			nv_log(l, LEVER_NVIDIA_DEBUG, "pid %u has closed what it had of the GPU",
			       pid);
			return 0;
		}
	}
	p = nv_registry_process(&l->registry, pid);
	if (n > 0 && is_governed(g, p)) {
		/* What it does then may be unknown again: looking takes a tenth of a second. */
		u->waits = false;
		if (g)
			look_later(l, u, true);
		else
			nv_known_now(l, pid);
		nv_log(l, LEVER_NVIDIA_INFO, "adopted pid %u (%s): %d channels found in %llu ms",
		       pid, p ? p->comm : "?", n, (unsigned long long)st.ns / 1000000);
		return 1;
	}
	if (u->waits) /* there is no place for it */
		return -ENOSPC;
	if (!u->pause || u->found || late)
		nv_log(l, LEVER_NVIDIA_WARNING, "pid %u is UNMANAGED: %s (%s)", pid, why_not(n),
		       n < 0 ? strerror(-n) : "no channel found");
	u->remedy = why_not(n);
	look_later(l, u, false);
	return n < 0 ? n : -ENXIO;
}

/*
 * What is known of it goes, as when it runs another program, for some of that may be no more. Then
 * it is adopted, as if it were older than the lever.
 */
static void rescan(struct lever_nvidia *l, struct nv_process *p)
{
	struct discover_record forget = { .kind = DISCOVER_EXEC, .pid = p->pid, .tid = p->pid };
	uint64_t began = nv_now(l), took;
	struct nv_adopt_stats st;

	/* What works in its context goes with that. */
	for (unsigned int i = 0; i < p->guest_count; i++)
		p->guests[i]->missed = true;
	p->missed = false;
	memcpy(forget.comm, p->comm, sizeof(forget.comm));
	nv_contexts_feed(l, &forget);
	/* Where that fails the log of switches tells of it, if it works. */
	adopt(l, p->pid, &st);
	took = nv_now(l) - began;
	p->rescan_pause = !p->rescan_pause		     ? RESCAN_NS
			  : p->rescan_pause > RESCAN_MAX / 2 ? RESCAN_MAX
							     : 2 * p->rescan_pause;
	p->rescan_again = nv_now(l) + p->rescan_pause;
	l->rescan_again = nv_now(l) + took * RESCAN_PART;
}

void nv_rescan(struct lever_nvidia *l)
{
	uint64_t now = nv_now(l);

	if (!l->rescan || now < l->rescan_again)
		return;
	l->rescan = false;
	for (unsigned int i = 0; i < l->registry.count; i++) {
		struct nv_process *p = l->registry.processes[i];

		if (!p->missed)
			continue;
		l->rescan = true;
		if (now < p->rescan_again)
			continue;
		rescan(l, p);
		return;
	}
}

void nv_adopt_unknown(struct lever_nvidia *l, struct nv_gpu *g, uint32_t pid)
{
	struct nv_unknown *u;
	char comm[16];
	struct nv_process *p;

	if (is_own(l, pid))
		return;
	u = nv_unknown_of(l, pid, false);
	if (!u && l->pump_again != UINT64_MAX) {
		/* Its records may wait behind those of others. */
		u = nv_unknown_of(l, pid, true);
		u->waits = true;
		u->again = nv_now(l) + UNREAD_NS;
	}
	/* Nothing is known against it meanwhile: most are governed before the time is over. */
	if (u && u->waits && nv_now(l) < u->again)
		return;
	if (try_to_adopt(l, g, pid) >= 0)
		return;
	u = nv_unknown_of(l, pid, false);
	if (u && u->waits && nv_now(l) < u->again)
		return;
	/* It is not its turn to be looked for. One that ends works until its context is gone. */
	if (!u && !nv_uses_driver(l->sys, pid))
		return;
	/* It works on this GPU, and that is all that is known: the policy is to reckon with it. */
	nv_process_name(pid, comm, sizeof(comm));
	p = nv_registry_note(&l->registry, pid, comm);
	if (!p || nv_context_of(g, p))
		return;
	p->tag = nv_belongs(l, p);
	if (l->discovery) /* its end is to be told */
		discovery_watch(l->discovery, pid, nv_inherits(p));
	nv_context_add(l, g, p,
		       u && u->remedy
			       ? u->remedy
			       : "it has a context that was made unseen, which is looked for");
}

static void look_for_load(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c)
{
	const struct nv_unknown *u;

	c->looked = nv_now(l);
	try_to_adopt(l, g, c->process->pid);
	u = c->process && c->load ? nv_unknown_of(l, c->process->pid, false) : NULL;
	if (u && u->remedy)
		snprintf(c->reason, sizeof(c->reason), "%s", u->remedy);
}

/*
 * For one load of each user, which was looked for longest ago, and not since then. Returns whether
 * there was any.
 */
static bool look_for_some(struct lever_nvidia *l, uint64_t began)
{
	struct {
		struct nv_gpu *gpu;
		struct nv_context *context;
	} next[NV_USERS] = { { 0 } };
	uint32_t first = l->load_next, user;
	bool any = false;

	for (uint32_t i = 0; i < l->gpus; i++)
		for (uint32_t k = 0; k < l->gpu[i].high; k++) {
			struct nv_context *c = &l->gpu[i].context[k];

			if (!c->process || !c->load || c->looked >= began ||
			    !may_look(l, c->process->pid, &user) ||
			    (next[user].context && next[user].context->looked <= c->looked))
				continue;
			next[user].gpu = &l->gpu[i];
			next[user].context = c;
		}
	for (uint32_t i = 0; i < NV_USERS && nv_now(l) < began + LOOKS_NS; i++) {
		struct nv_context *c = next[user = (first + i) % NV_USERS].context;

		if (!c || !c->process || !c->load)
			continue;
		look_for_load(l, next[user].gpu, c);
		l->load_next = user + 1;
		any = true;
	}
	return any;
}

void nv_adopt_loads(struct lever_nvidia *l)
{
	uint64_t began = nv_now(l);

	while (look_for_some(l, began))
		;
}

void nv_adopt_old(struct lever_nvidia *l)
{
	uint32_t users[256];
	int n = nv_users(l->sys, users, 256);

	for (int i = 0; i < n && i < 256; i++)
		if (!is_own(l, users[i]) && !nv_registry_process(&l->registry, users[i])) {
			int err = try_to_adopt(l, NULL, users[i]);

			/* It has the driver open and no context, as far as is known. */
			if (err == -ENXIO)
				nv_known_now(l, users[i]);
		}
}
