// SPDX-License-Identifier: GPL-2.0-only
/*
 * latency.bpf.c - how late timers fire and tasks run, and what each CPU did before: the kernel's
 * side of `rtxg latency`. It changes nothing. It is attached while a measurement runs, and the
 * kernel detaches it when the measuring process ends, however it ends.
 *
 * Histograms have bins of 1 us. A recorder for each CPU keeps the last events, as a flight recorder
 * does: switches, wake-ups, timers, interrupts, softirqs, NMIs. When a task was late, the bank with
 * what led to it is kept for the reader, and another bank is written. Stacks are taken where they
 * tell something: when a timer was late, when it interrupted the kernel, and at the switch to a
 * late task.
 *
 * From a timer's interrupt to the switch each instruction makes the measured task later. So memory
 * of the kernel is loaded directly (tp_btf) instead of by a helper that expects a fault, a
 * measuring thread is found without hashing, and no time is read twice. There is no program at
 * sched_wakeup: sched_waking has all that is needed of a wake-up.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "latency.h"

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;
typedef _Bool bool;
#define false 0
#define true 1

#define PF_KTHREAD  0x00200000 /* include/linux/sched.h, the same since 2.6 */
#define RT_PRIO_END 100

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct {
	unsigned int flags;
	int pid, tgid, prio, normal_prio;
	char comm[16];
};
struct irqaction {
	const char *name;
};
struct hrtimer_clock_base {
	s64 offset;
};
struct hrtimer {
	s64 _softexpires;
	struct hrtimer_clock_base *base;
};
struct pt_regs___kernel {
#ifdef __TARGET_ARCH_arm64
	s64 syscallno;
#else
	unsigned long orig_ax;
#endif
};
#pragma clang attribute pop

/* Set before loading. */
volatile const int own_tgid = 0;
volatile const bool every_task = 0;
volatile const unsigned int bins = 1;
volatile const unsigned int banks = 2;		    /* of each CPU */
volatile const unsigned long long stack_ns = 10000; /* stacks are taken from so late on */
volatile const unsigned long long break_ns = 0;	    /* kept above it; 0: above the worst so far */
/* Code through which the local timer's interrupt enters (x86); 0: not known. */
volatile const unsigned long long entry_from = 0, entry_to = 0;

/* The thread ID of the first measuring thread: mostly the others follow it. Set before the run. */
int own_first = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs * classes * kinds * (bins + 1) */
	__type(key, u32);
	__type(value, u64);
} histograms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs */
	__type(key, u32);
	__type(value, struct latency_control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* watched CPUs * banks * LATENCY_RING */
	__type(key, u32);
	__type(value, struct event);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* watched CPUs * banks * LATENCY_STACKS */
	__type(key, u32);
	__type(value, struct latency_stack);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* measuring threads */
	__type(key, u32);
	__type(value, struct latency_wake);
} own SEC(".maps");

/* Wake-ups of the measuring threads that no switch followed so far. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* measuring threads */
	__type(key, u32);
	__type(value, struct latency_wake);
} own_waking SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LATENCY_THREADS);
	__type(key, int);   /* thread */
	__type(value, u32); /* index in own */
} own_index SEC(".maps");

/* As own_waking, of all other real-time tasks. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, int); /* thread */
	__type(value, struct latency_wake);
} waking SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} notices SEC(".maps");

/*
 * Of a measuring thread, and its number; NULL for all else, other threads of the program too.
 * Programs at tracepoints call it with the task that they were given, or with the current one.
 */
static __always_inline struct latency_wake *own_slot(struct task_struct *task, u32 *number)
{
	struct latency_wake *slot;
	u32 *index;
	int pid;

	if (task->tgid != own_tgid)
		return NULL;
	pid = task->pid;
	*number = (u32)(pid - own_first);
	slot = bpf_map_lookup_elem(&own, number);
	if (slot && slot->pid == pid)
		return slot;
	index = bpf_map_lookup_elem(&own_index, &pid);
	if (!index)
		return NULL;
	*number = *index;
	return bpf_map_lookup_elem(&own, number);
}

/* The name of a task. Half words: the one in an event is not aligned to more. */
static __always_inline void copy_comm(char *to, struct task_struct *task)
{
	const u32 *from = (const u32 *)task->comm;

	for (u32 i = 0; i < EVENT_COMM / sizeof(*from); i++)
		((u32 *)to)[i] = from[i];
}

/*
 * The latency from which on a wake-up is kept. A stack is walked in some microseconds of this CPU,
 * which are the next task's too: it is taken only where it may explain most of such a latency.
 */
static __always_inline u64 kept_ns(const struct latency_wake *slot, const struct latency_control *c)
{
	if (break_ns)
		return break_ns;
	return slot ? slot->worst_ns : c ? c->worst_ns : 0;
}

