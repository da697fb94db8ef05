// SPDX-License-Identifier: MIT
/*
 * test_slice_admit.c - which bound on latency can be kept beside what is there, and by what.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "rtxg_slice.h"

#define US	 1000ull
#define MS	 1000000ull
#define TENANTS	 8
#define CONTEXTS 16
#define ALL                                                                     \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)

static struct rtxg_slice *open_core(void **memory, uint32_t can)
{
	const struct rtxg_slice_params params = { .can = can };
	size_t size = rtxg_slice_size(TENANTS, CONTEXTS);
	struct rtxg_slice *core;

	*memory = malloc(size);
	core = rtxg_slice_init(*memory, size, TENANTS, CONTEXTS, &params, 0);
	assert_non_null(core);
	return core;
}

static void tell(struct rtxg_slice *core, struct rtxg_slice_event event)
{
	struct rtxg_slice_action actions[32];

	assert_in_range(rtxg_slice_step(core, 0, &event, actions, 32), 0, 31);
}

static void tenant(struct rtxg_slice *core, uint32_t id, struct rtxg_slice_tenant params,
		   uint32_t contexts)
{
	static uint32_t next;

	if (!id)
		next = 0;
	tell(core, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TENANT_SET,
					      .tenant = id,
					      .tenant_params = params });
	while (contexts--)
		tell(core, (struct rtxg_slice_event){
				   .type = RTXG_SLICE_EV_ADD, .context = next++, .tenant = id });
}

static int admit(struct rtxg_slice *core, uint64_t latency, struct rtxg_slice_admission *a)
{
	const struct rtxg_slice_tenant params = { .min_ppm = 300000, .latency_ns = latency };

	return rtxg_slice_admit(core, TENANTS - 1, &params, a);
}

static void three_programs(struct rtxg_slice *core)
{
	for (uint32_t i = 0; i < 3; i++)
		tenant(core, i, (struct rtxg_slice_tenant){ .min_ppm = 200000 }, 1);
}

static void the_cheapest_mechanism_follows_from_the_bound(void **state)
{
	static const struct {
		uint64_t latency;
		uint32_t mechanism;
	} cases[] = {
		{ 100 * MS, RTXG_SLICE_BY_SLICES }, { 20 * MS, RTXG_SLICE_BY_SLICES },
		{ 5 * MS, RTXG_SLICE_BY_ARRIVAL },  { 3 * MS, RTXG_SLICE_BY_ARRIVAL },
		{ 2 * MS, RTXG_SLICE_BY_TURNS },    { 500 * US, RTXG_SLICE_BY_TURNS },
	};
	struct rtxg_slice_admission a;
	struct rtxg_slice *core;
	void *memory;

	core = open_core(&memory, ALL);
	three_programs(core);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(admit(core, cases[i].latency, &a), 0);
		assert_int_equal(a.mechanism, cases[i].mechanism);
		assert_true(a.bound_ns && a.bound_ns <= cases[i].latency);
		assert_true(a.best_ns <= a.bound_ns);
	}
	assert_int_equal(a.reserved_ppm, 900000);
	free(memory);
}

static void a_bound_that_is_too_short_is_refused_with_the_best(void **state)
{
	struct rtxg_slice_admission a;
	struct rtxg_slice *core;
	void *memory;

	core = open_core(&memory, ALL);
	three_programs(core);
	assert_int_equal(admit(core, RTXG_SLICE_LATENCY_MIN, &a), -ERANGE);
	assert_int_equal(a.mechanism, RTXG_SLICE_BY_NOTHING);
	assert_int_equal(a.best_mechanism, RTXG_SLICE_BY_TURNS);
	assert_true(a.best_ns > 300 * US && a.best_ns < 600 * US);
	assert_int_equal(admit(core, a.best_ns, &a), 0);
	assert_int_equal(admit(core, a.best_ns - 1, &a), -ERANGE);
	assert_int_equal(admit(core, RTXG_SLICE_LATENCY_MIN - 1, &a), -EINVAL);
	assert_int_equal(admit(core, RTXG_SLICE_LATENCY_MAX + 1, &a), -EINVAL);
	free(memory);
}

static void what_the_lever_cannot_do_is_not_offered(void **state)
{
	struct rtxg_slice_admission a;
	struct rtxg_slice *core;
	void *memory;

	core = open_core(&memory, 0);
	assert_int_equal(admit(core, 5 * MS, &a), -ENOTSUP);
	assert_true(a.best_ns == RTXG_SLICE_NEVER);
	assert_int_equal(admit(core, 0, &a), 0);
	free(memory);
	core = open_core(&memory, RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND);
	three_programs(core);
	assert_int_equal(admit(core, 5 * MS, &a), 0);
	assert_int_equal(a.mechanism, RTXG_SLICE_BY_SLICES);
	assert_int_equal(admit(core, 2 * MS, &a), 0);
	assert_int_equal(a.mechanism, RTXG_SLICE_BY_TURNS);
	free(memory);
	core = open_core(&memory, RTXG_SLICE_CAN_SLICE);
	three_programs(core);
	assert_int_equal(admit(core, 2 * MS, &a), 0);
	assert_int_equal(a.mechanism, RTXG_SLICE_BY_SLICES);
	assert_int_equal(admit(core, 900 * US, &a), -ERANGE);
	free(memory);
}

static void each_tenant_with_a_latency_makes_the_others_bounds_longer(void **state)
{
	const struct rtxg_slice_tenant bound = { .min_ppm = 100000, .latency_ns = 5 * MS };
	struct rtxg_slice_admission a;
	struct rtxg_slice *core;
	uint64_t alone;
	void *memory;

	core = open_core(&memory, ALL);
	three_programs(core);
	assert_int_equal(rtxg_slice_admit(core, 3, &bound, &a), 0);
	alone = a.best_ns;
	tenant(core, 3, bound, 1);
	assert_int_equal(rtxg_slice_admit(core, 4, &bound, &a), 0);
	assert_int_equal(a.beside, 1);
	assert_true(a.best_ns > alone);
	tenant(core, 4, bound, 1);
	/* Their slices are made shorter; three of them before its own are too long in any case. */
	assert_int_equal(rtxg_slice_admit(core, 5, &bound, &a), 0);
	assert_int_equal(a.mechanism, RTXG_SLICE_BY_ARRIVAL);
	tenant(core, 5, bound, 1);
	assert_int_equal(rtxg_slice_admit(core, 6, &bound, &a), 0);
	assert_int_equal(a.mechanism, RTXG_SLICE_BY_TURNS);
	free(memory);
}

