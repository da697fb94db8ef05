/* SPDX-License-Identifier: MIT */
/*
 * trace.h - reads traces in text into events: what /sys/kernel/tracing/trace shows, with and
 * without the latency format, what `trace-cmd report` prints, and excerpts of them that were
 * printed in papers.
 */
#ifndef RTXG_LATENCY_TRACE_H
#define RTXG_LATENCY_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "../bpf/event.h"

struct trace {
	struct event *events; /* in the order of their times */
	int *cpus;	      /* of each event */
	size_t count;
	size_t skipped; /* lines that are none of a trace */
};

/* Reads a whole trace. 0, -ENOMEM, or -ENODATA where no line is one of a trace. */
int trace_read(const char *text, struct trace *trace);
void trace_close(struct trace *trace);
/* Keeps the events of one CPU. */
void trace_keep_cpu(struct trace *trace, int cpu);

#endif
