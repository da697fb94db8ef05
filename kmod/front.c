// SPDX-License-Identifier: GPL-2.0-only
/*
 * front.c - objects by ioctl, and what people see and change of them: the calls of rtxgd, which
 * speaks to people when the module hosts. Everything here runs in a process, and is bounded: lists
 * are handed out some entries at a time.
 *
 * May not: decide who runs; touch a page's words (host.c does that); give one user's data to
 * another without CAP_SYS_NICE.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "front.h"
#include "host.h"
#include "objects.h"
#include "pool.h"

/* ---- GPUs, vGPUs, pools ---- */

static struct rtxg_gpu_params gpu_params(const struct rtxg_host_gpu *gpu)
{
	return (struct rtxg_gpu_params){
		.policy = gpu->policy,
		.overrun = gpu->overrun,
		.period_ns = gpu->period_ns,
		.window_ns = gpu->window_ns,
		.band_wait_ns = gpu->band_wait_ns,
		.think_ns = gpu->think_ns,
		.revoke_timeout_ns = gpu->revoke_timeout_ns,
		.switch_ppm = gpu->switch_ppm,
		.ahead_ns = gpu->ahead_ns,
		.early_ns = gpu->early_ns,
	};
}

/* A GPU that was made for a call that is refused. Under objects. */
static void unmake_gpu(int number)
{
	const struct rtxg_event event = { .type = RTXG_EV_GPU_REMOVE, .gpu = number };

	if (!rtxg_host_event(&event))
		WRITE_ONCE(rtxg_host.gpus[number].used, false);
}

static long host_gpu(struct rtxg_file *file, struct rtxg_host_gpu __user *user)
{
	struct rtxg_event event = { .type = RTXG_EV_GPU_SET };
	struct rtxg_host_gpu gpu;
	int err, number;
	bool made;

	err = rtxg_copy_in(&gpu, sizeof(gpu), sizeof(gpu), user);
	if (err)
		return err;
	if (gpu.flags & ~RTXG_HOST_F_REMOVE || gpu.tasks || !rtxg_host_good_name(gpu.name, NULL) ||
	    gpu.reserved0 || !rtxg_all_zero(gpu.reserved, sizeof(gpu.reserved)))
		return -EINVAL;
	event.gpu_params = gpu_params(&gpu);
	rtxg_host_begin();
	made = rtxg_host_find_gpu(gpu.name) < 0;
	number = gpu.flags & RTXG_HOST_F_REMOVE ? rtxg_host_find_gpu(gpu.name)
						: rtxg_host_get_gpu(gpu.name, false);
	if (number >= 0) {
		event.gpu = number;
		if (gpu.flags & RTXG_HOST_F_REMOVE)
			event = (struct rtxg_event){ .type = RTXG_EV_GPU_REMOVE, .gpu = number };
		if (gpu.flags & RTXG_HOST_F_REMOVE &&
		    !rtxg_all_zero(rtxg_host.gpus[number].bound,
				   sizeof(rtxg_host.gpus[number].bound)))
			err = -EBUSY;
		else
			err = rtxg_host_event(&event);
		if (!err && gpu.flags & RTXG_HOST_F_REMOVE) {
			WRITE_ONCE(rtxg_host.gpus[number].used, false);
		} else if (!err) {
			rtxg_host.gpus[number].params = event.gpu_params;
			rtxg_host.gpus[number].cookie = gpu.cookie;
		} else if (made) {
			unmake_gpu(number);
		}
	}
	rtxg_host_end(file);
	if (number < 0 || err)
		return number < 0 ? number : err;
	gpu.number = number;
	return rtxg_copy_out(user, &gpu, sizeof(gpu), gpu.size);
}

