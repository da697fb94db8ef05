// SPDX-License-Identifier: MIT
/*
 * test_slice.c - core/slice/slice.c against a model of a GPU that time-slices contexts. Every time
 * is computed and none is measured: the same run every time, on any machine.
 *
 * The model: contexts that are enabled and have work take turns; a stay lasts for the slice (in the
 * hardware's units of 1.024 us) or until the work is done; a cut stay ends with 95 us of saving;
 * the next starts 84 us later; a context that is not displaced stays. Those are figures of an H200.
 * The model's host reads the log when the timer comes, and takes as long over an action as the
 * driver does: 600 us to stop, 400 us to let go, 900 us for a slice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "rtxg_slice.h"

#define US	    1000ull
#define MS	    1000000ull
#define S	    1000000000ull
#define STEP	    (10 * US)
#define CONTEXTS    16
#define TENANTS	    8
#define WINDOWS	    64
#define BEST_EFFORT 1
#define CRITICAL    RTXG_SLICE_CRITICAL_PRIORITY

struct model_context {
	int used, tenant;
	uint64_t backlog;	     /* work waiting */
	int hog;		     /* always has work */
	uint64_t busy_from, busy_to; /* a hog only in that time; 0, 0 = always */
	uint64_t period, exec, next; /* periodic jobs */
	uint64_t released, latency_max, latency_after, jobs;
	int stopped;
	uint64_t slice;
	uint64_t work;
	uint64_t window[WINDOWS]; /* work in each 100 ms */
	uint64_t latencies[4096];
};

struct model {
	struct rtxg_slice *core;
	void *mem;
	struct model_context c[CONTEXTS];
	uint64_t now, timer, host_free;
	int on, saving, last;
	uint64_t stay, gap;
	struct {
		struct rtxg_slice_action a;
		uint64_t at;
	} pending[256];
	int pending_count;
	struct {
		uint32_t type, context;
		uint64_t at;
	} log[65536];
	int log_count;
	uint64_t stops, sets, reads;
	bool unread;	  /* at the timer's time the log need not be read */
	int fail_context; /* acting on it fails */
};

static void feed(struct model *m, const struct rtxg_slice_event *e);

static void take(struct model *m, const struct rtxg_slice_action *a)
{
	uint64_t cost = a->type == RTXG_SLICE_SUSPEND  ? 600 * US
			: a->type == RTXG_SLICE_RESUME ? 400 * US
						       : 900 * US;

	if (a->type == RTXG_SLICE_ARM) {
		m->timer = a->ns;
		m->unread = a->context != RTXG_SLICE_NONE;
		return;
	}
	if ((int)a->context == m->fail_context) {
		struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_FAILED, .context = a->context };

		feed(m, &e);
		return;
	}
	if (m->host_free < m->now)
		m->host_free = m->now;
	/* Neighbours of one type go in one call. */
	if (!(m->pending_count && m->pending[m->pending_count - 1].a.type == a->type &&
	      a->type != RTXG_SLICE_SET))
		m->host_free += cost;
	assert_true(m->pending_count < 256);
	m->pending[m->pending_count].a = *a;
	m->pending[m->pending_count++].at = m->host_free;
	m->stops += a->type == RTXG_SLICE_SUSPEND;
	m->sets += a->type == RTXG_SLICE_SET;
}

static void feed(struct model *m, const struct rtxg_slice_event *e)
{
	struct rtxg_slice_action a[8];
	int n = rtxg_slice_step(m->core, m->now, e, a, 8), i;

	assert_true(n >= 0);
	for (;;) {
		const char *wrong = rtxg_slice_check(m->core);

		if (wrong)
			fail_msg("%s at %llu us", wrong, (unsigned long long)(m->now / US));
		for (i = 0; i < n; i++)
			take(m, &a[i]);
		if (n < 8)
			return;
		n = rtxg_slice_step(m->core, m->now, NULL, a, 8);
	}
}

static void setup(struct model *m, const struct rtxg_slice_params *p)
{
	memset(m, 0, sizeof(*m));
	m->mem = calloc(1, rtxg_slice_size(TENANTS, CONTEXTS));
	m->core = rtxg_slice_init(m->mem, rtxg_slice_size(TENANTS, CONTEXTS), TENANTS, CONTEXTS, p,
				  0);
	assert_non_null(m->core);
	m->timer = UINT64_MAX;
	m->on = m->last = -1;
	m->fail_context = -1;
}

static void teardown(struct model *m)
{
	free(m->mem);
}

static void tenant(struct model *m, uint32_t id, uint32_t min_percent, uint32_t max_percent,
		   uint32_t priority, uint64_t period)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TENANT_SET,
				      .tenant = id,
				      .tenant_params = { .min_ppm = min_percent * 10000,
							 .max_ppm = max_percent * 10000,
							 .priority = priority,
							 .period_ns = period } };
	feed(m, &e);
}

static struct model_context *add(struct model *m, uint32_t id, uint32_t tenant_id)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_ADD,
				      .context = id,
				      .tenant = tenant_id };

	m->c[id].used = 1;
	m->c[id].tenant = (int)tenant_id;
	m->c[id].slice = 2 * MS;
	m->c[id].hog = 1;
	feed(m, &e);
	return &m->c[id];
}

static void note(struct model *m, uint32_t type, int context)
{
	assert_true(m->log_count < 65536);
	m->log[m->log_count].type = type;
	m->log[m->log_count].context = (uint32_t)context;
	m->log[m->log_count++].at = m->now;
}

static int wants(const struct model *m, int i)
{
	const struct model_context *c = &m->c[i];

	if (!c->used || c->stopped)
		return 0;
	if (c->hog)
		return !c->busy_to || (m->now >= c->busy_from && m->now < c->busy_to);
	return c->backlog > 0;
}

static int next_one(const struct model *m, int after)
{
	for (int k = 1; k <= CONTEXTS; k++) {
		int i = (after + k + CONTEXTS) % CONTEXTS;

		if (i != after && wants(m, i))
			return i;
	}
	return after >= 0 && wants(m, after) ? after : -1;
}

