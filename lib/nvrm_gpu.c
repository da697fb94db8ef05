// SPDX-License-Identifier: MIT
/*
 * nvrm_gpu.c - see nvrm_gpu.h. May not: wait for work, keep time, decide which value comes next.
 *
 * Order of the set-up (the driver's public headers and sources, release 580): client, device file,
 * device, subdevice, doorbell, address space, memory, channel group on a copy engine, channel,
 * schedule, token. Nothing of it needs a privilege, and memory lies in the driver's plain address
 * space, so that /dev/nvidia-uvm is not opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "errors.h"
#include "mutex.h"
#include "nvrm_abi.h"
#include "nvrm_choose.h"
#include "nvrm_gpu.h"
#include "own_file.h"

const struct nv_sys *rtx_lib_nvrm_sys = &nv_sys_linux;

/* Pages that the GPU is given: words that streams write, then each channel's. USERD has its own. */
#define RING_OFFSET   0x0000u
#define USERD_OFFSET  0x1000u
#define FENCES_OFFSET 0x2000u
#define PUSH_OFFSET   0x3000u
#define CHANNEL_BYTES (PUSH_OFFSET + NVRM_ENTRIES * NVRM_PLACE_WORDS * 4u)
#define PAGE_BYTES    4096u
#define FIRST_BYTES   (PAGE_BYTES + CHANNEL_BYTES) /* the words, and one channel's */
#define ALL_BYTES     (PAGE_BYTES + NVRM_CHANNELS * CHANNEL_BYTES)
/* how long the first release may take, on a GPU that others use, before another engine is tried */
#define TRY_LOOKS      10000u
#define TRY_NAPS       10000u
#define TRY_NAPS_FIRST 200u /* of a channel that may have to be bound */
#define TRY_PAUSE_US   10u

_Static_assert(NVRM_ENTRIES * 8u <= USERD_OFFSET, "the ring fits");
_Static_assert(NVRM_ENTRIES * sizeof(struct nvrm_fence) <= PUSH_OFFSET - FENCES_OFFSET,
	       "fences fit");
_Static_assert(!(CHANNEL_BYTES % PAGE_BYTES), "whole pages");

/* 0, or -ENODEV; and so by its status. */
static int ask_whether_it_lives(struct nvrm_gpu *gpu)
{
	struct nv_gpu_id id = { 0 };

	return nv_rm_control(&gpu->rm, gpu->subdevice, NV2080_GPU_GET_ID, &id, sizeof(id));
}

/* Adds to a refusal what was being done, and says it in words. */
static int refused(struct nvrm_gpu *gpu, int err, const char *step)
{
	/* The file of a GPU that is lost takes no call, and does not say why. */
	if (err == -EINVAL && !gpu->rm.status && gpu->subdevice &&
	    ask_whether_it_lives(gpu) != -ENODEV)
		gpu->rm.status = NV_STATUS_OK;
	if (gpu->rm.status == NV_STATUS_GPU_IS_LOST)
		return rtx_lib_failed(-ENODEV,
				      "GPU %s: %s: the GPU is lost; the kernel log says why",
				      gpu->name, step);
	if (err == -ENODEV || err == -ENXIO || (err == -ENOENT && !gpu->rm.status))
		return rtx_lib_failed(-ENODEV,
				      "GPU %s: %s: no such device; is the NVIDIA driver loaded?",
				      gpu->name, step);
	if (err == -EACCES || err == -EPERM)
		return rtx_lib_failed(-EACCES,
				      "GPU %s: %s: permission denied; the user needs to read and "
				      "write /dev/nvidiactl and the GPU's device file",
				      gpu->name, step);
	if (!gpu->rm.status)
		return rtx_lib_failed(err, "GPU %s: %s: %s", gpu->name, step,
				      rtx_lib_error_name(-err));
	return rtx_lib_failed(
		err,
		"GPU %s: %s: %s (the driver's status 0x%x, %s, to its call 0x%x); wait by your "
		"GPU's own API on this machine",
		gpu->name, step, rtx_lib_error_name(-err), gpu->rm.status,
		nv_rm_status_name(gpu->rm.status), gpu->rm.command);
}

