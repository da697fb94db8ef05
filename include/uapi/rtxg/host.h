/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * host.h - GPU tasks hosted by the kernel module, through /dev/rtxg: the same core and the same
 * page (rtxg/page.h) as the daemon's.
 *
 * A file becomes a task by HOST_OPEN, and then maps its page: 4096 bytes at offset 0, shared, read
 * and write. It rings with HOST_RING and waits for a permit with HOST_WAIT. Closing the file, or
 * dying, releases all that the task held or wanted.
 *
 * Objects (GPUs, vGPUs, pools) are made by HOST_GPU, HOST_VGPU and HOST_POOL, which need
 * CAP_SYS_NICE. Names are texts of 1 to 63 bytes with a final 0, without control characters and
 * "/", and do not begin with "-" or ".". A GPU that a task names first is made with the module's
 * default policy; so is the vGPU "default" on it. A user without CAP_SYS_RESOURCE may name 8 GPUs
 * so (-ENOSPC). Numbers mean what
 * rtxg_core.h says: parts per million, nanoseconds, priorities 1..99, 0 for "as configured".
 *
 * One process may be the front (HOST_FRONT): the one that people and their configuration speak to,
 * rtxgd. It sees and changes other processes' tasks by HOST_LIST and HOST_TASK, which need
 * CAP_SYS_NICE too, and polls its file: readable when a task has come or gone since it listed them.
 * The objects that the front made stay when the front ends.
 */
#ifndef RTXG_UAPI_HOST_H
#define RTXG_UAPI_HOST_H

#include <linux/ioctl.h>
#include <linux/types.h>

#include <rtxg/stats.h>

#define RTXG_HOST_NAME 64

struct rtxg_host_open {
	__u32 size;
	__u32 flags;		  /* 0 */
	char gpu[RTXG_HOST_NAME]; /* in, "" = "0"; out */
	/* in, "" = "default"; out. -ENOENT if there is none of that name on that GPU */
	char vgpu[RTXG_HOST_NAME];
	/* inside the vGPU. -EPERM above the vGPU's task_priority without CAP_SYS_NICE */
	__u32 priority;
	__u32 task; /* out: number of the task */
	__u64 runtime_ns;
	__u64 deadline_ns;
	__u64 period_ns;
	__u64 generation; /* out: as in the page */
	__u64 reserved[4];
};

/*
 * The file's own task. A value of 0 stays as it is. -EPERM: a priority above what is configured,
 * without CAP_SYS_NICE.
 */
struct rtxg_host_set {
	__u32 size;
	__u32 priority;
	__u64 runtime_ns;
	__u64 deadline_ns;
	__u64 period_ns;
	__u64 reserved[2];
};

/* Threads of a task that wait for one lane at a time; the next is answered -EAGAIN. */
#define RTXG_HOST_WAITERS 64

struct rtxg_host_wait {
	__u32 size;
	__u32 lane;
	/* returns when the permit word is something else, or HOST_WAKE was called */
	__u32 value;
	__u32 reserved; /* 0 */
	__u64 until_ns; /* absolute, CLOCK_MONOTONIC; U64_MAX = for ever. -ETIMEDOUT */
};

/*
 * The word that the device writes when a launch of that lane has completed, and before it raises
 * its interrupt; with it the page's fence and fenced mean something (rtxg/page.h). An aligned
 * 32-bit word in memory of the caller's, which stays pinned until the task ends or another word is
 * named; 0: none. -EFAULT: nothing is there.
 */
struct rtxg_host_fence {
	__u32 size;
	__u32 lane;
	__u64 word; /* address */
	__u64 reserved[2];
};

/*
 * Sleeps until the lane's fence is at this value or past it. The interrupt that is bound to the
 * engine wakes, and the time asleep is the GPU's to a SCHED_DEADLINE thread (rtxg/cpu.h).
 * -EOPNOTSUPP: no fence is named, or no interrupt is bound, or not any more; -ETIMEDOUT, also by
 * HOST_WAKE; -EINTR; -EAGAIN: RTXG_HOST_WAITERS threads wait already.
 */
