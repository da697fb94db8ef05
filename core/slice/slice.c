// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * slice.c - see rtxg_slice.h: events in, one plan for all contexts, actions out.
 *
 * Two halves. plan() decides what ought to be: for each context whether it is stopped and how long
 * its slice is, and when to look again. emit() compares that with what was last commanded and hands
 * out the difference as actions. So an action is never forgotten, and none is given twice.
 */
#include "internal.h"

#define LIMIT 4096u
#define MAGIC 0x736c6963u

size_t rtxg_slice_size(uint32_t tenants, uint32_t contexts)
{
	if (!tenants || !contexts || tenants > LIMIT || contexts > LIMIT)
		return 0;
	return (sizeof(struct rtxg_slice) + tenants * sizeof(struct slice_tenant) +
		contexts * sizeof(struct slice_context) + 15) &
	       ~(size_t)15;
}

struct rtxg_slice *rtxg_slice_init(void *mem, size_t size, uint32_t tenants, uint32_t contexts,
				   const struct rtxg_slice_params *params, uint64_t now_ns)
{
	size_t need = rtxg_slice_size(tenants, contexts), i;
	struct rtxg_slice *s = mem;

	if (!mem || !need || size < need || !params)
		return NULL;
	for (i = 0; i < need; i++)
		((unsigned char *)mem)[i] = 0;
	s->magic = MAGIC;
	s->tenant_count = tenants;
	s->context_count = contexts;
	s->tenants = (struct slice_tenant *)(s + 1);
	s->contexts = (struct slice_context *)(s->tenants + tenants);
	s->params = *params;
	s->params.dead_band_ppm = (uint32_t)slice_or(params->dead_band_ppm, 3000);
	s->params.save_ns = slice_or(params->save_ns, 130 * US);
	s->params.slice_mean_ns = slice_or(params->slice_mean_ns, 2 * MS);
	s->params.slice_max_ns = slice_or(params->slice_max_ns, 4 * MS);
	s->params.slice_min_ns = slice_or(params->slice_min_ns,
					  params->can & RTXG_SLICE_CAN_SUSPEND ? 1 * MS : 200 * US);
	s->params.slice_critical_ns = slice_or(params->slice_critical_ns, 30 * US);
	s->params.lag_ns = slice_or(params->lag_ns, 2 * MS);
	s->params.tick_ns = slice_or(params->tick_ns, 3 * MS);
	s->params.turn_ns = slice_or(params->turn_ns, 100 * MS);
	s->params.idle_ns = slice_or(params->idle_ns, 40 * MS);
	s->params.critical_idle_ns = slice_or(params->critical_idle_ns, 1000 * MS);
	s->params.lead_ns = slice_or(params->lead_ns, 1 * MS);
	s->params.hold_ns = slice_or(params->hold_ns, 200 * US);
	s->params.cap_window_ns = slice_or(params->cap_window_ns, 100 * MS);
	s->params.warm_ns = slice_or(params->warm_ns, 350 * US);
	s->now = s->planned = now_ns;
	s->timer = s->armed = NEVER;
	s->turn = NONE;
	s->holder = NONE;
	s->gain_at = now_ns + GAIN_INTERVAL;
	return s;
}

static void plan(struct rtxg_slice *s)
{
	bool turns, caps;
	uint32_t i, present = 0, stopped = 0;

	if (s->holder != NONE)
		slice_charge(s, &s->contexts[s->holder], s->now);
	s->timer = NEVER;
	for (i = 0; i < s->tenant_count; i++)
		if (s->tenants[i].present)
			s->tenants[i].wanted_ns += slice_excess(s->now, s->planned);
	s->planned = s->now;
	slice_look_around(s);
	slice_reckon_lags(s);
	caps = slice_reckon_caps(s);
	turns = (s->params.can & RTXG_SLICE_CAN_SUSPEND) && slice_critical_active(s);
	if (turns != s->turns) {
		s->turns = turns;
		s->turn = NONE;
		for (i = 0; i < s->context_count; i++)
			s->contexts[i].want_stop = false;
		for (i = 0; i < s->tenant_count; i++)
			s->tenants[i].ahead = false;
	}
	if (turns)
		slice_plan_turns(s);
	else
		slice_plan_spread(s);
	for (i = 0; i < s->tenant_count; i++)
		present += s->tenants[i].present ? 1 : 0;
	for (i = 0; i < s->context_count; i++) {
		if (!(s->params.can & RTXG_SLICE_CAN_SUSPEND))
			s->contexts[i].want_stop = false;
		stopped += s->contexts[i].want_stop ? 1 : 0;
	}
	/* For one tenant without a cap there is nothing to decide: look rarely, to notice others. */
	if (present >= 2 || stopped || turns || caps) {
		if (s->now + s->params.tick_ns < s->timer)
			s->timer = s->now + s->params.tick_ns;
	} else if (s->now + 10 * s->params.tick_ns < s->timer) {
		s->timer = s->now + 10 * s->params.tick_ns;
	}
}

