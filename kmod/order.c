// SPDX-License-Identifier: GPL-2.0-only
/*
 * order.c - hosts core/order for threads of programs. An order is a descriptor: its memory, its
 * threads and its scheduler end with the last copy. Who may go is the core's answer; here it is
 * only how threads wait (a queue of their own, or one for all) and who wakes them (the peer that
 * made an access, or a scheduler). A thread's death is seen by a probe on the kernel's
 * sched_process_exit, and is the same as its leaving. May not: decide whose turn it is, or believe
 * a number of the caller's.
 */
#include <linux/anon_inodes.h>
#include <linux/capability.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/uidgid.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include <rtxg/order.h>

#include "compat.h"
#include "host.h"
#include "order.h"
#include "rtxg_order_core.h"
#include "trace.h"
#include "user.h"

#define STRIDE	(sizeof(struct rtxg_order_page_thread) / sizeof(u32))
#define MS_NS	1000000ull
#define HOUR_NS (3600ull * 1000 * MS_NS)

struct korder;

struct korder_thread {
	struct korder *order;
	struct task_struct *task; /* who joined; compared only, NULL: nobody */
	struct hlist_node node;	  /* in joined, under joined_lock */
	bool dead;		  /* under joined_lock */
	wait_queue_head_t queue;
};

struct korder {
	spinlock_t lock; /* over the run and the counts */
	struct rtxg_order core;
	struct rtxg_order_run run;
	void *memory;
	struct rtxg_order_page *page;
	struct rtxg_order_thread *state;
	struct rtxg_order_action *actions;
	struct korder_thread *thread;
	u32 prototype;
	u32 joined;
	u64 moved; /* accesses made by all */
	u64 context_switches, signals, clocks, waits, wakeups;
	wait_queue_head_t all; /* prototypes 3, 4 and 6 */
	/* prototypes 2 and 4 */
	struct task_struct *scheduler;
	kuid_t charged;			 /* against whose limit it counts */
	struct list_head scheduled_node; /* in scheduled, under scheduled_lock */
	wait_queue_head_t work;
	bool look;
	struct work_struct deaths;
};

/* Threads that are in some order, by their task: a probe looks here at each end of a task. */
static DEFINE_HASHTABLE(joined, 8);
static DEFINE_RAW_SPINLOCK(joined_lock);

static bool one_queue(const struct korder *o)
{
	return o->prototype == RTXG_ORDER_PROTO_3 || o->prototype == RTXG_ORDER_PROTO_4 ||
	       o->prototype == RTXG_ORDER_PROTO_6;
}

static bool has_scheduler(const struct korder *o)
{
	return o->prototype == RTXG_ORDER_PROTO_2 || o->prototype == RTXG_ORDER_PROTO_4;
}

static bool has_page_first(const struct korder *o)
{
	return o->prototype == RTXG_ORDER_PROTO_5 || o->prototype == RTXG_ORDER_PROTO_6;
}

/* --- waking ----------------------------------------------------------------------------------- */

/* Every thread but one looks again. */
static void wake_others(struct korder *o, u32 but)
{
	if (one_queue(o)) {
		wake_up_all(&o->all);
		return;
	}
	for (u32 t = 0; t < o->core.shape.threads; t++)
		if (t != but)
			wake_up_all(&o->thread[t].queue);
}

/* The order is broken: all that wait are let go. */
static void wake_everybody(struct korder *o)
{
	WRITE_ONCE(o->page->broken, 1);
	wake_others(o, RTXG_ORDER_MANY);
}

static int scheduler(void *argument)
{
	struct korder *o = argument;

	while (!kthread_should_stop()) {
		wait_event_interruptible(o->work, READ_ONCE(o->look) || kthread_should_stop());
		if (!xchg(&o->look, false))
			continue;
		if (one_queue(o)) {
			wake_up_all(&o->all);
			continue;
		}
		for (u32 t = 0; t < o->core.shape.threads; t++)
			if (READ_ONCE(o->state[t].state) != RTXG_ORDER_WAITING)
				wake_up_all(&o->thread[t].queue);
	}
	return 0;
}

/* Orders that have a scheduler, or are about to: the kernel counts it against no user's limit. */
static LIST_HEAD(scheduled);
static DEFINE_MUTEX(scheduled_lock);

