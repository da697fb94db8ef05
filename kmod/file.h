/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * file.h - one open file of /dev/rtxg. Everything that was asked for through it ends with it.
 */
#ifndef RTXG_KMOD_FILE_H
#define RTXG_KMOD_FILE_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

struct file;
struct file_operations;
struct khost_task;

struct rtxg_file {
	struct mutex lock; /* over irqs and next_id; never taken in interrupts */
	struct list_head irqs;
	struct list_head tasks; /* under the lock of cpu/ */
	u32 next_id;
	struct khost_task *gpu_task; /* host.c: the file's GPU task, once there is one */
	/* host.c: why the core refused the last call on it; under host.objects */
	const char *refused;
	u64 refused_value, refused_limit;
	u32 seen; /* front.c: host.changes at the last listing of tasks */
};

struct rtxg_file *rtxg_file_new(void); /* NULL: no memory */
void rtxg_file_free(struct rtxg_file *rtxg);
/* Those of the device: a file with others is none of ours. Once, before the device is there. */
void rtxg_file_operations(const struct file_operations *operations);
struct rtxg_file *rtxg_file_of(struct file *file); /* NULL if it is none of ours */

#endif
