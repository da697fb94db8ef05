// SPDX-License-Identifier: MIT
/*
 * vgpus.c - which vGPUs there are on each GPU, and which process is in which: set, removed,
 * assigned, kept in a file for the next daemon and read back. May not: touch the driver.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "../../bpf/discovery.h"
#include "carry_out.h"
#include "couple.h"
#include "rtxg_clock.h"
#include "state.h"
#include "vgpus.h"
#include "timer.h"

#define SAVE_PAUSE_NS 2000000ull /* between two pieces of the file */

uint32_t nv_belongs(struct lever_nvidia *l, struct nv_process *p)
{
	const struct nv_assigned_one *e =
		p->tag && !p->placed ? NULL : nv_assigned_find(&l->assigned, p->pid);

	if (e && e->tag != NV_ASSIGNED_NONE) {
		p->placed = false;
		return e->tag;
	}
	if (e || (p->tag && !p->placed) || !l->ops.place)
		return p->tag;
	p->placed = true;
	return l->ops.place(l->ops.ctx, p->pid);
}

uint32_t nv_inherits(const struct nv_process *p)
{
	return p->placed ? 0 : p->tag;
}

uint32_t nv_vgpu_of(const struct nv_gpu *g, uint32_t tag)
{
	return tag < LEVER_NVIDIA_VGPUS && g->vgpu[tag] ? tag : 0;
}

static bool label_of(void *ctx, uint32_t vgpu, char *text)
{
	struct lever_nvidia *l = ctx;

	if (l->ops.label)
		return l->ops.label(l->ops.ctx, vgpu, text, NV_ASSIGNED_LABEL);
	snprintf(text, NV_ASSIGNED_LABEL, "%u", vgpu);
	return true;
}

static uint32_t number_of(const struct lever_nvidia *l, const char *label)
{
	char *end;
	long number;

	if (l->ops.number) {
		number = l->ops.number(l->ops.ctx, label);
	} else {
		number = strtol(label, &end, 10);
		if (*end)
			number = -1;
	}
	return number >= 0 && number < (long)LEVER_NVIDIA_VGPUS ? (uint32_t)number
								: NV_ASSIGNED_NONE;
}

/* True: there is more to write. */
static bool save_some(struct lever_nvidia *l)
{
	int err = nv_assigned_save(&l->assigned, l->options.assigned, label_of, l,
				   rtxg_now_ns() + NV_PIECE_NS);

	if (err > 0)
		return true;
	if (err && err != l->assigned_error)
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "%s: %s: after a restart of the daemon all programs will be in the "
		       "default vGPU",
		       l->options.assigned, strerror(-err));
	l->assigned_error = err;
	return false;
}

void nv_save_assigned(struct lever_nvidia *l)
{
	if (!l->options.assigned)
		return;
	/* What is to be in the file may belong where it has been written already. */
	nv_assigned_save_again(&l->assigned);
	l->save_again = UINT64_MAX;
	if (!l->assigned.dirty)
		return;
	while (save_some(l))
		nv_breathe(l);
}

void nv_save_some(struct lever_nvidia *l)
{
	if (!l->options.assigned || (!l->assigned.dirty && !l->assigned.file))
		return;
	l->save_again = save_some(l) ? nv_now(l) + SAVE_PAUSE_NS : UINT64_MAX;
}

static void move(struct lever_nvidia *l, struct nv_process *p, uint32_t vgpu)
{
	p->tag = vgpu;
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct nv_gpu *g = &l->gpu[i];
		struct nv_context *c = nv_context_of(g, p);
		struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_MOVE };

		if (!c || c->vgpu == nv_vgpu_of(g, vgpu))
			continue;
		c->vgpu = nv_vgpu_of(g, vgpu);
		e.context = (uint32_t)(c - g->context);
		e.tenant = c->vgpu;
		nv_decide(l, g, &e);
	}
	nv_couple(l);
}

static int put_into(struct lever_nvidia *l, uint32_t pid, uint32_t vgpu)
{
	struct nv_process *p = nv_registry_process(&l->registry, pid);
	int err = l->discovery ? discovery_watch(l->discovery, pid, vgpu) : 0;

	/* Who is not followed, for want of a place, has no tag there for its children. */
	if (err == -ENOSPC && !vgpu)
		err = 0;
	if (err || !p)
		return err;
	p->placed = false;
	move(l, p, vgpu);
	return 0;
}

void lever_nvidia_place(struct lever_nvidia *l, bool all)
{
	unsigned int count = l->registry.count;

	nv_assigned_pass(&l->assigned, all);
	for (unsigned int i = 0; i < count && l->ops.place; i++) {
		struct nv_process *p = l->registry.processes[l->place_next++ % count];
		uint32_t tag;

		if (p->tag && !p->placed)
			continue;
		tag = nv_belongs(l, p);
		if (tag != p->tag)
			move(l, p, tag);
		if (!all)
			break;
		nv_breathe(l);
	}
	nv_assigned_pass(&l->assigned, false);
	nv_arm(l);
}

