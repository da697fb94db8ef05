// SPDX-License-Identifier: MIT
/*
 * slice_gpus.c - see slice_gpus.h.
 *
 * May not: decide who runs; the cores do.
 */
#include <stdlib.h>
#include "slice_gpus.h"
#include "slice_model_internal.h"

struct model_collective {
	uint32_t ranks;
	struct {
		uint64_t kernel; /* the number of the one it is at */
		bool on;	 /* and whether that is on the engine */
	} rank[MODEL_GPUS];
	uint64_t any, all;
};

struct model_gpus {
	uint32_t count, collectives;
	bool apart;
	struct model *gpu[MODEL_GPUS];
	uint64_t lives[MODEL_GPUS];
	bool coupled[MODEL_TENANTS];
	struct model_collective collective[MODEL_COLLECTIVES];
};

bool model_gets_on(const struct model *m, const struct process *c)
{
	const struct model_collective *with = c->p.with;
	uint32_t k;

	if (!with || c->done % 2 == 0)
		return true;
	for (k = 0; k < with->ranks; k++)
		if (k != c->p.rank && with->rank[k].kernel <= c->done &&
		    (with->rank[k].kernel < c->done || !with->rank[k].on))
			return false;
	return true;
}

struct model_gpus *model_gpus_open(uint32_t gpus, uint32_t can, uint64_t seed)
{
	struct model_gpus *all = calloc(1, sizeof(*all));

	if (!all || gpus > MODEL_GPUS)
		abort();
	all->count = gpus;
	for (uint32_t g = 0; g < gpus; g++)
		all->gpu[g] = model_open(can, NULL, seed * MODEL_GPUS + g);
	return all;
}

void model_gpus_close(struct model_gpus *all)
{
	for (uint32_t g = 0; g < all->count; g++)
		model_close(all->gpu[g]);
	free(all);
}

void model_gpus_uncouple(struct model_gpus *all)
{
	all->apart = true;
}

void model_gpus_tenant(struct model_gpus *all, uint32_t gpu, uint32_t id,
		       struct rtxg_slice_tenant params)
{
	model_tenant(all->gpu[gpu], id, params);
}

uint32_t model_gpus_program(struct model_gpus *all, uint32_t gpu, struct model_program program)
{
	return model_program(all->gpu[gpu], program);
}

struct model_collective *model_gpus_collective(struct model_gpus *all, uint32_t ranks)
{
	struct model_collective *with = &all->collective[all->collectives++];

	if (all->collectives > MODEL_COLLECTIVES || ranks > MODEL_GPUS)
		abort();
	with->ranks = ranks;
	return with;
}

/* What levers/nvidia/couple.c tells: which tenants are on two GPUs or more. */
static void couple(struct model_gpus *all)
{
	uint32_t on[MODEL_TENANTS] = { 0 };
	bool changed = false;

	for (uint32_t g = 0; g < all->count; g++) {
		changed = changed || all->lives[g] != all->gpu[g]->lives;
		all->lives[g] = all->gpu[g]->lives;
	}
	if (!changed || all->apart)
		return;
	for (uint32_t g = 0; g < all->count; g++) {
		bool there[MODEL_TENANTS] = { false };

		for (uint32_t i = 0; i < all->gpu[g]->count; i++)
			if (all->gpu[g]->c[i].phase != ABSENT)
				there[all->gpu[g]->c[i].p.tenant] = true;
		for (uint32_t t = 0; t < MODEL_TENANTS; t++)
			on[t] += there[t];
	}
	for (uint32_t t = 0; t < MODEL_TENANTS; t++) {
		if (all->coupled[t] == (on[t] > 1))
			continue;
		all->coupled[t] = on[t] > 1;
		for (uint32_t g = 0; g < all->count; g++)
			if (all->gpu[g]->tenant[t])
				model_couple(all->gpu[g], t, on[t] > 1);
	}
}

/* Where each rank is in this step. */
static void look_at_ranks(struct model_gpus *all)
{
	bool any[MODEL_COLLECTIVES] = { false };
	uint32_t on[MODEL_COLLECTIVES] = { 0 };

	for (uint32_t g = 0; g < all->count; g++) {
		struct model *m = all->gpu[g];

		for (uint32_t i = 0; i < m->count; i++) {
			const struct process *c = &m->c[i];
			struct model_collective *with = c->p.with;
			bool there;

			if (!with)
				continue;
			there = c->phase != ABSENT && m->on == (int)i && !m->saving &&
				c->put > c->done;
			with->rank[c->p.rank].on = there;
			with->rank[c->p.rank].kernel = c->phase == ABSENT ? 0 : c->done;
			any[with - all->collective] |= there;
			on[with - all->collective] += there;
		}
	}
	for (uint32_t k = 0; k < all->collectives; k++) {
		all->collective[k].any += any[k] ? STEP : 0;
		all->collective[k].all += on[k] == all->collective[k].ranks ? STEP : 0;
	}
}

struct model_program model_training(uint32_t tenant, struct model_collective *with, uint32_t rank)
{
	return (struct model_program){ .tenant = tenant,
				       .kernel_ns = 800 * MODEL_US,
				       .collective_ns = 500 * MODEL_US,
				       .launches = 20,
				       .depth = 20,
				       .cpu_ns = 100 * MODEL_US,
				       .with = with,
				       .rank = rank };
}

void model_gpus_run(struct model_gpus *all, uint64_t until_ns)
{
	while (all->gpu[0]->now < until_ns && !model_gpus_wrong(all)) {
		uint64_t until = all->gpu[0]->now + STEP;

		for (uint32_t g = 0; g < all->count; g++)
			model_run(all->gpu[g], until);
		couple(all);
		look_at_ranks(all);
	}
}

struct model *model_gpu(struct model_gpus *all, uint32_t gpu)
{
	return all->gpu[gpu];
}

uint64_t model_gpus_any_ns(const struct model_collective *with)
{
	return with->any;
}

uint64_t model_gpus_all_ns(const struct model_collective *with)
{
	return with->all;
}

const char *model_gpus_wrong(struct model_gpus *all)
{
	for (uint32_t g = 0; g < all->count; g++)
		if (model_wrong(all->gpu[g]))
			return model_wrong(all->gpu[g]);
	return NULL;
}
