// SPDX-License-Identifier: GPL-2.0-only
/*
 * task.c - one task on both sides in one call. It only orders what host.c and cpu/ do: first what
 * can be taken back, then what cannot fail any more. May not: decide, or know what either side
 * does.
 */
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/uaccess.h>

#include <rtxg/cpu.h>
#include <rtxg/host.h>
#include <rtxg/task.h>

#include "cpu/cpu.h"
#include "file.h"
#include "host.h"
#include "task.h"
#include "user.h"

/*
 * The CPU's side first: a task on the GPU may be in use by other threads of the program as soon as
 * it is there.
 */
static int open_both(struct rtxg_file *file, struct rtxg_file *owner, struct rtxg_task *task,
		     struct rtxg_host_open *gpu, struct rtxg_cpu_task *cpu)
{
	struct cpu_task *attached;
	int err;

	task->refused = RTXG_TASK_CPU;
	err = rtxg_cpu_attach(owner, cpu, &attached);
	if (err)
		return err;
	task->refused = RTXG_TASK_GPU;
	err = rtxg_host_open(file, gpu);
	rtxg_cpu_attached(attached, !err);
	if (!err)
		task->refused = 0;
	return err;
}

static long task_open(struct rtxg_file *file, struct rtxg_task *task)
{
	struct rtxg_host_open gpu;
	struct rtxg_cpu_task cpu;
	struct rtxg_file *owner = file;
	struct file *other = NULL;
	int err;

	err = rtxg_copy_in(&gpu, sizeof(gpu), sizeof(gpu), u64_to_user_ptr(task->gpu));
	if (!err)
		err = rtxg_copy_in(&cpu, sizeof(cpu), sizeof(cpu), u64_to_user_ptr(task->cpu));
	if (err)
		return err;
	if (task->cpu_file >= 0) {
		other = fget(task->cpu_file);
		owner = other ? rtxg_file_of(other) : NULL;
	}
	err = owner ? open_both(file, owner, task, &gpu, &cpu) : -EBADF;
	if (other)
		fput(other);
	if (!err)
		err = rtxg_copy_out(u64_to_user_ptr(task->gpu), &gpu, sizeof(gpu), gpu.size)
			      ?: rtxg_copy_out(u64_to_user_ptr(task->cpu), &cpu, sizeof(cpu),
					       cpu.size);
	return err;
}

/*
 * The GPU's side first: what it was before it takes back without fail, while the kernel may refuse
 * a reservation given up a moment ago.
 */
static long task_set(struct rtxg_file *file, struct rtxg_task *task)
{
	struct rtxg_host_set gpu, before;
	struct rtxg_cpu_task cpu;
	int err;

	if (task->cpu_file != -1)
		return -EINVAL;
	err = rtxg_copy_in(&gpu, sizeof(gpu), sizeof(gpu), u64_to_user_ptr(task->gpu));
	if (!err)
		err = rtxg_copy_in(&cpu, sizeof(cpu), sizeof(cpu), u64_to_user_ptr(task->cpu));
	if (err)
		return err;
	task->refused = RTXG_TASK_GPU;
	err = rtxg_host_set(file, &gpu, &before);
	if (err)
		return err;
	task->refused = RTXG_TASK_CPU;
	err = rtxg_cpu_set(&cpu);
	if (err) {
		rtxg_host_set_back(file, &before);
		return err;
	}
	task->refused = 0;
	return rtxg_copy_out(u64_to_user_ptr(task->cpu), &cpu, sizeof(cpu), cpu.size);
}

long rtxg_task_ioctl(struct rtxg_file *file, unsigned int command, void __user *user)
{
	struct rtxg_task task;
	long err;

	if (command != RTXG_IOC_TASK)
		return -ENOTTY;
	err = rtxg_copy_in(&task, sizeof(task), sizeof(task), user);
	if (err)
		return err;
	if (task.flags & ~RTXG_TASK_F_SET || task.cpu_file < -1 ||
	    !rtxg_all_zero(task.reserved, sizeof(task.reserved)))
		return -EINVAL;
	task.refused = 0;
	err = task.flags & RTXG_TASK_F_SET ? task_set(file, &task) : task_open(file, &task);
	return rtxg_copy_out(user, &task, sizeof(task), task.size) ?: err;
}
