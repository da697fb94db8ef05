/* SPDX-License-Identifier: MIT */
/*
 * helper.h - the one thread of a lane.
 */
#ifndef RTXG_OPENCL_HELPER_H
#define RTXG_OPENCL_HELPER_H

#include "device.h"

/*
 * The first command of a lane: its helper begins, and those who look at all lanes see it. Under the
 * monitor's lock.
 */
void layer_helper_start(struct layer_lane *lane) LAYER_RARE;

#endif
