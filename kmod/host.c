// SPDX-License-Identifier: GPL-2.0-only
/*
 * host.c - hosts the core in the kernel: what tasks' pages and the clock say becomes events, what
 * the core answers becomes permits.
 *
 * One raw lock covers the core and what is remembered of the lanes; steps are short, allocate
 * nothing and may come from a timer. Pages belong to their tasks, who may write anything into them
 * at any time: a word is read once for each decision, is only compared with what was seen before,
 * and never used as an index or a size.
 *
 * May not: decide who runs; read its own permits back; believe a page.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "cpu/cpu.h"
#include "engine.h"
#include "host.h"
#include "objects.h"
#include "pool.h"

static unsigned int max_tasks = 1024;
module_param(max_tasks, uint, 0444);
MODULE_PARM_DESC(max_tasks, "GPU tasks at a time, 1..4096 (1024)");

static unsigned int max_vgpus = 128;
module_param(max_vgpus, uint, 0444);
MODULE_PARM_DESC(max_vgpus, "vGPUs over all GPUs, 1..1024 (128)");

static char *policy;
module_param(policy, charp, 0444);
MODULE_PARM_DESC(policy,
		 "policy between vGPUs of a GPU that was not configured:" RTXG_GPU_POLICY_NAMES);

unsigned int rtxg_tasks_per_user = 512;
module_param_named(tasks_per_user, rtxg_tasks_per_user, uint, 0644);
MODULE_PARM_DESC(tasks_per_user, "GPU tasks at a time of one user without CAP_SYS_RESOURCE (512)");

struct rtxg_host rtxg_host;

/* ---- what the machine of permits asks for; lock is held ---- */

static void wake(void *unused, struct permit_task *permit, uint32_t engine)
{
	struct khost_task *task = container_of(permit, struct khost_task, permit);

	rtxg_host.owner_changed(khost_account(task)->gpu, engine);
	rtxg_waiters_wake(&task->lanes[engine].waiters);
}

static void arm(void *unused, uint64_t at_ns)
{
	if (at_ns == RTXG_TIME_NEVER)
		hrtimer_try_to_cancel(&rtxg_host.timer);
	else
		hrtimer_start(&rtxg_host.timer, ns_to_ktime(min_t(u64, at_ns, KTIME_MAX)),
			      HRTIMER_MODE_ABS_HARD);
}

static void pool_granted(void *unused, struct permit_task *permit)
{
	struct khost_task *task = container_of(permit, struct khost_task, permit);

	rtxg_engine_pool_holder(permit->pool_gpu, task);
	rtxg_waiters_wake(&task->pool_waiters);
}

static void moved(void *unused, struct permit_task *permit, struct permit_account *from)
{
	struct khost_task *task = container_of(permit, struct khost_task, permit);
	struct khost_account *to = khost_account_of(permit->account);

	to->incoming--;
	to->tasks++;
	khost_account_of(from)->tasks--;
	/*
	 * The limit is the new vGPU's, but what the task was given by the move holds. A move that
	 * was taken back has given nothing.
	 */
	if (from != permit->account)
		WRITE_ONCE(task->priority_limit,
			   rtxg_task_priority_limit(to->task_priority, permit->params.priority));
	rtxg_host.sweep = true;
}

/* The page belongs to the task, and the device: any value is one. */
static bool passed(void *unused, const struct permit_task *permit, uint32_t engine, uint64_t value)
{
	const struct khost_task *task = container_of(permit, struct khost_task, permit);
	const u32 *fence = task->lanes[engine].fence;

	return fence && (s32)(READ_ONCE(*fence) - (u32)value) >= 0;
}

static const struct permit_ops ops = {
	.wake = wake,
	.arm = arm,
	.pool_granted = pool_granted,
	.moved = moved,
	.passed = passed,
};

static enum hrtimer_restart timer_due(struct hrtimer *timer)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&rtxg_host.lock, flags);
	permit_timer(&rtxg_host.permits, ktime_get_ns());
	raw_spin_unlock_irqrestore(&rtxg_host.lock, flags);
	return HRTIMER_NORESTART;
}

