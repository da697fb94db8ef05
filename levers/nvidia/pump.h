/* SPDX-License-Identifier: MIT */
/*
 * pump.h - the records of the discovery program, on their way to contexts.h.
 */
#ifndef RTXG_NV_PUMP_H
#define RTXG_NV_PUMP_H

struct lever_nvidia;

/*
 * Takes in the records that wait at the discovery program, for 0.3 ms. Where there are more, the
 * descriptor keeps silent until l->pump_again.
 */
void nv_pump(struct lever_nvidia *l);
/* The same of all that wait, for a second or two where that does not end. */
void nv_pump_all(struct lever_nvidia *l);

#endif
