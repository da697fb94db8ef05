// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * demand.c - which contexts have work, from the looks into their queues and from the log.
 *
 * Filled queues are certain. Empty ones are not: the engine's host takes about two launches ahead
 * of the engine, so a program that waits for each of its kernels shows empty queues all the time
 * that a kernel runs. A context is therefore taken to have work for a while after the last sign of
 * it, its grace. Signs are filled queues, and that it came onto the engine, which no context does
 * without work. A context that comes onto the engine after its grace, and whose queues were empty
 * all along, was in the middle of a kernel: its grace doubles. One that was displaced and did not
 * come back before it had new work had nothing to do: its grace is halved.
 *
 * May not: stop a context or set a slice.
 */
#include "internal.h"

#define GRACE_MIN    (250 * US)
#define GRACE_MAX    (64 * MS)
#define GRACE_URGENT (8 * MS) /* while its bound is kept: all others wait meanwhile */
#define PAUSE_FORGET 16	      /* of a pause, a part of so many is forgotten with each shorter one */
#define BURST_FORGET 8	      /* and with each burst that had no such pause */
#define RETURNS	     4	      /* in a row from what seemed to be the end of its work */
#define STEP_APART   (2 * MS) /* no work for so long is the end of a step */
#define STEP_ALIKE   8	      /* steps that differ by less than such a part are alike */
#define STEPS_LEARNT 3	      /* so many that are alike tell how long the next one is */
#define STEPS_MISSED 4	      /* the end of so many may not have been seen */
/* a context that was let go comes onto a free engine that soon */
#define SHOW (1 * MS)
/* work that came onto the engine is seen in the queues that soon */
#define LOOKED_WITHIN (4 * MS)
#define LOOK_SLACK    (500 * US) /* a look may come so much late */

/* Within what time of its coming onto the engine the work that brought it there is seen. */
static uint64_t seen_within(const struct rtxg_slice *s, uint32_t id)
{
	uint64_t every = rtxg_slice_look_ns(s, id);

	return every >= LOOKED_WITHIN - LOOK_SLACK ? LOOKED_WITHIN : every + LOOK_SLACK;
}

static uint64_t longest_grace(const struct rtxg_slice *s, const struct slice_context *context)
{
	return s->tenants[context->tenant].exempt ? GRACE_URGENT : GRACE_MAX;
}

/* It was in the middle of a kernel although its queues were empty for longer than its grace. */
static void took_longer(struct rtxg_slice *s, struct slice_context *context)
{
	uint64_t most = longest_grace(s, context);

	context->doubted = 0;
	context->grace = context->grace * 2 < most ? context->grace * 2 : most;
}

/*
 * New work comes after a while without any: a step of a training, say, is over. Steps that are like
 * those before tell how long the next one will be.
 */
static void learn_step(struct slice_context *context)
{
	uint64_t step = slice_excess(context->worked, context->step_at), n = 1, off;

	if (context->step)
		n = (step + context->step / 2) / context->step;
	n = n ? n : 1;
	off = slice_excess(step, n * context->step) + slice_excess(n * context->step, step);
	context->step_at = context->worked;
	if (!context->step || n > STEPS_MISSED || off > context->step / STEP_ALIKE) {
		context->steps = 0;
		context->step = step;
		return;
	}
	/* The end of one may not have been seen. */
	if (n > 1)
		return;
	context->steps += context->steps < UINT8_MAX;
	context->step = step < context->step ? context->step - off / 4 : context->step + off / 4;
}

uint64_t slice_step_left(const struct rtxg_slice *s, const struct slice_context *context)
{
	uint64_t done = slice_excess(context->worked, context->step_at);

	if (!context->gap_at || slice_excess(s->now, context->gap_at) > SLICE_GAPS_FOR)
		return NEVER;
	/* Its pauses have shown to be ends. */
	if (slice_seen_empty(s, context) && context->grace == GRACE_MIN)
		return 0;
	if (context->steps < STEPS_LEARNT || done > context->step * STEPS_MISSED)
		return NEVER;
	if (slice_seen_empty(s, context) && done >= context->step)
		return 0;
	return context->step - done % context->step;
}

