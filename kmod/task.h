/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * task.h - one task on the GPU's and on the CPU's side in one call.
 */
#ifndef RTXG_KMOD_TASK_H
#define RTXG_KMOD_TASK_H

struct rtxg_file;

long rtxg_task_ioctl(struct rtxg_file *file, unsigned int command, void __user *user);

#endif
