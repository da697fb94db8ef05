// SPDX-License-Identifier: MIT
/*
 * test_latency_blame.c - who made a task late: latency/blame.c over events.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "latency_blame.h"
#include "latency_events.h"

/* The victim is task 7 with kernel priority 10, due at 1000 us. */
static struct blame found(const struct event *events, size_t count, uint64_t ran_us)
{
	struct blame_case c = { .pid = 7, .expected_ns = 1000 * US, .ran_ns = ran_us * US };
	struct blame b;

	assert_int_equal(blame_find(events, count, &c, &b), 0);
	assert_int_equal(b.latency_ns, (ran_us - 1000) * US);
	assert_int_equal(sum(&b), b.latency_ns);
	return b;
}

#define FOUND(events, ran) found(events, sizeof(events) / sizeof((events)[0]), ran)

static void a_long_interrupt_is_named(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 0, 120, "swapper/1"),
		named(at(950, EVENT_IRQ, 0), "nvidia", 45),
		at(1200, EVENT_IRQ_DONE, 0),
		named(at(1201, EVENT_VECTOR, 0), "local timer", 236),
		named(at(1202, EVENT_TIMER, 0), "", 1000 * US),
		of(at(1203, EVENT_WAKEUP, 0), 7),
		at(1205, EVENT_VECTOR_DONE, 0),
		change(1206, 0, 120, 7, 10, "late"),
	};
	struct blame b = FOUND(e, 1208);

	assert_int_equal(b.parts[0].kind, BLAME_INTERRUPT);
	assert_string_equal(b.parts[0].name, "nvidia");
	assert_int_equal(b.parts[0].ns, 200 * US);
	assert_int_equal(part(&b, BLAME_TIMER)->ns, 4 * US);
	assert_int_equal(part(&b, BLAME_IDLE)->ns, 1 * US);
	assert_int_equal(part(&b, BLAME_WAKE_IDLE)->ns, 1 * US);
	assert_int_equal(part(&b, BLAME_SWITCH)->ns, 2 * US);
}

static void interrupts_off_are_blamed_on_the_task_that_ran(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 50, 120, "hog"),
		named(at(1300, EVENT_VECTOR, 50), "local timer", 236),
		in(named(at(1301, EVENT_TIMER, 50), "", 1000 * US), 16),
		of(at(1302, EVENT_WAKEUP, 50), 7),
		at(1303, EVENT_VECTOR_DONE, 50),
		change(1304, 50, 120, 7, 10, "late"),
	};
	struct blame b;

	e[2].stack = 3;
	b = FOUND(e, 1305);
	assert_int_equal(b.parts[0].kind, BLAME_HELD);
	assert_int_equal(b.parts[0].pid, 50);
	assert_int_equal(b.parts[0].ns, 300 * US);
	assert_string_equal(b.parts[0].name, "hog");
}

/*
 * Each part has the system call that the end of its piece shows, not the one of an event before.
 */
static void the_system_call_is_that_of_the_time(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 50, 120, "hog"),
		in(named(at(950, EVENT_TIMER, 50), "", 940 * US), 257),
		at(951, EVENT_TIMER_DONE, 50),
		in(named(at(1300, EVENT_VECTOR, 50), "local timer", 236), 1),
		of(at(1302, EVENT_WAKING, 50), 7),
		at(1303, EVENT_VECTOR_DONE, 50),
		in(change(1404, 50, 120, 7, 10, "late"), 2),
	};
	struct blame b = FOUND(e, 1405);

	assert_int_equal(part(&b, BLAME_HELD)->ns, 300 * US);
	assert_int_equal(part(&b, BLAME_HELD)->syscall, 1);
	assert_int_equal(part(&b, BLAME_PREEMPTION)->syscall, 2);
	/* in its own code by then: nothing of the kernel held the timer off */
	e[3].syscall = EVENT_IN_USER;
	b = FOUND(e, 1405);
	assert_int_equal(part(&b, BLAME_OUTSIDE)->ns, 300 * US);
}

/*
 * The same, but the timer's interrupt found the task in its own code: no kernel code held it off.
 */
