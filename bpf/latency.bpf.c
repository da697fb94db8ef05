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
 * From a timer's interrupt to the switch each instruction and each cache line makes the measured
 * task later, and each program that is called there costs as much again as what it does. So three
 * run there: the timer's function, the end of its interrupt, the switch. A timer that wakes a
 * measuring thread is known by what it is due at and by its function, so its wake-up needs no
 * program. The first timer of an interrupt tells when that began. Memory of the kernel is loaded
 * directly (tp_btf) instead of by a helper that expects a fault, a measuring thread is found
 * without hashing, and no time is read twice. An event is one cache line, and an interrupt one
 * event. Where a CPU has one measuring thread, what happens before the time that it waits for is
 * not recorded, and each cycle writes to the same place, which the cache still has. A wake-up is
 * counted when the thread has gone to sleep again. A stack is walked only where the latency is some
 * times longer than the walk.
 */
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
		c->head[bank] = 0;
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
	if (late > stack_ns) {
		if (late <= kept_ns(worst) / 4 || !bears_walk(c, late))
			return;
		take_stack(ctx, e, c, LATENCY_STACK_DEEP);
		take_place(e, c);
	} else if (e->context != 0) {
		e->syscall = (short)syscall_of(bpf_get_current_task_btf());
		if (e->syscall != EVENT_IN_USER && !preemptible && bears_walk(c, worst))
			take_stack(ctx, e, c, LATENCY_STACK_FEW);
	}
}

/* Does the thread that was woken here first still wait? It may have run on another CPU. */
static __always_inline bool still_waits(struct latency_control *c)
{
	struct latency_own *slot;

	if (!c->fold_ns)
		return false;
	slot = bpf_map_lookup_elem(&own, &c->fold_of);
	return slot && slot->waking.waking_ns == c->fold_ns;
}

/* The measuring thread that a timer wakes; NULL for all else. */
static __always_inline struct latency_own *own_of(struct latency_control *c, struct hrtimer *timer,
						  u64 due)
{
	struct hrtimer_sleeper *of = (void *)timer;
	struct task_struct *task;
	struct latency_own *slot;
	u32 *index;
	int pid;

	if (due && due == c->expected_ns) { /* 0: there is no such thread */
		u32 number = c->own;

		slot = bpf_map_lookup_elem(&own, &number);
		return slot;
	}
	/* of several threads of this CPU, or of one that is on another CPU than it was to be */
	if ((u64)timer->function != sleeper)
		return NULL;
	task = BPF_CORE_READ(of, task);
	if (!task || BPF_CORE_READ(task, tgid) != own_tgid)
		return NULL;
	pid = BPF_CORE_READ(task, pid);
	index = bpf_map_lookup_elem(&own_index, &pid);
	return index ? bpf_map_lookup_elem(&own, index) : NULL;
}

/* A timer's function is going to wake a measuring thread: both are one event. */
static __always_inline void wakes_own(void *ctx, struct latency_control *c,
				      struct latency_own *slot, u64 due, u64 now)
{
	struct latency_record *e;

	barrier_var(slot);
	slot->waking.cpu = (int)c->cpu;
	slot->waking.due_ns = due;
	slot->waking.timer_ns = now;
	slot->waking.waking_ns = now;
	if (!still_waits(c)) {
		c->fold_ns = now;
		c->fold_of = slot->number;
	}
	if (!counts(c, now))
		return;
	e = event_at(EVENT_WAKING, c, now, bpf_get_current_task_btf(), false);
	if (!e)
		return;
	e->pid = slot->last.pid;
	e->prio = EVENT_NO_PRIO;
	e->arg = 0;
	e->from = 0;
	e->due_ns = due;
	e->waking_comm[0] = 0;
	take_interrupted(ctx, e, c, now > due ? now - due : 0, slot->last.worst_ns);
}

