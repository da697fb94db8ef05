// SPDX-License-Identifier: MIT
/*
 * slice_model.c - see slice_model.h.
 *
 * May not: decide who runs; the core does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "slice_model_internal.h"

uint64_t model_next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

static uint64_t random_of(struct model *m)
{
	return model_next_random(&m->seed);
}

uint64_t model_between(struct model *m, uint64_t low, uint64_t high)
{
	return high > low ? low + random_of(m) % (high - low) : low;
}

/* ---- the host ---- */

static void refuse(struct model *m, const struct rtxg_slice_action *a)
{
	m->host.refusals++;
	model_feed(m, (struct rtxg_slice_event){
			      .type = RTXG_SLICE_EV_FAILED,
			      .context = a->context,
			      .value = a->type |
				       (m->c[a->context].p.refused ? RTXG_SLICE_FINAL : 0) });
}

static bool refuses(const struct model *m, const struct rtxg_slice_action *a)
{
	const struct process *c = &m->c[a->context];

	return c->p.refused ||
	       m->now < c->born + c->p.building_ns + (c->p.building_ns ? REFUSES : 0);
}

/* What a call waits for the driver's lock. */
static uint64_t lock(struct model *m)
{
	uint64_t part = model_between(m, 0, 1000), ns = m->slow_ns;

	for (int i = 0; i < 12; i++)
		ns = ns * part / 1000;
	/* Now and then a program that ends frees all that it had. */
	if (m->slow_ns && !model_between(m, 0, LONG_CALLS))
		ns += model_between(m, 0, LONG_CALL * m->slow_ns);
	return ns;
}

void model_calls(struct model *m, uint32_t count)
{
	if (m->host_free < m->now)
		m->host_free = m->busy_since = m->now;
	while (m->slow_ns && count--)
		m->host_free += lock(m);
}

/* Neighbours of one type go to the driver in one call. */
static void call(struct model *m, const struct rtxg_slice_action *a)
{
	bool same = m->pending_count && a->type != RTXG_SLICE_SET && m->last_call_type == a->type &&
		    m->last_call_end == m->host_free;
	uint64_t cost = a->type == RTXG_SLICE_SUSPEND  ? same ? 150 * US : 500 * US
			: a->type == RTXG_SLICE_RESUME ? same ? 80 * US : 300 * US
						       : 900 * US;

	if (m->host_free < m->now)
		m->host_free = m->busy_since = m->now;
	if (m->slow_ns && !same)
		cost += lock(m);
	m->host_free += cost;
	m->host.busy_ns += cost;
	if (m->pending_count == PENDING) {
		snprintf(m->wrong, sizeof(m->wrong), "more than %d actions wait", PENDING);
		return;
	}
	m->pending[m->pending_count].action = *a;
	m->pending[m->pending_count++].at = m->host_free;
	for (uint32_t i = m->pending_count - 1; same && i; i--) {
		if (m->pending[i - 1].action.type != a->type)
			break;
		m->pending[i - 1].at = m->host_free;
	}
	m->last_call_type = a->type;
	m->last_call_end = m->host_free;
	m->host.stops += a->type == RTXG_SLICE_SUSPEND;
	m->host.resumes += a->type == RTXG_SLICE_RESUME;
	m->host.sets += a->type == RTXG_SLICE_SET;
}

/* As the core reckons it, in each of its steps: it may be too far ahead for a moment alone. */
static void look_who_is_ahead(struct model *m)
{
	struct rtxg_slice_view view;

	for (uint32_t i = 0; i < m->count; i++) {
		struct process *c = &m->c[i];

		if (!c->p.bound || rtxg_slice_tenant_view(m->core, c->p.tenant, &view) < 0)
			continue;
		c->ahead = view.lag_ns > (int64_t)(c->ahead ? AHEAD_MOST / 2 : AHEAD_MOST);
		c->ahead_at = c->ahead ? m->now : c->ahead_at;
	}
}

/* How many are stopped and let go on this event. */
static uint32_t tried(struct model *m, struct rtxg_slice_event event)
{
	const struct rtxg_slice_event *e = &event;
	struct rtxg_slice_action a[16];
	uint32_t acts = 0;
	int n;

	do {
		n = rtxg_slice_step(m->core, m->now, e, a, 16);
		e = NULL;
		for (int i = 0; i < n; i++)
			acts += a[i].type == RTXG_SLICE_SUSPEND || a[i].type == RTXG_SLICE_RESUME;
	} while (n == 16);
	return acts;
}

