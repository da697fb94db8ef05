// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * clock.c - turns by the clock: a tenant that is on several GPUs has its turn at the same place of
 * each frame of the clock that all GPUs share, so that its processes run at the same time and need
 * not wait for each other. The rest of the frame is the others'.
 *
 * May not: stop a context or set a slice.
 */
#include "internal.h"

bool slice_by_the_clock(const struct rtxg_slice *s, uint32_t id)
{
	return s->tenants[id].coupled && !s->tenants[id].params.quantum_ns;
}

/*
 * May the frames be as short as bounds want them, and does who has a bound take its place in them
 * for its own sake? Not where one has turns by the clock without a bound: short turns beside many
 * contexts would cost it its work. All GPUs that have these tenants are told the same of them, so
 * they answer alike, whatever else there is on each.
 */
bool slice_clock_for_bounds(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		if (s->tenants[i].used && !slice_critical(&s->tenants[i]) &&
		    slice_by_the_clock(s, i) && !s->tenants[i].params.latency_ns)
			return false;
	return true;
}

/* A tenant with a bound may be kept off for half of that in each frame. */
static uint64_t frame_of(const struct rtxg_slice *s)
{
	uint64_t frame = SLICE_FRAME;
	uint32_t i;

	for (i = 0; i < s->tenant_high && s->clock_for_bounds; i++) {
		const struct rtxg_slice_tenant *params = &s->tenants[i].params;

		if (!s->tenants[i].used || slice_critical(&s->tenants[i]) ||
		    !slice_by_the_clock(s, i) || params->latency_ns < SLICE_SPARE_MIN)
			continue;
		while (frame > SLICE_FRAME / 4 &&
		       slice_scaled(frame, PPM - params->min_ppm) > params->latency_ns / 2)
			frame /= 2;
	}
	return frame;
}

/*
 * What it is due of each frame: its share, and a part of what it is behind or ahead. It may be more
 * of what it is behind, for what interrupts its turns takes from it alone. Those that have no place
 * may be due little for a while.
 */
static uint64_t due(const struct rtxg_slice *s, uint32_t id, uint64_t frame)
{
	const struct slice_tenant *tenant = &s->tenants[id];
	uint64_t length = slice_scaled(frame, tenant->share_ppm);
	int64_t ahead = (int64_t)length / 8, behind = -(int64_t)length / 4, lag = tenant->lag;

	if (!slice_by_the_clock(s, id))
		ahead = (int64_t)length * 3 / 4;

	return length - (uint64_t)(lag > ahead ? ahead : lag < behind ? behind : lag);
}

/*
 * Their places follow each other from the begin of the frame, so that one tenant's is the same on
 * all GPUs where the shares are. They leave the others what these are due.
 */
uint32_t slice_clock_turn(const struct rtxg_slice *s, uint64_t at, slice_competes_fn competes,
			  uint64_t *until)
{
	uint64_t frame = frame_of(s), phase = at % frame, all = 0, end = 0;
	uint32_t i, any = NONE, turn = NONE;

	for (i = 0; i < s->tenant_high; i++)
		all += competes(s, i) ? due(s, i, frame) : 0;
	all = all > frame ? all : frame;
	for (i = 0; i < s->tenant_high && turn == NONE; i++) {
		if (!slice_by_the_clock(s, i) || !competes(s, i))
			continue;
		any = i;
		end += due(s, i, frame) * frame / all;
		if (phase < end)
			turn = i;
	}
	*until = any == NONE ? NEVER : at - phase + (end > phase && end < frame ? end : frame);
	return turn;
}
