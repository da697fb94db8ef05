/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_cpu_keepoff.h - interrupts of devices are kept off the CPUs of critical tasks, for as long
 * as there is one. A top half comes before every task of its CPU, so no priority helps there: only
 * where it is sent does.
 *
 * Whether a task is critical is the rule of rtxg_cpu_ceiling.h: there is a ceiling.
 */
#ifndef RTXG_CPU_KEEPOFF_H
#define RTXG_CPU_KEEPOFF_H

#include "rtxg_core.h"

#define RTXG_KEEPOFF_CPUS  1024u
#define RTXG_KEEPOFF_WORDS (RTXG_KEEPOFF_CPUS / 64)

/* CPU n is bit n % 64 of word n / 64. */
struct rtxg_keepoff_cpus {
	uint64_t words[RTXG_KEEPOFF_WORDS];
};

/* Zero: nothing is known of it yet. Between calls only rtxg_keepoff_look() and _set() change it. */
struct rtxg_keepoff_interrupt {
	struct rtxg_keepoff_cpus own;	/* where it may be sent without us */
	struct rtxg_keepoff_cpus moved; /* where we had it sent; none: it was not moved */
	uint32_t others;		/* how often another has set it while it was moved */
};

/* What the decision is made of, the same for all interrupts. */
struct rtxg_keepoff_rule {
	struct rtxg_keepoff_cpus off;	 /* kept free of interrupts */
	struct rtxg_keepoff_cpus online; /* the machine's */
	uint32_t ceiling;		 /* 0: no critical task is there */
};

bool rtxg_keepoff_none(const struct rtxg_keepoff_cpus *cpus);
bool rtxg_keepoff_same(const struct rtxg_keepoff_cpus *a, const struct rtxg_keepoff_cpus *b);
/* Some CPU is in both. */
bool rtxg_keepoff_meet(const struct rtxg_keepoff_cpus *a, const struct rtxg_keepoff_cpus *b);
/*
 * Where the interrupt, which is sent to `now` as the host found it, is to be sent; false: it stays.
 * It stays on what it has of the other CPUs. If it has none of them, it may use them all; if none
 * is online, it is left alone. Where another has set it while it was moved, that is its own from
 * then on.
 */
bool rtxg_keepoff_look(struct rtxg_keepoff_interrupt *interrupt,
		       const struct rtxg_keepoff_rule *rule, const struct rtxg_keepoff_cpus *now,
		       struct rtxg_keepoff_cpus *wanted);
/* The host had it sent there. Where it could not, it says nothing, and is asked for it again. */
void rtxg_keepoff_set(struct rtxg_keepoff_interrupt *interrupt,
		      const struct rtxg_keepoff_cpus *cpus);
/*
 * Whether an interrupt that a killed host left behind is to be sent where it was before. The host
 * noted before it acted where it had it sent (`moved`), and where it was about to (`wanted`). What
 * another has set stays.
 */
bool rtxg_keepoff_left(const struct rtxg_keepoff_cpus *moved,
		       const struct rtxg_keepoff_cpus *wanted, const struct rtxg_keepoff_cpus *now);

#endif
