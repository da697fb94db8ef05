// SPDX-License-Identifier: MIT
/* fake_nvidiactl.c - see fake_nvidiactl.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "fake_nvidiactl.h"
#include "fake_stops.h"
#include "rtxg_clock.h"

struct fake_driver *fake;

#define CTL_FD	   1000
#define GPU_FD	   1100
#define MAP_FD	   1200
#define PID_FD	   1300
#define FOREIGN_FD 2000

static int maps;
static struct fake_memory_object *to_map; /* what the next mmap is for; NULL: a log */
static uint64_t to_map_at;

void fake_reset(void)
{
	if (!fake) {
		fake = mmap(NULL, sizeof(*fake), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			    -1, 0);
		if (fake == MAP_FAILED)
			abort();
	}
	memset(fake, 0, sizeof(*fake));
	fake->gpus = 1;
	fake->next_client = 0xc1d00040;
	fake->slice_us = FAKE_SLICE_DEFAULT;
	fake->now = 1000000000;
	maps = 0;
	to_map = NULL;
}

struct fake_failure *fake_fail(uint32_t command, uint32_t client, uint32_t status)
{
	struct fake_failure *f = &fake->failure[fake->failures++];

	*f = (struct fake_failure){ .command = command, .client = client, .status = status };
	return f;
}

struct fake_memory_object *fake_memory_add(uint32_t gpu, uint32_t client, uint32_t handle,
					   uint32_t class_id, uint32_t size)
{
	struct fake_memory_object *m = NULL;

	for (uint32_t i = 0; i < fake->memories && !m; i++)
		if (fake->memory[i].freed && !fake->memory[i].dups)
			m = &fake->memory[i];
	if (!m)
		m = &fake->memory[fake->memories++];

	*m = (struct fake_memory_object){
		.client = client, .handle = handle, .class_id = class_id, .gpu = gpu, .size = size
	};
	return m;
}

void fake_queue(struct fake_memory_object *m, uint32_t offset, uint32_t get, uint32_t put)
{
	memcpy(m->bytes + offset + NV_USERD_GP_GET, &get, sizeof(get));
	memcpy(m->bytes + offset + NV_USERD_GP_PUT, &put, sizeof(put));
}

uint32_t fake_dups(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fake->memories; i++)
		n += fake->memory[i].dups;
	return n;
}

uint32_t fake_maps(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fake->memories; i++)
		n += fake->memory[i].maps;
	return n;
}

uint32_t fake_slice(uint32_t client)
{
	for (uint32_t i = 0; i < fake->channels; i++)
		if (fake->channel[i].client == client)
			return fake->channel[i].slice_us;
	return 0;
}

void fake_group_dup(uint32_t client, uint32_t handle, uint32_t of_client, uint32_t of)
{
	fake->duplicate[fake->duplicates++] = (struct fake_duplicate){
		.client = client, .handle = handle, .of_client = of_client, .of = of
	};
}

/* The number of the group that a client calls so, the same for all of its duplicates. */
static uint32_t group_number(uint32_t client, uint32_t group)
{
	for (uint32_t i = 0; i < fake->duplicates; i++)
		if (fake->duplicate[i].client == client && fake->duplicate[i].handle == group)
			return group_number(fake->duplicate[i].of_client, fake->duplicate[i].of);
	return (client & 0xffff) << 16 | (group & 0xffff);
}

static uint32_t set_slice(uint32_t client, uint32_t group, uint32_t us)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fake->channels; i++) {
		struct fake_channel *c = &fake->channel[i];

		if (group ? group_number(c->client, c->group) == group_number(client, group)
			  : c->client == client) {
			c->slice_us = us;
			n++;
		}
	}
	return n;
}

void fake_set_slice(uint32_t client, uint32_t us)
{
	set_slice(client, 0, us);
	fake->slice_us = us;
}