/* What was put into vGPUs has forked since. */
static void inherit_all(struct lever_nvidia *l)
{
	nv_assigned_begin(&l->assigned);
	while (!nv_assigned_inherit(&l->assigned, rtxg_now_ns() + NV_PIECE_NS))
		nv_breathe(l);
}

void lever_nvidia_restore(struct lever_nvidia *l)
{
	struct nv_assigned *a = &l->assigned;
	bool any = false;

	/*
	 * First those that are known, so that what they fork from now on is followed; then what
	 * they have forked before.
	 */
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < a->count; i++) {
			uint32_t vgpu = a->one[i].tag == NV_ASSIGNED_NONE
						? number_of(l, a->one[i].label)
						: NV_ASSIGNED_NONE;

			if (vgpu == NV_ASSIGNED_NONE)
				continue;
			a->one[i].tag = vgpu;
			free(a->one[i].label);
			a->one[i].label = NULL;
			a->dirty = any = true;
			put_into(l, a->one[i].pid, vgpu);
		}
		if (!any)
			return;
		if (!round)
			inherit_all(l);
	}
	for (uint32_t i = 0; i < a->count; i++)
		if (a->one[i].tag != NV_ASSIGNED_NONE)
			put_into(l, a->one[i].pid, a->one[i].tag);
	nv_save_assigned(l);
	nv_arm(l);
}

void nv_read_assigned(struct lever_nvidia *l)
{
	int err = nv_assigned_load(&l->assigned, l->options.assigned);

	if (err && err != -ENOENT)
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "%s: %s: programs that an earlier daemon had put into vGPUs are in the "
		       "default one%s",
		       l->options.assigned, strerror(-err),
		       err == -EPERM
			       ? "; the file must be the daemon's own and writable by no other user"
			       : "");
	inherit_all(l);
}

int lever_nvidia_vgpu_set(struct lever_nvidia *l, uint32_t gpu, uint32_t vgpu,
			  const struct rtxg_slice_tenant *tenant)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TENANT_SET,
				      .tenant = vgpu,
				      .tenant_params = *tenant };
	struct nv_gpu *g;
	int err;

	if (gpu >= l->gpus || vgpu >= LEVER_NVIDIA_VGPUS)
		return -EINVAL;
	g = &l->gpu[gpu];
	err = nv_step(l, g, &e);
	if (err)
		return err;
	g->vgpu[vgpu] = true;
	g->params[vgpu] = *tenant;
	/* Processes that were put in it before it existed */
	for (uint32_t i = 0; i < g->high; i++)
		if (g->context[i].process && g->context[i].process->tag == vgpu &&
		    g->context[i].vgpu != vgpu && put_into(l, g->context[i].process->pid, vgpu))
			move(l, g->context[i].process, vgpu);
	nv_arm(l);
	return 0;
}

int lever_nvidia_vgpu_remove(struct lever_nvidia *l, uint32_t gpu, uint32_t vgpu)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TENANT_REMOVE, .tenant = vgpu };
	bool elsewhere = false;
	struct nv_gpu *g;
	int err;

	if (gpu >= l->gpus || !vgpu || vgpu >= LEVER_NVIDIA_VGPUS)
		return -EINVAL;
	g = &l->gpu[gpu];
	err = nv_step(l, g, &e);
	if (err)
		return err;
	g->vgpu[vgpu] = g->coupled[vgpu] = false;
	memset(&g->before[vgpu], 0, sizeof(g->before[vgpu]));
	for (uint32_t i = 0; i < l->gpus; i++)
		elsewhere = elsewhere || l->gpu[i].vgpu[vgpu];
	/*
	 * A process that was put there and has no context as yet must not land in the next vGPU of
	 * that number.
	 */
	for (uint32_t i = l->assigned.count; i-- > 0 && !elsewhere;)
		if (l->assigned.one[i].tag == vgpu) {
			put_into(l, l->assigned.one[i].pid, 0);
			nv_assigned_remove(&l->assigned, l->assigned.one[i].pid);
		}
	nv_save_assigned(l);
	return 0;
}

int lever_nvidia_assign(struct lever_nvidia *l, uint32_t pid, uint32_t vgpu)
{
	bool any = vgpu == 0;
	int err;

	if (vgpu >= LEVER_NVIDIA_VGPUS)
		return -EINVAL;
	for (uint32_t i = 0; i < l->gpus; i++)
		any = any || l->gpu[i].vgpu[vgpu];
	if (!any)
		return -ENOENT;
	err = put_into(l, pid, vgpu);
	if (err)
		return err;
	if (l->options.assigned) {
		nv_assigned_put(&l->assigned, pid, vgpu, false);
		nv_save_assigned(l);
	}
	nv_arm(l);
	return 0;
}
