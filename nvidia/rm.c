// SPDX-License-Identifier: MIT
/*
 * rm.c - see rm.h. It never retries and never guesses: an answer that is not NV_STATUS_OK goes up
 * as an errno, with the driver's own number kept in rm->status for the message.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rm.h"

/* handles that we choose: any number that our own client does not use yet */
#define HANDLE_BASE 0x52580000u

static const struct {
	uint32_t status;
	int error;
	const char *name;
} statuses[] = {
	{ NV_STATUS_OK, 0, "OK" },
	{ NV_STATUS_BUSY_RETRY, EAGAIN, "BUSY_RETRY" },
	{ NV_STATUS_GPU_IS_LOST, ENODEV, "GPU_IS_LOST" },
	{ NV_STATUS_IN_FULLCHIP_RESET, EBUSY, "IN_FULLCHIP_RESET" },
	{ NV_STATUS_NOT_FULL_POWER, EBUSY, "NOT_FULL_POWER" },
	{ NV_STATUS_IN_USE, EBUSY, "IN_USE" },
	{ NV_STATUS_INSUFFICIENT_PERMISSIONS, EPERM, "INSUFFICIENT_PERMISSIONS" },
	{ NV_STATUS_INSUFFICIENT_RESOURCES, ENOSPC, "INSUFFICIENT_RESOURCES" },
	{ NV_STATUS_INVALID_ADDRESS, EFAULT, "INVALID_ADDRESS" },
	{ NV_STATUS_INVALID_ARGUMENT, EINVAL, "INVALID_ARGUMENT" },
	{ NV_STATUS_INVALID_BASE, ERANGE, "INVALID_BASE" },
	{ NV_STATUS_INVALID_CHANNEL, ENOENT, "INVALID_CHANNEL" },
	{ NV_STATUS_INVALID_CLASS, EOPNOTSUPP, "INVALID_CLASS" },
	{ NV_STATUS_INVALID_CLIENT, ESRCH, "INVALID_CLIENT" },
	{ NV_STATUS_INVALID_COMMAND, EOPNOTSUPP, "INVALID_COMMAND" },
	{ NV_STATUS_INVALID_LIMIT, ERANGE, "INVALID_LIMIT" },
	{ NV_STATUS_INVALID_OBJECT, ENOENT, "INVALID_OBJECT" },
	{ NV_STATUS_INVALID_OBJECT_HANDLE, ENOENT, "INVALID_OBJECT_HANDLE" },
	{ NV_STATUS_INVALID_PARAM_STRUCT, EPROTO, "INVALID_PARAM_STRUCT" },
	{ NV_STATUS_INVALID_STATE, EAGAIN, "INVALID_STATE" },
	{ NV_STATUS_NO_MEMORY, ENOMEM, "NO_MEMORY" },
	{ NV_STATUS_NOT_READY, EAGAIN, "NOT_READY" },
	{ NV_STATUS_NOT_SUPPORTED, EOPNOTSUPP, "NOT_SUPPORTED" },
	{ NV_STATUS_OBJECT_NOT_FOUND, ENOENT, "OBJECT_NOT_FOUND" },
	{ NV_STATUS_STATE_IN_USE, EBUSY, "STATE_IN_USE" },
	{ NV_STATUS_SIGNAL_PENDING, EINTR, "SIGNAL_PENDING" },
	{ NV_STATUS_TIMEOUT, ETIMEDOUT, "TIMEOUT" },
	{ NV_STATUS_TIMEOUT_RETRY, ETIMEDOUT, "TIMEOUT_RETRY" },
	{ NV_STATUS_GENERIC, EIO, "GENERIC" },
};

static int rm_errno(uint32_t status)
{
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == status)
			return statuses[i].error;
	return EIO;
}

const char *nv_rm_status_name(uint32_t status)
{
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == status)
			return statuses[i].name;
	return "unnamed";
}

