// SPDX-License-Identifier: GPL-2.0-only
/*
 * dev.c - /dev/rtxg: its files, and where each call on them goes. May not: decide or check anything
 * that a call asks for.
 */
#include <linux/fs.h>
#include <linux/ioctl.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>

#include "cpu/cpu.h"
#include "dev.h"
#include "file.h"
#include "front.h"
#include "host.h"
#include "irq.h"
#include "order.h"
#include "task.h"

static unsigned int device_mode = 0666;
module_param(device_mode, uint, 0444);
MODULE_PARM_DESC(device_mode,
		 "permissions of /dev/rtxg; calls check capabilities of their own (0666)");

static int rtxg_open(struct inode *inode, struct file *file)
{
	struct rtxg_file *rtxg = rtxg_file_new();

	if (!rtxg)
		return -ENOMEM;
	file->private_data = rtxg;
	return 0;
}

static int rtxg_release(struct inode *inode, struct file *file)
{
	struct rtxg_file *rtxg = file->private_data;

	rtxg_front_release(rtxg);
	rtxg_host_release(rtxg);
	rtxg_cpu_release(rtxg);
	rtxg_irq_release(rtxg);
	rtxg_file_free(rtxg);
	return 0;
}

static long rtxg_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct rtxg_file *rtxg = file->private_data;
	void __user *user = (void __user *)argument;

	if (_IOC_TYPE(command) != 'x')
		return -ENOTTY;
	switch (_IOC_NR(command)) {
	case 0x01 ... 0x0f:
		return rtxg_host_ioctl(rtxg, command, argument);
	case 0x10 ... 0x2f:
		return rtxg_front_ioctl(rtxg, command, user);
	case 0x40 ... 0x4f:
		return rtxg_irq_ioctl(rtxg, command, user);
	case 0x80 ... 0x8f:
		return rtxg_cpu_ioctl(rtxg, command, user);
	case 0x90:
		return rtxg_task_ioctl(rtxg, command, user);
	case 0xa0:
		return rtxg_order_load_ioctl(command, user);
	}
	return -ENOTTY;
}

static int rtxg_mmap(struct file *file, struct vm_area_struct *vma)
{
	return rtxg_host_mmap(file->private_data, vma);
}

static __poll_t rtxg_poll(struct file *file, struct poll_table_struct *table)
{
	return rtxg_front_poll(file, file->private_data, table);
}

static const struct file_operations rtxg_operations = {
	.owner = THIS_MODULE,
	.open = rtxg_open,
	.release = rtxg_release,
	.unlocked_ioctl = rtxg_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = rtxg_mmap,
	.poll = rtxg_poll,
};

static struct miscdevice rtxg_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "rtxg",
	.fops = &rtxg_operations,
};

int rtxg_dev_init(void)
{
	rtxg_misc.mode = device_mode & 0666;
	rtxg_file_operations(&rtxg_operations);
	return misc_register(&rtxg_misc);
}

void rtxg_dev_exit(void)
{
	misc_deregister(&rtxg_misc);
}