static void a_late_timer_in_user_code_is_not_blamed_on_the_kernel(void **state)
{
	struct event e[] = {
		in(change(900, 7, 10, 50, 120, "hog"), EVENT_NOT_KNOWN),
		in(named(at(1300, EVENT_VECTOR, 50), "local timer", 236), EVENT_IN_USER),
		in(named(at(1301, EVENT_TIMER, 50), "", 1000 * US), EVENT_IN_USER),
		of(at(1302, EVENT_WAKEUP, 50), 7),
		at(1303, EVENT_VECTOR_DONE, 50),
		change(1304, 50, 120, 7, 10, "late"),
	};
	struct blame b = FOUND(e, 1305);

	assert_int_equal(b.parts[0].kind, BLAME_OUTSIDE);
	assert_int_equal(b.parts[0].ns, 300 * US);
}

/*
 * The bytes before the place at which the timer came in: POPF or STI tell that interrupts had been
 * off, others that they were on and the CPU did not run.
 */
static void a_cpu_that_stood_still_is_told_from_interrupts_that_were_off(void **state)
{
	static const struct {
		unsigned char code[8];
		enum blame_kind kind;
	} cases[] = {
		{ { 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x50, 0x9d }, BLAME_HELD }, /* popf */
		{ { 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xfb, 0x5b }, BLAME_HELD }, /* sti, pop */
		{ { 0x90, 0x90, 0x90, 0xfb, 0x48, 0x83, 0xc4, 0x08 }, BLAME_HELD }, /* sti, add */
		{ { 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xfb }, BLAME_STALLED },
		{ { 0x90, 0x90, 0x90, 0x90, 0x48, 0x89, 0xe5, 0x53 }, BLAME_STALLED },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct event e[] = {
			change(900, 7, 10, 50, 120, "hog"),
			named(at(1300, EVENT_VECTOR, 50), "local timer", 236),
			of(at(1302, EVENT_WAKING, 50), 7),
			at(1303, EVENT_VECTOR_DONE, 50),
			change(1304, 50, 120, 7, 10, "late"),
		};
		struct blame b;

		e[2].other = EVENT_FROM_KERNEL;
		memcpy(&e[2].arg, cases[i].code, sizeof(e[2].arg));
		b = FOUND(e, 1305);
		assert_int_equal(b.parts[0].kind, cases[i].kind);
		e[2].other = EVENT_FROM_USER;
		b = FOUND(e, 1305);
		assert_int_equal(b.parts[0].kind, BLAME_OUTSIDE);
	}
}

static void preemption_off_is_blamed_on_the_task_that_went_on(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 50, 120, "hog"),
		named(at(1001, EVENT_VECTOR, 50), "local timer", 236),
		in(named(at(1002, EVENT_TIMER, 50), "", 1000 * US), 16),
		of(at(1003, EVENT_WAKEUP, 50), 7),
		at(1004, EVENT_VECTOR_DONE, 50),
		change(1500, 50, 120, 7, 10, "late"),
	};
	struct blame b = FOUND(e, 1502);

	assert_int_equal(b.parts[0].kind, BLAME_PREEMPTION);
	assert_int_equal(b.parts[0].ns, 496 * US);
	assert_int_equal(b.parts[0].syscall, 16);
	assert_int_equal(part(&b, BLAME_TIMER)->ns, 3 * US);
}

static void a_task_of_higher_priority_is_named(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 60, 5, "urgent"),
		named(at(1001, EVENT_VECTOR, 60), "local timer", 236),
		named(at(1002, EVENT_TIMER, 60), "", 1000 * US),
		of(at(1003, EVENT_WAKEUP, 60), 7),
		at(1004, EVENT_VECTOR_DONE, 60),
		change(1400, 60, 5, 61, 10, "equal"),
		change(1500, 61, 10, 7, 10, "late"),
	};
	struct blame b = FOUND(e, 1500);

	assert_int_equal(b.parts[0].kind, BLAME_HIGHER);
	assert_int_equal(b.parts[0].pid, 60);
	assert_int_equal(b.parts[0].ns, 396 * US);
	assert_int_equal(b.parts[1].kind, BLAME_HIGHER);
	assert_int_equal(b.parts[1].pid, 61);
	assert_int_equal(b.parts[1].ns, 100 * US);
}

