// SPDX-License-Identifier: MIT
/*
 * test_slice_failures.c - actions that the driver refuses: those that may pass are given again with
 * growing pauses, those that are final are not, and a context that nothing can be done about is
 * known as a load.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "rtxg_slice.h"

#define MS	 1000000ull
#define TENANTS	 4
#define CONTEXTS 4
#define ROOM	 16

static const struct rtxg_slice_params both = { .can = RTXG_SLICE_CAN_SLICE |
						      RTXG_SLICE_CAN_SUSPEND };

struct world {
	struct rtxg_slice *core;
	void *memory;
	uint64_t now, armed;
	struct rtxg_slice_action actions[ROOM]; /* of the last event */
	int count;
	bool stopped[CONTEXTS];
};

static void open_world(struct world *w)
{
	size_t size = rtxg_slice_size(TENANTS, CONTEXTS);

	*w = (struct world){ .now = MS, .armed = RTXG_SLICE_NEVER };
	w->memory = malloc(size);
	w->core = rtxg_slice_init(w->memory, size, TENANTS, CONTEXTS, &both, w->now);
	assert_non_null(w->core);
}

static void tell(struct world *w, struct rtxg_slice_event event)
{
	w->count = rtxg_slice_step(w->core, w->now, &event, w->actions, ROOM);
	assert_in_range(w->count, 0, ROOM - 1);
	for (int i = 0; i < w->count; i++)
		if (w->actions[i].type == RTXG_SLICE_ARM)
			w->armed = w->actions[i].ns;
		else if (w->actions[i].type != RTXG_SLICE_SET)
			w->stopped[w->actions[i].context] =
				w->actions[i].type == RTXG_SLICE_SUSPEND;
	assert_null(rtxg_slice_check(w->core));
}

static void refuse(struct world *w, uint32_t context, uint32_t value)
{
	tell(w, (struct rtxg_slice_event){
			.type = RTXG_SLICE_EV_FAILED, .context = context, .value = value });
}

static bool gave(const struct world *w, uint32_t type, uint32_t context)
{
	for (int i = 0; i < w->count; i++)
		if (w->actions[i].type == type && w->actions[i].context == context)
			return true;
	return false;
}

/* Lets time pass until an action is given; the time that it took. */
static uint64_t until_given(struct world *w, uint32_t type, uint32_t context)
{
	uint64_t from = w->now;

	do {
		assert_true(w->armed != RTXG_SLICE_NEVER && w->now - from < 10000 * MS);
		w->now = w->armed > w->now ? w->armed : w->now + 1;
		tell(w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
	} while (!gave(w, type, context));
	return w->now - from;
}

/* A critical tenant has run just now, so a best-effort context gets a short slice at once. */
static void beside_a_critical_tenant(struct world *w)
{
	open_world(w);
	tell(w, (struct rtxg_slice_event){
			.type = RTXG_SLICE_EV_TENANT_SET,
			.tenant = 0,
			.tenant_params = { .priority = RTXG_SLICE_CRITICAL_PRIORITY } });
	tell(w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TENANT_SET,
					   .tenant = 1,
					   .tenant_params = { .min_ppm = 200000, .priority = 1 } });
	tell(w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD, .context = 0, .tenant = 0 });
	tell(w, (struct rtxg_slice_event){
			.type = RTXG_SLICE_EV_START, .context = 0, .at_ns = w->now });
	tell(w,
	     (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_END, .context = 0, .at_ns = w->now });
	tell(w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD, .context = 1, .tenant = 1 });
	assert_true(gave(w, RTXG_SLICE_SET, 1));
}

