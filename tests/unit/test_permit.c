// SPDX-License-Identifier: MIT
/*
 * test_permit.c - the host's half of the shared page, with pages that behave, that stop, and that
 * lie. The machine stands between them and a real core; the clock, the waking and the timer are
 * this program's.
 */
#include "check.h"
#include "permit.h"
#include "rtxg/page.h"

#define TASKS 6
#define C     RTXG_ENGINE_COMPUTE

static struct {
	struct permit_machine machine;
	struct rtxg_core *core;
	struct permit_task *table[TASKS], tasks[TASKS];
	struct permit_account accounts[3];
	struct rtxg_page pages[TASKS];
	uint64_t now, armed;
	unsigned int wakes[TASKS], pool_grants[TASKS], moves;
	struct permit_account *left;
	bool attempt;	      /* the client tries to launch while its permit is being taken */
	uint32_t word[TASKS]; /* what the device has written for the task */
} w;

static uint64_t clock_of(void *host)
{
	return w.now;
}

static void wake(void *host, struct permit_task *task, uint32_t engine)
{
	w.wakes[task->id]++;
	if (w.attempt)
		task->page->lanes[engine].in_flight = 1;
	w.attempt = false;
}

static void arm(void *host, uint64_t at_ns)
{
	w.armed = at_ns;
}

static void pool_granted(void *host, struct permit_task *task)
{
	w.pool_grants[task->id]++;
}

static void moved(void *host, struct permit_task *task, struct permit_account *from)
{
	w.moves++;
	w.left = from;
}

static bool passed(void *host, const struct permit_task *task, uint32_t engine, uint64_t value)
{
	return (int32_t)(w.word[task->id] - (uint32_t)value) >= 0;
}

static const struct permit_ops ops = { clock_of, wake, arm, pool_granted, moved, passed };

static void event(struct rtxg_event event)
{
	assert_int_equal(permit_event(&w.machine, &event), 0);
}

static void open_task(uint32_t id, uint32_t vgpu, uint32_t priority, uint64_t runtime_ns)
{
	w.tasks[id].id = id;
	w.tasks[id].page = &w.pages[id];
	w.tasks[id].account = &w.accounts[vgpu];
	w.tasks[id].params =
		(struct rtxg_task_params){ .priority = priority, .runtime_ns = runtime_ns };
	assert_int_equal(permit_open(&w.machine, &w.tasks[id]), 0);
}

/* Two GPUs; vGPUs 0 and 1 on the first, 2 on the second; a pool of both. */
static int open_world(void **unused)
{
	const struct rtxg_limits limits = { .gpus = 2, .vgpus = 3, .tasks = TASKS, .pools = 1 };
	size_t size = rtxg_core_size(&limits);

	memset(&w, 0, sizeof(w));
	w.armed = RTXG_TIME_NEVER;
	w.now = SEC;
	w.core = rtxg_core_init(aligned_alloc(16, size), size, &limits, w.now);
	assert_non_null(w.core);
	permit_init(&w.machine, w.core, &limits, w.table, &ops, NULL);
	for (uint32_t gpu = 0; gpu < 2; gpu++)
		event((struct rtxg_event){ .type = RTXG_EV_GPU_ADD,
					   .gpu = gpu,
					   .gpu_params = rtxg_core_gpu_defaults() });
	for (uint32_t vgpu = 0; vgpu < 3; vgpu++) {
		w.accounts[vgpu].vgpu = vgpu;
		event((struct rtxg_event){
			.type = RTXG_EV_VGPU_ADD, .vgpu = vgpu, .gpu = vgpu / 2 });
	}
	event((struct rtxg_event){ .type = RTXG_EV_POOL_ADD, .gpu_mask = 3 });
	return 0;
}

static int close_world(void **unused)
{
	assert_null(rtxg_core_check(w.core));
	free(w.core);
	return 0;
}

/* Time passes; the timer fires when it is due. */
static void pass(uint64_t ns)
{
	uint64_t end = w.now + ns;

	while (w.armed <= end) {
		if (w.armed > w.now)
			w.now = w.armed;
		w.armed = RTXG_TIME_NEVER;
		permit_timer(&w.machine);
		assert_null(rtxg_core_check(w.core));
	}
	w.now = end;
}

