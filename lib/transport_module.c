// SPDX-License-Identifier: MIT
/*
 * transport_module.c - a task hosted by rtxg.ko: its page is mapped from an open file of /dev/rtxg,
 * its doorbell and its waiting are ioctls on it, its life is that file. A daemon that speaks for
 * the module is asked where a task belongs that does not say so itself; the module checks whether
 * it may be there. May not wait for anything but a permit or a GPU of a pool, and for that answer.
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cpu.h"
#include "errors.h"
#include "handle.h"
#include "locate.h"
#include "message.h"
#include "own_file.h"
#include "rtxg/cpu.h"
#include "rtxg/host.h"
#include "rtxg/task.h"

static int call(struct rtx_gpu *h, unsigned long command, void *argument)
{
	int saved = errno, ret = ioctl(h->socket, command, argument) < 0 ? -errno : 0;

	errno = saved;
	return ret;
}

/*
 * How long a daemon may take to say where a task belongs; without its answer the task goes where it
 * asked to.
 */
#define PLACE_PATIENCE_NS (2 * NS_PER_S)

/* Both sides in one call, if the CPU's is asked for too. */
static int call_both(struct rtx_gpu *h, unsigned long command, void *gpu, struct cpu_request *cpu)
{
	struct rtxg_task task = { .size = sizeof(task), .gpu = (uintptr_t)gpu, .cpu_file = -1 };
	int ret;

	if (!cpu)
		return call(h, command, gpu);
	if (command == RTXG_IOC_HOST_SET)
		task.flags = RTXG_TASK_F_SET;
	else
		task.cpu_file = cpu->file;
	task.cpu = (uintptr_t)cpu->task;
	ret = call(h, RTXG_IOC_TASK, &task);
	cpu->done = !ret;
	cpu->refused = ret && task.refused == RTXG_TASK_CPU;
	return ret;
}

/*
 * 1: the daemon said where; 0: there is none, or it has nothing to say; negative: it refuses, for
 * the reason in rtx_strerror().
 */
static int ask_place(struct rtx_gpu *h, char gpu[RTXG_HOST_NAME], char vgpu[RTXG_HOST_NAME])
{
	struct rtxg_host_info info = { .size = sizeof(info) };
	const char *host, *its_gpu, *its_vgpu;
	char path[108], *text, *answer = NULL;
	int fds[2] = { -1, -1 }, socket, ret;
	json_t *request, *reply;

	if (call(h, RTXG_IOC_HOST_INFO, &info) || !info.has_front)
		return 0;
	socket = rtx_lib_connect(path);
	if (socket < 0)
		return 0;
	request = json_pack("{s:s}", "op", "place");
	if (h->device[0])
		json_object_set_new(request, "gpu", json_string(h->device));
	if (h->vgpu[0])
		json_object_set_new(request, "vgpu", json_string(h->vgpu));
	text = json_dumps(request, JSON_COMPACT);
	json_decref(request);
	ret = text ? rtx_lib_message_send(socket, text, strlen(text), -1) : -ENOMEM;
	free(text);
	if (!ret) {
		uint64_t until = rtxg_now_ns() + PLACE_PATIENCE_NS;

		do
			ret = rtx_lib_message_receive(socket, &answer, fds, until);
		while (ret == -EINTR);
	}
	rtx_lib_close_fds(fds);
	close(socket);
	reply = ret ? NULL : json_loads(answer, 0, NULL);
	free(answer);
	host = json_string_value(json_object_get(reply, "host"));
	its_gpu = json_string_value(json_object_get(reply, "gpu"));
	its_vgpu = json_string_value(json_object_get(reply, "vgpu"));
	ret = 0;
	if (host && !strcmp(host, "module") && its_gpu && its_vgpu &&
	    strlen(its_gpu) < RTXG_HOST_NAME && strlen(its_vgpu) < RTXG_HOST_NAME) {
		strcpy(gpu, its_gpu);
		strcpy(vgpu, its_vgpu);
		ret = 1;
	} else if (json_is_false(json_object_get(reply, "ok"))) {
		json_int_t error = json_integer_value(json_object_get(reply, "errno"));
		const char *message = json_string_value(json_object_get(reply, "message"));

		/* One that does not know the question has nothing to say. */
		if (error > 0 && error < 4096 && error != EOPNOTSUPP && message)
			ret = rtx_lib_failed(-(int)error, "%s", message);
	}
	json_decref(reply);
	return ret;
}

static int open_there(struct rtx_gpu *h, struct rtxg_host_open *task, const char *gpu,
		      const char *vgpu, struct cpu_request *cpu)
{
	*task = (struct rtxg_host_open){
		.size = sizeof(*task),
		.priority = h->options.priority,
		.runtime_ns = h->options.runtime_ns,
		.deadline_ns = h->options.deadline_ns,
		.period_ns = h->options.period_ns,
	};
	strcpy(task->gpu, gpu);
	strcpy(task->vgpu, vgpu);
	if (cpu)
		rtx_lib_cpu_complete(cpu->task, &h->options);
	return call_both(h, RTXG_IOC_HOST_OPEN, task, cpu);
}

