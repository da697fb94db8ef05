// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * inherit.c - threads that keep others waiting for a GPU. See rtxg_cpu_inherit.h. May not: know a
 * thread, or set one.
 */
#include "rtxg_cpu_inherit.h"

static bool same(const struct rtxg_inherit_setting *a, const struct rtxg_inherit_setting *b)
{
	return a->priority == b->priority && a->reset == b->reset;
}

struct rtxg_inherit_setting rtxg_inherit_own(const struct rtxg_inherit_thread *thread,
					     const struct rtxg_inherit_setting *now)
{
	struct rtxg_inherit_setting own = *now;

	/* What it became by a right that others gave it is not ours to change. */
	if (!thread->raised || now->governed || now->policy == RTXG_INHERIT_DEADLINE)
		return own;
	own.reset = thread->reset;
	if (own.priority > thread->own)
		own.priority = thread->own;
	return own;
}

uint32_t rtxg_inherit_passes(const struct rtxg_inherit_thread *thread,
			     const struct rtxg_inherit_setting *now)
{
	if (now->policy == RTXG_INHERIT_DEADLINE)
		return RTXG_SERVE_MAX;
	if (now->policy != RTXG_INHERIT_FIXED)
		return 0;
	return rtxg_ceiling_join(rtxg_inherit_own(thread, now).priority, 0);
}

bool rtxg_inherit_look(struct rtxg_inherit_thread *thread, uint32_t inherits,
		       const struct rtxg_inherit_setting *now, struct rtxg_inherit_setting *wanted)
{
	*wanted = rtxg_inherit_own(thread, now);
	thread->own = wanted->priority;
	thread->reset = wanted->reset;
	inherits = rtxg_ceiling_join(inherits, 0);
	if (now->policy == RTXG_INHERIT_FIXED && !now->governed && inherits > thread->own) {
		wanted->priority = inherits;
		wanted->reset = true;
	}
	if (!same(wanted, now))
		return true;
	rtxg_inherit_set(thread, wanted);
	return false;
}

void rtxg_inherit_set(struct rtxg_inherit_thread *thread,
		      const struct rtxg_inherit_setting *setting)
{
	thread->raised = setting->priority > thread->own ? setting->priority : 0;
}

bool rtxg_inherit_left(const struct rtxg_inherit_thread *thread,
		       const struct rtxg_inherit_setting *now, struct rtxg_inherit_setting *wanted)
{
	*wanted = rtxg_inherit_own(thread, now);
	return !same(wanted, now);
}

bool rtxg_inherit_executed(const struct rtxg_inherit_thread *thread, uint32_t first,
			   const struct rtxg_inherit_setting *now,
			   struct rtxg_inherit_setting *wanted)
{
	return now->policy == RTXG_INHERIT_FIXED && now->reset && now->priority > first &&
	       now->priority <= thread->raised && rtxg_inherit_left(thread, now, wanted);
}
