/* SPDX-License-Identifier: MIT */
/*
 * foreign.h - events that no command brings about.
 */
#ifndef RTXG_OPENCL_FOREIGN_H
#define RTXG_OPENCL_FOREIGN_H

#include "queue.h"

void layer_foreign_user(cl_event event);
/* The program is about to set a user event to an error. */
void layer_foreign_fails(void) LAYER_RARE;
/* The program has set a user event. */
void layer_foreign_set(cl_event event, cl_int status);
/* An event that another API sets. */
void layer_foreign_outside(cl_event event);
/*
 * The program takes or drops a reference. With the last one a user event goes that was never set,
 * and no command waits for: our own reference would keep it for ever.
 */
void layer_foreign_refs(cl_event event, int change);

#endif
