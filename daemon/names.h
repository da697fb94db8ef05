/* SPDX-License-Identifier: MIT */
/* names.h - numbers of users' names, looked up in a thread: see names.c. */
#ifndef RTXGD_NAMES_H
#define RTXGD_NAMES_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Is that name, or number, that user's? Never waits: false while the name is not looked up yet, and
 * then it is looked up soon.
 */
bool names_user_is(const char *name, uid_t uid);
/* The number of that name or number. False: there is no such user, as far as it is known now. */
bool names_user(const char *name, uid_t *uid);
/* Has all names that were asked for looked up again. */
void names_refresh(void);
/* Waits, at most so long, until all names are looked up. For the start, when no program waits. */
void names_settle(unsigned int milliseconds);

#endif
