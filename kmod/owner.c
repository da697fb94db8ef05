// SPDX-License-Identifier: GPL-2.0-only
/*
 * owner.c - threads of interrupts that run at their owner's priority (klmirqd: Elliott and Anderson
 * 2012, section III).
 *
 * The driver's own thread is the one that gets the priority: its function must never run elsewhere,
 * as the kernel frees the interrupt, and unmasks it, by that thread. Its owner is the task that
 * holds the engine (and those that wait for it, since they wait for that completion), or a thread
 * that was named.
 *
 * A priority cannot be set from an interrupt. So a thread of ours above all others does it: when
 * the owner changes, which is at a grant and thus before its launch; when the owner inherits a
 * priority; and at an interrupt whose owner has another priority than was seen, before the driver's
 * thread runs.
 *
 * May not: decide which priority that is (core/cpu/serve.c does), or change a thread in interrupt
 * context.
 */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <uapi/linux/sched/types.h>

#include <rtxg/irq.h>

#include "cpu/cpu.h"
#include "engine.h"
#include "events.h"
#include "hook.h"
#include "owner.h"
#include "tasklets.h"
#include "trace.h"

static_assert((int)RTXG_SERVE_KEPT == RTXG_IRQ_KEPT && (int)RTXG_SERVE_FIXED == RTXG_IRQ_FIXED &&
	      (int)RTXG_SERVE_OWNER == RTXG_IRQ_OWNER && (int)RTXG_SERVE_PAI == RTXG_IRQ_PAI &&
	      (int)RTXG_SERVE_MAX == RTXG_IRQ_PRIORITY_MAX);

/* No owner is seen. */
#define NO_OWNER INT_MAX

/* The driver's threads, and ours for its tasklets. */
enum { FIRST, SECOND, TASKLETS, THREADS };

struct served {
	struct task_struct *thread;
	struct sched_attr saved;
	cpumask_var_t saved_mask;
	int cpu; /* that we have put it on; -1: its CPUs are not ours */
};

struct rtxg_owned {
	struct list_head node;
	struct rtxg_serve_rule rule;
	struct rtxg_owned_for who;
	unsigned int irq;
	struct kthread_work work;
	struct irq_work inherits;

	struct mutex lock; /* over the threads' settings, and what is told of them */
	struct served threads[THREADS];
	struct rtxg_tasklets *tasklets; /* NULL: they are left to the kernel */
	struct cpu_task *server; /* of the threads while they have no owner; NULL: there is none */
	struct rtxg_serve now;
	u64 changes;
	atomic64_t at_once;

	/* under seen */
	raw_spinlock_t seen;
	struct task_struct *owner; /* with a reference */
	u64 since_ns, runs, beside;
	int prio; /* of the owner, when the threads were set; read without the lock, too */
};

static struct kthread_worker *worker;
static LIST_HEAD(all);
static DEFINE_MUTEX(all_lock);

/* For programs that only want to know, which need not open the device: "42:owner 43:pai". */
static int tell_all(char *buffer, const struct kernel_param *parameter)
{
	static const char *const modes[] = { [RTXG_SERVE_KEPT] = "kept",
					     [RTXG_SERVE_FIXED] = "fixed",
					     [RTXG_SERVE_OWNER] = "owner",
					     [RTXG_SERVE_PAI] = "pai" };
	const struct rtxg_owned *owned;
	int length = 0;

	mutex_lock(&all_lock);
	list_for_each_entry (owned, &all, node)
		length += scnprintf(buffer + length, PAGE_SIZE - length, "%s%u:%s",
				    length ? " " : "", owned->irq, modes[owned->rule.mode]);
	mutex_unlock(&all_lock);
	return length + scnprintf(buffer + length, PAGE_SIZE - length, "\n");
}

static const struct kernel_param_ops tells = { .get = tell_all };
module_param_cb(irq_threads, &tells, NULL, 0444);
MODULE_PARM_DESC(irq_threads,
		 "Interrupts whose threads do not run as the kernel made them, and how "
		 "they run; read only");

