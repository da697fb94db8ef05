// SPDX-License-Identifier: GPL-2.0-only
/*
 * irq.c - interception of interrupts that belong to other drivers (Linux-RTXG, section III.C).
 *
 * An interrupt's driver left a handler in the kernel's descriptor of it. We put ours in its place,
 * which notes the time, reads the status register that tells what the device wants (the driver's
 * handler will reset it), wakes who waits for that, calls the driver's handler with what it
 * expects, and notes the time again. Driver and kernel are not changed and do not take part.
 *
 * What makes that safe:
 *   - The handler is swapped and put back under the descriptor's own lock, and only after finding
 *     the driver's action in the descriptor's list; nothing is remembered about memory that the
 *     driver may have freed without looking for it again.
 *   - A hook is in the table before its handler is in place, and leaves the table after the kernel
 *     has said that the interrupt is not running (synchronize_irq) and a grace period has passed.
 *   - If another module has put a third handler over ours, ours cannot be taken out. It stays as a
 *     pass-through and pins the module.
 *
 * The other way (RTXG_IRQ_F_TRACEPOINT) leaves the handler alone and listens to the kernel's
 * tracepoints around it: that is paid by every interrupt of the machine, and does not see handlers'
 * threads.
 *
 * May not: decide anything about scheduling, sleep or take a sleeping lock in interrupt context
 * (also on PREEMPT_RT).
 */
#include <linux/capability.h>
#include <linux/hashtable.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/rculist.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/timex.h>
#include <linux/uaccess.h>

#include <rtxg/irq.h>

#include "compat.h"
#include "cpu/cpu.h"
#include "file.h"
#include "irq.h"
#include "trace.h"
#include "user.h"
#include "waiters.h"

/*
 * One intercepted action of one interrupt. Written by its own interrupt only, which the kernel
 * never runs twice at a time.
 */
struct hook {
	struct hlist_node node;
	unsigned int irq;
	bool traced;
	bool orphan;
	struct irqaction *action; /* an address to look for, not to follow */
	void *dev_id;
	irq_handler_t handler;
	irq_handler_t thread_fn; /* NULL: there was none */
	struct list_head watches;
	char name[RTXG_IRQ_NAME];

	u64 entries, exits, handled;
	u64 handler_ns, handler_min_ns, handler_max_ns;
	u64 thread_entries, thread_exits, thread_ns, thread_max_ns;
	u64 entered_ns; /* traced: when the handler began */
};

/* One attachment: what its file wants to know of a hook. */
struct watch {
	struct list_head node; /* in the hook's list */
	struct list_head file_node;
	struct kref kref;
	struct hook *hook;
	u32 id;
	u32 flags;

	struct pci_dev *pdev;
	void __iomem *reg;
	phys_addr_t reg_address;
	u32 width;
	u64 mask, value;

	/* under waiters.lock */
	struct rtxg_waiters waiters;
	bool dead;
	bool pending; /* RTXG_IRQ_F_AFTER: matched at entry, to be told at the end */
	u64 sequence, matched, wakeups;
	u64 entry_ns, status, entry_cycles, wake_cycles;
};

static DEFINE_HASHTABLE(hooks, 6);
static DEFINE_MUTEX(hooks_lock); /* over the table, the hooks' lists and the swap */

static struct hook *find_hook(unsigned int irq, void *dev_id, bool traced)
{
	struct hook *hook;

	hash_for_each_possible_rcu(hooks, hook, node, irq) if (hook->irq == irq &&
							       hook->dev_id == dev_id &&
							       hook->traced == traced) return hook;
	return NULL;
}

static u64 read_source(const struct watch *watch)
{
	switch (watch->width) {
	case 1:
		return readb(watch->reg);
	case 2:
		return readw(watch->reg);
	case 4:
		return readl(watch->reg);
	default:
#ifdef CONFIG_64BIT
		return readq(watch->reg);
#else
		return readl(watch->reg) | (u64)readl(watch->reg + 4) << 32;
#endif
	}
}

