/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * permit_lane.c - one lane: its permit word, and what the machine remembers of it. See
 * permit_lane.h. May not: speak to the core.
 */
#include "permit_lane.h"
#include "words.h"

void permit_lane_write(struct permit_lane *lane, uint32_t flags)
{
	uint32_t bits = RTXG_PERMIT_GRANTED;

	if (lane->burst.on)
		flags = 0;
	if (flags & RTXG_GRANT_ONESHOT)
		bits |= RTXG_PERMIT_ONESHOT;
	if (flags & RTXG_GRANT_REPORT)
		bits |= RTXG_PERMIT_REPORT;
	permit_store(&words(lane)->permit, lane->sequence << RTXG_PERMIT_SEQ_SHIFT | bits);
}

void permit_lane_give(struct permit_machine *m, struct permit_lane *lane)
{
	lane->sequence++;
	permit_lane_write(lane, lane->flags);
	/* A client that sets want after this sees the permit: both sides are in one order. */
	if (permit_load(&words(lane)->want))
		m->ops->wake(m->host, lane->task, lane->engine);
}

void permit_lane_take(struct permit_machine *m, struct permit_lane *lane)
{
	permit_store(&words(lane)->permit, lane->sequence << RTXG_PERMIT_SEQ_SHIFT);
	if (permit_load(&words(lane)->watch))
		m->ops->wake(m->host, lane->task, lane->engine);
}

void permit_arm(struct permit_machine *m)
{
	uint64_t at = m->core_ns < m->look_ns ? m->core_ns : m->look_ns;

	if (at == m->armed_ns)
		return;
	m->armed_ns = at;
	m->ops->arm(m->host, at);
}

void permit_burst_start(struct permit_machine *m, struct permit_lane *lane)
{
	lane->burst_next = m->bursts;
	m->bursts = lane;
	if (m->look_ns == RTXG_TIME_NEVER)
		m->look_ns = now(m) + BURST_LOOK_NS;
	permit_arm(m);
}

void permit_burst_stop(struct permit_machine *m, struct permit_lane *lane)
{
	struct permit_lane **at = &m->bursts;

	if (!lane->burst.on)
		return;
	lane->burst.on = false;
	while (*at && *at != lane)
		at = &(*at)->burst_next;
	if (*at)
		*at = lane->burst_next;
	if (!m->bursts) {
		m->look_ns = RTXG_TIME_NEVER;
		permit_arm(m);
	}
}

void permit_lane_set(struct permit_machine *m, struct permit_lane *lane, enum permit_state state)
{
	struct permit_use *use = &lane->task->account->engines[lane->engine];
	bool was = lane->state == PERMIT_WAITING, is = state == PERMIT_WAITING;

	if (state != PERMIT_HELD)
		permit_burst_stop(m, lane);
	lane->state = (uint8_t)state;
	if (was == is)
		return;
	if (is) {
		if (!use->waiting++)
			use->waiting_since = now(m);
	} else if (!--use->waiting) {
		use->active_ns += now(m) - use->waiting_since;
	}
}

/* In this order, as page.h says why. */
uint32_t permit_lane_in_flight(struct permit_machine *m, const struct permit_lane *lane)
{
	struct rtxg_lane *p = words(lane);
	uint32_t count = permit_load(&p->in_flight);
	uint64_t value;

	if (!count || !m->ops->passed)
		return count;
	permit_barrier();
	if (permit_load(&p->fenced) != count)
		return count;
	permit_barrier();
	value = permit_load(&p->fence);
	permit_barrier();
	return m->ops->passed(m->host, lane->task, lane->engine, value) ? 0 : count;
}

void permit_look_queue(struct permit_machine *m, struct permit_lane *lane)
{
	if (lane->queued)
		return;
	lane->queued = true;
	lane->look_next = NULL;
	*m->looks_end = lane;
	m->looks_end = &lane->look_next;
}

void permit_look_unqueue(struct permit_machine *m, struct permit_lane *lane)
{
	struct permit_lane **at = &m->looks;

	if (!lane->queued)
		return;
	while (*at != lane)
		at = &(*at)->look_next;
	*at = lane->look_next;
	if (!*at)
		m->looks_end = at;
	lane->queued = false;
}
