// SPDX-License-Identifier: MIT
/*
 * page.c - libFuzzer target: pages that are written by adversaries, between the machine that reads
 * them and a real core. The input is a program of 8-byte records: a task comes, goes, moves, writes
 * any bytes into its page, rings; time passes. Task 0 is honest and has a reservation: whatever the
 * others do, each of its launches gets its permit within the bound that
 * docs/explanation/security.md states. May not: read a clock, or depend on anything but its input.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "permit.h"
#include "rtxg/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TASKS	  6u
#define VGPUS	  3u
#define MS	  1000000ull
#define REVOKE_NS (20 * MS)
/* a turn of another vGPU, a burst, and what is left of its own last period */
#define WAIT_MOST (REVOKE_NS + BURST_NS + 30 * MS)

struct record {
	uint8_t what, task;
	uint16_t at;
	uint32_t value;
};

static struct {
	struct permit_machine machine;
	struct rtxg_core *core;
	struct permit_task *table[TASKS], tasks[TASKS];
	struct permit_account accounts[VGPUS];
	struct rtxg_page pages[TASKS];
	bool open[TASKS];
	uint64_t now, armed;
	uint64_t asked; /* since then the honest task waits; 0: it does not */
	bool launched;
} w;

static void wake(void *host, struct permit_task *task, uint32_t engine)
{
	(void)host;
	assert(task->id < TASKS && w.open[task->id] && engine < RTXG_ENGINES);
}

static void arm(void *host, uint64_t at_ns)
{
	(void)host;
	w.armed = at_ns;
}

static void pool_granted(void *host, struct permit_task *task)
{
	(void)host;
	(void)task;
}

static void moved(void *host, struct permit_task *task, struct permit_account *from)
{
	(void)host;
	(void)from; /* perhaps the same one: a move can be taken back */
	assert(w.open[task->id]);
}

static const struct permit_ops ops = {
	.wake = wake, .arm = arm, .pool_granted = pool_granted, .moved = moved
};

static void event(struct rtxg_event event)
{
	assert(!permit_event(&w.machine, w.now, &event));
}

static void open_task(uint32_t id, uint32_t vgpu)
{
	memset(&w.tasks[id], 0, sizeof(w.tasks[id]));
	w.tasks[id].id = id;
	w.tasks[id].page = &w.pages[id];
	w.tasks[id].account = &w.accounts[vgpu];
	w.tasks[id].params = (struct rtxg_task_params){ .priority = 1 };
	w.open[id] = true;
	assert(!permit_open(&w.machine, w.now, &w.tasks[id]));
}

static void start(void)
{
	static const struct rtxg_limits limits = { .gpus = 1, .vgpus = VGPUS, .tasks = TASKS };
	struct rtxg_gpu_params gpu = rtxg_core_gpu_defaults();
	size_t size = rtxg_core_size(&limits);
	void *memory = w.core;

	if (!memory)
		memory = aligned_alloc(16, (size + 15) & ~(size_t)15);
	memset(&w, 0, sizeof(w));
	w.armed = RTXG_TIME_NEVER;
	w.now = 1000 * MS;
	w.core = rtxg_core_init(memory, size, &limits, w.now);
	assert(w.core);
	permit_init(&w.machine, w.core, &limits, w.table, &ops, NULL);
	gpu.revoke_timeout_ns = REVOKE_NS;
	event((struct rtxg_event){ .type = RTXG_EV_GPU_ADD, .gpu_params = gpu });
	for (uint32_t vgpu = 0; vgpu < VGPUS; vgpu++)
		event((struct rtxg_event){ .type = RTXG_EV_VGPU_ADD,
					   .vgpu = vgpu,
					   .vgpu_params = { .min_ppm = vgpu ? 0 : 500000 } });
	for (uint32_t vgpu = 0; vgpu < VGPUS; vgpu++)
		w.accounts[vgpu].vgpu = vgpu;
	open_task(0, 0);
}

