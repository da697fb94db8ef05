// SPDX-License-Identifier: MIT
/*
 * order_futex.c - threads follow an order without a lock, a scheduler or a system call where nobody
 * waits: the seventh host, beside the paper's eight.
 *
 * Each thread has a line of the cache for its clock, which it alone writes. An access without an
 * entry costs a comparison before it and a store after it. The order says beforehand at which of
 * its clocks a thread meets somebody's need (its signals); at all others it looks at nobody. A
 * thread that must wait looks a few times, as often as has paid off before and never on the last
 * CPU, and sleeps on a word of its own. Who meets its last need wakes it, and no other.
 *
 * No wake-up is lost: a sleeper says that it sleeps before it looks at the clocks once more; who
 * moves a clock does so before it looks for sleepers. The timeout of a sleep is for a thread that
 * stands still, see tick(); a sleep that ended by it though its needs were met is counted
 * (rescues), and tests want none.
 */
#include <errno.h>
#include <string.h>

#include "order.h"
#include "sys.h"

/* Looks before a sleep: at most about as long as a sleep and its end take. */
#define SPIN_MAX   2000u
#define SPIN_START 1500u
/* A sleep that nobody ends is looked at after 1 ms, then after twice as long, up to 100 ms. */
#define TICK_FIRST NS_PER_MS
#define TICK_LAST  (100 * NS_PER_MS)

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#else
	__asm__ __volatile__("" ::: "memory");
#endif
}

static int futex_open(struct rtx_order *order)
{
	for (uint32_t t = 0; t < order->core.shape.threads; t++)
		order->thread[t].spin = SPIN_START;
	return 0;
}

static void futex_close(struct rtx_order *order)
{
}

/*
 * The entry that another thread stands at, as it says. It may go on at any time: what is found out
 * about the entry is good for waking it, for a thread that is woken looks again. NULL: it has none.
 */
static const struct rtxg_order_entry *entry_of(const struct rtx_order *order,
					       const struct rtx_order_thread *thread)
{
	uint32_t entry = load_relaxed(&thread->entry);

	return entry < order->core.start[thread->index + 1] ? &order->core.entry[entry] : NULL;
}

/* A need of the thread's entry that no thread will meet. */
static bool lost(const struct rtx_order *order, const struct rtx_order_thread *thread)
{
	const struct rtxg_order_entry *entry = entry_of(order, thread);

	for (uint32_t i = 0; entry && i < entry->count; i++) {
		const struct rtxg_order_need *need = &order->core.need[entry->first + i];
		const struct rtx_order_thread *needed = &order->thread[need->thread];

		/* The state first: a thread's last access comes before its end. */
		if (load(&needed->state) == RTX_ORDER_ENDED && load(&needed->clock) < need->clock)
			return true;
	}
	return false;
}

/* Looks again and again, while a CPU is left for others. True: the thread may go. */
static bool spin(struct rtx_order *order, struct rtx_order_thread *thread)
{
	bool met = false;

	if (__atomic_fetch_add(&order->spinners, 1, __ATOMIC_RELAXED) < order->spinners_max) {
		for (uint32_t i = 0; i < thread->spin && !met; i++) {
			pause_cpu();
			met = !rtx_lib_order_held(order, thread);
		}
		/* What did not pay off is tried for less long the next time. */
		if (!met)
			thread->spin = thread->spin / 2 + 16;
		else if (thread->spin < SPIN_MAX)
			thread->spin += thread->spin / 4;
	}
	__atomic_fetch_sub(&order->spinners, 1, __ATOMIC_RELAXED);
	return met;
}

/* Wakes a thread that sleeps. It may have gone on by itself: then nobody sleeps there. */
static void wake(struct rtx_order_thread *thread)
{
	if (__atomic_exchange_n(&thread->asleep, 0, __ATOMIC_SEQ_CST))
		rtx_lib_futex_wake(&thread->asleep, false);
}

/* Wakes a sleeper whose needs are met. */
static void wake_if_met(struct rtx_order *order, struct rtx_order_thread *thread)
{
	const struct rtxg_order_entry *entry;

	if (!load(&thread->asleep))
		return;
	entry = entry_of(order, thread);
	if (!entry || !rtxg_order_unmet(&order->core, (uint32_t)(entry - order->core.entry),
					&order->thread[0].clock, RTX_ORDER_STRIDE))
		wake(thread);
}

struct patience {
	uint64_t tick_ns, moved, since_ns;
};

/*
 * The thread slept for a while and nobody woke it: the thread that it needs may stand still inside
 * of an access, or nothing at all may move any more.
 */
