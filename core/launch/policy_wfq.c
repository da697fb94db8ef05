/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy_wfq.c - weighted fair queueing: every vGPU gets the engine in proportion to its weight.
 *
 * The next launch of each vGPU has a virtual finish time: where the vGPU's last launch finished, or
 * the engine's virtual time if that is later, plus the launch's length divided by the weight. The
 * earliest goes first (Demers, Keshav and Shenker, SIGCOMM 1989). The engine's virtual time is the
 * start of the launch in service, as in start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM
 * 1996): it needs no model of an ideal server, and a short pause loses nothing. A launch's length
 * is not known before it ends: the mean of the vGPU's recent ones stands in, and the time that the
 * launch really took replaces it afterwards.
 *
 * Good for programs of equal rank that should share by a ratio, such as the users of one server.
 * Not good for guarantees: min and max are not looked at, and the wait for a launch grows with the
 * number of vGPUs that are busy. Time that a vGPU did not want is not made up for later.
 */
#include "account.h"
#include "policy.h"

struct wfq_books {
	uint64_t start; /* virtual: of the next launch */
	uint64_t mean;	/* length of a launch, ns; 0 = not known yet */
};

struct wfq_engine {
	uint64_t vtime;
};

/* Time in which an account of the default weight would have got as much. */
static uint64_t weighted(const struct core_account *account, uint64_t ns)
{
	return ns * RTXG_WEIGHT_DEFAULT / account->vgpu->params.weight;
}

static uint64_t finish(const struct core_account *account)
{
	const struct wfq_books *books = core_books(account, struct wfq_books);

	return books->start + weighted(account, books->mean);
}

static void wfq_wake(struct core_account *account, uint64_t now)
{
	struct wfq_books *books = core_books(account, struct wfq_books);

	books->start = max_u64(books->start, core_books(account->engine, struct wfq_engine)->vtime);
}

static void wfq_place(struct core_account *account, uint64_t now)
{
	heap_insert(&account->engine->ready, &account->ready, finish(account), account->vgpu->id);
}

/* Would the account, which is about to come back, go before the best of those that wait? */
static bool wfq_before(struct core_account *account, struct core_account *best, uint64_t now)
{
	return finish(account) < finish(best);
}

static struct core_account *wfq_pick(struct core_engine *engine, uint64_t now, uint64_t *look_again)
{
	struct wfq_engine *books = core_books(engine, struct wfq_engine);
	struct core_account *best = core_engine_first(engine);

	if (!best || core_engine_awaits(engine, best, wfq_before, now, look_again))
		return NULL;
	books->vtime = max_u64(books->vtime, core_books(best, struct wfq_books)->start);
	return best;
}

static void wfq_charge(struct core_account *account, const struct core_usage *usage, uint64_t now)
{
	struct wfq_books *books = core_books(account, struct wfq_books);

	books->start += weighted(account, usage->contended);
	/* Others wait for one launch at a time, so that is its length. */
	if (usage->contended)
		books->mean = books->mean ? books->mean - books->mean / 8 + usage->contended / 8
					  : usage->contended;
}

static void wfq_paused(struct core_account *account, uint64_t ns, uint64_t now)
{
	core_books(account, struct wfq_books)->start += weighted(account, ns);
}

const struct core_policy wfq_policy = {
	.summary = "weighted fair queueing: shares in proportion to weights",
	.reads = RTXG_READS_THINK,
	.wake = wfq_wake,
	.place = wfq_place,
	.pick = wfq_pick,
	.charge = wfq_charge,
	.paused = wfq_paused,
};
