/* SPDX-License-Identifier: MIT */
/*
 * culprit.h - a late wake-up with what caused it, in words and as JSON.
 */
#ifndef RTXG_LATENCY_CULPRIT_H
#define RTXG_LATENCY_CULPRIT_H

#include <jansson.h>
#include <stdio.h>

#include "blame.h"
#include "kernel.h"
#include "symbols.h"

struct culprit {
	struct blame blame;
	const struct kernel_capture *capture; /* NULL: from a trace */
	const struct symbols *symbols;	      /* NULL: none */
	int cpu;			      /* -1: not known */
};

/* Finds it. As blame_find; a capture that was not taken has one part, which was not seen. */
int culprit_find(struct culprit *c, const struct kernel_capture *capture,
		 const struct symbols *symbols);
/* The record and the parts, each line after "# ". */
void culprit_show(FILE *out, const struct culprit *c);
json_t *culprit_json(const struct culprit *c);

#endif
