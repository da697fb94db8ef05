// SPDX-License-Identifier: MIT
/*
 * fuzz/core.c - libFuzzer target: any stream of events into the core.
 *
 * The input is a program of 16-byte records. Most become an event whose fields are folded into
 * small ranges, so that streams reach deep states; one kind of record takes the bytes of the event
 * as they come. After every event the core's own check must pass, no action may lie beyond what was
 * returned, every action must name things that exist, and under the policies that arbitrate there
 * must be one permit an engine. May not: read a clock, or depend on anything but its input.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rtxg_core.h"

#define GPUS	2u
#define VGPUS	5u
#define TASKS	8u
#define POOLS	2u
#define CAP_MAX 24u

struct record {
	uint8_t type;
	uint8_t object;
	uint8_t other;
	uint8_t small;
	uint32_t delay;
	uint64_t value;
};

struct world {
	struct rtxg_core *core;
	uint64_t now;
	bool arbitrated[GPUS]; /* never under null since it was added */
};

static void die(const char *what, const struct rtxg_event *event, uint64_t now)
{
	fprintf(stderr, "fuzz core: %s, after event %u at %llu\n", what, event->type,
		(unsigned long long)now);
	abort();
}

/* Times that matter: near 0, around the usual periods, and near the end of 64 bits. */
static uint64_t some_time(uint64_t value)
{
	switch (value & 7) {
	case 0:
		return 0;
	case 1:
		return RTXG_TIME_NEVER - (value >> 60);
	case 2:
		return value; /* anything */
	default:
		return (value >> 3) % 50000000u;
	}
}

static uint32_t some_share(uint64_t value)
{
	static const uint32_t shares[] = { 0, 1, 100000, 200000, 333333, 500000, 999999, RTXG_PPM };

	return (value >> 8 & 15) == 15 ? (uint32_t)(value >> 12) : shares[value & 7];
}

static struct rtxg_event to_event(const struct record *r)
{
	struct rtxg_event event = {
		.type = r->type % RTXG_EV_TYPES,
		.gpu = r->other % (GPUS + 1),
		.vgpu = r->other % (VGPUS + 1),
		.task = r->object % (TASKS + 1),
		.engine = r->small % 8 == 7 ? 3 : r->small % 2,
		.pool = r->other % (POOLS + 1),
		.priority = r->small,
		.used_ns = some_time(r->value),
		.gpu_mask = r->value & 7,
	};

	/* Arrivals and ends are what the core lives on: make them frequent. */
	if (r->type >= 200)
		event.type = RTXG_EV_ARRIVAL;
	else if (r->type >= 150)
		event.type = RTXG_EV_COMPLETION;
	else if (r->type >= 120)
		event.type = RTXG_EV_RELEASED;
	else if (r->type >= 110)
		event.type = RTXG_EV_TIMER;

	switch (event.type) {
	case RTXG_EV_GPU_ADD:
	case RTXG_EV_GPU_SET:
		event.gpu = r->object % (GPUS + 1);
		event.gpu_params = (struct rtxg_gpu_params){
			.policy = r->other % (RTXG_GPU_POLICIES + 1),
			.overrun = r->small % 3,
			.period_ns = r->small & 32 ? some_time(r->value) : 0,
			.window_ns = r->small & 64 ? some_time(r->value >> 4) : 0,
			.band_wait_ns = some_time(r->value >> 8),
			.think_ns = some_time(r->value >> 16),
			.revoke_timeout_ns = some_time(r->value >> 24),
			.switch_ppm = r->small & 128 ? some_share(r->value >> 32) : 0,
			.ahead_ns = (uint32_t)(r->value >> 40) % (2 * RTXG_AHEAD_MAX_NS),
			.early_ns = (uint32_t)(r->value >> 36) % (2 * RTXG_AHEAD_MAX_NS),
		};
		break;
	case RTXG_EV_VGPU_ADD:
	case RTXG_EV_VGPU_SET:
	case RTXG_EV_VGPU_REMOVE:
		event.vgpu = r->object % (VGPUS + 1);
		if (event.type == RTXG_EV_VGPU_REMOVE)
			break;
		event.vgpu_params = (struct rtxg_vgpu_params){
			.min_ppm = some_share(r->value),
			.max_ppm = r->small & 32 ? some_share(r->value >> 16) : 0,
			.weight = r->value >> 32 & 1 ? (uint32_t)(r->value >> 33 & 0x3fff) : 0,
			.priority = r->value >> 48 & 127,
			.period_ns = r->small & 64 ? some_time(r->value >> 20) : 0,
			.policy = r->small % (RTXG_TASK_POLICIES + 1),
		};
		break;
	case RTXG_EV_OPEN:
	case RTXG_EV_SET:
		event.task_params = (struct rtxg_task_params){
			.priority = r->small % 101,
			.runtime_ns = r->small & 128 ? some_time(r->value >> 12) : 0,
			.deadline_ns = some_time(r->value),
			.period_ns = some_time(r->value >> 24),
		};
		break;
	}
	return event;
}

