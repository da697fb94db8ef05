/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * latency_events.h - how the programs of latency.bpf.c record events and stacks, and count.
 */
#ifndef RTXG_BPF_LATENCY_EVENTS_H
#define RTXG_BPF_LATENCY_EVENTS_H

#include "latency_maps.h"

/*
 * Of a measuring thread; NULL for all else, other threads of the program too. Programs at
 * tracepoints call it with the task that they were given.
 */
static __always_inline struct latency_own *own_slot(struct task_struct *task)
{
	struct latency_own *slot;
	u32 *index, number;
	int pid;

	if (task->tgid != own_tgid)
		return NULL;
	pid = task->pid;
	number = (u32)(pid - own_first);
	slot = bpf_map_lookup_elem(&own, &number);
	if (slot && slot->last.pid == pid)
		return slot;
	index = bpf_map_lookup_elem(&own_index, &pid);
	return index ? bpf_map_lookup_elem(&own, index) : NULL;
}

/* The name of a task. */
static __always_inline void copy_comm(char *to, struct task_struct *task)
{
	const u64 *from = (const u64 *)task->comm;

	for (u32 i = 0; i < EVENT_COMM / sizeof(*from); i++)
		((u64 *)to)[i] = from[i];
}

/*
 * The latency from which on a wake-up is kept. A stack is walked in some microseconds of this CPU,
 * which are the next task's too: it is taken only where it may explain most of such a latency.
 */
static __always_inline u64 kept_ns(u64 worst_ns)
{
	return break_ns ? break_ns : worst_ns;
}

static __always_inline struct latency_control *my_control(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&control, &cpu);
}

/* The control of this CPU if its events are recorded. */
static __always_inline struct latency_control *watched_control(void)
{
	struct latency_control *c = my_control();

	return c && c->watched ? c : NULL;
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
	return number >= 0 && number < 32768 ? (int)number : EVENT_IN_USER;
}

/*
 * Before the first event of a cycle: the wake-up before it, of which nothing was recorded as it was
 * in time. It has the first places. Not static: so it is verified once in each program.
 */
__noinline int record_wake(u32 bank)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct latency_control *c = my_control();
	struct latency_record all[LATENCY_WAKE_RECORDS] = {}, *to;
	struct latency_wake *wake;
	int count, context, prio;
	u32 first, index;

	if (!c)
		return 0;
	wake = &c->wake;
	first = (c->place * banks + (bank & (LATENCY_BANKS - 1))) * LATENCY_RING;
	context = wake->other;
	prio = wake->other_prio;
	barrier_var(context); /* the verifier follows no pointer that may be one of two */
	barrier_var(prio);
	if (c->pending_ns) {
		context = current->pid;
		prio = current->prio;
	}
	count = latency_wake_records(wake, context, prio, all);
	if (c->pending_ns && current->pid)
		all[0].syscall = (short)syscall_of(current);
	for (int i = 0; i < LATENCY_WAKE_RECORDS && i < count; i++) {
		index = first + (u32)i;
		to = bpf_map_lookup_elem(&ring, &index);
		if (to)
			*to = all[i];
	}
	c->head[bank & (LATENCY_BANKS - 1)] = (u64)count;
	if (c->pending_ns)
		c->fold_ns = wake->waking_ns;
	return 0;
}

/*
 * May an event of this time tell why a thread was late? The first one of a cycle has the first
 * place: those of the cycle before are not needed any more.
 */
static __always_inline bool counts(struct latency_control *c, u64 now)
{
	u32 bank = c->bank & (LATENCY_BANKS - 1);
	u64 expected = c->expected_ns;

	if (!c->watched || now < expected)
		return false;
	if (c->begun_ns[bank] != expected) {
		c->begun_ns[bank] = expected;
		c->recorded_ns = expected;
		c->head[bank] = 0;
		if (expected && c->wake.due_ns == expected)
			record_wake(bank);
	}
	return true;
}

/* The control of this CPU if an event of this time is recorded. */
static __always_inline struct latency_control *recording(u64 now)
{
	struct latency_control *c = my_control();

	return c && counts(c, now) ? c : NULL;
}

/*
 * Before the oldest event of a full bank is written over by one of `now`: adds its time to what
 * ran, if the thread that waits was woken before. So no time of a long latency is lost. Not static:
 * so it is verified once in each program, for all its calls.
 */
__noinline int fold(u32 first, u32 at, u64 now)
{
	u32 old_index = first + (at & (LATENCY_RING - 1));
	u32 next_index = first + ((at + 1) & (LATENCY_RING - 1)), index = first / LATENCY_RING;
	struct latency_record *old = bpf_map_lookup_elem(&ring, &old_index);
	struct latency_record *next = bpf_map_lookup_elem(&ring, &next_index);
	struct latency_fold *f = bpf_map_lookup_elem(&folds, &index);
	struct latency_control *c = my_control();

	if (c && old && next && f)
		latency_fold(f, old, next, c->fold_ns, now);
	return 0;
}