/* ---- calls; objects is held ---- */

/*
 * Brings all accounts up to this moment, rather than to the last completion. One task at a time:
 * interrupts are off for no longer.
 */
void rtxg_host_usage(void)
{
	lockdep_assert_held(&rtxg_host.objects);
	for (u32 i = 0; i < rtxg_host.max_tasks; i++) {
		struct khost_task *task = khost_task_at(i);

		if (!task)
			continue;
		raw_spin_lock_irq(&rtxg_host.lock);
		permit_count(&rtxg_host.permits, ktime_get_ns(), &task->permit);
		raw_spin_unlock_irq(&rtxg_host.lock);
	}
}

/* Takes the permits back; the move happens at once, or when the last launch in flight has ended. */
int rtxg_host_move(struct khost_task *task, struct khost_account *to)
{
	struct permit_account *moving_to;

	lockdep_assert_held(&rtxg_host.objects);
	raw_spin_lock_irq(&rtxg_host.lock);
	moving_to = task->permit.moving_to;
	if (moving_to)
		khost_account_of(moving_to)->incoming--;
	if (&to->permit != task->permit.account || moving_to) {
		to->incoming++;
		permit_move(&rtxg_host.permits, ktime_get_ns(), &task->permit, &to->permit);
	}
	raw_spin_unlock_irq(&rtxg_host.lock);
	return 0;
}

/* ---- tasks ---- */

bool rtxg_host_may_use(const struct khost_account *account)
{
	kgid_t gid;

	if (account->group == RTXG_HOST_EVERYBODY) {
		if (!account->users_count)
			return true;
	} else {
		gid = make_kgid(&init_user_ns, account->group);
		if (gid_valid(gid) && in_group_p(gid))
			return true;
	}
	for (u32 i = 0; i < account->users_count; i++)
		if (uid_eq(account->users[i], current_euid()))
			return true;
	return capable(CAP_SYS_NICE);
}

kuid_t rtxg_host_charged_user(void)
{
	const struct user_namespace *ns;
	kuid_t uid = current_euid();

	for (ns = current_user_ns(); ns != &init_user_ns; ns = ns->parent)
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			uid = ns->owner;
	return uid;
}

static bool too_many(kuid_t user)
{
	u32 count = 0;

	for (u32 i = 0; i < rtxg_host.max_tasks; i++)
		count += khost_task_at(i) && uid_eq(khost_task_at(i)->charged, user);
	return count >= READ_ONCE(rtxg_tasks_per_user) && !capable(CAP_SYS_RESOURCE);
}

/* The GPU that a task names; one that is not there yet is made, within its user's limits. */
static int named_gpu(const char *name, kuid_t user)
{
	u32 all = 0, own = 0;
	int gpu = rtxg_host_find_gpu(name);

	if (gpu >= 0)
		return gpu;
	for (u32 i = 0; i < RTXG_HOST_GPUS; i++) {
		const struct khost_gpu *other = &rtxg_host.gpus[i];

		if (!other->used || !other->automatic)
			continue;
		all++;
		own += uid_eq(other->charged, user);
	}
	if ((all >= RTXG_HOST_GPUS_NAMED || own >= RTXG_HOST_GPUS_OF_A_USER) &&
	    !capable(CAP_SYS_RESOURCE))
		return -ENOSPC;
	gpu = rtxg_host_get_gpu(name, true);
	if (gpu >= 0)
		rtxg_host.gpus[gpu].charged = user;
	return gpu;
}

static struct khost_task *make_task(void)
{
	struct khost_task *task = kzalloc(sizeof(*task), GFP_KERNEL_ACCOUNT);