/* One permit an engine, wherever the policy says so. */
static void check_permits(struct world *world, const struct rtxg_event *event)
{
	for (uint32_t gpu = 0; gpu < GPUS; gpu++)
		for (uint32_t engine = 0; engine < RTXG_ENGINES; engine++) {
			uint32_t idle = rtxg_core_idle_holder(world->core, gpu, engine);

			if (idle != RTXG_NONE && idle >= TASKS)
				die("idle holder does not exist", event, world->now);
		}
	for (uint32_t vgpu = 0; vgpu < VGPUS; vgpu++)
		for (uint32_t engine = 0; engine < RTXG_ENGINES; engine++) {
			struct rtxg_account_view view;

			if (rtxg_core_vgpu_view(world->core, vgpu, engine, world->now, &view) < 0)
				continue;
			if (view.holder != RTXG_NONE && view.holder >= TASKS)
				die("holder does not exist", event, world->now);
			if (view.used_ppm > RTXG_PPM)
				die("more used than there is", event, world->now);
			if (view.stats.used_ns > view.stats.busy_ns)
				die("more used than charged", event, world->now);
			if (view.waiting > view.tasks)
				die("more wait than are there", event, world->now);
		}
}

static void take(struct world *world, const struct rtxg_event *event, unsigned int cap)
{
	struct rtxg_action actions[CAP_MAX + 1];
	static const struct rtxg_event more = { .type = RTXG_EV_NONE };
	const struct rtxg_event *next = event;
	const char *wrong;
	int count, rounds = 0;

	do {
		memset(actions, 0xa5, sizeof(actions));
		count = rtxg_core_step(world->core, world->now, next, actions, cap);
		if (count < 0 && next == &more)
			die("the rest of the actions was refused", event, world->now);
		for (unsigned int i = count < 0 ? 0 : (unsigned int)count; i <= CAP_MAX; i++)
			for (size_t b = 0; b < sizeof(actions[i]); b++)
				if (((uint8_t *)&actions[i])[b] != 0xa5)
					die("wrote beyond the actions that it returned", event,
					    world->now);
		if (count < 0 && !rtxg_core_refusal(world->core).what)
			die("refused without a reason", event, world->now);
		for (int i = 0; i < count; i++) {
			const struct rtxg_action *a = &actions[i];

			if (a->type < RTXG_ACT_GRANT || a->type > RTXG_ACT_ALERT)
				die("unknown action", event, world->now);
			if (a->type <= RTXG_ACT_EXPEL &&
			    (a->task >= TASKS || a->engine >= RTXG_ENGINES || a->gpu >= GPUS))
				die("an action names what does not exist", event, world->now);
			if (a->type == RTXG_ACT_POOL_GRANT &&
			    (a->task >= TASKS || a->gpu >= GPUS || a->pool >= POOLS))
				die("a pool's action names what does not exist", event, world->now);
		}
		next = &more;
		if (++rounds > 1000)
			die("there is no end to the actions", event, world->now);
	} while (count == (int)cap);
	wrong = rtxg_core_check(world->core);
	if (wrong)
		die(wrong, event, world->now);
	check_permits(world, event);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct rtxg_limits limits = {
		.gpus = GPUS, .vgpus = VGPUS, .tasks = TASKS, .pools = POOLS
	};
	size_t bytes = rtxg_core_size(&limits);
	struct world world = { 0 };
	unsigned int cap;
	void *memory;

	if (size < 2)
		return 0;
	/* Exactly what the core asked for, so that a sanitizer sees the first byte beyond. */
	memory = aligned_alloc(16, bytes);
	if (!memory)
		abort();
	memset(memory, 0x5a, bytes);
	world.now = data[1] & 1 ? RTXG_TIME_NEVER - 4000000000000ull : data[1] & 2 ? 123456789 : 0;
	world.core = rtxg_core_init(memory, bytes, &limits, world.now);
	if (!world.core)
		abort();
	cap = RTXG_ACTIONS_MIN + data[1] / 4 % (CAP_MAX - RTXG_ACTIONS_MIN + 1);

	/* A small world to begin with; the stream may change all of it. */
	for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
		struct rtxg_event event = { .type = RTXG_EV_GPU_ADD, .gpu = gpu };

		event.gpu_params.policy = (data[0] + gpu) % RTXG_GPU_POLICIES;
		take(&world, &event, cap);
	}
	for (uint32_t vgpu = 0; vgpu < VGPUS; vgpu++) {
		struct rtxg_event event = { .type = RTXG_EV_VGPU_ADD,
					    .vgpu = vgpu,
					    .gpu = vgpu == VGPUS - 1 };

		event.vgpu_params.min_ppm = vgpu * 100000;
		event.vgpu_params.max_ppm = data[0] & 128 ? 400000 : 0;
		event.vgpu_params.policy = data[0] / 8 % RTXG_TASK_POLICIES;
		take(&world, &event, cap);
	}
	for (uint32_t task = 0; task < TASKS; task++) {
		struct rtxg_event event = { .type = RTXG_EV_OPEN,
					    .task = task,
					    .vgpu = task % VGPUS };

		take(&world, &event, cap);
	}

	data += 2;
	size -= 2;
	while (size >= sizeof(struct record)) {
		struct rtxg_event event;
		struct record record;

		memcpy(&record, data, sizeof(record));
		data += sizeof(record);
		size -= sizeof(record);
		if (record.type == 119 && size >= sizeof(event)) {
			memcpy(&event, data, sizeof(event));
			data += sizeof(event);
			size -= sizeof(event);
		} else {
			event = to_event(&record);
		}
		/*
		 * Most steps are short; some pass the end of a window, and some try to pass the end
		 * of time.
		 */
		if ((record.delay & 0xff) == 0xff)
			world.now = some_time((uint64_t)record.delay << 29) > world.now
					    ? some_time((uint64_t)record.delay << 29)
					    : world.now;
		else
			world.now +=
				(record.delay & 3) == 3 ? record.delay : record.delay % 1000000u;
		take(&world, &event, cap);
	}
	free(memory);
	return 0;
}
