// SPDX-License-Identifier: MIT
/*
 * test_latency_wakeup.c - what the times of a wake-up tell where no event was recorded:
 * latency/wakeup.c and latency_wake_records of bpf/latency.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "../../latency/wakeup.h"
#include "latency_blame.h"

#define THREAD 70
#define TASK   40

/* Due at 1000 us, fires 2 us later, and is switched to at `switched`. */
static struct latency_wake wake_of(uint64_t switched_us)
{
	return (struct latency_wake){ .due_ns = 1000000,
				      .timer_ns = 1002000,
				      .waking_ns = 1002000,
				      .irq_ns = 1002000,
				      .switch_ns = switched_us * 1000,
				      .pid = THREAD,
				      .prio = 9,
				      .other = TASK,
				      .other_prio = 120,
				      .comm = "rtxg-late/0",
				      .other_comm = "compiler" };
}

/* The events that kernel.c makes of the records of a wake-up of which nothing was recorded. */
static int events_of(const struct latency_wake *wake, struct event *events)
{
	struct latency_record records[LATENCY_WAKE_RECORDS] = { 0 };
	int count = latency_wake_records(wake, wake->other, wake->other_prio, records);

	for (int i = 0; i < count; i++) {
		const struct latency_record *r = &records[i];

		events[i] = (struct event){ .ns = r->ns,
					    .type = r->type,
					    .context = r->context,
					    .context_prio = r->context_prio,
					    .pid = r->pid,
					    .prio = r->prio,
					    .other = r->type == EVENT_SWITCH ? r->context : -1,
					    .other_prio = r->context_prio,
					    .syscall = r->syscall,
					    .stack = r->stack };
		if (r->type == EVENT_SWITCH) {
			memcpy(events[i].name, r->comm, EVENT_COMM);
			memcpy(events[i].other_name, r->other_comm, EVENT_COMM);
		}
	}
	return count;
}

static void blame_of(const struct event *events, int count, const struct latency_wake *wake,
		     uint64_t ran_us, struct blame *b)
{
	struct blame_case c = { .pid = THREAD,
				.expected_ns = wake->due_ns,
				.ran_ns = ran_us * 1000,
				.timer_ns = wake->timer_ns,
				.woken_ns = wake->waking_ns,
				.whole = true,
				.here = true };

	assert_int_equal(blame_find(events, (size_t)count, &c, b), 0);
	assert_int_equal(sum(b), ran_us * 1000 - wake->due_ns);
}

static void a_record_has_what_its_wake_up_has(void **state)
{
	struct latency_record records[LATENCY_WAKE_RECORDS] = { 0 };
	struct latency_wake wake = wake_of(0);

	assert_int_equal(latency_wake_records(&wake, 0, 120, records), 1);
	assert_int_equal(records[0].type, EVENT_WAKING);
	assert_int_equal(records[0].due_ns, 1000000);
	assert_int_equal(records[0].context, 0);
	assert_int_equal(records[0].syscall, EVENT_NOT_KNOWN);
	assert_int_equal(records[0].stack, -1);
	wake.switch_ns = 1009000;
	assert_int_equal(latency_wake_records(&wake, TASK, 120, records), 2);
	assert_int_equal(records[1].type, EVENT_SWITCH);
	assert_int_equal(records[1].pid, THREAD);
	assert_int_equal(records[1].context, TASK);
	assert_string_equal(records[1].comm, "rtxg-late/0");
	assert_string_equal(records[1].other_comm, "compiler");
	wake.irq_end_ns = 1005000;
	assert_int_equal(latency_wake_records(&wake, TASK, 120, records), 3);
	assert_int_equal(records[1].type, EVENT_VECTOR_DONE);
	assert_int_equal(records[1].pid, LATENCY_LOCAL_TIMER);
	assert_int_equal(records[1].arg, 1002000);
	/* the switch of the cycle before is none of this one */
	wake = wake_of(900);
	assert_int_equal(latency_wake_records(&wake, TASK, 120, records), 1);
}

static void what_is_longer_than_the_shortest_way_is_not_the_timers(void **state)
{
	struct latency_wake wake = wake_of(1092);
	struct event events[8];
	struct blame b;
	int count = events_of(&wake, events);

	count = wakeup_interrupt(events, count, &wake, 5000);
	assert_int_equal(count, 4);
	blame_of(events, count, &wake, 1093, &b);
	assert_int_equal(part(&b, BLAME_TIMER)->ns, 5000);
	assert_int_equal(part(&b, BLAME_PREEMPTION)->ns, 85000);
	assert_int_equal(part(&b, BLAME_PREEMPTION)->pid, TASK);
	assert_string_equal(b.before_name, "compiler");
}