static void gpu_step(struct model *m)
{
	int i, next;

	for (i = 0; i < CONTEXTS; i++) {
		struct model_context *c = &m->c[i];

		if (!c->used || c->hog || !c->period || m->now < c->next)
			continue;
		if (!c->backlog)
			c->released = m->now;
		c->backlog += c->exec;
		c->next += c->period;
	}
	if (m->gap) {
		m->gap -= STEP < m->gap ? STEP : m->gap;
		if (!m->gap) {
			next = next_one(m, m->last);
			if (next >= 0) {
				m->on = next;
				m->stay = 0;
				note(m, RTXG_SLICE_EV_START, next);
			}
		}
		return;
	}
	if (m->on < 0) {
		next = next_one(m, m->last);
		if (next >= 0) {
			m->on = next;
			m->stay = 0;
			note(m, RTXG_SLICE_EV_START, next);
		}
		return;
	}
	if (m->saving > 0) {
		m->saving -= (int)STEP;
		if (m->saving <= 0) {
			note(m, RTXG_SLICE_EV_END, m->on);
			m->last = m->on;
			m->on = -1;
			m->gap = 84 * US;
		}
		return;
	}
	{
		struct model_context *c = &m->c[m->on];

		next = next_one(m, m->on);
		if (c->stopped || (m->stay >= c->slice * 1024 / 1000 && next >= 0 &&
				   next != m->on && wants(m, m->on))) {
			m->saving = 95 * (int)US;
			return;
		}
		if (!wants(m, m->on)) {
			/* idle: off at once if another context wants the engine, else it stays */
			if (next >= 0 && next != m->on) {
				note(m, RTXG_SLICE_EV_END, m->on);
				m->last = m->on;
				m->on = -1;
				m->gap = 84 * US;
			}
			return;
		}
		m->stay += STEP;
		c->work += STEP;
		if (m->now / (100 * MS) < WINDOWS)
			c->window[m->now / (100 * MS)] += STEP;
		if (!c->hog) {
			c->backlog -= STEP < c->backlog ? STEP : c->backlog;
			if (!c->backlog) {
				uint64_t latency = m->now + STEP - c->released;

				c->latencies[c->jobs < 4096 ? c->jobs : 4095] = latency;
				c->jobs++;
				if (latency > c->latency_max)
					c->latency_max = latency;
				if (m->now > S && latency > c->latency_after)
					c->latency_after = latency;
			}
		}
	}
}

static void run(struct model *m, uint64_t until)
{
	while (m->now < until) {
		int i, k = 0;

		gpu_step(m);
		m->now += STEP;
		for (i = 0; i < m->pending_count; i++) {
			struct rtxg_slice_action *a = &m->pending[i].a;

			if (m->pending[i].at > m->now) {
				m->pending[k++] = m->pending[i];
				continue;
			}
			if (a->type == RTXG_SLICE_SUSPEND)
				m->c[a->context].stopped = 1;
			else if (a->type == RTXG_SLICE_RESUME)
				m->c[a->context].stopped = 0;
			else
				m->c[a->context].slice = a->ns;
		}
		m->pending_count = k;
		if (m->now >= m->timer && m->now >= m->host_free) {
			bool unread = m->unread;
			struct rtxg_slice_event t = { .type = RTXG_SLICE_EV_TIMER,
						      .value = unread ? RTXG_SLICE_UNREAD : 0 };

			m->timer = UINT64_MAX;
			m->reads += !unread;
			for (i = 0; i < m->log_count && !unread; i++) {
				struct rtxg_slice_event e = { .type = m->log[i].type,
							      .context = m->log[i].context,
							      .at_ns = m->log[i].at };

				if (m->c[e.context].used)
					feed(m, &e);
			}
			m->log_count = unread ? m->log_count : 0;
			feed(m, &t);
		}
	}
}

/*
 * Largest error of a share, in percent points, over all windows of 1 s (in steps of 100 ms) between
 * two times.
 */
static double worst(struct model *m, const double *percent, int tenants, uint64_t from, uint64_t to)
{
	double bad = 0;

	for (uint64_t w = from / (100 * MS); w + 10 <= to / (100 * MS); w++) {
		double work[TENANTS] = { 0 }, all = 0;

		for (int i = 0; i < CONTEXTS; i++)
			for (int k = 0; k < 10; k++)
				if (m->c[i].used && m->c[i].hog) {
					work[m->c[i].tenant] +=
						(double)m->c[i].window[w + (uint64_t)k];
					all += (double)m->c[i].window[w + (uint64_t)k];
				}
		for (int t = 0; t < tenants; t++) {
			double error = work[t] * 100 / all - percent[t];

			error = error < 0 ? -error : error;
			bad = error > bad ? error : bad;
		}
	}
	return bad;
}

static double total(struct model *m)
{
	double all = 0;

	for (int i = 0; i < CONTEXTS; i++)
		all += (double)m->c[i].work;
	return all / (double)m->now;
}

static const struct rtxg_slice_params both = { .can = RTXG_SLICE_CAN_SLICE |
						      RTXG_SLICE_CAN_SUSPEND };

static void shares_60_20_10_10(void **state)
{
	static const double want[] = { 60, 20, 10, 10 };
	struct model m;
	double error;

	setup(&m, &both);
	for (uint32_t i = 0; i < 4; i++) {
		tenant(&m, i, (uint32_t)want[i], 0, BEST_EFFORT, 0);
		add(&m, i, i);
	}
	run(&m, 6 * S);
	error = worst(&m, want, 4, S, 6 * S);
	print_message("worst 1 s window %.2f points, throughput %.1f %%, %llu stops, %llu slices\n",
		      error, 100 * total(&m), (unsigned long long)m.stops,
		      (unsigned long long)m.sets);
	assert_true(error < 1.0);
	/* 92 %: what this model does with four hogs left alone */
	assert_true(total(&m) > 0.92 * 0.98);
	teardown(&m);
}

/* What people are shown: each context's time on the engine, and for how long it was stopped. */
static void accounts_of_contexts_add_up(void **state)
{
	struct rtxg_slice_params p = { .can = RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND };
	struct rtxg_slice_context_view v, w;
	struct rtxg_slice_view t;
	struct model m;
	int i;

	setup(&m, &p);
	for (i = 0; i < 2; i++) {
		tenant(&m, (uint32_t)i, i ? 20 : 80, 0, BEST_EFFORT, 0);
		add(&m, (uint32_t)i, (uint32_t)i);
	}
	run(&m, 3 * S);
	for (i = 0; i < 2; i++) {
		assert_int_equal(rtxg_slice_context_view(m.core, (uint32_t)i, &v), 0);
		assert_int_equal(rtxg_slice_tenant_view(m.core, (uint32_t)i, &t), 0);
		assert_int_equal(v.work_ns, t.work_ns); /* the only one of its tenant */
		assert_int_equal(v.stay_ns, t.stay_ns);
		assert_int_equal(v.stays, t.stays);
		assert_int_equal(v.stopped_ns, t.stopped_ns);
		assert_true(v.work_ns > m.c[i].work * 97 / 100 &&
			    v.work_ns < m.c[i].work * 103 / 100);
		assert_true(t.wanted_ns > 3 * S * 95 / 100 && t.wanted_ns <= 3 * S);
		assert_true(v.state == RTXG_SLICE_RUNNING || v.state == RTXG_SLICE_WAITING ||
			    v.state == RTXG_SLICE_STOPPED);
	}
	assert_true(v.stopped_ns > 100 * MS); /* the one with 20 % */
	/* Moving takes the context's own account along and leaves the tenants' as they were. */
	feed(&m,
	     &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_MOVE, .context = 1, .tenant = 0 });
	assert_int_equal(rtxg_slice_context_view(m.core, 1, &w), 0);
	assert_true(w.work_ns >= v.work_ns && w.stopped_ns >= v.stopped_ns);
	assert_int_equal(rtxg_slice_tenant_view(m.core, 1, &t), 0);
	assert_int_equal(t.contexts, 0);
	assert_true(t.stopped_ns >= v.stopped_ns);
	assert_int_equal(rtxg_slice_context_view(m.core, 2, &w), -ENOENT);
	assert_int_equal(rtxg_slice_context_view(m.core, CONTEXTS, &w), -ENOENT);
	teardown(&m);
}

