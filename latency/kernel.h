/* SPDX-License-Identifier: MIT */
/*
 * kernel.h - the kernel's side of a measurement, by BPF: how late timers fired and tasks ran, and
 * what the CPU of a late task did.
 */
#ifndef RTXG_LATENCY_KERNEL_H
#define RTXG_LATENCY_KERNEL_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "../bpf/latency.h"
#include "histogram.h"

/* Of banks that followed one another. A record makes two events at most. */
#define KERNEL_EVENTS (8 * LATENCY_RING)
#define KERNEL_STACKS (4 * LATENCY_STACKS)

struct kernel;

struct kernel_wants {
	int threads; /* measuring threads */
	uint32_t bins;
	bool every_task;
	bool by_timers;	   /* nothing else wakes a thread that counts */
	bool real_time;	   /* the threads are to have a real-time policy */
	bool alone;	   /* by_timers, and each thread has a CPU of its own */
	uint64_t break_ns; /* 0: the worst is kept */
	cpu_set_t cpus;	   /* recorded */
};

/* What a CPU did up to a late wake-up. */
struct kernel_capture {
	struct latency_wake wake;
	uint64_t expected_ns, ran_ns;
	struct event *events; /* oldest first; room for KERNEL_EVENTS */
	int count;
	struct latency_stack *stacks; /* room for KERNEL_STACKS */
	int stack_count;
	struct latency_fold fold; /* what ran before the first event; from_ns 0: nothing */
	bool alone; /* of a CPU with one measuring thread: nothing before expected_ns is in it */
	bool whole; /* so, and nothing after it is missing */
	bool taken; /* false: only wake, expected_ns and ran_ns are known */
};

/*
 * Loads and attaches. NULL, and why in *reason, where that is not allowed or not possible: text
 * that need not be freed.
 */
struct kernel *kernel_open(const struct kernel_wants *wants, const char **reason);
/* Detaches; what was counted can still be read. */
void kernel_detach(struct kernel *k);
void kernel_close(struct kernel *k);

/* Measuring thread number `index` has this thread ID and name. Before its first sleep. */
int kernel_thread(struct kernel *k, int index, int tid, const char *name);
/* Where that thread stores the time that it is going to wait for. */
unsigned long long *kernel_expected(struct kernel *k, int index);
/*
 * Where thread `index` stores that time too if it is the only one of its CPU, runs on no other, and
 * no other task is measured: nothing is recorded of the CPU until then.
 */
unsigned long long *kernel_begins(struct kernel *k, int cpu, int index);
/*
 * Of that thread: the kernel's view of the wake-up that was due then, or of an older one if it has
 * none. Written while the thread does not run.
 */
const struct latency_wake *kernel_wake(struct kernel *k, int index, uint64_t expected_ns);
/*
 * Keeps what the CPU did until now for the thread that was late, in one of its two places. For that
 * thread: makes no system call.
 */
void kernel_keep(struct kernel *k, struct latency_late *late, const struct latency_wake *wake,
		 uint64_t expected_ns, uint64_t ran_ns);
/*
 * For the reader: copies what was kept in one of two places, and frees its bank. False if nothing
 * was.
 */
bool kernel_take(struct kernel *k, struct latency_late *late, struct kernel_capture *capture);
/* When the task of the place that is ready ran; 0: none is. */
uint64_t kernel_ready_ns(const struct latency_late *late);
/* The name of an interrupt that x86 counts by itself; there is room for EVENT_NAME. */
void kernel_vector(int number, char *name);
void kernel_capture_close(struct kernel_capture *capture);

/* Readable when another task was late. */
int kernel_fd(struct kernel *k);
/* Reads what made it so. */
void kernel_told(struct kernel *k);
/* The places of the other tasks of a CPU. */
struct latency_late *kernel_others(struct kernel *k, int cpu);

/* Adds the counts of one CPU to a histogram of as many bins; cpu -1: of all. */
void kernel_histogram(struct kernel *k, int cpu, enum latency_class of, enum latency_kind kind,
		      struct histogram *h);
/* The next late wake-up of another task is the worst again. */
void kernel_forget(struct kernel *k);
int kernel_cpus(const struct kernel *k);
/* How often a late wake-up could not be kept. */
uint64_t kernel_untaken(const struct kernel *k);

#endif
