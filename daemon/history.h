/* SPDX-License-Identifier: MIT */
/* history.h - samples every 100 ms: see history.c. */
#ifndef RTXGD_HISTORY_H
#define RTXGD_HISTORY_H

#include "daemon.h"

/* A task joined the account: from now on the account has a history, and samples are taken. */
void history_task_opened(struct daemon *d, struct account *account);
/* Closes a slot. */
void history_sample(struct daemon *d);

#endif
