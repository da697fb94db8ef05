// SPDX-License-Identifier: GPL-2.0-only
/*
 * pool.c - several like GPUs behind one lock, as tasks ask for them: advice, acquire, release. The
 * thread that acquired a GPU runs at no less than the CPU priority of the threads that it keeps
 * waiting, as rtxg_cpu_inherit.h says; kmod/cpu/inherit.c raises it.
 *
 * May not: decide which task gets a GPU, or set a thread's priority.
 */
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "cpu/cpu.h"
#include "engine.h"
#include "host.h"
#include "objects.h"
#include "pool.h"

/* ---- inheritance ---- */

/* The calling thread is the one that waits, and will hold. objects is held. */
static int keep_thread(struct khost_task *task)
{
	struct rtxg_cpu_heir *heir = rtxg_cpu_heir_get();

	if (!heir)
		return -ENOMEM;
	rtxg_pool_forget(task);
	task->heir = heir;
	task->passes = rtxg_cpu_heir_passes(heir);
	return 0;
}

void rtxg_pool_forget(struct khost_task *task)
{
	lockdep_assert_held(&rtxg_host.objects);
	if (task->heir)
		rtxg_cpu_heir_put(task->heir);
	task->heir = NULL;
	task->passes = 0;
}

/* The task that holds the GPU for which this one waits; NULL: it waits for none. */
static struct khost_task *holder_before(u32 number)
{
	u32 holder;

	raw_spin_lock_irq(&rtxg_host.lock);
	holder = rtxg_core_pool_holder(rtxg_host.permits.core, number);
	raw_spin_unlock_irq(&rtxg_host.lock);
	return khost_task_at(holder);
}

/* One thread may hold for several tasks: it inherits the highest of all. */
void rtxg_pool_carry_out(void)
{
	struct khost_task *task, *holder;

	lockdep_assert_held(&rtxg_host.objects);
	for (u32 i = 0; i < rtxg_host.max_tasks; i++) {
		task = khost_task_at(i);
		if (task && task->heir)
			task->heir->wanted = 0;
	}
	for (u32 i = 0; i < rtxg_host.max_tasks; i++) {
		task = khost_task_at(i);
		holder = task && task->passes ? holder_before(i) : NULL;
		if (holder && holder->heir)
			holder->heir->wanted =
				rtxg_ceiling_join(holder->heir->wanted, task->passes);
	}
	for (u32 i = 0; i < rtxg_host.max_tasks; i++) {
		task = khost_task_at(i);
		if (task && task->heir)
			rtxg_cpu_heir_set(task->heir);
	}
}

/* ---- requests ---- */

int rtxg_host_read_pool(struct rtxg_host_pool *request, const void __user *user, bool remove)
{
	int err = rtxg_copy_in(request, sizeof(*request), sizeof(*request), user);

	if (err)
		return err;
	if (request->flags & ~(remove ? RTXG_HOST_F_REMOVE : 0u) ||
	    !rtxg_host_good_name(request->name, NULL) ||
	    !rtxg_all_zero(request->reserved, sizeof(request->reserved)))
		return -EINVAL;
	return 0;
}

long rtxg_pool_advice(struct rtxg_host_pool __user *user)
{
	struct rtxg_host_pool request;
	int err;

	err = rtxg_copy_in(&request, sizeof(request), sizeof(request), user);
	if (err)
		return err;
	if (request.flags || strnlen(request.name, RTXG_HOST_NAME) == RTXG_HOST_NAME ||
	    !rtxg_all_zero(request.reserved, sizeof(request.reserved)))
		return -EINVAL;
	mutex_lock(&rtxg_host.objects);
	err = request.name[0] ? rtxg_host_find_pool(request.name) : 0;
	if (err >= 0) {
		u32 gpu;

		raw_spin_lock_irq(&rtxg_host.lock);
		gpu = rtxg_core_device_advice(rtxg_host.permits.core,
					      request.name[0] ? (u32)err : RTXG_NONE);
		raw_spin_unlock_irq(&rtxg_host.lock);
		err = gpu < RTXG_HOST_GPUS ? (int)gpu : -ENODEV;
	}
	if (err >= 0)
		memcpy(request.gpu, rtxg_host.gpus[err].name, RTXG_HOST_NAME);
	/* GPU 0 is there for a task that names none, also before the first has come */
	else if (err == -ENODEV && !request.name[0])
		strscpy_pad(request.gpu, "0", RTXG_HOST_NAME);
	mutex_unlock(&rtxg_host.objects);
	return err < 0 && request.name[0]
		       ? err
		       : rtxg_copy_out(user, &request, sizeof(request), request.size);
}

