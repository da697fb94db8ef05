// SPDX-License-Identifier: MIT
/*
 * test_latency_order.c - events of a CPU in the order in which they happened: latency/order.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "../../latency/order.h"

#define MANY 2048

static struct event at(unsigned long long ns, int type, int number)
{
	return (struct event){ .ns = ns, .type = type, .pid = number };
}

static void are(const struct event *events, int count, const int *numbers)
{
	for (int i = 0; i < count; i++)
		assert_int_equal(events[i].pid, numbers[i]);
}

static void events_are_put_in_the_order_of_their_times(void **state)
{
	struct event events[] = { at(5, EVENT_TIMER, 2), at(9, EVENT_SWITCH, 3),
				  at(1, EVENT_SWITCH, 1) };

	order_events(events, 3);
	are(events, 3, (int[]){ 1, 2, 3 });
	order_events(events, 0);
	order_events(events, 1);
	are(events, 3, (int[]){ 1, 2, 3 });
}

/* A sort that is not stable moves some of so many. */
static void events_of_one_time_stay_as_they_were_recorded(void **state)
{
	static struct event events[MANY];

	for (int i = 0; i < MANY; i++)
		events[i] = at(i < MANY / 2 ? 20 : 10, EVENT_PRIO, i);
	order_events(events, MANY);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(events[i].pid, (i + MANY / 2) % MANY);
}

/* It is recorded at its end, and its begin is the time of its first timer. */
static void an_interrupt_begins_before_what_happens_in_it(void **state)
{
	struct event events[] = { at(10, EVENT_TIMER, 1), at(10, EVENT_WAKING, 2),
				  at(10, EVENT_VECTOR, 3), at(14, EVENT_VECTOR_DONE, 4) };

	order_events(events, 4);
	are(events, 4, (int[]){ 3, 1, 2, 4 });
}

/* No interrupt of a CPU begins within another one. */
static void an_interrupt_begins_after_the_end_of_the_one_before(void **state)
{
	struct event events[] = { at(4, EVENT_IRQ, 1), at(10, EVENT_IRQ_DONE, 2),
				  at(10, EVENT_TIMER, 3), at(10, EVENT_VECTOR, 4),
				  at(10, EVENT_VECTOR_DONE, 5) };

	order_events(events, 5);
	are(events, 5, (int[]){ 1, 2, 4, 3, 5 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_are_put_in_the_order_of_their_times),
		cmocka_unit_test(events_of_one_time_stay_as_they_were_recorded),
		cmocka_unit_test(an_interrupt_begins_before_what_happens_in_it),
		cmocka_unit_test(an_interrupt_begins_after_the_end_of_the_one_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
