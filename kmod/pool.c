// SPDX-License-Identifier: GPL-2.0-only
/*
 * pool.c - several like GPUs behind one lock, as tasks ask for them: advice, acquire, release. The
 * thread that acquired a GPU runs at the priority that it inherits from those it keeps waiting.
 *
 * Only a thread under SCHED_FIFO or SCHED_RR is raised: a thread that is not real-time was not
 * trusted with a CPU, and does not become so by holding a GPU. Its own priority comes back when it
 * inherits nothing any more, which the end of the task is too, unless its priority was set again
 * meanwhile.
 *
 * May not: decide which task gets a GPU, or what is inherited.
 */
#include <linux/sched.h>
#include <linux/sched/rt.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <uapi/linux/sched/types.h>

#include "host.h"
#include "objects.h"
#include "pool.h"

/* ---- inheritance ---- */

/* The calling thread is the one that will hold. objects is held. */
static void keep_holder(struct khost_task *task)
{
	lockdep_assert_held(&rtxg_host.objects);
	rtxg_pool_forget(task);
	task->holder = get_task_struct(current);
}

void rtxg_pool_forget(struct khost_task *task)
{
	if (task->holder)
		put_task_struct(task->holder);
	task->holder = NULL;
	task->raised = 0;
}

/* Under lock, where no thread's priority can be set: that is for rtxg_pool_carry_out. */
void rtxg_pool_inherit(struct khost_task *task, u32 priority)
{
	lockdep_assert_held(&rtxg_host.lock);
	task->inherited = priority;
	if (list_empty(&task->inherits))
		list_add_tail(&task->inherits, &rtxg_host.inherits);
}

static void set_priority(struct task_struct *thread, u32 priority)
{
	const struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = thread->policy,
		.sched_flags = thread->sched_reset_on_fork ? SCHED_FLAG_RESET_ON_FORK : 0,
		.sched_priority = priority,
	};

	sched_setattr_nocheck(thread, &attr);
}

static void raise_or_restore(struct khost_task *task)
{
	struct task_struct *thread = task->holder;
	u32 now;

	if (!thread || (thread->policy != SCHED_FIFO && thread->policy != SCHED_RR))
		return;
	now = thread->rt_priority;
	/* set by another meanwhile: that is its own priority now */
	if (!task->raised || now != task->raised)
		task->own = now;
	task->raised = 0;
	if (task->inherited > task->own) {
		task->raised = task->inherited;
		if (now != task->raised)
			set_priority(thread, task->raised);
	} else if (now != task->own) {
		set_priority(thread, task->own);
	}
}

void rtxg_pool_carry_out(void)
{
	struct khost_task *task;

	lockdep_assert_held(&rtxg_host.objects);
	for (;;) {
		raw_spin_lock_irq(&rtxg_host.lock);
		task = list_first_entry_or_null(&rtxg_host.inherits, struct khost_task, inherits);
		if (task)
			list_del_init(&task->inherits);
		raw_spin_unlock_irq(&rtxg_host.lock);
		if (!task)
			return;
		raise_or_restore(task);
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
		permit_pool_release(&rtxg_host.permits, &task->permit);
	raw_spin_unlock_irq(&rtxg_host.lock);
	rtxg_pool_carry_out();
	mutex_unlock(&rtxg_host.objects);
	return err;
}

long rtxg_pool_acquire(struct khost_task *task, struct rtxg_host_pool __user *user)
{
	struct rtxg_waiter waiter = { .since_ns = ktime_get_mono_fast_ns() };
	struct rtxg_host_pool request;
	bool held;
	int err;

	err = rtxg_host_read_pool(&request, user, false);
	if (err)
		return err;
	mutex_lock(&rtxg_host.objects);
	err = rtxg_host_find_pool(request.name);
	if (err >= 0) {
		if (task->permit.pool == RTXG_NONE)
			keep_holder(task);
		raw_spin_lock_irq(&rtxg_host.lock);
		err = permit_pool_acquire(&rtxg_host.permits, &task->permit, err);
		raw_spin_unlock_irq(&rtxg_host.lock);
		rtxg_pool_carry_out();
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
		err = task->permit.pool == (u32)err
			      ? permit_pool_release(&rtxg_host.permits, &task->permit)
			      : -EPERM;
		raw_spin_unlock_irq(&rtxg_host.lock);
		rtxg_pool_carry_out();
		rtxg_waiters_wake(&task->pool_waiters);
	}
	mutex_unlock(&rtxg_host.objects);
	return err;
}