/* A call of the driver that has its status in what is given to it. */
static int ask(struct nvrm_gpu *gpu, int fd, uint32_t request, void *arg, const uint32_t *status,
	       uint32_t command)
{
	int err = gpu->sys->ioctl(gpu->sys->ctx, fd, request, arg);
	int answer = nv_rm_answer(&gpu->rm, command, err ? NV_STATUS_OK : *status);

	return err ? err : answer;
}

/* --- which GPU -------------------------------------------------------------------------------- */

static int ask_cards(const struct nvrm_gpu *gpu, struct nv_card_info cards[RM_GPUS_MAX])
{
	return gpu->sys->ioctl(gpu->sys->ctx, gpu->rm.ctl,
			       RM_IOC(NV_ESC_CARD_INFO, struct nv_card_info[RM_GPUS_MAX]), cards);
}

static int find(struct nvrm_gpu *gpu, const char *device, struct nv_card_info *card)
{
	struct nv_card_info cards[RM_GPUS_MAX] = { { 0 } };
	const struct nv_card_info *chosen;
	int count = 0, err = ask_cards(gpu, cards);

	if (gpu->rm.release && gpu->rm.release < NVRM_RELEASE_OLDEST)
		return rtx_lib_failed(-EOPNOTSUPP,
				      "the NVIDIA driver is of release %u, and this needs %u or "
				      "newer; wait by your GPU's own API on this machine",
				      gpu->rm.release, NVRM_RELEASE_OLDEST);
	if (err < 0)
		return refused(gpu, err, "asking which GPUs there are");
	chosen = rtx_lib_nvrm_choose(cards, device);
	for (int i = 0; i < RM_GPUS_MAX; i++)
		count += cards[i].valid;
	if (!chosen)
		return rtx_lib_failed(-ENODEV,
				      "there is no NVIDIA GPU \"%.60s\"; the driver has %d, and "
				      "takes a number from 0, a PCI address or a UUID",
				      device, count);
	*card = *chosen;
	gpu->id = card->gpu_id;
	snprintf(gpu->name, sizeof(gpu->name), "%04x:%02x:%02x.%x", card->domain, card->bus,
		 card->slot, card->function);
	return 0;
}

bool rtx_lib_nvrm_is(const struct nvrm_gpu *gpu, const char *device)
{
	struct nv_card_info cards[RM_GPUS_MAX] = { { 0 } };
	const struct nv_card_info *chosen =
		ask_cards(gpu, cards) < 0 ? NULL
					  : rtx_lib_nvrm_choose(cards, device ? device : "0");

	return chosen && chosen->gpu_id == gpu->id;
}

/* --- memory ----------------------------------------------------------------------------------- */

static int map_dma(struct nvrm_gpu *gpu, uint32_t memory, uint64_t length, uint64_t *at)
{
	struct nvrm_map_dma m = { .client = gpu->rm.client,
				  .device = gpu->device,
				  .space = gpu->addresses,
				  .memory = memory,
				  .length = length,
				  .flags = NV_MAP_DMA_SNOOP };
	int err = ask(gpu, gpu->rm.ctl, RM_IOC(NV_ESC_RM_MAP_DMA, struct nvrm_map_dma), &m,
		      &m.status, NV_ESC_RM_MAP_DMA);

	if (!err)
		*at = m.address;
	return err;
}

/* Maps the registers through which the GPU is told of new work, by its device file. */
static int map_doorbell(struct nvrm_gpu *gpu, uint32_t doorbell)
{
	struct nvos33_fd m = { .client = gpu->rm.client,
			       .device = gpu->device,
			       .memory = doorbell,
			       .length = NV_USERMODE_BYTES,
			       .flags = NV_MAP_WRITABLE,
			       .fd = gpu->device_fd };
	int err = ask(gpu, gpu->rm.ctl, RM_IOC(NV_ESC_RM_MAP_MEMORY, struct nvos33_fd), &m,
		      &m.status, NV_ESC_RM_MAP_MEMORY);

	if (!err)
		err = gpu->sys->mmap_writable(gpu->sys->ctx, gpu->device_fd, NV_USERMODE_BYTES,
					      &gpu->doorbell_page);
	if (!err)
		madvise(gpu->doorbell_page, NV_USERMODE_BYTES, MADV_DONTFORK);
	return err;
}

