/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_slice_part.h - a context has many queues, and most carry no work: which of them are to be
 * stopped when the context is, and when those that were left are looked at.
 *
 * A stop takes the driver time for each queue. A queue that is left alone and begins to carry work
 * runs, though the core has stopped its context: until it is looked at, which is bounded. So what
 * may be left alone is decided here, with the other promises, and a lever that looks into queues
 * says what it saw. All times are ns of CLOCK_MONOTONIC. Plain structs in, plain structs out;
 * zeroed ones are the start.
 */
#ifndef RTXG_SLICE_PART_H
#define RTXG_SLICE_PART_H

#include <stdbool.h>
#include <stdint.h>

/* Looked at for so long, and each queue so often, before any queue is left alone. */
#define RTXG_SLICE_KNOWN_NS    1000000000ull
#define RTXG_SLICE_KNOWN_LOOKS 20u
/* A queue of which nothing has changed for so long carries no work. */
#define RTXG_SLICE_COLD_NS 10000000000ull
/* What was left alone has been looked at so long after it may have begun to run, at the latest. */
#define RTXG_SLICE_REST_MOST_NS 20000000ull

/* One queue, as it was seen. */
struct rtxg_slice_queue {
	uint64_t moved_ns; /* when something changed in it, last */
	uint32_t looks;
	bool hot; /* it carries work */
};

/* It was looked at: had anything changed since the look before? */
void rtxg_slice_queue_looked(struct rtxg_slice_queue *queue, uint64_t now_ns, bool moved);

/* The queues of one context, all of which are seen. */
struct rtxg_slice_queues {
	uint32_t count, hot;
	uint32_t looks;	    /* at the one that was looked at least */
	uint64_t since_ns;  /* since when all are seen */
	uint64_t looked_ns; /* when any was looked at, last */
};

/* Is it enough to stop those that carry work? */
bool rtxg_slice_queues_known(const struct rtxg_slice_queues *queues);

/* The queues of a stopped context that were left alone. */
struct rtxg_slice_rest {
	uint64_t due_ns; /* when they are to be looked at; 0: there are none */
	uint64_t every_ns;
};

/* The context was stopped now; with queues left alone or not. */
void rtxg_slice_rest_stopped(struct rtxg_slice_rest *rest, uint64_t now_ns, bool left);
/* They were looked at now. left: some are still left alone, and the context is still stopped. */
void rtxg_slice_rest_looked(struct rtxg_slice_rest *rest, uint64_t now_ns, bool left);
/*
 * The latest time at which a lever is to wake up for the look: a little after it is due, as it is
 * likely to be awake by then for something else. UINT64_MAX: there is nothing to look at.
 */
uint64_t rtxg_slice_rest_latest(const struct rtxg_slice_rest *rest);

#endif
