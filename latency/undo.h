/* SPDX-License-Identifier: MIT */
/*
 * undo.h - settings of the machine that a run changes, and that are as before when it has ended,
 * also when it was killed.
 */
#ifndef RTXG_LATENCY_UNDO_H
#define RTXG_LATENCY_UNDO_H

#include <stddef.h>

/*
 * Writes value to a file of /proc or /sys, after its old content was given to a process of its own
 * that writes it back. Returns 0 or a negative errno; the file is unchanged then.
 */
int undo_write(const char *path, const char *value);
/* Puts everything back, the last change first. Returns how many could not be. */
int undo_all(void);
/* Reads the first line of a file, without its end. Returns its length or a negative errno. */
int undo_read_line(const char *path, char *line, size_t size);

#endif
