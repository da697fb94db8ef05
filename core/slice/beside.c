// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * beside.c - which tenants run beside the turns of others in BATCH: those whose work is short and
 * waited for, by the program or by what is behind it in its queue, with pauses that are too short
 * for turns to be passed on in them, and long enough for another one to use.
 *
 * Nothing shows how long such pauses are while the tenant has a turn: each look sees new work, and
 * no other one displaces it. So it is tried. For a moment the tenant runs beside the turn of
 * another one, whose slices are short then, and the log tells. A stay that goes on beyond its slice
 * ends because another one wants the engine from then on, and did not before. So from the tenant's
 * own stay to the end of such a one it had nothing to do. So does one end that is longer than the
 * pieces of work of its context, if those are alike, and that context itself had nothing to do for
 * the rest of it. All else that it was off the engine counts as waiting.
 *
 * Pauses are worth while if more of the engine's time is used than in a turn of its own, with the
 * change-overs that they cost. Those are charged to the tenant, for its pauses cause them. What it
 * waits for may be as much of its time as the others are due; if it is more, it has a turn of its
 * own for so long that this is right again.
 *
 * Where the filled queues of two or more wait, and the engine is free for much of the time, no try
 * tells: none of them wants the engine for long enough to be seen to go on. Those run together
 * from then on, with slices in proportion to their shares, until that gains nothing more.
 *
 * May not: stop a context or set a slice.
 */
#include "internal.h"

#define SHORT	      (250 * US)  /* slices of the others beside it */
#define LONGEST	      (5 * MS)	  /* pauses that looks see by themselves are longer */
#define DRY	      2		  /* stays that end before their slice, until slices are set */
#define DRY_WITHIN    (40 * MS)	  /* by the clock, while it runs beside others */
#define DRY_WAITS     (80 * MS)	  /* the same where its queues wait */
#define CUT	      36	  /* of 128: of its stays so many are ended by their slices */
#define FULL	      6		  /* stays in a row that do not: it has work all the time */
#define NO_PAUSES     8		  /* so many stays without a pause end a try */
#define TRIED_FOR     (30 * MS)	  /* of stays and pauses */
#define TRIED_AT_MOST (100 * MS)  /* the same, until it is judged */
#define TRIED_WAITS   (300 * MS)  /* the same where its queues wait */
#define TRY_ENDS      (1000 * MS) /* in any case */
#define JUDGED_FOR    (100 * MS)
#define WORTH	      16	  /* so great a part of the time is to be gained */
#define UNSEEN	      (1000 * MS) /* so long after it has come its queues may yet be seen */
#define AGAIN	      (1000 * MS) /* until it is tried again, at first */
#define AGAIN_MOST    (8000 * MS)
#define AHEAD	      (4 * MS)	 /* of its share: it runs beside others no more */
#define ALONE_MOST    8		 /* times as long as what was judged */
#define IDLES	      8		 /* so great a part of its time a tenant's queues wait */
#define TOGETHER      6		 /* so great a part of all time the engine is free, */
#define TOGETHER_IN   (200 * MS) /* in so long */
#define POINTS	      30000u	 /* 3 %: what its share may be off */
#define SAVED_MOST    (10 * MS)	 /* that it may wait yet because it did not wait before */

uint64_t slice_change_ns(const struct rtxg_slice *s)
{
	return s->params.save_ns + 2 * s->params.restore_ns;
}

/* The part of the time that is not its own, and a little more. */
static uint32_t due_to_others(const struct slice_tenant *tenant)
{
	return (uint32_t)slice_excess(PPM, tenant->share_ppm) + POINTS;
}

static void judge_from_now(struct slice_beside *beside)
{
	beside->span = beside->pauses = beside->lost = beside->costs = 0;
	beside->changes = beside->dry = beside->full = 0;
	beside->tried = 0;
}

static void end(struct rtxg_slice *s, struct slice_beside *beside)
{
	beside->again = 2 * beside->again < AGAIN_MOST ? 2 * beside->again : AGAIN_MOST;
	beside->again = beside->again > AGAIN ? beside->again : AGAIN;
	beside->state = SLICE_APART;
	beside->at = s->now + beside->again;
	beside->alone = 0;
}