static long host_vgpu(struct rtxg_file *file, const struct rtxg_host_vgpu __user *user)
{
	struct rtxg_host_vgpu vgpu;
	kuid_t users[RTXG_HOST_USERS];
	struct rtxg_event event = {};
	struct khost_account *account;
	int err, gpu;
	bool made;

	err = rtxg_copy_in(&vgpu, sizeof(vgpu), sizeof(vgpu), user);
	if (err)
		return err;
	if (vgpu.flags & ~RTXG_HOST_F_REMOVE || !rtxg_host_good_name(vgpu.name, NULL) ||
	    !rtxg_host_good_name(vgpu.gpu, "0") || vgpu.users_count > RTXG_HOST_USERS ||
	    vgpu.task_priority > RTXG_PRIORITY_MAX ||
	    !rtxg_all_zero(vgpu.reserved, sizeof(vgpu.reserved)))
		return -EINVAL;
	for (u32 i = 0; i < vgpu.users_count; i++)
		/* a number of no user admits no user */
		users[i] = make_kuid(&init_user_ns, vgpu.users[i]);
	event.vgpu_params = (struct rtxg_vgpu_params){
		.min_ppm = vgpu.min_ppm,
		.max_ppm = vgpu.max_ppm,
		.weight = vgpu.weight,
		.priority = vgpu.priority,
		.period_ns = vgpu.period_ns,
		.policy = vgpu.policy,
	};
	rtxg_host_begin();
	rtxg_host_sweep();
	made = rtxg_host_find_gpu(vgpu.gpu) < 0;
	gpu = vgpu.flags & RTXG_HOST_F_REMOVE ? rtxg_host_find_gpu(vgpu.gpu)
					      : rtxg_host_get_gpu(vgpu.gpu, false);
	if (gpu < 0) {
		err = gpu;
		goto out;
	}
	account = rtxg_host_find_account(gpu, vgpu.name);
	if (vgpu.flags & RTXG_HOST_F_REMOVE) {
		err = -ENOENT;
		if (account) {
			event = (struct rtxg_event){ .type = RTXG_EV_VGPU_REMOVE,
						     .vgpu = account->permit.vgpu };
			/*
			 * a task on its way here is not known to the core, and comes from where it
			 * might go at any time
			 */
			err = READ_ONCE(account->incoming) ? -EBUSY : rtxg_host_event(&event);
			if (!err)
				account->used = false;
		}
	} else {
		if (account) {
			event.type = RTXG_EV_VGPU_SET;
			event.vgpu = account->permit.vgpu;
			err = rtxg_host_event(&event);
		} else {
			account = rtxg_host_new_account(gpu, vgpu.name, &event.vgpu_params);
			err = PTR_ERR_OR_ZERO(account);
		}
		if (!err) {
			account->automatic = false;
			account->params = event.vgpu_params;
			account->group = vgpu.group;
			account->task_priority = vgpu.task_priority;
			account->users_count = vgpu.users_count;
			memcpy(account->users, users, sizeof(users[0]) * vgpu.users_count);
			account->cookie = vgpu.cookie;
		} else if (made) {
			unmake_gpu(gpu);
		}
	}
out:
	rtxg_host_end(file);
	return err;
}

static long host_pool(struct rtxg_file *file, const struct rtxg_host_pool __user *user)
{
	struct rtxg_event event = { .type = RTXG_EV_POOL_ADD };
	struct rtxg_host_pool request;
	int err, number;

	err = rtxg_host_read_pool(&request, user, true);
	if (err)
		return err;
	rtxg_host_begin();
	number = rtxg_host_find_pool(request.name);
	if (request.flags & RTXG_HOST_F_REMOVE) {
		err = number;
		if (number >= 0) {
			event = (struct rtxg_event){ .type = RTXG_EV_POOL_REMOVE, .pool = number };
			err = rtxg_host_event(&event);
			if (!err)
				rtxg_host.pools[number].used = false;
		}
	} else if (number >= 0) {
		err = -EEXIST;
	} else {
		for (event.pool = 0;
		     event.pool < RTXG_HOST_POOLS && rtxg_host.pools[event.pool].used; event.pool++)
			;
		event.gpu_mask = request.mask;
		err = event.pool < RTXG_HOST_POOLS ? rtxg_host_event(&event) : -ENOSPC;
		if (!err) {
			rtxg_host.pools[event.pool].used = true;
			rtxg_host.pools[event.pool].mask = request.mask;
			memcpy(rtxg_host.pools[event.pool].name, request.name, RTXG_HOST_NAME);
		}
	}
	rtxg_host_end(file);
	return err;
}