	if (!task)
		return NULL;
	task->permit.page = (struct rtxg_page *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	if (!task->permit.page) {
		kfree(task);
		return NULL;
	}
	task->pid = get_task_pid(current, PIDTYPE_TGID);
	task->opener = get_task_struct(current);
	task->uid = current_euid();
	task->charged = rtxg_host_charged_user();
	rtxg_waiters_init(&task->pool_waiters, NULL);
	for (u32 i = 0; i < RTXG_ENGINES; i++) {
		rtxg_waiters_init(&task->lanes[i].waiters, NULL);
		rtxg_waiters_init(&task->lanes[i].syncs, rtxg_cpu_charge_gpu);
	}
	return task;
}

/* Where the device writes for that lane; NULL: nowhere. */
static void set_fence(struct khost_task *task, u32 lane, struct page *page, const u32 *word)
{
	raw_spin_lock_irq(&rtxg_host.lock);
	swap(task->lanes[lane].fence_page, page);
	task->lanes[lane].fence = word;
	raw_spin_unlock_irq(&rtxg_host.lock);
	if (page)
		unpin_user_page(page);
}

static void drop_task(struct khost_task *task)
{
	for (u32 i = 0; i < RTXG_ENGINES; i++) {
		set_fence(task, i, NULL, NULL);
		if (task->lanes[i].thread)
			put_task_struct(task->lanes[i].thread);
	}
	put_task_struct(task->opener);
	/* a mapping of it may outlive us: the page itself goes with its last user */
	free_page((unsigned long)task->permit.page);
	put_pid(task->pid);
	kfree(task);
}

/* A task has come or gone. */
static void tasks_changed(void)
{
	lockdep_assert_held(&rtxg_host.objects);
	WRITE_ONCE(rtxg_host.changes, rtxg_host.changes + 1);
	if (rtxg_host.front)
		wake_up_interruptible(&rtxg_host.front_wait);
}

/* Whether the caller may is asked last: an answer leaves its mark on the process. */
static bool may_have_priority(u32 limit, u32 asked)
{
	return rtxg_task_priority_allowed(limit, asked, false) ||
	       rtxg_task_priority_allowed(limit, asked, capable(CAP_SYS_NICE));
}

static int enter(struct khost_task *task, struct rtxg_host_open *open)
{
	static const struct rtxg_vgpu_params plain;
	struct rtxg_task_params params = { .runtime_ns = open->runtime_ns,
					   .deadline_ns = open->deadline_ns,
					   .period_ns = open->period_ns };
	struct khost_account *account;
	bool made = true;
	int gpu, err;
	u32 number;

	if (too_many(task->charged))
		return -EDQUOT;
	/* a name without a configuration is only taken if there is a vGPU to put the task into */
	gpu = strcmp(open->vgpu, "default") ? rtxg_host_find_gpu(open->gpu)
					    : named_gpu(open->gpu, task->charged);
	if (gpu < 0)
		return gpu;
	account = rtxg_host_find_account(gpu, open->vgpu);
	if (!account && strcmp(open->vgpu, "default"))
		return -ENOENT;
	if (!account)
		account = rtxg_host_new_account(gpu, open->vgpu, &plain);
	else
		made = false;
	if (IS_ERR(account)) {
		rtxg_host_drop_automatic_gpu(gpu);
		return PTR_ERR(account);
	}
	account->automatic |= made;
	err = -EACCES;
	if (!rtxg_host_may_use(account))
		goto drop;
	err = -EPERM;
	if (!may_have_priority(account->task_priority, open->priority))
		goto drop;
	params.priority = rtxg_task_priority(account->task_priority, open->priority);
	for (number = 0; number < max_tasks && khost_task_at(number); number++)
		;
	err = -ENOSPC;
	if (number == max_tasks)
		goto drop;
	task->permit.id = number;
	task->permit.account = &account->permit;
	task->permit.params = params;
	task->serial = ++rtxg_host.serial;
	task->priority_limit = rtxg_task_priority_limit(account->task_priority, params.priority);
	*task->permit.page = (struct rtxg_page){
		.magic = RTXG_PAGE_MAGIC,
		.version = RTXG_PAGE_VERSION,
		.size = sizeof(struct rtxg_page),
		.gpu = gpu,
		.host_generation = rtxg_host.generation,
		.flags = RTXG_PAGE_F_FAIL_CLOSED,
	};
	raw_spin_lock_irq(&rtxg_host.lock);
	err = rtxg_host_answered(permit_open(&rtxg_host.permits, ktime_get_ns(), &task->permit));
	if (!err)
		account->tasks++;
	raw_spin_unlock_irq(&rtxg_host.lock);
	if (err)
		goto drop;
	rtxg_host.tasks_count++;
	tasks_changed();
	return 0;
drop:
	rtxg_host_drop_automatic(account);
	return err;
}

int rtxg_host_open(struct rtxg_file *file, struct rtxg_host_open *open)
{
	struct khost_task *task;
	int err;

	if (open->flags || !rtxg_all_zero(open->reserved, sizeof(open->reserved)) ||
	    !rtxg_host_good_name(open->gpu, "0") || !rtxg_host_good_name(open->vgpu, "default"))
		return -EINVAL;
	task = make_task();
	if (!task)
		return -ENOMEM;
	mutex_lock(&file->lock);
	rtxg_host_begin();
	rtxg_host_sweep();
	err = file->gpu_task ? -EALREADY : enter(task, open);
	rtxg_host_end(file);
	if (!err)
		/* calls that need no lock see a finished task or none */
		smp_store_release(&file->gpu_task, task);
	mutex_unlock(&file->lock);
	if (err) {
		drop_task(task);
		return err;
	}
	open->task = task->permit.id;
	open->generation = rtxg_host.generation;
	return 0;
}

static long host_open(struct rtxg_file *file, struct rtxg_host_open __user *user)
{
	struct rtxg_host_open open;
	int err;

	err = rtxg_copy_in(&open, sizeof(open), sizeof(open), user);
	if (!err)
		err = rtxg_host_open(file, &open);
	return err ?: rtxg_copy_out(user, &open, sizeof(open), open.size);
}

/*
 * The file is closing, no call is under way on it: whatever the task held or wanted is free at
 * once.
 */
void rtxg_host_release(struct rtxg_file *file)
{
	struct khost_task *task = file->gpu_task;
	struct khost_account *account;

	if (!task)
		return;
	mutex_lock(&rtxg_host.objects);
	raw_spin_lock_irq(&rtxg_host.lock);
	account = khost_account(task);
	rtxg_engine_pool_leaves(task);
	if (task->permit.moving_to)
		khost_account_of(task->permit.moving_to)->incoming--;
	permit_close(&rtxg_host.permits, ktime_get_ns(), &task->permit);
	account->tasks--;
	raw_spin_unlock_irq(&rtxg_host.lock);
	rtxg_pool_carry_out();
	rtxg_pool_forget(task);
	rtxg_host.tasks_count--;
	rtxg_host_drop_automatic(account);
	rtxg_host_sweep();
	tasks_changed();
	mutex_unlock(&rtxg_host.objects);
	file->gpu_task = NULL;
	drop_task(task);
}

int rtxg_host_mmap(struct rtxg_file *file, struct vm_area_struct *vma)
{
	struct khost_task *task = smp_load_acquire(&file->gpu_task);

	if (!task)
		return -EBADFD;
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != PAGE_SIZE ||
	    !(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC)
		return -EINVAL;
	/* no child and no debugger's core gets it */
	rtxg_vm_flags(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);
	return vm_insert_page(vma, vma->vm_start, virt_to_page(task->permit.page));
}

static long host_ring(struct khost_task *task)
{
	raw_spin_lock_irq(&rtxg_host.lock);
	permit_ring(&rtxg_host.permits, ktime_get_ns(), &task->permit);
	raw_spin_unlock_irq(&rtxg_host.lock);
	return 0;
}

/*
 * The word may be in any memory of the caller's: what a driver maps is often not to be written, and
 * what is not written yet has to get its own page first.
 */
static long host_fence(struct khost_task *task, const struct rtxg_host_fence __user *user)
{
	struct rtxg_host_fence fence;
	struct page *page = NULL;
	const u32 *word = NULL;
	int err;

	err = rtxg_copy_in(&fence, sizeof(fence), sizeof(fence), user);
	if (err)
		return err;
	if (fence.lane >= RTXG_ENGINES || fence.word % sizeof(u32) ||
	    !rtxg_all_zero(fence.reserved, sizeof(fence.reserved)))
		return -EINVAL;
	if (fence.word) {
		err = pin_user_pages_fast(fence.word & PAGE_MASK, 1, FOLL_WRITE | FOLL_LONGTERM,
					  &page);
		if (err != 1)
			err = pin_user_pages_fast(fence.word & PAGE_MASK, 1, FOLL_LONGTERM, &page);
		if (err != 1)
			return err == -ENOMEM ? err : -EFAULT;
		if (PageHighMem(page)) {
			unpin_user_page(page);
			return -EOPNOTSUPP;
		}
		word = page_address(page) + offset_in_page(fence.word);
	}
	set_fence(task, fence.lane, page, word);
	/* who sleeps until the former word has changed looks at this one, or at none */
	rtxg_waiters_wake(&task->lanes[fence.lane].syncs);
	rtxg_engine_own(task, fence.lane);
	return 0;
}

static long host_wait(struct khost_task *task, const struct rtxg_host_wait __user *user)
{
	/* what the engine does now is another task's: the time is not charged (cpu/deadline.c) */
	struct rtxg_waiter waiter = {};
	struct rtxg_host_wait wait;
	struct khost_lane *lane;
	const u32 *permit;
	long result;
	ktime_t end;
	u32 wakes;

	result = rtxg_copy_in(&wait, sizeof(wait), sizeof(wait), user);
	if (result)
		return result;
	if (wait.lane >= RTXG_ENGINES || wait.reserved)
		return -EINVAL;
	rtxg_engine_own(task, wait.lane);
	lane = &task->lanes[wait.lane];
	permit = &task->permit.page->lanes[wait.lane].permit;
	wakes = READ_ONCE(lane->wakes);
	end = ns_to_ktime(min_t(u64, wait.until_ns, KTIME_MAX));
	for (;;) {
		if (!rtxg_waiters_try_add(&lane->waiters, &waiter, RTXG_HOST_WAITERS))
			return -EAGAIN;
		set_current_state(TASK_INTERRUPTIBLE);
		if (READ_ONCE(*permit) != wait.value || READ_ONCE(lane->wakes) != wakes)
			result = 0;
		else if (signal_pending(current))
			result = -ERESTARTSYS;
		else if (wait.until_ns != U64_MAX && ktime_compare(ktime_get(), end) >= 0)
			result = -ETIMEDOUT;
		else
			result = 1;
		if (result <= 0)
			break;
		/* what keeps this thread waiting is as urgent as this thread */
		rtxg_engine_ask(task, wait.lane);
		schedule_hrtimeout(wait.until_ns == U64_MAX ? NULL : &end, HRTIMER_MODE_ABS);
		__set_current_state(TASK_RUNNING);
		rtxg_waiters_remove(&lane->waiters, &waiter);
	}
	__set_current_state(TASK_RUNNING);
	rtxg_waiters_remove(&lane->waiters, &waiter);
	return result;
}

/*
 * Sleeps until the fence has passed. The time is charged to a SCHED_DEADLINE thread when the
 * interrupt wakes it.
 */
static long host_sync(struct khost_task *task, const struct rtxg_host_sync __user *user)
{
	struct rtxg_waiter waiter = {};
	struct rtxg_host_sync sync;
	struct khost_lane *lane;
	long result;
	ktime_t end;
	u32 wakes;

	result = rtxg_copy_in(&sync, sizeof(sync), sizeof(sync), user);
	if (result)
		return result;
	if (sync.lane >= RTXG_ENGINES || !rtxg_all_zero(sync.reserved, sizeof(sync.reserved)))
		return -EINVAL;
	rtxg_engine_own(task, sync.lane);
	lane = &task->lanes[sync.lane];
	wakes = READ_ONCE(lane->wakes);
	end = ns_to_ktime(min_t(u64, sync.until_ns, KTIME_MAX));
	for (result = 1; result > 0;) {
		waiter.since_ns = ktime_get_mono_fast_ns();
		if (!rtxg_waiters_try_add(&lane->syncs, &waiter, RTXG_HOST_WAITERS))
			return -EAGAIN;
		set_current_state(TASK_INTERRUPTIBLE);
		raw_spin_lock_irq(&rtxg_host.lock);
		if (!lane->fence || !rtxg_engine_bound(khost_account(task)->gpu, sync.lane))
			result = -EOPNOTSUPP;
		else if (passed(NULL, &task->permit, sync.lane, sync.value))
			result = 0;
		raw_spin_unlock_irq(&rtxg_host.lock);
		if (result > 0 && signal_pending(current))
			result = -ERESTARTSYS;
		else if (result > 0 &&
			 (READ_ONCE(lane->wakes) != wakes ||
			  (sync.until_ns != U64_MAX && ktime_compare(ktime_get(), end) >= 0)))
			result = -ETIMEDOUT;
		if (result > 0)
			schedule_hrtimeout(sync.until_ns == U64_MAX ? NULL : &end,
					   HRTIMER_MODE_ABS);
		__set_current_state(TASK_RUNNING);
		rtxg_waiters_remove(&lane->syncs, &waiter);
	}
	return result;
}

static long host_wake(struct khost_task *task, unsigned long lane)
{
	if (lane >= RTXG_ENGINES)
		return -EINVAL;
	WRITE_ONCE(task->lanes[lane].wakes, task->lanes[lane].wakes + 1);
	smp_mb(); /* a waiter that is not in the list yet sees the count */
	rtxg_waiters_wake(&task->lanes[lane].waiters);
	rtxg_waiters_wake(&task->lanes[lane].syncs);
	return 0;
}

/* objects is held. */
int rtxg_host_set_task(struct khost_task *task, const struct rtxg_task_params *params)
{
	int err;

	lockdep_assert_held(&rtxg_host.objects);
	raw_spin_lock_irq(&rtxg_host.lock);
	err = rtxg_host_answered(
		permit_set(&rtxg_host.permits, ktime_get_ns(), &task->permit, params));
	raw_spin_unlock_irq(&rtxg_host.lock);
	return err;
}

/* A value of 0 stays as it is. */
int rtxg_host_set(struct rtxg_file *file, const struct rtxg_host_set *set,
		  struct rtxg_host_set *before)
{
	struct khost_task *task = smp_load_acquire(&file->gpu_task);
	struct rtxg_task_params params;
	int err;

