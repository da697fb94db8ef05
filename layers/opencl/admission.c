// SPDX-License-Identifier: MIT
/*
 * admission.c - which batches run: as many as lane.c finds room for, each with its permit.
 *
 * A permit is taken only for a ready batch. So no program ever holds one while it waits for
 * something that is not certain to come, be it a user event or another permit: no deadlock, within
 * a process or across processes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "admission.h"
#include "completion.h"
#include "permit.h"

/* how much execution time may be queued ahead on the device */
#define AHEAD_DEFAULT_US 4000

static uint64_t ahead_ns = AHEAD_DEFAULT_US * 1000ull;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_ahead(void)
{
	const char *text = secure_getenv("RTXG_OPENCL_AHEAD_US");

	if (text && *text) {
		char *end;
		unsigned long us = strtoul(text, &end, 10);

		if (*end || us < 100 || us > 1000000)
			fprintf(stderr,
				"rtxg: RTXG_OPENCL_AHEAD_US=%s: 100 to 1000000 (microseconds) "
				"expected; using %u\n",
				text, AHEAD_DEFAULT_US);
		else
			ahead_ns = us * 1000ull;
	}
}

void layer_admission_read_environment(void)
{
	pthread_once(&once, read_ahead);
}

uint64_t layer_admission_ahead(void)
{
	return ahead_ns;
}

void layer_admission_admit(struct layer_lane *lane, struct layer_batch *b, struct layer_todo *todo)
{
	if (layer_rarely(b->state == LAYER_READY)) {
		layer_batch_unready(b);
		layer_batch_resolve(b, todo);
	}
	if (!lane->state.admitted)
		layer_completion_begin(lane, b);
	layer_batch_begin(lane, b);
	if (layer_rarely(b->gate))
		layer_batch_open(b, todo, false);
	if (lane_admit(&lane->state, b->est_ns))
		layer_permit_wake(lane);
}

LAYER_RARE static void refuse_all(struct layer_lane *lane, struct layer_todo *todo)
{
	while (lane->ready_head) {
		struct layer_batch *b = lane->ready_head;

		layer_batch_unready(b);
		b->frail = true;
		layer_batch_open(b, todo, true);
		/* It completes (with an error) without the engine: keep nothing of it. */
		b->lane = NULL;
		layer_batch_resolve(b, todo);
	}
}

LAYER_RARE static void admit_ready(struct layer_lane *lane, struct layer_todo *todo)
{
	for (;;) {
		struct layer_batch *b = lane->ready_head;

		switch (lane_admission(&lane->state, b ? b->est_ns : 0, ahead_ns,
				       layer_permit_revoked(lane))) {
		case LANE_STOP:
			return;
		case LANE_ASK_EARLY:
			layer_permit_missed(lane);
			return;
		case LANE_TRY:
			if (!layer_permit_try(lane))
				return;
			layer_admission_admit(lane, b, todo);
		}
	}
}

void layer_admission_run(struct layer_lane *lane, struct layer_todo *todo)
{
	layer_completion_reap(lane, todo);
	if (layer_rarely(lane->state.ready))
		admit_ready(lane, todo);
	/*
	 * After the next batch was admitted where one was ready: the host would take the moment
	 * between the two for a pause of the program, and give the engine away.
	 */
	layer_permit_report(lane);
	if (layer_rarely(lane->state.closed))
		refuse_all(lane, todo);
	if (layer_rarely(lane_watches(&lane->state, layer_permit_awaited(lane))))
		layer_completion_arm(lane, todo);
}

bool layer_admission_at_once(struct layer_lane *lane, struct layer_batch *b,
			     struct layer_todo *todo)
{
	bool admitted;

	if (layer_rarely(!lane->state.ready && !lane_room(&lane->state, b->est_ns, ahead_ns)))
		layer_completion_reap(lane, todo);
	admitted = lane_at_once(&lane->state, b->est_ns, ahead_ns) && layer_permit_try(lane);
	if (admitted)
		layer_admission_admit(lane, b, todo);
	layer_permit_report(lane);
	return admitted;
}

void layer_admission_flush(struct layer_lane *lane, struct layer_todo *todo)
{
	for (struct layer_batch *b = lane->admitted_head; b; b = b->next) {
		cl_command_queue handle = b->queue ? atomic_load(&b->queue->handle) : NULL;
		bool have = !handle ||
			    todo->flush_n == sizeof(todo->flush) / sizeof(todo->flush[0]) ||
			    b->queue->refs == 0;

		for (unsigned int i = 0; i < todo->flush_n; i++)
			have |= todo->flush[i] == handle;
		if (have)
			continue;
		layer_next.clRetainCommandQueue(handle);
		todo->flush[todo->flush_n++] = handle;
	}
}
