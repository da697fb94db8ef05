// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * emit.c - the actions: the difference between what was planned and what was commanded last. So an
 * action is never forgotten, and none is given twice. One that failed for a reason that may pass is
 * given again, with growing pauses; a context that nothing can be done about stays enabled.
 *
 * May not: decide what ought to be.
 */
#include "internal.h"

#define PAUSE_MAX (2000 * MS)
/* a stopped program that cannot be let go is tried more often: nothing is worse */
#define PAUSE_MAX_RESUME (100 * MS)
#define READY_STAYS	 4 /* so many times that it comes onto the engine tell that it is ready */
/* so long without a failure: the next one is the first again */
#define PAUSE_FORGET (1000 * MS)
#define LOG_EARLY    (1 * MS) /* the log is read so much early rather than by an own wake-up */

static struct slice_retry *retry_of(struct slice_context *context, uint32_t type)
{
	return &context->retry[type - 1];
}

static bool may(const struct rtxg_slice *s, struct slice_context *context, uint32_t type)
{
	return s->now >= retry_of(context, type)->at;
}

static void fails_again(struct rtxg_slice *s, struct slice_context *context, uint32_t type)
{
	uint64_t most = type == RTXG_SLICE_RESUME ? PAUSE_MAX_RESUME : PAUSE_MAX;
	struct slice_retry *retry = retry_of(context, type);

	if (!retry->last || slice_excess(s->now, retry->last) > 2 * retry->pause + PAUSE_FORGET)
		retry->pause = s->params.retry_ns;
	else
		retry->pause = 2 * retry->pause < most ? 2 * retry->pause : most;
	retry->last = s->now;
	retry->at = s->now + retry->pause;
}

static void not_stopped(struct rtxg_slice *s, struct slice_context *context)
{
	if (!context->is_stopped)
		return;
	context->is_stopped = false;
	s->tenants[context->tenant].stopped--;
	slice_demand_enabled(s, context);
}

void slice_failed(struct rtxg_slice *s, uint32_t id, uint32_t value)
{
	struct slice_context *context = &s->contexts[id];
	uint32_t type = value & ~RTXG_SLICE_FINAL;

	switch (type) {
	case RTXG_SLICE_SET:
		context->slice = 0;
		break;
	case RTXG_SLICE_SUSPEND:
		not_stopped(s, context);
		break;
	case RTXG_SLICE_RESUME:
		if (context->is_stopped)
			break;
		context->is_stopped = true;
		context->stopped_at = s->now;
		slice_demand_stopping(s, context);
		break;
	default: /* no action is named: none works */
		context->retry[RTXG_SLICE_SET - 1].never = true;
		context->retry[RTXG_SLICE_SUSPEND - 1].never = true;
		context->slice = context->want_slice = 0;
		context->want_stop = false;
		return;
	}
	fails_again(s, context, type);
	/* What is stopped must not stay so, whatever the driver says. */
	if (value & RTXG_SLICE_FINAL && type != RTXG_SLICE_RESUME)
		retry_of(context, type)->never = true;
}

void slice_ready(struct rtxg_slice *s, uint32_t id)
{
	struct slice_context *context = &s->contexts[id];
	uint32_t i;

	/* The driver has built it by now. */
	if (context->stays > READY_STAYS)
		return;
	for (i = 0; i < 3; i++)
		if (context->retry[i].at > s->now) {
			context->retry[i].at = 0;
			s->log_pending = true;
		}
}

void slice_plan_retries(struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++) {
		struct slice_context *context = &s->contexts[i];
		uint64_t at;

		if (!context->used)
			continue;
		if (!slice_stoppable(context))
			context->want_stop = false;
		if (!slice_sliceable(context))
			context->want_slice = 0;
		if (context->want_stop != context->is_stopped)
			at = retry_of(context,
				      context->want_stop ? RTXG_SLICE_SUSPEND : RTXG_SLICE_RESUME)
				     ->at;
		else if (context->want_slice && context->want_slice != context->slice)
			at = retry_of(context, RTXG_SLICE_SET)->at;
		else
			continue;
		if (at > s->now)
			slice_wake_unread(s, at);
	}
}

/* Is the place that it leaves so short that a slice more is much, time and again? */
static bool leaves_a_short_place(const struct rtxg_slice *s, uint32_t id)
{
	return slice_by_the_clock(s, id) && slice_clock_place(s, id) < 4 * s->params.slice_mean_ns;
}

