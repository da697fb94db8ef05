// SPDX-License-Identifier: MIT
/*
 * sight.c - see sight.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "act.h"
#include "sight.h"
#include "state.h"

#define MS	    1000000ull
#define OPENS	    4u /* pages that are opened in one go */
#define PAUSE_MIN   (10 * MS)
#define PAUSE_MAX   (1000 * MS)
#define FAILURES    6u	      /* in a row, after which a channel counts as blind */
#define SLOW_NS	    (50 * MS) /* it takes longer only while others keep the driver busy: */
#define SLOW_PART   20u	      /* then no more than such a part of the time goes into it */
#define SLOW_MAX    (20000 * MS)
#define SETTLE_NS   (20 * MS) /* after the last new channel: a context's channels come together */
#define NV_RING_MAX 65536u    /* entries of a channel's ring */

struct each {
	nv_sight_fn fn;
	void *ctx;
};

static int each_channel(void *ctx, struct nv_group *group)
{
	const struct each *e = ctx;

	for (unsigned int k = 0; k < group->count; k++)
		e->fn(e->ctx, group, &group->channels[k]);
	return 0;
}

void nv_sight_each(const struct nv_gpu *g, const struct nv_context *c, nv_sight_fn fn, void *ctx)
{
	struct each e = { fn, ctx };

	nv_process_each(c->process, g->rm.device_instance, each_channel, &e);
}

struct opening {
	struct lever_nvidia *l;
	struct nv_gpu *g;
	struct nv_context *c;
	struct nv_sight *sight;
	int pidfd, fd;
	uint32_t pid, fd_of; /* whose they are */
	unsigned int opened;
	int err; /* a failure that may pass */
};

static int page_of(const struct nv_sight *s, uint32_t client, const struct nv_channel *ch)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (nv_userd_covers(&s->pages[i], client, ch->userd, ch->userd_offset))
			return (int)i;
	return -ENOENT;
}

static int new_page(struct nv_sight *s)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (!s->pages[i].handle)
			return (int)i;
	if (s->count == NV_SIGHT_PAGES)
		return -ENOSPC;
	if (s->count == s->room) {
		uint32_t room = s->room ? s->room * 2 : 4;
		struct nv_userd *p = realloc(s->pages, room * sizeof(*p));

		if (!p)
			return -ENOMEM;
		s->pages = p;
		s->room = room;
	}
	memset(&s->pages[s->count], 0, sizeof(s->pages[0]));
	return (int)s->count++;
}

static void close_fds(struct opening *o)
{
	const struct nv_sys *sys = o->l->sys;

	if (o->fd >= 0)
		sys->close(sys->ctx, o->fd);
	if (o->pidfd >= 0)
		sys->close(sys->ctx, o->pidfd);
	o->fd = o->pidfd = -1;
}

static int open_fd(struct opening *o, const struct nv_group *group)
{
	const struct nv_sys *sys = o->l->sys;
	struct nv_client *of = nv_process_client(group->process, group->client);

	if (o->fd >= 0 && o->fd_of == group->client)
		return 0;
	if (o->pid != group->process->pid)
		close_fds(o);
	if (o->fd >= 0)
		sys->close(sys->ctx, o->fd);
	o->fd = -1;
	if (!of)
		return -ENOENT;
	o->pid = group->process->pid;
	if (o->pidfd < 0)
		o->pidfd = sys->pidfd_open(sys->ctx, (int)o->pid);
	if (o->pidfd < 0)
		return o->pidfd;
	o->fd = nv_client_fd(&o->l->rm, o->pidfd, o->pid, of);
	o->fd_of = group->client;
	return o->fd < 0 ? o->fd : 0;
}

struct near {
	uint32_t client, memory;
	uint64_t first, last;
};

static void near_one(void *ctx, struct nv_group *group, struct nv_channel *ch)
{
	struct near *near = ctx;

	if (group->client != near->client || ch->userd != near->memory || ch->by_place ||
	    ch->sight != NV_UNSEEN || !nv_userd_valid(ch->userd, ch->userd_offset))
		return;
	if (ch->userd_offset < near->first)
		near->first = ch->userd_offset;
	if (ch->userd_offset > near->last)
		near->last = ch->userd_offset;
}

/* Maps the words of this channel, together with those of its neighbours if they are near. */
static int open_part(struct opening *o, struct nv_userd *u, uint32_t client,
		     const struct nv_channel *ch)
{
	struct near near = { client, ch->userd, ch->userd_offset, ch->userd_offset };
	int err;

	nv_sight_each(o->g, o->c, near_one, &near);
	err = nv_userd_open(u, &o->g->rm, o->fd, client, ch->userd, near.first, near.last);
	if ((err == -EINVAL || err == -ERANGE) && near.first != near.last)
		err = nv_userd_open(u, &o->g->rm, o->fd, client, ch->userd, ch->userd_offset,
				    ch->userd_offset);
	return err;
}