static void shares_hold_by_stopping_alone(void **state)
{
	static const struct rtxg_slice_params p = { .can = RTXG_SLICE_CAN_SUSPEND };
	static const double want[] = { 60, 20, 10, 10 };
	struct model m;

	setup(&m, &p);
	for (uint32_t i = 0; i < 4; i++) {
		tenant(&m, i, (uint32_t)want[i], 0, BEST_EFFORT, 0);
		add(&m, i, i);
	}
	run(&m, 6 * S);
	print_message("worst %.2f points, throughput %.1f %%, %llu stops\n",
		      worst(&m, want, 4, S, 6 * S), 100 * total(&m), (unsigned long long)m.stops);
	assert_true(worst(&m, want, 4, S, 6 * S) < 1.0);
	assert_int_equal(m.sets, 0);
	teardown(&m);
}

static void shares_hold_by_slices_alone(void **state)
{
	static const struct rtxg_slice_params p = { .can = RTXG_SLICE_CAN_SLICE };
	static const double want[] = { 60, 20, 10, 10 };
	struct model m;

	setup(&m, &p);
	for (uint32_t i = 0; i < 4; i++) {
		tenant(&m, i, (uint32_t)want[i], 0, BEST_EFFORT, 0);
		add(&m, i, i);
	}
	run(&m, 6 * S);
	for (uint32_t i = 0; i < 4; i++) {
		struct rtxg_slice_view v;

		rtxg_slice_tenant_view(m.core, i, &v);
		print_message("%u: slice %llu us, %.2f %% of the work, %llu stays\n", i,
			      (unsigned long long)m.c[i].slice / US,
			      100.0 * (double)v.work_ns / (double)m.now,
			      (unsigned long long)v.stays);
	}
	print_message("worst %.2f points, throughput %.1f %%\n", worst(&m, want, 4, 3 * S, 6 * S),
		      100 * total(&m));
	assert_true(worst(&m, want, 4, 3 * S, 6 * S) < 1.5);
	assert_int_equal(m.stops, 0);
	teardown(&m);
}

static void forks_win_nothing(void **state)
{
	static const double want[] = { 40, 60 };
	struct model m;

	setup(&m, &both);
	tenant(&m, 0, 40, 0, BEST_EFFORT, 0);
	tenant(&m, 1, 60, 0, BEST_EFFORT, 0);
	for (uint32_t i = 0; i < 4; i++)
		add(&m, i, 0);
	add(&m, 4, 1);
	run(&m, 5 * S);
	print_message("worst %.2f points\n", worst(&m, want, 2, S, 5 * S));
	assert_true(worst(&m, want, 2, S, 5 * S) < 1.0);
	teardown(&m);
}

static void weigh(struct model *m, uint32_t id, uint32_t min_percent, uint32_t weight)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TENANT_SET,
				      .tenant = id,
				      .tenant_params = { .min_ppm = min_percent * 10000,
							 .weight = weight,
							 .priority = BEST_EFFORT } };
	feed(m, &e);
}

/* Shares of hogs, one for each tenant, that have these reservations and weights. */
static void shares_follow(const uint32_t *min, const uint32_t *weights, const double *want, int n)
{
	struct model m;
	double error;

	setup(&m, &both);
	for (uint32_t i = 0; i < (uint32_t)n; i++) {
		weigh(&m, i, min[i], weights[i]);
		add(&m, i, i);
	}
	run(&m, 5 * S);
	error = worst(&m, want, n, S, 5 * S);
	print_message("worst 1 s window %.2f points\n", error);
	assert_true(error < 1.0);
	teardown(&m);
}

static void weights_of_300_and_100_are_three_to_one(void **state)
{
	shares_follow((uint32_t[]){ 0, 0 }, (uint32_t[]){ 300, 100 }, (double[]){ 75, 25 }, 2);
	/* the reservations first, the other 60 % by weight */
	shares_follow((uint32_t[]){ 10, 30 }, (uint32_t[]){ 300, 100 }, (double[]){ 55, 45 }, 2);
}

static void a_weight_that_was_not_given_follows_from_the_reservation(void **state)
{
	const uint32_t none = RTXG_SLICE_WEIGHT_NOT_GIVEN;

	/* nothing reserved: 100 */
	shares_follow((uint32_t[]){ 0, 0 }, (uint32_t[]){ 300, none }, (double[]){ 75, 25 }, 2);
	/* 40 % reserved: 200. What is left over, 60 %, goes 300 to 200 */
	shares_follow((uint32_t[]){ 0, 40 }, (uint32_t[]){ 300, none }, (double[]){ 36, 64 }, 2);
	/* none given at all: in proportion to the reservations */
	shares_follow((uint32_t[]){ 10, 30 }, (uint32_t[]){ none, none }, (double[]){ 25, 75 }, 2);
}

static void idle_time_goes_to_the_others_in_proportion(void **state)
{
	static const double all[] = { 60, 20, 20 }, without[] = { 0, 50, 50 };
	struct model m;

	setup(&m, &both);
	for (uint32_t i = 0; i < 3; i++) {
		tenant(&m, i, (uint32_t)all[i], 0, BEST_EFFORT, 0);
		add(&m, i, i);
	}
	m.c[0].busy_from = 0;
	m.c[0].busy_to = 3 * S;
	run(&m, 6 * S);
	assert_true(worst(&m, all, 3, S, 3 * S) < 1.0);
	print_message("worst after one fell idle %.2f points\n",
		      worst(&m, without, 3, 3200 * MS, 6 * S));
	assert_true(worst(&m, without, 3, 3200 * MS, 6 * S) < 1.0);
	teardown(&m);
}

