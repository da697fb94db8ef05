// SPDX-License-Identifier: MIT
/*
 * test_latency_trace.c - who made a task late, by traces in text that latency/trace.c reads. The
 * first one is printed in Emde, "Accelerated graphics with real-time: how do they play together?"
 * (OSADL, 2021), whose answer is printed there too.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "../../latency/trace.h"
#include "latency_blame.h"

#define US 1000ull

static const char osadl[] =
	"cyclictest-390094 5d...2.. 337980218us : sched_switch: prev_comm=cyclictest "
	"prev_pid=390094 ...\n"
	"cyclictest-390094 5d...2.. 337980218us : _raw_spin_lock_irqsave <-__schedule\n"
	"cyclictest-390094 5d...3.. 337980218us : do_raw_spin_lock <-_raw_spin_lock_irqsave\n"
	"cyclictest-390094 5d...3.. 337980219us : _raw_spin_unlock_irqrestore <-__schedule\n"
	"cyclictest-390094 5d...3.. 337980219us : do_raw_spin_unlock "
	"<-_raw_spin_unlock_irqrestore\n"
	"cyclictest-390094 5d...2.. 337980219us : enter_lazy_tlb <-__schedule\n"
	"cyclictest-390094 5d...2.. 337980219us : __switch_to <-__schedule\n"
	"cyclictest-390094 5d...2.. 337980219us : save_fpregs_to_fpstate <-__switch_to\n"
	"<idle>-0         5d...2.. 337980219us : finish_task_switch.isra.0 <-__schedule\n"
	"...\n"
	"<idle>-0      5d...2.. 337980375us : sched_switch: next_comm=irq/45-nvkm\n"
	"...\n"
	"<idle>-0      5d...2.. 337980376us : __switch_to <-__schedule\n"
	"irq/45-n-489  5d...2.. 337980376us : finish_task_switch.isra.0 <-__schedule\n"
	"...\n"
	"irq/45-n-489  5.....12 337980379us : nvkm_pci_intr <-irq_forced_thread_fn\n"
	"irq/45-n-489  5.....12 337980379us : nvkm_mc_intr_unarm <-nvkm_pci_intr\n"
	"irq/45-n-489  5.....12 337980380us : gf100_mc_intr_unarm <-nvkm_pci_intr\n"
	"irq/45-n-489  5d....12 337980506us : irq_enter_rcu <-sysvec_apic_timer_interrupt\n"
	"...\n"
	"irq/45-n-489      5d...212 337980530us : sched_switch: prev_comm=irq/45-nvkm "
	"next_comm=cyclictest\n"
	"irq/45-n-489      5d...212 337980530us : switch_mm_irqs_off <-__schedule\n"
	"irq/45-n-489      5d...212 337980531us : __switch_to <-__schedule\n"
	"cyclictest-390094 5d...2.. 337980531us : finish_task_switch.isra.0 <-__schedule\n"
	"cyclictest-390094 5d...2.. 337980531us : raw_spin_rq_unlock <-finish_task_switch.isra.0\n";

static void the_printed_trace_of_osadl_names_nvkm(void **state)
{
	struct blame_case c = { .pid = 390094, .interval_ns = 200 * US };
	struct trace trace;
	struct blame b;
	char words[128];
	int shares[BLAME_PARTS], all = 0;

	assert_int_equal(trace_read(osadl, &trace), 0);
	assert_int_equal(trace.skipped, 0);
	assert_int_equal(trace.cpus[0], 5);
	assert_int_equal(blame_find(trace.events, trace.count, &c, &b), 0);
	assert_int_equal(b.observed_ns, 312 * US);
	assert_int_equal(b.expected_ns, 337980419 * US);
	assert_int_equal(b.latency_ns, 112 * US);
	assert_int_equal(sum(&b), b.latency_ns);
	assert_int_equal(b.parts[0].kind, BLAME_HELD);
	assert_int_equal(b.parts[0].pid, 489);
	assert_int_equal(b.parts[0].ns, 87 * US);
	assert_string_equal(blame_words(&b.parts[0], words, sizeof(words)),
			    "interrupts held off: irq/45-nvkm 489 in gf100_mc_intr_unarm");
	assert_int_equal(b.parts[1].kind, BLAME_TIMER);
	assert_int_equal(b.parts[1].ns, 24 * US);
	assert_int_equal(b.parts[2].kind, BLAME_SWITCH);
	assert_int_equal(b.before, 489);
	assert_string_equal(b.before_name, "irq/45-nvkm");
	assert_string_equal(b.name, "cyclictest");
	blame_shares(&b, shares);
	for (int i = 0; i < b.count; i++)
		all += shares[i];
	assert_int_equal(all, 1000);
	trace_close(&trace);
}

static void traces_of_today_are_read(void **state)
{
	static const char text[] =
		"# tracer: nop\n#\n"
		"          <idle>-0       [003] d..2.  1234.000100: sched_switch: prev_comm=my "
		"loop "
		"prev_pid=70 prev_prio=19 prev_state=S ==> next_comm=swapper/3 next_pid=0 "
		"next_prio=120\n"
		"          <idle>-0       [001] d.h1.  1234.000150: irq_handler_entry: irq=9 "
		"name=other\n"
		"          <idle>-0       [003] d.h1.  1234.000200: local_timer_entry: vector=236\n"
		"          <idle>-0       [003] d.h2.  1234.000201: hrtimer_expire_entry: "
		"hrtimer=00000000ab function=hrtimer_wakeup now=1234000200000\n"
		"          <idle>-0       [003] dNh2.  1234.000203: sched_wakeup: comm=my loop "
		"pid=70 "
		"prio=19 target_cpu=003\n"
		"          <idle>-0       [003] dNh1.  1234.000204: hrtimer_expire_exit: "
		"hrtimer=00\n"
		"          <idle>-0       [003] dNh1.  1234.000205: local_timer_exit: vector=236\n"
		"          <idle>-0       [003] .Ns1.  1234.000206: softirq_entry: vec=9 "
		"[action=RCU]\n"
		"          <idle>-0       [003] .Ns1.  1234.000216: softirq_exit: vec=9 "
		"[action=RCU]\n"
		"          <idle>-0       [003] d..2.  1234.000220: sched_switch: "
		"prev_comm=swapper/3 "
		"prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=my loop next_pid=70 "
		"next_prio=19\n";
	struct blame_case c = { .pid = 70, .interval_ns = 50 * US };
	struct trace trace;
	struct blame b;

	assert_int_equal(trace_read(text, &trace), 0);
	assert_int_equal(trace.count, 10);
	trace_keep_cpu(&trace, 3);
	assert_int_equal(trace.count, 9);
	assert_string_equal(trace.events[0].other_name, "my loop");
	assert_int_equal(blame_find(trace.events, trace.count, &c, &b), 0);
	assert_int_equal(b.latency_ns, 70 * US);
	assert_int_equal(part(&b, BLAME_IDLE)->ns, 50 * US);
	assert_int_equal(part(&b, BLAME_TIMER)->ns, 5 * US);
	assert_int_equal(part(&b, BLAME_SOFTIRQ)->ns, 10 * US);
	assert_int_equal(part(&b, BLAME_WAKE_IDLE)->ns, 5 * US);
	assert_int_equal(b.prio, 19);
	trace_close(&trace);
}

/*
 * What rtla writes: durations stand at the ends of what they are of, the thread says how late it
 * was. Two cycles; the second one is the later one.
 */