static long host_stats(struct khost_task *task, struct rtxg_host_stats __user *user)
{
	struct rtxg_account_view view = {};
	struct rtxg_host_stats stats;
	struct khost_account *account;
	int err, gpu;

	err = rtxg_copy_in(&stats, sizeof(stats), sizeof(stats), user);
	if (err)
		return err;
	if (stats.engine >= RTXG_ENGINES || !rtxg_all_zero(stats.reserved, sizeof(stats.reserved)))
		return -EINVAL;
	mutex_lock(&rtxg_host.objects);
	if (!stats.gpu[0]) {
		err = task ? 0 : -EBADFD;
		raw_spin_lock_irq(&rtxg_host.lock);
		if (!err)
			err = rtxg_core_task_stats(rtxg_host.permits.core, task->permit.id,
						   stats.engine, &view.stats);
		raw_spin_unlock_irq(&rtxg_host.lock);
	} else {
		err = -EINVAL;
		if (rtxg_host_good_name(stats.gpu, NULL) &&
		    rtxg_host_good_name(stats.vgpu, "default")) {
			gpu = rtxg_host_find_gpu(stats.gpu);
			account = gpu < 0 ? NULL : rtxg_host_find_account(gpu, stats.vgpu);
			err = !account ? -ENOENT : rtxg_host_may_use(account) ? 0 : -EACCES;
			if (!err) {
				raw_spin_lock_irq(&rtxg_host.lock);
				err = rtxg_core_vgpu_view(rtxg_host.permits.core,
							  account->permit.vgpu, stats.engine,
							  ktime_get_ns(), &view);
				raw_spin_unlock_irq(&rtxg_host.lock);
			}
		}
	}
	mutex_unlock(&rtxg_host.objects);
	if (err)
		return err;
	stats.stats = view.stats;
	stats.credit_ns = view.credit_ns;
	stats.used_ppm = view.used_ppm;
	stats.waiting = view.waiting;
	stats.tasks = view.tasks;
	return rtxg_copy_out(user, &stats, sizeof(stats), stats.size);
}

/* ---- the front ---- */

static long host_info(struct rtxg_host_info __user *user)
{
	struct rtxg_host_info info;
	int err = rtxg_copy_in(&info, sizeof(info), sizeof(info), user);

	if (err)
		return err;
	if (info.flags || !rtxg_all_zero(info.reserved, sizeof(info.reserved)))
		return -EINVAL;
	mutex_lock(&rtxg_host.objects);
	info = (struct rtxg_host_info){
		.size = info.size,
		.generation = rtxg_host.generation,
		.has_front = rtxg_host.front != NULL,
		.front = rtxg_host.front ? pid_vnr(rtxg_host.front_pid) : 0,
		.max_tasks = rtxg_host.max_tasks,
		.max_vgpus = rtxg_host.max_vgpus,
		.max_gpus = RTXG_HOST_GPUS,
		.max_pools = RTXG_HOST_POOLS,
		.tasks = rtxg_host.tasks_count,
		.tasks_per_user = READ_ONCE(rtxg_tasks_per_user),
	};
	mutex_unlock(&rtxg_host.objects);
	return rtxg_copy_out(user, &info, sizeof(info), info.size);
}

/*
 * Parameters that no GPU could have are refused here, where a person reads the answer, and not
 * where a task comes.
 */
static int try_params(const struct rtxg_gpu_params *params)
{
	struct rtxg_event event = { .type = RTXG_EV_GPU_ADD, .gpu_params = *params };
	int err;

	for (event.gpu = 0; event.gpu < RTXG_HOST_GPUS && rtxg_host.gpus[event.gpu].used;
	     event.gpu++)
		;
	if (event.gpu == RTXG_HOST_GPUS)
		return -ENOSPC;
	err = rtxg_host_event(&event);
	if (err)
		return err;
	event = (struct rtxg_event){ .type = RTXG_EV_GPU_REMOVE, .gpu = event.gpu };
	return rtxg_host_event(&event);
}