void fake_channel_add(uint32_t gpu, uint32_t client, uint32_t handle, uint32_t group)
{
	struct fake_channel *c = NULL;

	for (uint32_t i = 0; i < fake->channels && !c; i++)
		if (fake->channel[i].gone)
			c = &fake->channel[i];
	if (!c)
		c = &fake->channel[fake->channels++];

	c->gpu = gpu;
	c->client = client;
	c->handle = handle;
	c->group = group;
	c->stopped = c->gone = 0;
	c->slice_us = 0;
}

void fake_gone(uint32_t client)
{
	for (uint32_t i = 0; i < fake->channels; i++)
		if (fake->channel[i].client == client) {
			fake->channel[i].gone = true;
			fake->channel[i].stopped = false;
		}
	for (uint32_t i = 0; i < fake->memories; i++)
		if (fake->memory[i].client == client)
			fake->memory[i].freed = true;
	for (uint32_t i = fake->objects; i-- > 0;)
		if (fake->object[i].client == client)
			fake->object[i] = fake->object[--fake->objects];
}

void fake_object_add(uint32_t pid, uint32_t client, uint32_t parent, uint32_t handle,
		     uint32_t class_id, uint32_t gpu, uint32_t cid)
{
	fake->object[fake->objects++] = (struct fake_object){ .pid = pid,
							      .client = client,
							      .parent = parent,
							      .handle = handle,
							      .class_id = class_id,
							      .gpu = gpu,
							      .cid = cid };
}

void fake_log_on(uint32_t gpu, uint8_t tag, uint32_t pid, uint32_t cid, uint64_t at)
{
	struct fake_log *log = &fake->log[gpu];
	struct nv_fecs_record *r = &log->record[log->header.put];

	memset(r, 0, sizeof(*r));
	r->tag = tag;
	r->pid = pid;
	r->context_id = cid;
	r->timestamp = at + (uint64_t)fake->gpu_ahead;
	r->seqno = ++log->seqno;
	log->header.put = (log->header.put + 1) % log->record_count;
	log->header.count++;
}

void fake_log(uint8_t tag, uint32_t pid, uint32_t cid, uint64_t at)
{
	fake_log_on(0, tag, pid, cid, at);
}

static uint64_t fake_now(void *ctx)
{
	return fake->real_time ? rtxg_now_ns() : fake->now;
}

static int fake_open(void *ctx, const char *path)
{
	if (!strcmp(path, "/dev/nvidiactl")) {
		if (fake->open_error)
			return -fake->open_error;
		fake->open_fds++;
		return CTL_FD;
	}
	for (int i = 0; i < fake->gpus; i++) {
		char name[32];

		snprintf(name, sizeof(name), "/dev/nvidia%d", i);
		if (!strcmp(path, name)) {
			fake->open_fds++;
			return GPU_FD + i;
		}
	}
	return -ENOENT;
}

static int fake_close(void *ctx, int fd)
{
	fake->open_fds--;
	if (fd >= FOREIGN_FD)
		fake->foreign_fds--;
	return 0;
}

/*
 * A question about another's objects: answered through a descriptor of the process that allocated
 * them.
 */
