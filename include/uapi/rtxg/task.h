/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * task.h - one task on both sides, through /dev/rtxg: its permits on the GPU (rtxg/host.h) and its
 * policy on the CPU (rtxg/cpu.h) are asked for in one call. Either both are granted or nothing has
 * changed: a task with a place on the GPU, but without the CPU time to use the GPU, would miss its
 * deadlines.
 */
#ifndef RTXG_UAPI_TASK_H
#define RTXG_UAPI_TASK_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* changes what there is, instead of opening and attaching */
#define RTXG_TASK_F_SET (1u << 0)

/* Which side said no. */
#define RTXG_TASK_CPU 1u
#define RTXG_TASK_GPU 2u

/*
 * gpu and cpu are addresses of the structures that the single calls take, and each is filled in as
 * they do: HOST_OPEN and CPU_ATTACH, or with F_SET HOST_SET (of the calling file's task) and
 * CPU_SET. Permissions and errors are those of the single calls. -EFAULT when what is to be told
 * cannot be written: then the task stands.
 */
struct rtxg_task {
	__u32 size;
	__u32 flags; /* RTXG_TASK_F_* */
	__u64 gpu;
	__u64 cpu;
	/*
	 * an open file of /dev/rtxg that the CPU's side shall belong to; -1: the one called. F_SET:
	 * -1
	 */
	__s32 cpu_file;
	__u32 refused; /* out, also when the call fails: 0, RTXG_TASK_CPU, RTXG_TASK_GPU */
	__u64 reserved[2];
};

#define RTXG_IOC_TASK _IOWR('x', 0x90, struct rtxg_task)

#endif