/*
 * A signal came to a thread that waits: the holder inherits from it no more. 0: the GPU came first.
 */
static int withdraw(struct khost_task *task)
{
	int err = -EINTR;

	mutex_lock(&rtxg_host.objects);
	raw_spin_lock_irq(&rtxg_host.lock);
	if (task->permit.pool == RTXG_NONE)
		err = -ECANCELED;
	else if (task->permit.pool_held)
		err = 0;
	else
		permit_pool_release(&rtxg_host.permits, ktime_get_ns(), &task->permit);
	raw_spin_unlock_irq(&rtxg_host.lock);
	rtxg_pool_carry_out();
	mutex_unlock(&rtxg_host.objects);
	return err;
}

long rtxg_pool_acquire(struct khost_task *task, struct rtxg_host_pool __user *user)
{
	struct rtxg_waiter waiter = {};
	struct rtxg_host_pool request;
	bool held;
	int err;

	err = rtxg_host_read_pool(&request, user, false);
	if (err)
		return err;
	mutex_lock(&rtxg_host.objects);
	err = rtxg_host_find_pool(request.name);
	/* what the GPU that it gets does is the caller's */
	for (u32 engine = 0; err >= 0 && engine < RTXG_ENGINES; engine++)
		rtxg_engine_own(task, engine);
	if (err >= 0) {
		int no_memory = task->permit.pool == RTXG_NONE ? keep_thread(task) : 0;

		if (!no_memory) {
			raw_spin_lock_irq(&rtxg_host.lock);
			err = permit_pool_acquire(&rtxg_host.permits, ktime_get_ns(), &task->permit,
						  err);
			raw_spin_unlock_irq(&rtxg_host.lock);
			rtxg_pool_carry_out();
		} else {
			err = no_memory;
		}
	}
	mutex_unlock(&rtxg_host.objects);
	if (err)
		return err;
	for (;;) {
		rtxg_waiters_add(&task->pool_waiters, &waiter);
		set_current_state(TASK_INTERRUPTIBLE);
		raw_spin_lock_irq(&rtxg_host.lock);
		held = task->permit.pool_held;
		/* released meanwhile by another thread of the task */
		if (task->permit.pool == RTXG_NONE)
			err = -ECANCELED;
		raw_spin_unlock_irq(&rtxg_host.lock);
		if (held || err || signal_pending(current))
			break;
		schedule();
		__set_current_state(TASK_RUNNING);
		rtxg_waiters_remove(&task->pool_waiters, &waiter);
	}
	__set_current_state(TASK_RUNNING);
	rtxg_waiters_remove(&task->pool_waiters, &waiter);
	if (!held && !err)
		err = withdraw(task);
	if (err)
		return err;
	mutex_lock(&rtxg_host.objects);
	if (task->permit.pool_gpu < RTXG_HOST_GPUS)
		memcpy(request.gpu, rtxg_host.gpus[task->permit.pool_gpu].name, RTXG_HOST_NAME);
	mutex_unlock(&rtxg_host.objects);
	return rtxg_copy_out(user, &request, sizeof(request), request.size);
}

long rtxg_pool_release(struct khost_task *task, struct rtxg_host_pool __user *user)
{
	struct rtxg_host_pool request;
	int err;

	err = rtxg_host_read_pool(&request, user, false);
	if (err)
		return err;
	mutex_lock(&rtxg_host.objects);
	err = rtxg_host_find_pool(request.name);
	if (err >= 0) {
		raw_spin_lock_irq(&rtxg_host.lock);
		if (task->permit.pool == (u32)err)
			rtxg_engine_pool_leaves(task);
		err = task->permit.pool == (u32)err
			      ? permit_pool_release(&rtxg_host.permits, ktime_get_ns(),
						    &task->permit)
			      : -EPERM;
		raw_spin_unlock_irq(&rtxg_host.lock);
		rtxg_pool_carry_out();
		rtxg_waiters_wake(&task->pool_waiters);
	}
	mutex_unlock(&rtxg_host.objects);
	return err;
}
