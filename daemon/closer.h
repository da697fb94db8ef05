/* SPDX-License-Identifier: MIT */
/* closer.h - a process that closes connections which may not close: see closer.c. */
#ifndef RTXGD_CLOSER_H
#define RTXGD_CLOSER_H

#include <stdbool.h>
#include <sys/types.h>

#define CLOSER "--close-descriptors"

/* Starts the process. 0, or an errno. */
int closer_start(void);
/*
 * Gives a user's connected socket away to be closed there. It never waits. If descriptors lie
 * unread in it, what the other side was told last may be lost to it. False: the socket is still the
 * caller's.
 */
bool closer_take(uid_t user, int fd);

/* main() of the process. Returns its exit status. */
int closer(void);

#endif