static void late_starter_gets_its_share_and_no_more(void **state)
{
	static const double want[] = { 40, 60 };
	struct model m;

	setup(&m, &both);
	tenant(&m, 0, 40, 0, BEST_EFFORT, 0);
	tenant(&m, 1, 60, 0, BEST_EFFORT, 0);
	add(&m, 0, 0);
	add(&m, 1, 1);
	m.c[1].busy_from = 2 * S;
	m.c[1].busy_to = 100 * S;
	run(&m, 5 * S);
	print_message("worst %.2f points\n", worst(&m, want, 2, 2100 * MS, 5 * S));
	assert_true(worst(&m, want, 2, 2100 * MS, 5 * S) < 1.0);
	teardown(&m);
}

static void caps_hold_alone(void **state)
{
	struct model m;

	setup(&m, &both);
	tenant(&m, 0, 10, 30, BEST_EFFORT, 0);
	add(&m, 0, 0);
	run(&m, 5 * S);
	print_message("cap of 30 %%: %.2f %%\n", 100 * (double)m.c[0].work / (double)m.now);
	assert_true((double)m.c[0].work / (double)m.now < 0.305);
	assert_true((double)m.c[0].work / (double)m.now > 0.28);
	teardown(&m);
}

/* The log is read late, so a charge up to now may have to be taken back; people were shown it. */
static void counters_that_are_shown_only_grow(void **state)
{
	struct rtxg_slice_view t, was = { 0 };
	struct rtxg_slice_context_view c, had = { 0 };
	uint64_t at = 0;
	struct model m;

	setup(&m, &both);
	tenant(&m, 0, 10, 0, BEST_EFFORT, 0);
	tenant(&m, 1, 10, 0, BEST_EFFORT, 0);
	add(&m, 0, 0);
	add(&m, 1, 1);
	for (int i = 0; i < 200; i++) {
		struct rtxg_slice_event e = { .type = i & 1 ? RTXG_SLICE_EV_END
							    : RTXG_SLICE_EV_START,
					      .at_ns = at };

		/* It ends 2.9 ms before that is told of, and in each tenth stay later. */
		feed(&m, &e);
		m.now += 3 * MS;
		at = i & 1 ? m.now : m.now - (i % 20 ? 2900 * US : 0);
		feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
		assert_int_equal(rtxg_slice_tenant_view(m.core, 0, &t), 0);
		assert_int_equal(rtxg_slice_context_view(m.core, 0, &c), 0);
		assert_true(t.work_ns >= was.work_ns && t.stay_ns >= was.stay_ns);
		assert_true(c.work_ns >= had.work_ns && c.stay_ns >= had.stay_ns);
		was = t;
		had = c;
	}
	/* 90 stays of 0.1 ms and 10 of 3 ms, and what was charged ahead last */
	assert_true(t.stay_ns >= 39 * MS && t.stay_ns <= 42 * MS);
	teardown(&m);
}

static void alone_is_left_alone(void **state)
{
	struct model m;

	setup(&m, &both);
	tenant(&m, 0, 10, 0, BEST_EFFORT, 0);
	add(&m, 0, 0);
	run(&m, 3 * S);
	assert_int_equal(m.stops, 0);
	assert_int_equal(m.sets, 0);
	assert_true(m.c[0].work > 3 * S - 100 * MS);
	teardown(&m);
}

static void the_log_is_asked_for_seldom_where_no_program_is(void **state)
{
	struct model m;
	uint64_t empty, alone;

	setup(&m, &both);
	tenant(&m, 0, 10, 0, BEST_EFFORT, 0);
	run(&m, 1 * S);
	empty = m.timer - m.now;
	add(&m, 0, 0);
	run(&m, 2 * S);
	alone = m.timer - m.now;
	m.reads = 0;
	run(&m, 12 * S);
	assert_true(m.reads < 100);
	/* a program of another tenant may start to work beside it without a word */
	tenant(&m, 1, 10, 0, BEST_EFFORT, 0);
	add(&m, 1, 1)->hog = 0;
	run(&m, 13 * S);
	assert_true(m.timer - m.now <= 30 * MS);
	assert_true(empty > 30 * MS && empty <= 120 * MS && alone <= 120 * MS);
	teardown(&m);
}