/* The thread that was named, as long as there is one. In any context. */
static struct task_struct *named(const struct rtxg_owned *owned)
{
	struct task_struct *task = owned->who.named;

	return task && rtxg_engine_may_own(task) ? task : NULL;
}

/* The first owner's priority now; NO_OWNER: there is none. In any context. */
static int owner_prio(const struct rtxg_owned *owned)
{
	int gpu = READ_ONCE(owned->who.gpu), prio = NO_OWNER;
	const struct task_struct *task = named(owned);

	if (gpu >= 0)
		prio = rtxg_engine_owner_prio(gpu, READ_ONCE(owned->who.engine));
	return prio == NO_OWNER && task ? READ_ONCE(task->prio) : prio;
}

/* Whether another has set a thread since: the kernel itself does, as the thread begins. */
static bool set_by_another(const struct rtxg_owned *owned)
{
	/* beyond their budget, they have none */
	if (owned->rule.runtime_ns)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(owned->threads); i++) {
		const struct task_struct *thread = READ_ONCE(owned->threads[i].thread);

		if (thread && READ_ONCE(thread->rt_priority) != READ_ONCE(owned->now.priority))
			return true;
	}
	return false;
}

void rtxg_owned_look(struct rtxg_owned *owned)
{
	if (set_by_another(owned) ||
	    (owned->rule.mode >= RTXG_SERVE_OWNER && owner_prio(owned) != READ_ONCE(owned->prio)))
		kthread_queue_work(worker, &owned->work);
}

void rtxg_owned_runs(struct rtxg_owned *owned)
{
	unsigned long flags;

	rtxg_owned_look(owned);
	raw_spin_lock_irqsave(&owned->seen, flags);
	owned->runs++;
	if (owned->owner && READ_ONCE(owned->owner->on_cpu) &&
	    task_cpu(owned->owner) != raw_smp_processor_id())
		owned->beside++;
	raw_spin_unlock_irqrestore(&owned->seen, flags);
}

static bool takes_tasklet(void *user)
{
	struct rtxg_owned *owned = user;

	if (!rtxg_serve_at_once(&owned->rule, owner_prio(owned), READ_ONCE(current->prio)))
		return true;
	atomic64_inc(&owned->at_once);
	return false;
}

static void runs_tasklet(void *user)
{
	rtxg_owned_runs(user);
}

static const struct rtxg_tasklets_user tasklets_user = {
	.takes = takes_tasklet,
	.runs = runs_tasklet,
};

/* A permit was given or asked for on that engine. Under the host's lock. */
static void holder_changed(u32 gpu, u32 engine)
{
	struct rtxg_owned *owned;

	rcu_read_lock();
	list_for_each_entry_rcu(owned, &all, node)
	{
		/* it may be bound to another at this moment, which sets the threads once more */
		if (READ_ONCE(owned->who.gpu) == (int)gpu && READ_ONCE(owned->who.engine) == engine)
			kthread_queue_work(worker, &owned->work);
	}
	rcu_read_unlock();
}

static void owner_inherits(struct irq_work *work)
{
	kthread_queue_work(worker, &container_of(work, struct rtxg_owned, inherits)->work);
}

/*
 * The kernel is about to let a task inherit; it holds the task's run queue, so that none is woken.
 */
static void probe_inherit(void *data, struct task_struct *task, struct task_struct *from)
{
	struct rtxg_owned *owned;

	rcu_read_lock();
	list_for_each_entry_rcu(owned, &all, node) if (READ_ONCE(owned->owner) == task)
		irq_work_queue(&owned->inherits);
	rcu_read_unlock();
}

static struct rtxg_probe probes[] = {
	{ "sched_pi_setprio", probe_inherit },
	{},
};

static int only_cpu(const struct task_struct *task)
{
	return task->nr_cpus_allowed == 1 ? (int)cpumask_first(&task->cpus_mask) : -1;
}

static void add(struct rtxg_serve_owner *owners, u32 *count, const struct task_struct *task)
{
	owners[(*count)++] =
		(struct rtxg_serve_owner){ .prio = READ_ONCE(task->prio), .cpu = only_cpu(task) };
}