/* It was displaced, and did not come back before it had new work. */
static void had_nothing(struct slice_context *context, uint64_t at)
{
	context->gap_at = at;
	context->grace = context->grace / 2 > GRACE_MIN ? context->grace / 2 : GRACE_MIN;
}

/* Up to then, as far as the log has been read, the one on the engine was there beyond its slice. */
static uint64_t unwanted_until(const struct rtxg_slice *s)
{
	const struct slice_context *on;
	uint64_t slice;

	if (s->holder == NONE)
		return s->over_at;
	on = &s->contexts[s->holder];
	slice = slice_or(on->slice, s->params.slice_mean_ns);
	if (slice_excess(s->read, on->since) > slice + slice / 32 + s->params.save_ns)
		return s->read;
	return s->over_at;
}

static void sign(struct slice_context *context, uint64_t at)
{
	if (at > context->sign)
		context->sign = at;
	context->blocked = false;
}

/*
 * How long the queues are empty between two pieces of work that belong together. What is longer
 * than quiet_ns is a pause between bursts, if the others were not let go in the middle of one.
 * Pauses that are too short to be seen are none, so a burst teaches something at its end, too.
 */
static void learn_pause(const struct rtxg_slice *s, struct slice_context *context, bool wanted,
			uint64_t pause)
{
	if (pause > 2 * s->params.quiet_ns) {
		context->pause -= slice_excess(context->pause, context->burst) / BURST_FORGET;
		context->burst = 0;
		return;
	}
	context->burst = pause > context->burst ? pause : context->burst;
	if (pause >= context->pause || !wanted)
		context->pause = pause;
	else
		context->pause -= (context->pause - pause) / PAUSE_FORGET;
}

/* The others are let go after so long a quiet. */
static uint64_t quiet(const struct rtxg_slice *s, const struct slice_context *context)
{
	uint64_t ns = context->pause + context->pause / 8;

	return ns < s->params.quiet_ns ? ns : s->params.quiet_ns;
}

/* Up to when the look before this one tells of its queues: to this one, unless it comes late. */
static uint64_t known_until(const struct slice_context *context, uint64_t before, uint64_t at)
{
	uint64_t asked = before > context->asked_at ? before : context->asked_at;
	uint64_t slack = context->asked_ns < LOOK_SLACK ? LOOK_SLACK : context->asked_ns;

	if (!before || context->asked_ns == NEVER ||
	    slice_excess(at, asked) <= context->asked_ns + slack)
		return at;
	return asked + context->asked_ns + LOOK_SLACK;
}

/* It was made while the host could not act. */
static bool is_old(const struct rtxg_slice *s, const struct rtxg_slice_event *look)
{
	return s->now > look->at_ns + LOOK_SLACK;
}

/*
 * Its queues were seen to be empty up to the look before this one. A kernel may have run meanwhile:
 * so what was looked at in time is judged by when that was. What was looked at while the host could
 * not act is all told at once.
 */
static void note_gap(const struct rtxg_slice *s, struct slice_context *context,
		     const struct rtxg_slice_event *look)
{
	uint64_t upto = look->since_ns;

	if (!is_old(s, look) || upto <= context->empty_at)
		return;
	context->gaps[context->next_gap++ % SLICE_GAPS] =
		(struct slice_gap){ .from = context->empty_at, .to = upto };
}