static int emit(struct rtxg_slice *s, struct rtxg_slice_action *actions, unsigned int cap)
{
	unsigned int n = 0;
	bool leave = false;
	uint32_t i;

	/*
	 * A context that is left on the engine goes when another one takes it. Where no other can,
	 * it would stay and be charged for ever: it is taken off at once.
	 */
	for (i = 0; i < s->context_count && (s->params.can & RTXG_SLICE_CAN_LEAVE); i++)
		leave = leave || (s->contexts[i].used && s->contexts[i].active &&
				  !s->contexts[i].want_stop && !s->contexts[i].is_stopped);
	for (i = 0; i < s->context_count && n < cap; i++) {
		struct slice_context *context = &s->contexts[i];

		if (context->used && context->want_stop && !context->is_stopped) {
			context->is_stopped = true;
			context->stopped_at = s->now;
			s->tenants[context->tenant].stopped++;
			/* In turns a critical kernel is waiting for the engine, or soon will be. */
			actions[n++] = (struct rtxg_slice_action){ .type = RTXG_SLICE_SUSPEND,
								   .context = i,
								   .ns = leave && !s->turns };
		}
	}
	for (i = 0; i < s->context_count && n < cap; i++) {
		struct slice_context *context = &s->contexts[i];

		if (context->used && !context->want_stop && context->is_stopped) {
			context->is_stopped = false;
			context->stopped += slice_excess(s->now, context->stopped_at);
			s->tenants[context->tenant].stopped_ns +=
				slice_excess(s->now, context->stopped_at);
			/* From now on it has time to show that it wants something. */
			context->seen = s->now;
			context->fresh = true;
			actions[n++] = (struct rtxg_slice_action){ .type = RTXG_SLICE_RESUME,
								   .context = i };
		}
	}
	/* Slices of stopped contexts are set when they are let go. */
	for (i = 0; i < s->context_count && n < cap; i++) {
		struct slice_context *context = &s->contexts[i];

		if (context->used && !context->is_stopped && context->want_slice &&
		    context->want_slice != context->slice) {
			context->slice = context->want_slice;
			actions[n++] = (struct rtxg_slice_action){ .type = RTXG_SLICE_SET,
								   .context = i,
								   .ns = context->slice };
		}
	}
	if (n < cap && s->timer != s->armed) {
		s->armed = s->timer;
		actions[n++] = (struct rtxg_slice_action){ .type = RTXG_SLICE_ARM,
							   .context = NONE,
							   .ns = s->timer };
	}
	return (int)n;
}

static int check_event(const struct rtxg_slice *s, const struct rtxg_slice_event *event)
{
	switch (event->type) {
	case RTXG_SLICE_EV_TENANT_SET:
		if (event->tenant >= s->tenant_count || event->tenant_params.min_ppm > PPM ||
		    event->tenant_params.max_ppm > PPM ||
		    event->tenant_params.weight > RTXG_SLICE_WEIGHT_MAX ||
		    event->tenant_params.priority > RTXG_SLICE_PRIORITY_MAX)
			return -EINVAL;
		if (event->tenant_params.max_ppm &&
		    event->tenant_params.max_ppm < event->tenant_params.min_ppm)
			return -EINVAL;
		if (slice_critical_params(&event->tenant_params) &&
		    event->tenant_params.period_ns &&
		    (event->tenant_params.period_ns < 100 * US ||
		     event->tenant_params.period_ns > 10000 * MS))
			return -EINVAL;
		return 0;
	case RTXG_SLICE_EV_TENANT_REMOVE:
		if (event->tenant >= s->tenant_count || !s->tenants[event->tenant].used)
			return -ENOENT;
		return s->tenants[event->tenant].contexts ? -EBUSY : 0;
	case RTXG_SLICE_EV_ADD:
		if (event->context >= s->context_count)
			return -EINVAL;
		if (s->contexts[event->context].used)
			return -EEXIST;
		return event->tenant < s->tenant_count && s->tenants[event->tenant].used ? 0
											 : -ENOENT;
	case RTXG_SLICE_EV_MOVE:
		if (event->tenant >= s->tenant_count || !s->tenants[event->tenant].used)
			return -ENOENT;
		/* fall through */
	case RTXG_SLICE_EV_REMOVE:
	case RTXG_SLICE_EV_WARMS:
	case RTXG_SLICE_EV_START:
	case RTXG_SLICE_EV_END:
	case RTXG_SLICE_EV_FAILED:
		return event->context < s->context_count && s->contexts[event->context].used
			       ? 0
			       : -ENOENT;
	case RTXG_SLICE_EV_RELEASE:
		return event->tenant < s->tenant_count && s->tenants[event->tenant].used ? 0
											 : -ENOENT;
	case RTXG_SLICE_EV_OTHER:
	case RTXG_SLICE_EV_TIMER:
		return 0;
	default:
		return -EINVAL;
	}
}

