// SPDX-License-Identifier: GPL-2.0-only
/*
 * file.c - what an open file of /dev/rtxg carries. May not: know what its calls do.
 */
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "file.h"

struct rtxg_file *rtxg_file_new(void)
{
	struct rtxg_file *rtxg = kzalloc(sizeof(*rtxg), GFP_KERNEL_ACCOUNT);

	if (!rtxg)
		return NULL;
	mutex_init(&rtxg->lock);
	INIT_LIST_HEAD(&rtxg->irqs);
	INIT_LIST_HEAD(&rtxg->tasks);
	return rtxg;
}

void rtxg_file_free(struct rtxg_file *rtxg)
{
	mutex_destroy(&rtxg->lock);
	kfree(rtxg);
}

/* The module's other files, such as an order, carry something else. */
static const struct file_operations *device_operations;

void rtxg_file_operations(const struct file_operations *operations)
{
	device_operations = operations;
}

struct rtxg_file *rtxg_file_of(struct file *file)
{
	return file->f_op && file->f_op == device_operations ? file->private_data : NULL;
}
