// SPDX-License-Identifier: MIT
/*
 * channels.c - see channels.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "channels.h"
#include "rm_abi.h"
#include "rtxg/name.h"

static int grow(void **array, unsigned int count, unsigned int *room, size_t size)
{
	unsigned int want = *room ? *room * 2 : 8;
	void *p;

	if (count < *room)
		return 0;
	p = realloc(*array, want * size);
	if (!p)
		return -ENOMEM;
	*array = p;
	*room = want;
	return 0;
}

void nv_registry_init(struct nv_registry *registry)
{
	memset(registry, 0, sizeof(*registry));
}

static void group_free(struct nv_group *group)
{
	free(group->channels);
}

static void process_free(struct nv_process *process)
{
	for (unsigned int i = 0; i < process->group_count; i++)
		group_free(&process->groups[i]);
	free(process->groups);
	free(process->clients);
	free(process->guests);
	free(process);
}

/* It has no duplicate of the host's groups any more. */
static void guest_leaves(struct nv_process *host, const struct nv_process *guest)
{
	for (unsigned int i = 0; i < guest->group_count; i++)
		if (guest->groups[i].host == host)
			return;
	for (unsigned int i = 0; i < host->guest_count; i++)
		if (host->guests[i] == guest) {
			host->guests[i] = host->guests[--host->guest_count];
			return;
		}
}

/* With a group its duplicates go. */
static void group_remove(struct nv_process *p, unsigned int i)
{
	struct nv_group g = p->groups[i];

	for (unsigned int n = p->guest_count; n-- > 0 && !g.host;) {
		struct nv_process *guest = p->guests[n];

		for (unsigned int k = guest->group_count; k-- > 0;)
			if (guest->groups[k].host == p && guest->groups[k].of == g.handle &&
			    guest->groups[k].of_client == g.client)
				group_remove(guest, k);
	}
	p->channel_count -= g.count;
	group_free(&g);
	p->groups[i] = p->groups[--p->group_count];
	if (g.host)
		guest_leaves(g.host, p);
}

void nv_registry_free(struct nv_registry *registry)
{
	for (unsigned int i = 0; i < registry->count; i++)
		process_free(registry->processes[i]);
	free(registry->processes);
	nv_registry_init(registry);
}

void nv_registry_drop(struct nv_registry *registry, struct nv_process *process)
{
	for (unsigned int i = 0; i < registry->count; i++)
		if (registry->processes[i] == process) {
			registry->processes[i] = registry->processes[--registry->count];
			while (process->group_count)
				group_remove(process, process->group_count - 1);
			process_free(process);
			return;
		}
}

struct nv_process *nv_registry_process(const struct nv_registry *registry, uint32_t pid)
{
	for (unsigned int i = 0; i < registry->count; i++)
		if (registry->processes[i]->pid == pid)
			return registry->processes[i];
	return NULL;
}

struct nv_process *nv_registry_by_cid(const struct nv_registry *registry, uint32_t device,
				      uint32_t cid)
{
	if (!cid)
		return NULL;
	for (unsigned int i = 0; i < registry->count; i++) {
		struct nv_process *p = registry->processes[i];

		for (unsigned int g = 0; g < p->group_count; g++)
			for (unsigned int c = 0;
			     p->groups[g].device == device && c < p->groups[g].count; c++)
				if (p->groups[g].channels[c].cid == cid)
					return p->groups[g].host ? p->groups[g].host : p;
	}
	return NULL;
}

struct nv_client *nv_process_client(const struct nv_process *process, uint32_t client)
{
	for (unsigned int i = 0; i < process->client_count; i++)
		if (process->clients[i].handle == client)
			return &process->clients[i];
	return NULL;
}

bool nv_process_computes(const struct nv_process *process, uint32_t device)
{
	for (unsigned int i = 0; i < process->group_count; i++)
		if (process->groups[i].device == device && !process->groups[i].host &&
		    nv_group_is_compute(&process->groups[i]) && process->groups[i].count)
			return true;
	return false;
}

struct nv_process *nv_process_host(const struct nv_process *process, uint32_t device)
{
	for (unsigned int i = 0; i < process->group_count; i++)
		if (process->groups[i].device == device && process->groups[i].host)
			return process->groups[i].host;
	return NULL;
}

static int each_of(const struct nv_process *process, const struct nv_process *host, uint32_t device,
		   nv_group_fn fn, void *ctx)
{
	for (unsigned int i = 0; i < process->group_count; i++) {
		struct nv_group *g = &process->groups[i];
		int err;

		if (g->host != host || g->device != device || !nv_group_is_compute(g))
			continue;
		err = fn(ctx, g);
		if (err)
			return err;
	}
	return 0;
}

