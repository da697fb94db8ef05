// SPDX-License-Identifier: MIT
/*
 * record.c - the record of a run. The callback of an access comes before the access, and nothing
 * comes after it. So a thread holds a lock on the memory from the callback to its next one, and the
 * order of the records is the order of the accesses. A thread that has gone to sleep, or has run on
 * for long, has made its access: its lock is taken from it.
 */
#include <sched.h>
#include <unistd.h>

#include "record.h"
#include "sys.h"

/* Memory is locked by words of 8 bytes, which share 64 locks. */
#define WORD	8u
#define STRIPES 64u
/* Looks before the holder is looked at, and CPU time in which it has made its access for sure. */
#define LOOKS	2000u
#define MADE_NS (2 * NS_PER_MS)

struct stripe {
	uint32_t token; /* of who holds it; 0: nobody */
	char pad[60];
};

static struct stripe stripes[STRIPES] __attribute__((aligned(64)));

static uint64_t stripes_of(uint64_t address, size_t size)
{
	uint64_t first = address / WORD, last = (address + (size ? size : 1) - 1) / WORD;
	uint64_t mask = 0;

	if (last - first >= STRIPES - 1)
		return ~0ull;
	for (uint64_t word = first; word <= last; word++)
		mask |= 1ull << (word ^ word >> 6 ^ word >> 12) % STRIPES;
	return mask;
}

/* A token names its thread, and differs from the thread's last one. */
static uint32_t new_token(void)
{
	runtime_self.token = (runtime_self.index + 1) << 20 | ((runtime_self.token + 1) & 0xfffff);
	return runtime_self.token;
}

/* Whether the holder has made its access though it has not said so. */
static bool made(uint32_t token, uint64_t *cpu_ns)
{
	int32_t tid = load(&runtime_area->thread[(token >> 20) - 1].tid);
	uint64_t now;

	if (runtime_asleep(tid))
		return true;
	now = runtime_cpu_ns(tid);
	if (!*cpu_ns)
		*cpu_ns = now;
	return now - *cpu_ns > MADE_NS;
}

static void lock_stripe(struct stripe *stripe, uint32_t token)
{
	uint32_t holder = 0, seen = 0, looks = 0;
	uint64_t cpu_ns = 0;

	while (!__atomic_compare_exchange_n(&stripe->token, &holder, token, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST)) {
		if (holder != seen) {
			seen = holder;
			looks = 0;
			cpu_ns = 0;
		}
		/* The next round takes it from the holder, if the holder has it still. */
		if (++looks > LOOKS && made(holder, &cpu_ns))
			continue;
		if (looks > LOOKS)
			sched_yield();
		holder = 0;
	}
}

static void take(uint64_t mask)
{
	uint32_t token = new_token();

	/* In ascending order, so that no two threads wait for each other. */
	for (uint32_t i = 0; i < STRIPES; i++)
		if (mask >> i & 1)
			lock_stripe(&stripes[i], token);
	runtime_self.held = mask;
}

void record_release(void)
{
	uint64_t mask = runtime_self.held;

	runtime_self.held = 0;
	for (uint32_t i = 0; mask; i++, mask >>= 1) {
		uint32_t token = runtime_self.token;

		/* Not if it was taken away. */
		if (mask & 1)
			__atomic_compare_exchange_n(&stripes[i].token, &token, 0, false,
						    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
}

/* A thread is in the record from its first access on. */
static bool enlist(void)
{
	struct area *area = runtime_area;
	struct area_thread *thread;
	uint32_t index;

	if (runtime_self.index != RUNTIME_NO_THREAD)
		return true;
	index = __atomic_load_n(&area->threads, __ATOMIC_RELAXED);
	do {
		if (index >= RTXG_ORDER_THREADS_MAX) {
			store(&area->too_many, 1);
			return false;
		}
	} while (!__atomic_compare_exchange_n(&area->threads, &index, index + 1, false,
					      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
	thread = &area->thread[index];
	for (size_t i = 0; i < sizeof(thread->name); i++)
		thread->name[i] = runtime_self.name[i];
	store(&thread->tid, (int32_t)gettid());
	runtime_self.index = index;
	return true;
}

static void write_down(uint64_t address, size_t size, enum area_kind kind, uint64_t code)
{
	struct area *area = runtime_area;
	uint64_t at = __atomic_fetch_add(&area->events, 1, __ATOMIC_SEQ_CST);

	if (at >= area->event_room)
		return;
	((struct area_event *)((char *)area + area->event_at))[at] = (struct area_event){
		.address = address,
		.code = code,
		.thread = runtime_self.index,
		.number = runtime_self.number,
		.size = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX,
		.kind = kind,
	};
}

void record_access(uint64_t address, size_t size, enum area_kind kind, uint64_t code)
{
	if (!enlist())
		return;
	take(stripes_of(address, size));
	write_down(address, size, kind, code);
	store_relaxed(&runtime_area->thread[runtime_self.index].accesses, ++runtime_self.number);
}

void record_more(uint64_t address, enum area_kind kind, uint64_t code)
{
	if (runtime_self.index == RUNTIME_NO_THREAD || !runtime_self.number)
		return;
	runtime_self.number--;
	write_down(address, WORD, kind, code);
	runtime_self.number++;
}
