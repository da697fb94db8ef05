// SPDX-License-Identifier: MIT
/*
 * claims.c - see claims.h.
 *
 * What a process allocates is read from its own memory, after the driver has answered: another
 * thread of it may have written there what it likes. So a process may name a client, or a number,
 * that the driver gives to another one later, and which that one then could not have.
 */
#include <errno.h>
#include "act.h"
#include "claims.h"

/* Of the time so much goes into the claims of who turns out to have none. */
#define VAIN_PART 10u
/* To look for a number takes so long only where very many are claimed. */
#define LONG_NS 50000u

static void pause_after(struct lever_nvidia *l, uint64_t began)
{
	uint64_t ended = nv_now(l);

	l->claim_again = ended + (ended - began) * (VAIN_PART - 1);
}

bool nv_claim_client(struct lever_nvidia *l, const struct nv_process *owner,
		     const struct discover_record *r)
{
	struct nv_client *c = nv_process_client(owner, r->client);
	uint64_t began = nv_now(l);
	int has;

	if (c->confirmed || began < l->claim_again)
		return false;
	if (nv_client_is_of(&l->rm, r->pid, r->fd, r->client) != 1) {
		pause_after(l, began);
		return false;
	}
	/* Both have it where a child has its parent's descriptor. */
	has = nv_client_is_of(&l->rm, owner->pid, c->fd, r->client);
	c->confirmed = has == 1;
	/* Who does not answer has not. Where it could not be asked, for want of ours, it has. */
	if (has == -EAGAIN || has == -ENOMEM || has == -EMFILE || has == -ENFILE) {
		pause_after(l, began);
		return false;
	}
	return !c->confirmed;
}

/* 1: the driver says that number of the channel; 0: another, or none; else a negative errno. */
static int number_is(struct nv_gpu *g, uint32_t client, const struct nv_channel *ch)
{
	struct nv_group_uid uid = { .client = client, .object = ch->handle };
	int err = nv_rm_control(g->rm.rm, g->rm.subdevice, NV2080_FIFO_GET_GROUP_UID, &uid,
				sizeof(uid));

	if (err)
		return nv_rm_denies(err) ? 0 : err;
	return uid.count == 1 ? uid.cid[0] == ch->cid : -EPROTO;
}

static void take_off(struct nv_gpu *g, struct nv_channel *ch)
{
	for (uint32_t i = 0; i < NV_CID_TABLE; i++)
		if (g->cid[i].cid == ch->cid)
			g->cid[i].cid = 0;
	/* Its work is known by its process alone then. */
	ch->cid = 0;
}

struct claim {
	struct nv_gpu *g;
	uint32_t cid;
	unsigned int count, confirmed;
};

typedef void (*claim_fn)(struct claim *claim, const struct nv_group *group, struct nv_channel *ch);

/* Calls back for each channel of that number on the GPU, but those of one process. */
static void each_claim(const struct nv_registry *registry, struct claim *claim,
		       const struct nv_process *but, claim_fn fn)
{
	for (unsigned int i = 0; i < registry->count; i++) {
		struct nv_process *p = registry->processes[i];

		for (unsigned int k = 0; k < p->group_count && p != but; k++) {
			struct nv_group *group = &p->groups[k];

			if (group->device != claim->g->rm.device_instance)
				continue;
			for (unsigned int c = 0; c < group->count; c++)
				if (group->channels[c].cid == claim->cid)
					fn(claim, group, &group->channels[c]);
		}
	}
}

static void count(struct claim *claim, const struct nv_group *group, struct nv_channel *ch)
{
	claim->count++;
	claim->confirmed += ch->confirmed;
}

static void lose(struct claim *claim, const struct nv_group *group, struct nv_channel *ch)
{
	take_off(claim->g, ch);
}

/* Loses it if the driver says so. */
static void answer_for(struct claim *claim, const struct nv_group *group, struct nv_channel *ch)
{
	int said = ch->confirmed ? 1 : number_is(claim->g, group->client, ch);

	ch->confirmed = said == 1;
	if (!said)
		take_off(claim->g, ch);
}

static void claim_number(struct lever_nvidia *l, struct nv_gpu *g, const struct nv_group *group,
			 struct nv_channel *ch)
{
	struct claim claim = { .g = g, .cid = ch->cid };
	uint64_t began = nv_now(l);

	/* What is missed is found where the log names another process. */
	if (began < l->claim_again)
		return;
	each_claim(&l->registry, &claim, group->process, count);
	if (nv_now(l) > began + LONG_NS)
		pause_after(l, began);
	if (!claim.count)
		return;
	/* No two channels have one number, so one answer is enough. */
	if (!claim.confirmed)
		ch->confirmed = number_is(g, group->client, ch) == 1;
	if (ch->confirmed) {
		each_claim(&l->registry, &claim, group->process, lose);
	} else {
		take_off(g, ch);
		pause_after(l, began);
	}
}

void nv_claim_numbers(struct lever_nvidia *l, struct nv_group *group, uint32_t channel)
{
	for (uint32_t k = 0; k < l->gpus; k++)
		for (unsigned int i = 0;
		     l->gpu[k].rm.device_instance == group->device && i < group->count; i++)
			if (group->channels[i].cid &&
			    (!channel || group->channels[i].handle == channel))
				claim_number(l, &l->gpu[k], group, &group->channels[i]);
}

void nv_claim_deny(struct lever_nvidia *l, struct nv_gpu *g, uint32_t cid)
{
	struct claim claim = { .g = g, .cid = cid };

	each_claim(&l->registry, &claim, NULL, answer_for);
}