static struct model_context *critical_job(struct model *m, uint32_t id, uint32_t tenant_id,
					  uint64_t period, uint64_t exec)
{
	struct model_context *c = add(m, id, tenant_id);

	c->hog = 0;
	c->period = period;
	c->exec = exec;
	c->next = 50 * MS;
	return c;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t percentile(struct model_context *c, double q, uint64_t skip)
{
	static uint64_t sorted[4096];
	uint64_t n = c->jobs - skip;

	memcpy(sorted, c->latencies + skip, n * sizeof(sorted[0]));
	qsort(sorted, n, sizeof(sorted[0]), by_value);
	return sorted[(uint64_t)((double)n * q)];
}

static void critical_waits_for_one_short_slice(void **state)
{
	static const double want[] = { 60, 20, 20 };
	struct model_context *rt;
	struct model m;

	setup(&m, &both);
	for (uint32_t i = 0; i < 3; i++) {
		tenant(&m, i, (uint32_t)want[i], 0, BEST_EFFORT, 0);
		add(&m, i, i);
	}
	tenant(&m, 3, 0, 0, CRITICAL, 0);
	rt = critical_job(&m, 3, 3, 10370 * US, 100 * US);
	run(&m, 6 * S);
	print_message("p50 %llu us, p99 %llu us, max after 1 s %llu us; throughput %.1f %%; shares "
		      "off by %.1f points\n",
		      (unsigned long long)percentile(rt, 0.5, 20) / US,
		      (unsigned long long)percentile(rt, 0.99, 20) / US,
		      (unsigned long long)rt->latency_after / US, 100 * total(&m),
		      worst(&m, want, 3, S, 6 * S));
	assert_int_equal(rtxg_slice_turns(m.core), 1);
	assert_true(percentile(rt, 0.99, 20) < 450 * US);
	assert_true(total(&m) > 0.92);
	assert_true(m.reads < 6 * 120);
	/* a turn more or less in a window of 1 s */
	assert_true(worst(&m, want, 3, 2 * S, 6 * S) < 9);
	teardown(&m);
}

static void periodic_finds_the_engine_free(void **state)
{
	struct model_context *rt;
	struct model m;

	setup(&m, &both);
	for (uint32_t i = 0; i < 3; i++) {
		tenant(&m, i, 30, 0, BEST_EFFORT, 0);
		add(&m, i, i);
	}
	tenant(&m, 3, 0, 0, CRITICAL, 10 * MS);
	rt = critical_job(&m, 3, 3, 10 * MS, 100 * US);
	run(&m, 6 * S);
	print_message("p50 %llu us, p99 %llu us, max after 1 s %llu us; throughput %.1f %%\n",
		      (unsigned long long)percentile(rt, 0.5, 50) / US,
		      (unsigned long long)percentile(rt, 0.99, 50) / US,
		      (unsigned long long)rt->latency_after / US, 100 * total(&m));
	/* 100 us of work, 84 us to come onto the engine, steps of 10 us */
	assert_true(percentile(rt, 0.99, 100) < 220 * US);
	assert_true(total(&m) > 0.80);
	/* Two wake-ups for each release do not need it. */
	assert_true(m.reads < 6 * 120);
	teardown(&m);
}

/* What the log says of some jobs is told when it is read, and the host wakes up without that. */
static void log_read(struct model *m, struct rtxg_slice_event *log, uint32_t *count)
{
	for (uint32_t i = 0; i < *count; i++)
		feed(m, &log[i]);
	*count = 0;
	feed(m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
}

/*
 * A program that brings its own context in ahead of time, when it is told to: it is told the right
 * time, and that teaches us nothing wrong, however late the log is read.
 */
static void brought_in_ahead(uint32_t jobs_a_reading)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TENANT_SET,
				      .tenant = 0,
				      .tenant_params = { .priority = CRITICAL,
							 .period_ns = 10 * MS } };
	struct rtxg_slice_event log[32];
	uint64_t start = 3 * MS, told = 0, listened = 0;
	uint32_t count = 0;
	struct model m;

	setup(&m, &both);
	assert_int_equal(rtxg_slice_next_warm(m.core, 0), RTXG_SLICE_NEVER);
	feed(&m, &e);
	feed(&m,
	     &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD, .context = 0, .tenant = 0 });
	feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_WARMS, .context = 0 });
	for (uint32_t job = 0; job < 1000; job++) {
		uint64_t warm, on;

		if (job == 600) {
			/* silent for two seconds, then releases begin again with another phase */
			log_read(&m, log, &count);
			start += 2000 * MS + 4 * MS;
		}
		warm = job == 600 ? RTXG_SLICE_NEVER : rtxg_slice_next_warm(m.core, 0);
		if (warm != RTXG_SLICE_NEVER) {
			/*
			 * 85 us after it was told its context is there, and stays until the job has
			 * run.
			 */
			assert_true(warm + 350 * US > start + 60 * US &&
				    warm + 350 * US < start + 110 * US);
			told++;
			on = warm + 85 * US;
		} else {
			listened++;
			on = start + 85 * US;
		}
		log[count++] = (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_START,
							  .context = 0,
							  .at_ns = on };
		m.now = start + 300 * US; /* the others are let go and take the engine */
		log[count++] = (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_END,
							  .context = 0,
							  .at_ns = m.now };
		if (job % jobs_a_reading == jobs_a_reading - 1)
			log_read(&m, log, &count);
		else
			feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER,
							     .value = RTXG_SLICE_UNREAD });
		start += 10 * MS;
	}
	/* 11 at each beginning, or as many as until the log is read, and one of 200 */
	assert_true(listened >= 20 && listened < 40 + 2 * jobs_a_reading);
	assert_true(told > 960 - 2 * jobs_a_reading);
	teardown(&m);
}

static void a_context_is_brought_in_ahead_of_its_release(void **state)
{
	brought_in_ahead(1);
}

static void a_context_is_brought_in_ahead_where_the_log_is_read_late(void **state)
{
	brought_in_ahead(3);
	brought_in_ahead(10);
}

/* Jobs of one context, each as it was released, until the releases are known well enough. */
static void regular_jobs(struct model *m, uint32_t context, uint64_t period)
{
	for (int job = 0; job < 30; job++) {
		m->now += period - 300 * US;
		feed(m, &(struct rtxg_slice_event){
				.type = RTXG_SLICE_EV_START, .context = context, .at_ns = m->now });
		m->now += 300 * US;
		feed(m, &(struct rtxg_slice_event){
				.type = RTXG_SLICE_EV_END, .context = context, .at_ns = m->now });
		feed(m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
	}
}

/*
 * Jobs of a program with a period of 10 ms. At its 31st release, and at `times` releases in all, it
 * also starts other work, `other` us after the release. Returns when its next release will be.
 */
static uint64_t starts_beside_releases(struct model *m, int64_t other, uint32_t times,
				       uint32_t jobs)
{
	struct rtxg_slice_event start = { .type = RTXG_SLICE_EV_START };
	uint64_t release = 20 * MS;

	setup(m, &both);
	tenant(m, 0, 0, 0, CRITICAL, 10 * MS);
	feed(m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD });
	feed(m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_WARMS });
	for (uint32_t job = 0; job < jobs; job++, release += 10 * MS) {
		uint64_t at[2] = { release, release };
		uint32_t n = 0;

		if (job >= 30 && job < 30 + times && other) {
			at[other < 0 ? 0 : 1] = release + (uint64_t)(other * (int64_t)US);
			n = 1;
		}
		for (uint32_t i = 0; i <= n; i++) {
			m->now = start.at_ns = at[i];
			feed(m, &start);
			m->now += 20 * US;
			feed(m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_END,
							    .at_ns = m->now });
			feed(m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
		}
	}
	return release;
}

/* What a program does once, as what a library does at its first call, is no release. */
static void other_work_changes_no_release(void **state)
{
	static const int64_t others[] = { -9100, -7400, -5000, -2400, -1100, -600,
					  120,	 600,	855,   2400,  2600,  5000 };
	struct model m;

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		for (uint32_t times = 1; times < 3; times++) {
			uint64_t next = starts_beside_releases(&m, others[i], times, 31 + times);

			assert_int_equal(rtxg_slice_next_release(m.core, 0), next);
			assert_int_equal(rtxg_slice_next_warm(m.core, 0), next - 350 * US);
			teardown(&m);
		}
	}
}

/* But if it always has work so early that belongs to the release. */
static void releases_are_where_the_earliest_starts_are(void **state)
{
	struct model m;
	uint64_t next = starts_beside_releases(&m, -1100, 100, 60) - 1100 * US;

	assert_int_equal(rtxg_slice_next_release(m.core, 0), next);
	assert_int_equal(rtxg_slice_next_warm(m.core, 0), next - 350 * US);
	teardown(&m);
}

/*
 * A program with a period of 10 ms that can be brought in ahead of its releases: one start, then
 * `jobs` releases from 30 ms on. Returns when the next one will be.
 */
