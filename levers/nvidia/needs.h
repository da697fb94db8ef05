/* SPDX-License-Identifier: MIT */
/*
 * needs.h - asks a running driver whether it knows the controls that the lever issues. Nothing is
 * done by it: each is asked with a size that no control has, which the driver refuses before it
 * looks further, and another refusal stands for a control that it does not know.
 */
#ifndef RTXG_NEEDS_H
#define RTXG_NEEDS_H

#include <stdint.h>
#include "channels.h"
#include "fecs.h"
#include "rm.h"

/* Bytes: no control's parameters have this length. */
#define NV_NEEDS_SIZE 16381u

struct nv_need {
	uint32_t command;
	const char *name;     /* the driver's own */
	const char *what_for; /* as in needs.csv */
};

/*
 * Calls back for each control that the driver does not know. Returns how many those are, or a
 * negative errno where it could not be asked; *asked: how many were, if it is not NULL. fecs: a log
 * that is open, or NULL: then its own three controls are not asked.
 */
typedef void (*nv_needs_fn)(void *ctx, const struct nv_need *need);
int nv_needs_ask(struct nv_rm_gpu *gpu, const struct nv_fecs *fecs, nv_needs_fn fn, void *ctx,
		 unsigned int *asked);

/*
 * Compares the number of a channel, as discovery saw it being made, with what the driver says. 0:
 * they are alike; -EPROTO: they are not, with both in *seen and *said, so the driver has the
 * parameters of a channel at other places than those that are known; -ENOENT: no channel of the
 * process on that GPU could be asked about.
 */
int nv_needs_number(struct nv_rm_gpu *gpu, const struct nv_process *process, uint32_t *seen,
		    uint32_t *said);

#endif