static int import_pages(struct nvrm_gpu *gpu, void *pages, size_t length, uint32_t *handle,
			uint64_t *at)
{
	struct nvrm_memory_of_process m = {
		.root = gpu->rm.client,
		.parent = gpu->device,
		.object = nv_rm_handle(&gpu->rm),
		.class_id = NV_CLASS_OS_DESCRIPTOR,
		.flags = NV_OS_DESCRIPTOR_SCATTERED | NV_OS_DESCRIPTOR_CACHED |
			 NV_OS_DESCRIPTOR_NO_MAP,
		.address = (uintptr_t)pages,
		.limit = length - 1,
		.fd = -1,
	};
	int err = ask(gpu, gpu->device_fd,
		      RM_IOC(NV_ESC_RM_ALLOC_MEMORY, struct nvrm_memory_of_process), &m, &m.status,
		      NV_CLASS_OS_DESCRIPTOR);

	if (err)
		return err;
	err = map_dma(gpu, m.object, length, at);
	if (err) {
		/* what is said is why, not how freeing went */
		uint32_t status = gpu->rm.status, command = gpu->rm.command;

		nv_rm_free(&gpu->rm, gpu->device, m.object);
		nv_rm_answer(&gpu->rm, command, status);
		return err;
	}
	*handle = m.object;
	return 0;
}

static int give_piece(struct nvrm_gpu *gpu, uint8_t *pages, size_t length, struct nvrm_piece *piece)
{
	int err = import_pages(gpu, pages, length, &piece->handle, &piece->at);

	/* a place of the ring has so many bits for where its methods are */
	if (err || !((piece->at + length) >> 40))
		return err;
	nv_rm_free(&gpu->rm, gpu->device, piece->handle);
	piece->handle = 0;
	return -EOPNOTSUPP;
}

int rtx_lib_nvrm_import(struct nvrm_gpu *gpu, volatile uint32_t *word, uint32_t *handle,
			uint64_t *at)
{
	uintptr_t page = (uintptr_t)word & ~(uintptr_t)(PAGE_BYTES - 1);
	int err;

	pthread_mutex_lock(&gpu->lock);
	err = import_pages(gpu, (void *)page, PAGE_BYTES, handle, at);
	/* what has nothing to do with the word, or may be had a little later */
	if (err && (err == -ENODEV || !gpu->rm.status || nv_rm_refusal(err) == NV_RM_PASSES))
		err = refused(gpu, err, "giving a word to the GPU");
	else if (err)
		err = rtx_lib_failed(-EFAULT,
				     "the driver cannot give the GPU the page of the word at %p "
				     "(status 0x%x, %s); give a word in ordinary writable memory, "
				     "or NULL for one of librtxg's",
				     (void *)(uintptr_t)word, gpu->rm.status,
				     nv_rm_status_name(gpu->rm.status));
	pthread_mutex_unlock(&gpu->lock);
	if (err)
		return err;
	*at += (uintptr_t)word - page;
	return 0;
}

void rtx_lib_nvrm_forget(struct nvrm_gpu *gpu, uint32_t handle)
{
	pthread_mutex_lock(&gpu->lock);
	nv_rm_free(&gpu->rm, gpu->device, handle);
	pthread_mutex_unlock(&gpu->lock);
}

/* --- channels --------------------------------------------------------------------------------- */

/* fd: becomes readable by each interrupt of our copy engine, whichever channel raised it. */
static int open_event(struct nvrm_gpu *gpu, int *fd, uint32_t *handle)
{
	uint32_t engine = gpu->engine - NV_ENGINE_TYPE_COPY0;
	struct nvrm_os_event e = { .client = gpu->rm.client, .device = gpu->device };
	struct nvrm_event_alloc a = { .client = gpu->rm.client,
				      .source = gpu->subdevice,
				      .class_id = NV_CLASS_OS_EVENT,
				      .index = (NV_NOTIFIER_CE0 + engine) | NV_EVENT_NONSTALL |
					       NV_EVENT_WITHOUT_DATA };
	char path[32];
	int err;

	snprintf(path, sizeof(path), "/dev/nvidia%d", gpu->minor);
	gpu->rm.status = 0;
	*fd = gpu->sys->open(gpu->sys->ctx, path);
	if (*fd < 0)
		return *fd;
	own_file_mark(*fd);
	e.fd = (uint32_t)*fd;
	a.fd = (uint64_t)*fd;
	err = ask(gpu, *fd, RM_IOC(NV_ESC_ALLOC_OS_EVENT, struct nvrm_os_event), &e, &e.status,
		  NV_ESC_ALLOC_OS_EVENT);
	if (!err)
		err = nv_rm_alloc(&gpu->rm, gpu->subdevice, handle, NV_CLASS_OS_EVENT, &a,
				  sizeof(a));
	if (!err)
		return 0;
	gpu->sys->close(gpu->sys->ctx, *fd);
	*fd = -1;
	return err;
}

