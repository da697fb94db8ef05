/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * command.h - what is decided of a command of a program under the gate as it goes in: whether the
 * batch before it takes it, whether its host asks for an event that tells of its end, and whether
 * the time that it takes is measured. Under the lock of its host, which is a layer; all 0 at first.
 */
#ifndef RTXG_GATE_COMMAND_H
#define RTXG_GATE_COMMAND_H

#include "lane.h"

/* May a batch of so many commands take one more? */
bool lane_takes(unsigned int commands, uint64_t batch_ns, uint64_t est_ns, uint64_t ahead_ns);
/* No permit will come, and nothing runs: a command fails. */
bool lane_refuses(const struct lane *l);

/* ---- without an event ---- */

/* What went in without an event since the newest command that has one: "bare". */
struct lane_row {
	unsigned int n;
	uint64_t ns; /* by estimate */
};

/*
 * May a command go without an event, if it is admitted? joins: the batch that runs takes it, else
 * it is the first of a new one. What comes behind it in its queue has to tell of its end.
 */
bool lane_may_be_bare(const struct lane *l, const struct lane_row *row, uint64_t est_ns,
		      bool joins);
/* A command has gone in. */
void lane_entered(struct lane_row *row, bool bare, uint64_t est_ns);
/* Some have ended. */
void lane_row_ended(struct lane_row *row, const struct lane *l);

/* ---- measuring ---- */

/* The time of what runs, where the device does not say it. */
struct lane_meter {
	uint64_t from;		 /* measured since then; 0: it is not */
	unsigned int unmeasured; /* times that the engine was begun with since it was */
};

/*
 * The engine is begun with, by a batch of est_ns. told: the device says how long it takes. Returns
 * whether the host has to read its clock for lane_meter_begin.
 */
bool lane_measures(struct lane_meter *m, const struct lane *l, bool told, uint64_t est_ns);
/* Something has ended that is not measured, and more runs: the same. */
bool lane_measures_rest(struct lane_meter *m, const struct lane *l);
/* From now on; 0: it is not measured. */
void lane_meter_begin(struct lane_meter *m, uint64_t now);
/* Something has ended that is. Returns for how long it ran, 0: that is not known. */
uint64_t lane_meter_read(struct lane_meter *m, const struct lane *l, uint64_t now);

#endif
