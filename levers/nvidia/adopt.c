// SPDX-License-Identifier: MIT
/*
 * adopt.c - see adopt.h. It asks questions only: nothing of the process is changed, and every
 * duplicate is closed again.
 *
 * How: the driver numbers clients upwards from a fixed base, so ours, allocated last, is an upper
 * bound. A question asked through a descriptor is answered only for clients that were allocated on
 * that same descriptor; so trying the numbers below ours finds exactly the clients of this process.
 * Within a client, the handles that CUDA chooses lie close together; the driver names the first
 * child of the client, and the neighbourhood of that handle is searched, on and on for as long as
 * something is found. Which GPU a device is, its subdevice says.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "adopt.h"

#define CLIENT_BASE  0xc1d00000u
#define CLIENT_INDEX 0x000fffffu
/* the driver's internal number for "device", same over releases since 515 */
#define INTERNAL_DEVICE 0xe0ac20u
#define NEIGHBOURHOOD	0x2000u
/* a quarter of a million questions, about a tenth of a second */
#define SEARCH_MAX 0x40000u
#define FDS_MAX	   1024

struct get_child {
	uint32_t parent, class_id, object;
};

struct search {
	struct nv_rm *rm;
	struct nv_rm_gpu *gpus;
	int gpu_count;
	struct nv_registry *registry;
	struct nv_adopt_stats *stats;
	uint32_t pid;
	int fd, remote_fd;
	int channels;
	bool ask_everybody; /* this driver does not say which clients exist */
	bool unknown_gpu;   /* a device of which it could not be told which GPU it is */
	nv_adopt_seen seen; /* only show what there is */
	void *ctx;
	char comm[16];
};

static int ask(struct search *s, uint32_t client, uint32_t object, uint32_t what, uint64_t *result)
{
	struct nv_handle_info info = { .object = object, .index = what };
	int err = nv_rm_control_foreign(s->rm, s->fd, client, client, NV0000_CLIENT_GET_HANDLE_INFO,
					&info, sizeof(info));

	s->stats->calls++;
	*result = what == NV_HANDLE_INFO_PARENT ? (uint32_t)info.result : info.result;
	return err;
}

/*
 * Is there such a client at all? A question to a client that does not exist makes the driver write
 * a line into the kernel log, one for each; this question, asked of ourselves, does not.
 */
static bool client_exists(struct search *s, uint32_t client)
{
	struct nv_access_rights rights = { .object = client, .client = client };

	s->stats->calls++;
	return s->ask_everybody ||
	       !nv_rm_control(s->rm, s->rm->client, NV0000_CLIENT_GET_ACCESS_RIGHTS, &rights,
			      sizeof(rights));
}

static int feed(struct search *s, struct discover_record *r)
{
	struct nv_what what;

	r->kind = DISCOVER_ALLOC;
	r->pid = r->tid = s->pid;
	r->fd = s->remote_fd;
	memcpy(r->comm, s->comm, sizeof(r->comm));
	return nv_registry_feed(s->registry, r, &what);
}

static bool is_channel(uint32_t class_id)
{
	return (class_id & 0xff) == 0x6f && class_id >= 0xa06f && class_id <= 0xffff;
}

static bool is_compute(uint32_t class_id)
{
	return (class_id & 0xff) == 0xc0 && class_id >= 0xa0c0 && class_id <= 0xffff;
}

/* The GPU of a device object, by what its subdevice says; NULL if that cannot be told. */
static struct nv_rm_gpu *gpu_of(struct search *s, uint32_t client, uint32_t device,
				const struct nv_adopt_object *found, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		struct nv_gpu_id id = { 0 };

		if (found[i].class_id != NV_CLASS_SUBDEVICE || found[i].parent != device)
			continue;
		s->stats->calls++;
		if (nv_rm_control_foreign(s->rm, s->fd, client, found[i].handle, NV2080_GPU_GET_ID,
					  &id, sizeof(id)))
			continue;
		for (int g = 0; g < s->gpu_count; g++)
			if (s->gpus[g].gpu_id == id.gpu_id)
				return &s->gpus[g];
	}
	/* with one GPU there is no question which */
	return s->gpu_count == 1 ? &s->gpus[0] : NULL;
}

/*
 * Every object of the client whose handle lies near its first child's. Returns how many, or a
 * negative errno.
 */