/*
 * Where the words of an adopted channel are, as the driver does not say: CUDA lays them out alike
 * in every context, so one that was seen being made shows it. What is found there has to look like
 * it.
 */
static bool place(const struct lever_nvidia *l, struct nv_channel *ch)
{
	if (!l->layout.stride)
		return false;
	ch->userd_offset = l->layout.first + ch->place * l->layout.stride;
	ch->by_place = false;
	ch->placed = true;
	return true;
}

static bool plausible(const struct nv_channel *ch)
{
	return !ch->placed || (nv_userd_put(ch->words) && nv_userd_put(ch->words) < NV_RING_MAX &&
			       nv_userd_get(ch->words) < NV_RING_MAX);
}

static void open_one(void *ctx, struct nv_group *group, struct nv_channel *ch)
{
	struct opening *o = ctx;
	int page, err;

	if (ch->sight != NV_UNSEEN || o->err || o->opened >= OPENS)
		return;
	if (ch->by_place && ch->userd && !place(o->l, ch))
		return; /* until a context is seen being made */
	if (!nv_userd_valid(ch->userd, ch->userd_offset)) {
		ch->sight = NV_BLIND;
		return;
	}
	page = page_of(o->sight, group->client, ch);
	if (page < 0) {
		o->opened++;
		err = open_fd(o, group);
		page = err ? err : new_page(o->sight);
		if (page >= 0)
			err = open_part(o, &o->sight->pages[page], group->client, ch);
		else
			err = page;
		if (err) {
			o->l->stats.blind += nv_rm_refusal(err) == NV_RM_FINAL;
			if (nv_rm_refusal(err) == NV_RM_FINAL || err == -EINVAL || err == -ERANGE ||
			    err == -EMEDIUMTYPE || ++o->sight->failures >= FAILURES)
				ch->sight = NV_BLIND;
			else
				o->err = err;
			return;
		}
		o->sight->failures = 0;
	}
	ch->page = (uint16_t)page;
	ch->words = nv_userd_read(&o->sight->pages[page], ch->userd_offset);
	ch->queue.looks = 0;
	ch->sight = plausible(ch) ? NV_SEEN : NV_BLIND;
}

struct whole {
	unsigned int unseen, blind;
	struct rtxg_slice_queues seen;
};

static void add_up(void *ctx, struct nv_group *group, struct nv_channel *ch)
{
	struct whole *w = ctx;

	w->unseen += ch->sight == NV_UNSEEN;
	w->blind += ch->sight == NV_BLIND;
	w->seen.count += ch->sight == NV_SEEN;
	w->seen.hot += ch->queue.hot;
	if (ch->queue.looks < w->seen.looks)
		w->seen.looks = ch->queue.looks;
}

static struct whole whole_of(const struct nv_gpu *g, const struct nv_context *c)
{
	struct whole w = { .seen = { .looks = UINT32_MAX,
				     .since_ns = c->sight.whole_since,
				     .looked_ns = c->sight.looked } };

	nv_sight_each(g, c, add_up, &w);
	return w;
}

bool nv_sight_open(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c, uint64_t now)
{
	struct opening o = { .l = l, .g = g, .c = c, .sight = &c->sight, .pidfd = -1, .fd = -1 };
	struct whole w;
	uint64_t took;

	if (now < c->sight.again)
		return c->sight.whole_since;
	if (now < c->sight.changed + SETTLE_NS) { /* more channels may be on their way */
		c->sight.again = c->sight.changed + SETTLE_NS;
		return c->sight.whole_since;
	}
	/* What has to be done comes first; a bound may depend on what is seen. */
	if (now < l->open_again && !g->params[c->vgpu].latency_ns)
		return c->sight.whole_since;
	nv_sight_each(g, c, open_one, &o);
	close_fds(&o);
	took = nv_now(l) - now;
	if (o.opened && took > SLOW_NS)
		l->open_again =
			nv_now(l) + (took * SLOW_PART < SLOW_MAX ? took * SLOW_PART : SLOW_MAX);
	if (o.err) {
		uint64_t pause = PAUSE_MIN << (c->sight.failures < 7 ? c->sight.failures : 7);

		c->sight.again = now + (pause < PAUSE_MAX ? pause : PAUSE_MAX);
	}
	w = whole_of(g, c);
	if (w.unseen && !o.err && !o.opened) /* it waits for a layout */
		c->sight.again = now + PAUSE_MAX;
	if (w.unseen || w.blind || !w.seen.count) {
		c->sight.whole_since = 0;
		/* what is blind stays so, until the channels change */
		if (!w.unseen)
			c->sight.again = UINT64_MAX;
	} else if (!c->sight.whole_since) {
		c->sight.whole_since = now;
		c->sight.again = UINT64_MAX;
	}
	return c->sight.whole_since;
}

