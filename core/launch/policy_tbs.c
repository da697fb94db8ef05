/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy_tbs.c - every vGPU with a reservation is a total bandwidth server (Spuri and Buttazzo,
 * RTSS 1994; "Scheduling aperiodic tasks in dynamic priority systems", Real-Time Systems 10, 1996).
 *
 * A request k gets the deadline d(k) = max(r(k), d(k-1)) + C(k) / U, with r its arrival, C its
 * length and U the reservation; the earliest deadline goes first (EDF). Requests of one vGPU are
 * served in the order of its task policy, one deadline at a time. C is the task's runtime if it
 * gave one, and else the mean of the vGPU's recent launches. Once a launch has ended, the time that
 * it really took replaces C in d(k), so that a wrong guess is paid for by the next deadline. Time
 * that no other vGPU waited for costs nothing. vGPUs without a reservation come after all others,
 * in order of arrival.
 *
 * Time that is left over takes nothing from a reservation. A request counts from max(r(k), d(k-1));
 * where that is still to come for all that want the engine, none of them is owed anything yet. The
 * deadlines of all then move back alike, so that the first of them counts from now. It is the
 * virtual time of rate-proportional servers (Stiliadis and Varma, IEEE/ACM Trans. Networking 6,
 * 1998), which is never behind all that it serves, here kept at the real time.
 *
 * Good for reservations with rare requests of known length: each gets the earliest deadline that
 * its share allows, without waiting for a budget to come back. Not good where lengths vary widely
 * (the deadline follows the guess), for caps (max is not looked at) and for dividing what is left
 * over, which goes to those that have the earlier deadlines.
 */
#include "account.h"
#include "policy.h"

/* No launch is longer than this, and it can still be divided by the smallest share. */
#define LONGEST_NS 1000000000000ull

struct tbs_books {
	uint64_t base;	 /* max(r(k), d(k-1)) */
	uint64_t length; /* C(k) */
	uint64_t used;	 /* of it, by now, at others' cost */
	uint64_t mean;	 /* of recent launches; 0 = not known yet */
	uint64_t ppm;	 /* the reservation that base counts by; 0 = it has had none */
};

static struct tbs_books *books_of(const struct core_account *account)
{
	return core_books(account, struct tbs_books);
}

/* How much later a server's deadline is for this much of the engine. Without one there is none. */
static uint64_t stretched(const struct core_account *account, uint64_t ns)
{
	uint32_t min_ppm = account->vgpu->params.min_ppm;

	return min_ppm ? min_u64(ns, LONGEST_NS) * RTXG_PPM / min_ppm : 0;
}

static uint64_t deadline(const struct core_account *account)
{
	return add_time(books_of(account)->base, stretched(account, books_of(account)->length));
}

static bool is_owed(const struct core_account *account, uint64_t now)
{
	return account->vgpu->params.min_ppm && books_of(account)->base <= now;
}

/* From when the first of those counts that want the engine by a reservation; NEVER: none wants. */
static uint64_t first_base(const struct core_engine *engine)
{
	const struct core_account *account = core_engine_first(engine);
	const struct core_vgpu *vgpu;
	uint64_t first = NEVER;

	/* Those without a reservation are the last in the heap. */
	if (!engine->holder && (!account || !account->vgpu->params.min_ppm))
		return NEVER;
	for (vgpu = engine->gpu->vgpus; vgpu; vgpu = vgpu->next) {
		account = &vgpu->accounts[engine->index];
		if (vgpu->params.min_ppm && (account->holder || heap_holds(&account->ready)))
			first = min_u64(first, books_of(account)->base);
	}
	return first;
}

/*
 * What the engine did until now for those ahead of their reservations was left over, if none that
 * wants it is owed anything: all move back. own: wants it too.
 */
static void move_back(struct core_engine *engine, const struct core_account *own, uint64_t now)
{
	struct core_vgpu *vgpu;
	uint64_t by;

	if ((own && is_owed(own, now)) || (engine->holder && is_owed(engine->holder, now)))
		return;
	by = first_base(engine);
	if (own && own->vgpu->params.min_ppm)
		by = min_u64(by, books_of(own)->base);
	if (by == NEVER || by <= now)
		return;
	by -= now;
	for (vgpu = engine->gpu->vgpus; vgpu; vgpu = vgpu->next) {
		struct core_account *account = &vgpu->accounts[engine->index];
		struct tbs_books *books = books_of(account);

		books->base -= min_u64(by, books->base);
		if (vgpu->params.min_ppm && heap_holds(&account->ready))
			heap_update(&engine->ready, &account->ready, deadline(account), vgpu->id);
	}
}