/* A refusal of the core, as the daemon says it; else the error's own words. */
static int refused(int error, const struct rtx_gpu *h, const char *what)
{
	struct rtxg_host_refusal refusal = { .size = sizeof(refusal) };

	if (!ioctl(h->socket, RTXG_IOC_HOST_REFUSAL, &refusal) && refusal.what[0])
		return rtx_lib_failed(error, "%s: %s (%llu; the limit is %llu)", what, refusal.what,
				      (unsigned long long)refusal.value,
				      (unsigned long long)refusal.limit);
	return rtx_lib_failed(error, "%s: %s", what, rtx_lib_error_name(-error));
}

static int explain(int error, const struct rtx_gpu *h)
{
	struct rtxg_host_info info = { .size = sizeof(info) };

	switch (error) {
	case -ENOENT:
		return rtx_lib_failed(
			error,
			"the kernel module knows no vGPU \"%s\" on GPU \"%s\"; \"rtxg vgpu "
			"create\" makes one, where rtxgd runs",
			h->vgpu, h->device[0] ? h->device : "0");
	case -EACCES:
		return rtx_lib_failed(error, "vGPU \"%s\" is not for this user", h->vgpu);
	case -EDQUOT:
		if (ioctl(h->socket, RTXG_IOC_HOST_INFO, &info) < 0)
			info.tasks_per_user = 0;
		return rtx_lib_failed(
			-ENOSPC,
			"user %u has %u tasks already, which is the most for one user "
			"(TasksPerUser=)",
			geteuid(), info.tasks_per_user);
	case -EPERM:
		return rtx_lib_failed(
			error,
			"priority %u is above the one that is configured for vGPU \"%s\"; "
			"raising it needs CAP_SYS_NICE",
			h->options.priority, h->vgpu[0] ? h->vgpu : "default");
	case -ENOSPC:
		return rtx_lib_failed(
			error, "the kernel module has no room for another task, GPU or vGPU; "
			       "see its parameters max_tasks and max_vgpus");
	case -ENOTTY:
		return rtx_lib_failed(-ENOTSUP,
				      "the kernel module that is loaded does not know these calls");
	default:
		return refused(error, h, "the task cannot be opened");
	}
}

