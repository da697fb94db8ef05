/* SPDX-License-Identifier: MIT */
/*
 * split.h - where the time between the launch of a kernel and its end went: a pure function over
 * the times of one cycle and the GPU's log of context switches.
 */
#ifndef RTXG_LATENCY_SPLIT_H
#define RTXG_LATENCY_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPLIT_PARTS 16

/* All times in ns of CLOCK_MONOTONIC; 0: not known. */
struct split_cycle {
	uint64_t launch_ns;    /* the thread was about to launch */
	uint64_t submitted_ns; /* the launch call had returned */
	uint64_t start_ns;     /* the kernel began on the GPU, */
	uint64_t end_ns;       /* and ended */
	uint64_t waking_ns;    /* the kernel of the CPU woke the thread, */
	uint64_t switched_ns;  /* and switched to it */
	uint64_t done_ns;      /* the thread knew */
	uint32_t pid;	       /* whose the kernel is, as in the log */
};

/* A line of the log. */
struct split_switch {
	uint64_t ns;
	uint32_t pid;
	/* that process's context is on the engine from now on; else it is off, and saved */
	bool start;
};

enum split_kind {
	SPLIT_SUBMIT, /* the launch call, up to the kernel's begin at most */
	SPLIT_WAIT,   /* for the engine; no log tells who had it */
	SPLIT_HELD,   /* another process's context was on the engine */
	SPLIT_CHANGE, /* no context was on it: one was being saved, the next restored */
	SPLIT_BEFORE, /* ours was on it, and the kernel had not begun */
	SPLIT_EXECUTION,
	SPLIT_COMPLETION, /* from the kernel's end to the wake-up: interrupt and driver */
	SPLIT_WAKEUP,	  /* from the wake-up to the switch to the thread */
	SPLIT_RETURN,	  /* from there to the program */
	SPLIT_KINDS,
};

struct split_part {
	enum split_kind kind;
	uint64_t ns;
	uint32_t pid; /* of SPLIT_HELD: the holder */
};

/*
 * Events in the order of their times, from before the launch on; none: there is no log. The parts
 * add up to done_ns - launch_ns. Returns how many, at most SPLIT_PARTS, in the order of their
 * begin.
 */
int split_cycle(const struct split_cycle *c, const struct split_switch *events, size_t count,
		struct split_part *parts);
const char *split_words(enum split_kind kind);

/*
 * The distance of two clocks, from what must be: a kernel begins after its launch, and ends before
 * the program knows.
 */
struct split_clock {
	int64_t least, most; /* CLOCK_MONOTONIC - GPU's clock */
	uint64_t at_ns;	     /* of the last cycle; 0: none */
};

/* Takes in one cycle. Clocks drift apart by at most 50 ppm. */
void split_clock_add(struct split_clock *k, uint64_t launch_ns, uint64_t start_gpu_ns,
		     uint64_t end_gpu_ns, uint64_t done_ns);
int64_t split_clock_offset(const struct split_clock *k);

#endif