/*
 * Task 50 was switched to as an ordinary task and raised its own priority above that of the victim.
 * It lowers it again in a system call, at whose end the switch comes.
 */
static void a_task_that_raised_its_priority_is_no_lock(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 50, 120, "riser"),
		with(named(at(1001, EVENT_VECTOR, 50), "local timer", 236), 5),
		with(in(named(at(1002, EVENT_TIMER, 50), "", 1000 * US), EVENT_IN_USER), 5),
		with(of(at(1003, EVENT_WAKING, 50), 7), 5),
		with(at(1004, EVENT_VECTOR_DONE, 50), 5),
		in(change(1500, 50, 120, 7, 10, "late"), 144),
	};
	struct blame b = FOUND(e, 1502);

	assert_int_equal(b.parts[0].kind, BLAME_HIGHER);
	assert_int_equal(b.parts[0].pid, 50);
	assert_int_equal(b.parts[0].prio, 5);
	assert_int_equal(b.parts[0].ns, 496 * US);
}

/* A lock lends it the priority of who waits for it, and takes it back before the switch. */
static void a_lent_priority_counts_while_it_is_lent(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 50, 120, "holder"),
		of(at(950, EVENT_PRIO, 60), 50),
		named(at(1001, EVENT_VECTOR, 50), "local timer", 236),
		of(at(1003, EVENT_WAKING, 50), 7),
		at(1004, EVENT_VECTOR_DONE, 50),
		of(at(1404, EVENT_PRIO, 50), 50),
		change(1500, 50, 120, 7, 10, "late"),
	};
	struct blame b;

	e[1].prio = 5;
	e[5].prio = 120;
	b = FOUND(e, 1502);
	assert_int_equal(b.parts[0].kind, BLAME_HIGHER);
	assert_int_equal(b.parts[0].ns, 400 * US);
	assert_int_equal(part(&b, BLAME_PREEMPTION)->ns, 96 * US);
}

/* A trace in text says priorities at switches alone: raised once, it is higher at one of both. */
static void switches_alone_tell_a_raised_priority_too(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 50, 120, "riser"),
		named(at(1001, EVENT_VECTOR, 50), "local timer", 236),
		of(at(1003, EVENT_WAKEUP, 50), 7),
		at(1004, EVENT_VECTOR_DONE, 50),
		change(1500, 50, 5, 7, 10, "late"),
	};
	struct blame b = FOUND(e, 1502);

	assert_int_equal(b.parts[0].kind, BLAME_HIGHER);
	assert_int_equal(b.parts[0].pid, 50);
	assert_int_equal(part(&b, BLAME_PREEMPTION)->ns, 0);
}

/*
 * The other way round: it was more urgent when it came, and had been lowered when the timer fired.
 */
static void a_lowered_priority_is_not_taken_for_a_higher_one(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 50, 5, "faller"),
		with(named(at(1001, EVENT_VECTOR, 50), "local timer", 236), 120),
		with(of(at(1003, EVENT_WAKING, 50), 7), 120),
		with(at(1004, EVENT_VECTOR_DONE, 50), 120),
		change(1500, 50, 120, 7, 10, "late"),
	};
	struct blame b = FOUND(e, 1502);

	assert_int_equal(b.parts[0].kind, BLAME_PREEMPTION);
	assert_int_equal(b.parts[0].ns, 496 * US);
}