/* The honest task: it launches 100 us of work, waits for it, and pauses for 2 ms. */
static void honest(void)
{
	struct rtxg_lane *p = &w.pages[0].lanes[0];

	if (w.launched && w.now - p->busy_since >= MS / 10) {
		p->busy_ns += w.now - p->busy_since;
		p->busy_since = 0;
		p->completions++;
		p->in_flight = 0;
		w.launched = false;
		w.asked = 0;
		permit_ring(&w.machine, w.now, &w.tasks[0]);
	} else if (!w.launched && !w.asked) {
		w.asked = w.now;
		p->want = 1;
		permit_ring(&w.machine, w.now, &w.tasks[0]);
	}
	if (!w.launched && w.asked && p->permit & RTXG_PERMIT_GRANTED) {
		p->in_flight = 1;
		p->busy_since = w.now;
		if (p->permit & RTXG_PERMIT_ONESHOT)
			p->permit &= ~RTXG_PERMIT_GRANTED;
		p->want = 0;
		p->launches++;
		w.launched = true;
	}
	assert(!w.asked || w.launched || w.now - w.asked <= WAIT_MOST);
}

static void pass(uint64_t ns)
{
	uint64_t end = w.now + ns;

	while (w.now < end) {
		uint64_t next = w.now + MS / 10 < end ? w.now + MS / 10 : end;

		while (w.armed <= next) {
			if (w.armed > w.now)
				w.now = w.armed;
			w.armed = RTXG_TIME_NEVER;
			permit_timer(&w.machine, w.now);
		}
		w.now = next;
		honest();
	}
}

/* At most one vGPU has the engine, and every burst is of a lane that holds a permit. */
static void check(void)
{
	uint32_t holders = 0;

	assert(!rtxg_core_check(w.core));
	for (uint32_t i = 0; i < TASKS; i++) {
		uint8_t state = w.open[i] ? w.tasks[i].lanes[0].state : PERMIT_FREE;

		holders += state == PERMIT_HELD || state == PERMIT_REVOKED;
	}
	assert(holders <= 1);
	for (struct permit_lane *lane = w.machine.bursts; lane; lane = lane->burst_next)
		assert(lane->burst.on && lane->state == PERMIT_HELD && w.open[lane->task->id]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record r;

	start();
	for (size_t at = 0; at + sizeof(r) <= size && at < 4000; at += sizeof(r)) {
		uint32_t id;

		memcpy(&r, data + at, sizeof(r));
		id = 1 + r.task % (TASKS - 1);
		switch (w.open[id] ? r.what % 8 : 7) {
		case 0:
		case 1: { /* bytes of the client's half of a lane, or of the whole page */
			size_t where = r.what & 16
					       ? r.at % (sizeof(struct rtxg_page) - 4)
					       : offsetof(struct rtxg_page, lanes) + 64 + r.at % 60;

			memcpy((char *)&w.pages[id] + where, &r.value, 4);
			break;
		}
		case 2:
			permit_ring(&w.machine, w.now, &w.tasks[id]);
			break;
		case 3: { /* as a client that means well, for a moment */
			struct rtxg_lane *p = &w.pages[id].lanes[0];

			p->launches++;
			p->in_flight = r.value & 1;
			p->completions += !p->in_flight;
			permit_ring(&w.machine, w.now, &w.tasks[id]);
			break;
		}
		case 4:
			pass(r.value % (5 * MS));
			break;
		case 5:
			permit_move(&w.machine, w.now, &w.tasks[id],
				    &w.accounts[1 + r.value % (VGPUS - 1)]);
			break;
		case 6:
			if (r.at & 1) {
				permit_close(&w.machine, w.now, &w.tasks[id]);
				w.open[id] = false;
			} else {
				permit_count(&w.machine, w.now, &w.tasks[id]);
			}
			break;
		default:
			if (!w.open[id])
				open_task(id, 1 + r.value % (VGPUS - 1));
			break;
		}
		pass(r.what & 32 ? 10000 : 0);
		check();
	}
	pass(200 * MS);
	check();
	return 0;
}
