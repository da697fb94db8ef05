/* SPDX-License-Identifier: MIT */
/*
 * bench.h - the common parts of all benchmarks in C: a clock, a median, and one way to report.
 * Times on shared machines drift. So a benchmark runs rtxg and the alternative in turn for many
 * rounds, and reports the ratio of the medians.
 */
#ifndef RTXG_BENCH_H
#define RTXG_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "rtxg_clock.h"

static inline int bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts the values in place. */
static inline double bench_median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), bench_compare);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/*
 * One result: printed as a line and, if RTXG_BENCH_DIR is set, added to the list in
 * $RTXG_BENCH_DIR/FILE.json. `met` compares `figure` with `aim` (lower is better); figure_name says
 * what the figure is.
 */
static inline void bench_report(const char *file, const char *name, const char *unit, double rtxg,
				double alternative, const char *alternative_name,
				const char *figure_name, double figure, double aim)
{
	const char *dir = getenv("RTXG_BENCH_DIR");
	bool met = figure <= aim;
	char path[4096];
	json_t *list, *entry;

	printf("%-34s rtxg %9.1f %s, %s %9.1f %s: %s %.3f (aim <= %g: %s)\n", name, rtxg, unit,
	       alternative_name, alternative, unit, figure_name, figure, aim,
	       met ? "met" : "NOT met");
	fflush(stdout);
	if (!dir || snprintf(path, sizeof(path), "%s/%s.json", dir, file) >= (int)sizeof(path))
		return;
	list = json_load_file(path, 0, NULL);
	if (!json_is_array(list)) {
		json_decref(list);
		list = json_array();
	}
	entry = json_pack("{s:s, s:s, s:f, s:f, s:s, s:s, s:f, s:f, s:b}", "name", name, "unit",
			  unit, "rtxg", rtxg, "alternative", alternative, "alternative_name",
			  alternative_name, "figure_name", figure_name, "figure", figure, "aim",
			  aim, "met", met);
	json_array_append_new(list, entry);
	if (json_dump_file(list, path, JSON_INDENT(1)))
		fprintf(stderr, "%s cannot be written\n", path);
	json_decref(list);
}

#endif
