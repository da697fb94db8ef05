// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * serve.c - threads that work for others. See rtxg_cpu_serve.h. May not: know a thread, or set one.
 */
#include "rtxg_cpu_serve.h"

int rtxg_serve_check(const struct rtxg_serve_rule *rule)
{
	if (rule->mode >= RTXG_SERVE_MODES)
		return -EINVAL;
	if (rule->mode == RTXG_SERVE_KEPT)
		return rule->priority || rule->beside || rule->runtime_ns || rule->period_ns
			       ? -EINVAL
			       : 0;
	if (rule->priority < 1 || rule->priority > RTXG_SERVE_MAX)
		return -EINVAL;
	if (rule->runtime_ns > rule->period_ns || !rule->runtime_ns != !rule->period_ns)
		return -EINVAL;
	return rule->mode == RTXG_SERVE_FIXED && (rule->beside || rule->runtime_ns) ? -EINVAL : 0;
}

uint32_t rtxg_serve_priority(int32_t prio)
{
	if (prio >= 99)
		return RTXG_SERVE_ORDINARY;
	return prio < 99 - (int32_t)RTXG_SERVE_MAX ? RTXG_SERVE_MAX : (uint32_t)(99 - prio);
}

bool rtxg_serve_at_once(const struct rtxg_serve_rule *rule, int32_t owner, int32_t running)
{
	return rule->mode == RTXG_SERVE_PAI && owner < running;
}

struct rtxg_serve rtxg_serve(const struct rtxg_serve_rule *rule,
			     const struct rtxg_serve_owner *owners, uint32_t count)
{
	struct rtxg_serve serve = { .priority = rule->priority, .cpu = -1 };

	serve.kept = rule->mode == RTXG_SERVE_KEPT;
	serve.server = !count && rule->runtime_ns;
	if (rule->mode < RTXG_SERVE_OWNER || !count)
		return serve;
	serve.priority = rtxg_serve_priority(owners[0].prio);
	if (!rule->beside)
		serve.cpu = owners[0].cpu;
	for (uint32_t i = 1; i < count; i++) {
		uint32_t priority = rtxg_serve_priority(owners[i].prio);

		if (priority > serve.priority)
			serve.priority = priority;
	}
	return serve;
}
