// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * slice.c - see rtxg_slice.h: events in, one plan for all contexts, actions out.
 *
 * plan() decides what ought to be: for each context whether it is stopped and how long its slice
 * is, and when to look again. slice_emit() hands out the difference from what was commanded last.
 */
#include "internal.h"

#define LIMIT	    4096u
#define QUIET_TICKS 10	       /* nothing is to be decided, but may be soon */
#define EMPTY_TICKS 40	       /* nor can it be before a program comes */
#define LOOK_LATE   (200 * US) /* the host looks so much later than it was to */
#define TOLD_LATE   (50 * MS)  /* reading the log may take the host so long */

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

	if (!mem || !need || size < need || !params || params->reserved)
		return NULL;
	for (i = 0; i < need; i++)
		((unsigned char *)mem)[i] = 0;
	s->magic = SLICE_MAGIC;
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
	s->params.slice_sole_ns = slice_or(params->slice_sole_ns, 16 * US);
	s->params.lag_ns = slice_or(params->lag_ns, 2 * MS);
	s->params.tick_ns = slice_or(params->tick_ns, 3 * MS);
	s->params.turn_ns = slice_or(params->turn_ns, 100 * MS);
	s->params.idle_ns = slice_or(params->idle_ns, 40 * MS);
	s->params.critical_idle_ns = slice_or(params->critical_idle_ns, 1000 * MS);
	s->params.lead_ns = slice_or(params->lead_ns, 1 * MS);
	s->params.hold_ns = slice_or(params->hold_ns, 200 * US);
	s->params.cap_window_ns = slice_or(params->cap_window_ns, 100 * MS);
	s->params.warm_ns = slice_or(params->warm_ns, 350 * US);
	s->params.stop_ns = slice_or(params->stop_ns, 500 * US);
	s->params.stop_more_ns = slice_or(params->stop_more_ns, 150 * US);
	s->params.resume_ns = slice_or(params->resume_ns, 300 * US);
	s->params.resume_more_ns = slice_or(params->resume_more_ns, 80 * US);
	s->params.restore_ns = slice_or(params->restore_ns, 90 * US);
	s->params.look_ns = slice_or(params->look_ns, 50 * US);
	s->params.quiet_ns = slice_or(params->quiet_ns, 1 * MS);
	s->params.burst_ns = slice_or(params->burst_ns, 100 * MS);
	s->params.owed_ns = slice_or(params->owed_ns, 10 * MS);
	s->params.retry_ns = slice_or(params->retry_ns, 4 * MS);
	s->params.tolerance_ppm = (uint32_t)slice_or(params->tolerance_ppm, 4000);
	s->now = s->planned = s->told = now_ns;
	s->timer = s->armed = s->due = s->log_at = NEVER;
	s->read = s->told_until = now_ns;
	s->turn = s->yield = s->owner = s->leaving = s->early = NONE;
	s->holder = s->ended = s->tried = s->tried_set = NONE;
	s->idle_at = s->promised = now_ns;
	s->gain_at = now_ns + GAIN_INTERVAL;
	return s;
}

/*
 * For how long the engine had nothing to do while a stopped context had, up to now. Who was on it
 * when the log was read long ago says nothing: one that is enabled and has work is taken to be.
 *
 * The engine is taken to have been free since plan() looked last. Where the host came late for this
 * look, the log may tell of work since then, which counts: so what is too much is a tick at most.
 * What passed after the host was to come is its own delay: it is charged to none, but for a tick.
 */
static void reckon_idle(struct rtxg_slice *s)
{
	bool fresh = slice_excess(s->now, s->read) <= s->params.tick_ns;
	uint64_t idle = slice_excess(s->now, s->idle_at), most;
	uint64_t asked = slice_excess(s->due, s->idle_at);
	bool waits = false, works = false;
	uint32_t i;

	for (i = 0; i < s->context_high; i++) {
		if (!s->contexts[i].used || !s->contexts[i].wants)
			continue;
		waits = waits || s->contexts[i].is_stopped;
		works = works || (!fresh && !s->contexts[i].is_stopped);
	}
	if (fresh)
		works = s->holder != NONE && s->contexts[s->holder].wants;
	most = slice_excess(idle, s->busy);
	most = most > s->params.tick_ns ? most : s->params.tick_ns;
	idle = idle < most ? idle : most;
	if (waits && !works) {
		s->idle += idle;
		slice_charge_kept(s, s->idle_at,
				  s->idle_at + (slice_excess(idle, asked) > s->params.tick_ns
							? asked + s->params.tick_ns
							: idle));
	}
	s->idle_at = s->now;
	s->busy = 0;
}

/*
 * A best-effort context that takes a slice but cannot be stopped. Beside it turns would keep no
 * share, for it runs in each of them: the lengths of slices do.
 */