void slice_demand(struct rtxg_slice *s, const struct rtxg_slice_event *look, bool *replan)
{
	/* The daemon may look at what the log has not told it of yet, but not ahead of time. */
	uint64_t at = look->at_ns > s->now ? s->now : look->at_ns;
	struct slice_context *context = &s->contexts[look->context];
	uint64_t known = known_until(context, look->since_ns, at);
	bool wanted = context->active && context->wants;
	uint32_t value = look->value & ~RTXG_SLICE_FOLLOWED;
	bool deeper = value == RTXG_SLICE_QUEUED && !context->queued;

	if (known < at)
		slice_charge_blind(s, context, known, at, value == RTXG_SLICE_QUEUED);
	if (is_old(s, look))
		context->late_at = s->now;
	context->queued = value == RTXG_SLICE_QUEUED;
	if (context->looked_at_from > at)
		context->looked_at_from = at;
	if (value == RTXG_SLICE_NO_WORK) {
		*replan = context->demand == SLICE_FILLED;
		if (context->demand != SLICE_EMPTY) {
			sign(context, known);
			context->empty_at = at;
		}
		context->demand = SLICE_EMPTY;
		return;
	}
	if (context->demand == SLICE_EMPTY)
		note_gap(s, context, look);
	if (context->demand == SLICE_EMPTY)
		learn_pause(s, context, wanted, slice_excess(at, context->sign));
	if (context->queued)
		context->pieces = 0;
	else if (context->demand == SLICE_EMPTY && context->pieces < UINT8_MAX)
		context->pieces++;
	if (context->demand == SLICE_EMPTY) {
		uint64_t told = at < s->read ? at : s->read;

		/*
		 * Another one took the engine, and it did not come back until it had new work: as
		 * far as the log has been read.
		 */
		if (context->stays && !context->since && !context->is_stopped &&
		    !context->doubted && !s->tenants[context->tenant].runs_beside &&
		    slice_seen_empty(s, context) &&
		    (!s->plain || unwanted_until(s) > context->left) &&
		    told > context->sign + context->grace &&
		    told > context->seen + context->grace) {
			had_nothing(context, at);
		}
		if (slice_excess(at, context->sign) > STEP_APART)
			learn_step(context);
		context->blocked = false;
		context->doubt = 0;
	}
	if (context->doubted && known > context->doubted + seen_within(s, look->context))
		took_longer(s, context);
	context->doubted = 0;
	/* Another one was let go beside it for a pause in the middle of its work. */
	if (context->ending && wanted && context->demand == SLICE_EMPTY &&
	    context->grace == GRACE_MIN)
		context->grace *= 2;
	context->ending = false;
	/* It cannot do it before it is let go, also if the engine's host has taken it by then. */
	context->had_work = context->had_work || context->is_stopped;
	context->demand = SLICE_FILLED;
	if (!context->blocked)
		sign(context, at);
	if (!context->active)
		slice_set_active(s, context, true);
	if (!wanted)
		slice_promise_arrived(s, look);
	/* Others may run beside short work of a tenant, and not beside long work. */
	*replan = !wanted || (s->tenants[context->tenant].level &&
			      (deeper || context->pieces == SLICE_PIECES));
}

/*
 * It seemed to have nothing to do, another one was on the engine for a slice at most, and it is
 * there again: it may have been in the middle of a kernel, or new work may have come. If that is so
 * again and again, and none of the others ever stayed beyond its slice meanwhile, it is the kernel.
 */
static void look_at_return(struct rtxg_slice *s, struct slice_context *context)
{
	if (!context->passed || context->is_stopped || !context->left || !(s->plain || s->turns))
		return;
	context->passed = false;
	if (s->over_at > context->left) {
		context->returns = 0;
	} else if (++context->returns >= RETURNS) {
		context->returns = 0;
		took_longer(s, context);
	}
}

/*
 * Work of it was seen to arrive since it came onto the engine before, and the host could not act
 * for a while since: it waited for that.
 */
static bool has_waited(const struct slice_context *context, uint64_t at)
{
	uint32_t i;

	if (context->arrived && at >= context->arrived_from && context->late_at > context->arrived)
		return true;
	for (i = 0; i < SLICE_GAPS; i++)
		if (context->gaps[i].to > context->started && context->gaps[i].to <= at)
			return true;
	return false;
}

void slice_demand_started(struct rtxg_slice *s, uint32_t id, uint64_t at, bool *replan)
{
	struct slice_context *context = &s->contexts[id];

	look_at_return(s, context);
	/*
	 * Its grace is not too short if another one that was let go early cut it before, if the
	 * work that brought it there may have come while its queues were not seen, or if it was
	 * seen to arrive and waited longer than the grace: the host came late to stop the others.
	 */
	if (slice_seen_empty(s, context) && !context->doubted && !has_waited(context, at) &&
	    !(at > context->blind_from && at <= context->blind_to) &&
	    (context->doubt || at > context->sign + context->grace) &&
	    !(context->ending && context->seen <= context->sign + context->grace))
		context->doubted = at ? at : 1;
	slice_promise_started(s, context, at);
	sign(context, at);
	context->probe = context->cut = false;
	if (!context->wants)
		*replan = true;
}

