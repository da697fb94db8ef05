/* SPDX-License-Identifier: MIT */
/*
 * explain.h - `rtxg latency explain`: who made a task late, from a trace in text.
 */
#ifndef RTXG_LATENCY_EXPLAIN_H
#define RTXG_LATENCY_EXPLAIN_H

/* argv[0] is the subcommand. Returns the exit status. */
int explain_run(int argc, char **argv);

#endif
