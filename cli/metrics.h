/* SPDX-License-Identifier: MIT */
/* metrics.h - numbers of the host as Prometheus reads them: see metrics.c and metrics_http.c. */
#ifndef RTXG_CLI_METRICS_H
#define RTXG_CLI_METRICS_H

#include <jansson.h>
#include <stdbool.h>

#include "metrics_out.h"

/*
 * Writes all metrics of a reply to the request "metrics"; NULL: there is no host, which is a
 * metric, too. proc: where the machine's /proc is. open: as OpenMetrics 1.0, else as Prometheus's
 * text 0.0.4.
 */
void metrics_write(struct metrics_out *out, const json_t *reply, const char *proc, bool open);
/* Asks the host. NULL: there is none, and *error (if not NULL) a negative errno. */
json_t *metrics_reply(int *error);
/* Asks the host and writes. 0, or a negative errno if there is no host. */
int metrics_collect(struct metrics_out *out, const char *proc, bool open);

#endif