int nv_process_each(const struct nv_process *process, uint32_t device, nv_group_fn fn, void *ctx)
{
	int err = each_of(process, NULL, device, fn, ctx);

	for (unsigned int i = 0; i < process->guest_count && !err; i++)
		err = each_of(process->guests[i], process, device, fn, ctx);
	return err;
}

bool nv_group_is_compute(const struct nv_group *group)
{
	return group->engine >= NV_ENGINE_TYPE_GR0 && group->engine <= NV_ENGINE_TYPE_GR7;
}

static bool is_root(uint32_t class_id)
{
	return class_id == DISCOVER_CLASS_ROOT || class_id == DISCOVER_CLASS_ROOT_NON_PRIV ||
	       class_id == DISCOVER_CLASS_ROOT_CLIENT;
}

static bool is_channel(uint32_t class_id)
{
	return (class_id & 0xff) == 0x6f && class_id >= 0xa06f && class_id <= 0xffff;
}

static struct nv_process *owner_of(const struct nv_registry *registry, uint32_t client)
{
	for (unsigned int i = 0; i < registry->count; i++)
		if (nv_process_client(registry->processes[i], client))
			return registry->processes[i];
	return NULL;
}

void nv_name_clean(char *comm)
{
	size_t left = strlen(comm), bytes;

	for (; left; comm += bytes, left -= bytes) {
		bytes = rtxg_name_character((const unsigned char *)comm, left);
		if (!bytes) {
			*comm = '?';
			bytes = 1;
		}
	}
}

struct nv_process *nv_registry_note(struct nv_registry *registry, uint32_t pid, const char *comm)
{
	struct nv_process *p = nv_registry_process(registry, pid);

	if (p)
		return p;
	if (grow((void **)&registry->processes, registry->count, &registry->room,
		 sizeof(*registry->processes)))
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pid = pid;
	memcpy(p->comm, comm, strnlen(comm, sizeof(p->comm) - 1));
	nv_name_clean(p->comm);
	p->mps_server = !strncmp(p->comm, "nvidia-cuda-mps", 15);
	registry->processes[registry->count++] = p;
	return p;
}

static struct nv_process *process_get(struct nv_registry *registry, const struct discover_record *r)
{
	struct nv_process *p = nv_registry_process(registry, r->pid);

	if (p)
		return p;
	p = nv_registry_note(registry, r->pid, r->comm);
	if (p)
		p->tag = r->tag;
	return p;
}

static struct nv_client *client_get(struct nv_process *p, uint32_t handle, int fd)
{
	struct nv_client *c = nv_process_client(p, handle);

	if (c)
		return c;
	if (grow((void **)&p->clients, p->client_count, &p->client_room, sizeof(*p->clients)))
		return NULL;
	c = &p->clients[p->client_count++];
	memset(c, 0, sizeof(*c));
	c->handle = handle;
	c->fd = fd;
	return c;
}

static uint32_t device_of(const struct nv_client *c, uint32_t object)
{
	for (unsigned int i = 0; i < c->devices; i++)
		if (c->device[i].object == object)
			return c->device[i].instance;
	return 0;
}

static struct nv_group *group_find(struct nv_process *p, uint32_t client, uint32_t handle)
{
	for (unsigned int i = 0; i < p->group_count; i++)
		if (p->groups[i].client == client && p->groups[i].handle == handle)
			return &p->groups[i];
	return NULL;
}

static struct nv_group *group_add(struct nv_process *p, uint32_t client, uint32_t handle)
{
	struct nv_group *g = group_find(p, client, handle);

	if (g) { /* the handle was used before, and its end was not seen */
		struct nv_process *host = g->host;

		p->channel_count -= g->count;
		g->count = 0;
		g->lone = false;
		g->host = NULL;
		if (host)
			guest_leaves(host, p);
		return g;
	}
	if (grow((void **)&p->groups, p->group_count, &p->group_room, sizeof(*p->groups)))
		return NULL;
	g = &p->groups[p->group_count++];
	memset(g, 0, sizeof(*g));
	g->process = p;
	g->client = client;
	g->handle = handle;
	return g;
}

