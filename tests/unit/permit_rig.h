/* SPDX-License-Identifier: MIT */
/*
 * permit_rig.h - the permit machine between pages that a test writes and a real core; the clock,
 * the waking and the timer are the test's.
 */
#ifndef RTXG_PERMIT_RIG_H
#define RTXG_PERMIT_RIG_H

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
	uint64_t ready_until; /* what the host was last told to stand ready for */
} w;

static inline void wake(void *host, struct permit_task *task, uint32_t engine)
{
	w.wakes[task->id]++;
	if (w.attempt)
		task->page->lanes[engine].in_flight = 1;
	w.attempt = false;
}

static inline void arm(void *host, uint64_t at_ns)
{
	w.armed = at_ns;
}

static inline void pool_granted(void *host, struct permit_task *task)
{
	w.pool_grants[task->id]++;
}

static inline void moved(void *host, struct permit_task *task, struct permit_account *from)
{
	w.moves++;
	w.left = from;
}

static inline bool passed(void *host, const struct permit_task *task, uint32_t engine,
			  uint64_t value)
{
	return (int32_t)(w.word[task->id] - (uint32_t)value) >= 0;
}

static inline void stand_ready(void *host, uint32_t gpu, uint32_t engine, uint64_t until_ns)
{
	w.ready_until = until_ns;
}

static const struct permit_ops ops = { wake, arm, pool_granted, moved, passed, stand_ready };

static inline void event(struct rtxg_event event)
{
	assert_int_equal(permit_event(&w.machine, w.now, &event), 0);
}

static inline void open_task(uint32_t id, uint32_t vgpu, uint32_t priority, uint64_t runtime_ns)
{
	w.tasks[id].id = id;
	w.tasks[id].page = &w.pages[id];
	w.tasks[id].account = &w.accounts[vgpu];
	w.tasks[id].params =
		(struct rtxg_task_params){ .priority = priority, .runtime_ns = runtime_ns };
	assert_int_equal(permit_open(&w.machine, w.now, &w.tasks[id]), 0);
}

/* Two GPUs; vGPUs 0 and 1 on the first, 2 on the second; a pool of both. */
static inline int open_world(void **unused)
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

static inline int close_world(void **unused)
{
	assert_null(rtxg_core_check(w.core));
	free(w.core);
	return 0;
}

/* Time passes; the timer fires when it is due. */
static inline void pass(uint64_t ns)
{
	uint64_t end = w.now + ns;

	while (w.armed <= end) {
		if (w.armed > w.now)
			w.now = w.armed;
		w.armed = RTXG_TIME_NEVER;
		permit_timer(&w.machine, w.now);
		assert_null(rtxg_core_check(w.core));
	}
	w.now = end;
}

/* ---- a client: the other half of page.h ---- */

static inline struct rtxg_lane *page(uint32_t id)
{
	return &w.pages[id].lanes[C];
}

static inline bool has(uint32_t id)
{
	return page(id)->permit & RTXG_PERMIT_GRANTED;
}

static inline void ring(uint32_t id)
{
	permit_ring(&w.machine, w.now, &w.tasks[id]);
	assert_null(rtxg_core_check(w.core));
}

static inline void want(uint32_t id)
{
	page(id)->want++;
	ring(id);
}

static inline void launch(uint32_t id)
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

static inline void complete(uint32_t id)
{
	page(id)->busy_ns += w.now - page(id)->busy_since;
	page(id)->busy_since = 0;
	page(id)->completions++;
	page(id)->in_flight--;
	if (!has(id) || page(id)->permit & RTXG_PERMIT_REPORT)
		ring(id);
}

/* The launch is with the device, which will say by itself that it has completed. */
static inline void fence(uint32_t id, uint32_t value)
{
	page(id)->fence = value;
	page(id)->fenced++;
}

static inline void complete_fenced(uint32_t id)
{
	page(id)->fenced--;
	complete(id);
}

static inline bool interrupt(void)
{
	bool known = permit_interrupt(&w.machine, w.now, 0, C);

	assert_null(rtxg_core_check(w.core));
	return known;
}

static inline struct rtxg_stats stats_of(uint32_t id)
{
	struct rtxg_stats stats;

	permit_lane_stats(&w.machine, &w.tasks[id], C, &stats);
	return stats;
}

/* ---- */

/* A test in a world of its own. */
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

#endif
