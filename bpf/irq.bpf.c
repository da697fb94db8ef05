// SPDX-License-Identifier: GPL-2.0-only
/*
 * irq.bpf.c - observation of interrupts where no module may be loaded: entry and exit of each
 * driver's top half, the tasks that it woke and when they ran, the dma_fences that were signalled
 * because of it and the tasks that waited for these fences. rtxg.ko sees the same events by
 * interception; this program sees them at the kernel's tracepoints. It changes nothing.
 *
 * "Because of an interrupt" means: by its top half, by the softirq that follows the top half on the
 * same CPU, or by a kernel thread that one of these woke (the handler's thread or a worker), or by
 * a kernel thread that such a thread woke in turn. A kernel thread counts until it is switched out.
 * Drivers signal fences in any of these places. A worker with other work queued is credited with
 * all of its fences.
 *
 * Only chosen interrupts are watched: user space puts their numbers into `chosen`. The program
 * needs no kprobe. The few kernel structures are declared here and relocated when the program is
 * loaded.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "irq.h"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef _Bool bool;

#define IRQ_WAKE_THREAD 2
/* include/linux/sched.h, the same since 2.6 */
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD   0x00200000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct irqaction {
	const char *name;
};
struct task_struct {
	unsigned int flags;
	int on_cpu, on_rq;
	int pid;
	char comm[16];
};
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, IRQ_MAX);
	__type(key, u32);
	__type(value, struct irq_counts);
} chosen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct irq_now);
} now SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct irq_waking);
} waking SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64); /* address */
	__type(value, struct irq_fence);
} fences SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32); /* thread */
	__type(value, struct irq_fence_wait);
} fence_waits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct irq_fences);
} all_fences SEC(".maps");

static __always_inline u32 slot_of(u64 ns)
{
	u32 slot = 0;

	for (int i = 0; i < IRQ_SLOTS - 1; i++) {
		ns >>= 1;
		if (!ns)
			break;
		slot++;
	}
	return slot;
}

/* Another CPU may do the same: none of both is lost. So many at once there are not. */
#define AT_ONCE 16

static __always_inline void raise_to(u64 *maximum, u64 value)
{
	for (int i = 0; i < AT_ONCE; i++) {
		u64 before = *(volatile u64 *)maximum;

		if (value <= before ||
		    __sync_val_compare_and_swap(maximum, before, value) == before)
			return;
	}
}

/* No time is 0 ns, which means that there was none before. */
static __always_inline void lower_to(u64 *minimum, u64 value)
{
	for (int i = 0; i < AT_ONCE; i++) {
		u64 before = *(volatile u64 *)minimum;

		if ((before && value >= before) ||
		    __sync_val_compare_and_swap(minimum, before, value) == before)
			return;
	}
}

static __always_inline void add_time(struct irq_times *times, u64 ns)
{
	__sync_fetch_and_add(&times->count, 1);
	__sync_fetch_and_add(&times->sum_ns, ns);
	lower_to(&times->min_ns, ns);
	raise_to(&times->max_ns, ns);
}

SEC("raw_tp/irq_handler_entry")
int BPF_PROG(entry, int irq, struct irqaction *action)
{
	u32 key = irq, zero = 0;
	struct irq_counts *counts = bpf_map_lookup_elem(&chosen, &key);
	struct irq_now *cpu = bpf_map_lookup_elem(&now, &zero);

	if (!counts || !cpu)
		return 0;
	if (!counts->name[0])
		bpf_probe_read_kernel_str(counts->name, sizeof(counts->name),
					  BPF_CORE_READ(action, name));
	cpu->top.irq = key;
	cpu->top.on = 1;
	cpu->top.entered_ns = bpf_ktime_get_ns();
	cpu->unfollowed = 1;
	cpu->wakes_thread = 0;
	__sync_fetch_and_add(&counts->entries, 1);
	return 0;
}

SEC("raw_tp/irq_handler_exit")
int BPF_PROG(leave, int irq, struct irqaction *action, int result)
{
	u32 key = irq, zero = 0;
	struct irq_counts *counts = bpf_map_lookup_elem(&chosen, &key);
	struct irq_now *cpu = bpf_map_lookup_elem(&now, &zero);
	u64 spent;

	if (!counts || !cpu || !cpu->top.on || cpu->top.irq != key)
		return 0;
	cpu->top.on = 0;
	cpu->wakes_thread = result & IRQ_WAKE_THREAD;
	spent = bpf_ktime_get_ns() - cpu->top.entered_ns;
	__sync_fetch_and_add(&counts->handler_ns, spent);
	__sync_fetch_and_add(&counts->handled, result != 0);
	raise_to(&counts->handler_max_ns, spent);
	lower_to(&counts->handler_min_ns, spent);
	__sync_fetch_and_add(&counts->handler_slots[slot_of(spent) & (IRQ_SLOTS - 1)], 1);
	return 0;
}

