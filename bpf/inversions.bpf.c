// SPDX-License-Identifier: GPL-2.0-only
/*
 * inversions.bpf.c - priority inversions that interrupts cause, on the live kernel (Elliott and
 * Anderson 2012, section V). It changes nothing, and needs no module.
 *
 * An interrupt works for its owner: a thread that was named, else the last one that its work woke.
 * An inversion is time in which
 *   - a top half, or a bottom half (the tasklets that follow on its CPU, or a thread of the
 *     interrupt's), runs while a real-time task that comes before the owner is ready on that CPU;
 *   - a thread of the interrupt's is ready while something that comes after the owner runs on the
 *     CPU where that thread waits.
 * A tasklet is of the interrupt in whose top half it was queued: others may come between that and
 * its run, and one run of the softirq may have tasklets of several. The kernel tells of each
 * tasklet that it runs (since 6.4, and Debian's 6.1); where it does not, a run is that of the first
 * of them.
 *
 * Ready tasks are those that were woken, or preempted, and have not run since. One that is taken to
 * another CPU meanwhile counts for the CPU where it was woken. The interrupts' threads are none.
 *
 * Only chosen interrupts are looked at: user space puts their numbers into `chosen`.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "inversions.h"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef _Bool bool;

#define PF_KTHREAD  0x00200000 /* include/linux/sched.h, the same since 2.6 */
#define TASK_DEAD   0x80       /* the same since 4.14 */
#define REAL_TIME   100
#define HI_SOFTIRQ  0
#define TASKLET_IRQ 6

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct thread_info {
	u32 cpu;
};
struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	int prio;
	int pid;
	char comm[16];
};
struct irqaction;
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, INV_IRQS);
	__type(key, u32);
	__type(value, struct inv_irq);
} chosen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INV_CPUS);
	__type(key, u32);
	__type(value, struct inv_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, INV_READY);
	__type(key, u32); /* thread */
	__type(value, struct inv_ready);
} ready SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, INV_IRQS);
	__type(key, u32); /* thread */
	__type(value, struct inv_pending);
} pending SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, INV_IRQS);
	__type(key, u32); /* thread */
	__type(value, struct inv_owner);
} owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4 * INV_IRQS);
	__type(key, struct inv_key);
	__type(value, struct inv_stats);
} found SEC(".maps");

/* Whether the kernel tells of each tasklet. Set before the program is loaded. */
const volatile bool each_tasklet = 1;

/*
 * How many of each priority are in `ready`. To look through that map takes as long as short
 * inversions last, and its time would be measured as theirs: it is done if a task comes before the
 * owner.
 */
static long ready_at[REAL_TIME];

static __always_inline void count_ready(int prio, long by)
{
	if (prio >= 0 && prio < REAL_TIME)
		__sync_fetch_and_add(&ready_at[prio], by);
}

static __always_inline bool ready_above(int prio)
{
	for (int i = 0; i < REAL_TIME && i < prio; i++)
		if (ready_at[i] > 0)
			return 1;
	return 0;
}

static __always_inline void clear_ready(u32 tid)
{
	struct inv_ready *task = bpf_map_lookup_elem(&ready, &tid);
	int prio;

	if (!task)
		return;
	prio = task->prio;
	if (!bpf_map_delete_elem(&ready, &tid))
		count_ready(prio, -1);
}

static __always_inline void set_ready(u32 tid, const struct inv_ready *task)
{
	clear_ready(tid);
	if (!bpf_map_update_elem(&ready, &tid, task, BPF_NOEXIST))
		count_ready(task->prio, 1);
}

static __always_inline u32 slot_of(u64 ns)
{
	u32 slot = 0;

	for (int i = 0; i < INV_SLOTS - 1; i++) {
		ns >>= 1;
		if (!ns)
			break;
		slot++;
	}
	return slot;
}

