// SPDX-License-Identifier: GPL-2.0-only
/*
 * irq.c - who watches which interrupt, and what wakes them (Linux-RTXG, section III.C).
 *
 * hook.c stands in the place of the driver's handler. Before that handler runs, each watch reads
 * the status register that tells what the device wants (the handler will reset it) and wakes who
 * waits for that; or it remembers the match, and wakes them when the driver has done its part. A
 * watch may be bound to an engine of a GPU: then host.c hears of each event, too.
 *
 * The driver looks at the register after us. What its device raises in between is served and reset
 * in the same interrupt, and no other comes for it. So a watch whose source we did not see is told
 * as well when the driver says that it served something: an event too many is a look at the fence,
 * and one too few a wait without end.
 *
 * May not: decide anything about scheduling, touch a driver's handler, sleep or take a sleeping
 * lock in interrupt context (also on PREEMPT_RT).
 */
#include <linux/capability.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/pci.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/timex.h>
#include <linux/uaccess.h>

#include <rtxg/irq.h>

#include "cpu/cpu.h"
#include "engine.h"
#include "file.h"
#include "hook.h"
#include "irq.h"
#include "owner.h"
#include "rtxg_core.h"
#include "user.h"
#include "waiters.h"

/* One attachment: what its file wants to know of a hook. */
struct watch {
	struct list_head node; /* in the hook's list */
	struct list_head file_node;
	struct kref kref;
	struct rtxg_hook *hook;
	u32 id;
	u32 flags;

	struct pci_dev *pdev;
	void __iomem *reg;
	phys_addr_t reg_address;
	u32 width;
	u64 mask, value;

	/* the driver's threads run at a priority of ours; NULL: they do not. By rtxg_hook_lock */
	struct rtxg_owned __rcu *owned;
	/* whose completions these are; UNBOUND: no GPU's. Written under the file's lock */
	u64 bound;

	/* under waiters.lock */
	struct rtxg_waiters waiters;
	bool dead, gone;
	/* RTXG_IRQ_F_AFTER: stages that a match has come to, and is to be told after */
	u8 pending;
	/*
	 * the last entry of the interrupt whose event was told of; AFTER: when it had been served.
	 * NO_ENTRY: a thread that was woken before the watch or its hook was there, at the hook's
	 * entry 0, may serve what came later
	 */
	s64 told;
	u64 sequence, matched, unseen, wakeups;
	u64 entry_ns, status, entry_cycles, wake_cycles;
};

#define NO_ENTRY (-1)

/* A GPU's number and its engine in one word, so that an interrupt sees both or neither. */
#define UNBOUND		   U64_MAX
#define BOUND(gpu, engine) ((u64)(gpu) << 32 | (engine))

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

/* What an event means to the scheduler. The watch's waiters are not locked. */
static void schedule_next(const struct watch *watch)
{
	u64 bound = READ_ONCE(watch->bound);

	if (bound != UNBOUND)
		rtxg_engine_interrupt(bound >> 32, (u32)bound);
}

/* One more event: wakes who waits. Its waiters are locked. */
static void tell(struct watch *watch)
{
	watch->sequence++;
	watch->wake_cycles = get_cycles();
	watch->wakeups += rtxg_waiters_wake_locked(&watch->waiters);
}

