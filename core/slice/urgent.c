// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * urgent.c - tenants with a latency: whose work is there, and who keeps the bound for the moment.
 * A tenant keeps it as long as it is not too far ahead of its share; from then on it is one of the
 * batch until it is level, so that a bound is no way around a share.
 *
 * May not: stop a context or set a slice.
 */
#include "internal.h"

void slice_look_at_urgent(struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		struct slice_tenant *tenant = &s->tenants[i];

		tenant->exempt = tenant->urgent = false;
		if (!tenant->used || !tenant->params.latency_ns || slice_critical(tenant))
			continue;
		if (s->changed) {
			tenant->mechanism = slice_mechanism(s, i);
			tenant->look = slice_look_for(s, i);
		}
		if (tenant->lag > (int64_t)s->params.burst_ns)
			tenant->over = true;
		else if (tenant->lag <= 0 || !tenant->present)
			tenant->over = false;
		tenant->exempt = !tenant->over && !tenant->capped;
		tenant->urgent = tenant->exempt && tenant->wants && tenant->known;
	}
	s->changed = false;
}

bool slice_arrival(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++)
		if (s->tenants[i].urgent && s->tenants[i].mechanism != RTXG_SLICE_BY_SLICES)
			return true;
	return false;
}

bool slice_latency_needs_turns(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		const struct slice_tenant *tenant = &s->tenants[i];

		if (tenant->exempt && tenant->mechanism == RTXG_SLICE_BY_TURNS && tenant->seen &&
		    slice_excess(s->now, tenant->seen) < s->params.critical_idle_ns)
			return true;
	}
	return false;
}

uint64_t slice_latency_slice(const struct rtxg_slice *s, uint32_t enabled)
{
	uint64_t slice = s->params.slice_mean_ns;
	uint32_t i;

	for (i = 0; i < s->tenant_high; i++) {
		const struct slice_tenant *tenant = &s->tenants[i];
		uint64_t each;

		if (!tenant->exempt || tenant->mechanism != RTXG_SLICE_BY_SLICES ||
		    !tenant->present)
			continue;
		each = slice_excess(tenant->params.latency_ns / (enabled ? enabled : 1),
				    s->params.save_ns);
		if (each < slice)
			slice = each;
	}
	return slice < s->params.slice_min_ns ? s->params.slice_min_ns : slice;
}
