// SPDX-License-Identifier: GPL-2.0-only
/*
 * user.c - copying the structures of the boundary from and to user space. May not: know what a
 * structure means.
 */
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "user.h"

bool rtxg_all_zero(const void *memory, size_t size)
{
	return !memchr_inv(memory, 0, size);
}

int rtxg_copy_in(void *to, size_t size, size_t minimum, const void __user *from)
{
	u32 user_size;
	int err;

	if (get_user(user_size, (const u32 __user *)from))
		return -EFAULT;
	if (user_size < minimum || user_size > PAGE_SIZE)
		return -EINVAL;
	err = copy_struct_from_user(to, size, from, user_size);
	/* user space may have changed it between the two reads: the first one was checked */
	*(u32 *)to = user_size;
	return err;
}

int rtxg_copy_out(void __user *to, const void *from, size_t size, u32 user_size)
{
	return copy_to_user(to, from, min_t(size_t, size, user_size)) ? -EFAULT : 0;
}