/*
 * It also tells when the local timer's interrupt began: a program there would run in each wake-up.
 */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(timer_fires, struct hrtimer *timer)
{
	u64 now = bpf_ktime_get_ns(), due;
	struct latency_control *c = my_control();
	struct latency_own *slot;
	struct latency_record *e;

	if (!c)
		return 0;
	if (!c->irq_ns && !timer->is_soft)
		c->irq_ns = now;
	/* on each CPU: a timer may fire elsewhere than where its thread is to run */
	due = (u64)(timer->_softexpires - timer->base->offset);
	if (sleeper) {
		slot = own_of(c, timer, due);
		if (slot) {
			wakes_own(ctx, c, slot, due, now);
			return 0;
		}
	} else {
		c->due_ns = due;
		c->timer_ns = now;
	}
	if (!counts(c, now))
		return 0;
	e = event_at(EVENT_TIMER, c, now, bpf_get_current_task_btf(), false);
	if (e)
		e->arg = (s64)due;
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

/* Where a wake-up is not known by its timer alone: with other tasks, and without `sleeper`. */
SEC("tp_btf/sched_waking")
int BPF_PROG(wakes, struct task_struct *task)
{
	struct latency_waking other, *wake = &other;
	struct latency_own *slot = own_slot(task);
	struct latency_control *c;
	struct latency_record *e;
	u64 worst = 0, expected = 0;
	int pid;

	if (slot) {
		wake = &slot->waking;
		worst = slot->last.worst_ns;
		expected = slot->last.expected_ns;
	} else if (!every_task || task->prio >= RT_PRIO_END || task->tgid == own_tgid) {
		return 0;
	}
	c = my_control();
	if (!c)
		return 0;
	if (!slot)
		worst = c->worst_ns;
	barrier_var(wake); /* the verifier follows no address that is reckoned before that test */
	pid = task->pid;
	wake->cpu = (int)c->cpu;
	wake->due_ns = slot && expected != c->due_ns ? 0 : c->due_ns;
	wake->timer_ns = wake->due_ns ? c->timer_ns : 0;
	wake->waking_ns = bpf_ktime_get_ns();
	if (!slot)
		bpf_map_update_elem(&waking, &pid, wake, BPF_ANY);
	else if (!still_waits(c)) {
		c->fold_ns = wake->waking_ns;
		c->fold_of = slot->number;
	}
	if (!counts(c, wake->waking_ns))
		return 0;
	e = event_at(EVENT_WAKING, c, wake->waking_ns, bpf_get_current_task_btf(), false);
	if (!e)
		return 0;
	e->pid = pid;
	e->prio = (short)task->prio;
	e->arg = 0;
	e->from = 0;
	e->due_ns = 0; /* the timer has an event of its own */
	copy_comm(e->waking_comm, task);
	if (wake->due_ns)
		take_interrupted(ctx, e, c,
				 wake->timer_ns > wake->due_ns ? wake->timer_ns - wake->due_ns : 0,
				 worst);
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

static __always_inline void count_all(struct latency_control *c, u32 class,
				      const struct latency_waking *w, u64 now)
{
	count(c, class, LATENCY_WAKEUP, now - w->waking_ns);
	if (!w->due_ns)
		return;
	count(c, class, LATENCY_TIMER, w->timer_ns > w->due_ns ? w->timer_ns - w->due_ns : 0);
	count(c, class, LATENCY_TOTAL, now - w->due_ns);
}

static __always_inline void fill(struct latency_wake *to, const struct latency_waking *w,
				 const struct latency_control *c, u64 now, struct task_struct *next,
				 struct task_struct *prev)
{
	to->due_ns = w->due_ns;
	to->timer_ns = w->timer_ns;
	to->waking_ns = w->waking_ns;
	to->switch_ns = now;
	to->pid = next->pid;
	to->prio = next->prio;
	to->other = prev->pid;
	to->other_prio = prev->prio;
	to->cpu = (int)c->cpu;
	to->timer_cpu = w->cpu;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(change, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct latency_control *c = my_control();
	struct latency_record *e = NULL;
	struct latency_waking *wake;
	struct latency_own *slot;
	u64 now = bpf_ktime_get_ns(), late, kept;
	int pid = next->pid;

	if (!c)
		return 0;
	/* before the threads measure: they sleep then on the CPUs that they are to measure */
	if (!c->frame_ns && c->watched && prev->tgid == own_tgid)
		take_stack(ctx, NULL, c, LATENCY_STACK_FEW);
	if (counts(c, now))
		e = event_at(EVENT_SWITCH, c, now, prev, false);
	if (e) {
		e->pid = pid;
		e->prio = (short)next->prio;
		copy_comm(e->comm, next);
		copy_comm(e->other_comm, prev);
	}
	slot = own_slot(next);
	if (slot && slot->waking.waking_ns) {
		wake = &slot->waking;
		barrier_var(wake);
		fill(&slot->last, wake, c, now, next, prev);
		slot->last.other_comm[0] = 0;
		late = now - (wake->due_ns ? wake->due_ns : wake->waking_ns);
		kept = kept_ns(slot->last.worst_ns) / 8 * 7;
		if (late > kept) {
			copy_comm(slot->last.other_comm, prev);
			if (e && prev->pid) {
				e->syscall = (short)syscall_of(prev);
				if (late > stack_ns && bears_walk(c, late))
					take_stack(ctx, e, c, LATENCY_STACK_FEW);
			}
		}
		if (late > slot->last.worst_ns)
			slot->last.worst_ns = late;
		slot->counted = 0;
		if (c->fold_ns == wake->waking_ns)
			c->fold_ns = 0;
		wake->waking_ns = 0; /* a switch to it after it was preempted is no wake-up */
	}
	/* a measuring thread has done what it had to: what it waited is counted now */
	slot = own_slot(prev);
	if (slot && !slot->counted) {
		struct latency_waking last = { .due_ns = slot->last.due_ns,
					       .timer_ns = slot->last.timer_ns,
					       .waking_ns = slot->last.waking_ns };

		slot->counted = 1;
		count_all(c, LATENCY_OWN, &last, slot->last.switch_ns);
	}
	if (!every_task || next->prio >= RT_PRIO_END || next->tgid == own_tgid)
		return 0;
	wake = bpf_map_lookup_elem(&waking, &pid);
	if (!wake || !wake->waking_ns)
		return 0;
	late = now - (wake->due_ns ? wake->due_ns : wake->waking_ns);
	kept = kept_ns(c->worst_ns);
	count_all(c, LATENCY_ALL, wake, now);
	if (e && prev->pid) {
		e->syscall = (short)syscall_of(prev);
		if (late > stack_ns && late > kept / 8 * 7 && bears_walk(c, late))
			take_stack(ctx, e, c, LATENCY_STACK_FEW);
	}
	if (e && late > kept && late > c->worst_ns) {
		struct latency_wake whole = {};

		c->worst_ns = late;
		fill(&whole, wake, c, now, next, prev);
		copy_comm(whole.comm, next);
		copy_comm(whole.other_comm, prev);
		whole.syscall = syscall_of(next);
		tell(c, &whole);
	}
	wake->waking_ns = 0;
	return 0;
}

/* A lock that a more urgent task waits for lends its priority, or takes it back. */
SEC("raw_tp/sched_pi_setprio")
int BPF_PROG(lent, struct task_struct *task, struct task_struct *waiter)
{
	struct latency_record *e = new_event(EVENT_PRIO, false);
	int prio, own_prio;

	if (!e)
		return 0;
	e->pid = BPF_CORE_READ(task, pid);
	own_prio = BPF_CORE_READ(task, normal_prio);
	prio = waiter ? BPF_CORE_READ(waiter, prio) : own_prio;
	e->prio = (short)(prio < own_prio ? prio : own_prio);
	return 0;
}

/* No interrupt of a CPU begins within another one: one place has the time. */
static __always_inline void interrupt_begins(void)
{
	struct latency_control *c = watched_control();

	if (c)
		c->irq_ns = bpf_ktime_get_ns();
}

static __always_inline struct latency_record *interrupt_ends(int type, int number)
{
	u64 now = bpf_ktime_get_ns(), begin;
	struct latency_control *c = my_control();
	struct task_struct *current;
	struct latency_record *e;

	if (!c)
		return NULL;
	begin = c->irq_ns;
	c->irq_ns = 0; /* the next timer is another interrupt's */
	if (!counts(c, now))
		return NULL;
	current = bpf_get_current_task_btf();
	e = event_at(type, c, now, current, false);
	if (!e)
		return NULL;
	e->pid = number;
	e->arg = (s64)begin;
	if (e->context)
		e->syscall = (short)syscall_of(current);
	return e;
}

SEC("raw_tp/irq_handler_entry")
int BPF_PROG(interrupt)
{
	interrupt_begins();
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(interrupt_end, int irq, struct irqaction *action)
{
	struct latency_record *e = interrupt_ends(EVENT_IRQ_DONE, irq);

	if (e)
		bpf_probe_read_kernel_str(e->name, sizeof(e->name), action->name);
	return 0;
}

/*
 * It may be preempted on PREEMPT_RT, and is then needed before its end. Where its beginning is not
 * recorded, its end tells of it.
 */
SEC("raw_tp/softirq_entry")
int BPF_PROG(softirq, unsigned int number)
{
	u64 now = bpf_ktime_get_ns();
	struct latency_control *c = watched_control();
	struct latency_record *e;

	if (!c)
		return 0;
	if (!counts(c, now)) {
		c->softirq_ns = now;
		return 0;
	}
	c->softirq_ns = 0;
	e = event_at(EVENT_SOFTIRQ, c, now, bpf_get_current_task_btf(), true);
	if (e)
		e->arg = number;
	return 0;
}

SEC("raw_tp/softirq_exit")
int BPF_PROG(softirq_end, unsigned int number)
{
	u64 now = bpf_ktime_get_ns();
	struct latency_control *c = recording(now);
	struct latency_record *e;

	if (!c)
		return 0;
	e = event_at(EVENT_SOFTIRQ_DONE, c, now, bpf_get_current_task_btf(), true);
	if (!e)
		return 0;
	e->pid = (int)number;
	e->arg = (s64)c->softirq_ns;
	c->softirq_ns = 0;
	return 0;
}

/* Attached to each of the architecture's own interrupts that the kernel has a tracepoint of. */
SEC("raw_tp")
int BPF_PROG(vector)
{
	interrupt_begins();
	return 0;
}

SEC("raw_tp")
int BPF_PROG(vector_end, int number)
{
	interrupt_ends(EVENT_VECTOR_DONE, number);
	return 0;
}

SEC("raw_tp/nmi_handler")
int BPF_PROG(nmi, void *handler, s64 delta_ns, int handled)
{
	struct latency_record *e = new_event(EVENT_NMI, true);

	if (e)
		e->arg = delta_ns;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
