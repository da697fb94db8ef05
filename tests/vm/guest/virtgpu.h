/* SPDX-License-Identifier: MIT */
/*
 * virtgpu.h - work with fences for QEMU's virtio-gpu, through Debian's driver.
 */
#ifndef RTXG_VM_VIRTGPU_H
#define RTXG_VM_VIRTGPU_H

#include "rtxg_vm.h"

/*
 * The part of drm/drm.h and drm/virtgpu_drm.h that is used here; libc's headers do not bring them.
 */
struct virtgpu_create {
	uint32_t target, format, bind, width, height, depth, array_size, last_level, nr_samples,
		flags;
	uint32_t handle, resource, size, stride;
};
struct virtgpu_wait {
	uint32_t handle, flags;
};
struct virtgpu_close {
	uint32_t handle, pad;
};
#define VIRTGPU_CREATE _IOWR('d', 0x44, struct virtgpu_create)
#define VIRTGPU_WAIT   _IOWR('d', 0x48, struct virtgpu_wait)
#define VIRTGPU_CLOSE  _IOW('d', 0x09, struct virtgpu_close)

/* Work for the device with a fence, and a sleep until it is signalled. Says whether it was. */
static inline bool virtgpu_work(int gpu)
{
	struct virtgpu_create create = {
		.target = 2, .format = 2, .width = 64, .height = 64, .depth = 1, .array_size = 1
	};
	struct virtgpu_close done = { 0 };
	struct virtgpu_wait wait = { 0 };
	bool good;

	if (call(gpu, VIRTGPU_CREATE, &create))
		return false;
	wait.handle = done.handle = create.handle;
	good = !call(gpu, VIRTGPU_WAIT, &wait);
	call(gpu, VIRTGPU_CLOSE, &done);
	return good;
}

static inline int virtgpu_open(void)
{
	return open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC);
}

#endif