static unsigned int emit_stops(struct rtxg_slice *s, struct rtxg_slice_action *actions,
			       unsigned int n, unsigned int cap)
{
	bool leave = false, clocked = s->owner != NONE && slice_by_the_clock(s, s->owner);
	uint32_t i;

	/*
	 * A context that is left on the engine goes when another one takes it. Where no other can,
	 * it would stay and be charged for ever: it is taken off at once. So it is for a turn by
	 * the clock, which would begin so much later on this GPU alone, and when its own such turn
	 * is over and was short: that of a small share is shorter than a slice.
	 */
	for (i = 0; i < s->context_high && (s->params.can & RTXG_SLICE_CAN_LEAVE); i++)
		leave = leave || (s->contexts[i].used && s->contexts[i].active &&
				  !s->contexts[i].want_stop && !s->contexts[i].is_stopped);
	for (i = 0; i < s->context_high && n < cap; i++) {
		struct slice_context *context = &s->contexts[i];

		if (!context->used || !context->want_stop || context->is_stopped ||
		    !may(s, context, RTXG_SLICE_SUSPEND))
			continue;
		slice_demand_stopping(s, context);
		context->is_stopped = true;
		context->left = 0;
		context->passed = false;
		context->stopped_at = s->now;
		s->tenants[context->tenant].stopped++;
		/* Who waits for the engine now does not wait for the end of a slice. */
		actions[n++] =
			(struct rtxg_slice_action){ .type = RTXG_SLICE_SUSPEND,
						    .context = i,
						    .ns = leave && s->may_leave && !clocked &&
							  !leaves_a_short_place(s,
										context->tenant) &&
							  !s->turns && !slice_arrival(s) };
	}
	return n;
}

static unsigned int emit_resumes(struct rtxg_slice *s, struct rtxg_slice_action *actions,
				 unsigned int n, unsigned int cap)
{
	uint32_t i;

	for (i = 0; i < s->context_high && n < cap; i++) {
		struct slice_context *context = &s->contexts[i];

		if (!context->used || context->want_stop || !context->is_stopped ||
		    !may(s, context, RTXG_SLICE_RESUME))
			continue;
		context->is_stopped = false;
		context->stopped += slice_excess(s->now, context->stopped_at);
		s->tenants[context->tenant].stopped_ns += slice_excess(s->now, context->stopped_at);
		/* From now on it has time to show that it wants something. */
		slice_demand_enabled(s, context);
		actions[n++] =
			(struct rtxg_slice_action){ .type = RTXG_SLICE_RESUME, .context = i };
	}
	return n;
}

/*
 * Slices of stopped contexts are set when they are let go: just before that where their last slice
 * is too long for a bound, else after it.
 */
static unsigned int emit_slices(struct rtxg_slice *s, struct rtxg_slice_action *actions,
				unsigned int n, unsigned int cap, bool stopped)
{
	uint32_t i;

	for (i = 0; i < s->context_high && n < cap; i++) {
		struct slice_context *context = &s->contexts[i];

		if (!context->used || context->is_stopped != stopped || !context->want_slice ||
		    context->want_slice == context->slice || !may(s, context, RTXG_SLICE_SET))
			continue;
		if (stopped &&
		    (context->want_stop || !may(s, context, RTXG_SLICE_RESUME) ||
		     slice_or(context->slice, s->params.slice_mean_ns) <= context->want_slice))
			continue;
		context->slice = context->want_slice;
		s->set_at = s->now;
		actions[n++] = (struct rtxg_slice_action){ .type = RTXG_SLICE_SET,
							   .context = i,
							   .ns = context->slice };
	}
	return n;
}

int slice_emit(struct rtxg_slice *s, struct rtxg_slice_action *actions, unsigned int cap)
{
	unsigned int n = 0;
	bool log;

	/*
	 * In turns a critical kernel is waiting for the engine, or soon will be, and so is work of
	 * a tenant with a latency. Else the next one is let go first: the engine is never idle
	 * then.
	 */
	if (s->turns || slice_arrival(s)) {
		n = emit_stops(s, actions, n, cap);
		n = s->turns ? emit_slices(s, actions, n, cap, true) : n;
		n = emit_resumes(s, actions, n, cap);
	} else {
		n = emit_resumes(s, actions, n, cap);
		n = emit_stops(s, actions, n, cap);
	}
	n = emit_slices(s, actions, n, cap, false);
	s->actions += n;
	log = s->log_at <= s->timer + LOG_EARLY;
	if (n < cap && (s->timer != s->armed || log != s->armed_log)) {
		s->armed = s->due = s->timer;
		s->armed_log = log;
		s->arms++;
		actions[n++] = (struct rtxg_slice_action){ .type = RTXG_SLICE_ARM,
							   .context = log ? NONE : 0,
							   .ns = s->timer };
	}
	return (int)n;
}