/* The handler of a device ran, and the softirq that it asked for, before the timer came in. */
static void a_device_and_its_softirq_have_a_part_each(void **state)
{
	struct event e[] = {
		in(change(900, 7, 10, 50, 120, "user"), EVENT_NOT_KNOWN),
		named(at(950, EVENT_IRQ, 50), "rtxg_edu0", 24),
		at(1400, EVENT_IRQ_DONE, 50),
		named(at(1401, EVENT_SOFTIRQ, 50), "", 6),
		in(named(at(1402, EVENT_VECTOR, 50), "local timer", 236), 16),
		in(named(at(1403, EVENT_TIMER, 50), "", 1000 * US), 16),
		of(at(1404, EVENT_WAKING, 50), 7),
		at(1405, EVENT_VECTOR_DONE, 50),
		at(1505, EVENT_SOFTIRQ_DONE, 50),
		change(1506, 50, 120, 7, 10, "late"),
	};
	struct blame b = FOUND(e, 1507);

	assert_int_equal(b.parts[0].kind, BLAME_INTERRUPT);
	assert_string_equal(b.parts[0].name, "rtxg_edu0");
	assert_int_equal(b.parts[0].ns, 400 * US);
	assert_int_equal(b.parts[1].kind, BLAME_SOFTIRQ);
	assert_int_equal(b.parts[1].ns, 101 * US);
}

static void a_softirq_after_the_timer_is_named(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 0, 120, "swapper/1"),
		named(at(1001, EVENT_VECTOR, 0), "local timer", 236),
		named(at(1002, EVENT_TIMER, 0), "", 1000 * US),
		of(at(1003, EVENT_WAKEUP, 0), 7),
		at(1004, EVENT_VECTOR_DONE, 0),
		named(at(1005, EVENT_SOFTIRQ, 0), "", 3),
		at(1205, EVENT_SOFTIRQ_DONE, 0),
		change(1206, 0, 120, 7, 10, "late"),
	};
	struct blame b = FOUND(e, 1206);
	char words[64];

	assert_int_equal(b.parts[0].kind, BLAME_SOFTIRQ);
	assert_int_equal(b.parts[0].ns, 200 * US);
	assert_string_equal(blame_words(&b.parts[0], words, sizeof(words)), "softirq net_rx");
}

static void an_nmi_takes_its_time_from_what_it_interrupted(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 50, 120, "hog"),
		named(at(1201, EVENT_NMI, 50), "", 150 * US),
		named(at(1300, EVENT_VECTOR, 50), "local timer", 236),
		of(at(1302, EVENT_WAKEUP, 50), 7),
		change(1304, 50, 120, 7, 10, "late"),
	};
	struct blame b = FOUND(e, 1305);

	assert_int_equal(part(&b, BLAME_NMI)->ns, 150 * US);
	assert_int_equal(part(&b, BLAME_HELD)->ns, 150 * US);
}

static void a_task_that_ran_before_the_first_event_is_named(void **state)
{
	struct event e[] = {
		at(1001, EVENT_TIMER, 50),
		of(at(1002, EVENT_WAKEUP, 50), 7),
		change(1302, 50, 120, 7, 10, "late"),
	};
	struct blame b;

	e[0].context_prio = e[1].context_prio = 120;
	strcpy(e[2].other_name, "hog");
	b = FOUND(e, 1303);
	assert_int_equal(b.parts[0].kind, BLAME_PREEMPTION);
	assert_string_equal(b.parts[0].name, "hog");
}

static void a_task_without_a_real_time_policy_waits_for_others_turns(void **state)
{
	struct event e[] = {
		change(900, 7, 120, 50, 125, "nice"),
		of(at(1002, EVENT_WAKING, 50), 7),
		change(3002, 50, 125, 7, 120, "late"),
	};
	struct blame b;
	char words[96];

	e[1].syscall = EVENT_IN_USER;
	b = FOUND(e, 3003);
	assert_int_equal(b.parts[0].kind, BLAME_TURN);
	assert_string_equal(blame_words(&b.parts[0], words, sizeof(words)),
			    "time slice of a task of a lower priority: nice 50");
	/* a real-time task would not: that is the way to it */
	e[2].prio = 10;
	b = FOUND(e, 3003);
	assert_int_equal(b.parts[0].kind, BLAME_SWITCH);
}

