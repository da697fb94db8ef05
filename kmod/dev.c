// SPDX-License-Identifier: GPL-2.0-only
/*
 * dev.c - /dev/rtxg: files, ioctls and what they share. Decides nothing; every call is checked here
 * or where it goes.
 */
#include <linux/fs.h>
#include <linux/ioctl.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "rtxg_kmod.h"

static unsigned int device_mode = 0666;
module_param(device_mode, uint, 0444);
MODULE_PARM_DESC(device_mode,
		 "permissions of /dev/rtxg; calls check capabilities of their own (0666)");

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

void rtxg_waiters_init(struct rtxg_waiters *waiters)
{
	raw_spin_lock_init(&waiters->lock);
	INIT_LIST_HEAD(&waiters->list);
}

void rtxg_waiters_add(struct rtxg_waiters *waiters, struct rtxg_waiter *waiter)
{
	struct rtxg_waiter *other;
	unsigned long flags;

	waiter->task = current;
	waiter->priority = current->prio;
	waiter->woken = false;
	raw_spin_lock_irqsave(&waiters->lock, flags);
	list_for_each_entry (other, &waiters->list, node)
		if (other->priority > waiter->priority)
			break;
	list_add_tail(&waiter->node, &other->node);
	raw_spin_unlock_irqrestore(&waiters->lock, flags);
}

void rtxg_waiters_remove(struct rtxg_waiters *waiters, struct rtxg_waiter *waiter)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&waiters->lock, flags);
	if (!waiter->woken)
		list_del(&waiter->node);
	raw_spin_unlock_irqrestore(&waiters->lock, flags);
}

unsigned int rtxg_waiters_wake_locked(struct rtxg_waiters *waiters, unsigned int limit)
{
	struct rtxg_waiter *waiter, *next;
	unsigned int count = 0;

	lockdep_assert_held(&waiters->lock);
	list_for_each_entry_safe (waiter, next, &waiters->list, node) {
		if (count == limit)
			break;
		list_del(&waiter->node);
		waiter->woken = true;
		if (waiter->since_ns)
			rtxg_cpu_charge_gpu(waiter->task, waiter->since_ns);
		/*
		 * the waiter lives on its task's stack and cannot go before it takes the lock that
		 * we hold
		 */
		wake_up_process(waiter->task);
		count++;
	}
	return count;
}

unsigned int rtxg_waiters_wake(struct rtxg_waiters *waiters, unsigned int limit)
{
	unsigned int count;
	unsigned long flags;

	raw_spin_lock_irqsave(&waiters->lock, flags);
	count = rtxg_waiters_wake_locked(waiters, limit);
	raw_spin_unlock_irqrestore(&waiters->lock, flags);
	return count;
}

unsigned int rtxg_waiters_count(struct rtxg_waiters *waiters)
{
	struct rtxg_waiter *waiter;
	unsigned int count = 0;
	unsigned long flags;

	raw_spin_lock_irqsave(&waiters->lock, flags);
	list_for_each_entry (waiter, &waiters->list, node)
		count++;
	raw_spin_unlock_irqrestore(&waiters->lock, flags);
	return count;
}

static int rtxg_open(struct inode *inode, struct file *file)
{
	struct rtxg_file *rtxg = kzalloc(sizeof(*rtxg), GFP_KERNEL_ACCOUNT);

	if (!rtxg)
		return -ENOMEM;
	mutex_init(&rtxg->lock);
	INIT_LIST_HEAD(&rtxg->irqs);
	INIT_LIST_HEAD(&rtxg->tasks);
	file->private_data = rtxg;
	return 0;
}

static int rtxg_release(struct inode *inode, struct file *file)
{
	struct rtxg_file *rtxg = file->private_data;

	rtxg_host_release(rtxg);
	rtxg_cpu_release(rtxg);
	rtxg_irq_release(rtxg);
	mutex_destroy(&rtxg->lock);
	kfree(rtxg);
	return 0;
}

static long rtxg_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct rtxg_file *rtxg = file->private_data;
	void __user *user = (void __user *)argument;

	if (_IOC_TYPE(command) != 'x')
		return -ENOTTY;
	switch (_IOC_NR(command)) {
	case 0x01 ... 0x3f:
		return rtxg_host_ioctl(rtxg, command, argument);
	case 0x40 ... 0x4f:
		return rtxg_irq_ioctl(rtxg, command, user);
	case 0x80 ... 0x8f:
		return rtxg_cpu_ioctl(rtxg, command, user);
	case 0x90:
		return rtxg_task_ioctl(rtxg, command, user);
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

struct rtxg_file *rtxg_file_of(struct file *file)
{
	return file->f_op == &rtxg_operations ? file->private_data : NULL;
}

static struct miscdevice rtxg_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "rtxg",
	.fops = &rtxg_operations,
};

int rtxg_dev_init(void)
{
	rtxg_misc.mode = device_mode & 0666;
	return misc_register(&rtxg_misc);
}

void rtxg_dev_exit(void)
{
	misc_deregister(&rtxg_misc);
}
