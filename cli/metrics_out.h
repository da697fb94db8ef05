/* SPDX-License-Identifier: MIT */
/*
 * metrics_out.h - text that grows, and is used again for the next scrape: a page has thousands of
 * lines, and a stream's bookkeeping for each piece of each line cost as much as all else.
 */
#ifndef RTXG_CLI_METRICS_OUT_H
#define RTXG_CLI_METRICS_OUT_H

#include <stdbool.h>
#include <stddef.h>

struct metrics_out {
	char *text; /* not terminated; the next page may use the same memory */
	size_t size, room;
	bool failed; /* there was no memory: the text is not whole */
};

void metrics_out_put(struct metrics_out *out, const char *text, size_t size);
void metrics_out_text(struct metrics_out *out, const char *text);
void metrics_out_format(struct metrics_out *out, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
