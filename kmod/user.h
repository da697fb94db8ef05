/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * user.h - copying the structures of the boundary from and to user space.
 */
#ifndef RTXG_KMOD_USER_H
#define RTXG_KMOD_USER_H

#include <linux/types.h>

/*
 * Copies a structure that begins with its size from user space: at least minimum bytes, at most
 * size; a longer one is taken if what is beyond is zero. 0 or negative errno.
 */
int rtxg_copy_in(void *to, size_t size, size_t minimum, const void __user *from);
/* Back: no more than the caller said it has room for. */
int rtxg_copy_out(void __user *to, const void *from, size_t size, u32 user_size);
bool rtxg_all_zero(const void *memory, size_t size);

#endif