static uint64_t starts_after_another(struct model *m, uint64_t first, uint32_t jobs)
{
	struct rtxg_slice_event start = { .type = RTXG_SLICE_EV_START, .at_ns = first };
	uint64_t release = 30 * MS;

	setup(m, &both);
	tenant(m, 0, 0, 0, CRITICAL, 10 * MS);
	feed(m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD });
	feed(m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_WARMS });
	for (uint32_t job = 0; job <= jobs; job++) {
		m->now = start.at_ns;
		feed(m, &start);
		m->now += 20 * US;
		feed(m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_END, .at_ns = m->now });
		feed(m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
		start.at_ns = release + job * 10 * MS;
	}
	return start.at_ns;
}

/* What a program does before its first release says nothing for long of when those are. */
static void releases_are_soon_known_whatever_is_done_before_the_first(void **state)
{
	struct model m;

	for (uint64_t ahead = 300 * US; ahead < 10 * MS; ahead += 700 * US) {
		uint64_t next = starts_after_another(&m, 20 * MS - ahead + 10 * MS, 22);

		assert_int_equal(rtxg_slice_next_release(m.core, 0), next);
		assert_int_equal(rtxg_slice_next_warm(m.core, 0), next - 350 * US);
		teardown(&m);
	}
}

/* A host that is busy for a while starts all work late: that moves no release that is known. */
static void releases_that_are_known_are_not_moved_by_a_busy_host(void **state)
{
	struct rtxg_slice_event start = { .type = RTXG_SLICE_EV_START };
	uint64_t release = 20 * MS, next;
	struct model m;

	setup(&m, &both);
	tenant(&m, 0, 0, 0, CRITICAL, 10 * MS);
	feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD });
	for (uint32_t job = 0; job < 60; job++, release += 10 * MS) {
		m.now = start.at_ns = release + (job >= 30 && job < 50 ? 1500 * US : 0);
		feed(&m, &start);
		m.now += 20 * US;
		feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_END, .at_ns = m.now });
		feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
		next = rtxg_slice_next_release(m.core, 0);
		assert_in_range(next, release + 10 * MS, release + 10 * MS + 200 * US);
	}
	teardown(&m);
}

/* What the host says of a release is known: starts that were late before it say nothing then. */
static void late_starts_do_not_count_after_a_release_that_is_told(void **state)
{
	struct rtxg_slice_event start = { .type = RTXG_SLICE_EV_START };
	uint64_t release = 20 * MS;
	struct model m;

	setup(&m, &both);
	tenant(&m, 0, 0, 0, CRITICAL, 10 * MS);
	feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD });
	for (uint32_t job = 0; job < 10; job++, release += 10 * MS) {
		if (job == 8) {
			m.now = release;
			feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_RELEASE,
							     .at_ns = release });
		}
		m.now = start.at_ns = release + (job ? 1000 * US : 0);
		feed(&m, &start);
		m.now += 20 * US;
		feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_END, .at_ns = m.now });
	}
	assert_in_range(rtxg_slice_next_release(m.core, 0), release, release + 10 * US);
	teardown(&m);
}

/* Starts that something delays leave releases where the earliest are. */
static void releases_are_not_where_delayed_starts_are(void **state)
{
	struct rtxg_slice_event start = { .type = RTXG_SLICE_EV_START };
	uint64_t release = 20 * MS, next;
	struct model m;

	setup(&m, &both);
	tenant(&m, 0, 0, 0, CRITICAL, 10 * MS);
	feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD });
	for (uint32_t job = 0; job < 200; job++, release += 10 * MS) {
		/* 39 of 40 are late, by 0.3 to 1.5 ms: each is followed by 10 us */
		uint64_t delay = job % 40 ? (300 + job * 397 % 1200) * US : 0;

		m.now = start.at_ns = release + delay;
		feed(&m, &start);
		m.now += 20 * US;
		feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_END, .at_ns = m.now });
		feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
		next = rtxg_slice_next_release(m.core, 0);
		assert_in_range(next, release + 10 * MS, release + 10 * MS + 390 * US);
	}
	teardown(&m);
}

static void only_programs_that_all_can_are_brought_in_ahead(void **state)
{
	struct rtxg_slice_event add = { .type = RTXG_SLICE_EV_ADD };
	struct rtxg_slice_event can = { .type = RTXG_SLICE_EV_WARMS };
	struct model m;

	setup(&m, &both);
	tenant(&m, 0, 0, 0, CRITICAL, 10 * MS);
	tenant(&m, 1, 0, 0, CRITICAL, 2 * MS); /* too short a period */
	tenant(&m, 2, 10, 0, BEST_EFFORT, 10 * MS);
	for (uint32_t i = 0; i < 4; i++) {
		add.context = i;
		add.tenant = i < 2 ? 0 : i - 1;
		feed(&m, &add);
	}
	assert_true(rtxg_slice_asks_warm(m.core, 0) && rtxg_slice_asks_warm(m.core, 1));
	assert_false(rtxg_slice_asks_warm(m.core, 2) || rtxg_slice_asks_warm(m.core, 3));
	assert_false(rtxg_slice_asks_warm(m.core, 4) || rtxg_slice_asks_warm(m.core, CONTEXTS));
	can.context = 0;
	feed(&m, &can);
	assert_false(rtxg_slice_asks_warm(m.core, 0));
	regular_jobs(&m, 0, 10 * MS);
	assert_int_equal(rtxg_slice_next_warm(m.core, 0), RTXG_SLICE_NEVER); /* 1 cannot */
	/* It is moved away: now each of the vGPU's contexts can. */
	feed(&m,
	     &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_MOVE, .context = 1, .tenant = 2 });
	assert_int_equal(rtxg_slice_next_warm(m.core, 0),
			 rtxg_slice_next_release(m.core, 0) - 350 * US);
	can.context = 2;
	feed(&m, &can);
	regular_jobs(&m, 2, 2 * MS);
	assert_int_equal(rtxg_slice_next_warm(m.core, 1), RTXG_SLICE_NEVER);
	teardown(&m);
}

static bool is_to_be_stopped(const struct model *m, uint32_t context)
{
	for (int i = 0; i < m->pending_count; i++)
		if (m->pending[i].a.type == RTXG_SLICE_SUSPEND &&
		    m->pending[i].a.context == context)
			return true;
	return false;
}

/*
 * What has just come beside critical work is looked into, and stopped as soon as it has work. That
 * it had none before is no gap in its work.
 */
