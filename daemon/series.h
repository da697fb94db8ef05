/* SPDX-License-Identifier: MIT */
/*
 * series.h - what the request "history" copies of the backends' slots, in pieces. Between two
 * pieces samples are taken, and the oldest slots are lost: the answer begins where all copies have
 * something.
 */
#ifndef RTXGD_SERIES_H
#define RTXGD_SERIES_H

#include "daemon.h"

struct series_slot {
	uint64_t busy_ns, device_ns, completions, backlogged_ns;
};

/* One engine of a vGPU on a GPU. */
struct series {
	struct series *following;
	char gpu[RTXG_NAME_MAX + 1], vgpu[RTXG_NAME_MAX + 1];
	uint32_t engine;
	struct series_slot slots[];
};

struct series_list {
	char gpu[RTXG_NAME_MAX + 1]; /* only its series; "": those of all */
	uint64_t base;		     /* the number of the first slot of a series */
	uint64_t first, next;	     /* those from first on are there, up to next */
	struct series *head, **last;
	bool bad; /* there was no memory */

	uint64_t end_ns;  /* the piece ends when this has passed */
	uint32_t backend; /* that goes on */
	uint32_t at;	  /* where, which is the backend's own; zero at first */
};

void series_begin(struct series_list *list, const struct daemon *d, uint64_t first,
		  const char *gpu);
/* The first slot that is there now, next at most. Until the next sample it stays. */
uint64_t series_first(struct series_list *list, const struct daemon *d);
/* Room for the slots from base to next, all zero. NULL: that series is not wanted. */
struct series_slot *series_add(struct series_list *list, const char *gpu, const char *vgpu,
			       uint32_t engine);
/* What "history" says of it. */
json_t *series_report(const struct series_list *list, const struct series *series);
void series_drop(struct series_list *list);

#endif