static int enter_scheduled(struct korder *o)
{
	const struct korder *other;
	u32 all = 0, own = 0;
	int err = 0;

	o->charged = rtxg_host_charged_user();
	mutex_lock(&scheduled_lock);
	list_for_each_entry (other, &scheduled, scheduled_node) {
		all++;
		own += uid_eq(other->charged, o->charged);
	}
	if (own >= RTXG_ORDER_SCHEDULERS_OF_A_USER)
		err = -EDQUOT;
	else if (all >= RTXG_ORDER_SCHEDULERS)
		err = -ENOSPC;
	if (err && capable(CAP_SYS_RESOURCE))
		err = 0;
	if (!err)
		list_add(&o->scheduled_node, &scheduled);
	mutex_unlock(&scheduled_lock);
	return err;
}

static void leave_scheduled(struct korder *o)
{
	mutex_lock(&scheduled_lock);
	list_del(&o->scheduled_node);
	mutex_unlock(&scheduled_lock);
}

static int begin_scheduler(struct korder *o)
{
	int err = enter_scheduled(o);

	if (err)
		return err;
	o->scheduler = kthread_run(scheduler, o, "rtxg-order");
	if (!IS_ERR(o->scheduler))
		return 0;
	o->scheduler = NULL;
	leave_scheduled(o);
	return -ENOMEM;
}

static void end_scheduler(struct korder *o)
{
	if (!o->scheduler)
		return;
	kthread_stop(o->scheduler);
	leave_scheduled(o);
}

static void wake_after_access(struct korder *o, u32 thread)
{
	if (!has_scheduler(o)) {
		wake_others(o, thread);
		return;
	}
	WRITE_ONCE(o->look, true);
	wake_up_all(&o->work);
}

/* --- one event -------------------------------------------------------------------------------- */

/* The core's answer; a break is carried out. */
static int step(struct korder *o, enum rtxg_order_event event, u32 thread)
{
	bool broke;
	int ret;

	spin_lock(&o->lock);
	ret = rtxg_order_step(&o->run, event, thread, o->actions, o->core.shape.threads);
	broke = ret == 1 && o->actions[0].type == RTXG_ORDER_BREAK;
	spin_unlock(&o->lock);
	if (broke)
		wake_everybody(o);
	return broke && event == RTXG_ORDER_BEFORE ? -EPIPE : ret;
}

/* The calling thread's place in the order. */
static int own_thread(struct korder *o, u32 thread)
{
	if (thread >= o->core.shape.threads)
		return -ENXIO;
	return READ_ONCE(o->thread[thread].task) == current ? 0 : -EPERM;
}

/* --- threads come and go ---------------------------------------------------------------------- */

static void forget_thread(struct korder_thread *thread)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&joined_lock, flags);
	if (thread->task) {
		hash_del(&thread->node);
		WRITE_ONCE(thread->task, NULL);
	}
	raw_spin_unlock_irqrestore(&joined_lock, flags);
}

static void leave(struct korder *o, u32 thread)
{
	int ret = step(o, RTXG_ORDER_LEAVE, thread);

	spin_lock(&o->lock);
	o->joined -= ret != -EBADFD;
	spin_unlock(&o->lock);
}

/* What the probe saw is carried out here, where locks may sleep. */
static void bury(struct work_struct *work)
{
	struct korder *o = container_of(work, struct korder, deaths);

	for (u32 t = 0; t < o->core.shape.threads; t++) {
		bool dead;

		raw_spin_lock_irq(&joined_lock);
		dead = o->thread[t].dead;
		o->thread[t].dead = false;
		raw_spin_unlock_irq(&joined_lock);
		if (dead)
			leave(o, t);
	}
}

static void probe_exit(void *data, struct task_struct *task RTXG_EXIT_PROBE_MORE)
{
	struct korder_thread *thread;
	struct hlist_node *next;
	unsigned long flags;

	raw_spin_lock_irqsave(&joined_lock, flags);
	hash_for_each_possible_safe(joined, thread, next, node, (unsigned long)task)
	{
		if (thread->task != task)
			continue;
		hash_del(&thread->node);
		WRITE_ONCE(thread->task, NULL);
		thread->dead = true;
		schedule_work(&thread->order->deaths);
	}
	raw_spin_unlock_irqrestore(&joined_lock, flags);
}

static struct rtxg_probe probes[] = {
	{ "sched_process_exit", probe_exit },
	{ NULL },
};

static int copy_thread_call(struct rtxg_order_thread_call *call, const void __user *user)
{
	int err = rtxg_copy_in(call, sizeof(*call), sizeof(*call), user);

	return err ?: call->reserved ? -EINVAL : 0;
}

/* In how many places of orders a task is. Its end looks at each of them, with interrupts off. */
static unsigned int places_of(const struct task_struct *task)
{
	const struct korder_thread *thread;
	unsigned int count = 0;

	raw_spin_lock_irq(&joined_lock);
	hash_for_each_possible(joined, thread, node, (unsigned long)task)
	{
		count += thread->task == task;
	}
	raw_spin_unlock_irq(&joined_lock);
	return count;
}