static int objects_of(struct search *s, uint32_t client, struct nv_adopt_object **list)
{
	struct get_child child = { .parent = client, .class_id = INTERNAL_DEVICE };
	unsigned int n = 0, room = 0;
	uint64_t h, last, end;

	*list = NULL;
	if (nv_rm_control_foreign(s->rm, s->fd, client, client, NV0000_CLIENT_GET_CHILD_HANDLE,
				  &child, sizeof(child)) ||
	    !child.object)
		return 0; /* a client without a device holds no channel */
	h = child.object > NEIGHBOURHOOD / 16 ? child.object - NEIGHBOURHOOD / 16 : 1;
	last = (uint64_t)child.object + NEIGHBOURHOOD;
	end = (uint64_t)child.object + SEARCH_MAX;
	for (; h < last && h < end && h < UINT32_MAX; h++) {
		uint64_t class_id, parent;

		if (ask(s, client, (uint32_t)h, NV_HANDLE_INFO_CLASS, &class_id) ||
		    ask(s, client, (uint32_t)h, NV_HANDLE_INFO_PARENT, &parent))
			continue;
		if (n == room) {
			struct nv_adopt_object *more =
				realloc(*list, (room + 1024) * sizeof(*more));

			if (!more)
				return -ENOMEM;
			*list = more;
			room += 1024;
		}
		(*list)[n].handle = (uint32_t)h;
		(*list)[n].class_id = (uint32_t)class_id;
		(*list)[n++].parent = (uint32_t)parent;
		last = h + NEIGHBOURHOOD;
	}
	s->stats->objects += n;
	return (int)n;
}

/*
 * The memory of a channel's words: CUDA allocates it between its first group and the first channel
 * of that, for all channels of the client; they follow each other in it.
 */
static void place(struct search *s, uint32_t client, uint32_t group, uint32_t channel,
		  const struct nv_adopt_object *found, unsigned int n)
{
	uint32_t first_group = UINT32_MAX, first_channel = UINT32_MAX, memory = 0, before = 0;
	struct nv_process *p = nv_registry_process(s->registry, s->pid);

	for (unsigned int i = 0; i < n; i++) {
		if (found[i].class_id == NV_CLASS_CHANNEL_GROUP && found[i].handle < first_group)
			first_group = found[i].handle;
		if (is_channel(found[i].class_id)) {
			before += found[i].handle < channel;
			if (found[i].handle < first_channel)
				first_channel = found[i].handle;
		}
	}
	for (unsigned int i = 0; i < n; i++)
		if (found[i].class_id == NV_CLASS_MEMORY_LOCAL && found[i].handle > first_group &&
		    found[i].handle < first_channel && found[i].handle > memory)
			memory = found[i].handle;
	for (unsigned int g = 0; p && g < p->group_count; g++)
		for (unsigned int k = 0; k < p->groups[g].count; k++) {
			struct nv_channel *ch = &p->groups[g].channels[k];

			if (p->groups[g].client != client || p->groups[g].handle != group ||
			    ch->handle != channel || ch->userd)
				continue;
			ch->userd = memory;
			ch->by_place = memory != 0;
			ch->place = (uint16_t)before;
		}
}

static int client_contents(struct search *s, uint32_t client)
{
	struct nv_rm_gpu *gpu[8] = { NULL };
	uint32_t device[8];
	unsigned int n, i, k, devices = 0;
	struct nv_adopt_object *found;
	int err = objects_of(s, client, &found);

	if (err <= 0) {
		free(found);
		return err;
	}
	n = (unsigned int)err;
	err = 0;
	if (s->seen) {
		s->seen(s->ctx, s->fd, client, found, n);
		free(found);
		return 0;
	}
	for (i = 0; i < n && devices < 8; i++)
		if (found[i].class_id == NV_CLASS_DEVICE) {
			struct discover_record r = { .client = client,
						     .parent = client,
						     .object = found[i].handle,
						     .class_id = NV_CLASS_DEVICE };

			device[devices] = found[i].handle;
			gpu[devices] = gpu_of(s, client, found[i].handle, found, n);
			if (!gpu[devices]) {
				s->unknown_gpu = true; /* its channels are left out below */
				continue;
			}
			r.device = gpu[devices++]->device_instance;
			feed(s, &r);
		}
	for (i = 0; i < n; i++) {
		struct discover_record r = { .client = client,
					     .parent = found[i].parent,
					     .object = found[i].handle,
					     .class_id = found[i].class_id };
		bool compute = false;
		struct nv_rm_gpu *on = NULL;

		if (found[i].class_id != NV_CLASS_CHANNEL_GROUP)
			continue;
		for (k = 0; k < devices; k++)
			if (device[k] == found[i].parent)
				on = gpu[k];
		if (!on)
			continue;
		/*
		 * The group is the compute engine's if any of its channels carries a compute
		 * object.
		 */
		for (k = 0; k < n && !compute; k++)
			if (is_compute(found[k].class_id))
				for (unsigned int c = 0; c < n; c++)
					if (found[c].handle == found[k].parent &&
					    found[c].parent == found[i].handle)
						compute = true;
		r.engine = compute ? NV_ENGINE_TYPE_GR0 : NV_ENGINE_TYPE_COPY0;
		feed(s, &r);
		for (k = 0; k < n; k++) {
			struct discover_record c = { .client = client,
						     .parent = found[i].handle,
						     .object = found[k].handle,
						     .class_id = found[k].class_id,
						     .engine = r.engine };
			struct nv_group_uid uid = { .client = client, .object = found[k].handle };

			if (found[k].parent != found[i].handle || !is_channel(found[k].class_id))
				continue;
			if (!nv_rm_control(s->rm, on->subdevice, NV2080_FIFO_GET_GROUP_UID, &uid,
					   sizeof(uid)) &&
			    uid.count == 1)
				c.cid = uid.cid[0];
			if (feed(s, &c))
				continue;
			place(s, client, found[i].handle, found[k].handle, found, n);
			if (compute)
				s->channels++;
		}
	}
	free(found);
	return 0;
}

