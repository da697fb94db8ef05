// SPDX-License-Identifier: MIT
/*
 * test_slice_bursts.c - when the others are let go after work of a tenant with a bound: what is
 * learnt of the pauses in its bursts, and work that has yet to come onto the engine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "rtxg_slice.h"

#define US	1000ull
#define MS	1000000ull
#define CHAT	0u /* tenant and context alike */
#define HOG	1u
#define LATENCY (3 * MS)
/* the shortest time that work is taken to go on for after its last sign */
#define GRACE (250 * US)
/* a look and a step of the core come so much later at most */
#define SLACK (50 * US)

struct rig {
	void *memory;
	struct rtxg_slice *core;
	uint64_t now, timer;
	bool stopped; /* the hog */
	uint64_t let_go_at;
};

static void tell(struct rig *r, struct rtxg_slice_event event)
{
	struct rtxg_slice_action actions[16];
	int n = rtxg_slice_step(r->core, r->now, &event, actions, 16);

	assert_in_range(n, 0, 15);
	assert_null(rtxg_slice_check(r->core));
	for (int i = 0; i < n; i++) {
		if (actions[i].type == RTXG_SLICE_ARM)
			r->timer = actions[i].ns;
		else if (actions[i].context == HOG && actions[i].type == RTXG_SLICE_SUSPEND)
			r->stopped = true;
		else if (actions[i].context == HOG && actions[i].type == RTXG_SLICE_RESUME)
			r->stopped = false, r->let_go_at = r->now;
	}
}

static void pass(struct rig *r, uint64_t ns)
{
	uint64_t until = r->now + ns;

	while (r->timer <= until) {
		r->now = r->timer > r->now ? r->timer : r->now;
		r->timer = UINT64_MAX;
		tell(r, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
	}
	r->now = until;
}

static void demand(struct rig *r, uint32_t context, uint32_t value)
{
	tell(r, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_DEMAND,
					   .context = context,
					   .at_ns = r->now,
					   .value = value });
}

static void log_says(struct rig *r, uint32_t type, uint32_t context)
{
	tell(r, (struct rtxg_slice_event){ .type = type, .context = context, .at_ns = r->now });
}

/* A chat with a bound that is kept by arrival, and a program that always has work. */
static int begin(void **state)
{
	const struct rtxg_slice_params params = { .can = RTXG_SLICE_CAN_SLICE |
							 RTXG_SLICE_CAN_SUSPEND |
							 RTXG_SLICE_CAN_LEAVE |
							 RTXG_SLICE_CAN_DEMAND };
	const struct rtxg_slice_tenant tenants[] = { { .min_ppm = 300000, .latency_ns = LATENCY },
						     { .min_ppm = 300000 } };
	struct rig *r = calloc(1, sizeof(*r));
	size_t size = rtxg_slice_size(2, 2);
	struct rtxg_slice_view view;

	r->memory = malloc(size);
	r->core = rtxg_slice_init(r->memory, size, 2, 2, &params, 0);
	r->timer = UINT64_MAX;
	for (uint32_t i = 0; i < 2; i++) {
		tell(r, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TENANT_SET,
						   .tenant = i,
						   .tenant_params = tenants[i] });
		tell(r, (struct rtxg_slice_event){
				.type = RTXG_SLICE_EV_ADD, .context = i, .tenant = i });
	}
	demand(r, HOG, RTXG_SLICE_QUEUED);
	log_says(r, RTXG_SLICE_EV_START, HOG);
	pass(r, 100 * MS);
	assert_int_equal(rtxg_slice_tenant_view(r->core, CHAT, &view), 0);
	assert_int_equal(view.mechanism, RTXG_SLICE_BY_ARRIVAL);
	*state = r;
	return 0;
}

static int end(void **state)
{
	struct rig *r = *state;

	free(r->memory);
	free(r);
	return 0;
}

/* Work comes, and the hog is stopped: the chat comes onto the engine, or does not yet. */
static void work_comes(struct rig *r, bool starts)
{
	demand(r, CHAT, RTXG_SLICE_QUEUED);
	assert_true(r->stopped);
	pass(r, 500 * US);
	if (!starts)
		return;
	log_says(r, RTXG_SLICE_EV_END, HOG);
	log_says(r, RTXG_SLICE_EV_START, CHAT);
}

/* Nothing is in its queues any more; returns after how long the hog is let go. */
static uint64_t let_go_after(struct rig *r)
{
	uint64_t ended = r->now;

	demand(r, CHAT, RTXG_SLICE_NO_WORK);
	assert_true(r->stopped);
	for (int i = 0; i < 1000 && r->stopped; i++)
		pass(r, 10 * US);
	assert_false(r->stopped);
	return r->let_go_at - ended;
}

/* A burst in pieces of 1 ms with such pauses between them; the same. */
static uint64_t burst(struct rig *r, int pieces, uint64_t pause)
{
	uint64_t after;

	work_comes(r, true);
	for (int i = 0; i < pieces; i++) {
		if (i) {
			demand(r, CHAT, RTXG_SLICE_NO_WORK);
			pass(r, pause);
			demand(r, CHAT, RTXG_SLICE_QUEUED);
		}
		pass(r, 1 * MS);
	}
	after = let_go_after(r);
	pass(r, 400 * US);
	log_says(r, RTXG_SLICE_EV_END, CHAT);
	log_says(r, RTXG_SLICE_EV_START, HOG);
	pass(r, 60 * MS);
	return after;
}