static long host_front(struct rtxg_file *file, const struct rtxg_host_front __user *user)
{
	struct rtxg_gpu_params params;
	struct rtxg_host_front front;
	int err = rtxg_copy_in(&front, sizeof(front), sizeof(front), user);

	if (err)
		return err;
	if (front.flags || front.reserved0 ||
	    !rtxg_all_zero(front.reserved, sizeof(front.reserved)) || front.gpu.size ||
	    front.gpu.flags || front.gpu.number || front.gpu.cookie || front.gpu.tasks ||
	    front.gpu.name[0] || front.gpu.reserved0 ||
	    !rtxg_all_zero(front.gpu.reserved, sizeof(front.gpu.reserved)))
		return -EINVAL;
	params = gpu_params(&front.gpu);
	rtxg_host_begin();
	err = rtxg_host.front && rtxg_host.front != file ? -EBUSY : try_params(&params);
	if (!err) {
		rtxg_host.gpu_default = params;
		if (front.tasks_per_user)
			WRITE_ONCE(rtxg_tasks_per_user, front.tasks_per_user);
		if (!rtxg_host.front)
			rtxg_host.front_pid = get_task_pid(current, PIDTYPE_TGID);
		rtxg_host.front = file;
	}
	rtxg_host_end(file);
	return err;
}

void rtxg_front_release(struct rtxg_file *file)
{
	if (READ_ONCE(rtxg_host.front) != file)
		return;
	mutex_lock(&rtxg_host.objects);
	rtxg_host.front = NULL;
	put_pid(rtxg_host.front_pid);
	rtxg_host.front_pid = NULL;
	mutex_unlock(&rtxg_host.objects);
}

__poll_t rtxg_front_poll(struct file *file, struct rtxg_file *rtxg, struct poll_table_struct *table)
{
	poll_wait(file, &rtxg_host.front_wait, table);
	return READ_ONCE(rtxg_host.front) == rtxg &&
			       READ_ONCE(rtxg_host.changes) != READ_ONCE(rtxg->seen)
		       ? EPOLLIN | EPOLLRDNORM
		       : 0;
}

static long host_refusal(struct rtxg_file *file, struct rtxg_host_refusal __user *user)
{
	struct rtxg_host_refusal refusal;
	int err = rtxg_copy_in(&refusal, sizeof(refusal), sizeof(refusal), user);

	if (err)
		return err;
	if (refusal.flags || !rtxg_all_zero(refusal.reserved, sizeof(refusal.reserved)))
		return -EINVAL;
	memset(refusal.what, 0, sizeof(refusal.what));
	mutex_lock(&rtxg_host.objects);
	if (file->refused)
		strscpy(refusal.what, file->refused, sizeof(refusal.what));
	refusal.value = file->refused ? file->refused_value : 0;
	refusal.limit = file->refused ? file->refused_limit : 0;
	mutex_unlock(&rtxg_host.objects);
	return rtxg_copy_out(user, &refusal, sizeof(refusal), refusal.size);
}

/* ---- lists ---- */

static bool list_gpu(u32 number, struct rtxg_host_gpu *out)
{
	const struct khost_gpu *gpu = &rtxg_host.gpus[number];

	if (!gpu->used)
		return false;
	*out = (struct rtxg_host_gpu){
		.size = sizeof(*out),
		.flags = gpu->automatic ? RTXG_HOST_F_AUTOMATIC : 0,
		.policy = gpu->params.policy,
		.overrun = gpu->params.overrun,
		.period_ns = gpu->params.period_ns,
		.window_ns = gpu->params.window_ns,
		.band_wait_ns = gpu->params.band_wait_ns,
		.think_ns = gpu->params.think_ns,
		.revoke_timeout_ns = gpu->params.revoke_timeout_ns,
		.switch_ppm = gpu->params.switch_ppm,
		.ahead_ns = gpu->params.ahead_ns,
		.early_ns = gpu->params.early_ns,
		.number = number,
		.cookie = gpu->cookie,
	};
	memcpy(out->name, gpu->name, sizeof(out->name));
	for (u32 i = 0; i < rtxg_host.max_vgpus; i++)
		if (rtxg_host.accounts[i].used && rtxg_host.accounts[i].gpu == number)
			out->tasks += READ_ONCE(rtxg_host.accounts[i].tasks);
	return true;
}