/* The event that the log holds; false: of a program that is no more. */
static bool logged(const struct model *m, uint32_t i, struct rtxg_slice_event *event)
{
	const struct process *c = &m->c[m->log[i].context];

	*event = (struct rtxg_slice_event){ .type = m->log[i].type,
					    .context = m->log[i].context,
					    .at_ns = m->log[i].at };
	return c->phase != ABSENT && m->log[i].at >= c->born;
}

/* The core is asked both ways, and put back to what it was. */
static void judge(struct model *m, struct rtxg_slice_event event)
{
	struct rtxg_slice_event e;
	uint32_t acts, told = 0;

	if (event.type == RTXG_SLICE_EV_START || event.type == RTXG_SLICE_EV_END ||
	    (event.type == RTXG_SLICE_EV_TIMER && event.value != RTXG_SLICE_UNREAD))
		return;
	memcpy(m->before, m->memory, m->size);
	acts = tried(m, event);
	memcpy(m->memory, m->before, m->size);
	if (!acts)
		return;
	for (uint32_t i = 0; i < m->log_count; i++)
		if (logged(m, i, &e))
			told += tried(m, e);
	told += tried(m, event);
	told += tried(m, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
	memcpy(m->memory, m->before, m->size);
	m->judged++;
	m->hasty += !told;
}

void model_feed(struct model *m, struct rtxg_slice_event event)
{
	struct rtxg_slice_action a[16], failed[16];
	const struct rtxg_slice_event *e = &event;
	uint32_t failures = 0;
	const char *wrong;
	int n;

	if (!m->core)
		return;
	if (m->before)
		judge(m, event);
	do {
		m->host.steps++;
		n = rtxg_slice_step(m->core, m->now, e, a, 16);
		if (n < 0) {
			snprintf(m->wrong, sizeof(m->wrong), "event %u refused: %d", event.type, n);
			return;
		}
		e = NULL;
		look_who_is_ahead(m);
		wrong = rtxg_slice_check(m->core);
		if (wrong && !m->wrong[0])
			snprintf(m->wrong, sizeof(m->wrong), "%s at %llu us", wrong,
				 (unsigned long long)(m->now / US));
		for (int i = 0; i < n; i++) {
			if (a[i].type == RTXG_SLICE_ARM)
				m->timer = a[i].ns, m->unread = a[i].context != RTXG_SLICE_NONE;
			else if (!refuses(m, &a[i]))
				call(m, &a[i]);
			else if (failures < 16)
				failed[failures++] = a[i];
		}
	} while (n == 16);
	for (uint32_t i = 0; i < failures; i++)
		refuse(m, &failed[i]);
}

static void take_effect(struct model *m)
{
	uint32_t i, k = 0;

	for (i = 0; i < m->pending_count; i++) {
		struct rtxg_slice_action *a = &m->pending[i].action;
		struct process *c = &m->c[a->context];

		if (m->pending[i].at > m->now) {
			m->pending[k++] = m->pending[i];
			continue;
		}
		if (c->phase == ABSENT)
			continue;
		if (a->type == RTXG_SLICE_SET) {
			c->slice = a->ns;
		} else {
			c->stopped = a->type == RTXG_SLICE_SUSPEND;
			c->going = c->stopped && a->ns;
		}
	}
	m->pending_count = k;
}

/* What the engine's host has taken of it. */
static uint64_t taken(const struct model *m, uint32_t i)
{
	const struct process *c = &m->c[i];

	if (c->p.waits_seen && m->on != (int)i)
		return c->taken;
	return c->put < c->done + AHEAD ? c->put : c->done + AHEAD;
}

static void look(struct model *m, uint32_t i)
{
	struct process *c = &m->c[i];
	int work = c->put > taken(m, i)	   ? RTXG_SLICE_QUEUED
		   : c->put != c->seen_put ? RTXG_SLICE_WORK
					   : RTXG_SLICE_NO_WORK;

	uint64_t before = c->looked;
	struct rtxg_slice_event event;
	bool late = before && m->now > before + rtxg_slice_look_ns(m->core, i) + MS / 2;

	m->host.looks++;
	m->host.busy_ns += LOOK_COST;
	c->looked = m->now;
	c->seen_put = c->put;
	if (work == c->told && !late)
		return;
	c->told = work;
	event = (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_DEMAND,
					   .context = i,
					   .at_ns = m->now,
					   .since_ns = before,
					   .value = (uint32_t)work };
	if (m->now >= m->host_free)
		model_feed(m, event);
	else if (m->seen_count < SEEN)
		m->seen[m->seen_count++] = event;
}

/* The looks that are due now; true: one was. */
static bool look_around(struct model *m)
{
	bool looked = false;

	for (uint32_t i = 0; i < m->count; i++) {
		struct process *c = &m->c[i];
		uint64_t ns;

		if (c->phase == ABSENT || c->p.unseen)
			continue;
		ns = rtxg_slice_look_ns(m->core, i);
		if (ns == RTXG_SLICE_NEVER) {
			c->next_look = RTXG_SLICE_NEVER;
			continue;
		}
		if (c->next_look == RTXG_SLICE_NEVER || c->next_look > m->now + ns)
			c->next_look = m->now + ns;
		if (m->now < c->next_look)
			continue;
		look(m, i);
		c->next_look = m->now + ns;
		looked = true;
	}
	return looked;
}

/* What was seen during a call of the driver. */
static void tell_seen(struct model *m)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < m->seen_count; i++)
		if (m->c[m->seen[i].context].phase != ABSENT &&
		    m->seen[i].at_ns >= m->c[m->seen[i].context].born)
			m->seen[count++] = m->seen[i];
	m->seen_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (i + 1 < count)
			m->seen[i].value |= RTXG_SLICE_FOLLOWED;
		model_feed(m, m->seen[i]);
	}
}