/*
 * A place for an event in the bank that is written, with all that each event has: no other event of
 * the place may show through. Where interrupts may be on, the place has to be taken atomically.
 * That waits for all stores before it.
 */
static __always_inline struct latency_record *event_at(int type, struct latency_control *c, u64 ns,
						       struct task_struct *task, bool interrupts)
{
	u32 bank = c->bank & (LATENCY_BANKS - 1), first, index;
	struct latency_record *e;
	u64 at;

	if (interrupts)
		at = __sync_fetch_and_add(&c->head[bank], 1);
	else
		at = c->head[bank]++;
	first = (c->place * banks + bank) * LATENCY_RING;
	if (at >= LATENCY_RING && c->fold_ns)
		fold(first, (u32)at, ns);
	index = first + (u32)(at & (LATENCY_RING - 1));
	e = bpf_map_lookup_elem(&ring, &index);
	if (!e)
		return NULL;
	e->ns = ns;
	e->context = task->pid;
	e->context_prio = (short)task->prio;
	e->word = LATENCY_WORD(type);
	return e;
}

/* As event_at, now and of the task that runs; NULL too where nothing is recorded. */
static __always_inline struct latency_record *new_event(int type, bool interrupts)
{
	u64 now = bpf_ktime_get_ns();
	struct latency_control *c = recording(now);

	return c ? event_at(type, c, now, bpf_get_current_task_btf(), interrupts) : NULL;
}

/*
 * Does a latency bear a walk that is a part of it? A maximum is not to be what measuring made of
 * it. With a threshold the wake-up that passes it is the last one.
 */
static __always_inline bool bears_walk(const struct latency_control *c, u64 ns)
{
	return break_ns || ns > 4 * LATENCY_STACK_FEW * c->frame_ns;
}

/* The event may be NULL: then it is tried what a walk costs. */
static __always_inline void take_stack(void *ctx, struct latency_record *e,
				       struct latency_control *c, u32 deep)
{
	u32 bank = c->bank & (LATENCY_BANKS - 1), index, at;
	struct latency_stack *stack;
	u64 begin, each;
	long n;

	at = __sync_fetch_and_add(&c->stacks[bank], 1) & (LATENCY_STACKS - 1);
	index = (c->place * banks + bank) * LATENCY_STACKS + at;
	stack = bpf_map_lookup_elem(&stacks, &index);
	if (!stack)
		return;
	begin = bpf_ktime_get_ns();
	n = bpf_get_stack(ctx, stack->ip, deep * sizeof(stack->ip[0]), 0);
	if (n <= 0)
		return;
	/* the least: what interrupted another walk is not its own */
	each = (bpf_ktime_get_ns() - begin) / ((u64)n / sizeof(stack->ip[0]) + 1) + 1;
	if (!c->frame_ns || each < c->frame_ns)
		c->frame_ns = each;
	/* one place more than a stack has: the verifiers of 6.1 and 6.12 follow no mask here */
	stack->ip[n / sizeof(stack->ip[0])] = 0;
	if (e)
		e->stack = (signed char)at;
}

static __always_inline void count(struct latency_control *c, u32 class, u32 kind, u64 ns)
{
	struct latency_sum *sum = &c->sums[class & 1][kind & 3];
	u64 us = latency_us(ns), *bin;
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

/*
 * Where a late timer's interrupt came in: had interrupts just been switched on there? The frame
 * below that of the interrupt's entry has the place. User code has no frame in a kernel's stack.
 */
static __always_inline void take_place(struct latency_record *e, struct latency_control *c)
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
			e->from = EVENT_FROM_USER;
			return;
		}
		if (bpf_probe_read_kernel(&code, sizeof(code), (void *)(ip - sizeof(code))))
			return;
		e->from = EVENT_FROM_KERNEL;
		e->arg = (s64)code;
		return;
	}
}

/*
 * What the timer of a wake-up interrupted: kernel code that may go on with preemption off. Nothing
 * is taken where it found user code in time, or an idle CPU in time.
 */
static __always_inline void take_interrupted(void *ctx, struct latency_record *e,
					     struct latency_control *c, u64 late, u64 worst)
{
	if (e->context != 0)
		e->syscall = (short)syscall_of(bpf_get_current_task_btf());
	if (late > stack_ns) {
		if (late <= kept_ns(worst) / 4 || !bears_walk(c, late))
			return;
		take_stack(ctx, e, c, LATENCY_STACK_DEEP);
		take_place(e, c);
	} else if (e->context != 0 && e->syscall != EVENT_IN_USER && !preemptible &&
		   bears_walk(c, worst)) {
		take_stack(ctx, e, c, LATENCY_STACK_FEW);
	}
}

#endif
