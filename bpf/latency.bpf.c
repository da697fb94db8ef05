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
 * task later, and each program that is called there costs as much again as what it does. So two
 * run there: the timer's function and the switch. A third one sees the end of the timer's interrupt
 * where it is worth that: with a threshold, and where a CPU has several threads. While a CPU's only
 * thread is in time and nothing else happens, its times alone are stored. A timer that wakes a
 * measuring thread is known by what it is due at and by its function, so its wake-up needs no
 * program. The first timer of an interrupt tells when that began. Memory of the kernel is loaded
 * directly (tp_btf) instead of by a helper that expects a fault, a measuring thread is found
 * without hashing, and no time is read twice. An event is one cache line, and an interrupt one
 * event. Where a CPU has one measuring thread, what happens before the time that it waits for is
 * not recorded, and each cycle writes to the same place, which the cache still has. A wake-up is
 * counted when the thread has gone to sleep again. A stack is walked only where the latency is some
 * times longer than the walk.
 */
#include "latency_events.h"

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
 * When the interrupt that a timer fires in began. Without a program at its end, the kernel's own
 * count tells one interrupt from the next. 0: the timer fires in a softirq.
 */
static __always_inline u64 timer_interrupt(struct latency_control *c, struct hrtimer *timer,
					   u64 now)
{
	u32 number = (u32)now;

	if (timer->is_soft)
		return 0;
	if (timer_ends) {
		if (!c->irq_ns)
			c->irq_ns = now;
		return c->irq_ns;
	}
	if (bpf_core_field_exists(((struct hrtimer_cpu_base *)0)->nr_events))
		number = timer->base->cpu_base->nr_events;
	if (c->irq_number != number) {
		c->irq_number = number;
		c->irq_first_ns = now;
	}
	return c->irq_first_ns;
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

/* The wake-up of a CPU's only thread. Not static: see fold. */
__noinline int count_alone(u32 cpu)
{
	struct latency_control *c = my_control();
	struct latency_waking last;

	if (!c)
		return 0;
	last.due_ns = c->wake.due_ns;
	last.timer_ns = c->wake.timer_ns;
	last.waking_ns = c->wake.waking_ns;
	c->uncounted = 0;
	count_all(c, LATENCY_OWN, &last, c->wake.switch_ns);
	return 0;
}

/*
 * The wake-up of a CPU's only measuring thread. While it is in time and nothing else has happened,
 * its times alone are stored: record_wake makes events of them if one is needed. What is seldom
 * needed is in functions of its own, as each register that they use would be saved first.
 */
static __always_inline void wakes_alone(struct latency_control *c, u64 due, u64 now, u64 began)
{
	struct latency_wake *wake = &c->wake;

	wake->due_ns = due;
	wake->timer_ns = now;
	wake->waking_ns = now;
	wake->irq_ns = began;
	c->pending_ns = due;
}

/* As wakes_alone, of a timer that is late, or upon which something else was recorded. */
static __noinline int wakes_late(void *ctx, struct latency_control *c, struct hrtimer *timer,
				 u64 now)
{
	u64 due = c->expected_ns, late = now > due ? now - due : 0, worst = c->wake.worst_ns;
	struct task_struct *current = bpf_get_current_task_btf();
	bool recorded = c->recorded_ns == due;
	struct latency_record *e;

	/* it has not gone to sleep since the wake-up before */
	if (c->uncounted)
		count_alone(c->cpu);
	wakes_alone(c, due, now, timer_interrupt(c, timer, now));
	if (!recorded && late <= stack_ns &&
	    (preemptible || !current->pid || !bears_walk(c, worst)))
		return 0;
	c->fold_ns = now;
	c->wake.due_ns = 0; /* the event that follows tells of it, and not record_wake */
	e = counts(c, now) ? event_at(EVENT_WAKING, c, now, current, false) : NULL;
	c->wake.due_ns = due;
	if (!e)
		return 0;
	e->pid = c->own_pid;
	e->prio = EVENT_NO_PRIO;
	e->arg = 0;
	e->from = 0;
	e->due_ns = due;
	e->waking_comm[0] = 0;
	take_interrupted(ctx, e, c, late, worst);
	return 0;
}

/* The switch to a CPU's only measuring thread, which was woken. */
static __always_inline void runs_alone(struct latency_control *c, struct task_struct *prev,
				       struct task_struct *next, u64 now)
{
	struct latency_wake *wake = &c->wake;

	c->pending_ns = 0;
	c->uncounted = 1;
	c->fold_ns = 0;
	wake->switch_ns = now;
	wake->prio = next->prio;
	wake->other = prev->pid;
	wake->other_prio = prev->prio;
	copy_comm(wake->other_comm, prev);
}

/* As runs_alone, of a wake-up that may be kept, or upon which something else was recorded. */
static __noinline int runs_late(void *ctx, struct latency_control *c, struct task_struct *prev,
				struct task_struct *next, u64 now)
{
	struct latency_wake *wake = &c->wake;
	u64 late = now - wake->due_ns;
	bool kept = late > c->kept_ns;
	struct latency_record *e;

	runs_alone(c, prev, next, now);
	wake->switch_ns = 0; /* the event that follows tells of it, and not record_wake */
	e = counts(c, now) ? event_at(EVENT_SWITCH, c, now, prev, false) : NULL;
	wake->switch_ns = now;
	if (e) {
		e->pid = next->pid;
		e->prio = (short)next->prio;
		copy_comm(e->comm, next);
		copy_comm(e->other_comm, prev);
		if (kept && prev->pid) {
			e->syscall = (short)syscall_of(prev);
			if (late > stack_ns && bears_walk(c, late))
				take_stack(ctx, e, c, LATENCY_STACK_FEW);
		}
	}
	if (late > wake->worst_ns)
		wake->worst_ns = late;
	c->kept_ns = kept_ns(wake->worst_ns) / 8 * 7;
	c->quiet_ns = preemptible || !bears_walk(c, wake->worst_ns) ? stack_ns : 0;
	return 0;
}

/* A timer that wakes no thread that is the only one of its CPU. */
static __noinline int timer_of_others(void *ctx, struct latency_control *c, struct hrtimer *timer,
				      u64 now)
{
	struct latency_own *slot;
	struct latency_record *e;
	u64 due;

	timer_interrupt(c, timer, now);
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
 * It also tells when the local timer's interrupt began: a program there would run in each wake-up.
 */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(timer_fires, struct hrtimer *timer)
{
	u64 now = bpf_ktime_get_ns(), due;
	struct latency_control *c = my_control();

	if (!c)
		return 0;
	due = c->expected_ns;
	/* 0: there is no such thread */
	if (!due || (u64)timer->_softexpires != due || c->own_pid < 0)
		return timer_of_others(ctx, c, timer, now);
	if (now - due > c->quiet_ns || c->recorded_ns == due || c->uncounted)
		return wakes_late(ctx, c, timer, now);
	wakes_alone(c, due, now, now);
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

/* Any other switch than that to a CPU's only thread. */
static __noinline int other_change(void *ctx, struct latency_control *c, struct task_struct *prev,
				   struct task_struct *next)
{
	u64 now = bpf_ktime_get_ns(), late, kept;
	struct latency_record *e = NULL;
	struct latency_waking *wake;
	struct latency_own *slot;
	int pid = next->pid;

	if (c->uncounted && prev->pid == c->own_pid)
		count_alone(c->cpu);
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

SEC("tp_btf/sched_switch")
int BPF_PROG(change, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct latency_control *c = my_control();
	u64 now, due;

	if (!c)
		return 0;
	due = c->pending_ns;
	if (!due || due != c->expected_ns || next->pid != c->own_pid)
		return other_change(ctx, c, prev, next);
	now = bpf_ktime_get_ns();
	if (now - due > c->kept_ns || c->recorded_ns == due)
		return runs_late(ctx, c, prev, next, now);
	runs_alone(c, prev, next, now);
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
	struct latency_control *c = my_control();

	if (c && number == LATENCY_LOCAL_TIMER && c->pending_ns &&
	    c->wake.irq_end_ns < c->wake.waking_ns) {
		c->wake.irq_end_ns = bpf_ktime_get_ns();
		c->irq_ns = c->wake.irq_ns;
		/* of a wake-up of which nothing is recorded so far */
		if (c->recorded_ns != c->pending_ns) {
			c->irq_ns = 0;
			return 0;
		}
	}
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