struct nv_group *nv_registry_lend(struct nv_process *p, uint32_t client, uint32_t handle,
				  const struct nv_group *of)
{
	/* a duplicate of a duplicate is one of the same */
	struct nv_process *host = of->host ? of->host : of->process;
	struct nv_group *g = group_find(p, client, handle);
	unsigned int i = 0;

	if (!nv_process_client(p, client) || host == p || of->lone)
		return NULL;
	if (!g && p->group_count < NV_CHANNELS_MAX)
		g = group_add(p, client, handle);
	while (i < host->guest_count && host->guests[i] != p)
		i++;
	if (!g || (i == host->guest_count && grow((void **)&host->guests, host->guest_count,
						  &host->guest_room, sizeof(*host->guests))))
		return NULL;
	if (i == host->guest_count)
		host->guests[host->guest_count++] = p;
	g->host = host;
	g->of_client = of->host ? of->of_client : of->client;
	g->of = of->host ? of->of : of->handle;
	g->device = of->device;
	g->engine = of->engine;
	return g;
}

/*
 * A group, or a lone channel, of which the record was read only after it was found: what is stopped
 * of it may not be forgotten. NULL: it is new.
 */
static struct nv_group *found_before(struct nv_process *p, const struct discover_record *r)
{
	struct nv_group *g =
		r->ns && r->ns <= p->adopted_ns ? group_find(p, r->client, r->object) : NULL;

	return g && !g->host ? g : NULL;
}

static int alloc(struct nv_registry *registry, const struct discover_record *r,
		 struct nv_what *what)
{
	struct nv_process *p, *owner;
	struct nv_client *c;
	struct nv_group *g;
	struct nv_channel *ch;

	owner = owner_of(registry, r->client);
	if (owner && owner->pid != r->pid && registry->contested &&
	    registry->contested(registry->contested_ctx, owner, r))
		owner = owner_of(registry, r->client);
	if (owner && owner->pid != r->pid) {
		registry->refused++;
		return -EPERM;
	}
	p = process_get(registry, r);
	if (!p)
		return -ENOMEM;
	if (p->client_count >= NV_CLIENTS_MAX && !nv_process_client(p, r->client)) {
		registry->refused++;
		return -ENOSPC;
	}
	c = client_get(p, r->client, r->fd);
	if (!c)
		return -ENOMEM;
	if (is_root(r->class_id))
		return 0;
	if (r->class_id == DISCOVER_CLASS_DEVICE) {
		/* Adoption knows better what a record said. */
		for (unsigned int i = 0; i < c->devices; i++)
			if (c->device[i].object == r->object) {
				c->device[i].instance = r->device;
				return 0;
			}
		if (c->devices < sizeof(c->device) / sizeof(c->device[0])) {
			c->device[c->devices].object = r->object;
			c->device[c->devices++].instance = r->device;
		}
		return 0;
	}
	if (p->channel_count >= NV_CHANNELS_MAX || p->group_count >= NV_CHANNELS_MAX) {
		registry->refused++;
		return -ENOSPC;
	}
	if (r->class_id == DISCOVER_CLASS_GROUP) {
		g = found_before(p, r);
		if (g) {
			g->engine = r->engine; /* the driver does not tell that of a group */
			return 0;
		}
		g = group_add(p, r->client, r->object);
		if (!g)
			return -ENOMEM;
		g->engine = r->engine;
		g->device = device_of(c, r->parent);
		return 0;
	}
	if (!is_channel(r->class_id))
		return 0;
	g = group_find(p, r->client, r->parent);
	if (!g)
		g = found_before(p, r);
	if (!g) { /* a channel straight under the device */
		g = group_add(p, r->client, r->object);
		if (!g)
			return -ENOMEM;
		g->engine = r->engine;
		g->device = device_of(c, r->parent);
		g->lone = true;
	}
	ch = NULL;
	for (unsigned int i = 0; i < g->count && !ch; i++)
		if (g->channels[i].handle == r->object) /* adopted before its record was read */
			ch = &g->channels[i];
	if (!ch) {
		if (grow((void **)&g->channels, g->count, &g->room, sizeof(*g->channels)))
			return -ENOMEM;
		ch = &g->channels[g->count++];
		p->channel_count++;
		memset(ch, 0, sizeof(*ch));
	}
	ch->handle = r->object;
	ch->class_id = r->class_id;
	ch->engine = r->engine;
	ch->cid = r->cid;
	ch->confirmed = false;
	ch->userd = r->userd;
	ch->userd_offset = r->userd_offset;
	ch->by_place = ch->placed = false;
	ch->sight = 0;
	if (!p->first_ns)
		p->first_ns = r->ns;
	what->change = NV_NEW_CHANNEL;
	what->process = p;
	what->group = g;
	return 0;
}

