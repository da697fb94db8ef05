// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * clock.c - turns by the clock: a tenant that is on several GPUs has its turn at the same place of
 * each frame of the clock that all GPUs share, so that its processes run at the same time and need
 * not wait for each other. The rest of the frame is the others'.
 *
 * May not: stop a context or set a slice.
 */
#include "internal.h"

/* With a shorter bound none may be stopped for SLICE_SPARE_MIN, even beside one context alone. */
#define BOUND_MIN   (12 * MS)
#define JOINS_AFTER (2 * SLICE_FRAME) /* work for so long is no burst */
#define PLACE_LAG   (100 * MS)	      /* one that is further behind needs more than its place */
#define PASSED_OVER (100 * MS)	      /* one that is far ahead waits no longer for its next turn */

bool slice_by_the_clock(const struct rtxg_slice *s, uint32_t id)
{
	return s->tenants[id].coupled && !s->tenants[id].params.quantum_ns;
}

/*
 * A tenant with a bound may be kept off for two fifths of that in each frame: its change-overs
 * need the rest. The longest frame that allows it has the fewest of them. What is reserved tells,
 * for that is the same on all GPUs: so is the frame.
 */
static uint64_t frame_of(const struct rtxg_slice *s)
{
	uint64_t frame = SLICE_FRAME;
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		const struct rtxg_slice_tenant *params = &s->tenants[i].params;
		uint64_t away = params->latency_ns / 5 * 2, longest;

		if (!s->tenants[i].used || slice_critical(&s->tenants[i]) ||
		    !slice_by_the_clock(s, i) || params->latency_ns < BOUND_MIN ||
		    params->min_ppm >= PPM || away >= frame)
			continue;
		longest = away * PPM / (PPM - params->min_ppm);
		if (longest < frame)
			frame = longest;
	}
	return frame < SLICE_FRAME / 4 ? SLICE_FRAME / 4 : frame;
}

uint64_t slice_clock_away(const struct rtxg_slice *s, uint32_t id)
{
	return slice_scaled(frame_of(s), PPM - s->tenants[id].share_ppm);
}

uint64_t slice_clock_place(const struct rtxg_slice *s, uint32_t id)
{
	return slice_scaled(frame_of(s), s->tenants[id].params.min_ppm);
}

/* Far ahead, and on the engine of late: it can wait. */
static bool passed_over(const struct rtxg_slice *s, const struct slice_tenant *tenant)
{
	return tenant->lag > (int64_t)SLICE_FRAME &&
	       slice_excess(s->now, tenant->seen) < PASSED_OVER;
}

/*
 * What it is due of each frame: its share, and a part of what it is behind or ahead. It may be more
 * of what it is behind, for what interrupts its turns takes from it alone. Those that have no place
 * may be due little for a while, or nothing where they are far ahead: each of their turns lasts for
 * the calls that end it, too.
 */
static uint64_t due(const struct rtxg_slice *s, uint32_t id, uint64_t frame)
{
	const struct slice_tenant *tenant = &s->tenants[id];
	uint64_t length = slice_scaled(frame, tenant->share_ppm);
	int64_t ahead = (int64_t)length / 8, behind = -(int64_t)length / 4, lag = tenant->lag;

	if (!slice_by_the_clock(s, id))
		ahead = passed_over(s, tenant) ? (int64_t)length : (int64_t)length * 3 / 4;

	return length - (uint64_t)(lag > ahead ? ahead : lag < behind ? behind : lag);
}

/*
 * Who has a place that is the same on all GPUs, whether it competes here or not: all GPUs that have
 * these tenants are told the same of them.
 */
static bool has_place(const struct rtxg_slice *s, uint32_t id)
{
	return s->tenants[id].used && !slice_critical(&s->tenants[id]) && slice_by_the_clock(s, id);
}

/* Has it its share slice by slice in the turns of others, which are so much longer? */
static bool works_in_turns(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[id];

	return tenant->exempt && tenant->wants && tenant->level && !tenant->joins;
}

/* A tenant's turn, as times of the frame. */
struct place {
	uint32_t id;
	uint64_t begin, end;
};

/* Is it time for that place? *until: not beyond its begin, or when it ends. */
static bool is_in(const struct place *place, uint64_t phase, uint64_t *until)
{
	if (place->id == NONE || phase >= place->end)
		return false;
	if (phase >= place->begin)
		*until = place->end;
	else if (place->begin < *until)
		*until = place->begin;
	return phase >= place->begin;
}

/*
 * What is reserved for a tenant is at the same place of the frame on all GPUs, also where other
 * tenants are on some of them. The first tenant's begins with the frame, and the last one's ends
 * with it. Between them all is left that is not reserved, in equal parts. What a tenant is due
 * beyond its reservation is next to that: before it for the last one, else after it. The rest is
 * the others'.
 */
uint32_t slice_clock_turn(const struct rtxg_slice *s, uint64_t at, slice_competes_fn competes,
			  uint64_t *until)
{
	uint64_t frame = frame_of(s), phase = at % frame, all = 0, reserved = 0, begin = 0, most;
	uint64_t turns = frame;
	struct place last = { .id = NONE };
	uint32_t i, n = 0, k = 0, turn = NONE;

	*until = NEVER;
	for (i = 0; i < s->tenant_high; i++) {
		all += competes(s, i) ? due(s, i, frame) : 0;
		if (works_in_turns(s, i))
			turns = slice_excess(turns, slice_scaled(frame, s->tenants[i].share_ppm));
		if (!has_place(s, i))
			continue;
		n++;
		reserved += slice_scaled(frame, s->tenants[i].params.min_ppm);
	}
	/* Before the first plan no share is known. */
	all = slice_or(all > turns ? all : turns, 1);
	most = reserved > frame ? reserved : frame;
	for (i = 0; i < s->tenant_high && turn == NONE; i++) {
		struct place place = { .id = i, .begin = begin };
		uint64_t own;

		if (!has_place(s, i))
			continue;
		own = slice_scaled(frame, s->tenants[i].params.min_ppm) * frame / most;
		k++;
		if (k == n && n > 1)
			place.begin = frame - own;
		begin += own + (n > 1 ? (most - reserved) / (n - 1) : 0);
		if (!competes(s, i))
			continue;
		own = due(s, i, frame) * frame / all;
		if (*until == NEVER)
			*until = frame;
		if (last.id != NONE && last.end > place.begin)
			last.end = place.begin;
		if (k == n && n > 1) {
			place.begin = frame - own;
			if (last.id != NONE && last.end > place.begin)
				place.begin = last.end;
			place.end = frame;
		} else {
			place.end = place.begin + own;
		}
		if (is_in(&last, phase, until))
			turn = last.id;
		last = place;
	}
	if (turn == NONE && is_in(&last, phase, until))
		turn = last.id;
	if (*until != NEVER)
		*until += at - phase;
	return turn;
}

bool slice_is_steady(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[id];

	return tenant->busy && slice_excess(s->now, tenant->busy) >= JOINS_AFTER;
}

/*
 * One on several GPUs that always has work has its share from the clock, also while it is behind:
 * another one like it is not stopped for it, and slice by slice beside that one it would get half
 * of its work done, and fall behind further. Far behind it has not got its share so: others with a
 * bound work in its place, who stand still in none. Where turns are not the clock's it has none.
 */
bool slice_keeps_place(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[id];

	return !s->turns && s->mode != RTXG_SLICE_MODE_SPREAD && tenant->exempt && tenant->spare &&
	       tenant->lag >= -(int64_t)PLACE_LAG && slice_by_the_clock(s, id) &&
	       slice_is_steady(s, id);
}
