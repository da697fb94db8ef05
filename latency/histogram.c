// SPDX-License-Identifier: MIT
/*
 * histogram.c - latencies in bins of 1 us. May not: make a system call once a histogram is open.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "histogram.h"

int histogram_open(struct histogram *h, uint32_t bins)
{
	memset(h, 0, sizeof(*h));
	if (bins < 1 || bins > HISTOGRAM_MOST)
		return -EINVAL;
	h->count = malloc(bins * sizeof(*h->count));
	if (!h->count)
		return -ENOMEM;
	/* written, and so in memory before the first measurement */
	memset(h->count, 0, bins * sizeof(*h->count));
	h->bins = bins;
	return 0;
}

void histogram_close(struct histogram *h)
{
	free(h->count);
	memset(h, 0, sizeof(*h));
}

void histogram_add(struct histogram *h, uint64_t ns)
{
	uint64_t bin = ns / 1000;

	if (bin < h->bins)
		h->count[bin]++;
	else
		h->overflows++;
	if (!h->total || ns < h->min_ns)
		h->min_ns = ns;
	if (ns > h->max_ns)
		h->max_ns = ns;
	h->sum_ns += ns;
	h->total++;
}

void histogram_add_expected(struct histogram *h, uint64_t ns, uint64_t interval_ns)
{
	uint32_t most = h->bins;

	histogram_add(h, ns);
	while (interval_ns && ns > interval_ns && most--) {
		ns -= interval_ns;
		histogram_add(h, ns);
	}
}

void histogram_merge(struct histogram *h, const struct histogram *other)
{
	if (!other->total)
		return;
	for (uint32_t i = 0; i < other->bins; i++) {
		if (i < h->bins)
			h->count[i] += other->count[i];
		else
			h->overflows += other->count[i];
	}
	h->overflows += other->overflows;
	if (!h->total || other->min_ns < h->min_ns)
		h->min_ns = other->min_ns;
	if (other->max_ns > h->max_ns)
		h->max_ns = other->max_ns;
	h->sum_ns += other->sum_ns;
	h->total += other->total;
}

void histogram_since(struct histogram *out, const struct histogram *h, struct histogram *before,
		     uint64_t max_ns)
{
	out->total = 0;
	out->min_ns = max_ns;
	out->max_ns = max_ns;
	out->sum_ns = h->sum_ns - before->sum_ns;
	before->sum_ns = h->sum_ns;
	out->overflows = h->overflows - before->overflows;
	before->overflows = h->overflows;
	for (uint32_t i = 0; i < h->bins; i++) {
		out->count[i] = h->count[i] - before->count[i];
		before->count[i] = h->count[i];
		out->total += out->count[i];
		if (out->count[i] && (uint64_t)i * 1000 < out->min_ns)
			out->min_ns = (uint64_t)i * 1000;
		/* counted between the taking of the maximum and now */
		if (out->count[i] && (uint64_t)i * 1000 > out->max_ns)
			out->max_ns = (uint64_t)i * 1000;
	}
	/* the thread counts on while this reads: the total is that of the bins */
	out->total += out->overflows;
	before->total = h->total;
}

double histogram_quantile_us(const struct histogram *h, double share)
{
	uint64_t below = 0;

	if (!h->total)
		return 0;
	for (uint32_t i = 0; i < h->bins; i++) {
		below += h->count[i];
		if ((double)below >= share * (double)h->total && below)
			return i + 1 < h->max_ns / 1e3 ? i + 1 : (double)h->max_ns / 1e3;
	}
	return (double)h->max_ns / 1e3;
}

double histogram_mean_us(const struct histogram *h)
{
	return h->total ? (double)h->sum_ns / (double)h->total / 1e3 : 0;
}