static __always_inline struct latency_control *my_control(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&control, &cpu);
}

/*
 * A place for an event in the bank that is written; NULL while this CPU is not watched. Where
 * interrupts may be on, the place has to be taken atomically. That waits for all stores before it.
 */
static __always_inline struct event *event_at(int type, struct latency_control *c, u64 ns,
					      bool interrupts)
{
	struct task_struct *task;
	u32 bank, index;
	struct event *e;
	u64 at;

	if (!c || !c->watched)
		return NULL;
	bank = c->bank & (LATENCY_BANKS - 1);
	if (interrupts)
		at = __sync_fetch_and_add(&c->head[bank], 1);
	else
		at = c->head[bank]++;
	index = (c->place * banks + bank) * LATENCY_RING + (u32)(at & (LATENCY_RING - 1));
	e = bpf_map_lookup_elem(&ring, &index);
	if (!e)
		return NULL;
	task = bpf_get_current_task_btf();
	e->ns = ns ? ns : bpf_ktime_get_ns();
	e->type = type;
	e->arg = 0;
	e->pid = -1;
	e->other = -1;
	e->prio = EVENT_NO_PRIO;
	e->other_prio = EVENT_NO_PRIO;
	e->context = task->pid;
	e->context_prio = task->prio;
	e->syscall = EVENT_NOT_KNOWN;
	e->stack = -1;
	e->name[0] = 0;
	return e;
}

static __always_inline struct event *new_event(int type, struct latency_control *c)
{
	return event_at(type, c, 0, false);
}

/* The system call that a task is in; EVENT_IN_USER also where an exception of it is handled. */
static __always_inline int syscall_of(struct task_struct *task)
{
	struct pt_regs___kernel *regs;
	s64 number;

	if (task->flags & PF_KTHREAD)
		return EVENT_IN_KERNEL;
	regs = (void *)bpf_task_pt_regs(task);
#ifdef __TARGET_ARCH_arm64
	number = regs->syscallno;
#else
	number = (s64)regs->orig_ax;
#endif
	return number >= 0 && number < 100000 ? (int)number : EVENT_IN_USER;
}

static __always_inline void take_stack(void *ctx, struct event *e, struct latency_control *c,
				       u32 deep)
{
	u32 bank = c->bank & (LATENCY_BANKS - 1), index, at;
	struct latency_stack *stack;
	long n;

	at = __sync_fetch_and_add(&c->stacks[bank], 1) & (LATENCY_STACKS - 1);
	index = (c->place * banks + bank) * LATENCY_STACKS + at;
	stack = bpf_map_lookup_elem(&stacks, &index);
	if (!stack)
		return;
	n = bpf_get_stack(ctx, stack->ip, deep * sizeof(stack->ip[0]), 0);
	if (n <= 0)
		return;
	/* one place more than a stack has: the verifiers of 6.1 and 6.12 follow no mask here */
	stack->ip[n / sizeof(stack->ip[0])] = 0;
	e->stack = (int)at;
}