static void a_bound_is_not_given_at_the_cost_of_one_that_was_given(void **state)
{
	const struct rtxg_slice_tenant tight = { .min_ppm = 100000, .latency_ns = 550 * US };
	struct rtxg_slice_admission a;
	struct rtxg_slice *core;
	void *memory;

	core = open_core(&memory, ALL);
	three_programs(core);
	tenant(core, 3, tight, 1);
	assert_int_equal(admit(core, 20 * MS, &a), -EBUSY);
	assert_int_equal(a.breaks, 3);
	/* The same of a tenant that has no number yet. */
	assert_int_equal(rtxg_slice_admit(core, RTXG_SLICE_NONE, &tight, &a), -EBUSY);
	assert_int_equal(a.breaks, 3);
	free(memory);
}

static void loads_and_critical_tasks_are_counted(void **state)
{
	struct rtxg_slice_admission a;
	struct rtxg_slice *core;
	uint64_t best;
	void *memory;

	core = open_core(&memory, ALL);
	three_programs(core);
	assert_int_equal(admit(core, 5 * MS, &a), 0);
	best = a.best_ns;
	tell(core, (struct rtxg_slice_event){
			   .type = RTXG_SLICE_EV_GOVERN, .context = 1, .value = RTXG_SLICE_LOAD });
	assert_int_equal(admit(core, 5 * MS, &a), 0);
	assert_int_equal(a.loads, 1);
	assert_true(a.best_ns > best + 2 * MS);
	assert_int_equal(admit(core, best, &a), -ERANGE);
	tell(core, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_GOVERN, .context = 1 });
	tenant(core, 3, (struct rtxg_slice_tenant){ .priority = RTXG_SLICE_CRITICAL_PRIORITY }, 1);
	assert_int_equal(admit(core, 100 * MS, &a), 0);
	assert_int_equal(a.critical, 1);
	assert_int_equal(a.mechanism, RTXG_SLICE_BY_ARRIVAL);
	free(memory);
}

