// SPDX-License-Identifier: MIT
/*
 * show.c - prints threads and histograms. May not: measure anything, or change what it shows.
 */
#include <sched.h>
#include <stdio.h>

#include "show.h"

const char *show_policy(int policy)
{
	static const char *const names[] = {
		"other", "fifo", "rr", "batch", "", "idle", "deadline"
	};

	return policy >= 0 && policy < 7 ? names[policy] : "?";
}

static int priority_of(const struct probe *p)
{
	return p->refused ? 0 : p->priority;
}

void show_threads(FILE *out, const struct probe *probes, int count)
{
	for (int i = 0; i < count; i++) {
		const struct probe *p = &probes[i];
		const struct histogram *h = &p->observed;

		fprintf(out,
			"T:%2d (%5d) P:%2d I:%llu C:%7llu Min:%7llu Act:%5llu Avg:%5llu "
			"Max:%8llu\n",
			p->number, p->tid, priority_of(p),
			(unsigned long long)(p->interval_ns / 1000), (unsigned long long)h->total,
			(unsigned long long)(h->min_ns / 1000),
			(unsigned long long)(p->last_ns / 1000),
			(unsigned long long)(h->total ? h->sum_ns / h->total / 1000 : 0),
			(unsigned long long)(h->max_ns / 1000));
	}
}

static void row(FILE *out, const char *title, const struct probe *probes, int count,
		unsigned long long (*value)(const struct probe *p))
{
	fprintf(out, "# %s:", title);
	for (int i = 0; i < count; i++)
		fprintf(out, " %05llu", value(&probes[i]));
	fputc('\n', out);
}

static unsigned long long least(const struct probe *p)
{
	return p->observed.min_ns / 1000;
}

static unsigned long long average(const struct probe *p)
{
	return p->observed.total ? p->observed.sum_ns / p->observed.total / 1000 : 0;
}

static unsigned long long most(const struct probe *p)
{
	return p->observed.max_ns / 1000;
}

static unsigned long long overflows(const struct probe *p)
{
	return p->observed.overflows;
}

static unsigned long long total(const struct probe *p)
{
	return p->observed.total;
}

void show_histogram(FILE *out, const struct probe *probes, int count)
{
	fprintf(out, "# Histogram\n");
	for (uint32_t bin = 0; count && bin < probes[0].observed.bins; bin++) {
		fprintf(out, "%06u", bin);
		for (int i = 0; i < count; i++)
			fprintf(out, "%s%06llu", i ? "\t" : " ",
				(unsigned long long)probes[i].observed.count[bin]);
		fputc('\n', out);
	}
	row(out, "Total", probes, count, total);
	row(out, "Min Latencies", probes, count, least);
	row(out, "Avg Latencies", probes, count, average);
	row(out, "Max Latencies", probes, count, most);
	row(out, "Histogram Overflows", probes, count, overflows);
}

json_t *show_histogram_json(const struct histogram *h)
{
	json_t *bins = json_object();
	char name[16];

	for (uint32_t i = 0; i < h->bins; i++) {
		if (!h->count[i])
			continue;
		snprintf(name, sizeof(name), "%u", i);
		json_object_set_new(bins, name, json_integer((json_int_t)h->count[i]));
	}
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:o}", "count",
			 (json_int_t)h->total, "min_us", (double)h->min_ns / 1e3, "avg_us",
			 histogram_mean_us(h), "max_us", (double)h->max_ns / 1e3, "p50_us",
			 histogram_quantile_us(h, 0.5), "p99_us", histogram_quantile_us(h, 0.99),
			 "p999_us", histogram_quantile_us(h, 0.999), "p9999_us",
			 histogram_quantile_us(h, 0.9999), "overflows", (json_int_t)h->overflows,
			 "bin_count", (json_int_t)h->bins, "bins", bins);
}

json_t *show_threads_json(const struct probe *probes, int count)
{
	json_t *list = json_array();

	for (int i = 0; i < count; i++) {
		const struct probe *p = &probes[i];

		json_array_append_new(
			list, json_pack("{s:i, s:i, s:o, s:s, s:i, s:I, s:I, s:f, s:o, s:o}",
					"thread", p->number, "tid", p->tid, "cpu",
					p->cpu < 0 ? json_null() : json_integer(p->cpu), "policy",
					show_policy(p->refused ? SCHED_OTHER : p->policy),
					"priority", priority_of(p), "interval_us",
					(json_int_t)(p->interval_ns / 1000), "missed",
					(json_int_t)p->missed, "last_us", (double)p->last_ns / 1e3,
					"observed", show_histogram_json(&p->observed), "corrected",
					show_histogram_json(&p->corrected)));
	}
	return list;
}
