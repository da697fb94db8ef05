// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * batch.c - BATCH: tenants take turns, each of them alone on the engine, for so long that changing
 * over costs less than the driver's own slices do, and so short that a second's shares are kept.
 * The tenant that is furthest behind its share goes next.
 *
 * Nothing waits for a tenant that has nothing to do: it stays enabled, and the next one's turn
 * begins. If it has work again it runs beside that one, until the turn is half over; then it takes
 * the turn if it is behind. So gaps that come often cost no action each.
 *
 * A tenant that is on several GPUs has its turns by the clock (clock.c).
 *
 * Where the owner's work comes in steps that are alike, or its pauses are always long, the next one
 * is let go when the owner's work is about to end. The turn goes on meanwhile.
 *
 * A change-over lets the next one go before the one before is stopped. If it is not certain that
 * the next one has work, the one before is stopped only when the next has come onto the engine.
 *
 * While work of a tenant with a latency by arrival is there, all others are stopped. One whose
 * bound slices keep, and leave time for it, takes part in turns by the clock.
 *
 * May not: look at releases, or stop a latency-critical context.
 */
#include "internal.h"

#define QUANTUM_MIN (4 * MS)
#define QUANTUM_MAX (100 * MS)
#define ROUND	    (400 * MS) /* at most, until a tenant has its next turn */
#define BEHIND	    (15 * MS)  /* of its share: it goes before all that are not so far */
#define SLICES_FOR  (200 * MS) /* slices stay as they are for so long */
#define WAKE_MIN    (200 * US) /* between looks at a turn that is about to end */
#define EARLY	    (200 * US) /* so long before its work ends another one is there, */
#define EARLY_FOR   (6 * MS)   /* for so long if it does not end */
#define EARLY_AGAIN (20 * MS)  /* from one time to the next in a turn */

/* Does it take turns, and has it work? */
static bool competes(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[id];

	return tenant->used && tenant->present && tenant->wants && !tenant->capped &&
	       (!tenant->exempt || tenant->joins) && !tenant->runs_beside &&
	       !slice_critical(tenant);
}

/*
 * Where a tenant has a latency, or gaps, the shares of a second are off by more in any case: turns
 * are longer there, for each change-over costs the host most of a millisecond.
 */
static bool rough(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];

		if (context->used && context->active &&
		    (s->tenants[context->tenant].exempt ||
		     s->tenants[context->tenant].beside.state == SLICE_BESIDE ||
		     (context->gap_at && slice_excess(s->now, context->gap_at) < SLICE_GAPS_FOR)))
			return true;
	}
	return false;
}

/*
 * In a second a tenant's share is off by at most what it runs ahead or behind in a turn, which is
 * (1 - share) of the turn's length.
 */
static uint64_t quantum(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[id];
	uint64_t off = slice_scaled(1000 * MS, s->params.tolerance_ppm), length;

	if (tenant->params.quantum_ns)
		return tenant->params.quantum_ns;
	if (rough(s))
		off *= SLICE_ROUGH;
	length = tenant->share_ppm >= PPM ? QUANTUM_MAX
					  : slice_unscaled(off, PPM - tenant->share_ppm);
	/* Of small shares each would be ahead by a whole turn, and a large one behind by all. */
	if (length > slice_scaled(ROUND, tenant->share_ppm))
		length = slice_scaled(ROUND, tenant->share_ppm);
	length = length < QUANTUM_MIN ? QUANTUM_MIN : length > QUANTUM_MAX ? QUANTUM_MAX : length;
	return length + slice_turns_longer(s);
}

/*
 * In virtual time small shares are behind soon, so a large one waits for the turns of all of them.
 * Where it is behind by so much that a second would be off by points, it goes first.
 */
static bool goes_before(const struct rtxg_slice *s, const struct slice_tenant *a,
			const struct slice_tenant *b)
{
	if (s->plain && (a->lag < -(int64_t)BEHIND || b->lag < -(int64_t)BEHIND))
		return a->lag < b->lag;
	return a->vtime < b->vtime;
}

