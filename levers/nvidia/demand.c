// SPDX-License-Identifier: MIT
/*
 * demand.c - see demand.h.
 *
 * What a look shows: GET != PUT means that the engine's host has not taken all that was submitted.
 * GET == PUT with both moved since the look before means that something was submitted and taken;
 * about two launches may still be on their way. A channel whose words do not change for long is
 * looked at in turn with the others of its kind.
 *
 * A context that is stopped by its hot channels alone is still looked at: one of the others may
 * begin to move, and is stopped then. The core says which are hot, and when to look
 * (core/slice/rtxg_slice_part.h). How many channels are read in one look is what a look may cost.
 */
#include "carry_out.h"
#include "demand.h"
#include "sight.h"
#include "state.h"

#define MS	   1000000ull
#define STALE_NS   (50 * MS) /* a change since a look that long ago says nothing about now */
#define HOT_READS  16u	     /* channels that are read in one look */
#define COLD_READS 32u	     /* while none is known to be hot */
#define LOOK_LATE  (MS / 2)

struct looking {
	struct lever_nvidia *l;
	struct nv_context *c;
	uint64_t now;
	bool stale, work, queued;
	unsigned int hot, cold, cold_reads, from;
};

static void read_channel(struct looking *k, struct nv_channel *ch)
{
	uint64_t words = nv_userd_read(&k->c->sight.pages[ch->page], ch->userd_offset);
	bool moved = words != ch->words;

	k->l->stats.reads++;
	ch->words = words;
	rtxg_slice_queue_looked(&ch->queue, k->now, moved);
	if (nv_userd_get(words) != nv_userd_put(words))
		k->work = k->queued = true;
	else if (moved && !k->stale)
		k->work = true;
}

static void look_hot(void *ctx, struct nv_group *group, struct nv_channel *ch)
{
	struct looking *k = ctx;

	if (!ch->queue.hot || ch->sight != NV_SEEN)
		return;
	/* one whose queue is filled is enough to know */
	if (k->hot++ < HOT_READS && !k->queued)
		read_channel(k, ch);
}

static void look_cold(void *ctx, struct nv_group *group, struct nv_channel *ch)
{
	struct looking *k = ctx;

	if (ch->queue.hot || ch->sight != NV_SEEN)
		return;
	if (k->cold++ >= k->from && k->cold_reads) {
		k->cold_reads--;
		read_channel(k, ch);
	}
}

/* The words of its channels. */
static void read_channels(struct nv_gpu *g, struct nv_context *c, struct looking *k)
{
	nv_sight_each(g, c, look_hot, k);
	k->cold_reads = k->hot ? 1 : COLD_READS;
	nv_sight_each(g, c, look_cold, k);
	c->sight.turn = k->cold_reads ? 0 : k->from + (k->hot ? 1 : COLD_READS);
	if (c->sight.turn >= k->cold)
		c->sight.turn = 0;
}

/* What is seen of a context now. Is the policy to be told? */
static bool see(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c, uint64_t now,
		struct nv_glance *seen)
{
	struct looking k = { .l = l,
			     .c = c,
			     .now = now,
			     .stale = !c->sight.looked || now - c->sight.looked > STALE_NS,
			     .from = c->sight.turn };
	bool late = c->sight.looked && now - c->sight.looked > c->sight.every + LOOK_LATE;
	uint8_t told;

	*seen = (struct nv_glance){ .gpu = (uint32_t)(g - l->gpu),
				    .context = (uint32_t)(c - g->context),
				    .known = c->known,
				    .at = now,
				    .since = c->sight.looked };
	l->stats.looks++;
	c->sight.looked = now;
	if (c->sight.whole_since) {
		read_channels(g, c, &k);
		told = k.work ? NV_TOLD_WORK : NV_TOLD_NO_WORK;
	} else if (c->sight.told && c->worked) {
		/* Once it has worked what is not seen may be there; before, the log tells. */
		told = NV_TOLD_WORK;
	} else {
		return false;
	}
	/*
	 * A look that came late tells of less than the policy takes it to, also if nothing changed.
	 */
	if (told == c->sight.told && k.queued == c->sight.queued && !late)
		return false;
	c->sight.told = told;
	c->sight.queued = k.queued;
	seen->value = k.queued		     ? RTXG_SLICE_QUEUED
		      : told == NV_TOLD_WORK ? RTXG_SLICE_WORK
					     : RTXG_SLICE_NO_WORK;
	return true;
}

static void look_at(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c, uint64_t now)
{
	struct nv_glance seen;

	if (c->sight.again <= now || !c->sight.whole_since)
		nv_sight_open(l, g, c, now);
	if (see(l, g, c, now, &seen)) {
		struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_DEMAND,
					      .context = seen.context,
					      .value = seen.value,
					      .at_ns = seen.at,
					      .since_ns = seen.since };

		nv_decide(l, g, &e);
	}
}

static void check_one(void *ctx, struct nv_group *group, struct nv_channel *ch)
{
	struct looking *k = ctx;

	if (ch->stops)
		return;
	k->cold++;
	if (ch->sight != NV_SEEN) { /* made while it was stopped, and not stopped with it */
		k->work = true;
		return;
	}
	/* What waits in its queue would run. */
	read_channel(k, ch);
	k->work = k->work || ch->queue.hot;
}