static uint32_t question(int fd, const struct nvos54 *c, void *p)
{
	uint32_t pid = fd >= FOREIGN_FD ? fake->user[(fd - FOREIGN_FD) / 100 % 32] : 0;

	for (uint32_t i = 0; i < fake->objects; i++) {
		const struct fake_object *o = &fake->object[i];
		struct {
			uint32_t parent, class_id, object;
		} *child = p;
		struct nv_handle_info *info = p;

		if (o->pid != pid || o->client != c->client)
			continue;
		if (c->cmd == NV0000_CLIENT_GET_CHILD_HANDLE) {
			if (o->class_id != NV_CLASS_DEVICE)
				continue;
			child->object = o->handle;
			return NV_STATUS_OK;
		}
		if (c->cmd == NV0000_CLIENT_GET_HANDLE_INFO) {
			if (o->handle != info->object)
				continue;
			info->result =
				info->index == NV_HANDLE_INFO_PARENT ? o->parent : o->class_id;
			return NV_STATUS_OK;
		}
		if (o->handle == c->object && o->class_id == NV_CLASS_SUBDEVICE &&
		    !fake->silent_subdevices) {
			((struct nv_gpu_id *)p)->gpu_id = FAKE_GPU_ID + o->gpu;
			return NV_STATUS_OK;
		}
	}
	for (uint32_t i = 0; i < fake->channels && c->cmd == NV0000_CLIENT_GET_HANDLE_INFO; i++)
		if (pid && pid == fake->moved_pid && fake->channel[i].client == c->client &&
		    ((struct nv_handle_info *)p)->object == c->client) {
			((struct nv_handle_info *)p)->result = NV_CLASS_ROOT_CLIENT;
			return NV_STATUS_OK;
		}
	for (uint32_t i = 0; i < fake->memories && c->cmd == NV0000_CLIENT_GET_HANDLE_INFO; i++) {
		struct nv_handle_info *info = p;

		if (fd < FOREIGN_FD || fake->memory[i].client != c->client ||
		    fake->memory[i].handle != info->object || fake->memory[i].freed)
			continue;
		info->result = fake->memory[i].class_id;
		return NV_STATUS_OK;
	}
	return NV_STATUS_OBJECT_NOT_FOUND;
}

static struct fake_memory_object *memory_of(uint32_t client, uint32_t handle)
{
	for (uint32_t i = 0; i < fake->memories; i++)
		if (fake->memory[i].client == client && fake->memory[i].handle == handle &&
		    !fake->memory[i].freed)
			return &fake->memory[i];
	return NULL;
}

static uint32_t share(int fd, const struct nvos57 *s)
{
	struct fake_memory_object *m = memory_of(s->client, s->object);

	if (fd < FOREIGN_FD)
		return NV_STATUS_INVALID_CLIENT;
	if (!m)
		return NV_STATUS_OBJECT_NOT_FOUND;
	if (s->type != NV_SHARE_TYPE_CLIENT || s->rights != NV_SHARE_RIGHT_DUP)
		return NV_STATUS_INVALID_ARGUMENT;
	m->shared_to = s->action == NV_SHARE_ACTION_ADD ? s->target : 0;
	return NV_STATUS_OK;
}

static uint32_t duplicate(const struct nvos55 *d)
{
	struct fake_memory_object *m = memory_of(d->source_client, d->source_object);

	if (!m)
		return NV_STATUS_OBJECT_NOT_FOUND;
	if (!m->shared_to || m->shared_to != d->client)
		return NV_STATUS_INSUFFICIENT_PERMISSIONS;
	if (fake->own_device[m->gpu] != d->parent)
		return NV_STATUS_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < FAKE_OBJECTS; i++)
		if (!fake->dup[i].handle) {
			fake->dup[i].handle = d->object;
			fake->dup[i].memory = (uint32_t)(m - fake->memory);
			m->dups++;
			return NV_STATUS_OK;
		}
	return NV_STATUS_INSUFFICIENT_RESOURCES;
}

/* The GPU's memory goes through a descriptor of that GPU, the system's through the control one. */
static uint32_t map_memory(const struct nvos33_fd *a)
{
	for (uint32_t i = 0; i < FAKE_OBJECTS; i++) {
		struct fake_memory_object *m = &fake->memory[fake->dup[i].memory];

		if (!fake->dup[i].handle || fake->dup[i].handle != a->memory)
			continue;
		if (a->flags % 4 != NV_MAP_ACCESS_READ_ONLY)
			return NV_STATUS_INSUFFICIENT_PERMISSIONS;
		if (a->offset >= m->size)
			return NV_STATUS_INVALID_BASE;
		if (!a->length || a->offset + a->length > m->size)
			return NV_STATUS_INVALID_LIMIT;
		if (a->fd != (m->class_id == NV_CLASS_MEMORY_LOCAL ? GPU_FD + (int)m->gpu : CTL_FD))
			return NV_STATUS_INVALID_ARGUMENT;
		to_map = m;
		to_map_at = a->offset;
		return NV_STATUS_OK;
	}
	to_map = NULL;
	return NV_STATUS_OK;
}