struct rtxg_host_sync {
	__u32 size;
	__u32 lane;
	__u64 until_ns; /* absolute, CLOCK_MONOTONIC; U64_MAX = for ever */
	__u32 value;
	__u32 reserved[3];
};

struct rtxg_host_gpu {
	__u32 size;
	__u32 flags; /* RTXG_HOST_F_* */
	char name[RTXG_HOST_NAME];
	__u32 policy;
	__u32 overrun;
	__u64 period_ns;
	__u64 window_ns;
	__u64 band_wait_ns;
	__u64 think_ns;
	__u64 revoke_timeout_ns;
	__u32 switch_ppm;
	__u32 number; /* out: in masks of pools */
	__u64 cookie; /* the caller's own word: kept and listed, never looked at */
	__u32 tasks;  /* HOST_LIST: out */
	__u32 ahead_ns;
	__u32 early_ns;
	__u32 reserved0;
	__u64 reserved[3];
};

/* the object goes: -EBUSY while it is used; a GPU also while an interrupt is bound to it */
#define RTXG_HOST_F_REMOVE (1u << 0)
/* HOST_LIST: made for a task that named it, and goes with the last one */
#define RTXG_HOST_F_AUTOMATIC (1u << 1)
#define RTXG_HOST_EVERYBODY   0xffffffffu
#define RTXG_HOST_USERS	      16u

struct rtxg_host_vgpu {
	__u32 size;
	__u32 flags;
	char name[RTXG_HOST_NAME];
	char gpu[RTXG_HOST_NAME]; /* made if it is not there */
	__u32 min_ppm;
	__u32 max_ppm; /* 0: none was given, so no cap; there is no cap of nothing */
	__u32 weight;
	__u32 priority;
	__u64 period_ns;
	__u32 policy;
	/* who may use it, besides CAP_SYS_NICE: a group number, or RTXG_HOST_EVERYBODY */
	__u32 group;
	/*
	 * the priority of a task that asks for none, and the highest priority that a task may ask
	 * for without CAP_SYS_NICE; 0: 1
	 */
	__u32 task_priority;
	/*
	 * 0: group alone decides. Else these users may use the vGPU, and the members of group if
	 * group is not RTXG_HOST_EVERYBODY
	 */
	__u32 users_count;
	__u32 users[RTXG_HOST_USERS];
	__u64 cookie; /* as of a GPU */
	__u64 reserved[4];
};

struct rtxg_host_pool {
	__u32 size;
	__u32 flags;
	char name[RTXG_HOST_NAME];
	__u64 mask;		  /* HOST_POOL: bit n: the GPU of number n */
	char gpu[RTXG_HOST_NAME]; /* HOST_ADVICE, HOST_ACQUIRE: out */
	__u64 reserved[2];
};

/* -EACCES: the vGPU is not for the caller. */
struct rtxg_host_stats {
	__u32 size;
	__u32 engine;
	char gpu[RTXG_HOST_NAME]; /* "" = the calling file's own task instead of a vGPU */
	char vgpu[RTXG_HOST_NAME];
	struct rtxg_stats stats;
	__s64 credit_ns; /* of a vGPU: and what follows */
	__u32 used_ppm;
	__u32 waiting;
	__u32 tasks;
	__u32 reserved0;
	__u64 reserved[2];
};

/* ---- for the front ---- */

/* Facts that any process may ask for. */
struct rtxg_host_info {
	__u32 size;
	__u32 flags;	  /* 0 */
	__u64 generation; /* as in pages: differs for each loading of the module */
	__u32 has_front;  /* 0 or 1 */
	__u32 front;	  /* its pid as the caller sees it, or 0 */
	__u32 max_tasks;
	__u32 max_vgpus;
	__u32 max_gpus;
	__u32 max_pools;
	__u32 tasks;
	__u32 tasks_per_user; /* without CAP_SYS_RESOURCE */
	__u64 reserved[4];
};

