/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * host.h - what host.c (the core and its pages), engine.c (interrupts), objects.c (names), pool.c
 * (requests to pools) and front.c (what people see of them) know of each other.
 *
 * Two locks: objects (a mutex: names, tables, who is where) outside lock (raw: the core, lanes, and
 * what a move changes). What a lane's timer or ring may change is read under lock.
 */
#ifndef RTXG_KMOD_HOST_H
#define RTXG_KMOD_HOST_H

#include <linux/err.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>
#include <linux/wait.h>

#include <rtxg/host.h>
#include <rtxg/page.h>

#include "file.h"
#include "permit.h"
#include "user.h"
#include "waiters.h"

#define RTXG_HOST_GPUS 32u
/* GPUs made for tasks that named them: of one user, and in all. The rest is for who configures. */
#define RTXG_HOST_GPUS_OF_A_USER 8u
#define RTXG_HOST_GPUS_NAMED	 24u
#define RTXG_HOST_POOLS		 16u

/* What waits on a lane: a task on one engine. */
struct khost_lane {
	struct rtxg_waiters waiters, syncs; /* for the permit, and for the fence */
	u32 wakes;			    /* HOST_WAKE calls */
	struct task_struct
		*thread; /* the last that wanted it, with a reference; NULL: the opener */
	/* the word that the device writes when a launch has completed; NULL: none. Under lock */
	struct page *fence_page;
	const u32 *fence;
};

struct khost_task {
	struct permit_task permit; /* its page, lanes and parameters. Under lock */
	struct khost_lane lanes[RTXG_ENGINES];
	struct rtxg_waiters pool_waiters;
	/* the thread that acquired, and what it passes on while it waits; under objects */
	struct rtxg_cpu_heir *heir;
	u32 passes;
	/* who it is; under objects */
	struct pid *pid;
	struct task_struct *opener; /* the thread that opened it */
	kuid_t uid, charged;	    /* charged: against whose limits it counts */
	u64 serial;
	u32 priority_limit; /* what it may set by itself */
};

struct khost_gpu {
	bool used;
	bool automatic; /* made for a task that named it, and goes with the last one */
	/* watches whose interrupt is one of this GPU's engine; a bound GPU cannot be removed */
	u32 bound[RTXG_ENGINES];
	kuid_t charged; /* automatic: whose task that was */
	char name[RTXG_HOST_NAME];
	struct rtxg_gpu_params params;
	u64 cookie;
	/* the task that has acquired it as one of a pool; under lock */
	struct khost_task *pool_holder;
};

/* A vGPU on a GPU: the core's vGPU. */
struct khost_account {
	bool used;
	bool automatic;
	u32 gpu;
	u32 tasks, incoming; /* incoming: on their way here. Under lock */
	char name[RTXG_HOST_NAME];
	struct rtxg_vgpu_params params;
	u32 group, users_count, task_priority;
	kuid_t users[RTXG_HOST_USERS];
	u64 cookie;
	struct permit_account permit; /* the core's number, and claims. Under lock */
};

struct khost_pool {
	bool used;
	char name[RTXG_HOST_NAME];
	u64 mask;
};

struct rtxg_host {
	raw_spinlock_t lock;
	struct mutex objects;
	struct permit_machine permits;
	void *memory; /* the core's */
	struct khost_account *accounts;
	struct khost_gpu gpus[RTXG_HOST_GPUS];
	struct khost_pool pools[RTXG_HOST_POOLS];
	struct hrtimer timer;
	u64 generation;
	u64 serial;
	u32 max_tasks, max_vgpus, tasks_count;
	bool sweep; /* a move has left a vGPU that may be dropped */
	struct rtxg_gpu_params gpu_default;
	struct rtxg_refusal refusal; /* of the call that has objects */
	struct rtxg_file *front;
	struct pid *front_pid;
	struct wait_queue_head front_wait;
	u32 changes; /* tasks that came or went */
	/* a permit was given, or is waited for; called with lock held */
	void (*owner_changed)(u32 gpu, u32 engine);
};

extern struct rtxg_host rtxg_host;

static inline struct khost_account *khost_account_of(struct permit_account *account)
{
	return container_of(account, struct khost_account, permit);
}

static inline struct khost_account *khost_account(const struct khost_task *task)
{
	return khost_account_of(task->permit.account);
}

/* The task of that number, or NULL; under objects or lock. */
static inline struct khost_task *khost_task_at(u32 number)
{
	struct permit_task *task =
		number < rtxg_host.max_tasks ? rtxg_host.permits.tasks[number] : NULL;

	return task ? container_of(task, struct khost_task, permit) : NULL;
}

/* host.c. objects is held for all of them */
void rtxg_host_usage(void);
int rtxg_host_set_task(struct khost_task *task, const struct rtxg_task_params *params);
int rtxg_host_move(struct khost_task *task, struct khost_account *to);
/* Whether the caller may be a task of it, and see what it used. */
bool rtxg_host_may_use(const struct khost_account *account);
extern unsigned int rtxg_tasks_per_user;

/* For the rest of the module. */
struct vm_area_struct;
long rtxg_host_ioctl(struct rtxg_file *file, unsigned int command, unsigned long argument);
int rtxg_host_mmap(struct rtxg_file *file, struct vm_area_struct *vma);
void rtxg_host_release(struct rtxg_file *file);
int rtxg_host_init(void);
void rtxg_host_exit(void);
/*
 * Against whose limits the caller counts. In a user namespace it may be any of many users: all of
 * them are the user who made the outermost one, unless the machine's root made it.
 */
kuid_t rtxg_host_charged_user(void);
/* For task.c: a file's task is opened, changed, and made what it was. */
int rtxg_host_open(struct rtxg_file *file, struct rtxg_host_open *open);
int rtxg_host_set(struct rtxg_file *file, const struct rtxg_host_set *set,
		  struct rtxg_host_set *before);
void rtxg_host_set_back(struct rtxg_file *file, const struct rtxg_host_set *before);

#endif
