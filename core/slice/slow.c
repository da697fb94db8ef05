// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * slow.c - a host whose calls of the driver take so long that turns of tenants cannot be kept: they
 * wait for the driver's lock, as while many programs start at once. A change-over then takes as
 * long as a whole round of turns.
 *
 * A tenant whose share is that of several contexts loses most by it, for the turns of all others
 * come before its own. It stays enabled, so that it has at least what the driver gives to each. And
 * who had more than its share by a change-over that was late is not forgiven that: others could use
 * it, and one with a large share would lose most of what it is owed with each such turn.
 *
 * All calls for the lock make the programs that start wait as well. So turns are longer, and slices
 * stay as they are. Making a context takes a little work on the engine again and again, and would
 * wait for a round of such turns each time. So a context has its first work without a turn.
 *
 * May not: stop a context or set a slice.
 */
#include "internal.h"

#define LATE_MIN    (20 * MS)  /* what the host comes late by in any case */
#define SLOW_FROM   (200 * MS) /* so late of late, and the host counts as slow */
#define SLOW_MOST   (800 * MS)
#define PASSES	    4u	       /* what was late is forgotten in so many times as long */
#define TURNS	    4u	       /* turns are longer by such a part of it */
#define AHEAD	    (250 * MS) /* a tenant may be of its share, for what stops it is late; */
#define STAYS_AHEAD (60 * MS)  /* and one that stays, which has enough beside the others */
#define FIRST_WORK  (10 * MS)  /* a context has before it takes part in turns */
#define MANY	    2u	       /* a share of so many contexts for each of its own */

void slice_came(struct rtxg_slice *s)
{
	uint64_t late = s->due == NEVER ? 0 : slice_excess(s->now, s->due);

	s->slow = slice_excess(s->slow, slice_excess(s->now, s->slow_at) / PASSES);
	s->slow_at = s->now;
	s->slow += late > LATE_MIN ? late : 0;
	s->slow = s->slow < SLOW_MOST ? s->slow : SLOW_MOST;
	if (s->slow >= SLOW_FROM)
		s->is_slow = true;
	else if (!s->slow)
		s->is_slow = false;
}

bool slice_is_slow(const struct rtxg_slice *s)
{
	return s->is_slow && s->plain;
}

uint64_t slice_turns_longer(const struct rtxg_slice *s)
{
	return slice_is_slow(s) ? s->slow / TURNS : 0;
}

bool slice_stays(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[id];
	uint32_t i, own = 0, all = 0;

	if (!slice_is_slow(s))
		return false;
	for (i = 0; i < s->context_high; i++) {
		if (!s->contexts[i].used || !s->contexts[i].active)
			continue;
		all++;
		own += s->contexts[i].tenant == id;
	}
	return own && slice_scaled(all, tenant->share_ppm) >= (uint64_t)MANY * own;
}

bool slice_begins(const struct rtxg_slice *s, const struct slice_context *context)
{
	return slice_is_slow(s) && context->worked < FIRST_WORK;
}

uint64_t slice_turns_late(const struct rtxg_slice *s, const struct slice_tenant *tenant)
{
	if (!slice_is_slow(s))
		return 0;
	return slice_stays(s, (uint32_t)(tenant - s->tenants)) ? STAYS_AHEAD : AHEAD;
}
