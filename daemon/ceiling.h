/* SPDX-License-Identifier: MIT */
/* ceiling.h - the driver's kernel threads at their users' priority: see ceiling.c. */
#ifndef RTXGD_CEILING_H
#define RTXGD_CEILING_H

#include "config_words.h"
#include "daemon.h"

/* Patterns of names, as fnmatch() has them; all that was raised for others before is set back. */
void ceiling_configure(struct daemon *d, const struct config_words *patterns);
/* Whether the configuration names threads. */
bool ceiling_wanted(void);
/* Call it with each sample, after critical_next(): looks at some of the kernel's threads. */
void ceiling_next(struct daemon *d);
/* The daemon ends: all threads have their own priorities again. */
void ceiling_stop(void);
/* Appends to the doctor's checks, if the configuration names threads. */
void ceiling_doctor(const struct daemon *d, json_t *checks);

#endif
