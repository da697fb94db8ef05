// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * check.c - what must always be true of the core's state.
 *
 * May not: change it.
 */
#include "internal.h"

const char *rtxg_slice_check(const struct rtxg_slice *s)
{
	uint32_t i, k, n, on = 0, enabled = 0;

	if (s->magic != SLICE_MAGIC)
		return "not a slice core";
	for (i = 0; i < s->tenant_high; i++) {
		const struct slice_tenant *tenant = &s->tenants[i];
		uint32_t warming = 0;

		for (k = n = 0; k < s->context_high; k++) {
			if (!s->contexts[k].used || s->contexts[k].tenant != i)
				continue;
			n++;
			warming += s->contexts[k].warms;
		}
		if (n != tenant->contexts)
			return "a tenant's count of contexts is wrong";
		if (warming != tenant->warming)
			return "a tenant's count of contexts that warm is wrong";
		if (tenant->used && (tenant->gain_ppm < GAIN_MIN || tenant->gain_ppm > GAIN_MAX))
			return "a gain is out of range";
		if (tenant->runs_beside && (tenant->beside.state == SLICE_APART ||
					    tenant->params.latency_ns || slice_critical(tenant)))
			return "a tenant runs beside the turns of others that is not to";
		if (!tenant->used && n)
			return "a context's tenant does not exist";
	}
	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];

		if (!context->used)
			continue;
		if (slice_critical(&s->tenants[context->tenant]) && context->want_stop)
			return "a critical context is to be stopped";
		if (!slice_stoppable(context) && context->want_stop)
			return "a context that cannot be stopped is to be stopped";
		if (!slice_sliceable(context) && context->want_slice)
			return "a slice is to be set where it cannot be";
		if (context->wants && !context->active)
			return "a context that is not active has work";
		if (context->since)
			on++;
		if (context->slice > s->params.slice_max_ns)
			return "a slice is longer than the hardware keeps";
		if (!slice_critical(&s->tenants[context->tenant]) && context->active &&
		    slice_stoppable(context) && i != s->yield &&
		    !s->tenants[context->tenant].exempt)
			enabled += context->want_stop ? 0 : 1;
	}
	if (s->turn != NONE && (s->turn >= s->context_count || !s->contexts[s->turn].used))
		return "the turn is a context's that is gone";
	if (s->yield != NONE && (s->yield >= s->context_count || !s->contexts[s->yield].used))
		return "the turn was given up by a context that is gone";
	if (s->owner != NONE && (s->owner >= s->tenant_count || !s->tenants[s->owner].used))
		return "the turn is a tenant's that is gone";
	if (s->early != NONE &&
	    (s->early == s->owner || s->early >= s->tenant_count || !s->tenants[s->early].used))
		return "a tenant is let go early that is gone or has its turn";
	if (s->holder != NONE && !s->contexts[s->holder].used)
		return "the engine is held by a context that is gone";
	if (on > 1)
		return "two contexts on one engine";
	/* What the log and looks tell is acted upon when all of it is known. */
	if (s->turns && !s->log_pending && !s->look_pending && enabled > 1)
		return "more than one best-effort context enabled in turns";
	return NULL;
}
