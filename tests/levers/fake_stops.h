/* SPDX-License-Identifier: MIT */
/*
 * fake_stops.h - the fake driver's channels that are stopped. Stops are counted: a channel runs
 * when it was let go as often as it was stopped, and once too often does no harm. A call that fails
 * has done what its list names before the entry that it failed at.
 */
#ifndef RTXG_FAKE_STOPS_H
#define RTXG_FAKE_STOPS_H

#include "fake_nvidiactl.h"

/* NULL: there is none, or it has gone. */
struct fake_channel *fake_channel_find(uint32_t client, uint32_t handle);
/* NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS; its status. */
uint32_t fake_disable(uint32_t subdevice, struct nv_disable_channels *d);
/* What a stop that is to fail does before. */
void fake_half_stop(const struct nv_disable_channels *d, const struct fake_failure *f);
/* How old the daemon's last sign of life is at a call: fake->longest_beat keeps the most. */
void fake_look_at_beat(void);

#endif