static void one_that_comes_is_stopped_when_it_begins(void **state)
{
	static const struct rtxg_slice_params params = { .can = RTXG_SLICE_CAN_SLICE |
								RTXG_SLICE_CAN_SUSPEND |
								RTXG_SLICE_CAN_DEMAND };
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_ADD };
	struct model m;

	setup(&m, &params);
	tenant(&m, 0, 0, 0, CRITICAL, 0);
	tenant(&m, 1, 40, 0, BEST_EFFORT, 0);
	tenant(&m, 2, 40, 0, BEST_EFFORT, 0);
	for (e.context = 0; e.context < 3; e.context++) {
		e.tenant = e.context;
		feed(&m, &e);
	}
	e = (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_START, .context = 1 };
	m.now = e.at_ns = 10 * MS;
	feed(&m, &e);
	assert_int_equal(rtxg_slice_look_ns(m.core, 2), RTXG_SLICE_NEVER); /* none is critical */
	m.now = e.at_ns = 20 * MS;
	e.context = 0;
	feed(&m, &e);
	feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
	assert_int_equal(rtxg_slice_look_ns(m.core, 2), 750 * US);
	for (int look = 0; look < 4; look++) {
		m.now += 750 * US;
		if (look == 3) /* as far as the log tells it has not been on the engine */
			feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
		feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_DEMAND,
						     .context = 2,
						     .at_ns = m.now,
						     .since_ns = m.now - 750 * US,
						     .value = look < 3 ? RTXG_SLICE_NO_WORK
								       : RTXG_SLICE_WORK });
		assert_true(is_to_be_stopped(&m, 2) == (look == 3));
	}
	/* It waits for its turn, and then it is not taken for one with gaps: 250 us. */
	assert_int_equal(rtxg_slice_look_ns(m.core, 2), RTXG_SLICE_NEVER);
	m.now = e.at_ns = 200 * MS;
	feed(&m, &e);
	feed(&m, &(struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
	assert_true(rtxg_slice_look_ns(m.core, 2) >= 750 * US);
	teardown(&m);
}

static void work_that_is_not_urgent_waits_while_a_release_is_near(void **state)
{
	struct rtxg_slice_event release = { .type = RTXG_SLICE_EV_RELEASE,
					    .tenant = 0,
					    .at_ns = 100 * MS };
	struct model m;

	setup(&m, &both);
	m.now = 90 * MS;
	assert_int_equal(rtxg_slice_calm_at(m.core, m.now, m.now), m.now);
	tenant(&m, 0, 0, 0, CRITICAL, 20 * MS);
	feed(&m, &release);
	assert_int_equal(rtxg_slice_calm_at(m.core, 95 * MS, 95 * MS), 95 * MS);
	assert_int_equal(rtxg_slice_calm_at(m.core, 97 * MS, 97 * MS), 101 * MS);
	assert_int_equal(rtxg_slice_calm_at(m.core, 100 * MS, 97 * MS), 101 * MS);
	assert_int_equal(rtxg_slice_calm_at(m.core, 101 * MS, 97 * MS), 101 * MS);
	/* put off for long enough */
	assert_int_equal(rtxg_slice_calm_at(m.core, 97 * MS, 0), 100 * MS);
	assert_int_equal(rtxg_slice_calm_at(m.core, 100 * MS, 0), 100 * MS);
	/* between releases that come so often there is no better time */
	tenant(&m, 0, 0, 0, CRITICAL, 8 * MS);
	feed(&m, &release);
	assert_int_equal(rtxg_slice_calm_at(m.core, 97 * MS, 97 * MS), 97 * MS);
	/* nor has best effort releases */
	tenant(&m, 0, 0, 0, BEST_EFFORT, 20 * MS);
	assert_int_equal(rtxg_slice_calm_at(m.core, 97 * MS, 97 * MS), 97 * MS);
	teardown(&m);
}

static void goes_back_when_the_critical_one_falls_silent(void **state)
{
	static const double want[] = { 60, 40 };
	struct model m;

	setup(&m, &both);
	tenant(&m, 0, 60, 0, BEST_EFFORT, 0);
	tenant(&m, 1, 40, 0, BEST_EFFORT, 0);
	tenant(&m, 2, 0, 0, CRITICAL, 0);
	add(&m, 0, 0);
	add(&m, 1, 1);
	critical_job(&m, 2, 2, 10 * MS, 100 * US);
	run(&m, 1 * S);
	assert_int_equal(rtxg_slice_turns(m.core), 1);
	m.c[2].period = 0;
	run(&m, 6 * S);
	assert_int_equal(rtxg_slice_turns(m.core), 0);
	assert_true(worst(&m, want, 2, 3 * S, 6 * S) < 1.0);
	teardown(&m);
}

static void turn_of_an_idle_one_is_passed_on(void **state)
{
	struct model m;

	setup(&m, &both);
	for (uint32_t i = 0; i < 3; i++) {
		tenant(&m, i, 30, 0, BEST_EFFORT, 0);
		add(&m, i, i);
	}
	m.c[0].busy_from = 0;
	m.c[0].busy_to = 2 * S;
	tenant(&m, 3, 0, 0, CRITICAL, 0);
	critical_job(&m, 3, 3, 10370 * US, 100 * US);
	run(&m, 2 * S);
	for (int i = 0; i < 3; i++)
		m.c[i].work = 0;
	run(&m, 5 * S);
	print_message("the other two got %.1f %%\n",
		      (double)(m.c[1].work + m.c[2].work) * 100 / (3.0 * (double)S));
	assert_true(m.c[1].work + m.c[2].work > 3 * S / 100 * 90);
	teardown(&m);
}

static void one_that_cannot_be_acted_on_is_left_alone(void **state)
{
	struct model m;

	setup(&m, &both);
	m.fail_context = 0;
	for (uint32_t i = 0; i < 2; i++) {
		tenant(&m, i, i ? 90 : 10, 0, BEST_EFFORT, 0);
		add(&m, i, i);
	}
	run(&m, 3 * S);
	assert_int_equal(m.c[0].stopped, 0);
	assert_int_equal(m.c[0].slice, 2 * MS);
	teardown(&m);
}

static void refuses_nonsense(void **state)
{
	struct rtxg_slice_action a[8];
	struct rtxg_slice_event e = { 0 };
	struct model m;

	assert_int_equal(rtxg_slice_size(0, 1), 0);
	assert_int_equal(rtxg_slice_size(1, 5000), 0);
	setup(&m, &both);
	m.now = 10;
	tenant(&m, 0, 10, 0, 0, 0);
	assert_int_equal(rtxg_slice_step(m.core, 5, &e, a, 8), -EINVAL);  /* backwards */
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 3), -EINVAL); /* no room */
	e.type = 99;
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -EINVAL);
	e.type = RTXG_SLICE_EV_ADD;
	e.tenant = 1;
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -ENOENT);
	e.tenant = 0;
	e.context = CONTEXTS;
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -EINVAL);
	e.context = 0;
	assert_true(rtxg_slice_step(m.core, 20, &e, a, 8) >= 0);
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -EEXIST);
	e.type = RTXG_SLICE_EV_TENANT_REMOVE;
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -EBUSY);
	e.type = RTXG_SLICE_EV_START;
	e.context = 1;
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -ENOENT);
	e.type = RTXG_SLICE_EV_TENANT_SET;
	e.tenant_params.min_ppm = 1000001;
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -EINVAL);
	e.tenant_params.min_ppm = 500000;
	e.tenant_params.max_ppm = 400000;
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -EINVAL);
	e.tenant_params.max_ppm = 0;
	e.tenant_params.weight = RTXG_SLICE_WEIGHT_MAX + 1;
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -EINVAL);
	e.tenant_params.weight = 0;
	e.tenant_params.priority = RTXG_SLICE_PRIORITY_MAX + 1;
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -EINVAL);
	e.tenant_params.priority = CRITICAL;
	e.tenant_params.period_ns = 1;
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -EINVAL);
	e.value = 1;
	e.tenant_params.period_ns = 0;
	assert_int_equal(rtxg_slice_step(m.core, 20, &e, a, 8), -EINVAL);
	teardown(&m);
}

