// SPDX-License-Identifier: MIT
/*
 * test_latency_keep.c - the recordings that a CPU keeps before they are copied: bpf/latency.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "../../bpf/latency.h"

#define BANKS 4

static struct latency_control control;
static struct latency_late late[2];

static int begin(void **state)
{
	memset(&control, 0, sizeof(control));
	memset(late, 0, sizeof(late));
	control.used[0] = 1;
	return 0;
}

static void each_recording_has_its_own_bank(void **state)
{
	bool seen[BANKS] = { 0 };

	for (int i = 0; i < BANKS - 1; i++) {
		unsigned int order = control.order[control.bank];
		int kept = latency_keep(&control, BANKS);

		assert_in_range(kept, 0, BANKS - 1);
		assert_false(seen[kept]);
		seen[kept] = true;
		assert_int_not_equal(control.bank, kept);
		assert_int_equal(control.order[kept], order);
		assert_int_equal(control.order[control.bank], order + 1);
	}
	assert_int_equal(control.untaken, 0);
}

static void a_recording_that_finds_no_bank_is_counted(void **state)
{
	unsigned int bank;

	for (int i = 0; i < BANKS - 1; i++)
		latency_keep(&control, BANKS);
	bank = control.bank;
	control.head[bank] = 7;
	assert_int_equal(latency_keep(&control, BANKS), -1);
	assert_int_equal(control.untaken, 1);
	assert_int_equal(control.bank, bank);
	assert_int_equal(control.head[bank], 7);
	control.used[(bank + 1) % BANKS] = 0;
	assert_int_equal(latency_keep(&control, BANKS), bank);
	assert_int_equal(control.head[control.bank], 0);
	assert_int_equal(control.untaken, 1);
}

static struct latency_late *written(int bank)
{
	struct latency_late *place;
	int back;

	place = latency_late_place(late, &back);
	assert_non_null(place);
	assert_int_equal(back, -1);
	place->bank = bank;
	place->state = LATENCY_READY;
	return place;
}

static void a_later_wake_up_takes_the_place_of_one_that_waits(void **state)
{
	struct latency_late *first = written(2);
	int back;

	assert_ptr_equal(latency_late_place(late, &back), first);
	assert_int_equal(back, 2);
	assert_int_equal(first->state, LATENCY_WRITTEN);
}

static void a_wake_up_that_is_read_is_left_alone(void **state)
{
	struct latency_late *first = written(2), *second;
	int back;

	first->state = LATENCY_READ;
	second = written(3);
	assert_ptr_not_equal(second, first);
	assert_ptr_equal(latency_late_place(late, &back), second);
	assert_int_equal(back, 3);
	assert_int_equal(first->state, LATENCY_READ);
	assert_int_equal(first->bank, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(each_recording_has_its_own_bank, begin),
		cmocka_unit_test_setup(a_recording_that_finds_no_bank_is_counted, begin),
		cmocka_unit_test_setup(a_later_wake_up_takes_the_place_of_one_that_waits, begin),
		cmocka_unit_test_setup(a_wake_up_that_is_read_is_left_alone, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
