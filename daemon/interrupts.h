/* SPDX-License-Identifier: MIT */
/* interrupts.h - interrupts off the CPUs of critical tasks: see interrupts.c. */
#ifndef RTXGD_INTERRUPTS_H
#define RTXGD_INTERRUPTS_H

#include "config_words.h"
#include "daemon.h"
#include "rtxg_cpu_keepoff.h"

/* Which interrupts, and off which CPUs. */
struct interrupts_wanted {
	struct config_words
		names; /* patterns, as fnmatch() has them, or addresses of PCI devices */
	struct rtxg_keepoff_cpus off;
};

/* All that were moved for others before are where they were. */
void interrupts_configure(struct daemon *d, const struct interrupts_wanted *wanted);
/* Whether there may be something to move. */
bool interrupts_wanted(void);
/* Call it with each sample, after critical_next(). */
void interrupts_next(struct daemon *d);
/* The daemon ends: all are where they were. */
void interrupts_stop(struct daemon *d);
/* Appends to the doctor's checks, if the configuration names interrupts or CPUs. */
void interrupts_doctor(const struct daemon *d, json_t *checks);

#endif
