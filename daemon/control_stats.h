/* SPDX-License-Identifier: MIT */
/*
 * control_stats.h - handlers of requests: see control.c for their table, control_stats.c for them.
 */
#ifndef RTXGD_CONTROL_STATS_H
#define RTXGD_CONTROL_STATS_H

#include "daemon.h"

void control_metrics(struct connection *c, const struct request *r);
void control_stats(struct connection *c, const struct request *r);
void control_history(struct connection *c, const struct request *r);
void control_timeline(struct connection *c, const struct request *r);

#endif