static void read_log(struct model *m)
{
	struct rtxg_slice_event event;

	for (uint32_t i = 0; i < m->log_count; i++)
		if (logged(m, i, &event))
			model_feed(m, event);
	m->log_count = 0;
}

static void host_step(struct model *m)
{
	bool woke;
	uint64_t late;

	if (!m->core)
		return;
	if (m->now < m->host_free) {
		if (m->lookout && m->now >= m->busy_since + PATIENCE)
			look_around(m);
		return;
	}
	tell_seen(m);
	woke = look_around(m);
	/* Something else has the host's CPU for 100 ms of each second. */
	late = m->timer % MODEL_S < 100 * MS ? m->late_ns / 2 + m->timer % (m->late_ns / 2 + 1) : 0;
	if (m->now >= m->timer && m->now - m->timer >= late) {
		bool unread = m->unread;

		if (!unread && m->slow_ns && !m->flushed) {
			m->flushed = true;
			model_calls(m, 1);
			return;
		}
		m->flushed = false;
		if (m->now - m->timer - late > m->host.late_most_ns) {
			m->host.late_most_ns = m->now - m->timer - late;
			m->host.late_most_at = m->now;
		}
		m->timer = UINT64_MAX;
		if (!unread)
			read_log(m);
		m->host.reads += !unread;
		model_feed(m, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER,
							 .value = unread ? RTXG_SLICE_UNREAD : 0 });
		woke = true;
	}
	if (woke) {
		m->host.wakes++;
		m->host.busy_ns += WAKE_COST;
	}
}

/* ---- the GPU ---- */

static void note(struct model *m, uint32_t type, int context)
{
	if (!m->core || m->log_count == LOG_ROOM)
		return;
	m->log[m->log_count].type = type;
	m->log[m->log_count].context = (uint32_t)context;
	m->log[m->log_count++].at = m->now;
}

static bool has_work(const struct process *c)
{
	return c->phase != ABSENT && c->put > c->done;
}

static bool stalls(const struct model *m, const struct process *c)
{
	return m->now < c->stalled_until;
}

static bool may_run(const struct model *m, int i)
{
	return has_work(&m->c[i]) && !m->c[i].stopped && !stalls(m, &m->c[i]);
}

/* The next one in the runlist, the one on the engine last. */
static int next_one(const struct model *m, int after)
{
	int n = (int)m->count;

	for (int k = 1; k <= n; k++) {
		int i = (after + k + n) % n;

		if (i != after && may_run(m, i))
			return i;
	}
	return after >= 0 && may_run(m, after) ? after : NO_PROCESS;
}

