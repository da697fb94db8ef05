/* SPDX-License-Identifier: MIT */
/* critical.h - whether a program with a real-time thread has a task: see critical.c. */
#ifndef RTXGD_CRITICAL_H
#define RTXGD_CRITICAL_H

#include "daemon.h"

/* Call it with each sample: looks at the threads of one task's process, and sets d->ceiling. */
void critical_next(struct daemon *d);

#endif
