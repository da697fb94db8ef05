// SPDX-License-Identifier: MIT
/*
 * transport_module.c - a task hosted by rtxg.ko: its page is mapped from an open file of /dev/rtxg, its doorbell and its waiting are ioctls
 * on it, its life is that file. May not wait for anything but a permit or a GPU of a pool.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"
#include "rtxg/host.h"

static int call(struct rtx_gpu *h, unsigned long command, void *argument)
{
	int saved = errno, ret = ioctl(h->socket, command, argument) < 0 ? -errno : 0;

	errno = saved;
	return ret;
}

static int explain(int error, const struct rtx_gpu *h)
{
	switch (error) {
	case -ENOENT:
		return failed(error, "the kernel module knows no vGPU \"%s\" on GPU \"%s\"; RTXG_IOC_HOST_VGPU makes one", h->vgpu, h->device);
	case -EACCES:
		return failed(error, "vGPU \"%s\" is not for this user", h->vgpu);
	case -ENOSPC:
		return failed(error, "the kernel module has no room for another task, GPU or vGPU; see its parameters max_tasks and max_vgpus");
	case -ENOTTY:
		return failed(-ENOTSUP, "the kernel module that is loaded does not know these calls");
	default:
		return failed(error, "the kernel module refused the task: %s", error_name(-error));
	}
}

static int module_open(struct rtx_gpu *h)
{
	struct rtxg_host_open open_task = {
		.size = sizeof(open_task),
		.priority = h->options.priority,
		.runtime_ns = h->options.runtime_ns,
		.deadline_ns = h->options.deadline_ns,
		.period_ns = h->options.period_ns,
	};
	void *page;
	int ret;

	h->socket = open(RTXG_MODULE_DEVICE, O_RDWR | O_CLOEXEC);
	if (h->socket < 0)
		return failed(-errno, "%s cannot be opened: %s", RTXG_MODULE_DEVICE, error_name(errno));
	strcpy(open_task.gpu, h->device);
	strcpy(open_task.vgpu, h->vgpu);
	ret = call(h, RTXG_IOC_HOST_OPEN, &open_task);
	if (ret) {
		ret = explain(ret, h);
		goto fail;
	}
	page = mmap(NULL, RTXG_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, h->socket, 0);
	if (page == MAP_FAILED) {
		ret = failed(-errno, "the task's page cannot be mapped: %s", error_name(errno));
		goto fail;
	}
	h->page = page;
	if (h->page->magic != RTXG_PAGE_MAGIC || h->page->version != RTXG_PAGE_VERSION) {
		ret = failed(-EPROTO, "the kernel module speaks version %u of the page, this library %u", h->page->version,
			     RTXG_PAGE_VERSION);
		munmap(page, RTXG_PAGE_SIZE);
		h->page = NULL;
		goto fail;
	}
	strcpy(h->device, open_task.gpu);
	strcpy(h->vgpu, open_task.vgpu);
	h->host_generation = open_task.generation;
	return 0;
fail:
	close(h->socket);
	h->socket = -1;
	return ret;
}

static void module_abandon(struct rtx_gpu *h)
{
	/* the parent keeps its own; the page is not there in a child */
	close(h->socket);
	h->socket = -1;
}

static void module_close(struct rtx_gpu *h)
{
	munmap(h->page, RTXG_PAGE_SIZE);
	close(h->socket);
}

static void module_ring(struct rtx_gpu *h)
{
	call(h, RTXG_IOC_HOST_RING, NULL);
}

static int module_wait(struct rtx_gpu *h, unsigned int lane, uint32_t value, uint64_t until)
{
	struct rtxg_host_wait wait = { .size = sizeof(wait), .lane = lane, .value = value, .until_ns = until };

	return call(h, RTXG_IOC_HOST_WAIT, &wait);
}

static void module_wake(struct rtx_gpu *h, unsigned int lane)
{
	call(h, RTXG_IOC_HOST_WAKE, (void *)(uintptr_t)lane);
}

/* An open file keeps the module loaded. */
static bool module_alive(struct rtx_gpu *h)
{
	return true;
}

static int module_set(struct rtx_gpu *h, const struct rtx_gpu_options *options)
{
	struct rtxg_host_set set = { .size = sizeof(set), .priority = options->priority, .runtime_ns = options->runtime_ns,
				     .deadline_ns = options->deadline_ns, .period_ns = options->period_ns };
	int ret = call(h, RTXG_IOC_HOST_SET, &set);

	return ret ? failed(ret, "the kernel module refused the parameters: %s", error_name(-ret)) : 0;
}

static int pool_request(struct rtx_gpu *h, unsigned long command, const char *pool, struct rtxg_host_pool *request)
{
	*request = (struct rtxg_host_pool){ .size = sizeof(*request) };
	if (!*pool || strlen(pool) >= sizeof(request->name))
		return failed(-EINVAL, "pool name \"%.80s\" has %zu bytes; 1 to %u are accepted", pool, strlen(pool), RTXG_NAME_MAX);
	strcpy(request->name, pool);
	return call(h, command, request);
}

static int module_pool_release(struct rtx_gpu *h, const char *pool)
{
	struct rtxg_host_pool request;
	int ret = pool_request(h, RTXG_IOC_HOST_RELEASE, pool, &request);

	return ret ? failed(ret, "pool %s cannot be released: %s", pool, error_name(-ret)) : 0;
}

static int module_pool_acquire(struct rtx_gpu *h, const char *pool, char *device, size_t size)
{
	struct rtxg_host_pool request;
	int ret = pool_request(h, RTXG_IOC_HOST_ACQUIRE, pool, &request);

	if (ret)
		return failed(ret, "no GPU of pool %s: %s", pool, error_name(-ret));
	if (strlen(request.gpu) >= size) {
		module_pool_release(h, pool);
		return failed(-ENOSPC, "the device's name has %zu bytes, the room is %zu", strlen(request.gpu) + 1, size);
	}
	strcpy(device, request.gpu);
	return 0;
}

const struct transport transport_module = {
	.name = "module",
	.open = module_open,
	.abandon = module_abandon,
	.close = module_close,
	.ring = module_ring,
	.wait = module_wait,
	.wake = module_wake,
	.alive = module_alive,
	.set = module_set,
	.pool_acquire = module_pool_acquire,
	.pool_release = module_pool_release,
};
