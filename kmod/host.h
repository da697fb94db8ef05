/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * host.h - what host.c (the core and its pages) and front.c (objects, and what people see of them)
 * know of each other.
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
#include "rtxg_core.h"
#include "user.h"
#include "waiters.h"

#define RTXG_HOST_GPUS	16u
#define RTXG_HOST_POOLS 16u

enum lane_state { LANE_FREE, LANE_WAITING, LANE_HELD, LANE_REVOKED };

struct account;

/* A task on one engine, as we remember it. Under lock. */
struct lane {
	struct list_head look; /* in host.looks */
	struct khost_task *entity;
	u8 engine;
	u8 state;
	bool again; /* the core knows that it wants another permit after this one */
	/* held with REPORT: COMPLETION was sent, and no launch seen since */
	bool idle_reported;
	bool last; /* REVOKED: may launch once more all the same, see call_back() */
	u32 flags; /* RTXG_GRANT_* */
	u32 sequence;
	u64 launches_at; /* the page's launches at the grant, or at the last COMPLETION */
	u64 claimed_ns;	 /* the page's claim of busy time passed on already */
	u64 device_seen, launches_seen; /* of the page, counted in the account already */
	struct rtxg_waiters waiters;
	u32 wakes; /* HOST_WAKE calls */
};

struct khost_task {
	u32 id;
	struct account *account, *moving_to; /* under lock */
	struct rtxg_page *page;
	struct lane lanes[RTXG_ENGINES];
	struct rtxg_stats before[RTXG_ENGINES]; /* from before a move. Under lock */
	/* pool */
	u32 pool, pool_gpu; /* RTXG_NONE: neither waits nor holds */
	bool pool_held;
	struct rtxg_waiters pool_waiters;
	/* who it is; under objects */
	struct pid *pid;
	kuid_t uid;
	u64 serial, opened_ns;
	struct rtxg_task_params params;
	u32 priority_limit; /* what it may set by itself; 0: anything */
};

struct gpu {
	bool used;
	bool automatic; /* made for a task that named it, and goes with the last one */
	char name[RTXG_HOST_NAME];
	struct rtxg_gpu_params params;
	u64 cookie;
};

/* What one vGPU did on one engine, beyond what the core counts. Under lock. */
struct account_engine {
	u64 device_ns, launches; /* claims of all its tasks, gone ones too */
	u32 active;		 /* lanes that hold or wait */
	u64 active_since, active_ns;
};

/* A vGPU on a GPU: the core's vGPU. */
struct account {
	bool used;
	bool automatic;
	u32 id, gpu;
	u32 tasks, incoming; /* incoming: on their way here. Under lock */
	char name[RTXG_HOST_NAME];
	struct rtxg_vgpu_params params;
	u32 group, users_count, task_priority;
	kuid_t users[RTXG_HOST_USERS];
	u64 cookie;
	struct account_engine engines[RTXG_ENGINES];
};

struct pool {
	bool used;
	char name[RTXG_HOST_NAME];
	u64 mask;
};

struct rtxg_host {
	raw_spinlock_t lock;
	struct mutex objects;
	struct rtxg_core *core;
	void *memory; /* the core's */
	struct khost_task **entities;
	struct account *accounts;
	struct gpu gpus[RTXG_HOST_GPUS];
	struct pool pools[RTXG_HOST_POOLS];
	struct list_head looks;
	struct hrtimer timer;
	u64 generation;
	u64 serial;
	u32 max_tasks, max_vgpus, tasks;
	bool sweep; /* a move has left a vGPU that may be dropped */
	struct rtxg_gpu_params gpu_default;
	struct rtxg_refusal refusal; /* of the call that has objects */
	struct rtxg_file *front;
	struct pid *front_pid;
	struct wait_queue_head front_wait;
	u32 changes; /* tasks that came or went */
};

extern struct rtxg_host rtxg_host;
#define host rtxg_host

/* host.c. objects is held for all of them */
int rtxg_host_event(const struct rtxg_event *event);
void rtxg_host_usage(void);
int rtxg_host_set_task(struct khost_task *entity, const struct rtxg_task_params *params);
int rtxg_host_move(struct khost_task *entity, struct account *to);
int rtxg_host_find_gpu(const char *name);
int rtxg_host_get_gpu(const char *name, bool automatic);
struct account *rtxg_host_find_account(u32 gpu, const char *name);
struct account *rtxg_host_new_account(u32 gpu, const char *name,
				      const struct rtxg_vgpu_params *params);
int rtxg_host_find_pool(const char *name);
int rtxg_host_read_pool(struct rtxg_host_pool *request, const void __user *user, bool remove);
bool rtxg_host_good_name(char name[RTXG_HOST_NAME], const char *otherwise);
void rtxg_host_sweep(void);
extern unsigned int rtxg_tasks_per_user;
/*
 * Begins and ends a call that may be refused by the core: HOST_REFUSAL on that file tells. These
 * take objects.
 */
void rtxg_host_begin(void);
void rtxg_host_end(struct rtxg_file *file);

/* For the rest of the module. */
struct vm_area_struct;
long rtxg_host_ioctl(struct rtxg_file *file, unsigned int command, unsigned long argument);
int rtxg_host_mmap(struct rtxg_file *file, struct vm_area_struct *vma);
void rtxg_host_release(struct rtxg_file *file);
int rtxg_host_init(void);
void rtxg_host_exit(void);
/* For task.c: a file's task is opened, changed, and made what it was. */
int rtxg_host_open(struct rtxg_file *file, struct rtxg_host_open *open);
int rtxg_host_set(struct rtxg_file *file, const struct rtxg_host_set *set,
		  struct rtxg_host_set *before);
void rtxg_host_set_back(struct rtxg_file *file, const struct rtxg_host_set *before);

#endif
