// SPDX-License-Identifier: GPL-2.0-only
/*
 * test_inversions.c - what the BPF meter of priority inversions counts (bpf/inversions.bpf.c),
 * event by event. The program itself is compiled into this test and its tracepoints are called;
 * tests/vm's i_meter.c holds it against a kernel.
 */
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include "inversions.bpf.c"

#undef SEC /* of libbpf: a section; of the tests: a second */
#include "check.h"

#define IRQ	 24
#define OTHER	 25
#define RUNNABLE 0u
#define SLEEPS	 1u
#define ENDS	 0x80u

/* Linux's count: smaller comes first */
#define FIFO(n) (99 - (n))

static struct task_struct idle = { .prio = INV_ORDINARY, .comm = "swapper/0" },
			  ordinary = { .prio = INV_ORDINARY, .pid = 10, .comm = "ordinary" },
			  owner = { .pid = 11, .comm = "owner" },
			  busy = { .pid = 12, .comm = "busy" },
			  worker = { .pid = 13,
				     .prio = FIFO(50),
				     .flags = PF_KTHREAD,
				     .comm = "irq/24-edu" };

static int setup(void **state)
{
	const struct inv_irq irq = { .owner = 11, .named = 1 };
	const u32 number = IRQ, tid = 11;
	struct inv_owner known = {};

	rig_forget();
	memset(ready_at, 0, sizeof(ready_at));
	RIG_MAP(chosen);
	RIG_MAP(cpus);
	RIG_MAP(ready);
	RIG_MAP(pending);
	RIG_MAP(owners);
	RIG_MAP(found);
	rig.now_ns = SEC;
	rig.walk_ns = 50 * US;
	owner.prio = known.prio = FIFO(10);
	busy.prio = FIFO(60);
	bpf_map_update_elem(&chosen, &number, &irq, BPF_ANY);
	bpf_map_update_elem(&owners, &tid, &known, BPF_ANY);
	return 0;
}

static int teardown(void **state)
{
	rig_forget();
	return 0;
}

static void switch_to(struct task_struct *prev, unsigned int prev_state, struct task_struct *next)
{
	next->thread_info.cpu = rig.cpu;
	change(prev_state == RUNNABLE, prev, next, prev_state);
}

static void wake(struct task_struct *task)
{
	waking(task);
	woken(task);
}

/* A top half that queues a tasklet. */
static void interrupt_with_tasklet(int irq)
{
	entry(irq, NULL);
	rig.now_ns += 2 * US;
	raise(TASKLET_IRQ);
	leave(irq, NULL, 1);
}

/* The softirq runs a tasklet of so long, which wakes a task at its end. */
static void run_tasklet(uint64_t ns, struct task_struct *wakes)
{
	tasklet(NULL, NULL);
	rig.now_ns += ns;
	if (wakes)
		wake(wakes);
	tasklet_done(NULL, NULL);
}

static u32 owner_of(u32 irq)
{
	const struct inv_irq *known = bpf_map_lookup_elem(&chosen, &irq);

	return known ? known->owner : 0;
}

/* A second interrupt, and both learn their owners. */
static void two_that_learn(void)
{
	const struct inv_irq none = {};
	const u32 first = IRQ, second = OTHER;

	bpf_map_update_elem(&chosen, &first, &none, BPF_ANY);
	bpf_map_update_elem(&chosen, &second, &none, BPF_ANY);
}

/* A top half of so long, in which a task may be woken. */
static void interrupt(uint64_t ns, struct task_struct *wakes)
{
	entry(IRQ, NULL);
	rig.now_ns += ns;
	if (wakes)
		wake(wakes);
	leave(IRQ, NULL, 1);
}

static struct inv_stats counted(enum inv_kind kind)
{
	static const struct inv_stats none;
	const struct inv_key key = { .owner = 11, .kind = kind };
	const struct inv_stats *stats = bpf_map_lookup_elem(&found, &key);

	return stats ? *stats : none;
}