/* All ones is what the bus answers when the device is gone or asleep: no source. */
static bool source_matches(const struct watch *watch, u64 status)
{
	if (status == GENMASK_ULL(watch->width * 8 - 1, 0))
		return false;
	if (watch->flags & RTXG_IRQ_F_EQUAL)
		return (status & watch->mask) == watch->value;
	return status & watch->mask;
}

/* One more event: wakes who waits. Its waiters are locked. */
static void tell(struct watch *watch)
{
	watch->sequence++;
	watch->wake_cycles = get_cycles();
	watch->wakeups += rtxg_waiters_wake_locked(&watch->waiters);
}

/*
 * Before the driver's top half. Interrupts are off; a few loads, at most one register read a
 * device, and the wake-up.
 */
static void notify_watches(struct hook *hook)
{
	u64 cycles = get_cycles();
	phys_addr_t read_address = 0;
	struct watch *watch;
	u64 status = 0;

	list_for_each_entry_rcu(watch, &hook->watches, node)
	{
		if (watch->flags & RTXG_IRQ_F_SOURCE) {
			/*
			 * watches of one register stand next to each other: it is read once, as
			 * reading may change it
			 */
			if (watch->reg_address != read_address) {
				status = read_source(watch);
				read_address = watch->reg_address;
			}
			if (!source_matches(watch, status))
				continue;
		}
		raw_spin_lock(&watch->waiters.lock);
		watch->matched++;
		watch->entry_ns = ktime_get_mono_fast_ns();
		watch->entry_cycles = cycles;
		watch->status = watch->flags & RTXG_IRQ_F_SOURCE ? status : 0;
		if (watch->flags & RTXG_IRQ_F_AFTER)
			watch->pending = true;
		else
			tell(watch);
		raw_spin_unlock(&watch->waiters.lock);
	}
}

/* After the driver's handler or its thread, whichever does the work. */
static void notify_after(struct hook *hook)
{
	struct watch *watch;
	unsigned long flags;

	list_for_each_entry_rcu(watch, &hook->watches, node)
	{
		if (!(watch->flags & RTXG_IRQ_F_AFTER))
			continue;
		raw_spin_lock_irqsave(&watch->waiters.lock, flags);
		if (watch->pending) {
			watch->pending = false;
			tell(watch);
		}
		raw_spin_unlock_irqrestore(&watch->waiters.lock, flags);
	}
}

static void count_exit(struct hook *hook, u64 spent, irqreturn_t result)
{
	hook->handler_ns += spent;
	hook->handler_min_ns = min(hook->handler_min_ns, spent);
	hook->handler_max_ns = max(hook->handler_max_ns, spent);
	hook->handled += result != IRQ_NONE;
	WRITE_ONCE(hook->exits, hook->exits + 1);
}

/* In place of a driver's handler. */
static irqreturn_t intercept(int irq, void *dev_id)
{
	irqreturn_t result;
	struct hook *hook;
	u64 before;

	/*
	 * pairs with the release in put_in_place(): who sees this handler in place sees its hook in
	 * the table
	 */
	smp_rmb();
	rcu_read_lock();
	hook = find_hook(irq, dev_id, false);
	if (unlikely(!hook)) {
		rcu_read_unlock();
		return IRQ_NONE;
	}
	WRITE_ONCE(hook->entries, hook->entries + 1);
	notify_watches(hook);
	/* differences on one CPU: the cheapest clock will do */
	before = sched_clock();
	result = hook->handler(irq, dev_id);
	count_exit(hook, sched_clock() - before, result);
	if (result != IRQ_WAKE_THREAD)
		notify_after(hook);
	rcu_read_unlock();
	return result;
}

/*
 * In place of the function of a driver's interrupt thread. It may sleep: no RCU section around it,
 * synchronize_irq waits for it.
 */
