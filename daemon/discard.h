/* SPDX-License-Identifier: MIT */
/* discard.h - what users have open, too, is read and closed elsewhere: see discard.c. */
#ifndef RTXGD_DISCARD_H
#define RTXGD_DISCARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "foreign.h"

struct daemon;

/*
 * Before there are clients. read: a packet has come that discard_read() was called for, of that
 * owner, with a descriptor or -1. 0, or an errno.
 */
int discard_start(struct daemon *d,
		  void (*read)(void *owner, const struct foreign_packet *packet, int fd));
/*
 * Closes fd in another thread, in the order of the calls for one user. connection: a socket over
 * which descriptors may still lie unread; no more is let in, what is there is thrown away, and the
 * other side still reads what was said last, unless its user has many that do not close: then
 * another process closes it (closer.c). False: it is still open here, so the caller takes no more
 * connections for a moment.
 */
bool discard(uid_t user, int fd, bool connection);
/*
 * Has the next packet of a connection read in the same thread. What was discarded of that user is
 * closed before. The ticket: the owner may go with discard_forget(). NULL: there is no thread, or
 * no memory.
 */
struct reading *discard_read(uid_t user, int fd, void *owner);
void discard_forget(struct reading *ticket);
/* How many of that user's are not closed, or read, yet. */
uint32_t discard_pending(uid_t user);
/* The same, while one of them takes long to close; 0 where they only wait for a CPU. */
uint32_t discard_stuck(uid_t user);

#endif
