// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * view.c - what people are shown of tenants, contexts and the GPU.
 *
 * May not: change anything.
 */
#include "internal.h"

int rtxg_slice_tenant_view(const struct rtxg_slice *s, uint32_t id, struct rtxg_slice_view *view)
{
	const struct slice_tenant *tenant;
	uint32_t i;

	if (id >= s->tenant_count || !s->tenants[id].used)
		return -ENOENT;
	tenant = &s->tenants[id];
	*view = (struct rtxg_slice_view){
		.work_ns = tenant->most_work,
		.stay_ns = tenant->most_stay,
		.stays = tenant->stays,
		.suspended = tenant->stopped,
		.stopped_ns = tenant->stopped_ns,
		.wanted_ns = tenant->wanted_ns +
			     (tenant->present ? slice_excess(s->now, s->planned) : 0),
		.lag_ns = tenant->lag,
		.share_ppm = tenant->share_ppm,
		.contexts = tenant->contexts,
		.broken = tenant->promise.broken,
		.broken_by = tenant->promise.broken ? tenant->promise.by : NONE,
		.waited_ns = tenant->promise.waited,
		.mechanism = tenant->mechanism,
		.waits_ns = tenant->promise.waits_ns,
	};
	for (i = 0; i < RTXG_SLICE_WAITS; i++)
		view->waits[i] = tenant->promise.waits[i];
	for (i = 0; i < s->context_high; i++)
		if (s->contexts[i].used && s->contexts[i].tenant == id) {
			view->loads += slice_is_load(s, &s->contexts[i]) ? 1 : 0;
			view->active += s->contexts[i].active ? 1 : 0;
			view->stopped += s->contexts[i].is_stopped ? 1 : 0;
			view->stopped_ns +=
				s->contexts[i].is_stopped
					? slice_excess(s->now, s->contexts[i].stopped_at)
					: 0;
		}
	return 0;
}

int rtxg_slice_context_view(const struct rtxg_slice *s, uint32_t id,
			    struct rtxg_slice_context_view *view)
{
	const struct slice_context *context;

	if (id >= s->context_count || !s->contexts[id].used)
		return -ENOENT;
	context = &s->contexts[id];
	*view = (struct rtxg_slice_context_view){ .work_ns = context->most_worked,
						  .stay_ns = context->most_stayed,
						  .stays = context->stays,
						  .stopped_ns = context->stopped,
						  .slice_ns = context->slice,
						  .state = context->is_stopped ? RTXG_SLICE_STOPPED
							   : context->since    ? RTXG_SLICE_RUNNING
							   : context->active   ? RTXG_SLICE_WAITING
									       : RTXG_SLICE_IDLE };
	view->flags = (slice_is_load(s, context) ? RTXG_SLICE_IS_LOAD : 0) |
		      (slice_retried(s, context) ? RTXG_SLICE_IS_RETRIED : 0) |
		      (context->demand != SLICE_UNSEEN ? RTXG_SLICE_HAS_DEMAND : 0) |
		      (context->wants ? RTXG_SLICE_HAS_WORK : 0);
	if (context->is_stopped)
		view->stopped_ns += slice_excess(s->now, context->stopped_at);
	return 0;
}

void rtxg_slice_gpu_view(const struct rtxg_slice *s, struct rtxg_slice_gpu_view *view)
{
	uint32_t i;

	*view = (struct rtxg_slice_gpu_view){ .mode = s->mode,
					      .idle_ns = s->idle,
					      .steps = s->steps,
					      .actions = s->actions,
					      .arms = s->arms };
	for (i = 0; i < s->tenant_high; i++)
		view->broken += s->tenants[i].used && s->tenants[i].promise.broken ? 1 : 0;
	for (i = 0; i < s->context_high; i++) {
		const struct slice_context *context = &s->contexts[i];

		if (!context->used)
			continue;
		view->loads += slice_is_load(s, context) ? 1 : 0;
		view->retried += slice_retried(s, context) ? 1 : 0;
	}
}

int rtxg_slice_turns(const struct rtxg_slice *s)
{
	return s->turns;
}