static irqreturn_t intercept_thread(int irq, void *dev_id)
{
	irqreturn_t result;
	struct hook *hook;
	u64 before, spent;

	smp_rmb();
	rcu_read_lock();
	hook = find_hook(irq, dev_id, false);
	rcu_read_unlock();
	if (unlikely(!hook))
		return IRQ_NONE;
	WRITE_ONCE(hook->thread_entries, hook->thread_entries + 1);
	before = ktime_get_mono_fast_ns();
	result = hook->thread_fn(irq, dev_id);
	spent = ktime_get_mono_fast_ns() - before;
	hook->thread_ns += spent;
	hook->thread_max_ns = max(hook->thread_max_ns, spent);
	WRITE_ONCE(hook->thread_exits, hook->thread_exits + 1);
	/* the hook outlives us: taking it out waits for this thread */
	rcu_read_lock();
	notify_after(hook);
	rcu_read_unlock();
	return result;
}

static void probe_entry(void *data, int irq, struct irqaction *action)
{
	struct hook *hook;

	rcu_read_lock();
	hook = find_hook(irq, action->dev_id, true);
	if (hook) {
		WRITE_ONCE(hook->entries, hook->entries + 1);
		notify_watches(hook);
		hook->entered_ns = sched_clock();
	}
	rcu_read_unlock();
}

static void probe_exit(void *data, int irq, struct irqaction *action, int result)
{
	struct hook *hook;

	rcu_read_lock();
	hook = find_hook(irq, action->dev_id, true);
	if (hook && hook->entered_ns) {
		count_exit(hook, sched_clock() - hook->entered_ns, result);
		hook->entered_ns = 0;
		/* a thread of the handler is not seen from here */
		notify_after(hook);
	}
	rcu_read_unlock();
}

static struct rtxg_probe probes[] = {
	{ "irq_handler_entry", probe_entry },
	{ "irq_handler_exit", probe_exit },
	{},
};

/*
 * Locks the descriptor of an interrupt. NULL if there is none; else rcu and the lock are held. The
 * memory of a descriptor is given back after a grace period, so that one that is being removed may
 * be looked at, and has no actions.
 */
static struct irq_desc *lock_desc(unsigned int irq, unsigned long *flags)
{
	struct irq_data *data;
	struct irq_desc *desc;

	rcu_read_lock();
	data = irq_get_irq_data(irq);
	if (!data) {
		rcu_read_unlock();
		return NULL;
	}
	desc = irq_data_to_desc(data);
	raw_spin_lock_irqsave(&desc->lock, *flags);
	return desc;
}

static void unlock_desc(struct irq_desc *desc, unsigned long flags)
{
	raw_spin_unlock_irqrestore(&desc->lock, flags);
	rcu_read_unlock();
}

/*
 * The hook's action as it stands in its descriptor now, or NULL: the driver has freed it. The
 * descriptor is locked.
 */
static struct irqaction *find_action(struct irq_desc *desc, const struct hook *hook)
{
	struct irqaction *action;

	for (action = desc->action; action; action = action->next)
		if (action == hook->action && action->dev_id == hook->dev_id)
			return action;
	return NULL;
}

static bool in_place(const struct hook *hook, const struct irqaction *action)
{
	return action->handler == intercept &&
	       (!hook->thread_fn || action->thread_fn == intercept_thread);
}

/*
 * Takes our handlers out. 0: they are out, or the driver had freed the interrupt. -EBUSY: another
 * else's stand over ours.
 */
static int take_out(struct hook *hook)
{
	struct irqaction *action;
	struct irq_desc *desc;
	unsigned long flags;
	int err = 0;

	desc = lock_desc(hook->irq, &flags);
	if (!desc)
		return 0;
	action = find_action(desc, hook);
	if (action && in_place(hook, action)) {
		WRITE_ONCE(action->handler, hook->handler);
		if (hook->thread_fn)
			WRITE_ONCE(action->thread_fn, hook->thread_fn);
	} else if (action && action->handler != hook->handler) {
		err = -EBUSY;
	}
	unlock_desc(desc, flags);
	/* the handler and its thread may still be running our code */
	if (!err)
		synchronize_irq(hook->irq);
	return err;
}

static bool hook_gone(struct hook *hook)
{
	struct irq_desc *desc;
	unsigned long flags;
	bool gone = true;

	desc = lock_desc(hook->irq, &flags);
	if (desc) {
		struct irqaction *action = find_action(desc, hook);

		gone = !action || (!hook->traced && action->handler == hook->handler);
		unlock_desc(desc, flags);
	}
	return gone;
}