/*
 * Whatever happens in whatever order: the invariants hold, every action fits the state, and nothing
 * is left stopped for ever.
 */
static void any_order_of_events(void **state)
{
	for (unsigned int seed = 1; seed <= 40; seed++) {
		void *mem = calloc(1, rtxg_slice_size(TENANTS, CONTEXTS));
		struct rtxg_slice *core = rtxg_slice_init(mem, rtxg_slice_size(TENANTS, CONTEXTS),
							  TENANTS, CONTEXTS, &both, 0);
		unsigned int r = seed * 2654435761u;
		int exists[CONTEXTS] = { 0 }, stopped[CONTEXTS] = { 0 };
		uint64_t now = 0;

		for (int k = 0; k < 20000; k++) {
			struct rtxg_slice_action a[8];
			struct rtxg_slice_event e = { 0 };
			int set_stopped[CONTEXTS] = { 0 };
			const char *wrong;
			int n, i;

			r = r * 1103515245u + 12345u;
			e.type = 1 + (r >> 16) % RTXG_SLICE_EV_TIMER;
			r = r * 1103515245u + 12345u;
			e.tenant = (r >> 16) % TENANTS;
			e.context = (r >> 20) % CONTEXTS;
			r = r * 1103515245u + 12345u;
			now += (r >> 16) % 3000000;
			e.at_ns = now - (r >> 18) % (now < 100000 ? now + 1 : 100000);
			e.tenant_params.min_ppm = (r >> 8) % 600000;
			e.tenant_params.priority = (r >> 28) == 0 ? CRITICAL : BEST_EFFORT;
			e.tenant_params.period_ns = (r >> 27) & 1 ? 10000000 : 0;
			e.tenant_params.max_ppm = (r >> 26) & 1 ? 900000 : 0;
			n = rtxg_slice_step(core, now, &e, a, 8);
			if (n < 0)
				continue;
			if (e.type == RTXG_SLICE_EV_ADD) {
				exists[e.context] = 1;
				stopped[e.context] = 0;
			}
			if (e.type == RTXG_SLICE_EV_REMOVE)
				exists[e.context] = 0;
			for (;;) {
				for (i = 0; i < n; i++) {
					if (a[i].type == RTXG_SLICE_ARM)
						continue;
					assert_true(exists[a[i].context]);
					if (a[i].type == RTXG_SLICE_SUSPEND) {
						assert_int_equal(stopped[a[i].context], 0);
						stopped[a[i].context] = 1;
					} else if (a[i].type == RTXG_SLICE_RESUME) {
						assert_int_equal(stopped[a[i].context], 1);
						stopped[a[i].context] = 0;
					} else {
						assert_true(a[i].ns >= 1000 && a[i].ns <= 4 * MS);
						/* Just before it is let go, else never. */
						set_stopped[a[i].context] = stopped[a[i].context];
					}
				}
				if (n < 8)
					break;
				n = rtxg_slice_step(core, now, NULL, a, 8);
			}
			for (i = 0; i < CONTEXTS; i++)
				assert_false(set_stopped[i] && stopped[i]);
			wrong = rtxg_slice_check(core);
			if (wrong)
				fail_msg("seed %u event %d type %u: %s", seed, k, e.type, wrong);
		}
		free(mem);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_60_20_10_10),
		cmocka_unit_test(accounts_of_contexts_add_up),
		cmocka_unit_test(shares_hold_by_stopping_alone),
		cmocka_unit_test(shares_hold_by_slices_alone),
		cmocka_unit_test(forks_win_nothing),
		cmocka_unit_test(weights_of_300_and_100_are_three_to_one),
		cmocka_unit_test(a_weight_that_was_not_given_follows_from_the_reservation),
		cmocka_unit_test(idle_time_goes_to_the_others_in_proportion),
		cmocka_unit_test(late_starter_gets_its_share_and_no_more),
		cmocka_unit_test(caps_hold_alone),
		cmocka_unit_test(counters_that_are_shown_only_grow),
		cmocka_unit_test(alone_is_left_alone),
		cmocka_unit_test(the_log_is_asked_for_seldom_where_no_program_is),
		cmocka_unit_test(critical_waits_for_one_short_slice),
		cmocka_unit_test(periodic_finds_the_engine_free),
		cmocka_unit_test(a_context_is_brought_in_ahead_of_its_release),
		cmocka_unit_test(other_work_changes_no_release),
		cmocka_unit_test(releases_are_where_the_earliest_starts_are),
		cmocka_unit_test(releases_are_soon_known_whatever_is_done_before_the_first),
		cmocka_unit_test(releases_that_are_known_are_not_moved_by_a_busy_host),
		cmocka_unit_test(releases_are_not_where_delayed_starts_are),
		cmocka_unit_test(late_starts_do_not_count_after_a_release_that_is_told),
		cmocka_unit_test(a_context_is_brought_in_ahead_where_the_log_is_read_late),
		cmocka_unit_test(only_programs_that_all_can_are_brought_in_ahead),
		cmocka_unit_test(one_that_comes_is_stopped_when_it_begins),
		cmocka_unit_test(work_that_is_not_urgent_waits_while_a_release_is_near),
		cmocka_unit_test(goes_back_when_the_critical_one_falls_silent),
		cmocka_unit_test(turn_of_an_idle_one_is_passed_on),
		cmocka_unit_test(one_that_cannot_be_acted_on_is_left_alone),
		cmocka_unit_test(refuses_nonsense),
		cmocka_unit_test(any_order_of_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
