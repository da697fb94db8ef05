/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_cpu_domain.h - the CPUs that a task may run on: any set of them, as a cluster, a single CPU
 * or the whole machine. Tasks compete where their domains meet.
 *
 * The bits belong to the host, which keeps them as long as the domain is in use: bit n of word n /
 * 64 is CPU n, as the kernel's cpumasks have it. A domain of no words is every CPU.
 */
#ifndef RTXG_CPU_DOMAIN_H
#define RTXG_CPU_DOMAIN_H

#include "rtxg_core.h"

struct rtxg_cpu_domain {
	const uint64_t *bits;
	uint32_t words; /* 0: every CPU */
	uint32_t reserved;
};

static inline uint64_t rtxg_cpu_domain_word(const struct rtxg_cpu_domain *domain, uint32_t word)
{
	if (!domain->words)
		return ~0ull;
	return word < domain->words ? domain->bits[word] : 0;
}

static inline bool rtxg_cpu_domain_has(const struct rtxg_cpu_domain *domain, uint32_t cpu)
{
	return rtxg_cpu_domain_word(domain, cpu / 64) >> cpu % 64 & 1;
}

/* Whether they have a CPU in common. */
static inline bool rtxg_cpu_domains_meet(const struct rtxg_cpu_domain *a,
					 const struct rtxg_cpu_domain *b)
{
	if (!a->words || !b->words)
		return true;
	for (uint32_t i = 0; i < a->words && i < b->words; i++)
		if (a->bits[i] & b->bits[i])
			return true;
	return false;
}

/* Whether every CPU of a is one of b. */
static inline bool rtxg_cpu_domain_within(const struct rtxg_cpu_domain *a,
					  const struct rtxg_cpu_domain *b)
{
	if (!b->words)
		return true;
	if (!a->words)
		return false;
	for (uint32_t i = 0; i < a->words; i++)
		if (a->bits[i] & ~rtxg_cpu_domain_word(b, i))
			return false;
	return true;
}

static inline bool rtxg_cpu_domains_equal(const struct rtxg_cpu_domain *a,
					  const struct rtxg_cpu_domain *b)
{
	return rtxg_cpu_domain_within(a, b) && rtxg_cpu_domain_within(b, a);
}

/* How many CPUs it has; of every CPU: 0. */
static inline uint32_t rtxg_cpu_domain_count(const struct rtxg_cpu_domain *domain)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < domain->words; i++)
		for (uint64_t left = domain->bits[i]; left; left &= left - 1)
			count++;
	return count;
}

#endif