void slice_demand_added(struct rtxg_slice *s, struct slice_context *context)
{
	context->added = context->seen = s->now;
	context->fresh = true;
	context->pieces = SLICE_PIECES;
	context->asked_ns = NEVER;
	context->pause = s->params.quiet_ns;
	context->grace = GRACE_MIN;
}

void slice_demand_enabled(struct rtxg_slice *s, struct slice_context *context)
{
	context->seen = s->now;
	context->fresh = true;
	/* It has time to show what it had when it was stopped. */
	context->probe = context->had_work;
	if (context->had_work)
		sign(context, s->now);
	context->had_work = false;
}

/* One that was displaced in the middle of a kernel is on the engine again that soon. */
static uint64_t comes_back_within(const struct rtxg_slice *s)
{
	uint64_t ns = SHOW;
	uint32_t i;

	if (!s->turns)
		return slice_patience(s);
	for (i = 0; i < s->context_high; i++)
		if (s->contexts[i].used && s->contexts[i].active && !s->contexts[i].is_stopped)
			ns += slice_or(s->contexts[i].slice, s->params.slice_mean_ns) +
			      s->params.save_ns + s->params.restore_ns;
	return ns;
}

void slice_demand_yielded(struct rtxg_slice *s, struct slice_context *context)
{
	if (!context->since && !context->doubted && slice_seen_empty(s, context) &&
	    s->read > context->sign + context->grace &&
	    s->read > context->seen + comes_back_within(s))
		had_nothing(context, s->now);
}

void slice_demand_stopping(struct rtxg_slice *s, struct slice_context *context)
{
	/*
	 * Without a sign of work it may yet be in the middle of a kernel, if it is on the engine or
	 * was displaced so lately that it had no chance to come back. That kernel cannot end, nor
	 * new work come, before it is let go: it would be stopped for ever.
	 */
	context->had_work = context->wants || context->since ||
			    (context->active && context->stays &&
			     slice_excess(s->read, context->seen) <= comes_back_within(s));
	context->cut = context->wants && context->since;
	context->probe = false;
	/* It seemed to have none, and is to have its turn: which others' turns are short for. */
	if (s->turns && context->had_work && !context->wants)
		slice_wake_unread(s, s->now);
}

uint64_t slice_patience(const struct rtxg_slice *s)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < s->context_high; i++)
		n += s->contexts[i].used && s->contexts[i].active && !s->contexts[i].is_stopped;
	return s->params.tick_ns + s->params.slice_max_ns * n;
}

/*
 * Up to when a context that was let go may show that it still has work: at once if the engine is
 * free, else when those that are on it have had their slices.
 */
static uint64_t may_show_until(const struct rtxg_slice *s, const struct slice_context *context,
			       uint64_t until, uint64_t most)
{
	bool contended = s->holder != NONE && s->contexts[s->holder].wants &&
			 !s->contexts[s->holder].is_stopped;
	uint64_t at = context->seen + (contended ? most : s->params.resume_ns + SHOW);

	return at > until ? at : until;
}

/*
 * Work of a tenant with a latency arrived, and as far as the log has been read it was not on the
 * engine since: the engine's host holds it, and the slice of another goes on. Its bound ends that,
 * or that the others have had their slices: what has not come by then needs no engine.
 */
static bool has_yet_to_start(const struct rtxg_slice *s, const struct slice_context *context,
			     uint64_t most)
{
	uint64_t bound = s->tenants[context->tenant].params.latency_ns;

	return context->arrived &&
	       slice_excess(s->read, context->arrived) < (bound < most ? bound : most);
}

/*
 * In turns of contexts queues are seldom looked into: by when have they been, since it is wanted as
 * often as it is now?
 */
static uint64_t looked_into_by(const struct rtxg_slice *s, const struct slice_context *context)
{
	uint64_t ns = rtxg_slice_look_ns(s, (uint32_t)(context - s->contexts));

	if (!s->turns || ns == NEVER)
		return s->now;
	return (ns < context->asked_ns ? s->now : context->asked_at) + ns + LOOK_SLACK;
}