static long order_join(struct korder *o, const void __user *user)
{
	struct rtxg_order_thread_call call;
	int err = copy_thread_call(&call, user) ?: rtxg_trace_need(RTXG_TRACE_ORDER);

	/* only the task itself adds to them */
	if (!err && places_of(current) >= RTXG_ORDER_PLACES_MAX)
		err = -EUSERS;
	if (!err)
		err = step(o, RTXG_ORDER_JOIN, call.thread);
	if (err)
		return err;
	spin_lock(&o->lock);
	o->joined++;
	spin_unlock(&o->lock);
	raw_spin_lock_irq(&joined_lock);
	WRITE_ONCE(o->thread[call.thread].task, current);
	hash_add(joined, &o->thread[call.thread].node, (unsigned long)current);
	raw_spin_unlock_irq(&joined_lock);
	return 0;
}

static long order_leave(struct korder *o, const void __user *user)
{
	struct rtxg_order_thread_call call;
	int err = copy_thread_call(&call, user);

	if (err)
		return err;
	if (call.thread == RTXG_ORDER_MANY) {
		spin_lock(&o->lock);
		rtxg_order_close(&o->run);
		spin_unlock(&o->lock);
		wake_everybody(o);
		return 0;
	}
	err = own_thread(o, call.thread);
	if (err)
		return err;
	forget_thread(&o->thread[call.thread]);
	leave(o, call.thread);
	return 0;
}

/* --- accesses --------------------------------------------------------------------------------- */

static bool goes(struct korder *o, u32 thread)
{
	return READ_ONCE(o->state[thread].state) != RTXG_ORDER_WAITING;
}

/* The thread waits. When nothing at all has moved for so long, it gives the order up. */
static int sleep_until_turn(struct korder *o, u32 thread, u64 patience_ns)
{
	wait_queue_head_t *queue = one_queue(o) ? &o->all : &o->thread[thread].queue;
	unsigned long patience = nsecs_to_jiffies(patience_ns) + 1, left;
	DEFINE_WAIT(wait);
	u64 moved;
	int err = 0;

	spin_lock(&o->lock);
	moved = o->moved;
	spin_unlock(&o->lock);
	while (!err) {
		prepare_to_wait(queue, &wait, TASK_INTERRUPTIBLE);
		if (goes(o, thread))
			break;
		if (signal_pending(current)) {
			err = -EINTR;
			break;
		}
		left = schedule_timeout(patience);
		spin_lock(&o->lock);
		o->wakeups += left != 0;
		if (!left && moved == o->moved)
			err = -ETIME;
		moved = o->moved;
		spin_unlock(&o->lock);
	}
	finish_wait(queue, &wait);
	if (err != -ETIME)
		return err;
	/* Not, if its turn has just come. */
	step(o, RTXG_ORDER_GIVE_UP, thread);
	return 0;
}

static long order_context_switch(struct korder *o, const void __user *user)
{
	struct rtxg_order_wait call;
	int err = rtxg_copy_in(&call, sizeof(call), sizeof(call), user);
	bool again, waits = false;

	if (!err && (call.reserved || call.patience_ns < MS_NS || call.patience_ns > HOUR_NS))
		err = -EINVAL;
	if (!err)
		err = own_thread(o, call.thread);
	if (err)
		return err;
	/* A signal cut its wait short: it goes on with the same access. */
	again = READ_ONCE(o->state[call.thread].state) == RTXG_ORDER_WAITING;
	if (!again) {
		err = step(o, RTXG_ORDER_BEFORE, call.thread);
		/* Its turn came while it was away. */
		if (err == -EBADFD && READ_ONCE(o->state[call.thread].state) == RTXG_ORDER_INSIDE)
			err = 1;
		waits = err == 0;
		if (err < 0 && err != -EPIPE)
			return err;
	}
	spin_lock(&o->lock);
	o->context_switches += !again;
	o->waits += waits;
	spin_unlock(&o->lock);
	if (again || waits)
		err = sleep_until_turn(o, call.thread, call.patience_ns);
	if (err < 0)
		return err;
	return READ_ONCE(o->page->broken) ? -EPIPE : 0;
}

/* Prototypes 5 and 6 begin accesses without a call: only those that may begin. */
static int begin_unasked(struct korder *o, u32 thread)
{
	int err = 0;

	spin_lock(&o->lock);
	if (o->state[thread].state == RTXG_ORDER_FREE && !o->run.broken.kind) {
		if (rtxg_order_may_go(&o->run, thread))
			rtxg_order_step(&o->run, RTXG_ORDER_BEFORE, thread, o->actions,
					o->core.shape.threads);
		else
			err = -EBADFD;
	}
	spin_unlock(&o->lock);
	return err;
}

