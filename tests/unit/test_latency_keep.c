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

static struct latency_record record(unsigned long long ns, int type, int context)
{
	return (struct latency_record){ .ns = ns,
					.type = (unsigned char)type,
					.context = context,
					.syscall = EVENT_NOT_KNOWN };
}

static unsigned long long folded(const struct latency_fold *f, int kind, int id)
{
	for (int i = 0; i < LATENCY_FOLDED; i++)
		if (f->of[i].ns && f->of[i].kind == kind && f->of[i].id == id)
			return f->of[i].ns;
	return 0;
}

/* An interrupt is recorded at its end alone. */
static void what_an_interrupt_came_upon_ran_until_then(void **state)
{
	struct latency_record task = record(1000, EVENT_SWITCH, 40), end, softirq;
	struct latency_fold f = { 0 };

	task.pid = 50;
	strcpy(task.comm, "compiler");
	end = record(5000, EVENT_IRQ_DONE, 50);
	end.pid = 30;
	end.arg = 4900;
	strcpy(end.name, "nvme");
	latency_fold(&f, &task, &end, 900, 9000);
	assert_int_equal(folded(&f, LATENCY_FOLD_TASK, 50), 3900);
	assert_int_equal(folded(&f, LATENCY_FOLD_IRQ, 30), 100);
	assert_string_equal(f.of[(50 * 31 + LATENCY_FOLD_TASK) % LATENCY_FOLDED].name, "compiler");
	/* a softirq, which a vector interrupts */
	softirq = record(6000, EVENT_SOFTIRQ, 50);
	softirq.arg = 3;
	end = record(6500, EVENT_VECTOR_DONE, 50);
	end.pid = 236;
	end.arg = 6400;
	latency_fold(&f, &softirq, &end, 900, 9000);
	assert_int_equal(folded(&f, LATENCY_FOLD_SOFTIRQ, 3), 400);
	assert_int_equal(folded(&f, LATENCY_FOLD_VECTOR, 236), 100);
	/* what happens within an interrupt is its own */
	task = record(7000, EVENT_TIMER, 50);
	end.ns = 7300;
	end.arg = 6900;
	latency_fold(&f, &task, &end, 900, 9000);
	assert_int_equal(folded(&f, LATENCY_FOLD_VECTOR, 236), 400);
	assert_int_equal(f.begin_ns, 1000);
	assert_int_equal(f.rest_ns, 0);
}

/* An interrupt came before the event was written, and has written over the next one. */
static void an_event_that_is_newer_than_the_one_written_is_no_end(void **state)
{
	struct latency_record old = record(1000, EVENT_SWITCH, 40), next;
	struct latency_fold f = { 0 };

	next = record(9001, EVENT_VECTOR_DONE, 50);
	latency_fold(&f, &old, &next, 900, 9000);
	for (int i = 0; i < LATENCY_FOLDED; i++)
		assert_int_equal(f.of[i].ns, 0);
	assert_int_equal(f.rest_ns, 0);
}

static void another_wake_up_begins_with_nothing(void **state)
{
	struct latency_record old = record(1000, EVENT_SWITCH, 40);
	struct latency_record next = record(1100, EVENT_SWITCH, 50);
	struct latency_fold f = { 0 };

	latency_fold(&f, &old, &next, 1001, 9000); /* before the wake-up */
	assert_int_equal(f.from_ns, 0);
	latency_fold(&f, &old, &next, 900, 9000);
	assert_int_equal(folded(&f, LATENCY_FOLD_TASK, 50), 100);
	old.ns = 2000;
	next.ns = 2030;
	latency_fold(&f, &old, &next, 1900, 9000);
	assert_int_equal(folded(&f, LATENCY_FOLD_TASK, 50), 30);
	assert_int_equal(f.from_ns, 1900);
	assert_int_equal(f.begin_ns, 2000);
}

static void microseconds_are_those_of_a_division(void **state)
{
	for (unsigned long long ns = 0; ns < 1ull << 32; ns += 1000) {
		assert_int_equal(latency_us(ns), ns / 1000);
		assert_int_equal(latency_us(ns + 999), ns / 1000);
	}
	for (unsigned long long ns = (1ull << 32) - 3; ns < (1ull << 32) + 3; ns++)
		assert_int_equal(latency_us(ns), ns / 1000);
	assert_int_equal(latency_us(~0ull), ~0ull / 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(each_recording_has_its_own_bank, begin),
		cmocka_unit_test_setup(a_recording_that_finds_no_bank_is_counted, begin),
		cmocka_unit_test_setup(a_later_wake_up_takes_the_place_of_one_that_waits, begin),
		cmocka_unit_test_setup(a_wake_up_that_is_read_is_left_alone, begin),
		cmocka_unit_test(what_an_interrupt_came_upon_ran_until_then),
		cmocka_unit_test(an_event_that_is_newer_than_the_one_written_is_no_end),
		cmocka_unit_test(another_wake_up_begins_with_nothing),
		cmocka_unit_test(microseconds_are_those_of_a_division),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