static void critical_runs(struct world *w)
{
	tell(w, (struct rtxg_slice_event){
			.type = RTXG_SLICE_EV_START, .context = 0, .at_ns = w->now });
	tell(w,
	     (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_END, .context = 0, .at_ns = w->now });
	tell(w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
}

static uint32_t flags_of(const struct world *w, uint32_t context)
{
	struct rtxg_slice_context_view view;

	assert_int_equal(rtxg_slice_context_view(w->core, context, &view), 0);
	return view.flags;
}

/* The driver refuses while a context is still being built. */
static void a_slice_that_failed_is_set_again_with_growing_pauses(void **state)
{
	uint64_t pause, before = 0;
	struct world w;

	beside_a_critical_tenant(&w);
	for (int i = 0; i < 6; i++) {
		refuse(&w, 1, RTXG_SLICE_SET);
		assert_false(gave(&w, RTXG_SLICE_SET, 1));
		assert_int_equal(flags_of(&w, 1), RTXG_SLICE_IS_RETRIED);
		critical_runs(&w);
		pause = until_given(&w, RTXG_SLICE_SET, 1);
		assert_true(pause >= 4 * MS << i && pause >= before && pause <= 2000 * MS);
		before = pause;
	}
	assert_int_equal(flags_of(&w, 1), 0);
	free(w.memory);
}

static void a_slice_that_cannot_be_set_does_not_end_stopping(void **state)
{
	struct world w;

	beside_a_critical_tenant(&w);
	tell(&w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD, .context = 2, .tenant = 1 });
	refuse(&w, 2, RTXG_SLICE_SET | RTXG_SLICE_FINAL);
	for (uint32_t i = 1; i < 3; i++)
		tell(&w, (struct rtxg_slice_event){
				 .type = RTXG_SLICE_EV_START, .context = i, .at_ns = w.now });
	critical_runs(&w);
	assert_true(w.stopped[2]); /* it is the turn of 1 */
	assert_int_equal(flags_of(&w, 2) & RTXG_SLICE_IS_LOAD, 0);
	free(w.memory);
}

static void a_context_that_cannot_be_stopped_gets_its_slice(void **state)
{
	struct world w;

	beside_a_critical_tenant(&w);
	refuse(&w, 1, RTXG_SLICE_SUSPEND | RTXG_SLICE_FINAL);
	refuse(&w, 1, RTXG_SLICE_SET);
	critical_runs(&w);
	until_given(&w, RTXG_SLICE_SET, 1);
	assert_int_equal(flags_of(&w, 1) & RTXG_SLICE_IS_LOAD, 0);
	free(w.memory);
}

/* Turns would keep no share beside it, for it runs in each of them. */
static void shares_beside_a_context_that_cannot_be_stopped_are_kept_by_slices(void **state)
{
	struct rtxg_slice_context_view large, small;
	struct rtxg_slice_gpu_view gpu;
	struct world w;

	open_world(&w);
	for (uint32_t i = 0; i < 2; i++) {
		tell(&w,
		     (struct rtxg_slice_event){
			     .type = RTXG_SLICE_EV_TENANT_SET,
			     .tenant = i,
			     .tenant_params = { .min_ppm = i ? 250000 : 750000, .priority = 1 } });
		tell(&w, (struct rtxg_slice_event){
				 .type = RTXG_SLICE_EV_ADD, .context = i, .tenant = i });
	}
	rtxg_slice_gpu_view(w.core, &gpu);
	assert_int_equal(gpu.mode, RTXG_SLICE_MODE_BATCH);
	refuse(&w, 1, RTXG_SLICE_SUSPEND | RTXG_SLICE_FINAL);
	for (uint32_t i = 0; i < 2; i++)
		tell(&w, (struct rtxg_slice_event){
				 .type = RTXG_SLICE_EV_START, .context = i, .at_ns = w.now });
	tell(&w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER });
	rtxg_slice_gpu_view(w.core, &gpu);
	assert_int_equal(gpu.mode, RTXG_SLICE_MODE_SPREAD);
	assert_int_equal(rtxg_slice_context_view(w.core, 0, &large), 0);
	assert_int_equal(rtxg_slice_context_view(w.core, 1, &small), 0);
	assert_true(small.slice_ns > 0);
	assert_in_range(large.slice_ns, small.slice_ns * 29 / 10, small.slice_ns * 31 / 10);
	/* It leaves, or it can be stopped after all. */
	tell(&w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_GOVERN, .context = 1 });
	rtxg_slice_gpu_view(w.core, &gpu);
	assert_int_equal(gpu.mode, RTXG_SLICE_MODE_BATCH);
	free(w.memory);
}

