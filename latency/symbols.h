/* SPDX-License-Identifier: MIT */
/*
 * symbols.h - kernel functions by address, and where a stack says that time went.
 */
#ifndef RTXG_LATENCY_SYMBOLS_H
#define RTXG_LATENCY_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYMBOLS_NAME 96

struct symbols;

/* From /proc/kallsyms; NULL where it may not be read, or shows no addresses. */
struct symbols *symbols_open(void);
void symbols_close(struct symbols *s);
/* "function" or "function [module]"; the address in hexadecimal where it is not known. */
char *symbols_name(const struct symbols *s, uint64_t address, char *text, size_t size);

/* The addresses of a function of the kernel itself; 0 where they are not known. */
struct symbols_range {
	const char *name;
	uint64_t from, to;
};

/* Looks for all of them at once: to read the kernel's symbols takes long. */
void symbols_ranges(struct symbols_range *ranges, int count);

/*
 * The index of the frame that did it, in a stack of names, innermost first; -1: none. Leaves out
 * what every such stack has: the way of an interrupt (all up to its entry), the scheduler, locks
 * being let go, preemption being switched on.
 */
int symbols_culprit(const char *const *names, int count);

#endif
