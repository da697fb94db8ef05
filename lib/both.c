// SPDX-License-Identifier: MIT
/*
 * both.c - a task that exists is changed, or opened on both sides at once: its GPU's and its
 * thread's. Both sides are granted, or nothing has changed. May not decide which is granted.
 */
#include <string.h>

#include "cpu.h"
#include "errors.h"
#include "handle.h"
#include "open.h"
#include "process.h"

static int take_options(const struct rtx_cpu_options *in, struct rtxg_cpu_task *task)
{
	struct rtx_cpu_options full = { .cpu = -1 };
	int ret;

	if (!in || in->size < offsetof(struct rtx_cpu_options, priority))
		return rtx_lib_failed(-EINVAL,
				      "the CPU's options are missing, or their size is not set: "
				      "sizeof(struct rtx_cpu_options)");
	for (size_t i = sizeof(full); i < in->size; i++)
		if (((const unsigned char *)in)[i])
			return rtx_lib_failed(
				-E2BIG,
				"the CPU's options have a member that this librtxg does not "
				"know (byte %zu is not 0)",
				i);
	memcpy(&full, in, in->size < sizeof(full) ? in->size : sizeof(full));
	ret = rtx_lib_cpu_check(full.scheduler, full.flags);
	if (ret)
		return ret;
	*task = (struct rtxg_cpu_task){
		.size = sizeof(*task),
		.policy = (uint32_t)full.scheduler,
		.flags = full.flags,
		.priority = full.priority,
		.period_ns = full.period_ns,
		.deadline_ns = full.deadline_ns,
		.wcet_ns = full.wcet_ns,
		.runtime_ns = full.runtime_ns,
		.suspend_ns = full.suspend_ns,
	};
	if (full.flags & RTX_CPU_PARTITIONED && full.cpu >= 0) {
		task->flags |= RTXG_CPU_F_CPU;
		task->cpu = (uint32_t)full.cpu;
	}
	return 0;
}

static int cpu_change(const struct rtxg_cpu_task *task)
{
	struct rtxg_cpu_task copy = *task;

	return rtx_lib_cpu_call(RTXG_IOC_CPU_SET, &copy);
}

static int task_set(rtx_gpu_t h, const struct rtx_gpu_options *options, struct cpu_request *cpu)
{
	struct rtx_gpu_options asked;
	int ret;

	not_cancelled();
	rtx_lib_forget_error();
	ret = rtx_lib_check_handle(h, 0);
	if (!ret)
		ret = rtx_lib_check_options(options, &asked);
	if (ret)
		return ret;
	if (!load_relaxed(&h->managed) || !h->transport->set)
		return rtx_lib_failed(-ENOTCONN, "no host manages this task now");
	pthread_mutex_lock(&h->control);
	if (cpu) {
		/* what stays as it is counts for the CPU's side, too */
		struct rtx_gpu_options both = h->options;

		both.runtime_ns = asked.runtime_ns ? asked.runtime_ns : both.runtime_ns;
		both.deadline_ns = asked.deadline_ns ? asked.deadline_ns : both.deadline_ns;
		both.period_ns = asked.period_ns ? asked.period_ns : both.period_ns;
		rtx_lib_cpu_complete(cpu->task, &both);
	}
	if (cpu && !h->transport->both) {
		/* two hosts: first the one whose change we can take back */
		ret = cpu_change(cpu->task);
		cpu->refused = ret;
		if (!ret) {
			ret = h->transport->set(h, &asked, cpu);
			if (ret)
				cpu_change(cpu->before);
		}
	} else {
		ret = h->transport->set(h, &asked, cpu);
	}
	if (!ret) {
		/* Remembered, for a host that takes over after this one. */
		if (asked.priority)
			h->options.priority = asked.priority;
		if (asked.runtime_ns)
			h->options.runtime_ns = asked.runtime_ns;
		if (asked.deadline_ns)
			h->options.deadline_ns = asked.deadline_ns;
		if (asked.period_ns)
			h->options.period_ns = asked.period_ns;
	}
	pthread_mutex_unlock(&h->control);
	return ret;
}

int rtx_gpu_set(rtx_gpu_t h, const struct rtx_gpu_options *options)
{
	return task_set(h, options, NULL);
}

static void unlock(void *mutex)
{
	pthread_mutex_unlock(mutex);
}