/* Of a stopped context, the channels that were left alone: does one of them move? */
static void check_stopped(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c,
			  uint64_t now)
{
	struct looking k = { .l = l, .c = c, .now = now };

	nv_sight_each(g, c, check_one, &k);
	if (k.work)
		nv_stop_rest(l, g, c);
	rtxg_slice_rest_looked(&c->sight.rest, now, k.cold && c->stopped);
}

/* Has a stopped context channels that were left alone? */
static bool has_rest(const struct nv_context *c)
{
	return c->process && c->stopped && c->sight.rest.due_ns;
}

/* The policy's answers hold until its next step. */
static void ask(struct nv_gpu *g)
{
	if (g->asked == g->steps)
		return;
	g->asked = g->steps;
	for (uint32_t i = 0; i < g->high; i++)
		g->context[i].sight.every = g->context[i].process && !g->context[i].load &&
							    g->can & RTXG_SLICE_CAN_DEMAND
						    ? rtxg_slice_look_ns(g->slice, i)
						    : RTXG_SLICE_NEVER;
}

/* When the policy wants this context to be looked at next. */
static uint64_t look_due(const struct nv_context *c)
{
	if (!c->process || c->sight.every == RTXG_SLICE_NEVER)
		return UINT64_MAX;
	if (!c->sight.whole_since && c->sight.again > c->sight.looked + c->sight.every)
		return c->sight.again;
	return c->sight.looked + c->sight.every;
}

uint64_t nv_demand_next_glance(struct lever_nvidia *l)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t k = 0; k < l->gpus && l->enabled; k++) {
		struct nv_gpu *g = &l->gpu[k];

		if (g->lost)
			continue;
		ask(g);
		for (uint32_t i = 0; i < g->high; i++) {
			uint64_t look = look_due(&g->context[i]);

			if (g->context[i].sight.whole_since && look < next)
				next = look;
		}
	}
	return next;
}

bool nv_demand_glance(struct lever_nvidia *l, struct nv_gpu *g, uint32_t id, struct nv_glance *seen)
{
	struct nv_context *c = &g->context[id];
	uint64_t now = nv_now(l), look;

	ask(g);
	look = look_due(c);
	/* What cannot be seen in whole has to be opened first. */
	return look != UINT64_MAX && look <= now + c->sight.every / 8 && c->sight.whole_since &&
	       see(l, g, c, now, seen);
}

uint64_t nv_demand_next(struct lever_nvidia *l)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t k = 0; k < l->gpus && l->enabled; k++) {
		struct nv_gpu *g = &l->gpu[k];

		if (g->lost)
			continue;
		ask(g);
		for (uint32_t i = 0; i < g->high; i++) {
			const struct nv_context *c = &g->context[i];
			uint64_t look = look_due(c), rest = UINT64_MAX;

			if (has_rest(c))
				rest = rtxg_slice_rest_latest(&c->sight.rest);
			next = rest < next ? rest : next;
			next = look < next ? look : next;
		}
	}
	return next;
}

void nv_demand_tell(struct lever_nvidia *l)
{
	struct nv_lookout *o = &l->lookout;
	struct nv_glance *seen = o->seen[o->into];
	uint32_t last[RM_GPUS_MAX], all = o->count, count = 0;

	/* More is seen in calls that follow from what is told. */
	o->into = !o->into;
	o->count = 0;
	/* The context may have ended meanwhile, and its place have been taken. */
	for (uint32_t i = 0; i < all; i++) {
		const struct nv_gpu *g = &l->gpu[seen[i].gpu];
		const struct nv_context *c = &g->context[seen[i].context];

		if (!c->process || c->known != seen[i].known || g->lost)
			continue;
		last[seen[i].gpu] = count;
		seen[count++] = seen[i];
	}
	for (uint32_t i = 0; i < count; i++) {
		struct rtxg_slice_event look = { .type = RTXG_SLICE_EV_DEMAND,
						 .context = seen[i].context,
						 .value = seen[i].value,
						 .at_ns = seen[i].at,
						 .since_ns = seen[i].since };

		if (i != last[seen[i].gpu])
			look.value |= RTXG_SLICE_FOLLOWED;
		nv_decide(l, &l->gpu[seen[i].gpu], &look);
	}
}

void nv_demand_look(struct lever_nvidia *l)
{
	nv_demand_tell(l);
	for (uint32_t k = 0; k < l->gpus && l->enabled; k++)
		for (uint32_t i = 0; i < l->gpu[k].high && !l->gpu[k].lost; i++) {
			struct nv_gpu *g = &l->gpu[k];
			struct nv_context *c = &g->context[i];
			uint64_t look, now = nv_now(l); /* an answer may take the driver long */

			if (has_rest(c) && c->sight.rest.due_ns <= now)
				check_stopped(l, g, c, now);
			/* what is due within an eighth of its interval is looked at now, too */
			ask(g);
			look = look_due(c);
			if (look != UINT64_MAX && look <= now + c->sight.every / 8)
				look_at(l, g, c, now);
		}
}