/* What the threads are to be now. owned->lock is held. */
static struct rtxg_serve decide(struct rtxg_owned *owned)
{
	struct task_struct *holder = NULL, *before, *task = named(owned);
	struct rtxg_serve_owner owners[3];
	unsigned long flags;
	u32 count = 0;
	int prio;

	if (owned->who.gpu >= 0)
		holder = rtxg_engine_owner(owned->who.gpu, owned->who.engine);
	if (holder)
		add(owners, &count, holder);
	if (task)
		add(owners, &count, task);
	if (!holder && task)
		holder = get_task_struct(task);
	prio = count ? owners[0].prio : NO_OWNER;
	/* also of a holder whose threads have ended: they wait for what the engine does for it */
	if (owned->who.gpu >= 0) {
		int waiting = rtxg_engine_waiting_prio(owned->who.gpu, owned->who.engine);

		if (waiting != NO_OWNER)
			owners[count++] = (struct rtxg_serve_owner){ .prio = waiting, .cpu = -1 };
	}
	raw_spin_lock_irqsave(&owned->seen, flags);
	before = owned->owner;
	if (before != holder)
		owned->since_ns = ktime_get_mono_fast_ns();
	WRITE_ONCE(owned->owner, holder);
	WRITE_ONCE(owned->prio, prio);
	raw_spin_unlock_irqrestore(&owned->seen, flags);
	if (before)
		put_task_struct(before);
	return rtxg_serve(&owned->rule, owners, count);
}

/*
 * Whether a thread's CPUs are those that we gave it. The kernel sets others when the interrupt is
 * steered elsewhere, and so may anybody. A CPU that went has taken ours with it.
 */
static bool is_placed(const struct served *served)
{
	return served->cpu >= 0 &&
	       (cpumask_equal(&served->thread->cpus_mask, cpumask_of(served->cpu)) ||
		!cpu_online(served->cpu));
}

static void set(const struct rtxg_owned *owned, struct served *served,
		const struct rtxg_serve *serve)
{
	const struct sched_attr attr = { .size = sizeof(attr),
					 .sched_policy = SCHED_FIFO,
					 .sched_priority = serve->priority };
	const struct cpumask *mask = serve->cpu >= 0 ? cpumask_of(serve->cpu) : served->saved_mask;

	if (!is_placed(served))
		cpumask_copy(served->saved_mask, &served->thread->cpus_mask);
	if (!owned->server && (served->thread->policy != SCHED_FIFO ||
			       served->thread->rt_priority != serve->priority))
		sched_setattr_nocheck(served->thread, &attr);
	if (cpumask_equal(&served->thread->cpus_mask, mask) ||
	    !set_cpus_allowed_ptr(served->thread, mask))
		served->cpu = serve->cpu;
}

static void serve(struct kthread_work *work)
{
	struct rtxg_owned *owned = container_of(work, struct rtxg_owned, work);
	struct rtxg_serve now;

	mutex_lock(&owned->lock);
	now = decide(owned);
	owned->changes += now.priority != owned->now.priority || now.cpu != owned->now.cpu;
	owned->now = now;
	if (owned->server)
		rtxg_cpu_server_set(owned->server, now.priority, !now.server);
	for (size_t i = 0; i < ARRAY_SIZE(owned->threads); i++)
		if (owned->threads[i].thread)
			set(owned, &owned->threads[i], &now);
	trace_rtxg_irq_owner(owned->irq, owned->owner ? task_pid_nr(owned->owner) : 0, owned->prio,
			     now.priority, now.cpu);
	mutex_unlock(&owned->lock);
}

/*
 * A driver's thread is an ordinary one for its first steps, until it makes itself a real-time one.
 */
#define BEGINS_MS 20

static void await_begin(const struct task_struct *thread)
{
	for (int i = 0; i < BEGINS_MS && READ_ONCE(thread->policy) == SCHED_NORMAL; i++)
		usleep_range(1000, 1500);
}