/* ---- a client: the other half of page.h ---- */

static struct rtxg_lane *page(uint32_t id)
{
	return &w.pages[id].lanes[C];
}

static bool has(uint32_t id)
{
	return page(id)->permit & RTXG_PERMIT_GRANTED;
}

static void ring(uint32_t id)
{
	permit_ring(&w.machine, &w.tasks[id]);
	assert_null(rtxg_core_check(w.core));
}

static void want(uint32_t id)
{
	page(id)->want++;
	ring(id);
}

static void launch(uint32_t id)
{
	assert_true(has(id));
	page(id)->in_flight++;
	page(id)->busy_since = w.now;
	if (page(id)->permit & RTXG_PERMIT_ONESHOT)
		page(id)->permit &= ~RTXG_PERMIT_GRANTED;
	if (page(id)->want)
		page(id)->want--;
	page(id)->launches++;
}

static void complete(uint32_t id)
{
	page(id)->busy_ns += w.now - page(id)->busy_since;
	page(id)->busy_since = 0;
	page(id)->completions++;
	page(id)->in_flight--;
	if (!has(id) || page(id)->permit & RTXG_PERMIT_REPORT)
		ring(id);
}

/* The launch is with the device, which will say by itself that it has completed. */
static void fence(uint32_t id, uint32_t value)
{
	page(id)->fence = value;
	page(id)->fenced++;
}

static void complete_fenced(uint32_t id)
{
	page(id)->fenced--;
	complete(id);
}

static bool interrupt(void)
{
	bool known = permit_interrupt(&w.machine, 0, C);

	assert_null(rtxg_core_check(w.core));
	return known;
}

static struct rtxg_stats stats_of(uint32_t id)
{
	struct rtxg_stats stats;

	permit_lane_stats(&w.machine, &w.tasks[id], C, &stats);
	return stats;
}

/* ---- */

static void test_a_waiter_gets_a_permit_and_is_woken(void **unused)
{
	uint32_t before;

	open_task(0, 0, 1, 0);
	before = page(0)->permit;
	assert_false(has(0));
	want(0);
	assert_true(has(0));
	assert_int_not_equal(page(0)->permit >> RTXG_PERMIT_SEQ_SHIFT,
			     before >> RTXG_PERMIT_SEQ_SHIFT);
	assert_int_equal(w.wakes[0], 1);
}

static void test_a_permit_is_called_back_for_another_and_handed_over_when_drained(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	want(1);
	assert_false(has(0));
	assert_false(has(1));
	pass(5 * MS);
	complete(0);
	assert_true(has(1));
	assert_int_equal(stats_of(0).busy_ns, 5 * MS);
	assert_int_equal(stats_of(1).busy_ns, 0);
}

static void test_a_permit_called_back_before_its_first_use_is_good_for_that_launch(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	want(1);
	assert_true(has(0));
	assert_true(page(0)->permit & RTXG_PERMIT_ONESHOT);
	assert_true(page(0)->permit & RTXG_PERMIT_REPORT);
	launch(0);
	assert_false(has(0));
	pass(MS);
	complete(0);
	assert_true(has(1));
}

static void test_a_permit_that_came_too_late_for_its_waiter_goes_on_at_once(void **unused)
{
	for (uint32_t id = 0; id < 3; id++)
		open_task(id, id % 2, 1, 0);
	want(0);
	launch(0);
	want(1);
	want(2);
	/* It gives up, and its ring is still on the way when the permit comes. */
	page(1)->want = 0;
	pass(MS);
	complete(0);
	pass(20 * MS);
	assert_true(has(2));
	assert_int_equal(stats_of(1).grants, 1);
	assert_int_equal(w.tasks[1].lanes[C].state, PERMIT_FREE);
}