/* Of those that have their turns by the clock, or of the others. */
static uint32_t furthest_behind(const struct rtxg_slice *s, bool clock)
{
	uint32_t best = NONE, i;

	for (i = 0; i < s->tenant_high; i++)
		if (competes(s, i) && slice_by_the_clock(s, i) == clock &&
		    (best == NONE || goes_before(s, &s->tenants[i], &s->tenants[best])))
			best = i;
	return best;
}

static void begin(struct rtxg_slice *s, uint32_t id)
{
	s->early = NONE;
	s->early_at = 0;
	if (id != s->owner)
		s->leaving = s->owner;
	s->owner = id;
	s->owner_since = s->now;
	s->owner_work = id == NONE ? 0 : s->tenants[id].work;
}

/* Has it shown, since it was let go, that it has work? If that is certain it need not. */
static bool shown(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];

		if (!context->used || context->tenant != id || !context->wants)
			continue;
		if (context->demand == SLICE_FILLED || (context->is_stopped && context->cut) ||
		    (!context->is_stopped && (!context->fresh || context->cut)))
			return true;
	}
	return false;
}

/*
 * A context whose queues cannot be seen, and that does not come onto an engine that it may have, as
 * far as the log has been read.
 */
static void look_for_idle_ones(struct rtxg_slice *s)
{
	uint64_t most = slice_patience(s);
	uint32_t i;

	for (i = 0; i < s->context_high; i++) {
		struct slice_context *context = &s->contexts[i];

		if (!context->used || context->tenant != s->owner || !context->active ||
		    context->demand != SLICE_UNSEEN || !context->fresh || context->since ||
		    context->is_stopped || slice_excess(s->now, context->seen) <= most)
			continue;
		if (slice_excess(s->read, context->seen) > most)
			slice_set_active(s, context, false);
		else
			slice_wake_at(s, s->now);
	}
}

/*
 * A tenant with a latency that has had its share, and has had work for longer than a burst, leaves
 * their places to those that have turns by the clock: slice by slice beside it they would not run
 * at the same time on all of their GPUs. Its bound is kept, for it is let go in time. One that
 * works in bursts is not stopped. Where it is on several GPUs itself it takes such a place for its
 * own sake.
 */
static void look_who_joins(struct rtxg_slice *s)
{
	bool clock = false;
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		clock = clock || (competes(s, i) && slice_by_the_clock(s, i));
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		tenant->joins = slice_keeps_place(s, i) ||
				(tenant->exempt && tenant->spare && tenant->level &&
				 (slice_by_the_clock(s, i) || (clock && slice_is_steady(s, i))));
	}
}

static void choose_owner(struct rtxg_slice *s, uint32_t *competing)
{
	uint64_t used, length, ran;
	uint32_t clocked, next, i;

	*competing = 0;
	for (i = 0; i < s->tenant_high; i++)
		*competing += competes(s, i) ? 1 : 0;
	/* The one that the clock names; else the furthest behind, even if its place is over. */
	clocked = slice_clock_turn(s, s->now, competes, &s->owner_until);
	next = clocked != NONE ? clocked : furthest_behind(s, false);
	if (next == NONE)
		next = furthest_behind(s, true);
	if (s->owner != NONE && !competes(s, s->owner)) {
		begin(s, next);
		/* It has nothing to do, so there is no need to keep it enabled, nor to stop it. */
		s->leaving = NONE;
	}
	if (s->owner == NONE || next == NONE || slice_by_the_clock(s, next) ||
	    slice_by_the_clock(s, s->owner)) {
		if (next != s->owner)
			begin(s, next);
	} else {
		used = slice_excess(s->tenants[s->owner].work, s->owner_work);
		ran = slice_excess(s->now, s->owner_since);
		length = quantum(s, s->owner);
		if (used >= length || ran >= 4 * length)
			begin(s, next);
		else if (next != s->owner && ran >= length / 2 && !s->tenants[next].waited &&
			 s->tenants[next].lag + (int64_t)s->params.lag_ns <
				 s->tenants[s->owner].lag)
			begin(s, next); /* it woke up, and is owed more */
	}
	if (s->leaving != NONE && (s->leaving == s->owner || s->owner == NONE ||
				   !competes(s, s->leaving) || shown(s, s->owner)))
		s->leaving = NONE;
}