static void free_dup(uint32_t handle)
{
	for (uint32_t i = 0; i < FAKE_OBJECTS; i++)
		if (fake->dup[i].handle == handle) {
			fake->memory[fake->dup[i].memory].dups--;
			fake->dup[i].handle = 0;
		}
}

static void tell_cards(struct nv_card_info *card)
{
	for (int i = 0; i < fake->gpus; i++) {
		card[i].valid = 1;
		card[i].gpu_id = FAKE_GPU_ID + (uint32_t)i;
		card[i].minor = (uint32_t)i;
	}
}

uint64_t fake_memory(uint32_t gpu, uint32_t pid)
{
	return ((uint64_t)pid << 20) + 4096 * (gpu + 1);
}

static uint32_t tell_memory(uint32_t subdevice, struct nv_pid_info *info)
{
	uint32_t gpu = 0;

	fake->memory_asked++;
	if (!info->count || info->count > NV_PID_INFO_ENTRIES)
		return NV_STATUS_INVALID_ARGUMENT;
	while (fake->own_subdevice[gpu] != subdevice)
		gpu++;
	for (uint32_t i = 0; i < info->count; i++) {
		struct nv_pid_info_entry *e = &info->entry[i];

		e->result = e->index != NV_PID_INFO_MEMORY ? NV_STATUS_INVALID_ARGUMENT
			    : e->pid == fake->no_memory_of ? NV_STATUS_OBJECT_NOT_FOUND
							   : NV_STATUS_OK;
		e->shared = 4096;
		e->memory = fake_memory(gpu, e->pid) - e->shared;
		e->foreign = 1u << 30; /* another process has allocated it */
		e->compute_instance = e->gpu_instance = UINT32_MAX;
	}
	return NV_STATUS_OK;
}

/* Does this call name the client, itself or in its list of channels? */
static bool names(const struct nvos54 *c, uint32_t client)
{
	const struct nv_disable_channels *d = (void *)(uintptr_t)c->params;

	if (!client || c->client == client)
		return true;
	if (c->cmd != NV2080_FIFO_DISABLE_CHANNELS)
		return false;
	for (uint32_t i = 0; i < d->count && i < NV_DISABLE_CHANNELS_MAX; i++)
		if (d->client[i] == client)
			return true;
	return false;
}

/* The status with which this call is to fail; NV_STATUS_OK: it is not. */
static uint32_t to_fail(uint32_t command, const struct nvos54 *c, uint32_t client)
{
	for (uint32_t i = 0; i < fake->failures; i++) {
		struct fake_failure *f = &fake->failure[i];

		if ((f->command && f->command != command) ||
		    (c ? !names(c, f->client) : f->client && f->client != client) ||
		    (f->times && f->failed >= f->times) ||
		    (f->until_ns && fake_now(NULL) >= f->until_ns))
			continue;
		if (f->after) {
			f->after--;
			continue;
		}
		f->failed++;
		if (c && command == NV2080_FIFO_DISABLE_CHANNELS)
			fake_half_stop((void *)(uintptr_t)c->params, f);
		return f->status;
	}
	return NV_STATUS_OK;
}

