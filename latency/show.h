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
json_t *show_threads_json(const struct probe *probes, int count);
const char *show_policy(int policy);

#endif
