/* SPDX-License-Identifier: MIT */
/* discard.h - descriptors that came from others are closed elsewhere: see discard.c. */
#ifndef RTXGD_DISCARD_H
#define RTXGD_DISCARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Closes fd in another thread, in the order of the calls for one user. connection: a socket over
 * which descriptors may still lie unread; no more is let in, what is there is thrown away, and the
 * other side still reads what was said last, unless its user has many that do not close: then
 * another process closes it (closer.c). False: that one has enough to do, so the caller takes no
 * more connections for a moment.
 */
bool discard(uid_t user, int fd, bool connection);
/* How many of that user's are not closed yet. */
uint32_t discard_pending(uid_t user);
/* The same, while one of them takes long to close; 0 where they only wait for a CPU. */
uint32_t discard_stuck(uid_t user);

#endif