static void freed(struct nv_registry *registry, const struct discover_record *r,
		  struct nv_what *what)
{
	struct nv_process *p = owner_of(registry, r->client);
	struct nv_client *c;
	unsigned int i, k;
	bool device = false;
	uint32_t instance = 0;

	/*
	 * Only the owner's own words count. A child that inherited the descriptor may not free in
	 * its parent's name.
	 */
	if (!p || p->pid != r->pid) {
		if (p)
			registry->refused++;
		return;
	}
	c = nv_process_client(p, r->client);
	if (r->object == r->client) { /* the client with all it has */
		for (i = p->group_count; i-- > 0;)
			if (p->groups[i].client == r->client)
				group_remove(p, i);
		*c = p->clients[--p->client_count];
		what->change = NV_GONE_CHANNEL;
		what->process = p;
		return;
	}
	for (k = 0; k < c->devices; k++)
		if (c->device[k].object == r->object) {
			device = true;
			instance = c->device[k].instance;
			c->device[k] = c->device[--c->devices];
			break;
		}
	for (i = p->group_count; i-- > 0;) {
		struct nv_group *g = &p->groups[i];

		if (g->client != r->client)
			continue;
		if (g->handle == r->object || (device && g->device == instance)) {
			group_remove(p, i);
			what->change = NV_GONE_CHANNEL;
			what->process = p;
			continue;
		}
		for (k = g->count; k-- > 0;)
			if (g->channels[k].handle == r->object) {
				g->channels[k] = g->channels[--g->count];
				p->channel_count--;
				what->change = NV_GONE_CHANNEL;
				what->process = p;
			}
	}
}

/* A process has duplicated an object: if that is another one's group, its host is to look. */
static void duplicated(struct nv_registry *registry, const struct discover_record *r,
		       struct nv_what *what)
{
	struct nv_process *p = owner_of(registry, r->client),
			  *source = owner_of(registry, r->src_client);
	struct nv_group *g = source ? group_find(source, r->src_client, r->src_object) : NULL;

	if (!p || p->pid != r->pid || !g || source == p)
		return;
	what->change = NV_DUPLICATE;
	what->process = p;
	what->group = g;
}

/* A process's own control: which of its groups is it about? NULL for a list of channels. */
static void controlled(struct nv_registry *registry, const struct discover_record *r,
		       struct nv_what *what)
{
	struct nv_process *p = nv_registry_process(registry, r->pid);

	if (!p)
		return;
	if (r->class_id == DISCOVER_DISABLE_CHANNELS) {
		what->change = NV_OWN_CONTROL;
		what->process = p;
		return;
	}
	for (unsigned int i = 0; i < p->group_count; i++) {
		struct nv_group *g = &p->groups[i];
		bool it = g->client == r->client && g->handle == r->object;

		for (unsigned int k = 0; k < g->count && !it; k++)
			it = g->client == r->client && g->channels[k].handle == r->object;
		if (it) {
			what->change = NV_OWN_CONTROL;
			what->process = p;
			what->group = g;
			return;
		}
	}
}

int nv_registry_feed(struct nv_registry *registry, const struct discover_record *r,
		     struct nv_what *what)
{
	struct nv_process *p;

	memset(what, 0, sizeof(*what));
	switch (r->kind) {
	case DISCOVER_ALLOC:
		return alloc(registry, r, what);
	case DISCOVER_FREE:
		freed(registry, r, what);
		return 0;
	case DISCOVER_EXIT:
		what->process = nv_registry_process(registry, r->pid);
		if (what->process)
			what->change = NV_GONE_PROCESS;
		return 0;
	case DISCOVER_EXEC:
		/*
		 * Its descriptors are close-on-exec, so its contexts are gone; its name and tag
		 * stay with the process.
		 */
		p = nv_registry_process(registry, r->pid);
		if (p) {
			while (p->group_count)
				group_remove(p, p->group_count - 1);
			p->client_count = 0;
			p->first_ns = 0;
			memcpy(p->comm, r->comm, sizeof(p->comm));
			p->comm[sizeof(p->comm) - 1] = '\0';
			nv_name_clean(p->comm);
			what->change = NV_GONE_CHANNEL;
			what->process = p;
		}
		return 0;
	case DISCOVER_CONTROL:
		controlled(registry, r, what);
		return 0;
	case DISCOVER_LOST:
		registry->lost += r->value == DISCOVER_UNWATCHED ? 0 : r->object;
		return 0;
	case DISCOVER_DUP:
		duplicated(registry, r, what);
		return 0;
	default: /* FORK needs nothing here */
		return 0;
	}
}