int rtx_gpu_pool_acquire(rtx_gpu_t h, const char *pool, char *device, size_t size)
{
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_check_handle(h, 0);
	if (ret)
		return ret;
	if (!pool || !device || !size)
		return rtx_lib_failed(-EINVAL,
				      "a pool's name and room for a device's name are needed");
	if (!load_relaxed(&h->managed) || !h->transport->pool_acquire)
		return rtx_lib_failed(-ENOTCONN, "no host manages this task now");
	pthread_mutex_lock(&h->control);
	pthread_cleanup_push(unlock, &h->control);
	ret = h->transport->pool_acquire(h, pool, device, size);
	pthread_cleanup_pop(1);
	return ret;
}

int rtx_gpu_pool_release(rtx_gpu_t h, const char *pool)
{
	not_cancelled();
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_check_handle(h, 0);
	if (ret)
		return ret;
	if (!pool)
		return rtx_lib_failed(-EINVAL, "a pool's name is needed");
	if (!load_relaxed(&h->managed) || !h->transport->pool_release)
		return rtx_lib_failed(-ENOTCONN, "no host manages this task now");
	pthread_mutex_lock(&h->control);
	ret = h->transport->pool_release(h, pool);
	pthread_mutex_unlock(&h->control);
	return ret;
}

/* The GPU's host is not the module: its side is open, now the other. */
static int attach_after(rtx_gpu_t *handle, struct cpu_request *request)
{
	int ret;

	rtx_lib_cpu_complete(request->task, &(*handle)->options);
	ret = rtx_lib_cpu_call(RTXG_IOC_CPU_ATTACH, request->task);
	if (ret) {
		rtx_gpu_close(*handle);
		*handle = NULL;
		request->refused = true;
	}
	return ret;
}

int rtx_task_open(rtx_gpu_t *handle, const struct rtx_gpu_options *gpu,
		  const struct rtx_cpu_options *options)
{
	struct rtxg_cpu_pid self = { .size = sizeof(self) };
	struct rtxg_cpu_task task, completed;
	struct cpu_thread *cpu = rtx_lib_cpu_thread();
	struct cpu_request request;
	bool began = !cpu->fd;
	int ret;

	rtx_lib_forget_error();
	if (!handle)
		return rtx_lib_failed(-EINVAL,
				      "there is no place for the handle: the pointer is NULL");
	*handle = NULL;
	if (cpu->attached)
		return rtx_lib_failed(-EALREADY,
				      "this thread is attached already: rtx_task_set changes it");
	ret = take_options(options, &task);
	if (!ret && began)
		ret = rtx_cpu_init();
	if (ret)
		return ret;
	completed = task;
	request = (struct cpu_request){ .task = &completed, .file = cpu->fd };
	if (rtx_lib_cpu_take_over()) {
		/* the CPU's side stands already */
		ret = rtx_lib_open(handle, gpu, NULL);
		cpu->attached = cpu->outside = !ret;
	} else {
		ret = rtx_lib_open(handle, gpu, &request);
		if (!ret && !request.done)
			ret = attach_after(handle, &request);
		if (!ret) {
			cpu->attached = true;
			cpu->task = completed;
		} else if (request.done) {
			/*
			 * the GPU's side failed behind the module's back: what was attached goes
			 * again
			 */
			rtx_lib_cpu_call(RTXG_IOC_CPU_DETACH, &self);
		}
	}
	if (ret && began)
		rtx_lib_cpu_end();
	/* the GPU's side has said its own words */
	return ret && request.refused ? rtx_lib_cpu_explain(ret, &completed, "attaching the thread")
				      : ret;
}

int rtx_task_set(rtx_gpu_t handle, const struct rtx_gpu_options *gpu,
		 const struct rtx_cpu_options *options)
{
	struct cpu_thread *cpu = rtx_lib_cpu_thread();
	struct rtxg_cpu_task task, before = cpu->task;
	struct cpu_request request = { .task = &task, .before = &before, .file = -1 };
	int ret;

	rtx_lib_forget_error();
	ret = cpu->attached
		      ? 0
		      : rtx_lib_failed(-EPERM,
				       "this thread is not attached: rtx_task_open comes first");
	if (!ret)
		ret = take_options(options, &task);
	if (ret)
		return ret;
	ret = task_set(handle, gpu, &request);
	cpu->task = ret ? before : task;
	return ret && request.refused
		       ? rtx_lib_cpu_explain(ret, &task, "changing the thread's parameters")
		       : ret;
}