/* Before the driver's top half, with interrupts off: at most one register read a device. */
static void enters(struct rtxg_hook *hook)
{
	u64 cycles = get_cycles();
	phys_addr_t read_address = 0;
	struct watch *watch;
	u64 status = 0;

	list_for_each_entry_rcu(watch, &hook->watches, node)
	{
		struct rtxg_owned *owned = rcu_dereference(watch->owned);

		if (owned)
			rtxg_owned_look(owned);
		if (watch->flags & RTXG_IRQ_F_SOURCE) {
			/*
			 * watches of one register stand next to each other: it is read once, as
			 * reading may change it
			 */
			if (watch->reg_address != read_address) {
				/* who ends a run after our look knows of this entry */
				smp_mb();
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
		if (watch->flags & RTXG_IRQ_F_AFTER) {
			watch->pending |= BIT(RTXG_STAGE_TOP);
		} else {
			watch->told = hook->entries;
			tell(watch);
		}
		raw_spin_unlock(&watch->waiters.lock);
		if (!(watch->flags & RTXG_IRQ_F_AFTER))
			schedule_next(watch);
	}
}

/*
 * What has come to this stage's thread is served by the run that begins, and what comes later is
 * not.
 */
static void begins(struct rtxg_hook *hook, enum rtxg_stage stage)
{
	struct watch *watch;
	unsigned long flags;

	list_for_each_entry_rcu(watch, &hook->watches, node)
	{
		struct rtxg_owned *owned = rcu_dereference(watch->owned);

		if (owned)
			rtxg_owned_runs(owned);
		if (!(watch->flags & RTXG_IRQ_F_AFTER))
			continue;
		raw_spin_lock_irqsave(&watch->waiters.lock, flags);
		if (watch->pending & BIT(stage - 1)) {
			watch->pending &= ~BIT(stage - 1);
			watch->pending |= BIT(stage);
		}
		raw_spin_unlock_irqrestore(&watch->waiters.lock, flags);
	}
}

/*
 * Whether a driver that served something may have served an event that nothing has told of: the
 * interrupt came since the last that was told of.
 */
static bool unseen(const struct rtxg_hook *hook, const struct watch *watch)
{
	return (watch->flags & (RTXG_IRQ_F_SOURCE | RTXG_IRQ_F_EXACT)) == RTXG_IRQ_F_SOURCE &&
	       READ_ONCE(watch->told) < (s64)READ_ONCE(hook->entries);
}

/*
 * The driver has served something that the register did not show us. An entry that has come since
 * the run began may still be served by the next one. The watch's waiters are locked.
 */
static void tell_unseen(struct watch *watch, u64 covers)
{
	watch->told = max(watch->told, (s64)covers);
	watch->unseen++;
	watch->entry_ns = ktime_get_mono_fast_ns();
	watch->entry_cycles = get_cycles();
	watch->status = 0;
	tell(watch);
}

/* The driver's part is through: an event for those who are told after it, or of what it saw. */
static noinline void ends_with(struct rtxg_hook *hook, enum rtxg_stage stage, bool served,
			       u64 covers)
{
	struct watch *watch;
	unsigned long flags;
	bool due;

	list_for_each_entry_rcu(watch, &hook->watches, node)
	{
		due = false;
		if (watch->flags & RTXG_IRQ_F_AFTER || (served && unseen(hook, watch))) {
			raw_spin_lock_irqsave(&watch->waiters.lock, flags);
			due = watch->pending & BIT(stage);
			watch->pending &= ~BIT(stage);
			if (due) {
				/*
				 * a run that had nothing to serve found it served by one before,
				 * which may have handed it on to a thread: that tells again
				 */
				if (served)
					watch->told = max(watch->told, (s64)covers);
				tell(watch);
			} else if (served && unseen(hook, watch)) {
				tell_unseen(watch, covers);
			}
			raw_spin_unlock_irqrestore(&watch->waiters.lock, flags);
		}
		/* it looks for the proof itself: what ended since our look is found, too */
		if (due || served)
			schedule_next(watch);
	}
}

/* Mostly all was told before the driver's part: a loop without a call costs little then. */
static void ends(struct rtxg_hook *hook, enum rtxg_stage stage, irqreturn_t result, u64 covers)
{
	bool served = result != IRQ_NONE;
	const struct watch *watch;

	list_for_each_entry_rcu(watch, &hook->watches, node)
	{
		if (watch->flags & RTXG_IRQ_F_AFTER ||
		    (served && (READ_ONCE(watch->bound) != UNBOUND || unseen(hook, watch))))
			return ends_with(hook, stage, served, covers);
	}
}

/* No interrupt will come: who waits is told. */
static void goes(struct rtxg_hook *hook)
{
	struct watch *watch;
	unsigned long flags;

	list_for_each_entry_rcu(watch, &hook->watches, node)
	{
		raw_spin_lock_irqsave(&watch->waiters.lock, flags);
		watch->gone = true;
		rtxg_waiters_wake_locked(&watch->waiters);
		raw_spin_unlock_irqrestore(&watch->waiters.lock, flags);
	}
}

static const struct rtxg_hook_user hook_user = {
	.enters = enters,
	.begins = begins,
	.ends = ends,
	.goes = goes,
};

static int map_source(struct watch *watch, const struct rtxg_irq_attach *attach)
{
	struct pci_dev *pdev;
	int err;

	if (attach->width != 1 && attach->width != 2 && attach->width != 4 && attach->width != 8)
		return -EINVAL;
	if (!attach->mask || attach->bar >= PCI_STD_NUM_BARS || attach->bus > 255 ||
	    attach->devfn > 255 || attach->offset % attach->width)
		return -EINVAL;
	/* as for the same register in sysfs: a locked down kernel shows none of a device's */
	err = security_locked_down(LOCKDOWN_PCI_ACCESS);
	if (err)
		return err;
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

static void add_watch(struct rtxg_hook *hook, struct watch *watch)
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
	struct rtxg_hook *hook, *spare = NULL;
	struct watch *watch;
	int err;

	err = rtxg_copy_in(&attach, sizeof(attach), sizeof(attach), user);
	if (err)
		return err;
	if (attach.flags & ~RTXG_IRQ_F_ALL ||
	    !rtxg_all_zero(attach.reserved, sizeof(attach.reserved)))
		return -EINVAL;
	if (attach.flags & (RTXG_IRQ_F_EQUAL | RTXG_IRQ_F_EXACT) &&
	    !(attach.flags & RTXG_IRQ_F_SOURCE))
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
	watch->bound = UNBOUND;
	watch->told = NO_ENTRY;
	rtxg_waiters_init(&watch->waiters, rtxg_cpu_charge_gpu);
	watch->flags = attach.flags;
	err = attach.flags & RTXG_IRQ_F_SOURCE ? map_source(watch, &attach) : 0;
	if (err)
		goto free;
	err = -ENOMEM;
	spare = rtxg_hook_new();
	if (!spare)
		goto free;
	mutex_lock(&rtxg_hook_lock);
	hook = rtxg_hook_get(&attach, &spare);
	if (!IS_ERR(hook)) {
		add_watch(hook, watch);
		mutex_unlock(&rtxg_hook_lock);
		kfree(spare);
		mutex_lock(&file->lock);
		attach.id = watch->id = ++file->next_id;
		list_add(&watch->file_node, &file->irqs);
		mutex_unlock(&file->lock);
		/* a copy that fails leaves the attachment to end with the file */
		return rtxg_copy_out(user, &attach, sizeof(attach), attach.size);
	}
	mutex_unlock(&rtxg_hook_lock);
	err = PTR_ERR(hook);
free:
	kfree(spare);
	kref_put(&watch->kref, free_watch);
	return err;
}

/* The driver's threads are as they were. Under rtxg_hook_lock. */
static void disown(struct watch *watch)
{
	struct rtxg_owned *owned =
		rcu_dereference_protected(watch->owned, lockdep_is_held(&rtxg_hook_lock));

	if (!owned)
		return;
	RCU_INIT_POINTER(watch->owned, NULL);
	synchronize_rcu();
	rtxg_owned_end(owned, READ_ONCE(watch->hook->gone));
	watch->hook->owned = false;
}

/* Ends an attachment that is out of its file's list already. */
static int end_watch(struct watch *watch)
{
	struct rtxg_hook *hook = watch->hook;
	int err = 0;

	mutex_lock(&rtxg_hook_lock);
	disown(watch);
	watch->hook = NULL;
	list_del_rcu(&watch->node);
	if (list_empty(&hook->watches))
		err = rtxg_hook_drop(hook);
	mutex_unlock(&rtxg_hook_lock);
	synchronize_rcu();
	raw_spin_lock_irq(&watch->waiters.lock);
	watch->dead = true;
	rtxg_waiters_wake_locked(&watch->waiters);
	raw_spin_unlock_irq(&watch->waiters.lock);
	if (watch->bound != UNBOUND)
		rtxg_engine_unbind(watch->bound >> 32, (u32)watch->bound);
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

/*
 * Whether there is an event that the caller has not seen, or none will come any more (*end,
 * negative errno).
 */
static bool event_came(struct watch *watch, struct rtxg_irq_wait *wait, long *end)
{
	bool came;

	raw_spin_lock_irq(&watch->waiters.lock);
	came = watch->sequence != wait->seen;
	*end = watch->dead ? -EPIPE : watch->gone && !came ? -ENODEV : 0;
	if (came) {
		wait->seen = watch->sequence;
		wait->entry_ns = watch->entry_ns;
		wait->status = watch->status;
		wait->entry_cycles = watch->entry_cycles;
		wait->wake_cycles = watch->wake_cycles;
	}
	raw_spin_unlock_irq(&watch->waiters.lock);
	return came || *end;
}

static long wait_for_event(struct watch *watch, struct rtxg_irq_wait *wait)
{
	ktime_t end = ns_to_ktime(min_t(u64, wait->until_ns, KTIME_MAX));
	bool for_ever = wait->until_ns == U64_MAX;
	struct rtxg_waiter waiter = { .since_ns = ktime_get_mono_fast_ns() };
	long result = 0;

	for (;;) {
		if (!rtxg_waiters_try_add(&watch->waiters, &waiter, RTXG_IRQ_WAITERS))
			return -EAGAIN;
		set_current_state(TASK_INTERRUPTIBLE);
		if (event_came(watch, wait, &result))
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
	return result;
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

/* The owner is who holds what the watch is bound to. Under rtxg_hook_lock. */
static void follow(struct watch *watch)
{
	struct rtxg_owned *owned =
		rcu_dereference_protected(watch->owned, lockdep_is_held(&rtxg_hook_lock));
	u64 bound = READ_ONCE(watch->bound);

	if (owned)
		rtxg_owned_bind(owned, bound == UNBOUND ? -1 : (int)(bound >> 32), (u32)bound);
}

static long irq_bind(struct rtxg_file *file, struct rtxg_irq_bind __user *user)
{
	struct rtxg_irq_bind bind;
	struct watch *watch;
	u64 bound = UNBOUND;
	int err, gpu;

	err = rtxg_copy_in(&bind, sizeof(bind), sizeof(bind), user);
	if (err)
		return err;
	if ((bind.engine >= RTXG_ENGINES && bind.engine != RTXG_IRQ_UNBOUND) || bind.reserved0 ||
	    !rtxg_all_zero(bind.reserved, sizeof(bind.reserved)))
		return -EINVAL;
	if (!capable(CAP_SYS_NICE))
		return -EPERM;
	if (bind.engine != RTXG_IRQ_UNBOUND) {
		gpu = rtxg_engine_bind(bind.gpu, bind.engine);
		if (gpu < 0)
			return gpu;
		bound = BOUND(gpu, bind.engine);
	}
	mutex_lock(&file->lock);
	watch = find_watch(file, bind.id);
	/* what is not bound any more is let go below: that of the watch, or the new one */
	if (watch) {
		kref_get(&watch->kref);
		swap(watch->bound, bound);
	}
	mutex_unlock(&file->lock);
	if (bound != UNBOUND)
		rtxg_engine_unbind(bound >> 32, (u32)bound);
	if (!watch)
		return -ENOENT;
	mutex_lock(&rtxg_hook_lock);
	follow(watch);
	mutex_unlock(&rtxg_hook_lock);
	kref_put(&watch->kref, free_watch);
	return 0;
}

static struct task_struct *named_thread(s32 pid)
{
	struct pid *reference = find_get_pid(pid);
	struct task_struct *task = get_pid_task(reference, PIDTYPE_PID);

	put_pid(reference);
	return task;
}

/* Gives the driver's threads a priority by this rule. Under rtxg_hook_lock. */
static int own(struct watch *watch, const struct rtxg_serve_rule *rule, s32 pid, bool tasklets)
{
	struct task_struct *threads[2];
	struct rtxg_owned_for who = { .gpu = -1 };
	struct rtxg_hook *hook = watch->hook;
	struct rtxg_owned *owned;

	if (!hook)
		return -ENOENT;
	if (READ_ONCE(hook->gone))
		return -ENODEV;
	if (hook->owned && !rcu_access_pointer(watch->owned))
		return -EBUSY;
	if (hook->traced && tasklets)
		return -EOPNOTSUPP;
	if (pid) {
		who.named = named_thread(pid);
		if (!who.named)
			return -ESRCH;
	}
	disown(watch);
	if (rule->mode == RTXG_SERVE_KEPT || (!rtxg_hook_threads(hook, threads) && !tasklets)) {
		if (who.named)
			put_task_struct(who.named);
		return rule->mode == RTXG_SERVE_KEPT ? 0 : -EOPNOTSUPP;
	}
	owned = rtxg_owned_begin(hook, threads, rule, &who, tasklets);
	if (IS_ERR(owned)) {
		for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
			if (threads[i])
				put_task_struct(threads[i]);
		if (who.named)
			put_task_struct(who.named);
		return PTR_ERR(owned);
	}
	hook->owned = true;
	rcu_assign_pointer(watch->owned, owned);
	follow(watch);
	return 0;
}

static long irq_own(struct rtxg_file *file, const struct rtxg_irq_own __user *user)
{
	struct rtxg_serve_rule rule;
	struct rtxg_irq_own request;
	struct watch *watch;
	bool tasklets;
	int err;

	err = rtxg_copy_in(&request, sizeof(request), sizeof(request), user);
	if (err)
		return err;
	rule = (struct rtxg_serve_rule){ .mode = request.mode,
					 .priority = request.priority,
					 .beside = request.flags & RTXG_IRQ_BESIDE,
					 .runtime_ns = request.runtime_ns,
					 .period_ns = request.period_ns };
	tasklets = request.flags & RTXG_IRQ_TASKLETS;
	if (request.flags & ~(RTXG_IRQ_BESIDE | RTXG_IRQ_TASKLETS) || request.pid < 0 ||
	    rtxg_serve_check(&rule) || (request.pid && rule.mode < RTXG_SERVE_OWNER) ||
	    (tasklets ? rule.mode == RTXG_SERVE_KEPT : rule.mode == RTXG_SERVE_PAI))
		return -EINVAL;
	if (!capable(CAP_SYS_NICE))
		return -EPERM;
	watch = get_watch(file, request.id);
	if (!watch)
		return -ENOENT;
	mutex_lock(&rtxg_hook_lock);
	err = own(watch, &rule, request.pid, tasklets);
	mutex_unlock(&rtxg_hook_lock);
	kref_put(&watch->kref, free_watch);
	return err;
}

static long irq_owner(struct rtxg_file *file, struct rtxg_irq_owner __user *user)
{
	struct rtxg_irq_owner answer;
	struct rtxg_owned *owned;
	struct watch *watch;
	int err;

	err = rtxg_copy_in(&answer, sizeof(answer), sizeof(answer), user);
	if (err)
		return err;
	watch = get_watch(file, answer.id);
	if (!watch)
		return -ENOENT;
	mutex_lock(&rtxg_hook_lock);
	owned = rcu_dereference_protected(watch->owned, lockdep_is_held(&rtxg_hook_lock));
	if (owned)
		rtxg_owned_tell(owned, &answer);
	mutex_unlock(&rtxg_hook_lock);
	kref_put(&watch->kref, free_watch);
	return owned ? rtxg_copy_out(user, &answer, sizeof(answer), answer.size) : -ENOENT;
}

static long irq_stats(struct rtxg_file *file, struct rtxg_irq_stats __user *user)
{
	struct rtxg_irq_stats stats;
	struct watch *watch;
	struct rtxg_hook *hook;
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
	stats.gone = rtxg_hook_gone(hook);
	stats.waiters = rtxg_waiters_count(&watch->waiters);
	stats.entries = READ_ONCE(hook->entries);
	stats.exits = READ_ONCE(hook->exits);
	stats.handled = READ_ONCE(hook->handled);
	stats.handler_ns = READ_ONCE(hook->handler_ns);
	stats.handler_min_ns = stats.exits ? READ_ONCE(hook->handler_min_ns) : 0;
	stats.handler_max_ns = READ_ONCE(hook->handler_max_ns);
	stats.thread_entries = stats.thread_exits = stats.thread_ns = stats.thread_max_ns = 0;
	for (size_t i = 0; i < ARRAY_SIZE(hook->threads); i++) {
		const struct rtxg_hook_thread *thread = &hook->threads[i];

		stats.thread_entries += READ_ONCE(thread->entries);
		stats.thread_exits += READ_ONCE(thread->exits);
		stats.thread_ns += READ_ONCE(thread->ns);
		stats.thread_max_ns = max(stats.thread_max_ns, READ_ONCE(thread->max_ns));
	}
	raw_spin_lock_irq(&watch->waiters.lock);
	stats.matched = watch->matched;
	stats.unseen = watch->unseen;
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
	case RTXG_IOC_IRQ_BIND:
		return irq_bind(file, argument);
	case RTXG_IOC_IRQ_OWN:
		return irq_own(file, argument);
	case RTXG_IOC_IRQ_OWNER:
		return irq_owner(file, argument);
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
	rtxg_hook_init(&hook_user);
	return rtxg_owned_init();
}

void rtxg_irq_exit(void)
{
	rtxg_hook_exit();
	rtxg_owned_exit();
}