/*
 * With filled queues it left the engine free for so long that another one could have used it: the
 * next work waited for something else, as a copy, the CPU, or another program.
 */
static bool waited_in_queue(const struct rtxg_slice *s, const struct slice_context *context,
			    uint64_t at)
{
	return s->free_at && context->left == s->free_at &&
	       s->ended == (uint32_t)(context - s->contexts) && context->demand == SLICE_FILLED &&
	       at > context->left + slice_change_ns(s);
}

/* The engine has been free until now: did one leave it so whose filled queues wait? */
static void note_free(struct rtxg_slice *s, uint64_t at)
{
	const struct slice_context *context;
	uint64_t ns = slice_excess(at, s->free_at);

	if (!s->free_at || s->ended == NONE || ns <= slice_change_ns(s))
		return;
	context = &s->contexts[s->ended];
	if (context->left != s->free_at || context->demand != SLICE_FILLED ||
	    (context->is_stopped && context->stopped_at <= context->left))
		return;
	s->waited += ns;
	/* A single long one says little of the next. */
	s->tenants[context->tenant].beside.free += ns < LONGEST ? ns : LONGEST;
}

/*
 * Up to when it certainly had nothing to do since its last stay, or nearly so. Another one stayed
 * beyond its slice until then. Or, where several run together, another one had nothing to do and a
 * third one came on then: only those that wait before it in the engine's order are in its way.
 */
static uint64_t had_nothing_until(const struct rtxg_slice *s, const struct slice_context *context)
{
	uint64_t until = s->over_at > s->out_at ? s->over_at : s->out_at, dry = s->dry_at;

	if (s->tenants[context->tenant].beside.state != SLICE_BESIDE || s->ended == NONE)
		return until;
	/* It came on itself then. */
	if (dry == s->contexts[s->ended].left)
		dry = s->dry_before;
	return dry > until && dry <= context->left + LONGEST ? dry : until;
}

/*
 * What its coming and going costs the engine. Work that is not done yet is saved; one whose stays
 * its slices do not end has done its work when it leaves.
 */
static uint64_t costs_to_change(const struct rtxg_slice *s)
{
	if (s->ended == NONE || s->contexts[s->ended].cuts > CUT)
		return slice_change_ns(s);
	return 2 * s->params.restore_ns;
}

/* Is it kept waiting by those beside its turns for longer than they are due? */
static void note_held(struct slice_tenant *tenant, uint64_t ran, uint64_t lost)
{
	struct slice_beside *beside = &tenant->beside;

	beside->span += ran + lost;
	beside->lost += lost;
	if (beside->span < JUDGED_FOR)
		return;
	beside->held = beside->lost > slice_scaled(beside->span, due_to_others(tenant));
	beside->span = beside->lost = 0;
}

void slice_beside_started(struct rtxg_slice *s, struct slice_context *context, uint64_t at)
{
	struct slice_tenant *tenant = &s->tenants[context->tenant];
	struct slice_beside *beside = &tenant->beside;
	uint64_t off = slice_excess(at, context->left), pause, costs;

	note_free(s, at);
	if (waited_in_queue(s, context, at))
		context->waited_at = at;
	/* It was stopped, had the engine alone, or no other one was on it since. */
	if (!context->left || s->ended == (uint32_t)(context - s->contexts) ||
	    context->ran > LONGEST)
		return;
	if (beside->state == SLICE_APART) {
		pause = slice_excess(had_nothing_until(s, context), context->left);
		note_held(tenant, context->ran + pause, slice_excess(off, pause));
		return;
	}
	if (slice_was_cut(s, context, context->ran)) {
		beside->full++;
	} else if (context->ran < slice_or(context->slice, s->params.slice_mean_ns)) {
		beside->dry++;
		beside->full = 0;
	}
	costs = costs_to_change(s);
	pause = slice_excess(had_nothing_until(s, context), context->left);
	/* So many contexts of the others were in its way that it need not be tried for longer. */
	if (!pause && off > LONGEST)
		beside->full = FULL;
	/* Looks see longer ones by themselves, so others use most of those in a turn of its own. */
	if (pause > LONGEST && !beside->waits && !beside->idles)
		pause = slice_excess(2 * LONGEST, pause);
	pause = pause < LONGEST ? pause : LONGEST;
	off = off < LONGEST ? off : LONGEST;
	if (context->left >= s->set_at + SLICE_SETTLES) {
		beside->span += context->ran + off;
		beside->pauses += pause;
		if (slice_ran_out(s, context, context->ran))
			beside->pauses += context->ran - context->piece;
		beside->lost += off - pause;
		beside->costs += costs;
		beside->changes++;
	}
	if (!tenant->runs_beside || beside->state != SLICE_BESIDE)
		return;
	tenant->promise.wanted += context->ran + off - pause;
	slice_charge_change(s, context, slice_change_ns(s));
}