static long order_access_made(struct korder *o, const void __user *user, bool signals)
{
	struct rtxg_order_thread_call call;
	int err = copy_thread_call(&call, user);

	if (!err &&
	    signals != (o->prototype == RTXG_ORDER_PROTO_1 || o->prototype == RTXG_ORDER_PROTO_3))
		err = -EOPNOTSUPP;
	if (!err)
		err = own_thread(o, call.thread);
	if (!err && has_page_first(o))
		err = begin_unasked(o, call.thread);
	if (err)
		return err;
	err = step(o, RTXG_ORDER_AFTER, call.thread);
	if (err < 0)
		/* On a broken order an access needs no turn, and is not counted. */
		return READ_ONCE(o->page->broken) ? 0 : err;
	spin_lock(&o->lock);
	o->moved++;
	if (signals)
		o->signals++;
	else
		o->clocks++;
	spin_unlock(&o->lock);
	wake_after_access(o, call.thread);
	return 0;
}

static long order_stats(struct korder *o, void __user *user)
{
	struct rtxg_order_stats stats;
	u32 size;
	int err = rtxg_copy_in(&stats, sizeof(stats), sizeof(stats.size), user);

	if (err)
		return err;
	size = stats.size;
	memset(&stats, 0, sizeof(stats));
	stats.size = size;
	stats.prototype = o->prototype;
	spin_lock(&o->lock);
	stats.context_switches = o->context_switches;
	stats.signals = o->signals;
	stats.clocks = o->clocks;
	stats.waits = o->waits;
	stats.wakeups = o->wakeups;
	stats.joined = o->joined;
	stats.broken = o->run.broken;
	spin_unlock(&o->lock);
	return rtxg_copy_out(user, &stats, sizeof(stats), size);
}

/* --- the descriptor --------------------------------------------------------------------------- */

static long order_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	const void __user *user = (const void __user *)argument;
	struct korder *o = file->private_data;

	switch (command) {
	case RTXG_IOC_ORDER_JOIN:
		return order_join(o, user);
	case RTXG_IOC_ORDER_CONTEXT_SWITCH:
		return order_context_switch(o, user);
	case RTXG_IOC_ORDER_SET_CLOCK:
		return order_access_made(o, user, false);
	case RTXG_IOC_ORDER_SIGNAL_ALL:
		return order_access_made(o, user, true);
	case RTXG_IOC_ORDER_LEAVE:
		return order_leave(o, user);
	case RTXG_IOC_ORDER_STATS:
		return order_stats(o, (void __user *)argument);
	}
	return -ENOTTY;
}

static size_t page_size_of(u32 threads)
{
	return PAGE_ALIGN(sizeof(struct rtxg_order_page) +
			  threads * sizeof(struct rtxg_order_page_thread));
}

/* Programs read it, and never write. */
static int order_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct korder *o = file->private_data;

	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EPERM;
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start > page_size_of(o->core.shape.threads))
		return -EINVAL;
	rtxg_vm_flags(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE | VM_MAYEXEC);
	return remap_vmalloc_range(vma, o->page, 0);
}

static void free_order(struct korder *o)
{
	if (!o)
		return;
	vfree(o->page);
	kvfree(o->thread);
	kvfree(o->state);
	kvfree(o->actions);
	kvfree(o->memory);
	kfree(o);
}

static int order_release(struct inode *inode, struct file *file)
{
	struct korder *o = file->private_data;

	for (u32 t = 0; t < o->core.shape.threads; t++)
		forget_thread(&o->thread[t]);
	cancel_work_sync(&o->deaths);
	end_scheduler(o);
	free_order(o);
	return 0;
}

static const struct file_operations order_operations = {
	.owner = THIS_MODULE,
	.release = order_release,
	.unlocked_ioctl = order_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = order_mmap,
};

/* --- loading ---------------------------------------------------------------------------------- */

static void *copy_array(u64 address, size_t size)
{
	void *memory = kvmalloc(size ?: 1, GFP_KERNEL_ACCOUNT);

	if (!memory)
		return ERR_PTR(-ENOMEM);
	if (!copy_from_user(memory, u64_to_user_ptr(address), size))
		return memory;
	kvfree(memory);
	return ERR_PTR(-EFAULT);
}