/*
 * A softirq directly after a chosen interrupt, on the same CPU: its bottom half, as far as one can
 * see.
 */
SEC("raw_tp/softirq_entry")
int BPF_PROG(softirq, unsigned int vector)
{
	u32 zero = 0;
	struct irq_now *cpu = bpf_map_lookup_elem(&now, &zero);
	struct irq_counts *counts;
	u32 key;

	if (!cpu || !cpu->unfollowed || cpu->top.on)
		return 0;
	cpu->unfollowed = 0;
	cpu->wakes_thread = 0;
	cpu->soft = cpu->top;
	cpu->soft.on = 1;
	key = cpu->soft.irq;
	counts = bpf_map_lookup_elem(&chosen, &key);
	if (counts)
		__sync_fetch_and_add(&counts->softirqs, 1);
	return 0;
}

SEC("raw_tp/softirq_exit")
int BPF_PROG(softirq_done, unsigned int vector)
{
	u32 zero = 0;
	struct irq_now *cpu = bpf_map_lookup_elem(&now, &zero);

	if (cpu)
		cpu->soft.on = 0;
	return 0;
}

/*
 * Woken before it has left its CPU, it goes on there and is not switched to: its next switch is no
 * answer to this.
 */
static __always_inline bool still_runs(struct task_struct *task)
{
	/* An int, and a byte from Linux 7.2 on. */
	return bpf_core_field_exists(task->on_cpu) && BPF_CORE_READ_BITFIELD_PROBED(task, on_cpu) &&
	       BPF_CORE_READ_BITFIELD_PROBED(task, on_rq);
}

static __always_inline bool is_interrupt_thread(struct task_struct *task)
{
	char comm[16] = "";

	bpf_probe_read_kernel(comm, sizeof(comm), &task->comm);
	return comm[0] == 'i' && comm[1] == 'r' && comm[2] == 'q' && comm[3] == '/';
}

/*
 * A thread is being woken: by a chosen top half if one is running on this CPU, or by something that
 * runs because of one.
 */
SEC("raw_tp/sched_waking")
int BPF_PROG(wake, struct task_struct *task)
{
	struct irq_waking value = {};
	struct irq_counts *counts;
	u32 zero = 0, pid;
	struct irq_now *cpu = bpf_map_lookup_elem(&now, &zero);
	u32 key;

	if (!cpu)
		return 0;
	if (cpu->top.on || (cpu->wakes_thread && is_interrupt_thread(task))) {
		value.irq = cpu->top.irq;
		value.entered_ns = cpu->top.entered_ns;
		cpu->wakes_thread = 0;
	} else if (cpu->soft.on) {
		value.irq = cpu->soft.irq;
		value.entered_ns = cpu->soft.entered_ns;
		value.depth = 1;
	} else if (cpu->task.on && cpu->task_depth < IRQ_DEPTH) {
		value.irq = cpu->task.irq;
		value.entered_ns = cpu->task.entered_ns;
		value.depth = cpu->task_depth + 1;
	} else {
		return 0;
	}
	if (value.depth && !(BPF_CORE_READ(task, flags) & PF_KTHREAD))
		return 0;
	key = value.irq;
	counts = bpf_map_lookup_elem(&chosen, &key);
	if (!counts)
		return 0;
	if (!value.depth)
		__sync_fetch_and_add(&counts->woken, 1);
	if (still_runs(task))
		return 0;
	pid = BPF_CORE_READ(task, pid);
	/* the first interrupt that woke it counts */
	bpf_map_update_elem(&waking, &pid, &value, BPF_NOEXIST);
	return 0;
}

SEC("raw_tp/sched_switch")
int BPF_PROG(change, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 pid = BPF_CORE_READ(next, pid), zero = 0;
	struct irq_waking *value = bpf_map_lookup_elem(&waking, &pid);
	struct irq_now *cpu = bpf_map_lookup_elem(&now, &zero);
	struct irq_counts *counts;
	u32 key, depth, flags;
	u64 latency;

	if (cpu) {
		cpu->task.on = 0;
		cpu->wakes_thread = 0;
	}
	if (!value)
		return 0;
	latency = bpf_ktime_get_ns() - value->entered_ns;
	key = value->irq;
	depth = value->depth;
	flags = BPF_CORE_READ(next, flags);
	if (cpu && (flags & PF_KTHREAD)) {
		cpu->task.irq = key;
		cpu->task.on = 1;
		cpu->task.entered_ns = value->entered_ns;
		cpu->task_depth = depth;
	}
	bpf_map_delete_elem(&waking, &pid);
	counts = bpf_map_lookup_elem(&chosen, &key);
	if (!counts)
		return 0;
	add_time(flags & PF_WQ_WORKER ? &counts->reached[IRQ_WORKERS]
		 : flags & PF_KTHREAD ? &counts->reached[IRQ_THREADS]
				      : &counts->reached[IRQ_PROGRAMS],
		 latency);
	if (depth)
		return 0;
	__sync_fetch_and_add(&counts->ran, 1);
	__sync_fetch_and_add(&counts->latency_ns, latency);
	raise_to(&counts->latency_max_ns, latency);
	__sync_fetch_and_add(&counts->latency_slots[slot_of(latency) & (IRQ_SLOTS - 1)], 1);
	return 0;
}