static void assert_counted(enum inv_kind kind, uint64_t count, uint64_t sum_ns)
{
	const struct inv_stats stats = counted(kind);

	assert_int_equal(stats.count, count);
	assert_int_equal(stats.sum_ns, sum_ns);
}

static void assert_nothing_ready(void)
{
	for (int i = 0; i < REAL_TIME; i++)
		assert_int_equal(ready_at[i], 0);
}

static void a_ready_task_above_the_owner_is_kept_waiting(void **state)
{
	switch_to(&idle, RUNNABLE, &ordinary);
	/* wakes the task above the owner, and goes on for 30 us */
	entry(IRQ, NULL);
	rig.now_ns += 10 * US;
	woken(&busy);
	rig.now_ns += 30 * US;
	leave(IRQ, NULL, 1);
	assert_counted(INV_TOP, 1, 30 * US);
	switch_to(&ordinary, RUNNABLE, &busy);
	assert_nothing_ready();
}

static void a_preempted_task_is_ready_and_one_that_sleeps_is_not(void **state)
{
	struct task_struct urgent = { .pid = 20, .prio = FIFO(80) };

	switch_to(&idle, RUNNABLE, &busy);
	switch_to(&busy, RUNNABLE, &urgent);
	urgent.prio = FIFO(5); /* lets the interrupt's owner come before it */
	switch_to(&urgent, SLEEPS, &ordinary);
	interrupt(20 * US, NULL);
	assert_counted(INV_TOP, 1, 20 * US);
	switch_to(&ordinary, RUNNABLE, &busy);
	switch_to(&busy, SLEEPS, &ordinary);
	interrupt(20 * US, NULL);
	assert_counted(INV_TOP, 1, 20 * US);
	assert_nothing_ready();
}

/*
 * As one is that is about to wait: it is woken while it still runs, and is not switched to again.
 */
static void a_task_woken_while_it_runs_is_not_ready_when_it_sleeps(void **state)
{
	switch_to(&idle, RUNNABLE, &busy);
	waking(&busy);
	woken(&busy);
	assert_nothing_ready();
	rig.now_ns += MS;
	switch_to(&busy, SLEEPS, &ordinary);
	for (int i = 0; i < 5; i++) {
		interrupt(20 * US, NULL);
		rig.now_ns += MS;
	}
	assert_counted(INV_TOP, 0, 0);
	interrupt_with_tasklet(IRQ);
	softirq(TASKLET_IRQ);
	run_tasklet(100 * US, NULL);
	softirq_done(TASKLET_IRQ);
	assert_counted(INV_RUNS, 0, 0);
}

/* The CPU that wakes it is not the one where it runs. */
static void a_task_woken_from_another_cpu_while_it_runs_is_not_ready(void **state)
{
	switch_to(&idle, RUNNABLE, &busy);
	rig.cpu = 1;
	waking(&busy);
	woken(&busy);
	rig.cpu = 0;
	switch_to(&busy, SLEEPS, &ordinary);
	interrupt(20 * US, NULL);
	assert_counted(INV_TOP, 0, 0);
	assert_nothing_ready();
}

static void a_task_woken_twice_is_ready_once(void **state)
{
	switch_to(&idle, RUNNABLE, &ordinary);
	woken(&busy);
	busy.prio = FIFO(70);
	woken(&busy);
	busy.prio = FIFO(40);
	switch_to(&ordinary, RUNNABLE, &busy);
	assert_nothing_ready();
}

/*
 * Its thread waits from there until the switch, and not while the meter looks through its own map.
 */
static void the_meters_own_look_is_no_wait_of_the_thread(void **state)
{
	owner.prio = FIFO(60);
	switch_to(&idle, RUNNABLE, &ordinary);
	woken(&owner); /* which is ready, but not above itself */
	switch_to(&ordinary, RUNNABLE, &owner);
	switch_to(&owner, SLEEPS, &ordinary);
	entry(IRQ, NULL);
	rig.now_ns += 5 * US;
	woken(&worker);
	rig.walks = 0;
	leave(IRQ, NULL, 1);
	assert_int_equal(rig.walks, 0);
	rig.now_ns += 10 * US;
	switch_to(&ordinary, RUNNABLE, &worker);
	assert_counted(INV_WAITS, 1, 10 * US);
	assert_int_equal(counted(INV_WAITS).longest_ns, 10 * US);
}

