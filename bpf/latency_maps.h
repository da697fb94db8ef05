/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * latency_maps.h - what the programs of latency.bpf.c work with: the kernel's types, what is set
 * before loading, and the maps.
 */
#ifndef RTXG_BPF_LATENCY_MAPS_H
#define RTXG_BPF_LATENCY_MAPS_H

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
struct hrtimer_cpu_base {
	unsigned int nr_events; /* interrupts of the timer so far */
};
struct hrtimer_clock_base {
	struct hrtimer_cpu_base *cpu_base;
	s64 offset;
};
struct hrtimer {
	s64 _softexpires;
	void *function;
	struct hrtimer_clock_base *base;
	u8 is_soft;
};
struct hrtimer_sleeper {
	struct hrtimer timer;
	struct task_struct *task;
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
/*
 * The function of timers that wake a thread: a measuring thread's is known by it, and no program is
 * at sched_waking. 0: there is one.
 */
volatile const unsigned long long sleeper = 0;
/* The end of the local timer's interrupt has a program. */
volatile const bool timer_ends = 1;
/* PREEMPT_RT: what a timer in time comes upon does not go on for long. */
volatile const bool preemptible = 0;

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
	__type(value, struct latency_record);
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
	__uint(max_entries, 1); /* watched CPUs * banks */
	__type(key, u32);
	__type(value, struct latency_fold);
} folds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* measuring threads */
	__type(key, u32);
	__type(value, struct latency_own);
} own SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LATENCY_THREADS);
	__type(key, int);   /* thread */
	__type(value, u32); /* index in own */
} own_index SEC(".maps");

/* Wake-ups of all other real-time tasks. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, int); /* thread */
	__type(value, struct latency_waking);
} waking SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} notices SEC(".maps");

#endif