/* Opens it if it is not open. Others may look at the descriptor meanwhile. */
static int have_event(struct nvrm_gpu *gpu, int *event, uint32_t *handle, const char *step)
{
	int fd = *event, err = 0;

	pthread_mutex_lock(&gpu->lock);
	if (fd < 0)
		err = open_event(gpu, &fd, handle);
	if (err)
		err = refused(gpu, err, step);
	__atomic_store_n(event, fd, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&gpu->lock);
	return err;
}

int rtx_lib_nvrm_host_event(struct nvrm_gpu *gpu, struct nvrm_memory *memory)
{
	return have_event(gpu, &memory->host_event, &memory->host_event_handle,
			  "opening an event for the host");
}

int rtx_lib_nvrm_event(struct nvrm_gpu *gpu, struct nvrm_channel *channel)
{
	return have_event(gpu, &channel->event, &channel->event_handle, "opening an event");
}

static void close_channel(struct nvrm_gpu *gpu, struct nvrm_channel *channel)
{
	if (channel->handle) {
		nv_rm_free(&gpu->rm, gpu->group, channel->handle);
		gpu->spent = !--gpu->channels;
	}
	if (channel->event_handle)
		nv_rm_free(&gpu->rm, gpu->subdevice, channel->event_handle);
	if (channel->event >= 0)
		gpu->sys->close(gpu->sys->ctx, channel->event);
	memset(channel, 0, sizeof(*channel));
	channel->event = -1;
}

void rtx_lib_nvrm_channel_close(struct nvrm_gpu *gpu, struct nvrm_channel *channel)
{
	pthread_mutex_lock(&gpu->lock);
	close_channel(gpu, channel);
	pthread_mutex_unlock(&gpu->lock);
}

/* A group of channels that takes one more. */
static int have_group(struct nvrm_gpu *gpu)
{
	struct nvrm_group_alloc group = { .space = gpu->space, .engine = gpu->engine };

	if (gpu->group && !gpu->spent)
		return 0;
	if (gpu->group)
		nv_rm_free(&gpu->rm, gpu->device, gpu->group);
	gpu->group = 0;
	gpu->spent = false;
	return nv_rm_alloc(&gpu->rm, gpu->device, &gpu->group, NV_CLASS_CHANNEL_GROUP, &group,
			   sizeof(group));
}

static int make_channel(struct nvrm_gpu *gpu, const struct nvrm_memory *memory, unsigned int number,
			struct nvrm_channel *c)
{
	const struct nvrm_piece *piece = number ? &memory->rest : &memory->first;
	uint64_t offset = number ? (number - 1) * (uint64_t)CHANNEL_BYTES : PAGE_BYTES;
	uint8_t *pages = memory->pages + (number ? FIRST_BYTES : 0) + offset;
	uint64_t at = piece->at + offset;
	struct nvrm_channel_alloc a = { .ring = at + RING_OFFSET,
					.entries = NVRM_ENTRIES,
					.engine = gpu->engine,
					.userd = { piece->handle },
					.userd_offset = { offset + USERD_OFFSET } };
	struct nvrm_channel_alloc_moved moved = { .ring = a.ring,
						  .entries = a.entries,
						  .engine = a.engine,
						  .userd = { a.userd[0] },
						  .userd_offset = { a.userd_offset[0] } };
	int err;

