/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * host.h - GPU tasks hosted by the kernel module, through /dev/rtxg: the same core and the same page (rtxg/page.h) as the daemon's.
 *
 * A file becomes a task by HOST_OPEN, and then maps its page: 4096 bytes at offset 0, shared, read and write. It rings with
 * HOST_RING and waits for a permit with HOST_WAIT. Closing the file, or dying, releases all that the task held or wanted.
 *
 * Objects (GPUs, vGPUs, pools) are made by HOST_GPU, HOST_VGPU and HOST_POOL, which need CAP_SYS_NICE. Names are texts of 1 to 63
 * bytes with a final 0. A GPU that a task names first is made with the module's default policy; so is the vGPU "default" on it.
 * Numbers mean what rtxg_core.h says: parts per million, nanoseconds, priorities 1..99, 0 for "as configured".
 */
#ifndef RTXG_UAPI_HOST_H
#define RTXG_UAPI_HOST_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define RTXG_HOST_NAME 64

struct rtxg_host_open {
	__u32 size;
	__u32 flags;               /* 0 */
	char gpu[RTXG_HOST_NAME];  /* in, "" = "0"; out */
	char vgpu[RTXG_HOST_NAME]; /* in, "" = "default"; out. -ENOENT if there is none of that name on that GPU */
	__u32 priority;            /* inside the vGPU */
	__u32 entity;              /* out: number of the task */
	__u64 runtime_ns;
	__u64 deadline_ns;
	__u64 period_ns;
	__u64 generation; /* out: as in the page */
	__u64 reserved[4];
};

struct rtxg_host_set {
	__u32 size;
	__u32 priority;
	__u64 runtime_ns;
	__u64 deadline_ns;
	__u64 period_ns;
	__u64 reserved[2];
};

struct rtxg_host_wait {
	__u32 size;
	__u32 lane;
	__u32 value;    /* returns when the permit word is something else, or HOST_WAKE was called */
	__u32 reserved; /* 0 */
	__u64 until_ns; /* absolute, CLOCK_MONOTONIC; U64_MAX = for ever. -ETIMEDOUT */
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
	__u64 reserved[2];
};

#define RTXG_HOST_F_REMOVE (1u << 0) /* the object goes: -EBUSY while it is used */
#define RTXG_HOST_EVERYBODY 0xffffffffu

struct rtxg_host_vgpu {
	__u32 size;
	__u32 flags;
	char name[RTXG_HOST_NAME];
	char gpu[RTXG_HOST_NAME]; /* made if it is not there */
	__u32 min_ppm;
	__u32 max_ppm;
	__u32 weight;
	__u32 priority;
	__u64 period_ns;
	__u32 policy;
	__u32 group; /* who may use it, besides CAP_SYS_NICE: a group number, or RTXG_HOST_EVERYBODY */
	__u64 reserved[2];
};

struct rtxg_host_pool {
	__u32 size;
	__u32 flags;
	char name[RTXG_HOST_NAME];
	__u64 mask;                /* HOST_POOL: bit n: the GPU of number n */
	char gpu[RTXG_HOST_NAME];  /* HOST_ADVICE, HOST_ACQUIRE: out */
	__u64 reserved[2];
};

struct rtxg_host_stats {
	__u32 size;
	__u32 engine;
	char gpu[RTXG_HOST_NAME];  /* "" = the calling file's own task instead of a vGPU */
	char vgpu[RTXG_HOST_NAME];
	__u64 busy_ns;
	__u64 used_ns;
	__u64 wait_ns;
	__u64 grants;
	__u64 completions;
	__u64 overruns;
	__u64 expelled;
	__u64 throttled;
	__s64 credit_ns; /* of a vGPU: and what follows */
	__u32 used_ppm;
	__u32 waiting;
	__u32 tasks;
	__u32 reserved0;
	__u64 reserved[2];
};

#define RTXG_IOC_HOST_OPEN _IOWR('x', 0x01, struct rtxg_host_open)
#define RTXG_IOC_HOST_RING _IO('x', 0x02)
#define RTXG_IOC_HOST_WAIT _IOW('x', 0x03, struct rtxg_host_wait)
#define RTXG_IOC_HOST_WAKE _IO('x', 0x04) /* the file's own waiting threads; argument: lane */
#define RTXG_IOC_HOST_SET _IOW('x', 0x05, struct rtxg_host_set)
#define RTXG_IOC_HOST_ADVICE _IOWR('x', 0x06, struct rtxg_host_pool)
#define RTXG_IOC_HOST_ACQUIRE _IOWR('x', 0x07, struct rtxg_host_pool) /* waits */
#define RTXG_IOC_HOST_RELEASE _IOW('x', 0x08, struct rtxg_host_pool)
#define RTXG_IOC_HOST_GPU _IOWR('x', 0x10, struct rtxg_host_gpu)
#define RTXG_IOC_HOST_VGPU _IOW('x', 0x11, struct rtxg_host_vgpu)
#define RTXG_IOC_HOST_POOL _IOW('x', 0x12, struct rtxg_host_pool)
#define RTXG_IOC_HOST_STATS _IOWR('x', 0x13, struct rtxg_host_stats)

#endif
