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
 * What it is due of each frame: its share, and a part of what it is behind or ahead. It may be more
 * of what it is behind, for what interrupts its turns takes from it alone. Those that have no place
 * may be due little for a while.
 */
static uint64_t due(const struct rtxg_slice *s, uint32_t id)
{
	const struct slice_tenant *tenant = &s->tenants[id];
	uint64_t length = slice_scaled(SLICE_FRAME, tenant->share_ppm);
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
	uint64_t phase = at % SLICE_FRAME, all = 0, end = 0;
	uint32_t i, any = NONE, turn = NONE;

	for (i = 0; i < s->tenant_high; i++)
		all += competes(s, i) ? due(s, i) : 0;
	all = all > SLICE_FRAME ? all : SLICE_FRAME;
	for (i = 0; i < s->tenant_high && turn == NONE; i++) {
		if (!slice_by_the_clock(s, i) || !competes(s, i))
			continue;
		any = i;
		end += due(s, i) * SLICE_FRAME / all;
		if (phase < end)
			turn = i;
	}
	*until = any == NONE ? NEVER
			     : at - phase + (end > phase && end < SLICE_FRAME ? end : SLICE_FRAME);
	return turn;
}
