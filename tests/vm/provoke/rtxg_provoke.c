// SPDX-License-Identifier: GPL-2.0-only
/*
 * rtxg_provoke.c - makes the mistakes that a debug kernel looks for, one for each insmod
 * (what=NAME), to see that they are found and that the search of the kernel's log sees it. For a
 * guest that is thrown away; it has nothing to do with rtxg and never stays loaded.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timer.h>

static char *what = "";
module_param(what, charp, 0);
MODULE_PARM_DESC(what, "which mistake to make");

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);
static int __rcu *guarded;
static volatile int thirty_three = 33, sink;

static void use_after_free(void)
{
	volatile char *memory = kmalloc(64, GFP_KERNEL);

	kfree((void *)memory);
	sink = memory[3];
}

static void out_of_bounds(void)
{
	volatile char *memory = kmalloc(61, GFP_KERNEL);

	memory[61 + (thirty_three & 1)] = 1;
	kfree((void *)memory);
}

static void shift(void)
{
	sink = 1 << thirty_three;
}

static void sleep_in_atomic(void)
{
	preempt_disable();
	msleep(1);
	preempt_enable();
}

static void ignored(struct timer_list *timer)
{
}

static void free_active(void)
{
	struct timer_list *timer = kmalloc(sizeof(*timer), GFP_KERNEL);

	if (!timer)
		return;
	timer_setup(timer, ignored, 0);
	mod_timer(timer, jiffies + 100 * HZ);
	kfree(timer); /* the check takes it out of the queue before the memory goes */
}

static void rcu_unlocked(void)
{
	sink = rcu_dereference(guarded) != NULL;
}

static void lock_order(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);
	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
}

static void list_twice(void)
{
	static LIST_HEAD(head);
	static struct list_head entry;

	list_add(&entry, &head);
	list_add(&entry, &head);
}

static int raced;

static int count_in_thread(void *unused)
{
	while (!kthread_should_stop()) {
		raced++;
		cond_resched();
	}
	return 0;
}

static void race_for_a_count(void)
{
	struct task_struct *other = kthread_run(count_in_thread, NULL, "rtxg_provoke");
	unsigned long end = jiffies + 5 * HZ;

	if (IS_ERR(other))
		return;
	while (time_before(jiffies, end)) {
		raced++;
		cond_resched();
	}
	kthread_stop(other);
}

static const struct {
	const char *name;
	void (*make)(void);
} mistakes[] = {
	{ "use-after-free", use_after_free },
	{ "out-of-bounds", out_of_bounds },
	{ "shift", shift },
	{ "sleep-in-atomic", sleep_in_atomic },
	{ "free-active", free_active },
	{ "rcu-unlocked", rcu_unlocked },
	{ "lock-order", lock_order },
	{ "list-twice", list_twice },
	{ "data-race", race_for_a_count },
};

static int __init provoke(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(mistakes); i++)
		if (!strcmp(mistakes[i].name, what)) {
			mistakes[i].make();
			return -ECANCELED; /* nothing stays, so that the next can come */
		}
	pr_err("rtxg_provoke: what=\"%s\" is none of its mistakes\n", what);
	return -EINVAL;
}
module_init(provoke);

MODULE_DESCRIPTION("mistakes for a debug kernel to find");
MODULE_LICENSE("GPL");