static uint32_t control(int fd, struct nvos54 *c)
{
	void *p = (void *)(uintptr_t)c->params;
	uint32_t status = to_fail(c->cmd, c, 0);

	if (status)
		return status;
	if (c->params_size == NV_NEEDS_SIZE)
		return c->cmd == fake->lacks ? NV_STATUS_NOT_SUPPORTED
					     : NV_STATUS_INVALID_PARAM_STRUCT;
	if (fake->fail_command && c->cmd == fake->fail_command) {
		if (!fake->fail_after)
			return fake->fail_status;
		fake->fail_after--;
	}
	switch (c->cmd) {
	case NV0000_GPU_GET_ATTACHED_IDS: {
		struct nv_attached_ids *a = p;

		memset(a->id, 0xff, sizeof(a->id));
		for (int i = 0; i < fake->gpus; i++)
			a->id[i] = FAKE_GPU_ID + (uint32_t)i;
		return NV_STATUS_OK;
	}
	case NV0000_GPU_GET_ID_INFO_V2: {
		struct nv_id_info *i = p;

		i->device_instance = i->gpu_id - FAKE_GPU_ID;
		i->subdevice_instance = 0;
		return NV_STATUS_OK;
	}
	case NV0000_GPU_GET_PCI_INFO: {
		struct nv_pci_info *i = p;
		uint16_t n = (uint16_t)(i->gpu_id - FAKE_GPU_ID);

		i->domain = 0;
		i->bus = (uint16_t)(fake->one_bus ? 0 : fake->reversed ? 0x90 - n : n);
		i->slot = (uint16_t)(6 + (fake->one_bus ? n : 0));
		return NV_STATUS_OK;
	}
	case NV2080_GPU_GET_PID_INFO:
		return tell_memory(c->object, p);
	case NV2080_FIFO_DISABLE_CHANNELS:
		return fake_disable(c->object, p);
	case NV2080_TIMER_GET_GPU_CPU_TIME: {
		struct nv_gpu_cpu_time *t = p; /* another epoch */

		t->sample[0].gpu = fake_now(NULL) + FAKE_EPOCH + (uint64_t)fake->gpu_ahead;
		fake->compared++;
		return NV_STATUS_OK;
	}
	case NV2080_GR_FECS_BIND_EVTBUF_V2:
	case NV90CD_ENABLE_EVENTS:
		return NV_STATUS_OK;
	case NV90CD_FLUSH:
		fake->flushes++;
		return NV_STATUS_OK;
	case NV90CD_UPDATE_GET:
		fake->updated_get = ((struct nv_update_get *)p)->record_get;
		return NV_STATUS_OK;
	case NVA06C_SET_TIMESLICE:
		if (fd < FOREIGN_FD) /* not the owner's descriptor */
			return NV_STATUS_INVALID_CLIENT;
		fake->slice_us = (uint32_t)((struct nv_timeslice *)p)->us;
		set_slice(c->client, c->object, fake->slice_us);
		return NV_STATUS_OK;
	case NVA06C_GET_TIMESLICE:
		if (fd < FOREIGN_FD)
			return NV_STATUS_INVALID_CLIENT;
		((struct nv_timeslice *)p)->us = fake->slice_us;
		for (uint32_t i = 0; i < fake->channels; i++)
			if (fake->channel[i].client == c->client &&
			    fake->channel[i].group == c->object)
				((struct nv_timeslice *)p)->us = fake->channel[i].slice_us
									 ? fake->channel[i].slice_us
									 : FAKE_SLICE_DEFAULT;
		return NV_STATUS_OK;
	case NVA06C_PREEMPT:
		fake->preempts++;
		return NV_STATUS_OK;
	case NVA06F_RESTART_RUNLIST:
		if (fd < FOREIGN_FD)
			return NV_STATUS_INVALID_CLIENT;
		fake->restarts++;
		return NV_STATUS_OK;
	case NV2080_GPU_GET_INFO: {
		struct nv_gpu_info_entry *e = (void *)(uintptr_t)((struct nv_gpu_info *)p)->list;

		for (int i = 0; i < fake->gpus; i++)
			if (fake->own_subdevice[i] == c->object)
				e->data = fake->mig >> i & 1 ? NV_GPU_INFO_MIG_ON : 2;
		return NV_STATUS_OK;
	}
	case NV0000_CLIENT_GET_ACCESS_RIGHTS: {
		struct nv_access_rights *r = p;

		for (uint32_t i = 0; i < fake->objects; i++)
			if (fake->object[i].client == r->client)
				return NV_STATUS_OK;
		return r->client < fake->next_client && r->client >= 0xc1d00040
			       ? NV_STATUS_OK
			       : NV_STATUS_INVALID_CLIENT;
	}
	case NV0000_CLIENT_GET_CHILD_HANDLE:
	case NV0000_CLIENT_GET_HANDLE_INFO:
	case NV2080_GPU_GET_ID:
		return question(fd, c, p);
	case NV2080_FIFO_GET_GROUP_UID: {
		struct nv_group_uid *u = p;

		for (uint32_t i = 0; i < fake->channels; i++) {
			const struct fake_channel *ch = &fake->channel[i];

			if (ch->gone || ch->gpu >= (uint32_t)fake->gpus ||
			    fake->own_subdevice[ch->gpu] != c->object ||
			    group_number(ch->client, ch->group) !=
				    group_number(u->client, u->object))
				continue;
			u->group = group_number(u->client, u->object);
			u->cid[u->count++] = i;
		}
		if (u->count)
			return NV_STATUS_OK;
		for (uint32_t i = 0; i < fake->objects; i++)
			if (fake->object[i].client == u->client &&
			    fake->object[i].handle == u->object &&
			    fake->own_subdevice[fake->object[i].gpu] == c->object) {
				u->count = 1;
				u->cid[0] = fake->object[i].cid;
				return NV_STATUS_OK;
			}
		return NV_STATUS_INVALID_OBJECT_HANDLE;
	}
	default:
		return NV_STATUS_NOT_SUPPORTED;
	}
}

