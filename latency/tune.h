/* SPDX-License-Identifier: MIT */
/*
 * tune.h - settings of the machine for the time of a run.
 */
#ifndef RTXG_LATENCY_TUNE_H
#define RTXG_LATENCY_TUNE_H

#include "settings.h"

/*
 * Changes what the settings ask for; undo_all puts it back. `said` is called with each thing that
 * could not be done and the remedy. Returns 0, or -EINVAL where a name is wrong.
 */
int tune_machine(const struct settings *s, void (*said)(const char *format, ...));

#endif