enum nv_rm_refusal nv_rm_refusal(int err)
{
	switch (-err) {
	case EAGAIN: /* not ready, or its state is not that as yet */
	case EBUSY:
	case EINTR:
	case ETIMEDOUT:
	case ENOMEM:
	case ENOSPC:
	case EMFILE:
	case ENFILE:
	case ENOENT: /* an object that is not there as yet, or no more */
	case ESRCH:
	case EBADF:
		return NV_RM_PASSES;
	case EPERM:
	case EACCES:
	case EOPNOTSUPP:
	case EPROTO:
		return NV_RM_FINAL;
	default:
		return NV_RM_DOUBTFUL;
	}
}

bool nv_rm_denies(int err)
{
	return err == -ENOENT || err == -ESRCH || err == -EPERM || err == -EACCES || err == -EINVAL;
}

int nv_rm_answer(struct nv_rm *rm, uint32_t command, uint32_t status)
{
	rm->command = command;
	rm->status = status;
	return -rm_errno(status);
}

uint32_t nv_rm_handle(struct nv_rm *rm)
{
	return HANDLE_BASE + ++rm->next_handle;
}

/* The driver has locks of its own, which other programs' calls hold: the longest wait is kept. */
static int call(struct nv_rm *rm, int fd, uint32_t request, void *arg, uint32_t what)
{
	uint64_t began = rm->sys->now_ns(rm->sys->ctx), ended, took;
	int err;

	if (rm->in_call)
		rm->in_call(rm->in_call_ctx, true);
	err = rm->sys->ioctl(rm->sys->ctx, fd, request, arg);
	if (rm->in_call)
		rm->in_call(rm->in_call_ctx, false);
	ended = rm->sys->now_ns(rm->sys->ctx);
	took = ended - began;
	if (rm->alive)
		__atomic_store_n(rm->alive, ended, __ATOMIC_RELEASE);
	rm->calls_ns += took;
	if (took > rm->longest_ns) {
		rm->longest_ns = took;
		rm->longest = what;
	}
	if (err < 0)
		nv_rm_answer(rm, what, NV_STATUS_OK); /* it was the kernel's, not the driver's */
	return err;
}

int nv_rm_alloc(struct nv_rm *rm, uint32_t parent, uint32_t *object, uint32_t class_id,
		void *params, uint32_t size)
{
	/* The driver reads and writes as many bytes as its release has, whatever size says. */
	_Alignas(8) uint8_t room[RM_PARAMETERS_MAX] = { 0 };
	struct nvos64 a = {
		.root = rm->client,
		.parent = parent,
		.object = *object,
		.class_id = class_id,
		.params = params ? (uintptr_t)room : 0,
		.params_size = size,
	};
	int err;

	if (size > sizeof(room))
		return -EINVAL;
	if (params)
		memcpy(room, params, size);
	if (!a.object && class_id != NV_CLASS_ROOT_CLIENT)
		a.object = nv_rm_handle(rm);
	err = call(rm, rm->ctl, RM_IOC(NV_ESC_RM_ALLOC, struct nvos64), &a, class_id);
	if (err < 0)
		return err;
	if (params)
		memcpy(params, room, size);
	if (a.status == NV_STATUS_OK)
		*object = a.object;
	return nv_rm_answer(rm, class_id, a.status);
}

int nv_rm_free(struct nv_rm *rm, uint32_t parent, uint32_t object)
{
	struct nvos00 f = { .root = rm->client, .parent = parent, .object = object };
	int err = call(rm, rm->ctl, RM_IOC(NV_ESC_RM_FREE, struct nvos00), &f, NV_ESC_RM_FREE);

	return err < 0 ? err : nv_rm_answer(rm, 0, f.status);
}

int nv_rm_control_foreign(struct nv_rm *rm, int fd, uint32_t client, uint32_t object,
			  uint32_t command, void *params, uint32_t size)
{
	struct nvos54 c = {
		.client = client,
		.object = object,
		.cmd = command,
		.params = (uintptr_t)params,
		.params_size = size,
	};
	int err = call(rm, fd, RM_IOC(NV_ESC_RM_CONTROL, struct nvos54), &c, command);

	rm->calls++;
	return err < 0 ? err : nv_rm_answer(rm, command, c.status);
}