/* Is the bound of its tenant kept now? */
bool model_promised(const struct model *m, const struct process *c)
{
	return m->core && c->p.bound && c->worked && m->now - c->worked < MODEL_S &&
	       m->now > m->came + SETTLES && m->now > c->ahead_at + SETTLES;
}

static void waited(struct model *m, struct process *c)
{
	uint64_t ns = m->now - c->arrived;

	if (!c->arrived)
		return;
	if (c->stats.wait_count < MODEL_WAITS)
		c->stats.waits[c->stats.wait_count++] = ns;
	if (c->bound && c->ahead_at < c->arrived && model_promised(m, c)) {
		c->stats.bound_count++;
		if (ns > c->stats.bound_wait) {
			c->stats.bound_wait = ns;
			c->stats.bound_wait_at = m->now;
		}
	}
	c->arrived = 0;
}

static void come_on(struct model *m, int next)
{
	m->on = next;
	m->stay = 0;
	note(m, RTXG_SLICE_EV_START, next);
	waited(m, &m->c[next]);
}

void model_go_off(struct model *m)
{
	note(m, RTXG_SLICE_EV_END, m->on);
	m->c[m->on].taken = taken(m, (uint32_t)m->on);
	m->last = m->on;
	m->on = NO_PROCESS;
	m->gap = GAP;
}

static void work(struct model *m, struct process *c)
{
	m->stay += STEP;
	c->stats.work_ns += STEP;
	if (m->now / (100 * MS) < MODEL_WINDOWS)
		c->stats.window[m->now / (100 * MS)] += STEP;
	c->worked = m->now;
	waited(m, c);		  /* it was on the engine all the time */
	if (!model_gets_on(m, c)) /* its kernel spins, for another one on another GPU */
		return;
	c->stats.useful_ns += STEP;
	c->kernel = c->kernel > STEP ? c->kernel - STEP : 0;
	if (!c->kernel) {
		c->done++;
		c->kernel = model_kernel_of(c);
		if (c->p.stall_every && c->done % c->p.stall_every == 0)
			c->stalled_until = m->now + c->p.stall_ns;
	}
}

/* Nothing is being done: is that because one with work is stopped? */
static void count_idle(struct model *m)
{
	bool bound = false;

	m->unused += STEP;
	for (uint32_t i = 0; i < m->count; i++)
		bound = bound ||
			(m->c[i].p.bound && m->c[i].phase != ABSENT && m->c[i].phase != PAUSING);
	for (uint32_t i = 0; i < m->count; i++)
		if (m->c[i].stopped && has_work(&m->c[i])) {
			m->idle += STEP;
			m->kept += bound ? STEP : 0;
			return;
		}
}

static void gpu_step(struct model *m)
{
	struct process *c;
	int next;

	if (m->gap) {
		m->gap -= m->gap < STEP ? m->gap : STEP;
		if (!m->gap) {
			next = next_one(m, m->last);
			if (next >= 0)
				come_on(m, next);
		}
		return;
	}
	if (m->on < 0) {
		next = next_one(m, m->last);
		if (next < 0)
			count_idle(m);
		else if (next == m->last)
			come_on(m, next);
		else
			m->gap = GAP;
		return;
	}
	if (m->saving) {
		m->saving -= m->saving < STEP ? m->saving : STEP;
		if (!m->saving)
			model_go_off(m);
		return;
	}
	c = &m->c[m->on];
	next = next_one(m, m->on);
	if (stalls(m, c)) {
		model_go_off(m);
		return;
	}
	if (has_work(c)) {
		bool contended = next >= 0 && next != m->on;

		if ((c->stopped && !c->going) || (contended && m->stay >= c->slice / 1000 * 1024)) {
			m->saving = SAVE;
			return;
		}
		if (!c->stopped || c->done + AHEAD >= c->put || contended) {
			work(m, c);
			return;
		}
	} else if (next >= 0 && next != m->on) {
		model_go_off(m); /* at once */
		return;
	}
	count_idle(m);
}

/* ---- the interface ---- */

