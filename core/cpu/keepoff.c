// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * keepoff.c - interrupts off the CPUs of critical tasks. See rtxg_cpu_keepoff.h. May not: know an
 * interrupt, or set one.
 */
#include "rtxg_cpu_keepoff.h"

bool rtxg_keepoff_none(const struct rtxg_keepoff_cpus *cpus)
{
	uint64_t any = 0;

	for (uint32_t i = 0; i < RTXG_KEEPOFF_WORDS; i++)
		any |= cpus->words[i];
	return !any;
}

bool rtxg_keepoff_same(const struct rtxg_keepoff_cpus *a, const struct rtxg_keepoff_cpus *b)
{
	uint64_t differ = 0;

	for (uint32_t i = 0; i < RTXG_KEEPOFF_WORDS; i++)
		differ |= a->words[i] ^ b->words[i];
	return !differ;
}

bool rtxg_keepoff_meet(const struct rtxg_keepoff_cpus *a, const struct rtxg_keepoff_cpus *b)
{
	uint64_t both = 0;

	for (uint32_t i = 0; i < RTXG_KEEPOFF_WORDS; i++)
		both |= a->words[i] & b->words[i];
	return both;
}

/* Those of `from` that are not in `off`. */
static void without(struct rtxg_keepoff_cpus *left, const struct rtxg_keepoff_cpus *from,
		    const struct rtxg_keepoff_cpus *off)
{
	for (uint32_t i = 0; i < RTXG_KEEPOFF_WORDS; i++)
		left->words[i] = from->words[i] & ~off->words[i];
}

/* What is known of where it is sent, after the host has looked. */
static void learn(struct rtxg_keepoff_interrupt *interrupt, const struct rtxg_keepoff_rule *rule,
		  const struct rtxg_keepoff_cpus *now)
{
	bool moved = !rtxg_keepoff_none(&interrupt->moved);

	if (moved && rtxg_keepoff_same(&interrupt->moved, now))
		return;
	/* The kernel itself sends an interrupt elsewhere whose last CPU goes offline. */
	if (moved && !rtxg_keepoff_meet(&interrupt->moved, &rule->online)) {
		rtxg_keepoff_set(interrupt, now);
		return;
	}
	interrupt->others += moved;
	interrupt->own = *now;
	interrupt->moved = (struct rtxg_keepoff_cpus){ { 0 } };
}

bool rtxg_keepoff_look(struct rtxg_keepoff_interrupt *interrupt,
		       const struct rtxg_keepoff_rule *rule, const struct rtxg_keepoff_cpus *now,
		       struct rtxg_keepoff_cpus *wanted)
{
	learn(interrupt, rule, now);
	*wanted = interrupt->own;
	if (rule->ceiling && rtxg_keepoff_meet(&interrupt->own, &rule->off)) {
		without(wanted, &interrupt->own, &rule->off);
		if (!rtxg_keepoff_meet(wanted, &rule->online))
			without(wanted, &rule->online, &rule->off);
		if (rtxg_keepoff_none(wanted))
			*wanted = interrupt->own;
	}
	return !rtxg_keepoff_same(wanted, now);
}

void rtxg_keepoff_set(struct rtxg_keepoff_interrupt *interrupt,
		      const struct rtxg_keepoff_cpus *cpus)
{
	interrupt->moved = rtxg_keepoff_same(cpus, &interrupt->own)
				   ? (struct rtxg_keepoff_cpus){ { 0 } }
				   : *cpus;
}

bool rtxg_keepoff_left(const struct rtxg_keepoff_cpus *moved,
		       const struct rtxg_keepoff_cpus *wanted, const struct rtxg_keepoff_cpus *now)
{
	return (!rtxg_keepoff_none(moved) && rtxg_keepoff_same(moved, now)) ||
	       (!rtxg_keepoff_none(wanted) && rtxg_keepoff_same(wanted, now));
}
