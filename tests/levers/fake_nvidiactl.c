// SPDX-License-Identifier: MIT
/*
 * fake_nvidiactl.c - see fake_nvidiactl.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "fake_nvidiactl.h"
#include "rtxg_clock.h"

struct fake_driver *fake;

#define CTL_FD	   1000
#define GPU_FD	   1100
#define MAP_FD	   1200
#define PID_FD	   1300
#define FOREIGN_FD 2000

static int maps;

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
}

void fake_channel_add(uint32_t gpu, uint32_t client, uint32_t handle, uint32_t group)
{
	struct fake_channel *c = &fake->channel[fake->channels++];

	c->gpu = gpu;
	c->client = client;
	c->handle = handle;
	c->group = group;
	c->stopped = c->gone = false;
}

uint32_t fake_stopped(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fake->channels; i++)
		n += fake->channel[i].stopped ? 1 : 0;
	return n;
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
	r->timestamp = at;
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

static struct fake_channel *find(uint32_t client, uint32_t handle)
{
	for (uint32_t i = 0; i < fake->channels; i++)
		if (fake->channel[i].client == client && fake->channel[i].handle == handle &&
		    !fake->channel[i].gone)
			return &fake->channel[i];
	return NULL;
}

static bool journaled(uint32_t client, uint32_t channel)
{
	if (!fake->watched || !fake->watched->page)
		return true;
	for (uint32_t i = 0; i < fake->watched->page->high; i++) {
		struct nv_journal_entry *e = &fake->watched->page->entry[i];

		if (e->used && e->client == client && e->channel == channel)
			return true;
	}
	return false;
}

static uint32_t disable(uint32_t subdevice, struct nv_disable_channels *d)
{
	fake->disables++;
	fake->leaves += d->disable && d->only_scheduling;
	if (d->count > fake->biggest)
		fake->biggest = d->count;
	if (d->count > NV_DISABLE_CHANNELS_MAX)
		return NV_STATUS_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < d->count; i++) {
		if (fake->fail_client && d->client[i] == fake->fail_client)
			return fake->fail_status;
		if (!find(d->client[i], d->channel[i]))
			return NV_STATUS_INVALID_OBJECT_HANDLE;
		if (fake->own_subdevice[find(d->client[i], d->channel[i])->gpu] != subdevice) {
			fake->wrong_gpu++;
			return NV_STATUS_INVALID_OBJECT_HANDLE;
		}
	}
	for (uint32_t i = 0; i < d->count; i++) {
		if (d->disable && !journaled(d->client[i], d->channel[i]))
			fake->unjournaled++;
		find(d->client[i], d->channel[i])->stopped = d->disable;
	}
	return NV_STATUS_OK;
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
	return NV_STATUS_OBJECT_NOT_FOUND;
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

static uint32_t control(int fd, struct nvos54 *c)
{
	void *p = (void *)(uintptr_t)c->params;

	fake->now += fake->delay_ns;
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

		i->domain = 0;
		i->bus = (uint16_t)(fake->reversed ? 0x90 - (i->gpu_id - FAKE_GPU_ID)
						   : i->gpu_id - FAKE_GPU_ID);
		i->slot = 6;
		return NV_STATUS_OK;
	}
	case NV2080_GPU_GET_PID_INFO:
		return tell_memory(c->object, p);
	case NV2080_FIFO_DISABLE_CHANNELS:
		return disable(c->object, p);
	case NV2080_TIMER_GET_GPU_CPU_TIME: {
		struct nv_gpu_cpu_time *t = p;

		t->sample[0].gpu = fake_now(NULL) + FAKE_EPOCH; /* another epoch */
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
		return NV_STATUS_OK;
	case NVA06C_GET_TIMESLICE:
		if (fd < FOREIGN_FD)
			return NV_STATUS_INVALID_CLIENT;
		((struct nv_timeslice *)p)->us = fake->slice_us;
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

			/*
			 * The real driver follows a null pointer without a subdevice, and wants
			 * memory of this one kind.
			 */
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
		((struct nvos00 *)arg)->status = NV_STATUS_OK;
		return 0;
	}
	if (request == RM_IOC(NV_ESC_RM_MAP_MEMORY, struct nvos33_fd)) {
		((struct nvos33_fd *)arg)->status = NV_STATUS_OK;
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

	maps++;
	*address = maps % 2 ? (void *)&log->header : (void *)log->record;
	return 0;
}

static int fake_munmap(void *ctx, void *address, size_t length)
{
	return 0;
}

static int fake_pidfd_open(void *ctx, int pid)
{
	fake->open_fds++;
	fake->user[fake->users % 32] = (uint32_t)pid;
	return PID_FD + (int)(fake->users++ % 32);
}

static int fake_ctl_fds(void *ctx, int pid, int *fds, int cap)
{
	for (uint32_t i = 0; i < fake->objects; i++)
		if (fake->object[i].pid == (uint32_t)pid) {
			if (cap > 0)
				fds[0] = 7;
			return 1;
		}
	return 0;
}

static int fake_pidfd_getfd(void *ctx, int pidfd, int fd)
{
	if (fake->getfd_error)
		return -fake->getfd_error;
	fake->open_fds++;
	fake->foreign_fds++;
	return FOREIGN_FD + (pidfd - PID_FD) * 100 + fd;
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
	.now_ns = fake_now,
};
