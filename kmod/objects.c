// SPDX-License-Identifier: GPL-2.0-only
/*
 * objects.c - the host's objects and their names: GPUs, vGPUs and pools, how a call that changes
 * them begins and ends, and which of them go by themselves when their last task has left.
 *
 * Nearly all here is called with rtxg_host.objects held. The core is changed under rtxg_host.lock.
 *
 * May not: decide who runs; touch a page; look at who calls.
 */
#include <linux/lockdep.h>
#include <linux/string.h>

#include <rtxg/name.h>

#include "objects.h"

/* ---- calls ---- */

int rtxg_host_answered(int err)
{
	if (err)
		rtxg_host.refusal = rtxg_host.permits.refusal;
	return err;
}

int rtxg_host_event(const struct rtxg_event *event)
{
	int err;

	lockdep_assert_held(&rtxg_host.objects);
	raw_spin_lock_irq(&rtxg_host.lock);
	err = rtxg_host_answered(permit_event(&rtxg_host.permits, ktime_get_ns(), event));
	raw_spin_unlock_irq(&rtxg_host.lock);
	return err;
}

void rtxg_host_begin(void)
{
	mutex_lock(&rtxg_host.objects);
	rtxg_host.refusal = (struct rtxg_refusal){};
}

void rtxg_host_end(struct rtxg_file *file)
{
	file->refused = rtxg_host.refusal.what;
	file->refused_value = rtxg_host.refusal.value;
	file->refused_limit = rtxg_host.refusal.limit;
	mutex_unlock(&rtxg_host.objects);
}

/* ---- names ---- */

bool rtxg_host_good_name(char name[RTXG_HOST_NAME], const char *otherwise)
{
	size_t length;

	if (!name[0] && otherwise)
		strscpy(name, otherwise, RTXG_HOST_NAME);
	length = strnlen(name, RTXG_HOST_NAME);
	if (!length || length == RTXG_HOST_NAME || *name == '-' || *name == '.')
		return false;
	/* people see them in terminals and logs */
	for (size_t at = 0, bytes; at < length; at += bytes) {
		bytes = rtxg_name_character((const unsigned char *)name + at, length - at);
		if (!bytes || name[at] == '/')
			return false;
	}
	return true;
}

int rtxg_host_find_gpu(const char *name)
{
	for (u32 i = 0; i < RTXG_HOST_GPUS; i++)
		if (rtxg_host.gpus[i].used && !strcmp(rtxg_host.gpus[i].name, name))
			return i;
	return -ENOENT;
}

int rtxg_host_get_gpu(const char *name, bool automatic)
{
	struct rtxg_event event = { .type = RTXG_EV_GPU_ADD, .gpu_params = rtxg_host.gpu_default };
	int err = rtxg_host_find_gpu(name);

	if (err >= 0) {
		rtxg_host.gpus[err].automatic &= automatic;
		return err;
	}
	/*
	 * the first place is kept for "0": a program that invents names cannot take it from those
	 * that name no GPU
	 */
	for (event.gpu = strcmp(name, "0") ? 1 : 0;
	     event.gpu < RTXG_HOST_GPUS && rtxg_host.gpus[event.gpu].used; event.gpu++)
		;
	if (event.gpu == RTXG_HOST_GPUS)
		return -ENOSPC;
	err = rtxg_host_event(&event);
	if (err)
		return err;
	strscpy(rtxg_host.gpus[event.gpu].name, name, RTXG_HOST_NAME);
	rtxg_host.gpus[event.gpu].automatic = automatic;
	rtxg_host.gpus[event.gpu].params = rtxg_host.gpu_default;
	rtxg_host.gpus[event.gpu].cookie = 0;
	WRITE_ONCE(rtxg_host.gpus[event.gpu].used, true);
	return event.gpu;
}

struct khost_account *rtxg_host_find_account(u32 gpu, const char *name)
{
	for (u32 i = 0; i < rtxg_host.max_vgpus; i++)
		if (rtxg_host.accounts[i].used && rtxg_host.accounts[i].gpu == gpu &&
		    !strcmp(rtxg_host.accounts[i].name, name))
			return &rtxg_host.accounts[i];
	return NULL;
}

struct khost_account *rtxg_host_new_account(u32 gpu, const char *name,
					    const struct rtxg_vgpu_params *params)
{
	struct rtxg_event event = { .type = RTXG_EV_VGPU_ADD, .gpu = gpu, .vgpu_params = *params };
	struct khost_account *account;
	int err;

	for (event.vgpu = 0;
	     event.vgpu < rtxg_host.max_vgpus && rtxg_host.accounts[event.vgpu].used; event.vgpu++)
		;
	if (event.vgpu == rtxg_host.max_vgpus)
		return ERR_PTR(-ENOSPC);
	err = rtxg_host_event(&event);
	if (err)
		return ERR_PTR(err);
	account = &rtxg_host.accounts[event.vgpu];
	*account = (struct khost_account){ .used = true,
					   .permit = { .vgpu = event.vgpu },
					   .gpu = gpu,
					   .group = RTXG_HOST_EVERYBODY,
					   .params = *params };
	strscpy(account->name, name, RTXG_HOST_NAME);
	return account;
}

void rtxg_host_drop_automatic_gpu(u32 gpu)
{
	const struct rtxg_event event = { .type = RTXG_EV_GPU_REMOVE, .gpu = gpu };
	struct rtxg_refusal refusal = rtxg_host.refusal; /* of what was asked, not of this */

	/* refused while anything is on it */
	if (rtxg_host.gpus[gpu].automatic && !rtxg_host_event(&event))
		WRITE_ONCE(rtxg_host.gpus[gpu].used, false);
	rtxg_host.refusal = refusal;
}

void rtxg_host_drop_automatic(struct khost_account *account)
{
	const struct rtxg_event event = { .type = RTXG_EV_VGPU_REMOVE,
					  .vgpu = account->permit.vgpu };
	struct rtxg_refusal refusal = rtxg_host.refusal;

	/* refused while a task is in it; one on its way here is not known to the core */
	if (account->automatic && !READ_ONCE(account->incoming) && !rtxg_host_event(&event))
		account->used = false;
	rtxg_host.refusal = refusal;
	rtxg_host_drop_automatic_gpu(account->gpu);
}

void rtxg_host_sweep(void)
{
	lockdep_assert_held(&rtxg_host.objects);
	if (!xchg(&rtxg_host.sweep, false))
		return;
	for (u32 i = 0; i < rtxg_host.max_vgpus; i++)
		if (rtxg_host.accounts[i].used && rtxg_host.accounts[i].automatic &&
		    !READ_ONCE(rtxg_host.accounts[i].tasks))
			rtxg_host_drop_automatic(&rtxg_host.accounts[i]);
}

int rtxg_host_find_pool(const char *name)
{
	for (u32 i = 0; i < RTXG_HOST_POOLS; i++)
		if (rtxg_host.pools[i].used && !strcmp(rtxg_host.pools[i].name, name))
			return i;
	return -ENOENT;
}