static void a_context_on_which_nothing_works_is_a_load_until_it_can_be_governed(void **state)
{
	struct rtxg_slice_gpu_view view;
	struct world w;

	beside_a_critical_tenant(&w);
	refuse(&w, 1, RTXG_SLICE_SUSPEND | RTXG_SLICE_FINAL);
	refuse(&w, 1, RTXG_SLICE_SET | RTXG_SLICE_FINAL);
	assert_int_equal(flags_of(&w, 1) & RTXG_SLICE_IS_LOAD, RTXG_SLICE_IS_LOAD);
	tell(&w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD,
					    .context = 2,
					    .tenant = 1,
					    .value = RTXG_SLICE_LOAD });
	assert_false(gave(&w, RTXG_SLICE_SET, 2));
	rtxg_slice_gpu_view(w.core, &view);
	assert_int_equal(view.loads, 2);
	tell(&w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_GOVERN, .context = 1 });
	assert_true(gave(&w, RTXG_SLICE_SET, 1));
	tell(&w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_GOVERN, .context = 2 });
	assert_true(gave(&w, RTXG_SLICE_SET, 2));
	tell(&w, (struct rtxg_slice_event){
			 .type = RTXG_SLICE_EV_GOVERN, .context = 2, .value = RTXG_SLICE_LOAD });
	rtxg_slice_gpu_view(w.core, &view);
	assert_int_equal(view.loads, 1);
	free(w.memory);
}

/*
 * Nothing is worse than a program that stays stopped: it is tried again whatever the driver said.
 */
static void a_program_that_cannot_be_let_go_is_tried_again_for_ever(void **state)
{
	struct world w;

	beside_a_critical_tenant(&w);
	tell(&w, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_ADD, .context = 2, .tenant = 1 });
	for (uint32_t i = 1; i < 3; i++)
		tell(&w, (struct rtxg_slice_event){
				 .type = RTXG_SLICE_EV_START, .context = i, .at_ns = w.now });
	critical_runs(&w);
	if (!w.stopped[2])
		until_given(&w, RTXG_SLICE_SUSPEND, 2);
	until_given(&w, RTXG_SLICE_RESUME, 2);
	for (int i = 0; i < 20; i++) {
		refuse(&w, 2, RTXG_SLICE_RESUME | (i & 1 ? RTXG_SLICE_FINAL : 0));
		assert_true(until_given(&w, RTXG_SLICE_RESUME, 2) <= 103 * MS);
	}
	free(w.memory);
}

static void values_that_no_event_has_are_refused(void **state)
{
	static const struct rtxg_slice_event wrong[] = {
		{ .type = RTXG_SLICE_EV_FAILED, .context = 1, .value = RTXG_SLICE_ARM },
		{ .type = RTXG_SLICE_EV_FAILED, .context = 1, .value = RTXG_SLICE_FINAL << 1 },
		{ .type = RTXG_SLICE_EV_GOVERN, .context = 1, .value = RTXG_SLICE_LOAD + 1 },
		{ .type = RTXG_SLICE_EV_DEMAND, .context = 1, .value = RTXG_SLICE_QUEUED + 1 },
		{ .type = RTXG_SLICE_EV_ADD, .context = 3, .value = RTXG_SLICE_LOAD + 1 },
		{ .type = RTXG_SLICE_EV_TIMER, .value = RTXG_SLICE_UNREAD + 1 },
	};
	struct rtxg_slice_action actions[ROOM];
	struct world w;

	beside_a_critical_tenant(&w);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(rtxg_slice_step(w.core, w.now, &wrong[i], actions, ROOM), -EINVAL);
	free(w.memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slice_that_failed_is_set_again_with_growing_pauses),
		cmocka_unit_test(a_slice_that_cannot_be_set_does_not_end_stopping),
		cmocka_unit_test(a_context_that_cannot_be_stopped_gets_its_slice),
		cmocka_unit_test(shares_beside_a_context_that_cannot_be_stopped_are_kept_by_slices),
		cmocka_unit_test(
			a_context_on_which_nothing_works_is_a_load_until_it_can_be_governed),
		cmocka_unit_test(a_program_that_cannot_be_let_go_is_tried_again_for_ever),
		cmocka_unit_test(values_that_no_event_has_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
