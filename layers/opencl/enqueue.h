/* SPDX-License-Identifier: MIT */
/*
 * enqueue.h - the calls that enqueue a command.
 */
#ifndef RTXG_OPENCL_ENQUEUE_H
#define RTXG_OPENCL_ENQUEUE_H

#include "queue.h"

void layer_enqueue_install(cl_icd_dispatch *table);

#endif
