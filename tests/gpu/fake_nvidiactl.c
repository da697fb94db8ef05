// SPDX-License-Identifier: MIT
/*
 * fake_nvidiactl.c - see fake_nvidiactl.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "fake_nvidiactl.h"

struct fake_driver *fake;

#define CTL_FD 1000
#define GPU_FD 1100
#define MAP_FD 1200
#define PID_FD 1300
#define FOREIGN_FD 1400

static int maps;

void fake_reset(void)
{
	if (!fake) {
		fake = mmap(NULL, sizeof(*fake), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
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

void fake_channel_add(uint32_t client, uint32_t handle, uint32_t group)
{
	struct fake_channel *c = &fake->channel[fake->channels++];

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

void fake_log(uint8_t tag, uint32_t pid, uint32_t cid, uint64_t at)
{
	struct nv_fecs_record *r = &fake->record[fake->header.put];

	memset(r, 0, sizeof(*r));
	r->tag = tag;
	r->pid = pid;
	r->context_id = cid;
	r->timestamp = at;
	r->seqno = ++fake->seqno;
	fake->header.put = (fake->header.put + 1) % fake->record_count;
	fake->header.count++;
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
		if (fake->channel[i].client == client && fake->channel[i].handle == handle && !fake->channel[i].gone)
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

static uint32_t disable(struct nv_disable_channels *d)
{
	fake->disables++;
	if (d->count > fake->biggest)
		fake->biggest = d->count;
	if (d->count > NV_DISABLE_CHANNELS_MAX)
		return NV_STATUS_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < d->count; i++) {
		if (fake->fail_client && d->client[i] == fake->fail_client)
			return fake->fail_status;
		if (!find(d->client[i], d->channel[i]))
			return NV_STATUS_INVALID_OBJECT_HANDLE;
	}
	for (uint32_t i = 0; i < d->count; i++) {
		if (d->disable && !journaled(d->client[i], d->channel[i]))
			fake->unjournaled++;
		find(d->client[i], d->channel[i])->stopped = d->disable;
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
			a->id[i] = 0x600u + (uint32_t)i;
		return NV_STATUS_OK;
	}
	case NV0000_GPU_GET_ID_INFO_V2: {
		struct nv_id_info *i = p;

		i->device_instance = i->gpu_id - 0x600u;
		i->subdevice_instance = 0;
		return NV_STATUS_OK;
	}
	case NV0000_GPU_GET_PCI_INFO: {
		struct nv_pci_info *i = p;

		i->domain = 0;
		i->bus = 0;
		i->slot = 6;
		return NV_STATUS_OK;
	}
	case NV2080_FIFO_DISABLE_CHANNELS:
		return disable(p);
	case NV2080_TIMER_GET_GPU_CPU_TIME: {
		struct nv_gpu_cpu_time *t = p;

		t->sample[0].gpu = fake->now + 5000000000000ull; /* another epoch */
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

			/* The real driver follows a null pointer without a subdevice, and wants memory of this one kind. */
			if (!e->subdevice || !e->h_header || !e->h_records) {
				a->status = NV_STATUS_INVALID_ARGUMENT;
				return 0;
			}
			fake->record_count = e->record_count;
		}
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
	*address = maps++ % 2 ? (void *)fake->record : (void *)&fake->header;
	return 0;
}

static int fake_munmap(void *ctx, void *address, size_t length)
{
	return 0;
}

static int fake_pidfd_open(void *ctx, int pid)
{
	fake->open_fds++;
	return PID_FD;
}

static int fake_pidfd_getfd(void *ctx, int pidfd, int fd)
{
	if (fake->getfd_error)
		return -fake->getfd_error;
	fake->open_fds++;
	fake->foreign_fds++;
	return FOREIGN_FD + fd;
}

static uint64_t fake_now(void *ctx)
{
	return fake->now;
}

const struct nv_sys fake_sys = {
	.open = fake_open,
	.close = fake_close,
	.ioctl = fake_ioctl,
	.mmap = fake_mmap,
	.munmap = fake_munmap,
	.pidfd_open = fake_pidfd_open,
	.pidfd_getfd = fake_pidfd_getfd,
	.now_ns = fake_now,
};