/* The patience with a context that has the engine alone: one is active and not stopped. */
static uint64_t least_patience(const struct rtxg_slice *s)
{
	return s->params.tick_ns + s->params.slice_max_ns;
}

/*
 * By when it comes onto the engine if it has work for it. None is in the way of one that has a free
 * engine alone: what is in its queues may wait for another context, which is stopped. Others are
 * stopped for the next work of a tenant with a latency, too, so that says nothing of it. Nor does
 * it of one that waits for what it has on other GPUs. A turn beside critical tasks is not passed on
 * so soon, for the next one may be long.
 */
static uint64_t shows_by(const struct rtxg_slice *s, const struct slice_context *context,
			 uint64_t most)
{
	uint64_t from = context->seen > context->sign ? context->seen : context->sign;
	uint64_t free = s->free_at > s->acted_at ? s->free_at : s->acted_at;
	uint64_t soon = s->params.restore_ns + SHOW;

	if (!s->free_at || most > least_patience(s) || s->turns || slice_is_slow(s) ||
	    s->tenants[context->tenant].params.latency_ns || slice_by_the_clock(s, context->tenant))
		return from + most;
	return (from > free ? from : free) + soon;
}

/*
 * Its queues were filled when they were looked into last, and it is not on the engine. It may wait
 * for something else: an event, or another GPU. Whether it has come onto the engine meanwhile is in
 * the log, and whether its queues are still filled is to be seen.
 */
static void look_if_blocked(struct rtxg_slice *s, struct slice_context *context, uint64_t most)
{
	uint64_t shows = shows_by(s, context, most), looked;

	if (context->since || context->blocked || s->now <= shows)
		return;
	looked = looked_into_by(s, context);
	context->blocked = s->read > shows && looked <= s->now;
	if (context->blocked && s->free_at)
		context->waited_at = s->now;
	if (!context->blocked)
		slice_wake_at(s, looked > s->now ? looked : s->now);
}

static bool has_work(struct rtxg_slice *s, struct slice_context *context, uint64_t most)
{
	uint64_t until, longest = longest_grace(s, context);

	if (!context->active)
		return false;
	if (context->is_stopped)
		return context->had_work || (context->demand == SLICE_FILLED && !context->blocked);
	if (context->demand != SLICE_FILLED && !slice_seen_empty(s, context))
		return true;
	if (context->demand == SLICE_FILLED) {
		look_if_blocked(s, context, most);
		return !context->blocked;
	}
	/* It was longer while it took turns. */
	context->grace = context->grace < longest ? context->grace : longest;
	until = context->sign + context->grace;
	if (s->tenants[context->tenant].params.latency_ns &&
	    until < context->sign + quiet(s, context))
		until = context->sign + quiet(s, context);
	if (context->probe)
		until = may_show_until(s, context, until, most);
	/* What it has shown is in the log, which has been read up to then. */
	if (s->now >= until) {
		bool starts = has_yet_to_start(s, context, most);

		if (!starts && ((context->since && !context->probe) || s->read >= until)) {
			context->passed = context->passed || context->since;
			return false;
		}
		if (starts && s->read >= until)
			until = s->now + GRACE_MIN;
	}
	slice_wake_at(s, until > s->now ? until : s->now);
	return true;
}

void slice_look_at_demand(struct rtxg_slice *s)
{
	uint64_t patience = slice_patience(s);
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		s->tenants[i].wants = s->tenants[i].known = false;
	for (i = 0; i < s->context_high; i++) {
		struct slice_context *context = &s->contexts[i];

		if (!context->used)
			continue;
		if (context->doubted &&
		    slice_excess(s->now, context->doubted) > seen_within(s, i)) {
			took_longer(s, context);
			slice_charge_doubt(s, context);
		}
		context->wants = has_work(s, context, patience);
		if (context->wants) {
			s->tenants[context->tenant].wants = true;
			if (context->demand != SLICE_UNSEEN)
				s->tenants[context->tenant].known = true;
		}
	}
}