/* Drops a hook without watches. Called with hooks_lock. */
static int drop_hook(struct hook *hook)
{
	if (!hook->traced && take_out(hook)) {
		if (!hook->orphan) {
			hook->orphan = true;
			__module_get(THIS_MODULE);
			pr_warn("rtxg: irq %u (%s): another handler stands over ours; ours stays, "
				"and rtxg cannot be unloaded until that one is gone\n",
				hook->irq, hook->name);
		}
		return -EBUSY;
	}
	hash_del_rcu(&hook->node);
	synchronize_rcu();
	if (hook->orphan)
		module_put(THIS_MODULE);
	kfree(hook);
	return 0;
}

/* Tries again what could not be taken out before. Called with hooks_lock. */
static void retry_orphans(void)
{
	struct hlist_node *next;
	struct hook *hook;
	int bucket;

	hash_for_each_safe(hooks, bucket, next, hook,
			   node) if (hook->orphan && list_empty(&hook->watches)) drop_hook(hook);
}

/* The index-th action of an interrupt that fits the request. The descriptor is locked. */
static struct irqaction *choose_action(struct irq_desc *desc, const struct rtxg_irq_attach *attach,
				       u32 *index)
{
	struct irqaction *action;

	for (action = desc->action; action; action = action->next) {
		if (attach->flags & RTXG_IRQ_F_BY_NAME &&
		    (!action->name || strcmp(action->name, attach->name)))
			continue;
		if (!(*index)--)
			return action;
	}
	return NULL;
}

/* Puts our handlers in place and the hook into the table. The descriptor is locked. */
static void put_in_place(struct hook *hook, struct irqaction *action)
{
	hash_add_rcu(hooks, &hook->node, hook->irq);
	if (hook->thread_fn)
		smp_store_release(&action->thread_fn, intercept_thread);
	smp_store_release(&action->handler, intercept);
}

static int check_action(const struct irqaction *action)
{
	if (action->flags & IRQF_PERCPU)
		return -EOPNOTSUPP;
	return action->handler ? 0 : -ENOENT;
}

/*
 * Finds the interrupt and hooks it, or finds the hook that is there. The descriptor is locked
 * between finding and swapping, so that the driver cannot free its action in between. Called with
 * hooks_lock. The new hook, if one was made, takes *spare.
 */
static struct hook *hook_interrupt(struct rtxg_irq_attach *attach, struct hook **spare)
{
	bool traced = attach->flags & RTXG_IRQ_F_TRACEPOINT;
	unsigned int first = attach->irq, last = attach->irq;
	u32 index = attach->index;

	if (attach->flags & RTXG_IRQ_F_BY_NAME) {
		first = 0;
		last = rtxg_nr_irqs() - 1;
	}
	for (unsigned int irq = first; irq <= last && irq < rtxg_nr_irqs(); irq++) {
		struct irqaction *action;
		struct irq_desc *desc;
		unsigned long flags;
		struct hook *hook;
		int err;

		desc = lock_desc(irq, &flags);
		if (!desc)
			continue;
		action = choose_action(desc, attach, &index);
		if (!action) {
			unlock_desc(desc, flags);
			continue;
		}
		err = check_action(action);
		if (err) {
			unlock_desc(desc, flags);
			return ERR_PTR(err);
		}
		hook = find_hook(irq, action->dev_id, traced);
		if (hook && (hook->action != action || (!traced && !in_place(hook, action)))) {
			/*
			 * the driver has freed and requested again, or another handler stands over ours: the
			 * old one must go first
			 */
			unlock_desc(desc, flags);
			return ERR_PTR(-EBUSY);
		}
		if (!hook) {
			hook = *spare;
			*spare = NULL;
			hook->irq = irq;
			hook->traced = traced;
			hook->action = action;
			hook->dev_id = action->dev_id;
			hook->handler = action->handler;
			hook->thread_fn = action->thread_fn;
			strscpy(hook->name, action->name ?: "?", sizeof(hook->name));
			if (traced)
				hash_add_rcu(hooks, &hook->node, irq);
			else
				put_in_place(hook, action);
		}
		attach->irq = irq;
		attach->threaded = !!action->thread_fn;
		unlock_desc(desc, flags);
		strscpy(attach->name, hook->name, sizeof(attach->name));
		cond_resched();
		return hook;
	}
	return ERR_PTR(-ENOENT);
}

