/* SPDX-License-Identifier: MIT */
/* history.h - samples every 100 ms: see history.c. */
#ifndef RTXGD_HISTORY_H
#define RTXGD_HISTORY_H

#include "daemon.h"

/* A task joined the account: from now on the account has a history, and samples are taken. */
void history_task_opened(struct daemon *d, struct account *account);
/* Samples are taken from now on, if they are not already. */
void history_wake(struct daemon *d);
/*
 * The slot numbered n lies between the borders n and n + 1, at d->times[n % (SLOTS + 1)]. The
 * oldest slot that is kept:
 */
uint64_t history_oldest(const struct daemon *d);
/* The border nearest to the time `from`, but none before `oldest`. */
uint64_t history_border(const struct daemon *d, uint64_t oldest, uint64_t from);
/* Closes a slot. */
void history_sample(struct daemon *d);

#endif