static void a_task_that_was_preempted_before_it_read_the_clock_waits_for_others(void **state)
{
	struct event e[] = {
		at(1001, EVENT_TIMER, 50),
		of(at(1002, EVENT_WAKING, 50), 7),
		change(1010, 50, 120, 7, 120, "late"),
		change(1012, 7, 120, 60, 110, "hog"),
		change(4012, 60, 110, 7, 120, "late"),
	};
	struct blame b = FOUND(e, 4013);

	assert_int_equal(b.parts[0].kind, BLAME_HIGHER);
	assert_int_equal(b.parts[0].ns, 3000 * US);
	assert_int_equal(part(&b, BLAME_SWITCH)->ns, 3 * US);
	assert_int_equal(part(&b, BLAME_SELF)->ns, 0);
}

/* The wake-up itself, and all but two events, were written over. */
static void what_is_known_of_the_time_before_the_first_event_counts(void **state)
{
	struct event e[] = {
		change(50000, 50, 120, 60, 39, "ping"),
		change(51000, 60, 39, 7, 49, "late"),
	};
	struct blame_part before[] = {
		{ .kind = BLAME_PREEMPTION, .pid = 50, .prio = 120, .ns = 1000 * US },
		{ .kind = BLAME_PREEMPTION, .pid = 60, .prio = 39, .ns = 40000 * US },
		{ .kind = BLAME_INTERRUPT, .pid = -1, .ns = 7000 * US, .name = "nvme" },
	};
	struct blame_case c = { .pid = 7,
				.expected_ns = 1000 * US,
				.ran_ns = 51001 * US,
				.timer_ns = 1002 * US,
				.woken_ns = 1005 * US,
				.here = true,
				.before = before,
				.before_count = 3,
				.before_ns = 1015 * US };
	struct blame b;
	int shares[BLAME_PARTS], all = 0;

	assert_int_equal(blame_find(e, 2, &c, &b), 0);
	assert_int_equal(sum(&b), 50001 * US);
	blame_shares(&b, shares);
	for (int i = 0; i < b.count; i++)
		all += shares[i];
	assert_int_equal(all, 1000);
	assert_int_equal(b.parts[0].kind, BLAME_HIGHER);
	assert_int_equal(b.parts[0].pid, 60);
	assert_string_equal(b.parts[0].name, "ping");
	assert_int_equal(b.parts[0].ns, 41000 * US);
	assert_int_equal(part(&b, BLAME_INTERRUPT)->ns, 7000 * US);
	assert_int_equal(part(&b, BLAME_PREEMPTION)->ns, 1000 * US);
	assert_int_equal(part(&b, BLAME_TIMER)->ns, 3 * US);
	/* 2 us before the timer, 10 us to the first part, and what the parts have too little */
	assert_int_equal(part(&b, BLAME_UNSEEN)->ns, (2 + 10 + 985) * US);
	/* parts that are longer than the time that they are of */
	before[1].ns = 400000 * US;
	assert_int_equal(blame_find(e, 2, &c, &b), 0);
	assert_int_equal(sum(&b), 50001 * US);
	/* and those of another wake-up */
	c.before_ns = 999 * US;
	assert_int_equal(blame_find(e, 2, &c, &b), 0);
	assert_int_equal(part(&b, BLAME_UNSEEN)->ns, 49000 * US);
}

static void a_task_that_had_not_slept_is_its_own_culprit(void **state)
{
	struct event e[] = {
		change(800, 50, 120, 7, 10, "late"),
		named(at(1100, EVENT_IRQ, 7), "nvme", 30),
		at(1150, EVENT_IRQ_DONE, 7),
	};
	struct blame b = FOUND(e, 1500);

	assert_int_equal(b.parts[0].kind, BLAME_SELF);
	assert_int_equal(b.parts[0].ns, 450 * US);
	assert_int_equal(part(&b, BLAME_INTERRUPT)->ns, 50 * US);
}