static void test_an_attempt_that_meets_a_permit_being_taken_back_is_served_later(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	open_task(2, 1, 1, 0); /* a sibling: permits of the two are good for one launch */
	want(0);
	launch(0);
	want(1);
	want(2);
	complete(0);
	assert_true(has(1));
	/* It gives up. While the permit is taken back, it tries once more, and meets no permit. */
	page(1)->want = 0;
	page(1)->watch = 1;
	w.attempt = true;
	ring(1);
	assert_false(has(1));
	assert_int_equal(page(1)->in_flight, 1);
	page(1)->in_flight = 0;
	page(1)->watch = 0;
	want(1);
	for (int i = 0; i < 20 && !has(1); i++) {
		if (has(2)) {
			launch(2);
			complete(2);
		}
		pass(MS);
	}
	assert_true(has(1));
	assert_int_equal(stats_of(1).expelled, 0);
	launch(1);
	complete(1);
}

static void test_a_stopped_launch_delays_the_others_once(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	page(0)->want = 1; /* its next thread waits already; then the program is stopped */
	want(1);
	pass(3 * SEC);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 1);
	for (int i = 0; i < 100; i++) {
		if (!has(1))
			want(1);
		launch(1);
		pass(5 * MS);
		complete(1);
		assert_false(has(0));
		/* A look of the host, or a ring of another thread, is no progress of the launch. */
		permit_look(&w.machine, &w.tasks[0]);
		ring(0);
		assert_false(has(0));
	}
	assert_int_equal(stats_of(0).expelled, 1);
	/* It goes on: what it launched has ended, and it is served as before. */
	complete(0);
	if (page(1)->in_flight)
		complete(1);
	pass(10 * MS);
	assert_true(has(0));
	launch(0);
	complete(0);
}

static void test_a_stopped_waiter_delays_the_others_once(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0); /* has its permit, and is stopped before it launches */
	want(1);
	pass(3 * SEC);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 1);
	for (int i = 0; i < 100; i++) {
		if (!has(1))
			want(1);
		launch(1);
		pass(5 * MS);
		complete(1);
		permit_look(&w.machine, &w.tasks[0]);
		assert_false(has(0));
	}
	assert_int_equal(stats_of(0).expelled, 1);
	/* It wakes, finds no permit, and says that it still waits. */
	ring(0);
	pass(10 * MS);
	assert_true(has(0));
	launch(0);
	complete(0);
}

static uint64_t active(uint32_t account)
{
	return permit_active_ns(&w.accounts[account].engines[C], w.now);
}

static void
test_an_engine_is_wanted_while_a_lane_waits_or_has_launched_and_not_in_pauses(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 0, 1, 0);
	open_task(2, 1, 1, 0);
	want(0);
	assert_int_equal(active(0), 0);
	launch(0);
	pass(3 * MS);
	complete(0);
	pass(50 * MS); /* it keeps its permit, and does nothing */
	permit_count(&w.machine, &w.tasks[0]);
	assert_int_equal(active(0), 3 * MS);
	launch(0);
	pass(2 * MS);
	want(2); /* of another vGPU: it is owed the time from now on */
	pass(1 * MS);
	assert_int_equal(active(1), 1 * MS);
	want(1); /* of the same one: its waiting and the other's launch are one time, not two */
	pass(4 * MS);
	assert_int_equal(active(1), 5 * MS);
	complete(0);
	assert_int_equal(active(0), 3 * MS + 7 * MS);
}

static void test_a_claim_of_use_counts_no_time_twice(void **unused)
{
	open_task(0, 0, 1, 0);
	want(0);
	launch(0);
	pass(1 * MS);
	page(0)->busy_ns += 500 * SEC;
	permit_count(&w.machine, &w.tasks[0]);
	assert_int_equal(active(0), 1 * MS);
	permit_count(&w.machine, &w.tasks[0]);
	assert_int_equal(active(0), 1 * MS);
}