static __always_inline struct inv_cpu *this_cpu(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

/* As Linux counts; an owner that is not known, or has ended, comes after all real-time tasks. */
static __always_inline int owner_prio(const struct inv_irq *irq)
{
	u32 tid = irq->owner;
	struct inv_owner *owner = bpf_map_lookup_elem(&owners, &tid);

	return owner && !owner->ended ? owner->prio : INV_ORDINARY;
}

static __always_inline void record(const struct inv_irq *irq, u32 kind, u64 ns)
{
	struct inv_key key = { .owner = irq->owner, .kind = kind };
	struct inv_stats *stats = bpf_map_lookup_elem(&found, &key);
	static const struct inv_stats empty;

	if (!stats) {
		bpf_map_update_elem(&found, &key, &empty, BPF_NOEXIST);
		stats = bpf_map_lookup_elem(&found, &key);
		if (!stats)
			return;
	}
	__sync_fetch_and_add(&stats->count, 1);
	__sync_fetch_and_add(&stats->sum_ns, ns);
	if (ns > stats->longest_ns)
		stats->longest_ns = ns;
	if (ns < INV_SHORT)
		__sync_fetch_and_add(&stats->below, 1);
	__sync_fetch_and_add(&stats->slots[slot_of(ns) & (INV_SLOTS - 1)], 1);
}

struct longest {
	u32 cpu;
	int prio;
	u64 from_ns, to_ns, ns;
};

static long look_at_ready(void *map, const u32 *tid, struct inv_ready *task,
			  struct longest *longest)
{
	u64 since;

	if (task->cpu != longest->cpu || task->prio >= longest->prio)
		return 0;
	since = task->since_ns > longest->from_ns ? task->since_ns : longest->from_ns;
	if (since < longest->to_ns && longest->to_ns - since > longest->ns)
		longest->ns = longest->to_ns - since;
	return 0;
}

/* Something of an interrupt has run here until now. under: on the back of the task that runs. */
static __always_inline void ran(struct inv_cpu *cpu, struct inv_work *work, u32 kind, bool under)
{
	u64 now = bpf_ktime_get_ns();
	struct longest longest = { .cpu = bpf_get_smp_processor_id(),
				   .from_ns = work->since_ns,
				   .to_ns = now };
	u32 key = work->irq;
	struct inv_irq *irq = bpf_map_lookup_elem(&chosen, &key);

	work->on = 0;
	if (!irq)
		return;
	longest.prio = owner_prio(irq);
	if (under && cpu->prio < longest.prio && cpu->prio < REAL_TIME)
		longest.ns = now - work->since_ns;
	else if (ready_above(longest.prio))
		bpf_for_each_map_elem(&ready, look_at_ready, &longest, 0);
	if (longest.ns)
		record(irq, kind, longest.ns);
}

static __always_inline void begins(struct inv_work *work, u32 irq)
{
	work->irq = irq;
	work->since_ns = bpf_ktime_get_ns();
	work->on = 1;
}

SEC("raw_tp/irq_handler_entry")
int BPF_PROG(entry, int number, struct irqaction *action)
{
	struct inv_cpu *cpu = this_cpu();
	u32 key = number;

	if (!cpu)
		return 0;
	cpu->in_top = 1;
	if (bpf_map_lookup_elem(&chosen, &key))
		begins(&cpu->top, key);
	return 0;
}

SEC("raw_tp/irq_handler_exit")
int BPF_PROG(leave, int number, struct irqaction *action, int result)
{
	struct inv_cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	cpu->in_top = 0;
	if (cpu->top.on && cpu->top.irq == (u32)number)
		ran(cpu, &cpu->top, INV_TOP, 1);
	return 0;
}

static __always_inline struct inv_raised *raised_as(struct inv_cpu *cpu, unsigned int vector)
{
	return vector == TASKLET_IRQ  ? &cpu->raised
	       : vector == HI_SOFTIRQ ? &cpu->raised_high
				      : (struct inv_raised *)0;
}

/* The interrupt of the tasklet that comes next; 0: of none that is looked at. */
static __always_inline u32 next_of(struct inv_raised *raised)
{
	u32 at = raised->first++;

	/* more of them than there are places for */
	return raised->end - at > INV_RAISED ? 0 : raised->irqs[at & (INV_RAISED - 1)];
}

/* A tasklet was queued: each of them raises its softirq. */
SEC("raw_tp/softirq_raise")
int BPF_PROG(raise, unsigned int vector)
{
	struct inv_cpu *cpu = this_cpu();
	struct inv_raised *raised;
	u32 irq = 0;

	raised = cpu ? raised_as(cpu, vector) : 0;
	if (!raised)
		return 0;
	if (cpu->in_top)
		irq = cpu->top.on ? cpu->top.irq : 0;
	else if (!cpu->in_timer && cpu->soft.on)
		irq = cpu->soft.irq;
	raised->irqs[raised->end++ & (INV_RAISED - 1)] = irq;
	return 0;
}

SEC("raw_tp/softirq_entry")
int BPF_PROG(softirq, unsigned int vector)
{
	struct inv_cpu *cpu = this_cpu();
	struct inv_raised *raised;
	u32 irq = 0;

	if (!cpu)
		return 0;
	cpu->vector = vector + 1;
	raised = raised_as(cpu, vector);
	if (!raised)
		return 0;
	/* what is queued from now on is for the next run */
	cpu->taken = raised->end;
	for (int i = 0; i < INV_RAISED && !each_tasklet && !irq && raised->first != cpu->taken; i++)
		irq = next_of(raised);
	if (irq)
		begins(&cpu->soft, irq);
	return 0;
}

SEC("raw_tp/tasklet_entry")
int BPF_PROG(tasklet, void *tasklet, void *function)
{
	struct inv_cpu *cpu = this_cpu();
	struct inv_raised *raised;
	u32 irq;

	raised = cpu ? raised_as(cpu, cpu->vector - 1) : 0;
	if (!raised || raised->first == cpu->taken)
		return 0;
	irq = next_of(raised);
	if (irq)
		begins(&cpu->soft, irq);
	return 0;
}

SEC("raw_tp/tasklet_exit")
int BPF_PROG(tasklet_done, void *tasklet, void *function)
{
	struct inv_cpu *cpu = this_cpu();

	if (cpu && cpu->soft.on)
		ran(cpu, &cpu->soft, INV_RUNS, 1);
	return 0;
}

SEC("raw_tp/softirq_exit")
int BPF_PROG(softirq_done, unsigned int vector)
{
	struct inv_cpu *cpu = this_cpu();
	struct inv_raised *raised;

	if (!cpu)
		return 0;
	cpu->vector = 0;
	raised = raised_as(cpu, vector);
	if (!raised)
		return 0;
	/* one that was disabled did not run, and was queued once more */
	raised->first = cpu->taken;
	if (cpu->soft.on)
		ran(cpu, &cpu->soft, INV_RUNS, 1);
	return 0;
}

/* The interrupt whose thread this is, by its name: irq/NUMBER-, or rtxg_irq/NUMBER. 0: none. */
static __always_inline u32 irq_of(struct task_struct *task)
{
	char comm[16] = "";
	u32 number = 0;

	if (!(BPF_CORE_READ(task, flags) & PF_KTHREAD))
		return 0;
	bpf_probe_read_kernel(comm, sizeof(comm), &task->comm);
	/* read again from there: the verifier follows no place in a text that is not constant */
	if (comm[0] == 'r' && comm[1] == 't' && comm[2] == 'x' && comm[3] == 'g' && comm[4] == '_')
		bpf_probe_read_kernel(comm, sizeof(comm) - 5, (const char *)&task->comm + 5);
	if (comm[0] != 'i' || comm[1] != 'r' || comm[2] != 'q' || comm[3] != '/')
		return 0;
	for (int i = 4; i < 9; i++) {
		char c = comm[i];

		if (c < '0' || c > '9')
			break;
		number = number * 10 + (c - '0');
	}
	return number;
}

/* What a task is now, if it is an owner. */
static __always_inline void note_owner(u32 tid, struct task_struct *task)
{
	struct inv_owner *owner = bpf_map_lookup_elem(&owners, &tid);

	if (owner)
		owner->prio = BPF_CORE_READ(task, prio);
}

/* Work of an interrupt wakes a task: that one is its owner, unless one was named. */
static __always_inline void learn(struct inv_cpu *cpu, u32 tid, struct task_struct *task)
{
	const struct inv_work *work = cpu->top.on    ? &cpu->top
				      : cpu->soft.on ? &cpu->soft
						     : &cpu->thread;
	struct inv_owner owner = {};
	struct inv_irq *irq;
	u32 key = work->irq;

	/*
	 * a timer that fires meanwhile wakes for itself, and so does another softirq on a thread's
	 * back
	 */
	if (!work->on || cpu->in_timer || BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return;
	if (work == &cpu->thread &&
	    (cpu->in_top || (cpu->vector && !raised_as(cpu, cpu->vector - 1))))
		return;
	irq = bpf_map_lookup_elem(&chosen, &key);
	if (!irq || irq->named)
		return;
	irq->owner = tid;
	owner.prio = BPF_CORE_READ(task, prio);
	bpf_probe_read_kernel(owner.comm, sizeof(owner.comm), &task->comm);
	bpf_map_update_elem(&owners, &tid, &owner, BPF_ANY);
}

SEC("raw_tp/hrtimer_expire_entry")
int BPF_PROG(timer, void *hrtimer, void *now)
{
	struct inv_cpu *cpu = this_cpu();

	if (cpu)
		cpu->in_timer = 1;
	return 0;
}

SEC("raw_tp/hrtimer_expire_exit")
int BPF_PROG(timer_done, void *hrtimer)
{
	struct inv_cpu *cpu = this_cpu();

	if (cpu)
		cpu->in_timer = 0;
	return 0;
}

SEC("raw_tp/sched_waking")
int BPF_PROG(waking, struct task_struct *task)
{
	struct inv_cpu *cpu = this_cpu();

	if (cpu)
		learn(cpu, BPF_CORE_READ(task, pid), task);
	return 0;
}

static __always_inline int becomes_ready(struct task_struct *task)
{
	u32 tid = BPF_CORE_READ(task, pid), where = BPF_CORE_READ(task, thread_info.cpu), number;
	u64 now = bpf_ktime_get_ns();
	struct inv_irq *irq;
	int prio = BPF_CORE_READ(task, prio);

	note_owner(tid, task);
	number = irq_of(task);
	irq = number ? bpf_map_lookup_elem(&chosen, &number) : 0;
	if (prio < REAL_TIME && !irq) {
		struct inv_ready value = { .prio = prio, .cpu = where, .since_ns = now };

		set_ready(tid, &value);
	}
	if (irq) {
		struct inv_cpu *cpu = bpf_map_lookup_elem(&cpus, &where);
		struct inv_pending value = { .irq = number, .cpu = where };

		if (cpu && cpu->tid && cpu->tid != tid && cpu->prio > owner_prio(irq))
			value.lower_ns = now;
		if (cpu && !bpf_map_update_elem(&pending, &tid, &value, BPF_NOEXIST))
			__sync_fetch_and_add(&cpu->waiting, 1);
	}
	return 0;
}

/* One that is woken before it has left its CPU goes on there. */
static __always_inline bool still_runs(struct task_struct *task)
{
	u32 where = BPF_CORE_READ(task, thread_info.cpu);
	struct inv_cpu *cpu = bpf_map_lookup_elem(&cpus, &where);

	return cpu && cpu->tid == (u32)BPF_CORE_READ(task, pid);
}

SEC("raw_tp/sched_wakeup")
int BPF_PROG(woken, struct task_struct *task)
{
	return still_runs(task) ? 0 : becomes_ready(task);
}

SEC("raw_tp/sched_wakeup_new")
int BPF_PROG(made, struct task_struct *task)
{
	return becomes_ready(task);
}

struct change {
	u32 cpu, next;
	int prio;
	u64 now_ns;
};

/* Another task runs on a CPU: what that means to a thread that waits there. */
static long look_at_pending(void *map, const u32 *tid, struct inv_pending *wait,
			    struct change *change)
{
	u32 key = wait->irq;
	struct inv_irq *irq;

	if (wait->cpu != change->cpu || *tid == change->next)
		return 0;
	irq = bpf_map_lookup_elem(&chosen, &key);
	if (wait->lower_ns)
		wait->sum_ns += change->now_ns - wait->lower_ns;
	wait->lower_ns = irq && change->prio > owner_prio(irq) ? change->now_ns : 0;
	return 0;
}

static __always_inline void owner_ends(u32 tid)
{
	struct inv_owner *owner = bpf_map_lookup_elem(&owners, &tid);

	if (owner)
		owner->ended = 1;
}

SEC("raw_tp/sched_switch")
int BPF_PROG(change, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct change change = { .cpu = bpf_get_smp_processor_id(),
				 .next = BPF_CORE_READ(next, pid),
				 .prio = BPF_CORE_READ(next, prio),
				 .now_ns = bpf_ktime_get_ns() };
	u32 tid = change.next, before = BPF_CORE_READ(prev, pid), number;
	struct inv_cpu *cpu = this_cpu(), *woken_on;
	struct inv_pending *wait;
	struct inv_irq *irq;

	if (!cpu)
		return 0;
	/* with PREEMPT_RT a softirq may be preempted */
	if (cpu->soft.on)
		ran(cpu, &cpu->soft, INV_RUNS, 1);
	cpu->vector = 0;
	if (cpu->thread.on)
		ran(cpu, &cpu->thread, INV_RUNS, 0);
	note_owner(before, prev);
	if (prev_state & TASK_DEAD)
		owner_ends(before);
	note_owner(tid, next);
	clear_ready(tid);
	if (before && (preempt || !prev_state))
		becomes_ready(prev);
	wait = bpf_map_lookup_elem(&pending, &tid);
	if (wait) {
		u32 key = wait->irq;

		irq = bpf_map_lookup_elem(&chosen, &key);
		if (wait->lower_ns)
			wait->sum_ns += change.now_ns - wait->lower_ns;
		if (irq && wait->sum_ns)
			record(irq, INV_WAITS, wait->sum_ns);
		key = wait->cpu;
		woken_on = bpf_map_lookup_elem(&cpus, &key);
		if (!bpf_map_delete_elem(&pending, &tid) && woken_on)
			__sync_fetch_and_add(&woken_on->waiting, -1);
	}
	cpu->tid = tid;
	cpu->prio = change.prio;
	if (cpu->waiting)
		bpf_for_each_map_elem(&pending, look_at_pending, &change, 0);
	number = irq_of(next);
	if (number && bpf_map_lookup_elem(&chosen, &number))
		begins(&cpu->thread, number);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
