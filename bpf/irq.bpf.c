// SPDX-License-Identifier: GPL-2.0-only
/*
 * irq.bpf.c - observation of interrupts where no module may be loaded: entry and exit of each driver's top half, the tasks that it woke,
 * and when they ran. The same events that rtxg.ko sees by interception, from the kernel's tracepoints; it only looks.
 *
 * Chosen interrupts only: user space puts their numbers into `chosen`. Needs no kprobe; the few kernel structures are declared here and
 * relocated when the program is loaded.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "irq.h"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef _Bool bool;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct irqaction {
	const char *name;
};
struct task_struct {
	int pid;
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

static __always_inline void raise_to(u64 *maximum, u64 value)
{
	if (value > *maximum)
		*maximum = value;
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
		bpf_probe_read_kernel_str(counts->name, sizeof(counts->name), BPF_CORE_READ(action, name));
	cpu->irq = key;
	cpu->inside = 1;
	cpu->entered_ns = bpf_ktime_get_ns();
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

	if (!counts || !cpu || !cpu->inside || cpu->irq != key)
		return 0;
	cpu->inside = 0;
	spent = bpf_ktime_get_ns() - cpu->entered_ns;
	__sync_fetch_and_add(&counts->handler_ns, spent);
	__sync_fetch_and_add(&counts->handled, result != 0);
	raise_to(&counts->handler_max_ns, spent);
	__sync_fetch_and_add(&counts->handler_slots[slot_of(spent) & (IRQ_SLOTS - 1)], 1);
	return 0;
}

/* A softirq directly after a chosen interrupt, on the same CPU: its bottom half, as far as one can see. */
SEC("raw_tp/softirq_entry")
int BPF_PROG(softirq, unsigned int vector)
{
	u32 zero = 0;
	struct irq_now *cpu = bpf_map_lookup_elem(&now, &zero);
	struct irq_counts *counts;
	u32 key;

	if (!cpu || !cpu->entered_ns || cpu->inside)
		return 0;
	key = cpu->irq;
	cpu->entered_ns = 0;
	counts = bpf_map_lookup_elem(&chosen, &key);
	if (counts)
		__sync_fetch_and_add(&counts->softirqs, 1);
	return 0;
}

/* Somebody is being woken: by a chosen top half, if one is running on this CPU. */
SEC("raw_tp/sched_waking")
int BPF_PROG(wake, struct task_struct *task)
{
	struct irq_waking value = {};
	struct irq_counts *counts;
	u32 zero = 0, pid;
	struct irq_now *cpu = bpf_map_lookup_elem(&now, &zero);
	u32 key;

	if (!cpu || !cpu->inside)
		return 0;
	key = cpu->irq;
	counts = bpf_map_lookup_elem(&chosen, &key);
	if (!counts)
		return 0;
	__sync_fetch_and_add(&counts->woken, 1);
	pid = BPF_CORE_READ(task, pid);
	value.irq = key;
	value.entered_ns = cpu->entered_ns;
	/* the first interrupt that woke it counts */
	bpf_map_update_elem(&waking, &pid, &value, BPF_NOEXIST);
	return 0;
}

SEC("raw_tp/sched_switch")
int BPF_PROG(change, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 pid = BPF_CORE_READ(next, pid);
	struct irq_waking *value = bpf_map_lookup_elem(&waking, &pid);
	struct irq_counts *counts;
	u64 latency;
	u32 key;

	if (!value)
		return 0;
	latency = bpf_ktime_get_ns() - value->entered_ns;
	key = value->irq;
	bpf_map_delete_elem(&waking, &pid);
	counts = bpf_map_lookup_elem(&chosen, &key);
	if (!counts)
		return 0;
	__sync_fetch_and_add(&counts->ran, 1);
	__sync_fetch_and_add(&counts->latency_ns, latency);
	raise_to(&counts->latency_max_ns, latency);
	__sync_fetch_and_add(&counts->latency_slots[slot_of(latency) & (IRQ_SLOTS - 1)], 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
