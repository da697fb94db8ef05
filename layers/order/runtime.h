/* SPDX-License-Identifier: MIT */
/*
 * runtime.h - the run-time library of programs that record or follow an order: its state, and what
 * a thread of the program is to it.
 */
#ifndef RTXG_LAYERS_ORDER_RUNTIME_H
#define RTXG_LAYERS_ORDER_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "order_area.h"
#include "order.h"

#define RUNTIME_NO_THREAD UINT32_MAX

struct runtime_self {
	uint32_t index; /* in the area, or RUNTIME_NO_THREAD */
	bool known;	/* a thread that the program started, or its first one */
	bool busy;	/* inside of this library: what it calls is not the program's */
	bool inside;	/* of an access that is under way */
	uint32_t number, children;
	struct rtx_order_thread *thread; /* RUN */
	/* RUN: the access for which this thread waits, and the CPU time that its thread had then */
	struct runtime_watch {
		uint32_t thread, clock;
		uint64_t cpu_ns;
	} watch;
	uint64_t stack_low, stack_high;
	uint64_t held; /* RECORD: see record.c */
	uint32_t token;
	char name[RTX_ORDER_NAME];
};

extern __thread __attribute__((tls_model("initial-exec"))) struct runtime_self runtime_self;

/* NULL: neither records nor follows. Set once, and cleared when the order is given up. */
extern struct area *runtime_area;
extern struct rtx_order *runtime_order; /* RUN */

static inline bool runtime_on(void)
{
	return __builtin_expect(__atomic_load_n(&runtime_area, __ATOMIC_RELAXED) != NULL, 0) &&
	       runtime_self.known && !runtime_self.busy;
}

/* A thread of the program begins, called by its parent's name and a number; and ends. */
void runtime_begin(const char *name);
void runtime_end(void);
/* The name of the calling thread's next child; and that it did not begin. */
void runtime_child(char name[RTX_ORDER_NAME]);
void runtime_no_child(void);

/* Whether accesses to this memory count for the calling thread. */
bool runtime_counts(uint64_t address, size_t size);

/* The calling thread is about to make an access, and then has made it. */
void runtime_before(uint64_t address, size_t size, enum area_kind kind, uint64_t code);
void runtime_after(void);
/* An access by call of the program to a lock: two places at most, other 0: one. */
void runtime_before_lock(const void *address, const void *other, enum area_kind kind,
			 uint64_t code);

/* Completes the access that is under way, if there is one. */
static inline void runtime_flush(void)
{
	if (runtime_self.inside)
		runtime_after();
}

/* Whether a thread of this process sleeps in the kernel, and the CPU time that it has had. */
bool runtime_asleep(int32_t tid);
uint64_t runtime_cpu_ns(int32_t tid);

#endif
