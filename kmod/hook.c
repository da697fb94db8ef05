// SPDX-License-Identifier: GPL-2.0-only
/*
 * hook.c - handlers of ours in the place of other drivers' handlers (Linux-RTXG, section III.C).
 *
 * An interrupt's driver left a handler in the kernel's descriptor of it. We put ours in its place,
 * which notes the time, tells the module's user of hooks, calls the driver's handler with what it
 * expects, and notes the time again. Driver and kernel are not changed and do not take part.
 *
 * Some handlers run in a thread, because the driver asks for it or because the kernel forces it
 * (PREEMPT_RT, threadirqs). A driver that has a handler and a thread gets two threads then: its
 * handler runs in the first, which wakes the second. Each is bracketed by its own function of ours.
 *
 * What makes that safe:
 *   - The handlers are swapped and put back under the descriptor's own lock, and only after finding
 *     the driver's action in the descriptor's list; nothing is remembered about memory that the
 *     driver may have freed without looking for it again.
 *   - When the driver frees the interrupt (freed.c), its handlers are put back before it does.
 *   - A hook is in the table before its handler is in place, and leaves the table when neither the
 *     interrupt nor its threads run our code any more and a grace period has passed.
 *   - If another module has put a third handler over ours, ours cannot be taken out. It stays as a
 *     pass-through and pins the module.
 *
 * The other way (RTXG_IRQ_F_TRACEPOINT) leaves the handler alone and listens to the kernel's
 * tracepoints around it: that is paid by every interrupt of the machine, and does not see handlers'
 * threads.
 *
 * May not: know who waits for an interrupt, sleep or take a sleeping lock in interrupt context
 * (also on PREEMPT_RT).
 */
#include <linux/delay.h>
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "compat.h"
#include "events.h"
#include "freed.h"
#include "hook.h"
#include "trace.h"

static DEFINE_HASHTABLE(hooks, 6);
DEFINE_MUTEX(rtxg_hook_lock); /* over the table, the hooks' lists and the swap */
static const struct rtxg_hook_user *user;
/* whose handler runs on this CPU, in the top half */
static DEFINE_PER_CPU(const struct rtxg_hook *, in_top_half);

struct rtxg_hook *rtxg_hook_new(void)
{
	struct rtxg_hook *hook = kzalloc(sizeof(*hook), GFP_KERNEL_ACCOUNT);

	if (!hook)
		return NULL;
	INIT_LIST_HEAD(&hook->watches);
	hook->handler_min_ns = U64_MAX;
	return hook;
}

/* The hook in use; one whose interrupt was freed may stand beside it until its watches are gone. */
static struct rtxg_hook *find_hook(unsigned int irq, void *dev_id, bool traced)
{
	struct rtxg_hook *hook;

	hash_for_each_possible_rcu(hooks, hook, node, irq) if (hook->irq == irq &&
							       hook->dev_id == dev_id &&
							       hook->traced == traced &&
							       !READ_ONCE(hook->gone)) return hook;
	return NULL;
}

/*
 * For a call that is under way: the hook in use, or the one whose interrupt is just being freed, as
 * the driver's handler has to be called until it is.
 */
static struct rtxg_hook *find_called(unsigned int irq, void *dev_id)
{
	struct rtxg_hook *hook, *freed = NULL;

	/*
	 * pairs with the release in put_in_place(): who sees this handler in place sees its hook in
	 * the table
	 */
	smp_rmb();
	hash_for_each_possible_rcu(hooks, hook, node, irq)
	{
		if (hook->irq != irq || hook->dev_id != dev_id || hook->traced)
			continue;
		if (!READ_ONCE(hook->gone))
			return hook;
		freed = hook;
	}
	return freed;
}

static void count_exit(struct rtxg_hook *hook, u64 spent, irqreturn_t result)
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
	struct rtxg_hook *hook;
	irqreturn_t result;
	u64 before, spent;

	rcu_read_lock();
	hook = find_called(irq, dev_id);
	if (unlikely(!hook)) {
		rcu_read_unlock();
		return IRQ_NONE;
	}
	trace_rtxg_irq_begins(irq, RTXG_STAGE_TOP);
	WRITE_ONCE(hook->entries, hook->entries + 1);
	user->enters(hook);
	/* differences on one CPU: the cheapest clock will do */
	before = sched_clock();
	this_cpu_write(in_top_half, hook);
	result = hook->handler(irq, dev_id);
	this_cpu_write(in_top_half, NULL);
	spent = sched_clock() - before;
	if (result != IRQ_WAKE_THREAD)
		user->ends(hook, RTXG_STAGE_TOP, result, hook->entries);
	/* who sees the exit sees what it told */
	count_exit(hook, spent, result);
	trace_rtxg_irq_ends(irq, RTXG_STAGE_TOP);
	rcu_read_unlock();
	return result;
}