static void start(struct rtxg_slice *s, uint32_t id, uint64_t at, bool *replan)
{
	struct slice_context *context = &s->contexts[id];
	struct slice_tenant *tenant = &s->tenants[context->tenant];
	uint64_t silent = tenant->seen;

	if (s->holder != NONE && s->holder != id) /* its end was lost */
		slice_ended(s, s->holder, at);
	if (context->since)
		slice_ended(s, id, at);
	context->since = at ? at : 1;
	context->charged = context->since;
	context->fresh = false;
	tenant->stays++;
	context->stays++;
	s->holder = id;
	slice_seen(s, context, at);
	if (!context->active) {
		slice_set_active(s, context, true);
		*replan = true;
	}
	if (slice_critical(tenant)) {
		/* After a silence the releases may have another phase. */
		if (slice_excess(at, silent) > s->params.critical_idle_ns)
			slice_forget_releases(tenant);
		slice_learn_release(s, tenant, at);
		if (!s->turns)
			*replan = true;
	}
}

static void apply(struct rtxg_slice *s, const struct rtxg_slice_event *event, bool *replan)
{
	struct slice_tenant *tenant;
	struct slice_context *context;
	bool first;

	*replan = true;
	switch (event->type) {
	case RTXG_SLICE_EV_TENANT_SET:
		tenant = &s->tenants[event->tenant];
		first = !tenant->used;
		if (first || tenant->params.period_ns != event->tenant_params.period_ns ||
		    slice_critical(tenant) != slice_critical_params(&event->tenant_params))
			slice_forget_releases(tenant);
		tenant->params = event->tenant_params;
		tenant->used = true;
		if (first) {
			tenant->gain_ppm = PPM;
			tenant->vtime = VBASE;
			tenant->cap_start = s->now;
			tenant->share_ppm = SHARE_MIN;
		}
		break;
	case RTXG_SLICE_EV_TENANT_REMOVE:
		s->tenants[event->tenant] = (struct slice_tenant){ 0 };
		break;
	case RTXG_SLICE_EV_ADD:
		context = &s->contexts[event->context];
		*context = (struct slice_context){
			.used = true, .tenant = event->tenant, .seen = s->now, .fresh = true
		};
		s->tenants[event->tenant].contexts++;
		break;
	case RTXG_SLICE_EV_REMOVE:
		context = &s->contexts[event->context];
		if (s->holder == event->context)
			s->holder = NONE;
		if (s->turn == event->context)
			s->turn = NONE;
		s->tenants[context->tenant].contexts--;
		s->tenants[context->tenant].warming -= context->warms;
		if (context->is_stopped)
			s->tenants[context->tenant].stopped_ns +=
				slice_excess(s->now, context->stopped_at);
		*context = (struct slice_context){ 0 };
		break;
	case RTXG_SLICE_EV_MOVE:
		context = &s->contexts[event->context];
		if (context->since) {
			slice_charge(s, context, s->now);
			context->moved = s->now;
			context->old = context->tenant;
		}
		if (context->is_stopped) {
			context->stopped += slice_excess(s->now, context->stopped_at);
			s->tenants[context->tenant].stopped_ns +=
				slice_excess(s->now, context->stopped_at);
			context->stopped_at = s->now;
		}
		s->tenants[context->tenant].contexts--;
		s->tenants[context->tenant].warming -= context->warms;
		context->tenant = event->tenant;
		context->work = 0;
		s->tenants[event->tenant].contexts++;
		s->tenants[event->tenant].warming += context->warms;
		break;
	case RTXG_SLICE_EV_WARMS:
		*replan = false;
		context = &s->contexts[event->context];
		s->tenants[context->tenant].warming += !context->warms;
		context->warms = true;
		break;
	case RTXG_SLICE_EV_START:
		*replan = false;
		start(s, event->context, event->at_ns, replan);
		break;
	case RTXG_SLICE_EV_END:
		*replan = false;
		slice_ended(s, event->context, event->at_ns);
		break;
	case RTXG_SLICE_EV_OTHER:
		*replan = false;
		if (s->holder != NONE)
			slice_ended(s, s->holder, event->at_ns);
		break;
	case RTXG_SLICE_EV_RELEASE:
		tenant = &s->tenants[event->tenant];
		tenant->release = event->at_ns;
		tenant->phase = event->at_ns;
		tenant->seen = s->now;
		break;
	case RTXG_SLICE_EV_FAILED:
		context = &s->contexts[event->context];
		context->bad = true;
		context->want_stop = false;
		context->want_slice = context->slice = 0;
		if (s->turn == event->context)
			s->turn = NONE;
		break;
	case RTXG_SLICE_EV_TIMER:
		s->armed = NEVER;
		break;
	}
}