/* The driver has given the work behind a fence to the device. */
SEC("raw_tp/dma_fence_emit")
int BPF_PROG(fence_emit, void *fence)
{
	struct irq_fence value = {};
	u64 key = (u64)fence;
	u32 zero = 0;
	struct irq_fences *all = bpf_map_lookup_elem(&all_fences, &zero);

	if (all)
		all->emitted++;
	value.emitted_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&fences, &key, &value, BPF_ANY);
	return 0;
}

/*
 * Drivers that emit nothing: the address may be that of an older fence, whose times must not count
 * for this one.
 */
SEC("raw_tp/dma_fence_init")
int BPF_PROG(fence_init, void *fence)
{
	u64 key = (u64)fence;

	bpf_map_delete_elem(&fences, &key);
	return 0;
}

SEC("raw_tp/dma_fence_signaled")
int BPF_PROG(fence_signaled, void *fence)
{
	struct irq_fence value = {}, *known;
	u64 key = (u64)fence, ns = bpf_ktime_get_ns();
	u32 zero = 0, irq;
	struct irq_now *cpu = bpf_map_lookup_elem(&now, &zero);
	struct irq_fences *all = bpf_map_lookup_elem(&all_fences, &zero);
	struct irq_counts *counts;

	if (all)
		all->signalled++;
	known = bpf_map_lookup_elem(&fences, &key);
	if (known)
		value.emitted_ns = known->emitted_ns;
	value.signalled_ns = ns;
	if (cpu) {
		const struct irq_cause *cause = cpu->top.on    ? &cpu->top
						: cpu->soft.on ? &cpu->soft
							       : &cpu->task;

		value.irq_known = cause->on;
		value.irq = cause->irq;
		value.entered_ns = cause->entered_ns;
	}
	bpf_map_update_elem(&fences, &key, &value, BPF_ANY);
	if (!value.irq_known)
		return 0;
	irq = value.irq;
	counts = bpf_map_lookup_elem(&chosen, &irq);
	if (!counts)
		return 0;
	if (all)
		all->attributed++;
	__sync_fetch_and_add(&counts->fences, 1);
	if (value.emitted_ns) {
		__sync_fetch_and_add(&counts->fence_emits, 1);
		__sync_fetch_and_add(&counts->fence_busy_ns, ns - value.emitted_ns);
	}
	return 0;
}

SEC("raw_tp/dma_fence_wait_start")
int BPF_PROG(fence_wait_start, void *fence)
{
	struct irq_fence_wait value = { .fence = (u64)fence, .began_ns = bpf_ktime_get_ns() };
	u32 tid = (u32)bpf_get_current_pid_tgid(), zero = 0;
	struct irq_fences *all = bpf_map_lookup_elem(&all_fences, &zero);

	if (all)
		all->waits++;
	bpf_map_update_elem(&fence_waits, &tid, &value, BPF_ANY);
	return 0;
}

SEC("raw_tp/dma_fence_wait_end")
int BPF_PROG(fence_wait_end, void *fence)
{
	u32 tid = (u32)bpf_get_current_pid_tgid(), irq;
	struct irq_fence_wait *wait = bpf_map_lookup_elem(&fence_waits, &tid);
	u64 key = (u64)fence, latency;
	struct irq_counts *counts;
	struct irq_fence *signal;
	bool waited;

	if (!wait)
		return 0;
	signal = bpf_map_lookup_elem(&fences, &key);
	/*
	 * Not for one that was signalled before the wait began, and not for a wait that ran out of
	 * time.
	 */
	waited = wait->fence == key && signal && signal->signalled_ns >= wait->began_ns;
	bpf_map_delete_elem(&fence_waits, &tid);
	if (!waited || !signal || !signal->irq_known)
		return 0;
	irq = signal->irq;
	latency = bpf_ktime_get_ns() - signal->entered_ns;
	counts = bpf_map_lookup_elem(&chosen, &irq);
	if (!counts)
		return 0;
	__sync_fetch_and_add(&counts->fence_waits, 1);
	__sync_fetch_and_add(&counts->fence_wait_ns, latency);
	raise_to(&counts->fence_wait_max_ns, latency);
	__sync_fetch_and_add(&counts->fence_slots[slot_of(latency) & (IRQ_SLOTS - 1)], 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
