/* SPDX-License-Identifier: MIT */
/*
 * guardian.h - starting the guardian from the daemon's side.
 */
#ifndef RTXG_NV_GUARDIAN_H
#define RTXG_NV_GUARDIAN_H

#include <sys/types.h>
#include "journal.h"

/*
 * Starts the program `path` with the journal, waits until it has its own client of the driver (at most 10 s). *pidfd is readable once
 * the guardian has ended. -ETIMEDOUT, or the guardian's own error.
 */
int guardian_start(const char *path, struct nv_journal *journal, pid_t *pid, int *pidfd);
/* Tells it that its daemon ends in order, and waits for it. */
void guardian_stop(struct nv_journal *journal, pid_t pid, int pidfd);

#endif