static bool list_account(u32 number, struct rtxg_host_account *out)
{
	const struct khost_account *account = &rtxg_host.accounts[number];

	if (!account->used)
		return false;
	*out = (struct rtxg_host_account){
		.number = number,
		.flags = account->automatic ? RTXG_HOST_F_AUTOMATIC : 0,
		.vgpu = { .size = sizeof(out->vgpu),
			  .min_ppm = account->params.min_ppm,
			  .max_ppm = account->params.max_ppm,
			  .weight = account->params.weight,
			  .priority = account->params.priority,
			  .period_ns = account->params.period_ns,
			  .policy = account->params.policy,
			  .group = account->group,
			  .task_priority = account->task_priority,
			  .users_count = account->users_count,
			  .cookie = account->cookie },
	};
	memcpy(out->vgpu.name, account->name, sizeof(out->vgpu.name));
	memcpy(out->vgpu.gpu, rtxg_host.gpus[account->gpu].name, sizeof(out->vgpu.gpu));
	for (u32 i = 0; i < account->users_count; i++)
		out->vgpu.users[i] = from_kuid(&init_user_ns, account->users[i]);
	raw_spin_lock_irq(&rtxg_host.lock);
	out->tasks = account->tasks;
	for (u32 i = 0; i < RTXG_ENGINES; i++) {
		const struct permit_use *e = &account->permit.engines[i];
		struct rtxg_account_view view = {};
		u64 now = ktime_get_ns();

		rtxg_core_vgpu_view(rtxg_host.permits.core, number, i, now, &view);
		out->engines[i] = (struct rtxg_host_engine){
			.stats = view.stats,
			.device_ns = e->device_ns,
			.launches = e->launches,
			.active_ns = permit_active_ns(e, now),
			.credit_ns = view.credit_ns,
			.deadline_ns = view.deadline_ns,
			.used_ppm = view.used_ppm,
			.waiting = view.waiting,
			.holder = view.holder,
		};
	}
	raw_spin_unlock_irq(&rtxg_host.lock);
	return true;
}

static bool list_pool(u32 number, struct rtxg_host_members *out)
{
	u32 gpu;

	if (!rtxg_host.pools[number].used)
		return false;
	*out = (struct rtxg_host_members){ .number = number, .mask = rtxg_host.pools[number].mask };
	memcpy(out->name, rtxg_host.pools[number].name, sizeof(out->name));
	/*
	 * the table stands still while objects is held; thousands of tasks are not looked through
	 * with interrupts off
	 */
	for (u32 i = 0; i < rtxg_host.max_tasks; i++)
		out->members +=
			khost_task_at(i) && READ_ONCE(khost_task_at(i)->permit.pool) == number;
	raw_spin_lock_irq(&rtxg_host.lock);
	gpu = rtxg_core_device_advice(rtxg_host.permits.core, number);
	raw_spin_unlock_irq(&rtxg_host.lock);
	if (gpu < RTXG_HOST_GPUS)
		memcpy(out->advice, rtxg_host.gpus[gpu].name, sizeof(out->advice));
	return true;
}

static void list_lane(const struct khost_task *task, u32 engine, struct rtxg_host_lane *out)
{
	static const u32 states[] = { [PERMIT_FREE] = RTXG_HOST_IDLE,
				      [PERMIT_WAITING] = RTXG_HOST_WAITING,
				      [PERMIT_HELD] = RTXG_HOST_HOLDS,
				      [PERMIT_REVOKED] = RTXG_HOST_REVOKED };
	const struct rtxg_lane *words = &task->permit.page->lanes[engine];
	struct rtxg_stats now;

	permit_lane_stats(&rtxg_host.permits, &task->permit, engine, &now);
	*out = (struct rtxg_host_lane){
		.state = states[task->permit.lanes[engine].state],
		.in_flight = READ_ONCE(words->in_flight),
		.launches = READ_ONCE(words->launches),
		.device_ns = READ_ONCE(words->device_ns),
		.stats = now,
	};
}