/* Its timer came, late, when it had asked for it and had not gone to sleep: it was never off. */
static void a_task_whose_timer_comes_before_its_sleep_is_its_own_culprit(void **state)
{
	struct event e[] = {
		named(at(1440, EVENT_VECTOR, 7), "local timer", 236),
		named(at(1440, EVENT_TIMER, 7), "", 1000 * US),
		of(at(1440, EVENT_WAKING, 7), 7),
		at(1460, EVENT_VECTOR_DONE, 7),
	};
	struct blame_case c = { .pid = 7,
				.expected_ns = 1000 * US,
				.ran_ns = 1500 * US,
				.awake = true,
				.whole = true };
	struct blame b;

	assert_int_equal(blame_find(e, 4, &c, &b), 0);
	assert_int_equal(sum(&b), 500 * US);
	assert_int_equal(b.parts[0].kind, BLAME_SELF);
	assert_int_equal(b.parts[0].ns, 440 * US);
	assert_int_equal(part(&b, BLAME_PREEMPTION)->ns, 0);
	assert_int_equal(part(&b, BLAME_TIMER)->ns, 20 * US);
}

static void what_no_event_shows_is_said_to_be_unseen(void **state)
{
	struct event e[] = {
		change(1400, 50, 120, 7, 10, "late"),
	};
	struct blame b = FOUND(e, 1500);

	assert_int_equal(part(&b, BLAME_UNSEEN)->ns, 400 * US);
	assert_int_equal(part(&b, BLAME_SWITCH)->ns, 100 * US);
}

/* Another CPU's timer woke it; then a task of lower priority went on here. */
static void a_wake_up_by_another_cpu_is_cut_where_it_came(void **state)
{
	struct event e[] = {
		change(900, 60, 120, 50, 120, "hog"),
		change(1300, 50, 120, 7, 10, "late"),
	};
	struct blame_case c = { .pid = 7,
				.expected_ns = 1000 * US,
				.ran_ns = 1302 * US,
				.timer_ns = 1100 * US,
				.woken_ns = 1102 * US };
	struct blame_part old = { .kind = BLAME_PREEMPTION, .pid = 50, .ns = 90 * US };
	struct blame b;

	assert_int_equal(blame_find(e, 2, &c, &b), 0);
	assert_int_equal(sum(&b), 302 * US);
	assert_int_equal(part(&b, BLAME_UNSEEN)->ns, 102 * US);
	assert_int_equal(part(&b, BLAME_PREEMPTION)->ns, 198 * US);
	assert_int_equal(part(&b, BLAME_SWITCH)->ns, 2 * US);
	/* what this CPU did while an earlier one waited says nothing of the other CPU */
	c.before = &old;
	c.before_count = 1;
	c.before_ns = 400 * US;
	assert_int_equal(blame_find(e, 2, &c, &b), 0);
	assert_int_equal(part(&b, BLAME_UNSEEN)->ns, 102 * US);
	assert_int_equal(part(&b, BLAME_PREEMPTION)->ns, 198 * US);
}

static void a_case_that_cannot_be_answered_is_refused(void **state)
{
	struct event e[] = { change(1400, 50, 120, 7, 10, "late") };
	struct blame_case never = { .pid = 8, .expected_ns = 1 };
	struct blame_case first = { .pid = 7 };
	struct blame_case early = { .pid = 7, .expected_ns = 2000 * US };
	struct blame b;

	assert_int_equal(blame_find(e, 1, &never, &b), -ESRCH);
	assert_int_equal(blame_find(e, 1, &first, &b), -ERANGE);
	assert_int_equal(blame_find(e, 1, &early, &b), -EINVAL);
	assert_int_equal(blame_find(e, 0, &never, &b), -ESRCH);
}

static void the_record_is_that_of_osadl(void **state)
{
	struct event e[] = {
		change(900, 7, 10, 0, 120, "swapper/0"),
		named(at(1005, EVENT_VECTOR, 0), "local timer", 236),
		named(at(1005, EVENT_TIMER, 0), "", 1000 * US),
		of(at(1006, EVENT_WAKEUP, 0), 7),
		change(1019, 0, 120, 7, 0, "cyclictest"),
	};
	struct blame b = FOUND(e, 1020);
	char text[160];

	assert_string_equal(blame_record(&b, "clock_nanosleep", text, sizeof(text)),
			    "7 99 20 (5,13) cyclictest <- 0 -21 other 0.001020 clock_nanosleep");
}

