/* SPDX-License-Identifier: MIT */
/*
 * slice_rig.h - core/slice with three contexts, and a host that looks into queues and reads the log
 * when the test lets it.
 */
#ifndef RTXG_TESTS_SLICE_RIG_H
#define RTXG_TESTS_SLICE_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include "rtxg_slice.h"

#define US	   1000ull
#define MS	   1000000ull
#define CONTEXTS   3u /* of as many tenants, of the same numbers */
#define LOG	   16u
#define NO_CONTEXT UINT32_MAX

struct rig {
	void *memory;
	struct rtxg_slice *core;
	uint64_t now, timer;
	bool log_wanted; /* at the timer's time the log is to be read */
	bool stopped[CONTEXTS];
	uint64_t looked[CONTEXTS];	  /* when its queues were looked into last */
	struct rtxg_slice_event log[LOG]; /* what it says and the core has not been told */
	uint32_t unread;
	uint32_t on;  /* the context on the engine */
	bool follows; /* contexts 1 and 2 take it when it is free */
};

void tell(struct rig *r, struct rtxg_slice_event event);
void demand(struct rig *r, uint32_t context, uint32_t value);
/* The log says so from now on. */
void happens(struct rig *r, uint32_t type, uint32_t context);
/* This one takes the engine; NO_CONTEXT: it is left. */
void take(struct rig *r, uint32_t context);
/* One that is stopped leaves it, and one of the others that may run takes it. */
void follow(struct rig *r);
void wake(struct rig *r, bool read);
/* The host does what it was asked for. */
void pass(struct rig *r, uint64_t ns);
/* The host decides something else: the core looks at all again, and the log has not been read. */
void decide_unread(struct rig *r);
void begin(struct rig *r, const struct rtxg_slice_tenant *tenants);
void end(struct rig *r);
/* Contexts 1 and 2 always have work, and follow what is decided. */
void begin_beside_two(struct rig *r, const struct rtxg_slice_tenant *tenants);
void arrive(struct rig *r);
int64_t lag(const struct rig *r);

extern const struct rtxg_slice_tenant critical_and_two[CONTEXTS];
/* One with a bound that is kept by arrival, and two that always have work. */
extern const struct rtxg_slice_tenant chat_and_two[CONTEXTS];

/* The same, with so small a share that what is charged wrongly is soon all of it. */
extern const struct rtxg_slice_tenant small_and_two[CONTEXTS];

extern const struct rtxg_slice_tenant two_in_batch[CONTEXTS];

#endif