	memset(c, 0, sizeof(*c));
	c->event = -1;
	memset(pages, 0, CHANNEL_BYTES);
	c->ring = (volatile uint32_t *)(pages + RING_OFFSET);
	c->userd = (volatile uint32_t *)(pages + USERD_OFFSET);
	c->push = (volatile uint32_t *)(pages + PUSH_OFFSET);
	c->fences = (volatile struct nvrm_fence *)(pages + FENCES_OFFSET);
	c->push_at = at + PUSH_OFFSET;
	c->fences_at = at + FENCES_OFFSET;
	err = nv_rm_alloc(&gpu->rm, gpu->group, &c->handle, gpu->channel_class,
			  gpu->channel_moved ? (void *)&moved : &a,
			  gpu->channel_moved ? sizeof(moved) : sizeof(a));
	gpu->channels += !err;
	return err;
}

static int schedule(struct nvrm_gpu *gpu, struct nvrm_channel *c)
{
	struct nvrm_schedule schedule = { .enable = 1 };
	struct nvrm_token token = { 0 };
	uint32_t engine = gpu->engine;
	int err = 0;

	if (gpu->binds)
		err = nv_rm_control(&gpu->rm, c->handle, NVA06F_BIND, &engine, sizeof(engine));
	if (!err)
		err = nv_rm_control(&gpu->rm, gpu->group, NVA06C_GPFIFO_SCHEDULE, &schedule,
				    sizeof(schedule));
	if (!err)
		err = nv_rm_control(&gpu->rm, c->handle, NVC36F_GET_WORK_SUBMIT_TOKEN, &token,
				    sizeof(token));
	c->token = token.token;
	return err;
}

/* Where another attempt would do no better. */
static bool is_final(int err)
{
	return err == -ENODEV || err == -ENOMEM || err == -EACCES;
}

/*
 * A group's channels get the runlist of its engine with the group's first start, so that binding
 * each to the engine asks the GPU's firmware for nothing new. A driver that wants it is asked.
 */
static int start_channel(struct nvrm_gpu *gpu, struct nvrm_channel *c)
{
	int err = schedule(gpu, c);

	if (!err || gpu->binds || is_final(err))
		return err;
	gpu->binds = true;
	return schedule(gpu, c);
}

int rtx_lib_nvrm_channel(struct nvrm_gpu *gpu, struct nvrm_memory *memory, unsigned int number,
			 struct nvrm_channel *channel)
{
	const char *step = "giving memory to the GPU";
	int err = 0;

	memset(channel, 0, sizeof(*channel));
	channel->event = -1;
	pthread_mutex_lock(&gpu->lock);
	/* A program with one timeline needs no more than the first. */
	if (number && !memory->rest.handle)
		err = give_piece(gpu, memory->pages + FIRST_BYTES, ALL_BYTES - FIRST_BYTES,
				 &memory->rest);
	if (!err) {
		step = "opening a group of channels";
		err = have_group(gpu);
	}
	if (!err) {
		step = "opening a channel";
		err = make_channel(gpu, memory, number, channel);
	}
	if (!err) {
		step = "starting a channel";
		err = start_channel(gpu, channel);
	}
	if (err) {
		err = refused(gpu, err, step);
		close_channel(gpu, channel);
		/* One that was refused late has been in the group, and gone. */
		gpu->spent = !gpu->channels;
	}
	pthread_mutex_unlock(&gpu->lock);
	return err;
}

/*
 * Does the engine do what it is told? Some exist for the driver and have no hardware behind them.
 */
static int try_channel(struct nvrm_gpu *gpu, struct nvrm_channel *c)
{
	unsigned int naps = gpu->binds ? TRY_NAPS : TRY_NAPS_FIRST;
	int place;

	/*
	 * The first runlist is the compute engine's, where each wait would cost a context switch.
	 */
	if (!(c->token >> 16))
		return -EOPNOTSUPP;
	place = rtx_lib_nvrm_submit(gpu, c, 0, 0, 1, false);
	for (unsigned int i = 0; i < TRY_LOOKS + naps && place >= 0; i++) {
		if (__atomic_load_n(&c->fences[place].payload, __ATOMIC_ACQUIRE) == 1)
			return 0;
		if (i >= TRY_LOOKS)
			usleep(TRY_PAUSE_US);
	}
	return -EOPNOTSUPP;
}

