/* SPDX-License-Identifier: MIT */
/* latency_blame.h - what tests ask of an answer of latency/blame.c. */
#ifndef RTXG_TESTS_LATENCY_BLAME_H
#define RTXG_TESTS_LATENCY_BLAME_H

#include <stdint.h>

#include "../../latency/blame.h"

static inline uint64_t sum(const struct blame *b)
{
	uint64_t ns = 0;

	for (int i = 0; i < b->count; i++)
		ns += b->parts[i].ns;
	return ns;
}

static inline const struct blame_part *part(const struct blame *b, enum blame_kind kind)
{
	static const struct blame_part none;

	for (int i = 0; i < b->count; i++)
		if (b->parts[i].kind == kind)
			return &b->parts[i];
	return &none;
}

#endif