static void tick(struct rtx_order *order, struct rtx_order_thread *thread, struct patience *p)
{
	const struct rtxg_order_need *need = rtx_lib_order_held(order, thread);
	uint64_t now = rtxg_now_ns(), moved = rtx_lib_order_moved(order);

	if (!need)
		return;
	if (order->stuck && order->stuck(order, &order->thread[need->thread])) {
		for (uint32_t t = 0; t < order->core.shape.threads; t++)
			wake_if_met(order, &order->thread[t]);
		return;
	}
	if (moved != p->moved) {
		p->moved = moved;
		p->since_ns = now;
	} else if (now - p->since_ns >= order->patience_ns) {
		rtx_lib_order_break_at(order, thread, RTXG_ORDER_BREAK_STALLED);
	}
	if (p->tick_ns < TICK_LAST)
		p->tick_ns *= 2;
}

static bool may_go(const struct rtx_order *order, const struct rtx_order_thread *thread)
{
	return rtx_lib_order_is_broken(order) || !rtx_lib_order_held(order, thread);
}

/*
 * Whether nobody wakes a thread that could go: it is on its way to be woken, if its needs were met
 * a moment ago.
 */
static bool forgotten(struct rtx_order *order, struct rtx_order_thread *thread)
{
	return !rtx_lib_order_held(order, thread) && !rtx_lib_order_is_broken(order) &&
	       rtx_lib_futex_wait(&thread->asleep, 1, rtxg_now_ns() + 2 * TICK_LAST, false) ==
		       -ETIMEDOUT;
}

static void sleep_until_met(struct rtx_order *order, struct rtx_order_thread *thread)
{
	struct patience p = { TICK_FIRST, rtx_lib_order_moved(order), rtxg_now_ns() };

	rtx_lib_order_count(&thread->sleeps, 1);
	for (;;) {
		int ret;

		store(&thread->asleep, 1);
		if (may_go(order, thread))
			break;
		if (lost(order, thread)) {
			rtx_lib_order_break_at(order, thread, RTXG_ORDER_BREAK_ENDED);
			continue;
		}
		ret = rtx_lib_futex_wait(&thread->asleep, 1, rtxg_now_ns() + p.tick_ns, false);
		if (ret != -ETIMEDOUT) {
			rtx_lib_order_count(&thread->wakeups, 1);
			continue;
		}
		if (forgotten(order, thread)) {
			rtx_lib_order_count(&thread->rescues, 1);
			break;
		}
		tick(order, thread, &p);
	}
	store_relaxed(&thread->asleep, 0);
}

static int futex_before(struct rtx_order *order, struct rtx_order_thread *thread)
{
	if (thread->made != thread->restricted)
		return 0;
	rtx_lib_order_count(&thread->counted, 1);
	if (rtx_lib_order_held(order, thread) && !rtx_lib_order_is_broken(order)) {
		rtx_lib_order_count(&thread->waits, 1);
		if (!spin(order, thread))
			sleep_until_met(order, thread);
	}
	return rtx_lib_order_is_broken(order) ? -EPIPE : 0;
}

static void signal_others(struct rtx_order *order, struct rtx_order_thread *thread, uint32_t clock)
{
	const struct rtxg_order *core = &order->core;
	uint32_t end = core->signals[thread->index + 1];

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (; thread->signal < end && core->signal[thread->signal].clock <= clock;
	     thread->signal++)
		wake_if_met(order, &order->thread[core->signal[thread->signal].thread]);
	thread->signal_at =
		thread->signal < end ? core->signal[thread->signal].clock : RTXG_ORDER_MANY;
}

static int futex_after(struct rtx_order *order, struct rtx_order_thread *thread)
{
	uint32_t clock = thread->made + 1;

	if (thread->made == thread->restricted)
		rtx_lib_order_next_entry(order, thread);
	thread->made = clock;
	/* Another thread may have counted this access before: then it stands there already. */
	__atomic_store_n(&thread->clock, clock, __ATOMIC_RELEASE);
	if (clock >= thread->signal_at)
		signal_others(order, thread, clock);
	return 0;
}

/* Who needs more of this thread than it made has to know. */
static void futex_leave(struct rtx_order *order, struct rtx_order_thread *thread)
{
	for (uint32_t t = 0; t < order->core.shape.threads; t++)
		if (load(&order->thread[t].asleep) && lost(order, &order->thread[t]))
			wake(&order->thread[t]);
}

static void futex_let_go(struct rtx_order *order)
{
	for (uint32_t t = 0; t < order->core.shape.threads; t++)
		wake(&order->thread[t]);
}

const struct rtx_order_ops rtx_lib_order_futex_ops = {
	.open = futex_open,
	.close = futex_close,
	.before = futex_before,
	.after = futex_after,
	.leave = futex_leave,
	.let_go = futex_let_go,
};