static int map_source(struct watch *watch, const struct rtxg_irq_attach *attach)
{
	struct pci_dev *pdev;

	if (attach->width != 1 && attach->width != 2 && attach->width != 4 && attach->width != 8)
		return -EINVAL;
	if (!attach->mask || attach->bar >= PCI_STD_NUM_BARS || attach->bus > 255 ||
	    attach->devfn > 255 || attach->offset % attach->width)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(attach->domain, attach->bus, attach->devfn);
	if (!pdev)
		return -ENODEV;
	watch->pdev = pdev;
	if (!(pci_resource_flags(pdev, attach->bar) & IORESOURCE_MEM))
		return -ENXIO;
	if (attach->offset > pci_resource_len(pdev, attach->bar) ||
	    pci_resource_len(pdev, attach->bar) - attach->offset < attach->width)
		return -ERANGE;
	watch->reg_address = pci_resource_start(pdev, attach->bar) + attach->offset;
	watch->reg = ioremap(watch->reg_address, attach->width);
	if (!watch->reg)
		return -ENOMEM;
	watch->width = attach->width;
	watch->mask = attach->mask;
	watch->value = attach->value;
	return 0;
}

static void free_watch(struct kref *kref)
{
	struct watch *watch = container_of(kref, struct watch, kref);

	if (watch->reg)
		iounmap(watch->reg);
	pci_dev_put(watch->pdev);
	kfree(watch);
}

static void add_watch(struct hook *hook, struct watch *watch)
{
	struct watch *other;

	watch->hook = hook;
	list_for_each_entry (other, &hook->watches, node) {
		if (other->reg_address == watch->reg_address) {
			list_add_rcu(&watch->node, &other->node);
			return;
		}
	}
	list_add_tail_rcu(&watch->node, &hook->watches);
}

static long irq_attach(struct rtxg_file *file, struct rtxg_irq_attach __user *user)
{
	struct rtxg_irq_attach attach;
	struct hook *hook, *spare = NULL;
	struct watch *watch;
	int err;

	err = rtxg_copy_in(&attach, sizeof(attach), sizeof(attach), user);
	if (err)
		return err;
	if (attach.flags & ~RTXG_IRQ_F_ALL ||
	    !rtxg_all_zero(attach.reserved, sizeof(attach.reserved)))
		return -EINVAL;
	if (attach.flags & RTXG_IRQ_F_EQUAL && !(attach.flags & RTXG_IRQ_F_SOURCE))
		return -EINVAL;
	if (attach.flags & RTXG_IRQ_F_BY_NAME &&
	    strnlen(attach.name, sizeof(attach.name)) == sizeof(attach.name))
		return -EINVAL;
	if (!capable(CAP_SYS_RAWIO))
		return -EPERM;
	watch = kzalloc(sizeof(*watch), GFP_KERNEL_ACCOUNT);
	if (!watch)
		return -ENOMEM;
	kref_init(&watch->kref);
	rtxg_waiters_init(&watch->waiters, rtxg_cpu_charge_gpu);
	watch->flags = attach.flags;
	err = attach.flags & RTXG_IRQ_F_SOURCE ? map_source(watch, &attach) : 0;
	if (err)
		goto free;
	err = -ENOMEM;
	spare = kzalloc(sizeof(*spare), GFP_KERNEL_ACCOUNT);
	if (!spare)
		goto free;
	INIT_LIST_HEAD(&spare->watches);
	spare->handler_min_ns = U64_MAX;
	if (attach.flags & RTXG_IRQ_F_TRACEPOINT) {
		err = rtxg_trace_need(RTXG_TRACE_IRQ);
		if (err)
			goto free;
	}

	mutex_lock(&hooks_lock);
	retry_orphans();
	hook = hook_interrupt(&attach, &spare);
	if (!IS_ERR(hook)) {
		add_watch(hook, watch);
		mutex_unlock(&hooks_lock);
		kfree(spare);
		mutex_lock(&file->lock);
		attach.id = watch->id = ++file->next_id;
		list_add(&watch->file_node, &file->irqs);
		mutex_unlock(&file->lock);
		/* a copy that fails leaves the attachment to end with the file */
		return rtxg_copy_out(user, &attach, sizeof(attach), attach.size);
	}
	mutex_unlock(&hooks_lock);
	err = PTR_ERR(hook);
free:
	kfree(spare);
	kref_put(&watch->kref, free_watch);
	return err;
}