static void save(struct served *served, struct task_struct *thread)
{
	served->saved = (struct sched_attr){ .size = sizeof(served->saved),
					     .sched_policy = thread->policy,
					     .sched_priority = thread->rt_priority,
					     .sched_nice = task_nice(thread) };
	cpumask_copy(served->saved_mask, &thread->cpus_mask);
	served->cpu = -1;
	WRITE_ONCE(served->thread, thread);
}

static void release(struct rtxg_owned *owned)
{
	for (size_t i = 0; i < ARRAY_SIZE(owned->threads); i++)
		free_cpumask_var(owned->threads[i].saved_mask);
	mutex_destroy(&owned->lock);
	kfree(owned);
}

static void list(struct rtxg_owned *owned)
{
	mutex_lock(&all_lock);
	list_add_rcu(&owned->node, &all);
	mutex_unlock(&all_lock);
}

/* Neither a probe nor a grant reaches it any more. */
static void unlist(struct rtxg_owned *owned)
{
	mutex_lock(&all_lock);
	list_del_rcu(&owned->node);
	mutex_unlock(&all_lock);
	synchronize_rcu();
	irq_work_sync(&owned->inherits);
	kthread_cancel_work_sync(&owned->work);
	if (owned->owner)
		put_task_struct(owned->owner);
}

/* The server of all its threads, which end with it. */
static int begin_server(struct rtxg_owned *owned)
{
	struct task_struct *threads[THREADS];
	struct cpu_task *server;
	unsigned int count = 0;

	for (size_t i = 0; i < THREADS; i++)
		if (owned->threads[i].thread)
			threads[count++] = owned->threads[i].thread;
	server = rtxg_cpu_server_begin(threads, count, owned->rule.priority, owned->rule.runtime_ns,
				       owned->rule.period_ns);
	if (IS_ERR(server))
		return PTR_ERR(server);
	owned->server = server;
	return 0;
}

struct rtxg_owned *rtxg_owned_begin(const struct rtxg_hook *hook, struct task_struct *threads[2],
				    const struct rtxg_serve_rule *rule,
				    const struct rtxg_owned_for *who, bool tasklets)
{
	struct rtxg_owned *owned;
	int err;

	err = rtxg_trace_need(RTXG_TRACE_INHERIT);
	if (err)
		return ERR_PTR(err);
	owned = kzalloc(sizeof(*owned), GFP_KERNEL_ACCOUNT);
	if (!owned)
		return ERR_PTR(-ENOMEM);
	mutex_init(&owned->lock);
	for (size_t i = 0; i < ARRAY_SIZE(owned->threads); i++) {
		if (!zalloc_cpumask_var(&owned->threads[i].saved_mask, GFP_KERNEL_ACCOUNT)) {
			release(owned);
			return ERR_PTR(-ENOMEM);
		}
	}
	raw_spin_lock_init(&owned->seen);
	kthread_init_work(&owned->work, serve);
	owned->inherits = IRQ_WORK_INIT_HARD(owner_inherits);
	owned->rule = *rule;
	owned->who = *who;
	owned->irq = hook->irq;
	owned->now.cpu = -1;
	owned->prio = NO_OWNER;
	for (size_t i = FIRST; i <= SECOND; i++)
		if (threads[i])
			await_begin(threads[i]);
	list(owned);
	if (tasklets) {
		struct rtxg_tasklets *begun = rtxg_tasklets_begin(hook, &tasklets_user, owned);

		if (IS_ERR(begun)) {
			unlist(owned);
			release(owned);
			return ERR_CAST(begun);
		}
		owned->tasklets = begun;
	}
	mutex_lock(&owned->lock);
	for (size_t i = FIRST; i <= SECOND; i++)
		if (threads[i])
			save(&owned->threads[i], threads[i]);
	if (owned->tasklets)
		save(&owned->threads[TASKLETS], rtxg_tasklets_thread(owned->tasklets));
	err = owned->rule.runtime_ns ? begin_server(owned) : 0;
	/* nothing was set yet, and nothing is from now on */
	for (size_t i = 0; err && i < THREADS; i++)
		WRITE_ONCE(owned->threads[i].thread, NULL);
	mutex_unlock(&owned->lock);
	if (err) {
		if (owned->tasklets)
			rtxg_tasklets_end(owned->tasklets);
		unlist(owned);
		release(owned);
		return ERR_PTR(err);
	}
	kthread_queue_work(worker, &owned->work);
	kthread_flush_work(&owned->work);
	return owned;
}