static bool list_task(u32 number, struct rtxg_host_task *out)
{
	struct khost_task *task = khost_task_at(number);
	const struct task_struct *process;

	if (!task)
		return false;
	*out = (struct rtxg_host_task){
		.number = number,
		.flags = READ_ONCE(task->permit.page->client_flags) & RTXG_PAGE_C_UNGATED
				 ? RTXG_HOST_F_UNGATED
				 : 0,
		.serial = task->serial,
		.pid = pid_vnr(task->pid),
		.uid = from_kuid_munged(current_user_ns(), task->uid),
		.priority_limit = task->priority_limit,
		.opened_ns = task->permit.opened_ns,
	};
	rcu_read_lock();
	process = pid_task(task->pid, PIDTYPE_TGID);
	if (process)
		strscpy_pad(out->comm, process->comm, sizeof(out->comm));
	rcu_read_unlock();
	raw_spin_lock_irq(&rtxg_host.lock);
	out->priority = task->permit.params.priority;
	out->runtime_ns = task->permit.params.runtime_ns;
	out->deadline_ns = task->permit.params.deadline_ns;
	out->period_ns = task->permit.params.period_ns;
	memcpy(out->gpu, rtxg_host.gpus[khost_account(task)->gpu].name, sizeof(out->gpu));
	memcpy(out->vgpu, khost_account(task)->name, sizeof(out->vgpu));
	if (task->permit.moving_to)
		memcpy(out->moving_to, khost_account_of(task->permit.moving_to)->name,
		       sizeof(out->moving_to));
	if (task->permit.pool < RTXG_HOST_POOLS) {
		memcpy(out->pool, rtxg_host.pools[task->permit.pool].name, sizeof(out->pool));
		if (task->permit.pool_held && task->permit.pool_gpu < RTXG_HOST_GPUS)
			memcpy(out->pool_gpu, rtxg_host.gpus[task->permit.pool_gpu].name,
			       sizeof(out->pool_gpu));
	}
	for (u32 i = 0; i < RTXG_ENGINES; i++)
		list_lane(task, i, &out->lanes[i]);
	raw_spin_unlock_irq(&rtxg_host.lock);
	return true;
}

static u32 list_max(u32 what)
{
	switch (what) {
	case RTXG_HOST_LIST_GPUS:
		return RTXG_HOST_GPUS;
	case RTXG_HOST_LIST_VGPUS:
		return rtxg_host.max_vgpus;
	case RTXG_HOST_LIST_POOLS:
		return RTXG_HOST_POOLS;
	default:
		return rtxg_host.max_tasks;
	}
}

static bool list_one(u32 what, u32 number, void *out)
{
	switch (what) {
	case RTXG_HOST_LIST_GPUS:
		return list_gpu(number, out);
	case RTXG_HOST_LIST_VGPUS:
		return list_account(number, out);
	case RTXG_HOST_LIST_POOLS:
		return list_pool(number, out);
	default:
		return list_task(number, out);
	}
}

static long host_list(struct rtxg_file *file, struct rtxg_host_list __user *user)
{
	static const size_t sizes[] = {
		[RTXG_HOST_LIST_GPUS] = sizeof(struct rtxg_host_gpu),
		[RTXG_HOST_LIST_VGPUS] = sizeof(struct rtxg_host_account),
		[RTXG_HOST_LIST_POOLS] = sizeof(struct rtxg_host_members),
		[RTXG_HOST_LIST_TASKS] = sizeof(struct rtxg_host_task),
	};
	struct rtxg_host_list list;
	size_t size, known;
	u32 max, room;
	void *one, *entries;
	int err;

	err = rtxg_copy_in(&list, sizeof(list), sizeof(list), user);
	if (err)
		return err;
	if (list.flags & ~RTXG_HOST_F_USAGE || list.what > RTXG_HOST_LIST_TASKS || !list.count ||
	    list.count > RTXG_HOST_LIST_MAX || list.entry < 8 || list.entry > PAGE_SIZE ||
	    !rtxg_all_zero(list.reserved, sizeof(list.reserved)))
		return -EINVAL;
	size = sizes[list.what];
	known = min_t(size_t, size, list.entry);
	room = list.count;
	/*
	 * one entry as we know it, and then rows as the caller knows them, which are copied when no
	 * lock is held
	 */
	one = kvzalloc(size + (size_t)room * list.entry, GFP_KERNEL_ACCOUNT);
	if (!one)
		return -ENOMEM;
	entries = one + size;
	mutex_lock(&rtxg_host.objects);
	if (!list.from && list.what == RTXG_HOST_LIST_TASKS)
		WRITE_ONCE(file->seen, rtxg_host.changes);
	if (list.flags & RTXG_HOST_F_USAGE)
		rtxg_host_usage();
	rtxg_host_sweep();
	max = list_max(list.what);
	for (list.count = 0; list.from < max && list.count < room; list.from++) {
		if (!list_one(list.what, list.from, one))
			continue;
		memcpy(entries + (size_t)list.count * list.entry, one, known);
		list.count++;
	}
	mutex_unlock(&rtxg_host.objects);
	err = copy_to_user(u64_to_user_ptr(list.entries), entries, (size_t)list.count * list.entry)
		      ? -EFAULT
		      : 0;
	kvfree(one);
	return err ?: rtxg_copy_out(user, &list, sizeof(list), list.size);
}