/* Whatever comes, in whatever order of nesting: the parts are the whole. */
static void parts_always_add_up(void **state)
{
	unsigned int seed = 1;

	for (int round = 0; round < 20000; round++) {
		struct event e[40];
		struct blame_case c = { .pid = 1, .expected_ns = 1000 };
		struct blame b;
		uint64_t ns = 500;
		int count, shares[BLAME_PARTS], all = 0;

		if (round % 3 == 0) {
			c.woken_ns = 1000 + (unsigned int)round % 5000;
			c.timer_ns = 1000;
		}

		seed = seed * 1664525u + 1013904223u;
		count = (int)(seed >> 16) % 40;
		for (int i = 0; i < count; i++) {
			seed = seed * 1664525u + 1013904223u;
			ns += (seed >> 8) % 300;
			e[i] = at(0, (int)(seed >> 20) % (EVENT_PRIO + 1), (int)(seed >> 5) % 3);
			e[i].ns = ns;
			e[i].pid = (int)(seed >> 12) % 4;
			e[i].other = (int)(seed >> 14) % 4;
			e[i].prio = (int)(seed >> 3) % 130;
			e[i].context_prio = seed & 2 ? (int)(seed >> 4) % 130 : EVENT_NO_PRIO;
			e[i].arg = (int)(seed >> 9) % 500;
			snprintf(e[i].name, sizeof(e[i].name), "name%u", seed >> 28);
		}
		c.ran_ns = (seed & 1) ? ns + 100 : 0;
		if (blame_find(e, (size_t)count, &c, &b))
			continue;
		assert_int_equal(sum(&b), b.latency_ns);
		if (!b.latency_ns)
			continue;
		blame_shares(&b, shares);
		for (int i = 0; i < b.count; i++)
			all += shares[i];
		assert_int_equal(all, 1000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_interrupt_is_named),
		cmocka_unit_test(interrupts_off_are_blamed_on_the_task_that_ran),
		cmocka_unit_test(the_system_call_is_that_of_the_time),
		cmocka_unit_test(a_late_timer_in_user_code_is_not_blamed_on_the_kernel),
		cmocka_unit_test(a_cpu_that_stood_still_is_told_from_interrupts_that_were_off),
		cmocka_unit_test(preemption_off_is_blamed_on_the_task_that_went_on),
		cmocka_unit_test(a_task_of_higher_priority_is_named),
		cmocka_unit_test(a_task_that_raised_its_priority_is_no_lock),
		cmocka_unit_test(a_lent_priority_counts_while_it_is_lent),
		cmocka_unit_test(switches_alone_tell_a_raised_priority_too),
		cmocka_unit_test(a_lowered_priority_is_not_taken_for_a_higher_one),
		cmocka_unit_test(a_device_and_its_softirq_have_a_part_each),
		cmocka_unit_test(a_softirq_after_the_timer_is_named),
		cmocka_unit_test(an_nmi_takes_its_time_from_what_it_interrupted),
		cmocka_unit_test(a_task_that_had_not_slept_is_its_own_culprit),
		cmocka_unit_test(a_task_whose_timer_comes_before_its_sleep_is_its_own_culprit),
		cmocka_unit_test(what_no_event_shows_is_said_to_be_unseen),
		cmocka_unit_test(a_wake_up_by_another_cpu_is_cut_where_it_came),
		cmocka_unit_test(a_case_that_cannot_be_answered_is_refused),
		cmocka_unit_test(the_record_is_that_of_osadl),
		cmocka_unit_test(parts_always_add_up),
		cmocka_unit_test(a_task_that_ran_before_the_first_event_is_named),
		cmocka_unit_test(a_task_without_a_real_time_policy_waits_for_others_turns),
		cmocka_unit_test(
			a_task_that_was_preempted_before_it_read_the_clock_waits_for_others),
		cmocka_unit_test(what_is_known_of_the_time_before_the_first_event_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
