/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * front.h - the host's objects by name, and what people see of them.
 */
#ifndef RTXG_KMOD_FRONT_H
#define RTXG_KMOD_FRONT_H

#include <linux/types.h>

struct file;
struct poll_table_struct;
struct rtxg_file;

long rtxg_front_ioctl(struct rtxg_file *file, unsigned int command, void __user *user);
void rtxg_front_release(struct rtxg_file *file);
__poll_t rtxg_front_poll(struct file *file, struct rtxg_file *rtxg,
			 struct poll_table_struct *table);

#endif
