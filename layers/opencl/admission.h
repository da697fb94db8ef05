/* SPDX-License-Identifier: MIT */
/*
 * admission.h - which batches run. Under the monitor's lock; never waits.
 */
#ifndef RTXG_OPENCL_ADMISSION_H
#define RTXG_OPENCL_ADMISSION_H

#include "batch.h"

/* RTXG_OPENCL_AHEAD_US. */
void layer_admission_read_environment(void);
/* How much estimated execution time may be queued on the device. */
uint64_t layer_admission_ahead(void);
/* A batch, ready or new, for which the permit has been taken. */
void layer_admission_admit(struct layer_lane *lane, struct layer_batch *b, struct layer_todo *todo);
/* A new batch: true if it runs at once. */
bool layer_admission_at_once(struct layer_lane *lane, struct layer_batch *b,
			     struct layer_todo *todo);
/* Notices completions and admits what can be admitted. */
void layer_admission_run(struct layer_lane *lane, struct layer_todo *todo);
/* Has the queues of what is admitted begin. */
void layer_admission_flush(struct layer_lane *lane, struct layer_todo *todo);

#endif