void nv_process_name(uint32_t pid, char *comm, size_t size)
{
	char path[64];
	FILE *f;

	memset(comm, 0, size);
	snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(comm, (int)size, f))
		comm[strcspn(comm, "\n")] = '\0';
	fclose(f);
	nv_name_clean(comm);
}

/* Looks through all clients that were allocated on the descriptors of the process. */
static int descriptors_of(struct search *s)
{
	const struct nv_sys *sys = s->rm->sys;
	int fds[FDS_MAX], count, pidfd, err = 0;

	count = sys->ctl_fds(sys->ctx, (int)s->pid, fds, FDS_MAX);
	if (count < 0)
		return count;
	pidfd = sys->pidfd_open(sys->ctx, (int)s->pid);
	if (pidfd < 0)
		return pidfd;
	s->ask_everybody = !client_exists(s, s->rm->client);
	for (int i = 0; i < count && i < FDS_MAX && !err; i++) {
		uint32_t client, newest = s->rm->client & CLIENT_INDEX;

		s->remote_fd = fds[i];
		s->fd = sys->pidfd_getfd(sys->ctx, pidfd, s->remote_fd);
		if (s->fd < 0) {
			err = s->fd;
			break;
		}
		s->stats->descriptors++;
		for (client = CLIENT_BASE; client < CLIENT_BASE + newest && !err; client++) {
			struct discover_record r = { .client = client,
						     .object = client,
						     .class_id = NV_CLASS_ROOT_CLIENT };
			uint64_t class_id;

			if (!client_exists(s, client) ||
			    ask(s, client, client, NV_HANDLE_INFO_CLASS, &class_id))
				continue;
			s->stats->clients++;
			if (!s->seen)
				feed(s, &r);
			err = client_contents(s, client);
		}
		sys->close(sys->ctx, s->fd);
	}
	sys->close(sys->ctx, pidfd);
	return err;
}

int nv_adopt_objects(struct nv_rm_gpu *gpus, int gpu_count, uint32_t pid, nv_adopt_seen seen,
		     void *ctx)
{
	struct nv_adopt_stats none = { 0 };
	struct search s = { .rm = gpus[0].rm,
			    .gpus = gpus,
			    .gpu_count = gpu_count,
			    .pid = pid,
			    .stats = &none,
			    .seen = seen,
			    .ctx = ctx };

	return descriptors_of(&s);
}

int nv_adopt(struct nv_rm_gpu *gpus, int gpu_count, struct nv_registry *registry, uint32_t pid,
	     struct nv_adopt_stats *stats)
{
	const struct nv_sys *sys = gpus[0].rm->sys;
	struct nv_adopt_stats none;
	struct search s = { .rm = gpus[0].rm,
			    .gpus = gpus,
			    .gpu_count = gpu_count,
			    .registry = registry,
			    .pid = pid };
	uint64_t began = sys->now_ns(sys->ctx);
	int err;

	s.stats = stats ? stats : &none;
	memset(s.stats, 0, sizeof(*s.stats));
	nv_process_name(pid, s.comm, sizeof(s.comm));
	err = descriptors_of(&s);
	s.stats->ns = sys->now_ns(sys->ctx) - began;
	if (!err && s.unknown_gpu && !s.channels)
		err = -EXDEV;
	if (err)
		return err;
	if (s.channels) {
		struct nv_process *p = nv_registry_process(registry, pid);

		if (p) {
			p->adopted = true;
			p->adopted_ns = began + s.stats->ns;
		}
	}
	return s.channels;
}

bool nv_uses_driver(const struct nv_sys *sys, uint32_t pid)
{
	int fd, n = sys->ctl_fds(sys->ctx, (int)pid, &fd, 1);

	return n && n != -ENOENT && n != -ESRCH;
}

int nv_users(const struct nv_sys *sys, uint32_t *pids, int cap)
{
	DIR *proc = opendir("/proc");
	struct dirent *p;
	int n = 0;

	if (!proc)
		return -errno;
	while ((p = readdir(proc))) {
		char *end;
		unsigned long pid = strtoul(p->d_name, &end, 10);
		int fd;

		/*
		 * An error does not say that it uses the GPU: it has ended, or its user holds up
		 * the look. If it does, its work tells later.
		 */
		if (!pid || *end || pid == (unsigned long)getpid() ||
		    sys->ctl_fds(sys->ctx, (int)pid, &fd, 1) <= 0)
			continue;
		if (n < cap)
			pids[n] = (uint32_t)pid;
		n++;
	}
	closedir(proc);
	return n;
}
