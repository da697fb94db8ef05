/* SPDX-License-Identifier: MIT */
/*
 * breathe.h - hand-overs between two pieces of a long answer.
 */
#ifndef RTXGD_BREATHE_H
#define RTXGD_BREATHE_H

#include <jansson.h>

#include "daemon.h"

/*
 * Looks at the doorbells and the core's timer, if that is some time ago. Tasks may get and lose
 * permits, and may be in another vGPU afterwards; no object comes or goes but a vGPU that its last
 * task left.
 */
void breathe(struct daemon *d);
/* The text of the JSON, which is stolen. NULL: no memory. To be freed. */
char *breathe_text(struct daemon *d, json_t *json);

#endif
