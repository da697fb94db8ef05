/* SPDX-License-Identifier: MIT */
/*
 * gpu.h - a GPU task on the tests' accelerator, as a program would be written: librtxg around the
 * vendor driver's own launch, and completion by interrupt (NOTIFY): the waiter sleeps until the
 * intercepted interrupt, and the fence is the proof.
 */
#ifndef RTXG_VM_GPU_H
#define RTXG_VM_GPU_H

#include "rtxg_vm.h"

#include <rtxg.h>
#include <rtxg/host.h>
#include <rtxg/irq.h>

#define MS 1000000ull

struct gpu_task {
	rtx_gpu_t handle;
	int edu, irq_fd;
	struct rtxg_irq_attach attach;
	struct rtxg_irq_wait wait;
	volatile uint64_t *fence;
	uint64_t sequence;
	uint64_t waits; /* times IRQ_WAIT was entered */
};

static inline int gpu_wait(void *argument)
{
	struct gpu_task *task = argument;

	while (*task->fence < task->sequence) {
		int err;

		task->waits++;
		task->wait.until_ns = UINT64_MAX;
		err = call(task->irq_fd, RTXG_IOC_IRQ_WAIT, &task->wait);
		if (err)
			return err;
	}
	return 0;
}

/*
 * after: the driver writes the fence, not the device (see rtxg_edu.h, mode=0). vgpu NULL: the
 * vendor's driver alone.
 */
static inline int gpu_task_open(struct gpu_task *task, const char *vgpu, bool managed, bool after)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	int err = 0;

	*task = (struct gpu_task){ .edu = open_edu(0), .irq_fd = open_rtxg() };
	options.vgpu = vgpu;
	if (managed)
		err = rtx_gpu_open(&task->handle, &options);
	if (err)
		return err;
	task->attach = (struct rtxg_irq_attach){ .size = sizeof(task->attach),
						 .name = "rtxg_edu0",
						 .width = 4,
						 .flags = RTXG_IRQ_F_BY_NAME | RTXG_IRQ_F_SOURCE |
							  (after ? RTXG_IRQ_F_AFTER : 0),
						 .offset = RTXG_EDU_REG_IRQ_STATUS,
						 .mask = RTXG_EDU_IRQ_COMPLETE };
	find_pci(0x1234, 0x11e8, 0, &task->attach.bus, &task->attach.devfn);
	err = call(task->irq_fd, RTXG_IOC_IRQ_ATTACH, &task->attach);
	task->wait = (struct rtxg_irq_wait){ .size = sizeof(task->wait), .id = task->attach.id };
	task->fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, task->edu, 0);
	return task->fence == MAP_FAILED ? -ENOMEM : err;
}

static inline void gpu_task_close(struct gpu_task *task)
{
	if (task->handle)
		rtx_gpu_close(task->handle);
	munmap((void *)task->fence, 4096);
	close(task->irq_fd);
	close(task->edu);
}

/* The vendor's launch. How many interrupts there were is read before it, so that none is lost. */
static inline int gpu_vendor_launch(struct gpu_task *task, uint64_t duration_ns)
{
	task->wait.until_ns = 0;
	call(task->irq_fd, RTXG_IOC_IRQ_WAIT, &task->wait);
	task->sequence = edu_launch(task->edu, duration_ns);
	return task->sequence ? 0 : -EIO;
}

/* launch, the vendor's launch, notify, sync: figure 2 of the Linux-RTXG paper. */
static inline int gpu_job(struct gpu_task *task, uint64_t duration_ns)
{
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	int err;

	how.how = RTX_SYNC_WAIT;
	how.wait = gpu_wait;
	how.arg = task;
	err = rtx_gpu_launch(task->handle, RTX_COMPUTE);
	if (err)
		return err;
	err = gpu_vendor_launch(task, duration_ns);
	if (!err)
		err = rtx_gpu_notify(task->handle, RTX_COMPUTE, &how);
	if (!err)
		err = rtx_gpu_sync(task->handle, RTX_COMPUTE);
	return err;
}

static inline int make_gpu_with(const char *name, uint32_t policy, uint64_t revoke_timeout_ns)
{
	struct rtxg_host_gpu gpu = { .size = sizeof(gpu),
				     .policy = policy,
				     .revoke_timeout_ns = revoke_timeout_ns };
	int fd = open_rtxg(), err;

	snprintf(gpu.name, sizeof(gpu.name), "%s", name);
	err = call(fd, RTXG_IOC_HOST_GPU, &gpu);
	close(fd);
	return err ?: (int)gpu.number;
}

static inline int make_gpu(const char *name, uint32_t policy)
{
	return make_gpu_with(name, policy, 0);
}

/*
 * For tests that look at those who wait: in a slow guest that look may come later than the 2 s
 * after which the holder's permit is taken by force.
 */
static inline int make_patient_gpu(const char *name, uint32_t policy)
{
	return make_gpu_with(name, policy, UINT64_MAX);
}

static inline int make_vgpu(const char *name, unsigned int min_percent)
{
	struct rtxg_host_vgpu vgpu = { .size = sizeof(vgpu),
				       .min_ppm = min_percent * 10000,
				       .group = RTXG_HOST_EVERYBODY };
	int fd = open_rtxg(), err;

	snprintf(vgpu.name, sizeof(vgpu.name), "%s", name);
	err = call(fd, RTXG_IOC_HOST_VGPU, &vgpu);
	close(fd);
	return err;
}

static inline int remove_vgpu(const char *name)
{
	struct rtxg_host_vgpu vgpu = { .size = sizeof(vgpu), .flags = RTXG_HOST_F_REMOVE };
	int fd = open_rtxg(), err;

	snprintf(vgpu.name, sizeof(vgpu.name), "%s", name);
	err = call(fd, RTXG_IOC_HOST_VGPU, &vgpu);
	close(fd);
	return err;
}

static inline int vgpu_stats(const char *vgpu, struct rtxg_host_stats *stats)
{
	int fd = open_rtxg(), err;

	*stats = (struct rtxg_host_stats){ .size = sizeof(*stats), .gpu = "0" };
	snprintf(stats->vgpu, sizeof(stats->vgpu), "%s", vgpu);
	err = call(fd, RTXG_IOC_HOST_STATS, stats);
	close(fd);
	return err;
}

#endif
