// SPDX-License-Identifier: MIT
/*
 * helper.c - one thread a lane that has ever been used: waits for permits, and for being told to
 * give one back. It is the only place of the layer that sleeps on behalf of rtxg, and does so
 * without the lock, so that no note is left to a thread that sleeps. lane.c says what it does next.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "admission.h"
#include "completion.h"
#include "helper.h"
#include "monitor.h"
#include "permit.h"
#include "rtxg_clock.h"
#include "turn.h"

#define MS 1000000ull
/* how late an unnoticed completion is noticed while no other task wants the engine */
#define POLL_NS (2 * MS)
/* the same while the next permit is waited for, if no callback tells of it after all */
#define DRAIN_NS (500 * MS)
/* the same while the program has noticed each one by itself, for so many looks of the helper */
#define POLL_SELDOM_NS (32 * MS)

/* Waits for the permit, and uses it. */
static void ask(struct layer_lane *lane, bool drains)
{
	int err = layer_permit_wait(lane, drains ? rtxg_now_ns() + DRAIN_NS : UINT64_MAX);
	struct layer_todo todo;

	layer_monitor_enter(&todo);
	switch (lane_answered(&lane->state, err,
			      !err && rtx_gpu_awaited(lane->gpu->handle, lane->engine),
			      rtxg_now_ns())) {
	case LANE_GRANTED:
		layer_admission_admit(lane, lane->ready_head, &todo);
		break;
	case LANE_GIVE_BACK:
		layer_permit_return(lane);
		break;
	case LANE_CLOSED:
		fprintf(stderr, "rtxg: %s: no permit for %s any more: %s; its commands fail\n",
			program_invocation_short_name, lane->gpu->name, strerror(-err));
		break;
	case LANE_AGAIN:
		break;
	}
	layer_monitor_leave(&todo);
}

/*
 * Looks for ends, and has the queues tell of theirs in which nothing does. Under the lock, and
 * leaves it, where there were any: the caller looks again.
 */
static bool look(struct layer_lane *lane, struct layer_todo *todo)
{
	struct layer_queue *queues[LAYER_MARK_QUEUES];
	unsigned int n = 0;

	lane_look(&lane->state);
	layer_admission_run(lane, todo);
	lane_look_ends(&lane->state);
	if (lane_marks(&lane->state, layer_permit_revoked(lane)))
		n = layer_turn_untold(lane, queues);
	if (!n)
		return false;
	layer_monitor_leave(todo);
	for (unsigned int i = 0; i < n; i++)
		layer_turn_mark(queues[i]);
	return true;
}

static void *helper(void *arg)
{
	struct layer_lane *lane = arg;
	struct layer_todo todo;

	for (;;) {
		unsigned int signals;
		enum lane_next next;
		bool drains;

		layer_monitor_enter(&todo);
		signals = atomic_load(&lane->signals);
		if (look(lane, &todo))
			continue;
		next = lane_next(&lane->state, rtxg_now_ns(), layer_permit_revoked(lane));
		drains = lane->state.admitted;
		if (next == LANE_ASK || next == LANE_DRAIN)
			layer_admission_flush(lane, &todo);
		if (next == LANE_DRAIN) {
			lane->current = NULL;
			layer_completion_arm(lane, &todo);
		}
		layer_monitor_leave(&todo);
		/* Leaving may have set a callback, or shown that the platform refuses them. */
		if (next == LANE_ASK && !lane_asks(drains, atomic_load(&lane->armed)))
			next = LANE_DRAIN;
		switch (next) {
		case LANE_ASK:
			ask(lane, drains);
			break;
		case LANE_DRAIN:
			layer_permit_sleep(lane, signals, POLL_NS);
			break;
		case LANE_LISTEN:
			layer_permit_listen(lane, rtxg_now_ns() + POLL_NS);
			break;
		case LANE_LISTEN_ON:
			layer_permit_listen(lane, rtxg_now_ns() + POLL_SELDOM_NS);
			break;
		case LANE_SLEEP:
			layer_permit_sleep(lane, signals, UINT64_MAX);
			layer_monitor_enter(&todo);
			lane_woken(&lane->state);
			layer_monitor_leave(&todo);
			break;
		}
	}
	return NULL;
}

void layer_helper_start(struct layer_lane *lane)
{
	pthread_t thread;
	pthread_attr_t attr;
	sigset_t all, old;

	layer_admission_read_environment();
	/* The program's signals are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	if (pthread_create(&thread, &attr, helper, lane)) {
		fprintf(stderr, "rtxg: %s: no thread for %s; its commands fail\n",
			program_invocation_short_name, lane->gpu->name);
		lane->state.closed = true;
	} else {
		pthread_setname_np(thread, "rtxg-gate");
	}
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	lane->helper_started = true;
	layer_monitor_add(lane);
}
