// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * ceiling.c - threads that may work for any of several tasks. See rtxg_cpu_ceiling.h. May not: know
 * a thread, or set one.
 */
#include "rtxg_cpu_ceiling.h"

/* As Linux counts: priorities of real-time tasks are below, DEADLINE's with them. */
#define ORDINARY 99

uint32_t rtxg_ceiling_join(uint32_t a, uint32_t b)
{
	uint32_t higher = a > b ? a : b;

	return higher < RTXG_SERVE_MAX ? higher : RTXG_SERVE_MAX;
}

uint32_t rtxg_ceiling_with(uint32_t so_far, int32_t prio)
{
	return rtxg_ceiling_join(so_far, prio < ORDINARY ? rtxg_serve_priority(prio) : 0);
}

static bool real_time(const struct rtxg_ceiling_setting *setting)
{
	return (setting->policy == RTXG_CEILING_FIFO || setting->policy == RTXG_CEILING_RR) &&
	       setting->priority;
}

static bool same(const struct rtxg_ceiling_setting *a, const struct rtxg_ceiling_setting *b)
{
	return a->policy == b->policy && a->priority == b->priority;
}

bool rtxg_ceiling_look(struct rtxg_ceiling_thread *thread, uint32_t ceiling,
		       const struct rtxg_ceiling_setting *now, struct rtxg_ceiling_setting *wanted)
{
	if (!thread->raised.priority || !same(&thread->raised, now))
		*thread = (struct rtxg_ceiling_thread){ .own = *now };
	if (!real_time(&thread->own) && thread->own.policy != RTXG_CEILING_ORDINARY)
		return false;
	*wanted = thread->own;
	/* Its own may be above all that a ceiling may be. */
	ceiling = rtxg_ceiling_join(ceiling, 0);
	if (ceiling > thread->own.priority) {
		wanted->priority = ceiling;
		if (!real_time(&thread->own))
			wanted->policy = RTXG_CEILING_FIFO;
	}
	return !same(wanted, now);
}

uint32_t rtxg_ceiling_noted(const struct rtxg_ceiling_thread *thread,
			    const struct rtxg_ceiling_setting *wanted)
{
	return rtxg_ceiling_join(thread->raised.priority, wanted->priority);
}

void rtxg_ceiling_set(struct rtxg_ceiling_thread *thread,
		      const struct rtxg_ceiling_setting *setting)
{
	thread->raised =
		same(setting, &thread->own) ? (struct rtxg_ceiling_setting){ 0 } : *setting;
}

bool rtxg_ceiling_left(uint32_t own, uint32_t raised, const struct rtxg_ceiling_setting *now)
{
	return real_time(now) && now->priority > own && now->priority <= raised;
}