/* Can it run beside the turns of others at all? */
static bool can(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[id];
	uint32_t i;

	if (!tenant->used || tenant->params.latency_ns || slice_critical(tenant) ||
	    slice_by_the_clock(s, id))
		return false;
	for (i = 0; i < s->context_high; i++)
		if (s->contexts[i].used && s->contexts[i].tenant == id &&
		    !slice_stoppable(&s->contexts[i]))
			return false;
	return true;
}

static bool waits(const struct rtxg_slice *s, const struct slice_context *context)
{
	return context->waited_at && slice_excess(s->now, context->waited_at) < SLICE_GAPS_FOR;
}

/*
 * A piece of work that waits for the engine fills its queue, since the engine's host takes none of
 * it before it is there. One whose stays end with short pieces does not wait with more.
 */
static bool fills(const struct rtxg_slice *s, const struct slice_context *context)
{
	return !s->beside_slice || !context->piece || context->cuts > CUT;
}

/*
 * Has it shown of late that it fills its queues, and does not wait for anything else then? Or can
 * that not be told yet?
 */
static bool may_queue(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];

		if (!context->used || context->tenant != id || !context->active)
			continue;
		if (waits(s, context))
			continue;
		if ((fills(s, context) && (context->queued || context->pieces < SLICE_PIECES)) ||
		    (context->demand == SLICE_UNSEEN && s->params.can & RTXG_SLICE_CAN_DEMAND &&
		     slice_excess(s->now, context->added) < UNSEEN))
			return true;
	}
	return false;
}

static void look_how_it_waits(const struct rtxg_slice *s, struct slice_tenant *tenant)
{
	struct slice_beside *beside = &tenant->beside;
	uint64_t span = slice_excess(tenant->work, beside->free_from) + beside->free;

	if (span < JUDGED_FOR)
		return;
	if (beside->state != SLICE_BESIDE || beside->free * IDLES >= span)
		beside->idles = beside->free * IDLES >= span;
	beside->free = 0;
	beside->free_from = tenant->work;
}

static bool is_unseen(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++)
		if (s->contexts[i].used && s->contexts[i].tenant == id &&
		    s->contexts[i].demand == SLICE_UNSEEN)
			return true;
	return false;
}

/* Does it want more of the engine than it gets in its turns beside others? */
static bool wants_more(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t i;

	if (may_queue(s, id) || is_unseen(s, id) || s->tenants[id].beside.held)
		return true;
	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];

		if (context->used && context->tenant == id && context->cuts > CUT)
			return true;
	}
	return false;
}

/* Two or more tenants that leave the engine free for much of the time need not be tried. */
static void look_who_runs_together(struct rtxg_slice *s, bool apart)
{
	uint32_t idle = 0, i;

	if (slice_excess(s->now, s->waited_from) >= TOGETHER_IN) {
		s->idles = s->waited * TOGETHER >= slice_excess(s->now, s->waited_from);
		s->waited = 0;
		s->waited_from = s->now;
	}
	for (i = 0; i < s->tenant_high; i++) {
		look_how_it_waits(s, &s->tenants[i]);
		idle += s->tenants[i].beside.idles && can(s, i) ? 1 : 0;
	}
	if (!s->idles || idle < 2 || apart || !(s->params.can & RTXG_SLICE_CAN_SLICE))
		return;
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_beside *beside = &s->tenants[i].beside;

		if (beside->state == SLICE_BESIDE || !beside->idles || !can(s, i))
			continue;
		beside->state = SLICE_BESIDE;
		beside->at = s->now;
		judge_from_now(beside);
	}
}

