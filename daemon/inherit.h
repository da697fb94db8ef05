/* SPDX-License-Identifier: MIT */
/* inherit.h - threads at the priority that they inherit: see inherit.c. */
#ifndef RTXGD_INHERIT_H
#define RTXGD_INHERIT_H

#include "daemon.h"

/*
 * That thread of the task's process asks for a GPU of a pool; 0: it is not known which, or the task
 * ends. The one before inherits nothing any more.
 */
void inherit_thread(struct daemon *d, struct task *task, pid_t thread);
/* A GPU of a pool was asked for or given back: threads get what they inherit now. */
void inherit_update(struct daemon *d);
/* With each sample: what could not be set is tried again. */
void inherit_next(struct daemon *d);
/* The daemon ends: all threads get their own priorities back. */
void inherit_stop(struct daemon *d);

#endif