static void test_a_move_takes_nothing_of_the_old_permit_along(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	want(1); /* 0 may launch once more */
	assert_true(w.tasks[0].lanes[C].last);
	permit_move(&w.machine, &w.tasks[0], &w.accounts[1]);
	assert_int_equal(w.moves, 1);
	assert_ptr_equal(w.left, &w.accounts[0]);
	assert_ptr_equal(w.tasks[0].account, &w.accounts[1]);
	assert_false(w.tasks[0].lanes[C].last);
	assert_true(has(1));
	launch(1);
	complete(1);
	assert_true(has(0));
	launch(0);
	complete(0);
	assert_int_equal(w.accounts[0].engines[C].waiting, 0);
}

static void test_a_move_waits_for_what_is_in_flight_and_keeps_the_counts(void **unused)
{
	open_task(0, 0, 1, 0);
	want(0);
	launch(0);
	permit_move(&w.machine, &w.tasks[0], &w.accounts[1]);
	assert_false(has(0));
	assert_int_equal(w.moves, 0);
	assert_int_equal(permit_pool_acquire(&w.machine, &w.tasks[0], 0), -EBUSY);
	assert_non_null(w.machine.refusal.what);
	pass(MS);
	complete(0);
	assert_int_equal(w.moves, 1);
	assert_int_equal(stats_of(0).grants, 1);
	assert_int_equal(stats_of(0).used_ns, MS);
	assert_int_equal(w.accounts[0].engines[C].launches, 1);
	assert_int_equal(permit_pool_acquire(&w.machine, &w.tasks[0], 0), 0);
}

static void test_claims_are_bounded_by_what_is_possible(void **unused)
{
	open_task(0, 0, 1, 0);
	page(0)->launches = UINT64_MAX;
	page(0)->device_ns = UINT64_MAX;
	pass(SEC);
	permit_count(&w.machine, &w.tasks[0]);
	assert_int_equal(w.accounts[0].engines[C].device_ns, SEC);
	assert_int_equal(w.accounts[0].engines[C].launches, SEC / 10);
	page(0)->launches = page(0)->device_ns = 0;
	permit_count(&w.machine, &w.tasks[0]);
	assert_int_equal(w.accounts[0].engines[C].launches, SEC / 10);
}

static void test_a_page_of_another_host_brings_no_permit_and_no_charge(void **unused)
{
	w.pages[0].lanes[C].permit = 7u << RTXG_PERMIT_SEQ_SHIFT | RTXG_PERMIT_GRANTED;
	w.pages[0].lanes[C].busy_ns = SEC;
	w.pages[0].lanes[C].want = 1;
	open_task(0, 0, 1, 0);
	assert_int_equal(page(0)->permit, 8u << RTXG_PERMIT_SEQ_SHIFT);
	permit_look(&w.machine, &w.tasks[0]);
	assert_true(has(0));
	launch(0);
	pass(MS);
	complete(0);
	permit_count(&w.machine, &w.tasks[0]);
	assert_int_equal(stats_of(0).used_ns, MS);
}

static void test_a_pool_takes_priority_and_length_of_the_task(void **unused)
{
	open_task(0, 0, 10, 10 * MS);
	open_task(1, 0, 10, 3 * MS);
	open_task(2, 0, 70, 1 * MS);
	open_task(3, 0, 50, 1 * MS);
	assert_int_equal(permit_pool_acquire(&w.machine, &w.tasks[0], 0), 0);
	assert_int_equal(permit_pool_acquire(&w.machine, &w.tasks[1], 0), 0);
	assert_int_equal(w.pool_grants[0] + w.pool_grants[1], 2);
	/* Both queues have one: the shorter use is the shorter wait. */
	assert_int_equal(permit_pool_acquire(&w.machine, &w.tasks[2], 0), 0);
	assert_int_equal(rtxg_core_pool_holder(w.core, 2), 1);
	assert_int_equal(rtxg_core_pool_holder(w.core, 1), RTXG_NONE);
	assert_int_equal(permit_pool_release(&w.machine, &w.tasks[1]), 0);
	assert_int_equal(rtxg_core_pool_holder(w.core, 2), RTXG_NONE);
	assert_true(w.tasks[2].pool_held);
	assert_int_equal(w.tasks[2].pool_gpu, 1);
	/* A holder that ends keeps no task waiting either. */
	assert_int_equal(permit_pool_acquire(&w.machine, &w.tasks[3], 0), 0);
	assert_int_equal(permit_pool_release(&w.machine, &w.tasks[3]), 0);
	assert_int_equal(permit_pool_release(&w.machine, &w.tasks[3]), -EPERM);
	assert_int_equal(permit_pool_acquire(&w.machine, &w.tasks[1], 0), 0);
	permit_close(&w.machine, &w.tasks[2]);
	assert_true(w.tasks[1].pool_held);
}

