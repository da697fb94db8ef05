/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * stats.h - what is counted of a task, and of a vGPU, on one engine. The core counts it, and the
 * module hands it out as it is.
 */
#ifndef RTXG_UAPI_STATS_H
#define RTXG_UAPI_STATS_H

#include <linux/types.h>

/* Counters since the object was added; they only grow. */
struct rtxg_stats {
	__u64 busy_ns;	   /* time charged: the engine was the holder's */
	__u64 used_ns;	   /* of it, time that the client reported as executing (at most busy_ns) */
	__u64 wait_ns;	   /* from arrivals to grants */
	__u64 grants;	   /* permits given */
	__u64 completions; /* completions and releases seen */
	__u64 overruns;	   /* completions that came after the budget was gone */
	__u64 expelled;	   /* permits taken by force */
	__u64 throttled;   /* times a cap or a hard server made it wait */
};

#endif