int nv_rm_control(struct nv_rm *rm, uint32_t object, uint32_t command, void *params, uint32_t size)
{
	return nv_rm_control_foreign(rm, rm->ctl, rm->client, object, command, params, size);
}

int nv_rm_map(struct nv_rm *rm, uint32_t device, uint32_t memory, size_t length, void **address,
	      int *map_fd)
{
	struct nvos33_fd m = {
		.client = rm->client,
		.device = device,
		.memory = memory,
		.length = length,
		.flags = NV_MAP_ACCESS_READ_ONLY | NV_MAP_CACHING_DEFAULT,
	};
	int fd, err;

	/*
	 * A mapping belongs to a descriptor, and a descriptor carries one mapping: so one more of
	 * the control device.
	 */
	fd = rm->sys->open(rm->sys->ctx, "/dev/nvidiactl");
	if (fd < 0)
		return fd;
	m.fd = fd;
	err = call(rm, rm->ctl, RM_IOC(NV_ESC_RM_MAP_MEMORY, struct nvos33_fd), &m,
		   NV_ESC_RM_MAP_MEMORY);
	if (!err)
		err = nv_rm_answer(rm, NV_ESC_RM_MAP_MEMORY, m.status);
	if (err >= 0)
		err = rm->sys->mmap(rm->sys->ctx, fd, length, address);
	if (err < 0) {
		rm->sys->close(rm->sys->ctx, fd);
		return err;
	}
	*map_fd = fd;
	return 0;
}

int nv_rm_map_part(struct nv_rm_gpu *gpu, uint32_t memory, uint64_t offset, size_t length,
		   void **address)
{
	struct nv_rm *rm = gpu->rm;
	char own[32];
	const char *path[] = { own, "/dev/nvidiactl" };
	int err = -EINVAL;

	snprintf(own, sizeof(own), "/dev/nvidia%d", gpu->minor);
	/* The GPU's memory is mapped through its device file, the system's through the other. */
	for (int i = 0; i < 2; i++) {
		struct nv_register_fd reg = { .ctl_fd = rm->ctl };
		struct nvos33_fd m = {
			.client = rm->client,
			.device = gpu->device,
			.memory = memory,
			.offset = offset,
			.length = length,
			.flags = NV_MAP_ACCESS_READ_ONLY | NV_MAP_CACHING_DEFAULT,
		};

		m.fd = rm->sys->open(rm->sys->ctx, path[i]);
		if (m.fd < 0)
			return m.fd;
		if (!i)
			call(rm, m.fd, RM_IOC(NV_ESC_REGISTER_FD, struct nv_register_fd), &reg,
			     NV_ESC_REGISTER_FD);
		err = call(rm, rm->ctl, RM_IOC(NV_ESC_RM_MAP_MEMORY, struct nvos33_fd), &m,
			   NV_ESC_RM_MAP_MEMORY);
		if (err >= 0)
			err = nv_rm_answer(rm, NV_ESC_RM_MAP_MEMORY, m.status);
		if (!err)
			err = rm->sys->mmap(rm->sys->ctx, m.fd, (length + 4095) & ~4095ull,
					    address);
		rm->sys->close(rm->sys->ctx, m.fd);
		if (!err)
			return 0;
	}
	return err;
}

static int share(struct nv_rm *rm, int fd, uint32_t client, uint32_t object, uint8_t action)
{
	struct nvos57 s = { .client = client,
			    .object = object,
			    .target = rm->client,
			    .rights = NV_SHARE_RIGHT_DUP,
			    .type = NV_SHARE_TYPE_CLIENT,
			    .action = action };
	int err = call(rm, fd, RM_IOC(NV_ESC_RM_SHARE, struct nvos57), &s, NV_ESC_RM_SHARE);

	return err < 0 ? err : nv_rm_answer(rm, NV_ESC_RM_SHARE, s.status);
}