static int fake_ioctl(void *ctx, int fd, uint32_t request, void *arg)
{
	fake->calls++;
	fake->now += fake->delay_ns;
	fake_look_at_beat();
	if (request == RM_IOC(NV_ESC_RM_ALLOC, struct nvos64)) {
		struct nvos64 *a = arg;

		if (fake->fail_class && a->class_id == fake->fail_class) {
			a->status = fake->fail_status;
			return 0;
		}
		if (a->class_id == NV_CLASS_ROOT_CLIENT)
			a->object = fake->next_client++;
		if (a->class_id == NV_CLASS_EVENT_BUFFER) {
			struct nv_event_buffer_alloc *e = (void *)(uintptr_t)a->params;

			/* The real driver follows a null pointer without a subdevice. */
			if (!e->subdevice || !e->h_header || !e->h_records) {
				a->status = NV_STATUS_INVALID_ARGUMENT;
				return 0;
			}
			for (int i = 0; i < fake->gpus; i++)
				if (fake->own_subdevice[i] == e->subdevice) {
					fake->log[i].record_count = e->record_count;
					fake->last_log = (uint32_t)i;
				}
		}
		if (a->class_id == NV_CLASS_DEVICE)
			fake->own_device[((struct nv_device_alloc *)(uintptr_t)a->params)
						 ->device_id] = a->object;
		if (a->class_id == NV_CLASS_SUBDEVICE)
			for (int i = 0; i < fake->gpus; i++)
				if (fake->own_device[i] == a->parent)
					fake->own_subdevice[i] = a->object;
		a->status = NV_STATUS_OK;
		return 0;
	}
	if (request == RM_IOC(NV_ESC_RM_CONTROL, struct nvos54)) {
		struct nvos54 *c = arg;

		c->status = control(fd, c);
		return 0;
	}
	if (request == RM_IOC(NV_ESC_RM_FREE, struct nvos00)) {
		free_dup(((struct nvos00 *)arg)->object);
		((struct nvos00 *)arg)->status = NV_STATUS_OK;
		return 0;
	}
	if (request == RM_IOC(NV_ESC_RM_MAP_MEMORY, struct nvos33_fd)) {
		struct nvos33_fd *a = arg;

		a->status = to_fail(NV_ESC_RM_MAP_MEMORY, NULL, 0);
		if (!a->status)
			a->status = map_memory(a);
		return 0;
	}
	if (request == RM_IOC(NV_ESC_RM_SHARE, struct nvos57)) {
		struct nvos57 *s = arg;

		s->status = to_fail(NV_ESC_RM_SHARE, NULL, s->client);
		if (!s->status)
			s->status = share(fd, s);
		return 0;
	}
	if (request == RM_IOC(NV_ESC_RM_DUP_OBJECT, struct nvos55)) {
		struct nvos55 *d = arg;

		d->status = to_fail(NV_ESC_RM_DUP_OBJECT, NULL, d->source_client);
		if (!d->status)
			d->status = duplicate(d);
		return 0;
	}
	if (request == RM_IOC(NV_ESC_CARD_INFO, struct nv_card_info[RM_GPUS_MAX])) {
		tell_cards(arg);
		return 0;
	}
	if (request == RM_IOC(NV_ESC_REGISTER_FD, struct nv_register_fd))
		return 0;
	return -ENOTTY;
}