void rtxg_owned_bind(struct rtxg_owned *owned, int gpu, u32 engine)
{
	mutex_lock(&owned->lock);
	WRITE_ONCE(owned->who.engine, engine);
	WRITE_ONCE(owned->who.gpu, gpu);
	mutex_unlock(&owned->lock);
	kthread_queue_work(worker, &owned->work);
	kthread_flush_work(&owned->work);
}

void rtxg_owned_end(struct rtxg_owned *owned, bool gone)
{
	/*
	 * its calls use what ends here; that thread ends first, and the worker may be at setting it
	 */
	if (owned->tasklets) {
		mutex_lock(&owned->lock);
		WRITE_ONCE(owned->threads[TASKLETS].thread, NULL);
		mutex_unlock(&owned->lock);
		rtxg_tasklets_end(owned->tasklets);
	}
	unlist(owned);
	if (owned->server)
		rtxg_cpu_server_end(owned->server);
	for (size_t i = FIRST; i <= SECOND; i++) {
		struct served *served = &owned->threads[i];

		if (!served->thread)
			continue;
		if (!gone) {
			if (is_placed(served))
				set_cpus_allowed_ptr(served->thread, served->saved_mask);
			sched_setattr_nocheck(served->thread, &served->saved);
		}
		put_task_struct(served->thread);
	}
	if (owned->who.named)
		put_task_struct(owned->who.named);
	release(owned);
}

static s32 number_of(const struct served *served)
{
	return served->thread ? task_pid_vnr(served->thread) : 0;
}

void rtxg_owned_tell(struct rtxg_owned *owned, struct rtxg_irq_owner *answer)
{
	mutex_lock(&owned->lock);
	answer->mode = owned->rule.mode;
	answer->priority = owned->rule.priority;
	answer->flags = (owned->rule.beside ? RTXG_IRQ_BESIDE : 0) |
			(owned->tasklets ? RTXG_IRQ_TASKLETS : 0);
	answer->now = owned->now.priority;
	answer->cpu = owned->now.cpu;
	answer->changes = owned->changes;
	answer->thread = number_of(&owned->threads[FIRST]);
	answer->second = number_of(&owned->threads[SECOND]);
	answer->tasklets = number_of(&owned->threads[TASKLETS]);
	answer->redirected = owned->tasklets ? rtxg_tasklets_count(owned->tasklets) : 0;
	answer->exhausted = owned->server ? rtxg_cpu_server_exhausted(owned->server) : 0;
	answer->at_once = atomic64_read(&owned->at_once);
	raw_spin_lock_irq(&owned->seen);
	answer->owner = owned->owner ? task_pid_vnr(owned->owner) : 0;
	answer->since_ns = owned->owner ? owned->since_ns : 0;
	answer->runs = owned->runs;
	answer->beside = owned->beside;
	raw_spin_unlock_irq(&owned->seen);
	mutex_unlock(&owned->lock);
}

int rtxg_owned_init(void)
{
	const struct sched_attr attr = { .size = sizeof(attr),
					 .sched_policy = SCHED_FIFO,
					 .sched_priority = RTXG_SERVE_HOST };

	worker = kthread_create_worker(0, "rtxg_owner");
	if (IS_ERR(worker))
		return PTR_ERR(worker);
	sched_setattr_nocheck(worker->task, &attr);
	rtxg_trace_register(RTXG_TRACE_INHERIT, probes);
	rtxg_engine_tell_owners(holder_changed);
	return 0;
}

void rtxg_owned_exit(void)
{
	rtxg_tasklets_exit();
	kthread_destroy_worker(worker);
}