static void wake_in(struct rtxg_slice *s, uint64_t ns)
{
	uint64_t at = s->now + (ns < WAKE_MIN ? WAKE_MIN : ns);

	slice_wake_at(s, at);
}

static void wake_for_turn(struct rtxg_slice *s, uint32_t competing)
{
	uint64_t used, length;

	if (competing < 2 || s->owner == NONE)
		return;
	used = slice_excess(s->tenants[s->owner].work, s->owner_work);
	length = quantum(s, s->owner);
	if (!slice_by_the_clock(s, s->owner))
		wake_in(s, slice_excess(length, used));
	if (s->owner_until != NEVER)
		wake_in(s, slice_excess(s->owner_until, s->now));
	if (s->leaving != NONE)
		wake_in(s, s->params.tick_ns / 2);
}

/*
 * Since when work of it may have waited: since it had none, or since it was on the engine, as far
 * as the log has been read.
 */
static uint64_t waits_since(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[id];
	bool on = s->holder != NONE && s->contexts[s->holder].tenant == id;
	uint64_t seen = on ? s->read : tenant->seen;

	return tenant->busy && tenant->busy > seen ? tenant->busy : seen;
}

/*
 * Does it stand still in the turns of those, too, that have none by the clock? So it does on all of
 * its GPUs at the same time. Where its bound leaves less than all turns of others take, and another
 * one has turns by the clock, that is for those.
 */
static bool stands_aside(const struct rtxg_slice *s, uint32_t id)
{
	uint32_t i;

	if (!slice_by_the_clock(s, id))
		return false;
	if (s->tenants[id].spare >= slice_clock_away(s, id))
		return true;
	for (i = 0; i < s->tenant_high; i++)
		if (i != id && slice_by_the_clock(s, i) && competes(s, i))
			return false;
	return true;
}

/* One that has stood still for as long as its bound lets it does not do so again in that place. */
static bool in_anothers_place(const struct rtxg_slice *s, uint32_t id)
{
	if (!s->tenants[id].joined || s->owner == NONE || s->owner == id)
		return false;
	return stands_aside(s, id) || slice_by_the_clock(s, s->owner);
}

/* May this tenant that wants the engine run now although it is another one's turn? */
static bool beside_the_turn(struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[id];

	if (id == s->owner || s->owner == NONE || id == s->early || tenant->runs_beside)
		return true;
	if (slice_stays(s, id))
		return true;
	/* It waits first for the engine, and is stopped then, where it has waited for too long. */
	if (tenant->joins)
		return (!slice_by_the_clock(s, s->owner) && !stands_aside(s, id)) ||
		       s->now >= slice_or(tenant->joined, waits_since(s, id)) + tenant->spare;
	if (id == s->leaving)
		return true;
	/* Alone it would wait for what it has on other GPUs. */
	if (slice_by_the_clock(s, id))
		return false;
	/* It woke up and is behind: it runs along until it may take the turn. */
	return !tenant->waited &&
	       tenant->lag + (int64_t)s->params.lag_ns < s->tenants[s->owner].lag;
}

/*
 * All that the owner has to do is about to end, so the next one is let go beside it already: that
 * takes the driver longer than a change-over, and the engine would be idle meanwhile. It is not
 * done where one runs beside the owner already, for slices are set for two of them
 * (most_enabled()). One that wakes up afterwards runs beside both until the step ends, as it does
 * in a change-over.
 */
