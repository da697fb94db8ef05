/* SPDX-License-Identifier: MIT */
/* refused.h - processes whose task was refused: see refused.c. */
#ifndef RTXGD_REFUSED_H
#define RTXGD_REFUSED_H

#include "daemon.h"

/* That process asked for a task, and did not get one. */
void refused_note(const struct connection *c, int error, const char *why);
/* It has a task now. */
void refused_forget(pid_t pid);
/*
 * Those that still run, and that the viewer may know of (NULL: all): [{"pid", "uid", "comm",
 * "error", "message"}].
 */
json_t *refused_list(const struct connection *viewer);

#endif