static bool slices_alone(const struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++)
		if (s->contexts[i].used && !slice_stoppable(&s->contexts[i]) &&
		    slice_sliceable(&s->contexts[i]) &&
		    !slice_critical(&s->tenants[s->contexts[i].tenant]))
			return s->params.can & RTXG_SLICE_CAN_SLICE;
	return false;
}

static void change_mode(struct rtxg_slice *s)
{
	bool suspends = s->params.can & RTXG_SLICE_CAN_SUSPEND;
	bool turns = suspends && (slice_critical_active(s) || slice_latency_needs_turns(s));
	uint32_t i;

	s->mode = turns		     ? RTXG_SLICE_MODE_TURNS
		  : !suspends	     ? RTXG_SLICE_MODE_SPREAD
		  : slice_arrival(s) ? RTXG_SLICE_MODE_ARRIVAL
		  : slices_alone(s)  ? RTXG_SLICE_MODE_SPREAD
				     : RTXG_SLICE_MODE_BATCH;
	if (s->mode == RTXG_SLICE_MODE_SPREAD)
		s->owner = s->leaving = s->early = NONE;
	if (turns == s->turns)
		return;
	s->turns = turns;
	s->turn = s->yield = s->owner = s->leaving = s->early = NONE;
	for (i = 0; i < s->context_high; i++)
		s->contexts[i].want_stop = false;
	for (i = 0; i < s->tenant_high; i++)
		s->tenants[i].ahead = s->tenants[i].held = s->tenants[i].waited = false;
}

/* Whose queues are looked into from now on, and whose are not. */
static void note_looks(struct rtxg_slice *s)
{
	uint32_t i;

	for (i = 0; i < s->context_high; i++) {
		struct slice_context *context = &s->contexts[i];
		uint64_t ns;

		if (!context->used)
			continue;
		ns = rtxg_slice_look_ns(s, i);
		if (ns < context->asked_ns)
			context->asked_at = s->now;
		context->asked_ns = ns;
		if (ns == NEVER) /* what was seen last is an old story until the next look */
			context->looked_at_from = NEVER;
		else if (context->looked_at_from == NEVER)
			context->looked_at_from = s->now + ns + LOOK_LATE;
	}
}

/* Are there contexts of two tenants? */
static bool two_tenants(const struct rtxg_slice *s)
{
	uint32_t first = NONE, i;

	for (i = 0; i < s->context_high; i++) {
		if (!s->contexts[i].used)
			continue;
		if (first != NONE && s->contexts[i].tenant != first)
			return true;
		first = s->contexts[i].tenant;
	}
	return false;
}

static void plan(struct rtxg_slice *s)
{
	uint32_t i, present = 0, stopped = 0;
	uint64_t at;
	bool caps;

	reckon_idle(s);
	s->timer = s->log_at = NEVER;
	s->log_pending = s->look_pending = false;
	for (i = 0; i < s->tenant_high; i++) {
		if (s->tenants[i].present)
			s->tenants[i].wanted_ns += slice_excess(s->now, s->planned);
		/* Of one with pauses the log tells it: slice_beside_started(). */
		if (s->tenants[i].wants && !(s->tenants[i].runs_beside && !s->tenants[i].held &&
					     s->tenants[i].beside.state == SLICE_BESIDE))
			s->tenants[i].promise.wanted += slice_excess(s->now, s->planned);
	}
	s->past = slice_excess(s->now, s->planned);
	s->planned = s->now;
	slice_look_around(s);
	/* After that, for a tenant that has just come had no share before. */
	if (s->holder != NONE)
		slice_charge_told(s, &s->contexts[s->holder], s->now);
	slice_look_at_promises(s);
	slice_look_at_demand(s);
	slice_reckon_lags(s);
	caps = slice_reckon_caps(s);
	slice_look_at_urgent(s);
	change_mode(s);
	if (s->turns || s->mode == RTXG_SLICE_MODE_SPREAD)
		slice_beside_none(s);
	if (s->turns)
		slice_plan_turns(s);
	else if (s->mode == RTXG_SLICE_MODE_SPREAD)
		slice_plan_spread(s);
	else
		slice_plan_batch(s);
	for (i = 0; i < s->tenant_high; i++)
		present += s->tenants[i].present ? 1 : 0;
	for (i = 0; i < s->context_high; i++) {
		if (!(s->params.can & RTXG_SLICE_CAN_SUSPEND))
			s->contexts[i].want_stop = false;
		stopped += s->contexts[i].want_stop ? 1 : 0;
	}
	s->waiting = present >= 2 || stopped;
	/*
	 * For one tenant without a cap there is nothing to decide: look rarely, to notice others,
	 * and still less often where a program would have to come first. What is done meanwhile
	 * does not put the reading of the log off: what is set, work that comes, or a release.
	 */
	if (s->turns)
		at = s->read + slice_calm_ns(s, caps);
	else if (s->mode == RTXG_SLICE_MODE_ARRIVAL || present >= 2 || stopped || caps)
		at = s->read + s->params.tick_ns;
	else
		at = s->read + s->params.tick_ns * (two_tenants(s) ? QUIET_TICKS : EMPTY_TICKS);
	slice_wake_at(s, at > s->now ? at : s->now);
	if (s->told_until < at + s->params.tick_ns)
		s->told_until = at + s->params.tick_ns;
	slice_plan_retries(s);
}