static void test_a_task_that_ends_keeps_no_task_waiting(void **unused)
{
	open_task(0, 0, 10, 10 * MS);
	open_task(1, 0, 10, 20 * MS);
	open_task(2, 0, 70, 1 * MS);
	for (uint32_t id = 0; id < 3; id++)
		assert_int_equal(permit_pool_acquire(&w.machine, &w.tasks[id], 0), 0);
	assert_int_equal(rtxg_core_pool_holder(w.core, 2), 0);
	permit_close(&w.machine, &w.tasks[0]);
	assert_int_equal(rtxg_core_pool_holder(w.core, 2), RTXG_NONE);
	assert_true(w.tasks[2].pool_held);
}

static void test_a_task_that_ends_lets_go_of_all(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	want(1);
	permit_close(&w.machine, &w.tasks[0]);
	assert_true(has(1));
	assert_null(w.table[0]);
	assert_int_equal(w.accounts[0].engines[C].waiting, 0);
}

static void test_advice_without_a_pool_is_the_gpu_with_the_fewest_tasks(void **unused)
{
	assert_int_equal(rtxg_core_device_advice(w.core, RTXG_NONE), 0);
	open_task(0, 0, 1, 0);
	assert_int_equal(rtxg_core_device_advice(w.core, RTXG_NONE), 1);
	open_task(1, 2, 1, 0);
	assert_int_equal(rtxg_core_device_advice(w.core, RTXG_NONE), 0);
}

/* ---- completions that the device tells ---- */

static void test_an_interrupt_hands_over_while_the_holder_does_not_run(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	fence(0, 7);
	want(1);
	pass(5 * MS);
	assert_false(interrupt());
	assert_false(has(1));
	w.word[0] = 7;
	assert_true(interrupt());
	assert_true(has(1));
	assert_int_equal(w.wakes[1], 1);
	assert_int_equal(stats_of(0).busy_ns, 5 * MS);
	/* The holder runs at last: that ends nothing, and costs it nothing. */
	launch(1);
	pass(20 * MS);
	complete_fenced(0);
	assert_false(has(0));
	assert_int_equal(stats_of(0).busy_ns, 5 * MS);
	complete(1);
	assert_int_equal(stats_of(1).busy_ns, 20 * MS);
}

static void test_a_launch_that_no_fence_covers_keeps_the_engine(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	fence(0, 7);
	launch(0); /* not with the device yet */
	want(1);
	w.word[0] = 7;
	assert_false(interrupt());
	assert_false(has(1));
	fence(0, 8);
	assert_false(interrupt());
	w.word[0] = 8;
	assert_true(interrupt());
	assert_true(has(1));
}

static void test_a_fence_counts_in_thirty_two_bits(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	w.word[0] = UINT32_MAX - 1;
	want(0);
	launch(0);
	fence(0, 1);
	want(1);
	assert_false(interrupt());
	w.word[0] = 1;
	assert_true(interrupt());
	assert_true(has(1));
}

static void test_an_idle_lease_is_not_busy_because_its_holder_has_not_run(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 0, 1, 0);
	want(0);
	launch(0);
	fence(0, 1);
	w.word[0] = 1;
	/* No other wants it: the lease stays, and whatever is asked finds the engine idle. */
	interrupt();
	pass(100 * MS);
	permit_count(&w.machine, &w.tasks[0]);
	want(1);
	pass(100 * MS);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 0);
}

