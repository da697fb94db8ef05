/* SPDX-License-Identifier: MIT */
/* ceiling.h - the driver's kernel threads at their users' priority: see ceiling.c. */
#ifndef RTXGD_CEILING_H
#define RTXGD_CEILING_H

#include "daemon.h"

#define CEILING_PATTERNS 8u
#define CEILING_PATTERN	 31u

/* Patterns of names, as fnmatch() has them; all that was raised for others before is set back. */
void ceiling_configure(struct daemon *d, char patterns[][CEILING_PATTERN + 1], uint32_t count);
/* Call it with each sample: looks at one task, and at some of the kernel's threads. */
void ceiling_next(struct daemon *d);
/* The daemon ends: all threads have their own priorities again. */
void ceiling_stop(struct daemon *d);
/* Appends to the doctor's checks, if the configuration names threads. */
void ceiling_doctor(const struct daemon *d, json_t *checks);

#endif
