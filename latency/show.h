/* SPDX-License-Identifier: MIT */
/*
 * show.h - results for people, in cyclictest's form, and as JSON.
 */
#ifndef RTXG_LATENCY_SHOW_H
#define RTXG_LATENCY_SHOW_H

#include <jansson.h>
#include <stdio.h>

#include "probe.h"

/* One line a thread, as cyclictest prints it. */
void show_threads(FILE *out, const struct probe *probes, int count);
/* cyclictest's histogram: one row for each bin that a thread has, one column a thread. */
void show_histogram(FILE *out, const struct probe *probes, int count);
/* {"count", "min_us", ..., "p99_us", ..., "bins": {"5": 12}, "overflows"}; a new reference. */
json_t *show_histogram_json(const struct histogram *h);
json_t *show_threads_json(const struct probe *probes, int count);
const char *show_policy(int policy);

#endif
