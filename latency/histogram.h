/* SPDX-License-Identifier: MIT */
/*
 * histogram.h - latencies in bins of 1 us, as cyclictest counts them.
 */
#ifndef RTXG_LATENCY_HISTOGRAM_H
#define RTXG_LATENCY_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_MOST 1000000 /* us: the longest histogram that is accepted */

struct histogram {
	uint32_t bins;	    /* bin n counts n us <= latency < n + 1 us */
	uint64_t *count;    /* bins counters */
	uint64_t overflows; /* latencies of bins us and more */
	uint64_t total;	    /* all latencies, overflows included */
	uint64_t min_ns, max_ns, sum_ns;
};

/* Counters of zero for 1 to HISTOGRAM_MOST bins, all in memory. -EINVAL, -ENOMEM. */
int histogram_open(struct histogram *h, uint32_t bins);
void histogram_close(struct histogram *h);
/* Counts one latency. No system call, no allocation: a measuring thread calls it. */
void histogram_add(struct histogram *h, uint64_t ns);
/*
 * Counts a latency, and those of the cycles that it kept from beginning: a thread that wakes 1 ms
 * late with a period of 200 us has lost 4 cycles, which would have been 800, 600, 400 and 200 us
 * late. Without them a quantile says that long latencies are rarer than they are (coordinated
 * omission; HdrHistogram's recordValueWithExpectedInterval). Adds at most as many as h has bins.
 */
void histogram_add_expected(struct histogram *h, uint64_t ns, uint64_t interval_ns);
/* Adds the counts of another; bins that h lacks become overflows. */
void histogram_merge(struct histogram *h, const struct histogram *other);
/*
 * What was counted since `before`, a copy of the counts of h, and brings the copy up to date. Both
 * have as many bins. The maximum is given, as it cannot be subtracted; the minimum is that of a
 * bin.
 */
void histogram_since(struct histogram *out, const struct histogram *h, struct histogram *before,
		     uint64_t max_ns);
/*
 * The upper edge, in us, of the bin below which that share (0..1) of the latencies lies. The
 * maximum where the quantile lies in the overflows; 0 without latencies.
 */
double histogram_quantile_us(const struct histogram *h, double share);
double histogram_mean_us(const struct histogram *h);

#endif