/* Ends an attachment that is out of its file's list already. */
static int end_watch(struct watch *watch)
{
	struct hook *hook = watch->hook;
	int err = 0;

	mutex_lock(&hooks_lock);
	list_del_rcu(&watch->node);
	if (list_empty(&hook->watches))
		err = drop_hook(hook);
	mutex_unlock(&hooks_lock);
	synchronize_rcu();
	raw_spin_lock_irq(&watch->waiters.lock);
	watch->dead = true;
	rtxg_waiters_wake_locked(&watch->waiters);
	raw_spin_unlock_irq(&watch->waiters.lock);
	kref_put(&watch->kref, free_watch);
	return err;
}

static struct watch *find_watch(struct rtxg_file *file, u32 id)
{
	struct watch *watch;

	lockdep_assert_held(&file->lock);
	list_for_each_entry (watch, &file->irqs, file_node)
		if (watch->id == id)
			return watch;
	return NULL;
}

static struct watch *get_watch(struct rtxg_file *file, u32 id)
{
	struct watch *watch;

	mutex_lock(&file->lock);
	watch = find_watch(file, id);
	if (watch)
		kref_get(&watch->kref);
	mutex_unlock(&file->lock);
	return watch;
}

static long irq_detach(struct rtxg_file *file, struct rtxg_irq_detach __user *user)
{
	struct rtxg_irq_detach detach;
	struct watch *watch;
	int err;

	err = rtxg_copy_in(&detach, sizeof(detach), sizeof(detach), user);
	if (err)
		return err;
	mutex_lock(&file->lock);
	watch = find_watch(file, detach.id);
	if (watch)
		list_del(&watch->file_node);
	mutex_unlock(&file->lock);
	return watch ? end_watch(watch) : -ENOENT;
}

static bool event_came(struct watch *watch, struct rtxg_irq_wait *wait, bool *dead)
{
	bool came;

	raw_spin_lock_irq(&watch->waiters.lock);
	*dead = watch->dead;
	came = watch->sequence != wait->seen || watch->dead;
	if (came) {
		wait->seen = watch->sequence;
		wait->entry_ns = watch->entry_ns;
		wait->status = watch->status;
		wait->entry_cycles = watch->entry_cycles;
		wait->wake_cycles = watch->wake_cycles;
	}
	raw_spin_unlock_irq(&watch->waiters.lock);
	return came;
}

static long wait_for_event(struct watch *watch, struct rtxg_irq_wait *wait)
{
	ktime_t end = ns_to_ktime(min_t(u64, wait->until_ns, KTIME_MAX));
	bool for_ever = wait->until_ns == U64_MAX;
	struct rtxg_waiter waiter = { .since_ns = ktime_get_mono_fast_ns() };
	bool dead = false;
	long result = 0;

	for (;;) {
		rtxg_waiters_add(&watch->waiters, &waiter);
		set_current_state(TASK_INTERRUPTIBLE);
		if (event_came(watch, wait, &dead))
			break;
		if (signal_pending(current))
			result = -ERESTARTSYS;
		else if (!for_ever && ktime_compare(ktime_get(), end) >= 0)
			result = -ETIMEDOUT;
		if (result)
			break;
		schedule_hrtimeout(for_ever ? NULL : &end, HRTIMER_MODE_ABS);
		__set_current_state(TASK_RUNNING);
		rtxg_waiters_remove(&watch->waiters, &waiter);
	}
	__set_current_state(TASK_RUNNING);
	rtxg_waiters_remove(&watch->waiters, &waiter);
	return dead ? -EPIPE : result;
}

