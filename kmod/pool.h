/* SPDX-License-Identifier: GPL-2.0-only */
/* pool.h - a task's requests to pools, and what its thread inherits: see pool.c. */
#ifndef RTXG_KMOD_POOL_H
#define RTXG_KMOD_POOL_H

#include <linux/types.h>

struct khost_task;
struct rtxg_host_pool;

int rtxg_host_read_pool(struct rtxg_host_pool *request, const void __user *user, bool remove);
long rtxg_pool_advice(struct rtxg_host_pool __user *user);
long rtxg_pool_acquire(struct khost_task *task, struct rtxg_host_pool __user *user);
long rtxg_pool_release(struct khost_task *task, struct rtxg_host_pool __user *user);
/* Gives all holders' threads what they inherit now; objects is held, and lock is not. */
void rtxg_pool_carry_out(void);
/* The task holds and wants no GPU of a pool any more; objects is held. */
void rtxg_pool_forget(struct khost_task *task);

#endif