/* silent: it took what it was told, and did nothing. */
static int open_engine(struct nvrm_gpu *gpu, struct nvrm_memory *memory, uint32_t engine,
		       uint32_t class_id, struct nvrm_channel *first, bool *silent)
{
	int err;

	gpu->engine = engine;
	gpu->channel_class = class_id;
	err = rtx_lib_nvrm_channel(gpu, memory, 0, first);
	*silent = !err && try_channel(gpu, first);
	if (*silent) {
		rtx_lib_nvrm_channel_close(gpu, first);
		err = rtx_lib_failed(-EOPNOTSUPP,
				     "GPU %s: copy engine %u does not serve channels; wait by your "
				     "GPU's own API on this machine",
				     gpu->name, engine - NV_ENGINE_TYPE_COPY0);
	}
	if (err && gpu->group)
		nv_rm_free(&gpu->rm, gpu->device, gpu->group);
	if (err)
		gpu->group = 0;
	return err;
}

static int open_any_engine(struct nvrm_gpu *gpu, struct nvrm_memory *memory,
			   struct nvrm_channel *first)
{
	/*
	 * Engines that only copy come first; the lowest two may share the compute engine's queue.
	 */
	static const uint32_t engines[] = { 2, 3, 4, 5, 6, 7, 8, 9, 1, 0 };
	static const uint32_t classes[] = { NV_CLASS_CHANNEL_AMPERE, NV_CLASS_CHANNEL_HOPPER,
					    NV_CLASS_CHANNEL_BLACKWELL,
					    NV_CLASS_CHANNEL_BLACKWELL_B };
	int err = 0;

	for (size_t e = 0; e < sizeof(engines) / sizeof(engines[0]); e++)
		for (size_t c = 0; c < sizeof(classes) / sizeof(classes[0]); c++) {
			bool silent = false;

			err = open_engine(gpu, memory, NV_ENGINE_TYPE_COPY0 + engines[e],
					  classes[c], first, &silent);
			/* Its channel may be in another engine's queue. */
			if (silent && !gpu->binds) {
				gpu->binds = true;
				err = open_engine(gpu, memory, NV_ENGINE_TYPE_COPY0 + engines[e],
						  classes[c], first, &silent);
			}
			if (!err || is_final(err))
				return err;
		}
	return err;
}

/* --- opening ---------------------------------------------------------------------------------- */

static int open_objects(struct nvrm_gpu *gpu, const struct nv_card_info *card, const char **step)
{
	static const uint32_t doorbells[] = { NV_CLASS_USERMODE_HOPPER, NV_CLASS_USERMODE_AMPERE,
					      NV_CLASS_USERMODE_TURING,
					      NV_CLASS_USERMODE_BLACKWELL };
	struct nv_register_fd reg = { .ctl_fd = gpu->rm.ctl };
	struct nv_id_info info = { .gpu_id = card->gpu_id };
	struct nv_device_alloc device = { .client_share = gpu->rm.client,
					  .va_mode = NV_DEVICE_MULTIPLE_SPACES };
	struct nv_subdevice_alloc subdevice = { 0 };
	struct nvrm_usermode_alloc usermode = { 0 };
	struct nvrm_space_alloc space = { 0 };
	struct nvrm_addresses_alloc addresses = { 0 };
	uint32_t doorbell = 0;
	char path[32];
	int err = -EOPNOTSUPP;

	*step = "opening its device file";
	snprintf(path, sizeof(path), "/dev/nvidia%u", card->minor);
	gpu->minor = (int)card->minor;
	gpu->device_fd = gpu->sys->open(gpu->sys->ctx, path);
	if (gpu->device_fd < 0)
		return gpu->device_fd;
	own_file_mark(gpu->device_fd);
	err = gpu->sys->ioctl(gpu->sys->ctx, gpu->device_fd,
			      RM_IOC(NV_ESC_REGISTER_FD, struct nv_register_fd), &reg);
	*step = "asking for its number";
	if (err >= 0)
		err = nv_rm_control(&gpu->rm, gpu->rm.client, NV0000_GPU_GET_ID_INFO_V2, &info,
				    sizeof(info));
	if (err)
		return err;
	device.device_id = info.device_instance;
	subdevice.subdevice_id = info.subdevice_instance;
	*step = "opening the device";
	err = nv_rm_alloc(&gpu->rm, gpu->rm.client, &gpu->device, NV_CLASS_DEVICE, &device,
			  sizeof(device));
	if (!err)
		err = nv_rm_alloc(&gpu->rm, gpu->device, &gpu->subdevice, NV_CLASS_SUBDEVICE,
				  &subdevice, sizeof(subdevice));
	if (err)
		return err;
	*step = "opening the doorbell";
	err = -EOPNOTSUPP;
	for (size_t i = 0; i < sizeof(doorbells) / sizeof(doorbells[0]) && err; i++) {
		bool asks = doorbells[i] >= NV_CLASS_USERMODE_HOPPER;

		doorbell = 0;
		err = nv_rm_alloc(&gpu->rm, gpu->subdevice, &doorbell, doorbells[i],
				  asks ? &usermode : NULL, asks ? sizeof(usermode) : 0);
	}
	if (!err)
		err = map_doorbell(gpu, doorbell);
	if (err)
		return err;
	gpu->doorbell = (volatile uint32_t *)((uint8_t *)gpu->doorbell_page + NV_USERMODE_DOORBELL);
	*step = "making an address space";
	err = nv_rm_alloc(&gpu->rm, gpu->device, &gpu->space, NV_CLASS_VIRTUAL_SPACE, &space,
			  sizeof(space));
	addresses.space = gpu->space;
	if (!err)
		err = nv_rm_alloc(&gpu->rm, gpu->device, &gpu->addresses, NV_CLASS_MEMORY_VIRTUAL,
				  &addresses, sizeof(addresses));
	return err;
}