static void a_ready_task_below_the_owner_is_not_looked_for(void **state)
{
	owner.prio = FIFO(60);
	switch_to(&idle, RUNNABLE, &owner);
	switch_to(&owner, SLEEPS, &ordinary);
	busy.prio = FIFO(59);
	woken(&busy);
	rig.walks = 0;
	interrupt(20 * US, NULL);
	assert_int_equal(rig.walks, 0);
	busy.prio = FIFO(61);
	woken(&busy);
	interrupt(20 * US, NULL);
	assert_int_equal(rig.walks, 1);
	assert_counted(INV_TOP, 1, 20 * US);
}

static void a_tasklet_on_the_back_of_a_task_above_the_owner_is_an_inversion(void **state)
{
	switch_to(&idle, RUNNABLE, &busy);
	interrupt_with_tasklet(IRQ);
	softirq(TASKLET_IRQ);
	run_tasklet(300 * US, NULL);
	softirq_done(TASKLET_IRQ);
	assert_counted(INV_TOP, 1, 2 * US);
	assert_counted(INV_RUNS, 1, 300 * US);
}

/* Its tasklet went to a thread, say. The softirq is that of the interrupt that queued one. */
static void an_interrupt_that_queues_no_tasklet_does_not_own_the_next_one(void **state)
{
	struct task_struct other = { .pid = 20, .prio = FIFO(30) };

	two_that_learn();
	switch_to(&idle, RUNNABLE, &busy);
	interrupt_with_tasklet(OTHER);
	interrupt(5 * US, NULL);
	softirq(TASKLET_IRQ);
	run_tasklet(300 * US, &other);
	softirq_done(TASKLET_IRQ);
	assert_int_equal(owner_of(OTHER), 20);
	assert_int_equal(owner_of(IRQ), 0);
}

static void tasklets_that_one_softirq_runs_are_each_their_own_interrupts(void **state)
{
	struct task_struct other = { .pid = 20, .prio = FIFO(80) };

	two_that_learn();
	switch_to(&idle, RUNNABLE, &busy);
	interrupt_with_tasklet(OTHER);
	interrupt_with_tasklet(IRQ);
	softirq(TASKLET_IRQ);
	run_tasklet(300 * US, &other);
	/* queued again meanwhile: it runs the next time */
	interrupt_with_tasklet(OTHER);
	run_tasklet(200 * US, &owner);
	softirq_done(TASKLET_IRQ);
	assert_int_equal(owner_of(OTHER), 20);
	assert_int_equal(owner_of(IRQ), 11);
	/* the owner was known when it was woken; the task above it was ready then */
	assert_counted(INV_RUNS, 1, 200 * US);
	softirq(TASKLET_IRQ);
	run_tasklet(300 * US, &other);
	softirq_done(TASKLET_IRQ);
	assert_int_equal(owner_of(OTHER), 20);
	assert_int_equal(owner_of(IRQ), 11);
	assert_counted(INV_RUNS, 1, 200 * US);
}

static void a_tasklet_of_another_interrupt_is_none_of_those_looked_at(void **state)
{
	switch_to(&idle, RUNNABLE, &busy);
	interrupt_with_tasklet(OTHER);
	interrupt(5 * US, NULL);
	softirq(TASKLET_IRQ);
	run_tasklet(300 * US, NULL);
	softirq_done(TASKLET_IRQ);
	assert_counted(INV_RUNS, 0, 0);
}

/* A timer's softirq, say, that comes when the thread lets softirqs run again. */
static void what_a_softirq_on_a_threads_back_wakes_does_not_own_the_interrupt(void **state)
{
	struct task_struct other = { .pid = 20, .prio = FIFO(30) };

	two_that_learn();
	switch_to(&idle, RUNNABLE, &worker);
	softirq(1);
	wake(&other);
	softirq_done(1);
	assert_int_equal(owner_of(IRQ), 0);
	wake(&owner);
	assert_int_equal(owner_of(IRQ), 11);
}

