// SPDX-License-Identifier: MIT
/*
 * test_latency_symbols.c - which frame of a stack did it: latency/symbols.c. The stacks are those
 * that the recorder took on 6.18.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "../../latency/symbols.h"

static const char *culprit(const char *const *names)
{
	int count = 0, at;

	while (names[count])
		count++;
	at = symbols_culprit(names, count);
	return at < 0 ? "" : names[at];
}

static void what_the_timer_interrupted_lies_below_its_entry(void **state)
{
	static const char *const names[] = { "bpf_prog_2c7a70064e5c6ac3_wakes [bpf]",
					     "bpf_trace_run1",
					     "try_to_wake_up",
					     "hrtimer_wakeup",
					     "__hrtimer_run_queues",
					     "hrtimer_interrupt",
					     "__sysvec_apic_timer_interrupt",
					     "sysvec_apic_timer_interrupt",
					     "asm_sysvec_apic_timer_interrupt",
					     "clear_page_erms",
					     "folio_zero_user",
					     "asm_exc_page_fault",
					     NULL };

	assert_string_equal(culprit(names), "clear_page_erms");
}

static void a_lock_that_is_let_go_is_not_the_culprit(void **state)
{
	static const char *const names[] = { "bpf_trace_run4",
					     "__schedule",
					     "preempt_schedule_common",
					     "preempt_schedule_thunk",
					     "_raw_spin_unlock_irqrestore",
					     "nvkm_fifo_kick",
					     "entry_SYSCALL_64_after_hwframe",
					     NULL };

	assert_string_equal(culprit(names), "nvkm_fifo_kick");
}

static void a_stack_of_the_kernels_frame_work_has_no_culprit(void **state)
{
	static const char *const names[] = {
		"bpf_trace_run1", "asm_sysvec_apic_timer_interrupt", "x64_sys_call",
		"do_syscall_64",  "entry_SYSCALL_64_after_hwframe",  NULL
	};
	static const char *const none[] = { NULL };

	assert_string_equal(culprit(names), "");
	assert_string_equal(culprit(none), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_timer_interrupted_lies_below_its_entry),
		cmocka_unit_test(a_lock_that_is_let_go_is_not_the_culprit),
		cmocka_unit_test(a_stack_of_the_kernels_frame_work_has_no_culprit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