int rtxg_slice_step(struct rtxg_slice *s, uint64_t now_ns, const struct rtxg_slice_event *event,
		    struct rtxg_slice_action *actions, unsigned int cap)
{
	bool replan = false;
	int err;

	if (cap < 4 || now_ns < s->now)
		return -EINVAL;
	if (event) {
		if (event->reserved)
			return -EINVAL;
		err = check_event(s, event);
		if (err)
			return err;
		s->now = now_ns;
		apply(s, event, &replan);
		if (replan)
			plan(s);
	}
	return emit(s, actions, cap);
}

int rtxg_slice_tenant_view(const struct rtxg_slice *s, uint32_t id, struct rtxg_slice_view *view)
{
	const struct slice_tenant *tenant;
	uint32_t i;

	if (id >= s->tenant_count || !s->tenants[id].used)
		return -ENOENT;
	tenant = &s->tenants[id];
	*view = (struct rtxg_slice_view){
		.work_ns = tenant->work,
		.stay_ns = tenant->stay,
		.stays = tenant->stays,
		.suspended = tenant->stopped,
		.stopped_ns = tenant->stopped_ns,
		.wanted_ns = tenant->wanted_ns +
			     (tenant->present ? slice_excess(s->now, s->planned) : 0),
		.lag_ns = tenant->lag,
		.share_ppm = tenant->share_ppm,
		.contexts = tenant->contexts
	};
	for (i = 0; i < s->context_count; i++)
		if (s->contexts[i].used && s->contexts[i].tenant == id) {
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
	*view = (struct rtxg_slice_context_view){ .work_ns = context->worked,
						  .stay_ns = context->stayed,
						  .stays = context->stays,
						  .stopped_ns = context->stopped,
						  .slice_ns = context->slice,
						  .state = context->is_stopped ? RTXG_SLICE_STOPPED
							   : context->since    ? RTXG_SLICE_RUNNING
							   : context->active   ? RTXG_SLICE_WAITING
									       : RTXG_SLICE_IDLE };
	if (context->is_stopped)
		view->stopped_ns += slice_excess(s->now, context->stopped_at);
	return 0;
}

int rtxg_slice_turns(const struct rtxg_slice *s)
{
	return s->turns;
}

const char *rtxg_slice_check(const struct rtxg_slice *s)
{
	uint32_t i, k, n, on = 0, enabled = 0, wanting = 0;

	if (s->magic != MAGIC)
		return "not a slice core";
	for (i = 0; i < s->tenant_count; i++) {
		const struct slice_tenant *tenant = &s->tenants[i];
		uint32_t warming = 0;

		for (k = n = 0; k < s->context_count; k++) {
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
		if (!tenant->used && n)
			return "a context's tenant does not exist";
	}
	for (i = 0; i < s->context_count; i++) {
		const struct slice_context *context = &s->contexts[i];

		if (!context->used)
			continue;
		if (slice_critical(&s->tenants[context->tenant]) && context->want_stop)
			return "a critical context is to be stopped";
		if (context->bad && context->want_stop)
			return "a context that cannot be acted on is to be stopped";
		if (context->since)
			on++;
		if (context->slice > s->params.slice_max_ns)
			return "a slice is longer than the hardware keeps";
		if (!slice_critical(&s->tenants[context->tenant]) && context->active &&
		    !context->bad) {
			wanting++;
			enabled += context->want_stop ? 0 : 1;
		}
	}
	if (s->turn != NONE && (s->turn >= s->context_count || !s->contexts[s->turn].used))
		return "the turn is a context's that is gone";
	if (s->holder != NONE && !s->contexts[s->holder].used)
		return "the engine is held by a context that is gone";
	if (on > 1)
		return "two contexts on one engine";
	if (s->turns && enabled > 1)
		return "more than one best-effort context enabled in turns";
	return NULL;
}