static long irq_wait(struct rtxg_file *file, struct rtxg_irq_wait __user *user)
{
	struct rtxg_irq_wait wait;
	struct watch *watch;
	long result;

	result = rtxg_copy_in(&wait, sizeof(wait), sizeof(wait), user);
	if (result)
		return result;
	if (!rtxg_all_zero(wait.reserved, sizeof(wait.reserved)))
		return -EINVAL;
	watch = get_watch(file, wait.id);
	if (!watch)
		return -ENOENT;
	result = wait_for_event(watch, &wait);
	kref_put(&watch->kref, free_watch);
	if (result)
		return result;
	return rtxg_copy_out(user, &wait, sizeof(wait), wait.size);
}

static long irq_stats(struct rtxg_file *file, struct rtxg_irq_stats __user *user)
{
	struct rtxg_irq_stats stats;
	struct watch *watch;
	struct hook *hook;
	long err;

	err = rtxg_copy_in(&stats, sizeof(stats), sizeof(stats), user);
	if (err)
		return err;
	if (!rtxg_all_zero(stats.reserved, sizeof(stats.reserved)))
		return -EINVAL;
	/* the file's lock keeps the attachment, and so its hook, in place */
	mutex_lock(&file->lock);
	watch = find_watch(file, stats.id);
	if (!watch) {
		mutex_unlock(&file->lock);
		return -ENOENT;
	}
	hook = watch->hook;
	stats.gone = hook_gone(hook);
	stats.waiters = rtxg_waiters_count(&watch->waiters);
	stats.entries = READ_ONCE(hook->entries);
	stats.exits = READ_ONCE(hook->exits);
	stats.handled = READ_ONCE(hook->handled);
	stats.handler_ns = READ_ONCE(hook->handler_ns);
	stats.handler_min_ns = stats.exits ? READ_ONCE(hook->handler_min_ns) : 0;
	stats.handler_max_ns = READ_ONCE(hook->handler_max_ns);
	stats.thread_entries = READ_ONCE(hook->thread_entries);
	stats.thread_exits = READ_ONCE(hook->thread_exits);
	stats.thread_ns = READ_ONCE(hook->thread_ns);
	stats.thread_max_ns = READ_ONCE(hook->thread_max_ns);
	raw_spin_lock_irq(&watch->waiters.lock);
	stats.matched = watch->matched;
	stats.wakeups = watch->wakeups;
	raw_spin_unlock_irq(&watch->waiters.lock);
	mutex_unlock(&file->lock);
	return rtxg_copy_out(user, &stats, sizeof(stats), stats.size);
}

long rtxg_irq_ioctl(struct rtxg_file *file, unsigned int command, void __user *argument)
{
	switch (command) {
	case RTXG_IOC_IRQ_ATTACH:
		return irq_attach(file, argument);
	case RTXG_IOC_IRQ_DETACH:
		return irq_detach(file, argument);
	case RTXG_IOC_IRQ_WAIT:
		return irq_wait(file, argument);
	case RTXG_IOC_IRQ_STATS:
		return irq_stats(file, argument);
	}
	return -ENOTTY;
}

/* The file is closing: no call is under way on it. */
void rtxg_irq_release(struct rtxg_file *file)
{
	struct watch *watch, *next;

	list_for_each_entry_safe (watch, next, &file->irqs, file_node) {
		list_del(&watch->file_node);
		end_watch(watch);
	}
}

int rtxg_irq_init(void)
{
	hash_init(hooks);
	rtxg_trace_register(RTXG_TRACE_IRQ, probes);
	return 0;
}

/*
 * No file is open, and a hook that could not be removed pins the module: there is nothing left but
 * grace periods to await.
 */
void rtxg_irq_exit(void)
{
	WARN_ON(!hash_empty(hooks));
	rcu_barrier();
}