	if (!task)
		return -EBADFD;
	if (!rtxg_all_zero(set->reserved, sizeof(set->reserved)))
		return -EINVAL;
	rtxg_host_begin();
	*before = (struct rtxg_host_set){ .priority = task->permit.params.priority,
					  .runtime_ns = task->permit.params.runtime_ns,
					  .deadline_ns = task->permit.params.deadline_ns,
					  .period_ns = task->permit.params.period_ns };
	params = (struct rtxg_task_params){
		.priority = set->priority ?: task->permit.params.priority,
		.runtime_ns = set->runtime_ns ?: task->permit.params.runtime_ns,
		.deadline_ns = set->deadline_ns ?: task->permit.params.deadline_ns,
		.period_ns = set->period_ns ?: task->permit.params.period_ns,
	};
	if (!may_have_priority(READ_ONCE(task->priority_limit), set->priority))
		err = -EPERM;
	else
		err = rtxg_host_set_task(task, &params);
	rtxg_host_end(file);
	return err;
}

void rtxg_host_set_back(struct rtxg_file *file, const struct rtxg_host_set *before)
{
	const struct rtxg_task_params params = { .priority = before->priority,
						 .runtime_ns = before->runtime_ns,
						 .deadline_ns = before->deadline_ns,
						 .period_ns = before->period_ns };

	rtxg_host_begin();
	WARN_ON_ONCE(rtxg_host_set_task(smp_load_acquire(&file->gpu_task), &params));
	rtxg_host_end(file);
}

static long host_set(struct rtxg_file *file, const struct rtxg_host_set __user *user)
{
	struct rtxg_host_set set, before;
	int err;

	err = rtxg_copy_in(&set, sizeof(set), sizeof(set), user);
	return err ?: rtxg_host_set(file, &set, &before);
}

long rtxg_host_ioctl(struct rtxg_file *file, unsigned int command, unsigned long argument)
{
	struct khost_task *task = smp_load_acquire(&file->gpu_task);
	void __user *user = (void __user *)argument;

	switch (command) {
	case RTXG_IOC_HOST_OPEN:
		return host_open(file, user);
	case RTXG_IOC_HOST_ADVICE:
		return rtxg_pool_advice(user);
	}
	/* the rest is for tasks */
	switch (command) {
	case RTXG_IOC_HOST_RING:
		return task ? host_ring(task) : -EBADFD;
	case RTXG_IOC_HOST_WAIT:
		return task ? host_wait(task, user) : -EBADFD;
	case RTXG_IOC_HOST_WAKE:
		return task ? host_wake(task, argument) : -EBADFD;
	case RTXG_IOC_HOST_FENCE:
		return task ? host_fence(task, user) : -EBADFD;
	case RTXG_IOC_HOST_SYNC:
		return task ? host_sync(task, user) : -EBADFD;
	case RTXG_IOC_HOST_SET:
		return host_set(file, user);
	case RTXG_IOC_HOST_ACQUIRE:
		return task ? rtxg_pool_acquire(task, user) : -EBADFD;
	case RTXG_IOC_HOST_RELEASE:
		return task ? rtxg_pool_release(task, user) : -EBADFD;
	}
	return -ENOTTY;
}

int rtxg_host_init(void)
{
	struct rtxg_limits limits = { .gpus = RTXG_HOST_GPUS, .pools = RTXG_HOST_POOLS };
	struct permit_task **table;
	size_t size;
	u32 p;

	if (max_tasks < 1 || max_tasks > 4096 || max_vgpus < 1 || max_vgpus > 1024) {
		pr_err("rtxg: max_tasks=%u must be 1..4096, max_vgpus=%u 1..1024\n", max_tasks,
		       max_vgpus);
		return -EINVAL;
	}
	if (!policy)
		policy = (char *)rtxg_gpu_policy_name(RTXG_GPU_POLICY_DEFAULT);
	p = rtxg_gpu_policy_find(policy);
	if (p == RTXG_NONE) {
		pr_err("rtxg: policy=%s is none of %s\n", policy, rtxg_gpu_policy_names());
		return -EINVAL;
	}
	limits.tasks = max_tasks;
	limits.vgpus = max_vgpus;
	size = rtxg_core_size(&limits);
	rtxg_host.memory = size ? kvzalloc(size, GFP_KERNEL) : NULL;
	table = kvcalloc(max_tasks, sizeof(*table), GFP_KERNEL);
	rtxg_host.accounts = kvcalloc(max_vgpus, sizeof(*rtxg_host.accounts), GFP_KERNEL);
	if (!rtxg_host.memory || !table || !rtxg_host.accounts) {
		kvfree(rtxg_host.memory);
		kvfree(table);
		kvfree(rtxg_host.accounts);
		return -ENOMEM;
	}
	permit_init(&rtxg_host.permits,
		    rtxg_core_init(rtxg_host.memory, size, &limits, ktime_get_ns()), &limits, table,
		    &ops, NULL);
	rtxg_host.gpu_default = rtxg_core_gpu_defaults();
	rtxg_host.gpu_default.policy = p;
	rtxg_host.max_tasks = max_tasks;
	rtxg_host.max_vgpus = max_vgpus;
	rtxg_host.generation = get_random_u64() | 1;
	raw_spin_lock_init(&rtxg_host.lock);
	mutex_init(&rtxg_host.objects);
	init_waitqueue_head(&rtxg_host.front_wait);
	rtxg_hrtimer_setup(&rtxg_host.timer, timer_due, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_HARD);
	return 0;
}

void rtxg_host_exit(void)
{
	hrtimer_cancel(&rtxg_host.timer);
	kvfree(rtxg_host.memory);
	kvfree(rtxg_host.permits.tasks);
	kvfree(rtxg_host.accounts);
}