/* What one context of it is due. */
static uint64_t due_of_one(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t contexts = 0, i;

	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];

		contexts += context->used && context->active && context->tenant == id ? 1 : 0;
	}
	return s->tenants[id].share_ppm / (contexts ? contexts : 1);
}

uint64_t slice_together(const struct rtxg_slice *s, const struct slice_context *context)
{
	uint64_t most = 0, slice;
	uint32_t together = 0, i;

	if (s->tenants[context->tenant].beside.state != SLICE_BESIDE)
		return 0;
	for (i = 0; i < s->tenant_high; i++) {
		if (!s->tenants[i].used || s->tenants[i].beside.state != SLICE_BESIDE)
			continue;
		together++;
		most = most > due_of_one(s, i) ? most : due_of_one(s, i);
	}
	if (together < 2 || !most)
		return 0;
	slice = s->params.slice_mean_ns * due_of_one(s, context->tenant) / most;
	return slice < SHORT ? SHORT : slice;
}

/* If it waited for longer than the others are due, it has a turn of its own for so long. */
static uint64_t alone_for(struct slice_tenant *tenant)
{
	struct slice_beside *beside = &tenant->beside;
	uint32_t others = due_to_others(tenant);
	uint64_t due = slice_scaled(beside->span, others), most = beside->span * ALONE_MOST, ns;

	if (beside->lost <= due + beside->saved) {
		beside->saved = beside->saved + due - beside->lost;
		beside->saved = beside->saved < SAVED_MOST ? beside->saved : SAVED_MOST;
		return 0;
	}
	ns = slice_unscaled(beside->lost - due - beside->saved, others);
	beside->saved = 0;
	return ns < most ? ns : most;
}

/*
 * Is more of the engine's time used than in a turn of its own? There it needs the engine for what
 * it did not wait for, and its pauses are a part of that. Beside others, change-overs are a part
 * of the whole. Both parts are multiplied by both lengths; `least` is a part more.
 */
static bool is_worth_while(const struct slice_beside *beside, uint64_t least)
{
	uint64_t alone = slice_excess(beside->span, beside->lost);

	return beside->pauses * beside->span >= alone * (beside->costs + least);
}

static void judge(struct rtxg_slice *s, struct slice_tenant *tenant)
{
	struct slice_beside *beside = &tenant->beside;

	/* Where others use its waits, only the ends of its stays tell that it still waits. */
	if (beside->state == SLICE_BESIDE && !beside->dry)
		beside->idles = false;
	if (beside->state == SLICE_BESIDE && is_worth_while(beside, 0)) {
		beside->again = 0;
	} else if (!beside->idles && !is_worth_while(beside, beside->span / WORTH)) {
		end(s, beside);
		return;
	}
	beside->state = SLICE_BESIDE;
	beside->alone = alone_for(tenant);
	judge_from_now(beside);
}

static void look_at_try(struct rtxg_slice *s, struct slice_tenant *tenant)
{
	struct slice_beside *beside = &tenant->beside;

	if (beside->state != SLICE_BESIDE && slice_excess(s->now, beside->at) > TRY_ENDS)
		beside->full = FULL;
	switch (beside->state) {
	case SLICE_APART:
		return;
	case SLICE_TRIED:
		if (beside->full >= FULL ||
		    beside->tried > (beside->waits ? DRY_WAITS : DRY_WITHIN)) {
			end(s, beside);
		} else if (beside->dry >= DRY) {
			beside->state = SLICE_TRIED_SHORT;
			judge_from_now(beside);
		}
		return;
	case SLICE_TRIED_SHORT:
		if (beside->span >= TRIED_FOR)
			judge(s, tenant);
		else if ((beside->changes >= NO_PAUSES && !beside->pauses) ||
			 beside->full >= FULL ||
			 beside->tried > (beside->waits ? TRIED_WAITS : TRIED_AT_MOST))
			end(s, beside);
		return;
	case SLICE_BESIDE:
		if (beside->span >= JUDGED_FOR)
			judge(s, tenant);
		return;
	}
}