/* The tables, from copies: the caller may change its own at any time. */
static int load_tables(struct korder *o, struct rtxg_order_load *call)
{
	u32 *accesses = NULL;
	struct rtxg_order_entry *entries;
	struct rtxg_order_need *needs;
	int err = -EFAULT;

	entries = copy_array(call->entry, call->entries * sizeof(*entries));
	needs = copy_array(call->need, call->needs * sizeof(*needs));
	if (call->accesses)
		accesses = copy_array(call->accesses, call->threads * sizeof(*accesses));
	if (IS_ERR(entries))
		err = PTR_ERR(entries);
	else if (IS_ERR(needs))
		err = PTR_ERR(needs);
	else if (IS_ERR(accesses))
		err = PTR_ERR(accesses);
	else
		err = rtxg_order_load(&o->core, entries, needs, accesses, &call->fault);
	if (!IS_ERR(entries))
		kvfree(entries);
	if (!IS_ERR(needs))
		kvfree(needs);
	if (!IS_ERR(accesses))
		kvfree(accesses);
	return err;
}

/* Between two steps of loading, where nothing is held: what waits for this CPU runs. */
static void breathe(void)
{
	cond_resched();
}

static struct korder *new_order(const struct rtxg_order_load *call)
{
	struct rtxg_order_shape shape = { call->threads, call->entries, call->needs };
	struct korder *o = kzalloc(sizeof(*o), GFP_KERNEL_ACCOUNT);

	if (!o)
		return NULL;
	o->memory = kvzalloc(rtxg_order_size(&shape), GFP_KERNEL_ACCOUNT);
	o->page = vmalloc_user(page_size_of(call->threads));
	o->state = kvcalloc(call->threads, sizeof(*o->state), GFP_KERNEL_ACCOUNT);
	o->actions = kvcalloc(call->threads, sizeof(*o->actions), GFP_KERNEL_ACCOUNT);
	o->thread = kvcalloc(call->threads, sizeof(*o->thread), GFP_KERNEL_ACCOUNT);
	if (!o->memory || !o->page || !o->state || !o->actions || !o->thread) {
		free_order(o);
		return NULL;
	}
	o->prototype = call->prototype;
	spin_lock_init(&o->lock);
	init_waitqueue_head(&o->all);
	init_waitqueue_head(&o->work);
	INIT_WORK(&o->deaths, bury);
	rtxg_order_place(&o->core, &shape, o->memory);
	o->core.breathe = breathe;
	for (u32 t = 0; t < call->threads; t++) {
		o->thread[t].order = o;
		init_waitqueue_head(&o->thread[t].queue);
	}
	return o;
}

static int begin(struct korder *o)
{
	u32 threads = o->core.shape.threads;

	o->page->size = sizeof(*o->page) + threads * sizeof(o->page->thread[0]);
	o->page->threads = threads;
	rtxg_order_begin(&o->run, &o->core, o->state, &o->page->thread[0].clock, STRIDE);
	return has_scheduler(o) ? begin_scheduler(o) : 0;
}

static long load(struct rtxg_order_load *call)
{
	struct korder *o = new_order(call);
	int err;

	if (!o)
		return -ENOMEM;
	err = load_tables(o, call) ?: begin(o);
	if (!err)
		err = anon_inode_getfd("[rtxg-order]", &order_operations, o, O_RDWR | O_CLOEXEC);
	if (err < 0) {
		end_scheduler(o);
		free_order(o);
	}
	return err;
}

long rtxg_order_load_ioctl(unsigned int command, void __user *user)
{
	struct rtxg_order_load call;
	long ret;

	if (command != RTXG_IOC_ORDER_LOAD)
		return -ENOTTY;
	ret = rtxg_copy_in(&call, sizeof(call), sizeof(call), user);
	if (ret)
		return ret;
	if (call.flags || !rtxg_all_zero(call.reserved, sizeof(call.reserved)) || !call.prototype ||
	    call.prototype > RTXG_ORDER_PROTO_6 || !call.threads ||
	    call.threads > RTXG_ORDER_THREADS_MAX)
		return -EINVAL;
	if (call.entries > RTXG_ORDER_KERNEL_ENTRIES_MAX ||
	    call.needs > RTXG_ORDER_KERNEL_NEEDS_MAX)
		return -E2BIG;
	memset(&call.fault, 0, sizeof(call.fault));
	ret = load(&call);
	/* The descriptor stands by now: what cannot be written is nothing that it needs. */
	if (ret < 0 && rtxg_copy_out(user, &call, sizeof(call), call.size))
		ret = -EFAULT;
	return ret;
}

void rtxg_order_module_init(void)
{
	rtxg_trace_register(RTXG_TRACE_ORDER, probes);
}