int nv_rm_dup(struct nv_rm_gpu *gpu, int fd, uint32_t client, uint32_t object, uint32_t *handle)
{
	struct nv_rm *rm = gpu->rm;
	struct nvos55 d = { .client = rm->client,
			    .parent = gpu->device,
			    .object = nv_rm_handle(rm),
			    .source_client = client,
			    .source_object = object };
	int err = share(rm, fd, client, object, NV_SHARE_ACTION_ADD);
	uint32_t status;

	if (err)
		return err;
	err = call(rm, rm->ctl, RM_IOC(NV_ESC_RM_DUP_OBJECT, struct nvos55), &d,
		   NV_ESC_RM_DUP_OBJECT);
	status = d.status;
	/* The next client of our number is not to find the door open. */
	share(rm, fd, client, object, NV_SHARE_ACTION_TAKE_OFF);
	if (err < 0)
		return err;
	err = nv_rm_answer(rm, NV_ESC_RM_DUP_OBJECT, status);
	if (!err)
		*handle = d.object;
	return err;
}

static uint32_t release_of(struct nv_rm *rm)
{
	struct nv_version v = { .command = NV_VERSION_QUERY };

	if (rm->sys->ioctl(rm->sys->ctx, rm->ctl, RM_IOC(NV_ESC_CHECK_VERSION, struct nv_version),
			   &v) < 0)
		return 0;
	v.text[sizeof(v.text) - 1] = 0;
	return (uint32_t)strtoul(v.text, NULL, 10);
}

int nv_rm_open(struct nv_rm *rm, const struct nv_sys *sys)
{
	int err;

	memset(rm, 0, sizeof(*rm));
	rm->sys = sys;
	rm->ctl = sys->open(sys->ctx, "/dev/nvidiactl");
	if (rm->ctl < 0) {
		err = rm->ctl;
		rm->ctl = -1;
		return err == -ENOENT || err == -ENXIO ? -ENODEV : err;
	}
	rm->release = release_of(rm);
	err = nv_rm_alloc(rm, 0, &rm->client, NV_CLASS_ROOT_CLIENT, NULL, 0);
	if (err) {
		nv_rm_close(rm);
		return err;
	}
	return 0;
}

void nv_rm_close(struct nv_rm *rm)
{
	if (!rm->sys || rm->ctl < 0)
		return;
	if (rm->client)
		nv_rm_free(rm, 0, rm->client);
	rm->sys->close(rm->sys->ctx, rm->ctl);
	rm->ctl = -1;
	rm->client = 0;
}

void nv_rm_gpu_close(struct nv_rm_gpu *gpu)
{
	if (gpu->rm && gpu->fd >= 0)
		gpu->rm->sys->close(gpu->rm->sys->ctx, gpu->fd);
	gpu->fd = -1;
}

static int mig_mode(struct nv_rm *rm, uint32_t subdevice)
{
	struct nv_gpu_info_entry entry = { .index = NV_GPU_INFO_MIG_MODE };
	struct nv_gpu_info info = { .count = 1, .list = (uintptr_t)&entry };

	if (nv_rm_control(rm, subdevice, NV2080_GPU_GET_INFO, &info, sizeof(info)))
		return -1;
	return entry.data == NV_GPU_INFO_MIG_ON;
}

/*
 * Which /dev/nvidiaN is this GPU's? With one GPU it hardly matters; 0 if the driver does not say.
 */
static int minor_of(struct nv_rm *rm, uint32_t gpu_id)
{
	struct nv_card_info card[RM_GPUS_MAX] = { { 0 } };

	if (rm->sys->ioctl(rm->sys->ctx, rm->ctl,
			   RM_IOC(NV_ESC_CARD_INFO, struct nv_card_info[RM_GPUS_MAX]), card) < 0)
		return 0;
	for (int i = 0; i < RM_GPUS_MAX; i++)
		if (card[i].valid && card[i].gpu_id == gpu_id)
			return (int)card[i].minor;
	return 0;
}

