/* SPDX-License-Identifier: MIT */
/*
 * pump.h - the records of the discovery program, on their way to contexts.h.
 */
#ifndef RTXG_NV_PUMP_H
#define RTXG_NV_PUMP_H

#include <stdint.h>

struct lever_nvidia;

/*
 * Takes in the records that wait at the discovery program, for 0.3 ms. Where there are more, the
 * descriptor keeps silent until l->pump_again.
 */
void nv_pump(struct lever_nvidia *l);
/*
 * When more is read after a read that lasted from `began` to `ended`, CLOCK_MONOTONIC ns. A program
 * that starts causes some hundred records, and each channel a call of the driver: the context is
 * governed when the last of them is read, so they are read one piece after the other. A program may
 * cause records without end, too: then the host has most of the time for all else.
 */
uint64_t nv_pump_after(struct lever_nvidia *l, uint64_t began, uint64_t ended);
/* The same of all that wait, for a second or two where that does not end. */
void nv_pump_all(struct lever_nvidia *l);

#endif