void nv_sight_stopped(struct lever_nvidia *l, struct nv_context *c, bool in_part)
{
	rtxg_slice_rest_stopped(&c->sight.rest, nv_now(l), in_part);
}

bool nv_sight_knows_hot(const struct lever_nvidia *l, const struct nv_context *c)
{
	const struct nv_gpu *g = NULL;
	struct whole w;

	for (uint32_t i = 0; i < l->gpus && !g; i++)
		if (c >= l->gpu[i].context && c < l->gpu[i].context + LEVER_NVIDIA_CONTEXTS)
			g = &l->gpu[i];
	if (!g || !(g->can & RTXG_SLICE_CAN_DEMAND) || !c->sight.whole_since)
		return false;
	w = whole_of(g, c);
	return rtxg_slice_queues_known(&w.seen);
}

/* How CUDA lays out the words of a client's channels, from one that was seen being made. */
static void learn_layout(struct lever_nvidia *l, const struct nv_process *p)
{
	const struct nv_group *g = NULL;

	for (unsigned int i = 0; i < p->group_count && !g; i++)
		if (nv_group_is_compute(&p->groups[i]) && !p->groups[i].host &&
		    p->groups[i].count >= 4)
			g = &p->groups[i];
	if (!g || p->adopted || p->mps_server)
		return;
	for (unsigned int i = 1; i < g->count; i++)
		if (!g->channels[i].userd || g->channels[i].userd != g->channels[0].userd ||
		    g->channels[i].userd_offset - g->channels[i - 1].userd_offset !=
			    g->channels[1].userd_offset - g->channels[0].userd_offset)
			return;
	if (g->channels[1].userd_offset <= g->channels[0].userd_offset)
		return;
	l->layout.first = g->channels[0].userd_offset;
	l->layout.stride = g->channels[1].userd_offset - g->channels[0].userd_offset;
}

void nv_sight_show(struct lever_nvidia *l, const struct nv_process *p)
{
	learn_layout(l, p);
}

void nv_sight_changed(struct lever_nvidia *l, struct nv_context *c)
{
	if (!l->layout.stride)
		learn_layout(l, c->process);
	c->sight.changed = nv_now(l);
	c->sight.whole_since = 0;
	c->sight.again = 0;
	c->sight.failures = 0;
}

static void unsee(void *ctx, struct nv_group *group, struct nv_channel *ch)
{
	const uint32_t *page = ctx;

	if (ch->sight == NV_SEEN && ch->page == *page)
		ch->sight = NV_UNSEEN;
}

static void forget_page(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c,
			uint32_t page)
{
	/* None may be looked at any more: the lookout looks while the driver answers. */
	nv_sight_each(g, c, unsee, &page);
	nv_sight_changed(l, c);
	nv_userd_close(&c->sight.pages[page], &g->rm);
}

void nv_sight_freed(struct lever_nvidia *l, struct nv_process *p, uint32_t client, uint32_t object)
{
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct nv_process *host = nv_process_host(p, l->gpu[i].rm.device_instance);
		struct nv_context *of[] = { nv_context_of(&l->gpu[i], p),
					    host ? nv_context_of(&l->gpu[i], host) : NULL };

		for (uint32_t n = 0; n < 2; n++)
			for (uint32_t k = 0; of[n] && k < of[n]->sight.count; k++) {
				const struct nv_userd *u = &of[n]->sight.pages[k];

				if (u->handle && u->client == client &&
				    (u->memory == object || object == client))
					forget_page(l, &l->gpu[i], of[n], k);
			}
	}
}

void nv_sight_close(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c)
{
	for (uint32_t k = 0; k < c->sight.count; k++)
		if (c->sight.pages[k].handle)
			forget_page(l, g, c, k);
	free(c->sight.pages);
	memset(&c->sight, 0, sizeof(c->sight));
}

struct sum {
	const struct nv_context *c;
	uint64_t words;
	int count;
};

static void add_words(void *ctx, struct nv_group *group, struct nv_channel *ch)
{
	struct sum *s = ctx;

	s->words += nv_userd_read(&s->c->sight.pages[ch->page], ch->userd_offset);
	s->count++;
}

int nv_sight_sum(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c, uint64_t *sum)
{
	struct sum s = { .c = c };
	int err = -EAGAIN;

	for (int i = 0; i < 64 && err == -EAGAIN; i++) {
		l->open_again = 0;
		if (nv_sight_open(l, g, c, nv_now(l)))
			err = 0;
		else if (c->sight.again > nv_now(l))
			err = -EOPNOTSUPP;
	}
	if (err)
		return err;
	nv_sight_each(g, c, add_words, &s);
	*sum = s.words;
	return s.count;
}
