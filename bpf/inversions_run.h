/* SPDX-License-Identifier: MIT */
/*
 * inversions_run.h - measures priority inversions that interrupts cause: see inversions_run.c.
 */
#ifndef RTXG_BPF_INVERSIONS_RUN_H
#define RTXG_BPF_INVERSIONS_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct inversions {
	int32_t owner; /* a thread; 0: learned from what their work wakes */
	bool json;
	double seconds;
	/* Calls fn for each interrupt that is meant; how many it took, or a negative errno. */
	int (*choose)(int (*fn)(void *ctx, unsigned int irq), void *ctx);
	/* How long it was. */
	double (*wait)(double seconds);
};

/* The exit status of rtxg-irq; says on stderr what is wrong. */
int inversions_run(const struct inversions *how);

#endif