/*
 * In a thread of the driver's. Its function may sleep: no RCU section around it, settle() waits for
 * it.
 */
static irqreturn_t in_thread(int irq, void *dev_id, enum rtxg_stage stage)
{
	struct rtxg_hook_thread *thread;
	struct rtxg_hook *hook;
	irqreturn_t result;
	u64 before, spent, covers;

	rcu_read_lock();
	hook = find_called(irq, dev_id);
	if (unlikely(!hook)) {
		rcu_read_unlock();
		return IRQ_NONE;
	}
	thread = &hook->threads[stage - RTXG_STAGE_THREAD];
	WRITE_ONCE(thread->inside, true);
	/*
	 * the second serves what the first has handed on, and that is what its ended runs covered
	 */
	covers = stage == RTXG_STAGE_THREAD ? READ_ONCE(hook->entries)
					    : READ_ONCE(hook->threads[0].covers);
	trace_rtxg_irq_begins(irq, stage);
	user->begins(hook, stage);
	rcu_read_unlock();
	WRITE_ONCE(thread->entries, thread->entries + 1);
	before = ktime_get_mono_fast_ns();
	WRITE_ONCE(thread->runs, current);
	if (stage == RTXG_STAGE_THREAD)
		result = hook->thread_fn(irq, dev_id);
	else
		result = hook->second_fn(irq, dev_id);
	WRITE_ONCE(thread->runs, NULL);
	spent = ktime_get_mono_fast_ns() - before;
	thread->ns += spent;
	thread->max_ns = max(thread->max_ns, spent);
	WRITE_ONCE(thread->covers, covers);
	/* the hook outlives us: taking it out waits for this thread */
	rcu_read_lock();
	if (stage == RTXG_STAGE_SECOND || result != IRQ_WAKE_THREAD)
		user->ends(hook, stage, result, covers);
	trace_rtxg_irq_ends(irq, stage);
	/* who sees the exit sees what it told */
	WRITE_ONCE(thread->exits, thread->exits + 1);
	smp_store_release(&thread->inside, false);
	rcu_read_unlock();
	return result;
}

/* In place of the function of a driver's interrupt thread. */
static irqreturn_t intercept_thread(int irq, void *dev_id)
{
	return in_thread(irq, dev_id, RTXG_STAGE_THREAD);
}

/* The same, of the thread that the first one wakes. */
static irqreturn_t intercept_second(int irq, void *dev_id)
{
	return in_thread(irq, dev_id, RTXG_STAGE_SECOND);
}

static void probe_entry(void *data, int irq, struct irqaction *action)
{
	struct rtxg_hook *hook;

	rcu_read_lock();
	hook = find_hook(irq, action->dev_id, true);
	if (hook) {
		WRITE_ONCE(hook->entries, hook->entries + 1);
		user->enters(hook);
		hook->entered_ns = sched_clock();
	}
	rcu_read_unlock();
}