static int module_open(struct rtx_gpu *h, struct cpu_request *cpu)
{
	char gpu[RTXG_HOST_NAME], vgpu[RTXG_HOST_NAME];
	struct rtxg_host_open open_task;
	int ret, placed = 0;
	void *page;

	h->socket = open(RTXG_MODULE_DEVICE, O_RDWR | O_CLOEXEC);
	if (h->socket < 0)
		return rtx_lib_failed(-errno, "%s cannot be opened: %s", RTXG_MODULE_DEVICE,
				      rtx_lib_error_name(errno));
	own_file_mark(h->socket);
	strcpy(gpu, h->device);
	strcpy(vgpu, h->vgpu);
	/*
	 * A task that names no vGPU may belong to one by the daemon's rules; one that is named may
	 * have to be made on this GPU first.
	 */
	if (!vgpu[0])
		placed = ask_place(h, gpu, vgpu);
	ret = placed < 0 ? placed : open_there(h, &open_task, gpu, vgpu, cpu);
	if (ret == -ENOENT && !placed) {
		placed = ask_place(h, gpu, vgpu);
		if (placed > 0)
			ret = open_there(h, &open_task, gpu, vgpu, cpu);
	}
	if (placed < 0) {
		ret = placed;
		goto fail;
	}
	if (ret) {
		ret = explain(ret, h);
		goto fail;
	}
	page = mmap(NULL, RTXG_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, h->socket, 0);
	if (page == MAP_FAILED) {
		ret = rtx_lib_failed(-errno, "the task's page cannot be mapped: %s",
				     rtx_lib_error_name(errno));
		goto fail;
	}
	h->page = page;
	if (h->page->magic != RTXG_PAGE_MAGIC || h->page->version != RTXG_PAGE_VERSION) {
		ret = rtx_lib_failed(
			-EPROTO, "the kernel module speaks version %u of the page, this library %u",
			h->page->version, RTXG_PAGE_VERSION);
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
	if (own_file_is_ours(h->socket))
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

#define NAP_NS 1000000

/* As a thread that waits in the kernel does, it goes on early when a signal comes. */
static int nap_until(uint64_t until)
{
	uint64_t end = rtxg_now_ns() + NAP_NS;
	struct timespec at;

	end = until < end ? until : end;
	at.tv_sec = end / NS_PER_S;
	at.tv_nsec = end % NS_PER_S;
	return -clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static int module_wait(struct rtx_gpu *h, unsigned int lane, uint32_t value, uint64_t until)
{
	struct rtxg_host_wait wait = {
		.size = sizeof(wait), .lane = lane, .value = value, .until_ns = until
	};

	int ret = call(h, RTXG_IOC_HOST_WAIT, &wait);

	/* The permit word changes without a wake-up here: the caller looks at it after a while. */
	if (ret == -EAGAIN)
		ret = nap_until(until);
	return ret;
}

static void module_wake(struct rtx_gpu *h, unsigned int lane)
{
	call(h, RTXG_IOC_HOST_WAKE, (void *)(uintptr_t)lane);
}

static int module_fence(struct rtx_gpu *h, unsigned int lane, const struct rtx_gpu_notify *how)
{
	struct rtxg_host_fence fence = { .size = sizeof(fence),
					 .lane = lane,
					 .word = (uintptr_t)how->word };

	return call(h, RTXG_IOC_HOST_FENCE, &fence);
}

static int module_sync(struct rtx_gpu *h, unsigned int lane, uint32_t value, uint64_t until)
{
	struct rtxg_host_sync sync = {
		.size = sizeof(sync), .lane = lane, .value = value, .until_ns = until
	};

	return call(h, RTXG_IOC_HOST_SYNC, &sync);
}

/* An open file keeps the module loaded. */
static bool module_alive(struct rtx_gpu *h)
{
	return true;
}

static int module_set(struct rtx_gpu *h, const struct rtx_gpu_options *options,
		      struct cpu_request *cpu)
{
	struct rtxg_host_set set = { .size = sizeof(set),
				     .priority = options->priority,
				     .runtime_ns = options->runtime_ns,
				     .deadline_ns = options->deadline_ns,
				     .period_ns = options->period_ns };
	int ret = call_both(h, RTXG_IOC_HOST_SET, &set, cpu);

	if (ret == -EPERM)
		return rtx_lib_failed(
			ret,
			"priority %u is above the one that is configured; raising it needs "
			"CAP_SYS_NICE",
			options->priority);
	return ret ? refused(ret, h, "the task cannot be changed") : 0;
}

static int pool_request(struct rtx_gpu *h, unsigned long command, const char *pool,
			struct rtxg_host_pool *request)
{
	*request = (struct rtxg_host_pool){ .size = sizeof(*request) };
	if (!*pool || strlen(pool) >= sizeof(request->name))
		return rtx_lib_failed(-EINVAL,
				      "pool name \"%.80s\" has %zu bytes; 1 to %u are accepted",
				      pool, strlen(pool), RTXG_NAME_MAX);
	strcpy(request->name, pool);
	return call(h, command, request);
}

static int module_pool_release(struct rtx_gpu *h, const char *pool)
{
	struct rtxg_host_pool request;
	int ret = pool_request(h, RTXG_IOC_HOST_RELEASE, pool, &request);

	return ret ? rtx_lib_failed(ret, "pool %s cannot be released: %s", pool,
				    rtx_lib_error_name(-ret))
		   : 0;
}

static int module_pool_acquire(struct rtx_gpu *h, const char *pool, char *device, size_t size)
{
	struct rtxg_host_pool request;
	int ret = pool_request(h, RTXG_IOC_HOST_ACQUIRE, pool, &request);

	if (ret)
		return rtx_lib_failed(ret, "no GPU of pool %s: %s", pool, rtx_lib_error_name(-ret));
	if (strlen(request.gpu) >= size) {
		module_pool_release(h, pool);
		return rtx_lib_failed(-ENOSPC, "the device's name has %zu bytes, the room is %zu",
				      strlen(request.gpu) + 1, size);
	}
	strcpy(device, request.gpu);
	return 0;
}

/* Asked for without a task. */
int rtx_lib_module_advice(const char *pool, char *name, size_t size)
{
	struct rtxg_host_pool request = { .size = sizeof(request) };
	int fd, ret;

	if (pool && (!*pool || strlen(pool) >= sizeof(request.name)))
		return rtx_lib_failed(-EINVAL,
				      "pool name \"%.80s\" has %zu bytes; 1 to %u are accepted",
				      pool, strlen(pool), RTXG_NAME_MAX);
	fd = open(RTXG_MODULE_DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return rtx_lib_failed(-errno, "%s cannot be opened: %s", RTXG_MODULE_DEVICE,
				      rtx_lib_error_name(errno));
	strcpy(request.name, pool ? pool : "");
	ret = ioctl(fd, RTXG_IOC_HOST_ADVICE, &request) < 0 ? -errno : 0;
	close(fd);
	if (ret == -ENOENT)
		return rtx_lib_failed(
			ret,
			"there is no pool %s; [Pool NAME] in the configuration or \"rtxg "
			"pool create\" makes one",
			pool);
	if (ret)
		return rtx_lib_failed(ret, "no GPU can be recommended: %s",
				      rtx_lib_error_name(-ret));
	if (strlen(request.gpu) >= size)
		return rtx_lib_failed(-ENOSPC, "the device's name has %zu bytes, the room is %zu",
				      strlen(request.gpu) + 1, size);
	strcpy(name, request.gpu);
	return 0;
}

const struct transport rtx_lib_transport_module = {
	.name = "module",
	.both = true,
	.open = module_open,
	.abandon = module_abandon,
	.close = module_close,
	.ring = module_ring,
	.wait = module_wait,
	.wake = module_wake,
	.fence = module_fence,
	.sync = module_sync,
	.alive = module_alive,
	.set = module_set,
	.pool_acquire = module_pool_acquire,
	.pool_release = module_pool_release,
};