static void a_trace_of_timerlat_says_by_itself_what_was_late(void **state)
{
	static const char text[] =
		"# tracer: timerlat\n"
		"          <idle>-0       [001] d.h1.   100.000004: #6     context    irq "
		"timer_latency "
		"      3000 ns\n"
		"          <idle>-0       [001] dNh1.   100.000006: irq_noise: local_timer:236 "
		"start "
		"100.000003500 duration 2000 ns\n"
		"      timerlat/1-900     [001] .....   100.000010: #6     context thread "
		"timer_latency      9000 ns\n"
		"             cc1-77      [001] d.h..   100.001071: #7     context    irq "
		"timer_latency "
		"     70000 ns\n"
		"             cc1-77      [001] dNh..   100.001078: irq_noise: local_timer:236 "
		"start "
		"100.001070000 duration 7000 ns\n"
		"             cc1-77      [001] dNh..   100.001090: irq_noise: nvme0q1:30 start "
		"100.001079000 duration 10000 ns\n"
		"             cc1-77      [001] dNs..   100.001110: softirq_noise: BLOCK:4 start "
		"100.001091000 duration 18000 ns\n"
		"             cc1-77      [001] d..3.   100.001121: thread_noise: cc1:77 start "
		"100.001071000 duration 15000 ns\n"
		"      timerlat/1-900     [001] .....   100.001123: #7     context thread "
		"timer_latency    122000 ns\n";
	struct trace trace;
	struct blame_case c = { 0 };
	struct blame b;

	assert_int_equal(trace_read(text, &trace), 0);
	assert_int_equal(trace.skipped, 0);
	for (size_t i = 0; i < trace.count; i++) {
		if (i)
			assert_true(trace.events[i - 1].ns <= trace.events[i].ns);
		if (trace.events[i].type == EVENT_RAN)
			c = (struct blame_case){ .pid = trace.events[i].context,
						 .ran_ns = trace.events[i].ns,
						 .expected_ns = trace.events[i].ns -
								(uint64_t)trace.events[i].arg };
	}
	assert_int_equal(c.pid, 900);
	assert_int_equal(blame_find(trace.events, trace.count, &c, &b), 0);
	assert_int_equal(b.latency_ns, 122 * US);
	assert_int_equal(sum(&b), b.latency_ns);
	assert_int_equal(b.parts[0].kind, BLAME_HELD);
	assert_int_equal(b.parts[0].pid, 77);
	assert_int_equal(b.parts[0].ns, 69 * US);
	assert_string_equal(b.parts[0].name, "cc1");
	assert_int_equal(part(&b, BLAME_TIMER)->ns, 7 * US);
	assert_int_equal(part(&b, BLAME_INTERRUPT)->ns, 10 * US);
	assert_string_equal(part(&b, BLAME_INTERRUPT)->name, "nvme0q1");
	assert_int_equal(part(&b, BLAME_SOFTIRQ)->ns, 18 * US);
	assert_int_equal(part(&b, BLAME_SWITCH)->ns, 2 * US);
	trace_close(&trace);
}

static void text_that_is_no_trace_is_refused(void **state)
{
	struct trace trace;

	assert_int_equal(trace_read("", &trace), -ENODATA);
	assert_int_equal(trace_read("hello\n- : \n:::\n-5 1us: x\n", &trace), -ENODATA);
	assert_int_equal(trace.skipped, 4);
	trace_close(&trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_printed_trace_of_osadl_names_nvkm),
		cmocka_unit_test(traces_of_today_are_read),
		cmocka_unit_test(a_trace_of_timerlat_says_by_itself_what_was_late),
		cmocka_unit_test(text_that_is_no_trace_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