static void probe_exit(void *data, int irq, struct irqaction *action, int result)
{
	struct rtxg_hook *hook;

	rcu_read_lock();
	hook = find_hook(irq, action->dev_id, true);
	if (hook && hook->entered_ns) {
		count_exit(hook, sched_clock() - hook->entered_ns, result);
		hook->entered_ns = 0;
		/* a thread of the handler is not seen from here */
		user->ends(hook, RTXG_STAGE_TOP, result, hook->entries);
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
static struct irqaction *find_action(struct irq_desc *desc, const struct rtxg_hook *hook)
{
	struct irqaction *action;

	for (action = desc->action; action; action = action->next)
		if (action == hook->action && action->dev_id == hook->dev_id)
			return action;
	return NULL;
}

static bool in_place(const struct rtxg_hook *hook, const struct irqaction *action)
{
	return action->handler == intercept &&
	       (!hook->thread_fn || action->thread_fn == intercept_thread) &&
	       (!hook->second_fn ||
		(action->secondary && action->secondary->thread_fn == intercept_second));
}

static void put_back(const struct rtxg_hook *hook, struct irqaction *action)
{
	WRITE_ONCE(action->handler, hook->handler);
	if (hook->thread_fn)
		WRITE_ONCE(action->thread_fn, hook->thread_fn);
	if (hook->second_fn)
		WRITE_ONCE(action->secondary->thread_fn, hook->second_fn);
}

static bool threads_inside(const struct rtxg_hook *hook)
{
	return smp_load_acquire(&hook->threads[0].inside) ||
	       smp_load_acquire(&hook->threads[1].inside);
}

/* Whether no thread of the interrupt's is about to run, or runs. */
static bool threads_idle(unsigned int irq)
{
	struct irq_desc *desc;
	unsigned long flags;
	bool idle = true;

	desc = lock_desc(irq, &flags);
	if (desc) {
		idle = !atomic_read(&desc->threads_active);
		unlock_desc(desc, flags);
	}
	return idle;
}

/* How often an interrupt's threads are looked at before it counts as one that is always busy. */
#define LOOKS 20

/*
 * The handlers of the interrupt were swapped; waits until those that stood there before are
 * through. An interrupt that comes without end keeps its threads active for ever, so
 * synchronize_irq() does not do. Such a thread goes through the scheduler: once each has, it runs
 * what stands there now, or is seen to be inside ours. True: no thread was active.
 */
static bool pass(unsigned int irq)
{
	synchronize_hardirq(irq);
	for (int i = 0; i < LOOKS; i++) {
		if (threads_idle(irq))
			return true;
		usleep_range(1000, 1500);
	}
	synchronize_rcu_tasks();
	return false;
}

/* Our handlers are out of the interrupt; waits until none runs any more. */
static void settle(const struct rtxg_hook *hook)
{
	if (pass(hook->irq))
		return;
	while (threads_inside(hook))
		usleep_range(1000, 1500);
}

/*
 * Takes our handlers out. 0: they are out, or the driver had freed the interrupt. -EBUSY: another
 * else's stand over ours.
 */
static int take_out(struct rtxg_hook *hook)
{
	struct irqaction *action;
	struct irq_desc *desc;
	unsigned long flags;
	int err = 0;

	desc = lock_desc(hook->irq, &flags);
	if (!desc)
		return 0;
	/* once it is freed, what stands there now is none of ours */
	action = hook->gone ? NULL : find_action(desc, hook);
	if (action && in_place(hook, action))
		put_back(hook, action);
	else if (action && action->handler != hook->handler)
		err = -EBUSY;
	unlock_desc(desc, flags);
	/* the handler and its threads may still be running our code */
	if (!err)
		settle(hook);
	return err;
}

/*
 * Puts a hook's handlers back for the driver that is about to free its interrupt. False: another
 * handler stands over ours, and calls ours until that one goes. The descriptor is locked.
 */
static bool retire(struct rtxg_hook *hook, struct irq_desc *desc)
{
	struct irqaction *action = find_action(desc, hook);

	if (action && !hook->traced) {
		if (in_place(hook, action))
			put_back(hook, action);
		else if (action->handler != hook->handler)
			return false;
	}
	WRITE_ONCE(hook->gone, true);
	return true;
}

/* A driver is about to free its interrupt. The next to ask for it may get the same memory. */
static void freed(unsigned int irq, void *dev_id)
{
	struct rtxg_hook *hook;
	struct irq_desc *desc;
	unsigned long flags;

	rcu_read_lock();
	hash_for_each_possible_rcu(hooks, hook, node, irq)
	{
		bool goes;

		if (hook->irq != irq || hook->dev_id != dev_id || hook->gone)
			continue;
		desc = lock_desc(irq, &flags);
		if (!desc)
			break;
		goes = retire(hook, desc);
		unlock_desc(desc, flags);
		if (goes)
			user->goes(hook);
	}
	rcu_read_unlock();
}

unsigned int rtxg_hook_threads(struct rtxg_hook *hook, struct task_struct *threads[2])
{
	struct irqaction *action;
	unsigned int count = 0;
	struct irq_desc *desc;
	unsigned long flags;

	lockdep_assert_held(&rtxg_hook_lock);
	threads[0] = threads[1] = NULL;
	desc = lock_desc(hook->irq, &flags);
	if (!desc)
		return 0;
	action = hook->gone ? NULL : find_action(desc, hook);
	if (action && action->thread)
		threads[count++] = get_task_struct(action->thread);
	if (action && action->secondary && action->secondary->thread)
		threads[count++] = get_task_struct(action->secondary->thread);
	unlock_desc(desc, flags);
	return count;
}

bool rtxg_hook_runs(const struct rtxg_hook *hook)
{
	if (in_hardirq())
		return this_cpu_read(in_top_half) == hook;
	return in_task() && (READ_ONCE(hook->threads[0].runs) == current ||
			     READ_ONCE(hook->threads[1].runs) == current);
}

bool rtxg_hook_gone(struct rtxg_hook *hook)
{
	struct irq_desc *desc;
	unsigned long flags;
	bool gone = true;

	desc = lock_desc(hook->irq, &flags);
	if (desc) {
		struct irqaction *action = hook->gone ? NULL : find_action(desc, hook);

		gone = !action || (!hook->traced && action->handler == hook->handler);
		unlock_desc(desc, flags);
	}
	return gone;
}

int rtxg_hook_drop(struct rtxg_hook *hook)
{
	lockdep_assert_held(&rtxg_hook_lock);
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

/* Tries again what could not be taken out before. */
static void retry_orphans(void)
{
	struct hlist_node *next;
	struct rtxg_hook *hook;
	int bucket;

	hash_for_each_safe(hooks, bucket, next, hook,
			   node) if (hook->orphan && list_empty(&hook->watches))
		rtxg_hook_drop(hook);
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
static void put_in_place(struct rtxg_hook *hook, struct irqaction *action)
{
	hash_add_rcu(hooks, &hook->node, hook->irq);
	if (hook->second_fn)
		smp_store_release(&action->secondary->thread_fn, intercept_second);
	if (hook->thread_fn)
		smp_store_release(&action->thread_fn, intercept_thread);
	smp_store_release(&action->handler, intercept);
}

static int check_action(unsigned int irq, const struct irqaction *action)
{
	if (action->flags & IRQF_PERCPU)
		return -EOPNOTSUPP;
	/*
	 * its top half is that of the interrupt in whose thread it is called: ours would never be
	 */
	if (irq_check_status_bit(irq, IRQ_NESTED_THREAD))
		return -EOPNOTSUPP;
	return action->handler ? 0 : -ENOENT;
}

static struct rtxg_hook *make_hook(struct rtxg_hook *hook, unsigned int irq, bool traced,
				   struct irqaction *action)
{
	hook->irq = irq;
	hook->traced = traced;
	hook->action = action;
	hook->dev_id = action->dev_id;
	hook->handler = action->handler;
	hook->thread_fn = action->thread_fn;
	if (action->secondary)
		hook->second_fn = action->secondary->thread_fn;
	strscpy(hook->name, action->name ?: "?", sizeof(hook->name));
	if (traced)
		hash_add_rcu(hooks, &hook->node, irq);
	else
		put_in_place(hook, action);
	return hook;
}

/*
 * The descriptor is locked between finding and swapping, so that the driver cannot free its action
 * in between.
 */
struct rtxg_hook *rtxg_hook_get(struct rtxg_irq_attach *attach, struct rtxg_hook **spare)
{
	bool traced = attach->flags & RTXG_IRQ_F_TRACEPOINT;
	unsigned int first = attach->irq, last = attach->irq;
	u32 index = attach->index;

	lockdep_assert_held(&rtxg_hook_lock);
	/* without it, a freed interrupt is noticed when it is looked at */
	rtxg_freed_need(freed);
	if (traced) {
		int err = rtxg_trace_need(RTXG_TRACE_IRQ);

		if (err)
			return ERR_PTR(err);
	}
	retry_orphans();
	if (attach->flags & RTXG_IRQ_F_BY_NAME) {
		first = 0;
		last = rtxg_nr_irqs() - 1;
	}
	for (unsigned int irq = first; irq <= last && irq < rtxg_nr_irqs(); irq++) {
		struct irqaction *action;
		struct irq_desc *desc;
		unsigned long flags;
		struct rtxg_hook *hook;
		bool made;
		int err;

		desc = lock_desc(irq, &flags);
		if (!desc)
			continue;
		action = choose_action(desc, attach, &index);
		if (!action) {
			unlock_desc(desc, flags);
			continue;
		}
		err = check_action(irq, action);
		if (err) {
			unlock_desc(desc, flags);
			return ERR_PTR(err);
		}
		hook = find_hook(irq, action->dev_id, traced);
		if (hook && (hook->action != action || (!traced && !in_place(hook, action)))) {
			/*
			 * the driver has freed and requested again unseen, or another handler
			 * stands over
			 * ours: the old one must go first
			 */
			unlock_desc(desc, flags);
			return ERR_PTR(-EBUSY);
		}
		made = !hook;
		if (made) {
			hook = make_hook(*spare, irq, traced, action);
			*spare = NULL;
		}
		attach->irq = irq;
		attach->threaded = !!action->thread_fn;
		unlock_desc(desc, flags);
		strscpy(attach->name, hook->name, sizeof(attach->name));
		/* a run that we do not stand around may serve what comes from now on */
		if (made && !traced)
			pass(irq);
		cond_resched();
		return hook;
	}
	return ERR_PTR(-ENOENT);
}

void rtxg_hook_init(const struct rtxg_hook_user *hook_user)
{
	user = hook_user;
	hash_init(hooks);
	rtxg_trace_register(RTXG_TRACE_IRQ, probes);
}

/*
 * No file is open, and a hook that could not be removed pins the module: there is nothing left but
 * grace periods to await.
 */
void rtxg_hook_exit(void)
{
	rtxg_freed_exit();
	WARN_ON(!hash_empty(hooks));
	/* threads that have said that they leave have left */
	synchronize_rcu_tasks();
	rcu_barrier();
}