/* ---- other processes' tasks ---- */

static int change(struct khost_task *task, const struct rtxg_host_change *wanted)
{
	const struct rtxg_task_params params = { .priority = wanted->priority,
						 .runtime_ns = wanted->runtime_ns,
						 .deadline_ns = wanted->deadline_ns,
						 .period_ns = wanted->period_ns };
	struct khost_account *to = NULL;
	int err;

	if (wanted->flags & RTXG_HOST_F_MOVE) {
		/*
		 * which GPU it is on does not change, nor does the account's: both are in
		 * rtxg_host.objects' care but for the pointer
		 */
		to = rtxg_host_find_account(khost_account_of(READ_ONCE(task->permit.account))->gpu,
					    wanted->vgpu);
		if (!to)
			return -ENOENT;
		if (task->permit.pool != RTXG_NONE)
			return -EBUSY;
	}
	if (wanted->flags & RTXG_HOST_F_PARAMS) {
		err = rtxg_host_set_task(task, &params);
		if (err)
			return err;
		/*
		 * What a user names for the vGPU that the task is on its way to is no right here:
		 * the move may be taken back.
		 */
		if (wanted->flags & RTXG_HOST_F_GIVEN)
			task->priority_limit =
				rtxg_task_priority_limit(task->priority_limit, wanted->priority);
	}
	return to ? rtxg_host_move(task, to) : 0;
}

static long host_task(struct rtxg_file *file, const struct rtxg_host_change __user *user)
{
	struct rtxg_host_change wanted;
	struct khost_task *task;
	int err;

	err = rtxg_copy_in(&wanted, sizeof(wanted), sizeof(wanted), user);
	if (err)
		return err;
	if (!wanted.flags ||
	    wanted.flags & ~(RTXG_HOST_F_PARAMS | RTXG_HOST_F_MOVE | RTXG_HOST_F_GIVEN) ||
	    (wanted.flags & RTXG_HOST_F_GIVEN && !(wanted.flags & RTXG_HOST_F_PARAMS)) ||
	    !rtxg_all_zero(wanted.reserved, sizeof(wanted.reserved)) ||
	    (wanted.flags & RTXG_HOST_F_MOVE && !rtxg_host_good_name(wanted.vgpu, "default")))
		return -EINVAL;
	rtxg_host_begin();
	rtxg_host_sweep();
	task = khost_task_at(wanted.number);
	err = task && task->serial == wanted.serial ? change(task, &wanted) : -ESRCH;
	rtxg_host_end(file);
	return err;
}

long rtxg_front_ioctl(struct rtxg_file *file, unsigned int command, void __user *user)
{
	switch (command) {
	case RTXG_IOC_HOST_STATS:
		return host_stats(smp_load_acquire(&file->gpu_task), user);
	case RTXG_IOC_HOST_INFO:
		return host_info(user);
	case RTXG_IOC_HOST_REFUSAL:
		return host_refusal(file, user);
	case RTXG_IOC_HOST_GPU:
	case RTXG_IOC_HOST_VGPU:
	case RTXG_IOC_HOST_POOL:
	case RTXG_IOC_HOST_FRONT:
	case RTXG_IOC_HOST_LIST:
	case RTXG_IOC_HOST_TASK:
		if (!capable(CAP_SYS_NICE))
			return -EPERM;
		break;
	default:
		return -ENOTTY;
	}
	switch (command) {
	case RTXG_IOC_HOST_GPU:
		return host_gpu(file, user);
	case RTXG_IOC_HOST_VGPU:
		return host_vgpu(file, user);
	case RTXG_IOC_HOST_POOL:
		return host_pool(file, user);
	case RTXG_IOC_HOST_FRONT:
		return host_front(file, user);
	case RTXG_IOC_HOST_LIST:
		return host_list(file, user);
	default:
		return host_task(file, user);
	}
}