/*
 * Makes the calling file the front, or changes the parameters of a file that is the front already.
 * -EBUSY: another file is the front. A file that closes is no longer the front. Needs CAP_SYS_NICE.
 */
struct rtxg_host_front {
	__u32 size;
	__u32 flags;	      /* 0 */
	__u32 tasks_per_user; /* 0: as it is */
	__u32 reserved0;
	/* parameters of GPUs that tasks name first; size, flags, name, number and cookie are 0 */
	struct rtxg_host_gpu gpu;
	__u64 reserved[4];
};

/*
 * The reason for which the core refused the last call on this file. The member what is "" if the
 * core refused nothing.
 */
struct rtxg_host_refusal {
	__u32 size;
	__u32 flags; /* 0 */
	char what[128];
	__u64 value;
	__u64 limit;
	__u64 reserved[2];
};

#define RTXG_HOST_LIST_GPUS  0u /* struct rtxg_host_gpu */
#define RTXG_HOST_LIST_VGPUS 1u /* struct rtxg_host_account */
#define RTXG_HOST_LIST_POOLS 2u /* struct rtxg_host_members */
#define RTXG_HOST_LIST_TASKS 3u /* struct rtxg_host_task */

/* first charge the use of the permits in force up to now */
#define RTXG_HOST_F_USAGE  (1u << 0)
#define RTXG_HOST_LIST_MAX 64u /* entries for each call */

/* Objects in the order of their numbers, some at a time. CAP_SYS_NICE. */
struct rtxg_host_list {
	__u32 size;
	__u32 flags; /* RTXG_HOST_F_USAGE */
	__u32 what;  /* RTXG_HOST_LIST_* */
	__u32 from;  /* in: the first number wanted; out: the number to go on with */
	/*
	 * in: entries there is room for, 1..RTXG_HOST_LIST_MAX; out: entries written. 0: there are
	 * no more
	 */
	__u32 count;
	/*
	 * bytes of one entry in the caller's memory, at least 8. Members unknown to the module are
	 * set to 0
	 */
	__u32 entry;
	__u64 entries; /* address */
	__u64 reserved[2];
};

struct rtxg_host_engine {
	struct rtxg_stats stats;
	__u64 device_ns; /* claims of the tasks, gone ones too */
	__u64 launches;
	__u64 active_ns; /* for how long a task waited for it, or had something in flight */
	__s64 credit_ns;
	__u64 deadline_ns;
	__u32 used_ppm;
	__u32 waiting;
	__u32 holder; /* number of a task, or 0xffffffff */
	__u32 reserved;
};

struct rtxg_host_account {
	__u32 number;
	__u32 flags;		    /* RTXG_HOST_F_AUTOMATIC */
	struct rtxg_host_vgpu vgpu; /* as HOST_VGPU takes it */
	__u32 tasks;
	__u32 reserved0;
	struct rtxg_host_engine engines[3];
};

struct rtxg_host_members {
	__u32 number;
	__u32 members; /* tasks that hold or want a GPU of it */
	char name[RTXG_HOST_NAME];
	__u64 mask;
	char advice[RTXG_HOST_NAME];
};

#define RTXG_HOST_IDLE	  0u
#define RTXG_HOST_WAITING 1u
#define RTXG_HOST_HOLDS	  2u
#define RTXG_HOST_REVOKED 3u

struct rtxg_host_lane {
	__u32 state; /* RTXG_HOST_IDLE.. */
	__u32 in_flight;
	__u64 launches;
	__u64 device_ns;
	struct rtxg_stats stats;
};

/* a task's page says RTXG_PAGE_C_UNGATED: it is managed in part. HOST_LIST only */
#define RTXG_HOST_F_UNGATED (1u << 0)