static void look_who_is_early(struct rtxg_slice *s)
{
	uint64_t left = 0, one, ahead = s->params.resume_ns + s->params.restore_ns + EARLY;
	uint32_t i;

	if (s->early != NONE && competes(s, s->early)) {
		if (s->plain && s->now >= s->early_at + EARLY_FOR)
			s->early = NONE;
		else if (s->plain)
			slice_wake_unread(s, s->early_at + EARLY_FOR);
		return;
	}
	s->early = NONE;
	/* Its work did not end when it was to. */
	if (s->plain && s->early_at && s->now < s->early_at + EARLY_AGAIN)
		return;
	if (s->owner == NONE || s->leaving != NONE || slice_by_the_clock(s, s->owner))
		return;
	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];

		if (!context->used || context->tenant != s->owner || !context->wants)
			continue;
		one = slice_step_left(s, context);
		left = one > left ? one : left;
	}
	if (left > ahead) {
		if (left != NEVER)
			slice_wake_at(s, s->now + left - ahead);
		return;
	}
	for (i = 0; i < s->tenant_high; i++) {
		if (i == s->owner || !competes(s, i) || s->tenants[i].joins ||
		    slice_by_the_clock(s, i))
			continue;
		if (beside_the_turn(s, i)) {
			s->early = NONE;
			return;
		}
		if (s->early == NONE || s->tenants[i].vtime < s->tenants[s->early].vtime)
			s->early = i;
	}
	s->early_at = s->early == NONE ? 0 : s->now;
	for (i = 0; i < s->context_high && s->early != NONE; i++)
		if (s->contexts[i].used && s->contexts[i].tenant == s->owner)
			s->contexts[i].ending = true;
}

/*
 * How many contexts may be enabled beside tenants with a latency: those of one tenant, of two in a
 * change-over, and of all that run beside the turns of others. Slices do not follow each
 * change-over, for setting them costs more.
 */
static uint32_t most_enabled(const struct rtxg_slice *s)
{
	uint32_t i, k, n, most = 0, second = 0, beside = 0;

	for (i = 0; i < s->tenant_high; i++) {
		if (!s->tenants[i].present || s->tenants[i].exempt)
			continue;
		for (k = n = 0; k < s->context_high; k++)
			n += s->contexts[k].used && s->contexts[k].active &&
			     s->contexts[k].tenant == i;
		if (s->tenants[i].beside.state != SLICE_APART) {
			beside += n;
		} else if (n > most) {
			second = most;
			most = n;
		} else if (n > second) {
			second = n;
		}
	}
	return most + second + beside;
}

/* A change of less than a quarter is not worth a call. */
static uint64_t kept(uint64_t old, uint64_t slice)
{
	uint64_t change = slice > old ? slice - old : old - slice;

	return old && change <= old / 4 ? old : slice;
}

/* Are its slices longer than the bounds of the others allow? */
static bool longer_than_it_may(const struct rtxg_slice *s, const struct slice_context *context)
{
	const struct slice_tenant *tenant = &s->tenants[context->tenant];

	return tenant->exempt &&
	       slice_or(context->want_slice, s->params.slice_mean_ns) > tenant->most_slice;
}

static bool too_long(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++)
		if (s->contexts[i].used && longer_than_it_may(s, &s->contexts[i]))
			return true;
	return false;
}

/* Are its slices short, for those that have pauses and run beside its turns? */
static bool is_cut_short(const struct rtxg_slice *s, const struct slice_tenant *tenant)
{
	return s->beside_slice && !tenant->exempt && !slice_critical(tenant) &&
	       tenant->beside.state < SLICE_TRIED_SHORT &&
	       (s->tried == NONE || tenant != &s->tenants[s->tried]);
}

/*
 * The hardware saves what it cuts, so a stay that is cut lasts a little longer than its slice. So
 * may one that ends with a piece of work of that length. A longer slice tells them apart.
 */