static bool is_tried(const struct slice_tenant *tenant)
{
	return tenant->beside.state == SLICE_TRIED || tenant->beside.state == SLICE_TRIED_SHORT;
}

void slice_beside_forget(struct slice_tenant *tenant)
{
	tenant->runs_beside = false;
	tenant->beside = (struct slice_beside){ 0 };
}

void slice_beside_none(struct rtxg_slice *s)
{
	uint32_t i;

	s->beside_slice = 0;
	s->tried = NONE;
	for (i = 0; i < s->tenant_high; i++)
		if (s->tenants[i].beside.state != SLICE_APART)
			slice_beside_forget(&s->tenants[i]);
}

void slice_look_who_is_beside(struct rtxg_slice *s, slice_competes_fn competes)
{
	uint32_t competing = 0, tried = NONE, i;
	bool ran_beside, apart = false, wanted = false, trying = false;
	struct slice_beside *beside;

	for (i = 0; i < s->tenant_high; i++) {
		competing += competes(s, i) ? 1 : 0;
		/* Two that are enabled, with other slices, are more to be stopped for a bound. */
		apart = apart || (s->tenants[i].contexts &&
				  (slice_by_the_clock(s, i) || (s->tenants[i].params.latency_ns &&
								!slice_critical(&s->tenants[i]))));
	}
	look_who_runs_together(s, apart);
	for (i = 0; i < s->tenant_high; i++) {
		if (is_tried(&s->tenants[i]) && !is_unseen(s, i))
			tried = i;
		wanted = wanted || (s->tenants[i].beside.state != SLICE_BESIDE && competes(s, i) &&
				    wants_more(s, i));
	}
	s->beside_slice = 0;
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		beside = &tenant->beside;
		ran_beside = tenant->runs_beside;
		tenant->runs_beside = false;
		if (!tenant->used)
			continue;
		if (!tenant->contexts)
			slice_beside_forget(tenant);
		if (beside->state != SLICE_APART && (apart || !can(s, i)))
			end(s, beside);
		look_at_try(s, tenant);
		trying = trying || is_tried(tenant);
		if (beside->state >= SLICE_TRIED_SHORT &&
		    slice_excess(s->now, tenant->seen) < SLICE_GAPS_FOR)
			s->beside_slice = SHORT;
		if (tenant->lag > (int64_t)AHEAD)
			beside->ahead = true;
		else if (tenant->lag <= 0)
			beside->ahead = false;
		if (beside->ahead)
			beside->alone = 0;
		if (s->owner == i)
			beside->alone = slice_excess(beside->alone, s->past);
		else
			beside->tried += ran_beside ? s->past : 0;
		/*
		 * Nothing is gained by stopping it for those that have all they want. A try is of
		 * one alone: what others do beside it tells nothing.
		 */
		tenant->runs_beside = beside->state != SLICE_APART && !beside->alone &&
				      !(beside->ahead && wanted) && (tried == NONE || tried == i);
	}
	/* Its own slices are not short then: those would end its stays before its pauses do. */
	s->tried = s->beside_slice && tried != NONE && is_tried(&s->tenants[tried]) ? tried : NONE;
	if (s->owner == NONE || apart || trying || competing < 2 || !competes(s, s->owner) ||
	    !(s->params.can & RTXG_SLICE_CAN_SLICE) || !can(s, s->owner) || may_queue(s, s->owner))
		return;
	beside = &s->tenants[s->owner].beside;
	if (beside->state != SLICE_APART || s->now < beside->at)
		return;
	beside->state = SLICE_TRIED;
	beside->at = s->now;
	beside->waits = false;
	for (i = 0; i < s->context_high; i++)
		beside->waits |= s->contexts[i].used && s->contexts[i].tenant == s->owner &&
				 waits(s, &s->contexts[i]);
	judge_from_now(beside);
	s->tenants[s->owner].runs_beside = true;
}