static __always_inline void count(struct latency_control *c, u32 class, u32 kind, u64 ns)
{
	struct latency_sum *sum = &c->sums[class & 1][kind & 3];
	u64 us = ns / 1000, *bin;
	u32 key;

	if (kind >= LATENCY_KINDS)
		return;
	key = LATENCY_BIN(c->cpu, class, kind, bins) + (u32)(us < bins ? us : bins);
	bin = bpf_map_lookup_elem(&histograms, &key);
	if (bin)
		*bin += 1;
	if (!sum->count || ns < sum->min_ns)
		sum->min_ns = ns;
	if (ns > sum->max_ns)
		sum->max_ns = ns;
	sum->sum_ns += ns;
	sum->count++;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(timer_fires, struct hrtimer *timer)
{
	struct latency_control *c = my_control();
	struct event *e;

	if (!c)
		return 0;
	c->due_ns = (u64)(timer->_softexpires - timer->base->offset);
	c->timer_ns = bpf_ktime_get_ns();
	e = event_at(EVENT_TIMER, c, c->timer_ns, false);
	if (!e)
		return 0;
	e->arg = (s64)c->due_ns;
	if (e->context)
		e->syscall = syscall_of(bpf_get_current_task_btf());
	return 0;
}

/*
 * For all real-time tasks alone: a measuring thread's wake-up is known by the time that it waits
 * for.
 */
SEC("raw_tp/hrtimer_expire_exit")
int BPF_PROG(timer_fired)
{
	struct latency_control *c = my_control();

	if (c)
		c->due_ns = 0;
	return 0;
}

/*
 * Where a late timer's interrupt came in: had interrupts just been switched on there? The frame
 * below that of the interrupt's entry has the place. User code has no frame in a kernel's stack.
 */
static __always_inline void take_place(struct event *e, struct latency_control *c)
{
	u32 index = (c->place * banks + (c->bank & (LATENCY_BANKS - 1))) * LATENCY_STACKS +
		    ((u32)e->stack & (LATENCY_STACKS - 1));
	struct latency_stack *stack = bpf_map_lookup_elem(&stacks, &index);
	u64 ip, code = 0;

	if (!stack || e->stack < 0)
		return;
	for (int i = 0; i < LATENCY_STACK_DEEP - 1; i++) {
		if (!stack->ip[i])
			return;
		if (stack->ip[i] < entry_from || stack->ip[i] >= entry_to)
			continue;
		ip = stack->ip[i + 1];
		if (!ip) {
			e->other = EVENT_FROM_USER;
			return;
		}
		if (bpf_probe_read_kernel(&code, sizeof(code), (void *)(ip - sizeof(code))))
			return;
		e->other = EVENT_FROM_KERNEL;
		e->arg = (s64)code;
		return;
	}
}

SEC("tp_btf/sched_waking")
int BPF_PROG(wakes, struct task_struct *task)
{
	struct latency_control *c = my_control();
	struct latency_wake other = {}, *wake = &other, *slot;
	struct event *e;
	u32 number;
	u64 late;
	int pid;

	if (!c)
		return 0;
	slot = own_slot(task, &number);
	if (slot)
		wake = bpf_map_lookup_elem(&own_waking, &number);
	else if (!every_task || task->prio >= RT_PRIO_END)
		return 0;
	if (!wake)
		return 0;
	barrier_var(wake); /* the verifier follows no address that is reckoned before that test */
	pid = task->pid;
	wake->pid = pid;
	wake->waking_ns = bpf_ktime_get_ns();
	wake->timer_cpu = (int)c->cpu;
	wake->due_ns = slot && slot->expected_ns != c->due_ns ? 0 : c->due_ns;
	wake->timer_ns = wake->due_ns ? c->timer_ns : 0;
	if (!slot)
		bpf_map_update_elem(&waking, &pid, wake, BPF_ANY);
	e = event_at(EVENT_WAKING, c, wake->waking_ns, false);
	if (!e)
		return 0;
	e->pid = pid;
	e->prio = task->prio;
	copy_comm(e->name, task);
	/*
	 * What the timer interrupted: kernel code that may go on with preemption off. Nothing is
	 * taken where it found user code in time, or an idle CPU in time.
	 */
	if (!wake->due_ns)
		return 0;
	late = wake->timer_ns > wake->due_ns ? wake->timer_ns - wake->due_ns : 0;
	if (late > stack_ns) {
		if (late <= kept_ns(slot, c) / 4)
			return 0;
		take_stack(ctx, e, c, LATENCY_STACK_DEEP);
		take_place(e, c);
	} else if (e->context != 0) {
		e->syscall = syscall_of(bpf_get_current_task_btf());
		if (e->syscall != EVENT_IN_USER)
			take_stack(ctx, e, c, LATENCY_STACK_FEW);
	}
	return 0;
}

/* Keeps what led to it. The ring buffer only wakes the reader: one that is full has been told. */
static __always_inline void tell(struct latency_control *c, const struct latency_wake *wake)
{
	struct latency_late *late;
	u32 *notice;
	int back;

	late = latency_late_place(c->late, &back);
	if (!late)
		return;
	if (back >= 0)
		c->used[back & (LATENCY_BANKS - 1)] = 0;
	late->bank = latency_keep(c, banks);
	late->expected_ns = wake->due_ns ? wake->due_ns : wake->waking_ns;
	late->ran_ns = wake->switch_ns;
	late->wake = *wake;
	__sync_lock_test_and_set(&late->state, LATENCY_READY);
	notice = bpf_ringbuf_reserve(&notices, sizeof(*notice), 0);
	if (!notice)
		return;
	*notice = c->cpu;
	bpf_ringbuf_submit(notice, 0);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(change, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct latency_control *c = my_control();
	struct latency_wake *wake, *slot;
	u32 class, number;
	struct event *e;
	u64 now, late;
	int pid;

	if (!c)
		return 0;
	pid = next->pid;
	e = new_event(EVENT_SWITCH, c);
	if (e) {
		e->pid = pid;
		e->prio = next->prio;
		e->other = prev->pid;
		e->other_prio = prev->prio;
		copy_comm(e->name, next);
		copy_comm(e->other_name, prev);
	}
	slot = own_slot(next, &number);
	if (slot)
		wake = bpf_map_lookup_elem(&own_waking, &number);
	else if (every_task && next->prio < RT_PRIO_END)
		wake = bpf_map_lookup_elem(&waking, &pid);
	else
		return 0;
	if (!wake)
		return 0;
	barrier_var(wake);
	if (!wake->waking_ns)
		return 0;
	now = e ? e->ns : bpf_ktime_get_ns();
	class = next->tgid == own_tgid ? LATENCY_OWN : LATENCY_ALL;
	late = now - (wake->due_ns ? wake->due_ns : wake->waking_ns);
	count(c, class, LATENCY_WAKEUP, now - wake->waking_ns);
	if (wake->due_ns) {
		count(c, class, LATENCY_TIMER,
		      wake->timer_ns > wake->due_ns ? wake->timer_ns - wake->due_ns : 0);
		count(c, class, LATENCY_TOTAL, late);
	}
	if (e && prev->pid)
		e->syscall = syscall_of(prev);
	if (e && prev->pid && late > stack_ns && late > kept_ns(slot, c) / 8 * 7)
		take_stack(ctx, e, c, LATENCY_STACK_FEW);
	wake->switch_ns = now;
	wake->prio = next->prio;
	wake->other = prev->pid;
	wake->other_prio = prev->prio;
	wake->cpu = (int)c->cpu;
	copy_comm(wake->comm, next);
	copy_comm(wake->other_comm, prev);
	if (slot) {
		wake->worst_ns = late > slot->worst_ns ? late : slot->worst_ns;
		wake->expected_ns = slot->expected_ns;
		*slot = *wake;
	} else if (e && class != LATENCY_OWN && late > kept_ns(NULL, c) && late > c->worst_ns) {
		c->worst_ns = late;
		wake->syscall = syscall_of(next);
		tell(c, wake);
	}
	wake->waking_ns = 0; /* a switch to it after it was preempted is no wake-up */
	return 0;
}

/* A lock that a more urgent task waits for lends its priority, or takes it back. */
SEC("raw_tp/sched_pi_setprio")
int BPF_PROG(lent, struct task_struct *task, struct task_struct *waiter)
{
	struct event *e = new_event(EVENT_PRIO, my_control());
	int prio;

	if (!e)
		return 0;
	e->pid = BPF_CORE_READ(task, pid);
	e->prio = BPF_CORE_READ(task, normal_prio);
	prio = waiter ? BPF_CORE_READ(waiter, prio) : e->prio;
	if (prio < e->prio)
		e->prio = prio;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(interrupt, int irq, struct irqaction *action)
{
	struct event *e = new_event(EVENT_IRQ, my_control());

	if (!e)
		return 0;
	e->arg = irq;
	bpf_probe_read_kernel_str(e->name, sizeof(e->name), action->name);
	return 0;
}

SEC("raw_tp/irq_handler_exit")
int BPF_PROG(interrupt_end, int irq)
{
	struct event *e = new_event(EVENT_IRQ_DONE, my_control());

	if (e)
		e->arg = irq;
	return 0;
}

SEC("raw_tp/softirq_entry")
int BPF_PROG(softirq, unsigned int number)
{
	struct event *e = event_at(EVENT_SOFTIRQ, my_control(), 0, true);

	if (e)
		e->arg = number;
	return 0;
}

SEC("raw_tp/softirq_exit")
int BPF_PROG(softirq_end, unsigned int number)
{
	struct event *e = event_at(EVENT_SOFTIRQ_DONE, my_control(), 0, true);

	if (e)
		e->arg = number;
	return 0;
}

/* Attached to each of the architecture's own interrupts that the kernel has a tracepoint of. */
SEC("raw_tp")
int BPF_PROG(vector, int number)
{
	struct event *e = new_event(EVENT_VECTOR, my_control());

	if (!e)
		return 0;
	e->arg = number;
	if (e->context)
		e->syscall = syscall_of(bpf_get_current_task_btf());
	return 0;
}

SEC("raw_tp")
int BPF_PROG(vector_end, int number)
{
	struct event *e = new_event(EVENT_VECTOR_DONE, my_control());

	if (e)
		e->arg = number;
	return 0;
}

SEC("raw_tp/nmi_handler")
int BPF_PROG(nmi, void *handler, s64 delta_ns, int handled)
{
	struct event *e = event_at(EVENT_NMI, my_control(), 0, true);

	if (e)
		e->arg = delta_ns;
	return 0;
}

SEC("raw_tp/cpu_idle")
int BPF_PROG(idle, unsigned int state, unsigned int cpu_id)
{
	struct event *e =
		event_at(state == (u32)-1 ? EVENT_IDLE_END : EVENT_IDLE, my_control(), 0, true);

	if (e)
		e->arg = state;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