static void test_an_expelled_task_is_served_when_the_device_has_finished(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	launch(0);
	fence(0, 1);
	page(0)->want = 1; /* another thread of it waits */
	want(1);
	pass(3 * SEC);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 1);
	launch(1);
	w.word[0] = 1;
	ring(0);
	pass(5 * MS);
	complete(1);
	/* what it held the engine for is paid back first */
	for (int i = 0; i < 1000 && !has(0); i++)
		pass(10 * MS);
	assert_true(has(0));
}

static void test_a_fence_that_lies_harms_no_other(void **unused)
{
	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	for (int i = 0; i < 1000; i++) {
		struct rtxg_lane *p = page(i % 2);

		p->fenced = (uint32_t)(i * 2654435761u);
		p->fence = (uint64_t)i << (i % 40);
		p->in_flight = i % 3 ? p->fenced : (uint32_t)i;
		p->want = i % 5;
		p->launches += i % 2;
		w.word[i % 2] = (uint32_t)(i * 40503u);
		if (i % 7)
			interrupt();
		else
			ring(i % 2);
		pass(MS);
	}
	permit_close(&w.machine, &w.tasks[1]);
	memset(&page(0)->in_flight, 0, sizeof(*page(0)) - offsetof(struct rtxg_lane, in_flight));
	page(0)->launches++;
	ring(0);
	want(0);
	for (int i = 0; i < 10000 && !has(0); i++)
		pass(10 * MS);
	assert_true(has(0));
}

/* Tiny work: launched, waited for, launched again. Counts the rings. */
static unsigned int tiny(uint32_t id, unsigned int times)
{
	unsigned int rings = 0;

	for (unsigned int i = 0; i < times; i++) {
		if (!has(id)) {
			want(id);
			rings++;
		}
		if (!has(id))
			break;
		launch(id);
		pass(5000);
		rings += !has(id) || page(id)->permit & RTXG_PERMIT_REPORT;
		complete(id);
		pass(5000);
	}
	return rings;
}

/* As tiny(), of two tasks: each works while it has the engine, and waits otherwise. */
static unsigned int tiny_both(uint64_t ns, unsigned int *launches)
{
	uint64_t end = w.now + ns;
	unsigned int rings = 0;

	while (w.now < end) {
		uint32_t id = has(1);

		if (!page(1 - id)->want && !has(1 - id)) {
			want(1 - id);
			rings++;
		}
		if (has(id)) {
			rings += tiny(id, 1);
			(*launches)++;
		} else
			pass(5000);
	}
	return rings;
}

static void test_tiny_launches_in_succession_are_decided_about_together(void **unused)
{
	for (uint32_t vgpu = 0; vgpu < 2; vgpu++) { /* of two vGPUs, then of one */
		unsigned int launches = 0, rings;

		open_task(0, 0, 1, 0);
		open_task(1, 1 - vgpu, 1, 0);
		want(0);
		rings = tiny_both(SEC / 10, &launches);
		assert_in_range(launches, 8000, 10000);
		assert_in_range(rings, 10, launches / 10);
		/* They share, and no turn is long. */
		assert_in_range(page(0)->launches, launches * 4 / 10, launches * 6 / 10);
		assert_in_range(stats_of(0).grants, 50, 400);
		permit_close(&w.machine, &w.tasks[0]);
		permit_close(&w.machine, &w.tasks[1]);
		memset(w.pages, 0, sizeof(w.pages));
		pass(SEC);
		assert_int_equal(w.armed, RTXG_TIME_NEVER);
	}
}

/* A task of vGPU 0 that is in a burst, while another waits. */
static void begin_burst(void)
{
	unsigned int launches = 0;

	open_task(0, 0, 1, 0);
	open_task(1, 1, 1, 0);
	want(0);
	tiny_both(20 * MS, &launches);
	while (!w.tasks[0].lanes[C].burst.on)
		tiny_both(10000, &launches);
	assert_true(page(1)->want);
	assert_true(has(0));
	assert_false(page(0)->permit & (RTXG_PERMIT_ONESHOT | RTXG_PERMIT_REPORT));
}

static void test_a_burst_ends_when_its_program_pauses(void **unused)
{
	begin_burst();
	/* It says nothing, and is found idle. */
	pass(5 * MS);
	assert_false(w.tasks[0].lanes[C].burst.on);
	assert_true(has(1));
}