struct model *model_open(uint32_t can, const struct rtxg_slice_params *params, uint64_t seed)
{
	struct model *m = calloc(1, sizeof(*m));
	struct rtxg_slice_params p = params ? *params : (struct rtxg_slice_params){ 0 };
	size_t size = rtxg_slice_size(MODEL_TENANTS, MODEL_PROGRAMS);

	if (!m)
		abort();
	m->seed = seed * 2 + 1;
	m->timer = UINT64_MAX;
	m->size = size;
	m->on = m->last = NO_PROCESS;
	p.can = can;
	if (can) {
		m->memory = calloc(1, size);
		m->core = rtxg_slice_init(m->memory, size, MODEL_TENANTS, MODEL_PROGRAMS, &p, 0);
		if (!m->core)
			abort();
	}
	return m;
}

void model_close(struct model *m)
{
	free(m->before);
	free(m->memory);
	free(m);
}

void model_judge(struct model *m)
{
	if (!m->before)
		m->before = malloc(m->size);
	if (!m->before)
		abort();
}

uint64_t model_hasty(const struct model *m, uint64_t *judged)
{
	*judged = m->judged;
	return m->hasty;
}

void model_late(struct model *m, uint64_t late_ns)
{
	m->late_ns = late_ns;
}

void model_slow_calls(struct model *m, uint64_t most_ns)
{
	m->slow_ns = most_ns;
}

void model_lookout(struct model *m)
{
	m->lookout = true;
}

void model_tenant(struct model *m, uint32_t id, struct rtxg_slice_tenant params)
{
	m->tenant[id] = true;
	model_feed(m, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TENANT_SET,
						 .tenant = id,
						 .tenant_params = params });
}

void model_couple(struct model *m, uint32_t tenant, bool coupled)
{
	model_feed(m, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_COUPLE,
						 .tenant = tenant,
						 .value = coupled ? RTXG_SLICE_COUPLED : 0 });
}

uint32_t model_program(struct model *m, struct model_program program)
{
	struct process *c = &m->c[m->count];

	if (m->count == MODEL_PROGRAMS)
		abort();
	c->p = program;
	c->p.launches = program.launches ? program.launches : 1;
	c->p.depth = program.depth ? program.depth : 1;
	c->seed = m->count + 77;
	return m->count++;
}

/* For how long has one with work not been on the engine? */
static void note_waits(struct model *m)
{
	for (uint32_t i = 0; i < m->count; i++) {
		struct process *c = &m->c[i];

		c->off = has_work(c) && m->on != (int)i ? c->off + STEP : 0;
		if (c->off <= c->stats.longest_ns)
			continue;
		c->stats.longest_ns = c->off;
		c->stats.longest_at = m->now;
	}
}

void model_run(struct model *m, uint64_t until_ns)
{
	while (m->now < until_ns && !m->wrong[0]) {
		note_waits(m);
		for (uint32_t i = 0; i < m->count; i++)
			model_program_step(m, i);
		gpu_step(m);
		m->now += STEP;
		take_effect(m);
		host_step(m);
	}
}

struct rtxg_slice *model_core(struct model *m)
{
	return m->core;
}

const struct model_stats *model_stats(const struct model *m, uint32_t program)
{
	return &m->c[program].stats;
}

const struct model_host *model_host(const struct model *m)
{
	return &m->host;
}

uint64_t model_idle_ns(const struct model *m)
{
	return m->idle;
}

uint64_t model_kept_ns(const struct model *m)
{
	return m->kept;
}

uint64_t model_free_ns(const struct model *m)
{
	return m->unused;
}

uint64_t model_work_ns(const struct model *m)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < m->count; i++)
		all += m->c[i].stats.work_ns;
	return all;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

uint64_t model_quantile(const uint64_t *times, uint32_t count, uint32_t skip, double q)
{
	uint64_t *sorted, found;
	uint32_t n = count > skip ? count - skip : 0;

	if (!n)
		return 0;
	sorted = malloc(n * sizeof(*sorted));
	if (!sorted)
		abort();
	memcpy(sorted, times + skip, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), by_value);
	found = sorted[(uint32_t)(q * (n - 1))];
	free(sorted);
	return found;
}

const char *model_wrong(const struct model *m)
{
	return m->wrong[0] ? m->wrong : NULL;
}