static void more_tasklets_than_are_kept_are_none_of_those_looked_at(void **state)
{
	switch_to(&idle, RUNNABLE, &busy);
	for (int i = 0; i < INV_RAISED + 3; i++)
		interrupt_with_tasklet(IRQ);
	softirq(TASKLET_IRQ);
	for (int i = 0; i < INV_RAISED + 3; i++)
		run_tasklet(10 * US, NULL);
	softirq_done(TASKLET_IRQ);
	/* the first three have given their places to the last */
	assert_counted(INV_RUNS, INV_RAISED, INV_RAISED * 10 * US);
}

static void a_thread_waits_only_while_something_below_its_owner_runs(void **state)
{
	/*
	 * a look at the threads that wait is made at each switch, and takes a moment of their wait
	 */
	rig.walk_ns = 0;
	owner.prio = FIFO(50);
	switch_to(&idle, RUNNABLE, &owner);
	switch_to(&owner, SLEEPS, &busy);
	woken(&worker);
	rig.now_ns += 40 * US;
	/* the thread still waits, now behind a task below its owner */
	switch_to(&busy, SLEEPS, &ordinary);
	rig.now_ns += 7 * US;
	switch_to(&ordinary, RUNNABLE, &worker);
	assert_counted(INV_WAITS, 1, 7 * US);
}

/* What is left to do for it may wait. */
static void nothing_waits_for_an_owner_that_has_ended(void **state)
{
	rig.walk_ns = 0;
	owner.prio = FIFO(50);
	switch_to(&idle, RUNNABLE, &owner);
	woken(&worker);
	switch_to(&owner, ENDS, &ordinary);
	rig.now_ns += 300 * US;
	switch_to(&ordinary, RUNNABLE, &worker);
	assert_counted(INV_WAITS, 0, 0);
}

/* More than the map holds: what did not get in is not counted as in. */
static void a_full_map_loses_tasks_and_not_its_count(void **state)
{
	static struct task_struct crowd[INV_READY + 5];

	switch_to(&idle, RUNNABLE, &ordinary);
	for (int i = 0; i < INV_READY + 5; i++) {
		crowd[i] = (struct task_struct){ .pid = 1000 + i, .prio = FIFO(30) };
		woken(&crowd[i]);
	}
	assert_int_equal(ready_at[FIFO(30)], INV_READY);
	for (int i = 0; i < INV_READY + 5; i++) {
		switch_to(&ordinary, RUNNABLE, &crowd[i]);
		switch_to(&crowd[i], SLEEPS, &ordinary);
	}
	assert_nothing_ready();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_ready_task_above_the_owner_is_kept_waiting),
		TEST(a_preempted_task_is_ready_and_one_that_sleeps_is_not),
		TEST(a_task_woken_while_it_runs_is_not_ready_when_it_sleeps),
		TEST(a_task_woken_from_another_cpu_while_it_runs_is_not_ready),
		TEST(a_task_woken_twice_is_ready_once),
		TEST(the_meters_own_look_is_no_wait_of_the_thread),
		TEST(a_ready_task_below_the_owner_is_not_looked_for),
		TEST(a_tasklet_on_the_back_of_a_task_above_the_owner_is_an_inversion),
		TEST(an_interrupt_that_queues_no_tasklet_does_not_own_the_next_one),
		TEST(tasklets_that_one_softirq_runs_are_each_their_own_interrupts),
		TEST(a_tasklet_of_another_interrupt_is_none_of_those_looked_at),
		TEST(what_a_softirq_on_a_threads_back_wakes_does_not_own_the_interrupt),
		TEST(more_tasklets_than_are_kept_are_none_of_those_looked_at),
		TEST(a_thread_waits_only_while_something_below_its_owner_runs),
		TEST(nothing_waits_for_an_owner_that_has_ended),
		TEST(a_full_map_loses_tasks_and_not_its_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
