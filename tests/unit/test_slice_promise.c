// SPDX-License-Identifier: MIT
/*
 * test_slice_promise.c - when a reservation counts as broken: one judge for the gate, which cannot
 * stop a launch, and for the lever that can.
 */
#include "check.h"

#include "rtxg_slice.h"

#define POINT 10000u

/* 40 % of a second, wanted all along. */
static const struct rtxg_slice_share forty = { .min_ppm = 400000,
					       .span_ns = RTXG_SLICE_SHARE_SPAN_NS,
					       .wanted_ns = RTXG_SLICE_SHARE_SPAN_NS,
					       .whole_ns = RTXG_SLICE_SHARE_SPAN_NS };

static bool broken(struct rtxg_slice_share share, bool stoppable, uint64_t got_ns)
{
	share.stoppable = stoppable;
	share.got_ns = got_ns;
	return rtxg_slice_share_broken(&share);
}

static void test_a_share_may_be_off_by_what_its_lever_cannot_help(void **unused)
{
	assert_false(broken(forty, true, 400 * MS));
	assert_false(broken(forty, true, 380 * MS));
	assert_true(broken(forty, true, 380 * MS - 1));
	assert_false(broken(forty, false, 370 * MS));
	assert_true(broken(forty, false, 370 * MS - 1));
}

static void test_what_was_not_wanted_all_along_is_not_broken(void **unused)
{
	struct rtxg_slice_share share = forty;

	share.wanted_ns = 950 * MS;
	assert_true(broken(share, true, 0));
	share.wanted_ns = 950 * MS - 1;
	assert_false(broken(share, true, 0));
	assert_false(broken(share, false, 0));
}

static void test_a_reservation_within_the_error_is_not_judged(void **unused)
{
	struct rtxg_slice_share share = forty;

	share.min_ppm = 0;
	assert_false(broken(share, true, 0));
	share.min_ppm = 2 * POINT;
	assert_false(broken(share, true, 0));
	share.min_ppm = 3 * POINT;
	assert_true(broken(share, true, 0));
	assert_false(broken(share, false, 0));
	share.min_ppm = 4 * POINT;
	assert_true(broken(share, false, 0));
}

/* What all tenants had together, where the engine's time is not all theirs to have. */
static void test_a_share_is_a_part_of_the_whole_that_is_given(void **unused)
{
	struct rtxg_slice_share share = forty;

	share.whole_ns = 500 * MS;
	assert_false(broken(share, true, 190 * MS));
	assert_true(broken(share, true, 190 * MS - 1));
	share.whole_ns = 0;
	assert_false(broken(share, true, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_share_may_be_off_by_what_its_lever_cannot_help),
		cmocka_unit_test(test_what_was_not_wanted_all_along_is_not_broken),
		cmocka_unit_test(test_a_reservation_within_the_error_is_not_judged),
		cmocka_unit_test(test_a_share_is_a_part_of_the_whole_that_is_given),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