static int gpu_attach(struct nv_rm *rm, struct nv_rm_gpu *gpu, uint32_t gpu_id)
{
	struct nv_id_info info = { .gpu_id = gpu_id };
	struct nv_pci_info pci = { .gpu_id = gpu_id };
	struct nv_device_alloc device = { 0 };
	struct nv_subdevice_alloc sub = { 0 };
	int err;

	gpu->rm = rm;
	gpu->gpu_id = gpu_id;
	gpu->minor = minor_of(rm, gpu_id);
	err = nv_rm_control(rm, rm->client, NV0000_GPU_GET_ID_INFO_V2, &info, sizeof(info));
	if (err)
		return err;
	gpu->device_instance = info.device_instance;
	if (!nv_rm_control(rm, rm->client, NV0000_GPU_GET_PCI_INFO, &pci, sizeof(pci))) {
		gpu->pci_domain = pci.domain;
		gpu->pci_bus = pci.bus;
		gpu->pci_slot = pci.slot;
	}
	device.device_id = info.device_instance;
	err = nv_rm_alloc(rm, rm->client, &gpu->device, NV_CLASS_DEVICE, &device, sizeof(device));
	if (err)
		return err;
	sub.subdevice_id = info.subdevice_instance;
	err = nv_rm_alloc(rm, gpu->device, &gpu->subdevice, NV_CLASS_SUBDEVICE, &sub, sizeof(sub));
	if (!err)
		gpu->mig = mig_mode(rm, gpu->subdevice);
	return err;
}

static bool before(const struct nv_rm_gpu *a, const struct nv_rm_gpu *b)
{
	if (a->pci_domain != b->pci_domain)
		return a->pci_domain < b->pci_domain;
	return a->pci_bus != b->pci_bus ? a->pci_bus < b->pci_bus : a->pci_slot < b->pci_slot;
}

int nv_rm_gpus_open(struct nv_rm *rm, struct nv_rm_gpu *gpus, int cap)
{
	struct nv_attached_ids ids = { { 0 } };
	int fds[RM_GPUS_MAX], opened = 0, n = 0, err, i;

	/*
	 * Opening its device file is what attaches a GPU; a GPU that no program has open does not
	 * exist for the driver.
	 */
	for (i = 0; i < RM_GPUS_MAX && opened < cap; i++) {
		struct nv_register_fd reg = { .ctl_fd = rm->ctl };
		char path[32];
		int fd;

		snprintf(path, sizeof(path), "/dev/nvidia%d", i);
		fd = rm->sys->open(rm->sys->ctx, path);
		if (fd < 0)
			continue;
		rm->sys->ioctl(rm->sys->ctx, fd, RM_IOC(NV_ESC_REGISTER_FD, struct nv_register_fd),
			       &reg);
		fds[opened++] = fd;
	}
	if (!opened)
		return -ENODEV;
	err = nv_rm_control(rm, rm->client, NV0000_GPU_GET_ATTACHED_IDS, &ids, sizeof(ids));
	for (i = 0; !err && i < 32 && n < cap && n < opened; i++) {
		if (ids.id[i] == 0xffffffffu)
			break;
		memset(&gpus[n], 0, sizeof(gpus[n]));
		gpus[n].fd = -1;
		err = gpu_attach(rm, &gpus[n], ids.id[i]);
		if (!err) {
			gpus[n].fd = fds[n];
			n++;
		}
	}
	for (i = n; i < opened; i++)
		rm->sys->close(rm->sys->ctx, fds[i]);
	/* As nvidia-smi numbers them */
	for (i = 1; i < n; i++)
		for (int k = i; k > 0 && before(&gpus[k], &gpus[k - 1]); k--) {
			struct nv_rm_gpu other = gpus[k];

			gpus[k] = gpus[k - 1];
			gpus[k - 1] = other;
		}
	if (err) {
		for (i = 0; i < n; i++)
			nv_rm_gpu_close(&gpus[i]);
		return err;
	}
	return n ? n : -ENODEV;
}