struct rtxg_host_task {
	__u32 number;
	__u32 flags;  /* RTXG_HOST_F_UNGATED */
	__u64 serial; /* never given to another task: numbers are used again */
	__u32 pid;    /* as the caller sees it; 0: it does not */
	__u32 uid;
	/* "" once the process has ended and another process keeps the file open */
	char comm[16];
	char gpu[RTXG_HOST_NAME];
	char vgpu[RTXG_HOST_NAME];
	char moving_to[RTXG_HOST_NAME]; /* "": is not being moved */
	char pool[RTXG_HOST_NAME];	/* "": has and wants none */
	char pool_gpu[RTXG_HOST_NAME];	/* "": waits for one */
	__u32 priority;
	__u32 priority_limit;
	__u64 runtime_ns;
	__u64 deadline_ns;
	__u64 period_ns;
	__u64 opened_ns;
	struct rtxg_host_lane lanes[3];
};

#define RTXG_HOST_F_PARAMS (1u << 0) /* HOST_TASK: sets priority and times */
/* HOST_TASK: moves it to vgpu, as soon as nothing of it is in flight */
#define RTXG_HOST_F_MOVE (1u << 1)
/*
 * HOST_TASK, with PARAMS: who asks may name any priority. The task is given this one: it may name
 * it again where it is.
 */
#define RTXG_HOST_F_GIVEN (1u << 2)

/*
 * Changes any task. CAP_SYS_NICE. -ESRCH: it has ended. -ENOENT: there is no such vGPU on its GPU.
 * -EBUSY: a task that has or wants a GPU of a pool is not moved.
 */
struct rtxg_host_change {
	__u32 size;
	__u32 flags; /* RTXG_HOST_F_PARAMS, RTXG_HOST_F_MOVE, RTXG_HOST_F_GIVEN */
	__u64 serial;
	__u32 number;
	__u32 priority;
	__u64 runtime_ns;
	__u64 deadline_ns;
	__u64 period_ns;
	char vgpu[RTXG_HOST_NAME];
	__u64 reserved[4];
};

#define RTXG_IOC_HOST_OPEN _IOWR('x', 0x01, struct rtxg_host_open)
#define RTXG_IOC_HOST_RING _IO('x', 0x02)
#define RTXG_IOC_HOST_WAIT _IOW('x', 0x03, struct rtxg_host_wait)
/* the file's own waiting threads; argument: lane */
#define RTXG_IOC_HOST_WAKE    _IO('x', 0x04)
#define RTXG_IOC_HOST_SET     _IOW('x', 0x05, struct rtxg_host_set)
#define RTXG_IOC_HOST_ADVICE  _IOWR('x', 0x06, struct rtxg_host_pool)
#define RTXG_IOC_HOST_ACQUIRE _IOWR('x', 0x07, struct rtxg_host_pool) /* waits */
#define RTXG_IOC_HOST_RELEASE _IOW('x', 0x08, struct rtxg_host_pool)
#define RTXG_IOC_HOST_FENCE   _IOW('x', 0x09, struct rtxg_host_fence)
#define RTXG_IOC_HOST_SYNC    _IOW('x', 0x0a, struct rtxg_host_sync)
#define RTXG_IOC_HOST_GPU     _IOWR('x', 0x10, struct rtxg_host_gpu)
#define RTXG_IOC_HOST_VGPU    _IOW('x', 0x11, struct rtxg_host_vgpu)
#define RTXG_IOC_HOST_POOL    _IOW('x', 0x12, struct rtxg_host_pool)
#define RTXG_IOC_HOST_STATS   _IOWR('x', 0x13, struct rtxg_host_stats)
#define RTXG_IOC_HOST_INFO    _IOWR('x', 0x14, struct rtxg_host_info)
#define RTXG_IOC_HOST_FRONT   _IOW('x', 0x15, struct rtxg_host_front)
#define RTXG_IOC_HOST_REFUSAL _IOWR('x', 0x16, struct rtxg_host_refusal)
#define RTXG_IOC_HOST_LIST    _IOWR('x', 0x17, struct rtxg_host_list)
#define RTXG_IOC_HOST_TASK    _IOW('x', 0x18, struct rtxg_host_change)

#endif