static void more_than_all_is_not_reserved(void **state)
{
	const struct rtxg_slice_tenant half = { .min_ppm = 500000 };
	struct rtxg_slice_admission a;
	struct rtxg_slice *core;
	void *memory;

	core = open_core(&memory, ALL);
	three_programs(core);
	assert_int_equal(rtxg_slice_admit(core, 5, &half, &a), -ENOSPC);
	assert_int_equal(a.reserved_ppm, 1100000);
	/* As a change of one that is there it fits. */
	assert_int_equal(rtxg_slice_admit(core, 0, &half, &a), 0);
	assert_int_equal(a.reserved_ppm, 900000);
	assert_int_equal(rtxg_slice_admit(core, RTXG_SLICE_NONE, &half, &a), -ENOSPC);
	free(memory);
}

static void a_turns_length_out_of_range_is_refused(void **state)
{
	static const struct {
		uint64_t quantum;
		int err;
	} cases[] = {
		{ 1, -EINVAL },
		{ RTXG_SLICE_QUANTUM_MIN - 1, -EINVAL },
		{ RTXG_SLICE_QUANTUM_MAX + 1, -EINVAL },
		{ UINT64_MAX, -EINVAL },
		{ RTXG_SLICE_QUANTUM_MIN, 0 },
		{ RTXG_SLICE_QUANTUM_MAX, 0 },
		{ 0, 0 }, /* the core chooses */
	};
	struct rtxg_slice_action actions[8];
	struct rtxg_slice_admission a;
	struct rtxg_slice *core;
	void *memory;

	core = open_core(&memory, ALL);
	three_programs(core);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct rtxg_slice_tenant t = { .min_ppm = 100000,
						     .quantum_ns = cases[i].quantum };
		const struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TENANT_SET,
						    .tenant = 3,
						    .tenant_params = t };

		assert_int_equal(rtxg_slice_admit(core, 3, &t, &a), cases[i].err);
		if (cases[i].err)
			assert_int_equal(rtxg_slice_step(core, 0, &e, actions, 8), cases[i].err);
		else
			assert_true(rtxg_slice_step(core, 0, &e, actions, 8) >= 0);
	}
	free(memory);
}

/* Whatever it is able to do, the bound that a refusal names is accepted, and no shorter one. */
static void a_refusal_names_the_best_of_what_the_lever_can(void **state)
{
	static const struct {
		uint32_t can, best;
	} cases[] = {
		{ RTXG_SLICE_CAN_SLICE, RTXG_SLICE_BY_SLICES },
		{ RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_DEMAND, RTXG_SLICE_BY_ARRIVAL },
		{ RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND, RTXG_SLICE_BY_TURNS },
		{ ALL, RTXG_SLICE_BY_TURNS },
	};

	struct rtxg_slice_admission a;
	struct rtxg_slice *core;
	uint64_t best;
	void *memory;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		core = open_core(&memory, cases[i].can);
		three_programs(core);
		assert_int_equal(admit(core, RTXG_SLICE_LATENCY_MIN, &a), -ERANGE);
		assert_int_equal(a.best_mechanism, cases[i].best);
		best = a.best_ns;
		assert_int_equal(admit(core, best - 1, &a), -ERANGE);
		assert_int_equal(admit(core, best, &a), 0);
		assert_int_equal(a.mechanism, cases[i].best);
		free(memory);
	}
	/* It can stop, but would not know when. */
	core = open_core(&memory, RTXG_SLICE_CAN_SUSPEND);
	three_programs(core);
	assert_int_equal(admit(core, 50 * MS, &a), -ENOTSUP);
	free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_cheapest_mechanism_follows_from_the_bound),
		cmocka_unit_test(a_bound_that_is_too_short_is_refused_with_the_best),
		cmocka_unit_test(what_the_lever_cannot_do_is_not_offered),
		cmocka_unit_test(each_tenant_with_a_latency_makes_the_others_bounds_longer),
		cmocka_unit_test(a_bound_is_not_given_at_the_cost_of_one_that_was_given),
		cmocka_unit_test(loads_and_critical_tasks_are_counted),
		cmocka_unit_test(more_than_all_is_not_reserved),
		cmocka_unit_test(a_turns_length_out_of_range_is_refused),
		cmocka_unit_test(a_refusal_names_the_best_of_what_the_lever_can),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
