/* SPDX-License-Identifier: MIT */
/* devices.h - which names of GPUs are of OpenCL's devices here: see devices.c. */
#ifndef RTXGD_DEVICES_H
#define RTXGD_DEVICES_H

#include "daemon.h"

/* rtxgd with this as its only argument lists the devices. */
#define DEVICES_LIST "--list-devices"
/* For so long it waits for the drivers: what asked for the list is answered in time. */
#define DEVICES_SECONDS (RTXG_ANSWER_SECONDS - 5)
/* The last line of a list that is whole. */
#define DEVICES_END "."

/* Before the first of the others. 0 or a negative errno. */
int devices_start(struct daemon *d);
/* Was there a device of that name when they were last listed? */
bool devices_has(const char *name);
/*
 * Has them listed, unless that has just been done. True: a list is on its way, and requests that
 * are kept are served when it is there or cannot be had. False: what is known is all that can be.
 */
bool devices_look(struct daemon *d);
/* What is known, as the end of a sentence. */
void devices_known(char *text, size_t size);
/* {"names": [...], "listed": how often, "whole": was the last list} */
json_t *devices_report(void);
/* The process that lists: writes a name a line, and returns its exit status. */
int devices_list(void);

#endif