/* The account's first waiter is its request now. */
static void next_request(struct core_account *account, uint64_t last_deadline)
{
	struct core_lane *lane;
	struct core_task *task = core_account_first(account, &lane);
	struct tbs_books *books = books_of(account);

	books->base = max_u64(lane->arrived_ns, last_deadline);
	books->length = task->params.runtime_ns ? task->params.runtime_ns : books->mean;
	books->used = 0;
}

static void tbs_reset(struct core_account *account, uint64_t now)
{
	*books_of(account) =
		(struct tbs_books){ .base = now, .ppm = account->vgpu->params.min_ppm };
	if (account->waiters.count)
		next_request(account, now);
}

/*
 * What the server has used ahead, or is owed, stays as much of the engine as it was. It takes
 * another time under another reservation.
 */
static void tbs_changed(struct core_account *account, uint64_t now)
{
	struct tbs_books *books = books_of(account);
	uint64_t min_ppm = account->vgpu->params.min_ppm;

	if (!min_ppm || min_ppm == books->ppm)
		return;
	books->base = move_time(books->base, now, books->ppm, min_ppm);
	books->ppm = min_ppm;
}

static void tbs_wake(struct core_account *account, uint64_t now)
{
	move_back(account->engine, NULL, now);
	next_request(account, books_of(account)->base);
}

static void tbs_place(struct core_account *account, uint64_t now)
{
	bool reserved = account->vgpu->params.min_ppm > 0;

	heap_insert(&account->engine->ready, &account->ready, reserved ? deadline(account) : NEVER,
		    reserved ? account->vgpu->id : heap_first(&account->waiters)->tie);
}

/* Would the account, which is about to come back, go before the best of those that wait? */
static bool tbs_before(struct core_account *account, struct core_account *best, uint64_t now)
{
	const struct tbs_books *books = books_of(account);

	return account->vgpu->params.min_ppm &&
	       add_time(max_u64(now, books->base), stretched(account, books->mean)) <
		       best->ready.key;
}

static struct core_account *tbs_pick(struct core_engine *engine, uint64_t now, uint64_t *look_again)
{
	struct core_account *best = core_engine_first(engine);

	if (!best || core_engine_awaits(engine, best, tbs_before, now, look_again))
		return NULL;
	return best;
}

static void tbs_charge(struct core_account *account, const struct core_usage *usage, uint64_t now)
{
	struct tbs_books *books = books_of(account);

	books->used += usage->contended;
	/* Others wait for one launch at a time, so that is its length. */
	if (usage->contended)
		books->mean = books->mean ? books->mean - books->mean / 8 + usage->contended / 8
					  : usage->contended;
}

static void tbs_ended(struct core_account *account, uint64_t now)
{
	struct tbs_books *books = books_of(account);

	move_back(account->engine, account, now);
	books->base = add_time(books->base, stretched(account, books->used));
	books->length = books->used = 0;
	if (account->waiters.count)
		next_request(account, books->base);
}

static void tbs_paused(struct core_account *account, uint64_t ns, uint64_t now)
{
	struct tbs_books *books = books_of(account);

	books->base = add_time(books->base, stretched(account, ns));
}

static void tbs_view(const struct core_account *account, struct rtxg_account_view *view)
{
	view->deadline_ns = account->vgpu->params.min_ppm ? deadline(account) : 0;
}

const struct core_policy tbs_policy = {
	.summary = "reservations by total bandwidth servers under EDF",
	.reads = RTXG_READS_THINK,
	.reset = tbs_reset,
	.changed = tbs_changed,
	.wake = tbs_wake,
	.place = tbs_place,
	.pick = tbs_pick,
	.charge = tbs_charge,
	.paused = tbs_paused,
	.ended = tbs_ended,
	.view = tbs_view,
};