/* The greatest value that an event may have. */
static uint32_t most_of(uint32_t type)
{
	switch (type) {
	case RTXG_SLICE_EV_ADD:
	case RTXG_SLICE_EV_GOVERN:
		return RTXG_SLICE_LOAD;
	case RTXG_SLICE_EV_DEMAND:
		return RTXG_SLICE_FOLLOWED | RTXG_SLICE_QUEUED;
	case RTXG_SLICE_EV_COUPLE:
		return RTXG_SLICE_COUPLED;
	case RTXG_SLICE_EV_FAILED:
		return RTXG_SLICE_FINAL | RTXG_SLICE_RESUME;
	case RTXG_SLICE_EV_TIMER:
		return RTXG_SLICE_UNREAD;
	default:
		return 0;
	}
}

static int check_event(const struct rtxg_slice *s, const struct rtxg_slice_event *event)
{
	if (event->value > most_of(event->type) ||
	    (event->type == RTXG_SLICE_EV_FAILED &&
	     (event->value & ~RTXG_SLICE_FINAL) > RTXG_SLICE_RESUME) ||
	    (event->type == RTXG_SLICE_EV_DEMAND &&
	     (event->value & ~RTXG_SLICE_FOLLOWED) > RTXG_SLICE_QUEUED))
		return -EINVAL;
	switch (event->type) {
	case RTXG_SLICE_EV_TENANT_SET:
		if (event->tenant >= s->tenant_count || !slice_params_valid(&event->tenant_params))
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
	case RTXG_SLICE_EV_GOVERN:
	case RTXG_SLICE_EV_DEMAND:
		return event->context < s->context_count && s->contexts[event->context].used
			       ? 0
			       : -ENOENT;
	case RTXG_SLICE_EV_RELEASE:
	case RTXG_SLICE_EV_COUPLE:
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
	slice_beside_started(s, context, at);
	slice_turn_waited(s, at);
	context->since = at ? at : 1;
	context->charged = context->since;
	context->fresh = false;
	tenant->stays++;
	context->stays++;
	s->holder = id;
	s->free_at = 0;
	slice_demand_started(s, id, at, replan);
	slice_seen(s, context, at);
	slice_ready(s, id);
	if (!context->active) {
		slice_set_active(s, context, true);
		*replan = true;
	}
	if (slice_critical(tenant)) {
		/* After a silence the releases may have another phase. */
		if (slice_excess(at, silent) > s->params.critical_idle_ns)
			slice_forget_phase(tenant);
		slice_learn_release(s, tenant, at);
		if (!s->turns)
			*replan = true;
	}
}

/*
 * Switches follow each other, none is yet to come, and the log has told all of those that were long
 * before it was read. The GPU's clock may jump against ours, when the machine has slept say, before
 * the host compares them again: none is charged for that.
 */
static uint64_t told_at(struct rtxg_slice *s, uint64_t at)
{
	uint64_t least = slice_excess(s->read, TOLD_LATE);

	least = least > s->told ? least : s->told;
	at = at < least ? least : at;
	s->told = at > s->now ? s->now : at;
	return s->told;
}

static void apply(struct rtxg_slice *s, const struct rtxg_slice_event *event, bool *replan)
{
	struct slice_tenant *tenant;
	struct slice_context *context;
	uint64_t at;
	bool first;
	uint32_t i;

	*replan = true;
	s->changed = s->changed || (event->type <= RTXG_SLICE_EV_MOVE) ||
		     event->type == RTXG_SLICE_EV_FAILED || event->type == RTXG_SLICE_EV_GOVERN ||
		     event->type == RTXG_SLICE_EV_COUPLE;
	switch (event->type) {
	case RTXG_SLICE_EV_TENANT_SET:
		tenant = &s->tenants[event->tenant];
		first = !tenant->used;
		if (first || tenant->params.period_ns != event->tenant_params.period_ns ||
		    slice_critical(tenant) != slice_critical_params(&event->tenant_params))
			slice_forget_releases(tenant);
		tenant->params = event->tenant_params;
		tenant->used = true;
		tenant->mechanism = RTXG_SLICE_BY_NOTHING;
		if (tenant->params.latency_ns || slice_critical(tenant))
			slice_beside_forget(tenant);
		/* A cap of all that there is is none. */
		if (tenant->params.max_ppm >= PPM)
			tenant->params.max_ppm = 0;
		if (event->tenant >= s->tenant_high)
			s->tenant_high = event->tenant + 1;
		if (first) {
			tenant->gain_ppm = PPM;
			tenant->vtime = VBASE;
			tenant->cap_start = s->now;
			tenant->share_ppm = SHARE_MIN;
		}
		break;
	case RTXG_SLICE_EV_TENANT_REMOVE:
		s->tenants[event->tenant] = (struct slice_tenant){ 0 };
		if (s->owner == event->tenant)
			s->owner = NONE;
		if (s->leaving == event->tenant)
			s->leaving = NONE;
		if (s->early == event->tenant)
			s->early = NONE;
		break;
	case RTXG_SLICE_EV_COUPLE:
		s->tenants[event->tenant].coupled = event->value;
		break;
	case RTXG_SLICE_EV_ADD:
		context = &s->contexts[event->context];
		*context = (struct slice_context){ .used = true,
						   .tenant = event->tenant,
						   .load = event->value == RTXG_SLICE_LOAD };
		slice_demand_added(s, context);
		if (event->context >= s->context_high)
			s->context_high = event->context + 1;
		s->tenants[event->tenant].contexts++;
		break;
	case RTXG_SLICE_EV_REMOVE:
		context = &s->contexts[event->context];
		/* Whose turn is next depends on who was on the engine since the log was read. */
		*replan = s->read >= s->now;
		s->log_pending = !*replan;
		if (s->holder == event->context)
			s->holder = NONE;
		if (s->turn == event->context)
			s->turn = NONE;
		if (s->yield == event->context)
			s->yield = NONE;
		if (s->ended == event->context)
			s->ended = NONE;
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
			context->doubt = 0;
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
		start(s, event->context, told_at(s, event->at_ns), &s->log_pending);
		break;
	case RTXG_SLICE_EV_END:
		*replan = false;
		at = told_at(s, event->at_ns);
		slice_ended(s, event->context, at);
		s->free_at = s->holder == NONE ? at : 0;
		break;
	case RTXG_SLICE_EV_OTHER:
		*replan = false;
		at = told_at(s, event->at_ns);
		if (s->holder != NONE)
			slice_ended(s, s->holder, at);
		slice_turn_waited(s, at);
		s->free_at = 0;
		break;
	case RTXG_SLICE_EV_RELEASE:
		tenant = &s->tenants[event->tenant];
		tenant->release = event->at_ns;
		tenant->phase = event->at_ns;
		tenant->delayed = 0;
		tenant->seen = s->now;
		break;
	case RTXG_SLICE_EV_FAILED:
		slice_failed(s, event->context, event->value);
		break;
	case RTXG_SLICE_EV_GOVERN:
		context = &s->contexts[event->context];
		context->load = event->value == RTXG_SLICE_LOAD;
		for (i = 0; !context->load && i < 3; i++)
			context->retry[i] = (struct slice_retry){ 0 };
		break;
	case RTXG_SLICE_EV_DEMAND:
		slice_demand(s, event, replan);
		s->look_pending = s->look_pending || *replan;
		*replan = s->look_pending && !(event->value & RTXG_SLICE_FOLLOWED);
		break;
	case RTXG_SLICE_EV_TIMER:
		s->armed = NEVER;
		slice_came(s);
		if (event->value == RTXG_SLICE_UNREAD)
			break;
		s->read = s->now;
		if (s->holder != NONE)
			slice_was_on(&s->contexts[s->holder], s->now);
		break;
	}
}

int rtxg_slice_step(struct rtxg_slice *s, uint64_t now_ns, const struct rtxg_slice_event *event,
		    struct rtxg_slice_action *actions, unsigned int cap)
{
	bool replan = false;
	int err, n;

	if (cap < 4 || now_ns < s->now)
		return -EINVAL;
	if (event) {
		err = check_event(s, event);
		if (err)
			return err;
		s->now = now_ns;
		if (s->acted != s->actions) {
			s->acted = s->actions;
			s->acted_at = now_ns;
		}
		apply(s, event, &replan);
		/* What the log tells is judged when all of it has been read, with the timer. */
		if (replan)
			plan(s);
		else if (s->log_pending)
			slice_wake_at(s, now_ns);
		else if (s->look_pending)
			slice_wake_unread(s, now_ns); /* also if no other look follows */
	}
	s->steps++;
	n = slice_emit(s, actions, cap);
	if (!event || replan)
		note_looks(s);
	return n;
}
