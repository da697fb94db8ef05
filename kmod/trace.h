/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * trace.h - probes on tracepoints that the kernel has but does not export by name.
 */
#ifndef RTXG_KMOD_TRACE_H
#define RTXG_KMOD_TRACE_H

struct tracepoint;

/* Probes that are needed together. */
enum rtxg_trace_set {
	RTXG_TRACE_IRQ,
	RTXG_TRACE_ORDER, /* ends of tasks that follow an order */
	RTXG_TRACE_TASK,  /* task switches, new threads, ends */
	RTXG_TRACE_INHERIT,
	RTXG_TRACE_WAKING,
	RTXG_TRACE_SETS,
};

struct rtxg_probe {
	const char *name;	  /* the tracepoint's; NULL ends a list */
	void *function;		  /* as the tracepoint calls it, with NULL as its data */
	struct tracepoint *point; /* out */
};

/* While the module loads: these probes are the set's. They must last as long as the module. */
void rtxg_trace_register(enum rtxg_trace_set set, struct rtxg_probe *probes);
/* The set's probes are called from now on. In process context; 0 or negative errno. */
int rtxg_trace_need(enum rtxg_trace_set set);
void rtxg_trace_exit(void);

#endif
