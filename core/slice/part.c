// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * part.c - which queues of a context are stopped when it is: see rtxg_slice_part.h.
 *
 * What is left alone is looked at soon after the stop, and then further and further apart, as far
 * as the context has been stopped for: most stops are short, and in the long ones a late look costs
 * the others little.
 *
 * May not: know what a queue is.
 */
#include "rtxg_slice_part.h"

#define MS	    1000000ull
#define FIRST_NS    (2 * MS)
#define LATE_NS	    (4 * MS) /* the log is read that often in any case */
#define FURTHER	    4u
#define FURTHEST_NS (RTXG_SLICE_REST_MOST_NS - LATE_NS)

void rtxg_slice_queue_looked(struct rtxg_slice_queue *queue, uint64_t now_ns, bool moved)
{
	queue->looks += queue->looks < UINT32_MAX;
	if (moved) {
		queue->moved_ns = now_ns;
		queue->hot = true;
	} else if (queue->hot && now_ns - queue->moved_ns > RTXG_SLICE_COLD_NS) {
		queue->hot = false;
	}
}

bool rtxg_slice_queues_known(const struct rtxg_slice_queues *queues)
{
	return queues->hot && queues->hot < queues->count && queues->since_ns &&
	       queues->looks >= RTXG_SLICE_KNOWN_LOOKS &&
	       queues->looked_ns >= queues->since_ns + RTXG_SLICE_KNOWN_NS;
}

void rtxg_slice_rest_stopped(struct rtxg_slice_rest *rest, uint64_t now_ns, bool left)
{
	rest->every_ns = FIRST_NS;
	rest->due_ns = left ? now_ns + FIRST_NS : 0;
}

void rtxg_slice_rest_looked(struct rtxg_slice_rest *rest, uint64_t now_ns, bool left)
{
	rest->every_ns =
		rest->every_ns * FURTHER < FURTHEST_NS ? rest->every_ns * FURTHER : FURTHEST_NS;
	rest->due_ns = left ? now_ns + rest->every_ns : 0;
}

uint64_t rtxg_slice_rest_latest(const struct rtxg_slice_rest *rest)
{
	return rest->due_ns ? rest->due_ns + LATE_NS : UINT64_MAX;
}