static void what_begins_after_the_interrupt_ends_it(void **state)
{
	struct latency_wake wake = wake_of(1050);
	struct event events[8], softirq = { .type = EVENT_SOFTIRQ,
					    .ns = 1003000,
					    .arg = 3,
					    .context = TASK,
					    .context_prio = 120,
					    .syscall = EVENT_NOT_KNOWN,
					    .stack = -1 };
	struct blame b;
	int count = events_of(&wake, events);

	assert_int_equal(count, 2);
	events[2] = events[1];
	events[1] = softirq;
	count = wakeup_interrupt(events, 3, &wake, 5000);
	blame_of(events, count, &wake, 1051, &b);
	assert_int_equal(part(&b, BLAME_TIMER)->ns, 1000);
	assert_int_equal(part(&b, BLAME_SOFTIRQ)->ns, 47000);
	/* the switch too: one that comes at once leaves nothing to it */
	wake = wake_of(1004);
	count = wakeup_interrupt(events, events_of(&wake, events), &wake, 5000);
	blame_of(events, count, &wake, 1005, &b);
	assert_int_equal(part(&b, BLAME_TIMER)->ns, 2000);
	assert_int_equal(part(&b, BLAME_SWITCH)->ns, 1000);
}

static void user_code_keeps_no_preemption_off(void **state)
{
	struct latency_wake wake = wake_of(1092);
	struct event events[8];
	struct blame b;
	int count = events_of(&wake, events);

	events[0].syscall = EVENT_IN_USER;
	count = wakeup_interrupt(events, count, &wake, 5000);
	blame_of(events, count, &wake, 1093, &b);
	assert_int_equal(part(&b, BLAME_TIMER)->ns, 90000);
	assert_int_equal(part(&b, BLAME_PREEMPTION)->ns, 0);
}

static void user_code_of_a_higher_priority_goes_on(void **state)
{
	static const int prios[] = { 5, 9 }; /* the thread has 9 */

	for (size_t i = 0; i < 2; i++) {
		struct latency_wake wake = wake_of(1092);
		struct event events[8];
		struct blame b;
		int count;

		wake.other_prio = prios[i];
		count = events_of(&wake, events);
		events[0].syscall = EVENT_IN_USER;
		count = wakeup_interrupt(events, count, &wake, 5000);
		blame_of(events, count, &wake, 1093, &b);
		assert_int_equal(part(&b, BLAME_TIMER)->ns, 5000);
		assert_int_equal(part(&b, BLAME_HIGHER)->ns, 85000);
		assert_int_equal(part(&b, BLAME_HIGHER)->pid, TASK);
	}
}

static void an_earlier_timer_of_the_interrupt_is_a_part_of_it(void **state)
{
	struct latency_wake wake = wake_of(1010);
	struct event events[8];
	struct blame b;
	int count;

	wake.irq_ns = 900000;
	count = wakeup_interrupt(events, events_of(&wake, events), &wake, 5000);
	assert_int_equal(events[0].type, EVENT_VECTOR);
	blame_of(events, count, &wake, 1011, &b);
	assert_int_equal(part(&b, BLAME_TIMER)->ns, 7000);
}

static void a_known_end_is_left_alone(void **state)
{
	struct latency_wake wake = wake_of(1010);
	struct event events[8];
	int count = events_of(&wake, events);

	wake.irq_end_ns = 1004000;
	assert_int_equal(wakeup_interrupt(events, count, &wake, 5000), count);
	wake.irq_end_ns = 0;
	wake.waking_ns++; /* another wake-up than that of the events */
	assert_int_equal(wakeup_interrupt(events, count, &wake, 5000), count);
}

static void a_task_that_did_not_sleep_is_late_by_itself(void **state)
{
	struct latency_wake wake = { .pid = THREAD, .prio = EVENT_NO_PRIO };
	struct event e = wakeup_awake(&wake, 1000000);
	struct blame_case c = { .pid = THREAD,
				.expected_ns = 1000000,
				.ran_ns = 1900000,
				.whole = true,
				.here = true,
				.awake = true };
	struct blame b;

	assert_int_equal(blame_find(&e, 1, &c, &b), 0);
	assert_int_equal(b.count, 1);
	assert_int_equal(part(&b, BLAME_SELF)->ns, 900000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_has_what_its_wake_up_has),
		cmocka_unit_test(what_is_longer_than_the_shortest_way_is_not_the_timers),
		cmocka_unit_test(what_begins_after_the_interrupt_ends_it),
		cmocka_unit_test(user_code_keeps_no_preemption_off),
		cmocka_unit_test(user_code_of_a_higher_priority_goes_on),
		cmocka_unit_test(an_earlier_timer_of_the_interrupt_is_a_part_of_it),
		cmocka_unit_test(a_known_end_is_left_alone),
		cmocka_unit_test(a_task_that_did_not_sleep_is_late_by_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
