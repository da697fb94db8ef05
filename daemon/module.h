/* SPDX-License-Identifier: MIT */
/* module.h - the front of rtxg.ko: see module.c. */
#ifndef RTXGD_MODULE_H
#define RTXGD_MODULE_H

#include "host.h"

/*
 * Makes this daemon the module's front if the module is loaded. 0 also where the module is absent
 * and `insist` is false: then d->host stays what it was.
 */
int module_start(struct daemon *d, bool insist);
/* The event loop runs: from now on the first task is seen when it opens. */
void module_watch(struct daemon *d);
void module_stop(void);

#endif