static void test_a_burst_ends_with_a_launch_that_is_not_short(void **unused)
{
	begin_burst();
	launch(0);
	pass(BURST_NS + BURST_LOOK_NS);
	assert_false(w.tasks[0].lanes[C].burst.on);
	assert_true(!has(0) || page(0)->permit & RTXG_PERMIT_REPORT);
	pass(20 * MS);
	complete(0);
	pass(20 * MS);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 0);
	/* No burst begins before launches are short again. */
	launch(1);
	want(0);
	pass(MS);
	complete(1);
	pass(20 * MS);
	assert_true(has(0));
	assert_false(w.tasks[0].lanes[C].burst.on);
}

static void test_a_program_that_stops_in_a_burst_delays_the_others_once(void **unused)
{
	begin_burst();
	launch(0);
	pass(3 * SEC);
	assert_true(has(1));
	assert_int_equal(stats_of(0).expelled, 1);
}

static void test_a_task_leaves_its_burst_when_it_is_moved_or_ends(void **unused)
{
	begin_burst();
	permit_move(&w.machine, &w.tasks[0], &w.accounts[1]);
	pass(20 * MS);
	assert_false(has(0));
	assert_int_equal(w.moves, 1);
	assert_null(w.machine.bursts);
	permit_close(&w.machine, &w.tasks[1]);
	permit_close(&w.machine, &w.tasks[0]);
	memset(w.pages, 0, sizeof(w.pages));
	begin_burst();
	permit_close(&w.machine, &w.tasks[0]);
	memset(page(0), 0xff, sizeof(*page(0))); /* another's memory by now */
	pass(20 * MS);
	assert_true(has(1));
	assert_int_equal(page(0)->permit, UINT32_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_waiter_gets_a_permit_and_is_woken),
		TEST(test_a_permit_is_called_back_for_another_and_handed_over_when_drained),
		TEST(test_a_permit_called_back_before_its_first_use_is_good_for_that_launch),
		TEST(test_a_permit_that_came_too_late_for_its_waiter_goes_on_at_once),
		TEST(test_an_attempt_that_meets_a_permit_being_taken_back_is_served_later),
		TEST(test_a_stopped_launch_delays_the_others_once),
		TEST(test_a_stopped_waiter_delays_the_others_once),
		TEST(test_an_engine_is_wanted_while_a_lane_waits_or_has_launched_and_not_in_pauses),
		TEST(test_a_claim_of_use_counts_no_time_twice),
		TEST(test_a_move_takes_nothing_of_the_old_permit_along),
		TEST(test_a_move_waits_for_what_is_in_flight_and_keeps_the_counts),
		TEST(test_claims_are_bounded_by_what_is_possible),
		TEST(test_a_page_of_another_host_brings_no_permit_and_no_charge),
		TEST(test_a_pool_takes_priority_and_length_of_the_task),
		TEST(test_a_task_that_ends_keeps_no_task_waiting),
		TEST(test_a_task_that_ends_lets_go_of_all),
		TEST(test_advice_without_a_pool_is_the_gpu_with_the_fewest_tasks),
		TEST(test_an_interrupt_hands_over_while_the_holder_does_not_run),
		TEST(test_a_launch_that_no_fence_covers_keeps_the_engine),
		TEST(test_a_fence_counts_in_thirty_two_bits),
		TEST(test_an_idle_lease_is_not_busy_because_its_holder_has_not_run),
		TEST(test_an_expelled_task_is_served_when_the_device_has_finished),
		TEST(test_a_fence_that_lies_harms_no_other),
		TEST(test_tiny_launches_in_succession_are_decided_about_together),
		TEST(test_a_burst_ends_when_its_program_pauses),
		TEST(test_a_burst_ends_with_a_launch_that_is_not_short),
		TEST(test_a_program_that_stops_in_a_burst_delays_the_others_once),
		TEST(test_a_task_leaves_its_burst_when_it_is_moved_or_ends),
	};

	return cmocka_run_group_tests_name("permit", tests, NULL, NULL);
}