/*
 * Shared, so that no fork ever gives this process a copy of a page that the GPU writes; and not for
 * children at all. The words are a file's, which a host may be given.
 */
static int map_pages(struct nvrm_memory *m)
{
	struct rlimit files;
	void *pages;

	/* A larger file than the limit is no error but a signal that ends the program. */
	if (!getrlimit(RLIMIT_FSIZE, &files) && files.rlim_cur < PAGE_BYTES)
		return -EFBIG;
	pages = mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		return -ENOMEM;
	m->pages = pages;
	m->words_fd = memfd_create("rtxg-words", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (m->words_fd < 0 || ftruncate(m->words_fd, PAGE_BYTES) ||
	    fcntl(m->words_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	own_file_mark(m->words_fd);
	if (mmap(pages, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m->words_fd,
		 0) == MAP_FAILED)
		return -ENOMEM;
	madvise(pages, ALL_BYTES, MADV_DONTFORK);
	return 0;
}

static int open_memory(struct nvrm_gpu *gpu, struct nvrm_memory *m, const char **step)
{
	int err;

	*step = "taking memory for channels";
	gpu->rm.status = 0; /* what fails here is not the driver's */
	err = map_pages(m);
	if (err)
		return err;
	*step = "giving memory to the GPU";
	return give_piece(gpu, m->pages, FIRST_BYTES, &m->first);
}

/* The GPU has forgotten it. */
static void close_memory(struct nvrm_gpu *gpu, struct nvrm_memory *m)
{
	size_t stays = m->words_stay ? PAGE_BYTES : 0;

	if (m->host_event >= 0)
		gpu->sys->close(gpu->sys->ctx, m->host_event);
	if (m->words_fd >= 0)
		close(m->words_fd);
	m->host_event = m->words_fd = -1;
	if (m->pages)
		munmap(m->pages + stays, ALL_BYTES - stays);
	m->pages = NULL;
}

int rtx_lib_nvrm_memory(struct nvrm_gpu *gpu, struct nvrm_memory *memory)
{
	const char *step;
	int err;

	pthread_mutex_lock(&gpu->lock);
	err = open_memory(gpu, memory, &step);
	if (err)
		err = refused(gpu, err, step);
	pthread_mutex_unlock(&gpu->lock);
	if (err)
		rtx_lib_nvrm_memory_close(gpu, memory);
	return err;
}

void rtx_lib_nvrm_memory_close(struct nvrm_gpu *gpu, struct nvrm_memory *memory)
{
	pthread_mutex_lock(&gpu->lock);
	if (memory->host_event_handle)
		nv_rm_free(&gpu->rm, gpu->subdevice, memory->host_event_handle);
	if (memory->first.handle)
		nv_rm_free(&gpu->rm, gpu->device, memory->first.handle);
	if (memory->rest.handle)
		nv_rm_free(&gpu->rm, gpu->device, memory->rest.handle);
	close_memory(gpu, memory);
	pthread_mutex_unlock(&gpu->lock);
}

void rtx_lib_nvrm_memory_abandon(struct nvrm_memory *memory, bool used)
{
	if (used && memory->pages)
		mmap(memory->pages, ALL_BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (own_file_is_ours(memory->host_event))
		rtx_lib_nvrm_sys->close(rtx_lib_nvrm_sys->ctx, memory->host_event);
	if (own_file_is_ours(memory->words_fd))
		close(memory->words_fd);
	memory->host_event = memory->words_fd = -1;
	memory->pages = NULL; /* they are not in this process */
}

void rtx_lib_nvrm_close(struct nvrm_gpu *gpu, struct nvrm_memory *memory)
{
	/* The client first: the GPU must not write to pages that are someone else's by then. */
	nv_rm_close(&gpu->rm);
	if (gpu->device_fd >= 0)
		gpu->sys->close(gpu->sys->ctx, gpu->device_fd);
	gpu->device_fd = -1;
	close_memory(gpu, memory);
	if (gpu->doorbell_page)
		gpu->sys->munmap(gpu->sys->ctx, gpu->doorbell_page, NV_USERMODE_BYTES);
	gpu->doorbell_page = NULL;
	gpu->doorbell = NULL;
	pthread_mutex_destroy(&gpu->lock);
}

void rtx_lib_nvrm_abandon(struct nvrm_gpu *gpu)
{
	if (own_file_is_ours(gpu->device_fd))
		gpu->sys->close(gpu->sys->ctx, gpu->device_fd);
	if (own_file_is_ours(gpu->rm.ctl))
		gpu->sys->close(gpu->sys->ctx, gpu->rm.ctl);
	gpu->device_fd = gpu->rm.ctl = -1;
	gpu->doorbell_page = NULL; /* it is not in this process */
	gpu->doorbell = NULL;
}

int rtx_lib_nvrm_open(struct nvrm_gpu *gpu, const char *device, struct nvrm_memory *memory,
		      struct nvrm_channel *first)
{
	const char *step = "opening /dev/nvidiactl";
	struct nv_card_info card;
	int err;

	memset(gpu, 0, sizeof(*gpu));
	memset(memory, 0, sizeof(*memory));
	rtx_lib_mutex_init(&gpu->lock);
	gpu->sys = rtx_lib_nvrm_sys;
	gpu->device_fd = memory->host_event = memory->words_fd = -1;
	snprintf(gpu->name, sizeof(gpu->name), "%.20s", device ? device : "0");
	err = nv_rm_open(&gpu->rm, gpu->sys);
	if (err) {
		gpu->rm.ctl = -1;
		return refused(gpu, err, step);
	}
	own_file_mark(gpu->rm.ctl);
	err = find(gpu, device ? device : "0", &card);
	if (err) {
		rtx_lib_nvrm_close(gpu, memory);
		return err;
	}
	gpu->channel_moved = gpu->rm.release >= NV_CHANNEL_MOVED;
	err = open_objects(gpu, &card, &step);
	if (!err)
		err = open_memory(gpu, memory, &step);
	if (err) {
		err = refused(gpu, err, step);
		rtx_lib_nvrm_close(gpu, memory);
		return err;
	}
	err = open_any_engine(gpu, memory, first);
	if (err)
		rtx_lib_nvrm_close(gpu, memory);
	return err;
}

int rtx_lib_nvrm_alive(struct nvrm_gpu *gpu)
{
	int err;

	pthread_mutex_lock(&gpu->lock);
	err = ask_whether_it_lives(gpu);
	err = err == -ENODEV ? refused(gpu, err, "asking whether it lives") : 0;
	pthread_mutex_unlock(&gpu->lock);
	return err;
}
