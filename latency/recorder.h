/* SPDX-License-Identifier: MIT */
/*
 * recorder.h - joins measuring threads with the kernel's side: histograms of the switch, and what
 * led to the latest wake-up of each thread and of each CPU's other tasks.
 */
#ifndef RTXG_LATENCY_RECORDER_H
#define RTXG_LATENCY_RECORDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "kernel.h"
#include "probe.h"

struct recorder;

/* Takes the kernel's side over and sets the threads' functions. NULL without memory. */
struct recorder *recorder_open(struct kernel *k, struct probe *probes, int count, bool every_task);
void recorder_close(struct recorder *r);
/* Tells the kernel's side the threads' numbers: for probe_start. */
void recorder_threads(struct recorder *r);
/* Readable when there is something for recorder_collect. */
int recorder_fd(struct recorder *r);
/* Takes what was kept since the last call. */
void recorder_collect(struct recorder *r);
/* Forgets the worst wake-ups. A thread's next is the worst again once its recent_ns is 0. */
void recorder_forget(struct recorder *r);
/* Prints the record, the parts and the culprit of the worst of all threads, and of other tasks. */
void recorder_show(struct recorder *r, FILE *out);
/* {"own": [...], "others": [...]}: the worst of each thread and of each CPU; a new reference. */
json_t *recorder_worst_json(struct recorder *r);
/* Histograms in the kernel, of all and of each CPU, over the whole run; a new reference. */
json_t *recorder_kernel_json(struct recorder *r);

#endif
