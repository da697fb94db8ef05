/* SPDX-License-Identifier: MIT */
/*
 * nvtool.h - what the files of rtxg-channels share.
 */
#ifndef RTXG_NV_TOOL_H
#define RTXG_NV_TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include "rm.h"

/*
 * Looks into the queues of all channels that are made from now on, every us microseconds, and says
 * at the end which of them moved, and what a look costs. hold: a process's memory is let go only at
 * the end, to see what that keeps alive. Returns the exit status.
 */
int nv_tool_demand(struct nv_rm_gpu *gpus, int count, double seconds, unsigned int us, bool hold);
/* The objects that a process has allocated, as the driver names them, one line each. */
int nv_tool_objects(struct nv_rm_gpu *gpus, int count, uint32_t pid);

#endif