static void bursts_without_pauses_make_what_was_learnt_of_others_forgotten(void **state)
{
	struct rig *r = *state;
	uint64_t after = 0;

	for (int i = 0; i < 3; i++)
		after = burst(r, 4, 900 * US);
	assert_in_range(after, 900 * US, 1 * MS + SLACK);
	for (int i = 0; i < 30; i++)
		after = burst(r, 1, 0);
	assert_in_range(after, GRACE, GRACE + SLACK);
}

static void pauses_of_each_burst_are_waited_for(void **state)
{
	struct rig *r = *state;
	uint64_t after = 0;

	for (int i = 0; i < 60; i++)
		after = burst(r, 4, 600 * US);
	assert_in_range(after, 600 * US, 800 * US);
}

static void the_others_are_not_let_go_before_work_has_come_onto_the_engine(void **state)
{
	struct rig *r = *state;
	uint64_t started;

	for (int i = 0; i < 30; i++)
		burst(r, 1, 0);
	work_comes(r, false);
	demand(r, CHAT, RTXG_SLICE_NO_WORK);
	/* The slice of the hog goes on, and the engine's host holds the work. */
	pass(r, 1500 * US);
	assert_true(r->stopped);
	log_says(r, RTXG_SLICE_EV_END, HOG);
	log_says(r, RTXG_SLICE_EV_START, CHAT);
	started = r->now;
	for (int i = 0; i < 1000 && r->stopped; i++)
		pass(r, 10 * US);
	assert_in_range(r->let_go_at - started, GRACE, 2 * GRACE + SLACK);
}

static void work_that_never_comes_onto_the_engine_holds_the_others_up_to_its_bound(void **state)
{
	struct rig *r = *state;
	uint64_t came;

	for (int i = 0; i < 30; i++)
		burst(r, 1, 0);
	came = r->now;
	work_comes(r, false);
	let_go_after(r);
	assert_in_range(r->let_go_at - came, LATENCY, LATENCY + GRACE + SLACK);
}

static void set_latency(struct rig *r, uint64_t ns)
{
	tell(r,
	     (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TENANT_SET,
					.tenant = CHAT,
					.tenant_params = { .min_ppm = 300000, .latency_ns = ns } });
	pass(r, 60 * MS);
}

static void work_that_never_comes_holds_the_others_no_longer_for_a_long_bound(void **state)
{
	struct rig *r = *state;
	uint64_t came;

	set_latency(r, RTXG_SLICE_LATENCY_MAX);
	came = r->now;
	work_comes(r, false);
	let_go_after(r);
	/* A tick, and a slice of each of the two. */
	assert_in_range(r->let_go_at - came, 3 * MS, 12 * MS);
}

/*
 * The chat's queues are filled and emptied each millisecond for 10 s. It never comes onto the
 * engine, or just for a moment each time that the hog was let go. The hog leaves and comes back as
 * it is told. Returns the part of the time in which the hog was not on the engine, in percent.
 */
static double kept(struct rig *r, bool shows)
{
	uint64_t from = r->now, off = 0, began = from;
	bool on = true, filled = false;

	while (r->now < from + 10000 * MS) {
		if (on && r->stopped) {
			pass(r, 400 * US);
			log_says(r, RTXG_SLICE_EV_END, HOG);
			began = r->now;
			on = false;
		}
		if (!on && !r->stopped) {
			if (shows) {
				log_says(r, RTXG_SLICE_EV_START, CHAT);
				pass(r, 20 * US);
				log_says(r, RTXG_SLICE_EV_END, CHAT);
			}
			log_says(r, RTXG_SLICE_EV_START, HOG);
			off += r->now - began;
			on = true;
		}
		if (filled || !shows || on)
			demand(r, CHAT, filled ? RTXG_SLICE_NO_WORK : RTXG_SLICE_QUEUED);
		filled = !filled && (!shows || on);
		pass(r, filled ? 100 * US : 900 * US);
	}
	off += on ? 0 : r->now - began;
	return 100.0 * (double)off / (double)(r->now - from);
}

static void work_without_the_engine_keeps_it_from_others_for_its_share_at_most(void **state)
{
	static const uint64_t bounds[] = { LATENCY, 5 * MS, RTXG_SLICE_LATENCY_MAX };

	(void)state;
	for (int i = 0; i < 6; i++) {
		bool shows = i % 2;
		double percent;
		struct rig *r;

		begin((void **)&r);
		set_latency(r, bounds[i / 2]);
		percent = kept(r, shows);
		end((void **)&r);
		print_message("bound of %llu ms%s: %.1f %%\n",
			      (unsigned long long)(bounds[i / 2] / MS),
			      shows ? ", on the engine in between" : "", percent);
		/* Half is its share. */
		assert_true(percent > 20 && percent < 60);
	}
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		CASE(bursts_without_pauses_make_what_was_learnt_of_others_forgotten),
		CASE(pauses_of_each_burst_are_waited_for),
		CASE(the_others_are_not_let_go_before_work_has_come_onto_the_engine),
		CASE(work_that_never_comes_onto_the_engine_holds_the_others_up_to_its_bound),
		CASE(work_that_never_comes_holds_the_others_no_longer_for_a_long_bound),
		CASE(work_without_the_engine_keeps_it_from_others_for_its_share_at_most),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