static int fake_mmap(void *ctx, int fd, size_t length, void **address)
{
	/* header and records of the buffer that was made last */
	struct fake_log *log = &fake->log[fake->last_log];

	if (to_map) {
		*address = to_map->bytes + to_map_at;
		to_map->maps++;
		if (length % 4096 || to_map_at + length > sizeof(to_map->bytes))
			fake->wild_maps++;
		to_map = NULL;
		return 0;
	}
	maps++;
	*address = maps % 2 ? (void *)&log->header : (void *)log->record;
	return 0;
}

static int fake_munmap(void *ctx, void *address, size_t length)
{
	for (uint32_t i = 0; i < fake->memories; i++)
		if ((uint8_t *)address >= fake->memory[i].bytes &&
		    (uint8_t *)address < fake->memory[i].bytes + sizeof(fake->memory[i].bytes))
			fake->memory[i].maps--;
	return 0;
}

static int fake_pidfd_open(void *ctx, int pid)
{
	fake->open_fds++;
	fake->user[fake->users % 32] = (uint32_t)pid;
	return PID_FD + (int)(fake->users++ % 32);
}

static uint32_t fake_owner(void *ctx, int pid)
{
	return fake->owner_from && (uint32_t)pid >= fake->owner_from ? FAKE_OTHER_USER : 0;
}

static int fake_ctl_fds(void *ctx, int pid, int *fds, int cap)
{
	int n = fake->moved_to && (uint32_t)pid == fake->moved_pid;

	fake->lists++;
	fake->now += fake->list_ns;
	if (fake->list_error)
		return -fake->list_error;
	for (uint32_t i = 0; i < fake->objects && !n; i++)
		n = fake->object[i].pid == (uint32_t)pid;
	if (n && cap > 0)
		fds[0] = fake->moved_to ? fake->moved_to : 7;
	return n;
}

static int fake_pidfd_getfd(void *ctx, int pidfd, int fd)
{
	if (fake->getfd_error &&
	    (!fake->getfd_pid || fake->getfd_pid == fake->user[pidfd - PID_FD]))
		return -fake->getfd_error;
	if (fake->moved_to && fake->user[pidfd - PID_FD] == fake->moved_pid && fd != fake->moved_to)
		return -EBADF;
	fake->open_fds++;
	fake->foreign_fds++;
	return FOREIGN_FD + (pidfd - PID_FD) * 100 + fd;
}

static int fake_alive(void *ctx, int pid)
{
	return !fake->dead || (uint32_t)pid != fake->dead;
}

const struct nv_sys fake_sys = {
	.open = fake_open,
	.close = fake_close,
	.ioctl = fake_ioctl,
	.mmap = fake_mmap,
	.munmap = fake_munmap,
	.pidfd_open = fake_pidfd_open,
	.pidfd_getfd = fake_pidfd_getfd,
	.ctl_fds = fake_ctl_fds,
	.alive = fake_alive,
	.owner = fake_owner,
	.now_ns = fake_now,
};

const struct nv_sys *fake_sys_patient(void)
{
	return &fake_sys;
}