static uint64_t clear_of_piece(const struct rtxg_slice *s, const struct slice_context *context,
			       uint64_t slice)
{
	if (context->piece < slice - slice / 16 ||
	    context->piece > slice + slice / 16 + s->params.save_ns)
		return slice;
	return context->piece + context->piece / 4;
}

/*
 * Who is there changes from one moment to the next, and with it the share of each. Setting a slice
 * costs most of all actions, so they follow now and then, and at once only if a bound needs it.
 */
static void set_slices(struct rtxg_slice *s)
{
	uint64_t slice, own;
	uint32_t i, n;

	if (!(s->params.can & RTXG_SLICE_CAN_SLICE) || slice_is_slow(s))
		return;
	n = most_enabled(s);
	slice = slice_latency_slice(s, n);
	if (s->now < s->slices_at && slice_longest_beside(s, n) >= s->slice_of_others &&
	    !too_long(s) && (s->beside_set || !s->beside_slice) &&
	    (s->tried == NONE || s->tried == s->tried_set))
		return;
	s->slices_at = s->now + SLICES_FOR;
	s->beside_set = s->beside_slice;
	s->tried_set = s->tried;
	s->slice_of_others = kept(s->slice_of_others, slice);
	for (i = 0; i < s->context_high; i++) {
		struct slice_context *context = &s->contexts[i];

		if (!context->used)
			continue;
		/* The driver's own slice will do: nothing is set unless something else was. */
		own = slice_or(slice_beside_others(s, &s->tenants[context->tenant], n),
			       slice_together(s, context));
		if (own)
			context->want_slice = kept(context->want_slice, own);
		else if (context->slice || s->slice_of_others != s->params.slice_mean_ns)
			context->want_slice = s->slice_of_others;
		else
			context->want_slice = 0;
		if (longer_than_it_may(s, context))
			context->want_slice = s->tenants[context->tenant].most_slice;
		if (is_cut_short(s, &s->tenants[context->tenant]))
			context->want_slice = clear_of_piece(s, context, s->beside_slice);
	}
}

void slice_plan_batch(struct rtxg_slice *s)
{
	bool arrival = slice_arrival(s);
	uint32_t i, competing = 0;

	s->turn = s->yield = NONE;
	if (arrival) {
		s->early = NONE;
		/* The turn goes on afterwards. The one before need not be there for it again. */
		s->leaving = NONE;
		s->owner_since += slice_excess(s->now, s->arrival_at);
	} else {
		look_for_idle_ones(s);
		look_who_joins(s);
		if (slice_is_slow(s)) /* each trial costs calls that others wait for */
			slice_beside_none(s);
		else
			slice_look_who_is_beside(s, competes);
		choose_owner(s, &competing);
		look_who_is_early(s);
	}
	s->arrival_at = s->now;
	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		if (!tenant->used)
			continue;
		if (slice_critical(tenant) || (tenant->exempt && !(tenant->joins && !arrival))) {
			tenant->held = tenant->waited = false;
		} else if (tenant->capped || arrival) {
			tenant->held = true;
		} else {
			tenant->held = competing >= 2 && tenant->wants && !beside_the_turn(s, i);
			tenant->waited = tenant->held || i == s->early;
		}
		if (!tenant->held && !in_anothers_place(s, i))
			tenant->joined = 0;
		else if (!tenant->joined)
			tenant->joined = waits_since(s, i);
		if (tenant->held && tenant->joins)
			slice_wake_unread(s, tenant->joined + tenant->spare > s->now
						     ? tenant->joined + tenant->spare
						     : s->now + WAKE_MIN);
	}
	for (i = 0; i < s->context_high; i++) {
		struct slice_context *context = &s->contexts[i];

		if (context->used)
			context->want_stop = s->tenants[context->tenant].held &&
					     (context->active || context->is_stopped) &&
					     !slice_begins(s, context);
	}
	set_slices(s);
	if (!arrival)
		wake_for_turn(s, competing);
}
