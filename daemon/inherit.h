/* SPDX-License-Identifier: MIT */
/* inherit.h - threads at the priority that they inherit: see inherit.c. */
#ifndef RTXGD_INHERIT_H
#define RTXGD_INHERIT_H

#include "daemon.h"

/* That thread of the task's process asks for a GPU of a pool; 0: it is not known which. */
void inherit_holder(struct task *task, pid_t thread);
/* It inherits that priority from now on; 0: nothing any more. */
void inherit_set(struct daemon *d, struct task *task, uint32_t priority);
/* The socket's path is known: threads that a killed daemon left raised are set back. */
void inherit_start(const struct daemon *d);
/* The daemon ends: all threads get their own priorities back. */
void inherit_stop(struct daemon *d);

#endif
